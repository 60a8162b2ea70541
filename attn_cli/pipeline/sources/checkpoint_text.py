"""The tokens that a pretrained model reads of a text, and what is to be said about them."""

from __future__ import annotations

from typing import NamedTuple

from attn_cli.errors import UsageError
from attn_cli.io.escape import visible
from attn_cli.models.checkpoints.tokenizer import TextEncoder
from attn_cli.settings.settings import Settings
from attn_cli.settings.validate import check_length, check_words

LONGEST, MOST_UNKNOWN, MOST_LISTED = 24, 8, 12


class Tokens(NamedTuple):
    """A text's tokens: their ids, and how they are spelled."""

    ids: tuple[int, ...]
    spelled: tuple[str, ...]
    special: tuple[bool, ...]  # which of them frame the text
    unknown: tuple[tuple[str, str], ...] = ()  # what the vocabulary lacks, and the token in its place


def tokens_of(encoder: TextEncoder, text: str, settings: Settings) -> Tokens:
    """Return a text's tokens; raise InputError if it, or one of them, is longer than the settings allow."""
    check_length(len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass")), settings)
    found = encoder.encode(text)
    check_words(found.tokens, settings)
    return Tokens(found.ids, found.tokens, found.special, found.unknown)


def unknown_words(texts: tuple[Tokens, ...], name: str) -> list[str]:
    """Return the note on words that the model's vocabulary lacks, if there are any."""
    unknown = {word: token for text in texts for word, token in text.unknown}
    if not unknown:
        return []
    words = ", ".join(f'"{visible(word[:LONGEST])}"' for word in list(unknown)[:MOST_UNKNOWN])
    words += f" and {len(unknown) - MOST_UNKNOWN} more" if len(unknown) > MOST_UNKNOWN else ""
    tokens = " and ".join(dict.fromkeys(map(visible, unknown.values())))
    return [f"{words} {'is' if len(unknown) == 1 else 'are'} not in the vocabulary of {name}: {tokens}."]


def shifted(encoder: TextEncoder, target: Tokens, start: int) -> Tokens:
    """Return what a decoder reads to make a text: its start token, then all tokens but one that closes the text."""
    stop = len(target.ids) - target.special[-1]
    spelled = (encoder.token(start), *target.spelled[:stop])
    return Tokens((start, *target.ids[:stop]), spelled, (True, *target.special[:stop]))


def shift_note(target: Tokens) -> str:
    """Return the note on the rows of a decoder, which reads its text shifted right by one."""
    return (
        f"The decoder reads the text shifted right by one, starting with {visible(target.spelled[0])}: each row is the "
        "position that predicts the next token."
    )


def piece_help(error: UsageError, settings: Settings, read: Tokens, encoder: TextEncoder) -> str:
    """Return what helps where --query or --versus names no token: a word's pieces, or the few tokens that there are."""
    word = {"--query": settings.query, "--versus": settings.versus}.get(error.option)
    if word is None or settings.join_pieces or not error.message.startswith("There is no token"):
        return ""
    for spelled in (word, f" {word}"):
        found = encoder.encode(spelled)
        own = [token for token, special in zip(found.tokens, found.special, strict=True) if not special]
        runs = (list(read.spelled[at : at + len(own)]) for at in range(len(read.spelled)))
        if len(own) > 1 and own in runs:
            pieces = ", ".join(map(visible, own))
            return f"{visible(word)} is the pieces {pieces}: --join-pieces joins them."
    if len(read.spelled) > MOST_LISTED:
        return ""
    return f"The tokens are {', '.join(map(visible, read.spelled))}; {error.hint[:1].lower()}{error.hint[1:]}"
