"""Every key and click of attn live: what it does to the state, to the trace, to the screen."""

import asyncio
import threading

import pytest

pytest.importorskip("textual")

from textual.events import Paste

from attn_cli.core.masks import mask_examples
from attn_cli.core.scores import SCORES
from attn_cli.io.terminal import Terminal
from attn_cli.live import keys as keyboard
from attn_cli.live.scene import slider
from attn_cli.live.sources import TextSource
from attn_cli.settings import Settings
from tests.live.stage import FOX, goes, made, numbers_of, play, same, staged, traced

LATER = {"text", "write", "quit", "undo", "redraw"}  # actions that the program itself does
HEADS = traced().head_names
DEEP = {"projection": "roles-deep"}
CYCLES = [  # a key, the one that goes back, what it sets, its values from the first on, settings
    ("m", "M", "mask", mask_examples(), {}),
    ("h", "H", "head", [*HEADS, "mean", "all"], {}),
    ("l", "L", "layer", [4, 0, 1, 2, 3], DEEP),
    ("s", "S", "score", list(SCORES), {}),
]


def test_every_key_leads_to_an_action_no_key_to_two_and_a_pane_scrolls_up_to_its_top_and_no_further():
    keys = [key for one in keyboard.KEYS for key in one.key.split(",")]
    assert len(keys) == len(set(keys))
    actions = {name for name in vars(keyboard.Press) if not name.startswith("_")} - {"state", "seen", "cover"}
    assert set(keyboard.NUMBERS) == actions | LATER
    state = keyboard.State(None, pane=keyboard.HELP, scrolled=3)
    assert [keyboard.Press(state, None).move(rows, 0).scrolled for rows in (1, -2, -3, -10)] == [4, 1, 0, 0]


@pytest.mark.parametrize(("key", "back", "name", "values", "settings"), CYCLES, ids="mhls")
def test_a_key_goes_through_all_values_and_back(key, back, name, values, settings):
    async def act(stage):
        for value in [*values[1:], values[0]]:
            await stage.goes((key, traced(**settings | {name: value})))
            assert str(value) in stage.lines()[-3], "the status says so"
        await stage.goes((back, traced(**settings | {name: values[-1]})))

    play(act, made(settings=Settings(**settings)), size=(100, 24))


@staged()
async def test_enter_opens_the_arithmetic_and_plus_and_minus_change_the_temperature(stage):
    await stage.goes(("enter", 'One row by hand: what does "jumped" look at?', "@row"))
    await stage.goes(("pagedown " * 4, "output = ["))
    assert stage.state.scrolled < 60, "scrolling ends where the pane does"
    await stage.goes(("enter", "@weights"), ("enter escape", "@weights"))
    await stage.goes(("+ =", traced(temperature=1.5)))
    assert "1.5" in stage.lines()[-3]
    await stage.goes(("- - -", traced(temperature=0.85)), ("0", traced()))
    for key, end, to in (("-", "lowest", 0.05), ("+", "highest", 20.0)):
        said = f"The temperature, {to:g}, is already the {end} available."
        await stage.goes((f"{key} " * len(keyboard.TEMPERATURES), said))
        assert stage.state.question.settings.temperature == to


@staged()
async def test_arrows_choose_a_cell_within_the_matrix_and_x_switches_the_word_of_its_column_off_and_on(stage):
    moves = {f"home {'up ' * 20}left": (0, 0), "down right right": (1, 2), "end pagedown": (8, 8)}
    moves |= {"down right k left": (7, 7), "pageup": (0, 7)}
    for keys, cell in moves.items():
        await stage.press(*keys.split())
        assert (stage.state.row, stage.state.column) == cell
    assert f'"The" looks at "lazy": {stage.trace.weights[0, 7]:.4f}' in stage.text()
    for turn, row in ((stage.app.board.on_mouse_scroll_down, 1), (stage.app.board.on_mouse_scroll_up, 0)):
        turn()  # the wheel
        await stage.settled()
        assert stage.state.row == row
    await stage.press("home", "right", "right", "right", "x")
    trace, expected = stage.trace, traced()
    assert not trace.mask[:, 3].any() and trace.mask[:, :3].all()
    left = expected.weights.copy()
    left[:, 3] = 0  # a softmax over the others: their weights in the same proportion
    left /= left.sum(axis=1, keepdims=True)
    assert abs(trace.weights - left).max() < 1e-12
    assert same(trace, traced(without=("fox",))) and "mask off: fox" in stage.text()
    await stage.press("m")
    assert not stage.trace.mask[:, 3].any() and not stage.trace.mask[0, 1:].any()
    await stage.goes(("M x", expected))


COPYING = "winter river mother engine letter winter river mother"  # which the model continues by two heads


@staged(text=COPYING, settings=Settings(projection="language", layer=1, head="previous"))
async def test_o_knocks_the_head_out_and_the_guess_is_another_until_it_is_back_in(stage):
    weights = stage.trace.weights
    await stage.goes(
        ("o", "out 1.previous", 'Likeliest to come after "mother"'), ("c", "--knock-out 1.previous")
    )
    assert stage.trace.next_words.words[0].word != "engine"
    assert abs(stage.trace.weights - weights).max() < 1e-9
    await stage.goes(("c", "!--knock-out"), ("o", "!out 1.previous"))
    assert stage.trace.next_words.words[0].word == "engine"
    await stage.goes(("H H o", "Choose one head with h"))


@staged(size=(100, 30))
async def test_b_draws_large_blocks_and_v_the_difference_then_the_view_before_then_now(stage):
    await stage.press("b")
    weights = [f"{weight:.2f}".replace("0.", ".", 1) for weight in stage.trace.weights[4]]
    assert numbers_of(stage.lines(), "jumped") == weights
    first, second = (y for y, line in enumerate(stage.lines()) if line.startswith(("jumped", "over")))
    assert second - first == 2
    await stage.goes(("b", "looks at"))
    await stage.goes(("v", "There is no view before"))
    before = next(line for line in stage.lines() if "looks at" in line)
    old, new = traced().weights[4], traced(temperature=1.2).weights[4]
    await stage.press("+")
    for expected in (new - old, old, new):
        await stage.press("v")
        shown = [float(cell) for cell in numbers_of(stage.lines(), "jumped")]
        assert shown == pytest.approx(expected.tolist(), abs=0.0006)
        is_before = expected is old
        assert is_before == ("The view before" in stage.text())
        assert is_before == (before in stage.text()), "the row below is that of the matrix"


STEPS = "Tokens and ids;A vector for each token;Queries;Scores:;Scaling;Distance;The mask;Softmax;Output"


def test_d_walks_through_the_steps_and_back_and_a_small_screen_has_its_own_ways():
    walk = [("d", name, "h: another head", "!--head", "@steps") for name in STEPS.split(";")]
    back = (("D", "Softmax"), ("d d", "@weights"), ("D", "Output"))
    goes(*walk, *back, app=made(settings=Settings(mask="causal")))
    goes(("H", *HEADS))  # all are seen at once
    one = "There is one layer"
    write = "Write the view to this file: .svg, .html, .json and others. Esc: do not."
    first = ("l", f"{one} here; -p roles-deep has more, and so has a model (-m).")
    goes(first, ("w", f"!{one}", write), ("escape", "q quit"), size=(40, 12))
    room = "Too many words for large blocks"
    goes(("b", room), ("b", f"!{room}"), app=made(" ".join([FOX] * 4)), size=(40, 12))
    shown = ("jumped", "!attending to")
    tabs = (("escape", *shown), ("tab", "jumped attending to:"), ("tab", *shown, "@weights"))
    goes(*tabs, size=(40, 12))


@staged()
async def test_u_undoes_one_change_after_the_other_and_the_text_is_typed_and_undone_as_one(stage):
    await stage.goes(
        ("u", "nothing to undo"),
        ("m + h u", traced(mask="causal", temperature=1.2)),
        ("u u", traced()),
        # A text that is as before is no change; nor is what cannot be done.
        ("t a backspace escape u", "nothing to undo"),
        ("e", "Only small matrices that are given"),
        ("o", "nothing is computed from what the heads of layer 0 of roles"),
        ("g", "-p language, or -m MODEL, writes"),
        ("p", "--join-pieces needs a model whose tokens are word pieces", traced()),
    )
    assert not stage.state.question.settings.knock_out
    await stage.goes(("t backspace backspace backspace m",))
    assert stage.trace.query_tokens[-1] == "m", "letters are text, not keys"
    cat = FOX.replace("dog", "cat")
    await stage.goes(("backspace c a t", traced(cat), "Enter or Esc"))
    await stage.goes(("enter m", traced(cat, mask="causal")), ("u u", traced()))
    assert stage.app.line.value == FOX
    await stage.goes(("down down down down t ctrl+u", "There is no token in the text"))
    await stage.type("hi there")
    assert stage.trace.query_tokens == ("hi", "there") and "no token" not in stage.text()
    await stage.goes(("escape v", "The tokens differ"), ("v down enter escape", "hi"))
    await stage.press("t")
    stage.app.post_message(Paste(" \x1b[31mred\x9b"))  # what is pasted is inert in the line
    await stage.settled()
    assert stage.app.line.value.endswith(" ^[[31mred<U+009B>")


@pytest.mark.parametrize("size", [(80, 24), (40, 12)], ids=str)
@staged()
async def test_help_covers_a_pane_and_names_every_key_and_the_way_back(stage, size):
    await stage.goes(("d ?", "@help", "more (", "Esc: back."))
    text = ""
    for _ in range(20):
        text += " " + stage.said()
        await stage.press(*["down"] * 5)
    assert all(one.tooltip[:24] in text for one in keyboard.KEYS)
    last = next(line for line in stage.lines() if "Esc: back." in line)
    count = last.split(" of ")[1].rstrip(").")
    assert f"-{count} of {count}" in last, "the end is reached"
    await stage.goes(("", "names below are keys"), ("?", "@steps"))
    await stage.goes(("? c", "@command", "Esc: back."), ("escape", "@steps"))


@pytest.mark.parametrize(("key", "code"), [("q", 0), ("ctrl+c", 130), ("ctrl+q", 0)])
def test_it_is_left_by_keys(key, code):
    async def act(stage):
        await stage.press("ctrl+l", "Z")  # which draw the screen anew, and do nothing
        await stage.pilot.press(key)

    assert play(act).return_value == code


@staged()
async def test_clicks_choose_and_open_a_cell_names_at_the_foot_are_keys_and_the_slider_is_drawn_along(stage):
    y = next(n for n, line in enumerate(stage.lines()) if line.startswith("over "))
    x = stage.lines()[0].index("lazy") + 2
    await stage.click_at(x, y)
    assert (stage.state.row, stage.state.column) == (5, 7)
    await stage.click_at(x, y, times=2)
    await stage.goes(("", "@row", "One row by hand"), ("escape",))
    await stage.click("mask none")
    await stage.goes(("", traced(mask="causal")))
    await stage.click(f"head {HEADS[0]}")
    await stage.goes(("", traced(mask="causal", head=HEADS[1])))
    await stage.click("u undo")
    await stage.click("u undo")
    await stage.click("? help")
    await stage.goes(("", traced(), "@help"))
    await stage.click("t text")
    assert stage.app.line.has_focus
    await stage.click_at(2, 2)
    assert not stage.app.line.has_focus, "a click comes back to the keys"
    await stage.click("●", by=3)
    assert stage.trace.temperature == keyboard.temperature_at(keyboard.SLIDER // 2 + 3) > 1
    y = next(y for y, line in enumerate(stage.lines()) if "●" in line)
    start = stage.lines()[y].index("─")
    await stage.pilot.mouse_down("#board", offset=(start + 5, y))
    await stage.pilot.hover("#board", offset=(start, y - 3))
    await stage.pilot.mouse_up("#board", offset=(start, y - 3))
    await stage.settled()
    assert same(stage.trace, traced(temperature=keyboard.TEMPERATURES[0]))
    terminal = Terminal(80)
    for place in range(keyboard.SLIDER):
        assert slider(keyboard.temperature_at(place), terminal).index("●") in (place - 1, place, place + 1)
    assert [keyboard.temperature_at(at) for at in (-9, 99)] == [keyboard.TEMPERATURES[at] for at in (0, -1)]
    assert slider(1e-6, terminal)[0] == slider(1e9, terminal)[-1] == "●"


class Slow(TextSource):
    """Answers one question after the other, each when it is let, and keeps what it was asked."""

    def __init__(self):
        super().__init__(Settings())
        self.go, self.asked = threading.Semaphore(), []

    def compute(self, question):
        self.asked.append(question.text.split()[-1])
        assert self.go.acquire(timeout=60)
        if self.asked[-1] == "X":
            raise ZeroDivisionError
        if "big" in self.asked[-1]:
            raise MemoryError
        return super().compute(question)


def slow_play(typed, act):
    app = made("a b ", source=(source := Slow()))

    async def typing(stage):
        await stage.press("t")
        stage.send(typed[0])
        while "..." not in stage.text():
            await asyncio.sleep(0.01)
        for letter in typed[1:]:
            stage.send(letter)
        while app.session.state.question.text != "a b " + typed:
            await asyncio.sleep(0.01)
        source.go.release(9)
        await stage.settled()
        await act(stage)

    try:
        play(typing, app)
    finally:
        source.asked.pop(0)
    return source.asked


def test_what_is_stale_is_not_computed_and_a_bug_ends_it_with_the_error():
    async def act(stage):
        assert stage.trace.query_tokens == ("a", "b", "cdef")
        assert "..." not in stage.lines()[-3]

    async def refused(stage):
        await stage.goes(("", "There is not enough memory for this."), ("backspace",))
        assert stage.trace.query_tokens[-1] == "bi"

    async def ended(stage):
        assert not stage.app.is_running

    assert slow_play("cdef", act) == ["c", "cdef"]
    slow_play("big", refused)
    with pytest.raises(ZeroDivisionError):
        slow_play("Xyz", ended)

    async def broken(stage):
        stage.app.session.trace = None  # nothing can be drawn
        await stage.pilot.press("down")

    with pytest.raises(AttributeError):
        play(broken)


@staged(text="red\x07hat")
async def test_a_text_with_an_unseen_character_is_as_it_was_when_its_line_takes_the_place_of_another(stage):
    await stage.press("w")
    stage.app.action_press("text")  # as a replay does
    await stage.goes(("escape u", "nothing to undo"))
