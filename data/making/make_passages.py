"""Passages made from running text without a teacher: where a noun is named again, *it* is put in the last one's place.

After WikiCREM (Kocijan et al. 2019), which masks the names that a passage repeats. Here a thing is named again, "the
ship ... the ship sank", and the passage says "the ship ... it sank": what *it* stands for is known.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import chain
from typing import IO, Any, NamedTuple

from attn_cli.errors import InputError, UsageError, visible
from attn_cli.io.atomic import creatable, written
from attn_cli.io.files import regular
from data.making.corpus import lines

SHORTEST_NOUN, LONGEST_LINE = 3, 80  # letters, words
FEWEST_BETWEEN = 2  # words between the two
MOST_OF_A_NOUN = 400  # passages
DETERMINERS = frozenset(  # not "that", which is more often something else
    "the a an this his her its their my your our each every any some no another one".split()  # noqa: SIM905
)


def words_of(text: str) -> frozenset[str]:
    """Return the words of a text, each once.

    >>> sorted(words_of("a an a"))
    ['a', 'an']
    """
    return frozenset(text.split())


# After a noun these begin something else: "the ship sank" may be a compound's beginning, "the ship was" is none.
FOLLOWERS = words_of(
    "was is had has would could will can may might must did does be been being not n't 's , . ; ) -- — and but or to "
    "that than which as when if because so until before after while for in on at with from by into onto over under "
    "through without within during again away back down up out off"
)
# After 's these say that it is a verb: "the ship 's been lost".
VERB_AFTER = words_of(
    "been not a an the this that no never also now very so too just only going being got become"
)
# For these *it* does not stand: people, several things, and what names no thing alone.
NOT_IT = words_of(
    "man woman boy girl child king queen prince princess emperor lord lady knight gentleman master servant father "
    "mother son daughter brother sister husband wife president captain general officer soldier judge priest bishop "
    "pope doctor teacher student author poet artist farmer speaker user person patient baby director victim writer "
    "singer actor driver player leader member owner reader stranger prisoner visitor sailor merchant governor "
    "minister mayor lawyer nurse guest host hero friend enemy neighbor neighbour uncle aunt cousin "
    "men women children people police cattle folk gentlemen feet teeth mice geese oxen sheep deer dozen hundred "
    "thousand pair couple majority rest one other latter former same first second last next most whole time day "
    "morning evening night year month week"
)


class Repeat(NamedTuple):
    """A passage in which *it*, or *its*, stands for a noun: its tokens, the pronoun's place, and the noun's spans."""

    tokens: tuple[str, ...]
    pronoun: int
    antecedents: tuple[tuple[int, int], ...]
    noun: str


class Passages(NamedTuple):
    """What was written: the file, its passages, and how many nouns they are about."""

    file: str
    passages: int
    nouns: int


def repeat(tokens: Sequence[str]) -> Repeat | None:
    """Return the line with *it* for the last noun that it repeats, or None where it repeats none.

    Another thing must be named before the pronoun, so that there is something to choose.

    >>> found = repeat("The dog saw a ship before the ship sank in the fog , and the ship was lost".split())
    >>> " ".join(found.tokens), found.pronoun, found.antecedents
    ('The dog saw a ship before the ship sank in the fog , and it was lost', 14, ((3, 5), (6, 8)))
    """
    lower = [token.lower() for token in tokens]
    for place in range(len(tokens) - 2, 0, -1):
        noun, after = tokens[place], lower[place + 1]
        if lower[place - 1] != "the" or after not in FOLLOWERS or not _is_thing(noun):
            continue
        spans = tuple(_span(lower, i) for i in range(place - 1) if tokens[i] == noun)
        of_spans = {i for span in spans for i in range(*span)}
        others = (lower[i] in DETERMINERS and i not in of_spans for i in range(place - 2))
        if not spans or place - 1 - spans[-1][1] < FEWEST_BETWEEN or not any(others):
            continue
        is_owner = after == "'s"
        if is_owner and lower[place + 2 : place + 3] and lower[place + 2] in VERB_AFTER:
            continue
        pronoun = "its" if is_owner else "it"
        if tokens[place - 1] == "The":
            pronoun = pronoun.capitalize()
        changed = (*tokens[: place - 1], pronoun, *tokens[place + 1 + is_owner :])
        return Repeat(changed, place - 1, spans, noun)
    return None


def _is_thing(noun: str) -> bool:
    """Tell whether a token looks like one thing: small letters, no -s, none of NOT_IT."""
    is_plural = noun.endswith("s") and not noun.endswith("ss")
    return (
        len(noun) >= SHORTEST_NOUN
        and noun.isalpha()
        and noun.islower()
        and not is_plural
        and noun not in NOT_IT
    )


def _span(lower: Sequence[str], place: int) -> tuple[int, int]:
    """Return the span of a noun with the determiner before it, at most two words away."""
    for start in range(place - 1, max(-1, place - 4), -1):
        if lower[start] in DETERMINERS or lower[start] == "that":
            return start, place + 1
        if not lower[start].isalpha():
            break
    return place, place + 1


def repeats(texts: Sequence[str], report: Callable[[int], None]) -> Iterator[Repeat]:
    """Yield what these texts repeat, of no noun more than MOST_OF_A_NOUN; report how many lines are read."""
    count: Counter[str] = Counter()
    for read, tokens in enumerate(chain.from_iterable(map(lines, texts)), 1):
        report(read)
        found = repeat(tokens) if len(tokens) <= LONGEST_LINE else None
        if found and count[found.noun] < MOST_OF_A_NOUN:
            count[found.noun] += 1
            yield found


def passages_file(texts: Sequence[str], output: str, report: Callable[[int], None]) -> Passages:
    """Write the passages that running text gives as JSON Lines (.jsonl, .jsonl.gz, .jsonl.xz), all or nothing."""
    records = (
        ({"tokens": one.tokens, "pronoun": one.pronoun, "antecedents": one.antecedents}, one.noun)
        for one in repeats(texts, report)
    )
    said = "No line names a thing again in such a way that it can be replaced by 'it'."
    return write_passages(texts, output, records, said)


def write_passages(
    texts: Sequence[str], output: str, records: Iterable[tuple[dict[str, object], str]], none: str
) -> Passages:
    """Write records, each with the noun that it is about; `none` is the error's message where there are none."""
    refuse_own(texts, output)
    if not output.lower().endswith((".jsonl", ".jsonl.gz", ".jsonl.xz")):
        raise UsageError(
            f"Passages are written as .jsonl, .jsonl.gz or .jsonl.xz, not as {visible(output)}.",
            option="--output",
        )
    creatable(output)
    nouns: set[str] = set()
    made = 0
    with written(output) as stream, compressed(stream, output) as packed:
        for record, noun in records:
            packed.write(json.dumps(record, ensure_ascii=False).encode() + b"\n")
            nouns.add(noun)
            made += 1
        if not made:
            raise InputError(none, "Give much running text, a sentence on each line.")
    return Passages(output, made, len(nouns))


def refuse_own(texts: Sequence[str], output: str) -> None:
    """Refuse texts that are no files, and an output that is one of them."""
    for path in texts:
        regular(path)
        if os.path.exists(output) and os.path.samefile(path, output):
            raise UsageError(
                f"{visible(output)} is a text that is read: it would be replaced.",
                "Write to another file.",
                "--output",
            )


def compressed(stream: IO[bytes], output: str) -> AbstractContextManager[Any]:
    """Return a stream that compresses as the file's name says."""
    if output.lower().endswith(".gz"):
        import gzip

        return gzip.GzipFile(filename="", mode="wb", fileobj=stream, mtime=0)
    if output.lower().endswith(".xz"):
        import lzma

        return lzma.open(stream, "wb")
    return nullcontext(stream)
