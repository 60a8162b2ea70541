"""The terminal that is taken over: what wakes it while it waits for a key."""

import os
import pty
import signal

import pytest

from attn_cli.io.raw_terminal import REDRAW, RawTerminal


@pytest.fixture
def terminal(monkeypatch):
    """A terminal of its own in the place of /dev/tty and of standard output."""
    ours, its = pty.openpty()
    real = os.open
    monkeypatch.setattr(
        os, "open", lambda path, *more: os.dup(its) if path == "/dev/tty" else real(path, *more)
    )
    yield
    os.close(ours)
    os.close(its)


def test_a_signal_that_comes_before_the_wait_for_a_key_ends_the_wait(terminal):
    before = signal.signal(signal.SIGUSR1, lambda number, frame: None)
    try:
        with RawTerminal() as screen:
            assert screen.key(0) is None
            os.kill(os.getpid(), signal.SIGUSR1)  # handled here and now, before anybody waits
            assert screen.key(5) == REDRAW
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert signal.set_wakeup_fd(-1) == -1, "it is as it was"


def test_a_signal_while_it_is_given_back_does_not_give_it_back_again(terminal, monkeypatch):
    sent = []

    def write(data):
        sent.append(data)
        os.kill(os.getpid(), signal.SIGTERM)  # as a process manager's, at the end of a talk

    screen = RawTerminal(second_screen=True)
    before = signal.signal(signal.SIGTERM, lambda number, frame: screen._give_back())
    try:
        with screen:
            monkeypatch.setattr(screen.screen, "write", write)
        assert len(sent) == 1
    finally:
        signal.signal(signal.SIGTERM, before)
