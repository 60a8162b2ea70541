"""Tales of a small world in which what is told agrees: for a small language model to learn how a story goes on.

Somebody is somewhere: at a door, at a table, on a road. What can be told there, and where it leads, stands in
tales.txt, a grammar with places, in sentences of our own. A tale is a way through these places. Nobody is *he* or
*she* before it is said who that is, and nobody else is called so; what is indoors does not happen on the road; snow and
summer are in one tale only where something became otherwise.

A world with places and rules that tell what can follow: Meehan 1977, "TALE-SPIN, an interactive program that writes
stories". What small models learn from plain stories that were written for them: Eldan and Li 2023, "TinyStories".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from attn_cli.text.tokenize import tokenize
from data.making.make_passages import words_of

GRAMMAR = Path(__file__).with_suffix(".txt")
LEAST, MOST = 40, 62  # words of a tale at least; words and marks at most
TRIES = 12  # draws of a sentence that agrees, before a tale ends
REPEATED = 1  # words of the sentences before that a sentence may have again, beside the plain ones
HEROES = ("he", "he", "he", "he", "she", "she", "she", "I", "they")
PRONOUNS = {
    "he": "he him his himself was",
    "she": "she her her herself was",
    "I": "I me my myself was",
    "they": "they them their themselves were",
}
FORMS = ("he", "him", "his", "self", "was")  # in this order
DEFINITE = 0.75  # share of heroes who begin a tale with *the*
WITH_KIND = 0.6  # share of people who are old, or tall, or tired
OF_BEASTS = 0.07  # share of the tales
NAMED = 0.24  # share of *He* that is *The man*, where the sentence before was about somebody else
COMMON = 0.25  # share of the draws among all that can be told, beside what belongs to the place alone
AFTERWARDS = 0.12  # share of sentences with PRONOUN_FIRST that begin with *Then* or so
PRONOUN_FIRST = re.compile(
    r"(?!.*\bthen\b)(?:He|he|She|she|They|they|I) (?!was|were|had|could|did|felt|knew|soon|like|want|love)"
)
# What makes it another time of the day, or other weather; and what makes somebody sleep.
BECAME = re.compile(
    r"\b(began|grew|grow|came up|rose|(went|gone) down|next day|in the (morning|evening)|woke|at night|got)\b",
    re.I,
)
ASLEEP = re.compile(r"\basleep\b|\bto (bed|sleep)\b|\band slept\b")
PLAIN = words_of(
    "the a an and but so then of to in on at with for from by up down out into over through as that it he she they i "
    "his her him them their my me himself herself myself themselves was were had did not could would there where what "
    "who when until because some one all very again went came looked saw door room house home man woman boy girl "
    "said asked told put took sat stood got gave . ,"
)


class Telling(NamedTuple):
    """What can be told at a place: what must be so, what becomes of it, and in which words."""

    needs: frozenset[str]
    lacks: frozenset[str]
    then: str  # a place, or "" for the same
    gains: frozenset[str]
    loses: frozenset[str]
    text: str
    is_common: bool  # to several places


class Grammar:
    """What can be told at each place, and the words that are left open."""

    def __init__(self, path: Path = GRAMMAR) -> None:
        places = dict[str, list[str]]()
        self.words, self.told = dict[str, list[str]](), dict[str, list[Telling]]()
        for line in path.read_text(encoding="utf-8").splitlines():
            name, _, rest = line[2:].partition(": ")
            if line.startswith("= "):
                places[name] = rest.split()
            elif line.startswith("* "):
                self.words.setdefault(name, []).extend(rest.split("|"))
            elif line and line[0] != "#":
                at, telling = self._telling(line, places)
                for place in places.get(at, [at]):
                    self.told.setdefault(place, []).append(telling)
        self.times = dict[str, list[tuple[str, str]]]()
        for name in self.words:
            if name.startswith("time-"):
                _, axis, value = name.split("-")
                for word in self.words[name]:
                    self.times.setdefault(word, []).append((axis, value))

    @staticmethod
    def _telling(line: str, places: dict[str, list[str]]) -> tuple[str, Telling]:
        """Return where a line can be told, and what it tells: `room !lit > table +lit | <He> lit a candle.`."""
        rule, _, text = line.partition(" | ")
        before, _, after = rule.partition(">")
        (at, *asked), become = before.split(), after.split()

        def marked(some: Sequence[str], mark: str) -> frozenset[str]:
            return frozenset(word[1:] for word in some if word[0] == mark)

        then = "".join(word for word in become if word[0] not in "+-")
        needs, lacks, gains, loses = (
            marked(some, mark) for some, mark in ((asked, "?"), (asked, "!"), (become, "+"), (become, "-"))
        )
        return at, Telling(needs, lacks, then, gains, loses, text, at in places)


class Person(NamedTuple):
    """Somebody in a tale."""

    kind: str  # of PRONOUNS
    first: str  # when they come: an old man
    later: str  # and afterwards: the man


class Tale:
    """One way through the places of a grammar."""

    def __init__(self, grammar: Grammar, draw: np.random.Generator) -> None:
        self.grammar, self.draw = grammar, draw
        self.hero = self._somebody(self._of(HEROES), DEFINITE)
        self.other: Person | None = None
        self.chosen = dict[str, str]()
        self.so = dict[str, str]()  # day, weather and year
        self.words = set[str]()
        self.before = ""  # whom the sentence before began with

    def told(self) -> Iterator[str]:
        """Yield the sentences."""
        is_beast = self.draw.random() < OF_BEASTS
        place, flags, length = "begin-animal" if is_beast else "begin", frozenset[str](), 0
        used, awake = set[str](), ""
        while found := self._next(place, flags, used):
            telling, sentence, words = found
            length += len(words)
            if length > MOST:
                return
            yield sentence
            used.add(telling.text)
            self.words.update(words)
            flags = (flags | telling.gains) - telling.loses
            place = awake if place == "asleep" else telling.then or place
            if ASLEEP.search(sentence) and not is_beast:
                place, awake, flags = "asleep", place, flags - {"other"}

    def _next(
        self, place: str, flags: frozenset[str], used: set[str]
    ) -> tuple[Telling, str, tuple[str, ...]] | None:
        """Return something that can be told here and agrees with what was told: how it is told, and its tokens."""
        able = [
            one
            for one in self.grammar.told[place]
            if one.needs <= flags and not one.lacks & flags and one.text not in used
        ]
        own = [one for one in able if not one.is_common]
        for _ in range(TRIES * bool(able)):
            telling = self._of(own if own and self.draw.random() > COMMON else able)
            kept = self.other, dict(self.chosen), self.before
            sentence = self._sentence(telling.text)
            words = tuple(token.lower() for token in tokenize(sentence, keep_punctuation=True).tokens)
            if self._agrees(sentence, words):
                return telling, sentence, words
            self.other, self.chosen, self.before = kept
        return None

    def _agrees(self, sentence: str, words: Sequence[str]) -> bool:
        """Tell whether a sentence agrees with those before it, and note what it tells of the time."""
        if self.hero.kind == "they" and not {"their", "themselves", "alone", "chair"}.isdisjoint(words):
            return False  # the sisters have not one hat, nor do they sit on one chair
        new = dict[str, str]()
        agrees = len({*words} & self.words - PLAIN) <= REPEATED
        for axis, value in (told for word in words for told in self.grammar.times.get(word, ())):
            is_so = new.setdefault(axis, value) == value == self.so.get(axis, value)
            agrees &= is_so or BECAME.search(sentence) is not None
        if agrees:
            self.so |= new
        return agrees

    def _sentence(self, text: str) -> str:
        """Return one of the ways to tell something, with the words that are left open."""
        while found := re.search(r"\[([^][]*)\]", text):
            text = text[: found.start()] + self._of(found[1].split("|")) + text[found.end() :]
        text = re.sub(r"<([\w.:]+)>", lambda found: self._word(found[1]), text)
        if self.words and PRONOUN_FIRST.match(text) and self.draw.random() < AFTERWARDS:
            small = text if text.startswith("I ") else text[0].lower() + text[1:]
            text = f"{self._of(self.grammar.words['then'])} {small}"
        text = re.sub(r"\b([Aa]) (?=[aeiou])", r"\1n ", re.sub(r" +([.,])", r"\1", text))
        return text[0].upper() + text[1:]

    def _word(self, slot: str) -> str:
        """Return what stands for <slot>."""
        name, _, form = slot.partition(".")
        kind, _, number = name.lower().partition(":")
        if kind == "the":
            return re.sub("^(a piece of|some|an?) ", "the ", self._kept("food", number))
        if number:
            return self._kept(kind, number)
        if kind in ("new", "new0", "kin"):
            return self._new(kind)
        if kind in ("pet", "beast"):
            return f"{self._of(('the', 'a'))} {self._kept(kind, kind)}"
        if kind == "hero":
            return self.hero.first
        if kind == "they":
            return "we" if self.hero.kind == "I" else "they"
        person, form = (self.other, form) if kind == "other" else (self.hero, kind)
        assert person, slot
        if form == "he" and slot[0].isupper():
            is_another, self.before = self.before not in ("", kind), kind
            if is_another and person.kind in ("he", "she") and self.draw.random() < NAMED:
                return person.later
        return PRONOUNS[person.kind].split()[FORMS.index(form)]

    def _of(self, some: Sequence[str]) -> str:
        return some[self.draw.integers(len(some))]

    def _kept(self, kind: str, key: str) -> str:
        """Return a word of a kind: in one tale, the same one for the same key."""
        return self.chosen.setdefault(key, self._of(self.grammar.words[kind]))

    def _new(self, slot: str) -> str:
        """Return somebody else than the hero, whom no pronoun of the hero's can mean; <new0> is named once only."""
        if slot.startswith("kin"):
            noun = self._of(self.grammar.words[f"kin-{self.hero.kind}"])
            named = f"{PRONOUNS[self.hero.kind].split()[2]} {noun}"
            person = Person("she" if noun in self.grammar.words["women"] else "he", named, named)
        else:
            person = self._somebody(
                {"he": "she", "she": "he"}.get(self.hero.kind, "he"), 0.0, self.hero.later
            )
        if not slot.endswith("0"):
            self.other, self.before = person, "other"
        return person.first

    def _somebody(self, kind: str, definite: float, other: str = "") -> Person:
        """Draw somebody who is not called as the `other` is; `definite` is the share of *the* old man, not *an*."""
        if kind == "I":
            return Person(kind, "I", "I")
        words = self.grammar.words
        noun = self._of([word for word in words[kind] if not other.endswith(word)])
        if kind == "they":
            return Person(kind, f"the {noun}", f"the {noun}")
        article = "the" if self.draw.random() < definite else "a"
        kinds = words["kind-young" if noun in words["young"] else "kind"]
        with_kind = f"{self._of(kinds)} {noun}" if self.draw.random() < WITH_KIND else noun
        return Person(kind, f"{article} {with_kind}", f"the {noun}")


def tales(number: int, seed: int) -> list[str]:
    """Return so many tales, each other than the rest."""
    grammar, draw, found = Grammar(), np.random.default_rng(seed), dict[str, None]()
    while len(found) < number:
        tale = [*Tale(grammar, draw).told()]
        if sum(len(sentence.split()) for sentence in tale) >= LEAST:
            found[" ".join(tale)] = None
    return [*found]
