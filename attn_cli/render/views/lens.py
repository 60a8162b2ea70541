"""What a model says: after each of its layers (attn lens), and token by token as it writes (attn generate)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich.segment import Segment
from rich.style import Style

from attn_cli.errors import count
from attn_cli.io.terminal import Terminal
from attn_cli.pipeline.generate import Sampling, Step, Writer
from attn_cli.pipeline.passes import Lens
from attn_cli.render import Bars, Block, Columns, Heading, Say, placed, quoted, quoted_at, share
from attn_cli.render.screen import text as texts
from attn_cli.settings import View
from attn_cli.text.wordpieces import SPACE, as_text

LONGEST = 10  # letters of a word in a table
ASIDE = (
    "layers: how many the stream has gone through; 0 is before the first, {} gives the model's own answer. From there "
    "it goes through the model's own {}, made for the last row alone. rank: of the answer, 1 is the likeliest word."
)
WIDTH, TOKEN = 80, 13  # of a screen of unknown width; of a written token
WHY = {
    "end": "The model ended its text here.",
    "stop": "It stopped at what --stop names.",
    "count": "It stopped at --count.",
    "length": "The model has no places for more tokens.",
    None: "It was interrupted.",
}


def screen(lens: Lens, detailed: Sequence[int], view: View) -> Iterator[Block]:
    """Yield the likeliest words at the places told in detail, or bars of the answer's rise; then those of all."""
    read, last = lens.read, len(lens.layers) - 1
    size = f"{count(last, 'layer', 'layers')}, {count(len(read.tokens), 'token', 'tokens')}"
    where = "in the place of" if read.fills else "after"
    yield Heading(f"Logit lens of {read.name}: {size}", 1)
    for n, said in enumerate(lens.layers[-1]):
        if said.place in detailed:
            token = quoted_at(as_text(read.tokens), said.place)
            yield Say(f"{where.capitalize()} {token}, {_finding(lens, n)}")
            rows, cells = list[list[str]](), list[tuple[str, float]]()
            for layer, row in enumerate(lens.layers):
                seen = ((_cut(one.word.replace(" ", SPACE)), one.probability) for one in row[n].words)
                words = [f"{word} {share(probability)}" for word, probability in seen]
                rows.append([str(layer), f"{row[n].rank:,}", share(row[n].probability), *words])
                cells.append((str(layer), row[n].probability))
            title = f"The probability of {quoted(said.words[0].word)} after so many layers:"
            header = ["layers", "rank", "probability", *(f"{k}." for k in range(1, len(rows[0]) - 2))]
            bars = Bars(title, cells, max(value for _, value in cells), "probability")
            yield bars if view.has_bars else Columns(header, rows)
    if len(lens.layers[0]) > 1 and not view.has_bars:
        yield Heading(f"The likeliest word {where} each token", 2)
        yield Columns(("layers", *names(lens)), [(str(n), *row) for n, row in enumerate(likeliest(lens))])
    yield Say(ASIDE.format(last, read.way), quiet=True)
    yield from (Say(f"Note: {note}") for note in read.notes)


def names(lens: Lens) -> list[str]:
    """Return the tokens of the lens's places, as labels."""
    return [_cut(placed(as_text(lens.read.tokens), said.place)) for said in lens.layers[0]]


def likeliest(lens: Lens) -> list[list[str]]:
    """Return the likeliest word after each layer at each place; a space in front tells a new word from a piece."""
    return [[_cut(said.words[0].word.replace(" ", SPACE)) for said in row] for row in lens.layers]


def _cut(word: str) -> str:
    return word if len(word) <= LONGEST else f"{word[: LONGEST - 1]}…"


def _finding(lens: Lens, n: int) -> str:
    ranks = [row[n].rank for row in lens.layers]
    final, last = lens.layers[-1][n].words[0], len(lens.layers) - 1
    since = next(layer for layer in range(last + 1) if {*ranks[layer:]} == {1})
    late = "again after the last layer" if 1 in ranks[:last] else "only after the last layer"
    when = {0: "from the start", last: late}.get(since, f"from layer {since} on")
    before = f"; before the first layer it has rank {ranks[0]:,} of {lens.read.vocabulary:,}" * (ranks[0] > 1)
    said = f"the model says {quoted(final.word)} ({share(final.probability)})"
    return f"{said}. That is its likeliest word {when}{before}."


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
        token = texts.padded(_label(last.told.word.replace(" ", SPACE), terminal), TOKEN)
        ran_up = texts.padded(_fitting(others, room, terminal, mark), room + 2)
        rest = f" {texts.padded_left(share(last.told.probability), 7)}  {ran_up} {looked}".rstrip()
        yield terminal.paint([[Segment(f"{place:>3} "), Segment(token, Style(bold=True)), Segment(rest)]])
    if last is not None:
        text = writer.begun + last.written if writer.begun else last.written.lstrip()
        lines = (texts.wrapped(terminal.text(line), terminal.width) for line in text.split("\n"))
        told = [part for line in lines for part in line]
        yield terminal.paint([[], *told, [], [Segment(WHY[last.stopped])]])


def _label(word: str, terminal: Terminal) -> str:
    return texts.labels([word], terminal, TOKEN)[0]


def _fitting(found: Iterable[tuple[str, float]], width: int, terminal: Terminal, more: str = "") -> str:
    """Return tokens with their shares, as many as fit and at least one, uncut; `more` if any is left."""
    shown = ""
    for word, value in found:
        item = f"{', ' * bool(shown)}{_label(word, terminal)} {share(value)}"
        if not value or (shown and texts.cells(shown + item) > width):
            return shown + more * bool(value)
        shown += item
    return shown
