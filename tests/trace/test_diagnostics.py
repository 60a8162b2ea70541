"""How sharp a row is: entropy, the temperature for 95 %, and where vector length decides."""

import json
import math

import numpy as np
import pytest
from hypothesis import given as examples
from hypothesis import strategies as some

from attn_cli import Settings, trace_masked, trace_self
from attn_cli.core.attention import softmax
from attn_cli.trace.row import decided_by_length, diagnose, entropy, temperatures
from tests.shell import here

SCORES = some.lists(some.floats(-50, 50, allow_subnormal=False), min_size=2, max_size=12)
VECTORS = "the 9 1 0\nfox 0.5 0.6 0.1\nover 6 -2 1\ndog 0.4 0.5 0.2\n"


@examples(some.lists(some.floats(0.001, 1), min_size=1, max_size=10))
def test_entropy_is_minus_the_sum_of_w_log2_w(parts):
    weights = [part / sum(parts) for part in parts]
    wanted = -sum(w * math.log(w) / math.log(2) for w in weights)
    assert math.isclose(float(entropy(np.array([weights]))[0]), wanted, abs_tol=1e-9)


@pytest.mark.parametrize("n", [1, 2, 5, 64])
def test_entropy_goes_from_none_to_log2_n(n):
    assert entropy(np.array([[1.0], [0.9839413024705136]]) * np.eye(1, n)).tolist() == [
        0,
        0,
    ]  # a sink took the rest
    assert math.isclose(float(entropy(np.full((1, n), 1 / n))[0]), math.log2(n), abs_tol=1e-12)


@examples(SCORES, some.sampled_from([0.1, 1.0, 7.0]))
def test_at_the_temperature_for_95_percent_the_strongest_key_has_95_percent(scores, now):
    (found,) = temperatures(np.array([scores]) / now, now)
    first, second = sorted(scores, reverse=True)[:2]
    if found is None:
        assert (first - second) / now <= 1e-9 * max(1.0, abs(first / now))
        return
    assert math.isclose(float(softmax(np.array([scores]) / found).max()), 0.95, abs_tol=1e-7)


def test_no_temperature_breaks_a_tie_nor_makes_one_key_share():
    assert temperatures(np.array([[1.0, 1.0, 0.0], [2.0, -np.inf, -np.inf]]), 1.0) == [None, None]


def test_typed_after_t_it_gives_95_percent():
    line = ("self", "the quick fox and the dog", "-q", "fox", "-f", "json")
    (told,) = json.loads(here(*line).out)["diagnostics"]
    record = json.loads(here(*line, "-t", repr(told["temperature_95"])).out)
    assert math.isclose(max(record["weights"][0]), 0.95, abs_tol=1e-9)


def test_a_row_that_may_look_at_nothing_has_no_entropy(at):
    (at / "mask.txt").write_text("0 0\n1 1\n")
    options = ["-e", "random", "--mask", "mask.txt", "--mask-true", "allowed"]
    shut, open_ = json.loads(here("self", "a b", *options, "-f", "json").out)["diagnostics"]
    known = [shut[name] for name in ("entropy", "most", "temperature_95", "nearly_uniform")]
    assert known == [None, None, None, False]
    assert open_["most"] == 1.0
    assert "masked" in here("explain", "a b", *options).out


def test_the_most_that_entropy_can_be_counts_allowed_keys_and_a_row_with_one_is_not_nearly_uniform():
    told = trace_masked("a a a a", Settings(embedding="random")).diagnoses()
    assert [d.most for d in told] == [0.0, 1.0, math.log2(3), 2.0]
    assert [d.nearly_uniform for d in told] == [False, True, True, True]


def test_equal_scores_are_nearly_uniform_and_said_so():
    out = here("self", "zzqa zzqb zzqc", "-p", "identity").out
    assert "Every row is nearly uniform" in out
    assert "nearly uniform" not in here("self", "The cat sat on the mat").out


def test_a_row_is_nearly_uniform_up_to_a_ratio_of_one_and_a_quarter():
    weights = np.array([[0.336, 0.3, 0.364], [0.4, 0.3, 0.3], [0.5, 0.4, 0.1]])
    found = diagnose(weights, None, None, 1.0, None, None)
    assert [one.nearly_uniform for one in found] == [True, False, False]


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


@pytest.mark.parametrize(("longer", "found"), [(1.0005, None), (1.01, (0, 1))])
def test_a_length_that_nobody_would_see_decides_nothing(longer, found):
    K = np.array([[longer, 0.02], [1.0, 0.0]])
    assert decided_by_length(np.array([[1.0, 0.0]]) @ K.T, K, np.ones((1, 2), bool)) == [found]


def test_where_length_decides_it_is_said_and_cosine_scores_end_it(at):
    (at / "vectors.txt").write_text(VECTORS)
    line = ("self", "the fox over dog", "-e", "vectors.txt")
    out = here(*line).out
    assert "Vector length decides here" in out and '"the" is 11.5 times as long' in out
    assert "length decides" not in here(*line, "--score", "cosine").out


def test_a_mean_of_heads_has_entropy_and_no_temperature():
    told = trace_self("a b c", Settings(embedding="random", dim=4, heads=2, head="mean")).diagnoses()
    assert all(d.entropy is not None and d.temperature_95 is None and d.longer is None for d in told)


def test_the_walk_tells_how_sharp_each_row_is():
    trace = trace_self("she likes coffee", Settings())
    out = here("explain", "she likes coffee", "--steps").out
    part = out[out.index("How sharp are the weights?") :]
    for token, told in zip(trace.query_tokens, trace.diagnoses(), strict=True):
        line = next(line for line in part.splitlines() if line.startswith(token)).split()
        assert line[1:3] == [f"{told.entropy:.2f}", f"{told.most:.2f}"]
        assert math.isclose(float(line[3]), told.temperature_95, rel_tol=0.01)
