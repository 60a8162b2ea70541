"""A stack's layers over a batch of texts: each part is read when its turn comes, applied, and let go."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property, partial

import numpy as np

from attn_cli.errors import InputError, visible
from attn_cli.io.types import Array, Bools, Ints, NamedTuple, dataclass
from attn_cli.models.checkpoints import Disentangled, Layer, Slopes, Stack, blocks
from attn_cli.models.checkpoints.reader import Reader, check_finite, network
from attn_cli.models.checkpoints.weights import Weights
from attn_cli.models.logit_parts import MLP, Cut, FrozenNorm, Heads, Trail

MOST_SCORES = 1 << 27  # of a layer: half a gigabyte, and every step takes as much again


@dataclass(frozen=True, eq=False)
class LayerSteps:
    """One attention of one layer, of all texts (b) and heads (h); it is computed when it is asked for."""

    side: str  # encoder or decoder
    layer: int  # 0 is nearest the words
    kind: str  # self, masked (a causal mask), or cross
    x: Array  # (b, n_q, d), the layer's input
    projected: Array  # (b, n_q, d), what the queries are made of: x, or its norm
    context: Array  # (b, n_k, d), what keys and values are made of: the same, or the encoder's output
    ready: blocks.Ready
    before_rotation: blocks.BeforeRotation | None  # q and k before they were turned, where they were
    where: str  # the layer, as an error names it

    @property
    def prefix(self) -> str:
        """What the roles of its tensors begin with."""
        return "cross_" if self.kind == "cross" else ""

    @cached_property
    def attended(self) -> blocks.Attended:
        """Every head's weights and output; raises InputError if they are not numbers, or too many to hold."""
        _check_room(self.ready.q[..., 0].size, self.ready.k.shape[2], self.ready.q.shape[2])
        with np.errstate(all="ignore"):
            found = blocks.attend(self.ready)
        check_finite(self.where, found.output)  # it is not where a weight is not
        return found

    def keep(self, output: Array) -> None:
        """Take the heads' outputs (b, h, n_q, d_v) that somebody else has computed of what is ready here."""
        self.__dict__["output"] = output.astype(np.float32)

    @cached_property
    def output(self) -> Array:
        """Every head's output, (b, h, n_q, d_v); in a long text its weights are made some rows at a time."""
        if "attended" in self.__dict__:
            return self.attended.output
        with np.errstate(all="ignore"):
            found = blocks.output_of(self.ready)
        check_finite(self.where, found)
        return found


def _check_room(rows: int, n_k: int, n_q: int) -> None:
    """Raise InputError if the scores of so many rows, of all texts and heads, cannot be held at once."""
    if (scores := rows * n_k) > MOST_SCORES:
        said = f"{n_q:,} tokens make {scores:,} scores a layer, more than {MOST_SCORES:,}."
        raise InputError(said, f"Give at most {math.isqrt(MOST_SCORES // (rows // n_q)):,} tokens.")


class Texts(NamedTuple):
    """Token ids (b, n), and which of them are not padding; `types` (b, n) tells a first text from a second."""

    ids: Ints
    real: Bools | None = None
    types: Ints | None = None


class Kept:
    """The keys and values of one stack's tokens so far: a further token is then computed alone."""

    def __init__(self) -> None:
        self.count = 0  # of the tokens so far
        self.of_context: dict[int, list[Array]] = {}  # of each layer's cross-attention
        self._of_tokens: dict[int, list[Array]] = {}  # of each layer, (b, kv heads, count, d_k)

    def joined(self, layer: int, *new: Array) -> list[Array]:
        """Return a layer's keys and values so far, (b, kv heads, n_k, d_k), with new ones at the end."""
        before = self._of_tokens.get(layer, [M[:, :, :0] for M in new])
        self._of_tokens[layer] = [np.concatenate(both, axis=2) for both in zip(before, new, strict=True)]
        return self._of_tokens[layer]


class Changes(NamedTuple):
    """What a pass is computed with: other inputs, heads that are knocked out, and notes of one word's way."""

    cut: Cut | None = None
    trail: Trail | None = None
    x: Array | None = None  # (b, n, d) in place of the input of layer `first`
    first: int = 0
    begun: LayerSteps | None = None  # an attention whose outputs are kept already; the pass goes on after it

    def left(self, steps: LayerSteps, output: Array) -> Array:
        """Return what the heads of an attention give (..., h, n, d_v), but for those that are knocked out."""
        if (cut := self.cut) is None or (cut.side, cut.kind) != (steps.side, steps.kind):
            return output
        return cut.of(steps.layer, output)


# The norms beside attention of each kind, and beside a network: of what it takes, or of the sum; and of what is added
BESIDE = {"mlp": ("norm_2", "after_2"), "cross": ("cross_norm", "after_cross")}
BESIDE |= dict.fromkeys(("self", "masked"), ("norm_1", "after_1"))


class Layers:
    """A stack's layers over one batch; `x` is what the layers so far have made, (b, n, d), at last normed.

    `stream` is the same without the last norm, when all are computed. With `kept`, the batch goes on where the tokens
    in it ended.
    """

    def __init__(
        self, side: str, stack: Stack, weights: Weights, given: Texts, context: Array | None,
        real_context: Bools | None, kept: Kept | None = None, changes: Changes | None = None,
    ) -> None:  # fmt: skip
        self.side, self.stack, self.given, self.kept = side, stack, given, kept
        self.context, self.real_context = context, real_context
        self.changes = changes = changes or Changes()
        self.trail, self.reader = changes.trail, Reader(weights, stack)
        self.held: LayerSteps | None = None
        b, n = given.ids.shape
        self.before = 0 if kept is None else kept.count
        counted = np.broadcast_to(np.arange(self.before, self.before + n), (b, n))
        if stack.skips_padding_positions and given.real is not None:
            counted = np.where(given.real, np.cumsum(given.real, axis=1), 0) - 1
        self.places = counted
        n_k = max(self.before + n, 0 if context is None else context.shape[1])
        self.slope: Array | None = None
        if stack.relative not in (None, Slopes()) or stack.disentangled is not None:  # a number for each pair
            _check_room(b * stack.heads * n, n_k, n)
        with np.errstate(all="ignore"):  # what is not finite is refused where it attends
            self.x = self._embedded() if changes.x is None else changes.x

    def steps(self) -> Iterator[LayerSteps]:
        """Yield each attention of each layer."""
        made = self._steps()
        quiet_next = np.errstate(all="ignore")(next)  # not while others compute
        while (found := quiet_next(made, None)) is not None:
            yield found

    def _steps(self) -> Iterator[LayerSteps]:
        position, begun = self._relative(), self.changes.begun
        for n in range(self.changes.first if begun is None else begun.layer, len(self.stack.layers)):
            yield from self._layer(n, position, begun)
            begun = None
        self.stream, self.held = self.x, None
        if self.stack.last_norm:
            self.x = self._norm(self.stack.last_norm, self.x, "final norm bias")
        if self.kept is not None:
            self.kept.count += self.x.shape[1]

    def _layer(self, n: int, position: Array | None, begun: LayerSteps | None) -> Iterator[LayerSteps]:
        layer, x = self.stack.layers[n], self.x if begun is None else begun.x
        kinds = ["cross"] if self.context is not None and "cross_q" in layer.names else []
        if begun is None or begun.kind != "cross":
            kinds.insert(0, "masked" if self.stack.causal else "self")
        for kind in kinds:
            # The layer before is let go when this one has attended: freed sooner, its pages would be taken anew.
            made = self.held = begun or self._attention(layer, n, kind, x, position)
            begun = None
            yield made  # whose heads are joined only for those who want what comes next
            if self.stack.parallel:
                self.x = x + self._joined(layer, made) + self._note("mlp", self._network(n, x), n)
                return
            x = self._added(layer, x, made, n)
        self.x = self._added(layer, x, self._network(n, x), n)

    def _embedded(self) -> Array:
        words, weights, stack = self.stack.words, self.reader.weights, self.stack
        places = np.maximum(self.places + words.offset, 0)
        table = weights.find(*words.tables) or words.tables[0]
        x = weights.rows(table, self.given.ids, words.width, "token") * np.float32(words.scale)
        self._note("embedding", x)
        if words.project and words.project_first:
            x = self._narrow(words.project, x)
        if words.positions and (most := self.reader.places()) is not None:
            if (n := int(self.places.max()) + 1) > most:
                said = f"The text has {n:,} tokens; {visible(weights.folder)} reads at most {most:,}."
                raise InputError(said, "Give a part of it.")
            x = x + self._note("position", weights.rows(words.positions, places, x.shape[-1], "place"))
        elif words.sinusoids:
            waves = blocks.sinusoids(int(places.max()) + 1, x.shape[2], words.sinusoids)
            x = x + self._note("position", waves[places])
        if words.types and weights.find(words.types):
            types = self.given.types
            if types is None or weights.stored(words.types, None, words.width).entry.shape[0] == 1:
                types = np.zeros_like(self.given.ids)  # RoBERTa has one segment, whatever its template says
            x = x + self._note("segment", weights.rows(words.types, types, words.width, "token type"))
        if words.norm:
            x = self._norm(words.norm, x)
        if words.project and not words.project_first:
            x = self._narrow(words.project, x)
        if not stack.in_out:  # numbers of one kind side by side: so W (made, in) is multiplied most quickly
            x = np.ascontiguousarray(x.reshape(-1, x.shape[-1]).T).T.reshape(x.shape)
        return x

    def _relative(self) -> Array | None:
        """Return what is added to the scores for the distance, (1, h, n_q, n_k)."""
        relative, stack, n = self.stack.relative, self.stack, self.x.shape[1]
        if relative is None:
            return None
        if isinstance(relative, Slopes):
            slopes, scale = blocks.slopes(stack.heads), relative.scale
            slopes = slopes if scale is None else blocks.as_bfloat16(slopes)
            self.slope = slopes * np.float32(scale or 1)
            return blocks.by_slopes(slopes, n, self.before + n, scale)
        name, buckets, farthest = relative
        table = self.reader.weights.read(name, buckets, stack.heads)
        found = blocks.relative_position_buckets(n, self.before + n, buckets, farthest, not stack.causal)
        return np.ascontiguousarray(table[found].transpose(2, 0, 1)[None])

    def _disentangled(self, layer: Layer, distances: Disentangled, q: Array, k: Array) -> list[Array]:
        """Return what is added to the scores, each (b, h, n, n): q_i by the distance's key, and k_j by its query."""
        stack, n, reach = self.stack, q.shape[2], distances.reach
        away = np.arange(n)[:, None] - np.arange(n)
        if distances.shares:
            away = blocks.log_buckets(away, reach, distances.farthest)
        rows = np.clip(away + reach, 0, 2 * reach - 1)
        first = int(rows.min())
        stored = self.reader.weights.stored(distances.table, 2 * reach, stack.d)
        vectors = stored.rows(first, int(rows.max()) - first + 1)
        if distances.norm is not None:
            vectors = self.reader.norm(distances.norm, vectors)
        found = list[Array]()
        for role, x, at in (("place_k", q, rows - first), ("place_q", k, (rows - first).T)):
            if role in layer.names:
                made = self.reader.role(layer, role, vectors, stack.heads * stack.d_k)
                by_head = made.reshape(len(vectors), stack.heads, stack.d_k).transpose(1, 2, 0)
                term = np.take_along_axis(x @ by_head, at[None, None], axis=-1) * np.float32(layer.scale)
                found.append(term if role == "place_k" else term.swapaxes(-1, -2))
        return found

    def _attention(self, layer: Layer, n: int, kind: str, x: Array, position: Array | None) -> LayerSteps:
        is_cross = kind == "cross"
        prefix, position = ("cross_", None) if is_cross else ("", position)
        projected = self._before(layer, BESIDE[kind][0], x)
        context = self.context if is_cross and self.context is not None else projected
        held = self.kept.of_context.get(n, []) if self.kept is not None and is_cross else []
        q, k, v = self._projections(layer, prefix, projected, None if held else context) + held
        before_rotation, terms, sinks = None, list[Array](), None
        if layer.rotary and not is_cross:
            before_rotation = blocks.BeforeRotation(q, self._shared(k), layer.rotary, self.places)
            q, k = layer.rotary.rotate(q, self.places), layer.rotary.rotate(k, self.places)
        if self.stack.disentangled is not None:
            terms = self._disentangled(layer, self.stack.disentangled, q, k)
            position = sum(terms[1:], terms[0]) if terms else None
        where = f"{visible(self.reader.weights.folder)}, {self.side} layer {n}"
        check_finite(where, q, k, v)
        if self.kept is not None and is_cross:
            self.kept.of_context[n] = [k, v]
        elif self.kept is not None:
            k, v = self.kept.joined(n, k, v)
            before_rotation = None  # of those before, it is not kept
        k, v = self._shared(k), self._shared(v)
        real = self.real_context if is_cross else self.given.real
        causal, window = (False, None) if is_cross else (self.stack.causal, layer.window)
        mask = blocks.mask_of(real, q.shape[2], k.shape[2], causal, window)
        if "sinks" in layer.names:
            sinks = self.reader.weights.read(f"{layer.tensor('sinks')}.weight", self.stack.heads)
            check_finite(where, sinks)
        ready = blocks.Ready(
            q, k, v, layer.scale, position, self.stack.softcap, mask, (*terms,), self.slope, sinks
        )
        return LayerSteps(self.side, n, kind, x, projected, context, ready, before_rotation, where)

    def _shared(self, M: Array) -> Array:
        """Return keys or values (b, kv heads, n_k, ...) with those that several heads share repeated for each."""
        shared = self.stack.heads // self.stack.kv_heads
        return np.repeat(M, shared, axis=1) if shared > 1 else M

    def _projections(self, layer: Layer, prefix: str, x: Array, context: Array | None) -> list[Array]:
        """Return the queries (b, h, n_q, d_k), and the keys and values (b, kv heads, n_k, d_k) of a context."""
        stack, fused = self.stack, "qkv" in layer.names
        if fused:
            width = (stack.heads + 2 * stack.kv_heads) * stack.d_k
            made = dict.fromkeys("qkv", self.reader.role(layer, "qkv", x, width))
        else:
            made = {"q": self.reader.role(layer, f"{prefix}q", x, stack.heads * stack.d_k)}
            if context is not None:
                width = stack.kv_heads * stack.d_k
                made |= {role: self.reader.role(layer, prefix + role, context, width) for role in "kv"}
        parts = {role: self.reader.by_head(M, role, fused) for role, M in made.items()}
        for role, M in parts.items():
            if f"{role}_bias" in layer.names:
                bias = self.reader.weights.read(layer.tensor(f"{role}_bias"), M[0, 0].size)
                parts[role] = M + bias.reshape(M.shape[2:])
            if f"{role}_norm" in layer.names:
                parts[role] = self._normed_heads(layer, f"{role}_norm", M)
        return [M.transpose(0, 2, 1, 3) for M in parts.values()]

    def _normed_heads(self, layer: Layer, role: str, x: Array) -> Array:
        """Return queries or keys (b, n, h, d_k) normed."""
        if self.stack.qk_norm == "all":
            return self._normed(layer, role, x.reshape(*x.shape[:2], -1)).reshape(x.shape)
        return self._normed(layer, role, x, *x.shape[2 if self.stack.qk_norm == "each" else 3 :])

    def _before(self, layer: Layer, norm: str, x: Array) -> Array:
        return self._normed(layer, norm, x) if self.stack.pre_norm and norm in layer.names else x

    def _added(self, layer: Layer, x: Array, given: LayerSteps | Array, n: int) -> Array:
        """Return the sum of x and of what heads, or a network, in layer `n` made of it."""
        norm, after = BESIDE[given.kind if isinstance(given, LayerSteps) else "mlp"]
        if self.stack.adds_to_norm:
            x = self._norm(layer.tensor(norm), x, layer=n)
        if isinstance(given, LayerSteps):
            made = self._joined(layer, given, after)
        else:
            made = self._note("mlp", given, n, self._frozen(layer, after, given))
        if after in layer.names:
            made = self._normed(layer, after, made)
        x = x + (made if self.stack.added == 1 else made * np.float32(self.stack.added))
        return x if self.stack.pre_norm else self._norm(layer.tensor(norm), x, layer=n)

    def _joined(self, layer: Layer, made: LayerSteps, after: str = "") -> Array:
        """Return what W_o makes of the heads' outputs, but for those that are knocked out."""
        output = self.changes.left(made, made.output)
        joined = self.reader.joined(layer, made.prefix, output)
        if (trail := self.trail) is not None:
            row = made.ready.part(slice(trail.place, trail.place + 1))
            weights, name = blocks.attend(row).weights[0, :, 0], layer.tensor(made.prefix + "o")
            width = weights.shape[0] * output.shape[3]
            joining = partial(self.reader.linear_weights, name, width, self.stack.d)
            # Once for the heads that share them, and without all that they are parts of.
            v = row.v[0, :: self.stack.heads // self.stack.kv_heads].copy()
            heads = Heads(made.layer, made.kind, output[0, :, trail.place].copy(), weights, v, joining)
            scale = 1.0 if self.stack.parallel else self.stack.added
            trail.attended(heads, self._frozen(layer, after, joined), scale)
        return joined

    def _network(self, n: int, x: Array) -> Array:
        """Return what a layer's network makes of x: nothing where it is knocked out."""
        layer, cut = self.stack.layers[n], self.changes.cut
        if cut is not None and cut.side == self.side and (n, MLP) in cut.heads:
            return np.zeros_like(x)
        return network(self.reader, layer, self._before(layer, "norm_2", x))

    # What a trail is told

    def _note(self, part: str, X: Array, n: int | None = None, after: FrozenNorm | None = None) -> Array:
        if self.trail is not None:
            self.trail.added(part, X, n, after, 1.0 if n is None or self.stack.parallel else self.stack.added)
        return X

    def _frozen(self, layer: Layer, role: str, X: Array) -> FrozenNorm | None:
        if self.trail is None or role not in layer.names:
            return None
        return self.reader.frozen(layer.tensor(role), self.trail.row(X))

    def _norm(self, name: str, x: Array, part: str = "norm bias", layer: int | None = None) -> Array:
        """Return the words' vectors normed, of which a trail is told."""
        if self.trail is not None:
            self.trail.normed(self.reader.frozen(name, self.trail.row(x)), part, layer)
        return self.reader.norm(name, x)

    def _narrow(self, name: str, x: Array) -> Array:
        if self.trail is not None:
            self.trail.mapped(*self.reader.linear_weights(name, x.shape[-1], self.stack.d), "embedding bias")
        return self.reader.linear(name, x, self.stack.d)

    def _normed(self, layer: Layer, role: str, x: Array, *shape: int) -> Array:
        return self.reader.norm(layer.tensor(role), x, *shape)
