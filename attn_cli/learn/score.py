"""How often a head is right: its strongest links beside a treebank's, and beside the best fixed distance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from attn_cli.io.progress import Stage, StageReport
from attn_cli.learn.relations import RELATIONS
from attn_cli.learn.treebank import Sentence
from attn_cli.models.encoder import EncoderStack, taught_weights
from attn_cli.vectors.lookup import embed

if TYPE_CHECKING:
    from attn_cli.io.array_types import Array
    from attn_cli.vectors.store.vectors import Vectors


class Score(NamedTuple):
    """The score of one head; a share of nothing is None."""

    name: str
    accuracy: float | None  # of the words that have its relation, the share whose strongest link is right
    baseline: float | None  # the accuracy of the best fixed distance
    count: int  # type: ignore[assignment]  # a tuple's own count() is not needed; the name is the JSON's
    precision: float | None  # of the strongest links to another word, the share that are right


def score(
    stack: EncoderStack, table: Vectors, sentences: Sequence[Sentence], report: StageReport
) -> list[Score]:
    """Score the last layer's heads that bear a relation's name; ties go to the lowest index."""
    import time

    names = [head.name for head in stack.last.heads if head.name in RELATIONS]
    right, count, drawn = Counter[str](), Counter[str](), Counter[str]()
    distances: dict[str, Counter[int]] = {name: Counter() for name in names}
    begun, words = time.monotonic(), 0
    for done, sentence in enumerate(sentences, 1):
        weights = head_weights(stack, table, sentence.words)
        for name in names:
            links = RELATIONS[name].links(sentence)
            count[name] += len(links)
            for query, key in enumerate(weights[name].argmax(axis=1).tolist()):
                right[name] += key in links.get(query, ())
                drawn[name] += key != query
            for query, keys in links.items():
                distances[name].update({key - query for key in keys})
        words += len(sentence.words)
        if done % 50 == 0 or done == len(sentences):
            report(Stage("scoring", done / len(sentences), words, time.monotonic() - begun))
    found = []
    for name in names:
        n = count[name]
        accuracy, baseline = (right[name] / n, max(distances[name].values()) / n) if n else (None, None)
        precision = right[name] / drawn[name] if drawn[name] else None
        found.append(Score(name, accuracy, baseline, n, precision))
    return found


def head_weights(stack: EncoderStack, table: Vectors, words: Sequence[str]) -> dict[str, Array]:
    """Return the weights (n, n) of each of the last layer's heads, as the commands compute them."""
    X = stack.input(embed(words, table, "model", 0, stack.start).X, stack.layers - 1, None)
    return {head.name: taught_weights(head, X) for head in stack.last.heads}
