"""Running text as masked batches: lines encoded, grouped by length and padded, with some words to be guessed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from attn_cli.errors import InputError
from attn_cli.learn.batches import UNKNOWN, batches, feature_names
from attn_cli.vectors.spelling import features
from data.making.corpus import WordRows, lines
from data.making.layers import NONE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from attn_cli.vectors import VectorTable
    from data.making.settings import Pretraining

LONGEST, SHORTEST = 60, 4  # words in a line that is learned from
CHUNK = 8192  # lines that are shuffled and grouped by length together
HELD_BACK = 2000  # lines that the guesses are measured on


class Line(NamedTuple):
    """A line as numbers: each word's row of the vectors, or UNKNOWN, and the numbers of its features."""

    words: NDArray[np.int32]
    features: list[list[int]]


class Masked(NamedTuple):
    """Lines padded to the longest, with some words masked: b lines, n words, m features a word."""

    words: NDArray[np.intp]  # (b, n)
    features: NDArray[np.intp]  # (b, n, m)
    is_word: NDArray[np.bool_]  # (b, n)
    wanted: NDArray[np.intp]  # (b, n), rows of the masked words, NONE elsewhere


class Lines:
    """The lines of texts as masked batches, drawn from one seed."""

    def __init__(self, table: VectorTable, paths: Sequence[str], settings: Pretraining) -> None:
        self.paths = paths
        self.settings = settings
        self.rows = WordRows(table)
        self.names = feature_names(table, settings.endings, settings.itself)
        self.places = {name: n for n, name in enumerate(self.names)}
        self.spelled: dict[str, list[int]] = {}
        self.draw = np.random.default_rng([settings.seed, 2])

    def batches(self) -> Iterator[Masked]:
        """Yield batches without end: after the last line, the first comes again."""
        while True:
            source = (tokens for path in self.paths for tokens in lines(path))
            found = False
            while chunk := list(islice(source, CHUNK)):
                for batch in self.grouped(self.encode(chunk), self.draw):
                    found = True
                    yield batch
            if not found:
                raise InputError(f"No line of these files has {SHORTEST} to {LONGEST} words.")

    def held_back(self) -> list[Masked]:
        """Return batches of lines that are not learned from, always the same."""
        source = (tokens for path in self.paths for tokens in lines(path, held_back=True))
        draw = np.random.default_rng([self.settings.seed, 3])
        return list(self.grouped(self.encode(list(islice(source, HELD_BACK))), draw))

    def encode(self, some: Sequence[Sequence[str]]) -> list[Line]:
        """Return those lines that are neither too short nor too long as numbers."""
        return [
            Line(self.rows.of(tokens), [self._spelling(token) for token in tokens])
            for tokens in (self._some_without_marks(tokens) for tokens in some)
            if SHORTEST <= len(tokens) <= LONGEST
        ]

    def _some_without_marks(self, tokens: Sequence[str]) -> Sequence[str]:
        if self.draw.random() < self.settings.punctuation:
            return [token for token in tokens if any(map(str.isalnum, token))]
        return tokens

    def _spelling(self, word: str) -> list[int]:
        if word not in self.spelled:
            self.spelled[word] = [self.places[name] for name in features(word) if name in self.places]
        return self.spelled[word]

    def grouped(self, some: Sequence[Line], draw: np.random.Generator) -> Iterator[Masked]:
        """Yield batches of lines of similar length, with words masked."""
        for group in batches([len(line.words) for line in some], self.settings.batch, draw):
            batch = self.masked([some[i] for i in group], draw)
            if (batch.wanted != NONE).any():
                yield batch

    def masked(self, some: Sequence[Line], draw: np.random.Generator) -> Masked:
        """Pad lines to a batch, with a share of the words masked."""
        settings, none = self.settings, len(self.names)
        b, n = len(some), max(len(line.words) for line in some)
        m = max(len(spelled) for line in some for spelled in line.features)
        words = np.full((b, n), UNKNOWN, dtype=np.intp)
        spelled = np.full((b, n, m), none, dtype=np.intp)
        is_word = np.zeros((b, n), dtype=bool)
        for s, line in enumerate(some):
            words[s, : len(line.words)] = line.words
            is_word[s, : len(line.words)] = True
            for i, found in enumerate(line.features):
                spelled[s, i, : len(found)] = found
        chance = draw.random((b, n))
        guessed = (chance < settings.mask) & (words != UNKNOWN) & (words < settings.guesses)
        wanted = np.where(guessed, words, NONE)
        # Some words that are to be guessed stay as they are: rows without a mask are to mean something, too.
        gone = guessed & (chance < settings.mask * (1 - settings.kept))
        # Others lose their vector, not their spelling: so unknown words will come.
        spelled[gone] = none
        words[gone | (chance > 1 - settings.unknown)] = UNKNOWN
        return Masked(words, spelled, is_word, wanted)
