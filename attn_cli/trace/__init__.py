"""The record of one computation.

And its JSON: schema attn/1, plain lists and numbers, null where masked.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from math import inf
from typing import Any

from attn_cli.io.types import Array, Bools, NamedTuple
from attn_cli.trace.computation import (
    Computation,
    Lean as Lean,
    LongView as LongView,
    NextWord as NextWord,
    NextWords as NextWords,
    Placed as Placed,
)
from attn_cli.trace.head import (
    MATRICES as MATRICES,
    QK_NORM as QK_NORM,
    ROTATED as ROTATED,
    SCORES,
    WEIGHTS,
    Embedding as Embedding,
    Head as Head,
    Learned as Learned,
    Projected as Projected,
)
from attn_cli.trace.row import Because as Because, Diagnosis as Diagnosis, Row as Row, entropy as entropy

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

    def weights(self, weights: Array | None) -> list[list[float]] | None:
        """Return the listed rows of weights, as lists; None where links stand in for them."""
        return None if weights is None or not self.trace.whole else weights[self.held].tolist()

    def rows(self, values: Array | Bools | None) -> list[object] | None:
        """Return the listed rows of what a trace has that holds them all."""
        return None if self.trace.condensed else _plain(values, self.listed)


def _plain(value: Any, at: list[int] | None = None) -> Any:
    """Return an array or a tuple as a list, or the entries `at` some places, and a named tuple as a dictionary."""
    if hasattr(value, "tolist"):
        return (value if at is None else value[at]).tolist()
    if hasattr(value, "_asdict"):
        return {name: _plain(part) for name, part in value._asdict().items()}
    if isinstance(value, tuple):
        return [*value] if at is None else [value[i] for i in at]
    return value


def _field(name: str) -> Callable[[Shown], object]:
    """Return what makes a key of the trace's field of that name: of the listed queries where it has one for each."""
    has_rows = name.startswith("query_") or name in OF_QUERIES

    def made(shown: Shown) -> object:
        owner = shown.trace.placed if name in OF_PLACES else shown.trace
        is_there = owner is not None and (name not in OF_SCORES or shown.trace.is_scored)
        return _plain(getattr(owner, name), shown.listed if has_rows else None) if is_there else None

    return made


def _knock_out(shown: Shown) -> object:
    settings = shown.trace.settings
    return {"parts": [*settings.knock_out], "with": settings.knock_out_with} if settings.knock_out else None


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
    is_told = shown.walked and shown.trace.is_scored
    return [_plain(one) for i in shown.trace.focus for one in shown.trace.because(i)] if is_told else None


def _diagnostics(shown: Shown) -> object:
    trace, listed = shown.trace, shown.listed
    if trace.condensed:
        return None
    diagnoses = zip(listed, trace.diagnoses(listed), strict=True)
    return [{"query": trace.query_tokens[i], **diagnosis._asdict()} for i, diagnosis in diagnoses]


def _words(found: NextWords | None) -> list[dict[str, object]] | None:
    return found and [word._asdict() for word in found.words]


def _entropy(shown: Shown) -> object:
    return None if shown.trace.condensed else [_bits(shown, head) for head in shown.trace.shown_heads]


def _bits(shown: Shown, head: Head) -> list[float | None]:
    mask, bits = shown.trace.mask_of(head), entropy(head.weights[shown.listed]).tolist()
    return [
        bit if mask is None or mask[row].any() else None for bit, row in zip(bits, shown.listed, strict=True)
    ]


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
    is_asked = shown.steps or shown.trace.settings.head in ("all", "mean") or shown.trace.has_layers
    keys = shown.of_heads or [key for key in (OF_HEAD if shown.steps else PLAIN) if key != "links"]
    return [{key: OF_HEAD[key](shown, head) for key in keys} for head in shown.trace.shown_heads if is_asked]


def usual_keys(steps: bool) -> list[str]:
    """Return the keys of a record for which none are named, with those of --steps or without."""
    return [key for key in KEYS if key not in NAMED and (steps or key not in OF_STEPS)]


def asks_for_steps(keys: Collection[str]) -> bool:
    """Return whether chosen keys ask for what --steps adds to heads, as heads.q does."""
    of_heads = keys.get("heads") if isinstance(keys, dict) else None
    return not {*(of_heads or ())}.issubset((*PLAIN, "links"))


def _own_mask(shown: Shown, head: Head) -> object:
    return head.mask.rows(shown.listed).tolist() if head.mask and shown.trace.whole else None


def _matrix(name: str) -> Callable[[Shown, Head], object]:
    """Return what makes a head's weights, queries, keys or values."""
    return lambda shown, head: _plain(
        getattr(head, name), shown.listed if name in ("q", "q_turned") else None
    )


def _scores(name: str) -> Callable[[Shown, Head], object]:
    """Return what makes a head's scores of one kind."""

    def scores(shown: Shown, head: Head) -> object:
        rows = shown.weights(getattr(head, name))
        return rows and [[None if x == -inf else x for x in row] for row in rows]

    return scores


# How each key of a head is made, in their order: the first few, and those of --steps.
OF_HEAD: dict[str, Callable[[Shown, Head], object]] = {
    "name": lambda shown, head: head.name,
    "layer": lambda shown, head: shown.trace.projection.layer if head.layer is None else head.layer,
    "mask": _own_mask,
    "weights": lambda shown, head: shown.weights(head.weights),
    "norms": lambda shown, head: shown.weights(head.norms),
    "output": lambda shown, head: _plain(head.output, shown.listed),
}
PLAIN = tuple(OF_HEAD)
OF_HEAD |= {name: _matrix(name) for name in (*WEIGHTS, *QK_NORM, "q", "k", "v", *ROTATED)}
OF_HEAD |= {name: _scores(name) for name in SCORES}
OF_HEAD["sink_score"] = lambda shown, head: head.sink
OF_HEAD["links"] = _links  # where it is named

# How a key of a record is made, where it is not the trace's field of that name as it stands.
OWN: dict[str, Callable[[Shown], object]] = {
    "schema": lambda shown: "attn/1",
    "query_rows": lambda shown: shown.listed if shown.trace.asked else None,
    "replaced": lambda shown: dict(shown.trace.replaced),
    "round": lambda shown: shown.trace.settings.round,
    "knock_out": _knock_out,
    "mask": lambda shown: shown.rows(shown.trace.mask),
    "padding": lambda shown: list(shown.trace.pad_keys) or None,
    "mask_convention": lambda shown: "true = may attend",
    "head": lambda shown: shown.trace.shown.name,
    "weights": lambda shown: shown.weights(shown.trace.shown.weights),
    "measure": lambda shown: shown.trace.settings.measure,
    "norms": lambda shown: shown.weights(shown.trace.shown.norms),
    "sink": lambda shown: shown.rows(shown.trace.sink_shares(shown.trace.shown)),
    "output_words": lambda shown: (
        (of := shown.trace.output_words)
        and [[{"word": word, "cosine": cosine} for word, cosine in of[i]] for i in shown.listed]
    ),
    "next_words": lambda shown: _words(shown.trace.next_words),
    "next_words_at": lambda shown: (
        (found := shown.trace.next_words_at)
        and [
            {"place": one.place, "token": one.token, "words": _words(one), "came": one.actual}
            for one in found
        ]
    ),
    "summary": _summaries,
    "because": _because,
    "diagnostics": _diagnostics,
    "entropy": _entropy,
    "links": _links,
    "condensed": lambda shown: not shown.trace.whole,
    "long_view": _long_view,
    "heads": _heads,
}
OF_SCORES = ("score", "scale", "temperature")  # null where weights came ready
# What has a row for each query, beside all whose names begin with query_
OF_QUERIES = ("output", "layer_output", "x_query")
OF_PLACES = ("words_query", "words_key", "encodings_query", "encodings_key")
OF_STEPS = ("x_query", "x_key", *OF_PLACES, "W_o", "b_o")
_ORDER = """
    schema kind query_tokens key_tokens query_ids key_ids query_input_ids key_input_ids query_segments key_segments
    query_rows unknown replaced dropped embedding projection learned positions round score scale temperature softcap
    knock_out mask mask_name padding mask_convention head weights measure norms sink output layer_output output_words
    next_words next_words_at summary because diagnostics entropy links condensed long_view x_query x_key words_query
    words_key encodings_query encodings_key W_o b_o heads notes
"""
KEYS = {name: OWN.get(name) or _field(name) for name in _ORDER.split()}
NAMED = ("entropy",)  # which a record has where they are named
OF_WEIGHTS = ("layer_output",)  # which a pretrained model's trace has where its weights are kept
