"""Likeness: the directions of word vectors that tell kinds of words apart, and what is tried on pairs of sentences.

W_q = a (I + b U U^T), W_k = W_v = I. The columns of U are linear discriminants (Fisher 1936) of kinds of words, such as
plural nouns or past participles, as treebanks tag them. a and b are chosen on pairs of sentences that say like things
in other words: those at which the words' counterparts are least surprising.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

from attn_cli.core.attention import softmax
from attn_cli.io.array_files import write_safetensors
from attn_cli.io.files import packed_lines
from attn_cli.io.types import Array
from attn_cli.models.projection import likeness
from attn_cli.settings import LIKENESS
from attn_cli.text.tokenize import tokenize
from attn_cli.trace import Learned
from attn_cli.vectors import bundled
from attn_cli.vectors.lookup import embed, look_up_all

DIRECTIONS, LEAST = 3, 100  # kinds of fewer words do not count
SHRINK = 0.1  # of the mean variance, added to each direction's within kinds
LENGTHS, KINDS = (2, 4, 6, 8, 10, 12, 15), (0, 1, 2, 3, 4, 5, 6, 8)


class Pair(NamedTuple):
    """Two sentences that say like things, and the places of counterparts."""

    text: Sequence[str]
    context: Sequence[str]
    marked: Sequence[tuple[int, int]]


class Tried(NamedTuple):
    """What a W_q does on pairs: counterparts found, their mean weight, and how surprising they are, in nats."""

    found: float
    weight: float
    surprise: float


def read_pairs(path: str) -> list[Pair]:
    """Return the pairs of a file: text, context and counterparts (cat=feline sat=rested), between tabs."""
    pairs = []
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            text, context, marks = line.rstrip("\n").split("\t")
            sides = [[token.lower() for token in tokenize(side).tokens] for side in (text, context)]
            both = [mark.lower().split("=") for mark in marks.split()]
            if any(side.count(word) != 1 for mark in both for side, word in zip(sides, mark, strict=True)):
                raise ValueError(f"{path}: a marked word does not stand once in its sentence: {line}")
            pairs.append(Pair(*sides, [(sides[0].index(a), sides[1].index(b)) for a, b in both]))
    return pairs


def kinds_of_words(treebanks: Iterable[str]) -> dict[str, str]:
    """Return the commonest kind of each word: its part of speech, number, verb form and tense."""
    seen = defaultdict[str, Counter[str]](Counter)
    for path in treebanks:
        for row in map(bytes.decode, packed_lines(path)):
            columns = row.rstrip("\n").split("\t")
            if len(columns) == 10 and columns[0].isdigit() and columns[1].isalpha() and columns[3] != "X":
                named = dict(part.partition("=")[::2] for part in columns[5].split("|"))
                number = named.get("Number", "") if columns[3] in ("NOUN", "PROPN") else ""
                kind = (columns[3], number, named.get("VerbForm", ""), named.get("Tense", ""))
                seen[columns[1].lower()]["-".join(filter(None, kind))] += 1
    return {word: found.most_common(1)[0][0] for word, found in seen.items()}


def directions(kinds: dict[str, str]) -> Array:
    """Return U (d, 3): the directions in which kinds of words differ most, for how much words of a kind do."""
    vectors = defaultdict[str, list[Array]](list)
    for word, (_, vector) in look_up_all(list(kinds), bundled()).items():
        vectors[kinds[word]].append(vector)
    groups = [np.array(group) for group in vectors.values() if len(group) >= LEAST]
    means = np.array([group.mean(axis=0) for group in groups])
    within = np.mean([np.cov(group.T) for group in groups], axis=0)
    within += SHRINK * within.trace() / len(within) * np.eye(len(within))
    means -= means.mean(axis=0)
    half = np.linalg.inv(np.linalg.cholesky(within)).T
    ratios, found = np.linalg.eigh(half.T @ means.T @ means @ half)
    U = (half @ found)[:, -DIRECTIONS:] * np.sqrt(ratios[-DIRECTIONS:])
    U *= np.sqrt(DIRECTIONS / (U * U).sum())
    return U.astype(np.float16)


def try_on(pairs: Iterable[Pair], W_q: Array) -> Tried:
    """Return what the weights of each text over its context give to the counterparts."""
    weights = [*_weights(pairs, W_q)]
    found = [row[j] == row.max() for row, j in weights]
    of_each = np.array([row[j] for row, j in weights])
    return Tried(float(np.mean(found)), float(of_each.mean()), float(-np.log(of_each).mean()))


def _weights(pairs: Iterable[Pair], W_q: Array) -> Iterator[tuple[Array, int]]:
    for pair in pairs:
        X, context = (embed(side, bundled(), "subword", 0).X for side in (pair.text, pair.context))
        weights = softmax(X @ W_q @ context.T / np.sqrt(len(W_q)))
        yield from ((weights[i], j) for i, j in pair.marked)


def best_distance(pairs: Sequence[Pair]) -> float:
    """Return the share of the counterparts that stand at the commonest distance."""
    distances = Counter(j - i for pair in pairs for i, j in pair.marked)
    return max(distances.values()) / distances.total()


def every_try(pairs: Sequence[Pair], U: Array) -> dict[tuple[float, float], Tried]:
    """Return what each a and b do on pairs, the least surprising first."""
    tried = {(a, b): try_on(pairs, query_weights(U, a, b)) for a, b in product(LENGTHS, KINDS)}
    return dict(sorted(tried.items(), key=lambda one: one[1].surprise))


def query_weights(U: Array, a: float, b: float) -> Array:
    """Return W_q = a (I + b U U^T)."""
    U = U.astype(np.float64)
    return a * (np.eye(len(U)) + b * U @ U.T)


def write(stream: IO[bytes], U: Array, treebanks: Sequence[str], dev: str) -> None:
    """Write U, and what is known of the head that it makes, measured on the pairs of `dev`."""
    pairs = read_pairs(dev)
    (head,) = likeness(U).heads
    trained_on, scored_on = [Path(path).name for path in treebanks], Path(dev).name
    about = "for words of like meaning and like kind"
    accuracy, baseline = try_on(pairs, head.W_q).found, best_distance(pairs)
    scores = (round(accuracy, 4), round(baseline, 4), None, None, None)
    facts = Learned(LIKENESS, 1, tuple(trained_on), scored_on, about, *scores, "words")
    write_safetensors(stream, {"U": U}, {"facts": json.dumps(facts._asdict())})
