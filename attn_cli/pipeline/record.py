"""The last step of every way in: the heads attend, and the result becomes a Trace, of one layer or of all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import chain

import numpy as np

from attn_cli.core.heads import QK, HeadWeights, Links
from attn_cli.core.masks import Mask
from attn_cli.errors import InputError, NotFinite, visible
from attn_cli.io.types import Array, Bools, Ints, NamedTuple, OnPart, replace
from attn_cli.models.encoder import weights_of
from attn_cli.models.logit_parts import Joining
from attn_cli.pipeline import Inputs, Layer, beside
from attn_cli.pipeline.attend import LINKS, Work, mean_head
from attn_cli.pipeline.long_text import HeadSummary
from attn_cli.settings import ALL, MEAN, ROLLOUT, WEIGHT, Settings, find_rows
from attn_cli.trace import LARGE, Head, Placed, Trace

EACH_ROLLED = "each A = (mean of the heads + I) / 2, rows divided by their sums"
ROLLOUTS = f"weights up to layer n = An ... A1 A0, {EACH_ROLLED}"
MOST_CELLS = 1 << 25  # of all heads together: with every step, a gigabyte
ROOT_HEAD = "head"
LEAST = 1e-12  # a weight, so that each word may be governed by each
EARLIER = 4  # words, after which a root counts 1/e: main clauses tend to come first
MOST_WORDS = 500  # the work grows with their cube


class Attended(NamedTuple):
    """What a source gives of one layer: both sides, the heads that attend or have their weights, and their mask."""

    kind: str
    inputs: Inputs
    layer: Layer
    settings: Settings
    mask: Mask | None = None
    layers: int = 1  # how many there are, of which this is one
    report: OnPart | None = None
    joining: Callable[[], Joining] | None = None  # what follows the heads, if not W_o of the layer alone
    finish: Callable[[Trace], Trace] = lambda trace: trace  # adds what this source alone knows


def record(one: Attended) -> Trace:
    """Attend with a layer's heads, and keep the record."""
    settings, inputs = one.settings, one.inputs
    score = one.layer.score or settings.score or "scaled"
    heads = tuple(_in_dtype(head, settings.dtype) for head in one.layer.heads)
    try:
        trace = record_trace(one, Work(heads, one.mask, score, settings.temperature, settings.threads))
    except NotFinite as error:
        names = [tuple(map(visible, side.tokens)) for side in (inputs.query, inputs.key)]
        raise NotFinite(error.query, error.key, *names) from None
    if settings.measure != WEIGHT and trace.heads[0].ready is None:
        made = one.layer.projection
        trace = beside.with_norms(trace, one.joining() if one.joining else Joining(made.W_o, made.b_o))
    if one.layer.other_layout is not None and not trace.condensed:
        with suppress(InputError):  # W_o or a bias fits in one layout alone
            other = one.layer.other_layout()._replace(other_layout=None)
            there = record(one._replace(layer=other, report=None))
            trace = replace(trace, notes=(*trace.notes, beside.layout_note(trace, there)))
    return one.finish(trace)


def _in_dtype(head: Head, dtype: str) -> Head:
    with np.errstate(over="ignore"):  # an overflow to infinity is refused by the score check
        given = head.q, head.k, head.v, head.bias
        q, k, v, bias = (M if M is None else M.astype(dtype, copy=False) for M in given)
    rotated = head.rotated and QK(*(M.astype(dtype, copy=False) for M in head.rotated))
    return replace(head, q=q, k=k, v=v, bias=bias, rotated=rotated)


def _held(
    one: Attended, work: Work, links: int
) -> tuple[Ints, tuple[int, ...], dict[str, HeadSummary], list[str]]:
    """Return the rows that a trace holds, the queries asked for, a summary of each head, and notes.

    Where rows are too many, the most worthwhile one is asked for at least; no head has a summary where all are held.
    """
    inputs, settings, shown = one.inputs, one.settings, one.layer.shown
    n_q, n_k = len(inputs.query.tokens), len(inputs.key.tokens)
    asked = () if settings.query is None else find_rows(settings.query, inputs.query.tokens)
    if settings.versus is not None:  # every format refuses a token that there is not
        find_rows(settings.versus, inputs.key.tokens, "--versus")
    if n_q * n_k <= LARGE or settings.full:
        return np.arange(n_q), asked, {}, []
    summaries = work.summaries(links, shown == MEAN, one.report)
    focus = asked or (row_of_strongest_link(summaries[shown].links, inputs),)
    focus = focus[: max(1, LARGE // n_k)]
    notes = beside.condensed_notes(n_q, n_k, len(asked), len(focus), work.mask)
    return np.array(focus, dtype=np.intp), focus, summaries, notes


def record_trace(one: Attended, work: Work) -> Trace:
    """Let the heads work, by blocks of rows where the matrix is large, and keep the record: here a Trace is born."""
    inputs, layer, settings = one.inputs, one.layer, one.settings
    query, key = inputs.query, inputs.key
    links = max(LINKS, settings.top or 0)
    rows, focus, summaries, notes = _held(one, work, links)
    allowed = None if work.mask is None else work.mask.rows(rows)
    heads = work.attended(rows, allowed, links, summaries)
    mean = mean_head(heads, allowed, links, summaries.get(MEAN)) if layer.shown == MEAN else None
    shown = mean or next(head for head in heads if head.name == layer.shown)
    if not focus:
        root = None if layer.root_head is None else sentence_root(layer.root_head, inputs)
        focus = (row_of_strongest_link(shown.links, inputs) if root is None else root,)
    trained = None if summaries or settings.query is not None else layer.learned
    of_rows = beside.notes_on_rows(shown, inputs, work.mask, heads[0].scores is not None, trained)
    notes = [*inputs.notes, *layer.notes, *notes, *of_rows]
    numbers = {token: n for n, token in enumerate(dict.fromkeys((*query.tokens, *key.tokens)))}
    of_sides = [tuple(numbers[token] for token in side.tokens) for side in (query, key)]
    ids = of_sides if inputs.has_text else (None, None)
    placed = [query.words, key.words, query.encodings, key.encodings]
    return Trace(
        kind=one.kind,
        settings=settings,
        query_tokens=query.tokens,
        key_tokens=key.tokens,
        query_ids=ids[0],
        key_ids=ids[1],
        unknown=inputs.unknown,
        replaced=dict(inputs.replaced),
        dropped=inputs.dropped,
        embedding=inputs.embedding,
        x_query=query.X,
        x_key=key.X,
        positions=settings.positions or "none",
        placed=None if query.words is None else Placed._make(placed),
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
        shown=shown,
        learned=layer.learned,
        W_o=layer.projection.output_weights_as_given,
        b_o=layer.projection.b_o,
        layer_output=layer.joined([head.output for head in heads if head.output is not None]),
        condensed=bool(summaries),
        notes=tuple(dict.fromkeys(notes)),
        has_second_input=inputs.has_second_input,
        pad_queries=query.padding,
        pad_keys=key.padding,
        long_view=summaries[layer.shown].view if summaries else None,
        source=work.blocks,
    )


def record_layers(layers: Iterator[Attended], settings: Settings) -> Trace:
    """Return the trace of the one layer that a source yields, or of all of them (--layer all)."""
    first = next(layers)
    if settings.layer != ALL:
        trace = record(first)
        layer, out = trace.projection.layer, [int(one.partition(".")[0]) for one in settings.knock_out]
        if not out or layer is None or layer > min(out):
            return trace
        shown = f"the weights of layer {layer}, shown here"
        note = f"--knock-out leaves {shown}, as they are: they are computed before."
        return replace(trace, notes=(*trace.notes, note))
    n_q, n_k = len(first.inputs.query.tokens), len(first.inputs.key.tokens)
    drawn = first.layers * (len(first.layer.names) if settings.head == ALL else 1)
    if n_q * n_k > LARGE or n_q * n_k * drawn > MOST_CELLS:
        hint = "Give --layer N, or a shorter text; attn heads shows every head of a long one."
        raise InputError(f"{n_q:,} x {n_k:,} weights of {drawn:,} heads are too many to show at once.", hint)
    return _together((record(one) for one in chain((first,), layers)), settings)


def _together(traces: Iterable[Trace], settings: Settings) -> Trace:
    """Return the trace of the last layer with the heads of every layer; where masks differ, each head has its own."""
    heads: list[Head] = []
    masks: list[Bools | None] = []
    notes: list[tuple[int | None, str]] = []
    for last in traces:
        of_layer = last.heads if settings.head == ALL else (last.shown,)
        heads += (replace(head, layer=last.projection.layer) for head in of_layer)
        masks += [last.mask] * len(of_layer)
        notes += ((last.projection.layer, note) for note in last.notes)
    n_q, n_k = len(last.rows), len(last.key_tokens)
    whole = [np.ones((n_q, n_k), np.bool_) if mask is None else mask for mask in masks]
    if any(not np.array_equal(mask, whole[-1]) for mask in whole):
        own = (Mask("its layer's", n_q, n_k, mask) for mask in whole)
        heads = [replace(head, mask=mask) for head, mask in zip(heads, own, strict=True)]
        named = last.projection.layer
        notes.append((None, f"The layers' masks differ: the one that is named is that of layer {named}."))
    shown = next(head for head in reversed(heads) if head.name == last.shown.name)
    derived = "the mean of each layer's heads" if last.shown.name == MEAN else last.derived
    derived = ROLLOUTS if settings.head == ROLLOUT else derived
    found = dict[str, list[int | None]]()
    for layer, note in notes:
        found.setdefault(note, []).append(layer)
    every = {layer for layer, _ in notes if layer is not None}
    merged = (  # each note once, with its layers where not all have it
        note if None in given or set(given) == every else f"Layer {', '.join(map(str, given))}: {note}"
        for note, given in found.items()
    )
    last = replace(last, settings=settings, heads=tuple(heads), shown=shown)
    return replace(last, notes=tuple(merged), derived=derived)


def sentence_root(root_head: HeadWeights, inputs: Inputs) -> int | None:
    """Return the sentence's root, usually the main verb, by the head "head" (word to governor); None in a long text."""
    own, X = inputs.query.own, inputs.query.X
    words = [i for i in own if any(map(str.isalnum, inputs.query.tokens[i]))]
    if X is None or not words or len(own) > MOST_WORDS:
        return None
    weights = weights_of(root_head, X[own.start : own.stop])
    share = root_shares(weights) * np.exp(-np.arange(len(own)) / EARLIER)
    return max(words, key=lambda i: float(share[i - own.start]))


def root_shares(weights: Array) -> Array:
    """Return each word's share (n,) as the root, over all trees, of weights (n, n) from a word to its governor.

    A tree counts as the product of its words' weights, its root's being what that word gives itself. All trees are
    summed by one determinant (Koo et al. 2007, "Structured Prediction Models via the Matrix-Tree Theorem", 3.2).
    """
    arcs = weights + LEAST
    roots = arcs.diagonal().copy()
    np.fill_diagonal(arcs, 0.0)
    laplacian = np.diag(arcs.sum(axis=1)) - arcs
    laplacian[:, 0] = roots
    shares: Array = roots * np.linalg.inv(laplacian)[0]
    return shares


def row_of_strongest_link(links: Links, inputs: Inputs) -> int:
    """Return the query of the strongest link to another word; zeros, for words without a vector, score all alike."""
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
