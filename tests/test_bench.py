"""The benchmark measures what it says: both sides in turn, right answers alone, every ratio with its quartiles."""

import gc
import sys
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from attn_cli.errors import AttnError
from tests.bench import attention, row, sides
from tests.bench.attention import CASES, EXPLICIT, FLOOR, FUSED, LONG, RACES, TEXTBOOK, chosen
from tests.bench.row import Row
from tests.bench.sides import Case, Sides, agree
from tests.thorough import like_cases


@pytest.fixture
def clock(monkeypatch):
    """A clock that goes on where a side says so: how long a call takes is no matter of who else computes here."""
    passed = []
    monkeypatch.setattr(attention, "time", SimpleNamespace(perf_counter=lambda: sum(passed)))
    return passed.append


def test_each_side_begins_in_turn_a_long_pair_is_not_measured_twice_and_a_short_call_often(clock):
    def raced(seconds, rounds):
        calls = []

        def side(name, takes):
            assert not gc.isenabled()  # nobody looks for garbage
            calls.append(name)
            clock(takes)

        found = attention.race(partial(side, "a", 2 * seconds), partial(side, "b", seconds), rounds)
        ratios = Row("", "", *found, None).ratios
        assert ratios == pytest.approx([2] * len(ratios)) and gc.isenabled()
        return calls, len(ratios)

    calls, pairs = raced(attention.QUICK * 0.4, 3)
    assert "".join(calls) == "abbaab" and pairs == 3
    calls, pairs = raced(attention.SAMPLE / 100, 1)
    assert min(map(calls.count, "ab")) >= 50 * pairs and pairs == attention.MORE


PAIRED = [case for case in chosen(everything=True, tokens=70) if case.group != "memory"]


@pytest.mark.parametrize("case", PAIRED, ids=lambda case: "-".join(map(str, case)))
@like_cases
def test_both_sides_of_every_race_agree(case: Case):
    if case.against in (EXPLICIT, FUSED) and sides.pytorch() is None:
        pytest.skip("PyTorch is not installed")
    made = RACES[case.against](case, 1)
    made.check()
    made.ours(), made.theirs()


def test_answers_that_differ_are_told_apart():
    weights, output = np.full((2, 3), 1 / 3, np.float32), np.ones((2, 4), np.float32)
    agree((weights, output), (weights * np.float32(1.00001), output))
    agree((None, output), (weights, output))
    agree((weights[None], output[None]), (weights, output))
    wrong = (weights, output + 1e-3), (weights, output * np.nan), (weights[:1], output)
    for other in (*wrong, (weights * np.float32(1.001), output)):
        with pytest.raises(AttnError, match="disagree"):
            agree((weights, output), other)


def test_a_wrong_answer_is_an_error_and_is_not_timed(monkeypatch):
    case, timed = Case("weights", "weights", TEXTBOOK, 0.5, 20, 2, 8), []
    theirs = sides.textbook(case, 1).theirs
    weights, output = theirs()
    assert weights.dtype == output.dtype == np.float32
    wrong = Sides(lambda: timed.append(1), theirs, lambda: agree((weights[..., ::-1], output), theirs()))
    monkeypatch.setitem(RACES, TEXTBOOK, lambda case, threads: wrong)
    with pytest.raises(AttnError, match="nothing was timed"):
        list(attention.rows([case]))
    assert timed == []


def test_a_peak_holds_at_least_what_is_returned():
    (found,) = attention.rows([Case("memory", "weights", attention.RETURNED, None, 1500)])
    assert found.ours[0] >= 1500 * (1500 + 64) * 4 and found.theirs == [1500 * 1500 * 4]


def test_a_run_has_the_cases_that_it_is_asked_for():
    usual, everything, links = chosen(), chosen(everything=True), chosen(["links"])
    assert set(usual) < set(everything) == set(CASES)
    assert {case.tokens for case in everything} - {case.tokens for case in usual} == {LONG}
    assert {case.group for case in links} == {"links"} and LONG in {case.tokens for case in links}
    assert {case.group for case in PAIRED} == {*attention.GROUPS} - {"memory"}
    assert {case[3:5] for case in PAIRED if case.group != "drawing"} == {(None, 70)}
    assert {case.to_reach for case in chosen(threads=2)} == {None}
    assert all(case.to_reach is None or (0 < case.to_reach < 2 and case.against != FLOOR) for case in CASES)


ROWS = {
    "13.9 ms 25.0 ms 0.527 0.46-0.76 0.7 yes": ([0.0139, 0.02, 0.01], [0.0264, 0.02, 0.025], 0.7),
    "200 ms 250 ms 0.800 - 0.6 no": ([0.2], [0.25], 0.6),
    "5.30 us 4.20 us 1.262 - -": ([5.3e-6], [4.2e-6], None),
    "2.00 MiB - - - 3.00 MiB yes": ([1 << 21], [], 3 << 20, "B"),
}


def test_a_row_says_both_medians_the_ratio_of_pairs_and_whether_it_is_reached():
    found = [Row("weights, 2,048 tokens", "PyTorch", *one) for one in ROWS.values()]
    assert [" ".join(str(one).split()) for one in found] == [
        f"weights, 2,048 tokens PyTorch {one}" for one in ROWS
    ]
    assert {*map(len, map(str, found))} == {len(row.HEAD)}
    assert [one.to_dict()["reached"] for one in found] == [True, False, None, True]


def test_a_command_is_measured_with_what_it_starts_and_must_end_well():
    busy = "import time\nwhile time.process_time() < 0.2: pass"
    below = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {busy!r}])\nprint('done')"
    done = row.ran([sys.executable, "-c", below])
    assert done.cpu >= 0.2 and done.clock >= 0.2 and done.out == b"done\n"
    assert row.peak([sys.executable, "-c", "b'x' * (64 << 20)"]) >= 64 << 20
    with pytest.raises(SystemExit, match="ended with 3"):
        row.ran([sys.executable, "-c", "raise SystemExit(3)"])
