"""How often a head is right: its strongest links beside a treebank's, and beside rules that need no model."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate
from typing import TypedDict

from attn_cli.io.types import Array, NamedTuple, Stage, StageReport
from attn_cli.learn.relations import RELATIONS
from attn_cli.learn.treebank import Sentence
from attn_cli.models.encoder import EncoderStack, lead_of, weights_of
from attn_cli.text.tokenize import PRONOUNS
from attn_cli.vectors import Vectors, lookup

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
        relation, tags = RELATIONS[self.name], sentence.tags
        links, known = relation.links(sentence), relation.known_rows(sentence)
        strongest, by_content = weights.argmax(axis=1).tolist(), content.argmax(axis=1).tolist()
        for query, key in enumerate(strongest):
            if known[query]:
                self.drawn += key != query
                self.drawn_right += key in links.get(query, ())
        for query, keys in links.items():
            self.rows.append((strongest[query] in keys, frozenset(key - query for key in keys)))
            self.content += by_content[query] in keys
            for side, places in ((-1, range(query)), (1, range(len(tags) - 1, query, -1))):
                nearest = {tags[place]: place for place in places}  # the last of each part of speech
                self.nearest.update((tag, side) for tag, place in nearest.items() if place in keys)
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
        n, rows = len(self.rows), self.rows
        precision = self.drawn_right / self.drawn if self.drawn else None
        two = sum(self.candidates) / len(self.candidates) if self.candidates else None
        if not n:
            return Score(self.name, None, None, 0, precision, None, None, None, two)
        distances = Counter(distance for _, right in rows for distance in right)
        best = max(distances, key=lambda distance: (distances[distance], -abs(distance), distance))
        hard = [is_right for is_right, right in rows if best not in right]
        accuracy, nearest = sum(right for right, _ in rows) / n, max(self.nearest.values(), default=0) / n
        shares = (nearest, sum(hard) / len(hard) if hard else None, self.content / n, two)
        leads = clear_leads(self.leads) if self.leads else None
        return Score(self.name, accuracy, distances[best] / n, n, precision, *shares, leads)


def clear_leads(cases: Sequence[tuple[str, float, bool]]) -> dict[str, ClearLead]:
    """Return the smallest ClearLead of each pronoun that has one, from (pronoun, lead, is right).

    With fewer than ENOUGH cases of its own, a pronoun has that of all its forms together.
    """
    found: dict[str, ClearLead] = {}
    for word, forms in PRONOUNS.items():
        for counted in ((word,), forms):
            leads = sorted(((lead, right) for form, lead, right in cases if form in counted), reverse=True)
            sums = enumerate(accumulate(right for _, right in leads), 1)
            clear = [(n, right) for n, right in sums if n >= ENOUGH and right >= MOSTLY * n]
            if clear and word not in found:
                n, right = clear[-1]
                found[word] = ClearLead(lead=leads[n - 1][0], forms=counted, count=n, right=right)
    return found


def score(stack: EncoderStack, table: Vectors, texts: Sequence[Sentence], report: StageReport) -> list[Score]:
    """Score the last layer's heads that bear the name of a relation of these sentences; ties go to the lowest index.

    Passages have one relation, treebanks all others.
    """
    of_passages = any(not sentence.is_parsed for sentence in texts)
    names = [head.name for head in stack.last.heads if head.name in RELATIONS]
    tallies = [Tally(name) for name in names if RELATIONS[name].of_passages == of_passages]
    begun, words = time.monotonic(), 0
    for done, sentence in enumerate(texts, 1):
        weights = head_weights(stack, table, sentence.words)
        content = head_weights(stack, table, sentence.words, by_content=True)
        for tally in tallies:
            tally.add(sentence, weights[tally.name], content[tally.name])
        words += len(sentence.words)
        if done % 50 == 0 or done == len(texts):
            report(Stage("scoring", done / len(texts), words, time.monotonic() - begun))
    return [tally.score() for tally in tallies]


def head_weights(
    stack: EncoderStack, table: Vectors, words: Sequence[str], by_content: bool = False
) -> dict[str, Array]:
    """Return the weights (n, n) of each head of the last layer, or those `by_content`, without terms for distance."""
    X = stack.input(lookup.embed(words, table, "model", 0, stack.spelling).X, stack.layers - 1, None)
    heads = [head._replace(position=None) if by_content else head for head in stack.last.heads]
    return {head.name: weights_of(head, X) for head in heads}
