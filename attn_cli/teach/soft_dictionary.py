"""A dictionary looked up by the key as written, by the nearest key, and softly, by attention; the example of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from attn_cli.core import attention
from attn_cli.core.scores import cosine, dot, score_named
from attn_cli.errors import listed
from attn_cli.inputs.record import Pairs, dictionary, numbers_of
from attn_cli.io.types import Array, NamedTuple, OnPart, dataclass, replace
from attn_cli.pipeline.embed import attend_phrases
from attn_cli.pipeline.record import record
from attn_cli.settings import Settings
from attn_cli.teach.examples import Acts
from attn_cli.trace import Trace

TEMPERATURES = (4.0, 2.0, 1.0, 0.5, 0.25, 0.1, 0.0)  # at 0, the limit, the largest score gets all
EQUAL_LENGTHS = 0.95  # the shortest key vector over the longest, from which on lengths count as equal


class Share(NamedTuple):
    """What one value gets: the sum of the weights of all its keys."""

    value: str
    keys: tuple[str, ...]
    weight: float


class Rung(NamedTuple):
    """The same query at another temperature; the answer is the weighted value where values are numbers."""

    temperature: float
    weights: Array  # (n_k,)
    answer: float | None


def _before_notes(record: dict[str, object], added: dict[str, object]) -> dict[str, object]:
    notes = record.pop("notes")
    return record | added | {"notes": notes}


@dataclass(frozen=True, eq=False)
class Lookup:
    """One query looked up three ways. `values` and `cosines` have one entry for each key of the trace."""

    trace: Trace
    query: str
    values: tuple[str, ...]
    numbers: tuple[float, ...] | None  # where all values are numbers
    exact: str | None  # the value of the key that equals the query
    cosines: tuple[float | None, ...]  # None where one side has no vector
    nearest: int | None  # the index of the key with the largest cosine
    shares: tuple[Share, ...]  # strongest first
    answer: float | None  # the weighted value, where values are numbers and not all are masked
    ladder: tuple[Rung, ...]  # from the highest temperature to the lowest

    @property
    def weights(self) -> list[float]:
        """The weight of each of the trace's keys."""
        weights: list[float] = self.trace.weights[0].tolist()
        return weights

    @property
    def nearness(self) -> list[tuple[int, float | None]]:
        """Each key's index and cosine, nearest first; keys without a vector come last."""
        found = list(enumerate(self.cosines))
        return sorted(found, key=lambda one: np.inf if one[1] is None else -one[1])

    def to_dict(self, steps: bool = False) -> dict[str, object]:
        """Return the JSON of the trace, and what the dictionary adds."""
        plain: Callable[[str], object] = str if self.numbers is None else float
        near, j, cosines = None, self.nearest, list(self.cosines)
        if j is not None:
            near = {"key": self.trace.key_tokens[j], "value": plain(self.values[j]), "cosine": cosines[j]}
        exact, first = None if self.exact is None else plain(self.exact), self.shares[0]
        found: dict[str, object] = {
            "values": [*map(plain, self.values)],
            "exact": exact,
            "cosines": cosines,
            "nearest": near,
        }
        found |= {"answer": first.value if self.numbers is None and first.weight else self.answer}
        found |= {
            "shares": [
                one._asdict() | {"value": plain(one.value), "keys": list(one.keys)} for one in self.shares
            ],
            "temperatures": [rung._asdict() | {"weights": rung.weights.tolist()} for rung in self.ladder],
        }
        return _before_notes(self.trace.to_dict(steps), found)


def look_up(query: str, pairs: Pairs, settings: Settings, report: OnPart | None = None) -> Lookup:
    """Look a query up in a dictionary: exactly, by the nearest key, and softly."""
    keys, has_numbers = tuple(pairs.values), numbers_of(pairs) is not None

    def values_of(kept: Sequence[str]) -> Array:
        """Return V: numbers as one column, words as a one-hot column for each distinct word."""
        texts = [pairs.values[key] for key in kept]
        if has_numbers:
            return np.array(texts, dtype=np.float64)[:, np.newaxis]
        place = {text: column for column, text in enumerate(dict.fromkeys(texts))}
        return np.eye(len(place))[[place[text] for text in texts]]

    trace = record(attend_phrases(query, keys, values_of, settings, report))
    cosines, mixed = _cosines(trace), trace.output
    known = [j for j, cosine in enumerate(cosines) if cosine is not None]
    values = tuple(pairs.values[key] for key in trace.key_tokens)
    numbers = tuple(map(float, values)) if has_numbers else None
    # Of several, the one that equals the query, or the first.
    nearest = max(known, key=lambda j: (cosines[j], trace.key_tokens[j] == query, -j), default=None)
    answer = float(mixed[0, 0]) if has_numbers and mixed is not None and trace.weights.any() else None
    soft = (_shares(trace, values, has_numbers), answer, _ladder(trace, has_numbers))
    found = Lookup(trace, query, values, numbers, pairs.values.get(query), cosines, nearest, *soft)
    return replace(found, trace=replace(trace, notes=(*pairs.notes, *trace.notes, *_notes(found, keys))))


def _cosines(trace: Trace) -> tuple[float | None, ...]:
    assert trace.x_query is not None and trace.x_key is not None
    found, is_known = cosine(trace.x_query, trace.x_key)[0].tolist(), bool(trace.x_query.any())
    return tuple(c if is_known and x.any() else None for c, x in zip(found, trace.x_key, strict=True))


def _shares(trace: Trace, values: Sequence[str], numeric: bool) -> tuple[Share, ...]:
    """Return what each distinct value gets, strongest first."""
    places: dict[str | float, list[int]] = {}
    for j, value in enumerate(values):
        places.setdefault(float(value) if numeric else value, []).append(j)
    weights, shares = trace.weights[0].tolist(), list[Share]()
    for js in places.values():
        keys = tuple(trace.key_tokens[j] for j in js)
        shares.append(Share(values[js[0]], keys, min(1.0, sum(weights[j] for j in js))))
    return tuple(sorted(shares, key=lambda share: -share.weight))


def _ladder(trace: Trace, numeric: bool) -> tuple[Rung, ...]:
    """Return the weights at other temperatures and at the one in force, highest first."""
    heads = trace.heads if trace.shown.name == "mean" else (trace.shown,)
    scaled = np.array([head.scores[0] * trace.scale for head in heads if head.scores is not None])
    scaled, v = scaled if trace.mask is None else np.where(trace.mask[0], scaled, -np.inf), heads[0].v
    largest = scaled.max(axis=1, keepdims=True)
    largest = np.where(np.isfinite(largest), largest, 0.0)
    at_zero = np.where(scaled >= largest - 1e-12 * abs(largest), 0.0, -np.inf)  # the largest share everything
    rungs = []
    for T in sorted({*TEMPERATURES, trace.temperature}, reverse=True):
        with np.errstate(over="ignore"):  # a score so far below the largest gets nothing
            weights = attention.softmax((scaled - largest) / T if T else at_zero).mean(axis=0)
        mixed = float(weights @ v[:, 0]) if numeric and v is not None and weights.any() else None
        rungs.append(Rung(T, weights, mixed))
    return tuple(rungs)


def _notes(found: Lookup, keys: Sequence[str]) -> list[str]:
    """Return notes on keys without a vector, and on scores that disagree with the cosines."""
    trace, notes = found.trace, []
    assert trace.x_query is not None and trace.x_key is not None
    if lost := [key for key in keys if key not in {*trace.key_tokens}]:
        exact = "Such a key is found only by its exact spelling."
        notes.append(f"Skipped, because it has no vector: {listed(lost)}. {exact}")
    if not trace.x_query.any():
        equal = "every key scores 0 and gets an equal share, which says nothing."
        return [*notes, f"{listed([found.query])!r} has no vector: {equal}"]
    if blank := [key for key, x in zip(trace.key_tokens, trace.x_key, strict=True) if not x.any()]:
        notes.append(f"Without a vector: {listed(blank)}. Such a key is found as written, never by meaning.")
    with np.errstate(over="ignore"):
        lengths = np.linalg.norm(trace.x_key, axis=1)
    is_uneven = min(lengths[lengths > 0], default=0) < EQUAL_LENGTHS * lengths.max() < np.inf
    if is_uneven and score_named(trace.score).of is dot and trace.projection.source == "identity":
        long, short = int(lengths.argmax()), int(np.where(lengths > 0, lengths, np.inf).argmin())
        sides = ", ".join(f"{listed([trace.key_tokens[j]])} {lengths[j]:.3g}" for j in (long, short))
        is_mean = len(trace.key_tokens[short].split()) > 1
        mean = "; a mean of words is mostly shorter than a word" if is_mean else ""
        said = f"Vectors differ in length ({sides}{mean}), and a longer one gets larger scores."
        notes.append(f"{said} --score cosine counts direction alone.")
    strongest, near = int(trace.shown.links.keys[0, 0]), found.nearest
    if near is not None and strongest >= 0 and found.weights[strongest] > found.weights[near]:
        heavy, alike = (listed([trace.key_tokens[j]]) for j in (strongest, near))
        why = "a score counts the lengths of vectors, too"
        if trace.mask is not None and not trace.mask[0, near]:
            why = "the mask hides the nearest"
        elif trace.projection.source != "identity" or len(trace.head_names) > 1:
            why = "the projection changes what is alike"
        notes.append(f"The largest weight is that of {heavy}, the largest cosine that of {alike}: {why}.")
    return notes


class DictionaryExample(NamedTuple):
    """The three lookups: a key as written, the nearest key, and a share of every value."""

    exact: Lookup
    near: Lookup
    soft: Lookup
    claim: str  # what the text expects, and what came out

    @property
    def trace(self) -> Trace:
        """The trace of the last lookup, with the claim among its notes."""
        return replace(self.soft.trace, kind="example", notes=(*self.soft.trace.notes, self.claim))

    def to_dict(self, steps: bool = False) -> dict[str, object]:
        """Return the JSON: the trace of the last lookup, and all three records as `acts`."""
        acts = [act.to_dict(steps) for act in (self.exact, self.near, self.soft)]
        return _before_notes(self.trace.to_dict(steps), {"acts": acts})


def dictionary_example(acts: Acts, settings: Settings) -> DictionaryExample:
    """Return the worked example; its last keys have no values, so each is its own value."""
    pairs = dictionary(acts.pairs.items())
    itself = dictionary((key, key) for key in acts.keys)
    # -q names a row of the last lookup only.
    exact, near = (look_up(query, pairs, replace(settings, query=None)) for query in acts.queries)
    soft = look_up(acts.query, itself, settings)
    return DictionaryExample(exact, near, soft, _claim(soft, acts.least))


def _claim(found: Lookup, least: str) -> str:
    """Return a sentence on whether the key gets the least that the text expects to."""
    trace, weights = found.trace, dict(zip(found.trace.key_tokens, found.weights, strict=True))
    if trace.mask is not None:
        weights = {key: weights[key] for key, is_seen in zip(weights, trace.mask[0], strict=True) if is_seen}
    expected = f"The text expects {least!r} to get the least"
    if least not in weights:
        why = "the mask hides it" if least in trace.key_tokens else "it has no vector, and was skipped"
        return f"{expected}; here {why}."
    last = min(weights, key=lambda key: weights[key])
    if weights[least] <= weights[last]:
        return f"{expected}, and it does: {weights[least]:.3f}."
    said = f"{expected}. With these vectors {last!r} does, with {weights[last]:.3f};"
    return f"{said} {least!r} gets {weights[least]:.3f}."
