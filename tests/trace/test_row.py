"""What a row tells: how sharp it is, where vector length decides, and why one key won over another."""

import math

import numpy as np
import pytest
from hypothesis import given as examples, strategies as some

from attn_cli import Settings, trace_masked, trace_self
from attn_cli.core.attention import softmax
from attn_cli.inputs.matrices import given_from
from attn_cli.pipeline.sources.matrices import trace_matrices
from attn_cli.trace.row import decided_by_length, diagnose, entropy, temperatures
from tests.shell import record, told
from tests.thorough import often

SCORES = some.lists(some.floats(-50, 50, allow_subnormal=False), min_size=2, max_size=12)


@examples(some.lists(some.floats(0.001, 1), min_size=1, max_size=10))
def test_entropy_is_minus_the_sum_of_w_log2_w(parts):
    weights = [part / sum(parts) for part in parts]
    wanted = -sum(w * math.log(w) / math.log(2) for w in weights)
    assert math.isclose(float(entropy(np.array([weights]))[0]), wanted, abs_tol=1e-9)


@pytest.mark.parametrize("n", [1, 2, 5, 64])
def test_entropy_goes_from_none_to_log2_n(n):
    one = np.array([[1.0], [0.9839413024705136]])  # a sink took the rest
    assert not entropy(one * np.eye(1, n)).any()
    assert math.isclose(float(entropy(np.full((1, n), 1 / n))[0]), math.log2(n), abs_tol=1e-12)


@examples(SCORES, some.sampled_from([0.1, 1.0, 7.0]))
def test_at_the_temperature_for_95_percent_the_strongest_key_has_95_percent(scores, now):
    (found,) = temperatures(np.array([scores]) / now, now)
    first, second = sorted(scores, reverse=True)[:2]
    if found is None:
        assert (first - second) / now <= 1e-9 * max(1.0, abs(first / now))
        return
    assert math.isclose(float(softmax(np.array([scores]) / found).max()), 0.95, abs_tol=1e-7)


def test_typed_after_t_it_gives_95_percent_and_none_breaks_a_tie_or_makes_one_key_share():
    # The last has one by rounding alone.
    no_lead = [[1.0, 1.0, 0.0], [2.0, -np.inf, -np.inf], [-400 - 8e-11, -400.0, -409.0]]
    assert temperatures(np.array(no_lead), 1.0) == [None] * 3
    assert temperatures(np.array([[5e-12, 0.0]]), 1.0) == [pytest.approx(5e-12 / math.log(19))]
    line = ("self", "the quick fox and the dog", "-q", "fox")
    (known,) = record(*line)["diagnostics"]
    (weights,) = record(*line, "-t", repr(known["temperature_95"]))["weights"]
    assert math.isclose(max(weights), 0.95, abs_tol=1e-9)


def test_a_row_that_may_look_at_nothing_has_no_entropy(at):
    (at / "mask.txt").write_text("0 0\n1 1\n")
    options = ["-e", "random", "--mask", "mask.txt", "--mask-true", "allowed"]
    shut, open_ = record("self", "a b", *options)["diagnostics"]
    known = [shut[name] for name in ("entropy", "most", "temperature_95", "nearly_uniform")]
    assert known == [None, None, None, False]
    assert open_["most"] == 1.0
    assert "masked" in told("explain", "a b", *options)


def test_the_most_that_entropy_can_be_counts_allowed_keys_and_a_row_with_one_is_not_nearly_uniform():
    found = trace_masked("a a a a", Settings(embedding="random")).diagnoses()
    assert [d.most for d in found] == [0.0, 1.0, math.log2(3), 2.0]
    asked = trace_masked("a a a a", Settings(embedding="random", query="2")).diagnoses()
    assert asked == found[2:3] and asked[0].most == math.log2(3)
    assert [d.nearly_uniform for d in found] == [False, True, True, True]
    of_mean = trace_self("a b c", Settings(embedding="random", dim=4, heads=2, head="mean")).diagnoses()
    assert all(d.entropy is not None and d.temperature_95 is None and d.longer is None for d in of_mean)


def test_a_row_is_nearly_uniform_up_to_a_ratio_of_one_and_a_quarter():
    weights = np.array([[0.336, 0.3, 0.364], [0.5, 0.4, 0.4], [0.4, 0.3, 0.3], [0.5, 0.4, 0.1]])
    found = diagnose(weights, None, None, 1.0, None, None)
    assert [one.nearly_uniform for one in found] == [True, True, False, False]


@examples(some.integers(0, 10_000))
def test_length_decides_where_the_nearest_by_cosine_is_another_and_shorter(seed):
    draw = np.random.default_rng(seed)
    q, K = draw.standard_normal((1, 3)), draw.standard_normal((4, 3)) * draw.uniform(0.2, 5, (4, 1))
    dots = q @ K.T
    (found,) = decided_by_length(dots, K, np.ones((1, 4), bool))
    cosines = [float(q[0] @ k / np.linalg.norm(q) / np.linalg.norm(k)) for k in K]
    winner, nearest = int(dots.argmax()), int(np.argmax(cosines))
    decided = dots[0, winner] > 0 and winner != nearest
    assert found == ((winner, nearest) if decided else None)


def test_a_length_that_nobody_would_see_decides_nothing():
    for longer, found in ((1.0005, None), (1.002, (0, 1))):
        K = np.array([[longer, 0.02], [1.0, 0.0]])
        assert decided_by_length(np.array([[1.0, 0.0]]) @ K.T, K, np.ones((1, 2), bool)) == [found]
    K = np.array([[2.0, 1.0], [0.9, 0.0], [5.0, 0.0], [0.0, 0.0]])  # of which the third must not count
    assert decided_by_length(K[:, :1].T / 2, K, np.array([[True, True, False, True]])) == [(0, 1)]
    of_rounding = np.array([[2.0, 1.0 + 1e-12]])
    assert decided_by_length(of_rounding, np.array([[2.0, 0], [1, 0]]), np.ones((1, 2), bool)) == [None]


# Why one key won: the lead, split into content and distance, checked against the weights

FOX = "The quick brown fox jumped over the lazy dog"
TEXTS = [FOX, "The cat sat on the mat", "she likes coffee and tea", "no no yes", "dog"]
SETTINGS = [Settings(), Settings(head="subject"), Settings(projection="roles-deep"), Settings(score="dot")]
SETTINGS += [Settings(score="cosine", temperature=0.5), Settings(embedding="random", dim=6, heads=2)]
SETTINGS += [Settings(mask="causal")]


@pytest.mark.parametrize("size", [0.04, -0.4, 400.0, -400.0, -900.0, 1e5])
def test_scores_that_differ_by_rounding_alone_tie_however_large_and_of_whatever_sign(size):
    more = min(max(1.0, abs(size)), 1000.0)
    scores = [[size, size + 2e-13 * more, size - 9.0], [size - 9.0, size + 1e-12 * more, size]]
    given = given_from({"scores": scores, "V": [[1.0], [2.0], [3.0]], "scale": 1.0}, "given")
    trace = trace_matrices("compute", given, Settings())
    assert trace.row(0).strongest == [0, 1, 2] and trace.because(0)[0].decided == "neither"
    assert trace.row(1).strongest == [1, 2, 0]
    assert trace.because(1)[0].lead == pytest.approx(1e-12 * more, rel=1e-3, abs=np.spacing(abs(size)))


def reasons(trace):
    return [one for i in range(len(trace.query_tokens)) for one in trace.because(i)]


@pytest.mark.parametrize("settings", SETTINGS[: often(len(SETTINGS) * 3)], ids=str)
@pytest.mark.parametrize("text", TEXTS, ids=lambda text: text[:8])
def test_the_lead_is_the_logarithm_of_the_ratio_of_two_weights(text, settings):
    trace = trace_self(text, settings)
    for one in reasons(trace):
        weights = trace.weights[one.query_index]
        assert weights[one.winner_index] == pytest.approx(weights.max(), rel=1e-12)  # keys alike are a tie
        ratio = weights[one.winner_index] / weights[one.rival_index]
        assert one.lead == pytest.approx(math.log(ratio), abs=1e-9)
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
    for more in ({"dim": 32}, {"dim": 64}, {"dim": 32, "dtype": "float32"}, {"dim": 400}):
        for one in reasons(trace_self(" ".join(["no"] * n), Settings(embedding="random", **more))):
            assert (one.winner_index, one.rival_index, one.content, one.decided) == (0, 1, 0, "neither")
    for one in reasons(trace_self(" ".join(["fox"] * n))):
        assert (one.content, one.decided) == (0, "distance")


def test_scores_that_are_large_do_not_tie_and_content_and_distance_that_lead_by_as_much_decide_alike():
    large = {"Q": [[1e6]], "K": [[1e6], [1e6 + 5e-7]], "V": [[1.0], [2.0]]}
    alike = {"Q": [[1.0]], "K": [[1.0], [0.0]], "V": [[1.0], [2.0]], "position_scores": [[1.0, 0.0]]}
    even, near = (alike | {"position_scores": [one]} for one in ([0.0, 1.0], [1.0, 1 + 1e-13]))
    given = (given_from(each, "given") for each in (large, alike, even, near))
    traces = [trace_matrices("compute", each, Settings()) for each in given]
    (one,), (both,), (neither,), (content,) = (trace.because(0) for trace in traces)
    assert (one.winner_index, one.decided) == (1, "content")
    assert one.content == pytest.approx(0.5, abs=0.01) and traces[0].weights[0, 1] > 0.6
    assert (both.content, both.distance, both.decided) == (1, 1, "both")
    assert (neither.content, neither.distance, neither.lead, neither.decided) == (1, -1, 0, "neither")
    assert (content.content, content.distance, content.decided) == (1, 0, "content")


def test_a_rival_is_named_by_its_number_too_and_one_ahead_loses_by_the_mask():
    first, second = trace_self(FOX, Settings(query="jumped", versus="7")).because(4)
    assert (first.rival, second.rival_index, second.decided) == ("over", 7, "distance")
    assert second.distance > 1.5 > 0.4 > second.content > 0
    assert len(trace_self(FOX, Settings(query="jumped", versus=first.winner)).because(4)) == 1
    _, ahead = trace_masked(FOX, Settings(query="jumped", versus="dog")).because(4)
    (alone,) = trace_masked("The dog", Settings(query="The", versus="dog")).because(0)
    assert [(one.rival, one.decided) for one in (ahead, alone)] == [("dog", "mask")] * 2


def test_without_a_rival_there_is_no_because():
    assert trace_self("dog").because(0) == trace_self(FOX, Settings(head="mean")).because(4) == []


def test_the_json_has_an_entry_for_each_row_and_each_rival():
    because = record("self", "the cat saw the dog", "-q", "the", "--versus", "saw")["because"]
    assert {entry["query_index"] for entry in because} == {0, 3}
    assert {entry["rival"] for entry in because if entry["query_index"] == 3} >= {"saw"}
    assert record("self", FOX)["because"] is None
