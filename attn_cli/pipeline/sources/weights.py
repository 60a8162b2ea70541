"""From ready weights to a Trace, and to its steps where attn's own JSON has them (--steps) and they lead there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import numpy as np

from attn_cli.core.heads import QK, HeadWeights, Position, spread
from attn_cli.core.masks import Mask
from attn_cli.core.scores import GIVEN, SCORES, position_scale_of, scale_of
from attn_cli.errors import InputError, UsageError, refuse
from attn_cli.inputs.record import array
from attn_cli.inputs.saved_weights import Saved, weights_in_memory
from attn_cli.io.types import Array, replace
from attn_cli.models.projection import in_out
from attn_cli.pipeline import Inputs, Side, attend, check_no_knock_out, ready_weights
from attn_cli.pipeline.mask import stated_mask
from attn_cli.pipeline.record import Attended, record, record_layers
from attn_cli.settings import ALL, MEAN, ROLLOUT, Settings, check_shaping, unused
from attn_cli.trace import MATRICES, QK_NORM, ROTATED, Embedding, Head, Projected, Trace

Record = Mapping[str, object]  # attn's own JSON, or a head in it
WHOSE = "attn's JSON"
HOTTEST = 1e300


def trace_weights(saved: Saved, settings: Settings) -> Trace:
    """Turn ready weights into a Trace of one layer, of all, or of their mean; attn's own JSON brings steps along."""
    layers = len(saved.weights)
    said = f"--layer {settings.layer} needs several layers, and {saved.name} has one."
    refuse(settings.layer in (ALL, MEAN) and layers == 1, said, option="--layer")
    layer = settings.layer if settings.layer is not None or not saved.shows_layers else ALL
    settings = replace(settings, head=settings.head or saved.head, layer=layer)
    if settings.layer != MEAN:
        return record_layers(layers_of_weights(saved, settings), settings)
    if settings.head == ROLLOUT:
        raise UsageError("--head rollout goes through the layers.", "Leave out --layer mean.", "--layer")
    whole = saved.weights.mean(axis=0, keepdims=True, dtype=np.float64)
    trace = record(_attended(saved._replace(weights=whole), replace(settings, layer=None)))
    return replace(trace, settings=settings, derived=f"the mean of layers 0 to {layers - 1}")


def layers_of_weights(saved: Saved, settings: Settings) -> Iterator[Attended]:
    """Yield the layer of ready weights that is asked for, or each of them (--layer all)."""
    each = range(len(saved.weights)) if settings.layer == ALL else [settings.layer]
    return (_attended(saved, replace(settings, layer=layer)) for layer in each)


def _attended(saved: Saved, settings: Settings) -> Attended:
    check_no_knock_out(settings, saved.name)
    n_q, n_k = saved.weights.shape[-2:]
    mask = stated_mask(settings, saved.mask, n_q, n_k, saved.name)
    if mask is not None and mask.array is not None and settings.mask is None:
        mask = mask._replace(name=saved.mask_name or "as given")
    is_stated = settings.mask is not None or saved.mask is not None
    is_rollout = settings.head == ROLLOUT and ROLLOUT not in saved.heads
    select = ready_weights.rolled_weights if is_rollout else ready_weights.select_weights
    found = select(saved, settings, mask, is_stated)
    record = saved.record or {}
    sides = Side(found.query_tokens), Side(found.key_tokens)
    inputs = Inputs(*sides, saved.has_text, Embedding("given", saved.name), *saved.looked_up)
    notes = (*saved.notes, *found.notes, *unused(settings, words=False, learned=True))
    inputs = inputs._replace(notes=notes, has_second_input=record.get("kind") == "cross")
    layer = found.layer_of(Projected("given", saved.name, layer=found.layer))
    one = Attended("show", inputs, layer, settings, found.mask, len(saved.weights))
    if is_rollout:
        return one._replace(finish=partial(replace, derived=ready_weights.rollout_formula(found.layer or 0)))
    if ready_weights.joins_or_hides(settings) or saved.shows_layers:
        return one
    return one._replace(finish=partial(_with_saved_steps, record=record))


def _with_saved_steps(trace: Trace, record: Record) -> Trace:
    """Return the trace with the record's own steps, or where they do not lead to its weights, a note on that."""
    listed = record.get("heads")
    heads = [head for head in (listed if isinstance(listed, list) else []) if isinstance(head, dict)]
    steps = {str(head.get("name")): head for head in heads if head.get("scores") is not None}
    is_given = record.get("score") == GIVEN  # there are no queries and keys to check them with
    if is_given or trace.condensed or not all(head.name in steps for head in trace.heads):
        return trace
    try:
        return _with_steps(trace, record, steps)
    except (InputError, ValueError, IndexError) as error:
        why = f": {error}" if isinstance(error, InputError) else ""
        note = f"The steps in {trace.embedding.name} do not lead to its weights, and are left out{why}"
        return replace(trace, notes=(*trace.notes, f"{note.rstrip('.')}."))


def _with_steps(trace: Trace, record: Record, steps: Mapping[str, Record]) -> Trace:
    """Return the trace with the rule, the matrices and the steps that the record has."""
    saved = record.get("projection")
    projection: Record = saved if isinstance(saved, dict) else {}
    layout, is_normed, kv_heads = (projection.get(name) for name in ("layout", "x_is_normed", "kv_heads"))
    if str(record.get("score")) not in SCORES or layout not in (None, "in-out", "out-in"):
        raise InputError("its score or its layout is none that attn has")
    about = trace.projection._replace(
        layout=str(layout or "in-out"),
        x_is_normed=is_normed if isinstance(is_normed, bool) else None,
        kv_heads=kv_heads if isinstance(kv_heads, int) and 0 < kv_heads <= len(trace.head_names) else None,
    )
    names = "x_query", "x_key", "W_o", "layer_output"
    X, context, W_o, made = (_optional(record, name, 2) for name in names)
    scale, temperature = _above_0(record, "scale"), _above_0(record, "temperature")
    embedding = trace.embedding._replace(dim=None if X is None else X.shape[1])
    trace = replace(trace, score=str(record["score"]), scale=scale, temperature=temperature, projection=about)
    trace = replace(trace, x_query=X, x_key=context, embedding=embedding, W_o=W_o, layer_output=made)
    softcap = None if record.get("softcap") is None else _above_0(record, "softcap")
    heads = tuple(_head(trace, head, steps[head.name], softcap) for head in trace.heads)
    mean = replace(trace.shown, output=attend.mean_output([head.output for head in heads]))
    shown = next((head for head in heads if head.name == trace.shown.name), mean)
    about = about._replace(layout=None) if heads[0].W is None else about
    # Where a sink takes the rest of each row, the screen says so.
    notes = tuple(
        note for note in trace.notes if heads[0].sink is None or not note.endswith(ready_weights.AS_THEY_ARE)
    )
    b_o = _optional(record, "b_o", 1)
    return replace(trace, heads=heads, shown=shown, projection=about, notes=notes, b_o=b_o)


def _above_0(record: Record, name: str) -> float:
    number = record.get(name)
    if not isinstance(number, (int, float)) or not 0 < number < HOTTEST:
        raise InputError(f"its {name} is not a number above 0")
    return float(number)


def _optional(record: Record, name: str, axes: int) -> Array | None:
    return None if record.get(name) is None else array(record[name], name, (axes,), WHOSE)


def _pair(record: Record, names: tuple[str, str], axes: int) -> tuple[Array, Array] | None:
    one, other = (_optional(record, name, axes) for name in names)
    return None if one is None or other is None else (one, other)


def _head(trace: Trace, bare: Head, record: Record, softcap: float | None) -> Head:
    """Return a head with its steps: it attends anew by the record's rule, and must come to what the record has."""
    q, k, v = made = tuple(array(record.get(name), name, (2,), WHOSE) for name in "qkv")
    layout, X, context = trace.projection.layout or "in-out", trace.x_query, trace.x_key
    for M, own, name in ((X, q, "q"), (context, k, "k"), (context, v, "v")):
        if M is not None and len(M) != len(own):
            raise InputError(f"X has {len(M)} rows, {name} has {len(own)}")
    W, (W_q, W_k, W_v) = None, (_optional(record, name, 2) for name in MATRICES)
    if W_q is not None and W_k is not None and W_v is not None:
        b_q, b_k, b_v = (_optional(record, f"b_{letter}", 1) for letter in "qkv")
        W_q, W_k, W_v = (in_out(M, layout) for M in (W_q, W_k, W_v))
        W = HeadWeights(bare.name, W_q, W_k, W_v, b_q, b_k, b_v)
    norm, rotated = _pair(record, QK_NORM, 1), _pair(record, ROTATED, 2)
    if X is not None and context is not None and W is not None:
        for name, projected, own in zip("qkv", W.project(X, context), made, strict=True):
            if name == "v" or norm is None:
                _agree(projected, own, name)
    if rotated is not None and (rotated[0].shape, rotated[1].shape) != (q.shape, k.shape):
        raise InputError("its turned queries and keys have other shapes than q and k")
    bias, sink = _optional(record, "position_scores", 2), _optional(record, "sink_score", 0)
    head = Head(bare.name, W, q, k, v, None if rotated else bias, None, layout, trace.scale, softcap)
    head = replace(head, sink=None if sink is None else float(sink), qk_norm=norm and QK(*norm))
    head = replace(head, rotated=rotated and QK(*rotated))
    mask_of_its_own = _optional(record, "mask", 2)
    allowed = trace.mask if mask_of_its_own is None else mask_of_its_own != 0
    mask = None if allowed is None else Mask(trace.mask_name, len(allowed), len(k), allowed)
    head = head if mask_of_its_own is None else replace(head, mask=mask)
    work = attend.Work((head,), mask, trace.score, trace.temperature)
    (head,) = work.attended(np.arange(len(q)), allowed, 1, {})
    for name in ("weights", "scores", "scaled_scores", "capped_scores", "output"):
        if name != "capped_scores" or softcap is not None:
            stated = bare.weights if name == "weights" else array(record.get(name), name, (2,), WHOSE)
            _agree(getattr(head, name), stated, name)
    assert head.steps is not None
    steps = head.steps._replace(weights=bare.weights)  # as saved, to the last bit
    position = None if bias is None or len(q) != len(k) else _distances(trace, record, q, bias)
    scale = None if abs(trace.scale - scale_of(trace.score, q.shape[1])) <= 1e-9 else trace.scale
    return replace(head, bias=None, position=position, scale=scale, steps=steps, top=bare.top)


def _agree(found: Array, stated: Array, name: str) -> None:
    within = 1e-6 * max(1.0, float(np.abs(stated).max()))  # a pretrained model computes in float32
    if found.shape != stated.shape or not np.allclose(found, stated, rtol=1e-5, atol=within):
        raise InputError(f"{name} is not what the formula gives")


def _distances(trace: Trace, record: Record, q: Array, given: Array) -> Position | None:
    """Return a learned head's vectors and numbers for distances, if they give its position scores."""
    R, b = _optional(record, "position_vectors", 2), _optional(record, "position_biases", 1)
    if R is None or b is None or R.shape != (len(b), q.shape[1]):
        return None
    beside = position_scale_of(trace.score, q.shape[1]) / trace.temperature
    scores = spread(Position(R, b).by_distance(q, beside), np.arange(len(q)), len(q))
    return Position(R, b) if np.allclose(scores, given, rtol=1e-5, atol=1e-6) else None


def show(
    weights: object,
    tokens: str | Sequence[str] | None = None,
    context_tokens: str | Sequence[str] | None = None,
    settings: Settings | None = None,
    *,
    batch: int | None = None,
) -> Trace:
    """Return attention weights of your own as a Trace, which a notebook draws: nothing is computed anew.

    `weights` is (n_q, n_k), (heads, n_q, n_k) or (layers, heads, n_q, n_k): an array, nested lists, a PyTorch tensor,
    or a tuple of arrays, which are stacked, as a model's `attentions`: (batch, heads, n_q, n_k) for each layer, of
    which `batch` takes one text. `tokens` name queries and keys, `context_tokens` the keys where they differ; both
    are lists, or words between spaces. `settings` choose a layer, a head, a mask, as the options of `attn show`.
    Raises InputError, a ValueError, for what are not weights, and for a wrong number of tokens.

    >>> show([[0.9, 0.1], [0.2, 0.8]], "she likes").weights.tolist()
    [[0.9, 0.1], [0.2, 0.8]]
    """
    settings = settings or Settings()
    check_shaping(settings)
    return trace_weights(weights_in_memory(weights, tokens, context_tokens, batch), settings)
