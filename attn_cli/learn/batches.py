"""Sentences encoded for learning: word vectors looked up, targets, batches of similar length."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from attn_cli.io.types import Bools, NamedTuple, NDArray
from attn_cli.learn.relations import RELATIONS, Links, importance
from attn_cli.learn.treebank import Sentence
from attn_cli.vectors import Vectors, as_text, lookup
from attn_cli.vectors.spelling import features

UNKNOWN = -1
SHAPES = ("*", "x", "Xx", "X", "9", "x9", ".", "-", "/", "@")
COMMONEST = 2000  # words


class EncodedSentence(NamedTuple):
    """One sentence as numbers: each word's row of the vectors and its features, and each head's links."""

    words: NDArray[np.intp]  # (n,) rows of the matrix of known words, or UNKNOWN
    features: list[list[int]]
    links: list[Links]  # one a head
    known: Bools  # (h, n), where it is known whether the word has the head's relation
    sentences: tuple[Sentence, ...] = ()  # that it was made of


class Batch(NamedTuple):
    """Sentences padded to the longest: b sentences, n words, h heads, m features a word."""

    words: NDArray[np.intp]  # (b, n)
    features: NDArray[np.intp]  # (b, n, m); padded with the number of features
    is_word: Bools  # (b, n)
    targets: NDArray[np.float32]  # (b, h, n, n), rows sum to one, or to zero in the padding
    has_link: Bools  # (b, h, n)
    importance: NDArray[np.float32]  # (h,), of each head in the loss
    known: Bools  # (b, h, n), rows that count in the loss
    texts: Sequence[EncodedSentence] = ()  # (b,)
    is_imitated: bool = False  # whether the targets are the weights of other models


class Vocabulary:
    """The words and features of the sentences, numbered."""

    def __init__(self, table: Vectors, endings: int, itself: int, heads: Sequence[str]) -> None:
        self.table = table
        self.heads = tuple(heads)
        self.rows: dict[str, int] = {}
        self.spelled: dict[str, list[int]] = {}
        self.vectors: list[NDArray[np.floating]] = []
        self.names = feature_names(table, endings, itself)
        self.places = {name: n for n, name in enumerate(self.names)}
        self.importance = np.array(importance(heads), dtype=np.float32)

    def row(self, word: str) -> int:
        """Return the row of a word's vector in `matrix`, or UNKNOWN."""
        if word not in self.rows:
            self.rows[word] = UNKNOWN
            if found := lookup.look_up(word, self.table):
                form, vector = found
                if self.rows.get(form, UNKNOWN) == UNKNOWN:
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
        """Return the vectors of the words so far, (words, d), and a last row of zeros for unknown ones."""
        known = np.array(self.vectors, dtype=np.float32).reshape(-1, self.table.dim)
        return np.vstack([known, np.zeros((1, self.table.dim), np.float32)])

    def encode(self, sentence: Sentence, exact: bool = False) -> EncodedSentence:
        """Return a sentence as numbers, with the links to learn from, or, if `exact`, those that count as right."""
        relations = [RELATIONS[h] for h in self.heads]
        words = np.array([*map(self.row, sentence.words)], dtype=np.intp)
        links = [one.links(sentence) if exact else one.links_to_learn(sentence) for one in relations]
        known = np.array([one.known_rows(sentence) for one in relations], dtype=bool)
        return EncodedSentence(words, [*map(self.spelling, sentence.words)], links, known, (sentence,))

    def batch(self, texts: Sequence[EncodedSentence], hidden: Sequence[Bools] | None = None) -> Batch:
        """Pad sentences to a batch; a `hidden` word is treated as if it had no vector."""
        b, n, h = len(texts), max(len(one.words) for one in texts), len(self.heads)
        m = max((len(some) for one in texts for some in one.features), default=1)
        words, spelled = np.full((b, n), UNKNOWN), np.full((b, n, max(1, m)), len(self.names))
        is_word, targets = np.zeros((b, n), dtype=bool), np.zeros((b, h, n, n), dtype=np.float32)
        has_link, known = np.zeros((b, h, n), dtype=bool), np.zeros((b, h, n), dtype=bool)
        for s, one in enumerate(texts):
            size = len(one.words)
            words[s, :size] = one.words if hidden is None else np.where(hidden[s], UNKNOWN, one.words)
            is_word[s, :size] = True
            known[s, :, :size] = one.known
            for i, some in enumerate(one.features):
                spelled[s, i, : len(some)] = some
            for head, links in enumerate(one.links):
                for query, keys in links.items():
                    has_link[s, head, query] = True
                    targets[s, head, query, [*keys]] = [*keys.values()]
        # A word without the relation looks at itself.
        itself = np.arange(n)
        targets[:, :, itself, itself] += ~has_link & is_word[:, np.newaxis]
        total = targets.sum(axis=-1, keepdims=True)
        targets /= np.where(total == 0, 1, total)
        return Batch(words, spelled, is_word, targets, has_link, self.importance, known, texts)


def feature_names(table: Vectors, endings: int, itself: int) -> list[str]:
    """Return shapes, the commonest endings of rarer words, and the `itself` commonest words: the features to learn."""
    counts = Counter[str]()
    words = [as_text(word) for block in table.word_blocks() for word in block]
    for word in words[min(COMMONEST, len(words) // 20) :]:
        if word.isalpha():
            counts.update(name for name in features(word) if name[0] == "-" and len(word) > len(name))
    common = sorted(counts, key=lambda name: (-counts[name], name))[:endings]
    return [*SHAPES, *sorted(common), *(f"={word}" for word in words[:itself])]


def batches(lengths: Sequence[int], size: int, draw: np.random.Generator | None) -> list[list[int]]:
    """Group sentences of like length into batches of about `size` words, padding included; with `draw` at random."""
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


def concatenated(first: EncodedSentence, second: EncodedSentence) -> EncodedSentence:
    """Return two sentences as one text, each with its own links."""
    n, links = len(first.words), list[Links]()
    for a, b in zip(first.links, second.links, strict=True):
        links.append(a | {i + n: {j + n: wanted for j, wanted in keys.items()} for i, keys in b.items()})
    words = np.concatenate([first.words, second.words])
    known = np.concatenate([first.known, second.known], axis=1)
    spelled, sentences = first.features + second.features, first.sentences + second.sentences
    return EncodedSentence(words, spelled, links, known, sentences)
