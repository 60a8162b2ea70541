"""Every key, what it does, and how the footer and the help name it: the one table of them."""

from __future__ import annotations

from typing import NamedTuple

from attn_cli.render.screen.text import cells


class Key(NamedTuple):
    """One thing to do: the keys for it as Textual names them, its action, and its words."""

    keys: tuple[str, ...]
    action: str
    typed: str  # how the keys are written
    label: str  # in the footer; nothing for what the help alone names
    help: str


KEYS = (
    Key(("t", "i"), "text", "t", "text", "Type another text; Esc or Enter comes back to the keys."),
    Key(("enter",), "open", "Enter", "why", "The arithmetic of the chosen row, by hand; again: back."),
    Key(("up", "k"), "up", "arrows", "cell", "Choose a cell: its row's bars and arithmetic follow."),
    Key(("m",), "mask", "m", "mask", "The next mask: none, causal and the others; M goes back."),
    Key(("M",), "mask_back", "", "", ""),
    Key(
        ("h",),
        "head",
        "h",
        "head",
        "The next head; then their mean, all at once, and the rollout of several layers; H goes back.",
    ),
    Key(("H",), "head_back", "", "", ""),
    Key(("l",), "layer", "l", "layer", "The next layer, where there are several; L goes back. All: see c."),
    Key(("L",), "layer_back", "", "", ""),
    Key(("s",), "score", "s", "score", "The next score function; S goes back."),
    Key(("S",), "score_back", "", "", ""),
    Key(
        ("plus", "equals_sign"),
        "hotter",
        "+ -",
        "heat",
        "The temperature: + is hotter, flatter weights; - is colder, sharper weights.",
    ),
    Key(("minus",), "colder", "", "", ""),
    Key(("0",), "usual_heat", "0", "", "The temperature back to 1."),
    Key(
        ("x",),
        "off",
        "x",
        "word off",
        "Hide the chosen column's word from every query, or show it again.",
    ),
    Key(
        ("v",), "compare", "v", "compare", "What changed since the view before: the difference, before, now."
    ),
    Key(("d",), "step", "d", "steps", "The steps in turn: tokens, X, Q K V, scores to output; D goes back."),
    Key(("D",), "step_back", "", "", ""),
    Key(
        ("e",),
        "edit",
        "e",
        "edit",
        "Given matrices: choose a number with the arrows, Enter types another one.",
    ),
    Key(("b",), "large", "b", "big", "Large blocks for a lecture hall, and back."),
    Key(("u",), "undo", "u", "undo", "Undo the last change."),
    Key(
        ("c",),
        "command",
        "c",
        "command",
        "The command line of this view; copied where the terminal allows it.",
    ),
    Key(("w",), "write", "w", "save", "Write the view to a file: .svg, .html, .json and others."),
    Key(("question_mark",), "help", "?", "help", "These keys."),
    Key(("q",), "quit", "q", "quit", "Leave; Ctrl-C does too."),
    Key(("down", "j"), "down", "", "", ""),
    Key(("left",), "left", "", "", ""),
    Key(("right",), "right", "", "", ""),
    Key(("home",), "first", "Home End", "", "The first and the last column; PgUp and PgDn turn pages."),
    Key(("end",), "last", "", "", ""),
    Key(("pageup",), "page_up", "", "", ""),
    Key(("pagedown", "space"), "page_down", "", "", ""),
    Key(("tab",), "pane", "Tab", "", "On a small screen: the matrix, or its row."),
    Key(("escape",), "close", "Esc", "", "Out of a pane, back to the matrix."),
    Key(("ctrl+l",), "redraw", "", "", ""),
)
ACTIONS = {key: one.action for one in KEYS for key in one.keys}
TYPING = "Type: attention follows. Enter or Esc: back to the keys."
APART = 2  # cells between two labels


class Label(NamedTuple):
    """A label of the footer: where it stands, its key, its word, and what a click on it does."""

    line: int
    start: int
    typed: str
    word: str
    action: str

    @property
    def stop(self) -> int:
        """The cell after its last one."""
        return self.start + cells(self.typed) + 1 + cells(self.word)


def footer(width: int, lines: int, left_out: frozenset[str]) -> list[Label]:
    """Return the labels that fit a footer of so many lines; help and quit are always among them."""
    shown = [one for one in KEYS if one.label and one.action not in left_out]
    ends = [one for one in shown if one.action in ("help", "quit")]
    others = [one for one in shown if one not in ends]
    for count in range(len(others), -1, -1):
        labels = _laid_out([*others[:count], *ends], width)
        if labels[-1].line < lines:
            return labels
    return labels


def _laid_out(shown: list[Key], width: int) -> list[Label]:
    labels: list[Label] = []
    line = at = 0
    for one in shown:
        label = Label(line, at, one.typed, one.label, one.action)
        if at and label.stop > width:
            line, at = line + 1, 0
            label = label._replace(line=line, start=0)
        labels.append(label)
        at = label.stop + APART
    return labels
