"""What a teacher sees in running text, written down: so that each line is learned from many times, and computed once.

A large teacher takes longer to look at a line than a student to learn from it. `label` writes for each word and head
the keys with the largest weights; `train --labelled` reads them. A safetensors file: the lines, and for each word of
them `keys`, (words, heads, K), and `shares` of them, in 255ths.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from attn_cli.errors import InputError, visible
from attn_cli.io.array_files import read_safetensors, write_safetensors
from attn_cli.io.atomic import written
from attn_cli.learn.batches import Batch, EncodedSentence, Vocabulary, batches
from attn_cli.learn.relations import RELATIONS, balances
from attn_cli.learn.treebank import Sentence
from attn_cli.vectors.lookup import open_table
from data.making.encoder import EncoderFile
from data.making.imitation import Teachers, know_all, read_teachers
from data.making.layers import LayerSizes
from data.making.lower import Lower
from data.making.settings import DeepTraining

if TYPE_CHECKING:
    from numpy.typing import NDArray

FORMAT = "attn-labels/1"
KEYS = 4  # that a word has labels for: shorter lines are left out
CHUNK, SIZE = 20_000, 3000  # words that are read at once, and in a batch


class LabelledSentence(Sentence):
    """A line of running text, that nobody has parsed, and the place of its first word among the labels."""

    start: int


class Made(NamedTuple):
    """What was written."""

    lines: int
    words: int


def label_file(
    teacher: str, texts: Sequence[str], output: str, words: int, threads: int, embedding: str,
    report: Callable[[int], None],
) -> Made:  # fmt: skip
    """Write what a teacher sees in the first so many words of text, half of the lines without their marks."""
    table = open_table(embedding)
    teachers = read_teachers([teacher], texts, table)
    assert teachers is not None
    model = teachers.models[0]
    heads = [
        name for name in model.heads if RELATIONS[name].distance is None and not RELATIONS[name].of_passages
    ]
    settings = DeepTraining(threads=threads)
    own = model.lower if isinstance(model, EncoderFile) else model
    vocabulary = Vocabulary(table, own.endings, own.itself, heads)
    know_all(vocabulary)
    teachers.prepare(vocabulary, settings.with_defaults())
    draw = np.random.default_rng(0)
    lines: list[str] = []
    lengths: list[int] = []
    keys: list[NDArray[np.uint8]] = []
    shares: list[NDArray[np.uint8]] = []
    try:
        while (left := words - sum(lengths)) > 0:
            some = teachers.read(min(left, CHUNK), settings.punctuation, draw)
            read = [one for one in some if len(one) >= KEYS and not any(" " in word for word in one)]
            if not read:
                raise InputError(f"No line of the running text has at least {KEYS} words.")
            found = _labels(teachers, read)
            lines += [" ".join(one) for one in read]
            lengths += map(len, read)
            keys.append(found[0])
            shares.append(found[1])
            report(sum(lengths))
    except KeyboardInterrupt:
        if not lines:
            raise
    arrays = {
        "lines": np.frombuffer("\n".join(lines).encode(), np.uint8),
        "lengths": np.array(lengths, np.int32),
        "keys": np.concatenate(keys),
        "shares": np.concatenate(shares),
    }
    facts = {
        "name": model.name,
        "heads": heads,
        "facts": dict(model.facts),
        "texts": [Path(t).name for t in texts],
    }
    with written(output) as stream:
        write_safetensors(stream, arrays, {"format": FORMAT, "about": json.dumps(facts)})
    return Made(len(lines), sum(lengths))


def _labels(
    teachers: Teachers, lines: Sequence[Sequence[str]]
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Return the keys with the largest weights of each word of the lines and their shares, (words, h, KEYS)."""
    starts = np.cumsum([0, *map(len, lines)])
    heads = len(teachers.words.heads)
    keys = np.zeros((starts[-1], heads, KEYS), np.uint8)
    shares = np.zeros_like(keys)
    encoded = [*map(teachers.encoded, lines)]
    for group in batches([len(one.words) for one in encoded], SIZE, None):
        A = teachers.learners[0].weights(teachers.words.batch([encoded[i] for i in group]))
        for row, i in zip(A, group, strict=True):
            n = len(encoded[i].words)
            weights = row[:, :n, :n].swapaxes(0, 1)  # (n, h, n)
            largest = np.argpartition(weights, n - KEYS, axis=2)[..., n - KEYS :]
            found = np.take_along_axis(weights, largest, 2)
            found /= found.sum(axis=2, keepdims=True)
            keys[starts[i] : starts[i + 1]] = largest
            shares[starts[i] : starts[i + 1]] = np.rint(found * 255)
    return keys, shares


class LabelFile(NamedTuple):
    """What a file of labels holds; `texts` are the names of those that its lines are from."""

    keys: NDArray[np.uint8]
    shares: NDArray[np.uint8]
    lines: Sequence[str]
    teacher: Lower
    texts: Sequence[str]


def _read(path: str) -> LabelFile:
    arrays, about = read_safetensors(path)
    try:
        facts = json.loads(about["about"])
        heads = tuple(facts["heads"])
        teacher = Lower(facts["name"], LayerSizes(1, 1, 1, 1, 1), [], 0, 0, {}, facts["facts"], heads)
        lines = arrays["lines"].tobytes().decode().split("\n")
        lengths = arrays["lengths"].tolist()
        if sum(lengths) != len(arrays["keys"]) or lengths != [len(line.split(" ")) for line in lines]:
            raise ValueError(path)
        return LabelFile(arrays["keys"], arrays["shares"], lines, teacher, facts["texts"])
    except (KeyError, ValueError, TypeError, RecursionError):
        said = f"{visible(Path(path).name)} holds no labelled text."
        raise InputError(said, "Make some with python -m data.making label.") from None


class Labelled(Teachers):
    """Running text with a teacher's labels, in place of the teacher; after the last line, the first again."""

    def __init__(self, paths: Sequence[str]) -> None:
        parts = [_read(path) for path in paths]
        first = parts[0].teacher
        for path, one in zip(paths, parts, strict=True):
            if one.teacher.heads != first.heads or one.teacher.facts != first.facts:
                said = f"{visible(Path(path).name)} has the labels of another teacher."
                raise InputError(said, "Label all texts with the same model.")
        super().__init__([first], [name for one in parts for name in one.texts])
        self.keys, self.shares = (
            np.concatenate(some) for some in zip(*(one[:2] for one in parts), strict=True)
        )
        self.found: list[LabelledSentence] = []
        start = 0
        for line in chain.from_iterable(one.lines for one in parts):
            words = tuple(line.split(" "))
            self.found.append(LabelledSentence(words, (), (), (), ()))
            self.found[-1].start, start = start, start + len(words)
        if len(parts) > 1:  # lines of all files come by turns, in the same order whatever the seed is
            order = np.random.default_rng(0).permutation(len(self.found))
            self.found = [self.found[i] for i in order.tolist()]

    def prepare(self, words: Vocabulary, settings: DeepTraining) -> None:
        """Find the heads that the labels are of."""
        teacher, wanted = self.models[0], np.array(balances(words.heads, settings.balance or 0))
        self.words = words
        self.known = [name in teacher.heads for name in words.heads]
        self.places = np.array([words.heads.index(name) for name in teacher.heads if name in words.heads])
        self.kept = [n for n, name in enumerate(teacher.heads) if name in words.heads]
        self.ratio = self._ratio(teacher, wanted)
        self.lines = self._labelled()

    def _labelled(self) -> Iterator[LabelledSentence]:
        while True:
            for one in self.found:
                self.words_read += len(one.words)
                yield one

    def read(self, count: int, punctuation: float, draw: np.random.Generator) -> list[LabelledSentence]:
        """Return the next lines of about so many words; which of them have their marks was drawn before."""
        found, until = [], self.words_read + count
        while self.words_read < until:
            found.append(next(self.lines))
        return found

    def encoded(self, line: LabelledSentence) -> EncodedSentence:
        """Return a line as numbers."""
        return super().encoded(line.words)._replace(sentences=(line,))

    def batch(self, some: Sequence[EncodedSentence], hidden: Sequence[NDArray[np.bool_]]) -> Batch:
        """Return lines as a batch whose targets are the teacher's weights."""
        batch = self.words.batch(some, hidden)
        targets = np.zeros_like(batch.targets)
        for row, text in zip(targets, some, strict=True):
            at = 0
            for line in text.sentences:
                n = len(line.words)
                part = slice(line.start, line.start + n)
                keys = self.keys[part][:, self.kept].astype(np.intp) + at
                queries = np.arange(at, at + n)[:, np.newaxis, np.newaxis]
                row[self.places[:, np.newaxis], queries, keys] = self.shares[part][:, self.kept]
                at += n
        itself = np.arange(targets.shape[-1])
        targets[..., itself, itself] *= self.ratio
        targets /= np.maximum(targets.sum(axis=-1, keepdims=True), 1e-9)
        return batch._replace(targets=targets, is_imitated=True)
