"""Sentences grafted from two of a treebank: a relative clause of one, set behind a noun of another.

"The fox slept" and "a dog that chased the cat" give "The fox that chased the cat slept", with every governor known.
Treebanks have few sentences whose subject and verb a whole clause stands between; here there are thousands. (After
Dehouck and Gómez-Rodríguez 2020, "Data augmentation via subtree swapping for dependency parsing of low-resource
languages", who swap phrases of one kind.)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain

import numpy as np

from attn_cli.errors import InputError, UsageError, visible
from attn_cli.io.atomic import creatable, written
from attn_cli.learn.treebank import PUNCTUATION, Sentence, read_treebank
from data.making.make_passages import compressed, refuse_own
from data.making.splice import MANY, PERSONS

SHORTEST, LONGEST = 2, 8  # words of a clause
LONGEST_HOST = 30  # words
MEN = frozenset({"men", "women", "children", "people", "police", "folk", "wives", "thieves"})
WHO, OPENERS = ("who", "whom"), ("who", "whom", "that", "which")
EACH, OPENED = 2, 3  # sentences of a noun; how often a clause with an opener is drawn for one without


def edges(sentence: Sentence) -> tuple[list[int], list[int], list[int]]:
    """Return the first and the last place of each word's subtree, and how many words it has."""
    n = len(sentence.words)
    first, last, size = list(range(n)), list(range(n)), [0] * n
    for i in range(n):
        above, steps = i, 0
        while above >= 0 and steps <= n:
            first[above], last[above], size[above] = (
                min(first[above], i),
                max(last[above], i),
                size[above] + 1,
            )
            above, steps = sentence.governors[above], steps + 1
    return first, last, size


def kind(noun: str) -> tuple[bool, bool]:
    """Tell whether a noun names several, and whether it names persons."""
    noun = noun.lower()
    many = noun in MANY or (noun.endswith("s") and not noun.endswith("ss"))
    return many, noun in MEN or noun in PERSONS or noun.removesuffix("s") in PERSONS


def clauses(sentence: Sentence) -> Iterator[tuple[tuple[bool, bool], Sentence]]:
    """Yield the relative clauses of a sentence, their root governed by -1, each with the kind of noun before it."""
    first, last, size = edges(sentence)
    for root, relation in enumerate(sentence.relations):
        start, end, noun = first[root], last[root] + 1, sentence.governors[root]
        whole = size[root] == end - start and SHORTEST <= end - start <= LONGEST
        if relation != "acl:relcl" or not whole or noun != start - 1 or sentence.tags[noun] != "NOUN":
            continue
        words, tags = sentence.words[start:end], sentence.tags[start:end]
        if PUNCTUATION in tags:
            continue
        opener = words[0].lower()
        many, person = kind(sentence.words[noun])
        governors = tuple(-1 if i == root else sentence.governors[i] - start for i in range(start, end))
        yield (
            (many, opener in WHO or (person and opener != "which")),
            Sentence(words, governors, sentence.relations[start:end], tags),
        )


def hosts(sentence: Sentence) -> Iterator[int]:
    """Yield the places of nouns that end their phrase, are the subject of what comes after, and have no clause yet."""
    _, last, _ = edges(sentence)
    for i, (relation, tag) in enumerate(zip(sentence.relations, sentence.tags, strict=True)):
        governor = sentence.governors[i]
        is_subject = tag == "NOUN" and relation.startswith("nsubj") and last[i] == i < governor
        if is_subject and sentence.tags[i + 1] != PUNCTUATION:
            yield i


def graft(sentence: Sentence, noun: int, clause: Sentence) -> Sentence:
    """Return the sentence with the clause behind its noun."""
    at, n = noun + 1, len(clause.words)
    governors = [above + n if above >= at else above for above in sentence.governors]
    governors[at:at] = [noun if above < 0 else above + at for above in clause.governors]

    def spliced(one: tuple[str, ...], other: tuple[str, ...]) -> tuple[str, ...]:
        return one[:at] + other + one[at:]

    return Sentence(
        spliced(sentence.words, clause.words),
        tuple(governors),
        spliced(sentence.relations, clause.relations),
        spliced(sentence.tags, clause.tags),
    )


def grafted(treebanks: Sequence[str], seed: int) -> Iterator[Sentence]:
    """Yield EACH sentences for each noun of the treebanks that can take a clause, in their order."""
    read = list(chain.from_iterable(map(read_treebank, treebanks)))
    found: dict[tuple[bool, bool], list[Sentence]] = defaultdict(list)
    for of_noun, clause in chain.from_iterable(map(clauses, read)):
        found[of_noun] += [clause] * (OPENED if clause.words[0] in OPENERS else 1)
    draw = np.random.default_rng(seed)
    for sentence in read:
        if len(sentence.words) > LONGEST_HOST:
            continue
        for noun in hosts(sentence):
            some = found[kind(sentence.words[noun])]
            for i in draw.integers(len(some), size=EACH).tolist() if some else ():
                yield graft(sentence, noun, some[i])


def grafts_file(treebanks: Sequence[str], output: str, seed: int, report: Callable[[int], None]) -> int:
    """Write the grafted sentences as CoNLL-U (.conllu, also .gz or .xz), all or nothing; return how many."""
    why = "No relative clause fits a noun.", "Give a treebank of thousands of sentences."
    return write_treebank(grafted(treebanks, seed), treebanks, output, why, report)


def write_treebank(
    sentences: Iterable[Sentence], treebanks: Sequence[str], output: str, why_none: tuple[str, str],
    report: Callable[[int], None],
) -> int:  # fmt: skip
    """Write sentences that were made of treebanks as CoNLL-U, all or nothing; return how many: none is an error."""
    refuse_own(treebanks, output)
    if not output.lower().endswith((".conllu", ".conllu.gz", ".conllu.xz")):
        said = f"Treebanks are written as .conllu, .conllu.gz or .conllu.xz, not as {visible(output)}."
        raise UsageError(said, option="--output")
    creatable(output)
    made = 0
    with written(output) as stream, compressed(stream, output) as packed:
        for made, sentence in enumerate(sentences, 1):
            packed.write(conllu(sentence).encode())
            report(made)
        if not made:
            raise InputError(*why_none)
    return made


def conllu(sentence: Sentence) -> str:
    """Return the rows of a sentence, and the empty line after them."""
    columns = zip(sentence.words, sentence.governors, sentence.relations, sentence.tags, strict=True)
    rows = (
        f"{i}\t{word}\t_\t{tag}\t_\t_\t{above + 1}\t{relation}\t_\t_"
        for i, (word, above, relation, tag) in enumerate(columns, 1)
    )
    return "\n".join(rows) + "\n\n"
