"""Text for a language model: each distinct token's row and features, the sentences as numbers, batches of them."""

from __future__ import annotations

import time
from array import array
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from attn_cli.io.types import Stage, StageReport
from attn_cli.learn.batches import batches, feature_names
from attn_cli.vectors.spelling import features
from data.making.corpus import UNKNOWN, WordRows, marked_lines

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from attn_cli.vectors import VectorTable

    Ints = NDArray[np.int32]

LONGEST = 64  # tokens in a text; what a line has beyond them is left out
LONGEST_REPEATED = 24
LEAST_RANDOM, MOST_RANDOM = 4, 28  # random words that are said twice
MOST_BEFORE = 6  # and fewer than so many others before them
POOL = 20_000  # sentences that are put into batches together
MOSTLY = 0.75  # of the times, from which on a word has a capital: Paris, not the king
MOST_ALIKE = 0.9  # cosine: what is more alike says the same, as forms and lists do


class Batch(NamedTuple):
    """Texts padded to the longest, (b, n): the distinct tokens among them, and which stands where."""

    distinct: Ints  # (f,) numbers of tokens
    places: NDArray[np.intp]  # (b, n), of each token among the distinct ones; 0 in the padding
    rows: NDArray[
        np.intp
    ]  # (b, n), the words to predict; -1 in the padding, and where none is to be predicted
    is_text: NDArray[np.bool_]  # (b,), which of them are lines, and not random words

    @property
    def size(self) -> int:
        """How many tokens of lines there are to predict."""
        return int((self.rows[self.is_text] >= 0).sum())


class LanguageText:
    """The tokens of a text, numbered as they come, and the lines as such numbers, one after the other."""

    def __init__(self, table: VectorTable, endings: int, corrected: int) -> None:
        self.unknown = len(table.matrix)  # the class of words without a vector comes after all rows
        self.names = feature_names(table, endings, corrected)
        self._places = {name: n for n, name in enumerate(self.names)}
        self._rows = WordRows(table)
        self._vectors = table.matrix
        self._numbers: dict[str, int] = {}
        self._spelled: list[list[int]] = []
        self._row_of: list[int] = []
        self._tokens = array("i")
        self._ends = [0]

    def number(self, token: str) -> int:
        """Return the number of a token as written; a new one gets the next."""
        found = self._numbers.get(token)
        if found is None:
            found = self._numbers[token] = len(self._numbers)
            row = self._rows.row(token)
            self._row_of.append(self.unknown if row == UNKNOWN else row)
            self._spelled.append([self._places[name] for name in features(token) if name in self._places])
        return found

    def read(
        self, paths: Sequence[str], most: int, report: StageReport, made: str | None = None
    ) -> tuple[range, range]:
        """Add the lines of these files up to so many tokens; return the numbers of those to learn, and held back.

        Lines of the file `made` that would be held back are dropped.
        """
        begun, first = time.monotonic(), len(self._ends) - 1
        held_back: dict[tuple[str, tuple[str, ...]], None] = {}
        read = 0
        for path in paths:
            for tokens, is_held_back in marked_lines(path):
                if read >= most:
                    break
                if is_held_back and path == made:
                    continue
                if is_held_back:
                    held_back[path, tokens] = None  # once, also of a file that is read more than once
                    continue
                read += self.add(tokens)
                if len(self._ends) % 2000 == 0:
                    report(Stage("reading", read / most, read, time.monotonic() - begun))
        middle = len(self._ends) - 1
        for _, tokens in held_back:
            self.add(tokens)
        return range(first, middle), range(middle, len(self._ends) - 1)

    def add(self, tokens: Sequence[str]) -> int:
        """Add one line, and return how many tokens of it there are."""
        self._tokens.extend(map(self.number, tokens[:LONGEST]))
        self._ends.append(len(self._tokens))
        return self._ends[-1] - self._ends[-2]

    def freeze(self) -> None:
        """Turn what was read into arrays: from here on nothing is added."""
        self.tokens = np.frombuffer(self._tokens, np.int32)
        self.ends = np.array(self._ends)
        self.rows = np.array(self._row_of, np.intp)
        counts = np.bincount(self.rows[self.tokens], minlength=self.unknown + 1)
        self.rarity = np.log(len(self.tokens) / np.maximum(counts, 1)).astype(
            "f4"
        )  # the rarer a word, the more
        self.rarity[self.unknown] = 0
        is_capital = np.array([token[:1].isupper() for token in self._numbers], bool)
        self.is_name = is_capital & (self.rows == self.unknown)
        most = max(map(len, self._spelled), default=1)
        self.features = np.full((len(self.rows), most), len(self.names), np.int32)
        for token, some in enumerate(self._spelled):
            self.features[token, : len(some)] = some

    def words(self, numbers: range) -> Ints:
        """Return the tokens of these lines, one line after the other."""
        found: Ints = self.tokens[self.ends[numbers.start] : self.ends[numbers.stop]]
        return found

    def counts(self, numbers: range) -> NDArray[np.float64]:
        """Return how often each word occurs in these lines, (words + 1,): in the vectors' order, then the unknown."""
        return np.bincount(self.rows[self.words(numbers)], minlength=self.unknown + 1).astype(np.float64)

    def cases(self, numbers: range) -> NDArray[np.uint8]:
        """Return two rows of bits (2, words / 8): which words mostly have a capital, and which only capitals.

        Counted where a word or a comma comes before, for elsewhere a sentence may begin.
        """
        tokens = self.words(numbers)
        said = [*self._numbers]
        within = np.array([token == "," or token[:1].isalnum() for token in said], bool)
        kinds = np.array([token[:1].isupper() + (len(token) > 1 and token.isupper()) for token in said])
        is_within = np.append(False, within[tokens[:-1]])
        is_within[self.ends[numbers.start : numbers.stop] - self.ends[numbers.start]] = False
        counts = np.zeros((self.unknown + 1, 3), np.int64)
        np.add.at(counts, (self.rows[tokens], kinds[tokens]), is_within)
        least = MOSTLY * counts.sum(axis=1)
        return np.packbits([counts[:, 1:].sum(axis=1) > least, counts[:, 2] > least], axis=1)

    def line(self, number: int) -> Ints:
        """Return a line's tokens."""
        found: Ints = self.tokens[self.ends[number] : self.ends[number + 1]]
        return found

    def batches(
        self,
        numbers: range,
        size: int,
        pairs: float,
        repeated: float,
        random: float,
        named: float,
        draw: np.random.Generator,
        related: float = 0.0,
    ) -> Iterator[Batch]:
        """Yield these lines once, in random order, in batches of about `size` tokens.

        Of the lines, the share `pairs` is read after the one before it in its file, and the share `repeated` says
        itself twice. Beside each of their words come `random` random ones that are said twice, and predicted the second
        time; beside each line come `named` pairs of lines that name the same, and `related` pairs of lines about
        similar things, the second of which is predicted.
        """
        order = numbers.start + draw.permutation(len(numbers))
        for start in range(0, len(order), POOL):
            texts: list[Ints] = []
            unasked: list[int] = []
            for number in order[start : start + POOL].tolist():
                line, before = self.line(number), self.line(max(numbers.start, number - 1))
                is_read_after = number > numbers.start and draw.random() < pairs
                unasked.append(0)
                if is_read_after and len(before) + len(line) <= LONGEST:
                    unasked[-1] = len(before)
                    texts.append(np.concatenate([before, line]))
                elif draw.random() < repeated and len(line) <= LONGEST_REPEATED:
                    texts.append(np.concatenate([line, line]))
                else:
                    texts.append(line)
            lines = len(texts)
            beside = [
                *self._said_twice(np.concatenate(texts), random, draw),
                *self._named_again(texts, named, draw),
                *self._related(texts, related, draw),
            ]
            for before, said in beside:
                texts.append(said)
                unasked.append(before)
            for group in batches([len(text) for text in texts], size, draw):
                batch = self.batch([texts[i] for i in group])
                for row, i in enumerate(group):
                    batch.rows[row, : unasked[i]] = -1
                yield batch._replace(is_text=np.array(group) < lines)

    def _said_twice(
        self, tokens: Ints, random: float, draw: np.random.Generator
    ) -> Iterator[tuple[int, Ints]]:
        """Yield texts of random words, said twice after a few others, and how many tokens come before the second time.

        Half of these texts have their words as often as the lines have them, half have each as often as any other.
        """
        distinct, made = np.unique(tokens), 0
        while made < random * len(tokens):
            words = draw.choice(
                distinct if draw.random() < 0.5 else tokens, draw.integers(LEAST_RANDOM, MOST_RANDOM)
            )
            others = draw.choice(tokens, draw.integers(MOST_BEFORE))
            yield len(others) + len(words), np.concatenate([others, words, words])
            made += len(words)

    def _named_again(
        self, texts: Sequence[Ints], named: float, draw: np.random.Generator
    ) -> Iterator[tuple[int, Ints]]:
        """Yield pairs of these texts as one, and how many tokens the first has.

        Each has a name without a vector after the same word; the second one has the name of the first in its place.
        Half of them are drawn as often as such names come, half have each word before a name as often as any other.
        """
        found = defaultdict[int, list[tuple[int, int]]](list)
        for n, text in enumerate(texts):
            for i in (np.flatnonzero(self.is_name[text[1:]]) + 1).tolist():
                found[int(self.rows[text[i - 1]])].append((n, i))
        places = [some for before, some in found.items() if len(some) > 1 and before != self.unknown]
        often = np.cumsum([len(some) for some in places])
        for _ in range(round(named * len(texts)) if places else 0):
            by_count = int(often.searchsorted(draw.integers(often[-1]), "right"))
            some = places[by_count if draw.random() < 0.5 else draw.integers(len(places))]
            (one, i), (other, j) = (some[k] for k in draw.choice(len(some), 2, replace=False))
            first, second = texts[one], texts[other]
            if len(first) + len(second) <= LONGEST:
                yield len(first), np.concatenate([first, np.where(second == second[j], first[i], second)])

    def _related(
        self, texts: Sequence[Ints], related: float, draw: np.random.Generator
    ) -> Iterator[tuple[int, Ints]]:
        """Yield some of these texts, each followed by the one that is most like it, and how many tokens it has.

        Texts are alike by the cosine of their sums of word vectors, each of which counts more the rarer the word is.
        Where lines are shuffled, none goes on where another ends: such a pair stands in for that.
        """
        firsts = np.flatnonzero(draw.random(len(texts)) < related)
        if not len(firsts):
            return
        rows = self.rows[np.concatenate(texts)]
        known = np.minimum(rows, self.unknown - 1)
        starts = np.cumsum([0, *map(len, texts[:-1])])
        V = np.add.reduceat(
            self._vectors[known] * self.rarity[rows][:, np.newaxis], starts, axis=0, dtype="f4"
        )
        V /= np.maximum(np.linalg.norm(V, axis=1, keepdims=True), 1e-9)
        for some in np.array_split(firsts, 1 + len(firsts) // 1000):
            alike = V[some] @ V.T
            alike[alike > MOST_ALIKE] = -1  # itself, too
            nearest = alike.argmax(axis=1)
            is_like = alike[np.arange(len(some)), nearest] > 0
            for one, other in zip(some[is_like].tolist(), nearest[is_like].tolist(), strict=True):
                if len(texts[one]) + len(texts[other]) <= LONGEST:
                    yield len(texts[one]), np.concatenate([texts[one], texts[other]])

    def in_order(self, numbers: range, size: int) -> Iterator[Batch]:
        """Yield these lines as they are, those of similar length together."""
        texts = [self.line(number) for number in numbers]
        for group in batches([len(text) for text in texts], size, None):
            yield self.batch([texts[i] for i in group])

    def batch(self, texts: Sequence[Ints]) -> Batch:
        """Pad texts to a batch."""
        n = max(map(len, texts))
        is_token = np.arange(n) < np.array([len(text) for text in texts])[:, np.newaxis]
        joined = np.concatenate(texts)
        distinct, found = np.unique(joined, return_inverse=True)
        places, rows = np.zeros(is_token.shape, np.intp), np.full(is_token.shape, -1)
        places[is_token], rows[is_token] = found, self.rows[joined]
        return Batch(distinct, places, rows, np.ones(len(texts), bool))
