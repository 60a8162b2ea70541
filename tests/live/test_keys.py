"""Every key of attn live, pressed by Textual's pilot: what it does to the state, to the trace, to the screen."""

import asyncio

import pytest

pytest.importorskip("textual")

from attn_cli.core.mask_rules import mask_examples
from attn_cli.core.scores import SCORES
from attn_cli.live import actions
from attn_cli.live.keys import ACTIONS, KEYS, footer
from attn_cli.live.state import COMMAND, HELP, ROW, STEPS, WEIGHTS
from attn_cli.settings.settings import Settings
from tests.live.stage import FOX, made, play, same, staged, traced

LATER = {"text", "write", "quit", "undo", "redraw"}  # actions that the program itself does


def test_every_key_leads_to_an_action_and_no_key_to_two():
    keys = [key for one in KEYS for key in one.keys]
    assert len(keys) == len(set(keys)) == len(ACTIONS)
    assert set(ACTIONS.values()) == set(actions.ACTIONS) | LATER


def test_m_goes_through_the_masks_and_back():
    async def act(stage):
        for mask in mask_examples()[1:]:
            await stage.press("m")
            assert same(stage.trace, traced(mask=mask))
            assert f"mask {mask}" in stage.text()
        await stage.press("m")
        assert same(stage.trace, traced())
        await stage.press("M")
        assert same(stage.trace, traced(mask=mask_examples()[-1]))

    play(act)


def test_h_goes_through_the_heads_their_mean_and_all():
    async def act(stage):
        names = stage.trace.head_names
        for name in [*names[1:], "mean", "all", names[0]]:
            await stage.press("h")
            assert same(stage.trace, traced(head=name)), name
            assert ("head " + name) in stage.text() or name in stage.lines()[-3]
        await stage.press("H")
        assert all(name in stage.text() for name in names), "all heads are seen at once"

    play(act)


def test_l_goes_through_the_layers():
    async def act(stage):
        layers = stage.session.source.layers(stage.trace)
        assert layers > 1
        for layer in [*range(layers), 0]:
            await stage.press("l")
            assert same(stage.trace, traced(projection="roles-deep", layer=layer))
            assert f"layer {layer}" in stage.text()
        await stage.press("L")
        assert same(stage.trace, traced(projection="roles-deep", layer=layers - 1))

    play(act, made(settings=Settings(projection="roles-deep")))


def test_l_says_that_there_is_one_layer():
    async def act(stage):
        await stage.press("l")
        assert "There is one layer here" in stage.text()
        await stage.press("down")
        assert "There is one layer here" not in stage.text()

    play(act)


def test_s_goes_through_the_scores():
    async def act(stage):
        for score in [*list(SCORES)[1:], "scaled"]:
            await stage.press("s")
            assert same(stage.trace, traced(score=score))
        await stage.press("S")
        assert same(stage.trace, traced(score=list(SCORES)[-1]))

    play(act)


def test_plus_and_minus_change_the_temperature_and_0_brings_it_back():
    async def act(stage):
        await stage.press("plus", "equals_sign")
        assert same(stage.trace, traced(temperature=1.5))
        assert "1.5" in stage.lines()[-3]
        await stage.press("minus", "minus", "minus")
        assert same(stage.trace, traced(temperature=0.85))
        await stage.press("0")
        assert same(stage.trace, traced())
        await stage.press(*["minus"] * 20)
        assert "already the lowest available" in stage.text()
        assert stage.state.question.settings.temperature == actions.HEATS[0]

    play(act)


def test_arrows_choose_a_cell_within_the_matrix():
    async def act(stage):
        trace = stage.trace
        await stage.press("home", *["up"] * 20, "left")
        assert (stage.state.row, stage.state.column) == (0, 0)
        await stage.press("down", "right", "right")
        assert f'"quick" looks at "brown": {trace.weights[1, 2]:.4f}' in stage.text()
        await stage.press("end", "pagedown")
        assert (stage.state.row, stage.state.column) == (8, 8)
        await stage.press("down", "right", "k", "left")
        assert (stage.state.row, stage.state.column) == (7, 7)
        await stage.press("pageup")
        assert stage.state.row == 0

    play(act)


def test_enter_opens_the_arithmetic_and_closes_it():
    async def act(stage):
        await stage.press("enter")
        assert stage.state.pane == ROW
        text = stage.text()
        assert 'One row by hand: what does "jumped" look at?' in text
        await stage.press("pagedown", "pagedown", "pagedown", "pagedown")
        assert "output = [" in stage.text()
        assert stage.state.scrolled < 60, "scrolling ends where the pane does"
        await stage.press("enter")
        assert stage.state.pane == WEIGHTS
        await stage.press("enter", "escape")
        assert stage.state.pane == WEIGHTS

    play(act)


def test_x_switches_the_word_of_the_column_off_and_on():
    async def act(stage):
        await stage.press("home", "right", "right", "right", "x")
        trace, expected = stage.trace, traced()
        assert not trace.mask[:, 3].any()
        assert trace.mask[:, :3].all()
        left = expected.weights.copy()
        left[:, 3] = 0  # a softmax over the others: their weights in the same proportion
        left /= left.sum(axis=1, keepdims=True)
        assert abs(trace.weights - left).max() < 1e-12
        assert same(stage.trace, traced(without=("fox",)))
        await stage.press("m")
        assert not stage.trace.mask[:, 3].any()
        assert not stage.trace.mask[0, 1:].any()
        await stage.press("M", "x")
        assert same(stage.trace, expected)

    play(act)


def test_v_shows_the_difference_then_the_view_before_then_now():
    async def act(stage):
        await stage.press("v")
        assert "There is no view before" in stage.text()
        await stage.press("plus", "v")
        by = traced(temperature=1.2).weights - traced().weights
        row = next(line for line in stage.lines() if line.startswith("jumped")).split()
        shown = [float(cell) for cell in row[1:]]
        assert shown == pytest.approx(by[4].tolist(), abs=0.0006)
        await stage.press("v")
        assert "The view before" in stage.text()
        row = next(line for line in stage.lines() if line.startswith("jumped")).split()
        assert [float(cell) for cell in row[1:]] == pytest.approx(traced().weights[4].tolist(), abs=0.0006)
        await stage.press("v")
        row = next(line for line in stage.lines() if line.startswith("jumped")).split()
        expected = traced(temperature=1.2).weights[4].tolist()
        assert [float(cell) for cell in row[1:]] == pytest.approx(expected, abs=0.0006)

    play(act)


def test_d_walks_through_the_steps_and_back():
    async def act(stage):
        titles = []
        for _ in stage.session.seen.steps:
            await stage.press("d")
            assert stage.state.pane == STEPS
            titles.append(stage.text())
        for words, text in zip(
            (
                "Tokens and ids",
                "A vector for each token",
                "Queries",
                "Scores:",
                "Scaling",
                "Distance",
                "The mask",
            ),
            titles,
            strict=False,
        ):
            assert words in text
        assert "Softmax" in titles[-2] and "Output" in titles[-1]
        await stage.press("D")
        assert "Softmax" in stage.text()
        await stage.press("d", "d")
        assert stage.state.pane == WEIGHTS

    play(act, made(settings=Settings(mask="causal")))


def test_b_draws_large_blocks():
    async def act(stage):
        await stage.press("b")
        rows = [line for line in stage.lines() if line.startswith("jumped")]
        assert rows[0].split()[1:] == [
            f"{weight:.2f}".replace("0.", ".", 1) for weight in stage.trace.weights[4]
        ]
        first, second = (y for y, line in enumerate(stage.lines()) if line.startswith(("jumped", "over")))
        assert second - first == 2
        await stage.press("b")
        assert "looks at" in stage.text()

    play(act, size=(100, 24))


def test_u_undoes_one_change_after_the_other():
    async def act(stage):
        await stage.press("u")
        assert "nothing to undo" in stage.text()
        await stage.press("m", "plus", "h", "u")
        assert same(stage.trace, traced(mask="causal", temperature=1.2))
        await stage.press("u", "u")
        assert same(stage.trace, traced())

    play(act)


def test_the_text_is_typed_and_undone_as_one_change():
    async def act(stage):
        await stage.press("t", *["backspace"] * 3)
        await stage.type("m")
        assert stage.trace.query_tokens[-1] == "m", "letters are text, not keys"
        await stage.press("backspace")
        await stage.type("cat")
        assert same(stage.trace, traced(FOX.replace("dog", "cat")))
        assert "Enter or Esc" in stage.text()
        await stage.press("escape", "m")
        assert same(stage.trace, traced(FOX.replace("dog", "cat"), mask="causal"))
        await stage.press("u", "u")
        assert same(stage.trace, traced())
        assert stage.app.line.value == FOX

    play(act)


def test_an_empty_text_is_said_and_typed_on():
    async def act(stage):
        await stage.press("t", "ctrl+u")
        assert "There is no token in the text" in stage.text()
        await stage.type("hi there")
        assert stage.trace.query_tokens == ("hi", "there")
        assert "no token" not in stage.text()

    play(act)


def test_help_covers_a_pane_and_names_every_key():
    async def act(stage):
        await stage.press("d", "question_mark")
        assert stage.state.pane == HELP
        text = ""
        for _ in range(4):
            text += stage.text()
            await stage.press("pagedown")
        assert all(one.help[:30] in text for one in KEYS)
        await stage.press("question_mark")
        assert stage.state.pane == STEPS
        await stage.press("question_mark", "c", "escape")
        assert stage.state.pane == STEPS

    play(act)


def test_c_shows_a_command_line():
    async def act(stage):
        await stage.press("m", "c")
        assert stage.state.pane == COMMAND
        assert f"attn self '{FOX}' --mask causal" in stage.text()

    assert play(act).commands == [f"attn self '{FOX}' --mask causal"]


@pytest.mark.parametrize(("key", "code"), [("q", 0), ("ctrl+c", 130), ("ctrl+q", 0)])
def test_it_is_left_by_keys(key, code):
    async def act(stage):
        await stage.pilot.press(key)

    assert play(act).return_value == code


def test_tab_shows_the_row_on_a_small_screen():
    async def act(stage):
        assert "jumped" in stage.text() and "attending to" not in stage.text()
        await stage.press("tab")
        assert "jumped attending to:" in stage.text()
        await stage.press("tab")
        assert stage.state.pane == WEIGHTS

    play(act, size=(40, 12))


def test_the_footer_always_has_help_and_quit():
    for width in (20, 40, 60, 80, 100, 200):
        for lines in (1, 2):
            labels = footer(width, lines, frozenset())
            assert [label.word for label in labels[-2:]] == ["help", "quit"]
            assert all(label.line < lines for label in labels)
            assert all(label.stop <= width or label.start == 0 for label in labels)
    everything = {label.action for label in footer(80, 2, frozenset({"edit"}))}
    assert everything == {one.action for one in KEYS if one.label} - {"edit"}


def test_a_bug_while_drawing_ends_it_with_the_error():
    app = made()

    async def run():
        async with staged(app) as stage:
            app.session.trace = None  # nothing can be drawn
            await stage.pilot.press("down")

    with pytest.raises(AttributeError):
        asyncio.run(run())
    assert isinstance(app.failure, AttributeError)
