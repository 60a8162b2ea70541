"""Learned models as files: whole ones are read, all others are refused in one line, whatever is wrong with them."""

import json
import random
from itertools import pairwise
from pathlib import Path
from unicodedata import normalize

import numpy as np
import pytest

from attn_cli import Settings, trace_cross, trace_masked, trace_self
from attn_cli.errors import FileError, InputError, UsageError
from attn_cli.io.array_files import read_safetensors, write_safetensors
from attn_cli.learn.batches import Vocabulary
from attn_cli.models.model_file import BUNDLED, named, read_model
from attn_cli.vectors.spelling import features
from attn_cli.vectors.table import VectorTable
from tests import small_models as models
from tests.shell import attn

close = np.testing.assert_allclose

NAMES = {1: ["relations", "mine", "other"], 2: ["relations", "mine", "other"], 3: ["relations", "mine"]}
TEXT = "The big cats see a dog walking"  # cats, see and walking have no vector


@pytest.fixture
def files(tmp_path):
    """Write a model of so many layers beside its vectors, changed if wanted, and return the settings to use it."""

    def write(layers=1, change=None, names=None, facts=None, always=False):
        (tmp_path / "v.txt").write_text(models.typed(models.table()))
        names = NAMES[layers] if names is None else names
        made = models.arrays(len(NAMES[layers]), layers)
        if change:
            change(made)
        path = models.write(tmp_path / "m.safetensors", made, models.table(), names, facts, always)
        return Settings(embedding=str(tmp_path / "v.txt"), projection=path)

    return write


def rewritten(path, change):
    """Change a model file's arrays and metadata in place."""
    arrays, about = read_safetensors(path)
    arrays = {name: np.array(value) for name, value in arrays.items()}
    change(arrays, about)
    with Path(path).open("wb") as stream:
        write_safetensors(stream, arrays, about)


def refused(settings, text=TEXT):
    """Check that a model is refused as bad input, and return the message."""
    with pytest.raises(InputError) as error:
        trace_self(text, settings)
    assert "\n" not in error.value.message and len(error.value.message) < 300
    return error.value.message


def outcome(settings, text=TEXT):
    """Use a model, and say what came of it: refused, used, or what else went wrong."""
    try:
        trace = trace_self(text, settings)
    except InputError as error:
        return "refused" if "\n" not in error.message and len(error.message) < 300 else error.message
    except Exception as error:  # a warning is one, too: it would be printed
        return f"{type(error).__name__}: {error}"
    return "used" if np.isfinite(trace.weights).all() and np.isfinite(trace.output).all() else "not finite"


LAYERS = pytest.mark.parametrize("layers", [1, 3])


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_a_whole_model_is_read_with_its_heads_in_order(layers, files):
    settings = files(layers)
    trace = trace_self(TEXT, settings)
    assert trace.head_names == tuple(NAMES[layers]) and trace.shown.name == "relations"
    assert trace.projection.source == "learned" and trace.projection.layer == layers - 1
    assert trace.learned.layers == layers
    close(trace.weights.sum(axis=1), 1)
    assert read_model(settings.projection).layers == layers


def test_one_layer_is_the_formula_of_its_docstring_and_steps_multiply_back_to_what_is_shown(files, tmp_path):
    trace = trace_self("a cat sees the big dog", files(1))
    made, X = models.arrays(3, 1), trace.x_query
    close(X, [models.table().find([w])[w] for w in trace.query_tokens])
    Q, K = (X @ made[f"0.W_{m}"][0] + made[f"0.b_{m}"][0] for m in "qk")
    for i in range(6):
        z = [
            (Q[i] @ K[j] + Q[i] @ made["0.R"][0][at] + made["0.b"][0][at]) / np.sqrt(2)
            for j in range(6)
            if (at := max(-2, min(2, j - i)) + 2) >= 0
        ]
        close(trace.weights[i], np.exp(z) / np.exp(z).sum(), rtol=1e-10)
    close(trace.output, trace.weights @ X, rtol=1e-10)
    record = trace_self(TEXT, files(3)).to_dict(steps=True)
    (head,) = record["heads"]
    X, q, k = (np.array(value) for value in (record["x_query"], head["q"], head["k"]))
    close(X @ head["W_q"] + head["b_q"], q, rtol=1e-9, atol=1e-12)
    close(X @ head["W_k"] + head["b_k"], k, rtol=1e-9, atol=1e-12)
    close(np.array(head["scaled_scores"]), q @ k.T / np.sqrt(2), rtol=1e-9, atol=1e-12)
    masked = np.array(head["scaled_scores"]) + head["position_scores"]
    close(masked, head["masked_scores"], rtol=1e-9, atol=1e-12)
    exact = trace_self(TEXT, files(3)).weights
    for dtype, far in ((np.float16, 0.05), (np.float32, 1e-4)):
        narrow = files(
            3,
            lambda made, dtype=dtype: made.update(
                {n: v.astype(dtype) for n, v in made.items() if v.dtype == float}
            ),
        )
        close(trace_self(TEXT, narrow).weights, exact, atol=far)


@pytest.mark.parametrize("below", [[], [["a", "b"]], [["a", "b"]] * 3, "ab"])
def test_names_of_the_heads_below_are_those_of_each_layer_below(below, files):
    assert "names_below are not those of 2 layers" in refused(files(3, facts={"names_below": below}))


@LAYERS
def test_a_model_without_one_of_its_arrays_is_refused(layers, files):
    for name in models.arrays(len(NAMES[layers]), layers):
        if name == "in.W" or name == f"{layers - 1}.W_v":
            continue
        message = refused(files(layers, lambda made, name=name: made.pop(name)))
        assert name in message


def test_what_a_model_may_do_without_must_leave_it_whole(files):
    assert outcome(files(3, lambda made: made.pop("2.W_v"))) == "used", "then values are the rows themselves"
    assert outcome(files(3, lambda made: made.pop("in.W"))) == "refused", "6 numbers a word, and vectors of 4"


def misshapen(array):
    """Each way in which an array can have another shape, by a name for it."""
    for axis in range(array.ndim):
        yield f"longer along {axis}", np.concatenate([array, array.take([0], axis)], axis)
        yield f"shorter along {axis}", array.take(range(array.shape[axis] - 1), axis)
        yield f"empty along {axis}", array.take(range(0), axis)
    yield "flat", array.ravel() if array.ndim > 1 else array[:, np.newaxis]
    yield "deeper", array[np.newaxis]
    yield "a number", array.ravel()[0].reshape(())


def of_other_kinds(array):
    for dtype in ("int8", "int32", "int64", "bool", "uint8", "uint16", "float32"):
        yield dtype, np.abs(array).astype(dtype)


def no_numbers(array):
    for value in (np.nan, np.inf, -np.inf):
        yield str(value), np.full(array.shape, value)


@LAYERS
@pytest.mark.parametrize(
    "spoil", [misshapen, of_other_kinds, no_numbers, lambda array: [("huge", array * 1e300)]]
)
def test_an_array_of_another_shape_kind_or_size_is_refused_or_does_no_harm(spoil, layers, files):
    wrong = {}
    for name, array in models.arrays(len(NAMES[layers]), layers).items():
        for how, changed in spoil(array):
            if name == "start.names" and how[:6] in ("longer", "shorte", "huge"):
                continue  # bytes more or less make other names, but as many
            found = outcome(files(layers, lambda made, n=name, c=changed: made.update({n: c})))
            if found != "refused" and (found != "used" or how not in ("float32", "huge", "uint8")):
                wrong[name, how] = found
    assert wrong == {}


TWO = '"relations", "mine"'
METADATA = {
    "format": ["attn-model/2", None],
    "heads": [
        *(
            None,
            "relations, mine, other",
            f'[{TWO}, "other"',
            '{"relations": 0, "mine": 1, "other": 2}',
            "[]",
        ),
        *(f"[{TWO}]", f'[{TWO}, "other", "more"]', f'[{TWO}, "mine"]', f'[{TWO}, ""]', f"[{TWO}, 3]"),
        "[" * 100_000,
    ],
    "facts": [None, "[]", "{", '"so"', "[" * 100_000, '{"a":' * 50_000],
    "fingerprint": [None, "00"],
}


@pytest.mark.parametrize(
    ("key", "value"),
    [(key, value) for key, values in METADATA.items() for value in values],
    ids=lambda value: str(value)[:40],
)
def test_metadata_that_makes_no_model_is_refused(key, value, files):
    settings = files(1)

    def change(arrays, about):
        about.pop(key)
        if value is not None:
            about[key] = value

    rewritten(settings.projection, change)
    refused(settings)


@pytest.mark.parametrize(
    "facts",
    [
        {"scores": []},
        {"scores": {"relations": 3}},
        {"scores": {"relations": {"accuracy": True, "baseline": 0.5}}},
        {"scores": {"relations": {"accuracy": "high", "baseline": []}}, "scored_on": 5},
        {
            "scores": {"relations": {"accuracy": float("nan"), "baseline": float("inf")}},
            "scored_on": "bank",
            "about": {"relations": "nowhere"},
        },
        {"about": ["x"], "trained_on": {"a": 1}, "values": 7},
        {"about": {"relations": {"deep": 1}}, "trained_on": [1, None, ["x"]], "scored_on": ["y"]},
        {
            "about": {"relations": "to \x1b[31mred\n\u202e"},
            "trained_on": ["\x1b]0;t\x07\n"],
            "scored_on": "\x9b\n",
        },
    ],
)
@pytest.mark.parametrize("form", ["table", "json"])
def test_facts_of_another_kind_do_no_harm(facts, form, files, tmp_path):
    files(1, facts=facts)
    ran = attn("explain", "a cat", "-p", "m.safetensors", "-e", "v.txt", "-f", form, cwd=tmp_path)
    assert ran.code in (0, 65), ran.err
    assert not [one for one in ("nan", "NaN", "Infinity", "\x1b") if one in ran.out]
    if form == "json" and ran.code == 0:
        json.loads(ran.out, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


def test_names_of_heads_are_shown_and_never_obeyed_and_a_file_cut_anywhere_is_refused(files, tmp_path):
    names = ["\x1b[31mred\n", "[/b]\u202e", "every"]
    files(1, names=names)
    for asked in ("--head all", "--head 1", "--head nobody", "-f markdown --head all"):
        args = asked.split()
        given = "-p", "m.safetensors", "-e", "v.txt", *args, "--color", "never"
        ran = attn("self", "a cat", *given, cwd=tmp_path)
        assert ran.code == (2 if "nobody" in args else 0), ran.err
        assert not {"\x1b", "\u202e"} & set(ran.out + ran.err)
        assert "[/b]" in (ran.out + ran.err).replace("\\", "")
    settings = files(3)
    path = Path(settings.projection)
    whole = path.read_bytes()
    for size in (*range(24), *np.linspace(24, len(whole) - 1, 60).astype(int).tolist()):
        path.write_bytes(whole[:size])
        with pytest.raises(InputError):
            read_model(str(path))
    path.write_bytes(whole + b"\0")
    refused(settings)


@LAYERS
def test_no_damage_to_a_file_does_worse_than_refuse_it(layers, files):
    scores = {"relations": {"accuracy": 0.5, "baseline": 0.25}}
    settings = files(layers, facts={"scores": scores, "scored_on": "x"})
    path = Path(settings.projection)
    whole = path.read_bytes()
    header = int.from_bytes(whole[:8], "little") + 8
    draw = random.Random(layers)
    read = 0
    for _ in range(300):
        damaged = bytearray(whole)
        most = header if draw.random() < 0.8 else len(whole)
        for _ in range(draw.randint(1, 3)):
            at = draw.randrange(most)
            if draw.random() < 0.7:
                damaged[at] = draw.choice([*b'0123456789[]{},:" FUIB', draw.randrange(256)])
            else:
                damaged[at : at + draw.randint(0, 4)] = draw.randbytes(draw.randint(0, 4))
        path.write_bytes(damaged)
        try:
            with np.errstate(all="ignore"):  # what is printed of numbers beyond all bounds is tested above
                trace = trace_self(TEXT, settings)
                trace.to_dict(steps=True)
        except (InputError, FileError):
            continue
        except UsageError as error:
            assert "no projection" in error.message or "no head" in error.message
            continue
        read += 1
        assert np.isfinite(trace.weights).all()
    assert 0 < read < 300


def test_a_model_and_vectors_that_do_not_belong_together_are_65_and_both_are_named(files, tmp_path):
    files(1)
    (tmp_path / "w.txt").write_text("the 1 0 0 0\ncat 0 1 0 0\n")
    (tmp_path / "given.json").write_text('{"X": [[1, 2, 3, 4]], "tokens": ["cat"]}')
    for args, model, vectors in (
        (["-p", "m.safetensors", "-e", "w.txt"], "m.safetensors", "w.txt"),
        (["-p", "m.safetensors", "-e", "random"], "m.safetensors", "random"),
        (["-p", "m.safetensors"], "m.safetensors", "word2vec"),
        (["-p", "roles", "-e", "v.txt"], "roles", "v.txt"),
        (["-p", "roles", "-e", "random"], "roles", "random"),
    ):
        ran = attn("self", "a cat", *args, cwd=tmp_path)
        assert (ran.code, ran.out) == (65, ""), args
        assert model in ran.err and vectors in ran.err and ran.err.count("\n") == 1
    ran = attn("example", "coffee", "-p", "roles", cwd=tmp_path)
    assert (ran.code, ran.out) == (65, "") and "roles" in ran.err and ran.err.count("\n") == 1


@pytest.mark.parametrize(
    ("args", "named"),
    [
        (["-p", "roles", "--heads", "4"], "--heads"),
        (["-p", "./m.safetensors", "-e", "v.txt", "--heads", "2"], "--heads"),
        (["-p", "roles", "--layer", "1"], "layer"),
        (["-p", "roles", "--layer", "-1"], "--layer"),
        (["-p", "./m.safetensors", "-e", "v.txt", "--layer", "3"], "layer"),
        (["-p", "roles", "--head", "nobody"], "subject"),
        (["-p", "roles", "--head", "11"], "subject"),
        (["-p", "roles", "--head", "-1"], "subject"),
        (["-p", "roles", "--head", "Subject"], "subject"),
        (["-p", "./m.safetensors", "-e", "v.txt", "--head", "subject"], "mine"),
        (["-p", "./m.safetensors", "-e", "v.txt", "--layer", "0", "--head", "mine"], "0, 1"),
        (["-p", "identity", "--oov", "model"], "--oov"),
        (["-e", "v.txt", "--oov", "model"], "--oov"),
        (["-p", "random", "-e", "random", "--oov", "model"], "--oov"),
        (["-p", "role"], "roles"),
    ],
)
def test_wrong_usage_is_2_and_says_what_there_is(args, named, files, tmp_path):
    files(3)
    ran = attn("self", "a cat", *args, cwd=tmp_path)
    assert (ran.code, ran.out) == (2, ""), ran.err
    assert named in ran.err and ran.err.count("\n") == 1


@pytest.mark.parametrize(
    ("name", "error"), [("roles-shallow", UsageError), ("./none.safetensors", FileError)]
)
def test_a_model_that_is_not_there_is_said_to_be_not_there(name, error):
    with pytest.raises(error):
        named(name)


def test_a_file_of_bare_weights_is_no_learned_model_and_one_changed_vector_makes_other_vectors(tmp_path):
    with (tmp_path / "w.safetensors").open("wb") as stream:
        write_safetensors(stream, {f"W_{m}": np.eye(4) for m in "qkv"}, {})
    with pytest.raises(InputError):
        named(str(tmp_path / "w.safetensors"))
    (tmp_path / "v.txt").write_text(models.typed(models.table()))
    settings = Settings(embedding=str(tmp_path / "v.txt"), projection=str(tmp_path / "w.safetensors"))
    assert trace_self("a cat", settings).projection.source == "file"
    one = models.table()
    for other in (
        models.table("the cat dog sees big an"),
        models.table("cat the dog sees big a"),
        models.table(seed=1),
        models.table(dim=5),
        VectorTable("file", "table", one.block, one.matrix * 1.001, {}),
    ):
        assert other.fingerprint() != one.fingerprint()
    same = VectorTable("other", "elsewhere", one.block, one.matrix, {})
    assert same.fingerprint() == one.fingerprint()


def test_a_head_is_shown_by_its_name_or_its_number_and_not_said_to_be_scored(files, tmp_path):
    base = vars(files(1))
    for number, name in enumerate(NAMES[1]):
        by_name, by_number = (
            trace_self(TEXT, Settings(**{**base, "head": head})) for head in (name, str(number))
        )
        assert by_name.shown.name == by_number.shown.name == name
        close(by_name.weights, by_number.weights, rtol=1e-12)
    together = trace_self(TEXT, Settings(**{**base, "head": "all"}))
    mean = trace_self(TEXT, Settings(**{**base, "head": "mean"}))
    close(mean.weights, np.mean([head.weights for head in together.heads], axis=0), rtol=1e-12)
    files(1, facts={"about": {"relations": "to its neighbour"}, "trained_on": ["mine.conllu"]})
    ran = attn("explain", "a cat", "-p", "m.safetensors", "-e", "v.txt", "--steps", cwd=tmp_path)
    assert "was trained with attn learn train on a treebank (mine)" in ran.out
    assert "How often it is right was not measured." in ran.out and "is right for" not in ran.out


def test_a_layer_below_has_numbered_heads_reads_what_is_below_it_and_sees_nothing_behind_a_mask(files):
    base = vars(files(3))
    traces = [trace_self(TEXT, Settings(**{**base, "layer": layer})) for layer in range(3)]
    assert [trace.head_names for trace in traces] == [("0", "1"), ("0", "1"), ("relations", "mine")]
    assert [trace.projection.layer for trace in traces] == [0, 1, 2]
    made = models.arrays(2, 3)
    start = trace_self(TEXT, Settings(**{**base, "layer": 0})).x_query
    known = models.table().find(["dog"])["dog"]
    close(start[TEXT.split().index("dog")], known @ made["in.W"] + made["in.b"], rtol=1e-12)
    for below, above in pairwise(traces):
        X = below.x_query + below.layer_output  # then the norm and the network of each word by itself
        assert X.shape == above.x_query.shape and not np.allclose(X, above.x_query)
    assert traces[2].layer_output is None and traces[0].layer_output is not None
    base = vars(files(3))
    for layer in range(3):
        settings = Settings(**{**base, "layer": layer, "head": "all"})
        one, other = (trace_masked(f"a dog sees the {last}", settings) for last in ("cat", "unheard"))
        close(one.x_query[:4], other.x_query[:4], rtol=0, atol=1e-14)
        for ours, theirs in zip(one.heads, other.heads, strict=True):
            close(ours.weights[:4], theirs.weights[:4], rtol=0, atol=1e-14)
            assert not np.triu(ours.weights, 1).any()


def test_without_its_position_term_order_and_sides_change_nothing_nor_does_a_shift_of_its_biases(files):
    def change(made):
        for name in made:
            if name.endswith((".R", ".b")):
                made[name] = np.zeros_like(made[name])

    settings = files(3, change)
    order = [3, 0, 2, 1, 4]
    tokens = "a cat sees big zebras".split()  # noqa: SIM905
    straight = trace_self(" ".join(tokens), settings).weights
    permuted = trace_self(" ".join(tokens[i] for i in order), settings).weights
    close(permuted, straight[np.ix_(order, order)], rtol=1e-9, atol=1e-12)

    def change(made):
        for name in ("0.R", "0.b"):
            made[name] = np.zeros_like(made[name])

    settings = files(1, change)
    close(trace_cross(TEXT, TEXT, settings).weights, trace_self(TEXT, settings).weights, rtol=1e-12)
    plain = trace_self(TEXT, files(1)).weights
    shifted = files(1, lambda made: made.update({"0.b": made["0.b"] + 5}))
    close(trace_self(TEXT, shifted).weights, plain, rtol=1e-9)


def test_an_unknown_word_starts_from_its_spelling_and_every_word_where_the_model_says_so(files):
    trace = trace_self(TEXT, files(1))
    assert set(trace.unknown) == {"cats", "see", "walking"}
    assert trace.embedding.oov == "model"
    assert any("cats" in note and "spelling" in note for note in trace.notes)
    vectors = dict(zip(models.FEATURES, models.arrays(3, 1)["start.vectors"], strict=True))
    for i, token in enumerate(trace.query_tokens):
        if token in trace.unknown:
            wanted = sum(vectors[name] for name in features(token) if name in vectors)
            close(trace.x_query[i], wanted, rtol=1e-12)
    trace = trace_self("a cat sees cats", files(1, always=True))
    vectors = dict(zip(models.FEATURES, models.arrays(3, 1)["start.vectors"], strict=True))
    for i, token in enumerate(trace.query_tokens):
        own = models.table().find([token]).get(token, 0)
        wanted = own + sum(vectors[name] for name in features(token) if name in vectors)
        close(trace.x_query[i], wanted, rtol=1e-12)
    assert trace.unknown == ("cats",)

    def change(made):
        made["start.names"] = np.zeros(0, np.uint8)
        made["start.vectors"] = np.zeros((0, 4))

    settings = files(1, change)
    try:
        trace = trace_self(TEXT, settings)
    except InputError:
        return
    assert not trace.x_query[trace.query_tokens.index("cats")].any()


@pytest.mark.parametrize("oov", ["zero", "skip", "random", "error"])
def test_other_ways_with_unknown_words_go_with_a_learned_model(oov, files):
    settings = Settings(**{**vars(files(1)), "oov": oov})
    if oov == "error":
        assert "cats" in refused(settings)
        return
    trace = trace_self(TEXT, settings)
    assert "cats" in trace.unknown and ("cats" in trace.query_tokens) == (oov != "skip")
    if oov == "zero":
        assert not trace.x_query[trace.query_tokens.index("cats")].any()


def test_the_bundled_model_reports_unknown_words_and_takes_no_notice_of_case():
    ran = attn("self", "the blorptwix sleeps", "-f", "json")
    record = json.loads(ran.out)
    assert (ran.code, record["unknown"], record["embedding"]["oov"]) == (0, ["blorptwix"], "model")
    assert "blorptwix" in attn("self", "the blorptwix sleeps").out
    one, other = (trace_self(text, Settings(head="all")) for text in ("THE fox runs", "the Fox runs"))
    for ours, theirs in zip(one.heads, other.heads, strict=True):
        close(ours.weights, theirs.weights, rtol=1e-12)


@pytest.mark.parametrize("name", BUNDLED)
@pytest.mark.parametrize(
    ("one", "other"),
    [
        (normalize("NFC", "the café opens"), normalize("NFD", "the café opens")),
        (normalize("NFC", "a blörptwíng cat"), normalize("NFD", "a blörptwíng cat")),
        ("he doesn't know", "he doesn’t know"),
        ("my sister's dog", "my sister’s dog"),
    ],
)
def test_words_that_are_looked_up_alike_are_alike_to_a_bundled_model(one, other, name):
    first, second = (trace_self(text, Settings(projection=name, head="all")) for text in (one, other))
    assert len(first.unknown) == len(second.unknown) == ("cat" in one)
    assert first.query_tokens != second.query_tokens
    for ours, theirs in zip(first.heads, second.heads, strict=True):
        close(ours.weights, theirs.weights, rtol=1e-12)


# What is sound in each part and not in the whole


@LAYERS
@pytest.mark.parametrize("size", [1e7, -1e7, -1e308, 1e308])
@pytest.mark.parametrize("array", ["R", "b", "W_q", "b_k"])
def test_numbers_that_nothing_learns_are_refused_and_never_pass_for_a_mask(array, size, layers, files):
    said = refused(files(layers, lambda made: made[f"{layers - 1}.{array}"].fill(size)))
    assert "beyond a million" in said


@pytest.mark.parametrize("name", ["all", "mean"])
def test_a_head_cannot_be_called_what_the_option_means_by_something_else(name, files):
    assert "all or mean" in refused(files(1, names=["relations", name, "other"]))


@pytest.mark.parametrize("columns", [3, None])
def test_values_that_are_no_word_vectors_are_given_no_words(columns, files, tmp_path):
    def change(made):
        for name in ("2.W_v", "2.b_v"):
            value = made.pop(name)
            if columns:
                made[name] = value[..., :columns]

    files(3, change, facts={"values": "words"})
    ran = attn("explain", "a cat", "-p", "m.safetensors", "-e", "v.txt", "-f", "json", cwd=tmp_path)
    assert ran.code == 0, ran.err
    record = json.loads(ran.out)
    assert record["output_words"] is None and record["learned"]["values"] == "learned"


@pytest.mark.parametrize("command", ["self", "score"])
def test_a_model_that_takes_other_numbers_a_word_is_refused_by_every_command(command, files, tmp_path):
    files(1)
    made = models.arrays(3, 1, dim=5)
    models.write(tmp_path / "m.safetensors", made, models.table(), NAMES[1])
    (tmp_path / "one.conllu").write_text("1\tcat\t_\tNOUN\t_\t_\t0\troot\t_\t_\n\n")
    args = ["self", "a cat", "-p", "m.safetensors"]
    args = ["learn", "score", "m.safetensors", "one.conllu"] if command == "score" else args
    ran = attn(*args, "-e", "v.txt", cwd=tmp_path)
    assert (ran.code, ran.out) == (65, "") and "5 numbers a word" in ran.err


@pytest.mark.parametrize(("one", "other"), [("n’t", "n't"), ("’S", "'S"), ("cafe\u0301s", "caf\u00e9s")])
def test_a_word_has_one_spelling_while_learning_and_afterwards(one, other):
    words = Vocabulary(models.table("o'clock don't isn't he's she's cafés decafés"), 20, 5, ["subject"])
    assert features(one) == features(other) and words.spelling(one) == words.spelling(other) != []
