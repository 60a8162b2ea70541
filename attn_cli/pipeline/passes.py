"""A model that has read a text and says a word, to be computed anew from any layer on, with parts of it changed.

The logit lens (nostalgebraist 2020) is what it would say at each place if it stopped after each of its layers: the
stream between two layers goes through its own last norm and output, as what its last layer makes does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache, cached_property

import numpy as np

from attn_cli.core.attention import softmax
from attn_cli.errors import InputError, UsageError, refuse_input, visible
from attn_cli.io.types import Array, NamedTuple, OnPart, replace
from attn_cli.models.checkpoints.layers import Changes, LayerSteps
from attn_cli.models.checkpoints.open_model import Encoded, OpenModel, open_model
from attn_cli.models.checkpoints.reader import check_finite
from attn_cli.models.checkpoints.run import Way, texts, way_of
from attn_cli.models.encoder import UNKNOWN, causal, matrix_of, word_number
from attn_cli.models.logit_parts import Part, Trail
from attn_cli.pipeline import embed, next_words
from attn_cli.pipeline.sources import checkpoint, checkpoint_text
from attn_cli.pipeline.sources.text import read_inputs
from attn_cli.settings import DEFAULTS, Settings, beside_model, check_without_model, declare, settings_of
from attn_cli.trace import NextWord
from attn_cli.vectors import as_text

MOST_SCORES = 1 << 22  # scores of words that are held at once


class Stage(NamedTuple):
    """An attention on the way through the layers."""

    layer: int
    kind: str  # self, masked or cross
    x: Array  # (n, d), the residual stream before it
    output: Array  # (h, n, d_v), what its heads give
    steps: LayerSteps | None = None


class CheckpointPass:
    """A pretrained model that has read a text; it says a word after its token `place`, or where that is a mask, there.

    `tokens` are of the text that the word belongs to; `vocabulary` counts the words that can be said, those of the
    first scores; `way` says through what of the model's streams become scores.
    """

    def __init__(self, reading: checkpoint.Reading, place: int, fills: bool) -> None:
        self.reading, self.run, self.encoder = reading, reading.run, reading.model.encoder
        self.name, self.tokens, self.notes = reading.model.name, reading.query.tokens, reading.notes
        self.place, self.fills = place, fills
        self.layers, self.softcap = len(reading.stack.layers), self.run.model.logits.softcap
        output = "masked-word head, its dense layer too" if self.run.model.logits.dense else "output"
        self.way = "last norm and " * bool(reading.stack.last_norm) + output
        self.vocabulary = self.run.vocabulary

    @cached_property
    def _way(self) -> Way:
        return way_of(self.run, self.place)

    def heads(self, layer: int) -> tuple[str, ...]:
        """Return the names of a layer's heads."""
        return tuple(map(str, range(self.reading.stack.heads)))

    def stages(self) -> Iterator[Stage]:
        """Yield each attention, in order, of a pass without changes."""
        for steps in self.run.changed(Changes()).steps():
            if steps.side == self.reading.side:
                yield Stage(steps.layer, steps.kind, steps.x[0], steps.output[0], steps)

    def after(self, stage: Stage, outputs: Array) -> Array:
        """Return the logits (b, V) if the heads of a stage gave these outputs (b, h, n, d_v)."""
        assert stage.steps is not None
        begun = replace(stage.steps)
        begun.keep(outputs)
        return self._scored(Changes(x=stage.steps.x, begun=begun))

    def onward(self, layer: int, X: Array) -> Array:
        """Return the logits (b, V) if the streams before a layer were X (b, n, d)."""
        return self._scored(Changes(x=X.astype(np.float32), first=layer))

    def streams(self, places: list[int]) -> Array:
        """Return the stream before each layer and after the last at some places, (layers + 1, places, d)."""
        run, side = self.run.changed(Changes()), self.reading.side
        made = [one.x[0, places] for one in run.steps() if one.side == side and one.kind != "cross"]
        return np.stack([*made, run.stream()[0, places]])

    def scores(self, rows: Array) -> Array:
        """Return the scores of words if rows of streams (m, d) were the last layer's, (m, V)."""
        return self._checked(self.run.scores(self.run.last_normed(rows[None]))[0])

    def _scored(self, changes: Changes) -> Array:
        return self._checked(self.run.changed(changes).logits(self.place)[:, 0])

    def _checked(self, logits: Array) -> Array:
        check_finite(self.name, logits)
        return logits.astype(np.float64)

    def parts(self, word: int, against: int | None) -> list[Part]:
        """Return what each part adds to a word's logit, or to its difference from another's, before a softcap."""
        return self._way.parts(word, against)

    def moved(self, layer: int, attention: str) -> tuple[tuple[str, ...], Array]:
        """Return the keys of a layer's heads, and what each moved from each key (h, n_k), once parts are known."""
        moved = self._way.trail.moved[layer, attention]
        return (self.reading.key.tokens if attention == "cross" else self.tokens)[: moved.shape[1]], moved

    @cached_property
    def logits(self) -> Array:
        """The model's own score of each word, (V,)."""
        return self._checked(self._way.run.logits(self.place)[0, 0])

    def word(self, number: int) -> str:
        """Return a word of the vocabulary as text."""
        return self.encoder.text(number)

    def find(self, word: str, option: str) -> int:
        """Return the number of a word in the vocabulary; raise UsageError, about an option, if it is no single one."""
        for spelled in (f" {word}", word):
            found = self.encoder.encode(spelled)
            own = [n for n, is_frame in enumerate(found.special) if not is_frame]
            if len(own) == 1 and not found.unknown and found.ids[own[0]] < len(self.logits):
                return found.ids[own[0]]
        exact = self.encoder.id(word)  # as a piece is spelled that no text begins with
        if exact is not None and exact < len(self.logits):
            return exact
        if found.unknown:
            hint = f"It reads {visible(found.unknown[0][1])}, which can be named itself."
            raise UsageError(f"{visible(word)} is not in the vocabulary of {self.name}.", hint, option)
        pieces = ", ".join(visible(found.tokens[n]) for n in own)
        said = f"{visible(word)} is no single token of {self.name}, but {len(own)}: {pieces}."
        raise UsageError(said, "Give one of them, or another word.", option)


class LanguagePass:
    """The bundled language model, or another of its kind, that has read a text: what CheckpointPass has, of words."""

    fills, softcap = False, None

    def __init__(self, text: str, settings: Settings, shared: embed.Shared) -> None:
        stack = shared.stack
        if stack is None or stack.words is None:
            said = f"-p {settings.projection} says no words."
            raise UsageError(said, "Leave out -p, or give a model with -m.", "--projection")
        settings, notes = next_words.settings_for("masked", settings, stack, False)
        inputs = read_inputs(text, None, settings, shared)
        assert inputs.query.X is not None and inputs.table is not None
        self.stack, self.scored, self.X = stack, stack.words, inputs.query.X
        self.encoders, self.layers = stack.encoders, stack.layers
        self.vectors = matrix_of(inputs.table)
        self.words = [word for block in inputs.table.word_blocks() for word in block]
        self.name, self.tokens, self.notes = stack.name, inputs.query.tokens, (*notes, *inputs.notes)
        self.place, self.mask = len(self.tokens) - 1, causal(len(self.tokens))
        self.trail, self.way, self.vocabulary = Trail(self.place), "output", len(self.words)

    def heads(self, layer: int) -> tuple[str, ...]:  # noqa: D102
        return self.stack.head_names(layer)

    def stages(self) -> Iterator[Stage]:  # noqa: D102
        X = self.stack.input(self.X, 0, self.mask)
        for number, layer in enumerate(self.encoders):
            yield (stage := Stage(number, "masked", X, layer.outputs(X, self.mask)))
            X = layer.joined(X, [*stage.output])

    def after(self, stage: Stage, outputs: Array) -> Array:  # noqa: D102
        layer = self.encoders[stage.layer]
        return self.onward(stage.layer + 1, np.stack([layer.joined(stage.x, [*one]) for one in outputs]))

    def onward(self, layer: int, X: Array) -> Array:  # noqa: D102
        return self.scores(np.stack([self.stack.last_rows(one, self.mask, layer)[self.place] for one in X]))

    def streams(self, places: list[int]) -> Array:  # noqa: D102
        stages = [*self.stages()]
        last = self.encoders[-1].joined(stages[-1].x, [*stages[-1].output])
        return np.stack([one[places] for one in (*(stage.x for stage in stages), last)])

    def scores(self, rows: Array) -> Array:  # noqa: D102
        found: Array = self.scored.scores(rows, self.vectors).astype(np.float64)
        refuse_input(not np.isfinite(found).all(), "The scores of words are more than a number can hold.")
        return found

    @cached_property
    def logits(self) -> Array:  # noqa: D102
        H = self.stack.last_rows(self.X, self.mask, trail=self.trail)
        self.trail.mapped(self.scored.P, None, "")
        found: Array = self.scores(H[self.place :])[0]
        return found

    def parts(self, word: int, against: int | None) -> list[Part]:  # noqa: D102
        assert len(self.logits)  # the trail has been gone
        words = [(word, 1.0)] + ([] if against is None else [(against, -1.0)])
        row = sum(sign * self.scored.row(n, self.vectors) for n, sign in words)
        bias = sum(sign * float(self.scored.bias[n]) for n, sign in words)
        return [*self.trail.parts(np.asarray(row)), Part("output bias", bias)]

    def moved(self, layer: int, attention: str) -> tuple[tuple[str, ...], Array]:  # noqa: D102
        return self.tokens, self.trail.moved[layer, attention]

    def word(self, number: int) -> str:  # noqa: D102
        return as_text(self.words[number]) if number < len(self.words) else UNKNOWN

    def find(self, word: str, option: str) -> int:  # noqa: D102
        number = word_number(word, {one: n for n, one in enumerate(self.words)})
        if number == len(self.words) and word != UNKNOWN:
            hint = f"Give one word that it has; {UNKNOWN} stands for all that it has not."
            raise UsageError(f"{visible(word)} is no word of {self.name}.", hint, option)
        return number


Pass = CheckpointPass | LanguagePass


@contextmanager
def open_passes(
    given: Sequence[tuple[str, str | None]], settings: Settings, needs_gap: bool = True
) -> Iterator[list[Pass]]:
    """Give the model of these settings once for each text, which it has read, and its encoder the context, if any.

    Without a context, its encoder reads the text, and its decoder begins. A model that fills gaps says the word at its
    first; where none is needed, also at the last word.
    """
    if settings.model is None:
        if any(context is not None for _, context in given):
            said = "A second text is for a model (-m) with an encoder and a decoder."
            raise UsageError(said, option="--context")
        check_without_model(settings, says_words=True)
        settings = replace(settings, projection=settings.projection or DEFAULTS["masked"].projection)
        shared = embed.open_shared(settings := settings_of("masked", settings))
        yield [LanguagePass(text, settings, shared) for text, _ in given]
        return
    if settings.projection is not None:
        raise beside_model("projection")
    with open_model(settings.model) as model:
        yield [_read(text, context, settings, model, needs_gap) for text, context in given]


def _read(text: str, context: str | None, settings: Settings, model: OpenModel, needs_gap: bool) -> Pass:
    about = model.checkpoint.model
    begins = len(about.stacks) == 2 and context is None
    kind = "self" if begins or about.decoder is None else "cross" if about.encoder else "masked"
    reading = checkpoint.read_texts(kind, text, context, settings, model)
    if begins:
        start = Encoded((about.start,), (model.encoder.token(about.start),), (True,), ())
        run = model.checkpoint.run(texts([reading.query.ids]), texts([start.ids]))
        key = reading.query
        reading = reading._replace(run=run, side="decoder", asked="cross", query=start, key=key)
    reading.run.check_head()
    at = checkpoint_text.predicted_place(reading.run, reading.side, reading.query, model, settings)
    notes = [note.removeprefix("--next: ") for note in at.notes]
    if at.place is None and needs_gap:
        raise InputError(notes[0])
    place = checkpoint_text.last_word(reading.query) if at.place is None else at.place
    return CheckpointPass(reading._replace(notes=(*reading.notes, *notes)), place, at.fills)


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
    ids = [] if typed is None else declare.split(typed)
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
        words = (
            NextWord(word(n), float(shares[n]), n, float(scores[n]))
            for n in next_words.likeliest(known, count)
        )
        logits = {str(n): float(scores[n]) for n in ids} or None
        return Said(place, tuple(words), 1 + int((known > known[final]).sum()), float(shares[final]), logits)

    found: list[list[Said]] = []
    for start in range(0, len(places), several):
        some = streams[:, start : start + several]
        scores = read.scores(some.reshape(-1, some.shape[-1])).reshape(*some.shape[:2], -1)
        for n, place in enumerate(places[start : start + several]):
            final = next_words.likeliest(scores[-1, n, : read.vocabulary], 1)[0]
            found.append([said(place, one, final) for one in scores[:, n]])
        report(len(found) / len(places))
    return Lens(read, tuple(zip(*found, strict=True)))
