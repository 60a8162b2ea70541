"""The spelling of words: the forms that are looked up, the nearest spellings, and vectors guessed from n-grams."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from unicodedata import normalize

import numpy as np

from attn_cli.errors import UsageError, refuse_input, visible
from attn_cli.io.types import Array, Ints, NamedTuple, OnPart, no_report
from attn_cli.vectors import FileRows, Vectors, as_bytes, as_text

SHORTEST, LONGEST = 2, 5  # characters of an n-gram; a word stands in angle brackets


def check_has_ngrams(table: Vectors) -> None:
    """Refuse vectors that no word can be guessed with."""
    if table.ngrams is None:
        hint = "Add them with attn vectors subwords, or choose zero, random, nearest, skip or error."
        raise UsageError(f"--oov subword needs n-grams, and {table.name} has none.", hint, "--oov")


def normal(word: str) -> bytes:
    """Return a word as its n-grams are taken from it: in small letters, with composed accents."""
    return as_bytes(forms(word)[-1])


def guessable(words: Iterable[str], table: Vectors) -> list[str]:
    """Return the words that share a character with those that n-grams were learned from: of others they say nothing."""
    try:
        known = set(json.loads(table.about.get("ngrams", "null"))["letters"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return list(words)
    return [word for word in words if known & set(as_text(normal(word)))]


def guess(words: Sequence[str], table: Vectors) -> dict[str, Array]:
    """Return a float64 vector (dim,) for each word, of the table's one length if it has one.

    Raises UsageError where the table has no n-grams, InputError where they hold NaN or infinity.
    """
    check_has_ngrams(table)
    assert table.ngrams is not None
    rows, directions = table.ngrams
    sums = np.zeros((len(words), rows.shape[1]))
    counts = _add_ngrams(sums, [normal(word) for word in words], (SHORTEST, LONGEST), rows)
    out = np.asarray(directions[:], np.float64)
    said = f"The n-grams of {table.name} hold NaN or infinity."
    refuse_input(not np.isfinite(out).all(), said, "Make them anew with attn vectors subwords.")
    vectors = np.empty((len(words), out.shape[1]))
    # One by one: in one product, a word's last bits would depend on the words beside it.
    for n, total in enumerate(sums / np.sqrt(counts)[:, None]):
        vectors[n] = total @ out[:-1] + out[-1]
    if table.length is not None:
        vectors *= table.length / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
    return dict(zip(words, vectors, strict=True))


BLOCK = 1 << 22  # numbers, or bytes of text, that are worked on at once


def with_ngrams(own: Array, grams: Array, words: list[bytes], lengths: tuple[int, int]) -> Array:
    """Return the mean of each word's own vector and those of its n-grams, (words, dim).

    `own` is (words, dim), `grams` (buckets, dim); `lengths` are the fewest and the most characters of an n-gram.
    """
    vectors, first = own.astype(np.float32), 0
    ends = np.cumsum([len(word) + 2 for word in words])
    while first < len(words):
        before = int(ends[first - 1]) if first else 0
        last = max(first + 1, int(np.searchsorted(ends, before + BLOCK, side="right")))
        part = vectors[first:last]
        part /= 1 + _add_ngrams(part, words[first:last], lengths, grams)[:, None]
        first = last
    return vectors


def _add_ngrams(
    vectors: Array, words: list[bytes], lengths: tuple[int, int], table: Array | FileRows
) -> Array:
    """Add to each word's vector the rows of its n-grams, and return how many it has, in the vectors' type."""
    counts = np.zeros(len(words), vectors.dtype)
    step = max(1, BLOCK // table.shape[1])
    for owner, row in ngrams(words, *lengths, len(table)):
        counts += np.bincount(owner, minlength=len(words)).astype(vectors.dtype)
        for start in range(0, len(row), step):
            owners = owner[start : start + step]  # they ascend
            first = np.flatnonzero(np.diff(owners, prepend=-1))
            rows = table[row[start : start + step]].astype(vectors.dtype, copy=False)
            vectors[owners[first]] += np.add.reduceat(rows, first, axis=0)
    return counts


def ngrams(words: list[bytes], least: int, most: int, bucket: int) -> Iterator[tuple[Ints, Ints]]:
    """Yield, for each length from `least` to `most`, the n-grams of that length: each one's word and bucket.

    They are fastText's (Bojanowski et al., 2017): FNV-1a hashes, whose bytes fastText takes for signed numbers.
    """
    text = np.frombuffer(b"".join(b"<" + word + b">" for word in words), np.uint8)  # words in angle brackets
    signed = text.view(np.int8).astype(np.int32).view(np.uint32)
    starts = np.flatnonzero((text & 0xC0) != 0x80)  # of characters
    ends = np.append(starts[1:], len(text))
    word_of = np.repeat(np.arange(len(words)), [len(word) + 2 for word in words])[starts]
    hashes = np.full(len(starts), 2166136261, np.uint32)
    at = np.arange(len(starts))  # the characters that n-grams start with
    for length in range(1, most + 1):
        at = at[at + length <= len(starts)]
        at = at[word_of[at] == word_of[at + length - 1]]
        if not len(at):
            return
        for step in range(4):  # bytes of the last character
            byte = starts[at + length - 1] + step
            more = byte < ends[at + length - 1]
            hashes[at[more]] = (hashes[at[more]] ^ signed[byte[more]]) * np.uint32(16777619)
        if length == 1:
            same = np.diff(word_of) == 0
            found = np.flatnonzero(same[1:] & same[:-1]) + 1  # a bracket alone is not an n-gram
        else:
            found = at
        if length >= least:
            yield word_of[found], (hashes[found] % np.uint32(bucket)).astype(np.intp)


def features(word: str) -> tuple[str, ...]:
    """Return the names of a word's features: `*` that all words have, its shape, its endings, itself.

    >>> features("Walking")
    ('*', 'Xx', '-g', '-ng', '-ing', '-king', '=walking')
    >>> features("Don’t")
    ('*', 'Xx', '-t', "-'t", "-n't", "-on't", "=don't")
    >>> features("cat")
    ('*', 'x', '-t', '-at', '=cat')
    """
    # A long text has most of its words again; a long word comes once, and would take memory.
    return _features(word) if len(word) <= 64 else _features.__wrapped__(word)


@lru_cache(1 << 13)
def _features(word: str) -> tuple[str, ...]:
    word = normalize("NFC", word).replace("’", "'")  # as a vector's lookup has it, but for capitals
    lower = word.lower()
    endings = [f"-{lower[-n:]}" for n in range(1, 5) if len(lower) > n]
    return ("*", *_shape(word), *endings, f"={lower}")


def _shape(word: str) -> list[str]:
    """Return its shape: X all capitals, Xx capitalised, x small, 9 digits, x9 mixed, . marks, and what joins.

    >>> [_shape(word) for word in ("USA", "I", "McKay", "fox", "x2", "1/2", "-", "well-known", "and/or", "a@b")]
    [['X'], ['Xx'], ['Xx'], ['x'], ['x9'], ['9'], ['.'], ['x', '-'], ['x', '/'], ['x', '@']]
    """
    letters, has_digits = any(map(str.isalpha, word)), any(map(str.isdigit, word))
    capitals = "X" if word.isupper() and len(word) > 1 else "Xx" if word[:1].isupper() else "x"
    shape = ("x9" if letters else "9") if has_digits else capitals if letters else "."
    return [shape, *(mark for mark in ("-", "/", "@") if mark in word and letters)]


class SpellingFeatures(NamedTuple):
    """What a word's spelling adds to its vector: the sum of the vectors (features, d) of its features.

    Where not `always`, only a word without a vector starts so.
    """

    places: Mapping[str, int]
    vectors: Array
    always: bool

    def of(self, word: str) -> Array:
        """Return the sum for this word, (d,)."""
        found = [self.places[name] for name in features(word) if name in self.places]
        total: Array = self.vectors[np.array(found, dtype=np.intp)].astype(np.float64).sum(axis=0)
        return total


def forms(token: str) -> list[str]:
    """Return the forms of a token that are looked up: as written, lower-cased, with ' for ’ and composed accents."""
    lower = token.lower()
    return list(dict.fromkeys((token, lower, normalize("NFC", lower).replace("’", "'"))))


MOST_MISTAKES = 3


def near_words(
    words: Sequence[str], vectors: Vectors, k: int = 3, few: bool = False, report: OnPart = no_report
) -> dict[str, list[str]]:
    """Return, for each word, at most k known words spelled most like it, case apart; of equals, the commonest first.

    A mistake is a letter missing, added or wrong, or two neighbours swapped (optimal string alignment distance). There
    may be MOST_MISTAKES, with `few` one, in a long word two, and fewer than half the word's letters.
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
            most = MOST_MISTAKES if not few else 1 + (len(word) >= 8)
            allowed = near[-1][0] if len(near) == k else min(most, (len(word) - 1) // 2)
            new = extract(word.lower(), lower, scorer=OSA.distance, limit=2 * k, score_cutoff=allowed)
            had = {found for _, _, found in near}  # a doubled word is one word
            near += [(n, before + place, known[place]) for _, n, place in new if known[place] not in had]
            best[word] = sorted(near)[:k]
        before += len(block)
    return {word: [found for _, _, found in best.get(word, [])] for word in words}


def closest(words: Sequence[str], vectors: Vectors, report: OnPart = no_report) -> dict[str, str]:
    """Return the closest known word of each word that is one mistake away from it, or two where it is long.

    What holds a space is not a mistyped word.
    """
    near = near_words([word for word in words if " " not in word], vectors, 1, True, report)
    return {word: found[0] for word, found in near.items() if found}


def did_you_mean(words: Sequence[str], vectors: Vectors, report: OnPart = no_report) -> str:
    """Return a hint that names the known words closest to the first of `words` that has some, or nothing."""
    for word, found in near_words(words, vectors, report=report).items():
        if found:
            near = [visible(one) for one in found]
            listed = f"{', '.join(near[:-1])} or {near[-1]}" if len(near) > 1 else near[0]
            return f"Did you mean {listed}{f' for {visible(word)!r}' if len(words) > 1 else ''}? "
    return ""
