"""What a language model scores: the perplexity of texts, and what each of its heads does."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from attn_cli.io.types import Array, NamedTuple, Stage, StageReport
from attn_cli.learn.treebank import Sentence
from attn_cli.models.encoder import EncoderStack, causal, matrix_of, weights_of, word_number
from attn_cli.vectors import Vectors, as_text, lookup

ROWS = 1000  # words that are scored at once
Words = Sequence[str]


class Perplexity(NamedTuple):
    """The perplexity per word of a text, unknown words among them, and how many words there are."""

    perplexity: float
    words: int
    unknown: int


def perplexity(
    stack: EncoderStack, table: Vectors, texts: Sequence[Words], report: StageReport
) -> Perplexity:
    """Return the perplexity of texts, each read by itself; a word without a vector counts as the one unknown word."""
    assert stack.words is not None
    vectors, first = matrix_of(table).astype(np.float32), stack.words.first[np.newaxis].astype(np.float64)
    rows = {word: n for n, word in enumerate(word for block in table.word_blocks() for word in block)}
    begun, loss, count, unknown = time.monotonic(), 0.0, 0, 0
    found, wanted = list[Array](), list[int]()  # what predicts each word, (rows, width), and its number
    for n, words in enumerate(texts, 1):
        if words:
            X = lookup.embed(words, table, "model", 0, stack.spelling).X
            found += [first, stack.last_rows(X, causal(len(words)))[:-1]]
            wanted += (word_number(word, rows) for word in words)
        if wanted and (len(wanted) >= ROWS or n == len(texts)):
            scores = stack.words.scores(np.concatenate(found), vectors).astype(np.float64)
            largest = scores.max(axis=1)
            total = largest + np.log(np.exp(scores - largest[:, np.newaxis]).sum(axis=1))
            loss += float((total - scores[np.arange(len(wanted)), wanted]).sum())
            count, unknown = count + len(wanted), unknown + wanted.count(len(vectors))
            report(Stage("perplexity", count / max(1, sum(map(len, texts))), count, time.monotonic() - begun))
            found, wanted = [], []
    return Perplexity(math.exp(loss / count) if count else math.nan, count, unknown)


NOUNS, VERBS = ("NOUN", "PROPN"), ("VERB",)
FEWEST, MOST = 10, 30  # random words that are said twice; were they always as many, a distance would do
REPEATS, COMMONEST = 50, 2000  # how many such texts, words to draw from
RANDOM = "random words said twice"
LEAST = 0.5  # of the way from the best fixed distance to always: from here on a head has the name
Tagged = tuple[Words, Words]  # a text's words and their tags
Right = dict[int, int]  # the place where each place should look


class Pattern(NamedTuple):
    """What a head may be named for: where it looks, in words."""

    about: str
    is_distance: bool = False  # whether the best fixed distance is the pattern itself


# A head that fits several is named for the first of those that it fits best.
PATTERNS: dict[str, Pattern] = {
    "previous": Pattern("from a word to the one before", True),
    "two-back": Pattern("from a word to the one two places before", True),
    "itself": Pattern("from a word to itself", True),
    "first": Pattern("from a word to the first one"),
    "same": Pattern("from a word to where it stood before"),
    "induction": Pattern("from a word to the one that followed it before"),
    "article": Pattern("from a noun to its article, or to my, his or their in its place"),
    "noun": Pattern("from a word to the last noun before it"),
    "verb": Pattern("from a word to the last verb before it"),
}
OWNERS = ("my", "your", "his", "her", "its", "our", "their")
BETWEEN = ("NOUN", "PROPN", "ADJ", "NUM", "ADV")  # what stands between an article and its noun


def right_places(words: Words, tags: Words) -> dict[str, Right]:
    """Return for each pattern the place where each place of a text should look, by its words and their tags."""
    found: dict[str, Right] = {name: {} for name in PATTERNS}
    earlier: dict[str, int] = {}  # the nearest place of each word so far
    noun = verb = opens = -1
    for i, (word, tag) in enumerate(zip(map(str.lower, words), tags, strict=True)):
        same = earlier.get(word, -1)
        places = {"previous": i - 1, "two-back": i - 2, "itself": i, "first": 0 if i else -1, "same": same}
        places |= {"induction": same + 1 if 0 <= same < i - 1 else -1, "noun": noun, "verb": verb}
        places["article"] = opens if tag == "NOUN" else -1  # the word that opens its phrase
        for name, place in places.items():
            if place >= 0:
                found[name][i] = place
        earlier[word] = i
        noun, verb = i if tag in NOUNS else noun, i if tag in VERBS else verb
        if tag == "DET" or word in OWNERS:
            opens = i
        elif tag not in BETWEEN:
            opens = -1
    return found


ON_REPEATED = ("same", "induction")


class Measure(NamedTuple):
    """How often a head's strongest link is where a pattern says, and how often the best fixed distance is."""

    accuracy: float
    baseline: float
    count: int  # type: ignore[assignment]  # a tuple's own count() is not needed; the name is the JSON's
    on: str


class HeadMeasures(NamedTuple):
    """All measures of one head, by pattern, and the pattern that it is named for, if any."""

    layer: int
    number: int
    measures: Mapping[str, Measure]

    @property
    def gains(self) -> dict[str, float]:
        """How far each pattern takes the head from the best fixed distance to always."""
        baselines = {n: 0.0 if PATTERNS[n].is_distance else one.baseline for n, one in self.measures.items()}
        return {n: (self.measures[n].accuracy - base) / max(1e-9, 1 - base) for n, base in baselines.items()}

    @property
    def gain(self) -> float:
        """How far its pattern takes the head from the best fixed distance to always."""
        return max(self.gains.values(), default=0.0)

    @property
    def pattern(self) -> str | None:
        """What the head does most: the pattern that takes it furthest."""
        return next((name for name, gain in self.gains.items() if gain == self.gain >= LEAST), None)


def measure_heads(
    stack: EncoderStack, table: Vectors, treebank: Sequence[Sentence], on: str, seed: int, report: StageReport
) -> list[HeadMeasures]:
    """Measure every head of a language model, on a treebank and, for what repeats, on random words said twice."""
    texts: list[Tagged] = [(sentence.words, sentence.tags) for sentence in treebank]
    plain = [name for name in PATTERNS if name not in ON_REPEATED]
    found = _counted(stack, table, texts, plain, on, report)
    common = [as_text(word) for block in table.word_blocks() for word in block[:COMMONEST]][:COMMONEST]
    letters, draw = [word for word in common if word.isalpha()], np.random.default_rng([seed, 3])
    twice: list[Tagged] = []
    for _ in range(REPEATS):
        said = int(draw.integers(FEWEST, MOST, endpoint=True))
        words = [letters[i] for i in draw.choice(len(letters), said, replace=False).tolist()]
        twice.append(((*words, *words), ("X",) * (2 * said)))
    repeated = _counted(stack, table, twice, [*ON_REPEATED], RANDOM, report)
    return [HeadMeasures(*at, found[at] | repeated[at]) for at in sorted(found)]


def _counted(
    stack: EncoderStack, table: Vectors, texts: list[Tagged], names: list[str], on: str, report: StageReport
) -> dict[tuple[int, int], dict[str, Measure]]:
    """Return the measures of each head (layer, number) over some texts."""
    right, count = Counter[tuple[int, int, str]](), Counter[str]()
    distances: dict[str, Counter[int]] = {name: Counter() for name in names}
    begun, seen = time.monotonic(), 0
    for done, (words, tags) in enumerate(texts, 1):
        strongest = [weights.argmax(axis=2) for weights in every_layer(stack, table, words)]
        right_ones = right_places(words, tags)
        for name in names:
            wanted = right_ones[name]
            queries, keys = list(wanted), np.array([*wanted.values()], np.intp)
            count[name] += len(queries)
            distances[name].update((np.array(queries, np.intp) - keys).tolist())
            for layer, places in enumerate(strongest):
                for head, hits in enumerate((places[:, queries] == keys).sum(axis=1).tolist()):
                    right[layer, head, name] += hits
        seen += len(words)
        if done % 50 == 0 or done == len(texts):
            report(Stage("measuring heads", done / len(texts), seen, time.monotonic() - begun))
    best = {name: max(distances[name].values(), default=0) for name in names if count[name]}
    found: dict[tuple[int, int], dict[str, Measure]] = {}
    for layer in range(stack.layers):
        for head in range(len(stack.attention(layer).heads)):
            hits = {name: right[layer, head, name] / count[name] for name in best}
            measured = {n: Measure(hits[n], most / count[n], count[n], on) for n, most in best.items()}
            found[layer, head] = measured
    return found


def every_layer(stack: EncoderStack, table: Vectors, words: Words) -> Iterator[Array]:
    """Yield the weights (h, n, n) of each layer's heads under the causal mask, the lowest layer first."""
    mask = causal(len(words))
    X = stack.input(lookup.embed(words, table, "model", 0, stack.spelling).X, 0, mask)
    for layer in range(stack.layers):
        yield np.stack([weights_of(head, X, mask) for head in stack.attention(layer).heads])
        if layer < stack.layers - 1:
            X = stack.encoders[layer].of(X, mask)


def names_of(measured: Sequence[HeadMeasures]) -> dict[tuple[int, int], str]:
    """Return the name of each head: its pattern's, numbered from the clearest of all layers on; else its own number."""
    names = {(one.layer, one.number): str(one.number) for one in measured}
    so_far = Counter[str]()
    for one in sorted(measured, key=lambda one: -one.gain):
        if one.pattern is not None:
            so_far[one.pattern] += 1
            n = so_far[one.pattern]
            names[one.layer, one.number] = one.pattern if n == 1 else f"{one.pattern}-{n}"
    return names
