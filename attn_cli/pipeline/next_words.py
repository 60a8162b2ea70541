"""What the bundled language model says: its likeliest next words, with their probabilities."""

from __future__ import annotations

from functools import partial

import numpy as np

from attn_cli.core import attention, masks
from attn_cli.errors import InputError, UsageError, shell_quote
from attn_cli.io.types import Array, OnPart, replace
from attn_cli.models.encoder import MASK, UNKNOWN, EncoderStack, causal, matrix_of, word_number
from attn_cli.models.logit_parts import Cut, Trail
from attn_cli.pipeline import Inputs, cut_of_stack
from attn_cli.settings import ALL, MOST_GUESSED, Settings, with_next_words
from attn_cli.trace import LARGE, Lean, NextWord, NextWords, Trace
from attn_cli.vectors import Vectors, as_text

ROWS = 256  # places whose words are scored at once


def likeliest(shares: Array, count: int) -> list[int]:
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
        said = f"{name} reads one text, from left to right: it has no second text to look at."
        hint = f"Try attn masked TEXT -p {shell_quote(settings.projection or name)}, or another projection"
        raise UsageError(said, f"{hint} (-p).", "--projection")
    if settings.mask is None:
        settings = replace(settings, mask=MASK)
        if kind == "self":
            own = "the causal mask that it was trained with"
            notes.append(f"{name} is read under {own}; --mask none takes it off.")
    elif _shows_the_next(settings.mask):
        under = "Without its mask" if settings.mask == "none" else f"Under {settings.mask}"
        sees = "each word sees the next one, the very word that it had to guess when it was trained."
        cheats = f"{under} {name} cheats: {sees}"
        is_told = settings.next or kind == "masked"
        notes.append(f"{cheats} Its next words are still predicted with the mask." if is_told else cheats)
    if settings.tokenizer == "words":
        settings = replace(settings, keep_punctuation=True)  # its words too
    if settings.layer is None:  # a named head is found in whatever layer
        main = stack.facts.get("main")
        head = str(main) if settings.head is None and isinstance(main, str) else settings.head
        layer = stack.layer_of(head)
        settings = replace(settings, head=head, layer=layer) if layer is not None else settings
    return (with_next_words(settings) if kind == "masked" else settings), notes


def _shows_the_next(mask: str) -> bool:
    found = None if masks.find_rule(mask) is None else masks.named(mask, 2, 2)
    return mask == "none" or (found is not None and bool(found.rows(range(1))[0, 1]))


def with_next(trace: Trace, inputs: Inputs, stack: EncoderStack, report: OnPart | None) -> Trace:
    """Return the trace with what the guess leans on, and with the next words: after the text, or after each prefix."""
    settings, side, table = trace.settings, inputs.query, inputs.table
    assert side.X is not None and table is not None and stack.words is not None
    X = (side.X if side.words is None else side.words)[side.own.start : side.own.stop]
    if len(X) <= MOST_GUESSED and not settings.knock_out:
        trace = replace(trace, leaned=partial(lean, X, stack, table))
    if not settings.next:
        return trace
    tokens = trace.query_tokens[side.own.start : side.own.stop]
    told = report if len(tokens) ** 2 > LARGE else None
    H = stack.last_rows(X, causal(len(X)), report=told, cut=cut_of_stack(settings, stack))
    words = [word for block in table.word_blocks() for word in block]
    places = range(len(tokens)) if settings.next_at == ALL else range(len(tokens) - 1, len(tokens))
    vectors, found = matrix_of(table), list[NextWords]()
    rows = {word: n for n, word in enumerate(words)} if len(places) > 1 else {}
    for start in range(places.start, places.stop, ROWS):
        some = range(start, min(start + ROWS, places.stop))
        scores = stack.words.scores(H[some.start : some.stop], vectors).astype(np.float64)
        if not np.isfinite(scores).all():
            raise InputError("The scores of the next word are more than a number can hold.")
        for place, logits, row in zip(some, scores, attention.softmax(scores), strict=True):
            actual = float(row[word_number(tokens[place + 1], rows)]) if place + 1 < len(tokens) else None
            best = sorted(likeliest(row, settings.next), key=lambda n: n == len(words))  # known words first
            numbers = ((n, float(row[n]), float(logits[n])) for n in best)
            said = tuple(
                NextWord(as_text(words[n]), share, n, logit)
                if n < len(words)
                else NextWord(UNKNOWN, share, None, logit)
                for n, share, logit in numbers
            )
            unknown = float(row[len(words)])
            found.append(NextWords(said, side.own.start + place, False, tokens[place], actual, unknown))
    every = tuple(found) if settings.next_at == ALL else None
    return replace(trace, next_words=found[-1], next_words_at=every)


def lean(X: Array, stack: EncoderStack, table: Vectors) -> Lean | None:
    """Return the head that adds most to the guess after words of vectors X (n, d), and the guess without it."""
    mask, trail, scored, vectors = causal(len(X)), Trail(len(X) - 1), stack.words, matrix_of(table)
    assert scored is not None

    def shares(H: Array) -> Array:
        with np.errstate(over="ignore", invalid="ignore"):
            found: Array = attention.softmax(scored.scores(H[-1:], vectors).astype(np.float64))[0]
        return found

    whole = shares(stack.last_rows(X, mask, trail=trail))
    if not np.isfinite(whole).all():
        return None
    best = int(whole[:-1].argmax())
    trail.mapped(scored.P, None, "")
    heads = (one for one in trail.parts(scored.row(best, vectors)) if one.part == "head")
    most = max(heads, key=lambda one: one.value)
    layer, head = most.layer, most.head
    assert layer is not None and head is not None
    left = shares(stack.last_rows(X, mask, cut=Cut(((layer, head),), MASK)))
    words = [word for block in table.word_blocks() for word in block]
    instead = as_text(words[int(left[:-1].argmax())])
    return Lean(as_text(words[best]), layer, head, (float(whole[best]), float(left[best])), instead)
