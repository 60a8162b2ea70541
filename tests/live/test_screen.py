"""What attn live shows is what the trace holds, at every size; what is shown fits; the pictures of the docs are so."""

import pytest

pytest.importorskip("textual")

from attn_cli import trace_cross
from attn_cli.io.terminal import Terminal
from attn_cli.live.keys import DIFFERENCE, ROW, Seen, State
from attn_cli.live.panes import Paper
from attn_cli.live.scene import compose
from attn_cli.live.sources import Question, TextSource
from attn_cli.render.screen.matrix_pane import large_blocks, matrix_part
from attn_cli.render.views.overview import weight_matrix
from attn_cli.settings import Settings, View
from tests.bench.live import WORDS
from tests.live.pictures import FOLDER, PICTURES, drawn
from tests.live.stage import FOX, goes, made, staged, traced

SIZES = ((80, 24), (40, 12), (120, 40), (60, 20), (200, 60), (20, 6), (50, 14), (119, 30))


def text_of(count):
    return " ".join((WORDS * (1 + count // len(WORDS)))[:count])


def scene_of(trace, size=(80, 23), text=FOX, terminal=None, before=None, **changes):
    state = State(Question(text, trace.settings), **{"row": trace.focus[0]} | changes)
    paper = Paper(*size, terminal or Terminal(size[0]), View()).sized(*size)
    return compose(state, Seen(trace, TextSource(trace.settings), before), paper, "", False)


def texts(scene):
    return ["".join(segment.text for segment in line) for line in scene.lines]


def said(*args, **changes):
    return "\n".join(texts(scene_of(*args, **changes)))


@pytest.mark.parametrize("words", [1, 2, 9, 30, 160])
def test_every_line_fits_at_every_size(words):
    text = text_of(words)
    for head, is_large in ((None, False), (None, True), ("all", False)):
        trace, chosen = traced(text, head=head), {"column": words // 2, "is_large": is_large}
        for columns, rows in SIZES:
            scene = scene_of(trace, (columns, rows), text, row=words - 1, **chosen)
            widths = [sum(segment.cell_length for segment in line) for line in scene.lines]
            assert widths == [columns] * rows


def test_large_blocks_are_no_higher_than_their_room_and_a_wide_matrix_shows_the_part_around_the_cell():
    for height in (9, 10, 11, 18, 19, 20, 46):
        part = large_blocks(weight_matrix(traced(), traced().shown), Terminal(100), None, (0, 0), height)
        assert (part is None) == (height < 10) and (part is None or len(part.lines) <= height)
    block = weight_matrix(trace := traced(text_of(100)), trace.shown)
    for i, j in ((0, 0), (50, 60), (99, 99)):
        part = matrix_part(block, Terminal(80), None, (i, j), 12)
        assert i in part.rows and j in part.columns and len(part.lines) <= 12
        y, at = part.top + i - part.rows.start, 1 + j - part.columns.start
        line = part.lines[y]
        assert float(line[at].text) == pytest.approx(trace.weights[i, j], abs=0.006)
        assert line[at].style.reverse
        x = sum(segment.cell_length for segment in line[: at + 1]) - 1
        assert {part.cell_at(y, x - n) for n in range(line[at].cell_length)} == {(i, j)}
        heads = part.lines[part.top - 1]
        (marked,) = (n for n, one in enumerate(heads) if one.style and one.style.reverse)  # its column's
        assert sum(one.cell_length for one in heads[: marked + 1]) == x + 1


def test_of_a_matrix_that_is_not_square_the_part_around_the_chosen_cell_is_shown():
    many = " ".join(f"w{n}" for n in range(90))
    for row, column, *two in ((0, 89, "a b", many), (89, 0, many, "a b")):
        assert "w88 " in said(trace_cross(*two, Settings(embedding="random")), row=row, column=column)


def test_a_long_text_has_the_long_view_and_a_row_that_may_look_at_nothing_says_so():
    text = text_of(1200)
    trace = traced(text)
    long = "A long text: only the row in focus has its arithmetic."
    for row, is_said in ((trace.focus[0], False), (3, True)):
        lines = said(trace, (120, 50), text, row=row)
        assert "1,200 x 1,200 weights are too many to draw." in lines and (long in lines) == is_said
        by_hand = said(trace, (120, 50), text, row=row, pane=ROW)
        assert ("One row by hand" not in by_hand and long in by_hand) == is_said
    compared = said(trace, before=trace, compared=DIFFERENCE)
    assert "1,200 x 1,200 weights are too many to lay side by side." in compared
    trace = traced("she sat", without=("she", "sat"))
    assert '"she" may look at nothing: its weights are zeros.' in said(trace, row=0)
    for is_large in (False, True):
        scene = scene_of(traced(), terminal=Terminal(80, 0, "ascii"), row=4, column=3, is_large=is_large)
        assert "\n".join(texts(scene)).isascii()
        styles = [segment.style for line in scene.lines for segment in line if segment.style]
        assert not any(style.color or style.bgcolor for style in styles)


@staged()
async def test_the_screen_follows_the_terminals_size(stage):
    for columns, rows in SIZES:
        await stage.pilot.resize_terminal(columns, rows)
        await stage.settled()
        lines = stage.lines()
        assert len(lines) == rows - 1 and all(len(line) <= columns for line in lines)
        assert "quit" in lines[-1] and "help" in stage.text(), "which are always there"
        assert "jumped" in stage.text() or rows < 12
        labels = ("t text", "Enter why", "m mask", "w save", "c command", "u undo")
        assert all(label in stage.text() for label in labels) == (columns >= 80)


def test_maps_of_all_heads_are_of_all_their_weights_and_the_status_counts_heads_and_layers():
    trace = traced(text_of(100), head="all")
    lines = said(trace, (150, 40), text_of(100))
    assert all(name in lines for name in trace.head_names)
    assert "means of 100 x 100 weights. h: one head, whole." in lines
    heads = traced().head_names
    status = [f"head {name} ({n} of {len(heads)})" for n, name in enumerate(heads, 1)]
    goes(("escape", status[0], "!layer"), ("h", status[1]), size=(100, 24))
    deep = made(settings=Settings(projection="roles-deep"))
    goes(("escape", "layer 4 of 0 to 4", "l layer"), app=deep, size=(120, 24))


def test_the_pictures_of_the_docs_are_those_that_the_program_draws():
    for name in PICTURES:
        assert (FOLDER / f"{name}.svg").read_text(encoding="utf-8") == drawn(name), name
        assert f"live/{name}.svg" in (FOLDER.parent / "live.md").read_text(encoding="utf-8")
