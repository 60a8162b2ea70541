"""Which heads differ between two models on a text, or two texts in a model, and which next words do."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from difflib import SequenceMatcher
from itertools import zip_longest

import numpy as np

from attn_cli.core.attention import softmax
from attn_cli.errors import InputError, visible
from attn_cli.io.types import Array, NamedTuple, replace
from attn_cli.models.checkpoints.open_model import open_model
from attn_cli.pipeline import every_head, next_words
from attn_cli.pipeline.sources import checkpoint, checkpoint_text
from attn_cli.settings import Settings
from attn_cli.trace import entropy

WORDS = 5  # next words that are told
ROUNDING = 1e-12  # bits
ROUNDED_SUM = 1e-6  # a row whose sum is so near 1 has all of its weight
Pairs = tuple[tuple[int, int], ...]  # of places: in the first text, in the second


class MovedHead(NamedTuple):
    """A head, and the divergence of its weights in bits: 0 where they are the same, at most 1."""

    layer: int
    head: str
    divergence: float


class MovedWord(NamedTuple):
    """A token that may come next, with its probability in both models."""

    word: str
    id: int
    probabilities: tuple[float, float]


class Moved(NamedTuple):
    """What moved between two models, or texts: heads and words, the largest move first; `words` are of models."""

    heads: tuple[MovedHead, ...]
    queries: Pairs  # which rows, and which keys, were compared
    keys: Pairs
    words: tuple[MovedWord, ...] = ()
    where: str = ""  # after which token they come, or which gap they fill
    notes: tuple[str, ...] = ()

    def choose(self, settings: Settings) -> Settings:
        """Return the settings with the head that moved most of those that they ask for."""
        for one in self.heads:
            if one.divergence and settings.layer in (None, one.layer) and settings.head in (None, one.head):
                return replace(settings, layer=one.layer, head=one.head)
        return settings


def measure_moved(
    texts: tuple[str, str], context: str | None, settings: Settings, models: tuple[str, str]
) -> Moved:
    """Return which heads of two models differ on one text, or of one model on two texts, a layer at a time.

    Two models need the same tokens. Of two texts the tokens that are equal, in order, are compared (difflib's longest
    matching blocks). Raises InputError where models do not fit each other.
    """
    settings, kind = replace(settings, model=models[0]), "self" if context is None else "cross"
    with ExitStack() as stack:
        opened = {name: stack.enter_context(open_model(name)) for name in dict.fromkeys(models)}
        both = zip(texts, models, strict=True)
        readings = [checkpoint.read_texts(kind, text, context, settings, opened[name]) for text, name in both]
        for one in readings:
            checkpoint_text.check_named(settings, one.query, one.key, one.model.encoder)
        sizes = [f"{len(one.stack.layers)} layers x {one.stack.heads} heads" for one in readings]
        if sizes[0] != sizes[1]:
            said = f"{sizes[0]} have no counterparts in {sizes[1]}."
            raise InputError(said, "Give --vary model=A,B in place of both -m: one head of each is shown.")
        heads, queries, keys = list[MovedHead](), Pairs(), Pairs()
        for pair in zip(*(every_head.read_layers(one, settings) for one in readings), strict=True):
            layers = [every_head.shaped(one, settings, True) for one in pair]
            if not heads:
                tokens = [(one.source.query_tokens, one.source.key_tokens) for one in layers]
                queries, keys = (_aligned(a, b, readings) for a, b in zip(*tokens, strict=True))
            rows, columns = (np.array(pairs, np.intp).reshape(-1, 2).T for pairs in (queries, keys))
            cut = [layers[n].weights[:, rows[n][:, np.newaxis], columns[n]] for n in (0, 1)]
            cut = [with_rest(one) for one in cut] if len(opened) > 1 else cut
            heads += map(MovedHead, [layers[0].number] * len(cut[0]), layers[0].heads, divergences(*cut))
        moved = Moved(tuple(sorted(heads, key=lambda one: -one.divergence)), queries, keys)
        return moved if len(opened) == 1 else _with_words(moved, readings, replace(settings, next=WORDS))


def with_rest(weights: Array) -> Array:
    """Return weights (h, n_q, n_k) with one key more, which gets what no key gets: a sink's share, or a hidden token's.

    >>> with_rest(np.array([[[0.25, 0.5], [0.0, 0.0]]])).tolist()
    [[[0.25, 0.5, 0.25], [0.0, 0.0, 0.0]]]
    """
    sums = weights.sum(axis=-1, keepdims=True)
    rest = np.where((sums > 0) & (sums < 1 - ROUNDED_SUM), 1 - sums, 0.0)
    return np.concatenate([weights, rest], axis=-1)


def divergences(first: Array, second: Array) -> list[float]:
    """Return each head's Jensen-Shannon divergence in bits (h,), the mean over rows, of weights (h, n_q, n_k).

    It is H((p + q) / 2) - (H(p) + H(q)) / 2 (Lin 1991). Each row is divided by its sum; one that is all zeros in
    either does not count.

    >>> divergences(np.array([[[1.0, 0.0], [0.3, 0.3]]]), np.array([[[0.0, 1.0], [0.5, 0.5]]]))
    [0.5]
    """
    sums = np.stack([first.sum(axis=-1), second.sum(axis=-1)])
    p, q = np.stack([first, second]) / np.where(sums > 0, sums, 1)[..., np.newaxis]
    counts = (sums > 0).all(axis=0)
    each = (entropy((p + q) / 2) - (entropy(p) + entropy(q)) / 2) * counts
    found = each.sum(axis=-1) / np.maximum(1, counts.sum(axis=-1))
    return [one if one > ROUNDING else 0.0 for one in found.tolist()]


def _aligned(first: Sequence[str], second: Sequence[str], readings: Sequence[checkpoint.Reading]) -> Pairs:
    """Return the places of the tokens that are compared: all of two models, those that are equal in two texts."""
    if first != second and readings[0].model is not readings[1].model:
        longest = enumerate(zip_longest(first, second, fillvalue=""))
        n, a, b = next((n, visible(a[:40]), visible(b[:40])) for n, (a, b) in longest if a != b)
        hint = "Both need the same tokenizer; --join-pieces --hide-special compares whole words."
        raise InputError(f"The models' tokens part at place {n}: {a!r} and {b!r}.", hint)
    blocks = SequenceMatcher(None, first, second, autojunk=False).get_matching_blocks()
    return tuple((one.a + n, one.b + n) for one in blocks for n in range(one.size))


def _with_words(moved: Moved, readings: Sequence[checkpoint.Reading], settings: Settings) -> Moved:
    """Return what moved with the next words whose probability did, where both models make some."""
    places = [
        checkpoint_text.predicted_place(one.run, one.side, one.query, one.model, settings) for one in readings
    ]
    notes = dict.fromkeys(note.removeprefix("--next: ") for at in places for note in at.notes)
    moved, at, ids = moved._replace(notes=tuple(notes)), places[0], readings[0].query.ids
    if at.place is None or places[1].place is None or ids != readings[1].query.ids:
        return moved
    before, after = (softmax(checkpoint_text.word_scores(one.run, one.model, at.place)) for one in readings)
    n, text = min(len(before), len(after)), readings[0].model.encoder.text  # a table may be padded
    ordered = next_words.likeliest(np.abs(after[:n] - before[:n]), min(WORDS, n))
    words = tuple(MovedWord(text(id), id, (float(before[id]), float(after[id]))) for id in ordered)
    where = f"{'filling' if at.fills else 'after'} {text(ids[at.place]).strip()}"
    return moved._replace(words=words, where=where)
