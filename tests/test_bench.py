"""The benchmark measures what it says: both sides in turn, right answers alone, every ratio with its quartiles."""

import gc
import math
from types import SimpleNamespace

import numpy as np
import pytest

from attn_cli.errors import AttnError
from attn_cli.io.terminal import Terminal
from attn_cli.render.screen.draw import draw
from attn_cli.settings.output import View
from tests.bench import cases, sides, table, timing
from tests.bench.beside_rich_table import drawing
from tests.bench.cases import Case
from tests.bench.machine import Machine, pytorch
from tests.bench.memory import peak_in_child
from tests.bench.screen import TITLES, bench, record
from tests.bench.sides import Sides, agree
from tests.bench.timing import Measured, Missing
from tests.thorough import like_cases

TINY = Case("weights", "weights", cases.TEXTBOOK, 0.5, 20, 2, 8)
HERE = Machine("A processor", 2, "Linux x86_64", "3.11.7", "2.4.6", "openblas 0.3", None, False)


@pytest.fixture
def clock(monkeypatch):
    """A clock that goes on where a side says so: how long a call takes is no matter of who else computes here."""
    passed = []
    now = SimpleNamespace(perf_counter=lambda: sum(passed), process_time=lambda: sum(passed))
    monkeypatch.setattr(timing, "time", now)
    return passed.append


def test_what_takes_twice_as_long_has_a_ratio_of_two_and_nobody_looks_for_garbage(clock):
    seen = []
    slow = lambda: seen.append(gc.isenabled()) or clock(0.02)  # noqa: E731
    timed = timing.race(TINY, slow, lambda: clock(0.01), 2)
    assert timed.ratio == pytest.approx(2) and timed.ours > timed.theirs
    assert timed.quartiles[0] <= timed.ratio <= timed.quartiles[1]
    assert timed.pairs == timing.MORE * 2
    assert not any(seen) and gc.isenabled()
    values = [3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0]
    assert timing.quartiles(values) == pytest.approx(tuple(np.quantile(values, [0.25, 0.75])))


def test_each_side_begins_in_turn_a_long_pair_is_not_measured_twice_and_a_short_call_often(clock):
    def raced(seconds: float, rounds: int):
        calls: list[str] = []
        sides_ = (lambda name=name: calls.append(name) or clock(seconds) for name in "ab")
        return calls, timing.race(TINY, *sides_, rounds).pairs

    calls, pairs = raced(timing.QUICK * 0.6, 3)
    assert "".join(calls) == "abbaab" and pairs == 3
    calls, pairs = raced(timing.SAMPLE / 100, 1)
    assert min(map(calls.count, "ab")) >= 100 * pairs


WORK = {cases.FUSED: "output", cases.OUTPUT_ONLY: "links"}
PAIRED = [
    Case("weights", WORK.get(against, "weights"), against, None, 70, heads, 8, causal)
    for against in sides.RACES
    for heads, causal in ((1, False), (1, True), (3, False), (3, True))
    if against != cases.OUTPUT_ONLY or (heads, causal) == (1, False)
]


@pytest.mark.parametrize("case", PAIRED, ids=lambda case: f"{case.against}-{case.heads}-{case.causal}")
@like_cases
def test_both_sides_of_every_race_agree(case: Case):
    if case.against in (cases.EXPLICIT, cases.FUSED) and pytorch() is None:
        pytest.skip("PyTorch is not installed")
    made = sides.RACES[case.against](case, 1)
    if made.check is not None:
        made.check()
    made.ours(), made.theirs()


@pytest.mark.parametrize("causal", [False, True])
def test_the_textbook_is_the_formula(causal: bool):
    case = TINY._replace(tokens=5, dim=3, causal=causal)
    weights, output = sides.textbook(case, 1).theirs()
    Q, K, V = (M.astype(float) for M in sides.numbers(case))
    assert weights.dtype == output.dtype == np.float32
    for h in range(case.heads):
        for i in range(5):
            exps = [math.exp(Q[h, i] @ K[h, j] / math.sqrt(3)) for j in range(i + 1 if causal else 5)]
            shares = [e / sum(exps) for e in exps] + [0.0] * (5 - len(exps))
            assert weights[h, i] == pytest.approx(shares, abs=1e-6)
            assert output[h, i] == pytest.approx(np.array(shares) @ V[h], abs=1e-6)


def test_answers_that_differ_are_told_apart():
    weights, output = np.full((2, 3), 1 / 3, np.float32), np.ones((2, 4), np.float32)
    agree((weights, output), (weights * np.float32(1.00001), output))
    agree((None, output), (weights, output))
    agree((weights[None], output[None]), (weights, output))
    wrong = [(weights, output + 1e-3), (weights * np.float32(1.001), output), (weights[:1], output)]
    for one in (*wrong, (weights, output * np.nan)):
        with pytest.raises(AttnError, match="disagree"):
            agree((weights, output), one)


def test_a_wrong_answer_is_an_error_and_is_not_timed():
    timed = []

    def liar(case: Case, threads: int) -> Sides:
        right = sides.textbook(case, threads)
        weights, output = right.theirs()
        wrong = (weights[..., ::-1], output)
        return Sides(lambda: timed.append(1), right.theirs, lambda: agree(wrong, right.theirs()))

    with pytest.raises(AttnError, match="nothing was timed"):
        list(timing.measure([TINY], 1, 1, {cases.TEXTBOOK: liar}))
    assert timed == []


def test_a_run_tells_how_far_it_is_and_an_interrupt_leaves_what_was_measured():
    told: list[float] = []
    list(timing.measure([TINY, TINY._replace(heads=1)], 1, 1, sides.RACES, told.append))
    assert told == sorted(told) and told[-1] == pytest.approx(1)

    def stopped(after: int):
        yield from [Missing(TINY, "No.")] * after
        raise KeyboardInterrupt

    assert timing.until_interrupted(stopped(2)) == ([Missing(TINY, "No.")] * 2, False)
    with pytest.raises(KeyboardInterrupt):
        timing.until_interrupted(stopped(0))


def test_two_drawings_of_a_matrix_show_the_same_numbers():
    made = drawing(Case("drawing", "drawing", cases.RICH, None, 5, 1, 0), 1)
    assert made.check is not None
    made.check()
    assert "w4" in str(made.ours()) and "w4" in str(made.theirs())


def test_a_peak_holds_at_least_what_is_returned():
    case = Case("memory", "weights", cases.RETURNED, None, 1500)
    assert peak_in_child(case) >= 1500 * (1500 + 64) * 4


def test_a_run_has_the_cases_that_it_is_asked_for():
    usual, everything = cases.chosen(True), cases.chosen(True, everything=True)
    assert cases.LONG not in {case.tokens for case in usual}
    assert cases.LONG in {case.tokens for case in everything}
    assert set(usual) < set(everything) == set(cases.CASES)
    assert {case.group for case in usual} == set(cases.GROUPS) == set(TITLES)
    textbook = {case.group for case in cases.chosen(False) if case.against == cases.TEXTBOOK}
    assert textbook == {"weights", "causal", "output", "small"}, "these have PyTorch, or a textbook"
    links = cases.chosen(True, ["links"])
    assert {case.group for case in links} == {"links"} and cases.LONG in {case.tokens for case in links}
    other = cases.chosen(True, everything=True, tokens=30)
    assert len(other) == len(set(other))
    assert {case[3:5] for case in other if case.group != "drawing"} == {(None, 30)}
    assert {case.to_reach for case in cases.chosen(True, threads=2)} == {None}
    assert all(case.to_reach is None or 0 < case.to_reach < 2 for case in cases.CASES)
    assert all(case.to_reach is None for case in cases.CASES if case.against == cases.FLOOR)


LARGE = Case("weights", "weights", cases.EXPLICIT, 0.6, 2048, 8)
FLOOR = LARGE._replace(against=cases.FLOOR, to_reach=None)


SMALL = Case("small", "output", cases.FUSED, 1.1, 8, 1, 50)
LONG = Case("memory", "output", "linear", 1.0, 100_000)


ROWS = [
    Measured(LARGE._replace(heads=1, to_reach=0.7), "seconds", 0.0139, 0.0264, 0.497, (0.47, 0.91), 0.5, 21),
    Measured(LARGE, "seconds", 0.2, 0.22, 0.803, (0.7, 0.9), 0.8, 7),
    Measured(FLOOR, "seconds", 0.2, 0.11, 1.818, (1.7, 1.9), 1.8, 7),
    Measured(SMALL, "seconds", 5.3e-6, 4.2e-6, 1.262, (1.2, 1.3), None, 21),
    Measured(LONG, "bytes", 5.2e7, 1.19e8, 0.436, (0.436, 0.436), None, 1),
    Missing(Case("threads", "output", "one-thread", 0.571, 2048, 8), "There is one processor."),
]


def shown(width: int, **machine_: object) -> str:
    terminal = Terminal(width)
    return terminal.paint(draw(bench(HERE._replace(**machine_), ROWS), View(), terminal))


@pytest.mark.parametrize("width", [20, 40, 79, 80])
def test_no_number_is_cut_and_no_line_too_wide(width: int):
    lines = shown(width).splitlines()
    assert max(map(len, lines)) <= width
    for number in ("2,048 x 8", "13.9 ms", "26.4 ms", "0.497", "1.20-1.30", "5.30 us", "100,000", "0.436"):
        assert number in "\n".join(lines)
    if width == 80:
        row = next(line for line in lines if line.startswith("PyTorch") and "13.9 ms" in line)
        assert " ".join(row.split()) == "PyTorch 2,048 13.9 ms 26.4 ms 0.497 0.47-0.91 0.70 yes"


def test_what_is_not_reached_is_said_with_the_floor_beside_it():
    text = " ".join(shown(80).split())
    assert "Reached: 2 of 4." in text
    missed = "Weights and output at 2,048 x 8, against PyTorch: 0.803, and 0.60 is wanted; the floor would be 0.442."
    assert missed in text and "There is one processor. 1 row is left out." in text
    assert "PyTorch is not installed" in text and "with large pages" not in text
    assert "PyTorch 2.13 with large pages." in " ".join(
        shown(80, torch="2.13", torch_large_pages=True).split()
    )
    found = record(HERE, ROWS, 2, is_whole=False)
    assert found["complete"] is False
    assert [row["reached"] for row in found["rows"]] == [True, False, None, False, True]
    assert found["not_measured"][0]["reason"] == "There is one processor."


def test_the_table_has_both_columns_only_where_a_part_computes(monkeypatch, capfd):
    found = {"core": ("a product", "PyTorch", 0.4, 0.5), "startup": ("--version", "python -c pass", 1.6, 1.5)}
    assert not list(table.run("nothing", {}))  # in a process of its own
    assert "nothing: not measured to its end" in capfd.readouterr().err
    monkeypatch.setattr(table, "PARTS", {"core": ("", True), "startup": ("", False)})
    monkeypatch.setattr(table, "avx2", lambda: {"OPENBLAS_CORETYPE": "Haswell"})

    def run(part, variables):
        what, against, figure, to_reach = found[part]
        yield what, against, figure + 0.3 * bool(variables), to_reach

    monkeypatch.setattr(table, "run", run)
    product, version = (line.split() for line in table.lines() if "0.40" in line or "1.60" in line)
    assert product[-4:] == ["0.40", "0.70", "0.50", "no"]
    assert version[-4:] == ["1.60", "-", "1.50", "no"]
