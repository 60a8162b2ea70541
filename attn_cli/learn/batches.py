"""Sentences made ready to learn from: vectors looked up, targets laid out, batches of like length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from attn_cli.learn.relations import RELATIONS, Links, importance
from attn_cli.learn.treebank import Sentence
from attn_cli.models.word_shape import features
from attn_cli.vectors.lookup import look_up
from attn_cli.vectors.store.table import as_text

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from attn_cli.vectors.store.protocol import Vectors

UNKNOWN = -1
NONE = -100  # PyTorch's cross_entropy passes over these


class Lesson(NamedTuple):
    """One sentence, as numbers: a row of the vectors for each word, its features, and each head's links."""

    words: NDArray[np.intp]  # (n,) rows of the matrix of known words; UNKNOWN where there is none
    features: list[list[int]]
    links: list[Links]  # one a head
    tags: NDArray[np.intp]  # (n,)
    relations: NDArray[np.intp]  # (n,)


class Batch(NamedTuple):
    """Sentences side by side, padded to the longest: b sentences, n words, h heads, m features a word."""

    words: NDArray[np.intp]  # (b, n)
    features: NDArray[np.intp]  # (b, n, m); the number of features where there is none
    is_word: NDArray[np.bool_]  # (b, n)
    targets: NDArray[np.float32]  # (b, h, n, n), rows sum to one, or to zero beyond the sentence
    has_link: NDArray[np.bool_]  # (b, h, n)
    tags: NDArray[np.intp]  # (b, n), NONE beyond the sentence
    relations: NDArray[np.intp]  # (b, n), the same
    importance: NDArray[np.float32]  # (h,), of each head in the loss; together one


class Words:
    """The words and features that lessons speak of, numbered."""

    def __init__(self, table: Vectors, endings: int, itself: int, heads: Sequence[str]) -> None:
        self.table = table
        self.heads = tuple(heads)
        self.rows: dict[str, int] = {}
        self.spelled: dict[str, list[int]] = {}
        self.vectors: list[NDArray[np.floating]] = []
        self.names = feature_names(table, endings, itself)
        self.places = {name: n for n, name in enumerate(self.names)}
        self.importance = np.array(importance(heads), dtype=np.float32)
        self.tags: dict[str, int] = {}
        self.kinds: dict[str, int] = {}

    def row(self, word: str) -> int:
        """Return the row of a word's vector in `matrix`, or UNKNOWN."""
        if word not in self.rows:
            found = look_up(word, self.table)
            if found is None:
                self.rows[word] = UNKNOWN
            else:
                form, vector = found
                if form not in self.rows or self.rows[form] == UNKNOWN:
                    self.rows[form] = len(self.vectors)
                    self.vectors.append(vector)
                self.rows[word] = self.rows[form]
        return self.rows[word]

    def spelling(self, word: str) -> list[int]:
        """Return the numbers of a word's features."""
        if word not in self.spelled:
            self.spelled[word] = [self.places[name] for name in features(word) if name in self.places]
        return self.spelled[word]

    def matrix(self) -> NDArray[np.float32]:
        """Return the vectors of the words met so far, (words, d), and a last row of zeros for unknown ones."""
        known = np.array(self.vectors, dtype=np.float32).reshape(-1, self.table.dim)
        return np.vstack([known, np.zeros((1, self.table.dim), np.float32)])

    def lesson(self, sentence: Sentence, exact: bool = False) -> Lesson:
        """Return a sentence as numbers; `exact` has the links that count as right, not those to learn from."""
        return Lesson(
            np.array([self.row(word) for word in sentence.words], dtype=np.intp),
            [self.spelling(word) for word in sentence.words],
            [RELATIONS[h].links(sentence) if exact else RELATIONS[h].lesson(sentence) for h in self.heads],
            _numbered(sentence.tags, self.tags, exact),
            _numbered([relation.partition(":")[0] for relation in sentence.relations], self.kinds, exact),
        )

    def batch(self, lessons: Sequence[Lesson], hidden: Sequence[NDArray[np.bool_]] | None = None) -> Batch:
        """Lay lessons side by side; a `hidden` word is shown as if it had no vector."""
        b, n, h = len(lessons), max(len(lesson.words) for lesson in lessons), len(self.heads)
        none = len(self.names)
        m = max((len(some) for lesson in lessons for some in lesson.features), default=1)
        words = np.full((b, n), UNKNOWN)
        spelled = np.full((b, n, max(1, m)), none)
        is_word = np.zeros((b, n), dtype=bool)
        targets = np.zeros((b, h, n, n), dtype=np.float32)
        has_link = np.zeros((b, h, n), dtype=bool)
        tags, relations = np.full((b, n), NONE), np.full((b, n), NONE)
        for s, lesson in enumerate(lessons):
            size = len(lesson.words)
            words[s, :size] = lesson.words if hidden is None else np.where(hidden[s], UNKNOWN, lesson.words)
            is_word[s, :size] = True
            tags[s, :size], relations[s, :size] = lesson.tags, lesson.relations
            for i, some in enumerate(lesson.features):
                spelled[s, i, : len(some)] = some
            for head, links in enumerate(lesson.links):
                for query, keys in links.items():
                    has_link[s, head, query] = True
                    for key, wanted in keys.items():
                        targets[s, head, query, key] = wanted
        # A word without the relation looks at itself.
        itself = np.arange(n)
        targets[:, :, itself, itself] += ~has_link & is_word[:, np.newaxis]
        total = targets.sum(axis=-1, keepdims=True)
        targets /= np.where(total == 0, 1, total)
        return Batch(words, spelled, is_word, targets, has_link, tags, relations, self.importance)


def _numbered(names: Sequence[str], known: dict[str, int], only_known: bool) -> NDArray[np.intp]:
    """Return the numbers of names: a new name gets the next, or NONE where only known ones count."""
    found = [known.get(name, NONE) if only_known else known.setdefault(name, len(known)) for name in names]
    return np.array(found, dtype=np.intp)


def feature_names(table: Vectors, endings: int, itself: int) -> list[str]:
    """Return the features to learn: shapes, the vocabulary's commonest endings, the commonest words themselves.

    Endings are counted over words that are not among the commonest, for they are to tell of rare words.
    """
    counts: dict[str, int] = {}
    words = [as_text(word) for block in table.word_blocks() for word in block]
    for word in words[min(COMMONEST, len(words) // 20) :]:
        if word.isalpha():
            for name in features(word):
                if name[0] == "-" and len(word) > len(name):
                    counts[name] = counts.get(name, 0) + 1
    common = sorted(counts, key=lambda name: (-counts[name], name))[:endings]
    return [*SHAPES, *sorted(common), *(f"={word}" for word in words[:itself])]


SHAPES = ("*", "x", "Xx", "X", "9", "x9", ".", "-", "/", "@")
COMMONEST = 2000


def batches(lengths: Sequence[int], size: int, draw: np.random.Generator | None) -> list[list[int]]:
    """Group sentences of like length so that a batch, padded, holds at most about `size` words.

    With `draw`, the grouping and the order are random.
    """
    jitter = np.zeros(len(lengths)) if draw is None else draw.random(len(lengths)) * 3
    order = np.argsort(np.asarray(lengths) + jitter, kind="stable")
    groups: list[list[int]] = []
    longest = 0
    for i in order.tolist():
        longest = max(longest, lengths[i])
        if not groups or longest * (len(groups[-1]) + 1) > size:
            groups.append([])
            longest = lengths[i]
        groups[-1].append(i)
    if draw is not None:
        groups = [groups[i] for i in draw.permutation(len(groups)).tolist()]
    return groups


def joined(first: Lesson, second: Lesson) -> Lesson:
    """Return two sentences as one text, each with its own links: people type more than one, too."""
    n = len(first.words)

    def moved(links: Links) -> Links:
        return {i + n: {j + n: wanted for j, wanted in keys.items()} for i, keys in links.items()}

    return Lesson(
        np.concatenate([first.words, second.words]),
        first.features + second.features,
        [a | moved(b) for a, b in zip(first.links, second.links, strict=True)],
        np.concatenate([first.tags, second.tags]),
        np.concatenate([first.relations, second.relations]),
    )
