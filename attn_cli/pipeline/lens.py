"""The logit lens (nostalgebraist 2020): what a model would say at each place if it stopped after each of its layers.

The stream between two layers goes through the model's own last norm and output, as what its last layer makes does.
Nothing is trained for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from attn_cli.core.attention import softmax
from attn_cli.errors import InputError, UsageError
from attn_cli.io.array_types import Array
from attn_cli.io.escape import visible
from attn_cli.io.progress import OnPart, part_of
from attn_cli.models.checkpoints.open_model import OpenModel, open_model
from attn_cli.models.checkpoints.run import texts
from attn_cli.models.encoder import causal, matrix_of
from attn_cli.pipeline.embed import open_shared
from attn_cli.pipeline.next_words import likeliest, settings_for
from attn_cli.pipeline.sources.checkpoint import read_texts
from attn_cli.pipeline.sources.checkpoint_text import Tokens, last_word, predicted_place
from attn_cli.pipeline.sources.text import read_inputs
from attn_cli.settings.declare import split
from attn_cli.settings.settings import DEFAULTS, Settings
from attn_cli.settings.validate import beside_model, settings_of
from attn_cli.trace.computation import NextWord
from attn_cli.vectors.table import as_text

MOST_SCORES = 1 << 22  # scores of words that are held at once


class Read(NamedTuple):
    """A model that has read a text, and how its streams become scores of words."""

    name: str
    tokens: tuple[str, ...]
    at: int  # the place of the model's own next word, or of the mask that it fills
    fills: bool
    words: int  # that can be said, by their ids
    streams: Callable[
        [list[int], OnPart | None], Array
    ]  # before each layer and after all: (layers + 1, places, d)
    scores: Callable[[Array], Array]  # of rows of streams (m, d): (m, vocabulary)
    word: Callable[[int], str]
    way: str  # of the model's, that streams go through to become scores
    notes: tuple[str, ...]


class Said(NamedTuple):
    """What the model would say at a place; the rank (1 is the likeliest) and the probability of its final word."""

    place: int
    words: tuple[NextWord, ...]
    rank: int
    probability: float
    logits: dict[str, float] | None  # by the ids that were asked for


class Lens(NamedTuple):
    """What a model would say at some places after so many of its layers, 0 to all of them."""

    read: Read
    places: tuple[int, ...]
    layers: tuple[tuple[Said, ...], ...]

    @property
    def final(self) -> tuple[NextWord, ...]:
        """The model's own answer at each place."""
        return tuple(said.words[0] for said in self.layers[-1])


@contextmanager
def open_lens(text: str, context: str | None, settings: Settings) -> Iterator[Read]:
    """Give the model of these settings, which reads the text; of an encoder and a decoder, the encoder the context.

    Without a context its encoder reads the text, and its decoder begins. Raises UsageError or InputError for a model
    that names no words.
    """
    if settings.model is not None and settings.projection is not None:
        raise beside_model("projection")
    if settings.model is None:
        yield _language(text, context, settings)
    else:
        with open_model(settings.model) as model:
            yield _pretrained(model, text, context, settings)


def _pretrained(model: OpenModel, text: str, context: str | None, settings: Settings) -> Read:
    about = model.checkpoint.model
    has_two = len(about.stacks) == 2
    reading = read_texts(
        "self" if context is None or not has_two else "masked", text, context, settings, model
    )
    if has_two and context is None:
        start = Tokens((about.start,), (model.encoder.token(about.start),), (True,))
        run = model.checkpoint.run(texts([reading.query.ids]), texts([start.ids]))
        reading = reading._replace(run=run, side="decoder", asked="masked", query=start, key=start)
    run, query, notes = reading.run, reading.query, list(reading.notes)
    run.check_head()
    found = predicted_place(run, reading.side, query, model, settings)
    sees = f"{model.name} is not causal: where there is no mask, it sees the word that it names."
    notes += [sees] if found.place is None else found.notes
    output = "masked-word head, its dense layer too" if run.model.logits.dense else "output"
    way = "last norm and " * bool(run.model.stacks[reading.side].last_norm) + output

    def streams(places: list[int], report: OnPart | None) -> Array:
        if report is not None:
            run.report_to(report, None)
        made = [steps.x[0, places] for steps in reading.layers()]
        return np.stack([*made, run.stream()[0, places]])

    return Read(
        model.name, query.spelled, last_word(query) if found.place is None else found.place, found.fills,
        run.vocabulary, streams, lambda rows: run.scores(run.last_normed(rows[np.newaxis]))[0],
        model.encoder.text, way, tuple(notes),
    )  # fmt: skip


def _language(text: str, context: str | None, settings: Settings) -> Read:
    asked = settings_of(
        "masked", replace(settings, projection=settings.projection or DEFAULTS["masked"].projection)
    )
    shared = open_shared(asked)
    stack = shared.stack
    if stack is None or stack.words is None:
        said = f"-p {visible(str(asked.projection))} names no words: there is nothing to look at through the lens."
        raise UsageError(said, "Leave out -p, or give a model with -m.", "--projection")
    asked, notes = settings_for("masked", asked, stack, context is not None)
    inputs, scored, top = read_inputs(text, None, asked, shared), stack.words, stack.top
    X, table = inputs.query.X, inputs.table
    assert X is not None and table is not None and top is not None
    words, tokens = [word for block in table.word_blocks() for word in block], inputs.query.tokens
    vectors = matrix_of(table)

    def streams(places: list[int], report: OnPart | None) -> Array:
        mask = causal(len(tokens))
        x = stack.input(X, 0, mask)
        made = [x[places]]
        with np.errstate(over="ignore", invalid="ignore"):  # look refuses what comes of it
            for n, layer in enumerate((*stack.encoders, top)):
                x = layer.of(x, mask, part_of(report, n, stack.layers))
                made.append(x[places])
        return np.stack(made)

    return Read(
        stack.name, tokens, len(tokens) - 1, False, len(words), streams,
        lambda rows: scored.scores(rows, vectors), lambda n: as_text(words[n]), "output", (*notes, *inputs.notes),
    )  # fmt: skip


def read_ids(typed: str | None, read: Read) -> tuple[int, ...]:
    """Return the ids in a list of them; UsageError for what is no id of the model's words."""
    ids = [] if typed is None else split(typed)
    for one in ids:
        if not (one.isascii() and one.isdigit() and len(one) < 10 and int(one) < read.words):
            hint = f"Give ids from 0 to {read.words - 1}, as 5,7."
            raise UsageError(f"{read.name} has no word {visible(one[:60])!r}.", hint, "--ids")
    return tuple(map(int, ids))


def look(
    read: Read, places: Sequence[int], count: int, ids: Sequence[int] = (), report: OnPart | None = None
) -> Lens:
    """Return the `count` likeliest words at some places after each layer, and the final word's rank there.

    Scores are made of some places at a time, and only these few numbers of them are kept.
    """
    streams = read.streams([*places], part_of(report, 0, 2))
    several = max(1, MOST_SCORES // (len(streams) * read.words))
    found: list[list[Said]] = []
    for start in range(0, len(places), several):
        some = streams[:, start : start + several]
        scores = read.scores(some.reshape(-1, some.shape[-1])).reshape(*some.shape[:2], -1)
        if not np.isfinite(scores).all():
            raise InputError(f"{read.name} gives scores of words that are not numbers.", "Is its file sound?")
        for n, place in enumerate(places[start : start + several]):
            final = likeliest(scores[-1, n, : read.words], 1)[0]
            found.append([_said(read, place, one, final, count, ids) for one in scores[:, n]])
        if report is not None:
            report(0.5 + 0.5 * len(found) / len(places))
    return Lens(read, tuple(places), tuple(zip(*found, strict=True)))


def _said(read: Read, place: int, scores: Array, final: int, count: int, ids: Sequence[int]) -> Said:
    """Return what scores (vocabulary,) say; what stands after the last word that can be said only has its share."""
    shares, known = softmax(scores.astype(np.float64)), scores[: read.words]
    words = tuple(
        NextWord(read.word(n), float(shares[n]), n, float(scores[n])) for n in likeliest(known, count)
    )
    rank = 1 + int((known > known[final]).sum())
    return Said(place, words, rank, float(shares[final]), {str(n): float(scores[n]) for n in ids} or None)


def record(lens: Lens) -> dict[str, object]:
    """Return the JSON of a lens."""
    finals = zip(lens.places, lens.final, strict=True)
    return {
        "schema": "attn/1",
        "kind": "lens",
        "source": lens.read.name,
        "tokens": lens.read.tokens,
        "fills": lens.read.fills,
        "final": [{"place": place, "word": one.word, "id": one.id} for place, one in finals],
        "layers": [
            {
                "layer": layer,
                "positions": [
                    said._asdict() | {"words": [word._asdict() for word in said.words]} for said in row
                ],
            }
            for layer, row in enumerate(lens.layers)
        ],
        "notes": lens.read.notes,
    }


def rows(lens: Lens) -> Iterator[Sequence[object]]:
    """Yield the cells of a table: a row for each layer and place."""
    ids = lens.layers[0][0].logits or {}
    about = ("layer", "place", "token", "final", "rank", "probability", "likeliest", "likeliest_probability")
    yield *about, *(f"logit_{n}" for n in ids)
    for layer, row in enumerate(lens.layers):
        for said, final in zip(row, lens.final, strict=True):
            best = said.words[0]
            made = layer, said.place, lens.read.tokens[said.place], final.word, said.rank, said.probability
            yield *made, best.word, best.probability, *(said.logits or {}).values()
