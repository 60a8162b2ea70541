"""What the screens of attn live say besides numbers: where one is, what is left out, and the way back."""

import pytest

pytest.importorskip("textual")

from attn_cli.settings.settings import Settings
from tests.live.stage import FOX, made, play, traced


def test_the_status_line_tells_which_of_how_many_heads_and_names_the_words_that_are_off():
    names = traced().head_names

    async def act(stage):
        assert f"head {names[0]} (1 of {len(names)})" in stage.text()
        await stage.press("h")
        assert f"head {names[1]} (2 of {len(names)})" in stage.text()
        await stage.press("x")
        word = stage.trace.key_tokens[stage.state.column]
        assert f"mask off: {word}" in stage.text()

    play(act, size=(100, 24))


def test_with_one_layer_neither_the_status_line_nor_the_footer_names_layers():
    async def one(stage):
        assert "layer" not in stage.text()

    async def several(stage):
        assert "layer 4 of 5" in stage.text() and "l layer" in stage.text()

    play(one)
    play(several, made(settings=Settings(projection="roles-deep")), size=(120, 24))


def test_the_row_below_the_view_before_is_that_of_the_view_before():
    async def act(stage):
        title = next(line for line in stage.lines() if "looks at" in line)
        await stage.press("x")
        assert title not in stage.text()
        await stage.press("v", "v")
        assert "The view before" in stage.text()
        assert title in stage.text(), "the title and the matrix are of one trace"

    play(act)


def test_the_view_before_of_a_longer_text_is_seen_from_a_shorter_one():
    async def act(stage):
        await stage.press("down", "down", "down", "down", "t", "ctrl+u")
        await stage.type("a fox")
        await stage.press("escape", "v", "v", "down", "enter", "escape")
        assert stage.app.failure is None

    play(act)


@pytest.mark.parametrize("size", [(80, 24), (40, 12)], ids=str)
def test_a_pane_longer_than_the_screen_says_so_and_every_pane_says_the_way_back(size):
    async def act(stage):
        await stage.press("question_mark")
        assert "more (" in stage.text() and "Esc: back." in stage.text()
        for _ in range(10):
            await stage.press("pagedown")
        last = next(line for line in stage.lines() if "Esc: back." in line)
        count = last.split(" of ")[1].rstrip(").")
        assert f"-{count} of {count}" in last, "the end is reached"
        assert "names below are keys" in " ".join(stage.text().split())
        await stage.press("escape", "c")
        assert "Esc: back." in stage.text()

    play(act, size=size)


def test_what_is_said_is_whole_on_a_small_screen():
    async def act(stage):
        await stage.press("l")
        said = " ".join(stage.text().split())
        assert "There is one layer here; -p roles-deep has more, and so has a model (-m)." in said
        await stage.press("w")
        said = " ".join(stage.text().split())
        assert "There is one layer" not in said, "a prompt takes the place of what was said before"
        assert "Write the view to this file: .svg, .html, .json and others. Esc: do not." in said

    play(act, size=(40, 12))


def test_b_says_that_there_is_no_room_for_large_blocks():
    async def act(stage):
        await stage.press("b")
        assert "Too many words for large blocks" in " ".join(stage.text().split())
        await stage.press("b")
        assert "Too many words" not in stage.text()

    play(act, made(" ".join([FOX] * 4)), size=(40, 12))


def test_the_steps_name_the_keys_of_this_screen():
    async def act(stage):
        await stage.press("d")
        assert "h: another head" in stage.text() and "--head" not in stage.text()

    play(act)


def test_the_command_of_a_row_that_is_compared_is_one_that_explain_takes():
    async def act(stage):
        await stage.press("m", "v", "enter", "c")
        assert "attn explain" in stage.text() and "--vary" not in stage.text()
        assert "--mask causal" in " ".join(stage.text().split())

    play(act)
