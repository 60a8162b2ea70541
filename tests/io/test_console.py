"""The terminal: messages, bars, and keys; and what a fault of a command that writes leaves."""

import io
import json
import os
import pty
import signal
import sys
from itertools import pairwise

import pytest

from attn_cli.io import progress
from attn_cli.io.console import columns, folded, put_plain, say
from attn_cli.io.raw_terminal import REDRAW, RawTerminal, is_unfinished, names_of
from attn_cli.io.signals import handled
from attn_cli.io.terminal import Terminal
from attn_cli.io.types import Stage
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
        assert all(line.startswith("  ") == (width > 8) for line in rest), "where there is room"
    assert folded(text, 200) == [text] and folded("aa bb cc", 5) == ["aa bb", "cc"]
    for word, cells in (("漢字", 4), ("ＡＢ", 4), ("e\u0301a\u0301", 2)):
        both = f"{word} {word}"
        assert folded(both, 2 * cells) == [word, word] and folded(both, 2 * cells + 1) == [both]


@pytest.mark.parametrize(("name", "write", "end"), [("stderr", say, b"\n"), ("stdout", put_plain, b"")])
def test_what_a_stream_cannot_encode_is_spelled_out(name, write, end, monkeypatch):
    monkeypatch.setattr(sys, name, stream := io.TextIOWrapper(io.BytesIO(), "ascii"))
    write("é 漢")
    assert stream.buffer.getvalue() == rb"\xe9 \u6f22" + end
    assert Terminal(encoding="ascii").text("a\u2423é\x1b") == r"a_\xe9^["


class Screen(io.StringIO):
    """A terminal on descriptor 1."""

    encoding, isatty, fileno = "utf-8", lambda self: True, lambda self: 1


@pytest.mark.parametrize("quarter, said", [(4, ""), (5, ""), (6, ", 0:18 left"), (2000, ", 1:40:00 left")])
def test_the_bar_of_long_work_tells_the_time_that_is_left(quarter, said, monkeypatch):
    screen, now = Screen(), 0.0
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(progress, "monotonic", lambda: now)
    with progress.Progress("Work") as report:
        report(0)
        report.rate(0, "lines", 0.0)
        now = quarter
        report(0.25)
        report(0.2599)  # the same percent
        report.rate(9000, "lines", 0.25)
        report.rate(2, "lines", 0.25)  # at once, too soon to be read
        now = quarter + 1
        report.rate(9 * (quarter + 1), "rows", None)
    begun, quarterly = f"Work {' ' * 30}   0 %", f"Work {'━' * 7}{' ' * 23}  25 %"
    lines = [begun, f"{begun}  0 lines, 0 a second, ? left", f"{quarterly}{said}"]
    left = progress.clock(3 * quarter)
    lines.append(f"{quarterly}  9,000 lines, {9000 / quarter:,.0f} a second, {left} left")
    lines.append(f"Work {9 * (quarter + 1):,} rows, 9 a second")
    drawn = screen.getvalue().split("\r")
    assert [line.rstrip() for line in drawn] == ["", *lines, "", ""], "the bar goes"
    covers = [len(line) >= len(before.rstrip()) for before, line in pairwise(drawn[:-1])]
    assert all(covers), "and covers the last one"


STAGES = {
    ("one", 0.0, 0, 0.0): "  0%  0 words/s  0:00 left",
    ("one", 0.15, 300, 3.0): " 15%  100 words/s  0:17 left",
    ("one", 0.25, 1000, 5.0): " 25%  200 words/s  0:15 left",
    ("one", 0.29, 9000, 20.0): " 29%  450 words/s  0:49 left",
    ("one", 1.0, 9999, 20.5, "loss 0.5"): "100%  loss 0.5  488 words/s  0:00 left",
    ("two", 0.25, 3000, 1.0): " 25%  3,000 words/s  0:03 left",
    ("two", 0.35, 2950, 5.9): " 35%  500 words/s  0:11 left",
}


@pytest.mark.parametrize(("encoding", "full", "empty"), [("utf-8", "━", " "), ("ascii", "=", ".")])
def test_training_is_a_bar_on_a_terminal_and_elsewhere_a_line_at_times(encoding, full, empty, monkeypatch):
    def shown(screen, quiet=False):
        monkeypatch.setattr(sys, "stderr", screen)
        with progress.TrainingBar(quiet) as bar:
            for stage in STAGES:
                bar(Stage(*stage))
            bar.tell("Done.")
        return screen.getvalue()

    monkeypatch.setenv("COLUMNS", "60")
    screen = Screen()
    screen.encoding = encoding
    bars = (full * int(30 * done) + empty * (30 - int(30 * done)) for _, done, *_ in STAGES)
    whole = [f"{of[0]} {bar} {said}"[:59] for bar, (of, said) in zip(bars, STAGES.items(), strict=True)]
    assert [line.rstrip() for line in shown(screen).split("\r")] == ["", *map(str.rstrip, whole), "", "Done."]
    lines = [f"attn: {of[0]}: {said} in this pass\n" for of, said in STAGES.items()]
    assert shown(io.StringIO()) == "".join(lines[n] for n in (0, 2, 4, 5)) + "Done.\n"
    assert shown(io.StringIO(), quiet=True) == "Done.\n"


WIDTHS = dict.fromkeys(("", "0", "-30", "3O", "٣٠", "100000000")) | {"1": 20, "20": 20, "21": 21}
WIDTHS |= dict.fromkeys(("10000", "10001", "99999999"), 10_000)
KEYS = {
    b"\x1b[1~\x1b[7~\x1b[H\x1bOH": ["home"] * 4,
    b"\x1b[4~\x1b[8~\x1b[F\x1bOF": ["end"] * 4,
    b"\x1b[A\x1bOB\x1b[C\x1bOD": ["up", "down", "right", "left"],
    b"\x1b[5~\x1b[6;3~\x1b[1;2A\x1b\x1b[B": ["pageup", "pagedown", "up", "down"],  # with Shift or Alt, too
    b"\r\n\x7f\b\x0c\x1b": ["enter", "enter", "backspace", "backspace", "redraw", "escape"],
    "é漢\x1bx\x1b[[A\x1b[99~".encode(): ["é", "漢", "\x1bx", "\x1b[[A", "\x1b[99~"],
}


def test_columns_are_brought_within_bounds_and_keys_have_one_name_on_every_terminal():
    assert {text: columns(text) for text in WIDTHS} == WIDTHS
    assert {data: names_of(data) for data in KEYS} == KEYS
    for whole in (b"\x1b[1;5C", b"\x1bOA", b"\x1b[[A"):
        parts = [is_unfinished(b"q" + whole[:end]) for end in range(1, len(whole))]
        assert all(parts) and not is_unfinished(whole)


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


def test_a_signal_that_comes_before_the_wait_for_a_key_ends_the_wait(own_terminal):
    with handled(lambda *_: None, signal.SIGUSR1), RawTerminal() as screen:
        assert screen.key(0) is None
        os.kill(os.getpid(), signal.SIGUSR1)  # handled here and now, before anybody waits
        assert screen.key(5) == REDRAW
    assert signal.set_wakeup_fd(-1) == -1, "it is as it was"


def test_a_terminal_has_a_size_and_a_signal_while_it_is_given_back_ends_it_once(own_terminal, monkeypatch):
    sent = []

    def write(data):
        sent.append(data)
        os.kill(os.getpid(), signal.SIGTERM)  # as a process manager's, at the end of a talk

    screen = RawTerminal(second_screen=True)
    with handled(lambda *_: screen._give_back(), signal.SIGTERM), screen:
        for told, size in (((0, 30), (80, 30)), ((100, 0), (100, 24))):  # the usual width or height
            monkeypatch.setattr(os, "get_terminal_size", lambda number, told=told: os.terminal_size(told))
            assert screen.size() == size
        monkeypatch.setattr(screen.screen, "write", write)
    assert len(sent) == 1


@pytest.mark.skipif(os.name != "posix", reason="needs fork and signals")
@takes_long
def test_after_a_fault_there_is_the_old_or_the_new_and_the_right_exit_code():
    ran = shell(f"{sys.executable} -m tests.faults --sample {often(4)} --seed 14", cwd=ROOT, timeout=600)
    assert ran.code == 0, ran
    assert " 0 wrong" in ran.out.splitlines()[-1]
