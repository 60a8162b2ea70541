"""The tokens that a pretrained model reads of a text, what is to be said about them, and those that it predicts."""

from __future__ import annotations

import numpy as np

from attn_cli.core.attention import softmax
from attn_cli.errors import InputError, UsageError, refuse, visible
from attn_cli.io.types import Array, NamedTuple, replace
from attn_cli.models.checkpoints import Model
from attn_cli.models.checkpoints.open_model import Encoded, OpenModel, TextEncoder
from attn_cli.models.checkpoints.run import Run
from attn_cli.settings import ALL, Settings, check_length, check_words, find_rows
from attn_cli.text.wordpieces import is_special
from attn_cli.trace import NextWord, NextWords, Trace

LONGEST, MOST_UNKNOWN, MOST_LISTED = 24, 8, 12
KINDS = {"self": ("encoder", "self"), "masked": ("decoder", "masked"), "cross": ("decoder", "cross")}


def tokens_of(encoder: TextEncoder, text: str, settings: Settings, second: str | None = None) -> Encoded:
    """Return the tokens of a text, or of a pair; raise InputError if one, or a token, is longer than settings allow."""
    for one in (text, second or ""):
        check_length(len(one) if one.isascii() else len(one.encode("utf-8", "surrogatepass")), settings)
    found = encoder.encode(text, second)
    check_words(found.tokens, settings)
    if second is not None and found.second is None:
        raise InputError("There are no tokens in the second text of the pair.", "Give at least one word.")
    return found if second is not None else found._replace(types=())


def last_word(text: Encoded) -> int:
    """Return the place of the last token that frames no text; the last one where all do."""
    return max((i for i, is_frame in enumerate(text.special) if not is_frame), default=len(text.ids) - 1)


def unknown_words(texts: tuple[Encoded, ...], name: str) -> list[str]:
    """Return the note on words that the model's vocabulary lacks, if there are any."""
    unknown = {word: token for text in texts for word, token in text.unknown}
    if not unknown:
        return []
    words = ", ".join(f'"{visible(word[:LONGEST])}"' for word in list(unknown)[:MOST_UNKNOWN])
    words += f" and {len(unknown) - MOST_UNKNOWN} more" if len(unknown) > MOST_UNKNOWN else ""
    tokens = " and ".join(dict.fromkeys(map(visible, unknown.values())))
    return [f"{words} {'is' if len(unknown) == 1 else 'are'} not in the vocabulary of {name}: {tokens}."]


def special_words(texts: tuple[Encoded, ...], has_segments: bool) -> list[str]:
    """Return the note on special tokens that were typed as text, if there are any."""
    framed = (token for text in texts for token in zip(text.tokens, text.special, strict=True))
    typed = [token for token, is_frame in framed if is_special(token) and not is_frame]
    if not typed:
        return []
    names = ", ".join(map(visible, dict.fromkeys(typed)))
    several = "are read as the model's special tokens" if len({*typed}) > 1 else "is read as a special token"
    closes = has_segments and any(text.special[-1] and text.tokens[-1] in typed for text in texts)
    segments = ", and all of the text as one segment: --pair makes a pair of two texts" if closes else ""
    return [f"{names} in the text {several}{segments}."]


def shifted(encoder: TextEncoder, target: Encoded, start: int) -> Encoded:
    """Return what a decoder reads to make a text: its start token, then all tokens but one that closes the text."""
    stop = len(target.ids) - target.special[-1]
    tokens = (encoder.token(start), *target.tokens[:stop])
    return Encoded((start, *target.ids[:stop]), tokens, (True, *target.special[:stop]), ())


def side_of(model: Model, kind: str, context: str | None) -> tuple[str, str]:
    """Return the side and the kind of attention that is asked for, as the model has them."""
    stacks, family = model.stacks, model.family
    side, asked = ("decoder", "masked") if "encoder" not in stacks and kind == "self" else KINDS[kind]
    if asked == "cross" and len(stacks) < 2:
        hint = "Leave out the second text: attn self TEXT -m DIR, or attn heads TEXT -m DIR."
        hint += " As a pair: attn self TEXT --pair TEXT -m DIR." * ("encoder" in stacks)
        raise UsageError(f"A model of the type {family} reads one text.", hint)
    said = f"This model (of the type {family}) is not causal: its words look at all others."
    refuse(side not in stacks, said, "Use attn self TEXT -m DIR; with --mask causal it tries that mask.")
    if (context is not None) != (side == "decoder" and len(stacks) == 2):
        wanted, hint = "one text", "Leave out the second text."
        if context is None:
            wanted = "a second text, which its encoder reads"
            hint = f"Try: attn heads TEXT --context CONTEXT --kind {kind}, or attn cross TEXT CONTEXT."
        raise UsageError(f"For {kind} attention, a model of the type {family} takes {wanted}.", hint)
    return side, asked


def check_named(settings: Settings, query: Encoded, key: Encoded, encoder: TextEncoder) -> None:
    """Raise UsageError where --query or --versus names no token: the hint has a word's pieces, or a few tokens."""
    named = {"--query": (settings.query, query.tokens), "--versus": (settings.versus, key.tokens)}
    for option, (word, tokens) in named.items():
        if word is None or settings.join_pieces:
            continue
        shown = tuple(token for token in tokens if not (settings.hide_special and is_special(token)))
        try:
            find_rows(word, shown, option)
        except UsageError as error:
            raise UsageError(error.message, _help(word, shown, encoder, error.hint), option) from None


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


class Predicted(NamedTuple):
    """The token at which a model predicts words, if any, whether they fill it, and notes."""

    place: int | None
    fills: bool
    notes: tuple[str, ...]


def with_next_tokens(trace: Trace, run: Run, query: Encoded, model: OpenModel, at: Predicted) -> Trace:
    """Return the trace with a pretrained model's likeliest tokens, if it predicts any: all its layers are computed.

    A causal stack predicts what follows the text's last token, another what fills the text's first mask.
    """
    if at.place is None:
        return trace
    from attn_cli.pipeline.next_words import likeliest  # only those who ask pay

    ids, encoder = query.ids, model.encoder

    def words_at(place: int, fills: bool) -> NextWords:
        logits = word_scores(run, model, place)
        shares = softmax(logits)
        best = likeliest(shares, trace.settings.next or 0)
        words = tuple(NextWord(encoder.text(n), float(shares[n]), n, float(logits[n])) for n in best)
        actual = float(shares[ids[place + 1]]) if not fills and place + 1 < len(ids) else None
        return NextWords(words, place, fills, encoder.token(ids[place]), actual)

    found = words_at(at.place, at.fills)
    places = range(len(ids)) if trace.settings.next_at == ALL and not at.fills else ()
    every = tuple(words_at(place, False) for place in places)
    return replace(trace, next_words=found, next_words_at=every or None)


def predicted_place(run: Run, side: str, query: Encoded, model: OpenModel, settings: Settings) -> Predicted:
    """Return the token at which words are predicted, and notes on that."""
    ids, name = query.ids, model.name
    last_side, stack = list(run.model.stacks.items())[-1]
    place, notes = None, list[str]()
    if side != last_side:
        asked = f"attn cross TEXT CONTEXT --next {settings.next} asks its decoder."
        notes.append(f"The encoder of {name} makes no words: {asked}")
    elif not run.has_head():
        notes.append(f"{name} has no language-model head in its files: it names no next words.")
    elif stack.causal:
        place = last_word(query)
    else:
        mask, id_ = model.encoder.mask()
        if id_ is None:
            notes.append(f"{name} is not causal and has no mask token, so it cannot fill in words.")
        elif id_ not in ids:
            into = f'Put {mask} into the text, as in "the {mask} sat".'
            notes.append(f"--next: {name} is not causal: it fills gaps. {into}")
        else:
            place, times = ids.index(id_), ids.count(id_)
            if times > 1:
                notes.append(f"The text has {mask} {times} times: the first, token {place}, is filled.")
            if settings.next_at == ALL:
                sees = "it already sees the words it would have to predict."
                notes.append(f"--next-at all: {name} is not causal: {sees}")
    return Predicted(place, not stack.causal, tuple(notes))


def word_scores(run: Run, model: OpenModel, place: int) -> Array:
    """Return the score of each word of the vocabulary at a place, (vocabulary,); InputError if they are no numbers."""
    logits: Array = run.logits(place)[0, 0].astype(np.float64)
    if not np.isfinite(logits.max()):  # NaN too
        raise InputError(f"{model.name} gives scores of words that are not numbers.", "Is its file sound?")
    return logits
