"""A checkpoint computed layer by layer: nothing is read of a layer before it is asked for.

With it, the way of one word's vector through the layers to its logits, for what each part adds to them.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from functools import partial
from time import monotonic

import numpy as np

from attn_cli.errors import InputError, UsageError, count, refuse, refuse_input, visible
from attn_cli.io.progress import Progress
from attn_cli.io.types import Array, NamedTuple, OnPart
from attn_cli.models.checkpoints import Layer, Model, blocks, families, gguf, gguf_models
from attn_cli.models.checkpoints.config import read_affine, read_config
from attn_cli.models.checkpoints.layers import Changes, Kept, Layers, LayerSteps, Texts
from attn_cli.models.checkpoints.reader import LayerWeights, Reader, check_finite, product, read_layer_weights
from attn_cli.models.checkpoints.weights import Weights
from attn_cli.models.logit_parts import Cut, Joining, Part, Trail

SHORT = 0.5  # seconds that are not worth a report
COSTLY = 1 << 28  # weights of all heads and layers, from which on their number is told first


def texts(ids: Sequence[Sequence[int]], pad: int = 0, side: str = "right") -> Texts:
    """Return lists of ids as one batch, the shorter ones padded on the `right` or the `left`."""
    refuse_input(not ids or not all(ids), "There are no tokens to attend to.", "Give at least one token.")
    shape = len(ids), max(map(len, ids))
    made, real = np.full(shape, pad), np.zeros(shape, bool)
    for n, one in enumerate(ids):
        own = slice(len(one)) if side == "right" else slice(shape[1] - len(one), None)
        made[n, own], real[n, own] = one, True
    return Texts(made, real)


class Checkpoint:
    """A model in a local folder. Use it in a `with` statement: its files stay open.

    `is_strict` refuses a config.json with keys that attn does not know; else `model.notes` tell of them.
    """

    def __init__(self, folder: str, is_strict: bool = False) -> None:
        self.gguf = gguf.open_gguf(folder) if gguf.is_gguf(folder) else None
        if self.gguf is None:
            config = read_config(folder)
            self.model, affine = families.describe(config, is_strict), read_affine(config)
            self.weights = Weights(folder, self.model.prefixes, self.model.unread, affine)
            return
        try:
            self.model, orders = gguf_models.describe_gguf(self.gguf)
            self.weights = Weights(folder, (), self.model.unread, None, self.gguf, orders)
        except BaseException:
            self.gguf.file.close()
            raise

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(self, *raised: object) -> None:
        self.weights.close()

    def run(
        self, source: Texts, target: Texts | None = None, *, keeps: bool = False, cut: Cut | None = None
    ) -> Run:
        """Return a run over these texts; one that `keeps` keys and values can read on. A `cut` knocks out heads.

        A model with an encoder and a decoder takes a `target` for the decoder; without one, the encoder alone runs.
        """
        if target is not None and len(self.model.stacks) < 2:
            raise UsageError(f"{visible(self.weights.folder)} ({self.model.family}) takes one text.")
        if target is not None and len(target.ids) != len(source.ids):
            raise UsageError(f"There are {len(source.ids)} texts for {len(target.ids)} targets.")
        given = dict(zip(self.model.stacks, [source] if target is None else [source, target], strict=False))
        return Run(self.model, self.weights, given, Kept() if keeps else None, Changes(cut))


class Run:
    """One run of a checkpoint: `steps` yields each attention as it is computed, `logits` is what comes of all."""

    def __init__(
        self, model: Model, weights: Weights, given: dict[str, Texts], kept: Kept | None, changes: Changes
    ) -> None:
        self.model, self.weights, self._name = model, weights, visible(weights.folder)
        self._given, self._kept, self.changes = given, kept, changes  # of each side, its texts
        self._encoded: dict[str, Layers] = {}  # what a decoder reads, when all is computed
        self._last: Layers  # the last side's layers, when all are computed
        self._steps = self._all_steps()
        self._report: OnPart | None = None

    @property
    def lengths(self) -> tuple[int, ...]:
        """How many tokens each side reads."""
        return tuple(one.ids.shape[1] for one in self._given.values())

    def beside(self, others: Sequence[Run]) -> Run:
        """Return a run over the texts of this one and of others of the same model and lengths."""
        given = {}
        for side in self._given:
            own = [run._given[side] for run in (self, *others)]
            real = [one.ids >= 0 if one.real is None else one.real for one in own]
            types = [one.types for one in own if one.types is not None]  # of all or of none
            ids = np.concatenate([one.ids for one in own])
            given[side] = Texts(ids, np.concatenate(real), np.concatenate(types) if types else None)
        return Run(self.model, self.weights, given, None, self.changes)

    def changed(self, changes: Changes) -> Run:
        """Return a run over the same texts, whose last side is computed with changes; what its encoder made is kept."""
        made = Run(self.model, self.weights, self._given, None, changes)
        made._encoded = self._encoded  # computed by whichever run is first
        return made

    def with_step(self, found: LayerSteps) -> Run:
        """Return the run as one that has computed this attention, and computes no other."""
        made = self.changed(self.changes)
        made._steps = (one for one in (found,))
        return made

    def read_on(self, all_ids: Sequence[int]) -> None:
        """Let the last side of a run that keeps keys and values read all these tokens of one text, which it began.

        `steps` then yields the attention of the new ones. Where a longer text rotates otherwise (LongRoPE), all are.
        """
        assert self._kept is not None
        side, stack = list(self.model.stacks.items())[-1]
        rotaries = (one.rotary for one in stack.layers if one.rotary and one.rotary.long_divisors)
        if any(self._kept.count <= rotary.length < len(all_ids) for rotary in rotaries):
            self._kept = Kept()
        self._given = {side: Texts(np.array([all_ids[self._kept.count :]]))}
        self._steps = self._all_steps()

    def report_to(self, report: OnPart, last: int | None) -> None:
        """Report the part that is done of all layers, or of those up to layer `last` of the last side."""
        counts = [len(self.model.stacks[side].layers) for side in self._given]
        if last is not None:
            counts[-1] = last + 1
        sizes = zip(self._given, counts, self.lengths, strict=True)
        cost = sum(self.model.stacks[side].heads * layers * n**2 for side, layers, n in sizes)
        if cost > COSTLY and isinstance(report, Progress):
            less = " --layer N stops at N." if counts[-1] > 1 else ""
            size, where = f"{cost / 10**6:,.0f} million weights", count(sum(counts), "layer", "layers")
            report.tell(f"{max(self.lengths):,} tokens make {size} in {where}.{less}")
        began = monotonic()
        self._report = lambda done: report(done / sum(counts)) if monotonic() - began > SHORT else None

    def steps(self) -> Iterator[LayerSteps]:
        """Yield each layer's attention in order, lazily: each is computed when the caller asks for it."""
        return self._steps

    def layer(self, layer: int, kind: str | None = None, side: str | None = None) -> LayerSteps:
        """Return one attention: what lies above it is neither read nor computed."""
        for found in self._steps:
            if found.layer == layer and kind in (None, found.kind) and side in (None, found.side):
                return found
        counts = ", ".join(f"{len(self.model.stacks[name].layers)} {name}" for name in self._given)
        said = f"There is no {' '.join(filter(None, (side, kind, 'attention')))} in a layer {layer} of {self._name}."
        raise UsageError(said, f"It has {counts} layers, from 0.", "--layer")

    def weights_of(self, steps: LayerSteps, heads: Sequence[int]) -> LayerWeights:
        """Return what these heads of a layer project with: nothing keeps it while the layer is computed."""
        reader, layer = self._read(steps)
        return read_layer_weights(reader, layer, steps.prefix, heads)

    def _read(self, steps: LayerSteps) -> tuple[Reader, Layer]:
        stack = self.model.stacks[steps.side]
        return Reader(self.weights, stack), stack.layers[steps.layer]

    @np.errstate(all="ignore")
    def joined(self, steps: LayerSteps) -> Array:
        """Return what W_o makes of all heads of a layer, (b, n_q, d)."""
        reader, layer = self._read(steps)
        made = reader.joined(layer, steps.prefix, self.changes.left(steps, steps.output))
        check_finite(steps.where, made)
        return made

    def joining(self, steps: LayerSteps) -> Joining:
        """Return what follows a layer's heads for its first text, in float64."""
        reader, layer = self._read(steps)
        stack = reader.stack
        frozen = {role: partial(reader.frozen, layer.place + name) for role, name in layer.names.items()}
        W_o, b_o = reader.linear_weights(layer.tensor(f"{steps.prefix}o"), stack.heads * stack.d_k, stack.d)
        W_o = W_o.astype(np.float64)
        if steps.kind == "cross":
            return Joining(W_o, b_o)
        residual = (steps.projected if stack.adds_to_norm else steps.x)[0].astype(np.float64)
        outer = None if stack.pre_norm else frozen["norm_1"]
        return Joining(W_o, b_o, residual, frozen.get("after_1"), outer, stack.added)

    def close(self) -> None:
        """Give up what is not computed yet, in the thread that has computed the rest."""
        self._steps.close()

    def has_head(self) -> bool:
        """Tell whether the files hold what makes logits: a language model's head."""
        head, find = self.model.logits, self.weights.find
        return find(*head.tables) is not None and (not head.dense or find(f"{head.dense}.weight") is not None)

    def output(self) -> Array:
        """Return what the last side makes of its text, (b, n, d): what is left of the layers is computed."""
        for _ in self._steps:
            pass
        return self._last.x

    def stream(self) -> Array:
        """Return what the last side's layers add up to, (b, n, d), before the last norm, where there is one."""
        self.output()
        return self._last.stream

    def logits(self, place: int | None = None) -> Array:
        """Return the score of each word of the vocabulary at each place, or at one, -1 the last: (b, n, vocabulary)."""
        self.check_head()
        x = self.output()
        return self.scores(x if place is None else x[:, place:][:, :1])

    @property
    def vocabulary(self) -> int:
        """How many words have a score, where there is a head."""
        table = self.weights.find(*self.model.logits.tables)
        return 0 if table is None else self.weights.stored(table, None, None).entry.shape[0]

    def check_head(self) -> None:
        """Raise UsageError if the side that makes logits has no text, InputError if the files hold no head for it."""
        said = "is an encoder-decoder model: to predict words, give a target text for its decoder."
        refuse(list(self.model.stacks)[-1] not in self._given, f"{self._name} {said}")
        if not self.has_head():
            said = f"{self._name} has no language-model head: the checkpoint holds only its layers."
            raise InputError(said, "Ask for attention, or use the checkpoint of a language model.")

    @property
    def reader(self) -> Reader:
        """What reads and applies the last side's tensors."""
        return Reader(self.weights, [*self.model.stacks.values()][-1])

    @np.errstate(all="ignore")
    def last_normed(self, x: Array) -> Array:
        """Return a stream between layers, (b, n, d), as the last norm leaves it; where there is none, the same."""
        stack = self.model.stacks[[*self._given][-1]]
        return Reader(self.weights, stack).norm(stack.last_norm, x) if stack.last_norm else x

    @np.errstate(all="ignore")  # what is not finite is refused by whoever reads the scores
    def scores(self, x: Array, *, is_capped: bool = True) -> Array:
        """Return the score of each word of the vocabulary for a normed stream, (b, n, d): (b, n, vocabulary).

        Without `is_capped`, the scores before the cap that some models put on them (Gemma 2).
        """
        reader, head, table = self.reader, self.model.logits, self.weights.find(*self.model.logits.tables)
        assert table is not None  # check_head
        if head.dense:
            x = reader.linear(head.dense, x, reader.stack.words.width, blocks.ACTIVATIONS[head.activation])
        if head.norm:
            x = reader.norm(head.norm, x)
        if head.project:
            x = reader.linear(head.project, x, reader.stack.words.width)
        x = x * np.float32(head.scale)
        d = x.shape[-1]
        scores = product(x.reshape(-1, d), self.weights.matrix(table, None, d))
        found = scores.reshape(*x.shape[:-1], scores.shape[-1])
        if (bias := self.weights.find(*head.bias)) is not None:
            found += self.weights.read(bias, *head.bias_lead, found.shape[-1])
        if is_capped and head.softcap is not None:
            found = np.float32(head.softcap) * np.tanh(found / np.float32(head.softcap))
        return found

    def _all_steps(self) -> Generator[LayerSteps, None, None]:
        first, done = next(iter(self._given.values())), 0
        for side, given in self._given.items():
            is_last, stack = side == [*self._given][-1], self.model.stacks[side]
            if side in self._encoded and not is_last:
                continue
            context = self._encoded["encoder"].x if self._encoded else None
            kept = self._kept if side == [*self.model.stacks][-1] else None
            changes = self.changes if is_last else Changes(self.changes.cut)
            layers = Layers(side, stack, self.weights, given, context, first.real, kept, changes)
            for found in layers.steps():
                if self._report is not None:
                    self._report(done + found.layer)
                yield found
            done += len(stack.layers)
            if is_last:
                self._last = layers
            else:
                self._encoded[side] = layers


class Way(NamedTuple):
    """The way of the vector at one place, through the layers and what stands between them and the output table."""

    trail: Trail
    run: Run

    def parts(self, id_: int, against: int | None = None) -> list[Part]:
        """Return what each part adds to the logit of a token, or to its difference from another's, before a softcap."""
        weights, head = self.run.weights, self.run.model.logits
        table, bias = weights.find(*head.tables), weights.find(*head.bias)
        assert table is not None  # the run has a head
        ids = [id_] if against is None else [id_, against]
        rows = weights.rows(table, np.array(ids), None, "token").astype(np.float64)
        signs = np.array([1.0, -1.0][: len(ids)])
        parts = self.trail.parts(signs @ rows * head.scale)
        if bias is not None:
            numbers = weights.read(bias, *head.bias_lead, None).reshape(-1)[ids]
            parts.append(Part("output bias", float(signs @ numbers)))
        return parts


def way_of(run: Run, place: int) -> Way:
    """Return the way of the vector at a place of a run's one text; what is left of the run is computed."""
    run = run.changed(Changes(trail=(trail := Trail(place))))
    x, head, reader = trail.row(run.output()), run.model.logits, run.reader
    width = reader.stack.words.width
    if head.dense:
        W, b = reader.linear_weights(head.dense, len(x), width)
        made = x @ W if b is None else x @ W + b
        x = blocks.ACTIVATIONS[head.activation](made[None].astype(np.float32))[0].astype(np.float64)
        trail.mapped(W, b, "output layer bias")
        trail.mapped(np.divide(x, made, out=np.zeros_like(made), where=made != 0), None, "output layer bias")
    if head.norm:
        trail.normed(frozen := reader.frozen(head.norm, x), "final norm bias")
        x = frozen.forward(x)
    if head.project:
        trail.mapped(*reader.linear_weights(head.project, len(x), width), "output layer bias")
    return Way(trail, run)
