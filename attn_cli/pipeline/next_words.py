"""What a pretrained model says: its likeliest next tokens, or fillers of a mask, with their probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from attn_cli.core.attention import softmax
from attn_cli.errors import InputError
from attn_cli.trace.trace import NextWords

if TYPE_CHECKING:
    from attn_cli.io.array_types import Array
    from attn_cli.models.checkpoints.run import Run
    from attn_cli.models.checkpoints.tokenizer import TextEncoder


class Read(NamedTuple):
    """What the model's last side reads: ids, and which of them frame the text."""

    ids: Sequence[int]
    special: Sequence[bool]


def find_next_words(
    run: Run, side: str, read: Read, encoder: TextEncoder, count: int, name: str
) -> tuple[NextWords | None, list[str]]:
    """Return the `count` likeliest tokens, or None, and notes on them. All layers of the model are computed.

    A causal stack says what follows the text's last token, another what fills the text's first mask. `side` is the
    one whose attention is shown: where a decoder follows it and does not run, nothing is said. `name` is the model's,
    as notes show it.
    """
    last_side, stack = list(run.model.stacks.items())[-1]
    if side != last_side:
        return None, [
            f"The encoder of {name} makes no words: attn cross TEXT CONTEXT --next {count} asks its decoder."
        ]
    if not run.has_head():
        return None, [f"{name} has no language-model head in its files: it names no next words."]
    if stack.causal:
        at = max((i for i, is_frame in enumerate(read.special) if not is_frame), default=len(read.ids) - 1)
        return _likeliest(run, read.ids, at, encoder, count, name, fills=False), []
    mask, id_ = encoder.mask()
    if mask is None:
        return None, [f"{name} is not causal, and its vocabulary has no token for a gap: it names no words."]
    masks = [i for i, one in enumerate(read.ids) if one == id_]
    if not masks:
        return None, [
            f'--next: {name} is not causal: it fills gaps. Put {mask} into the text, as in "the {mask} sat".'
        ]
    notes = []
    if len(masks) > 1:
        notes.append(f"The text has {mask} {len(masks)} times: the first, token {masks[0]}, is filled.")
    return _likeliest(run, read.ids, masks[0], encoder, count, name, fills=True), notes


def find_at_each(
    run: Run, read: Read, encoder: TextEncoder, count: int, name: str
) -> tuple[tuple[NextWords, ...] | None, list[str]]:
    """Return the `count` likeliest tokens after each token, or None, and notes on them."""
    if not list(run.model.stacks.values())[-1].causal:
        return None, [f"--next-at all: {name} is not causal: it sees the words that it would have to tell."]
    places = range(len(read.ids))
    return tuple(_likeliest(run, read.ids, at, encoder, count, name, fills=False) for at in places), []


def _likeliest(
    run: Run, ids: Sequence[int], place: int, encoder: TextEncoder, count: int, name: str, fills: bool
) -> NextWords:
    """Return the likeliest tokens at a place; of equally likely ones, those that the vocabulary has first."""
    logits: Array = run.logits(place)[0, 0].astype(np.float64)
    if not np.isfinite(logits.max()):  # NaN too
        raise InputError(f"{name} gives scores of words that are no numbers.", "Is its file sound?")
    shares = softmax(logits)
    best = np.argsort(-shares, kind="stable")[:count].tolist()
    words = tuple((encoder.text(n), float(shares[n])) for n in best)
    came = float(shares[ids[place + 1]]) if not fills and place + 1 < len(ids) else None
    return NextWords(words, place, fills, encoder.token(ids[place]), came)
