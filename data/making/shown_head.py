"""Which head of the language model `attn masked` shows: what each does for the guess, and how much of it is content.

`python -m data.making shown TREEBANK` prints a line for each head. What the model loses where a head looks by places
alone (each weight is the mean weight of its two places over all sentences) says how much its content is worth: a head
whose rows follow from their places loses nothing, and neither does one that the guess does not need.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from attn_cli.core.attention import project
from attn_cli.learn.treebank import Sentence
from attn_cli.models.encoder import EncoderLayer, EncoderStack, causal, matrix_of, weights_of, word_number
from attn_cli.vectors.lookup import embed

if TYPE_CHECKING:
    from attn_cli.io.types import Array
    from attn_cli.vectors import Vectors

FEWEST, MOST = 6, 20  # words of a sentence
CONTENT = ("NOUN", "PROPN", "VERB", "ADJ")
Change = Callable[["Array"], "Array"]  # of a head's weights (n, n)


class Measured(NamedTuple):
    """One head: losses in nats a word, shares of words or of weight."""

    layer: int
    head: str
    without: float  # more loss without the head
    by_places: float  # more loss if it looks by places alone
    places: float  # of the variance of its weights, what the two places explain
    entropy: float  # of a row, as a share of the most that it could have
    plain: float  # words whose strongest link is to themselves, the word before or the first word
    content: float  # words whose strongest link is to an earlier noun, verb or adjective
    related: float  # words whose strongest link is to their governor or to a dependent
    strongest: float  # mean weight of the strongest link


@dataclass
class _Text:
    X: Array
    wanted: list[int]
    sentence: Sentence


def measure(
    stack: EncoderStack, table: Vectors, sentences: Sequence[Sentence], most: int
) -> Iterator[Measured]:
    """Yield what each head does on the first `most` sentences of FEWEST to MOST words."""
    fitting = [one for one in sentences if FEWEST <= len(one.words) <= MOST][:most]
    rows = {word: n for n, word in enumerate(word for block in table.word_blocks() for word in block)}
    texts = []
    for sentence in fitting:
        X = stack.input(embed(sentence.words, table, "model", 0, stack.spelling).X, 0, None)
        texts.append(_Text(X, [word_number(word, rows) for word in sentence.words], sentence))
    vectors = matrix_of(table).astype(np.float32)
    layers = stack.encoders
    inputs: list[list[Array]] = [[text.X for text in texts]]
    for layer in layers:
        inputs.append([_through(layer, X) for X in inputs[-1]])
    usual = _loss(stack, vectors, texts, inputs[-1])
    for n, layer in enumerate(layers):
        for h, head in enumerate(layer.attention.heads):
            weights = [weights_of(head, X, causal(len(X))) for X in inputs[n]]
            mean = _mean_of_places(weights)

            def lost(change: Change, n: int = n, h: int = h) -> float:
                made = [_through(layers[n], X, h, change) for X in inputs[n]]  # type: ignore[arg-type]
                for above in layers[n + 1 :]:
                    made = [_through(above, X) for X in made]  # type: ignore[arg-type]
                return _loss(stack, vectors, texts, made) - usual

            yield Measured(
                n,
                head.name,
                lost(np.zeros_like),
                lost(lambda weights, mean=mean: _placed(mean, len(weights))),  # type: ignore[misc]
                *_described(weights, mean, [text.sentence for text in texts]),
            )


def _through(
    layer: EncoderLayer, X: Array, changed: int | None = None, change: Change | None = None
) -> Array:
    """Return what a layer makes of X (n, d); the weights of the head `changed` are those that `change` gives."""
    outputs = []
    for h, head in enumerate(layer.attention.heads):
        weights = weights_of(head, X, causal(len(X)))
        weights = change(weights) if change is not None and h == changed else weights
        outputs.append(weights @ head.project(X, X)[2])
    attended = layer.attention.joined(outputs)
    assert attended is not None
    X = layer.norm_1.of(X + attended)
    hidden = np.maximum(project(X, layer.W_1, layer.b_1), 0)
    return layer.norm_2.of(X + project(hidden, layer.W_2, layer.b_2))


def _loss(stack: EncoderStack, vectors: Array, texts: Sequence[_Text], made: Sequence[Array]) -> float:
    """Return the mean loss in nats of each word but the first, after those before it."""
    assert stack.words is not None
    H = np.concatenate([rows[:-1] for rows in made])
    wanted = [word for text in texts for word in text.wanted[1:]]
    total = 0.0
    for start in range(0, len(H), 1000):
        scores = stack.words.scores(H[start : start + 1000], vectors).astype(np.float64)
        largest = scores.max(axis=1)
        sums = largest + np.log(np.exp(scores - largest[:, np.newaxis]).sum(axis=1))
        total += float((sums - scores[np.arange(len(scores)), wanted[start : start + 1000]]).sum())
    return total / len(H)


def _mean_of_places(weights: Sequence[Array]) -> Array:
    """Return the mean weight of each pair of places, (MOST, MOST)."""
    total, count = np.zeros((MOST, MOST)), np.zeros((MOST, MOST))
    for one in weights:
        total[: len(one), : len(one)] += one
        count[: len(one), : len(one)] += 1
    found: Array = total / np.maximum(count, 1)
    return found


def _placed(mean: Array, n: int) -> Array:
    some = mean[:n, :n]
    found: Array = some / some.sum(axis=1, keepdims=True)
    return found


def _described(weights: Sequence[Array], mean: Array, sentences: Sequence[Sentence]) -> tuple[float, ...]:
    """Return the fields of Measured from `places` on; rows of fewer than three keys tell nothing."""
    left, around = 0.0, 0.0
    found: list[tuple[float, float, float, float, float]] = []
    for W, sentence in zip(weights, sentences, strict=True):
        governors = sentence.governors
        for i in range(2, len(W)):
            row, j = W[i, : i + 1], int(W[i].argmax())
            left += float(((row - mean[i, : i + 1]) ** 2).sum())
            around += float(((row - 1 / (i + 1)) ** 2).sum())
            entropy = -float((row * np.log(np.maximum(row, 1e-12))).sum()) / math.log(i + 1)
            is_related = i != j and (governors[i] == j or governors[j] == i)
            is_content = j < i and sentence.tags[j] in CONTENT
            found.append((entropy, j in (i, i - 1, 0), is_content, is_related, float(row[j])))
    return (1 - left / around, *np.mean(found, axis=0).tolist())
