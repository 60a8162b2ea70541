"""What attn live leaves: command lines that make the view again, files, recordings that can be replayed."""

import asyncio
import json
import shlex
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("textual")

from textual.events import Paste

from attn_cli.cli.read_text import labelled_weights
from attn_cli.errors import CreateError, InputError, visible
from attn_cli.io.types import replace
from attn_cli.live import recording
from attn_cli.live.keys import ROW
from attn_cli.live.recording import Recorder, Replay, read_recording
from attn_cli.live.session import begin, command_line, copied, osc52, unsaid
from attn_cli.live.sources import TextSource, WeightsSource
from attn_cli.settings import Settings, View, find_rows
from tests.io.test_escape import PASTES
from tests.live.stage import FOX, Stage, made, play, staged, traced
from tests.shell import here, pasted, shell
from tests.thorough import takes_long

VIEWS = [
    *(("", {}, FOX), ("m+hsx", {}, FOX), ("-MH", {}, FOX), ("l", {"projection": "roles-deep"}, FOX)),
    ("", {"embedding": "random", "seed": 3, "dim": 8}, "the 'cat' sat; $HOME `ls` \\ \"quoted\""),
    ("", {"keep_punctuation": True}, "-e random, she said"),
]


@pytest.mark.parametrize(("keys", "settings", "text"), VIEWS)
def test_the_command_line_makes_the_same_numbers(keys, settings, text):
    async def act(stage):
        await stage.press(*keys, "c")
        await stage.goes(("", stage.session.commands[0], "Copied to "))

    session = play(act, made(text, Settings(**settings)), size=(200, 24)).session
    words = shlex.split(session.commands[0])
    ran = here(*words[1:2], "-f", "json", *words[2:])
    assert (words[0], ran.code) == ("attn", 0), ran.err
    np.testing.assert_allclose(np.array(json.loads(ran.out)["weights"], float), session.trace.weights)


def told(text, source=None):
    settings = Settings() if source else Settings(tokenizer="whitespace", next=None)
    session = begin(source or TextSource(settings), text, settings, View())
    line = command_line(session.state, session.seen)
    return line, unsaid(line, session.state.question, 1)


@pytest.mark.parametrize(("text", "typed"), [("a 3 b a", "a"), ("a 2 b a", "3"), ("a 3 a b", "b")])
def test_a_row_is_named_by_its_number_only_where_no_other_token_is_that_number(text, typed):
    settings = Settings(tokenizer="whitespace")
    session = begin(TextSource(settings), text, settings, View())
    line = command_line(replace(session.state, row=3, pane=ROW), session.seen)
    assert shlex.split(line)[-2:] == ["-q", typed] and 3 in find_rows(typed, session.trace.query_tokens)


def test_a_command_line_holds_no_control_bash_reads_the_text_back_and_what_it_cannot_hold_is_said(at):
    texts = [one for one in PASTES.split("|") if "\udcff" not in one]
    lines, notes = zip(*map(told, texts), strict=True)
    assert [visible(line) for line in lines] == [*lines] and all("bash and zsh" in said for said in notes)
    assert all(text in words for text, words in zip(texts, pasted(lines, locale="C"), strict=True))
    line, said = told("fox\0jumped")
    assert pasted([line])[0][1] == "fox\ufffdjumped"
    assert said == "U+FFFD stands in the line for characters that no argument can hold."
    ran = shell(f"{told('-')[0]} -f json")
    assert json.loads(ran.out)["query_tokens"] == ["-"]
    Path("-w.json").write_text('{"weights": [[1.0]], "tokens": ["fox"]}')
    line, _ = told("", WeightsSource(labelled_weights("-w.json", "show"), "-w.json"))
    assert here(*shlex.split(line)[1:]).code == 0


def test_the_copy_is_osc_52_and_gnu_screen_is_told_to_pass_it_on(monkeypatch):
    for variable in ("STY", "TMUX"):
        monkeypatch.delenv(variable, raising=False)
    assert (osc52("attn"), osc52("é")) == ("\x1b]52;c;YXR0bg==\x07", "\x1b]52;c;w6k=\x07")
    monkeypatch.setenv("STY", "1.pts")
    assert copied().startswith("Copied to the clipboard where the terminal allows it (OSC 52).")
    parts = osc52("attn " * 500).split("\x1b\\")
    assert all(part.startswith("\x1bP") and len(part) <= 702 for part in parts[:-1]) and not parts[-1]
    monkeypatch.setenv("TMUX", "/tmp/tmux")
    assert copied().startswith("Copied to tmux") and osc52("attn") == "\x1b]52;c;YXR0bg==\x07"


@staged()
async def test_w_writes_what_the_command_would_offers_a_free_name_and_asks_before_it_overwrites(stage, at):
    await stage.press("m")
    for suffix, *steps in (("svg",), ("html",), ("json", "--steps"), ("md",), ("csv",)):
        await stage.press("w")
        await stage.answer(f"view.{suffix}", f"Written: view.{suffix}")
        assert here("self", FOX, "--mask", "causal", "-o", f"other.{suffix}", *steps).code == 0
        assert (at / f"view.{suffix}").read_bytes() == (at / f"other.{suffix}").read_bytes()
    (path := at / "attn-live.svg").write_text("mine")
    (link := at / "attn-live-1.svg").symlink_to("nowhere.svg")
    for last in ("escape", "enter"):
        await stage.press("w")
        assert stage.app.line.value == "attn-live-2.svg"
        for name in (link.name, path.name):  # it asks for each
            await stage.answer(name, f"{name} exists. Enter again overwrites it; Esc does not.")
        assert path.read_text() == "mine"
        await stage.press(last)
        assert path.read_text().startswith("mine" if last == "escape" else "<svg")
    link.unlink()
    await stage.press("w")
    for name in ("view.exe", "view", "view.npy", "no/such/folder.svg"):
        await stage.answer(name)
        assert "Cannot save the view as" in stage.text() or "Cannot create" in stage.text()
        assert stage.app.line.has_focus
    await stage.press("escape")
    assert not stage.app.line.has_focus
    assert {file.stem for file in at.iterdir()} == {"view", "other", path.stem}


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """A session, and the text and the events of its recording."""

    async def act(stage):
        await stage.press("m", "+", "down", "right", "t", *["backspace"] * 3)
        await stage.type("cat")
        stage.app.post_message(Paste(" sat"))
        await stage.settled()
        await stage.press("escape", "enter")
        await stage.click("mask causal")
        await stage.click("●", by=2)
        await stage.press("escape", "x")
        await stage.click_at(stage.lines()[0].index("fox") + 2, 2, times=2)

    path = str(tmp_path_factory.mktemp("demo") / "demo.jsonl")
    recorder = Recorder(path, FOX)
    session = play(act, made(recorder=recorder)).session
    recorder.stream.close()
    return session, *read_recording(path)


@pytest.mark.parametrize("pace", [1000.0, pytest.param(5.0, marks=takes_long)])
def test_a_recording_is_replayed_to_the_same_end(demo, pace):
    first, text, events = demo
    assert (text, {event.kind for event in events}) == (FOX, {"key", "paste", "do"})
    done = [event.value for event in events if event.kind == "do"]
    assert done == ["mask", "slider", "choose", "choose", "open"]  # each once
    again = play(Stage.replayed, made(replay=Replay(events, pace))).session
    assert again.state == first.state and again.trace.query_tokens[-2:] == ("cat", "sat")
    np.testing.assert_allclose(again.trace.weights, first.trace.weights)


def test_a_replay_waits_from_one_event_to_the_next(monkeypatch):
    waited, done = [], []

    async def sleep(seconds):
        waited.append(seconds)

    async def do(event):
        done.append(event.at)

    monkeypatch.setattr("attn_cli.live.recording.asyncio.sleep", sleep)
    replay = Replay(tuple(recording.Event(at, "key", "x") for at in (1.0, 3.0, 4.0)), 2.0)
    asyncio.run(replay.run(do, lambda: True))
    assert done == [1.0, 3.0, 4.0]
    assert [one for one in waited if one > recording.LOOK] == pytest.approx([0.5, 1.0, 0.5])


def test_a_persons_key_takes_over_and_space_pauses(demo):
    late = tuple(event._replace(at=event.at + 60) for event in demo[2])

    async def act(stage):
        replay = stage.app.replay
        for is_paused in (True, False):
            await stage.press(" ")
            assert (replay.is_on, replay.is_paused) == (True, is_paused)
        await stage.press("s")
        assert not replay.is_on and "The replay has stopped; the keys are yours." in stage.text()
        np.testing.assert_allclose(stage.trace.weights, traced(score="dot").weights)

    play(act, made(replay=Replay(late)))


@pytest.mark.parametrize("look", [recording.LOOK, 0.0])  # a slow machine's loop turns once in a look
def test_a_replay_overwrites_nothing(look, at, monkeypatch):
    monkeypatch.setattr(recording, "LOOK", look)
    (at / "mine.svg").write_text("mine")
    recorder = Recorder("demo.jsonl", FOX)
    for key in ("w", "ctrl+u", *"mine", "full_stop", *"svg", "enter", "enter"):
        recorder.write("key", key, character={"full_stop": ".", "enter": "\r"}.get(key))
    recorder.stream.close()

    async def act(stage):
        await stage.replayed()
        assert stage.app.line.value == "mine.svg"
        assert "mine.svg exists, and a replay overwrites nothing." in stage.text()

    play(act, made(replay=Replay(read_recording("demo.jsonl")[1], 1000.0)))
    assert (at / "mine.svg").read_text() == "mine"


def test_a_full_disk_ends_the_recording_and_not_the_lecture():
    async def act(stage):
        await stage.press("?")
        assert "The recording has ended: No space left on device." in stage.text()
        await stage.press("m")
        assert stage.trace.mask is not None and "The recording" not in stage.text()

    with pytest.raises(CreateError, match="Cannot create no/such: No such file"):
        Recorder("no/such", FOX)
    recorder = Recorder("/dev/null", FOX)
    recorder.stream.close()
    with open("/dev/full", "wb", 0) as recorder.stream:
        play(act, made(recorder=recorder))


WRONG = """
=> line 1: no JSON object
[] => line 1: no JSON object
{"recording": "other"} => is not a recording
HEAD MANY => line 2: no JSON object
HEAD {"at": "x", "key": "m"} => line 2: no event with a time
HEAD {"at": 1, "what": "m"} => line 2: no event with a time
HEAD {"at": NaN, "key": "m"} => line 2: no event with a time
HEAD {"at": 2, "key": "m"}\\n\\n{"at": 1, "key": "m"} => line 4: its time, 1, does not follow 2
HEAD {"at": 3600.1, "key": "m"} => line 2: its time
HEAD {"at": 1, "do": "choose", "numbers": ["x"]} => line 2: no event that attn live knows
HEAD {"at": 1, "do": "choose", "numbers": [1, true]} => line 2: no event that attn live knows
HEAD {"at": 1, "do": "choose", "numbers": [1, 1e15]} => line 2: no event that attn live knows
HEAD {"at": 1, "do": "choose"} => line 2: no click that attn live knows
HEAD {"at": 1, "do": "mask", "numbers": [1]} => line 2: no click that attn live knows
HEAD {"at": 1, "do": "no such"} => line 2: no click that attn live knows
HEAD {"at": 1, "key": "m", "character": 1} => line 2: no event that attn live knows
"""


def test_a_file_that_is_no_recording_is_refused_with_its_line(tmp_path):
    path = tmp_path / "demo.jsonl"
    meant = WRONG.replace("\\n", "\r").replace("HEAD ", '{"recording": "attn-live/1"}\r')
    for line in meant.strip().split("\n"):
        text, _, said = line.partition("=> ")
        path.write_text(text.strip(" ").replace("\r", "\n").replace("MANY", "[" * 99999))
        with pytest.raises(InputError, match=said):
            read_recording(str(path))
