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

LONGEST_CELL = 10  # letters of a word among others of its layer
ASIDE = (
    "layers: how many the stream has gone through; 0 is before the first, {} gives the model's own answer. From there "
    "it goes through the model's own {}, made for the last row alone. rank: of the answer, 1 is the likeliest word."
)


def screen(lens: Lens, detailed: Sequence[int], view: View) -> Iterator[Block]:
    """Yield the likeliest words at the places told in detail, or bars of the answer's rise; then those of all."""
    read, last = lens.read, len(lens.layers) - 1
    size = f"{count(last, 'layer', 'layers')}, {count(len(read.tokens), 'token', 'tokens')}"
    yield Heading(f"Logit lens of {read.name}: {size}", 1)
    for n, place in enumerate(lens.places):
        if place in detailed:
            yield Say(_finding(lens, n))
            yield _bars(lens, n) if view.has_bars else _table(lens, n)
    if len(lens.places) > 1 and not view.has_bars:
        yield Heading(f"The likeliest word {_where(read.fills)} each token", 2)
        yield Columns(("layers", *names(lens)), [(str(n), *row) for n, row in enumerate(likeliest(lens))])
    yield Say(ASIDE.format(last, read.way), quiet=True)
    yield from (Say(f"Note: {note}") for note in read.notes)


def names(lens: Lens) -> list[str]:
    """Return the tokens of the lens's places, as labels."""
    tokens = as_text(lens.read.tokens)
    return [_cut(placed(tokens, place)) for place in lens.places]


def likeliest(lens: Lens) -> list[list[str]]:
    """Return the likeliest word after each layer at each place, cut to fit beside others."""
    return [[_cut(_seen(said.words[0].word)) for said in row] for row in lens.layers]


def _seen(word: str) -> str:
    """Return a word in which a space can be seen: in front it tells a new word from a piece."""
    return word.replace(" ", SPACE)


def _cut(word: str) -> str:
    return word if len(word) <= LONGEST_CELL else f"{word[: LONGEST_CELL - 1]}…"


def _where(fills: bool) -> str:
    return "in the place of" if fills else "after"


def _finding(lens: Lens, n: int) -> str:
    """Return the model's answer at a place, and from which layer on that is the likeliest word."""
    read, ranks, final = lens.read, [row[n].rank for row in lens.layers], lens.final[n]
    last = len(ranks) - 1
    since = next(layer for layer in range(last + 1) if set(ranks[layer:]) == {1})
    when = f"from layer {since} on" if since else "from the start"
    before = "" if not since else f"; before the first layer it has rank {ranks[0]:,} of {read.words:,}"
    when = "only after the last layer" if since == last else when
    where = f"{_where(read.fills).capitalize()} {quoted_at(as_text(read.tokens), lens.places[n])}"
    said = f"{where}, the model says {quoted(final.word)} ({share(final.probability)})"
    return f"{said}. That is its likeliest word {when}{before}."


def _table(lens: Lens, n: int) -> Columns:
    rows = []
    for layer, row in enumerate(lens.layers):
        said = row[n]
        words = [f"{_cut(_seen(one.word))} {share(one.probability)}" for one in said.words]
        rows.append([str(layer), f"{said.rank:,}", share(said.probability), *words])
    return Columns(["layers", "rank", "probability", *(f"{k}." for k in range(1, len(rows[0]) - 2))], rows)


def _bars(lens: Lens, n: int) -> Bars:
    items = [(str(layer), row[n].probability) for layer, row in enumerate(lens.layers)]
    title = f"The probability of {quoted(lens.final[n].word)} after so many layers:"
    return Bars(title, items, max(value for _, value in items), "probability")
