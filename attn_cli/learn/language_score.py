"""How well a language model guesses the next word: its perplexity on text, by the program's own arithmetic."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from attn_cli.io.progress import Stage, StageReport
from attn_cli.models.encoder import EncoderStack
from attn_cli.models.language import causal, matrix_of, word_number
from attn_cli.vectors.lookup import embed

if TYPE_CHECKING:
    from attn_cli.io.array_types import Array
    from attn_cli.vectors.open_vectors import Vectors

ROWS = 1000  # words that are scored at once


class Perplexity(NamedTuple):
    """The perplexity per word of a text, unknown words among them, and how many words there are."""

    perplexity: float
    words: int
    unknown: int


def perplexity(
    stack: EncoderStack, table: Vectors, texts: Sequence[Sequence[str]], report: StageReport
) -> Perplexity:
    """Return the perplexity of texts, each read by itself; a word without a vector counts as the one unknown word."""
    assert stack.words is not None
    vectors = matrix_of(table).astype(np.float32)
    rows = {word: n for n, word in enumerate(word for block in table.word_blocks() for word in block)}
    begun, loss, count, unknown = time.monotonic(), 0.0, 0, 0
    for H, wanted in _in_blocks(stack, table, texts, rows):
        scores = stack.words.scores(H, vectors).astype(np.float64)
        largest = scores.max(axis=1)
        total = largest + np.log(np.exp(scores - largest[:, np.newaxis]).sum(axis=1))
        loss += float((total - scores[np.arange(len(wanted)), wanted]).sum())
        count += len(wanted)
        unknown += wanted.count(len(vectors))
        report(Stage("perplexity", count / max(1, sum(map(len, texts))), count, time.monotonic() - begun))
    return Perplexity(math.exp(loss / count) if count else math.nan, count, unknown)


def _in_blocks(
    stack: EncoderStack, table: Vectors, texts: Sequence[Sequence[str]], rows: dict[bytes, int]
) -> Iterator[tuple[Array, list[int]]]:
    """Yield what predicts each word, (rows, width), and the number of the word, some hundred at a time."""
    assert stack.words is not None
    found: list[Array] = []
    wanted: list[int] = []
    for words in texts:
        if not words:
            continue
        X = embed(words, table, "model", 0, stack.start).X
        H = stack.last_rows(X, causal(len(words)))
        found += [stack.words.first[np.newaxis].astype(np.float64), H[:-1]]
        wanted += (word_number(word, rows) for word in words)
        if len(wanted) >= ROWS:
            yield np.concatenate(found), wanted
            found, wanted = [], []
    if wanted:
        yield np.concatenate(found), wanted
