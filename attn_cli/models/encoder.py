"""A learned model: how words start, encoder layers one above the other, and named heads on top.

The layers below the last are the encoder of Vaswani et al. 2017 (section 3.1): attention, then a small network
for each word by itself, each followed by a sum with what went in and a layer norm. A model of one layer is
its named heads alone. A language model is causal, has its last layer as a
whole, and scores each word w by its vector v_w, what was learned beside it, c_w, and a bias: h P (v_w + c_w) + b_w.
All words without a vector are one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import sqrt

import numpy as np

from attn_cli.core.attend import output_of
from attn_cli.core.attention import project
from attn_cli.core.heads import HeadInput, HeadWeights, blocks_of_rows
from attn_cli.core.masks import Mask, named
from attn_cli.errors import InputError
from attn_cli.io.types import Array, NamedTuple, OnPart, part_of
from attn_cli.models.logit_parts import MLP, Cut, FrozenNorm, Heads, Joining, Trail
from attn_cli.models.projection import Projection
from attn_cli.trace import Learned
from attn_cli.vectors import Vectors, as_bytes
from attn_cli.vectors.spelling import SpellingFeatures, forms

Take = Callable[..., Array]
NEARLY_ZERO = 1e-5
UNKNOWN = "[unknown]"  # how the words without a vector are shown, as one word
BLOCK = 2048
LEAD, SCORES = ("forms", "lead", "count", "right"), ("accuracy", "baseline", "precision", "hard", "content")
MASK = "causal"  # under which a language model is trained


class Norm(NamedTuple):
    """Layer norm (Ba, Kiros and Hinton 2016): each row to mean 0 and variance 1, then gain and shift (d,)."""

    gain: Array
    shift: Array

    def of(self, X: Array) -> Array:
        """Return the normed rows, (n, d)."""
        centred = X - X.mean(axis=-1, keepdims=True)
        variance = (centred * centred).mean(axis=-1, keepdims=True)
        normed: Array = centred / np.sqrt(variance + NEARLY_ZERO) * self.gain + self.shift
        return normed

    def frozen(self, x: Array) -> FrozenNorm:
        """Return the norm as it acts on rows (..., d)."""
        return FrozenNorm.of(x, self.gain, self.shift, NEARLY_ZERO, True)


class EncoderLayer(NamedTuple):
    """One layer below the last: heads joined by W_o, and a network of W_1 (d, wide) and W_2 (wide, d)."""

    attention: Projection
    norm_1: Norm
    W_1: Array
    b_1: Array
    W_2: Array
    b_2: Array
    norm_2: Norm

    def of(
        self, X: Array, mask: Mask | None, report: OnPart | None = None, threads: int | None = None,
        number: int = 0, cut: Cut | None = None, trail: Trail | None = None,
    ) -> Array:  # fmt: skip
        """Return what the layer makes of X (n, d): the next layer's input. Its `number` is for what is knocked out."""
        ready = [_head_input(X, head, mask) for head in self.attention.heads]
        outputs = [output_of(one, threads, part_of(report, n, len(ready))) for n, one in enumerate(ready)]
        outputs = outputs if cut is None else list(cut.of(number, np.stack(outputs)))
        if trail is not None and (W_o := self.attention.W_o) is not None:
            at, b_o, v = trail.place, self.attention.b_o, np.stack([one.V for one in ready])
            weights = np.stack([one.steps([at]).weights[0] for one in ready])
            own = np.stack([one[at] for one in outputs])
            trail.attended(Heads(number, "masked", own, weights, v, lambda: (W_o, b_o)))
        return self.joined(X, outputs, number, cut, trail)

    def outputs(self, X: Array, mask: Mask | None) -> Array:
        """Return what each head makes of X (n, d): (h, n, d_v)."""
        return np.stack([output_of(_head_input(X, head, mask), None, None) for head in self.attention.heads])

    def joined(
        self, X: Array, outputs: list[Array], number: int = 0, cut: Cut | None = None, trail: Trail | None = None,
    ) -> Array:  # fmt: skip
        """Return what the layer makes of X (n, d) and of its heads' outputs (n, d_v)."""
        attended = self.attention.joined(outputs)
        assert attended is not None  # these layers have a W_o
        X = X + attended
        if trail is not None:
            trail.normed(self.norm_1.frozen(trail.row(X)), layer=number)
        X = self.norm_1.of(X)
        made = project(np.maximum(project(X, self.W_1, self.b_1), 0), self.W_2, self.b_2)
        made = np.zeros_like(made) if cut is not None and (number, MLP) in cut.heads else made
        if trail is not None:
            trail.added("mlp", made, number)
            trail.normed(self.norm_2.frozen(trail.row(X + made)), layer=number)
        return self.norm_2.of(X + made)


def weights_of(head: HeadWeights, X: Array, mask: Mask | None = None) -> Array:
    """Return the weights (n, n) of a head over X (n, d): scaled dot product, as it was trained, under a mask."""
    one = _head_input(X, head, mask)
    return np.concatenate([one.steps(rows).weights for rows in blocks_of_rows(one)])


def lead_of(weights: Array) -> float:
    """Return how much more weight a row's strongest key (n,) has than the next one."""
    strongest = np.sort(weights)[::-1]
    return float(strongest[0] - strongest[1]) if len(strongest) > 1 else 1.0


def _head_input(X: Array, head: HeadWeights, mask: Mask | None) -> HeadInput:
    Q, K, V = head.project(X, X)
    by_distance = None if head.position is None else head.position.by_distance(Q, 1 / sqrt(Q.shape[1]))
    return HeadInput(Q, K, V, mask, by_distance=by_distance)


class WordLayer(NamedTuple):
    """What makes scores of the last layer's output: d numbers a word, V words."""

    P: Array  # (width, d)
    bias: Array  # (V + 1,); the last is that of all words without a vector
    unknown: Array  # (d,), the vector of these
    first: Array  # (width,), from which the first word is told
    corrections: Array  # (commonest words, d)
    cases: Array | None = None  # (2, V / 8), bits: which words have a capital in a sentence, and only such

    def scores(self, H: Array, vectors: Array) -> Array:
        """Return the score of each word after each row of H (m, width): (m, V + 1), float32.

        `vectors` (V, d) are those that the model reads.
        """
        V, common = len(vectors), len(self.corrections)
        if len(self.bias) != V + 1 or vectors.shape[1] != self.P.shape[1] or common > V:
            raise InputError(f"The model scores {len(self.bias) - 1:,} words, and there are {V:,} vectors.")
        rows = (H @ self.P).astype(np.float32)
        found = np.empty((len(rows), V + 1), np.float32)
        for start in range(0, V, BLOCK):  # a small copy of halves at a time is twice as quick
            stop = min(start + BLOCK, V)
            found[:, start:stop] = rows @ np.asarray(vectors[start:stop], np.float32).T
        found[:, :common] += rows @ self.corrections.astype(np.float32).T
        found[:, V] = rows @ self.unknown.astype(np.float32)
        found += self.bias
        return found

    def case(self, word: int) -> int:
        """Return how a word is written within a sentence: 0 small, 1 with a capital, 2 in capitals."""
        at, bit = divmod(word, 8)
        if self.cases is None or at >= self.cases.shape[1]:
            return 0
        capital, capitals = (int(part[at]) >> 7 - bit & 1 for part in self.cases)
        return capital + capitals

    def row(self, word: int, vectors: Array) -> Array:
        """Return what the output (d,) before the table is multiplied with for the score of a word."""
        found: Array = (self.unknown if word == len(vectors) else vectors[word]).astype(np.float64)
        return found + self.corrections[word] if word < len(self.corrections) else found


class EncoderStack(NamedTuple):
    """A whole model: its inputs, its layers, and the facts stored with it."""

    name: str
    vectors: str
    fingerprint: str
    spelling: SpellingFeatures
    W_in: Array | None
    b_in: Array | None
    encoders: tuple[EncoderLayer, ...]  # of a language model all layers, else those below the last
    last: Projection
    facts: Mapping[str, object]
    words: WordLayer | None = None  # of a language model, which is causal

    @property
    def dim(self) -> int:
        """How many numbers a word's vector has."""
        return int(self.last.heads[0].W_q.shape[0] if self.W_in is None else self.W_in.shape[0])

    @property
    def layers(self) -> int:
        """How many layers there are, the named heads' among them."""
        return len(self.encoders) + (self.words is None)

    def layer_of(self, head: str | None) -> int | None:
        """Return the layer that has a head of this name, and no mere number; None where none has."""
        if head is None or head.isdigit():
            return None
        return next((n for n in range(self.layers) if head in self.head_names(n)), None)

    def attention(self, layer: int) -> Projection:
        """Return the heads of a layer; 0 is nearest the words."""
        return self.encoders[layer].attention if layer < len(self.encoders) else self.last

    def head_names(self, layer: int) -> tuple[str, ...]:
        """Return the names of a layer's heads: a mere number where a head has no other."""
        return tuple(head.name for head in self.attention(layer).heads)

    def input(
        self, X: Array, layer: int, mask: Mask | None, report: OnPart | None = None, threads: int | None = None,
        cut: Cut | None = None,
    ) -> Array:  # fmt: skip
        """Return the input of a layer, (n, d), for the words' vectors X: what the layers below make of them."""
        with np.errstate(over="ignore", invalid="ignore"):
            X = X if self.W_in is None else project(X, self.W_in, self.b_in)
            for done, encoder in enumerate(self.encoders[:layer]):
                X = encoder.of(X, mask, part_of(report, done, layer + 1), threads, done, cut)
        if not np.isfinite(X).all():
            raise InputError(f"{self.name}: what its layers make is more than a number can hold.")
        return X

    def last_rows(
        self, X: Array, mask: Mask | None, layer: int | None = None, report: OnPart | None = None,
        cut: Cut | None = None, trail: Trail | None = None,
    ) -> Array:  # fmt: skip
        """Return the output of the last layer, (n, width), for the words' vectors X, or for a layer's input X."""
        if layer is None:
            if trail is not None:
                trail.added("embedding", X)
                if self.W_in is not None:
                    trail.mapped(self.W_in, self.b_in, "embedding bias")
            X, layer = self.input(X, 0, mask), 0
        with np.errstate(over="ignore", invalid="ignore"):
            for number, encoder in enumerate(self.encoders[layer:], layer):
                X = encoder.of(X, mask, report, None, number, cut, trail)
        return X

    def joining(self, attention: Projection, layer: int, X: Array | None) -> Joining:
        """Return what follows the heads of a layer, `attention`, whose input is X (n, d)."""
        outer = self.encoders[layer].norm_1.frozen if layer < len(self.encoders) else None
        return Joining(attention.W_o, attention.b_o, X if outer else None, None, outer)

    def clear_lead(self, head: str, word: str) -> tuple[float, str, int, int] | None:
        """Return from which lead on the head is mostly right on a pronoun: lead, its forms, cases, right ones."""
        forms, lead, n, right = map(_record(self.facts, "scores", head, "leads", word).get, LEAD)
        match forms, _share(lead), n, right:
            case list(forms), float(lead), int(n), int(right):
                return lead, ", ".join(map(str, forms)), n, right
        return None

    def learned(self, layer: int, head: str) -> Learned:
        """Return the facts about a head: what it was trained to find, on what, and how often it is right."""
        is_last, is_found = layer == self.layers - 1, self.words is not None
        named = is_last or is_found
        score = _record(self.facts, "scores", head) if named else {}
        about = _record(self.facts, "about").get(head) if named else None
        given = self.facts.get("trained_on")
        names = given if isinstance(given, list) else []
        trained_on = tuple(one for one in names if isinstance(one, str) and one)
        on = score and (score.get("scored_on") or score.get("on") or self.facts.get("scored_on"))
        makes_words = self.facts.get("values") == "words" and self.last.heads[0].W_v.shape[1] == self.dim
        accuracy, baseline, precision, hard, content = (_share(score.get(name)) for name in SCORES)
        known = self.name, self.layers, trained_on, str(on) if on else None, str(about) if about else None
        values = "words" if is_last and makes_words else "learned"
        shares = accuracy, baseline, precision, hard, content
        return Learned(*known, *shares, values, not is_found, self.spelling.always)


def _share(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        return None
    return float(value)


def _record(facts: Mapping[str, object], *keys: str) -> Mapping[str, object]:
    for key in keys:
        facts = found if isinstance(found := facts.get(key), dict) else {}
    return facts


def read_word_layer(
    take: Take, width: int, names: list[str], vectors: Array, cases: Array | None = None
) -> WordLayer:  # fmt: skip
    """Return what a file has of it, checked; a feature's vector is a correction where its name is `=word`."""
    dim, below = vectors.shape[1], len(names) - sum(name.startswith("=") for name in names)
    corrections = vectors[below:] if all(name.startswith("=") for name in names[below:]) else vectors[:0]
    P, bias = take("out.W", 2, width=width, dim=dim), take("out.bias", 1)
    unknown, first = take("out.unknown", 1, dim=dim), take("out.first", 1, width=width)
    return WordLayer(P, bias, unknown, first, corrections, cases)


def causal(n: int) -> Mask | None:
    """Return the mask under which a language model was trained, over n words."""
    return named(MASK, n, n)


def matrix_of(table: Vectors) -> Array:
    """Return all vectors of a table, (V, d): without a copy where they lie in memory."""
    if isinstance(found := getattr(table, "matrix", None), np.ndarray):
        return found
    return np.concatenate([block.matrix for block in table.rows()])


def word_number(word: str, rows: Mapping[bytes, int]) -> int:
    """Return which word a token is, as a lookup has it; the number after the last where it has no vector."""
    return next((rows[form] for one in forms(word) if (form := as_bytes(one)) in rows), len(rows))
