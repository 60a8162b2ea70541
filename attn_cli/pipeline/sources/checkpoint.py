"""From a text and a pretrained model to layers: the heads of each, with the model's own tokens and mask."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from math import isclose
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from attn_cli.core import attention, masks, scores
from attn_cli.core.attend import output_of
from attn_cli.core.heads import QK
from attn_cli.errors import UsageError, visible
from attn_cli.io.types import Array, Bools, NamedTuple, OnPart, replace
from attn_cli.models.checkpoints import Stack, reader
from attn_cli.models.checkpoints.layers import LayerSteps
from attn_cli.models.checkpoints.open_model import Encoded, OpenModel
from attn_cli.models.checkpoints.run import Run, texts
from attn_cli.models.projection import Projection
from attn_cli.pipeline import (
    Inputs,
    Layer,
    Side,
    attend,
    beside,
    cut_of_model,
    knock_out_notes,
    ready_weights,
    shown_head,
    wanted_layer,
)
from attn_cli.pipeline.mask import stated_mask, without_keys
from attn_cli.pipeline.record import Attended, record
from attn_cli.pipeline.sources import checkpoint_text
from attn_cli.settings import ALL, MEAN, ROLLOUT, WEIGHT, Settings
from attn_cli.trace import Embedding, Head, Projected, Trace

Number = TypeVar("Number", bound=np.generic)
ANEW = "Each layer is shown without them, its rows adding up to 1{}; the model itself is not computed anew."
UNDER_MASK = "The mask applies in the layer that is shown; the layers below it used the model's own mask."


class Reading(NamedTuple):
    """A model that reads a text, and which attention of it is asked for."""

    run: Run
    side: str  # encoder or decoder
    asked: str  # self, masked or cross
    query: Encoded
    key: Encoded
    model: OpenModel
    keep_weights: bool = False  # whether a trace holds X, W and W_o, too
    notes: tuple[str, ...] = ()  # on how the model reads the text

    @property
    def stack(self) -> Stack:
        """The side whose attention is asked for."""
        return self.run.model.stacks[self.side]

    def attended(self, settings: Settings, report: OnPart | None = None) -> Iterator[Attended]:
        """Yield the layer that is asked for, or each (--layer all); the last one has the words that are asked for."""
        ready_weights.check_rollout(settings)
        count = len(self.stack.layers)
        number = None if settings.layer == ALL else wanted_layer(settings, count, self.model.name)
        last = count - 1 if number is None else number
        read = self.run, self.side, self.query, self.model
        at = checkpoint_text.predicted_place(*read, settings) if settings.next else None
        if report is not None:
            self.run.report_to(report, last if at is None else None)
        told = self if at is None else self._replace(notes=(*self.notes, *at.notes))  # for all layers
        each = told._rollouts if settings.head == ROLLOUT else told._layers
        for layer, one in each(settings, number):
            # What lies above the layer is left alone otherwise.
            yield self._with_words(one, at) if layer == last and at is not None else one

    def _with_words(self, one: Attended, at: checkpoint_text.Predicted) -> Attended:
        own = (self.run, self.query, self.model, at)
        return one._replace(finish=lambda trace: checkpoint_text.with_next_tokens(one.finish(trace), *own))

    def _layers(self, settings: Settings, number: int | None) -> Iterator[tuple[int, Attended]]:
        for steps in self.layers(number):
            if number in (None, steps.layer):
                layer = steps.layer if number is None else settings.layer
                yield steps.layer, self._attended(steps, replace(settings, layer=layer))

    def _rollouts(self, settings: Settings, number: int | None) -> Iterator[tuple[int, Attended]]:
        """Yield the rollout up to layer `number`, or each; layers below it keep their own mask and temperature."""
        ready_weights.check_one_text(self.asked != "cross", self.model.name)
        below = ready_weights.Rolled()
        for steps in self.layers(number):
            own = None
            if number in (None, steps.layer):
                whole = ready_weights.without_selection(replace(settings, head=MEAN))
                mean = record(self._attended(steps, whole, True))
                rolled = below.through(mean.weights[np.newaxis], mean.mask)
                found = rolled.instead_of(ready_weights.selected(mean, self.query.second), settings)
                formula = ready_weights.rollout_formula(steps.layer)
                yield steps.layer, ready_weights.made_of(mean, found, settings, formula)
                if _is_own(settings) and not mean.condensed:
                    own = np.array([head.weights for head in mean.heads]), mean.mask
            below = below.through(*(own or self.own(steps)))

    def _attended(self, steps: LayerSteps, settings: Settings, is_plain: bool = False) -> Attended:
        """Return a layer of the model, its words or its part of a pair as asked unless it is to be `plain`."""
        is_shaped = ready_weights.joins_or_hides(settings) and not is_plain
        asked = ready_weights.without_selection(settings) if is_shaped else settings
        one = self._as_asked(steps, asked)

        def between_words(trace: Trace) -> Trace:
            return record(ready_weights.between_words(trace, settings, self.query.second))

        def finish(trace: Trace) -> Trace:
            if _is_own(asked) and len(trace.heads) == len(trace.head_names):
                # Layers above need not attend again.
                steps.keep(np.array([[head.output for head in trace.heads]]))
            query, key = self.query, self.key
            notes = tuple(dict.fromkeys((*self.notes, *trace.notes)))
            trace = replace(trace, query_input_ids=query.ids, key_input_ids=key.ids, notes=notes)
            trace = replace(trace, query_segments=query.types or None, key_segments=key.types or None)
            trace = replace(trace, stack_layers=one.layers)
            if not is_shaped:
                keeps = self.keep_weights and not is_plain
                return self._with_weights(trace, steps, one.mask) if keeps else trace
            made = between_words(trace)
            if settings.measure == WEIGHT:
                return made
            norms = between_words(beside.drawn(trace))
            of_heads = {head.name: head.weights for head in (*norms.heads, norms.shown)}
            return beside.beside(made, of_heads, norms.derived)

        return one._replace(finish=finish)

    def _as_asked(self, steps: LayerSteps, settings: Settings) -> Attended:
        """Return a layer's heads under the score and the mask that are asked for, else under the model's own."""
        about, name, notes = steps.ready, self.model.name, list[str]()
        (_, h, n_q, d_k), n_k, score, scale = about.q.shape, about.k.shape[2], settings.score, None
        if score is None:
            score = "dot" if about.scale == 1 and d_k > 1 else "scaled"
            scale = None if isclose(about.scale, scores.scale_of(score, d_k), rel_tol=1e-6) else about.scale
        mask = self.own_mask(steps)
        if settings.mask is not None:
            mask = stated_mask(settings, None, n_q, n_k, name)
            notes += [UNDER_MASK] if steps.layer else []
        if settings.without:
            notes.append(ANEW.format("" if about.sinks is None else " with the sink's share"))
        mask = without_keys(mask, settings, self.query.tokens, self.key.tokens)
        names = tuple(map(str, range(h)))
        shown = shown_head(settings.head, names, has_layers=True)
        wanted = names if settings.every_head or settings.head in (ALL, MEAN) else (shown,)
        heads = tuple(_head(steps, int(head), scale, settings.temperature) for head in wanted)
        query = Side(self.query.tokens)
        key = query if self.key is self.query else Side(self.key.tokens)
        inputs = Inputs(query, key, True, Embedding("given", name), notes=tuple(notes))
        inputs = inputs._replace(has_second_input=steps.kind == "cross")
        layer = Layer(names, shown, heads, Projection(Projected("given", name, layer=steps.layer), ()))
        asked, joining = replace(settings, score=score), partial(self.run.joining, steps)
        return Attended(steps.kind, inputs, layer, asked, mask, len(self.stack.layers), joining=joining)

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
        weights, mask = steps.attended.weights[0].astype(np.float64), self.own_mask(steps)
        return weights, None if mask is None else mask.rows(np.arange(weights.shape[1]))

    def weights(self, steps: LayerSteps, settings: Settings) -> tuple[Array, Bools | None, tuple[str, ...]]:
        """Return all heads' weights (h, n_q, n_k) by the settings' score and mask, the mask, and notes."""
        if _is_own(settings):
            return *self.own(steps), self.notes
        alone = replace(settings, head=ALL, layer=steps.layer, next=0, full=True)
        trace = record(self._attended(steps, alone, True))
        return np.array([head.weights for head in trace.heads]), trace.mask, trace.notes

    def own_mask(self, steps: LayerSteps) -> masks.Mask | None:
        """Return the mask that the model itself has in this layer, by its rule's name where there is one."""
        window, allowed = self.stack.layers[steps.layer].window, steps.ready.mask
        if allowed is None and steps.kind != "masked":
            return None
        n_q, n_k = steps.ready.q.shape[2], steps.ready.k.shape[2]
        if steps.kind == "masked" and window is None:
            return masks.named("causal", n_q, n_k)
        if steps.kind == "self":
            return masks.named(f"window:{window}", n_q, n_k)
        assert window is not None
        array = np.tri(n_q, n_k, dtype=np.bool_) & ~np.tri(n_q, n_k, -window, dtype=np.bool_)
        return masks.Mask(f"causal, the last {window} keys", n_q, n_k, array)

    def _with_weights(self, trace: Trace, steps: LayerSteps, mask: masks.Mask | None) -> Trace:
        """Return the trace with X, its heads' weights and biases, W_o, and the layer's output (n_q, d)."""
        stack, words = self.stack, self.stack.words
        kept = self.run.weights_of(steps, [int(head.name) for head in trace.heads])
        norms = dict(enumerate(kept.qk_norms))
        each = ((head, int(head.name)) for head in trace.heads)
        heads = tuple(replace(head, W=kept.heads[h], qk_norm=norms.get(h)) for head, h in each)
        X, context = (M[0].astype(trace.settings.dtype) for M in (steps.projected, steps.context))
        is_there = {"token": True, "place": words.positions or words.sinusoids, "segment": words.types}
        kv_heads = stack.kv_heads if stack.kv_heads < stack.heads else None
        is_normed = steps.projected is not steps.x
        about = trace.projection._replace(layout="in-out", x_is_normed=is_normed, kv_heads=kv_heads)
        shown = next((head for head in heads if head.name == trace.shown.name), trace.shown)
        trace = replace(trace, heads=heads, shown=shown, projection=about, W_o=kept.W_o, b_o=kept.b_o)
        x_key, dim = X if steps.context is steps.projected else context, X.shape[1]
        parts = tuple(f"its {part}" for part, is_used in is_there.items() if is_used)
        embedding = trace.embedding._replace(dim=dim)
        trace = replace(trace, x_query=X, x_key=x_key, x_parts=parts, embedding=embedding)
        return replace(trace, layer_output=self._joined(trace, steps, mask, kept))

    def _joined(
        self, trace: Trace, steps: LayerSteps, mask: masks.Mask | None, kept: reader.LayerWeights
    ) -> Array | None:
        """Return what W_o makes of all heads of the layer (n_q, d), which attend anew if not as the model does."""
        settings = trace.settings
        is_dot = scores.score_named(trace.score).of is scores.dot
        is_scaled = is_dot and isclose(trace.scale, steps.ready.scale, rel_tol=1e-6)
        if is_scaled and _is_own(replace(settings, score=None)):
            made: Array = self.run.joined(steps)[0]
            return made
        if kept.W_o is None:
            return None
        heads = (_head(steps, h, trace.own_scale, trace.temperature) for h in range(self.stack.heads))
        work = attend.Work(tuple(heads), mask, trace.score, trace.temperature, settings.threads)
        outputs = [output_of(work.head_input(head), work.threads, None) for head in work.heads]
        left = self.run.changes.left(steps, np.stack(outputs))
        return attention.project(np.concatenate(left, axis=1), kept.W_o, kept.b_o)


def read_texts(kind: str, text: str, context: str | None, settings: Settings, model: OpenModel) -> Reading:
    """Let the model read a text, and a `context` where it has an encoder and a decoder; nothing is computed yet."""
    checkpoint, encoder = model.checkpoint, model.encoder
    about = checkpoint.model
    side, asked = checkpoint_text.side_of(about, kind, context)
    if settings.pair is not None and side == "decoder":
        hint = "Leave it out, or give an encoder, such as BERT."
        raise UsageError(f"A decoder (of the type {about.family}) reads no pairs of texts.", hint, "--pair")
    cut = cut_of_model(settings, model, side, asked)
    source = target = read = checkpoint_text.tokens_of(encoder, text, settings, settings.pair)
    if side == "decoder" and about.encoder is not None:
        assert context is not None  # side_of has seen to it
        source = checkpoint_text.tokens_of(encoder, context, settings)
        target = checkpoint_text.shifted(encoder, target, about.start)
        run = checkpoint.run(texts([source.ids]), texts([target.ids]), cut=cut)
    else:
        types = np.array([source.types]) if source.types else None
        run = checkpoint.run(texts([source.ids])._replace(types=types), cut=cut)
    both = (read, source) if source is not read else (read,)
    notes = [*about.notes, *knock_out_notes(settings), *checkpoint_text.unknown_words(both, model.name)]
    notes += checkpoint_text.special_words(both, about.stacks[side].words.types is not None)
    if read.second is not None:
        where = f"text a is tokens 0 to {read.second - 1}, b {read.second} to {len(read.ids) - 1}"
        notes.append(f"A pair in one sequence: {where}.")
    if target is not read:
        begins = f"starting with {visible(target.tokens[0])}: each row is the position that predicts the next token"
        notes.append(f"The decoder reads the text shifted right by one, {begins}.")
    key = source if asked == "cross" else target
    return Reading(run, side, asked, target, key, model, notes=tuple(notes))


def _is_own(settings: Settings) -> bool:
    return settings.temperature == 1 and not (settings.mask or settings.score or settings.without)


def _head(steps: LayerSteps, h: int, scale: float | None, temperature: float) -> Head:
    """Return head h of the layer, ready to attend; q and k are as before the rotation where there is one."""
    about, before = steps.ready, steps.before_rotation
    q, k = (about.q, about.k) if before is None else (before.q, before.k)
    # What the model adds for distances is part of its scores, so the temperature divides it too.
    terms = np.stack([term[0, h] for term in about.terms]) / temperature if len(about.terms) > 1 else None
    slope, sink = (None if M is None else float(M[h]) for M in (about.slopes, about.sinks))
    bias = None if about.position is None else about.position[0, h] / temperature
    rotated = None if before is None else QK(*before.rotated(h))
    own = Head(str(h), None, q[0, h], k[0, h], about.v[0, h], bias, scale=scale, softcap=about.softcap)
    return replace(own, sink=sink, slope=slope, position_terms=terms, rotated=rotated)


def can_be_grouped(settings: Settings, keep_weights: bool) -> bool:
    """Tell whether one layer is all that is asked for."""
    return settings.layer != ALL and settings.head != ROLLOUT and not settings.next and not keep_weights


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
    """Return the attention of one of the texts; what all texts share has one entry."""

    def part(M: NDArray[Number]) -> NDArray[Number]:
        return M[at : at + 1] if len(M) > 1 else M

    ready, before, mask = steps.ready, steps.before_rotation, steps.ready.mask
    if mask is not None and mask.real is not None:
        mask = mask._replace(real=part(mask.real))
    ready = ready._replace(q=part(ready.q), k=part(ready.k), v=part(ready.v), mask=mask)
    if ready.position is not None:
        ready = ready._replace(position=part(ready.position), terms=tuple(map(part, ready.terms)))
    if before is not None:
        before = before._replace(q=part(before.q), k=part(before.k), places=part(before.places))
    x, projected, context = part(steps.x), part(steps.projected), part(steps.context)
    return replace(steps, x=x, projected=projected, context=context, ready=ready, before_rotation=before)
