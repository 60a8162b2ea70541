"""Copying by OSC 52, which most terminals obey: the text goes to the clipboard of the screen's own machine."""

from __future__ import annotations

import os
from base64 import b64encode

CHUNK = 700  # bytes: GNU screen passes on no longer string


def osc52(text: str) -> str:
    """Return what a terminal is sent to put a text on its clipboard; GNU screen is told to pass it on."""
    data = b64encode(text.encode("utf-8", "replace")).decode()
    code = f"\x1b]52;c;{data}\x07"
    if "STY" not in os.environ or "TMUX" in os.environ:
        return code
    return "".join(f"\x1bP{code[at : at + CHUNK]}\x1b\\" for at in range(0, len(code), CHUNK))


def copied() -> str:
    """Return a sentence on where the copy is."""
    if "TMUX" in os.environ:
        return "Copied to tmux, and to the clipboard where tmux may (set-clipboard on). It is printed at the end, too."
    return "Copied to the clipboard where the terminal allows it (OSC 52). It is printed at the end, too."
