"""Sentences of a treebank with some of their phrases exchanged for phrases of the same kind from other sentences.

"She read the letter" and "We sold an old car" give "She read an old car", with every governor known: the style of the
treebank, and words in new company. A teacher says what it sees there (`label`), for a student to learn. (After
Dehouck and Gómez-Rodríguez 2020, "Data augmentation via subtree swapping for dependency parsing of low-resource
languages"; of a student's own kind of text, many variants teach most: Jiao et al. 2020, "TinyBERT".)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np

from attn_cli.learn.treebank import Sentence, read_treebank
from data.making.graft import edges, write_treebank

MOVED = frozenset({
    "nsubj", "obj", "iobj", "obl", "nmod", "amod", "advmod", "advcl", "acl", "xcomp", "ccomp", "conj", "compound",
    "appos", "nummod", "det", "parataxis",
})  # fmt: skip
OPENING = frozenset({"ADP", "SCONJ", "PART", "CCONJ"})  # what they open is of the kind of that word
SHORTEST, LONGEST = 4, 12  # words of a sentence that is varied, at least, and of a phrase that moves, at most
SHARE = 0.5  # the chance that a phrase is drawn; one that overlaps a drawn one stays

Kind = tuple[str, str, str]


class Phrase(NamedTuple):
    """A word of a sentence with all that it governs, which stand side by side."""

    sentence: Sentence
    root: int
    start: int
    end: int

    def kind(self) -> Kind:
        """Return its relation, its root's tag, and its first word if that is *in*, *because* or such, else its tag."""
        one, first = self.sentence, self.sentence.tags[self.start]
        opener = one.words[self.start].lower() if first in OPENING else first
        return one.relations[self.root], one.tags[self.root], opener


def phrases(sentence: Sentence) -> Iterator[Phrase]:
    """Yield the phrases of a sentence that others can stand for."""
    first, last, size = edges(sentence)
    for root, relation in enumerate(sentence.relations):
        start, end = first[root], last[root] + 1
        if relation.partition(":")[0] in MOVED and size[root] == end - start <= LONGEST:
            yield Phrase(sentence, root, start, end)


def exchanged(sentence: Sentence, others: Sequence[Phrase], instead: Sequence[Phrase]) -> Sentence:
    """Return a sentence with some of its phrases, which share no word, each replaced by its like in `instead`."""
    inside = {i: n for n, one in enumerate(others) for i in range(one.start, one.end)}
    order: list[
        tuple[int, int]
    ] = []  # the phrase that a word is of, -1 for the sentence, and its place there
    for i in range(len(sentence.words)):
        if (n := inside.get(i, -1)) < 0:
            order.append((n, i))
        elif i == others[n].start:
            order += [(n, k) for k in range(instead[n].start, instead[n].end)]
    place = {one: at for at, one in enumerate(order)}

    def governor(n: int, i: int) -> int:
        if n >= 0 and i != instead[n].root:
            return place[n, instead[n].sentence.governors[i]]
        # The root of a phrase is governed as the one was that stood here; no phrase governs a word outside it.
        return place.get((-1, sentence.governors[i if n < 0 else others[n].root]), -1)

    of = [instead[n].sentence if n >= 0 else sentence for n, _ in order]
    return Sentence(
        tuple(one.words[i] for one, (_, i) in zip(of, order, strict=True)),
        tuple(governor(n, i) for n, i in order),
        tuple(one.relations[i] for one, (_, i) in zip(of, order, strict=True)),
        tuple(one.tags[i] for one, (_, i) in zip(of, order, strict=True)),
    )


def varied(treebanks: Sequence[str], times: int, seed: int) -> Iterator[Sentence]:
    """Yield each sentence so many times, with phrases drawn anew; one may be drawn in its own place."""
    read = [one for one in chain.from_iterable(map(read_treebank, treebanks)) if len(one.words) >= SHORTEST]
    found: dict[Kind, list[Phrase]] = defaultdict(list)
    of_sentence = [[*phrases(sentence)] for sentence in read]
    for one in chain.from_iterable(of_sentence):
        found[one.kind()].append(one)
    draw = np.random.default_rng(seed)
    for _ in range(times):
        for sentence, some in zip(read, of_sentence, strict=True):
            taken = np.zeros(len(sentence.words), bool)
            others, instead = list[Phrase](), list[Phrase]()
            for k in draw.permutation(len(some)).tolist():
                one = some[k]
                if draw.random() < SHARE and not taken[one.start : one.end].any():
                    taken[one.start : one.end] = True
                    like = found[one.kind()]
                    others.append(one)
                    instead.append(like[draw.integers(len(like))])
            if others:
                yield exchanged(sentence, others, instead)


def varied_file(
    treebanks: Sequence[str], output: str, times: int, seed: int, report: Callable[[int], None]
) -> int:
    """Write the varied sentences as CoNLL-U (.conllu, also .gz or .xz), all or nothing; return how many."""
    why = "No phrase of these sentences can be exchanged.", "Give a treebank of thousands of sentences."
    return write_treebank(varied(treebanks, times, seed), treebanks, output, why, report)
