"""Every head on random tokens that come again: what it does where no text helps it, and whether it copies.

A score is the mean weight that goes to a pattern over the rows where it is possible, on random tokens (Olsson et al.
2022, "In-context Learning and Induction Heads"). See `models.circuits` for copying.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice

import numpy as np

from attn_cli.io.types import Array, Bools, NamedTuple, OnPart
from attn_cli.models.checkpoints.describe import Stack
from attn_cli.models.checkpoints.open_model import OpenModel, open_model
from attn_cli.models.checkpoints.reader import Reader
from attn_cli.models.checkpoints.run import texts
from attn_cli.models.checkpoints.tokenizer import MASKS, UNKNOWN, Encoded
from attn_cli.models.circuits import Copying, of_checkpoint, of_stack
from attn_cli.models.encoder import matrix_of
from attn_cli.pipeline.every_head import LayerWeights, open_stack, read_layers, stack_layers, up_to
from attn_cli.pipeline.sources.checkpoint import Reading
from attn_cli.pipeline.sources.checkpoint_text import side_of
from attn_cli.settings.settings import Settings
from attn_cli.text.wordpieces import is_special
from attn_cli.trace.head_roles import Role, Text, find_patterns, measure
from attn_cli.vectors.lookup import embed
from attn_cli.vectors.table import as_text

LENGTH, TIMES = 50, 2  # random tokens, and how often they come
SCORES = {  # of a model that looks back, and of one that looks at all tokens
    "masked": ("induction", "previous", "same", "first"),
    "self": ("previous", "next", "same", "first"),
}


class ProbedHead(NamedTuple):
    """One head: what it is named for, its share of each pattern, and whether it copies, -1 to 1; None for no value."""

    layer: int
    head: str
    name: str
    induction: float | None = None
    previous: float | None = None
    next: float | None = None
    same: float | None = None
    first: float | None = None
    copying: float | None = None


class Probe(NamedTuple):
    """What every head of a model does on random tokens."""

    source: str
    attention: str  # self or masked
    seed: int
    tokens: tuple[str, ...]  # as they are read, those that frame a text too
    ids: tuple[int, ...] | None
    notes: tuple[str, ...]
    length: int = 0  # of the random tokens, which come so many
    times: int = TIMES
    heads: tuple[ProbedHead, ...] = ()

    def record(self) -> dict[str, object]:
        """Return it as JSON has it."""
        about = self._asdict() | {"heads": [one._asdict() for one in self.heads]}
        return {"schema": "attn/1", "kind": "heads_by_probe", **about}


# Without its heads; which tokens frame the text
Opened = tuple[Probe, Sequence[bool], Iterator[LayerWeights], Copying | None]


def probe(settings: Settings, layer: int | None = None, report: OnPart | None = None) -> Probe:
    """Return what each head of a model, else of the bundled language model, does on random tokens.

    `layer` is the only one that is wanted, or None. Raises UsageError for one that there is not.
    """
    heads = list[ProbedHead]()
    with _on_disk(settings, layer, report) if settings.model else _learned(settings) as opened:
        found, frames, layers, copying_of = opened
        names = [str(token) for token in found.ids or found.tokens]
        for one in up_to(layer, layers):
            if layer in (None, one.number):
                copying = copying_of(one.number) if copying_of else [None] * len(one.heads)
                roles = roles_on_repeats(one.weights, one.mask, names, frames)
                for head, role, share in zip(one.heads, roles, copying, strict=True):
                    scores = {name: role.shares[name] for name in SCORES[found.attention]}
                    heads.append(ProbedHead(one.number, head, role.name, copying=share, **scores))
    return found._replace(length=(len(frames) - sum(frames)) // TIMES, heads=tuple(heads))


def roles_on_repeats(weights: Array, mask: Bools, names: Sequence[str], frames: Sequence[bool]) -> list[Role]:
    """Return what each head does with weights (h, n, n) over tokens of these names; rows of `frames` do not count."""
    allowed = mask & ~np.array(frames)[:, np.newaxis]
    found = find_patterns(Text(names, names, True), allowed)
    return [measure(one, allowed, found) for one in weights]


@contextmanager
def _on_disk(settings: Settings, last: int | None, report: OnPart | None) -> Iterator[Opened]:
    """Open a model on disk, which reads tokens of its vocabulary; one with a decoder too reads with its encoder."""
    assert settings.model is not None
    with open_model(settings.model) as model:
        of, weights = model.checkpoint.model, model.checkpoint.weights
        side, asked = side_of(of, "self", None)
        ids, frames = _random_ids(model, of.stacks[side], settings.seed)
        tokens = Encoded(ids, tuple(map(model.encoder.token, ids)), frames, ())
        run = model.checkpoint.run(texts([ids]))
        if report is not None:
            run.report_to(report, last)
        why = None if run.has_head() else "has no language-model head in its files"
        why = why if len(of.stacks) == 1 else "is probed by its encoder, which scores no words"
        notes = of.notes if why is None else (*of.notes, f"{model.name} {why}: no copying.")
        found = Probe(model.name, asked, settings.seed, tokens.tokens, ids, notes)
        layers = read_layers(Reading(run, side, asked, tokens, tokens, model), settings)
        yield found, frames, layers, None if why else of_checkpoint(of, weights)


def _random_ids(model: OpenModel, stack: Stack, seed: int) -> tuple[tuple[int, ...], tuple[bool, ...]]:
    """Return random tokens TIMES times between those that frame a text, and which frame it."""
    weights, words, encoder = model.checkpoint.weights, stack.words, model.encoder
    table = weights.stored(weights.find(*words.tables) or words.tables[0], None, words.width)
    every = np.random.default_rng(seed).permutation(table.entry.shape[0]).tolist()
    plain = ((n, word) for n in every if not is_special(word := encoder.token(n)))
    drawn = tuple(islice((n for n, word in plain if word not in (*MASKS, *UNKNOWN)), LENGTH))
    framed = encoder.encode(encoder.text(*drawn or (0,)))
    inner = [n for n, is_frame in enumerate(framed.special) if not is_frame] or [0]
    start, stop = framed.ids[: inner[0]], framed.ids[inner[-1] + 1 :]
    if (places := Reader(weights, stack).places()) is not None:
        drawn = drawn[: max(0, places - len(start) - len(stop)) // TIMES]
    inside = (False,) * (TIMES * len(drawn))
    return (*start, *drawn * TIMES, *stop), ((True,) * len(start) + inside + (True,) * len(stop))


@contextmanager
def _learned(settings: Settings) -> Iterator[Opened]:
    """Open a model of attn's own, by default language, which reads words of its vocabulary."""
    settings = replace(settings, projection=settings.projection or "language", tokenizer="whitespace")
    shared = open_stack(settings)
    stack, table = shared.stack, shared.table
    assert stack is not None and table is not None
    known = [as_text(word) for block in table.word_blocks() for word in block]
    drawn = (known[n] for n in np.random.default_rng(settings.seed).permutation(len(known)).tolist())
    words = TIMES * tuple(islice((word for word in drawn if word.split() == [word]), LENGTH))
    notes = () if stack.words else (f"{stack.name} scores no words: no copying.",)
    found = Probe(stack.name, "masked" if stack.words else "self", settings.seed, words, None, notes)
    copying = None
    if stack.words is not None:  # words are read, and scored, with what was learned beside their vectors
        scored = matrix_of(table).astype(np.float64)
        scored[: len(stack.words.corrections)] += stack.words.corrections
        copying = of_stack(stack, embed(known, table, "model", 0, stack.spelling).X, scored)
    layers = stack_layers("self", " ".join(words), None, settings, shared)
    yield found, (False,) * len(words), layers, copying
