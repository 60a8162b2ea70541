"""Tokens of English as one writes them: with spaces, with quotes in pairs, and capitals where a sentence begins."""

from __future__ import annotations

from collections.abc import Sequence

from attn_cli.io.types import NamedTuple

JOINED = {*".,;:!?)%", "n't"}  # what no space stands before
GLUED = {*"($"}  # what no space stands after
SMALL, CAPITAL, CAPITALS = range(3)  # how a word is written within a sentence


class _Place(NamedTuple):
    """What the tokens before say of the next one."""

    begins: bool = True  # a sentence
    quotes: bool = False  # a quote is open
    glued: bool = True  # no space comes next

    def after(self, token: str) -> _Place:
        # What is said begins a sentence; what is cried or asked in it does not end one: "Who?" he asked.
        if token == '"':
            return _Place(not self.quotes or self.begins, not self.quotes, not self.quotes)
        if token in (".", "!", "?"):
            return _Place(token == "." or not self.quotes, self.quotes, False)
        return _Place(self.begins and not token[:1].isalnum(), self.quotes, token in GLUED)


def cased(word: str, case: int) -> str:
    """Return a word in small letters as it is written within a sentence."""
    return (word, word[:1].upper() + word[1:], word.upper())[case]


def in_writing(before: Sequence[str], words: Sequence[str]) -> tuple[tuple[str, ...], str]:
    r"""Return the words that come after some tokens, with a capital where a sentence begins, and all as text.

    >>> in_writing(["The", "fox", "said"], [",", '"', "we", "do", "n't", "."])
    ((',', '"', 'We', 'do', "n't", '.'), ', "We don\'t.')
    """
    place, tokens, text = _Place(), list[str](), ""
    for token in before:
        place = place.after(token)
    for word in words:
        closes = word == '"' and place.quotes
        is_joined = place.glued or closes or word in JOINED or word[:1] in "'’"
        token = cased(word, CAPITAL) if place.begins else word
        tokens.append(token)
        text += token if is_joined else f" {token}"
        place = place.after(token)
    return tuple(tokens), text
