"""From a text and a pretrained model's folder to a Trace: one layer's heads, with the model's own tokens and mask."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from math import isclose
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from attn_cli.core import masks
from attn_cli.core.head_weights import Turned
from attn_cli.core.scores import scale_of
from attn_cli.errors import UsageError
from attn_cli.models.checkpoints.blocks import Ready, Unturned
from attn_cli.models.checkpoints.layers import LayerSteps
from attn_cli.models.checkpoints.run import Checkpoint, Run, texts
from attn_cli.models.projection import Projection
from attn_cli.pipeline.attend import Work
from attn_cli.pipeline.derived import (
    Rolled,
    between_words,
    check_all_fit,
    check_one_text,
    check_rollout,
    recorded,
    rollout_formula,
    selected,
    together,
    unasked,
)
from attn_cli.pipeline.inputs import Inputs, Side
from attn_cli.pipeline.mask import stated_mask, without_keys
from attn_cli.pipeline.project import Layer, shown_head, wanted_layer
from attn_cli.pipeline.ready_weights import is_shaping
from attn_cli.pipeline.record import build_trace
from attn_cli.pipeline.sources.checkpoint_text import (
    Tokens,
    about_move,
    open_model,
    piece_help,
    shifted,
    tokens_of,
    unknown_words,
)
from attn_cli.settings.settings import ALL, ROLLOUT, Settings
from attn_cli.trace.computation import Embedding
from attn_cli.trace.head import Head, Projected
from attn_cli.trace.trace import Trace

if TYPE_CHECKING:
    from attn_cli.core.masks import Mask
    from attn_cli.io.array_types import Array, Bools
    from attn_cli.models.checkpoints.describe import Stack
    from attn_cli.pipeline.sources.checkpoint_text import OpenModel

KINDS = {"self": ("encoder", "self"), "masked": ("decoder", "masked"), "cross": ("decoder", "cross")}


def trace_checkpoint(
    kind: str, text: str, context: str | None, settings: Settings, model: str, keep_weights: bool = False
) -> Trace:
    """Return the trace of one layer's heads of the model in a folder, or in the local Hugging Face cache.

    `kind` is self, masked or cross. A model with an encoder and a decoder reads the `context` with its encoder, and
    the `text` with its decoder; its `self` is the encoder's, of the `text` alone. A decoder alone is always masked.
    With `keep_weights`, the trace has the layer's X, the heads' W and biases, and W_o, as far as they are not huge.
    """
    with open_model(model) as opened:
        return trace_opened(kind, text, context, settings, opened, keep_weights)


def trace_opened(
    kind: str,
    text: str,
    context: str | None,
    settings: Settings,
    model: OpenModel,
    keep_weights: bool = False,
) -> Trace:
    """Return the same trace of a model that is open already."""
    check_rollout(settings)
    reading = read_texts(kind, text, context, settings, model)._replace(keep_weights=keep_weights)
    try:
        return _trace_read(reading, settings, model)
    except UsageError as error:
        if more := piece_help(error, settings, reading.query, model.encoder):
            raise UsageError(error.message, more, error.option) from None
        raise


def _trace_read(reading: Reading, settings: Settings, model: OpenModel) -> Trace:
    """Return the trace of what a model reads, and what it says where that is asked for."""
    run, side, target = reading.run, reading.side, reading.query
    with closing(run):
        stack = run.model.stacks[side]
        number = None if settings.layer == ALL else wanted_layer(settings, len(stack.layers), model.name)
        traces = reading.rollouts if settings.head == ROLLOUT else reading.traces
        if number is None:
            check_all_fit(len(target.ids), len(reading.key.ids), len(stack.layers), stack.heads, settings)
            trace = together(traces(settings, number), settings)
        else:
            trace = next(traces(settings, number))
        if not settings.next:  # what lies above the layer is left alone
            return trace
        from attn_cli.pipeline.next_words import (  # only those who ask pay for it
            Read,
            find_at_each,
            find_next_words,
        )

        read = Read(target.ids, target.special)
        words, more = find_next_words(run, side, read, model.encoder, settings.next, model.name)
        every = None
        if settings.next_at == ALL and words is not None:
            every, told = find_at_each(run, read, model.encoder, settings.next, model.name)
            more = [*more, *told]
    return replace(trace, next_words=words, next_words_at=every, notes=(*trace.notes, *more))


class Reading(NamedTuple):
    """A model that reads a text, and which attention of it is asked for."""

    run: Run
    side: str  # encoder or decoder
    asked: str  # self, masked or cross
    query: Tokens
    key: Tokens
    name: str  # the model's
    keep_weights: bool = False  # whether a trace holds X, W and W_o, too
    notes: tuple[str, ...] = ()  # on how the model reads the text

    def traces(self, settings: Settings, number: int | None) -> Iterator[Trace]:
        """Yield the trace of layer `number`, or of each; its word pieces are joined if `settings` say so."""
        for steps in self.layers(number):
            if number not in (None, steps.layer):
                continue
            of_layer = replace(settings, layer=steps.layer) if number is None else settings
            if is_shaping(settings):
                yield between_words(self._trace(steps, unasked(of_layer)), of_layer)
            elif self.keep_weights:
                mask = _mask(steps, self._window(steps), of_layer, self.name)
                mask = without_keys(mask, of_layer, self.query.spelled, self.key.spelled)
                stack = self.run.model.stacks[self.side]
                yield _with_weights(self._trace(steps, of_layer), self.run, steps, stack, mask)
            else:
                yield self._trace(steps, of_layer)

    def rollouts(self, settings: Settings, number: int | None) -> Iterator[Trace]:
        """Yield the rollout up to layer `number`, or up to each.

        A mask or a temperature that `settings` try holds in the layer that is shown; those below keep their own.
        """
        check_one_text(self.asked != "cross", self.name)
        below = Rolled()
        for steps in self.layers(number):
            own = None
            if number in (None, steps.layer):
                mean = self._trace(steps, unasked(replace(settings, head="mean")))
                rolled = below.through(mean.weights[np.newaxis], mean.mask)
                found = rolled.instead_of(selected(mean), settings)
                yield recorded(mean, found, settings, rollout_formula(steps.layer))
                if _is_own(settings) and not mean.condensed:
                    own = np.array([head.weights for head in mean.heads]), mean.mask
            below = below.through(*(own or self.own(steps)))

    def layers(self, number: int | None = None) -> Iterator[LayerSteps]:
        """Yield the attention that is asked for of each layer up to `number`, or of all; nothing more is computed."""
        last = len(self.run.model.stacks[self.side].layers) - 1 if number is None else number
        for steps in self.run.steps():
            if (steps.side, steps.kind) == (self.side, self.asked):
                yield steps
                if steps.layer == last:
                    return

    def _window(self, steps: LayerSteps) -> int | None:
        return self.run.model.stacks[self.side].layers[steps.layer].window

    def _trace(self, steps: LayerSteps, settings: Settings) -> Trace:
        trace = _trace(steps, self.query, self.key, self._window(steps), settings, self.name)
        layers = len(self.run.model.stacks[self.side].layers)
        return replace(trace, stack_layers=layers, notes=tuple(dict.fromkeys((*self.notes, *trace.notes))))

    def own(self, steps: LayerSteps) -> tuple[Array, Bools | None]:
        """Return the weights that the model itself computes, (h, n, n), and their mask."""
        mask = own_mask(steps, self._window(steps))
        weights = steps.attended.weights[0].astype(np.float64)
        return weights, None if mask is None else mask.rows(np.arange(weights.shape[1]))


def read_texts(kind: str, text: str, context: str | None, settings: Settings, model: OpenModel) -> Reading:
    """Let the model read a text, and a `context` where it has an encoder and a decoder; nothing is computed yet."""
    checkpoint, encoder = model.checkpoint, model.encoder
    side, asked = _side_of(checkpoint, kind, context)
    source = target = read = tokens_of(encoder, text, settings)
    if side == "decoder" and checkpoint.model.encoder is not None:
        assert context is not None  # _side_of has seen to it
        source, target = (
            tokens_of(encoder, context, settings),
            shifted(encoder, target, checkpoint.model.start),
        )
        run = checkpoint.run(texts([source.ids]), texts([target.ids]))
    else:
        run = checkpoint.run(texts([source.ids]))
    notes = [*checkpoint.model.notes]
    notes += unknown_words((read, source) if source is not read else (read,), model.name)
    if target is not read:
        notes.append(about_move(target))
    key = source if asked == "cross" else target
    return Reading(run, side, asked, target, key, model.name, notes=tuple(notes))


def _side_of(checkpoint: Checkpoint, kind: str, context: str | None) -> tuple[str, str]:
    """Return the side and the kind of attention that is asked for, as the model has them."""
    stacks, family = checkpoint.model.stacks, checkpoint.model.family
    side, asked = ("decoder", "masked") if "encoder" not in stacks and kind == "self" else KINDS[kind]
    if asked == "cross" and len(stacks) < 2:
        raise UsageError(
            f"A model of the type {family} reads one text.",
            "Leave out the second text: attn self TEXT -m DIR, or attn heads TEXT -m DIR.",
        )
    if side not in stacks:
        raise UsageError(
            f"This model (of the type {family}) is not causal: its words look at all others.",
            "Use attn self TEXT -m DIR; with --mask causal it tries that mask.",
        )
    if (context is not None) != (side == "decoder" and len(stacks) == 2):
        wanted = "a second text, which its encoder reads" if context is None else "one text"
        raise UsageError(
            f"For {kind} attention, a model of the type {family} takes {wanted}.",
            f"Try: attn heads TEXT --context CONTEXT --kind {kind}, or attn cross TEXT CONTEXT."
            if context is None
            else "Leave out the second text.",
        )
    return side, asked


def _trace(
    steps: LayerSteps, query: Tokens, key: Tokens, window: int | None, settings: Settings, name: str
) -> Trace:
    """Let the layer's heads attend, and keep the record."""
    about = steps.ready
    d_k, notes = about.q.shape[-1], []
    score, scale = settings.score, None
    if score is None:
        score = "dot" if about.scale == 1 and d_k > 1 else "scaled"
        if not isclose(about.scale, scale_of(score, d_k), rel_tol=1e-6):
            scale = about.scale
    mask = _mask(steps, window, settings, name)
    if settings.mask is not None and steps.layer:
        notes.append("The mask holds in the layer that is shown; in those below it, the model's own did.")
    mask = without_keys(mask, settings, query.spelled, key.spelled)
    names = tuple(map(str, range(about.q.shape[1])))
    shown = shown_head(settings.head, names, has_layers=True)
    wanted = names if settings.every_head or settings.head in ("all", "mean") else (shown,)
    heads = tuple(_head(steps, int(name), scale, settings.temperature) for name in wanted)
    query_side = Side(query.spelled)
    key_side = query_side if key is query else Side(key.spelled)
    embedding = Embedding("given", name, None, None, None)
    inputs = Inputs(query_side, key_side, True, embedding, notes=tuple(notes), apart=steps.kind == "cross")
    projected = Projected("given", name, None, None, steps.layer)
    layer = Layer(names, shown, heads, Projection(projected, ()))
    trace = build_trace(steps.kind, inputs, layer, replace(settings, score=score), mask, None)
    if len(heads) == len(names) and _is_own(settings):  # the layers above need not attend again
        steps.keep(np.array([[head.output for head in trace.heads]]))
    return replace(trace, query_input_ids=query.ids, key_input_ids=key.ids)


def _is_own(settings: Settings) -> bool:
    """Tell whether a layer attends as the model itself does."""
    tried = (settings.mask, settings.score, settings.without or None)
    return tried == (None, None, None) and settings.temperature == 1


def _head(steps: LayerSteps, h: int, scale: float | None, temperature: float) -> Head:
    """Return head h of the layer, ready to attend; of turned vectors q and k are what was turned.

    What the model adds for distances is part of its scores, so the temperature divides it too.
    """
    about, position, unturned = steps.ready, steps.ready.position, steps.unturned
    q, k = (about.q, about.k) if unturned is None else (unturned.q, unturned.k)
    return Head(
        str(h),
        q=q[0, h],
        k=k[0, h],
        v=about.v[0, h],
        bias=None if position is None else position[0, h] / temperature,
        scale=scale,
        softcap=about.softcap,
        turned=None if unturned is None else Turned(*unturned.turned(h)),
    )


def _mask(steps: LayerSteps, window: int | None, settings: Settings, name: str) -> Mask | None:
    """Return the mask that is asked for, else the model's own."""
    n_q, n_k = steps.ready.q.shape[2], steps.ready.k.shape[2]
    return own_mask(steps, window) if settings.mask is None else stated_mask(settings, None, n_q, n_k, name)


def _with_weights(trace: Trace, run: Run, steps: LayerSteps, stack: Stack, mask: Mask | None) -> Trace:
    """Return the trace with the layer's matrices, and what W_o makes of all its heads."""
    from attn_cli.pipeline.sources import checkpoint_weights as kept  # only those who ask pay for it

    weights, settings = run.weights_of(steps, [int(head.name) for head in trace.heads]), trace.settings
    is_scaled = isclose(trace.scale, steps.ready.scale, rel_tol=1e-6) and trace.score != "cosine"
    if settings.mask is not None or settings.without or settings.temperature != 1 or not is_scaled:
        heads = [_head(steps, h, trace.own_scale, trace.temperature) for h in range(stack.heads)]
        work = Work(tuple(heads), mask, trace.score, trace.temperature, settings.threads)
        made = kept.joined_anew(work, weights)
    else:
        made = run.joined(steps)[0]
    return kept.with_weights(trace, kept.Read(steps, weights, stack), made)


def own_mask(steps: LayerSteps, window: int | None) -> Mask | None:
    """Return the mask that the model itself has in this layer, by its rule's name where there is one."""
    allowed = steps.ready.mask
    if allowed is None and steps.kind != "masked":
        return None
    n_q, n_k = steps.ready.q.shape[2], steps.ready.k.shape[2]
    if steps.kind == "masked" and window is None:
        return masks.named("causal", n_q, n_k)
    if steps.kind == "self":
        return masks.named(f"window:{window}", n_q, n_k)
    behind = np.arange(n_q)[:, None] - np.arange(n_k)
    array = (behind >= 0) & (behind < (n_q if window is None else window))
    return masks.Mask(f"causal, the last {window} keys", n_q, n_k, array)


def can_be_grouped(settings: Settings, keep_weights: bool) -> bool:
    """Tell whether one layer is all that is asked for."""
    is_one = settings.layer != ALL and settings.head != ROLLOUT
    return is_one and not settings.next and not keep_weights


def traces_of_group(readings: Sequence[Reading], settings: Settings) -> Iterator[Trace]:
    """Yield the trace of each text; all have the same lengths, and `can_be_grouped` has allowed the settings."""
    first = readings[0]
    number = wanted_layer(settings, len(first.run.model.stacks[first.side].layers), first.name)
    together = first.run.beside([reading.run for reading in readings[1:]])
    *_, steps = first._replace(run=together).layers(number)
    for at, reading in enumerate(readings):
        alone = reading._replace(run=reading.run.with_step(_of_text(steps, at)))
        yield next(alone.traces(settings, number))


def _of_text(steps: LayerSteps, at: int) -> LayerSteps:
    """Return the attention of one of the texts."""
    own = slice(at, at + 1)

    def part(M: Array) -> Array:
        return M[own] if len(M) > 1 else M  # what all texts share has one entry

    q, k, v, scale, position, softcap, mask = steps.ready
    position = None if position is None else part(position)
    mask = mask[own] if mask is not None and len(mask) > 1 else mask
    ready = Ready(part(q), part(k), part(v), scale, position, softcap, mask)
    unturned = steps.unturned
    if unturned is not None:
        places = unturned.places[own] if len(unturned.places) > 1 else unturned.places
        unturned = Unturned(part(unturned.q), part(unturned.k), unturned.rotary, places)
    made = (part(steps.x), part(steps.projected), part(steps.context))
    return LayerSteps(steps.side, steps.layer, steps.kind, *made, ready, unturned, steps.where)
