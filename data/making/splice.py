"""Passages spliced from running text: a line that names several things, and a clause of another line about one of them.

In the clause, the thing becomes *it*: "The dog ran past the gate" and "because the gate was locked", of two lines that
know nothing of each other, give "The dog ran past the gate because it was locked". Neither place nor role tells what
*it* stands for; what is said of it must (after Kocijan et al. 2019, who mask what a passage repeats). Persons become
*he* or *she*, and several things *they*.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from sys import intern
from typing import NamedTuple

import numpy as np

from attn_cli.learn.treebank import read_treebank
from data.making.corpus import lines
from data.making.make_passages import NOT_IT, VERB_AFTER, Passages, words_of, write_passages

LONGEST_TEXT = 80
LONGEST_LINE, LONGEST_CLAUSE, SHORTEST_CLAUSE = 18, 11, 2  # tokens
FEWEST, SHARE = 20, 0.08  # a noun's occurrences between a determiner and what follows nouns, and their share
CONTEXTS, CLAUSES = 400, 1500  # of a noun, at most
TIMES = {
    "is": 3,
    "does": 2,
    "has": 1,
    "object": 1,
}  # how often a clause is used, by what it says of the thing


DEFINITE = words_of("the this that my our his her their your its these those")
DETERMINERS = DEFINITE | words_of("a an some any no every each another two three several many")
AFTER_NOUN = words_of(
    "was were is are had has have would could will can may might must did do does , . ; : ! ? ) and but or to that "
    "than which as when if because so until before after while for in on at with from by into onto over under through"
)
IS = words_of("was were is are 's looked seemed became looks seems becomes felt feels grew got remained")
AUXILIARY = words_of("had has have would could will can may might must did do does should shall")
ADVERBS = words_of(
    "too very so quite still always never not n't now also more most all rather already been being just"
)
OPENERS = words_of(
    "because since as so but and until when while if although though where before after unless for or"
)
ENDS = frozenset(",;:.!?—-()[]\"'“”‘’…") | {"--"}
HE = words_of(
    "man boy king prince emperor lord gentleman father son brother husband uncle nephew pope duke monk knight"
)
SHE = words_of(
    "woman girl queen princess lady mother daughter sister wife aunt niece nurse widow nun duchess"
)
PERSONS = (NOT_IT - words_of(
    "one other latter former same first second last next most whole time day morning evening night year month week "
    "dozen hundred thousand pair couple majority rest men women children people police cattle folk gentlemen feet "
    "teeth mice geese oxen sheep deer"
)) | HE | SHE | words_of(
    "fellow child pilot clerk thief actor actress merchant architect engineer scientist painter composer manager "
    "coach chief detective hunter fisherman peasant captive victor winner candidate employee employer customer buyer "
    "seller worker boss landlord tenant gardener butcher baker tailor shepherd warrior rider chairman musician critic "
    "witness lawyer attorney mayor senator editor journalist reporter professor scholar philosopher surgeon physician"
)  # fmt: skip
NO_THING = words_of(
    "one other latter former same first second last next most whole time day morning evening night year month week "
    "dozen hundred thousand pair couple majority rest lot number kind sort way fact thing part case end side hand "
    "moment hour minute matter reason question point place"
)
MANY = words_of("men women children people mice geese oxen feet teeth wolves leaves thieves wives knives")
FORMS = {
    "it": ("it", "it", "its"), "they": ("they", "them", "their"), "he": ("he", "him", "his"),
    "she": ("she", "her", "her"),
}  # fmt: skip


class Clause(NamedTuple):
    """What is said of a thing: the tokens before and after it, its noun, its role (0, 1, 2 as in FORMS), and how."""

    before: tuple[str, ...]
    after: tuple[str, ...]
    noun: str
    role: int
    says: str


class Spliced(NamedTuple):
    """A passage: its tokens, the pronoun's place, those of what it stands for, and of all that compete."""

    tokens: tuple[str, ...]
    pronoun: int
    right: tuple[int, ...]
    candidates: tuple[int, ...]
    clause: int  # where the clause begins


class Lexicon:
    """Which words are nouns and which verbs: by a treebank's tags, other nouns by where they stand in running text."""

    def __init__(self, treebanks: Sequence[str]) -> None:
        tags: dict[str, Counter[str]] = defaultdict(Counter)
        for sentence in chain.from_iterable(map(read_treebank, treebanks)):
            for word, tag in zip(sentence.words, sentence.tags, strict=True):
                tags[word.lower()][tag] += 1
        self.tags = {word: count.most_common(1)[0][0] for word, count in tags.items()}
        self.all, self.framed = Counter[str](), Counter[str]()
        self.nouns: frozenset[str] = frozenset()

    def count(self, tokens: Sequence[str]) -> None:
        """Count where words stand in a line."""
        self.all.update(tokens)
        self.framed.update(
            word
            for det, word, after in zip(tokens, tokens[1:], tokens[2:], strict=False)
            if det in DETERMINERS and after in AFTER_NOUN
        )

    def settle(self) -> None:
        """Decide which words are nouns."""
        self.nouns = frozenset(
            intern(word)
            for word, count in self.framed.items()
            if count >= FEWEST and len(word) > 2 and word.isalpha() and word.islower() and word not in NO_THING
            and self.tags.get(word, "NOUN" if count >= SHARE * self.all[word] else "") == "NOUN"
        )  # fmt: skip

    def kind(self, noun: str) -> str:
        """Return which pronoun may stand for a noun: it, they, he, or she; persons of either sex are "person"."""
        if noun in PERSONS:
            return "he" if noun in HE else "she" if noun in SHE else "person"
        is_many = noun in MANY or (noun[-1] == "s" and noun[-2:] not in ("ss", "us", "is"))
        return "they" if is_many else "it"

    def is_verb(self, word: str) -> bool:
        """Tell whether a word is mostly a verb."""
        tag = self.tags.get(word)
        return tag == "VERB" or (tag is None and word.endswith("ed"))

    def found(self, tokens: Sequence[str]) -> list[int]:
        """Return the places of nouns that end a phrase with a determiner, or one with an adjective after it."""
        nouns = self.nouns
        return [
            i
            for i, token in enumerate(tokens)
            if token in nouns and i and self._start(tokens, i) < i and not (nouns & {*tokens[i + 1 : i + 2]})
        ]

    def _start(self, tokens: Sequence[str], noun: int) -> int:
        """Return where a noun's phrase begins: at its determiner, or at itself."""
        before = tokens[noun - 1].lower()
        if before in DETERMINERS:
            return noun - 1
        is_adjective = noun > 1 and self.tags.get(before) == "ADJ"
        return noun - 2 if is_adjective and tokens[noun - 2].lower() in DETERMINERS else noun

    def _tells(self, tokens: Sequence[str]) -> bool:
        """Tell whether a clause says anything: whether it has a word of content."""
        return any(
            token not in ADVERBS and self.tags.get(token, "NOUN") in ("NOUN", "VERB", "ADJ", "ADV")
            for token in tokens
        )

    def clauses(self, tokens: Sequence[str], places: Sequence[int]) -> Iterator[Clause]:
        """Yield what a line says of the things that it names at these places."""
        for noun in places:
            start = self._start(tokens, noun)
            if tokens[start].lower() not in DEFINITE:
                continue
            left, right = start, noun + 1
            while left and tokens[left - 1] not in ENDS and start - left <= LONGEST_CLAUSE:
                left -= 1
            while right < len(tokens) and tokens[right] not in ENDS and right - noun <= LONGEST_CLAUSE:
                right += 1
            if clause := self._clause(tokens[left:start], tokens[noun], tokens[noun + 1 : right]):
                yield clause

    def _clause(self, before: Sequence[str], noun: str, after: Sequence[str]) -> Clause | None:
        follows = after[0] if after else ""
        is_subject = not before or before[-1].lower() in OPENERS
        before = before[-1:] if is_subject else before
        is_short = 0 < len(after) + len(before) <= LONGEST_CLAUSE
        if not is_short or not self._tells(after if is_subject else before):
            return None
        if not is_subject:
            says = len(before) > 1 and self.is_verb(before[-1]) and follows != "of"
            return Clause(tuple(before), tuple(after), noun, 1, "object") if says else None
        if follows == "'s":
            is_owner = len(after) > 2 and after[1] not in VERB_AFTER
            return Clause(tuple(before), tuple(after[1:]), noun, 2, "has") if is_owner else None
        says = "is" if follows in IS else "does" if follows in AUXILIARY or self.is_verb(follows) else ""
        return Clause(tuple(before), tuple(after), noun, 0, says) if says else None


def splice(line: Sequence[str], places: Sequence[int], clause: Clause, pronoun: str) -> Spliced:
    """Return a line and a clause of another one as one passage, with a pronoun for what the clause is about."""
    body = list(line)
    while body and body[-1] in ENDS:
        body.pop()
    said = [*clause.before, pronoun, *clause.after, "."]
    if said[0].lower() in OPENERS:
        said[0] = said[0].lower()
    else:
        body.append(".")
        said[0] = said[0][0].upper() + said[0][1:]
    start = len(body)
    body += said
    right = tuple(i for i in places if line[i] == clause.noun)
    return Spliced(tuple(body), start + len(clause.before), right, tuple(places), start)


def spliced(
    treebanks: Sequence[str], texts: Sequence[str], seed: int, report: Callable[[int], None]
) -> Iterator[Spliced]:
    """Yield passages of these texts, in random order; report how many lines are read."""
    lexicon, draw = Lexicon(treebanks), np.random.default_rng([seed, 3])
    read = 0
    for read, tokens in enumerate(chain.from_iterable(map(lines, texts)), 1):
        lexicon.count(tokens)
        report(read)
    lexicon.settle()
    contexts: dict[str, list[tuple[tuple[str, ...], tuple[int, ...]]]] = defaultdict(list)
    clauses: dict[str, list[Clause]] = defaultdict(list)
    for more, tokens in enumerate(chain.from_iterable(map(lines, texts)), 1):
        report(read + more)
        _collect(lexicon, tuple(map(intern, tokens)), contexts, clauses, draw)
    drawn = [
        clause
        for noun, some in clauses.items()
        if contexts.get(noun)
        for clause in some
        for _ in range(TIMES[clause.says])
    ]
    for i in draw.permutation(len(drawn)).tolist():
        clause = drawn[i]
        some = contexts[clause.noun]
        line, places = some[int(draw.integers(len(some)))]
        kind = lexicon.kind(clause.noun)
        if kind == "person":
            kind = ("he", "she")[int(draw.integers(2))]
        yield splice(line, places, clause, FORMS[kind][clause.role])


def splices_file(texts: Sequence[str], output: str, seed: int, report: Callable[[int], None]) -> Passages:
    """Write the passages spliced from running text as JSON Lines, all or nothing; treebanks (.conllu) give tags.

    `clause` says where a passage's second part begins.
    """

    def records() -> Iterator[tuple[dict[str, object], str]]:
        treebanks = [path for path in texts if ".conllu" in path.lower()]
        for one in spliced(treebanks, [path for path in texts if path not in treebanks], seed, report):
            right, candidates = ([[i, i + 1] for i in places] for places in (one.right, one.candidates))
            record = {
                "tokens": one.tokens, "pronoun": one.pronoun, "antecedents": right, "candidates": candidates,
                "clause": one.clause,
            }  # fmt: skip
            yield record, one.tokens[one.right[0]]

    return write_passages(
        texts, output, records(), "No line says anything of a thing that another line names."
    )


def _collect(
    lexicon: Lexicon, tokens: tuple[str, ...],
    contexts: dict[str, list[tuple[tuple[str, ...], tuple[int, ...]]]],
    clauses: dict[str, list[Clause]], draw: np.random.Generator,
) -> None:  # fmt: skip
    """Keep a line as one that names several things, and what it says of them."""
    places = lexicon.found(tokens) if len(tokens) <= LONGEST_TEXT else []
    for clause in lexicon.clauses(tokens, places):
        kept = clauses[clause.noun]
        if len(kept) < CLAUSES:
            kept.append(clause)
    if not 4 < len(tokens) <= LONGEST_LINE or ":" in tokens:
        return
    classes: dict[str, list[int]] = defaultdict(list)
    for place in places:
        kind = lexicon.kind(tokens[place])
        classes["person" if kind in ("he", "she") else kind].append(place)
    for alike in classes.values():
        names = {tokens[i] for i in alike}
        for noun in names if len(names) > 1 else ():
            some = contexts[noun]
            if len(some) < CONTEXTS:
                some.append((tokens, tuple(alike)))
            elif draw.random() < 0.1:
                some[int(draw.integers(CONTEXTS))] = (tokens, tuple(alike))
