"""Lines of running text that tell something in plain words, as a story does: for a small model to write like them.

Of short lines whose words are all common, those are kept whose words come more often beside *he* or *she* than in the
others: the mean of log(share there / share in all) over the words of a line. (Moore and Lewis 2010, "Intelligent
selection of language model training data", of single words; what small models learn from plain text: Eldan and Li 2023,
"TinyStories".)
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from math import log

from attn_cli.errors import refuse_input
from attn_cli.io.atomic import creatable, written
from attn_cli.io.files import packed_lines
from attn_cli.text.tokenize import tokenize
from data.making.corpus import HELD_BACK, STRAIGHT
from data.making.make_passages import compressed, refuse_own

TELLING = frozenset({"he", "she", "him", "her", "his"})
TELLING_SCORE = 0.3  # what one of these counts for itself; beside each other they always are
MARKS = frozenset('.,!?;:"')
SHORTEST, LONGEST = 5, 28  # tokens of a line
COMMONEST = 6000  # words of the first text, with which lines may be made
LEAST = -0.05  # the mean of a line that is kept is above
ADDED = 5  # to each count, for a few times tell little

Line = tuple[str, tuple[str, ...]]


def lines(path: str) -> Iterator[Line]:
    """Yield each line of a text, and its tokens in small letters; lines that training holds back are left out."""
    for number, line in enumerate(packed_lines(path), 1):
        if number % HELD_BACK == 0:
            continue
        text = line.decode("utf-8", "replace").strip().translate(STRAIGHT)
        yield text, tuple(token.lower() for token in tokenize(text, keep_punctuation=True).tokens)


def is_plain(line: Line, common: frozenset[str]) -> bool:
    """Tell whether a line is a whole sentence of a few common words, with its quotes in pairs."""
    text, tokens = line
    return (
        SHORTEST <= len(tokens) <= LONGEST
        and text.lstrip('"')[:1].isupper()
        and text[-1] in '.!?"'
        and text.count('"') % 2 == 0
        and common.issuperset(tokens)
    )


def simple(texts: Sequence[str], report: Callable[[int], None]) -> Iterator[str]:
    """Yield the lines of these texts that are plain and telling, in order."""
    counts = Counter(
        token for _, tokens in lines(texts[0]) for token in tokens if token.strip("'")[:1].isalpha()
    )
    common = MARKS.union(heapq.nlargest(COMMONEST, counts, counts.__getitem__))
    plain, everywhere, there = list[tuple[str, list[str]]](), Counter[str](), Counter[str]()
    for number, line in enumerate(chain.from_iterable(map(lines, texts)), 1):
        report(number)
        if is_plain(line, common):
            words = [token for token in line[1] if token not in MARKS]
            plain.append((line[0], words))
            everywhere.update(words)
            if TELLING.intersection(words):
                there.update(words)
    size, of = (sum(one.values()) + ADDED * len(everywhere) for one in (there, everywhere))
    score = {word: log((there[word] + ADDED) / size * of / (n + ADDED)) for word, n in everywhere.items()}
    score |= dict.fromkeys(TELLING, TELLING_SCORE)
    yield from (text for text, words in plain if sum(map(score.__getitem__, words)) > LEAST * len(words))


def simple_file(texts: Sequence[str], output: str, report: Callable[[int], None]) -> int:
    """Write these lines (.txt, also .gz or .xz), all or nothing, and return how many."""
    refuse_own(texts, output)
    creatable(output)
    found = [*simple(texts, report)]
    refuse_input(not found, "No line of these texts tells something in plain words.", "Give running text.")
    with written(output) as stream, compressed(stream, output) as packed:
        packed.write("\n".join((*found, "")).encode())
    return len(found)
