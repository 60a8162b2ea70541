"""What a page holds, read without a browser: numbers that make each head's weights, and what it says of a text."""

import json
import re
import zlib
from base64 import b64decode, b64encode
from hashlib import sha256
from html import unescape

import numpy as np
import pytest

from attn_cli.errors import InputError
from attn_cli.inputs.matrices import given_from
from attn_cli.inputs.saved_weights import Saved
from attn_cli.pipeline.embed import open_shared
from attn_cli.pipeline.for_page import Page, page_of, page_of_weights
from attn_cli.pipeline.sources.matrices import trace_matrices
from attn_cli.pipeline.sources.text import trace_cross, trace_self
from attn_cli.render.page import ABOUT_NORMS, _file_name, page
from attn_cli.render.page.script import Numbers
from attn_cli.settings import Settings
from attn_cli.vectors.lookup import open_table
from tests.browser import FOX
from tests.models.checkpoints.by_hand import GEMMA2, byte_pairs, gemma2, saved as write, small_gpt_oss
from tests.shell import here

KINDS = {"u8": "u1", "f16": "<f2", "f32": "<f4", "f64": "<f8"}
RULES = {"&&": "and", "Math.abs": "abs", "true": "True"}  # of JavaScript, in Python


def read(stored, data):
    """Return an array as the page reads it."""
    data = zlib.decompress(data, -zlib.MAX_WBITS) if stored.get("packed") else data
    if stored["type"] != "f48":
        return np.frombuffer(data, KINDS[stored["type"]]).astype(float).reshape(stored["shape"])
    n = len(data) // 6
    first, rest = np.frombuffer(data, "<f4", n), np.frombuffer(data, "<f2", n, 4 * n)
    return (first + rest.astype(float) / 2**24).reshape(stored["shape"])


def held(text):
    """Return the record of a page, each of its arrays in its place."""
    elements = dict(re.findall(r'<script type="text/plain" id="(\w+)">([^<]*)</script>', text))
    made = re.search(r'<script type="application/json" id="record">(.*?)</script>', text)[1]
    assert not re.search("[<>&\u2028\u2029]", made)
    return json.loads(
        made, object_hook=lambda one: read(one, b64decode(elements[one["id"]])) if "shape" in one else one
    )


def part(text, start, end):
    """Return what a reader sees between two marks of the page."""
    return unescape(re.sub("<[^>]*>", "", text.partition(start)[2].partition(end)[0]))


def allowed(record, layer, head, text):
    """Return which key (column) each query may look at."""
    n_q, n_k = len(record["queries"]), len(record["keys"])
    stem, *numbers = record["mask"].split(":")
    arrays = [one for one in (head.get("allowed"), layer["allowed"], record["allowed"]) if one is not None]
    if arrays:
        may = arrays[0] > 0
    else:
        entry = rf'"{stem}": {{.*?\b{len(numbers)}: \(i, j, n_q, n_k, a, b\) => (.*?), (?=\d:|}})'
        rule = re.search(entry, text)[1]
        for there, here in RULES.items():
            rule = rule.replace(there, here)
        known = {"n_q": n_q, "n_k": n_k} | dict(zip("ab", map(int, numbers), strict=False))
        cells = [[bool(eval(rule, known | {"i": i, "j": j})) for j in range(n_k)] for i in range(n_q)]
        may = np.array(cells)
    hidden = [*record["off"], *range(*record["padding"])]
    return may & ~np.isin(np.arange(n_k), hidden)


def weights_in(record, layer, head, text):
    """Return a head's weights by the formula (Vaswani et al. 2017, section 3.2.1), of what the page has of it."""
    if "weights" in head:
        return head["weights"] * head.get("tops", 1) / head.get("levels", 1)
    X = {"q": layer["x"], "k": layer["x"] if layer["xKey"] is None else layer["xKey"]}

    def made(one):
        W, b = head[f"W_{one}"], head[f"b_{one}"]
        return (X[one] if W is None else X[one] @ W) + (0 if b is None else b)

    q, k = (head[one] if one in head else made(one) for one in "qk")
    t, root, of = record["temperature"], np.sqrt(q.shape[1]), record["score"]
    turned = head.get("q_turned"), head.get("k_turned")
    one, other = (q, k) if turned[0] is None else turned
    if of == "cosine":
        lengths = (np.linalg.norm(M, axis=1, keepdims=True) for M in (one, other))
        one, other = (M / np.where(n == 0, 1, n) for M, n in zip((one, other), lengths, strict=True))
    scores = one @ other.T * (head["scale"] or (1 / root if of == "scaled" else 1)) / t
    if head["softcap"]:
        scores = head["softcap"] / t * np.tanh(scores / head["softcap"] * t)
    if "R" in head:
        reach = len(head["R"]) // 2
        away = (np.arange(len(k)) - np.arange(len(q))[:, None]).clip(-reach, reach) + reach
        learned = np.take_along_axis(q @ head["R"].T + head["b"], away, axis=1)
        scores += learned / t / (1 if of == "dot" else root)
    elif "distance" in head:
        scores += head["distance"] / t / (1 if of == "dot" else root)
    elif head["bias"] is not None:
        scores += head["bias"]
    exps = np.where(allowed(record, layer, head, text), np.exp(scores), 0)
    total = exps.sum(axis=1, keepdims=True) + (0 if head["sink"] is None else np.exp(head["sink"] / t))
    return exps / np.where(total == 0, 1, total)


def shown(made):
    """Return a page's text, its record and its traces, once every head's weights are those of the trace."""
    traces = [*made.layers]
    text = page(made._replace(layers=traces))
    record = held(text)
    for layer, trace in zip(record["layers"], traces, strict=True):
        assert (layer["allowed"] is None) == (trace.mask is None or len(traces) == 1)
        assert (layer["xKey"] is None) != (trace.has_second_input and trace.x_query is not None)
        for head, right in zip(layer["heads"], trace.heads, strict=True):
            found = weights_in(record, layer, head, text)
            np.testing.assert_allclose(found, right.weights, rtol=0, atol=1e-6)
    return text, record, traces


def given(name="numbers.json", **record):
    return Page([trace_matrices("compute", given_from(record, name), Settings())])


def drawn(*shape):
    return np.random.default_rng(shape).standard_normal(shape).tolist()


def typed(kind, text, context=None, words=3, **settings):
    return page_of(kind, text, context, Settings(**settings), words)


def weighed(weights, tokens=None, head=None, **more):
    heads = tuple(map(str, range(len(weights[0]))))
    saved = Saved("w\x1b<.npz", weights, heads, tokens, tokens)
    return page_of_weights(saved, Settings(head=head))._replace(**more)


QKV = {"Q": drawn(3, 4), "K": drawn(3, 4), "V": drawn(3, 2)}
CAT = ["The", "cat", "sat", "on", "the", "mat"]
SPELLED = dict.fromkeys(CAT, "they are its word vector plus what its spelling adds")
AT = {"first": 1}
STEPS = ["q", "k", "v", "scores", "scaled_scores", "masked_scores", "weights", "output"]
NO = "No other sentence can be typed into this page: "
LAYERS = f"{NO}it has the numbers of a model's layers for this text, and not the model."
CASES = {  # what makes a page, and what its record says beside its numbers
    "masked": (lambda: typed("masked", "The cat sat, on the mat", temperature=0.5), {
        "kind": "masked", "title": ["Self-attention", "Masked self-attention"], "queries": CAT, "dropped": [","],
        "unknown": [], "apart": False, "ids": None, "scored": True, "score": "scaled", "padding": [0, 0],
        "mask": "causal", "maskLabel": "causal", "masks": ["none", "causal", "window"], "below": False,
        "tempers_distance": True, "repeats": ["v"], "norms": False, "sources": SPELLED, "writing": None,
        "steps": ["tokens", "x_query", "W_q", *STEPS[:5], "position_scores", *STEPS[5:]],
        "shown": {"layer": 0, "head": "relations", "row": 2}, "untyped": "",
        "command": {"words": ["attn", "masked"], "options": [], "text": "The cat sat, on the mat", "after": [],
                    "head": "relations", "score": "scaled"},
    }),
    "random": (lambda: typed("self", "a b c", embedding="random", heads=2, head="1", query="c", pad=1, threads=1), {
        "padding": [3, 4], "tempers_distance": False, "keys": [*"abc", "<pad>"], "temperature": 1.0,
        "shown": {"layer": 0, "head": "1", "row": 2}, "untyped": f"{NO}random vectors are drawn where attn is.",
        "command": {"words": ["attn", "self"], "options": ["--embedding", "random", "--heads", "2", "--pad", "1"],
                    "text": "a b c", "after": [], "head": "0", "score": "scaled"},
    }),
    "cross": (lambda: typed("cross", "she likes", "hot <b> coffee", mask="causal", without=("coffee", "hot")), {
        "title": ["Cross-attention", "Masked cross-attention"], "apart": True, "unknown": ["<", ">"],
        "off": [0, 4], "masks": ["none", "causal", "causal-bottom-right", "window"],
        "untyped": f"{NO}keys come from a second text.",
        "command": {"words": ["attn", "cross"], "options": ["--projection", "likeness"], "text": "she likes",
                    "after": ["hot <b> coffee"], "head": "likeness", "score": "scaled"},
    }),
    "deep": (lambda: typed("self", "a dog saw the cat", projection="roles-deep", layer=1, head="4"), {
        "below": True, "untyped": LAYERS, "shown": {"layer": 1, "head": "4", "row": 1}, "vocabulary": None,
        "sources": dict.fromkeys(("a", "dog", "saw", "the", "cat"), "it comes out of the layers below"), "norms": False,
    }),
    "cosine": (lambda: typed("self", FOX, score="cosine", mask="window:2:1", without=("dog", "quick")), {
        "off": [1, 8], "mask": "window:2:1", "maskLabel": "window:2:1", "score": "cosine",
    }),
    "dot": (lambda: typed("self", "she", projection="roles-deep", score="dot", mask="causal")._replace(writing=AT), {
        "score": "dot", "writing": AT,
        "command": {"words": ["attn", "self"], "options": ["--projection", "roles-deep"], "text": "she", "after": [],
                    "head": "relations", "score": "scaled"},
    }),
    "masks": (lambda: given(Q=drawn(2, 3, 4), K=drawn(2, 3, 4), V=drawn(2, 3, 2),
                            mask=np.less(drawn(2, 3, 3), 1).tolist()), {
        "mask": "given", "maskLabel": "numbers.json",
    }),
    "scores": (lambda: given(scores=drawn(2, 3), V=drawn(3, 2)), {
        "scored": False, "score": "scaled", "steps": STEPS[2:],
    }),
    "file": (lambda: given(**QKV, mask=[[True, False, True]] * 3, position_scores=drawn(3, 3)), {
        "title": ["Attention", "Masked attention"], "sources": {}, "mask": "given", "maskLabel": "numbers.json",
        "steps": [*STEPS[:5], "position_scores", *STEPS[5:]], "command": None, "repeats": [],
        "untyped": f"{NO}its numbers were given, and not made of a text.",
    }),
    "capped": (lambda: given(**QKV, scale=0.3, softcap=2.0, sinks=0.5), {
        "steps": [*STEPS[:5], "capped_scores", *STEPS[5:]], "facts": {
            "numbering": "ids number the distinct ones from 0", "projection": "Q, K and V as given.",
            "position": "as given", "weights": "W_q, W_k, W_v", "apply_q": "given", "apply_k": "given",
            "apply_v": "given",
        },
    }),
    "context": (lambda: given(X=drawn(3, 2), context=drawn(4, 2)), {"apart": True, "padding": [0, 0]}),
    "one layer": (lambda: Page([trace_self("the dog", Settings(projection="roles-deep", layer=1))]), {
        "layers": [(1, {""})],
    }),
    "weights": (lambda: weighed(np.eye(5)[[0, 0, 1, 2, 3]][None, None]), {
        "layers": [(0, {""})],
        "scored": False, "steps": ["weights"], "facts": {}, "repeats": [], "command": None,
    }),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_the_numbers_of_a_page_make_the_weights_of_every_head_and_its_record_says_the_rest(case):
    make, expected = CASES[case]
    _, record, _ = shown(make())
    record["steps"] = [step["name"] for step in record["steps"]]
    record["layers"] = [
        (layer["number"], {head["role"] for head in layer["heads"]}) for layer in record["layers"]
    ]
    assert {name: record[name] for name in expected} == expected


@pytest.mark.parametrize("kind", ["gpt_oss", "gemma2"])
def test_rotations_caps_sinks_and_masks_of_a_model_are_in_its_page_and_norms_of_joined_heads(
    kind, tokenizers, tmp_path
):
    folder = small_gpt_oss(tmp_path) if kind == "gpt_oss" else write(tmp_path, GEMMA2, gemma2())
    byte_pairs(folder)
    text, record, traces = shown(typed("self", "dabca", model=folder, measure="norm", temperature=2.0))
    for layer, trace in zip(record["layers"], traces, strict=True):
        for head, right in zip(layer["heads"], trace.heads, strict=True):
            np.testing.assert_allclose(head["lengths"] * right.weights, right.norms, rtol=1e-6)
    assert record["norms"] == {"joined": True} and record["ids"] == [*traces[0].query_input_ids]
    assert record["untyped"] == LAYERS and ABOUT_NORMS in part(text, "<summary>What", "</details>")
    sums = [step["title"] for step in record["steps"] if step["name"] == "weights"]
    assert ["sum to one" in title for title in sums] == [kind == "gemma2"]


def test_words_to_type_with_are_in_the_page_with_their_vectors_and_spellings_and_what_a_head_was_taught():
    text, record, _ = shown(
        typed("self", "The zebra, jumped", keep_punctuation=True, measure="norm")._replace(most_exact=1)
    )
    vocabulary, stack = record["vocabulary"], open_shared(Settings()).stack
    vectors = [*open_table("word2vec").find(["zebra", "jumped"]).values()]
    assert vocabulary.pop("words") == ["the", ",", ".", "zebra", "jumped"]
    np.testing.assert_allclose(vocabulary.pop("vectors")[-2:], vectors, rtol=1e-9)
    np.testing.assert_allclose(vocabulary.pop("starts"), stack.spelling.vectors, rtol=1e-9)
    assert vocabulary.pop("features")[:3] == ["*", "x", "Xx"]
    how = {"always": True, "oov": "model", "tokenizer": "words", "keepPunctuation": True, "most": 60}
    assert vocabulary == how and record["norms"] == {"joined": False}
    taught = "from a word to its governor and its dependents, and from a verb to its prepositions"
    assert record["layers"][0]["heads"][0]["about"] == taught
    said = part(text, "<summary>What", "</details>")
    assert f"{ABOUT_NORMS} Head relations, one of 11, was taught to look from a word to its governor" in said
    head = shown(typed("self", FOX))[1]["layers"][0]["heads"][0]  # with which other sentences are computed
    assert {"W_q", "R", "b"} <= head.keys() and head["W_v"] is None
    # 3 x 16 x 16 < 25 x 32 < 3 x 17 x 17
    for n, terms in ((4, {"R", "b"}), (16, {"distance"}), (17, {"R", "b"})):
        head = shown(typed("self", "a " * n, words=0))[1]["layers"][0]["heads"][0]
        assert {"R", "b", "distance"} & {*head} == terms
    none = shown(typed("self", "she", words=0))[1]
    empty = f"{NO}it carries no words to type with (attn page carries some)."
    assert "q" in none["layers"][0]["heads"][0] and "q" not in record["layers"][0]["heads"][0]
    assert (none["vocabulary"], none["untyped"]) == (None, empty)


def test_weights_that_are_too_many_are_rounded_to_half_a_step_of_the_largest_in_their_row_but_those_asked_for(
    tmp_path,
):
    weights = np.random.default_rng(0).dirichlet([1.0] * 5, (2, 2, 5))
    weights[0, 0, 1] = 0  # nothing may be looked at
    weights[1, 1] = np.eye(5)[[0, 0, 1, 2, 3]]
    in_full = [("", 49, ["1/1"]), ("0", 49, ["0/0", "1/0"]), ("0/1", 49, ["0/1"]), ("none", 49, [])]
    for exact, most, those in [*in_full, ("", 50, ["1/0", "1/1"])]:
        made = weighed(weights, ("<b>", *"cde&"), most_exact=most, exact=[exact] * bool(exact), head="1")
        layers = held(text := page(made))["layers"]
        heads = {f"{layer['number']}/{one['name']}": one for layer in layers for one in layer["heads"]}
        assert [name for name, one in heads.items() if "tops" not in one] == those
        for one, right in zip(heads.values(), weights.reshape(4, 5, 5), strict=True):
            tops = right.max(axis=1, keepdims=True)
            within = tops * (0.5 / 255 + 1e-6) if "tops" in one else 1e-9
            assert (np.abs(weights_in(None, None, one, text) - right) <= within).all()
        assert (heads["1/1"]["role"], heads["1/0"]["role"], layers[0]["rounded"]) == ("previous", "", True)
        held_in = f"in full: {', '.join(those)}" if those else "none is held in full"
        said = f"{4 - len(those)} of 4 heads are held as rounded weights, right to 0.002 of the largest in their row"
        assert f"<li>{said}; {held_in} (--exact).</li>" in text
    line = ("page", "the cat " * 30, "-p", "roles-deep", "--words", "0", "--exact", "0/1 ,subject")
    assert here(*line, "-o", str(tmp_path / "x")).code == 0
    layers = held((tmp_path / "x").read_text())["layers"]
    in_full = [(at, one["name"]) for at, of in enumerate(layers) for one in of["heads"] if "tops" not in one]
    assert in_full == [(0, "1"), (4, "subject")]
    for shape, most, is_rounded in ((2, 100, False), (1, 49, True)):
        text = page(weighed(weights[:, :shape], most_exact=most))
        assert ("are held as rounded" in part(text, "<footer", "</footer>")) == is_rounded
    same = np.eye(6)[[0, 1, 0, 1, 2, 3]] * np.ones((2, 1, 1, 1))
    for tokens, role in ((None, ""), (tuple("ababab"), "same")):  # what tokens are alike only they say
        assert held(page(weighed(same, tokens)))["layers"][0]["heads"][0]["role"] == role
    deep = typed("self", "the dog", projection="roles-deep", layer=1)._replace(most_exact=1)
    layers = held(page(deep))["layers"]
    assert [layer["x"] is None for layer in layers] == [True, False, True, True, True]
    roles = [{one["role"] for one in layer["heads"]} for layer in layers]
    assert roles[-1] == {""} != roles[1] and not any("mixed" in some for some in roles)  # the last has names
    for layers, levels in ((5000, 255), (5001, 63), (60_000, 63), (60_001, 31)):  # of 100 weights each
        trace = trace_self(" ".join("abcdefghij"), Settings(embedding="random", tokenizer="whitespace"))
        text = page(Page([trace], layers, exact=["none"], most_exact=0))
        (head,) = held(text)["layers"][0]["heads"]
        assert head["levels"] == levels
        np.testing.assert_allclose(weights_in(None, None, head, text), trace.weights, atol=0.5 / levels)


def test_a_large_head_has_a_small_picture_of_the_largest_weight_in_each_block_and_bytes_of_many_are_packed():
    weights = np.random.default_rng(0).dirichlet([1.0] * 160, (1, 1, 80))
    (head,) = held(page(weighed(weights, exact=["none"], most_exact=0)))["layers"][0]["heads"]
    blocks = weights[0, 0].reshape(16, 5, 16, 10).max(axis=(1, 3))
    np.testing.assert_array_equal(head["thumb"], np.rint(blocks / blocks.max() * 255))
    assert (np.abs(weights_in(None, None, head, "") - weights[0, 0]) < 0.51 / 255 * weights.max()).all()
    (head,) = held(page(weighed(weights[..., :64, :64])))["layers"][0]["heads"]
    assert "thumb" not in head


def test_arrays_are_held_in_the_fewest_bytes_that_lose_nothing_and_equal_ones_once():
    numbers, third = Numbers(), np.arange(1, 7).reshape(2, 3) / 3
    wide, many = np.array([1e6, 1e-3]), np.repeat([[1], [7]], 5000, axis=1)
    cases = [  # how it is held, its bytes, a number of them; the bounds are of half a last bit
        ("f16", 12, numbers.add(third * 3), third * 3, 0),
        ("f32", 24, numbers.add(third.astype(np.float32)), third.astype(np.float32), 0),
        ("f48", 36, numbers.add(third), third, 2**-35),
        ("f64", 16, numbers.add(wide / 3), wide / 3, 0),
        ("f64", 16, numbers.add(wide * 1e60), wide * 1e60, 0),
        ("f16", 12, numbers.add_half(third), third, 2**-11),
        ("f32", 8, numbers.add_half(wide), wide, 2**-24),
        ("u8", 6, numbers.add_bytes(third > 1), third > 1, 0),
        ("u8", None, numbers.add_bytes(many), many, 0),
        ("f16", 20000, numbers.add(many), many, 0),
        ("f48", 36, numbers.add(third.copy()), third, 2**-35),
    ]
    assert numbers.add(None) is numbers.add_half(None) is None and len(numbers.elements) == len(cases) - 1
    for kind, size, stored, right, within in cases:
        (data,) = re.findall(rf'id="{stored["id"]}">(.*?)<', "".join(numbers.elements))
        assert (stored["type"], stored.get("packed", False)) == (kind, size is None)
        assert len(b64decode(data)) == size or len(b64decode(data)) < right.size
        np.testing.assert_allclose(read(stored, b64decode(data)), right, rtol=within)


def test_only_the_pages_own_script_and_style_may_run_and_each_module_stands_behind_those_that_it_takes_from():
    text = page(given(**QKV)._replace(text="<b>"), look="p { color: red }")
    code, sheet = (
        text.partition(f"{start}>")[2].partition("</s")[0] for start in (' type="module"', "<style")
    )
    one, other = (b64encode(sha256(part.encode()).digest()).decode() for part in (code, sheet))
    own = f"script-src 'sha256-{one}'; style-src 'sha256-{other}'; img-src data: blob:"
    assert f"content=\"default-src 'none'; {own}; base-uri 'none'; form-action 'none'\"" in text
    assert not re.search(r"(?m)^ |/\*|^//", sheet) and sheet.endswith("p { color: red }")
    assert not re.search(r"(?m)^export |^import |^ *//|^ (?! \"?[\w-]+\"?: \{ )| as \w+ \} = ", code)
    given_by, module = {}, ""
    assert code.startswith('"use strict";\n')
    for line in code.split("\n"):
        if found := re.fullmatch(r"const \{ (.*) \} = (\w+)_js;", line):
            assert {name.partition(":")[0] for name in found[1].split(", ")} <= given_by[found[2]]
        elif found := re.fullmatch(r"const (\w+)_js = \(\(\) => \{", line):
            module = found[1]
        elif found := re.fullmatch(r"return \{ (.*) \};", line):
            given_by[module] = {*found[1].split(", ")}
    assert len(given_by) > 15 and module == "main"
    sums = r"(\w+): \{ ...sumOf\(\(a, b\) => (.*?), (\w+)\), isScaled: (\w+), isPositionScaled: (\w+) \}"
    two = [("scaled", "a * b", "same", "true", "true"), ("dot", "a * b", "same", "false", "false")]
    assert re.findall(sums, code) == [*two, ("cosine", "a * b", "unit", "false", "true")]


def test_a_page_has_the_scores_and_colours_and_says_what_it_shows_in_text_that_is_inert():
    with pytest.raises(InputError, match="at most 1,000,000 weights a head; these are 500 x 2,001"):
        page(Page([trace_cross("a " * 500, "b " * 2001, Settings(embedding="random"))]))
    _, record, _ = shown(given(**QKV, tokens=["<b>", "</script>", "\u2028"]))
    dot = {"term": "q × k", "symbol": "q·k", "matrix": "Q Kᵀ: q·k"}
    cosine = {"term": "q × k"} | dict.fromkeys(("symbol", "matrix"), "cos(q, k)")
    helps = {"scaled": "scaled: q.k / sqrt(d_k)", "dot": "dot: q.k", "cosine": "cosine: cos(q, k)"}
    assert record["scores"] == {
        name: (cosine if name == "cosine" else dot) | {"isScaled": name == "scaled", "help": help}
        for name, help in helps.items()
    }
    assert record["queries"] == ["<b>", "</script>", "\u2028"]
    ends = {name: (colours[:6], colours[-6:]) for name, colours in record["ramps"].items()}
    light, dark = ("f7fbff", "08306b"), ("161d25", "deebf7")
    signed = {"lightSigned": ("542788", "b35806"), "darkSigned": ("9ecae1", "fdd0a2")}
    assert ends == signed | {"light": light, "dark": dark}
    X, zeros = drawn(2, 2), "No vector for <, >: no known word has their letters, so zeros stand in."
    vectors, W = "W: likeness, W_q = 5 (I + 4 U U^T), W_k = W_v = I.", "W: b.json, layout in-out (x W)."
    for made, note, of, settings in (
        (given("./a/b.json", **QKV), "", "Attention: 3", "given by b.json; Q, K and V as given."),
        (given("./a/b.json", X=X, W_q=X, W_k=X, W_v=X, layout="in-out"), "", "Attention: 2", W),
        (weighed(np.eye(2)[None, None]), "", "Attention: 2", "Weights given by w^[<.npz."),
        (typed("cross", "she likes", "hot <b>"), zeros, "Cross-attention: 2", vectors),
    ):
        text = page(made)
        said, title = part(text, '<footer class="aside">', "</footer>"), part(text, "<title>", "</title>")
        assert said.startswith(f"{note}{title}. ") and said.endswith(settings)
        assert title.startswith(f"{of} queries (rows) x") and ("<ul>" in text) == bool(note)


def test_of_a_path_its_last_part_is_in_a_page_and_of_other_names_all(at):
    (at / "org" / "here").mkdir(parents=True)
    names = {"/a/b.txt": "b.txt", "./x/y": "y", "~/x": "x", "org/model": "org/model", "org": "org"}
    names |= {".": at.name, "org/here": "here", None: None}
    assert {name: _file_name(name) for name in names} == names
