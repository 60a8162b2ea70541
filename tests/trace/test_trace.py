"""The record of one computation: immutable, complete, and the same whatever part of it is kept."""

import dataclasses
import json
import math

import numpy as np
import pytest

from attn_cli import Settings, trace_cross, trace_masked, trace_self
from attn_cli.core.heads import QK
from attn_cli.errors import UsageError
from attn_cli.inputs.matrices import given_from
from attn_cli.pipeline import attend
from attn_cli.pipeline.sources.matrices import trace_matrices
from attn_cli.pipeline.sources.text import trace_text
from tests.alike import assert_alike
from tests.memory import peak
from tests.thorough import like_cases

RANDOM = Settings(embedding="random", dim=6, seed=1)
LEARNED, ROLES = Settings(), Settings(projection="roles")  # the defaults are word2vec and roles
TEXT = "She likes coffee. She likes tea!"
LONG = " ".join(f"word{i}" for i in range(1010))  # more than a million cells


def changed(**values):
    return dataclasses.replace(RANDOM, **values)


def arrays(record):
    """The arrays that a record and the tuples in it hold."""
    values = [getattr(record, field.name) for field in dataclasses.fields(record) if field.name != "source"]
    values += [part for value in values if isinstance(value, tuple) for part in value]
    return [value for value in values if isinstance(value, np.ndarray)]


def close(a, b):
    np.testing.assert_allclose(a, b, rtol=0, atol=1e-12)


@pytest.mark.parametrize("settings", [changed(heads=2, head="mean"), LEARNED], ids=["mean", "learned"])
def test_nothing_in_a_trace_can_be_changed(settings):
    trace = trace_masked(TEXT, settings)
    for record in (trace, trace.shown, *trace.heads):
        held = arrays(record)
        assert len(held) >= 3
        for array in held:
            with pytest.raises(ValueError, match="read-only"):
                array[...] = 0
        for field in dataclasses.fields(record):
            with pytest.raises(dataclasses.FrozenInstanceError):
                setattr(record, field.name, None)
    with pytest.raises(dataclasses.FrozenInstanceError):
        trace.settings.seed = 2


@pytest.mark.parametrize("names", [("X",), ("X", "context"), ("Q", "K", "V"), ("X", "W_q", "W_k", "W_v")])
def test_a_trace_does_not_follow_what_is_done_to_the_given_matrices_later(names):
    given = {name: np.random.default_rng(n).standard_normal((3, 3)) for n, name in enumerate(names)}
    given["mask"] = np.tri(3, dtype=bool)
    seen = {name: array[:] for name, array in given.items()}  # read-only views do not protect them
    for array in seen.values():
        array.setflags(write=False)
    trace = trace_matrices("compute", given_from(seen, "given"), Settings())
    before = json.dumps(trace.to_dict(steps=True))
    for array in given.values():
        array[...] = 0
    assert json.dumps(trace.to_dict(steps=True)) == before


@pytest.mark.parametrize("settings", [changed(heads=3), LEARNED], ids=["random", "learned"])
def test_a_head_is_chosen_by_its_name_or_its_number(settings):
    whole = trace_self(TEXT, dataclasses.replace(settings, head="all"))
    names = whole.head_names
    assert whole.shown.name == trace_self(TEXT, settings).shown.name == names[0]
    assert names == ("0", "1", "2") or {"relations", "subject", "object", "determiner"} < set(names)
    for number, name in enumerate(names):
        for head in {name, str(number)}:
            chosen = trace_self(TEXT, dataclasses.replace(settings, head=head))
            assert chosen.shown.name == name and chosen.head_names == names
            close(chosen.weights, whole.heads[number].weights)
    for head in (str(len(names)), "-1", "Subject", ""):
        with pytest.raises(UsageError) as refused:
            trace_self(TEXT, dataclasses.replace(settings, head=head))
        assert refused.value.option == "--head"


def test_the_default_projection_is_learned_with_the_bundled_vectors_alone():
    for settings, source, oov in (
        *((one, "learned", "model") for one in (LEARNED, Settings(embedding="word2vec"), ROLES)),
        *((one, "identity", "zero") for one in (Settings(heads=2), Settings(projection="identity"))),
        (RANDOM, "random", None),
        (Settings(projection="random"), "random", "zero"),
    ):
        trace = trace_self(TEXT, settings)
        assert (trace.projection.source, trace.embedding.oov) == (source, oov)
        assert (trace.learned is None) == (source != "learned")
        # Where values are word vectors, outputs have words, if these are asked for.
        named = trace_text("self", TEXT, None, settings, name_outputs=True).output_words
        are_vectors = source == "learned" or (source == "identity" and settings.heads is None)
        assert trace.output_words is None and (named is not None) == are_vectors


def test_dropped_punctuation_is_listed_for_both_sides():
    assert trace_self(TEXT, RANDOM).dropped == (".", "!")
    assert trace_cross("a, b", "c?", RANDOM).dropped == (",", "?")
    assert trace_self(TEXT, changed(keep_punctuation=True)).dropped == ()


@pytest.mark.parametrize("head", ["relations", "subject", "all"])
def test_cross_attention_of_a_text_with_itself_leaves_out_what_a_learned_head_adds_for_distances(head):
    settings = dataclasses.replace(LEARNED, head=head)
    alone, crossed = trace_self(TEXT, settings), trace_cross(TEXT, TEXT, settings)
    assert alone.is_self and not crossed.is_self
    for one, other in zip(alone.heads, crossed.heads, strict=True):
        assert one.position_scores is not None and one.position_vectors is not None
        assert other.position_scores is None and other.position_vectors is None
        exps = np.exp(one.scaled_scores)
        close(other.weights, exps / exps.sum(axis=1, keepdims=True))


def test_equal_words_differ_only_by_where_they_stand_and_beyond_a_heads_reach_not_even_so():
    head = trace_self(" ".join(["coffee"] * 40), LEARNED).shown
    close(head.scores, np.full((40, 40), head.scores[0, 0]))
    for distance in range(-39, 40):
        along = np.diagonal(head.position_scores, distance)
        close(along, np.full(len(along), along[0]))
    assert np.ptp(head.weights) > 0.01
    reach = len(head.position_biases) // 2
    assert 2 * reach + 1 == len(head.position_biases) == len(head.position_vectors) and reach < 39
    for far in (head.position_scores[0, reach:], head.position_scores[39, : 39 - reach + 1]):
        close(far, np.full(len(far), far[0]))


def test_a_fully_masked_row_is_zeros_in_numbers_and_null_in_the_summary():
    trace = trace_cross("a b c", "d", changed(mask="causal-bottom-right"))
    assert trace.weights.tolist() == [[0.0], [0.0], [1.0]]
    row, record = trace.row(0), trace.to_dict(steps=True)
    assert (row.total, row.weights, row.masked) == (0, [0.0], [-math.inf])
    nothing = dict.fromkeys(("key", "weight", "key_index"))
    assert record["summary"][0] == nothing | {"query": "a", "query_index": 0}
    assert record["output"][0] == [0.0] * 6
    assert record["heads"][0]["masked_scores"][0] == [None]


WARM = [changed(temperature=temperature) for temperature in (1.0, 0.01, 1e-6, 50.0)]
WARM += [dataclasses.replace(LEARNED, score=score, temperature=0.5) for score in ("scaled", "dot", "cosine")]


@pytest.mark.parametrize("settings", WARM)
@pytest.mark.parametrize("kind", [trace_self, trace_masked])
def test_a_row_s_arithmetic_leads_from_its_scores_to_its_weights(kind, settings):
    trace = kind(TEXT, settings)
    for i in range(6):
        row, allowed = trace.row(i), np.ones(6, bool) if trace.mask is None else trace.mask[i]
        assert row.query == i and (row.position is None) == (settings.embedding == "random")
        scaled = np.array(row.scores) * trace.scale / trace.temperature
        np.testing.assert_allclose(row.scaled, scaled, rtol=1e-12, atol=1e-12)
        close(row.masked, np.where(allowed, row.scaled + np.array(row.position or 0.0), -np.inf))
        largest = max(row.masked)
        assert row.shift == (0 if abs(largest) <= 30 else largest)
        np.testing.assert_allclose(row.exps, np.exp(np.array(row.masked) - row.shift), rtol=1e-12)
        assert row.total == pytest.approx(sum(row.exps), rel=1e-12)
        close(row.weights, np.array(row.exps) / row.total)
        assert not np.array(row.weights)[~allowed].any()
        # Rotated, the cap is on content and distance, not on content.
        capped = dataclasses.replace(row, capped=[0.0] * 6)
        assert capped.content == [0.0] * 6
        assert dataclasses.replace(capped, is_rotated=True).content == row.scaled


def test_json_says_what_is_known_of_a_learned_head():
    record = trace_masked(TEXT, dataclasses.replace(LEARNED, projection="roles")).to_dict()
    known = record["learned"]
    assert (known["model"], known["layers"], known["values"]) == ("roles", 1, "words")
    assert known["trained_on"] and known["scored_on"] and known["scored_on"] not in known["trained_on"]
    assert 0 <= known["baseline"] < known["accuracy"] <= 1 and known["about"]
    where = {"source": "learned", "name": "roles", "layout": "in-out", "seed": None, "layer": 0}
    assert record["projection"] == where | {"x_is_normed": None, "kv_heads": None}
    mean = trace_self(TEXT, dataclasses.replace(LEARNED, head="mean")).to_dict()["learned"]
    assert (mean["model"], mean["about"], mean["accuracy"]) == ("roles", None, None)


@pytest.mark.parametrize(
    ("query", "rows"),
    [("likes", [1, 4]), ("She", [0, 3]), ("she", [0, 3]), ("COFFEE", [2]), ("5", [5]), ("0", [0])],
)
def test_a_query_keeps_the_rows_of_its_token_or_number_and_their_numbers(query, rows):
    whole = trace_masked(TEXT, RANDOM).to_dict(steps=True)
    part = trace_masked(TEXT, changed(query=query)).to_dict(steps=True)
    assert part["query_rows"] == rows and whole["query_rows"] is None
    for name in ("query_tokens", "query_ids", "weights", "mask", "output", "summary", "x_query"):
        assert_alike(part[name], [whole[name][i] for i in rows])
    for name in ("weights", "output", "q", "scores", "scaled_scores", "masked_scores"):
        assert_alike(part["heads"][0][name], [whole["heads"][0][name][i] for i in rows])
    for name in ("key_tokens", "key_ids", "x_key"):
        assert_alike(part[name], whole[name])


def test_a_query_that_names_nothing_is_wrong_usage():
    for query in ("coffe", "6", "-1", "1.0", "", "9" * 5000, "²"):
        with pytest.raises(UsageError, match="0 to 5") as refused:
            trace_self(TEXT, changed(query=query))
        assert refused.value.option == "--query"


@pytest.mark.parametrize("top", [1, 2, 6, 100])
@pytest.mark.parametrize("kind", [trace_self, trace_masked])
def test_top_keeps_the_strongest_links_of_each_row(kind, top):
    whole, part = kind(TEXT, RANDOM), kind(TEXT, changed(top=top))
    record = part.to_dict(steps=True)
    assert record["weights"] is None and record["condensed"] is True
    matrices = "weights", "scores", "scaled_scores", "masked_scores"
    assert all(record["heads"][0][name] is None for name in matrices)
    close(record["heads"][0]["q"], whole.heads[0].q)
    for key in ("mask", "diagnostics", "entropy", "summary"):  # which are as short
        assert_alike(part.to_dict(keys=[key]), whole.to_dict(keys=[key]))
    wanted = []
    for i, row in enumerate(whole.weights.tolist()):
        may = [j for j in range(6) if whole.mask is None or whole.mask[i, j]]
        in_order = sorted(may, key=lambda j, row=row: (-round(row[j], 9), j))  # words alike tie
        wanted += [[i, j, row[j]] for j in in_order[:top]]
    assert_alike(record["links"], wanted)


OF_LONG = [
    *((trace_self, RANDOM), (trace_masked, changed(top=7)), (trace_masked, LEARNED)),
    (trace_self, changed(without=("word0", "word511", "word512", "word1009"), mask="window:40")),
    (trace_self, changed(heads=2, head="mean", mask="window:3")),
    (trace_masked, changed(heads=3, head="all", query="word500")),
    (trace_self, Settings(head="next", mask="window:3", score="cosine")),
    (trace_self, Settings(head="subject", query="word500", temperature=2)),
]


@pytest.mark.parametrize(("kind", "settings"), OF_LONG)
@like_cases
def test_a_condensed_trace_has_the_links_and_outputs_of_the_whole(kind, settings, monkeypatch):
    monkeypatch.setattr(attend, "FAST_BLOCK_CELLS", 2**18)  # so that a mean's rows come in several blocks
    part, whole = kind(LONG, settings), kind(LONG, dataclasses.replace(settings, full=True))
    assert part.condensed and not whole.condensed
    assert any("1,010 x 1,010" in note for note in part.notes)
    assert len(part.rows) < 10 and whole.weights.shape == (1010, 1010)
    for small, large in zip((part.shown, *part.heads), (whole.shown, *whole.heads), strict=True):
        close(small.output, large.output)
        close(small.links.weights, large.links.weights)
        close(small.weights, large.weights[part.rows])
        k = small.links.keys.shape[1]
        shut = np.zeros((1010, 1010), bool) if whole.mask is None else ~whole.mask
        ranked = np.argsort(np.where(shut, 1, -large.weights), axis=1, kind="stable")[:, :k]
        found = np.where(np.take_along_axis(shut, ranked, 1), -1, ranked)
        np.testing.assert_array_equal(small.links.keys, found)
    record = part.to_dict(steps=True)
    assert record["condensed"] is True and record["weights"] is None and record["mask"] is None
    seen = (1010 if whole.mask is None else int(whole.mask[i].sum()) for i in part.listed)
    assert len(record["links"]) == sum(min(settings.top or 5, keys) for keys in seen)
    if record["long_view"] is not None:
        wanted = np.ones((1010, 1010)) if whole.mask is None else whole.mask
        found = record["long_view"]
        assert found["allowed"] == [wanted[i].sum() for i in part.listed]
        assert np.sum(found["map"]["allowed"]) == wanted.sum()
    assert part.mask_name == "none" or any(part.mask_name in note for note in part.notes)
    row, same_row = part.row(part.focus[0], part.heads[0]), whole.row(part.focus[0], whole.heads[0])
    close(row.weights, same_row.weights)
    close(row.exps, same_row.exps)


def test_a_condensed_trace_is_made_without_a_matrix_of_all_weights_and_heads_take_little_more_memory():
    text = " ".join(f"word{i}" for i in range(3000))
    assert peak(lambda: trace_masked(text, RANDOM)) < 3000 * 3000 * 8
    one, many = (peak(lambda n=n: trace_self(LONG, changed(dim=16, heads=n))) for n in (1, 16))
    assert many < 4 * one


def test_a_million_cells_are_still_shown_whole():
    trace = trace_cross(" ".join(["a"] * 1000), " ".join(["b"] * 1000), RANDOM)
    assert not trace.condensed and trace.weights.shape == (1000, 1000)


def test_a_record_has_the_rows_that_are_asked_for_and_of_each_head_what_is_its_own():
    mask = np.array([np.tri(3), np.tri(3).T], bool)
    X = np.random.default_rng(0).standard_normal((3, 4))
    given = given_from({"X": X, "heads": 2, "mask": mask}, "given")
    of_two = trace_matrices("compute", given, Settings(head="all", query="q2"))
    record = of_two.to_dict(walked=True)
    assert [head["mask"] for head in record["heads"]] == mask[:, 2:].tolist()
    assert {one["query_index"] for one in record["because"]} == {2} == {*of_two.focus}
    assert of_two.to_dict(keys=["acts", "query_rows"]) == {"acts": None, "query_rows": [2]}
    turned = QK(X[:, :2] + 1, X[:, 2:] + 1)
    options = Settings(query="q2", top=1, knock_out=("0.1", "2.mlp"))
    heads = [dataclasses.replace(head, layer=5, rotated=turned) for head in of_two.heads]
    layered = dataclasses.replace(of_two, heads=tuple(heads), shown=heads[1], settings=options)
    record = layered.to_dict(steps=True)
    assert [head.label for head in (*heads, *of_two.heads)] == ["5.0", "5.1", "0", "1"]
    assert (record["head"], record["heads"][1]["layer"], record["heads"][1]["mask"]) == ("1", 5, None)
    assert record["knock_out"] == {"parts": ["0.1", "2.mlp"], "with": "zero"}
    assert record["heads"][0]["q_turned"] == turned.q[2:].tolist()
    assert record["heads"][0]["k_turned"] == turned.k.tolist()
    plain = trace_self("a b", RANDOM)
    assert plain.to_dict(keys={"heads": {"name": None, "links": None}})["heads"] == []
    layered = dataclasses.replace(plain, projection=plain.projection._replace(layer=7))
    assert [head["layer"] for head in layered.to_dict(steps=True)["heads"]] == [7]


def test_a_trace_says_in_a_line_what_it_is_of_which_heads_are_shown_and_where_its_tokens_stand():
    wide = trace_cross("a\x1b b c d e f g", "k " * 1200, changed(heads=2, head="1", tokenizer="whitespace"))
    assert repr(wide) == "<Trace cross: 7 queries x 1,200 keys, head 1 (one of 2); a^[ b c d e f ...>"
    plain, mean = trace_self(TEXT, RANDOM), trace_self(TEXT, changed(heads=2, head="mean"))
    assert repr(plain) == "<Trace self: 6 queries x 6 keys, head 0; She likes coffee She likes tea>"
    assert (plain.stepped_head, mean.stepped_head) == (plain.shown, mean.heads[0])
    every = trace_self(TEXT, changed(heads=2, every_head=True))
    assert (len(every.heads), every.shown_heads, mean.shown_heads) == (2, (every.shown,), mean.heads)
    assert dataclasses.replace(plain, settings=changed(measure="norm")).drawn == "weight"
    assert mean.row(1, mean.heads[1]).weights == mean.heads[1].weights[1].tolist() and mean.row(1) is None
    for side, places in (("left", (2, 3)), ("right", (0, 1))):
        padded = trace_self("a b", changed(pad=2, pad_side=side, query="a"))
        assert [padded.place(i) for i in places] == [0, 1]
        seen = padded.visible_weights(padded.shown, places[1:])
        assert np.isnan(seen[0]).tolist() == [j not in places for j in range(4)]


def test_only_what_the_temperature_scales_tells_the_temperature_and_distances_hide_what_length_decides():
    numbers = {"Q": [[1.0, 0.0]], "K": [[1.1, 1.1], [1.0, 0.0]], "V": [[1.0], [2.0]], "scale": 1.0}
    plain, far = (given_from(numbers | more, "given") for more in ({}, {"position_scores": [[0.5, 0.0]]}))
    of_plain, of_far = (trace_matrices("compute", one, Settings(temperature=2)) for one in (plain, far))
    (known,), (other,) = of_plain.diagnoses(), of_far.diagnoses()
    assert (known.longer, known.nearer) == (0, 1)
    assert trace_matrices("compute", plain, Settings(score="cosine")).diagnoses()[0].longer is None
    assert known.temperature_95 == pytest.approx(0.1 / math.log(19))
    assert (other.longer, other.temperature_95) == (None, None)
    assert [one.temperature_95 for one in of_plain.diagnoses(with_temperature=False)] == [None]
    (learned, *_) = trace_self(TEXT, LEARNED).diagnoses()
    assert learned.longer is None and learned.temperature_95 > 0
