"""Every head on random tokens that come again: what it does where no text helps it, and whether it copies.

Scores are those of Olsson et al. 2022 ("In-context Learning and Induction Heads", prefix matching on random tokens):
the mean weight that goes to a pattern, over the rows where it is possible. See `models.circuits` for copying.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from itertools import islice
from typing import NamedTuple

import numpy as np

from attn_cli.errors import InputError, UsageError
from attn_cli.io.array_types import Array, Bools
from attn_cli.io.escape import visible
from attn_cli.io.progress import OnPart
from attn_cli.models.checkpoints.open_model import OpenModel, open_model
from attn_cli.models.checkpoints.reader import Reader
from attn_cli.models.checkpoints.run import texts
from attn_cli.models.checkpoints.tokenizer import MASKS, UNKNOWN
from attn_cli.models.circuits import CheckpointCircuits, StackCircuits
from attn_cli.models.encoder import EncoderStack, matrix_of
from attn_cli.pipeline.every_head import LayerWeights, open_stack, read_layers, stack_layers
from attn_cli.pipeline.sources.checkpoint import Reading
from attn_cli.pipeline.sources.checkpoint_text import Tokens, side_of
from attn_cli.settings.settings import Settings
from attn_cli.text.wordpieces import is_special
from attn_cli.trace.head_roles import Role, Text, find_patterns, measure
from attn_cli.vectors.lookup import embed
from attn_cli.vectors.open_vectors import Vectors
from attn_cli.vectors.table import as_text

LENGTH, TIMES, FEWEST = (
    50,
    2,
    3,
)  # random tokens, how often they come, and how many it takes to tell patterns apart
LANGUAGE = "language"
SCORES = {  # of a model that looks back, and of one that looks at all tokens, the next one too
    "masked": ("induction", "previous", "same", "first"),
    "self": ("previous", "next", "same", "first"),
}
Copying = Callable[[int], list[float | None]]  # of the heads of a layer


class ProbedHead(NamedTuple):
    """One head: its share of each of SCORES (None where no row has it), what it is named for, whether it copies."""

    layer: int
    head: str
    name: str
    scores: dict[str, float | None]
    copying: float | None  # -1 to 1; None where it writes nothing, or the model scores no words


class Probe(NamedTuple):
    """Every head of a model on random tokens."""

    source: str
    kind: str  # self or masked
    seed: int
    length: int  # of the random tokens, which come TIMES times
    tokens: tuple[str, ...]  # as they are read, those that frame a text too
    ids: tuple[int, ...] | None
    heads: tuple[ProbedHead, ...]
    notes: tuple[str, ...]

    @property
    def measures(self) -> tuple[str, ...]:
        """What there is a value of: the kind's scores, and copying."""
        return (*SCORES[self.kind], *["copying"] * any(one.copying is not None for one in self.heads))


class _Opened(NamedTuple):
    """A model that reads random tokens, of which `before` and `after` frame a text."""

    tokens: tuple[str, ...]
    ids: tuple[int, ...] | None
    before: int
    after: int
    layers: Iterator[LayerWeights]
    copying: Copying | None
    notes: tuple[str, ...]


def probe(settings: Settings, layer: int | None = None, report: OnPart | None = None) -> Probe:
    """Return what each head of a model does on random tokens, of all layers or of one.

    The model is that of the settings, else the bundled language model. Raises UsageError for a layer that it lacks.
    """
    heads, count, kind, source = list[ProbedHead](), 0, "", ""
    with _on_disk(settings, layer, report) if settings.model else _learned(settings) as opened:
        for one in opened.layers:
            count, kind, source = count + 1, one.source.kind, one.source.name
            if layer in (None, one.number):
                copying = opened.copying(one.number) if opened.copying else [None] * len(one.heads)
                roles = roles_on_repeats(one.weights, one.mask, opened.before, opened.after)
                for head, role, share in zip(one.heads, roles, copying, strict=True):
                    scores = {name: role.shares[name] for name in SCORES[kind]}
                    heads.append(ProbedHead(one.number, head, role.name, scores, share))
            if one.number == layer:
                break
    if not heads:
        raise UsageError(f"There is no layer {layer}.", f"Layers are 0 to {count - 1}.", "--layer")
    length = (len(opened.tokens) - opened.before - opened.after) // TIMES
    return Probe(source, kind, settings.seed, length, opened.tokens, opened.ids, tuple(heads), opened.notes)


def roles_on_repeats(weights: Array, mask: Bools, before: int, after: int) -> list[Role]:
    """Return what each head does with weights (h, n, n) over different tokens that come TIMES times in a row.

    The `before` first and `after` last tokens frame the text: they are looked at, and their own rows do not count.
    """
    n = len(mask)
    length = (n - before - after) // TIMES
    places = [*range(-before, 0), *[*range(length)] * TIMES, *range(length, length + after)]
    names = [str(place) for place in places]  # tokens are the same where they have one name
    allowed = mask.copy()
    allowed[:before] = allowed[n - after :] = False
    found = find_patterns(Text(names, names, True), allowed)
    return [measure(one, allowed, found) for one in weights]


@contextmanager
def _on_disk(settings: Settings, last: int | None, report: OnPart | None) -> Iterator[_Opened]:
    """Open a model on disk, which reads tokens of its vocabulary; one with a decoder too reads with its encoder."""
    assert settings.model is not None
    with open_model(settings.model) as model:
        checkpoint, encoder = model.checkpoint, model.encoder
        side, asked = side_of(checkpoint.model, "self", None)
        stack, notes = checkpoint.model.stacks[side], [*checkpoint.model.notes]
        drawn = _random_ids(model, side, settings.seed)
        framed = encoder.encode(encoder.text(*drawn))
        before = next((n for n, is_frame in enumerate(framed.special) if not is_frame), 0)
        after = next((n for n, is_frame in enumerate(reversed(framed.special)) if not is_frame), 0)
        most = Reader(checkpoint.weights, stack).places() or LENGTH * TIMES + before + after
        drawn = drawn[: (most - before - after) // TIMES]
        if len(drawn) < FEWEST:
            raise InputError(f"{model.name} has too few tokens, or places, for {FEWEST} random ones, twice.")
        ids = (*framed.ids[:before], *drawn * TIMES, *framed.ids[len(framed.ids) - after :])
        spelled = tuple(map(encoder.token, ids))
        tokens = Tokens(ids, spelled, tuple(map(is_special, spelled)))
        reading = Reading(checkpoint.run(texts([ids])), side, asked, tokens, tokens, model)
        if report is not None:
            reading.run.report_to(report, last)
        circuits = None
        if len(checkpoint.model.stacks) > 1:
            notes.append(f"The encoder of {model.name} is probed. It scores no words: no copying.")
        elif not reading.run.has_head():
            notes.append(f"{model.name} has no language-model head in its files: no copying.")
        else:
            circuits = CheckpointCircuits(checkpoint.model, checkpoint.weights).copying
        layers = read_layers(reading, settings)
        yield _Opened(spelled, ids, before, after, layers, circuits, tuple(notes))


def _random_ids(model: OpenModel, side: str, seed: int) -> list[int]:
    """Return different tokens of the vocabulary, LENGTH where there are as many: none that frames or stands in."""
    weights, words, encoder = (
        model.checkpoint.weights,
        model.checkpoint.model.stacks[side].words,
        model.encoder,
    )
    table = weights.stored(weights.find(*words.tables) or words.tables[0], None, words.width)
    drawn = np.random.default_rng(seed).permutation(table.entry.shape[0]).tolist()
    return [*islice((n for n in drawn if _is_word(encoder.token(n), n)), LENGTH)]


def _is_word(token: str, id_: int) -> bool:
    is_free = token[1:7] == "unused" or token == f"<{id_}>"  # the tokenizer has no token of this number
    return not (is_free or is_special(token) or token in MASKS or token in UNKNOWN)


@contextmanager
def _learned(settings: Settings) -> Iterator[_Opened]:
    """Open a model of attn's own, by default language, which reads words of its vocabulary."""
    settings = replace(settings, projection=settings.projection or LANGUAGE, tokenizer="whitespace")
    shared = open_stack(settings)
    stack, table = shared.stack, shared.table
    assert stack is not None and table is not None
    known = [as_text(word) for block in table.word_blocks() for word in block]
    drawn = (known[n] for n in np.random.default_rng(settings.seed).permutation(len(known)).tolist())
    words = [*islice((word for word in drawn if word.split() == [word]), LENGTH)]
    if len(words) < FEWEST:
        raise InputError(f"{visible(table.name)} has fewer than {FEWEST} words.")
    layers = stack_layers("self", " ".join(words * TIMES), None, settings, shared)
    notes = [] if stack.words else [f"{stack.name} scores no words: no copying."]
    circuits = cache(partial(_circuits, stack, table, known))  # made when the first layer asks
    copying = (lambda layer: circuits().copying(layer)) if stack.words else None
    yield _Opened(tuple(words * TIMES), None, 0, 0, layers, copying, tuple(notes))


def _circuits(stack: EncoderStack, table: Vectors, known: list[str]) -> StackCircuits:
    """Return the circuits of words that are read, and scored, with what was learned beside their vectors."""
    assert stack.words is not None
    scored = matrix_of(table).astype(np.float64)
    scored[: len(stack.words.corrections)] += stack.words.corrections
    return StackCircuits(stack, embed(known, table, "model", 0, stack.spelling).X, scored)
