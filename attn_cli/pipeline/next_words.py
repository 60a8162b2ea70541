"""What a pretrained model says: its likeliest next tokens, or fillers of a mask, with their probabilities."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from attn_cli.core.attention import softmax
from attn_cli.core.masks import find_rule, named
from attn_cli.errors import InputError, UsageError
from attn_cli.io.escape import shell_quote
from attn_cli.models.encoder import MASK, UNKNOWN, EncoderStack, causal, matrix_of, word_number
from attn_cli.pipeline.inputs import Inputs
from attn_cli.settings.settings import ALL, Settings
from attn_cli.settings.validate import with_next_words
from attn_cli.trace.computation import NextWords
from attn_cli.trace.trace import LARGE, Trace
from attn_cli.vectors.table import as_text

if TYPE_CHECKING:
    from attn_cli.io.array_types import Array
    from attn_cli.io.progress import OnPart
    from attn_cli.pipeline.sources.checkpoint import Reading

ROWS = 256  # places whose words are scored at once


def with_tokens(trace: Trace, reading: Reading) -> Trace:
    """Return the trace with a pretrained model's likeliest tokens, or a note on why there are none.

    A causal stack predicts what follows the text's last token, another what fills the text's first mask. All layers of
    the model are computed.
    """
    count, name = trace.settings.next or 0, reading.model.name
    place, fills, notes = _predicted_place(reading, count)
    found = None if place is None else _likeliest_tokens(reading, place, count, fills)
    every = None
    if trace.settings.next_at == ALL and found is not None:
        if fills:
            notes.append(
                f"--next-at all: {name} is not causal: it already sees the words it would have to predict."
            )
        else:
            places = range(len(reading.query.ids))
            every = tuple(_likeliest_tokens(reading, at, count, fills) for at in places)
    return replace(trace, next_words=found, next_words_at=every, notes=(*trace.notes, *notes))


def _predicted_place(reading: Reading, count: int) -> tuple[int | None, bool, list[str]]:
    """Return the token at which words are predicted, if any, whether they fill it, and notes."""
    ids, name, run = reading.query.ids, reading.model.name, reading.run
    last_side, stack = list(run.model.stacks.items())[-1]
    place, note = None, ""
    if reading.side != last_side:
        note = (
            f"The encoder of {name} makes no words: attn cross TEXT CONTEXT --next {count} asks its decoder."
        )
    elif not run.has_head():
        note = f"{name} has no language-model head in its files: it names no next words."
    elif stack.causal:
        place = max(
            (i for i, is_frame in enumerate(reading.query.special) if not is_frame), default=len(ids) - 1
        )
    else:
        mask, id_ = reading.model.encoder.mask()
        if id_ is None:
            note = f"{name} is not causal and has no mask token, so it cannot fill in words."
        elif id_ not in ids:
            note = f'--next: {name} is not causal: it fills gaps. Put {mask} into the text, as in "the {mask} sat".'
        else:
            place, times = ids.index(id_), ids.count(id_)
            note = (
                f"The text has {mask} {times} times: the first, token {place}, is filled."
                if times > 1
                else ""
            )
    return place, not stack.causal, [note] if note else []


def _likeliest_tokens(reading: Reading, place: int, count: int, fills: bool) -> NextWords:
    ids, encoder, name = reading.query.ids, reading.model.encoder, reading.model.name
    logits: Array = reading.run.logits(place)[0, 0].astype(np.float64)
    if not np.isfinite(logits.max()):  # NaN too
        raise InputError(f"{name} gives scores of words that are not numbers.", "Is its file sound?")
    shares = softmax(logits)
    words = tuple((encoder.text(n), float(shares[n])) for n in _likeliest(shares, count))
    actual = float(shares[ids[place + 1]]) if not fills and place + 1 < len(ids) else None
    return NextWords(words, place, fills, encoder.token(ids[place]), actual)


def _likeliest(shares: Array, count: int) -> list[int]:
    """Return the places of the largest shares; of equal ones the first."""
    some = np.argpartition(-shares, min(count, len(shares) - 1))[: count + 1]
    ties = np.flatnonzero(shares >= shares[some].min())
    found: list[int] = ties[np.argsort(-shares[ties], kind="stable")][:count].tolist()
    return found


def settings_for(
    kind: str, settings: Settings, stack: EncoderStack, has_context: bool
) -> tuple[Settings, list[str]]:
    """Return the settings that a language model reads a text with, and notes on them."""
    name, notes = stack.name, []
    if has_context or kind == "cross":
        raise UsageError(
            f"{name} reads one text, from left to right: it has no second text to look at.",
            f"Try attn masked TEXT -p {shell_quote(settings.projection or name)}, or another projection (-p).",
            "--projection",
        )
    if settings.mask is None:
        settings = replace(settings, mask=MASK)
        if kind == "self":
            notes.append(
                f"{name} is read under the causal mask that it was trained with; --mask none takes it off."
            )
    elif _shows_the_next(settings.mask):
        under = "Without its mask" if settings.mask == "none" else f"Under {settings.mask}"
        cheats = (
            f"{under} {name} cheats: each word sees the next one, the very word that it had to guess when "
            "it was trained."
        )
        is_told = settings.next or kind == "masked"
        notes.append(f"{cheats} Its next words are still predicted with the mask." if is_told else cheats)
    if settings.tokenizer == "words":
        settings = replace(settings, keep_punctuation=True)  # its words too
    if (
        settings.layer is None and not settings.every_head
    ):  # a head that has a name is found in whatever layer
        main = stack.facts.get("main")
        head = str(main) if settings.head is None and isinstance(main, str) else settings.head
        layer = stack.layer_of(head)
        settings = replace(settings, head=head, layer=layer) if layer is not None else settings
    return (with_next_words(settings) if kind == "masked" else settings), notes


def _shows_the_next(mask: str) -> bool:
    found = None if find_rule(mask) is None else named(mask, 2, 2)
    return mask == "none" or (found is not None and bool(found.rows(range(1))[0, 1]))


def with_next(
    trace: Trace, inputs: Inputs, settings: Settings, stack: EncoderStack, report: OnPart | None
) -> Trace:
    """Return the trace with the likeliest next words after the text, and after each prefix if that is asked for."""
    if not settings.next:
        return trace
    side, table = inputs.query, inputs.table
    assert side.X is not None and table is not None and stack.words is not None
    X = (side.X if side.words is None else side.words)[side.own.start : side.own.stop]
    tokens = trace.query_tokens[side.own.start : side.own.stop]
    is_long = len(tokens) ** 2 > LARGE
    H = stack.last_rows(X, causal(len(X)), report=report if is_long else None)
    words = [word for block in table.word_blocks() for word in block]
    places = range(len(tokens)) if settings.next_at == ALL else range(len(tokens) - 1, len(tokens))
    vectors, found = matrix_of(table), list[NextWords]()
    rows = {word: n for n, word in enumerate(words)} if len(places) > 1 else {}
    for start in range(places.start, places.stop, ROWS):
        some = range(start, min(start + ROWS, places.stop))
        shares = stack.words.probabilities(H[some.start : some.stop], vectors)
        for place, row in zip(some, shares, strict=True):
            actual = float(row[word_number(tokens[place + 1], rows)]) if place + 1 < len(tokens) else None
            likeliest = tuple(
                (as_text(words[n]) if n < len(words) else UNKNOWN, float(row[n]))
                for n in _likeliest(row, settings.next)
            )
            found.append(NextWords(likeliest, side.own.start + place, False, tokens[place], actual))
    every = tuple(found) if settings.next_at == ALL else None
    return replace(trace, next_words=found[-1], next_words_at=every)
