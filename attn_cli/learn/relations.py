"""What each named head learns, by dependencies as Universal Dependencies name them: `subject` is verb to subject."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from attn_cli.errors import UsageError, did_you_mean, visible
from attn_cli.learn.treebank import PUNCTUATION, Sentence, is_passages
from attn_cli.text.tokenize import PRONOUNS

Links = dict[int, dict[int, float]]  # query: {key: its share of the target, not yet normalized}


class Relation(NamedTuple):
    """One kind of link: its description, and the links of a sentence that count as right."""

    about: str
    links: Callable[[Sentence], Links]
    training_links: Callable[[Sentence], Links] | None = None  # to learn from, where they differ
    distance: int | None = None  # where the relation is just a distance
    of_passages: bool = False  # learned from marked passages, not from treebanks

    def links_to_learn(self, sentence: Sentence) -> Links:
        """Return the links to learn from."""
        return (self.training_links or self.links)(sentence)

    def known_rows(self, sentence: Sentence) -> list[bool]:
        """Return for each word whether it is known to have the relation or not."""
        if self.of_passages:
            marked = {one.pronoun for one in sentence.antecedents or ()}
            return [i in marked or word.lower() not in PRONOUNS for i, word in enumerate(sentence.words)]
        return [sentence.is_parsed] * len(sentence.words)


def _pairs(pairs: list[tuple[int, int]]) -> Links:
    found: Links = {}
    for query, key in pairs:
        found.setdefault(query, {})[key] = 1.0
    return found


def without_subtype(relation: str) -> str:
    """Return nsubj for nsubj:pass."""
    return relation.partition(":")[0]


def _governed(sentence: Sentence, *names: str, whole: bool = False) -> list[tuple[int, int]]:
    """Return (governor, word) of each word with one of these relations (with subtypes, unless `whole`)."""
    known = [name if whole else without_subtype(name) for name in sentence.relations]
    found = enumerate(zip(sentence.governors, known, strict=True))
    return [(above, i) for i, (above, relation) in found if above >= 0 and relation in names]


def _dependents(*names: str, whole: bool = False) -> Callable[[Sentence], Links]:
    return lambda sentence: _pairs(_governed(sentence, *names, whole=whole))


def _prepositions(sentence: Sentence) -> list[tuple[int, int]]:
    """Return (verb, preposition) for each oblique phrase: the case child of the verb's obl."""
    verb = {i: above for above, i in _governed(sentence, "obl")}
    return [(verb[noun], case) for noun, case in _governed(sentence, "case") if noun in verb]


def _apart(sentence: Sentence, distance: int) -> Links:
    n = len(sentence.words)
    return _pairs([(i, i + distance) for i in range(n) if 0 <= i + distance < n])


def _governor(sentence: Sentence) -> Links:
    marks = _marks(sentence)
    return _pairs([(i, above) for i, above in enumerate(sentence.governors) if above >= 0 and i not in marks])


def _related(sentence: Sentence) -> Links:
    marks = _marks(sentence)
    found: Links = {}
    for i, above in enumerate(sentence.governors):
        if above < 0 or i in marks or above in marks:
            continue
        found.setdefault(i, {})[above] = 1.0
        found.setdefault(above, {})[i] = WANTED.get(without_subtype(sentence.relations[i]), 0.5)
    for verb, case in _prepositions(sentence):
        if verb not in marks and case not in marks:
            found.setdefault(verb, {}).setdefault(case, 0.7)
    return found


def _related_names(sentence: Sentence) -> Links:
    """Return what `relations` learns from: a link to a name without a head (`flat`) is shared, most to the nearest."""
    found = _related(sentence)
    parts: dict[int, list[int]] = {}
    for first, part in _governed(sentence, "flat"):
        parts.setdefault(first, []).append(part)
    for query, keys in found.items():
        for first in [key for key in keys if key in parts and query not in parts[key]]:
            name = (first, *parts[first])
            nearest = min(name, key=lambda word: abs(word - query))
            share = keys[first] / (len(name) - 1 + NEARER)
            for word in name:
                if word != query:
                    keys[word] = share * (NEARER if word == nearest else 1)
    return found


def _marks(sentence: Sentence) -> set[int]:
    """Return the places of punctuation marks."""
    return {i for i, tag in enumerate(sentence.tags) if tag == PUNCTUATION}


# Where a word has several links, its target attention is shared in these proportions: who did what comes first.
WANTED = {"nsubj": 2.0, "obj": 1.5, "xcomp": 2.0, "ccomp": 1.5, "obl": 1.0, "iobj": 1.0}
NEARER = 6.0

RELATIONS = {
    "relations": Relation(
        "from a word to its governor and its dependents, and from a verb to its prepositions",
        _related,
        _related_names,
    ),
    "head": Relation("from a word to the word that governs it", _governor),
    "subject": Relation("from a predicate (mostly a verb) to its subject", _dependents("nsubj")),
    "object": Relation("from a verb to its object", _dependents("obj")),
    "oblique": Relation(
        "from a verb to the preposition that opens one of its phrases", lambda s: _pairs(_prepositions(s))
    ),
    "modifier": Relation("from a noun to its adjective", _dependents("amod")),
    "determiner": Relation("from a noun to its determiner", _dependents("det", whole=True)),
    "possessor": Relation("from a noun to its possessor", _dependents("nmod:poss", whole=True)),
    "coordination": Relation(
        "from a joined word to the first of those joined",
        lambda s: _pairs([(i, above) for above, i in _governed(s, "conj")]),
    ),
    "antecedent": Relation(
        "from a pronoun to what it stands for",
        lambda s: {one.pronoun: dict.fromkeys(one.words, 1.0) for one in s.antecedents or () if one.words},
        of_passages=True,
    ),
    "previous": Relation("from a word to the one before", lambda s: _apart(s, -1), distance=-1),
    "next": Relation("from a word to the one after", lambda s: _apart(s, 1), distance=1),
}
MAIN = "relations"
RARE = 0.3
MOST_BALANCE = 100.0
ANTECEDENT = 8.0  # how much the head that passages teach counts: they are few


def balances(heads: Sequence[str], balance: str | float) -> list[float]:
    """Return for each head how much its rows without the relation count beside its rows with it.

    `balance` is a number for all heads, and numbers for single ones: "2,object=1". ValueError where it is neither.
    """
    found: dict[str, float] = {}
    for part in str(balance).split(","):
        name, _, number = part.rpartition("=")
        name, value = name.strip(), float(number)
        if not 0 <= value <= MOST_BALANCE or name in found or (name and name not in RELATIONS):
            raise ValueError(part)
        found[name] = value
    usual = found.get("", 1.0)
    return [found.get(name, min(usual, RARE) if name in (MAIN, "head") else usual) for name in heads]


def importance(heads: Sequence[str]) -> list[float]:
    """Return how much each head counts in the loss; they sum to one. Relations of every word teach most."""
    counts = {name: 0.2 if one.distance else 1.0 for name, one in RELATIONS.items()}
    counts |= {MAIN: 2.0, "head": 2.0, "antecedent": ANTECEDENT}
    others = sum(counts[name] for name in heads if not RELATIONS[name].of_passages) or 1.0
    return [counts[name] / others for name in heads]


def blends(heads: Sequence[str], blend: float) -> list[float]:
    """Return for each head the share of a row's loss that any right word satisfies, as any mention does a pronoun."""
    return [1.0 if RELATIONS[name].of_passages else blend for name in heads]


def heads_to_learn(relations: str | None, texts: Sequence[str], known: Sequence[str] = ()) -> list[str]:
    """Return the heads to learn, the main one first: those that are asked for, or those that these texts can teach.

    A head that a model knows already needs no text; distances are known without one.
    """
    kinds = {*map(is_passages, texts)}
    taught = [n for n, one in RELATIONS.items() if one.of_passages in kinds or one.distance or n in known]
    names = taught if relations is None else [name.strip() for name in relations.split(",")]
    strange = [name for name in names if name not in RELATIONS]
    twice = [name for name in names if names.count(name) > 1]
    if wrong := [*strange, *twice]:
        said = f"--relations cannot hold {visible(wrong[0])!r}" + (" twice." if not strange else ".")
        near = did_you_mean(visible(wrong[0]), RELATIONS) if strange else ""
        raise UsageError(said, f"{near}Choose among {','.join(RELATIONS)}.", "--relations")
    if untaught := [name for name in names if name not in taught]:
        kind = "passages (.jsonl)" if RELATIONS[untaught[0]].of_passages else "a treebank (CoNLL-U)"
        said = f"None of these files has training data for the head {untaught[0]}."
        raise UsageError(said, f"Give {kind}, or leave it out.", "--relations")
    return sorted(names, key=lambda name: (name != MAIN, list(RELATIONS).index(name)))


def check_balance(balance: str, heads: Sequence[str]) -> None:
    """Refuse a --balance that is neither a number nor names heads."""
    try:
        balances(heads, balance)
    except ValueError:
        hint = "Give a number from 0 to 100, and others for single heads: 2,object=1."
        raise UsageError(f"--balance cannot be {visible(balance)}.", hint, "--balance") from None
