"""The mouse does what the keys do."""

import pytest

pytest.importorskip("textual")

from attn_cli.io.terminal import Terminal
from attn_cli.live.actions import HEATS
from attn_cli.live.state import HELP, ROW
from attn_cli.live.status import SLIDER, heat_at, slider
from tests.live.stage import play, same, traced


def test_a_click_chooses_a_cell_and_a_second_one_opens_it():
    async def act(stage):
        y = next(n for n, line in enumerate(stage.lines()) if line.startswith("over "))
        head_x, _ = stage.find("lazy")
        await stage.pilot.click("#board", offset=(head_x + 2, y))
        await stage.settled()
        assert (stage.state.row, stage.state.column) == (5, 7)
        await stage.pilot.click("#board", offset=(head_x + 2, y), times=2)
        await stage.settled()
        assert stage.state.pane == ROW
        assert "One row by hand" in stage.text()

    play(act)


def test_the_names_in_the_status_line_and_the_footer_are_keys():
    async def act(stage):
        await stage.click("mask none")
        assert same(stage.trace, traced(mask="causal"))
        await stage.click("head relations")
        assert same(stage.trace, traced(mask="causal", head="head"))
        await stage.click("u undo")
        await stage.click("u undo")
        assert same(stage.trace, traced())
        await stage.click("? help")
        assert stage.state.pane == HELP
        await stage.click("t text")
        assert stage.app.line.has_focus

    play(act)


def test_the_slider_sets_the_temperature():
    async def act(stage):
        await stage.click("●", by=3)
        assert stage.trace.temperature == heat_at(SLIDER // 2 + 3) > 1
        assert same(stage.trace, traced(temperature=stage.trace.temperature))

    play(act)


def test_the_slider_shows_what_it_sets():
    terminal = Terminal(80)
    for place in range(SLIDER):
        assert slider(heat_at(place), terminal).index("●") in (place - 1, place, place + 1)
    assert (heat_at(0), heat_at(SLIDER - 1)) == (HEATS[0], HEATS[-1])
    assert slider(1e-6, terminal)[0] == slider(1e9, terminal)[-1] == "●"


def test_the_wheel_goes_up_and_down():
    async def act(stage):
        row = stage.state.row
        stage.app.board.on_mouse_scroll_down()
        await stage.settled()
        assert stage.state.row == row + 1
        stage.app.board.on_mouse_scroll_up()
        await stage.settled()
        assert stage.state.row == row

    play(act)
