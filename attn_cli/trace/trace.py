"""The record of one computation, and its JSON: schema attn/1, plain lists and numbers, null where masked."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from math import inf

from attn_cli.io.array_types import Array
from attn_cli.io.classes import NamedTuple
from attn_cli.trace.computation import Computation, NextWords
from attn_cli.trace.head import QK_NORM, ROTATED, SCORES, WEIGHTS, Head
from attn_cli.trace.row import entropy

LARGE = 1_000_000


class Trace(Computation):
    """All of one computation. Renderers read it; `to_dict` is the JSON."""

    def to_dict(
        self, steps: bool = False, walked: bool = False, keys: Collection[str] | None = None
    ) -> dict[str, object]:
        """Return the trace as the JSON of schema attn/1: plain lists and numbers, null where masked.

        With `steps` it holds every step's matrices; with `walked`, or where rows were asked for, why each row in focus
        looks where it looks. With `keys`, only these are made, and of heads what they choose of each: one that --steps
        adds needs no `steps` then, one that no trace has is null.
        """
        listed = list(self.listed)
        held = [self.row_in_arrays(i) for i in listed] if self.whole else []
        steps = (steps or (keys is not None and asks_for_steps(keys))) and self.is_scored
        of_heads = keys.get("heads") if isinstance(keys, dict) else None
        shown = Shown(self, listed, held, steps, walked or self.asked, of_heads)
        if keys is None:
            return {key: KEYS[key](shown) for key in usual_keys(steps)}
        return {key: KEYS[key](shown) if key in KEYS else None for key in keys}

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the package hands over what draws it, as a trace knows no renderer."""
        from attn_cli import notebook_html  # only notebooks ask for it

        return notebook_html(self)


class Shown(NamedTuple):
    """A trace, the queries that are listed, where their numbers are held, and what is asked for."""

    trace: Trace
    listed: list[int]
    held: list[int]
    steps: bool  # every step
    walked: bool  # why the rows in focus look where they look
    of_heads: Collection[str] | None = None  # the keys of a head that are chosen

    def rows(self, matrix: Array | None) -> list[object] | None:
        """Return the listed rows of a matrix, as lists."""
        return _lists(matrix if matrix is None else matrix[self.listed])

    def some(self, values: Sequence[object] | None) -> list[object] | None:
        """Return the listed queries' values."""
        return None if values is None else [values[i] for i in self.listed]

    def weights(self, weights: Array | None) -> list[object] | None:
        """Return the listed rows of weights, as lists; None where links stand in for them."""
        return None if weights is None or not self.trace.whole else weights[self.held].tolist()

    def placed(self, name: str) -> list[object] | None:
        """Return a part of what X is the sum of, where positions were added."""
        return _lists(self.trace.placed and getattr(self.trace.placed, name))


def _learned(shown: Shown) -> object:
    learned = shown.trace.learned
    return learned and learned._asdict() | {"trained_on": list(learned.trained_on)}


def _knock_out(shown: Shown) -> object:
    settings = shown.trace.settings
    return {"parts": [*settings.knock_out], "with": settings.knock_out_with} if settings.knock_out else None


def _mask(shown: Shown) -> object:
    trace = shown.trace
    return None if trace.mask is None or trace.condensed else trace.mask[shown.listed].tolist()


def _summaries(shown: Shown) -> object:
    trace, (keys, weights) = shown.trace, shown.trace.shown.links
    found = []
    for i in shown.listed:
        j = int(keys[i, 0])
        is_link = j >= 0
        key, weight = (trace.key_tokens[j], float(weights[i, 0])) if is_link else (None, None)
        index = {"query_index": i, "key_index": j if is_link else None}
        found.append({"query": trace.query_tokens[i], "key": key, "weight": weight, **index})
    return found


def _because(shown: Shown) -> object:
    if not (shown.walked and shown.trace.is_scored):
        return None
    return [one._asdict() for i in shown.trace.focus for one in shown.trace.because(i)]


def _diagnostics(shown: Shown) -> object:
    trace, listed = shown.trace, shown.listed
    if trace.condensed:
        return None
    diagnoses = zip(listed, trace.diagnoses(listed), strict=True)
    return [{"query": trace.query_tokens[i], **diagnosis._asdict()} for i, diagnosis in diagnoses]


def _output_words(shown: Shown) -> object:
    named = shown.trace.output_words
    if named is None:
        return None
    return [[{"word": w, "cosine": cosine} for w, cosine in named[i]] for i in shown.listed]


def _words(found: NextWords | None) -> list[dict[str, object]] | None:
    return found and [word._asdict() for word in found.words]


def _next_words_at(shown: Shown) -> object:
    found = shown.trace.next_words_at
    return found and [
        {"place": one.place, "token": one.token, "words": _words(one), "came": one.actual} for one in found
    ]


def _entropy(shown: Shown) -> object:
    trace = shown.trace
    return None if trace.condensed else [_bits(shown, head) for head in trace.shown_heads]


def _bits(shown: Shown, head: Head) -> list[float | None]:
    mask = shown.trace.mask_of(head)
    bits = entropy(head.weights[shown.held]).tolist()
    sees = [mask is None or bool(mask[row].any()) for row in shown.held]
    return [bit if is_seen else None for bit, is_seen in zip(bits, sees, strict=True)]


def _links(shown: Shown, head: Head | None = None) -> object:
    place = {i: n for n, i in enumerate(shown.listed)}
    return None if shown.trace.whole else [[place[i], j, w] for i, j, w in shown.trace.links(head)]


def _long_view(shown: Shown) -> object:
    view = shown.trace.long_view
    if view is None:
        return None
    allowed = view.allowed[shown.listed].astype(int).tolist()
    bits = view.entropy[shown.listed].tolist()
    return {
        "entropy": [entropy if n else None for entropy, n in zip(bits, allowed, strict=True)],
        "allowed": allowed,
        "map": {
            "of": "mean weight of a block's allowed links",
            "query_edges": list(view.query_edges),
            "key_edges": list(view.key_edges),
            "values": [[None if mean != mean else mean for mean in row] for row in view.means.tolist()],
            "allowed": view.counts.astype(int).tolist(),
        },
    }


def _heads(shown: Shown) -> object:
    several = shown.trace.settings.head in ("all", "mean") or shown.trace.has_layers
    return [_head(shown, head) for head in shown.trace.shown_heads] if shown.steps or several else []


def _head(shown: Shown, head: Head) -> dict[str, object]:
    keys = shown.of_heads or (OF_HEAD if shown.steps else PLAIN)
    return {key: OF_HEAD[key](shown, head) for key in keys if shown.of_heads or key != "links"}


def usual_keys(steps: bool) -> list[str]:
    """Return the keys of a record for which none are named, with those of --steps or without."""
    return [key for key in KEYS if key not in NAMED and (steps or key not in OF_STEPS)]


def asks_for_steps(keys: Collection[str]) -> bool:
    """Return whether chosen keys ask for what --steps adds to heads, as heads.q does."""
    of_heads = keys.get("heads") if isinstance(keys, dict) else None
    return not {*(of_heads or ())}.issubset((*PLAIN, "links"))


def _listed(values: Sequence[int] | None) -> list[int] | None:
    return None if values is None else list(values)


def _lists(matrix: Array | None) -> list[object] | None:
    return None if matrix is None else matrix.tolist()


def _own_mask(shown: Shown, head: Head) -> object:
    mask = head.mask if shown.trace.whole else None
    return mask and mask.rows(shown.listed).tolist()


def _sink(shown: Shown) -> object:
    taken = shown.trace.sink_shares(shown.trace.shown)
    return None if taken is None or shown.trace.condensed else taken[shown.listed].tolist()


def _matrix(name: str) -> Callable[[Shown, Head], object]:
    """Return what makes a head's weights, queries, keys or values."""
    if name in ("q", "q_turned"):
        return lambda shown, head: shown.rows(getattr(head, name))
    return lambda shown, head: _lists(getattr(head, name))


def _scores(name: str) -> Callable[[Shown, Head], object]:
    """Return what makes a head's scores of one kind."""

    def scores(shown: Shown, head: Head) -> object:
        value = getattr(head, name)
        if value is None or not shown.trace.whole:
            return None
        return [[None if x == -inf else x for x in row] for row in value[shown.held].tolist()]

    return scores


# How each key of a head is made, in their order: the first few, and those of --steps.
OF_HEAD: dict[str, Callable[[Shown, Head], object]] = {
    "name": lambda shown, head: head.name,
    "layer": lambda shown, head: shown.trace.projection.layer if head.layer is None else head.layer,
    "mask": _own_mask,
    "weights": lambda shown, head: shown.weights(head.weights),
    "norms": lambda shown, head: shown.weights(head.norms),
    "output": lambda shown, head: shown.rows(head.output),
}
PLAIN = tuple(OF_HEAD)
OF_HEAD |= {name: _matrix(name) for name in (*WEIGHTS, *QK_NORM, "q", "k", "v", *ROTATED)}
OF_HEAD |= {name: _scores(name) for name in SCORES}
OF_HEAD["sink_score"] = lambda shown, head: head.sink
OF_HEAD["links"] = _links  # where it is named

# How each key of a record is made, in their order.
KEYS: dict[str, Callable[[Shown], object]] = {
    "schema": lambda shown: "attn/1",
    "kind": lambda shown: shown.trace.kind,
    "query_tokens": lambda shown: shown.some(shown.trace.query_tokens),
    "key_tokens": lambda shown: list(shown.trace.key_tokens),
    "query_ids": lambda shown: shown.some(shown.trace.query_ids),
    "key_ids": lambda shown: _listed(shown.trace.key_ids),
    "query_input_ids": lambda shown: shown.some(shown.trace.query_input_ids),
    "key_input_ids": lambda shown: _listed(shown.trace.key_input_ids),
    "query_segments": lambda shown: shown.some(shown.trace.query_segments),
    "key_segments": lambda shown: _listed(shown.trace.key_segments),
    "query_rows": lambda shown: shown.listed if shown.trace.asked else None,
    "unknown": lambda shown: list(shown.trace.unknown),
    "replaced": lambda shown: dict(shown.trace.replaced),
    "dropped": lambda shown: list(shown.trace.dropped),
    "embedding": lambda shown: shown.trace.embedding._asdict(),
    "projection": lambda shown: shown.trace.projection._asdict(),
    "learned": _learned,
    "positions": lambda shown: shown.trace.positions,
    "round": lambda shown: shown.trace.settings.round,
    "score": lambda shown: shown.trace.score if shown.trace.is_scored else None,
    "scale": lambda shown: shown.trace.scale if shown.trace.is_scored else None,
    "temperature": lambda shown: shown.trace.temperature if shown.trace.is_scored else None,
    "softcap": lambda shown: shown.trace.softcap,
    "knock_out": _knock_out,
    "mask": _mask,
    "mask_name": lambda shown: shown.trace.mask_name,
    "padding": lambda shown: list(shown.trace.pad_keys) or None,
    "mask_convention": lambda shown: "true = may attend",
    "head": lambda shown: shown.trace.shown.name,
    "weights": lambda shown: shown.weights(shown.trace.shown.weights),
    "measure": lambda shown: shown.trace.settings.measure,
    "norms": lambda shown: shown.weights(shown.trace.shown.norms),
    "sink": _sink,
    "output": lambda shown: shown.rows(shown.trace.output),
    "layer_output": lambda shown: shown.rows(shown.trace.layer_output),
    "output_words": _output_words,
    "next_words": lambda shown: _words(shown.trace.next_words),
    "next_words_at": _next_words_at,
    "summary": _summaries,
    "because": _because,
    "diagnostics": _diagnostics,
    "entropy": _entropy,
    "links": _links,
    "condensed": lambda shown: not shown.trace.whole,
    "long_view": _long_view,
    "x_query": lambda shown: shown.rows(shown.trace.x_query),
    "x_key": lambda shown: _lists(shown.trace.x_key),
    "words_query": lambda shown: shown.placed("words_query"),
    "words_key": lambda shown: shown.placed("words_key"),
    "encodings_query": lambda shown: shown.placed("encodings_query"),
    "encodings_key": lambda shown: shown.placed("encodings_key"),
    "W_o": lambda shown: _lists(shown.trace.W_o),
    "b_o": lambda shown: _lists(shown.trace.b_o),
    "heads": _heads,
    "notes": lambda shown: list(shown.trace.notes),
}
NAMED = ("entropy",)  # which a record has where they are named
OF_WEIGHTS = ("layer_output",)  # which a pretrained model's trace has where its weights are kept
OF_STEPS = ("x_query", "x_key", "words_query", "words_key", "encodings_query", "encodings_key", "W_o", "b_o")
