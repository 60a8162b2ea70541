"""What attn live shows is what the trace holds, at every size; and what is shown fits."""

import asyncio
import re

import numpy as np
import pytest

pytest.importorskip("textual")

from attn_cli.io.terminal import Terminal
from attn_cli.live.actions import Seen
from attn_cli.live.panes import steps_of
from attn_cli.live.paper import Paper
from attn_cli.live.scene import Remark, compose
from attn_cli.live.sources import TextSource
from attn_cli.live.state import Question, State
from attn_cli.render.numbers import four
from attn_cli.render.screen.matrix_pane import matrix_part
from attn_cli.render.views.overview import weight_matrix
from attn_cli.settings.output import View
from attn_cli.settings.settings import Settings
from tests.live.latency import WORDS
from tests.live.stage import FOX, Stage, made, play, staged, traced

SIZES = ((80, 24), (40, 12), (120, 40), (60, 20), (200, 60), (20, 6), (50, 14), (119, 30))
NUMBER = re.compile(r"^[+-]?\d*\.?\d+(e[+-]\d+)?$")


def scene_of(trace, size=(80, 23), state=None, terminal=None, before=None, remark=None):
    source = TextSource(trace.settings)
    state = state or State(Question(FOX, trace.settings), trace.focus[0], 0)
    seen = Seen(trace, source, before, steps_of(trace))
    paper = Paper(*size, terminal or Terminal(size[0]), View()).sized(*size)
    return compose(state, seen, paper, remark or Remark(), False, False)


def texts(scene):
    return ["".join(segment.text for segment in line) for line in scene.lines]


def cells_of(lines, label):
    return next(line for line in lines if line.startswith(label + " ")).split()[1:]


@pytest.mark.parametrize("settings", [{}, {"mask": "causal"}, {"head": "mean"}, {"score": "cosine"}], ids=str)
def test_the_weights_of_every_row_are_the_traces(settings):
    trace = traced(**settings)
    lines = texts(scene_of(trace, (120, 40)))
    for i, token in enumerate(trace.query_tokens):
        row = next(line for line in lines if line.startswith(token + " ")).partition("│")[0].split()[1:]
        allowed = [True] * 9 if trace.mask is None else trace.mask[i].tolist()
        for text, weight, may in zip(row, trace.weights[i], allowed, strict=True):
            assert (text == "–") == (not may)
            assert not may or float(text) == pytest.approx(weight, abs=0.0006)


def test_the_arithmetic_of_the_row_is_the_traces():
    trace = traced()
    for column in range(9):
        state = State(Question(FOX, trace.settings), 4, column)
        lines = texts(scene_of(trace, (80, 23), state))
        row = trace.row(4)
        table = lines[next(n for n, line in enumerate(lines) if line.startswith("key ")) :]
        key = trace.key_tokens[column]
        content, distance, total, _, _ = cells_of(table, key)[:5]
        assert (content, distance, total) == (
            four(row.scaled[column]),
            four(row.position[column]),
            four(row.masked[column]),
        )
        assert f'"jumped" looks at "{key}": {row.weights[column]:.4f}' in "\n".join(lines)
        bars = next(line for line in lines if line.startswith(f"  {key} "))
        assert float(bars.split()[1]) == pytest.approx(row.weights[column], rel=0.05, abs=1e-9)


def test_the_because_is_the_traces():
    text = " ".join(line.strip() for line in texts(scene_of(traced())))
    assert 'Why "fox" and not "over", the runner-up? Its sum is 0.7146 higher' in text
    state = State(Question(FOX, Settings()), 4, 8)
    text = " ".join(line.strip() for line in texts(scene_of(traced(), (120, 50), state)))
    assert 'and not "dog"?' in text, "the chosen key is asked for too"


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("words", [1, 2, 9, 30, 70, 100, 160])
def test_every_line_fits_at_every_size(size, words):
    text = " ".join((WORDS * 6)[:words])
    for settings in (Settings(), Settings(head="all")):
        trace = TextSource(settings).compute(Question(text, settings))
        for is_large in (False, True):
            state = State(Question(text, settings), words - 1, words // 2, is_large=is_large)
            scene = scene_of(trace, size, state)
            assert len(scene.lines) == size[1]
            for line in scene.lines:
                assert sum(segment.cell_length for segment in line) == size[0]


def test_a_wide_matrix_shows_the_part_around_the_cell():
    text = " ".join((WORDS * 6)[:100])
    trace = TextSource(Settings()).compute(Question(text, Settings()))
    block = weight_matrix(trace, trace.shown)
    for i, j in ((0, 0), (50, 60), (99, 99)):
        part = matrix_part(block, Terminal(80), None, (i, j), 12)
        assert i in part.rows and j in part.columns
        assert len(part.lines) <= 12
        line = part.lines[part.top + i - part.rows.start]
        shown = line[1 + j - part.columns.start].text
        assert float(shown) == pytest.approx(trace.weights[i, j], abs=0.006)
        assert line[1 + j - part.columns.start].style.reverse
        x = sum(segment.cell_length for segment in line[: 2 + j - part.columns.start]) - 1
        assert part.cell_at(part.top + i - part.rows.start, x) == (i, j)
        heads = part.lines[part.top - 1]
        marked = [n for n, one in enumerate(heads) if one.style and one.style.reverse]
        assert len(marked) == 1, "the head of its column is marked as well"
        assert sum(one.cell_length for one in heads[: marked[0] + 1]) == x + 1


def test_a_long_text_has_the_long_view():
    text = " ".join((WORDS * 50)[:1200])
    trace = TextSource(Settings()).compute(Question(text, Settings()))
    lines = texts(scene_of(trace, (80, 50), State(Question(text, Settings()), trace.focus[0], 0)))
    assert "1,200 x 1,200 weights are too many to draw." in "\n".join(lines)
    assert texts(scene_of(trace, (80, 50), State(Question(text, Settings()), 3, 0)))


def test_without_colour_and_unicode_all_is_plain_ascii():
    terminal = Terminal(80, 0, "ascii")
    for state in (
        State(Question(FOX, Settings()), 4, 3),
        State(Question(FOX, Settings()), 4, 3, is_large=True),
    ):
        scene = scene_of(traced(), (80, 23), state, terminal)
        assert "\n".join(texts(scene)).isascii()
        colours = [
            s.style for line in scene.lines for s in line if s.style and (s.style.color or s.style.bgcolor)
        ]
        assert not colours


def test_the_difference_of_other_words_is_said():
    async def act(stage: Stage):
        await stage.press("t", "ctrl+u")
        await stage.type("she likes coffee")
        await stage.press("escape", "v")
        assert "The tokens differ" in stage.text()
        await stage.press("v")
        assert "jumped" in stage.text()

    play(act)


def test_the_screen_follows_the_terminals_size():
    async def run():
        async with staged(made()) as stage:
            for size in SIZES:
                await stage.pilot.resize_terminal(*size)
                await stage.settled()
                lines = stage.lines()
                assert len(lines) == size[1] - 1
                assert all(len(line) <= size[0] for line in lines)
                assert "quit" in stage.text()
                if size[0] >= 40 and size[1] >= 12:
                    assert "jumped" in stage.text()

    asyncio.run(run())


def test_the_means_of_all_heads_maps_hold_all_of_the_weights():
    trace = traced(head="all")
    scene = scene_of(trace, (150, 40), State(Question(FOX, trace.settings), 0, 0))
    text = "\n".join(texts(scene))
    assert all(name in text for name in trace.head_names)
    assert np.isfinite(trace.weights).all()


def test_the_pictures_of_the_docs_are_those_that_the_program_draws():
    from tests.live.pictures import FOLDER, PICTURES, drawn

    for name in PICTURES:
        assert (FOLDER / f"{name}.svg").read_text(encoding="utf-8") == drawn(name), name
        assert f"live/{name}.svg" in (FOLDER.parent / "live.md").read_text(encoding="utf-8")
