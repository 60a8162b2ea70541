"""The last step of every way in: the heads attend, and the result becomes a Trace."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from attn_cli.core.head_weights import Rotated
from attn_cli.core.heads import Links
from attn_cli.core.masks import Mask
from attn_cli.errors import InputError, NotFinite
from attn_cli.io.escape import visible
from attn_cli.pipeline.attend import LINKS, ReadyWeights, Work, mean_head
from attn_cli.pipeline.inputs import Inputs
from attn_cli.pipeline.notes import (
    condensed_notes,
    excluded_note,
    layout_note,
    note_trained_unmasked,
    row_notes,
)
from attn_cli.pipeline.project import Layer, sentence_root
from attn_cli.settings.settings import ALL, ROLLOUT, Settings
from attn_cli.settings.validate import find_rows
from attn_cli.trace.computation import Placed
from attn_cli.trace.head import Head
from attn_cli.trace.trace import LARGE, Trace

if TYPE_CHECKING:
    from attn_cli.io.array_types import Bools
    from attn_cli.io.progress import OnPart
    from attn_cli.pipeline.attend import HeadsOfText

NAMED_WORDS = 3
COMMONEST = 10_000
MOST_NAMED = 200
ROLLOUTS = "weights up to layer n = An ... A1 A0, each A = (mean of the heads + I) / 2"
MOST_CELLS = 1 << 25  # of all heads together: with every step, a gigabyte


class Attended(NamedTuple):
    """What a source gives of one layer: both sides, the heads and their mask, or weights that came ready."""

    kind: str
    inputs: Inputs
    layer: Layer
    settings: Settings
    mask: Mask | None = None
    ready: ReadyWeights | None = None
    layers: int = 1  # how many there are, of which this is one
    report: OnPart | None = None
    finish: Callable[[Trace], Trace] = lambda trace: trace  # adds what this source alone knows


def record(one: Attended) -> Trace:
    """Attend with a layer's heads, and keep the record: here alone a Trace is born."""
    kind, inputs, layer, settings, mask, ready, _, report, finish = one
    score = layer.score or settings.score or "scaled"
    heads = tuple(_in_dtype(head, settings.dtype) for head in layer.heads)
    work = ready or Work(heads, mask, score, settings.temperature, settings.threads)
    try:
        trace = record_trace(kind, inputs, layer, settings, work, report)
    except NotFinite as error:
        names = [tuple(map(visible, side.tokens)) for side in (inputs.query, inputs.key)]
        raise NotFinite(error.query, error.key, *names) from None
    return finish(_with_layout_note(trace, one))


def _with_layout_note(trace: Trace, one: Attended) -> Trace:
    """Return the trace with a note on the other layout, where W fits in both and nobody said which it is in."""
    if one.layer.other_layout is None or trace.condensed:
        return trace
    try:
        other, _ = one.layer.other_layout()
        there = record(one._replace(layer=other._replace(other_layout=None), report=None))
    except InputError:  # W_o or a bias fits in one layout alone
        return trace
    return replace(trace, notes=(*trace.notes, layout_note(trace, there)))


def record_layers(layers: Iterator[Attended], settings: Settings) -> Trace:
    """Return the trace of the one layer that a source yields, or of all of them (--layer all)."""
    first = next(layers)
    if settings.layer != ALL:
        return record(first)
    n_q, n_k = len(first.inputs.query.tokens), len(first.inputs.key.tokens)
    check_all_fit(n_q, n_k, first.layers, len(first.layer.names), settings)
    return _together((record(one) for one in chain((first,), layers)), settings)


def _in_dtype(head: Head, dtype: str) -> Head:
    """Return the head with q, k, v and bias in float32 or float64."""
    with np.errstate(over="ignore"):  # an overflow to infinity is refused by the score check
        q, k, v, bias = (
            M if M is None else M.astype(dtype, copy=False) for M in (head.q, head.k, head.v, head.bias)
        )
    rotated = head.rotated and Rotated(*(M.astype(dtype, copy=False) for M in head.rotated))
    return replace(head, q=q, k=k, v=v, bias=bias, rotated=rotated)


def record_trace(
    kind: str,
    inputs: Inputs,
    layer: Layer,
    settings: Settings,
    work: Work | ReadyWeights | HeadsOfText,
    report: OnPart | None,
) -> Trace:
    """Let the heads work, by blocks of rows where the matrix is large, and keep the record."""
    query, key = inputs.query, inputs.key
    n_q, n_k = len(query.tokens), len(key.tokens)
    shown = layer.shown
    asked = () if settings.query is None else find_rows(settings.query, query.tokens)
    if settings.versus is not None:  # every format refuses a token that there is not
        find_rows(settings.versus, key.tokens, "--versus")
    wanted = max(LINKS, settings.top or 0)
    rows, focus, summaries, notes = np.arange(n_q), asked, {}, list(inputs.notes)
    if condensed := n_q * n_k > LARGE and not settings.full:
        summaries = work.summaries(wanted, shown == "mean", report)
        focus = asked or (_row_of_strongest_link(summaries[shown].links, inputs),)
        focus = focus[: max(1, LARGE // n_k)]
        rows = np.array(focus, dtype=np.intp)
        notes += condensed_notes(n_q, n_k, len(asked), len(focus), work.mask)
    allowed = None if work.mask is None else work.mask.rows(rows)
    heads = work.attended(rows, allowed, wanted, summaries)
    mean = mean_head(heads, allowed, wanted, summaries.get("mean")) if shown == "mean" else None
    top = mean or next(head for head in heads if head.name == shown)
    focus = focus or (_default_query(top, layer, inputs),)
    notes += row_notes(top, inputs, n_k if heads[0].scores is not None else 0)
    is_causal = work.mask is not None and work.mask.label.startswith("causal")
    if is_causal and layer.learned and not (condensed or asked):
        notes += note_trained_unmasked(top, layer.learned.layers, inputs)
    notes += excluded_note(work.mask, inputs)
    outputs = [head.output for head in heads if head.output is not None]
    numbers = {token: n for n, token in enumerate(dict.fromkeys((*query.tokens, *key.tokens)))}
    return Trace(
        kind=kind,
        settings=settings,
        query_tokens=query.tokens,
        key_tokens=key.tokens,
        query_ids=tuple(numbers[token] for token in query.tokens) if inputs.has_text else None,
        key_ids=tuple(numbers[token] for token in key.tokens) if inputs.has_text else None,
        unknown=inputs.unknown,
        replaced=dict(inputs.replaced),
        dropped=inputs.dropped,
        embedding=inputs.embedding,
        x_query=query.X,
        x_key=key.X,
        positions=settings.positions or "none",
        placed=_placed(inputs),
        projection=layer.projection.about,
        score=work.score,
        scale=work.scale,
        temperature=float(settings.temperature),
        mask_name="none" if work.mask is None else work.mask.label,
        mask=allowed,
        rows=rows,
        focus=focus,
        head_names=layer.names,
        heads=tuple(heads),
        shown=top,
        learned=layer.learned,
        W_o=layer.projection.output_weights_as_given,
        b_o=layer.projection.b_o,
        layer_output=layer.projection.joined(outputs),
        output_words=None,
        condensed=condensed,
        notes=tuple(dict.fromkeys(notes)),
        has_second_input=inputs.has_second_input,
        pad_queries=query.padding,
        pad_keys=key.padding,
        long_view=summaries[shown].view if condensed else None,
        source=work,
    )


def _default_query(head: Head, layer: Layer, inputs: Inputs) -> int:
    """Choose the default row: the sentence's root word if known, else the query of the strongest link of two words."""
    found = None if layer.root_head is None else sentence_root(layer.root_head, inputs)
    return _row_of_strongest_link(head.links, inputs) if found is None else found


def _placed(inputs: Inputs) -> Placed | None:
    query, key = inputs.query, inputs.key
    if query.words is None or query.encodings is None:
        return None
    assert key.words is not None and key.encodings is not None
    return Placed(query.words, key.words, query.encodings, key.encodings)


def output_words(trace: Trace, inputs: Inputs) -> tuple[tuple[tuple[str, float], ...], ...] | None:
    """Return the words nearest to each output, where values are word vectors: W_v leaves or restores them."""
    values = trace.learned.values if trace.learned else "learned"
    alone = trace.projection.source == "identity" and len(trace.head_names) == 1
    if inputs.table is None or trace.output is None or not (alone or values == "words"):
        return None
    if len(trace.output) > MOST_NAMED:
        return None
    from attn_cli.vectors.lookup import nearest_each

    also = dict.fromkeys((*trace.query_tokens, *trace.key_tokens))
    return tuple(
        tuple(found)
        for found in nearest_each(inputs.table, trace.output, NAMED_WORDS, COMMONEST, tuple(also))
    )


def _row_of_strongest_link(links: Links, inputs: Inputs) -> int:
    """Return the query whose link to a differently written word is the strongest of all.

    Words without a vector do not count: zeros score alike with everything.
    """
    best, row = -1.0, 0
    unknown = set(inputs.unknown)
    for i, token in enumerate(inputs.query.tokens):
        if token in unknown or i in inputs.query.padding:
            continue
        for j, weight in zip(links.keys[i], links.weights[i], strict=True):
            key = inputs.key.tokens[j] if j >= 0 else token
            if key.casefold() != token.casefold() and key not in unknown:
                if weight > best:
                    best, row = float(weight), i
                break
    return row


def check_all_fit(n_q: int, n_k: int, layers: int, heads: int, settings: Settings) -> None:
    """Raise InputError if all layers' heads are too many numbers to hold at once."""
    drawn = heads if settings.head == ALL else 1
    cells = n_q * n_k * layers * drawn
    if n_q * n_k > LARGE or cells > MOST_CELLS:
        raise InputError(
            f"{n_q:,} x {n_k:,} weights of {layers * drawn:,} heads are too many to show at once.",
            "Give --layer N, or a shorter text; attn heads shows every head of a long one.",
        )


def _together(traces: Iterable[Trace], settings: Settings) -> Trace:
    """Return the trace of the last layer with the heads of every layer, each of which says its layer.

    The masks of the layers may differ: each head then holds its own.
    """
    heads: list[Head] = []
    masks: list[Bools | None] = []
    notes: list[tuple[int | None, str]] = []
    for last in traces:
        of_layer = last.heads if settings.head == ALL else (last.shown,)
        heads += (replace(head, layer=last.projection.layer) for head in of_layer)
        masks += [last.mask] * len(of_layer)
        notes += ((last.projection.layer, note) for note in last.notes)
    if any(not _same(mask, last.mask) for mask in masks):
        n_q, n_k = len(last.rows), len(last.key_tokens)
        whole = np.ones((n_q, n_k), np.bool_)
        own = (Mask("its layer's", n_q, n_k, whole if mask is None else mask) for mask in masks)
        heads = [replace(head, mask=mask) for head, mask in zip(heads, own, strict=True)]
        named = last.projection.layer
        notes.append((None, f"The layers' masks differ: the one that is named is that of layer {named}."))
    shown = next(head for head in reversed(heads) if head.name == last.shown.name)
    derived = "the mean of each layer's heads" if last.shown.name == "mean" else last.derived
    if settings.head == ROLLOUT:
        derived = ROLLOUTS
    merged = _merged_notes(notes)
    return replace(last, settings=settings, heads=tuple(heads), shown=shown, notes=merged, derived=derived)


def _merged_notes(notes: list[tuple[int | None, str]]) -> tuple[str, ...]:
    """Return the notes of all layers: each once, with its layers where not all have it."""
    layers = {layer for layer, _ in notes if layer is not None}
    found = dict[str, list[int | None]]()
    for layer, note in notes:
        found.setdefault(note, []).append(layer)
    return tuple(
        note if None in given or set(given) == layers else f"Layer {', '.join(map(str, given))}: {note}"
        for note, given in found.items()
    )


def _same(one: Bools | None, other: Bools | None) -> bool:
    return one is other or (one is not None and other is not None and np.array_equal(one, other))
