"""Text to tokens: English words as treebanks cut them, or whitespace, or characters."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple
from unicodedata import category


class Tokens(NamedTuple):
    """What a tokenizer found: the tokens in order, and what it left out, in order."""

    tokens: tuple[str, ...]
    dropped: tuple[str, ...]


def tokenize(text: str, tokenizer: str = "words", keep_punctuation: bool = False) -> Tokens:
    """Cut `text` into tokens with the named tokenizer.

    >>> tokenize("The fox's cub doesn't sleep.").tokens
    ('The', 'fox', "'s", 'cub', 'does', "n't", 'sleep')
    """
    if tokenizer == "whitespace":
        return Tokens(tuple(text.split()), ())
    if tokenizer == "characters":
        return Tokens(tuple(_characters(text)), ())
    return _words(text, keep_punctuation)


def _words(text: str, keep_punctuation: bool) -> Tokens:
    tokens: list[str] = []
    dropped: list[str] = []
    has_clitics = "'" in text or "’" in text
    for piece in _pattern(_special_characters(text)).findall(text):
        kind = category(piece[0])[0]
        if kind in "LN":
            if has_clitics and ("'" in piece or "’" in piece):
                tokens += _split_clitics(piece)
            else:
                tokens.append(piece)
        elif kind in "MS" or category(piece[0]) in ("Co", "Cn") or (kind == "P" and keep_punctuation):
            tokens.append(piece)
        else:
            dropped.append(piece)
    return Tokens(tuple(tokens), tuple(dropped))


_CLITICS = ("n't", "'re", "'ve", "'ll", "'s", "'m", "'d")


def _split_clitics(word: str) -> list[str]:
    """Split English clitics off the end of a word: couldn't've -> could n't 've."""
    clitics: list[str] = []
    end = len(word)
    while True:
        tail = word[max(0, end - 3) : end].lower().replace("’", "'")
        found = next((clitic for clitic in _CLITICS if tail.endswith(clitic) and len(clitic) < end), None)
        if found is None:
            return [word[:end], *reversed(clitics)]
        clitics.append(word[end - len(found) : end])
        end -= len(found)


def _special_characters(text: str) -> str:
    """Return the distinct characters of `text` that are neither ASCII nor letters nor digits."""
    if text.isascii():
        return ""
    return "".join(sorted(c for c in set(text) if c > "\x7f" and not c.isalnum()))


@lru_cache(maxsize=4096)
def _pattern(special: str) -> re.Pattern[str]:
    """Build the pattern of one piece, for texts whose special characters are `special`.

    Python's `re` has no Unicode categories, so the few special characters that a text really holds
    are sorted into classes. Each piece is matched in linear time.
    """

    def of(*kinds: str) -> str:
        return _class([ord(c) for c in special if category(c).startswith(kinds)])

    marks = of("M")
    letter = f"(?:[^\\W_]|[{marks}])" if marks else r"[^\W_]"
    word = f"{letter}+(?:['’.,_-]{letter}+)*"
    # A symbol takes its selectors, skin tone and tags along; a zero-width joiner ties symbols together.
    tail = f"[{marks}\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f]*"
    symbol = f"[$+<=>\\^`|~{of('S', 'Co', 'Cn')}]{tail}"
    flag = "[\U0001f1e6-\U0001f1ff]{2}"
    emoji = f"{flag}|{symbol}(?:\u200d{symbol})*"
    # A run of the same mark is one piece, as treebanks have it: "...", "--", "?!" is two.
    mark = r"\.+|-+|!+|\?+|\*+|[^\w\s]|_"
    return re.compile(f"{word}|{emoji}|{mark}|[\x00-\x08\x0e-\x1b\x7f]")


def _class(codes: list[int]) -> str:
    """Return the inside of a character class for these ascending code points, runs as ranges."""
    runs: list[list[int]] = []
    for code in codes:
        if runs and runs[-1][1] == code - 1:
            runs[-1][1] = code
        else:
            runs.append([code, code])
    return "".join(f"{re.escape(chr(first))}-{re.escape(chr(last))}" for first, last in runs)


def _characters(text: str) -> list[str]:
    # Grapheme clusters are another project's life's work; loaded only here.
    from wcwidth import iter_graphemes

    return [cluster for cluster in iter_graphemes(text) if not cluster.isspace()]
