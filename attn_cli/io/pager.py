"""A long screen goes through the user's pager, as git does it; a short one, and what is not a screen, does not.

The pager's name comes from the environment alone, never from a file that lies in some folder.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from attn_cli.io.console import put_plain, say
from attn_cli.io.escape import visible
from attn_cli.io.signals import cleaned_up, handled

if TYPE_CHECKING:
    from subprocess import Popen

VARIABLES = ("ATTN_PAGER", "PAGER")
NONE = ("", "cat")  # what these are where nobody wants a pager
USUAL = "less"
OPTIONS = {"LESS": "FIRX", "LV": "-c"}  # quit if it fits, search in any case, colours, screen left as is
NOT_FOUND = (2, 126, 127)  # what a shell ends with where it cannot read the line, or cannot run the program
FOR_A_SHELL = frozenset("|&;<>()$`\\\"'*?[#~=%")  # as git has it: a pager with one of these is a shell's line
_COLOUR = "\x1b\\[[0-9;]*m"
_is_unused = False


@contextlib.contextmanager
def unused() -> Iterator[None]:
    """Print every screen plainly inside this block."""
    global _is_unused
    before, _is_unused = _is_unused, True
    try:
        yield
    finally:
        _is_unused = before


def put_screen(text: str) -> None:
    """Write a screen to standard output: on a terminal that is too small for it, through the user's pager."""
    variable = next((name for name in VARIABLES if name in os.environ), "")
    command = os.environ[variable].strip() if variable else USUAL
    is_wanted = command not in NONE and _is_too_long(text)
    if not is_wanted or not _paged(command, text):
        put_plain(text)
        if variable and is_wanted:
            say(f"attn: Cannot run the pager {visible(command[:60])!r}, so there is none. Change {variable}.")


def _is_too_long(text: str) -> bool:
    """Tell whether the terminal can page, and cannot show all of this."""
    if _is_unused or os.name != "posix" or os.environ.get("TERM", "") in ("", "dumb"):
        return False
    if sys.stdout is None or not sys.stdout.isatty():
        return False
    try:
        columns, lines = os.get_terminal_size(sys.stdout.fileno())
    except (OSError, ValueError):
        return False
    shown = re.sub(_COLOUR, "", text.removesuffix("\n")).split("\n")
    wrapped = sum(max(1, -(-len(line) // columns)) for line in shown) if columns else 0
    return 0 < lines <= wrapped  # the last line is the prompt's


def _paged(command: str, text: str) -> bool:
    """Give a screen to the pager, and wait until it ends; return whether it could be run."""
    import subprocess  # only a long screen needs it

    by_shell = not FOR_A_SHELL.isdisjoint(command)
    arguments = ["/bin/sh", "-c", command] if by_shell else command.split()
    data = text.encode(sys.stdout.encoding or "utf-8", "backslashreplace")
    # Ctrl-C means what the pager makes of it, and nothing to attn; what is ignored would be ignored by the pager too.
    with handled(lambda number, frame: None, signal.SIGINT, signal.SIGQUIT):
        try:
            process = subprocess.Popen(arguments, stdin=subprocess.PIPE, env=_environment(text))
        except OSError:
            return False
        with cleaned_up(lambda: _end(process)):
            process.communicate(data)  # who has seen enough may quit before the end
    return not (by_shell and process.returncode in NOT_FOUND)


def _environment(text: str) -> dict[str, str]:
    mine = OPTIONS | dict(os.environ)  # the user's own options count more
    if not text.isascii() and "LESSCHARSET" not in mine:
        mine["LESSCHARSET"] = "utf-8"  # in a C locale less spells UTF-8 out
    if "LESS" in os.environ and re.search(_COLOUR, text):
        mine["LESS"] = f"-R {mine['LESS']}"  # else it spells our colours out; what follows counts more
    return mine


def _end(process: Popen[bytes]) -> None:
    """End the pager, which sets the terminal right, and wait for that, though not for ever."""
    import time

    process.terminate()
    for _ in range(100):
        if os.waitpid(process.pid, os.WNOHANG)[0]:
            return
        time.sleep(0.01)
