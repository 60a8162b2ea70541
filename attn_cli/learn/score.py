"""How often a head is right: its strongest links beside a treebank's, and beside the best fixed distance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from attn_cli.attention import attention_steps
from attn_cli.learn.relations import RELATIONS
from attn_cli.learn.treebank import Sentence
from attn_cli.progress import Report, Stage
from attn_cli.stack import Stack
from attn_cli.vectors.lookup import embed
from attn_cli.vectors.table import Table

if TYPE_CHECKING:
    from attn_cli.arrays import Array


class Score(NamedTuple):
    """One head: of the words that have its relation, the share whose strongest link is right.

    `baseline` is the share that the best fixed distance gets; both are None where no word has the relation.
    """

    name: str
    accuracy: float | None
    baseline: float | None
    count: int  # type: ignore[assignment]  # a tuple's own count() is not needed; the name is the JSON's


def score(stack: Stack, table: Table, sentences: Sequence[Sentence], report: Report) -> list[Score]:
    """Score the last layer's heads that bear a relation's name; ties go to the lowest index."""
    import time

    names = [head.name for head in stack.last.heads if head.name in RELATIONS]
    right, count = Counter[str](), Counter[str]()
    distances: dict[str, Counter[int]] = {name: Counter() for name in names}
    begun, words = time.monotonic(), 0
    for done, sentence in enumerate(sentences, 1):
        weights = head_weights(stack, table, sentence.words)
        for name in names:
            links = RELATIONS[name].links(sentence)
            count[name] += len(links)
            for query, keys in links.items():
                right[name] += int(weights[name][query].argmax()) in keys
                distances[name].update({key - query for key in keys})
        words += len(sentence.words)
        if done % 50 == 0 or done == len(sentences):
            report(Stage("scoring", done / len(sentences), words, time.monotonic() - begun))
    return [
        Score(name, right[name] / n, max(distances[name].values()) / n, n)
        if (n := count[name])
        else Score(name, None, None, 0)
        for name in names
    ]


def head_weights(stack: Stack, table: Table, words: Sequence[str]) -> dict[str, Array]:
    """Return the weights (n, n) of each of the last layer's heads, as the commands compute them."""
    X = stack.input(embed(words, table, "model", 0, stack.start).X, stack.layers - 1, None)
    rows = np.arange(len(words))
    found = {}
    for head in stack.last.heads:
        Q, K = head.queries(X, "in-out"), head.keys(X, "in-out")
        scale = float(1 / np.sqrt(Q.shape[1]))
        bias = None if head.position is None else head.position.scores(Q, rows, len(words)) * scale
        found[head.name] = attention_steps(Q, K, K, None, bias, scale).weights
    return found
