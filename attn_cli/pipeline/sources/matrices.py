"""From given matrices to a Trace: X with or without W, or Q, K and V, or scores."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import isclose

import numpy as np

from attn_cli.core.arguments import check_fit
from attn_cli.core.masks import Mask
from attn_cli.core.scores import GIVEN, scale_of
from attn_cli.errors import InputError, UsageError, refuse, refuse_input
from attn_cli.inputs.foreign_arrays import GivenScores
from attn_cli.inputs.matrices import Given
from attn_cli.io.types import Array, OnPart, replace
from attn_cli.models import model_file, projection
from attn_cli.pipeline import (
    Inputs,
    Layer,
    Side,
    check_no_knock_out,
    embed,
    prepare_inputs,
    project,
    shown_head,
    with_masks,
)
from attn_cli.pipeline.mask import wanted_masks
from attn_cli.pipeline.record import Attended, record
from attn_cli.settings import Settings, unused
from attn_cli.trace import Embedding, Head, Projected, Trace

UNKNOWN = 'The scores are used unscaled, because d_k is unknown. Add "scale" to the file to scale them.'
Taken = tuple[Inputs, Layer, list[str]]  # what one way of giving attention comes to, and notes


def trace_matrices(kind: str, given: Given, settings: Settings, report: OnPart | None = None) -> Trace:
    """Turn given matrices into a Trace: X with or without W, or Q, K and V, or scores."""
    check_no_knock_out(settings, given.name)
    if given.temperature is not None and settings.temperature == Settings().temperature:
        settings = replace(settings, temperature=given.temperature)
    has_qkv, scores = given.get("Q") is not None, given.scores
    take = _take_scores if scores is not None else _take_qkv if has_qkv else _take_x
    if scores is None:
        layout, score = settings.layout or given.layout, settings.score or given.score
        settings = replace(settings, layout=layout, score=score)
        stack = None if settings.projection is None else model_file.load_model(settings)
        if stack is not None:
            raise embed.wrong_pairing(stack, f"given by {given.name}")
    inputs, layer, notes = take(given, settings)
    masks = wanted_masks(settings, given.mask, inputs, given.name, len(layer.names))
    if scores is not None:
        masks = _with_blanks(masks, scores.values, given.name)
    layer, mask = with_masks(_with_scale(layer, given, settings), masks)
    if (other := layer.other_layout) is not None:
        layer = layer._replace(
            other_layout=lambda: with_masks(_with_scale(other(), given, settings), masks)[0]
        )
    inputs = inputs._replace(notes=(*inputs.notes, *notes))
    settings = replace(settings, positions=None) if has_qkv else settings
    one = Attended(kind, inputs, layer, settings, mask, report=report)
    if scores is not None:
        one = one._replace(finish=partial(_bare, has_values=given.get("V") is not None))
    return record(one)


def _with_scale(layer: Layer, given: Given, settings: Settings) -> Layer:
    """Return the layer with the scale, softcap and sinks that were given; a scale is noted if not the score's."""
    is_scaled = given.scores is not None and not given.scores.is_raw  # already

    def own(head: Head) -> float | None:
        assert head.q is not None  # it is about to attend
        usual = scale_of(layer.score or settings.score or "scaled", head.q.shape[1])
        return None if is_scaled or given.scale is None or isclose(given.scale, usual) else given.scale

    count, told = len(layer.heads), given.get("sinks")
    sinks = [None] * count if told is None else told.reshape(-1).tolist()
    said = f"{given.name}: sinks has {len(sinks)} numbers for {count} heads."
    refuse_input(len(sinks) != count, said, "Give one a head.")
    each = zip(layer.heads, sinks, strict=True)
    heads = (replace(head, scale=own(head), softcap=given.softcap, sink=sink) for head, sink in each)
    return layer._replace(heads=tuple(heads))


def _take_x(given: Given, settings: Settings) -> Taken:
    weights, X = model_file.read_weights(settings), given.get("X")
    if X is None:
        shown = " attn show draws ready weights." if "weights" in given.ignored else ""
        hint = f"Give Q, K and V, or X and W, or scores.{shown}"
        raise InputError(f"{given.name} holds neither Q, K, V nor X.", hint)
    context = given.get("context")
    if context is not None and context.shape[1] != X.shape[1]:
        said = f"X has shape {X.shape} and context {context.shape}: both need equally many columns."
        hint = "Where W_q, W_k and W_v fit each, give Q = X W_q, K = context W_k and V = context W_v instead."
        raise InputError(said, hint)
    query = key = Side(project.labels(given.tokens, len(X), "q", given.name), X)
    if context is not None:
        key = Side(project.labels(given.context_tokens, len(context), "k", given.name), context)
    about = Embedding("given", given.name, X.shape[1])
    inputs = Inputs(query, key, given.tokens is not None, about, has_second_input=context is not None)
    inputs = prepare_inputs(inputs, settings)
    notes = given.note_of_ignored()
    if given.lacks_head_count and settings.heads is None:
        read = "its weights were read as one head. --heads N splits them."
        notes.append(f"{given.name} does not give the number of heads; {read}")
    layer = project.project_inputs(inputs, settings, given, weights)
    return inputs, layer, [*notes, *unused(settings, words=False)]


def _side_by_side(given: Given, n_q: int, n_k: int, has_second_input: bool) -> Inputs:
    """Return both sides where no X is known: their tokens alone."""
    own = given.context_tokens or (given.tokens if n_q == n_k else None)
    query = Side(project.labels(given.tokens, n_q, "q", given.name))
    key, about = Side(project.labels(own, n_k, "k", given.name)), Embedding("given", given.name)
    return Inputs(query, key, given.tokens is not None, about, has_second_input=has_second_input)


def _take_qkv(given: Given, settings: Settings) -> Taken:
    said = f"{given.name} gives Q, K and V themselves: there are no vectors to add padding to."
    refuse(settings.pad, said, "Give X and W, or leave out --pad.", "--pad")
    missing = [name for name in "QKV" if given.get(name) is None]
    if missing:
        raise InputError(f"{given.name} holds Q but no {' and no '.join(missing)}.", "Give Q, K and V.")
    Q, K, V = (given.arrays[name] for name in "QKV")
    count = project.head_count(settings, given, ("Q", "K", "V"), 1)
    _check_columns(given, Q, K, V, count)
    if settings.round is not None:
        Q, K, V = (projection.to_digits(M, settings.round) for M in (Q, K, V))
    kv_heads = projection.kv_head_count(given, count)
    sides = zip((Q, K, V), (count, kv_heads, kv_heads), strict=True)
    parts = [projection.shared(projection.split(M, n, 1), count) for M, n in sides]
    biases = project.given_biases(given, settings, (count, len(Q), len(K)))
    positions = projection.given_positions(given, count, parts[1][0].shape[1]) if len(Q) == len(K) else None
    heads = tuple(
        Head(str(h), q=q, k=k, v=v, bias=biases[h], position=positions[h] if positions else None)
        for h, (q, k, v) in enumerate(zip(*parts, strict=True))
    )
    W_o = given.get("W_o")
    layout = None if W_o is None else settings.layout or given.layout or "in-out"
    joining = projection.Projection(Projected("given", given.name, layout), ())
    if W_o is not None:
        joining = joining._replace(W_o=projection.in_out(W_o, layout), b_o=given.get("b_o"))
    if settings.round is not None:
        joining = projection.rounded(joining, settings.round)
    names = tuple(head.name for head in heads)
    layer = Layer(names, shown_head(settings.head, names), heads, joining)
    idle = unused(settings, words=False, has_x=False)
    notes = project.sharing_note(given, count) + given.note_of_ignored() + idle
    return _side_by_side(given, len(Q), len(K), given.has_second_input), layer, notes


def _check_columns(given: Given, Q: Array, K: Array, V: Array, heads: int) -> None:
    """Raise InputError unless Q, K and V fit each other, head by head."""
    kv_heads = projection.kv_head_count(given, heads)
    if kv_heads == heads:
        may_share = heads > 1 and K.shape[1] < Q.shape[1] and Q.shape[1] % K.shape[1] == 0
        hint = "If heads of Q share those of K and V, say how many K and V have: kv_heads."
        check_fit(Q, K, V, hint=hint * may_share)
    elif Q.shape[1] * kv_heads != K.shape[1] * heads:
        shapes = f"Q has shape {Q.shape} for {heads} heads and K {K.shape} for {kv_heads}"
        raise InputError(f"{shapes}: queries and keys must have the same number of columns a head.")
    elif len(K) != len(V):
        raise InputError(f"K has shape {K.shape} and V {V.shape}: each key needs one value, row by row.")


def _take_scores(given: Given, settings: Settings) -> Taken:
    """Take scores as given: heads without queries and keys, with values only where they were given."""
    scores = given.scores
    assert scores is not None  # that is why it is asked
    _refuse_settings(given, scores, settings)
    values = scores.values if settings.round is None else projection.to_digits(scores.values, settings.round)
    heads, n_q, n_k = values.shape
    names = tuple(map(str, range(heads)))
    is_second = given.has_second_input or given.context_tokens not in (None, given.tokens)
    biases, V = project.given_biases(given, settings, values.shape), _values(given, settings, heads, n_k)
    no_keys = np.zeros((n_k, 1))  # the scores stand where queries do: see core.scores.GIVEN
    made = tuple(Head(name, q=values[h], k=no_keys, v=V[h], bias=biases[h]) for h, name in enumerate(names))
    joining = projection.Projection(Projected("given", given.name), ())
    layer = Layer(names, shown_head(settings.head, names), made, joining, score=GIVEN)
    notes = unused(settings, words=False, has_x=False) + given.note_of_ignored()
    if scores.is_raw and given.scale is None:
        notes.append(UNKNOWN)
    if not scores.is_raw and given.scale is not None:
        notes.append(f"{scores.name} are scaled already: the scale {given.scale:.12g} was not applied again.")
    if given.get("V") is None:
        notes.append(f"{given.name} holds no V: there is no output.")
    return _side_by_side(given, n_q, n_k, is_second), layer, notes


def _refuse_settings(given: Given, scores: GivenScores, settings: Settings) -> None:
    heads, gives = len(scores.values), f"{given.name} gives the scores:"
    what = f"{given.name} gives scores: there are no vectors to add padding to."
    refuse(settings.pad, what, "Leave out --pad.", "--pad")
    if settings.score is not None:
        said = f"{gives} --score {settings.score} would need Q and K."
        raise UsageError(said, "Leave out --score.", "--score")
    if given.score is not None:
        raise InputError(f"{gives} score {given.score} would need Q and K.", "Leave it out.")
    own = given.heads if given.heads != given.stacked else None  # those of V may be shared
    wanted = settings.heads or own or heads
    shape = f"{scores.name} has shape {scores.values.shape}, for {heads} heads, and heads is {wanted}"
    refuse_input(wanted != heads, f"{given.name}: {shape}.", "Scores of several heads are (heads, n_q, n_k).")
    if given.get("W_o") is not None:
        raise InputError(f"{given.name} gives scores and W_o: heads are joined only where Q and K are known.")


def _values(given: Given, settings: Settings, heads: int, n_k: int) -> list[Array]:
    """Return each head's values: their own, shared ones, or rows without numbers where none were given."""
    V = given.get("V")
    if V is None:
        return [np.zeros((n_k, 0))] * heads
    if len(V) != n_k:
        raise InputError(f"V has shape {V.shape}, but the scores have {n_k} keys: each key needs one value.")
    apart = given.stacked or 1
    refuse_input(heads % apart, f"{given.name}: V is given for {apart} heads, and the scores for {heads}.")
    if settings.round is not None:
        V = projection.to_digits(V, settings.round)
    return projection.shared(projection.split(V, apart, 1), heads)


def _with_blanks(masks: Sequence[Mask | None], scores: Array, name: str) -> list[Mask | None]:
    """Return the masks with what is -inf in the scores masked too, one for all heads where one will do."""
    blank = np.isneginf(scores)
    if not blank.any():
        return list(masks)
    n_q, n_k = scores.shape[1:]
    is_alike = len(masks) == 1 and bool((blank == blank[0]).all())
    found: list[Mask | None] = []
    for h in range(1 if is_alike else len(scores)):
        mask = masks[h % len(masks)]
        own = np.ones((n_q, n_k), np.bool_) if mask is None else mask.rows(range(n_q))
        is_told = mask is not None and not (own & blank[h]).any()
        found.append(mask if is_told else Mask(name, n_q, n_k, own & ~blank[h]))
    return found


def _bare(trace: Trace, has_values: bool) -> Trace:
    """Return the trace without what stood in for queries, keys and values."""

    def bare(head: Head) -> Head:
        head = replace(head, q=None, k=None)
        return head if has_values else replace(head, v=None, output=None)

    heads = tuple(map(bare, trace.heads))
    shown = next((head for head in heads if head.name == trace.shown.name), None)
    return replace(trace, heads=heads, shown=shown or bare(trace.shown))
