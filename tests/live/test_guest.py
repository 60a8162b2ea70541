"""The real program on a terminal: it is given back on every way out, and nothing hostile is obeyed."""

import os
import pty
import random
import re
import signal
import subprocess
import sys

import pytest

pytest.importorskip("textual")

import pexpect

from attn_cli.cli.app import main
from attn_cli.live.guest import Gate
from tests.cli.tables import told
from tests.live.stage import FOX, made, play
from tests.shell import attn, surroundings, terminal, wait_for
from tests.stage import Stage
from tests.thorough import takes_long

HOSTILE = [
    "\x1b[31mred", "\x1b]0;title\x07", "\x9b31m", "‮evil", "a​b", "[red]x[/red]", "[/b]", ":smile:", "\x00",
    "\x1bP+q\x1b\\", "<b>&", "\ud800", "​", "[@click=app.exit]x[/]", "\u2028",
]  # fmt: skip
FAILING = """
import attn_cli.live.sources as sources
compute = sources.TextSource.compute
def failing(self, question):
    assert question.settings.temperature == 1, "made to fail"
    return compute(self, question)
sources.TextSource.compute = failing
from attn_cli.__main__ import run
run()
"""
MODES = re.compile(rb"\x1b\[\?(\d+)([hl])")


def ready(stage):
    return "quit" in stage.screen()[-1]


def shows(stage, *words):
    """Wait until all that is said stands on the screen."""
    stage.wait_for(lambda stage: all(one in "\n".join(stage.screen()) for one in words))


def quits(stage):
    stage.press("q")
    assert stage.code() == 0


def left(stage):
    state = {int(mode): way == b"h" for mode, way in MODES.findall(stage.shown)}
    return {mode for mode, is_on in state.items() if is_on} - {7, 25}, state


WAYS = {"q": 0, "\x03": 130, signal.SIGTERM: 143, signal.SIGHUP: 129, signal.SIGINT: 130}
STATES = {"board": "", "typing": "t", "help": "?", "prompt": "w"}
KEYS = (*"mhHls+-xvddDbuc?tw\r\x1b\t", "cat", *(f"\x1b[{key}" for key in ("A", "B", "C", "D", "6~", "H")))
SIZES = ((80, 24), (40, 12), (120, 40), (100, 30))
ENDS = [("q", "board"), ("\x03", "typing"), (signal.SIGTERM, "help"), (signal.SIGHUP, "prompt")]
MORE = [(way, state) for way in WAYS for state in STATES if way != "q" or state not in ("typing", "prompt")]
MORE += [(way, seed) for seed in range(20) for way in WAYS if way != "q"]
MORE = [pytest.param(*one, marks=takes_long) for one in MORE if one not in ENDS]


@pytest.mark.parametrize(("how", "state"), [*ENDS, *MORE], ids=str)
def test_the_terminal_is_as_before_on_every_way_out(how, state, at):
    with Stage("live", FOX) as stage:
        stage.wait_for(ready)
        before = stage.before
        assert stage.modes() != before
        stage.press(*STATES.get(state, ""))
        draw = random.Random(state) if isinstance(state, int) else None  # keys and sizes at random
        for key in draw.choices(KEYS, k=draw.randrange(6)) if draw else ():
            stage.press(key)
            stage.resize(*draw.choice(SIZES))
        if isinstance(how, str):
            stage.press(how)
        else:
            stage.read(0.2)
            os.kill(stage.run.pid, how)
        assert stage.code() == WAYS[how]
        assert stage.modes() == before
        on, state = left(stage)
        assert not on, "every mode that was set is taken back"
        assert state[25] and state.get(7, True) and not state[1049]


def test_it_begins_at_the_terminals_size_under_the_mask_and_the_command_asked_for_is_left_at_the_end(at):
    (at / "m.json").write_text('{"X": [[1, 0], [0, 1]], "score": "dot", "mask": "none", "temperature": 2}')
    others = {"ATTN_SCORE": "cosine", "ATTN_MASK": "causal", "ATTN_TEMPERATURE": "3"}
    with Stage("live", "--matrices", "m.json", env=others) as stage:
        shows(stage, "mask none  temperature 2", "score dot")
        quits(stage)
    with Stage("live", FOX, "--mask", "causal", env={"COLUMNS": "200", "LINES": "70"}) as stage:
        shows(stage, "Likeliest to come after", "article  layer")
        stage.resize(120, 40)
        shows(stage, "head article (")
        stage.resize(40, 12)
        stage.wait_for("q quit")
        shows(stage, "jumped")
        quits(stage)
    with Stage("live", FOX, env={"LC_ALL": "C"}) as stage:
        shows(stage, "LC_ALL=C.UTF-8 has blocks")  # in this locale it is ASCII
        stage.press("m")
        shows(stage, "mask causal")
        stage.press("c")
        shows(stage, "The command of this view")
        quits(stage)
        after = stage.shown.rpartition(b"\x1b[?1049l")[2].decode()
        assert f"attn self '{FOX}' --mask causal" in after
        assert b"\x1b]52;c;" in stage.shown


@takes_long
def test_a_failing_worker_ends_it_with_a_report_on_a_terminal_that_is_whole(tmp_path):
    path = tmp_path / "failing.py"
    path.write_text(FAILING)
    script = f"{sys.executable} {path} live 2> {tmp_path}/errors; echo code $?"
    child = pexpect.spawn("sh", ["-c", script], env=surroundings(), dimensions=(24, 80), timeout=60)
    child.expect("quit")
    child.send("+")
    child.expect(r"code (\d+)")
    assert child.match[1] == b"70"
    said = (tmp_path / "errors").read_text()
    assert said.startswith("attn: A bug in attn: AssertionError: made to fail") and said.count("\n") == 1
    assert b"\x1b[?1049l" in child.before


@pytest.mark.parametrize("some", range(5))
def test_hostile_text_is_inert_in_every_pane(some):
    async def act(stage):
        for keys in ("", ["enter"], ["escape", "d"], ["escape", "b"], "bc", ["escape", *"mv"], ["escape"]):
            await stage.press(*keys)
            shown = "".join(strip.text for strip in stage.app.screen._compositor.render_strips())
            assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u202e\u2028\ud800]", shown)

    play(act, made(" ".join(f"{token} cat {token}{token} sat" for token in HOSTILE[some::5])))


@pytest.mark.parametrize(
    "env", [{"NO_COLOR": "1"}, {"TERM": "xterm"}, {"COLORTERM": "truecolor"}, {}], ids=str
)
def test_colours_are_those_that_the_terminal_has(env):
    with Stage("live", FOX, env={"TERM": "xterm-256color"} | env) as stage:
        stage.wait_for(ready)
        stage.press("q")
        stage.code()
    codes = set(re.findall(rb"\x1b\[([\d;]+)m", stage.shown))
    rgb, indexed = (any(re.search(rb"[34]8;" + kind, code) for code in codes) for kind in (b"2", b"5"))
    if "NO_COLOR" in env:
        attributes = {b"0", b"1", b"2", b"7", b"4", b"39", b"49"}  # 39 and 49: those of the terminal
        assert all(set(code.split(b";")) <= attributes for code in codes)
    else:
        assert rgb == ("COLORTERM" in env) and (rgb or indexed == (not env))


REFUSED = """
--matrices no-such.json => 66 | --replay no-such.jsonl => 66 | ... => 65 | --pace 2 => 2 | - => 2 | a b => 2
--replay no-such --pace 0 => 2 | --replay no-such --pace 1001 => 2 | --replay no-such --pace 1000 => 66
a --weights w.npy => 2 | the --mask caussal => 2
"""


def test_a_stream_that_is_no_terminal_and_an_input_that_is_refused_are_refused_before_the_screen_is_taken():
    said = "attn live reads keys, and standard input is not a terminal. For a text in a pipe: attn self -"
    assert attn("live", FOX) == (2, "", f"attn: {said}\n")
    for term in ("dumb", "unknown", None):
        with Stage("live", env={"TERM": term}) as stage:
            assert stage.code() == 2
            assert b"needs a terminal that can be drawn on" in stage.shown
    for line, code in told(REFUSED):
        ran = terminal("live", *line)
        assert ran.code == int(code) and "\x1b[?1049h" not in ran.out, ran.out


def test_without_textual_the_message_is_the_install_line(without, monkeypatch, capsys):
    without("textual")
    for stream in (sys.stdin, sys.stdout):
        monkeypatch.setattr(stream, "isatty", lambda: True)
    assert main(["live"]) == 69
    assert "pip install 'attn-cli[live]'" in capsys.readouterr().err


def test_a_terminal_that_vanishes_under_nohup_ends_it():
    pid, terminal_end = pty.fork()
    if not pid:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # what nohup does
        os.execve(sys.executable, [sys.executable, "-m", "attn_cli", "live", FOX], surroundings())
    shown = b""
    while b"quit" not in shown:
        shown += os.read(terminal_end, 1 << 16)
    os.close(terminal_end)
    try:  # no thread is left that reads a terminal that has gone
        wait_for(lambda: os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT), limit=30)
    finally:
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) in (-signal.SIGTERM, 128 + signal.SIGTERM)


@takes_long
def test_nothing_is_drawn_once_the_terminal_is_given_back():
    reads, writes = os.pipe()
    gate = Gate(writes, "utf-8")
    assert gate.write("drawn ") == 6
    gate.shut("given back")
    assert gate.write("late") == 4  # as if it were written, for whoever draws
    os.close(writes)
    with open(reads, "rb") as stream:
        assert stream.read() == b"drawn given back"


def test_it_goes_on_after_signals_to_continue_in_the_middle_of_drawing():
    with Stage("live", FOX) as stage:
        stage.wait_for(ready)
        for _ in range(12):
            stage.press("m", "+")
            os.kill(stage.run.pid, signal.SIGCONT)
            stage.read(0.02)
        while stage.read(0.8):  # a key that comes while the terminal is taken over again may be lost
            pass
        stage.press("?")
        shows(stage, "Keys")
        quits(stage)


@pytest.mark.parametrize(("asked", "frames"), [(None, 1000), ("30", 30)])
def test_no_answer_waits_for_a_frame_unless_the_environment_asks_for_fewer(asked, frames):
    code = "import attn_cli.live.app; from textual.constants import MAX_FPS; print(MAX_FPS)"
    env = surroundings({"TEXTUAL_FPS": asked})
    assert int(subprocess.check_output([sys.executable, "-c", code], env=env)) == frames
