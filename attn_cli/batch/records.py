"""Records of texts that are computed together, and their long form: a row for each link of each text, in columns."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import repeat
from typing import TYPE_CHECKING, Any

import numpy as np

from attn_cli.errors import AttnError
from attn_cli.io.types import replace
from attn_cli.settings import ALL, Settings, check_model, check_shaping
from attn_cli.trace.row import diagnose

if TYPE_CHECKING:
    from attn_cli.batch import Job
    from attn_cli.core.heads import Links
    from attn_cli.models.checkpoints.open_model import OpenModel
    from attn_cli.pipeline import Layer
    from attn_cli.pipeline.attend import Group
    from attn_cli.pipeline.sources.checkpoint import Reading
    from attn_cli.trace import Trace

COLUMNS = ("text", "layer", "head", "query", "key", "weight", "query_index", "key_index")
ONE_HEAD = ("mask", "projection.layer", "head", "weights", "links")
HEADS = ("mask", "heads.layer", "heads.name", "heads.mask", "heads.weights", "heads.links")
Columns = dict[str, np.ndarray[Any, Any]]
Record = dict[str, Any]  # as the JSON of schema attn/1, with arrays in the place of lists of numbers
Pairs = Sequence[tuple[Sequence[str], Sequence[str]]]  # of each text, the query tokens and the key tokens
Row = Record | AttnError  # what becomes of a line
SHARED = ("schema", "kind", "projection", "mask", "head", "condensed")  # the same for all texts of a group
# The fields that need no trace.
QUICK = frozenset((*SHARED, "query_tokens", "key_tokens", "weights", "summary", "links"))
MODEL_TOKENS = 512  # of the texts that go through a pretrained model together


def full_record(trace: Trace, job: Job, ready: Record | None = None) -> Record:
    """Return the record of a text; the fields in `ready` are there already, computed with the text's group."""
    ready = ready or {}
    made = trace.to_dict(job.steps, False, {key: of for key, of in job.chosen.items() if key not in ready})
    return {key: ready[key] if key in ready else made[key] for key in job.chosen}


def group_fields(group: Group, job: Job, layer: Layer, settings: Settings, texts: Pairs) -> Iterator[Record]:
    """Yield, for each text, the fields of its record that need no trace, or are quicker to make for the whole group."""
    shown, top = layer.shown, settings.top
    weights, about = group.weights(shown), layer.projection.about._asdict()
    mask = None if group.mask is None else group.mask.rows(range(len(texts[0][0])))
    shared: dict[str, Any] = {"schema": "attn/1", "kind": job.kind, "projection": about, "mask": mask}
    shared |= {"head": shown, "condensed": top is not None}
    makers: dict[str, Callable[[], Iterable[Any]]] = {
        "query_tokens": lambda: [queries for queries, _ in texts],
        "key_tokens": lambda: [keys for _, keys in texts],
        "weights": lambda: weights if top is None else repeat(None),
        "summary": lambda: _summaries(group.links(weights, 1), texts),
        "links": lambda: repeat(None) if top is None else _links(group.links(weights, top)),
    }
    if shown != "mean":
        heads = {head.weights_of.name: head for head in group.heads}
        makers["output"] = lambda: heads[shown].steps.output
        # Where long keys may decide, each text must do by itself.
        if len(group.heads) == 1 and group.heads[0].weights_of.position is not None:
            makers["diagnostics"] = lambda: _diagnostics(group, texts, settings.temperature)
    keys = [key for key in job.chosen if key in makers or key in shared]
    columns = (makers[key]() if key in makers else repeat(shared[key]) for key in keys)
    for _, *values in zip(texts, *columns, strict=False):
        yield dict(zip(keys, values, strict=True))


def _numbers(links: Links) -> Any:
    """Return the weights of links; a float32 stays one, for it knows how short its text can be."""
    return links.weights if links.weights.dtype.itemsize < 8 else links.weights.tolist()


def _summaries(links: Links, texts: Pairs) -> Iterator[list[Record]]:
    """Yield each text's strongest links; `links` holds one for each query."""
    for (queries, context), keys, weights in zip(texts, links.keys.tolist(), _numbers(links), strict=True):
        yield [
            {"query": query, "key": context[j], "weight": weight, "query_index": i, "key_index": j}
            if j >= 0
            else {"query": query, "key": None, "weight": None, "query_index": i, "key_index": None}
            for i, (query, (j,), (weight,)) in enumerate(zip(queries, keys, weights, strict=True))
        ]


def _links(links: Links) -> Iterator[list[list[Any]]]:
    """Yield each text's links, as [query, key, weight]."""
    for keys, weights in zip(links.keys.tolist(), _numbers(links), strict=True):
        rows = enumerate(zip(keys, weights, strict=True))
        yield [[i, j, weight] for i, row in rows for j, weight in zip(*row, strict=True) if j >= 0]


def _diagnostics(group: Group, texts: Pairs, temperature: float) -> list[list[Record]]:
    """Return the diagnostics of each text, computed together."""
    steps = group.heads[0].steps
    B, n_q, n_k = steps.weights.shape
    allowed, scores = group.allowed(B, n_q, n_k), steps.masked_scores.reshape(-1, n_k)
    rows = iter(diagnose(steps.weights.reshape(-1, n_k), allowed, scores, temperature))
    return [[{"query": query, **next(rows)._asdict()} for query in queries] for queries, _ in texts]


def of_line(context: Sequence[str], settings: Settings) -> tuple[str | None, Settings]:
    """Return a line's context and settings: its second text is the context, or of pairs a part of the settings."""
    second = context[0] if context else None
    return (second, settings) if settings.pair is None else (None, replace(settings, pair=second))


def records_of_model(
    job: Job, settings: Settings, model: OpenModel, lines: Iterable[tuple[int, tuple[str, ...]]]
) -> dict[int, Record]:
    """Return the records of lines that go through a pretrained model together, in groups of like length, by place."""
    from attn_cli.pipeline.sources.checkpoint import can_be_grouped, read_texts, traces_of_group

    if not can_be_grouped(settings, job.keep_weights):
        return {}
    groups: dict[tuple[int, ...], list[tuple[int, Reading]]] = defaultdict(list)
    for at, (text, *context) in lines:
        with suppress(AttnError):  # said when its turn comes
            check_model(settings)
            check_shaping(settings)
            reading = read_texts(job.kind, text, *of_line(context, settings), model)
            groups[reading.run.lengths].append((at, reading))
    done: dict[int, Record] = {}
    for lengths, found in groups.items():
        size = max(1, MODEL_TOKENS // max(lengths))
        for start in range(0, len(found), size):
            places, readings = zip(*found[start : start + size], strict=True)
            with suppress(AttnError):  # then each by itself
                traces = traces_of_group(readings, settings)
                done |= {at: full_record(trace, job) for at, trace in zip(places, traces, strict=True)}
    return done


def keys_of_links(settings: Settings) -> tuple[str, ...]:
    """Return the keys of a record, as --fields names them, that its links are made of."""
    asked = () if settings.query is None else ("query_rows",)
    of_heads = HEADS if ALL in (settings.head, settings.layer) else ONE_HEAD
    return ("query_tokens", "key_tokens", *asked, *of_heads)


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
            W, mask = np.asarray(head["weights"]), head.get("mask")
            mask = record["mask"] if mask is None else mask
            i, j = np.nonzero(np.ones(W.shape, np.bool_) if mask is None else np.asarray(mask))
            weights = W[i, j]
        same = (np.full(len(i), value, object) for value in (number, head["layer"], head["name"]))
        yield *same, queries[i], keys[j], weights, places[i], j
