"""A screen at the pace of a lecture: one part after the other, each at a key; nothing is cleared."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from attn_cli.io.console import put_plain, say
from attn_cli.io.signals import cleaned_up
from attn_cli.render import render_blocks

if TYPE_CHECKING:
    from attn_cli.io.terminal import Terminal
    from attn_cli.render.blocks import Block
    from attn_cli.settings.output import View

PROMPT = "-- a key goes on, q stops --"
STOP = ("q", "Q", "\x1b")


def paced(blocks: Iterable[Block], view: View, terminal: Terminal) -> None:
    """Print a screen part by part, and wait for a key before each part but the first.

    Where no person watches (standard output is no terminal, or there is no keyboard), all is printed at once.
    """
    watched = sys.stdout is not None and sys.stdout.isatty()
    if not watched:
        say("attn: --pause waits only on a terminal.")
    for number, part in enumerate(_parts(blocks)):
        if number and watched:
            key = _key()
            if key in STOP:
                return
            watched = key is not None
        put_plain(render_blocks(part, view, terminal))


def _parts(blocks: Iterable[Block]) -> Iterator[list[Block]]:
    """Cut a screen at its headings."""
    from attn_cli.render.blocks import Heading  # loads what draws, which is loaded by now

    part: list[Block] = []
    for block in blocks:
        if isinstance(block, Heading) and any(not isinstance(held, Heading) for held in part):
            yield part
            part = []
        part.append(block)
    if part:
        yield part


def _key() -> str | None:
    """Wait for a key and return it; None where there is no keyboard."""
    shown = sys.stderr is not None and sys.stderr.isatty()
    if shown:
        sys.stderr.write(PROMPT)
        sys.stderr.flush()

    def clear() -> None:
        if shown:
            sys.stderr.write("\r" + " " * len(PROMPT) + "\r")
            sys.stderr.flush()

    with cleaned_up(clear):
        try:
            return _pressed()
        finally:
            clear()


def _pressed() -> str | None:
    if sys.platform == "win32":
        import msvcrt

        return msvcrt.getwch()
    import termios
    import tty

    try:
        keyboard = os.open("/dev/tty", os.O_RDONLY)  # standard input may be the text
    except OSError:
        return None
    try:
        before = termios.tcgetattr(keyboard)

        def restore() -> None:
            termios.tcsetattr(keyboard, termios.TCSADRAIN, before)

        with cleaned_up(restore):
            try:
                tty.setcbreak(keyboard)
                data = os.read(keyboard, 32)  # an arrow key sends several bytes at once
            finally:
                restore()
    except (OSError, termios.error):
        return None
    finally:
        os.close(keyboard)
    return data.decode("utf-8", "replace") if data else None
