"""One layer's heads with Q, K and V made: from given ones, or from X and a projection or a learned model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import zip_longest
from typing import TYPE_CHECKING

import numpy as np

from attn_cli.core import arguments, masks
from attn_cli.errors import InputError, UsageError, count, did_you_mean, refuse_input, visible
from attn_cli.io.types import Array, OnPart, replace
from attn_cli.models import model_file, projection as model
from attn_cli.models.encoder import EncoderStack
from attn_cli.pipeline import (
    Inputs,
    Layer,
    Side,
    cut_of_stack,
    listed_heads,
    record,
    round_inputs,
    shown_head,
    wanted_layer,
)
from attn_cli.settings import ALL, LIKENESS, MEAN, ROLLOUT, Settings
from attn_cli.trace import Head

if TYPE_CHECKING:
    from attn_cli.inputs.matrices import Given

NAMES = ("W_q", "W_k", "W_v")
LEFT_OUT = "Distances between two texts mean nothing: the heads' position term is left out."


def project_with_model(
    inputs: Inputs, stack: EncoderStack, settings: Settings, mask: masks.Mask | None, report: OnPart | None
) -> tuple[Inputs, Layer]:
    """Take both sides up to the layer that is asked for, and make Q, K and V of its heads."""
    layer = wanted_layer(settings, stack.layers, stack.name)
    query, key, is_self = inputs.query, inputs.key, inputs.is_self
    cut = cut_of_stack(settings, stack)

    def layer_input(side: Side, below: masks.Mask | None) -> Side:
        """Return what the layers below make of a side; it keeps its positions only where there are none below."""
        assert side.X is not None
        X = stack.input(side.X, layer, below, report, settings.threads, cut)
        return side if X is side.X else side._replace(X=X, words=None, encodings=None)

    made = layer_input(query, mask if is_self else None)
    inputs = inputs._replace(query=made, key=made)
    if not is_self:
        n_k = len(key.tokens)
        hidden = masks.with_padding(None, n_k, n_k, key.padding) if key.padding else None
        inputs = inputs._replace(key=layer_input(key, hidden))
    inputs = round_inputs(inputs, settings)
    names, shown = stack.head_names(layer), _head_of_stack(settings.head, stack, layer)
    found = _layer(stack.attention(layer), inputs, settings, shown, ())
    is_default = settings.query is None and shown in (names[0], MEAN)
    root_heads = (head for head in found.projection.heads if is_default and head.name == record.ROOT_HEAD)
    is_below = query.words is not None and made.words is None
    notes = {
        f"The positions were added to the word vectors, below what {stack.name} shows here.": is_below,
        LEFT_OUT: not is_self,
        "The mask also applies in all lower layers, as in a decoder.": mask is not None and is_self and layer,
    }
    told = tuple(note for note, is_true in notes.items() if is_true)
    root = next(root_heads, None)
    return inputs, found._replace(learned=stack.learned(layer, shown), cut=cut, root_head=root, notes=told)


def _head_of_stack(head: str | None, stack: EncoderStack, layer: int) -> str:
    """Return the name of the head to show of a layer; the error tells of the heads of every layer."""
    names = stack.head_names(layer)
    try:
        return shown_head(head, names)
    except UsageError:
        if stack.layers == 1 or head is None or head == ROLLOUT:
            raise
    message, elsewhere = f"There is no head {visible(head)!r} in", stack.layer_of(head)
    if elsewhere is not None:
        there = f"It is in layer {elsewhere}: try --layer {elsewhere}."
        hint = f"{there} Layer {layer} has {listed_heads(names)}."
        raise UsageError(f"{message} layer {layer} of {stack.name}.", hint, "--head")
    named = [name for n in range(stack.layers) for name in stack.head_names(n) if not name.isdigit()]
    named.sort(key=lambda name: name.rpartition("-")[2].isdigit())  # previous before previous-2
    near, first = did_you_mean(head, [*named, MEAN, ALL]), f"{listed_heads(named)}, " if named else ""
    others = f"0 to {len(names) - 1} of layer {layer}; --layer 0 to {stack.layers - 1} chooses another."
    hint = f"{near}Heads are {first}{MEAN}, {ALL}, and {others}"
    raise UsageError(f"{message} {stack.name}.", hint, "--head")


def project_inputs(inputs: Inputs, settings: Settings, given: Given | None, weights: Given | None) -> Layer:
    """Choose a projection that was not learned, and make Q, K and V.

    `given` are the matrices that X came with, if it did; `weights` those of the file that --projection names.
    """
    X = inputs.query.X
    assert X is not None
    name, notes, learned = settings.projection, list[str](), None
    other_layout: Callable[[], Layer] | None = None
    if name is None and (given is None or not {*NAMES} & given.arrays.keys()):
        name = "random" if given is None and inputs.embedding.source == "random" else "identity"
    if name in ("identity", "random"):
        if given is not None and given.kv_heads is not None:
            said = f"kv_heads is {given.kv_heads}, but no W_k and W_v make fewer heads of keys and values."
            raise InputError(f"{given.name}: {said}", "Give W_q, W_k and W_v, or leave out kv_heads.")
        heads = settings.heads or 1 if given is None else head_count(settings, given, ("X",), 1)
        d = X.shape[1]
        projection = model.identity(d, heads) if name == "identity" else model.random(d, heads, settings.seed)
    elif name == LIKENESS:
        projection, learned = model_file.open_likeness(X.shape[1])
    else:
        used = given if name is None else weights
        assert used is not None  # a name that is not a file was refused when the file was to be read
        source = "given" if name is None else "file"
        projection, notes, fits_both = _from_weights(used, inputs, settings, source)
        if fits_both:
            layout = "in-out" if projection.about.layout == "out-in" else "out-in"
            other_layout = partial(project_inputs, inputs, replace(settings, layout=layout), given, used)
    names = tuple(head.name for head in projection.heads)
    shape = (len(names), len(inputs.query.tokens), len(inputs.key.tokens))
    biases = [None] * len(names) if given is None else given_biases(given, settings, shape)
    found = _layer(projection, inputs, settings, shown_head(settings.head, names), biases)
    if not inputs.is_self and projection.heads[0].position is not None:
        notes.append(LEFT_OUT)
    return found._replace(learned=learned, notes=tuple(notes), other_layout=other_layout)


def _from_weights(
    weights: Given, inputs: Inputs, settings: Settings, source: str
) -> tuple[model.Projection, list[str], bool]:
    """Return the projection of W_q, W_k and W_v, notes, and whether W fits in both layouts and the file states none."""
    X = inputs.query.X
    assert X is not None
    shapes = [W.shape for name in NAMES if (W := weights.get(name)) is not None]
    fitting, notes = list[str](), list[str]()  # the layouts in which all three fit the vectors
    for layout, taken, made in (("in-out", -2, -1), ("out-in", -1, -2)):
        are_alike = weights.kv_heads is not None or len({shape[made] for shape in shapes[:2]}) == 1
        if len(shapes) == 3 and are_alike and all(shape[taken] == X.shape[1] for shape in shapes):
            fitting.append(layout)
    layout = settings.layout or weights.layout or (fitting[0] if fitting else "in-out")
    if fitting == ["out-in"] and settings.layout is None and weights.layout is None:
        named = f"W_q has shape {weights.arrays['W_q'].shape} and X {X.shape}"
        notes.append(f"{named}: only W x fits, so the layout was read as out-in.")
    weights = weights.laid_out(layout)
    axis, side = (0, "rows") if layout == "in-out" else (1, "columns")
    for name, M in zip(NAMES, (X, inputs.key.X, inputs.key.X), strict=True):
        W = weights.get(name)
        if W is not None and M is not None and W.shape[axis] != M.shape[1]:
            needs = f"with layout {layout}, {name} needs as many {side} as X has columns"
            said = f"X has shape {M.shape} and {name} {W.shape}: {needs}."
            raise InputError(said, "Change the vectors, the weights or --layout.")
    heads = head_count(settings, weights, NAMES, 1 - axis)
    projection = model.from_given(weights, heads, layout, source)
    notes += sharing_note(weights, heads)
    notes += weights.note_of_ignored(weights.beside_weights) if source == "file" else []
    return projection, notes, len(fitting) > 1 and weights.layout is None


def sharing_note(given: Given, heads: int) -> list[str]:
    """Return a note on heads that share their keys and values with others, where there are such."""
    kv_heads = model.kv_head_count(given, heads)
    if kv_heads == heads:
        return []
    each = f"each serves {heads // kv_heads} in a row" if kv_heads > 1 else "it serves all"
    return [f"{heads} heads of Q share {count(kv_heads, 'head', 'heads')} of K and V: {each}."]


def given_biases(given: Given, settings: Settings, shape: tuple[int, int, int]) -> Sequence[Array | None]:
    """Return the position scores that were given, one for each head, read-only; `shape` is (heads, n_q, n_k).

    What is given once, for all heads, queries or keys, counts for each of them.
    """
    heads, n_q, n_k = shape
    bias = given.get("position_scores")
    if bias is None:
        return [None] * heads
    if not arguments.stretches(bias.shape, shape[-bias.ndim :]):
        of_heads, hint = ".", ""
        if bias.ndim > 2:
            of_heads = f" of {heads} heads."
            hint = f"Give ({n_q}, {n_k}), or ({heads}, {n_q}, {n_k}) for one a head."
        there = f"there are {n_q} queries and {n_k} keys{of_heads}"
        raise InputError(f"position_scores has shape {bias.shape}, but {there}", hint)
    if settings.round is not None:
        bias = model.to_digits(bias, settings.round)
    return [*np.broadcast_to(bias, shape)]


def labels(tokens: tuple[str, ...] | None, n: int, letter: str, name: str) -> tuple[str, ...]:
    """Return the tokens that were given, else labels such as q0 and q1."""
    if tokens is None:
        return tuple(f"{letter}{i}" for i in range(n))
    refuse_input(len(tokens) != n, f"{name} has {len(tokens)} tokens for {n} rows.", "Give one token a row.")
    return tokens


def head_count(settings: Settings, given: Given, names: tuple[str, ...], axis: int) -> int:
    """Return how many heads there are; what a file itself says of it must divide its own matrices."""
    heads = settings.heads or given.heads or 1
    if given.stacked is not None and heads != given.stacked:
        said = "--heads" if settings.heads is not None else "heads"
        which = "Q" if given.get("Q") is not None else "W_q"
        each = f"{which} for {given.stacked} heads, one matrix each, and {said} is {heads}"
        hint = "Leave it out, or give matrices whose columns are to be split."
        raise InputError(f"{given.name} gives {each}.", hint)
    for name in names if settings.heads is None else ():
        M = given.get(name)
        n = heads if name in ("Q", "W_q", "X") else model.kv_head_count(given, heads)
        if M is not None and M.shape[axis] % n:
            side = f"{M.shape[axis]} {'columns' if axis else 'rows'} of {name}, of shape {M.shape}"
            said = f"{given.name}: {n} heads cannot share the {side}."
            raise InputError(said, model.dividing(M.shape[axis]))
    return heads


def _layer(
    found: model.Projection, inputs: Inputs, settings: Settings, shown: str, biases: Sequence[Array | None]
) -> Layer:
    """Return the layer with Q, K and V of the shown head alone, unless all heads are asked for or joined."""
    X, context = inputs.query.X, inputs.key.X
    assert X is not None and context is not None
    if settings.round is not None:
        found = model.rounded(found, settings.round)
    needs_all = found.W_o is not None or settings.every_head or settings.head in (ALL, MEAN)
    layout, made = found.about.layout or "in-out", []
    for W, bias in zip_longest(found.heads, biases):
        if not needs_all and W.name != shown:
            continue
        with np.errstate(over="ignore", invalid="ignore"):
            q, k, v = W.project(X, context)
        for name, M in zip("qkv", (q, k, v), strict=True):
            said = f"W_{name} times the vectors is more than a number can hold."
            refuse_input(not np.isfinite(M).all(), said, "Scale them down.")
        made.append(Head(W.name, W, q, k, v, bias, W.position if inputs.is_self else None, layout))
    return Layer(tuple(head.name for head in found.heads), shown, tuple(made), found)
