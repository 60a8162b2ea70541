"""What a pretrained model says: its likeliest next tokens, or fillers of a mask, with their probabilities."""

from __future__ import annotations

from collections.abc import Sequence
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
    from attn_cli.models.checkpoints.run import Run
    from attn_cli.models.checkpoints.tokenizer import TextEncoder

ROWS = 256  # places whose words are scored at once


def find_next_words(
    run: Run,
    side: str,
    special: Sequence[bool],
    ids: Sequence[int],
    encoder: TextEncoder,
    count: int,
    name: str,
) -> tuple[NextWords | None, list[str]]:
    """Return the `count` likeliest tokens, or None, and notes on them. All layers of the model are computed.

    A causal stack predicts what follows the text's last token, another what fills the text's first mask. The model's
    last side reads `ids`, of which the `special` ones frame the text. `side` is the one whose attention is shown: where
    a decoder follows it and does not run, nothing is predicted. `name` is the model's, as notes show it.
    """
    last_side, stack = list(run.model.stacks.items())[-1]
    if side != last_side:
        note = (
            f"The encoder of {name} makes no words: attn cross TEXT CONTEXT --next {count} asks its decoder."
        )
        return None, [note]
    if not run.has_head():
        return None, [f"{name} has no language-model head in its files: it names no next words."]
    if stack.causal:
        at = max((i for i, is_frame in enumerate(special) if not is_frame), default=len(ids) - 1)
        return likeliest(run, ids, at, encoder, count, name), []
    mask, id_ = encoder.mask()
    if mask is None:
        return None, [f"{name} is not causal and has no mask token, so it cannot fill in words."]
    masks = [i for i, one in enumerate(ids) if one == id_]
    if not masks:
        note = (
            f'--next: {name} is not causal: it fills gaps. Put {mask} into the text, as in "the {mask} sat".'
        )
        return None, [note]
    notes = []
    if len(masks) > 1:
        notes.append(f"The text has {mask} {len(masks)} times: the first, token {masks[0]}, is filled.")
    return likeliest(run, ids, masks[0], encoder, count, name, fills=True), notes


def likeliest(
    run: Run, ids: Sequence[int], place: int, encoder: TextEncoder, count: int, name: str, fills: bool = False
) -> NextWords:
    """Return the likeliest tokens at a place; of equally likely ones, those that the vocabulary has first."""
    logits: Array = run.logits(place)[0, 0].astype(np.float64)
    if not np.isfinite(logits.max()):  # NaN too
        raise InputError(f"{name} gives scores of words that are not numbers.", "Is its file sound?")
    shares = softmax(logits)
    best = np.argsort(-shares, kind="stable")[:count].tolist()
    words = tuple((encoder.text(n), float(shares[n])) for n in best)
    actual = float(shares[ids[place + 1]]) if not fills and place + 1 < len(ids) else None
    return NextWords(words, place, fills, encoder.token(ids[place]), actual)


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
            likeliest, at = _likeliest_words(row, words, settings.next), side.own.start + place
            found.append(NextWords(likeliest, at, False, tokens[place], actual))
    every = tuple(found) if settings.next_at == ALL else None
    return replace(trace, next_words=found[-1], next_words_at=every)


def _likeliest_words(shares: Array, words: list[bytes], count: int) -> tuple[tuple[str, float], ...]:
    """Return the likeliest words; of equally likely ones, those that the vectors have first."""
    some = np.argpartition(-shares, min(count, len(shares) - 1))[: count + 1]
    least = shares[some].min()
    ties = np.flatnonzero(shares >= least)
    best = ties[np.argsort(-shares[ties], kind="stable")][:count].tolist()
    return tuple((as_text(words[n]) if n < len(words) else UNKNOWN, float(shares[n])) for n in best)
