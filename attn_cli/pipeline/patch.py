"""Activation patching: what a part of one run brings with it when it is carried over into another run."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from attn_cli.errors import InputError
from attn_cli.io.array_types import Array, Ints
from attn_cli.io.escape import count, visible
from attn_cli.io.progress import OnPart
from attn_cli.pipeline.effect import Word, differ, word_of
from attn_cli.pipeline.passes import Pass
from attn_cli.text.wordpieces import as_text

MAPS = ("residual", "heads", "cross_heads")


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
    clean: Pass,
    corrupt: Pass,
    texts: tuple[str, str],
    target: str | None,
    against: str | None,
    report: OnPart,
) -> Patch:
    """Return what a difference of two logits becomes with each part of the clean run in the corrupt one.

    By default it is the likeliest word of the clean run less that of the corrupt one. Raises InputError for texts whose
    tokens do not face each other, UsageError for one word twice.
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
            for some in corrupt.at_once(len(changes)):
                row[changes[some]] = differences(logits_of(_with_each(changes[some], A, B)))
            found.setdefault(name, []).append(row)
    return Patch(
        clean.name, texts, (clean.tokens, corrupt.tokens), clean.place, clean.fills, word, other_word,
        float(differences(clean.logits)), without, {name: _padded(rows) for name, rows in found.items()},
        tuple(clean.heads(n) for n in range(len(found["heads"]))),
        tuple(dict.fromkeys((*clean.notes, *corrupt.notes))),
    )  # fmt: skip


def _padded(rows: list[Array]) -> Array:
    width = max(map(len, rows))
    return np.array([np.pad(row, (0, width - len(row)), constant_values=np.nan) for row in rows])


def _with_each(rows: Ints, A: Array, B: Array) -> Array:
    """Return B once for each of these rows, which is A's there, (rows, *B.shape)."""
    found = np.repeat(B[None], len(rows), axis=0)
    found[np.arange(len(rows)), rows] = A[rows]
    return found


def _check_aligned(clean: Sequence[str], corrupt: Sequence[str], place: int, place_2: int) -> None:
    """Refuse texts of different lengths, and masks at different places."""
    if len(clean) != len(corrupt):
        pairs = enumerate(zip(clean, corrupt, strict=False))
        at = next((n for n, (one, other) in pairs if one != other), min(len(clean), len(corrupt)))
        here, there = (visible(" ".join(as_text(one[at : at + 3]))) or "nothing" for one in (clean, corrupt))
        raise InputError(
            f"The clean text has {count(len(clean), 'token', 'tokens')}, the corrupt one {len(corrupt):,}. "
            f"They part at token {at}: {here} / {there}.",
            "Change words for others of as many tokens.",
        )
    if place != place_2:
        said = f"The clean text's mask is token {place}, and the corrupt one's token {place_2}."
        raise InputError(said, "Put the mask at the same place.")
