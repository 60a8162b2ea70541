"""Why one key won over another: the lead, split into content and distance, checked against the weights themselves."""

import json
import math
from dataclasses import replace

import pytest

from attn_cli import Settings, trace_cross, trace_masked, trace_self
from attn_cli.errors import UsageError
from attn_cli.inputs.matrices import given_from
from attn_cli.pipeline.sources.matrices import trace_matrices
from tests.shell import here
from tests.thorough import often

FOX = "The quick brown fox jumped over the lazy dog"
TEXTS = [FOX, "The cat sat on the mat", "she likes coffee and tea", "no no yes", "dog"]
SETTINGS = [
    Settings(),
    Settings(head="subject"),
    Settings(projection="roles-deep"),
    Settings(score="cosine", temperature=0.5),
    Settings(score="dot"),
    Settings(embedding="random", dim=6, heads=2),
    Settings(mask="causal"),
]


def of(trace):
    return [one for i in range(len(trace.query_tokens)) for one in trace.because(i)]


@pytest.mark.parametrize("settings", SETTINGS[: often(len(SETTINGS) * 3)], ids=str)
@pytest.mark.parametrize("text", TEXTS, ids=lambda text: text[:8])
def test_the_lead_is_the_logarithm_of_the_ratio_of_two_weights(text, settings):
    trace = trace_self(text, settings)
    for one in of(trace):
        weights = trace.weights[one.query_index]
        assert weights[one.winner_index] == pytest.approx(weights.max(), rel=1e-12)  # keys alike are a tie
        assert one.lead == pytest.approx(
            math.log(weights[one.winner_index] / weights[one.rival_index]), abs=1e-9
        )
        scaled = trace.shown.scaled_scores[one.query_index]
        lead = scaled[one.winner_index] - scaled[one.rival_index]
        assert one.content == pytest.approx(lead, rel=1e-12, abs=1e-10)
        assert (one.distance is None) == (trace.shown.position_scores is None)
        if one.decided == "distance":
            assert one.distance > one.content
        if one.decided == "content":
            assert one.distance is None or one.content > one.distance


@pytest.mark.parametrize("n", [2, 3, 5, 7, 11, 14])
def test_no_reason_is_made_of_the_last_bits_of_keys_that_are_alike(n):
    drawn = Settings(embedding="random", dim=32)
    for settings in (drawn, replace(drawn, dim=64), replace(drawn, dtype="float32"), replace(drawn, dim=400)):
        trace = trace_self(" ".join(["no"] * n), settings)
        for one in of(trace):
            assert (one.winner_index, one.rival_index, one.content, one.decided) == (0, 1, 0, "neither")
    for one in of(trace_self(" ".join(["fox"] * n))):
        assert (one.content, one.decided) == (0, "distance")


def test_scores_that_are_large_do_not_tie_where_their_weights_differ():
    rows = {"Q": [[1e6]], "K": [[1e6], [1e6 + 5e-7]], "V": [[1.0], [2.0]]}
    trace = trace_matrices("compute", given_from(rows, "given"), Settings())
    (one,) = trace.because(0)
    assert (one.winner_index, one.decided) == (1, "content")
    assert one.content == pytest.approx(0.5, abs=0.01) and trace.weights[0, 1] > 0.6


@pytest.mark.parametrize(
    ("kind", "versus", "rivals"),
    [
        (trace_self, None, ["over content"]),
        (trace_self, "lazy", ["over content", "lazy distance"]),
        (trace_self, "7", ["over content", "lazy distance"]),
        (trace_masked, "dog", ["dog mask"]),
    ],
)
def test_the_runner_up_and_a_named_rival_lose_by_content_by_distance_or_by_the_mask(kind, versus, rivals):
    found = kind(FOX, Settings(query="jumped", versus=versus)).because(4)
    told = [f"{one.rival} {one.decided}" for one in found]
    assert (
        (told == rivals and {one.winner for one in found} == {"fox"})
        if kind is trace_self
        else told[1:] == rivals
    )
    if "lazy distance" in rivals:
        assert found[1].rival_index == 7 and found[1].distance > 1.5 > 0.4 > found[1].content > 0


def test_every_occurrence_of_a_rival_is_compared_but_not_the_winner_with_itself():
    trace = trace_self("the cat saw the dog", Settings(query="cat", versus="the"))
    found = trace.because(1)
    assert {one.rival_index for one in found if one.rival == "the"} == {0, 3} - {found[0].winner_index}
    again = trace_self("the cat saw the dog", Settings(query="cat", versus=found[0].winner))
    assert all(one.rival_index != one.winner_index for one in again.because(1))


def test_without_a_rival_there_is_no_because_and_without_a_distance_term_content_alone_decides():
    assert trace_self("dog").because(0) == []
    assert trace_self(FOX, Settings(head="mean")).because(4) == []
    (only,) = trace_cross("she", "likes coffee").because(0)
    assert only.distance is None and only.decided == "content" and only.lead == only.content


@pytest.mark.parametrize(("command", "versus", "said"), [("explain", "lasy", "lazy"), ("self", "lazy", "-q")])
def test_a_rival_that_there_is_not_and_one_without_a_row_are_wrong_usage(command, versus, said):
    ran = here(command, FOX, "--versus", versus)
    assert ran.code == 2 and said in ran.err and ran.err.count("\n") == 1
    with pytest.raises(UsageError, match="look at"):
        trace_self(FOX, Settings(query="jumped", versus="lasy")).because(4)


def test_the_json_has_an_entry_for_each_row_and_each_rival():
    text = "the cat saw the dog"
    record = json.loads(here("self", text, "-q", "the", "--versus", "saw", "-f", "json").out)
    assert {entry["query_index"] for entry in record["because"]} == {0, 3}
    assert {entry["rival"] for entry in record["because"] if entry["query_index"] == 3} >= {"saw"}
    assert json.loads(here("self", FOX, "-f", "json").out)["because"] is None
    assert json.loads(here("explain", FOX, "-f", "json").out)["because"][0]["winner"] == "fox"
