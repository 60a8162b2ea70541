"""The weights as rows of cells: wide (a column a key) or tidy (a row a link)."""

from __future__ import annotations

from collections.abc import Iterator

from attn_cli.trace.head import Head
from attn_cli.trace.trace import Trace

Row = list[object]


def weight_rows(trace: Trace, tidy: bool = False) -> Iterator[Row]:
    """Yield a row of names, then the weights: wide, "" where masked, or `query, key, weight` rows.

    Several heads get a first column `head`, and those of several layers one before it, `layer`. Where only the
    strongest links are kept, the rows are tidy; those of a long text, whose words are repeated, also have the
    positions of query and key.
    """
    is_mean = trace.settings.head == "mean" and not trace.has_layers
    heads = (trace.shown,) if is_mean else trace.shown_heads
    tidy = tidy or not trace.whole
    named = len(heads) > 1 or trace.has_layers
    names = ["layer"] * trace.has_layers + ["head"] * named
    names += ["query", "key", "weight"] if tidy else ["query", *trace.key_tokens]
    yield [*names, *(["query_row", "key_column"] if trace.condensed else [])]
    for head in heads:
        of_head: Row = [*([head.layer] if trace.has_layers else []), *([head.name] if named else [])]
        for row in (_tidy if tidy else _wide)(trace, head):
            yield of_head + row


def _wide(trace: Trace, head: Head) -> Iterator[Row]:
    mask = trace.mask_of(head)
    for i in trace.listed:
        weights = head.weights[trace.row_in_arrays(i)].tolist()
        may = [True] * len(weights) if mask is None else mask[trace.row_in_arrays(i)].tolist()
        cells = [weight if allowed else "" for weight, allowed in zip(weights, may, strict=True)]
        yield [trace.query_tokens[i], *cells]


def _tidy(trace: Trace, head: Head) -> Iterator[Row]:
    keys = trace.key_tokens
    if not trace.whole:
        for i, j, weight in trace.links(head):
            yield [trace.query_tokens[i], keys[j], weight, *((i, j) if trace.condensed else ())]
        return
    for query, *weights in _wide(trace, head):
        yield from ([query, key, weight] for key, weight in zip(keys, weights, strict=True) if weight != "")
