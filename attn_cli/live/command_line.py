"""The command line that shows again what is on the screen, and how it gets to the clipboard."""

from __future__ import annotations

import os
from base64 import b64encode
from dataclasses import replace

from attn_cli.io.escape import shell_quote
from attn_cli.live.keys import COMMAND, ROW, STEPS, WEIGHTS, Seen, State
from attn_cli.live.sources import Question
from attn_cli.settings.declare import as_typed, declared
from attn_cli.settings.settings import Settings
from attn_cli.trace.steps import NAMES
from attn_cli.trace.trace import Trace

OF_ROWS = ("query", "versus")
CHUNK = 700  # bytes: GNU screen passes on no longer string


def command_line(state: State, seen: Seen) -> str:
    """Return the line to type in a shell for the state's pane, or for the one that the command line covers."""
    state = replace(state, pane=state.under) if state.pane == COMMAND else state
    question = state.question
    start, options = list(seen.source.start), as_typed(question.settings, OF_ROWS, short=True)
    varied = (
        _varied(question, seen.before) if state.compared and state.pane == WEIGHTS and not start else None
    )
    if not start:
        start = ["explain" if state.pane in (ROW, STEPS) else "compare" if varied else "self"]
    if varied:
        options = [*as_typed(question.settings, (*OF_ROWS, varied[0]), short=True), "--vary", varied[1]]
    elif state.pane == ROW:
        options += ["-q", _row(seen.trace.query_tokens, state.row)]
    elif state.pane == STEPS and not seen.source.start:
        options += ["--only", ",".join(NAMES[name][0] for name in seen.steps[state.step])]
    before = ""
    if not seen.source.has_text:
        words = [*(f"./{word}" if word.startswith("-") else word for word in start), *options]
    elif question.text == "-":  # which, typed, is standard input
        before, words = "printf %s - | ", [*start, "-", *options]
    elif question.text.startswith("-"):
        words = [*start, *options, "--", question.text]
    else:
        words = [*start, question.text, *options]
    return before + " ".join(map(shell_quote, ["attn", *words]))


def _varied(question: Question, before: Trace | None) -> tuple[str, str] | None:
    """Return the one setting that differs from the view before, and what --vary takes; None if it is not one alone."""
    if before is None:
        return None
    old, new = before.settings, question.settings
    names = [name for name in declared(Settings) if getattr(old, name) != getattr(new, name)]
    if len(names) != 1 or isinstance(getattr(new, names[0]), tuple):
        return None
    usual = {"mask": "none", "score": "scaled"}
    values = [getattr(one, names[0]) for one in (old, new)]
    written = [
        f"{value:.12g}" if isinstance(value, float) else value or usual.get(names[0]) for value in values
    ]
    return None if None in written else (names[0], f"{names[0].replace('_', '-')}={written[0]},{written[1]}")


def unsaid(line: str, question: Question, layers: int) -> str:
    """Return what the line does not say of the view, or which option says more, or who reads it; nothing otherwise."""
    if any(char == "\0" or "\ud800" <= char <= "\udfff" for char in question.text):
        return "U+FFFD stands in the line for characters that no argument can hold."
    if question.edits:
        return "The numbers that were typed are not in that file: w writes a .json, which attn compute reads."
    if "$'" in line:
        return "It is written for bash and zsh, which read $'...' as the same text."
    return "All layers at once: --layer all in place of one." if layers > 1 else ""


def _row(tokens: tuple[str, ...], row: int) -> str:
    """Return a token, or the number of its row where that is another one's token, or it occurs more than once."""
    same = [token for token in tokens if token.casefold() == tokens[row].casefold()]
    is_plain = len(same) == 1 and not tokens[row].startswith("-")
    return tokens[row] if is_plain or str(row) in tokens else str(row)


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
