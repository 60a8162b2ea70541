"""Learned models as files, also with eight bits a number: whole ones are read, all others are refused in one line."""

import json
import random
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path
from unicodedata import normalize

import numpy as np
import pytest

from attn_cli import Settings, trace_cross, trace_masked, trace_self
from attn_cli.errors import FileError, InputError, UsageError
from attn_cli.io.array_files import read_safetensors, write_safetensors
from attn_cli.io.files import data_path
from attn_cli.learn.batches import Vocabulary
from attn_cli.models import model_file
from attn_cli.models.encoder import WordLayer, lead_of
from attn_cli.models.model_file import BUNDLED, EXPONENTS, dequantized, named, quantized, read_model
from attn_cli.vectors import VectorTable
from attn_cli.vectors.spelling import features
from tests import shell, small_models as models
from tests.fuzz.mutate import mutated
from tests.parsed import conllu

close = np.testing.assert_allclose

TWO = ["relations", "mine"]
NAMES = {1: [*TWO, "other"], 2: [*TWO, "other"], 3: TWO}
TEXT = "The big cats see a dog walking"  # cats, see and walking have no vector


@pytest.fixture
def files(tmp_path):
    """Write a model of so many layers beside its vectors, changed if wanted, and return the settings to use it."""

    def write(layers=1, change=lambda made: None, names=None, facts=None, always=False):
        (tmp_path / "v.txt").write_text(models.typed(models.table()))
        made = models.arrays(len(NAMES[layers]), layers)
        change(made)
        names = NAMES[layers] if names is None else names
        path = models.write(tmp_path / "m.safetensors", made, models.table(), names, facts, always)
        return Settings(embedding=str(tmp_path / "v.txt"), projection=path)

    return write


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


def test_one_layer_is_the_formula_of_its_docstring_and_types_are_as_exact_as_they_are(files):
    trace = trace_self("a cat sees the big dog", files(1))
    assert trace.head_names == tuple(NAMES[1]) and trace.shown.name == "relations"
    assert trace.projection.source == "learned" and trace.learned.layers == 1
    close(trace.x_query, [models.table().find([w])[w] for w in trace.query_tokens])
    close(trace.weights, models.weights_by_hand(models.arrays(3, 1), 0, trace.query_tokens), rtol=1e-10)
    close(trace.output, trace.weights @ trace.x_query, rtol=1e-10)
    exact = trace_self(TEXT, files(3)).weights
    for dtype, far in ((np.float16, 0.05), (np.float32, 1e-4)):

        def narrow(made, dtype=dtype):
            made |= {name: value.astype(dtype) for name, value in made.items() if value.dtype == float}

        close(trace_self(TEXT, files(3, narrow)).weights, exact, atol=far)


@LAYERS
def test_a_model_without_one_of_its_arrays_is_refused_where_it_is_not_whole_without_it(layers, files):
    for name in models.arrays(len(NAMES[layers]), layers):
        without = files(layers, lambda made, name=name: made.pop(name))
        if name == f"{layers - 1}.W_v":
            assert outcome(without) == "used", "then values are the rows themselves"
        else:  # without in.W, there are 6 numbers a word, and vectors of 4
            assert name in refused(without) or name == "in.W"

    def bare(made):
        made["start.names"] = made["start.names"][:0]
        del made["start.vectors"]

    assert outcome(files(layers, bare)) == "used", "then spelling tells nothing of a word"


def spoilt(array):
    """Each way in which an array can be of another shape, kind or size, by a name for it."""
    for axis in range(array.ndim):
        yield f"longer along {axis}", np.concatenate([array, array.take([0], axis)], axis)
        yield f"shorter along {axis}", array.take(range(array.shape[axis] - 1), axis)
        yield f"empty along {axis}", array.take(range(0), axis)
    yield "flat", array.ravel() if array.ndim > 1 else array[:, np.newaxis]
    yield "deeper", array[np.newaxis]
    yield "a number", array.ravel()[0].reshape(())
    for dtype in ("int8", "int32", "int64", "bool", "uint8", "uint16", "float32"):
        yield dtype, np.abs(array).astype(dtype)
    for value in (np.nan, np.inf, -np.inf):
        yield str(value), np.full(array.shape, value)
    yield "huge", array * 1e300


@LAYERS
def test_an_array_of_another_shape_kind_or_size_is_refused_or_does_no_harm(layers, files):
    wrong = {}
    for name, array in models.arrays(len(NAMES[layers]), layers).items():
        for how, changed in spoilt(array):
            if name == "start.names" and how[:6] in ("longer", "shorte", "huge"):
                continue  # bytes more or less make other names, but as many
            found = outcome(files(layers, lambda made, n=name, c=changed: made.update({n: c})))
            if found != "refused" and (found != "used" or how not in ("float32", "huge", "uint8")):
                wrong[name, how] = found
    assert wrong == {}


NAMED = [None, "relations, mine, other", '["relations", "mine"', '{"relations": 0, "mine": 1}', "[" * 100_000]
NAMED += map(json.dumps, ([], TWO, [*TWO, "o", "more"], [*TWO, "mine"], [*TWO, ""], [*TWO, 3]))
METADATA = {"format": ["attn-model/2", None], "heads": NAMED, "fingerprint": [None, "00"]}
METADATA["facts"] = [None, "[]", "{", '"so"', "[" * 100_000, '{"a":' * 50_000]
EACH = [(key, value) for key, values in METADATA.items() for value in values]


@pytest.mark.parametrize(("key", "value"), EACH, ids=lambda value: str(value)[:40])
def test_metadata_that_makes_no_model_is_refused(key, value, files):
    settings = files(1)
    arrays, about = read_safetensors(settings.projection)
    arrays = {name: np.array(array) for name, array in arrays.items()}
    with Path(settings.projection).open("wb") as stream:
        about = {name: one for name, one in (about | {key: value}).items() if one is not None}
        write_safetensors(stream, arrays, about)
    refused(settings)


def test_a_file_cut_anywhere_is_refused(files):
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
    path, read = Path(settings.projection), 0
    whole = path.read_bytes()
    for seed in range(300):
        path.write_bytes(mutated(whole, random.Random(seed)))
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


def test_a_file_of_bare_weights_is_no_learned_model_and_one_changed_vector_makes_other_vectors(tmp_path):
    (weights, vectors) = (str(tmp_path / name) for name in ("w.safetensors", "v.txt"))
    with Path(weights).open("wb") as stream:
        write_safetensors(stream, {f"W_{m}": np.eye(4) for m in "qkv"}, {})
    Path(vectors).write_text(models.typed(models.table()))
    said = {UsageError: r"mean roles\? Choose roles, roles-deep, lang", InputError: "is not a learned model"}
    names = {"role": UsageError, "./none.safetensors": FileError}
    for name, error in (names | dict.fromkeys((weights, vectors), InputError)).items():
        with pytest.raises(error, match=said.get(error)):
            named(name)
    assert trace_self("a cat", Settings(embedding=vectors, projection=weights)).projection.source == "file"
    one = models.table()
    others = [models.table(words) for words in ("the cat dog sees big an", "cat the dog sees big a")]
    others += [models.table(seed=1), models.table(dim=5)]
    others += [VectorTable("file", "t", one.block, one.matrix * 1.001, {})]
    assert one.fingerprint() not in [other.fingerprint() for other in others]
    assert VectorTable("other", "else", one.block, one.matrix, {}).fingerprint() == one.fingerprint()


def test_a_layer_below_has_numbered_heads_reads_what_is_below_it_and_sees_nothing_behind_a_mask(files):
    settings = files(3)
    traces = [trace_self(TEXT, replace(settings, layer=layer)) for layer in range(3)]
    assert [trace.head_names for trace in traces] == [("0", "1"), ("0", "1"), ("relations", "mine")]
    assert [trace.projection.layer for trace in traces] == [0, 1, 2]
    made, known = models.arrays(2, 3), models.table().find(["dog"])["dog"]
    start = traces[0].x_query[TEXT.split().index("dog")]
    close(start, known @ made["in.W"] + made["in.b"], rtol=1e-12)
    for below, above in pairwise(traces):
        X = below.x_query + below.layer_output  # then the norm and the network of each word by itself
        assert X.shape == above.x_query.shape and not np.allclose(X, above.x_query)
    assert traces[2].layer_output is None and traces[0].layer_output is not None
    for layer in range(3):
        all_heads = replace(settings, layer=layer, head="all")
        one, other = (trace_masked(f"a dog sees the {last}", all_heads) for last in ("cat", "unheard"))
        close(one.x_query[:4], other.x_query[:4], rtol=0, atol=1e-14)
        for ours, theirs in zip(one.heads, other.heads, strict=True):
            close(ours.weights[:4], theirs.weights[:4], rtol=0, atol=1e-14)
            close(ours.output[:4], theirs.output[:4], rtol=0, atol=1e-14)
            assert not np.triu(ours.weights, 1).any()
    assert any("all lower layers" in note for note in one.notes)
    free = (trace_self(f"a dog sees the {last}", settings).x_query[:4] for last in ("cat", "unheard"))
    assert not np.allclose(*free)


def test_without_its_position_term_order_and_sides_change_nothing_nor_does_a_shift_of_its_biases(files):
    def change(made):
        made |= {name: np.zeros_like(value) for name, value in made.items() if name.endswith((".R", ".b"))}

    settings = files(3, change)
    order, tokens = [3, 0, 2, 1, 4], ["a", "cat", "sees", "big", "zebras"]
    straight = trace_self(" ".join(tokens), settings).weights
    permuted = trace_self(" ".join(tokens[i] for i in order), settings).weights
    close(permuted, straight[np.ix_(order, order)], rtol=1e-9, atol=1e-12)
    across = trace_cross(TEXT, TEXT, files(1)).weights
    close(across, trace_self(TEXT, files(1, change)).weights, rtol=1e-12)
    plain = trace_self(TEXT, files(1)).weights
    shifted = files(1, lambda made: made.update({"0.b": made["0.b"] + 5}))
    close(trace_self(TEXT, shifted).weights, plain, rtol=1e-9)


def test_what_a_file_says_of_its_heads_is_known_as_far_as_it_can_be_and_layers_report_each_head(files):
    leads = {"it": {"forms": ["it", "its"], "lead": 0.25, "count": 9, "right": 8}}
    score = {"accuracy": 0, "baseline": True, "precision": 1, "hard": 1.5, "content": "x", "leads": leads}
    scores = {"relations": score | {"scored_on": "a", "on": "b"}, "mine": {"on": "b"}, "0": {"precision": 1}}
    facts = {"about": {"relations": "to the left"}, "trained_on": ["a", "", 3, "b"], "values": "words"}
    facts |= {"scores": scores, "scored_on": "c"}
    model, none = read_model(files(3, facts=facts, always=True).projection, "m"), [None] * 5
    for layer, head, on, about, shares, values in (
        (2, "relations", "a", "to the left", [0, None, 1, None, None], "words"),
        (2, "mine", "b", None, none, "words"),
        (0, "0", None, None, none, "learned"),
    ):
        told = ("m", 3, ("a", "b"), on, about, *shares, values, True, True)
        assert model.learned(layer, head) == told
    assert read_model(files(3).projection).learned(2, "mine").values == "learned"
    assert model.clear_lead("relations", "it") == (0.25, "it, its", 9, 8)
    assert model.clear_lead("mine", "it") is None
    assert [lead_of(np.array(row)) for row in ([0.25, 0.75], [1.0])] == [0.5, 1]  # one word leads wholly
    assert [model.layer_of(name) for name in ("relations", "0", "no", None)] == [2, None, None, None]
    done = []
    model.input(models.table().matrix, 2, None, done.append)
    assert done == pytest.approx([1 / 6, 2 / 6, 3 / 6, 4 / 6])  # two heads a layer, and one layer more


def test_a_word_s_score_is_that_of_its_vector_with_what_was_learned_beside_it_and_its_case_two_bits():
    some = np.random.default_rng(0).standard_normal
    P, vectors, corrections, bias, unknown, H = map(some, ((3, 2), (9, 2), (4, 2), 10, 2, (5, 3)))
    cases = np.array([[0b01100000, 0b10000000], [0b00100000, 0]], np.uint8)
    layer = WordLayer(P, bias, unknown, some(3), corrections, cases)
    rows = np.vstack([vectors[:4] + corrections, vectors[4:], unknown])
    close(layer.scores(H, vectors), H @ P @ rows.T + bias, atol=1e-5)
    close([layer.row(n, vectors) for n in range(10)], rows)
    assert [layer.case(n) for n in range(17)] == [0, 1, 2, *[0] * 5, 1, *[0] * 8]
    more = layer._replace(corrections=rows)
    for one, table in ((layer, vectors[:8]), (layer, vectors[:, :1]), (more, vectors)):
        with pytest.raises(InputError, match=f"scores 9 words, and there are {len(table)} vectors"):
            one.scores(H, table)


@pytest.mark.parametrize("always", [False, True])
def test_an_unknown_word_starts_from_its_spelling_and_every_word_where_the_model_says_so(always, files):
    trace = trace_self(TEXT, files(1, always=always))
    assert set(trace.unknown) == {"cats", "see", "walking"}
    assert trace.embedding.oov == "model"
    assert any("cats" in note and "spelling" in note for note in trace.notes)
    vectors = dict(zip(models.FEATURES, models.arrays(3, 1)["start.vectors"], strict=True))
    for token, x in zip(trace.query_tokens, trace.x_query, strict=True):
        spelled = sum(vectors[name] for name in features(token) if name in vectors)
        own = models.table().find([token.lower()]).get(token.lower())
        close(x, spelled if own is None else own + always * spelled, rtol=1e-12)
    trace = trace_self(TEXT, replace(files(1, always=always), oov="zero"))
    assert not trace.x_query[trace.query_tokens.index("cats")].any()


LIKE = [[normalize(form, text) for form in ("NFC", "NFD")] for text in ("the café opens", "a blörptwíng cat")]
LIKE += [("he doesn't know", "he doesn’t know"), ("my sister's dog", "my sister’s dog")]


@pytest.mark.parametrize("name", BUNDLED)
@pytest.mark.parametrize(("one", "other"), LIKE)
def test_words_that_are_looked_up_alike_are_alike_to_a_bundled_model(one, other, name):
    first, second = (trace_self(text, Settings(projection=name, head="all")) for text in (one, other))
    assert len(first.unknown) == len(second.unknown) == ("cat" in one)
    assert first.query_tokens != second.query_tokens
    close([head.weights for head in first.heads], [head.weights for head in second.heads], rtol=1e-12)


def filled(array, size, layers):
    return layers, {"change": lambda made: made[f"{layers - 1}.{array}"].fill(size)}, "a million"


def doubled(axis, *names):
    return {"change": lambda made: made.update({name: made[name].repeat(2, axis) for name in names})}


def half(size):
    return {"change": lambda made: made.update({"0.W_q": np.full((3, 4, 2), size, np.float16)})}


BELOW = [], [["a", "b"]], [["a", "b"]] * 3, "ab"
UNSOUND = [
    *((3, {"facts": {"names_below": of}}, "those of 2 layers") for of in BELOW),
    *((1, {"names": ["relations", name, "other"]}, "all or mean") for name in ("all", "mean")),
    (3, doubled(-1, "in.W", "in.b"), "in.W makes 12 numbers a word, and layer 0 takes 6"),
    (1, doubled(1, "0.R", "0.b"), "it needs an odd number of rows of 2"),
    *((1, half(size), "0.W_q holds NaN or infinity") for size in (np.nan, np.inf, -np.inf)),
    *map(filled, *zip(*product(("R", "b", "W_q", "b_k"), (1e7, -1e7, -1e308, 1e308), (1, 3)), strict=True)),
]


@pytest.mark.parametrize(("layers", "how", "said"), UNSOUND)
def test_what_is_sound_in_each_part_and_not_in_the_whole_is_refused(layers, how, said, files):
    assert said in refused(files(layers, **how))


def test_vectors_too_large_for_the_layers_are_refused(files, at):
    one, settings = models.table(), replace(files(3), layer=0)
    huge = VectorTable("file", "t", one.block, one.matrix / np.abs(one.matrix).max() * 1.7e308, {})
    (at / "v.txt").write_text(models.typed(huge))
    models.write(at / "m.safetensors", models.arrays(2, 3), huge, TWO)
    said = "m.safetensors: what its layers make is more than a number can hold."
    assert said in refused(settings, "the cat dog sees")


@pytest.mark.parametrize("columns", [3, None])
def test_values_that_are_no_word_vectors_are_given_no_words(columns, files, at):
    def change(made):
        for name in ("2.W_v", "2.b_v"):
            value = made.pop(name)
            if columns:
                made[name] = value[..., :columns]

    files(3, change, facts={"values": "words"})
    found = shell.record("explain", "a cat", "-p", "./m.safetensors", "-e", "v.txt")
    assert found["output_words"] is None and found["learned"]["values"] == "learned"


@pytest.mark.parametrize("command", ["self cat -p m.safetensors", "learn score m.safetensors one.conllu"])
def test_a_model_that_takes_other_numbers_a_word_is_refused_by_every_command(command, files, at):
    files(1)
    models.write(at / "m.safetensors", models.arrays(3, 1, dim=5), models.table(), NAMES[1])
    (at / "one.conllu").write_text(conllu("cat/NOUN/0/root"))
    assert "5 numbers a word" in shell.refused(*command.split(), "-e", "v.txt", code=65)


@pytest.mark.parametrize(("one", "other"), [("n’t", "n't"), ("’S", "'S"), ("cafe\u0301s", "caf\u00e9s")])
def test_a_word_has_one_spelling_while_learning_and_afterwards(one, other):
    words = Vocabulary(models.table("o'clock don't isn't he's she's cafés decafés"), 20, 5, ["subject"])
    assert features(one) == features(other) and words.spelling(one) == words.spelling(other) != []


def bytes_of(arrays):
    return sum(value.nbytes for value in arrays.values())


def test_quantized_matrices_take_half_the_bytes_near_what_was_and_stay_the_same():
    draw = np.random.default_rng(0)  # the file has eight bits a number already: others are made of them
    arrays = {
        name: value if value.dtype == np.uint8 else (value * draw.random(value.shape)).astype(np.float16)
        for name, value in model_file.model_arrays(str(data_path("roles.safetensors")))[0].items()
    }
    small = quantized(arrays)
    assert bytes_of(small) < 0.55 * bytes_of(arrays)
    again = dequantized(small)
    assert again.keys() == arrays.keys()
    changed = 0
    for name, value in arrays.items():
        assert again[name].shape == value.shape
        np.testing.assert_array_equal(again[name].astype(value.dtype), again[name])  # each is a half
        if name + EXPONENTS in small:
            wide = value.astype(np.float64)
            assert (np.abs(again[name] - wide) <= np.abs(wide).max(axis=-1, keepdims=True) / 127).all()
            changed += 1
        else:
            np.testing.assert_array_equal(again[name], value)
    assert changed > 3
    twice = model_file.in_bits({name: value for name, value in again.items() if value.dtype != np.uint8}, "8")
    twice |= {name: value for name, value in small.items() if value.dtype == np.uint8}
    assert all(np.array_equal(twice[name], small[name]) for name in small) and twice.keys() == small.keys()
    matrix = np.eye(2, 1000, dtype=np.float16)
    matrix[1, 2] = np.inf
    assert quantized({"W": matrix})["W"] is matrix


@pytest.mark.parametrize("size", [6e-8, 1e-6, 1.0, 6e4, 65280, 65504])
def test_rows_of_every_size_that_a_half_can_hold_are_quantized(size):
    row = np.linspace(-size, size, 500).astype(np.float16)
    small = quantized({"W": np.stack([row, np.zeros_like(row)]), "less": np.ones((9, 111), np.float16)})
    again = dequantized(small)["W"]
    assert {*small} == {"W", "W" + EXPONENTS, "less"}, "of a thousand numbers and more"
    assert np.isfinite(again).all() and not again[1].any()
    assert np.abs(again[0].astype(float) - row.astype(float)).max() <= max(size / 127, 2**-25)


@pytest.mark.parametrize("change", ["shape", "type", "large", "small", "missing", "least"])
def test_exponents_that_do_not_fit_are_refused(tmp_path, change):
    made = models.arrays(layers=1, dim=400).items()
    arrays = quantized({n: v if v.dtype == np.uint8 else v.astype(np.float16) for n, v in made})
    name = "0.W_q" + EXPONENTS
    assert name in arrays
    right = arrays.pop(name)
    arrays["0.W_q"][0, 0, 0] = -128 if change == "least" else 0
    wrong = {"least": right}
    wrong |= {"shape": right[:, :1], "type": right.astype(np.int16)}
    wrong |= {size: np.full_like(right, of) for size, of in (("large", 100), ("small", -100))}
    whole = arrays | ({name: wrong[change]} if change in wrong else {})
    path = models.write(tmp_path / "m.safetensors", whole, models.table(dim=400), ["a", "b", "c"])
    with pytest.raises(InputError) as refused:
        read_model(path)
    assert "0.W_q has shape" in refused.value.message and "int8" in refused.value.message


def test_training_with_eight_bits_writes_half_the_bytes_and_says_so_in_the_file(at):
    bank = [f"w{n}/NOUN/2/nsubj w{n + 1}/VERB/0/root w{n + 2}/NOUN/2/obj" for n in range(0, 30, 3)]
    (at / "bank.conllu").write_text(conllu(*bank))
    (at / "v.txt").write_text(models.typed(models.table(" ".join(f"w{n}" for n in range(30)), dim=40)))
    common = ("bank.conllu", "-e", "v.txt", "--epochs", "1", "--relations", "subject,object")
    for bits in ("16", "8"):
        assert shell.here("learn", "train", *common, "--bits", bits, "-o", f"{bits}.safetensors").code == 0
    (plain, _), (small, about) = (read_safetensors(at / f"{bits}.safetensors") for bits in ("16", "8"))
    assert bytes_of(small) < 0.6 * bytes_of(plain) and '"bits": "8"' in about["facts"]
    expected = dequantized(quantized(plain))
    found = model_file.model_arrays(str(at / "8.safetensors"))[0]
    for name, wanted in expected.items():  # of two trainings: an eighth bit may be rounded the other way
        np.testing.assert_allclose(found[name], wanted, atol=np.abs(wanted).max() / 64, err_msg=name)
    model = ("-p", "8.safetensors", "--head", "subject")
    assert "subject" in shell.told("self", "w1 w2 w3", *common[1:3], *model)
    wrong = shell.refused("learn", "train", *common, "--bits", "12", "-o", "12.safetensors")
    assert "'16', '8'" in wrong
