"""The screen of attn lens: what a model would say after each of its layers, and how its own answer rises."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attn_cli.io.escape import count
from attn_cli.pipeline.lens import Lens
from attn_cli.render.blocks import Bars, Block, Columns, Heading, Say
from attn_cli.render.numbers import share
from attn_cli.render.views.wording import placed, quoted, quoted_at
from attn_cli.settings.output import View
from attn_cli.text.wordpieces import SPACE, as_text

LONGEST = 10  # letters of a word in a table
ASIDE = (
    "layers: how many the stream has gone through; 0 is before the first, {} gives the model's own answer. From there "
    "it goes through the model's own {}, made for the last row alone. rank: of the answer, 1 is the likeliest word."
)


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
            yield _bars(lens, n) if view.has_bars else _table(lens, n)
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
    """Return the model's answer at a place, and from which layer on that is the likeliest word."""
    ranks = [row[n].rank for row in lens.layers]
    final, last = lens.layers[-1][n].words[0], len(lens.layers) - 1
    since = next(layer for layer in range(last + 1) if {*ranks[layer:]} == {1})
    late = "again after the last layer" if 1 in ranks[:last] else "only after the last layer"
    when = {0: "from the start", last: late}.get(since, f"from layer {since} on")
    before = f"; before the first layer it has rank {ranks[0]:,} of {lens.read.vocabulary:,}" * (ranks[0] > 1)
    said = f"the model says {quoted(final.word)} ({share(final.probability)})"
    return f"{said}. That is its likeliest word {when}{before}."


def _table(lens: Lens, n: int) -> Columns:
    rows = []
    for layer, row in enumerate(lens.layers):
        words = [f"{_cut(one.word.replace(' ', SPACE))} {share(one.probability)}" for one in row[n].words]
        rows.append([str(layer), f"{row[n].rank:,}", share(row[n].probability), *words])
    return Columns(["layers", "rank", "probability", *(f"{k}." for k in range(1, len(rows[0]) - 2))], rows)


def _bars(lens: Lens, n: int) -> Bars:
    items = [(str(layer), row[n].probability) for layer, row in enumerate(lens.layers)]
    title = f"The probability of {quoted(lens.layers[-1][n].words[0].word)} after so many layers:"
    return Bars(title, items, max(value for _, value in items), "probability")
