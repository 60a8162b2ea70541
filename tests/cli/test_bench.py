"""The benchmark measures what it says: both sides in turn, right answers alone, every ratio with its quartiles."""

import gc
import json
import math
import time
from collections.abc import Iterator

import numpy as np
import pytest
from jsonschema import Draft202012Validator

from attn_cli.bench import cases, run, sides, timing
from attn_cli.bench.machine import machine, pytorch
from attn_cli.bench.memory import peak_in_child
from attn_cli.bench.records import Case, Machine, Measured, Missing
from attn_cli.bench.sides import Sides, agree
from attn_cli.errors import AttnError
from attn_cli.io.terminal import Terminal
from attn_cli.render.screen.beside_rich_table import drawing
from attn_cli.render.screen.draw import draw
from attn_cli.render.trace_result import render_blocks
from attn_cli.render.views.benchmark import TITLES, bench, record
from attn_cli.settings.output import View
from tests.cli.test_completion import blocked
from tests.shell import ROOT, attn, here

TINY = Case("weights", "weights", cases.TEXTBOOK, 0.5, 20, 2, 8)
HERE = Machine("A processor", 2, "Linux x86_64", "3.11.7", "2.4.6", "openblas 0.3", "exp2", None, False)


def validator() -> Draft202012Validator:
    with open(f"{ROOT}/attn_cli/schema.json", encoding="utf-8") as stream:
        return Draft202012Validator(json.load(stream))


# Timing


def test_what_takes_twice_as_long_has_a_ratio_near_two():
    timed = timing.race(TINY, lambda: time.sleep(0.02), lambda: time.sleep(0.01), 2)
    assert 1.5 < timed.ratio < 2.6
    assert timed.quartiles[0] <= timed.ratio <= timed.quartiles[1]
    assert timed.ours > timed.theirs
    assert timed.pairs == timing.MORE * 2


def test_each_side_begins_in_turn_and_a_long_pair_is_not_measured_twice():
    calls = []

    def side(name: str) -> None:
        calls.append(name)
        time.sleep(timing.QUICK * 0.6)

    timed = timing.race(TINY, lambda: side("a"), lambda: side("b"), 3)
    assert "".join(calls) == "abbaab"
    assert timed.pairs == 3


def test_a_short_call_is_made_many_times_for_one_figure():
    counts = [0, 0]

    def side(which: int) -> None:
        counts[which] += 1

    timed = timing.race(TINY, lambda: side(0), lambda: side(1), 1)
    assert min(counts) > 1000 * timed.pairs


def test_nobody_looks_for_garbage_meanwhile_and_again_afterwards():
    seen = []
    assert gc.isenabled()
    timing.race(TINY, lambda: seen.append(gc.isenabled()), lambda: None, 1)
    assert not any(seen) and gc.isenabled()


def test_quartiles_are_those_of_numpy():
    values = [3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0]
    assert timing.quartiles(values) == pytest.approx(tuple(np.quantile(values, [0.25, 0.75])))


# Sides


WORK = {cases.FUSED: "output", cases.OUTPUT_ONLY: "links"}
PAIRED = [
    Case("weights", WORK.get(against, "weights"), against, None, 70, heads, 8, causal)
    for against in sides.RACES
    for heads in (1, 3)
    for causal in (False, True)
    if against != cases.OUTPUT_ONLY or (heads, causal) == (1, False)
]


@pytest.mark.parametrize("case", PAIRED, ids=lambda case: f"{case.against}-{case.heads}-{case.causal}")
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
    Q, K, V = sides.numbers(case)
    assert weights.dtype == output.dtype == np.float32
    for h in range(case.heads):
        for i in range(5):
            seen = range(i + 1 if causal else 5)
            exps = [
                math.exp(sum(map(math.prod, zip(Q[h, i], K[h, j], strict=True))) / math.sqrt(3)) for j in seen
            ]
            shares = [e / sum(exps) for e in exps] + [0.0] * (5 - len(exps))
            assert weights[h, i] == pytest.approx(shares, abs=1e-6)
            assert output[h, i] == pytest.approx(np.array(shares) @ V[h], abs=1e-6)


def test_answers_that_differ_are_told_apart():
    weights, output = np.full((2, 3), 1 / 3, np.float32), np.ones((2, 4), np.float32)
    agree((weights, output), (weights * np.float32(1.00001), output))
    agree((None, output), (weights, output))
    agree((weights[None], output[None]), (weights, output))
    for wrong in (
        (weights, output + 1e-3),
        (weights * np.float32(1.001), output),
        (weights[:1], output),
        (weights, output * np.nan),
    ):
        with pytest.raises(AttnError, match="disagree"):
            agree((weights, output), wrong)


def test_a_wrong_answer_is_an_error_and_is_not_timed():
    timed = []

    def liar(case: Case, threads: int) -> Sides:
        right = sides.textbook(case, threads)
        weights, output = right.theirs()
        wrong = (weights[..., ::-1], output)
        return Sides(lambda: timed.append(1), right.theirs, lambda: agree(wrong, right.theirs()))

    with pytest.raises(AttnError, match="nothing was timed"):
        list(run.measure([TINY], 1, races={cases.TEXTBOOK: liar}))
    assert timed == []


def test_two_drawings_of_a_matrix_show_the_same_numbers():
    made = drawing(Case("drawing", "drawing", cases.RICH, None, 5, 1, 0), 1)
    assert made.check is not None
    made.check()
    assert "w4" in str(made.ours()) and "w4" in str(made.theirs())


# Memory


def test_a_peak_holds_at_least_what_is_returned():
    case = Case("memory", "weights", cases.RETURNED, None, 1500)
    assert peak_in_child(case) >= 1500 * (1500 + 64) * 4


# Which cases


def test_a_usual_run_has_no_long_text_and_all_has_them():
    usual, everything = cases.chosen(True), cases.chosen(True, everything=True)
    assert cases.LONG not in {case.tokens for case in usual}
    assert cases.LONG in {case.tokens for case in everything}
    assert set(usual) < set(everything) == set(cases.CASES)
    assert {case.group for case in usual} == set(cases.GROUPS) == set(TITLES)


def test_without_pytorch_each_part_that_it_was_in_has_a_textbook():
    for group in ("weights", "causal", "output", "small"):
        found = {case.against for case in cases.chosen(False) if case.group == group}
        assert cases.TEXTBOOK in found


def test_a_part_is_measured_whole_and_other_sizes_have_nothing_to_reach():
    links = cases.chosen(True, ["links"])
    assert {case.group for case in links} == {"links"} and cases.LONG in {case.tokens for case in links}
    other = cases.chosen(True, everything=True, tokens=30)
    assert len(other) == len(set(other))
    assert {case.tokens for case in other if case.group != "drawing"} == {30}
    assert {case.to_reach for case in other if case.group != "drawing"} == {None}
    assert {case.to_reach for case in cases.chosen(True, threads=2)} == {None}


def test_every_ratio_to_reach_is_one_that_attn_can_be_held_to():
    assert all(case.to_reach is None or 0 < case.to_reach < 2 for case in cases.CASES)
    assert all(case.to_reach is None for case in cases.CASES if case.against == cases.FLOOR)


# A run


def test_an_interrupt_leaves_what_was_measured():
    def stopped(after: int) -> Iterator[Missing]:
        yield from [Missing(TINY, "No.")] * after
        raise KeyboardInterrupt

    assert run.until_interrupted(stopped(2)) == ([Missing(TINY, "No.")] * 2, False)
    with pytest.raises(KeyboardInterrupt):
        run.until_interrupted(stopped(0))


def test_a_run_tells_how_far_it_is():
    told: list[float] = []
    list(run.measure([TINY, TINY._replace(heads=1)], 1, 1, told.append))
    assert told == sorted(told) and told[-1] == pytest.approx(1)


# The command


def test_the_record_fits_the_schema_and_says_all():
    args = ("--tokens", "12", "--pairs", "1", "--only", "small", "--only", "memory", "--only", "links")
    ran = here("bench", *args, "-f", "json")
    assert (ran.code, ran.err) == (0, "")
    found = json.loads(ran.out)
    assert [error.message for error in validator().iter_errors(found)] == []
    assert found["kind"] == "bench" and found["complete"] is True and found["threads"] == 1
    assert found["machine"] == machine()._asdict()
    assert {row["group"] for row in found["rows"]} == {"small", "memory", "links"}
    for row in found["rows"]:
        low, high = row["quartiles"]
        assert low <= row["ratio"] <= high
        assert row["reached"] is None and row["tokens"] == 12
        if row["unit"] == "bytes":
            assert row["ratio"] == row["ours"] / row["theirs"]


def test_without_pytorch_the_textbook_remains_and_a_line_says_what_is_missing(tmp_path):
    (tmp_path / "torch.py").write_text("raise ImportError('none')\n")
    ran = attn("bench", "--only", "small", "--pairs", "1", env={"PYTHONPATH": str(tmp_path)})
    assert (ran.code, ran.err) == (0, "")
    assert "PyTorch is not installed." in ran.out and "pip install torch" in ran.out
    assert "2 rows are left out" in ran.out and "NumPy" in ran.out


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--only", "wieghts"], "There is no part 'wieghts'."),
        (["--only", "[red]"], "There is no part '[red]'."),
        (["--pairs", "0"], "--pairs cannot be 0."),
        (["--threads", "-1"], "--threads cannot be -1."),
        (["--tokens", "100000"], "--tokens cannot be 100000."),
        (["-f", "csv"], "bench has no csv form."),
        (["fast"], "unexpected extra argument"),
    ],
)
def test_wrong_usage_is_told_at_once(args: list[str], said: str):
    ran = here("bench", *args)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err and ran.err.count("\n") == 1


def test_a_place_where_nothing_can_be_written_is_told_before_anything_is_measured(tmp_path):
    ran = here("bench", "--all", "-o", str(tmp_path / "none" / "speed.json"))  # which would take ten minutes
    assert (ran.code, ran.out) == (73, "")


def test_help_needs_neither_numpy_nor_pytorch(tmp_path):
    assert attn("bench", "--help", env=blocked(tmp_path, "numpy", "torch", "rich")).code == 0


# The screen

ROWS = [
    Measured(Case("weights", "weights", "torch-explicit", 0.7, 2048), "seconds", 0.0139, 0.0264, 0.497,
             (0.47, 0.91), 0.5, 21),
    Measured(Case("weights", "weights", "torch-explicit", 0.6, 2048, 8), "seconds", 0.2, 0.22, 0.803, (0.7, 0.9),
             0.8, 7),
    Measured(Case("weights", "weights", "floor", None, 2048, 8), "seconds", 0.2, 0.11, 1.818, (1.7, 1.9), 1.8, 7),
    Measured(Case("small", "output", "torch-sdpa", 1.1, 8, 1, 50), "seconds", 5.3e-6, 4.2e-6, 1.262, (1.2, 1.3),
             None, 21),
    Measured(Case("memory", "output", "linear", 1.0, 100_000), "bytes", 5.2e7, 1.19e8, 0.436, (0.436, 0.436),
             None, 1),
    Missing(Case("threads", "output", "one-thread", 0.571, 2048, 8), "There is one processor."),
]  # fmt: skip


def shown(width: int | None, **machine_: object) -> str:
    terminal = Terminal(width)
    return terminal.paint(draw(bench(HERE._replace(**machine_), ROWS), View(), terminal))


def test_the_table_fits_eighty_columns_and_keeps_each_line_whole():
    lines = shown(80).splitlines()
    assert max(map(len, lines)) <= 80
    row = next(line for line in lines if line.startswith("PyTorch") and "13.9 ms" in line)
    assert row.split() == [
        "PyTorch",
        "2,048",
        "13.9",
        "ms",
        "26.4",
        "ms",
        "0.497",
        "0.47-0.91",
        "0.70",
        "yes",
    ]


@pytest.mark.parametrize("width", [20, 40, 79])
def test_no_number_is_cut_on_a_narrow_screen(width: int):
    text = shown(width)
    assert max(map(len, text.splitlines())) <= width
    for number in ("2,048 x 8", "13.9 ms", "26.4 ms", "0.497", "1.20-1.30", "5.30 us", "100,000", "0.436"):
        assert number in text


def test_what_is_not_reached_is_said_with_the_floor_beside_it():
    text = " ".join(shown(80).split())
    assert "Reached: 2 of 4." in text
    assert (
        "Weights and output at 2,048 x 8, against PyTorch: 0.803, and 0.60 is wanted; the floor would be 0.442."
        in text
    )
    assert "There is one processor. 1 row is left out." in text
    assert "PyTorch is not installed" in text and "with large pages" not in text
    assert "PyTorch 2.13 with large pages." in " ".join(
        shown(80, torch="2.13", torch_large_pages=True).split()
    )


def test_a_record_of_an_interrupted_run_fits_the_schema_too():
    found = record(HERE, ROWS, 2, is_whole=False)
    assert [error.message for error in validator().iter_errors(found)] == []
    assert found["complete"] is False
    assert [row["reached"] for row in found["rows"]] == [True, False, None, False, True]
    assert found["not_measured"][0]["reason"] == "There is one processor."


@pytest.mark.parametrize("form", ["markdown", "latex", "html", "svg"])
def test_pages_and_pictures_hold_the_table_too(form: str):
    view = View(format=form)
    text = render_blocks(bench(HERE, ROWS), view, Terminal(80)).replace("\\", "").replace("{,}", ",")
    assert all(number in text for number in ("13.9 ms", "0.497", "100,000"))
