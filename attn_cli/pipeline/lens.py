"""The logit lens (nostalgebraist 2020): what a model would say at each place if it stopped after each of its layers.

The stream between two layers goes through the model's own last norm and output, as what its last layer makes does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

from attn_cli.core.attention import softmax
from attn_cli.errors import UsageError, visible
from attn_cli.io.types import Array, NamedTuple, OnPart
from attn_cli.pipeline.next_words import likeliest
from attn_cli.pipeline.passes import Pass
from attn_cli.settings.declare import split
from attn_cli.trace.computation import NextWord

MOST_SCORES = 1 << 22  # scores of words that are held at once


class Said(NamedTuple):
    """What a model would say at a place; the rank (1 is the likeliest) and the probability of its final word."""

    place: int
    words: tuple[NextWord, ...]
    rank: int
    probability: float
    logits: dict[str, float] | None  # by the ids that were asked for


class Lens(NamedTuple):
    """What a model would say at some places after 0 to all of its layers; the last row's first word is its answer."""

    read: Pass
    layers: tuple[tuple[Said, ...], ...]

    def record(self) -> dict[str, object]:
        """Return it as JSON has it."""
        final = [{"place": said.place} | said.words[0]._asdict() for said in self.layers[-1]]
        told = [
            [one._asdict() | {"words": [*map(NextWord._asdict, one.words)]} for one in row]
            for row in self.layers
        ]
        layers = [{"layer": n, "positions": row} for n, row in enumerate(told)]
        about = {"schema": "attn/1", "kind": "lens", "source": self.read.name, "tokens": self.read.tokens}
        return about | {"fills": self.read.fills, "final": final, "layers": layers, "notes": self.read.notes}

    def rows(self) -> Iterator[Sequence[object]]:
        """Yield the cells of a table: a row for each layer and place."""
        ids = [f"logit_{n}" for n in self.layers[0][0].logits or ()]
        named = "layer", "place", "token", "final", "rank", "probability"
        yield *named, "likeliest", "likeliest_probability", *ids
        for layer, row in enumerate(self.layers):
            for said, last in zip(row, self.layers[-1], strict=True):
                token, best = self.read.tokens[said.place], said.words[0]
                about = layer, said.place, token, last.words[0].word, said.rank, said.probability
                yield *about, best.word, best.probability, *(said.logits or {}).values()


def read_ids(typed: str | None, read: Pass) -> list[int]:
    """Return the ids in a list of them; UsageError for what is no id of the model's words."""
    ids = [] if typed is None else split(typed)
    for one in ids:
        if not (one.isascii() and one.isdigit() and len(one) < 10 and int(one) < read.vocabulary):
            hint = f"Give ids from 0 to {read.vocabulary - 1}, as 5,7."
            raise UsageError(f"{read.name} has no word {visible(one[:60])!r}.", hint, "--ids")
    return [int(one) for one in ids]


def look(read: Pass, places: Sequence[int], count: int, ids: Sequence[int], report: OnPart) -> Lens:
    """Return the `count` likeliest words at some places after each layer, and the final word's rank there."""
    streams, word = read.streams([*places]), cache(read.word)
    several = max(1, MOST_SCORES // (len(streams) * read.vocabulary))

    def said(place: int, scores: Array, final: int) -> Said:
        # What stands after the known scores is named by no word.
        shares, known = softmax(scores), scores[: read.vocabulary]
        words = (NextWord(word(n), float(shares[n]), n, float(scores[n])) for n in likeliest(known, count))
        logits = {str(n): float(scores[n]) for n in ids} or None
        return Said(place, tuple(words), 1 + int((known > known[final]).sum()), float(shares[final]), logits)

    found: list[list[Said]] = []
    for start in range(0, len(places), several):
        some = streams[:, start : start + several]
        scores = read.scores(some.reshape(-1, some.shape[-1])).reshape(*some.shape[:2], -1)
        for n, place in enumerate(places[start : start + several]):
            final = likeliest(scores[-1, n, : read.vocabulary], 1)[0]
            found.append([said(place, one, final) for one in scores[:, n]])
        report(len(found) / len(places))
    return Lens(read, tuple(zip(*found, strict=True)))
