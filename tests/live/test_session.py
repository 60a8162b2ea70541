"""A session of attn live without its screen: actions, commands, what is typed, recordings, what a click hits."""

import json

import numpy as np
import pytest

pytest.importorskip("textual")

from attn_cli.errors import UsageError
from attn_cli.inputs.matrices import given_from
from attn_cli.inputs.saved_weights import read_saved
from attn_cli.io.terminal import Terminal
from attn_cli.io.types import replace
from attn_cli.live.keys import MATRICES, STEPS
from attn_cli.live.panes import Paper
from attn_cli.live.recording import Event, Recorder, read_recording
from attn_cli.live.scene import Hit, compose, slider
from attn_cli.live.session import begin, command_line, unsaid
from attn_cli.live.sources import MatricesSource, Question, TextSource, WeightsSource
from attn_cli.live.text_line import prompt_for, save
from attn_cli.settings import Settings, View
from tests.live.stage import FOX


def session_of(text=FOX, source=None, **settings):
    settings = Settings(**settings)
    return begin(source or TextSource(settings), text, settings, View())


def press(session, *actions):
    for action in actions:
        name, *numbers = action.split()
        session.press(name, *map(int, numbers))
        answer(session)
    return session


def answer(session):
    if session.is_behind:
        try:
            found = session.source.compute(session.state.question)
        except UsageError as error:
            found = error
        session.take(session.state.question, found)


def scene(session, width=80, height=23, said="", is_busy=False):
    paper = Paper(width, height, Terminal(width), View()).sized(width, height)
    made = compose(session.state, session.seen, paper, said, is_busy)
    return made, ["".join(one.text for one in line).rstrip() for line in made.lines]


COMMANDS = """
compare => attn self TEXT
hotter compare => attn compare TEXT --vary temperature=1,1.2
mask score compare => attn compare TEXT --mask causal --vary score=scaled,dot
mask compare command => attn compare TEXT --vary mask=none,causal
off compare => attn self TEXT --without fox
head compare => attn self TEXT --head head
score compare open => attn explain TEXT --score dot -q jumped
score open compare => attn compare TEXT --vary score=scaled,dot
score compare close => attn self TEXT --score dot
step step => attn explain TEXT --only x
step step step => attn explain TEXT --only queries,keys,values
move:-9:0 open => attn explain TEXT -q 0
step -1 => attn explain TEXT --only output
"""


@pytest.mark.parametrize("line", COMMANDS.strip().splitlines())
def test_a_command_varies_the_one_setting_that_changed_and_is_of_the_pane_that_it_covers(line):
    keys, _, expected = line.replace("step -1", "step:-1").partition(" => ")
    session = press(session_of(), *(key.replace(":", " ") for key in keys.split()))
    assert command_line(session.state, session.seen) == expected.replace("TEXT", f"'{FOX}'")


def test_no_command_varies_two_settings_at_once():
    session = session_of()
    session.press("hotter")
    session.press("score")  # before the first is answered
    answer(session)
    press(session, "compare")
    assert command_line(session.state, session.seen) == f"attn self '{FOX}' --score dot -t 1.2"


def test_a_session_begins_at_the_strongest_key_of_the_row_in_focus_and_undoes_500_steps():
    session = session_of()
    assert (session.state.row, session.state.column) == (4, session.trace.weights[4].argmax())
    session = session_of("a b", mask="window:0", without=("a", "b"))
    assert session.state.column == 0  # nothing may be looked at
    for n in range(503):
        session.is_typing = False
        session.type_text(str(n))
    for _ in range(500):
        session.press("undo")
    assert session.state.question.text == "2" and session.said == ""
    session.press("undo")
    assert (session.state.question.text, session.said) == ("2", "There is nothing to undo.")


STATUS = """
78 23 => head 1  layer 1 of 0 to 4  mask none  temperature 1  ─────●─────  score scaled
77 20 => 1  layer 1  mask none  t 1  ─────●─────  scaled
120 19 => head 1 (2 of 8)  layer 1 of 0 to 4  mask none  temperature 1  ─────●─────  score scaled
60 19 => 1  layer 1  mask none  t 1  ─────●─────  scaled
30 12 => 1  layer 1  mask none  t 1  s
"""


def test_the_status_says_as_much_as_fits_and_the_footer_has_two_lines_on_a_tall_screen():
    session = press(session_of(projection="roles-deep"), "layer", "layer", "head")
    for line in STATUS.strip().splitlines():
        size, _, status = line.partition(" => ")
        width, height = map(int, size.split())
        made, lines = scene(session, width, height)
        at = min(made.bars)
        assert lines[at] == status and len(made.bars) == 2 + (height >= 20)
        assert lines[-1].endswith("? help  q quit")
        for x, text in enumerate(lines[at]):
            hit = made.hit(x, at)
            assert (hit == Hit("slider", (x - lines[at].find("─"),))) == (text in "─●"), x
    off = scene(session_of(without=("fox", "dog", "lazy")))[1][-3]
    assert off.startswith("relations  mask off: fox, dog and 1 more  t 1")
    ascii_only = Paper(80, 23, Terminal(80, encoding="ascii"), View()).sized(80, 23)
    status = "".join(one.text for one in compose(session.state, session.seen, ascii_only, "", True).lines[20])
    assert status.rstrip() == "1  layer 1  mask none  t 1  -----O-----  scaled  ..."


def test_what_is_said_takes_the_place_of_the_footer_and_at_most_a_quarter_of_the_screen():
    for words, lines in ((3, 2), (18, 3), (40, 5)):
        made, shown = scene(session_of(), 80, 23, said="hippopotamus " * words)
        rows = [n for n, line in enumerate(shown) if "hippo" in line]
        assert len(made.bars) == 1 and min(made.bars) == 23 - lines - 1
        assert rows[0] == 23 - lines and len(rows) <= lines


def test_numbers_of_matrices_of_up_to_400_are_typed_into_rows_and_biases():
    given = given_from({"Q": [[1.0]], "K": [[1.0]] * 2, "V": [[1.0]] * 2}, "n.json")
    rows = scene(press(session_of("", MatricesSource(given, "n.json")), "edit"))[1]
    assert [line.split() for line in rows[1:3]] == [["Q", "0"], ["q0", "1.000"]]
    record = {"X": [[1.0]], **dict.fromkeys(("W_q", "W_k", "W_v"), [[[1.0]]] * 2), "layout": "in-out"}
    source = MatricesSource(given_from(record, "n.json"), "n.json")
    assert [*source.matrices(Question("", Settings()))] == ["X"]  # not one matrix a head
    X = np.arange(800.0).reshape(20, 40) / 800
    record = {"X": X[:, :20].tolist(), "W_v": X[:20].tolist()}
    record |= dict.fromkeys(("W_q", "W_k"), X[:20, :20].tolist())
    record |= {"b_q": [0.0] * 20, "b_k": [0.0] * 20, "b_v": [0.0] * 40, "layout": "in-out"}
    given = given_from(record, "-given.json")
    session = session_of("", MatricesSource(given, "-given.json"))
    press(session, "edit", "edit", "edit", "edit", "move 0 3")
    assert scene(session)[1][0].startswith("b_q as given. Arrows choose a number")
    assert [*session.source.matrices(session.state.question)] == ["X", "W_q", "W_k", "b_q", "b_k", "b_v"]
    for typed in ("0.12345678", "7"):
        session.type_number(typed)
        answer(session)
    matrices = session.source.matrices(session.state.question)
    assert matrices["b_q"].tolist() == [0, 0, 0, 7] + [0] * 16 and not given.arrays["b_q"].any()
    assert len(session.state.question.edits) == 1  # the second is in the place of the first
    press(session, "move 0 1")
    session.type_number("2")
    answer(session)
    assert [tuple(one[1:]) for one in session.state.question.edits] == [(0, 3, 7), (0, 4, 2)]
    press(session, "undo")
    press(session, "move 0 -1")
    assert prompt_for("open", session)[:2] == ("b_q, row 0, column 3: type a number. Esc: leave it.", "7")
    session.type_number("1" * 50 + "x")
    assert f"{'1' * 40!r} is not a number" in session.said
    session.type_number("nan")
    assert session.said.startswith("b_q cannot hold 'nan'")
    assert command_line(session.state, session.seen) == "attn compute ./-given.json"
    stated = MatricesSource(given, "n.json", 2.0)
    for action, heat in (("hotter -1", 1.5), ("usual_heat", 1)):  # from what the file states
        warm = press(session_of("", stated, temperature=2.0), action)
        assert warm.seen.trace.temperature == heat
        assert command_line(warm.state, warm.seen) == f"attn compute n.json -t {heat}"
    assert "were typed are not in that file" in unsaid("", session.state.question, 1)
    small = scene(session)[1][:4]
    assert scene(press(session, "large"))[1][:4] == small
    press(session, "undo")
    assert (session.state.pane, session.said) == (MATRICES, "")


def test_weights_that_came_ready_have_a_rollout_where_they_are_square_and_no_other_setting(tmp_path):
    for shape, has_rollout in (((2, 1, 3, 3), True), ((2, 1, 2, 3), False), ((1, 1, 3, 3), False)):
        path = tmp_path / "w.npy"
        np.save(path, np.random.default_rng(0).dirichlet([1.0] * 3, shape[:-1]))
        source = WeightsSource(read_saved(path.read_bytes(), "w.npy", None, None), "w.npy")
        session = session_of("", source)
        assert source.has_rollout(session.trace) == has_rollout
        others = {"temperature": 2.0, "without": ("k0",), "score": "dot", "knock_out": ("0.0",)}
        for name, value in others.items():
            with pytest.raises(UsageError, match="These weights came ready"):
                source.compute(Question("", Settings(**{name: value})))
        session.state = session.state.showing(STEPS)
        assert command_line(session.state, session.seen) == "attn show w.npy"
        save(session.trace, View(), str(tmp_path / "view.JSON"))
        assert json.loads((tmp_path / "view.JSON").read_text())["weights"] == session.trace.weights.tolist()
        with pytest.raises(UsageError, match="Cannot save the view as"):
            save(session.trace, View(), "view.png")


def test_a_recording_holds_times_to_the_millisecond(tmp_path):
    path = tmp_path / "a.jsonl"
    recorder = Recorder(str(path), FOX)
    recorder.began -= 1.23456
    recorder.write("do", "choose", numbers=(1, 2))
    first, second = path.read_text().splitlines()  # each is there at once
    assert json.loads(first) == {"recording": "attn-live/1", "text": FOX}
    recorder.stream.close()
    at = json.loads(second)["at"]
    assert at == round(at, 3) and round(at, 1) != at
    assert read_recording(str(path)) == (FOX, (Event(at, "do", "choose", None, (1, 2)),))
    head = '{"recording": "attn-live/1", "text": 3}\n'
    event = '{"at": %s, "do": "choose", "numbers": [%s]}\n'
    path.write_text(head + event % (3600, "1, 2") * 2 + "  \n" + event % (7200, "1, 2"))
    text, events = read_recording(str(path))
    assert (text, [one.at for one in events]) == (None, [3600.0, 3600.0, 7200.0])


def test_no_word_is_written_that_stands_for_unknown_ones():
    session = session_of("Mr", projection="language", next=3)
    found = session.trace.next_words
    session.trace = replace(session.trace, next_words=found._replace(words=found.words[2:]))
    session.press("write_on")
    assert (session.said[:32], session.state.question.text) == ("This model says no next token: i", "Mr")


def test_a_mask_that_was_given_is_followed_by_the_first_rule(tmp_path):
    path = tmp_path / "mask.json"
    path.write_text("[[1, 0], [1, 1]]")
    session = press(session_of("she likes", mask=str(path), mask_true="allowed"), "mask")
    settings = session.state.question.settings
    assert (settings.mask, settings.mask_true, session.said) == ("none", None, "")


def test_panes_stand_below_or_beside_each_other_where_there_is_room_and_long_ones_say_where_they_are():
    session = session_of()
    for size, has_row in (((50, 13), True), ((49, 23), False), ((80, 13), True), ((80, 12), False)):
        assert any("looks at" in line for line in scene(session, *size)[1]) == has_row
    compared = press(session_of(), "hotter", "compare")
    for height in (16, 17):  # a note, three lines, ten of the matrix, its shades, two of the bars
        lines = " ".join(line[:79].rstrip() for line in scene(compared, 160, height)[1])
        assert "shades: " in lines and ("every query keeps its strongest key." in lines) == (height == 17)
    for height in (8, 9):  # four lines of a matrix, two of a legend, one that is free, two of the bars
        shown = scene(session_of("a b c", mask="causal"), 30, height)[1]
        assert any("shades: " in line for line in shown) and ("masked" in shown) == (height == 9)
    for width in (119, 120):
        assert ("│" in scene(session, width, 30)[1][0]) == (width == 120)
    assert slider(1.5, Terminal(80)) == "──────●────"  # 10 ln(1.5 / 0.05) / ln(20 / 0.05) = 5.7
    assert scene(press(session, "step"))[1][0].startswith("Step 1 of 8; d: the next")
    assert "Copied to" not in " ".join(scene(press(session, "command"))[1])
    session.commands.append(command_line(session.state, session.seen))
    assert "Copied to" in " ".join(scene(session)[1])
    last = scene(press(session, "help"))[1][19]
    assert last.startswith("Esc: back. Arrows, PgDn: more (lines 1-19 of ")
    assert scene(press(session, "move 999 0"))[0].scrolled == int(last.split(" of ")[1].rstrip(").")) - 19
