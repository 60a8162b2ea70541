"""Text to tokens: English words as in treebanks, or at whitespace, or characters."""

from __future__ import annotations

import re
from functools import cache
from unicodedata import category

from attn_cli.io.types import NamedTuple


class Tokens(NamedTuple):
    """The tokens of a text, and what the tokenizer dropped, both in order."""

    tokens: tuple[str, ...]
    dropped: tuple[str, ...]


def tokenize(text: str, tokenizer: str = "words", keep_punctuation: bool = False) -> Tokens:
    """Split `text` into tokens with the named tokenizer.

    >>> tokenize("The fox's cub doesn't sleep.").tokens
    ('The', 'fox', "'s", 'cub', 'does', "n't", 'sleep')
    """
    if tokenizer == "whitespace":
        return Tokens(tuple(filter(None, re.split(_SPACES, text))), ())
    if tokenizer == "characters":
        from wcwidth import iter_graphemes  # only this tokenizer needs the tables of grapheme clusters

        return Tokens(tuple(one for one in iter_graphemes(text) if re.fullmatch(_SPACES, one) is None), ())
    return _words(text, keep_punctuation)


# Python counts the controls U+001C to U+001F and U+0085 as space; here they are shown, not swallowed.
_CONTROLS = "\x1c\x1d\x1e\x1f\x85"
_SPACES = f"[^\\S{_CONTROLS}]+"


def _words(text: str, keep_punctuation: bool) -> Tokens:
    tokens: list[str] = []
    dropped: list[str] = []
    has_clitics = "'" in text or "’" in text
    for piece in _pieces(text):
        is_word = piece[0].isalnum()  # quicker to ask for than the category, and mostly the answer
        kind = "L" if is_word else category(piece[0])[0]
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


# Python's `re` has no Unicode categories, so pieces are matched in a copy of the text of the same length, in which
# one mark stands for all marks and one symbol for all symbols but those that build emoji. Repetitions are possessive:
# nothing has to be tried again, and a match remembers nothing of its millions of letters.
_MARK, _SYMBOL = "\u0301", "\xa4"
_FLAG_LETTER, _SKIN, _TAG = "\U0001f1e6-\U0001f1ff", "\U0001f3fb-\U0001f3ff", "\U000e0020-\U000e007f"
_ONE_SYMBOL = f"[$+<=>\\^`|~{_SYMBOL}{_FLAG_LETTER}{_SKIN}][{_MARK}{_SKIN}{_TAG}]*+"
_SYMBOLS = f"|[{_FLAG_LETTER}]{{2}}|{_ONE_SYMBOL}(?:\u200d{_ONE_SYMBOL})*+"  # a flag, a symbol, an emoji
_RUNS = rf"|\.+|-+|!+|\?+|\*+|[^\w\s]|[_{_CONTROLS}]"  # a run of one mark, as treebanks have it: "...", "--"


@cache
def _piece(is_ascii: bool) -> re.Pattern[str]:
    # Where there are no marks and emoji, in a third of the time.
    letter, symbols = ("[^\\W_]", "") if is_ascii else (f"(?:[^\\W_]|{_MARK})", _SYMBOLS)
    return re.compile(f"{letter}++(?:['’.,_-]{letter}++)*+{symbols}{_RUNS}")


def _pieces(text: str) -> list[str]:
    """Split text into words, symbols and runs of marks, in linear time; only white space is left out."""
    if text.isascii():
        return _piece(True).findall(text)
    shadow = text.translate({ord(char): _shadow(char) for char in set(text) if char > "\x7f"})
    return [text[found.start() : found.end()] for found in _piece(False).finditer(shadow)]


def _shadow(char: str) -> str:
    kind = category(char)
    if kind[0] == "M":
        return _MARK
    builds_emoji = "\U0001f1e6" <= char <= "\U0001f1ff" or "\U0001f3fb" <= char <= "\U0001f3ff"
    return _SYMBOL if not builds_emoji and (kind[0] == "S" or kind in ("Co", "Cn")) else char


# The forms of each pronoun that stands for somebody or something named before.
FORMS = {
    "he": ("he", "him", "his", "himself"),
    "she": ("she", "her", "hers", "herself"),
    "it": ("it", "its", "itself"),
    "they": ("they", "them", "their", "theirs", "themselves"),
}
PRONOUNS = {form: forms for forms in FORMS.values() for form in forms}
