"""The known words whose spelling is closest to one that is not known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from attn_cli.io.escape import visible
from attn_cli.vectors.store.table import OnProgress, as_text, no_progress

if TYPE_CHECKING:
    from attn_cli.vectors.store.protocol import Vectors

MOST_MISTAKES = 3
LONG = 8  # letters from which two mistakes are few
SHOWN = 3


def near_words(
    words: Sequence[str],
    vectors: Vectors,
    k: int = SHOWN,
    most: int = MOST_MISTAKES,
    report: OnProgress = no_progress,
) -> dict[str, list[str]]:
    """Return, for each of `words`, at most k known words spelled most like it, case apart.

    Those with the fewest mistakes come first, then the commonest (which stand first). A mistake is a letter missing,
    added or wrong, or two neighbours swapped (optimal string alignment distance); there may be at most `most`, and
    fewer than half the word's letters. The vectors' words are gone through once.
    """
    # Imported only for a mistyped word.
    from rapidfuzz.distance import OSA
    from rapidfuzz.process import extract

    best: dict[str, list[tuple[int, int, str]]] = {word: [] for word in words if len(word) > 2}
    before = 0
    for block in vectors.word_blocks(report) if best else ():
        known = list(dict.fromkeys(as_text(one) for one in block))
        lower = [one.lower() for one in known]
        for word, near in best.items():
            allowed = near[-1][0] if len(near) == k else min(most, (len(word) - 1) // 2)
            new = extract(word.lower(), lower, scorer=OSA.distance, limit=2 * k, score_cutoff=allowed)
            had = {found for _, _, found in near}  # a doubled word is one word
            near += [(n, before + place, known[place]) for _, n, place in new if known[place] not in had]
            best[word] = sorted(near)[:k]
        before += len(block)
    return {word: [found for _, _, found in best.get(word, [])] for word in words}


def closest(words: Sequence[str], vectors: Vectors, report: OnProgress = no_progress) -> dict[str, str]:
    """Return, for each word that is spelled nearly like a known one, the closest known word.

    It is one mistake away, of a long word two; what holds a space is no mistyped word.
    """
    short = [word for word in words if len(word) < LONG and " " not in word]
    long = [word for word in words if len(word) >= LONG and " " not in word]
    near = near_words(short, vectors, 1, 1, report) | (
        near_words(long, vectors, 1, 2, report) if long else {}
    )
    return {word: found[0] for word, found in near.items() if found}


def did_you_mean(words: Sequence[str], vectors: Vectors, report: OnProgress = no_progress) -> str:
    """Return a hint that names the known words closest to the first of `words` that has some, or nothing."""
    for word, found in near_words(words, vectors, report=report).items():
        if found:
            near = [visible(one) for one in found]
            listed = f"{', '.join(near[:-1])} or {near[-1]}" if len(near) > 1 else near[0]
            return f"Did you mean {listed}{f' for {visible(word)!r}' if len(words) > 1 else ''}? "
    return ""
