"""A Trace as the JSON of schema attn/1: plain lists and numbers, null where masked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attn_cli.trace.head import SCORES, WEIGHTS

if TYPE_CHECKING:
    from attn_cli.io.array_types import Array
    from attn_cli.trace.head import Head
    from attn_cli.trace.trace import Trace

SUMS = ("words_query", "words_key", "encodings_query", "encodings_key")  # what X is the sum of


def as_json(trace: Trace, steps: bool = False, walked: bool = False) -> dict[str, object]:
    """Return the trace as the JSON of schema attn/1: plain lists and numbers, null where masked.

    With `walked`, or where rows were asked for, it says why each row in focus looks where it looks.
    """
    listed = list(trace.listed)
    held = [trace.held(i) for i in listed] if trace.whole else []
    learned, place = trace.learned, {i: n for n, i in enumerate(listed)}
    record: dict[str, object] = {
        "schema": "attn/1",
        "kind": trace.kind,
        "query_tokens": [trace.query_tokens[i] for i in listed],
        "key_tokens": list(trace.key_tokens),
        "query_ids": None if trace.query_ids is None else [trace.query_ids[i] for i in listed],
        "key_ids": None if trace.key_ids is None else list(trace.key_ids),
        "query_rows": listed if trace.asked else None,
        "unknown": list(trace.unknown),
        "replaced": dict(trace.replaced),
        "dropped": list(trace.dropped),
        "embedding": trace.embedding._asdict(),
        "projection": trace.projection._asdict(),
        "learned": learned and learned._asdict() | {"trained_on": list(learned.trained_on)},
        "positions": trace.positions,
        "round": trace.settings.round,
        "score": trace.score if trace.is_scored else None,
        "scale": trace.scale if trace.is_scored else None,
        "temperature": trace.temperature if trace.is_scored else None,
        "mask": None if trace.mask is None or trace.condensed else trace.mask[listed].tolist(),
        "mask_name": trace.mask_name,
        "padding": list(trace.pad_keys) or None,
        "mask_convention": "true = may attend",
        "head": trace.shown.name,
        "weights": trace.shown.weights[held].tolist() if trace.whole else None,
        "output": _listed(trace.output, listed),
        "layer_output": _listed(trace.layer_output, listed),
        "output_words": _output_words(trace, listed),
        "summary": [_summary(trace, i) for i in listed],
        "because": _because(trace) if (walked or trace.asked) and trace.is_scored else None,
        "diagnostics": None if trace.condensed else _diagnostics(trace, listed),
        "links": None if trace.whole else [[place[i], j, w] for i, j, w in trace.links()],
        "condensed": not trace.whole,
        "long_view": _long_view(trace, listed),
    }
    steps = steps and trace.is_scored
    if steps:
        record |= {"x_query": _listed(trace.x_query, listed), "x_key": _listed(trace.x_key)}
        record |= {name: _listed(trace.placed and getattr(trace.placed, name)) for name in SUMS}
        record |= {"W_o": _listed(trace.W_o), "b_o": _listed(trace.b_o)}
    record["heads"] = []
    if steps or trace.settings.head in ("all", "mean"):
        record["heads"] = [_head(trace, head, steps, listed, held) for head in trace.shown_heads]
    record["notes"] = list(trace.notes)
    return record


def _summary(trace: Trace, i: int) -> dict[str, object]:
    j = int(trace.shown.links.keys[i, 0])
    found = j >= 0
    return {
        "query": trace.query_tokens[i],
        "key": trace.key_tokens[j] if found else None,
        "weight": float(trace.shown.links.weights[i, 0]) if found else None,
        "query_index": i,
        "key_index": j if found else None,
    }


def _because(trace: Trace) -> list[dict[str, object]]:
    from attn_cli.trace.because import because  # only for rows that are walked

    return [one._asdict() for i in trace.focus for one in because(trace, i)]


def _diagnostics(trace: Trace, listed: list[int]) -> list[dict[str, object]]:
    told = zip(listed, trace.diagnoses(listed), strict=True)
    return [{"query": trace.query_tokens[i], **diagnosis._asdict()} for i, diagnosis in told]


def _output_words(trace: Trace, listed: list[int]) -> list[list[dict[str, object]]] | None:
    if trace.output_words is None:
        return None
    return [[{"word": w, "cosine": cosine} for w, cosine in trace.output_words[i]] for i in listed]


def _long_view(trace: Trace, listed: list[int]) -> dict[str, object] | None:
    view = trace.long_view
    if view is None:
        return None
    allowed = view.allowed[listed].astype(int).tolist()
    bits = view.entropy[listed].tolist()
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


def _head(trace: Trace, head: Head, steps: bool, listed: list[int], held: list[int]) -> dict[str, object]:
    record: dict[str, object] = {
        "name": head.name,
        "weights": head.weights[held].tolist() if trace.whole else None,
        "output": _listed(head.output, listed),
    }
    if steps:
        for name in (*WEIGHTS, "q", "k", "v"):
            record[name] = _listed(getattr(head, name), listed if name == "q" else None)
        for name in SCORES:
            value = getattr(head, name)
            record[name] = None if value is None or not trace.whole else _finite(value[held])
    return record


def _listed(matrix: Array | None, rows: list[int] | None = None) -> list[object] | None:
    """Return a matrix, or these rows of it, as lists."""
    return None if matrix is None else (matrix if rows is None else matrix[rows]).tolist()


def _finite(matrix: Array) -> list[list[float | None]]:
    return [[None if x == float("-inf") else x for x in row] for row in matrix.tolist()]
