"""The long form: one row for each link of each text, in columns, from records of schema attn/1."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from attn_cli.settings.settings import ALL, Settings

COLUMNS = ("text", "layer", "head", "query", "key", "weight", "query_index", "key_index")
ONE_HEAD = ("mask", "projection.layer", "head", "weights", "links")
HEADS = ("mask", "heads.layer", "heads.name", "heads.mask", "heads.weights", "heads.links")

Columns = dict[str, np.ndarray[Any, Any]]


def has_heads(settings: Settings) -> bool:
    """Tell whether heads are asked for one by one."""
    return ALL in (settings.head, settings.layer)


def keys_of_links(settings: Settings) -> tuple[str, ...]:
    """Return the keys of a record, as --fields names them, that its links are made of."""
    asked = () if settings.query is None else ("query_rows",)
    return ("query_tokens", "key_tokens", *asked, *(HEADS if has_heads(settings) else ONE_HEAD))


def columns_of(records: Sequence[tuple[int, Mapping[str, Any]]]) -> Columns:
    """Return the columns of the links of records, each record with the number of its text.

    Links stand in the order of heads, queries and keys; of --top, and of weights too many to hold, strongest first.
    A masked link has no row. Places count in the whole text.
    """
    parts = [part for number, record in records for part in _parts(number, record)]
    empty = np.empty(0, object)
    return {name: np.concatenate([part[n] for part in parts] or [empty]) for n, name in enumerate(COLUMNS)}


def _parts(number: int, record: Mapping[str, Any]) -> Iterator[tuple[np.ndarray[Any, Any], ...]]:
    """Yield the columns of each head."""
    queries, keys = (np.array(record[name], object) for name in ("query_tokens", "key_tokens"))
    places = np.array(record.get("query_rows") or range(len(queries)))
    alone = {"layer": record.get("projection", {}).get("layer"), "name": record.get("head")}
    for head in record.get("heads") or [{**record, **alone}]:
        if head["weights"] is None:
            links = np.array(head["links"], np.float64).reshape(-1, 3)
            i, j, weights = *links[:, :2].astype(np.intp).T, links[:, 2]
        else:
            W, mask = (
                np.asarray(head["weights"]),
                record["mask"] if head.get("mask") is None else head["mask"],
            )
            i, j = np.nonzero(np.ones(W.shape, np.bool_) if mask is None else np.asarray(mask))
            weights = W[i, j]
        same = (np.full(len(i), value, object) for value in (number, head["layer"], head["name"]))
        yield *same, queries[i], keys[j], weights, places[i], j
