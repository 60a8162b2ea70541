"""Scripts that recompute a result: run, their weights and output are the trace's own, in every framework.

PyTorch and Keras run where they are installed; elsewhere NumPy stands in for them. With
ATTN_REQUIRE_TORCH=1 a missing PyTorch fails these tests.
"""

import ast
import contextlib
import importlib.util
import io
import os
import re
import subprocess
import sys
import tokenize
import warnings
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, strategies as st

from attn_cli import Settings
from attn_cli.errors import visible
from attn_cli.inputs.matrices import given_from
from attn_cli.pipeline.sources.matrices import trace_matrices
from attn_cli.pipeline.sources.text import trace_cross, trace_masked, trace_self
from attn_cli.render.code import literals, script
from attn_cli.render.code.literals import call_lines, matrix, number, row_label, safe_name, string, vector
from attn_cli.render.screen.text import cells
from tests.models.checkpoints.by_hand import small_gpt2, small_gpt_oss
from tests.render.code.stand_ins import libraries
from tests.shell import attn, refused, told

FRAMEWORKS = ("numpy", "torch", "keras")
OF_FRAMEWORKS = {*["scaled_dot_product_attention", "attn_mask", "attention_mask", "use_scale"]}  # in comments
TEXT = "she likes hot coffee"
HOSTILE = ['"', "'", '"""', "\\", "\\N{DASH}", "a\nb", "\x1b[31m", "\u2028", "\u202eabc", "{x}", "%s", "\0"]
HOSTILE += ["👨\u200d👩\u200d👧", "é", "́", "�", "שלום", "日本"]
HOSTILE += ["'\"\\\x07", "# noqa", "x" * 5000, "a" * 59 + "\\n"]


def drawn(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).standard_normal(shape).tolist()


def computed(record, **options):
    return trace_matrices("compute", given_from(record, "numbers.json"), Settings(**options))


def weighted(layout="in-out", heads=1, **more):
    """X, weights and biases for 3 tokens of 4 numbers; d_k 6 and d_v 2 are shared among the heads."""
    way = 1 if layout == "in-out" else -1
    W = {
        f"W_{name}": drawn(*(4, d)[::way], seed=n)
        for n, (name, d) in enumerate((("q", 6), ("k", 6), ("v", 2)))
    }
    biases = {"b_q": drawn(6), "b_k": drawn(6, seed=1), "b_v": drawn(2)}
    return {"X": drawn(3, 4), **W, **biases, "layout": layout, "heads": heads, **more}


def random(text=TEXT, trace=trace_self, **options):
    return trace(text, Settings(embedding="random", **options))


SHUT = [[True] * 5, [False] * 5, [True, False, True, False, True]]
EYE = np.eye(13).tolist()
QKV = {"Q": drawn(3, 4), "K": drawn(5, 4), "V": drawn(5, 2)}
TRACES = {
    "self": lambda: random(),
    "masked": lambda: random(trace=trace_masked),
    "cross": lambda: trace_cross(TEXT, "the cat", Settings(embedding="random", mask="causal")),
    "cross with itself": lambda: trace_cross(TEXT, TEXT, Settings(embedding="random")),
    "roles": lambda: trace_self(TEXT),
    "roles, cosine, warm, masked": lambda: trace_self(TEXT, Settings(score="cosine", temperature=0.3, mask="window:1")),
    "roles, dot": lambda: trace_self(TEXT, Settings(score="dot", temperature=4.0)),
    "roles, another head": lambda: trace_self(TEXT, Settings(head="subject")),
    "roles, mean": lambda: trace_self(TEXT, Settings(head="mean", mask="causal")),
    "roles, all": lambda: trace_self("she likes", Settings(head="all", score="cosine")),
    "roles across texts": lambda: trace_cross(TEXT, "the cat", Settings()),
    "roles-deep": lambda: trace_self(TEXT, Settings(projection="roles-deep")),
    "a layer below": lambda: trace_self(TEXT, Settings(projection="roles-deep", layer=2, head="3", mask="causal")),
    "the mean of a layer below": lambda: trace_self("she", Settings(projection="roles-deep", layer=1, head="mean")),
    "identity": lambda: random(projection="identity", score="dot", temperature=2.0),
    "wide identity": lambda: trace_self(TEXT, Settings(projection="identity")),
    "12 numbers": lambda: random("she", dim=12),
    "13 numbers": lambda: random("she", dim=13),
    "wide random": lambda: random(dim=20, projection="random"),
    "long random": lambda: random(" ".join([TEXT] * 10), dim=16),
    "cosine": lambda: random(score="cosine", mask="causal-bottom-right"),
    "cosine of nothing": lambda: trace_self("she xqzzv", Settings(projection="identity", score="cosine")),
    "window": lambda: random(mask="window:1", temperature=0.5),
    "window back": lambda: random(mask="window:2:0"),
    "bottom right": lambda: computed(QKV, mask="causal-bottom-right"),
    "rows shut by causal-bottom-right": lambda: computed({**QKV, "Q": drawn(8, 4)}, mask="causal-bottom-right"),
    "Q, K and V": lambda: computed(QKV),
    "all of one head": lambda: computed(QKV, head="all"),
    "mean of one head": lambda: computed(QKV, head="mean"),
    "biases of values": lambda: computed(
        {"X": drawn(3, 13), **dict.fromkeys(("W_q", "W_k", "W_v"), EYE), "b_v": drawn(13), "layout": "in-out"}),
    "position scores": lambda: computed({**QKV, "position_scores": drawn(3, 5)}),
    "position scores and mask": lambda: computed({**QKV, "position_scores": drawn(3, 5), "mask": SHUT}),
    "capped, with a sink": lambda: computed(
        {**QKV, "softcap": 2.0, "scale": 0.3, "sinks": 0.5, "position_scores": drawn(3, 5)}, temperature=4.0),
    "a row shut": lambda: computed({**QKV, "mask": SHUT}, score="dot"),
    "a row shut in two heads": lambda: computed({**QKV, "mask": SHUT}, heads=2, head="mean"),
    "one key, masked or not": lambda: computed(
        {"Q": drawn(2, 3), "K": drawn(1, 3), "V": drawn(1, 2), "mask": [[True], [False]]}),
    "one token": lambda: random("she"),
    "one number": lambda: computed({"Q": [[2.0]], "K": [[3.0]], "V": [[4.0]]}),
    "X alone": lambda: computed({"X": drawn(3, 2)}),
    "X and a context": lambda: computed({"X": drawn(3, 2), "context": drawn(4, 2)}),
    "W x": lambda: computed(weighted("out-in")),
    "W x with a context": lambda: computed(weighted("out-in", context=drawn(5, 4)), mask="causal"),
    "a head of two": lambda: computed(weighted(heads=2), head="1"),
    "a head of two, of W x": lambda: computed(weighted("out-in", heads=2), head="1"),
    "all heads": lambda: computed(weighted(heads=2), head="all", mask="causal"),
    "the mean of heads, cosine": lambda: computed(weighted(heads=2), head="mean", score="cosine"),
    "heads of identity": lambda: random(projection="identity", heads=2, head="mean"),
    "a head of identity": lambda: random(projection="identity", heads=2, head="1"),
    "W_o": lambda: computed(weighted(heads=2, W_o=drawn(2, 5), b_o=drawn(5)), head="1"),
    "W_o, W x": lambda: computed(weighted("out-in", heads=2, W_o=drawn(5, 2)), head="mean"),
    "W_o of one head": lambda: computed(weighted(W_o=drawn(2, 5))),
    "large numbers": lambda: computed({"Q": [[3e5, 1]], "K": [[3e5, 4], [1, 1]], "V": drawn(2, 2)}),
    "vast and tiny cosines": lambda: computed(
        {"Q": [[1e200, 2e200], [1e-200, 3e-200]], "K": [[1e200, 1e150], [0, 0]], "V": drawn(2, 2)}, score="cosine"),
    "rows and links": lambda: random("she likes she coffee", query="she", top=2, mask="causal"),
    "links of all heads": lambda: computed(weighted(heads=2), head="all", top=1),
    "hostile tokens": lambda: computed({"X": drawn(len(HOSTILE), 2), "tokens": HOSTILE}),
}  # fmt: skip
CASES = pytest.mark.parametrize("trace", [pytest.param(make, id=name) for name, make in TRACES.items()])


def ran(source):
    space, printed = {}, io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(source, "script.py", "exec"), space)
    return space, printed.getvalue()


def close(trace, space, array=np.asarray):
    """Compare what a script left with the trace: to 1e-12, times the largest score."""
    scores = [head.scaled_scores for head in trace.heads if head.scaled_scores is not None]
    largest = max([1.0, *(float(np.abs(part).max()) for part in scores)])
    weights = array(space["weights"])
    assert weights.dtype == np.float64
    assert weights.shape == trace.weights.shape
    np.testing.assert_allclose(weights, trace.weights, rtol=0, atol=1e-12 * largest)
    sizes = [float(np.abs(head.v).max()) for head in trace.heads if head.v is not None]
    atol = 1e-12 * largest * max([1.0, *sizes])
    np.testing.assert_allclose(array(space["output"]), trace.output, rtol=0, atol=atol)
    if "layer_output" in space:
        np.testing.assert_allclose(array(space["layer_output"]), trace.layer_output, rtol=0, atol=10 * atol)


def installed(framework):
    """What makes an array of what a framework returns, and what stands in for it where it is not installed."""
    if importlib.util.find_spec(framework) is None:
        assert framework == "keras" or os.environ.get("ATTN_REQUIRE_TORCH") != "1"
        return np.asarray, libraries()
    if framework != "keras":
        return np.asarray if framework == "numpy" else lambda tensor: tensor.numpy(), {}
    if importlib.util.find_spec("torch"):
        os.environ.setdefault("KERAS_BACKEND", "torch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        keras = importlib.import_module("keras")
    return lambda tensor: np.asarray(keras.ops.convert_to_numpy(tensor)), {}


@CASES
def test_a_script_is_tidy_and_gives_the_weights_and_the_output(trace):
    trace = trace()
    for framework in FRAMEWORKS:
        array, modules = installed(framework)
        check_tidy(source := script(trace, framework), framework)
        with warnings.catch_warnings(), mock.patch.dict(sys.modules, modules):
            warnings.simplefilter("ignore", DeprecationWarning)  # Keras' own, of NumPy
            space, _ = ran(source)
            close(trace, space, array)
        is_one = trace.query_tokens == trace.key_tokens
        for name, tokens in zip(("queries", "keys"), (trace.query_tokens, trace.key_tokens), strict=True):
            assert space["tokens" if is_one else name] == [*tokens]
        assert space.get("difference", 0) < 1e-4  # the layer of Keras may work in float32


def check_tidy(source, framework):
    """A script compiles, imports what it uses and no more, and its lines can be read."""
    tree = ast.parse(source)
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {getattr(node, "module", None) or node.names[0].name for node in found}
    assert {name.partition(".")[0] for name in names} == {framework}
    lines = source.split("\n")
    assert all(cells(line) <= 100 and line == line.rstrip() for line in lines)
    assert all(visible(line) == line for line in lines)
    assert source.endswith("\n") and not source.endswith("\n\n")
    read = [node for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)]
    bound = {alias.asname or alias.name.partition(".")[0] for node in found for alias in node.names}
    assert bound <= {node.id for node in read}, "an import is not used"
    tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    known = {token.string for token in tokens if token.type == tokenize.NAME} | OF_FRAMEWORKS
    comments = " ".join(token.string for token in tokens if token.type == tokenize.COMMENT)
    named = set(re.findall(r"\b[a-z]{2,}(?:_[a-z]+)+\b", comments))
    assert named <= known, "a comment names what is not there"


def test_scripts_are_as_a_formatter_leaves_them(tmp_path):
    if importlib.util.find_spec("ruff") is None:
        pytest.skip("ruff is not installed: pip install ruff")
    for name, make in TRACES.items():
        for framework in FRAMEWORKS:
            path = tmp_path / f"{framework}_{re.sub('[^a-zA-Z]', '_', name)}.py"
            path.write_text(script(make(), framework), encoding="utf-8")
    ruff = [sys.executable, "-m", "ruff"]
    for check in (["check", "--select", "E,F,W"], ["format", "--check"]):
        command = [*ruff, *check, "-q", "--isolated", "--line-length", "100", str(tmp_path)]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[:2000]


def test_a_token_is_the_same_text_when_python_reads_it_back_and_readable_letters_stay_readable():
    for token in HOSTILE:
        assert ast.literal_eval(string(token)) == token and visible(string(token)) == string(token)
    found = [string(word) for word in ("café", "日本", "don't", "it’s", "\u202e", '"', "'\"")]
    assert found == ['"café"', '"日本"', '"don\'t"', '"it’s"', '"\\u202e"', "'\"'", '"\'\\""']


def test_literals_are_laid_out_as_a_formatter_leaves_them_and_names_are_short_and_inert():
    for length, lines in ((97, 1), (98, 3)):  # and three signs: f, ( and )
        assert len(call_lines("f", ["x" * length])) == lines
    assert call_lines("f", ["x" * 48, "y" * 46]) == ["f(" + "x" * 48 + ", " + "y" * 46 + ")"]
    assert call_lines("f", ["x" * 48, "y" * 46], "[0]") == ["f(", "    " + "x" * 48 + ", " + "y" * 46, ")[0]"]
    lines = ["f(", "    " + "x" * 48 + ",", "    " + "y" * 49 + ",", ")"]
    assert call_lines("f", ["x" * 48, "y" * 49]) == lines
    assert vector("v", ["x" * 44 + ",", "日" * 24 + ","]) == ["v = [" + "x" * 44 + ", " + "日" * 24 + "]"]
    filled = vector("v", ["x" * 44 + ",", "日" * 24 + ",", "y,"])
    assert filled == ["v = [", "    " + "x" * 44 + ", " + "日" * 24 + ",", "    y,", "]  # fmt: skip"]
    pieces = [f's = ["{"x" * 60}\u0301" "y"]']  # an accent stays with its letter
    assert literals.strings("s", ["x" * 60 + "\u0301y"]) == pieces
    # 8 spaces, [, 17 times 3 digits and 4, 17 times a comma and a space, ], and a comma: 100
    row = [*[0.5] * 17, 0.25]
    around = "a(", ")"
    for label, last in (("", ""), ("long", "")):
        assert (
            matrix("m", np.array([row]), around, [label])[2] == f"        [{', '.join(map(str, row))}],{last}"
        )
    assert matrix("m", np.array([[0.5]]), around, ["she"])[2] == "        [0.5],  # she"
    above, first, *_ = matrix("m", np.array([[*row[1:], 0.125]]), around, ["she"])[2:]
    assert (above, first) == ("        # she", f"        [{', '.join(map(str, row[1:]))},")
    names = {"a/b/c.txt": "c.txt", 'x"y': "x'y", "é": "\\xe9", "n" * 60: "n" * 57 + "...", "n" * 57: "n" * 57}
    assert {name: safe_name(name) for name in names} == names
    labels = {"fox": "fox", "don't": '"don\'t"', "שלום": ascii("שלום"), "日本": "日本", "3": "3", "+": "'+'"}
    assert {token: row_label(token) for token in labels} == labels
    numbers = {one: f'float("{one}")' for one in ("inf", "-inf", "nan")} | {"1e20": "1e20", "2": "2.0"}
    assert {text: number(float(text)) for text in numbers} == numbers
    assert (string("\\ café"), string("\u0301")) == ('"\\\\ café"', '"\\u0301"')
    assert string("e\u0301\u0301") == '"e\u0301\u0301"'


@given(st.floats())
def test_a_number_is_the_same_when_python_reads_it_back(x):
    assert repr(eval(number(x))) == repr(x)


SAYS = """
masked numpy => np.tril(np.ones((n_q, n_k), dtype=bool)) ; what attn masked shows
hostile tokens numpy => [i]!r:>20}
window numpy => <= 1 ; temperature 0.5 mask window:1; True = may attend ; ! head ; its own by at most 1.
window back torch => from 2 before its own position to 0 after it.
a layer below numpy => W_o has 256 x 256 numbers ; !layer_output ; X is the output of layer 1.
a layer below torch => weights roles-deep, learned, layer 2, layout ; head 3, one of 8 left out the layer's output:
W_o numpy => layer_output = ; + b_o ; head 1, one of 2 ; The output projection, which joins ; !left out
W_o, W x torch => layer_output = torch.cat([*head_outputs], dim=-1) @ W_o.T ; !b_o ; The mean of the heads.
a row shut numpy => [False, False, False, False, False], q1 ; score dot products, not scaled mask ; Not scaled.
a row shut numpy => The mask. True = may attend.
a row shut keras => A query that may attend to nothing would get NaN; its weights are set to zero here.
a row shut in two heads torch => Older versions of PyTorch give NaN, not zeros, where nothing is allowed. ; !removes it
wide random numpy => Q = np.array( ; 20 x 20 numbers each ; !W_q = np ; K = X W_k, V = X W_v. They are written out
12 numbers numpy => W_q = np ; The weights, as (in, out). ; Self-attention: 1 query (row) x 1 key (column), in NumPy.
13 numbers numpy => !W_q = np ; because W_q and W_k (random) have 13 x 13 numbers each.
biases of values keras => Q = X W_q, K = X W_k, V = X W_v + b_v. They
mean of one head numpy => weights = softmax(Q K^T / sqrt(4)) and ; !in each head
position scores and mask torch => bias = position_scores.masked_fill(~mask, -torch.inf) ; attn_mask=bias
position scores torch => attn_mask=position_scores, ; masked_scores = scaled_scores + position_scores no mask
roles, mean torch => in each head weights = softmax(Q K^T / sqrt(32) + position) and output = weights V, and then
roles, mean keras => weights roles, learned, layer 0, layout in-out (x W) score ; True = may attend head the mean of 11
roles, mean numpy => 11 heads: each takes its share ; All heads have the same values. ; The mean of the heads.
roles, dot keras => (Q K^T / 4.0 + position) ; !in each ; score dot products, not scaled temperature 4.0 mask
roles, dot numpy => Not scaled, but divided by the temperature. ; scaled as the scores are.
roles, all numpy => head all 11 ; scaled as dot products would be. ; Head relations, the one that attn shows first.
a head of two, of W x numpy => given by numbers.json, 4 numbers each weights given by ; layout out-in (W x)
a head of two, of W x torch => W x for each row x, which is X W^T. ; of head 1, as (out, in). ; The biases.
a head of two torch => values: x W for each row x. ; in one call. ; [None] adds an axis for heads, and [0] removes it.
the mean of heads, cosine torch => cos(Q, K) ; score cosines, not scaled
rows and links numpy => vectors random, 4 numbers each, seed 0 weights random, seed 0, l ; rows = [0, 2] ; at most 2.
capped, with a sink numpy => softmax(2.0 tanh(Q K^T x 0.3 / 2.0) / 4.0 + position; sink) and ; 3 queries (rows) x 5
capped, with a sink torch => matrices given by numbers.json Q, K, V as given score ; times 0.3, capped at 2.0 t
capped, with a sink keras => Scaled by the factor that was given, and divided by the temperature. ; !keras.layers
a head of identity numpy => W_q, W_k and W_v are the identity: ; Head 1 takes columns 2 to 3. ; X[:, 2:4]
one token keras => Softmax over a single key: 1 whatever its score ; !keras.layers ; !import keras
self keras => import keras from keras import ops ; its_weights[0]
X and a context torch => A vector for each token of the text. ; A vector for each token of the context.
links of all heads numpy => for name, of_head, made in zip(names, head_weights, head_outputs) ; names = ["0", "1"]
"""  # and what with an ! is not there


@pytest.mark.parametrize("line", SAYS.strip().splitlines())
def test_a_script_is_written_so(line):
    asked, _, parts = line.partition(" => ")
    kind, _, framework = asked.rpartition(" ")
    said = " ".join(script(TRACES[kind](), framework).replace("# ", "").split())
    for part in parts.split(" ; "):
        assert (part.lstrip("!") in said) is (part[0] != "!"), part


def test_what_it_prints():
    """Four digits; masked is not zero; rows and links that were asked for; and no token is obeyed."""
    given = {"Q": [[0.0]], "K": [[0.0], [0.0]], "V": [[1.0], [2.0]]}
    numbers = r"keys: \['k0', 'k1'\]\nweights\n'q0'   0\.5000   0\.5000\noutput\n'q0'   1\.5000\n"
    hot = random(query="hot", top=1)
    key = hot.key_tokens[hot.weights[2].argmax()]
    one = rf"[^\n]*\nweights\n *'hot' '{key}' 0\.\d{{4}}\noutput\n *'hot' [ \d.-]+\n"
    for wanted, trace in (
        (numbers, computed(given)),
        (r"(?s).*'she'   1\.0000   masked.*", random("she likes", mask="causal")),
        (one, hot),
        (r"(?s).*\n *'she' 'she' 1\.0000\n.*", random("she likes", top=2, mask="causal")),
        ("[^\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u202e]*", TRACES["hostile tokens"]()),
    ):
        _, printed = ran(script(trace, "numpy"))
        assert re.fullmatch(wanted, printed), printed
    of_distances = re.findall(r"# (-?\d)\n", script(TRACES["roles, dot"](), "numpy"))
    assert of_distances[:7] == ["-3", "-2", "-1", "0", "1", "2", "3"]


def test_what_a_model_computes_is_not_said_to_be_given_and_too_many_numbers_are_refused(at, file, tokenizers):
    written = told("self", TEXT, "-e", "random", "-f", "code:numpy")
    assert told("explain", TEXT, "-e", "random", "-o", "x.py") == ""
    assert (at / "x.py").read_text() == written != ""
    folder = small_gpt2(at / "gpt2")
    source = script(trace_self("dabca", Settings(model=folder)), "numpy")
    assert "model    gpt2\n" in source and "Q, K, V  as the model computes them\n" in source
    assert "# Queries, keys and values of head 0, as the model computes them.\n" in source
    assert "given" not in source
    trace = trace_self("dabca", Settings(model=small_gpt_oss(at / "gpt_oss"), temperature=2.0))
    close(trace, ran(source := script(trace, "numpy"))[0])
    assert "Queries and keys (rotated by their positions) and values of head 0." in source
    assert "; sink)" in source and "+ position" not in source
    many, long = ("the cat sat on a mat " * 4, "--head", "all"), ("a " * 2000, "-e", "random")
    for why, *line in (("201 tokens", "a " * 201), ("one head", *many), ("2,000 tokens", *long)):
        said = refused("self", *line, "-f", "code:numpy")
        assert why in said and "-f json" in said
    here = "Here are 24 keys and 11 heads. Give a shorter text, one head (--head NAME), or"
    assert here in refused("self", *many, "-f", "code:numpy")
    assert told("self", "a " * 200, "-e", "random", "-f", "code:numpy").count("# a\n") == 200
    vectors, mask = file("she 0.2 0.9\nlikes 0.8 0.3\n", "words.txt"), file("[[1, 0], [1, 1]]", "mask.json")
    trace = trace_self("she likes", Settings(embedding=vectors, mask=mask, mask_true="allowed"))
    for framework in FRAMEWORKS:
        source = script(trace, framework)
        assert at.name not in source and "words" in source
    done = attn("self", "café crème", "-e", "random", "-f", "code:numpy", env={"PYTHONIOENCODING": "ascii"})
    assert done.code == 0 and done.out.isascii() and ran(done.out)[0]["tokens"] == ["café", "crème"]
