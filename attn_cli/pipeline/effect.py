"""What a part of a model adds to the word that it says: by itself, by its absence, or carried over into another run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import zip_longest

import numpy as np

from attn_cli.core.attention import softmax
from attn_cli.errors import InputError, UsageError, count, refuse_input, visible
from attn_cli.io.types import Array, NamedTuple, OnPart
from attn_cli.models.logit_parts import Cut, Part
from attn_cli.pipeline.passes import Pass
from attn_cli.text.wordpieces import as_text

ROWS = 1 << 13  # words' vectors that are computed at once, of texts beside each other
MAPS = ("residual", "heads", "cross_heads")  # of what is carried over
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
        """What the sum of one word's parts comes to as the model's own figures are: through the softcap."""
        return self.sum if self.softcap is None else float(self.softcap * np.tanh(self.sum / self.softcap))

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
    if typed is not None and not typed.strip():
        raise UsageError(f"{option} is empty.", "Give a word.", option)
    # Words without a vector, which are as one, are none that a model says.
    id_ = int(read.logits[: read.vocabulary].argmax()) if typed is None else read.find(typed, option)
    found = Word(read.word(id_), id_)
    if found == other:
        said = f"The two words to compare are one: {visible(found.token.strip())}."
        raise UsageError(said, "Name two, as --target A --against B; the likeliest is the default.", option)
    return found


def differ(logits: Array, word: Word, other: Word | None) -> Array:
    """Return a word's logits (...), of logits (..., V), or their difference from another's."""
    return logits[..., word.id] - (0 if other is None else logits[..., other.id])


def knock_outs(
    read: Pass, word: Word, other: Word | None, with_mean: bool, report: OnPart
) -> Iterator[Without]:
    """Yield what is left without each head in turn; all is computed anew from its layer on."""
    for stage in read.stages():
        report(stage.layer / read.layers)
        for some in _at_once(range(len(stage.output)), read):
            cuts = (Cut(((0, head),), "", with_mean=with_mean) for head in some)
            logits = read.after(stage, np.stack([cut.of(0, stage.output) for cut in cuts]))
            chances, left = softmax(logits)[:, word.id], differ(logits, word, other)
            for head, logit, chance in zip(some, left, chances, strict=True):
                yield Without(stage.layer, head, float(logit), float(chance), stage.kind)


def _at_once(changes: Sequence[int], read: Pass) -> Iterator[Sequence[int]]:
    """Yield those of the changed texts that are computed together."""
    size = max(1, ROWS // len(read.tokens))
    return (changes[start : start + size] for start in range(0, len(changes), size))


class Patch(NamedTuple):
    """The difference of two words' logits in a corrupt run, with each part of a clean run carried over into it."""

    source: str
    texts: tuple[str, str]  # clean, corrupt
    tokens: tuple[tuple[str, ...], tuple[str, ...]]
    place: int
    fills: bool  # whether the word stands in the place, and not after it
    target: Word
    against: Word
    clean: float  # the target's logit less the other's
    corrupt: float
    # Of MAPS those that there are: (layers, n) or (layers, h), NaN for a head that is not there.
    maps: dict[str, Array]
    names: tuple[tuple[str, ...], ...]  # of each layer's heads
    notes: tuple[str, ...]

    @property
    def recovered(self) -> dict[str, Array] | None:
        """What share of the clean difference comes back, 0 for the corrupt one; None where the two are equal."""
        gap = self.clean - self.corrupt
        return {name: (M - self.corrupt) / gap for name, M in self.maps.items()} if gap else None

    def record(self) -> dict[str, object]:
        """Return it as JSON has it."""
        shares = self.recovered
        return {
            "schema": "attn/1", "kind": "patch", "source": self.source,
            "clean": self.texts[0], "corrupt": self.texts[1],
            "clean_tokens": self.tokens[0], "corrupt_tokens": self.tokens[1],
            "place": self.place, "fills": self.fills,
            "target": self.target._asdict(), "against": self.against._asdict(),
            "clean_difference": self.clean, "corrupt_difference": self.corrupt,
            **_as_lists(self.maps), "recovered": None if shares is None else _as_lists(shares), "notes": self.notes,
        }  # fmt: skip


def _as_lists(maps: dict[str, Array]) -> dict[str, object]:
    return {name: [row[row == row].tolist() for row in maps[name]] if name in maps else None for name in MAPS}


def patch_of(
    clean: Pass, corrupt: Pass, both: tuple[str, str], target: str | None, against: str | None, report: OnPart
) -> Patch:
    """Return what a difference of two logits becomes with each part of the clean run in the corrupt one.

    By default it is the likeliest word of the clean run less that of the corrupt one. Raises InputError for tokens that
    do not face each other, UsageError for one word twice.
    """
    _check_aligned(clean.tokens, corrupt.tokens, clean.place, corrupt.place)
    word = word_of(clean, target, "--target")
    other_word = word_of(corrupt, against, "--against", word)
    differences = partial(differ, word=word, other=other_word)
    without, found = float(differences(corrupt.logits)), dict[str, list[Array]]()
    for own, other in zip(clean.stages(), corrupt.stages(), strict=True):
        report(own.layer / clean.layers)
        heads = partial(corrupt.after, other)
        if own.kind == "cross":
            jobs = [("cross_heads", own.output, other.output, heads)]
        else:
            stream = partial(corrupt.onward, own.layer)
            jobs = [("residual", own.x, other.x, stream), ("heads", own.output, other.output, heads)]
        for name, A, B, logits_of in jobs:
            row = np.full(len(A), without)
            changes = np.flatnonzero((A != B).reshape(len(A), -1).any(axis=1))  # the others bring nothing
            for some in _at_once(changes.tolist(), corrupt):
                each = np.repeat(B[None], len(some), axis=0)  # B, with one row of A
                each[np.arange(len(some)), some] = A[some]
                row[some] = differences(logits_of(each))
            found.setdefault(name, []).append(row)
    return Patch(
        clean.name, both, (clean.tokens, corrupt.tokens), clean.place, clean.fills, word, other_word,
        float(differences(clean.logits)), without,
        {name: np.array([*zip_longest(*rows, fillvalue=np.nan)]).T for name, rows in found.items()},
        tuple(clean.heads(n) for n in range(len(found["heads"]))),
        tuple(dict.fromkeys((*clean.notes, *corrupt.notes))),
    )  # fmt: skip


def _check_aligned(clean: Sequence[str], corrupt: Sequence[str], place: int, place_2: int) -> None:
    """Refuse texts of different lengths, and masks at different places."""
    if len(clean) != len(corrupt):
        pairs = enumerate(zip(clean, corrupt, strict=False))
        at = next((n for n, (one, other) in pairs if one != other), min(len(clean), len(corrupt)))
        here, there = (visible(" ".join(as_text(one[at : at + 3]))) or "nothing" for one in (clean, corrupt))
        said = f"The clean text has {count(len(clean), 'token', 'tokens')}, the corrupt one {len(corrupt):,}."
        parts = f"They part at token {at}: {here} / {there}."
        raise InputError(f"{said} {parts}", "Change words for others of as many tokens.")
    said = f"The clean text's mask is token {place}, and the corrupt one's token {place_2}."
    refuse_input(place != place_2, said, "Put the mask at the same place.")
