"""What attn live leaves: command lines that make the view again, files, recordings that can be replayed."""

import json
import shlex
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("textual")

from attn_cli.cli.read_text import labelled_weights
from attn_cli.errors import InputError
from attn_cli.io.escape import visible
from attn_cli.live.clipboard import osc52
from attn_cli.live.record import Recorder, read_recording
from attn_cli.live.replay import Replay
from attn_cli.live.sources import WeightsSource
from attn_cli.settings.settings import Settings
from tests.io.test_escape import PASTES
from tests.live.stage import FOX, made, play, traced
from tests.shell import here, pasted, shell
from tests.thorough import like_cases

VIEWS = [
    ((), {}, FOX),
    (("m", "plus", "h", "s"), {}, FOX),
    (("minus", "M", "H"), {}, FOX),
    (("l",), {"projection": "roles-deep"}, FOX),
    ((), {"embedding": "random", "seed": 3, "dim": 8}, "the 'cat' sat; $HOME `ls` \\ \"quoted\""),
    ((), {"keep_punctuation": True}, "-e random, she said"),
]


@pytest.mark.parametrize(("keys", "settings", "text"), VIEWS)
@like_cases
def test_the_command_line_makes_the_same_numbers(keys, settings, text):
    async def act(stage):
        await stage.press(*keys, "c")

    app = play(act, made(text, Settings(**settings)))
    words = shlex.split(app.commands[0])
    assert words[0] == "attn"
    ran = here(*words[1:2], "-f", "json", *words[2:])
    assert ran.code == 0, ran.err
    np.testing.assert_allclose(np.array(json.loads(ran.out)["weights"], float), app.session.trace.weights)


def test_the_command_line_of_a_row_of_a_step_and_of_a_difference():
    async def act(stage):
        await stage.press("enter", "c", "escape", "escape", "d", "d", "d", "c", "escape", "escape")
        await stage.press("m", "v", "c")

    commands = play(act).commands
    assert commands == [
        f"attn explain '{FOX}' -q jumped",
        f"attn explain '{FOX}' --only queries,keys,values",
        f"attn compare '{FOX}' --vary mask=none,causal",
    ]
    for command in commands:
        assert here(*shlex.split(command)[1:]).code == 0, command


def commands(text, settings=None, source=None):
    """Return the command line that `c` leaves, and what is said beside it."""
    said = []

    async def act(stage):
        await stage.press("c")
        said.append(stage.session.remark.more)

    (command,) = play(act, made(text, settings, source)).commands
    return command, said[0]


@pytest.mark.parametrize("text", [one for one in PASTES if "\udcff" not in one])
@like_cases
def test_a_command_line_holds_no_control_and_bash_reads_the_text_back(text):
    command, said = commands(text, Settings(tokenizer="whitespace"))
    assert visible(command) == command and "bash and zsh" in said
    assert text in pasted([command], locale="C")[0]


def test_a_dash_is_a_text_and_a_file_whose_name_begins_with_one_is_a_file(at):
    command, _ = commands("-", Settings(tokenizer="whitespace", next=None))
    ran = shell(f"{command} -f json")
    assert json.loads(ran.out)["query_tokens"] == ["-"]
    Path("-w.json").write_text('{"weights": [[1.0]], "tokens": ["fox"]}')
    saved = labelled_weights("-w.json", "show", None, None, None)
    command, _ = commands("", source=WeightsSource(saved, "-w.json"))
    assert shell(f"{command} -f json").code == 0


def test_what_no_command_line_can_hold_is_said():
    command, said = commands("fox\0jumped", Settings(tokenizer="whitespace"))
    assert pasted([command])[0][1] == "fox\ufffdjumped"
    assert said == "U+FFFD stands in the line for characters that no argument can hold."


def test_a_row_whose_token_occurs_twice_is_named_by_its_number():
    async def act(stage):
        await stage.press("home", *["up"] * 9, "enter", "c")

    assert play(act).commands == [f"attn explain '{FOX}' -q 0"]


def test_the_copy_is_osc_52_and_gnu_screen_is_told_to_pass_it_on(monkeypatch):
    monkeypatch.delenv("STY", raising=False)
    assert osc52("attn") == "\x1b]52;c;YXR0bg==\x07"
    monkeypatch.setenv("STY", "1.pts")
    monkeypatch.delenv("TMUX", raising=False)
    parts = osc52("attn " * 500).split("\x1b\\")
    assert all(part.startswith("\x1bP") and len(part) <= 702 for part in parts[:-1]) and not parts[-1]


@pytest.mark.parametrize("name", ["view.svg", "view.html", "view.json", "view.md", "view.csv"])
@like_cases
def test_w_writes_what_the_command_would(name, at):
    async def act(stage):
        await stage.press("m", "w", "ctrl+u")
        await stage.type(name)
        await stage.press("enter")
        assert f"Written: {name}" in stage.text()

    play(act)
    steps = ["--steps"] if name.endswith("json") else []
    ran = here("self", FOX, "--mask", "causal", "-o", f"other-{name}", *steps)
    assert ran.code == 0
    assert (at / name).read_bytes() == (at / f"other-{name}").read_bytes()


def test_w_offers_a_free_name_and_asks_before_it_overwrites(at):
    (at / "attn-live.svg").write_text("mine")

    async def act(stage):
        await stage.press("w")
        assert stage.app.line.value == "attn-live-1.svg"
        await stage.press("ctrl+u")
        await stage.type("attn-live.svg")
        await stage.press("enter")
        assert "exists. Enter again overwrites it" in stage.text()
        assert (at / "attn-live.svg").read_text() == "mine"
        await stage.press("escape")
        assert (at / "attn-live.svg").read_text() == "mine"
        await stage.press("w", "ctrl+u")
        await stage.type("attn-live.svg")
        await stage.press("enter", "enter")
        assert (at / "attn-live.svg").read_text().startswith("<svg")

    play(act)


@pytest.mark.parametrize("name", ["view.exe", "view", "view.npy", "no/such/folder.svg"])
def test_what_cannot_be_written_is_said_in_the_line(name, at):
    async def act(stage):
        await stage.press("w", "ctrl+u")
        await stage.type(name)
        await stage.press("enter")
        assert "Cannot save the view as" in stage.text() or "Cannot create" in stage.text()
        assert stage.app.line.has_focus
        await stage.press("escape")
        assert not stage.app.line.has_focus

    play(act)
    assert not list(at.iterdir())


def demo(path):
    """Record a short lecture, and return the program that gave it."""

    async def act(stage):
        await stage.press("m", "plus", "down", "right", "t", *["backspace"] * 3)
        await stage.type("cat")
        await stage.press("escape", "enter")
        await stage.click("mask causal")
        await stage.press("escape", "x")

    recorder = Recorder(str(path), FOX)
    app = play(act, made(recorder=recorder))
    recorder.close()
    return app


@pytest.mark.parametrize("pace", [1000.0, 5.0])
def test_a_recording_is_replayed_to_the_same_end(tmp_path, pace):
    first = demo(tmp_path / "demo.jsonl")
    recording = read_recording(str(tmp_path / "demo.jsonl"))
    assert recording.text == FOX
    assert any(event.kind == "do" for event in recording.events)

    async def act(stage):
        import asyncio

        while stage.app.tape.replay.is_on:
            await asyncio.sleep(0.02)
        await stage.settled()

    again = play(act, made(replay=Replay(recording.events, pace)))
    assert again.session.state.question == first.session.state.question
    assert again.session.state == first.session.state
    np.testing.assert_allclose(again.session.trace.weights, first.session.trace.weights)


def test_a_persons_key_takes_over_and_space_pauses(tmp_path):
    demo(tmp_path / "demo.jsonl")
    events = read_recording(str(tmp_path / "demo.jsonl")).events
    late = tuple(event._replace(at=event.at + 60) for event in events)

    async def act(stage):
        await stage.press("space")
        assert stage.app.tape.replay.is_paused and stage.app.tape.replay.is_on
        await stage.press("space")
        assert not stage.app.tape.replay.is_paused
        await stage.press("s")
        assert not stage.app.tape.replay.is_on
        np.testing.assert_allclose(stage.trace.weights, traced(score="dot").weights)
        assert "keys are yours" in stage.text() or stage.trace.score == "dot"

    play(act, made(replay=Replay(late, 1.0)))


def test_a_replay_overwrites_nothing(at):
    (at / "mine.svg").write_text("mine")
    recorder = Recorder("demo.jsonl", FOX)
    for key, character in [("w", "w"), ("ctrl+u", None), *((c, c) for c in "mine"), ("full_stop", ".")]:
        recorder.add("key", key, character)
    for key, character in [*((c, c) for c in "svg"), ("enter", "\r"), ("enter", "\r")]:
        recorder.add("key", key, character)
    recorder.close()

    async def act(stage):
        import asyncio

        while stage.app.tape.replay.is_on:
            await asyncio.sleep(0.02)
        await stage.settled()

    play(act, made(replay=Replay(read_recording("demo.jsonl").events, 1000.0)))
    assert (at / "mine.svg").read_text() == "mine"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", 1),
        ("[]", 1),
        ('{"recording": "other"}', 0),
        ('{"recording": "attn-live/1"}\n{"at": "x", "key": "m"}', 2),
        ('{"recording": "attn-live/1"}\n{"at": 1, "what": "m"}', 2),
        ('{"recording": "attn-live/1"}\n{"at": 2, "key": "m"}\n{"at": 1, "key": "m"}', 3),
        ('{"recording": "attn-live/1"}\n{"at": 1e9, "key": "m"}', 2),
        ('{"recording": "attn-live/1"}\n{"at": 1, "do": "choose", "numbers": ["x"]}', 2),
        ('{"recording": "attn-live/1"}\n{"at": NaN, "key": "m"}', 2),
    ],
)
def test_a_file_that_is_no_recording_is_refused_with_its_line(tmp_path, text, line):
    path = tmp_path / "demo.jsonl"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        read_recording(str(path))
    assert not line or f"line {line}" in str(caught.value)
