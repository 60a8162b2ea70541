"""The records of a group of texts: the usual fields from the group's arrays, any others through each text's trace."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from attn_cli.pipeline.attend import rows_of_all
from attn_cli.trace.diagnostics import diagnose
from attn_cli.trace.trace import Trace

if TYPE_CHECKING:
    from attn_cli.core.heads import Links
    from attn_cli.pipeline.attend import Group
    from attn_cli.settings.settings import Settings

Record = dict[str, Any]  # as the JSON of schema attn/1, with arrays in the place of lists of numbers
# The fields that need no trace.
QUICK = frozenset(
    ("schema", "kind", "query_tokens", "key_tokens", "weights", "summary", "links", "condensed", "head")
)


def quick_records(
    group: Group,
    keys: Sequence[str],
    kind: str,
    shown: str,
    top: int | None,
    texts: Sequence[tuple[Sequence[str], Sequence[str]]],
) -> Iterator[Record]:
    """Yield the record of each text, given by its query and key tokens; all of `keys` are in QUICK."""
    weights = group.weights(shown)
    n_q = weights.shape[1]
    lists: dict[str, Any] = {}
    if "summary" in keys:
        lists["summary"] = _summaries(group.links(weights, 1), texts)
    if "links" in keys and top is not None:
        lists["links"] = _links(group.links(weights, top), n_q)
    if "weights" in keys and top is None:
        lists["weights"] = weights
    always = {"schema": "attn/1", "kind": kind, "head": shown, "condensed": top is not None}
    for at, (queries, context) in enumerate(texts):
        own = {"query_tokens": queries, "key_tokens": context}
        yield {
            key: always[key]
            if key in always
            else own[key]
            if key in own
            else lists[key][at]
            if key in lists
            else None
            for key in keys
        }


def _summaries(links: Links, texts: Sequence[tuple[Sequence[str], Sequence[str]]]) -> list[list[Record]]:
    """Return each text's strongest links; `links` holds one for each query."""
    found: list[list[Record]] = []
    weights = links.weights[..., 0]
    is_short = weights.dtype.itemsize < 8  # then the number itself knows how short its text can be
    for (queries, context), keys, of_text in zip(texts, links.keys[..., 0].tolist(), weights, strict=True):
        numbers = of_text if is_short else of_text.tolist()
        found.append(
            [
                {"query": query, "key": context[j], "weight": weight, "query_index": i, "key_index": j}
                if j >= 0
                else {"query": query, "key": None, "weight": None, "query_index": i, "key_index": None}
                for i, (query, j, weight) in enumerate(zip(queries, keys, numbers, strict=True))
            ]
        )
    return found


def _links(links: Links, n_q: int) -> list[list[list[Any]]]:
    """Return each text's links, as [query, key, weight]."""
    is_short = links.weights.dtype.itemsize < 8
    return [
        [
            [i, j, weight]
            for i in range(n_q)
            for j, weight in zip(keys[i], of_text[i] if is_short else of_text[i].tolist(), strict=True)
            if j >= 0
        ]
        for keys, of_text in zip(links.keys.tolist(), links.weights, strict=True)
    ]


def full_record(trace: Trace, keys: Sequence[str], steps: bool, ready: Record | None = None) -> Record:
    """Return any keys of a text's record; those in `ready` are there already, computed with the text's group."""
    ready = ready or {}
    made = trace.to_dict(steps, False, [key for key in keys if key not in ready])
    return {key: ready[key] if key in ready else made[key] for key in keys}


def ready_fields(
    group: Group,
    keys: Sequence[str],
    shown: str,
    settings: Settings,
    texts: Sequence[tuple[Sequence[str], Sequence[str]]],
) -> list[Record]:
    """Return, for each text, the fields that are quicker to make for the whole group."""
    weights = group.weights(shown)
    found: dict[str, Any] = {}
    if "summary" in keys:
        found["summary"] = _summaries(group.links(weights, 1), texts)
    if "weights" in keys and settings.top is None:
        found["weights"] = weights
    if "output" in keys and shown != "mean":
        found["output"] = next(head.steps.output for head in group.heads if head.weights_of.name == shown)
    if "diagnostics" in keys and shown != "mean":
        told = group_diagnostics(group, [query for query, _ in texts], settings.temperature)
        found |= {} if told is None else {"diagnostics": told}
    return [{key: made[at] for key, made in found.items()} for at in range(len(texts))]


def group_diagnostics(
    group: Group, texts: Sequence[Sequence[str]], temperature: float
) -> list[list[Record]] | None:
    """Return the diagnostics of each text, given by its query tokens, computed together.

    None where each text must do by itself: where long keys may decide, or the heads' mean is shown.
    """
    if len(group.heads) != 1 or group.heads[0].weights_of.position is None:
        return None
    steps = group.heads[0].steps
    B, n_q, n_k = steps.weights.shape
    told = diagnose(
        steps.weights.reshape(-1, n_k),
        rows_of_all(group.allowed(n_q), B),
        steps.masked_scores.reshape(-1, n_k),
        temperature,
    )
    return [
        [
            {"query": query, **one._asdict()}
            for query, one in zip(queries, told[at * n_q : (at + 1) * n_q], strict=True)
        ]
        for at, queries in enumerate(texts)
    ]
