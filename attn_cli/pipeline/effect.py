"""What each part of a model adds to the word that it says, and what becomes of the word without each head."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from attn_cli.core.attention import softmax
from attn_cli.errors import UsageError
from attn_cli.io.array_types import Array
from attn_cli.io.escape import visible
from attn_cli.io.progress import OnPart
from attn_cli.models.logit_parts import Cut, Part
from attn_cli.pipeline.passes import Pass, Stage

MEAN_NOTE = "In the place of a head that is knocked out stands its mean over the text."


class Word(NamedTuple):
    """A word of a model's vocabulary."""

    token: str
    id: int


class Without(NamedTuple):
    """What is left without a head: the target's logit, less the other's where there is one, and its probability."""

    layer: int
    head: int
    logit: float
    probability: float
    attention: str  # self, masked or cross


class Effect(NamedTuple):
    """What adds to a word's logit, or to its difference from another's."""

    source: str
    tokens: tuple[str, ...]
    place: int
    fills: bool  # whether the word stands in the place, and not after it
    target: Word
    against: Word | None
    logit: float  # the model's own
    probability: float  # the target's own
    rank: int  # the target's, from 1, among the words that have a vector
    softcap: float | None  # of the logits; parts sum to what is below it
    parts: tuple[Part, ...]
    heads: tuple[tuple[str, ...], ...]  # the names of each layer's
    # The strongest head, its keys, and what it moved from each.
    moved: tuple[Part, tuple[str, ...], Array] | None
    knock_outs: tuple[Without, ...] | None
    with_mean: bool  # whether a head that is knocked out gives its mean
    notes: tuple[str, ...]

    @property
    def sum(self) -> float:
        """What all parts come to: the logit, before a softcap."""
        return sum(one.value for one in self.parts)

    @property
    def capped_sum(self) -> float:
        """What the sum comes to as the model's own figures are: of one word, through the softcap."""
        cap = self.softcap
        return self.sum if cap is None or self.against is not None else float(cap * np.tanh(self.sum / cap))

    def record(self) -> dict[str, object]:
        """Return it as JSON has it."""
        moved = None
        if self.moved is not None:
            part, keys, values = self.moved
            moved = {**part._asdict(), "key_tokens": keys, "values": values.tolist()}
        return {
            "schema": "attn/1", "kind": "effect", "source": self.source, "query_tokens": self.tokens,
            "place": self.place, "fills": self.fills, "target": self.target._asdict(),
            "against": self.against and self.against._asdict(), "logit": self.logit, "probability": self.probability,
            "rank": self.rank, "softcap": self.softcap, "parts": [one._asdict() for one in self.parts],
            "sum": self.sum, "moved": moved,
            "knock_outs": self.knock_outs and [one._asdict() for one in self.knock_outs], "notes": self.notes,
        }  # fmt: skip


def effect_of(
    read: Pass, target: str | None, against: str | None, knocks_out: bool, with_mean: bool, report: OnPart
) -> Effect:
    """Return what adds to the logit of the target, or of the likeliest word, at the place where the model says one."""
    word = word_of(read, target, "--target")
    other = None if against is None else word_of(read, against, "--against", word)
    parts = tuple(read.parts(word.id, other and other.id))
    heads = [one for one in parts if one.part == "head"]
    moved = None
    if heads:
        most = max(heads, key=lambda one: abs(one.value))
        assert most.layer is not None and most.head is not None and most.attention is not None
        keys, values = read.moved(most.layer, most.attention)
        moved = most, keys, values[most.head]
    logits = read.logits
    rank = 1 + int((logits[: read.vocabulary] > logits[word.id]).sum())
    return Effect(
        read.name, read.tokens, read.place, read.fills, word, other, float(differ(logits, word, other)),
        float(softmax(logits)[word.id]), rank, read.softcap, parts, tuple(map(read.heads, range(read.layers))), moved,
        tuple(knock_outs(read, word, other, with_mean, report)) if knocks_out else None, with_mean,
        (*read.notes, *[MEAN_NOTE] * with_mean),
    )  # fmt: skip


def word_of(read: Pass, typed: str | None, option: str, other: Word | None = None) -> Word:
    """Return the word that was typed, or the likeliest; UsageError where it is the `other` again."""
    id_ = read.guess if typed is None else read.find(typed, option)
    found = Word(read.word(id_), id_)
    if found == other:
        said = f"The two words to compare are one: {visible(found.token.strip())}."
        raise UsageError(said, "Name two, as --target A --against B; the likeliest is the default.", option)
    return found


def differ(logits: Array, word: Word, other: Word | None) -> Array:
    """Return a word's logits (...), of logits (..., V), or their difference from another's."""
    found: Array = logits[..., word.id] - (0 if other is None else logits[..., other.id])
    return found


def knock_outs(
    read: Pass, word: Word, other: Word | None, with_mean: bool, report: OnPart
) -> Iterator[Without]:
    """Yield what is left without each head in turn; all is computed anew from its layer on."""
    for stage in read.stages():
        report(stage.layer / read.layers)
        for some in read.at_once(len(stage.output)):
            logits = read.after(stage, _without(stage, some, with_mean))
            chances, left = softmax(logits)[:, word.id], differ(logits, word, other)
            for head, logit, chance in zip(range(some.start, some.stop), left, chances, strict=False):
                yield Without(stage.layer, head, float(logit), float(chance), stage.kind)


def _without(stage: Stage, some: slice, with_mean: bool) -> Array:
    """Return the heads' outputs without each of some heads in turn, (b, h, n, d_v)."""
    heads = range(len(stage.output))[some]
    return np.stack([Cut(((0, head),), "", with_mean=with_mean).of(0, stage.output) for head in heads])
