"""From a text and a pretrained model's folder to a Trace: one layer's heads, with the model's own tokens and mask."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from math import isclose
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from attn_cli.core import masks
from attn_cli.core.head_weights import Rotated
from attn_cli.core.scores import scale_of
from attn_cli.errors import UsageError
from attn_cli.models.checkpoints.blocks import BeforeRotation, Ready
from attn_cli.models.checkpoints.layers import LayerSteps
from attn_cli.models.checkpoints.run import Checkpoint, Run, texts
from attn_cli.models.projection import Projection
from attn_cli.pipeline.attend import Work
from attn_cli.pipeline.derived import (
    Rolled,
    between_words,
    check_one_text,
    check_rollout,
    made_of,
    rollout_formula,
    selected,
    without_selection,
)
from attn_cli.pipeline.inputs import Inputs, Side
from attn_cli.pipeline.mask import stated_mask, without_keys
from attn_cli.pipeline.project import Layer, shown_head, wanted_layer
from attn_cli.pipeline.ready_weights import joins_or_hides
from attn_cli.pipeline.record import Attended, record
from attn_cli.pipeline.sources.checkpoint_text import (
    Tokens,
    shift_note,
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
    from attn_cli.models.checkpoints.open_model import OpenModel

KINDS = {"self": ("encoder", "self"), "masked": ("decoder", "masked"), "cross": ("decoder", "cross")}


class Reading(NamedTuple):
    """A model that reads a text, and which attention of it is asked for."""

    run: Run
    side: str  # encoder or decoder
    asked: str  # self, masked or cross
    query: Tokens
    key: Tokens
    model: OpenModel
    keep_weights: bool = False  # whether a trace holds X, W and W_o, too
    notes: tuple[str, ...] = ()  # on how the model reads the text

    @property
    def stack(self) -> Stack:
        """The side whose attention is asked for."""
        return self.run.model.stacks[self.side]

    def attended(self, settings: Settings) -> Iterator[Attended]:
        """Yield the layer that is asked for, or each (--layer all); the last one has the words that are asked for."""
        check_rollout(settings)
        count = len(self.stack.layers)
        number = None if settings.layer == ALL else wanted_layer(settings, count, self.model.name)
        last = count - 1 if number is None else number
        each = self._rollouts if settings.head == ROLLOUT else self._layers
        for layer, one in each(settings, number):
            is_last = layer == last and settings.next  # what lies above the layer is left alone otherwise
            yield one._replace(finish=partial(self._with_words, finish=one.finish)) if is_last else one

    def _layers(self, settings: Settings, number: int | None) -> Iterator[tuple[int, Attended]]:
        """Yield layer `number`, or each."""
        for steps in self.layers(number):
            if number in (None, steps.layer):
                of_layer = replace(settings, layer=steps.layer) if number is None else settings
                yield steps.layer, self._attended(steps, of_layer)

    def _rollouts(self, settings: Settings, number: int | None) -> Iterator[tuple[int, Attended]]:
        """Yield the rollout up to layer `number`, or up to each.

        A mask or a temperature that `settings` try holds in the layer that is shown; those below keep their own.
        """
        check_one_text(self.asked != "cross", self.model.name)
        below = Rolled()
        for steps in self.layers(number):
            own = None
            if number in (None, steps.layer):
                mean = record(self._attended(steps, without_selection(replace(settings, head="mean")), True))
                rolled = below.through(mean.weights[np.newaxis], mean.mask)
                found = rolled.instead_of(selected(mean), settings)
                yield steps.layer, made_of(mean, found, settings, rollout_formula(steps.layer))
                if _is_own(settings) and not mean.condensed:
                    own = np.array([head.weights for head in mean.heads]), mean.mask
            below = below.through(*(own or self.own(steps)))

    def _attended(self, steps: LayerSteps, settings: Settings, is_plain: bool = False) -> Attended:
        """Return a layer of the model; its word pieces are joined if `settings` say so, unless it is to be `plain`."""
        is_shaped = joins_or_hides(settings) and not is_plain
        asked = without_selection(settings) if is_shaped else settings
        one = self._as_asked(steps, asked)

        def finish(trace: Trace) -> Trace:
            if len(trace.heads) == len(trace.head_names) and _is_own(asked):
                steps.keep(
                    np.array([[head.output for head in trace.heads]])
                )  # layers above need not attend again
            notes = tuple(dict.fromkeys((*self.notes, *trace.notes)))
            ids, key_ids = self.query.ids, self.key.ids
            trace = replace(trace, query_input_ids=ids, key_input_ids=key_ids, notes=notes)
            trace = replace(trace, stack_layers=one.layers)
            if is_shaped:
                return record(between_words(trace, settings))
            return (
                _with_weights(trace, self, steps, one.mask) if self.keep_weights and not is_plain else trace
            )

        return one._replace(finish=finish)

    def _as_asked(self, steps: LayerSteps, settings: Settings) -> Attended:
        """Return a layer's heads under the score and the mask that are asked for, else under the model's own."""
        about, name, notes = steps.ready, self.model.name, list[str]()
        d_k, score, scale = about.q.shape[-1], settings.score, None
        if score is None:
            score = "dot" if about.scale == 1 and d_k > 1 else "scaled"
            if not isclose(about.scale, scale_of(score, d_k), rel_tol=1e-6):
                scale = about.scale
        n_q, n_k = about.q.shape[2], about.k.shape[2]
        mask = self.own_mask(steps) if settings.mask is None else stated_mask(settings, None, n_q, n_k, name)
        if settings.mask is not None and steps.layer:
            notes.append(
                "The mask applies in the layer that is shown; the layers below it used the model's own mask."
            )
        mask = without_keys(mask, settings, self.query.spelled, self.key.spelled)
        names = tuple(map(str, range(about.q.shape[1])))
        shown = shown_head(settings.head, names, has_layers=True)
        wanted = names if settings.every_head or settings.head in ("all", "mean") else (shown,)
        heads = tuple(_head(steps, int(head), scale, settings.temperature) for head in wanted)
        query = Side(self.query.spelled)
        key = query if self.key is self.query else Side(self.key.spelled)
        embedding = Embedding("given", name, None, None, None)
        inputs = Inputs(
            query, key, True, embedding, notes=tuple(notes), has_second_input=steps.kind == "cross"
        )
        projected = Projected("given", name, None, None, steps.layer)
        layer = Layer(names, shown, heads, Projection(projected, ()))
        layers = len(self.stack.layers)
        return Attended(steps.kind, inputs, layer, replace(settings, score=score), mask, layers=layers)

    def _with_words(self, trace: Trace, finish: Callable[[Trace], Trace]) -> Trace:
        """Return the trace with what the model says, at the end or at each place."""
        from attn_cli.pipeline.next_words import Read, find_at_each, find_next_words  # only those who ask pay

        trace, settings, model = finish(trace), trace.settings, self.model
        read, count = Read(self.query.ids, self.query.special), settings.next or 0
        words, more = find_next_words(self.run, self.side, read, model.encoder, count, model.name)
        every = None
        if settings.next_at == ALL and words is not None:
            every, said = find_at_each(self.run, read, model.encoder, count, model.name)
            more = [*more, *said]
        return replace(trace, next_words=words, next_words_at=every, notes=(*trace.notes, *more))

    def layers(self, number: int | None = None) -> Iterator[LayerSteps]:
        """Yield the attention that is asked for of each layer up to `number`, or of all; nothing more is computed."""
        last = len(self.stack.layers) - 1 if number is None else number
        for steps in self.run.steps():
            if (steps.side, steps.kind) == (self.side, self.asked):
                yield steps
                if steps.layer == last:
                    return

    def own(self, steps: LayerSteps) -> tuple[Array, Bools | None]:
        """Return the weights that the model itself computes, (h, n, n), and their mask."""
        mask = self.own_mask(steps)
        weights = steps.attended.weights[0].astype(np.float64)
        return weights, None if mask is None else mask.rows(np.arange(weights.shape[1]))

    def own_mask(self, steps: LayerSteps) -> Mask | None:
        """Return the mask that the model itself has in this layer, by its rule's name where there is one."""
        window, allowed = self.stack.layers[steps.layer].window, steps.ready.mask
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
        notes.append(shift_note(target))
    key = source if asked == "cross" else target
    return Reading(run, side, asked, target, key, model, notes=tuple(notes))


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


def _is_own(settings: Settings) -> bool:
    """Tell whether a layer attends as the model itself does."""
    tried = (settings.mask, settings.score, settings.without or None)
    return tried == (None, None, None) and settings.temperature == 1


def _head(steps: LayerSteps, h: int, scale: float | None, temperature: float) -> Head:
    """Return head h of the layer, ready to attend; of turned vectors q and k are what was turned.

    What the model adds for distances is part of its scores, so the temperature divides it too.
    """
    about, position, before_rotation = steps.ready, steps.ready.position, steps.before_rotation
    q, k = (about.q, about.k) if before_rotation is None else (before_rotation.q, before_rotation.k)
    return Head(
        str(h),
        q=q[0, h],
        k=k[0, h],
        v=about.v[0, h],
        bias=None if position is None else position[0, h] / temperature,
        scale=scale,
        softcap=about.softcap,
        rotated=None if before_rotation is None else Rotated(*before_rotation.rotated(h)),
    )


def _with_weights(trace: Trace, reading: Reading, steps: LayerSteps, mask: Mask | None) -> Trace:
    """Return the trace with the layer's matrices, and what W_o makes of all its heads."""
    from attn_cli.pipeline.sources import checkpoint_weights as kept  # only those who ask pay for it

    run, stack, settings = reading.run, reading.stack, trace.settings
    weights = run.weights_of(steps, [int(head.name) for head in trace.heads])
    is_scaled = isclose(trace.scale, steps.ready.scale, rel_tol=1e-6) and trace.score != "cosine"
    if settings.mask is not None or settings.without or settings.temperature != 1 or not is_scaled:
        heads = [_head(steps, h, trace.own_scale, trace.temperature) for h in range(stack.heads)]
        work = Work(tuple(heads), mask, trace.score, trace.temperature, settings.threads)
        made = kept.joined_anew(work, weights)
    else:
        made = run.joined(steps)[0]
    return kept.with_weights(trace, kept.Read(steps, weights, stack), made)


def can_be_grouped(settings: Settings, keep_weights: bool) -> bool:
    """Tell whether one layer is all that is asked for."""
    is_one = settings.layer != ALL and settings.head != ROLLOUT
    return is_one and not settings.next and not keep_weights


def traces_of_group(readings: Sequence[Reading], settings: Settings) -> Iterator[Trace]:
    """Yield the trace of each text; all have the same lengths, and `can_be_grouped` has allowed the settings."""
    first = readings[0]
    number = wanted_layer(settings, len(first.stack.layers), first.model.name)
    together = first.run.beside([reading.run for reading in readings[1:]])
    *_, steps = first._replace(run=together).layers(number)
    for at, reading in enumerate(readings):
        alone = reading._replace(run=reading.run.with_step(_of_text(steps, at)))
        yield record(next(alone.attended(settings)))


def _of_text(steps: LayerSteps, at: int) -> LayerSteps:
    """Return the attention of one of the texts."""
    own = slice(at, at + 1)

    def part(M: Array) -> Array:
        return M[own] if len(M) > 1 else M  # what all texts share has one entry

    q, k, v, scale, position, softcap, mask = steps.ready
    position = None if position is None else part(position)
    mask = mask[own] if mask is not None and len(mask) > 1 else mask
    ready = Ready(part(q), part(k), part(v), scale, position, softcap, mask)
    before = steps.before_rotation
    if before is not None:
        places = before.places[own] if len(before.places) > 1 else before.places
        before = BeforeRotation(part(before.q), part(before.k), before.rotary, places)
    made = (part(steps.x), part(steps.projected), part(steps.context))
    return LayerSteps(steps.side, steps.layer, steps.kind, *made, ready, before, steps.where)
