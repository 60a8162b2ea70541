"""Learning from other models: on running text, which nobody has parsed, their weights are what is learned.

The mean of several models is right more often than each of them, and text to learn it from is plenty (Hinton, Vinyals
and Dean 2015, "Distilling the Knowledge in a Neural Network"). The teachers see each word; the one that learns has
words hidden and columns dropped (Xie et al. 2020, "Self-Training with Noisy Student").
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from attn_cli.errors import InputError, UsageError
from attn_cli.learn.batches import Batch, EncodedSentence, Vocabulary
from attn_cli.learn.relations import RELATIONS, balances
from attn_cli.learn.treebank import Sentence
from attn_cli.vectors import as_text
from data.making.corpus import lines
from data.making.deep import Deep
from data.making.encoder import EncoderFile, is_encoder, read_encoder
from data.making.lower import Lower, read_lower, sized
from data.making.settings import DeepTraining

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from attn_cli.vectors import Vectors

SHORTEST, LONGEST = 3, 60  # words in a line that is learned from


class Teachers:
    """Trained models whose weights another one learns, and the running text on which it does.

    Where the one that learns weights rows without a relation otherwise than a teacher did (its `balance`), the
    teacher's weight of a word on itself is multiplied by the ratio of the two.
    """

    def __init__(self, models: Sequence[Lower | EncoderFile], texts: Sequence[str]) -> None:
        self.models = models
        self.texts = texts
        self.words_read = 0

    def prepare(self, words: Vocabulary, settings: DeepTraining) -> None:
        """Build the models, for these heads, and begin to read; `words` knows all words of the vectors (`know_all`)."""
        vectors, wanted = words.matrix(), np.array(balances(words.heads, settings.balance or 0))
        self.words = words
        self.learners: list[Deep] = []
        self.ratios: list[NDArray[np.float32]] = []
        for model in self.models:
            if isinstance(model, EncoderFile):
                self.learners.append(model.learner(words, vectors, settings.seed, settings.threads))
            elif model.names != words.names:
                raise InputError(
                    f"{model.name} has other features of spelling than what is to learn from it."
                )
            else:
                own = sized(DeepTraining(seed=settings.seed, threads=settings.threads), model)
                self.learners.append(Deep(words, vectors, own.with_defaults(), model))
            self.ratios.append(self._ratio(model, wanted))
        self.known = [
            relation.distance is None
            and not relation.of_passages
            and all(name in model.heads for model in self.models)
            for name, relation in ((name, RELATIONS[name]) for name in words.heads)
        ]
        self.lines = self._endless()

    def _ratio(self, model: Lower | EncoderFile, wanted: NDArray[np.float64]) -> NDArray[np.float32]:
        """Return by what a teacher's weights of words on themselves are to be multiplied, (h, 1)."""
        settings = model.facts.get("settings")
        try:
            had = balances(self.words.heads, settings["balance"]) if isinstance(settings, dict) else wanted
        except (KeyError, ValueError):
            raise InputError(f"{model.name} does not say how it was trained.") from None
        least = 1e-3  # a balance may be 0: of the one that learns, or of a teacher
        ratio: NDArray[np.float32] = (np.maximum(wanted, least) / np.maximum(had, least)).astype(np.float32)
        return ratio[:, np.newaxis]

    def _endless(self) -> Iterator[tuple[str, ...]]:
        """Yield the tokens of each line that is neither too short nor too long; after the last, the first again."""
        while True:
            before = self.words_read
            for tokens in chain.from_iterable(map(lines, self.texts)):
                if SHORTEST <= len(tokens) <= LONGEST:
                    self.words_read += len(tokens)
                    yield tokens
            if self.words_read == before:
                raise InputError(f"No line of the running text has {SHORTEST} to {LONGEST} words.")

    def read(self, count: int, punctuation: float, draw: np.random.Generator) -> list[tuple[str, ...]]:
        """Return the next lines of about so many words; the share `punctuation` of them without their marks."""
        found: list[tuple[str, ...]] = []
        total = 0
        while total < count:
            tokens = next(self.lines)
            if draw.random() < punctuation:
                tokens = tuple(token for token in tokens if any(map(str.isalnum, token))) or tokens
            found.append(tokens)
            total += len(tokens)
        return found

    def encoded(self, tokens: Sequence[str]) -> EncodedSentence:
        """Return a line as numbers; what is known of its words, the teachers will say."""
        n, words = len(tokens), self.words
        known = np.repeat(np.array(self.known, dtype=bool)[:, np.newaxis], n, axis=1)
        rows = np.array([words.row(token) for token in tokens], dtype=np.intp)
        features = [words.spelling(token) for token in tokens]
        line = Sentence(tuple(tokens), (), (), (), ())  # nobody parsed it
        return EncodedSentence(rows, features, [{} for _ in words.heads], known, (line,))

    def batch(self, some: Sequence[EncodedSentence], hidden: Sequence[NDArray[np.bool_]]) -> Batch:
        """Return lines as a batch whose targets are the mean weights of the teachers, who see the hidden words."""
        seen = self.words.batch(some)
        total = np.zeros_like(seen.targets)
        n = total.shape[-1]
        for learner, ratio in zip(self.learners, self.ratios, strict=True):
            weights = learner.weights(seen)
            weights[..., np.arange(n), np.arange(n)] *= ratio
            total += weights / weights.sum(axis=-1, keepdims=True)
        total *= seen.is_word[:, np.newaxis, :, np.newaxis] / np.float32(len(self.learners))
        return self.words.batch(some, hidden)._replace(targets=total, is_imitated=True)


def know_all(words: Vocabulary) -> None:
    """Give every word of the vectors its row, for text that is read later."""
    for block in words.table.word_blocks():
        for word in block:
            words.row(as_text(word))


def read_teachers(models: Sequence[str], texts: Sequence[str], table: Vectors) -> Teachers | None:
    """Return the models to learn from with their text, None where there are none; UsageError where half is missing."""
    if bool(models) != bool(texts):
        given, missing = ("--teacher", "--text") if models else ("--text", "--teacher")
        what = "the running text to learn from it on" if models else "the model to learn from"
        raise UsageError(f"{given} needs {missing}.", f"Name {what}.", missing)
    if not models:
        return None
    found = [
        read_encoder(path, table) if is_encoder(path) else read_lower(path, table, "--teacher")
        for path in models
    ]
    for one in found:
        if not one.heads:
            raise UsageError(
                f"{one.name} has no heads to learn from.",
                "Give a model of python -m data.making train.",
                "--teacher",
            )
    return Teachers(found, texts)
