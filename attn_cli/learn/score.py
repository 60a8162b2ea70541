"""How often a head is right: its strongest links beside a treebank's, and beside rules that need no model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Sequence
from itertools import accumulate
from typing import NamedTuple, TypedDict

from attn_cli.io.array_types import Array
from attn_cli.io.progress import Stage, StageReport
from attn_cli.learn.relations import RELATIONS
from attn_cli.learn.treebank import Sentence
from attn_cli.models.encoder import EncoderStack, lead_of, weights_of
from attn_cli.text.tokenize import PRONOUNS
from attn_cli.vectors.lookup import embed
from attn_cli.vectors.open_vectors import Vectors

MOSTLY, ENOUGH = 0.8, 5  # the share of right links, and the cases that it takes to tell


class Score(NamedTuple):
    """The score of one head; a share of nothing is None."""

    name: str
    accuracy: float | None  # of the words that have its relation, the share whose strongest link is right
    baseline: float | None  # the accuracy of the best fixed distance
    count: int  # type: ignore[assignment]  # a tuple's own count() is not needed; the name is the JSON's
    precision: float | None  # of the strongest links to another word, the share that are right
    nearest: float | None  # that of the best rule "the nearest word of this part of speech, on this side"
    hard: float | None  # the accuracy over the words for which the best fixed distance is wrong
    content: float | None  # the accuracy where the head's position term is left out
    candidates: float | None  # where two names compete, the share in which the right one gets more weight
    leads: dict[str, ClearLead] | None = None  # of each pronoun, from which lead on the head is mostly right


class ClearLead(TypedDict):
    """From which lead of the strongest link over the next one the head is right in MOSTLY of the cases."""

    lead: float
    forms: tuple[str, ...]  # whose cases were counted: the pronoun, or with few of its own all its forms
    count: int  # cases with such a lead
    right: int


class Tally:
    """What is counted for one head, sentence by sentence."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.rows: list[tuple[bool, frozenset[int]]] = []  # is the strongest link right; the right distances
        self.drawn = self.drawn_right = self.content = 0
        self.nearest = Counter[tuple[str, int]]()  # by part of speech and side
        self.candidates: list[bool] = []
        self.leads: list[tuple[str, float, bool]] = []  # pronoun, lead of its strongest link, is it right

    def add(self, sentence: Sentence, weights: Array, content: Array) -> None:
        """Count a sentence: its weights (n, n), and those without the position term."""
        relation = RELATIONS[self.name]
        links, known = relation.links(sentence), relation.known_rows(sentence)
        strongest, by_content = weights.argmax(axis=1).tolist(), content.argmax(axis=1).tolist()
        for query, key in enumerate(strongest):
            if known[query]:
                self.drawn += key != query
                self.drawn_right += key in links.get(query, ())
        for query, keys in links.items():
            self.rows.append((strongest[query] in keys, frozenset(key - query for key in keys)))
            self.content += by_content[query] in keys
            self.nearest.update(_nearest_right(sentence.tags, query, keys))
            if relation.of_passages and strongest[query] < query:  # what is named later is no antecedent
                lead = lead_of(weights[query])
                self.leads.append((sentence.words[query].lower(), lead, strongest[query] in keys))
        for one in sentence.antecedents or ():
            if len(one.candidates) == 2 and relation.of_passages:
                sums = [float(weights[one.pronoun, start:end].sum()) for start, end in one.candidates]
                is_right = [not {*range(*span)}.isdisjoint(one.words) for span in one.candidates]
                if is_right[0] != is_right[1]:
                    self.candidates.append(sums[is_right.index(True)] > sums[is_right.index(False)])

    def score(self) -> Score:
        """Return the shares."""
        n = len(self.rows)
        precision = self.drawn_right / self.drawn if self.drawn else None
        two = sum(self.candidates) / len(self.candidates) if self.candidates else None
        if not n:
            return Score(self.name, None, None, 0, precision, None, None, None, two)
        distances = Counter(distance for _, right in self.rows for distance in right)
        best = max(distances, key=lambda distance: (distances[distance], -abs(distance), distance))
        hard = [is_right for is_right, right in self.rows if best not in right]
        return Score(
            self.name,
            sum(is_right for is_right, _ in self.rows) / n,
            distances[best] / n,
            n,
            precision,
            max(self.nearest.values(), default=0) / n,
            sum(hard) / len(hard) if hard else None,
            self.content / n,
            two,
            clear_leads(self.leads) if self.leads else None,
        )


def clear_leads(cases: Sequence[tuple[str, float, bool]]) -> dict[str, ClearLead]:
    """Return the ClearLead of each pronoun that has one, from (pronoun, lead, is right).

    With fewer than ENOUGH cases of its own, a pronoun has that of all its forms together.
    """
    found = {}
    for word, forms in PRONOUNS.items():
        clear = _clear(cases, (word,)) or _clear(cases, forms)
        if clear is not None:
            found[word] = clear
    return found


def _clear(cases: Sequence[tuple[str, float, bool]], forms: tuple[str, ...]) -> ClearLead | None:
    """Return the smallest such lead, over the cases of these forms."""
    leads = sorted(((lead, right) for word, lead, right in cases if word in forms), reverse=True)
    sums = enumerate(accumulate(right for _, right in leads), 1)
    clear = [(n, right) for n, right in sums if n >= ENOUGH and right >= MOSTLY * n]
    if not clear:
        return None
    n, right = clear[-1]
    return ClearLead(lead=leads[n - 1][0], forms=forms, count=n, right=right)


def _nearest_right(tags: Sequence[str], query: int, keys: Container[int]) -> list[tuple[str, int]]:
    """Return the parts of speech, and sides, whose nearest word to the query is a right one."""
    found = []
    for side, places in ((-1, range(query - 1, -1, -1)), (1, range(query + 1, len(tags)))):
        seen = set()
        for place in places:
            if tags[place] not in seen:
                seen.add(tags[place])
                if place in keys:
                    found.append((tags[place], side))
    return found


def score(
    stack: EncoderStack, table: Vectors, sentences: Sequence[Sentence], report: StageReport
) -> list[Score]:
    """Score the last layer's heads that bear the name of a relation of these sentences; ties go to the lowest index.

    Passages have one relation, treebanks all others.
    """
    import time

    of_passages = any(not sentence.is_parsed for sentence in sentences)
    names = [head.name for head in stack.last.heads if head.name in RELATIONS]
    tallies = [Tally(name) for name in names if RELATIONS[name].of_passages == of_passages]
    begun, words = time.monotonic(), 0
    for done, sentence in enumerate(sentences, 1):
        weights = head_weights(stack, table, sentence.words)
        content = head_weights(stack, table, sentence.words, by_content=True)
        for tally in tallies:
            tally.add(sentence, weights[tally.name], content[tally.name])
        words += len(sentence.words)
        if done % 50 == 0 or done == len(sentences):
            report(Stage("scoring", done / len(sentences), words, time.monotonic() - begun))
    return [tally.score() for tally in tallies]


def head_weights(
    stack: EncoderStack, table: Vectors, words: Sequence[str], by_content: bool = False
) -> dict[str, Array]:
    """Return the weights (n, n) of each of the last layer's heads, as the commands compute them.

    `by_content` leaves out what these heads add for the distance.
    """
    X = stack.input(embed(words, table, "model", 0, stack.spelling).X, stack.layers - 1, None)
    heads = [head._replace(position=None) if by_content else head for head in stack.last.heads]
    return {head.name: weights_of(head, X) for head in heads}
