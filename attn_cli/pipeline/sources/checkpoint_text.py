"""The tokens that a pretrained model reads of a text, and what is to be said about them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from attn_cli.errors import UsageError
from attn_cli.io.escape import visible
from attn_cli.models.checkpoints.tokenizer import TextEncoder
from attn_cli.settings.settings import Settings
from attn_cli.settings.validate import check_length, check_words, find_rows

if TYPE_CHECKING:
    from attn_cli.models.checkpoints.describe import Model

LONGEST, MOST_UNKNOWN, MOST_LISTED = 24, 8, 12
KINDS = {"self": ("encoder", "self"), "masked": ("decoder", "masked"), "cross": ("decoder", "cross")}


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


def side_of(model: Model, kind: str, context: str | None) -> tuple[str, str]:
    """Return the side and the kind of attention that is asked for, as the model has them."""
    stacks, family = model.stacks, model.family
    side, asked = ("decoder", "masked") if "encoder" not in stacks and kind == "self" else KINDS[kind]
    if asked == "cross" and len(stacks) < 2:
        raise UsageError(
            f"A model of the type {family} reads one text.",
            "Leave out the second text: attn self TEXT -m DIR, or attn heads TEXT -m DIR.",
        )
    if side not in stacks:
        raise UsageError(
            f"This model (of the type {family}) is not causal: its words look at all others.",
            "Use attn self TEXT -m DIR; with --mask causal it tries that mask.",
        )
    if (context is not None) != (side == "decoder" and len(stacks) == 2):
        wanted, hint = "one text", "Leave out the second text."
        if context is None:
            wanted = "a second text, which its encoder reads"
            hint = f"Try: attn heads TEXT --context CONTEXT --kind {kind}, or attn cross TEXT CONTEXT."
        raise UsageError(f"For {kind} attention, a model of the type {family} takes {wanted}.", hint)
    return side, asked


def check_named(settings: Settings, query: Tokens, key: Tokens, encoder: TextEncoder) -> None:
    """Raise UsageError where --query or --versus names no token: the hint has a word's pieces, or a few tokens."""
    named = {"--query": (settings.query, query.spelled), "--versus": (settings.versus, key.spelled)}
    for option, (word, tokens) in named.items():
        if word is None or settings.join_pieces:
            continue
        try:
            find_rows(word, tokens, option)
        except UsageError as error:
            raise UsageError(error.message, _help(word, query.spelled, encoder, error.hint), option) from None


def _help(word: str, tokens: tuple[str, ...], encoder: TextEncoder, hint: str) -> str:
    for spelled in (word, f" {word}"):
        found = encoder.encode(spelled)
        own = [token for token, special in zip(found.tokens, found.special, strict=True) if not special]
        runs = (list(tokens[at : at + len(own)]) for at in range(len(tokens)))
        if len(own) > 1 and own in runs:
            return f"{visible(word)} is the pieces {', '.join(map(visible, own))}: --join-pieces joins them."
    if len(tokens) > MOST_LISTED:
        return hint
    return f"The tokens are {', '.join(map(visible, tokens))}; {hint[:1].lower()}{hint[1:]}"
