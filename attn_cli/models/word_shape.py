"""Spelling features of a word: its shape, its ending, and the word itself."""

from __future__ import annotations

from unicodedata import normalize

LONGEST_ENDING = 4


def features(word: str) -> list[str]:
    """Return the names of a word's features: `*` that all words have, its shape, its endings, itself.

    >>> features("Walking")
    ['*', 'Xx', '-g', '-ng', '-ing', '-king', '=walking']
    >>> features("n’t") == features("n't")
    True
    """
    word = normalize("NFC", word).replace("’", "'")  # as a vector's lookup has it, but for capitals
    lower = word.lower()
    endings = [f"-{lower[-n:]}" for n in range(1, LONGEST_ENDING + 1) if len(lower) > n]
    return ["*", *_shape(word), *endings, f"={lower}"]


def _shape(word: str) -> list[str]:
    """Return its shape: X all capitals, Xx capitalised, x small, 9 digits, x9 mixed, . marks, and what joins."""
    letters = any(char.isalpha() for char in word)
    if any(char.isdigit() for char in word):
        shape = "x9" if letters else "9"
    elif letters:
        shape = "X" if word.isupper() and len(word) > 1 else "Xx" if word[:1].isupper() else "x"
    else:
        shape = "."
    joined = [mark for mark in ("-", "/", "@") if mark in word and letters]
    return [shape, *joined]
