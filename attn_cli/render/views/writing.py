"""What a model writes, on a screen: a line for each token as it comes, then the text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.segment import Segment
from rich.style import Style

from attn_cli.io.terminal import Terminal
from attn_cli.pipeline.generate import Sampling, Step, Writer
from attn_cli.render.numbers import share
from attn_cli.render.screen.text import cells, labels, padded, padded_left, wrapped
from attn_cli.render.views.wording import placed
from attn_cli.text.wordpieces import SPACE, as_text

WIDTH, TOKEN = 80, 13  # of a screen of unknown width; of a token
WHY = {
    "end": "The model ended its text here.", "stop": "It stopped at what --stop names.",
    "count": "It stopped at --count.", "length": "The model has no places for more tokens.",
    None: "It was interrupted.",
}  # fmt: skip


def written(writer: Writer, sampling: Sampling, steps: Iterable[Step], terminal: Terminal) -> Iterator[str]:
    """Yield a heading, each token's line when it is there, and in the end the text, and why it ends there."""
    (kind, layer, head), last = writer.shown, None
    room = max(((terminal.width or WIDTH) - TOKEN - 17) // 2, 0)
    yield f"{terminal.text(writer.name)}, layer {layer}, head {head}{' (cross-attention)' * (kind == 'cross')}\n"
    yield f"{sampling.said()}\n"
    yield f"    {'token':{TOKEN}}   prob.  {'runners-up':{room}}   looked at\n"
    mark = " …" if terminal.unicode else " ~"
    for last in steps:
        keys, weights = as_text(last.key_tokens), last.weights.tolist()
        order = sorted(range(len(keys)), key=lambda n: -weights[n])
        looked = _fitting(((placed(keys, n), weights[n]) for n in order), room, terminal)
        others = ((one.word.replace(" ", SPACE), one.probability) for one in last.runners_up)
        place = len(keys) if kind == "masked" else last.step  # in the text
        token = padded(_label(last.told.word.replace(" ", SPACE), terminal), TOKEN)
        ran_up = padded(_fitting(others, room, terminal, mark), room + 2)
        rest = f" {padded_left(share(last.told.probability), 7)}  {ran_up} {looked}".rstrip()
        yield terminal.paint([[Segment(f"{place:>3} "), Segment(token, Style(bold=True)), Segment(rest)]])
    if last is not None:
        text = writer.begun + last.written if writer.begun else last.written.lstrip()
        lines = [part for line in text.split("\n") for part in wrapped(terminal.text(line), terminal.width)]
        yield terminal.paint([[], *lines, [], [Segment(WHY[last.stopped])]])


def _label(word: str, terminal: Terminal) -> str:
    return labels([word], terminal, TOKEN)[0]


def _fitting(found: Iterable[tuple[str, float]], width: int, terminal: Terminal, more: str = "") -> str:
    """Return tokens with their shares, as many as fit and at least one, uncut; `more` if any is left."""
    shown = ""
    for word, value in found:
        item = f"{', ' * bool(shown)}{_label(word, terminal)} {share(value)}"
        if not value or (shown and cells(shown + item) > width):
            return shown + more * bool(value)
        shown += item
    return shown
