"""Stories made of lines that do not know each other: for a small model to learn whom *he* and *she* can be.

Where lines are shuffled, none goes on where another ends. Here a plain line about what was is followed by others
whose *he*, *she*, *they* and *I* are somebody, and *it* something: a man, a woman, people, the teller or a thing
named before them, in the line or in the story. Of a number of such lines, drawn at random, one of those that are most
like the story comes next, by the cosine of sums of word vectors, each of which counts more the rarer the word is. The
more abstract lines are left out. Tales of a grammar (tales.py) can be mixed in.

Likeness to a few words tells concrete from abstract ones: Turney et al. 2011, "Literal and Metaphorical Sense
Identification through Concrete and Abstract Context". What small models learn from plain stories: Eldan and Li 2023,
"TinyStories".
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from itertools import chain, pairwise
from operator import or_
from typing import NamedTuple

import numpy as np

from attn_cli.errors import refuse_input
from attn_cli.io.atomic import creatable, written
from attn_cli.io.files import packed_lines
from attn_cli.text.tokenize import FORMS, tokenize
from attn_cli.vectors import VectorTable
from attn_cli.vectors.lookup import open_table
from data.making.corpus import HELD_BACK, STRAIGHT, UNKNOWN, WordRows
from data.making.make_passages import compressed, refuse_own, words_of
from data.making.tales import tales

HE, SHE, THEY, I, IT = 1, 2, 4, 8, 16  # noqa: E741
PEOPLE = {
    HE: "man boy father brother son husband king prince uncle grandfather gentleman lord priest soldier captain sailor "
    "farmer doctor fellow lad hunter fisherman judge officer knight merchant master stranger shepherd monk nephew "
    "guard driver painter thief teacher giant emperor servant guest neighbor neighbour friend poet",
    SHE: "woman girl mother sister daughter wife queen princess aunt grandmother lady nurse maid widow bride niece "
    "housekeeper witch mistress",
    THEY: "men women boys girls people children parents brothers sisters friends soldiers servants sons daughters "
    "ladies gentlemen guests neighbors neighbours sailors strangers couple family crowd guards workers villagers",
}
KIND_OF_NOUN = {word: kind for kind, some in PEOPLE.items() for word in some.split()}
PRONOUNS = {
    HE: FORMS["he"],
    SHE: FORMS["she"],
    THEY: FORMS["they"],
    I: ["i", "me", "my", "mine", "myself"],
    IT: FORMS["it"],
}
KIND_OF_PRONOUN = {form: kind for kind, forms in PRONOUNS.items() for form in forms}
DEFINITE = words_of("the this that these those")
DETERMINERS = DEFINITE | words_of("a an my his her their another no some any every one two three many")
BEGINS_NOTHING = words_of(
    "and but so then or nor yet this that these those such it they here there thus therefore"
)
# Of the present, or said by somebody to somebody.
NOT_TOLD = words_of(
    "i'm i'd i've i'll we'll you'll he'll she'll we're you're we us our ours ourselves you your yours yourself ye "
    "thou thy thee is are am 's isn't aren't it's he's she's that's there's what's who's they're has hasn't does "
    "doesn't do don't will won't shall can can't cannot may must let let's 'll n't says other others ones this "
    "these those such need want wish would hoping tomorrow book booked ticket tickets reservation calendar "
    "appointment yes please sorry thanks ok okay hi hello movie bus buses reserve reserved rental taxi cab "
    "confirm event hotel restaurant flight"
)
PAST = words_of(
    "was were had did could went came saw took gave got made found felt knew thought told heard kept left stood sat "
    "ran began brought held lay lost met put rose sent spoke fell grew drew led threw wrote ate drank slept woke rode "
    "shook caught bought broke built hung swung sang paid won read turned"
)
NO_PAST = words_of(
    "need bed red hundred indeed seed feed deed speed shed weed reed sacred wicked naked blessed"
)
AFTER_HER = words_of(". , and or to with in at on for from as by into that when if again so")
BEFORE_HAVE = words_of("would could should might to not")
CONCRETE = (
    "door table hand tree river dog house window horse bread fire walked ran sat opened looked "
    "garden water boat road"
)
ABSTRACT = (
    "idea reason fact matter sense cause nature opinion purpose principle subject thought supposed considered "
    "concerned regard degree manner question respect"
)
CONCRETE_SHARE = 0.55  # of the lines
MARKS = frozenset(".,")
COMMONEST = 6000  # words, with which lines may be made
SHORTEST, LONGEST = 5, 16  # tokens of a line
MOST = 62  # of a story
FEWEST = 3  # lines of a story
DRAWN, BEST = 250, 6  # lines that may come next, and how many of them are the most like
MOST_USED = 15  # times that a line comes after others, in all stories
MOST_ALIKE = 0.85  # cosine: what is more alike says the same
RARE = 5.0  # log of one over its share, from which on a word is said once in a story
RARELY = 0.002  # share of the words, below which one tells how concrete a line is
NAME = 0.5  # a first word is one that elsewhere has a capital in more than half as many places as it has none

Report = Callable[[int], None]
Tokens = tuple[str, ...]


def lines(path: str) -> Iterator[tuple[str, Tokens]]:
    """Yield each line of a text, and its tokens in small letters; lines that training holds back are left out."""
    for number, line in enumerate(packed_lines(path), 1):
        if number % HELD_BACK:
            text = line.decode("utf-8", "replace").strip().translate(STRAIGHT)
            yield text, tuple(token.lower() for token in tokenize(text, keep_punctuation=True).tokens)


class Line(NamedTuple):
    """A line, and who is in it."""

    text: str
    words: Tokens
    needs: int  # the kinds of people that its pronouns are, and who are not named before them
    gives: int  # the kinds of people who are known after it
    people: frozenset[str]  # the nouns
    points: frozenset[str]  # those that stand for somebody who is known: the man, but not a man or his wife


def read_line(text: str, words: Tokens) -> Line:
    """Find who is in a line."""
    needs = gives = 0
    points, people = set[str](), set[str]()
    for i, word in enumerate(words):
        if word in DETERMINERS and KIND_OF_NOUN.keys().isdisjoint(words[i + 1 : i + 4]):
            gives |= IT  # from here on: a thing, most likely
        if word in KIND_OF_NOUN:
            before = next((one for one in reversed(words[max(0, i - 3) : i]) if one in DETERMINERS), "")
            if before in DEFINITE and word not in people:
                points.add(word)
            people.add(word)
            gives |= KIND_OF_NOUN[word]
        needs |= KIND_OF_PRONOUN.get(word, 0) & ~gives
    return Line(text, words, needs, needs | gives, frozenset(people), frozenset(points))


def needs_another(words: Tokens) -> bool:
    """Tell whether a line is about one person and another of the same kind, who is not named: he looked at him."""
    others = {one for one, after in pairwise(words) if one == "him" or (one == "her" and after in AFTER_HER)}
    return any(
        subject in words and other in others and all(KIND_OF_NOUN.get(word) != kind for word in words)
        for subject, other, kind in (("he", "him", HE), ("she", "her", SHE))
    )


def is_told(words: Tokens) -> bool:
    """Tell whether a line is about the past, and nobody is spoken to."""
    return (
        SHORTEST <= len(words) <= LONGEST
        and words[-1] == "."
        and not NOT_TOLD.intersection(words)
        and not needs_another(words)
        and any(word in PAST or (word.endswith("ed") and word not in NO_PAST) for word in words)
        and all(words[i - 1] in BEFORE_HAVE for i, word in enumerate(words) if word == "have")
    )


def told_lines(texts: Sequence[str], report: Report) -> list[Line]:
    """Return the lines of these texts that are told in plain words without names, each once."""
    counts, capitals, small = Counter[str](), Counter[str](), Counter[str]()
    kept = list[tuple[str, Tokens]]()
    for number, (text, tokens) in enumerate(chain.from_iterable(map(lines, texts)), 1):
        report(number)
        counts.update(token for token in tokens if token[:1].isalpha())
        if '"' in text:
            continue
        within = [word for word in text.split()[1:] if word != "I"]
        has_name = False
        for word in within:
            is_capital = word[:1].isupper()
            has_name |= is_capital
            (capitals if is_capital else small)[word.strip(",.").lower()] += 1
        if not has_name and is_told(tokens):
            kept.append((text, tokens))
    common = MARKS.union(heapq.nlargest(COMMONEST, counts, counts.__getitem__))
    return [
        read_line(text, tokens)
        for tokens, text in {tokens: text for text, tokens in kept}.items()
        if text[0].isupper()
        and text[-1] == "."
        and common.issuperset(tokens)
        and (tokens[0] == "i" or capitals[tokens[0]] <= NAME * small[tokens[0]])
    ]


def concrete(some: Sequence[Line], table: VectorTable) -> list[Line]:
    """Return those lines whose rarer words are more like what can be seen than like what can be thought."""
    rows = WordRows(table)
    unit = table.matrix / np.maximum(np.linalg.norm(table.matrix, axis=1, keepdims=True), 1e-9)
    seen, thought = (unit[rows.of(words.split())].mean(axis=0) for words in (CONCRETE, ABSTRACT))
    score = unit @ (seen - thought)
    counts = Counter(word for line in some for word in line.words)
    most = counts.total() * RARELY
    scores = []
    for line in some:
        of = [row for word in line.words if counts[word] < most and (row := rows.row(word)) != UNKNOWN]
        scores.append(float(score[of].mean()) if of else -1.0)
    least = np.quantile(scores, 1 - CONCRETE_SHARE) if scores else 0.0
    return [line for line, score in zip(some, scores, strict=True) if score >= least]


class Stories:
    """Lines, what each is about, and which of them can come after whom."""

    def __init__(self, some: Sequence[Line], table: VectorTable) -> None:
        rows, counts = WordRows(table), Counter(word for line in some for word in line.words)
        rarity = {word: np.log(counts.total() / n) for word, n in counts.items()}
        self.lines = some
        self.used = Counter[int]()
        self.rare = [
            frozenset(word for word in line.words if rarity[word] > RARE and word not in KIND_OF_NOUN)
            for line in some
        ]
        self.V = np.zeros((len(some), table.matrix.shape[1]), np.float32)
        for n, line in enumerate(some):
            for word in sorted({*line.words} - MARKS):
                if (row := rows.row(word)) != UNKNOWN:
                    self.V[n] += table.matrix[row] * rarity[word]
        self.V /= np.maximum(np.linalg.norm(self.V, axis=1, keepdims=True), 1e-9)
        needs = np.array([line.needs for line in some], int)
        self.next = [np.flatnonzero((needs & ~IT > 0) & (needs & ~known == 0)) for known in range(2 * IT)]
        self.firsts = [
            n
            for n, line in enumerate(some)
            if line.gives & (HE | SHE | I)
            and not line.needs & (THEY | IT)
            and line.words[0] not in BEGINS_NOTHING
        ]

    def story(self, first: int, draw: np.random.Generator) -> list[int]:
        """Return the numbers of the lines of a story that begins with this one."""
        story, length = [first], len(self.lines[first].words)
        while following := self._following(story, draw):
            chosen = following[draw.integers(len(following))]
            length += len(self.lines[chosen].words)
            if length > MOST:
                break
            self.used[chosen] += 1
            story.append(chosen)
        return story

    def _following(self, story: Sequence[int], draw: np.random.Generator) -> list[int]:
        """Return the lines, of some drawn, that are most like the story and know nobody whom it does not know."""
        so_far = [self.lines[n] for n in story]
        people = frozenset[str]().union(*(line.people for line in so_far))
        rare = frozenset[str]().union(*(self.rare[n] for n in story))
        following = self.next[reduce(or_, (line.gives for line in so_far))]
        if not len(following):
            return []
        drawn = following[draw.integers(len(following), size=DRAWN)]
        alike = self.V[drawn] @ (self.V[story].sum(axis=0) + self.V[story[-1]])
        nearest = (self.V[drawn] @ self.V[story].T).max(axis=1)
        return [
            n
            for i, n in ((i, int(drawn[i])) for i in np.argsort(-alike))
            if self.used[n] < MOST_USED
            and nearest[i] < MOST_ALIKE
            and self.lines[n].points <= people
            and not rare & self.rare[n]
            and len(self.lines[n].people - people) <= 1
        ][:BEST]


def stories(texts: Sequence[str], times: int, told: int, seed: int, report: Report) -> list[str]:
    """Return stories of the lines of these texts, at most so many that begin with each line that can, and tales.

    They are in random order; of the tales, there are `told`.
    """
    table = open_table("word2vec")
    assert isinstance(table, VectorTable)
    made, draw = Stories(concrete(told_lines(texts, report), table), table), np.random.default_rng(seed)
    found = [story for first in made.firsts * times if len(story := made.story(first, draw)) >= FEWEST]
    refuse_input(not found, "No story can be made of these texts.", "Give running text that tells of people.")
    some = [*(" ".join(made.lines[n].text for n in story) for story in found), *tales(told, seed)]
    return [some[i] for i in draw.permutation(len(some))]


def stories_file(texts: Sequence[str], output: str, times: int, told: int, seed: int, report: Report) -> int:
    """Write stories and tales (.txt, also .gz or .xz), one a line, all or nothing, and return how many."""
    refuse_own(texts, output)
    creatable(output)
    found = stories(texts, times, told, seed, report)
    with written(output) as stream, compressed(stream, output) as packed:
        packed.write("\n".join((*found, "")).encode())
    return len(found)
