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
    logits = read.logits
    id_ = read.guess if target is None else read.find(target, "--target")
    other = None if against is None else read.find(against, "--against")
    if id_ == other:
        said = f"The two words to compare are one: {visible(read.word(id_).strip())}."
        raise UsageError(said, "Give another word.", "--against")
    parts = tuple(read.parts(id_, other))
    heads = [one for one in parts if one.part == "head"]
    moved = None
    if heads:
        most = max(heads, key=lambda one: abs(one.value))
        assert most.layer is not None and most.head is not None and most.attention is not None
        keys, values = read.moved(most.layer, most.attention)
        moved = most, keys, values[most.head]
    words = [Word(read.word(n), n) for n in (id_, *(() if other is None else (other,)))]
    shares, known = softmax(logits), logits[: read.vocabulary]
    return Effect(
        read.name, read.tokens, read.place, read.fills, words[0], words[1] if len(words) > 1 else None,
        float(_differ(logits, id_, other)), float(shares[id_]), 1 + int((known > logits[id_]).sum()), read.softcap,
        parts, tuple(map(read.heads, range(read.layers))), moved,
        tuple(knock_outs(read, id_, other, with_mean, report)) if knocks_out else None, with_mean,
        (*read.notes, *[MEAN_NOTE] * with_mean),
    )  # fmt: skip


def _differ(logits: Array, id_: int, other: int | None) -> Array:
    found: Array = logits[..., id_] - (0 if other is None else logits[..., other])
    return found


def knock_outs(read: Pass, id_: int, other: int | None, with_mean: bool, report: OnPart) -> Iterator[Without]:
    """Yield what is left without each head in turn; all is computed anew from its layer on."""
    for stage in read.stages():
        report(stage.layer / read.layers)
        for some in read.at_once(len(stage.output)):
            logits = read.after(stage, _without(stage, some, with_mean))
            chances, left = softmax(logits)[:, id_], _differ(logits, id_, other)
            for head, logit, chance in zip(range(some.start, some.stop), left, chances, strict=False):
                yield Without(stage.layer, head, float(logit), float(chance), stage.kind)


def _without(stage: Stage, some: slice, with_mean: bool) -> Array:
    """Return the heads' outputs without each of some heads in turn, (b, h, n, d_v)."""
    heads = range(len(stage.output))[some]
    return np.stack([Cut(((0, head),), "", with_mean=with_mean).of(0, stage.output) for head in heads])
