"""The terminal: messages, bars, and keys; and what a fault of a command that writes leaves."""

import contextlib
import io
import json
import os
import pty
import signal
import sys

import pytest

from attn_cli.io import progress
from attn_cli.io.console import folded
from attn_cli.io.raw_terminal import REDRAW, RawTerminal
from tests.cli.tables import typed
from tests.shell import ROOT, attn, shell, terminal
from tests.thorough import often, takes_long

PATH = "/no/such/" + "folder/" * 12 + "weights.json"
WRONG = f"""
self "the cat" --mask casual | self "the cat" -f jsn | self "the cat" -p {PATH} | self "the cat" --head sbject
self the cat sat | self "{"漢字 " * 30}" -q 語 | compute {PATH} | check {PATH} --expect {PATH} | vectors neerest
vectors info {PATH}
"""


@pytest.mark.parametrize("columns", [40, 60, 80])
@pytest.mark.parametrize("args", typed(WRONG))
def test_a_message_on_a_terminal_is_broken_between_words_only(args, columns):
    whole = attn(*args)
    assert whole.code and whole.err.count("\n") == 1, "in a pipe it is one line"
    code, out, _ = terminal(*args, columns=columns)
    assert (code, " ".join(map(str.strip, out.splitlines()))) == (whole.code, whole.err.strip())
    assert all(len(line) <= columns or " " not in line.strip() for line in out.splitlines())


def test_columns_beat_the_terminal_and_count_for_nothing_in_a_pipe_an_error_object_stays_one_line_a_note_is_broken():
    args = ["self", "the cat", "--mask", "casual"]
    narrow = terminal(*args, columns=120, env={"COLUMNS": "40"}).out.splitlines()
    assert len(narrow) > 2 and max(map(len, narrow)) <= 40
    assert attn(*args, env={"COLUMNS": "40"}).err == attn(*args).err
    assert json.loads(terminal(*args, "-f", "json", columns=40).out)["error"]["code"] == 2
    shown = terminal("self", "zzxq likes coffee", "--dim", "3", "-f", "csv", columns=40)
    said = [line for line in shown.out.splitlines() if "," not in line or "attn" in line]
    assert any(line.startswith("attn: ") for line in said) and max(map(len, said)) <= 40


def test_folding_loses_nothing_and_breaks_no_word():
    text = "Cannot read  /a/very/long/path/of/one/word.npy: it  is 漢字漢字漢字 not there."
    for width in range(4, 90):
        first, *rest = folded(text, width, 2)
        assert " ".join([first, *(line.removeprefix("  ") for line in rest)]).split() == text.split()
    assert folded(text, 200) == [text]
    for word, cells in (("漢字", 4), ("ＡＢ", 4), ("e\u0301a\u0301", 2)):
        both = f"{word} {word}"
        assert folded(both, 2 * cells) == [word, word] and folded(both, 2 * cells + 1) == [both]


class Screen(io.StringIO):
    """A terminal on descriptor 1."""

    encoding, isatty, fileno = "utf-8", lambda self: True, lambda self: 1


@pytest.mark.parametrize("quarter, said", [(2.5, ""), (100, ", 5:00 left"), (2000, ", 1:40:00 left")])
def test_the_bar_of_long_work_tells_the_time_that_is_left(quarter, said, monkeypatch):
    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(progress, "monotonic", lambda: 0.0)
    with progress.Progress("Work") as report:
        report(0)
        monkeypatch.setattr(progress, "monotonic", lambda: quarter)
        report(0.25)
        assert f" 25 %{said}" in screen.getvalue() and (said or "left" not in screen.getvalue())
        report.rate(1, "lines", 0.25)
        report.rate(2, "lines", 0.25)  # at once, too soon to be read
        assert "1 lines" in screen.getvalue() and "2 lines" not in screen.getvalue()
    assert screen.getvalue().endswith("\r"), "the bar goes"


@pytest.fixture
def own_terminal(monkeypatch):
    """A terminal of its own in the place of /dev/tty and of standard output."""
    ours, its = pty.openpty()

    def opened(path, *more, real=os.open):
        return os.dup(its) if path == "/dev/tty" else real(path, *more)

    monkeypatch.setattr(os, "open", opened)
    yield
    os.close(ours)
    os.close(its)


@contextlib.contextmanager
def handling(number, act):
    before = signal.signal(number, lambda number, frame: act())
    yield
    signal.signal(number, before)


def test_a_signal_that_comes_before_the_wait_for_a_key_ends_the_wait(own_terminal):
    with handling(signal.SIGUSR1, lambda: None), RawTerminal() as screen:
        assert screen.key(0) is None
        os.kill(os.getpid(), signal.SIGUSR1)  # handled here and now, before anybody waits
        assert screen.key(5) == REDRAW
    assert signal.set_wakeup_fd(-1) == -1, "it is as it was"


def test_a_signal_while_it_is_given_back_does_not_give_it_back_again(own_terminal, monkeypatch):
    sent = []

    def write(data):
        sent.append(data)
        os.kill(os.getpid(), signal.SIGTERM)  # as a process manager's, at the end of a talk

    screen = RawTerminal(second_screen=True)
    with handling(signal.SIGTERM, screen._give_back), screen:
        monkeypatch.setattr(screen.screen, "write", write)
    assert len(sent) == 1


@pytest.mark.skipif(os.name != "posix", reason="needs fork and signals")
@takes_long
def test_after_a_fault_there_is_the_old_or_the_new_and_the_right_exit_code():
    ran = shell(f"{sys.executable} -m tests.faults --sample {often(4)} --seed 14", cwd=ROOT, timeout=600)
    assert ran.code == 0, ran
    assert " 0 wrong" in ran.out.splitlines()[-1]
