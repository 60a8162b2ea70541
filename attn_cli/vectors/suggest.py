"""The known words whose spelling is closest to one that is not known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from attn_cli.vectors.table import as_text
from attn_cli.visible import visible

if TYPE_CHECKING:
    from attn_cli.vectors.interface import Vectors

MOST_MISTAKES = 3
SHOWN = 3


def near_words(word: str, vectors: Vectors, k: int = SHOWN) -> list[str]:
    """Return at most k known words spelled most like `word`, case apart: fewest mistakes first, then commonest.

    A mistake is a letter missing, added or wrong, or two neighbours swapped (optimal string alignment
    distance); there may be at most three, and fewer than half the word's letters.
    """
    # Only those who mistyped a word pay for these.
    from rapidfuzz.distance import OSA
    from rapidfuzz.process import extract

    lower = word.lower()
    most = min(MOST_MISTAKES, (len(lower) - 1) // 2)
    best: list[tuple[float, int, str]] = []
    before = 0
    for block in vectors.word_blocks() if most > 0 else ():
        words = [as_text(one) for one in block]
        if len(best) == k:
            most = int(best[-1][0])
        near = extract(lower, [one.lower() for one in words], scorer=OSA.distance, limit=k, score_cutoff=most)
        known = {found for _, _, found in best}  # a doubled word is one word
        best += [
            (mistakes, before + place, words[place])
            for _, mistakes, place in near
            if words[place] not in known
        ]
        best = sorted(best)[:k]
        before += len(words)
    return [found for _, _, found in best]


def closest(words: Sequence[str], vectors: Vectors) -> dict[str, str]:
    """Return, for each word that is spelled much like a known one, the closest known word."""
    near = {word: near_words(word, vectors, 1) for word in words}
    return {word: found[0] for word, found in near.items() if found}


def did_you_mean(word: str, vectors: Vectors) -> str:
    """Return a hint that names the closest known words, or nothing."""
    near = [visible(found) for found in near_words(word, vectors)]
    return (
        f"Did you mean {' or '.join([', '.join(near[:-1])] * (len(near) > 1) + near[-1:])}? " if near else ""
    )
