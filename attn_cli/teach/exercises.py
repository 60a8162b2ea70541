"""Exercises: attention in small whole numbers, to be computed by hand; each seed gives another one.

Numbers are drawn until they make a good exercise under every mask and score: a seed has the same under all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import numpy as np

from attn_cli.core.attention import attention, softmax
from attn_cli.core.scores import score_named
from attn_cli.errors import refuse
from attn_cli.inputs.matrices import given_from
from attn_cli.io.types import Array, Bools, Ints, NamedTuple
from attn_cli.pipeline.sources.matrices import trace_matrices
from attn_cli.settings import Settings
from attn_cli.trace import Trace

Numbers = tuple[Array, Array, Array, Array]  # X (n, d), and W_q, W_k, W_v (d, d)

SEEDS = (0, 2**63 - 1)
SIZES = (2, 4)  # least and most, of d and of the sentence: more takes over an hour by hand
MASKS = ("none", "causal")
DIGITS, OUTPUT_DIGITS = 3, 2  # after the point, of every rounded number and of the output
ANSWERS = ("q", "k", "v", "scores", "scaled_scores", "weights", "output")

LARGEST_X, LARGEST_W, SMALLEST = {2: 2, 3: 2, 4: 1}, {2: 2, 3: 1, 4: 1}, -1  # by d
LARGEST_PROJECTED = 6
SMALLEST_SCORE, LARGEST_SCORE = -4, 6
LARGEST_WEIGHT, SMALLEST_WEIGHT = 0.97, 0.001
APART = 0.01  # how far the answers of two mistakes differ at least
BATCH = 2048  # draws at a time; changing it changes the exercise of every seed

SENTENCES: dict[int, tuple[str, ...]] = {
    2: ("birds sing", "rain falls", "dogs bark", "she reads", "fish swim", "time flies", "we learn", "stars shine"),
    3: (
        *("she likes tea", "cats chase mice", "bees make honey", "rain wets grass", "we plant trees"),
        *("he paints doors", "dogs dig holes", "wind moves leaves", "owls hunt mice", "they bake bread"),
    ),
    4: (
        *("she reads old books", "small birds sing loud", "we drink cold water", "the fox runs home"),
        *("old ships carry salt", "two cats share milk", "he cooks red beans", "the moon lights fields"),
    ),
}  # fmt: skip


class Exercise(NamedTuple):
    """One exercise: the words, and whole numbers for X (n, d) and W_q, W_k, W_v (d, d), row by row."""

    seed: int
    mask: str  # none or causal
    score: str  # scaled or dot
    tokens: tuple[str, ...]
    X: list[list[int]]
    W_q: list[list[int]]
    W_k: list[list[int]]
    W_v: list[list[int]]

    @property
    def dim(self) -> int:
        """The dimension of the words, queries, keys and values."""
        return len(self.W_q)

    @property
    def command(self) -> str:
        """The command that makes this exercise."""
        usual = {"words": (len(self.tokens), 3), "mask": (self.mask, "none"), "score": (self.score, "scaled")}
        more = "".join(f" --{name} {value}" for name, (value, default) in usual.items() if value != default)
        return f"attn exercise --seed {self.seed} --dim {self.dim}{more}"

    @property
    def about(self) -> dict[str, object]:
        """What is told of it in JSON."""
        return {"seed": self.seed, "dim": self.dim, "mask": self.mask, "score": self.score}

    @property
    def inputs(self) -> dict[str, object]:
        """The given matrices as a record that attn reads."""
        labels = {"about": self.command, "tokens": list(self.tokens)}
        matrices = {"X": self.X, "W_q": self.W_q, "W_k": self.W_k, "W_v": self.W_v}
        return {**labels, **matrices, "layout": "in-out", "mask": self.mask, "score": self.score}

    @property
    def answers(self) -> dict[str, list[list[float]]]:
        """The matrices that are asked for, in full precision; a masked weight is 0."""
        head = solve(self).shown
        return {name: getattr(head, name).tolist() for name in ANSWERS}

    @property
    def asked(self) -> tuple[str, ...]:
        """Their names; without scaling there are no scaled scores to fill in."""
        return tuple(name for name in ANSWERS if name != "scaled_scores" or score_named(self.score).is_scaled)


def make(seed: int, dim: int = 2, words: int = 3, mask: str = "none", score: str = "scaled") -> Exercise:
    """Return the exercise of that seed, the same on any machine, of the same numbers under every mask and score."""
    for option, value, bounds in (("--seed", seed, SEEDS), ("--dim", dim, SIZES), ("--words", words, SIZES)):
        check_range(option, value, *bounds)
    random = np.random.default_rng([seed, dim, words])
    sentence = SENTENCES[words][int(random.integers(len(SENTENCES[words])))]
    found = next(filter(_is_good, _draws(random, words, dim)))  # one in ten thousand
    return Exercise(seed, mask, score, tuple(sentence.split()), *(M.astype(int).tolist() for M in found))


def solve(exercise: Exercise, score: str | None = None) -> Trace:
    """Return the trace of the exercise; `score` may be another one than its own."""
    return trace_matrices("exercise", given_from(exercise.inputs, "the exercise"), Settings(score=score))


def check_range(option: str, value: int, least: int, most: int) -> None:
    """Raise UsageError if an option's number is too small or too large."""
    why = "" if option == "--seed" else ": more is too much to do by hand, and less is not an exercise"
    said = f"{option} cannot be {value}."
    refuse(not least <= value <= most, said, f"Give a whole number from {least} to {most:,}{why}.", option)


def _draws(random: np.random.Generator, n: int, d: int) -> Iterator[Numbers]:
    """Yield X, W_q, W_k and W_v without end: small whole numbers without equal rows, symmetric W or tied scores."""
    while True:
        X = random.integers(SMALLEST, LARGEST_X[d], (BATCH, n, d), endpoint=True)
        W = random.integers(SMALLEST, LARGEST_W[d], (3, BATCH, d, d), endpoint=True)
        QKV = X @ W
        scores = QKV[0] @ QKV[1].swapaxes(1, 2)
        kept = abs(QKV).max((0, 2, 3)) <= LARGEST_PROJECTED
        kept &= (scores.max((1, 2)) <= LARGEST_SCORE) & (scores.min((1, 2)) >= SMALLEST_SCORE)
        X, W, QKV, scores = X[kept], W[:, kept], QKV[:, kept], scores[kept]
        uses_all = np.all(np.any(W, axis=2) & np.any(W, axis=3), axis=2)  # no row or column of a W is zero
        is_dull = np.all(W.swapaxes(2, 3) == W, axis=(2, 3)) | np.all(W[[1, 2, 0]] == W, axis=(2, 3))
        good = np.all(uses_all & ~is_dull, axis=0) & _words_choose(scores)
        # Columns too: two equal ones would be the same work twice.
        for matrix in (X, *QKV, *QKV.swapaxes(2, 3), scores):
            good &= np.all(np.any(matrix, axis=2), axis=1)
            for a, b in combinations(range(matrix.shape[1]), 2):
                good &= np.any(matrix[:, a] != matrix[:, b], axis=1)
        for i in np.flatnonzero(good):
            yield (X[i].astype(float), *W[:, i].astype(float))


def _words_choose(scores: Ints) -> Bools:
    """Tell for which scores, (b, n, n), each row has one largest key under every mask, for some row another word."""
    n, choices = scores.shape[1], scores.argmax(2)
    chosen: Bools = np.any(choices != choices[:, :1], axis=1)
    for mask in MASKS:
        seen = np.where(_allowed(mask, n), scores, SMALLEST_SCORE - 1)
        ordered = np.sort(seen, axis=2)
        chosen &= np.all(ordered[:, :, -1] > ordered[:, :, -2], axis=1)
        chosen &= np.any(seen.argmax(2) != np.arange(n), axis=1)
    return chosen


def _is_good(numbers: Numbers) -> bool:
    """Tell whether numbers make a good exercise under every mask and score."""
    n, d = numbers[0].shape
    kinds = [(_allowed(mask, n), scale) for scale in (1.0, d**-0.5) for mask in MASKS]
    # The cheaper check first, for all kinds.
    return all(check(numbers, *kind) for check in (_is_well_rounded, _shows_mistakes) for kind in kinds)


def _allowed(mask: str, n: int) -> Bools:
    return np.tri(n, dtype=bool) if mask == "causal" else np.ones((n, n), dtype=bool)


def _is_well_rounded(numbers: Numbers, allowed: Bools, scale: float) -> bool:
    """Tell whether no weight is nearly 0 or 1, and rounding at each step, as by hand, gives the same answer."""
    X, W_q, W_k, W_v = numbers
    steps = attention(X @ W_q, X @ W_k, X @ W_v, allowed, scale=scale)
    largest = steps.weights[allowed.sum(1) > 1].max()
    if largest > LARGEST_WEIGHT or steps.weights[allowed].min() < SMALLEST_WEIGHT:
        return False
    exps = np.exp(steps.masked_scores).round(DIGITS)
    weights = (exps / exps.sum(1, keepdims=True)).round(DIGITS)
    # Slightly more and slightly less, as a number half way may be rounded up or down.
    outputs = [(weights @ (X @ W_v) + shift).round(OUTPUT_DIGITS) for shift in (-1e-9, 1e-9)]
    is_right = np.array_equal(weights, steps.weights.round(DIGITS))
    return is_right and all(np.array_equal(one, steps.output.round(OUTPUT_DIGITS)) for one in outputs)


def _shows_mistakes(numbers: Numbers, allowed: Bools, scale: float) -> bool:
    """Tell whether no two answers, one of them right and the others with a usual mistake, look alike."""
    found = [np.hstack(pair).ravel() for pair in _answers_with_mistakes(numbers, allowed, scale)]
    return all(abs(a - b).max() > APART for a, b in combinations(found, 2))


def _answers_with_mistakes(numbers: Numbers, allowed: Bools, scale: float) -> Iterator[tuple[Array, Array]]:
    """Yield weights and output: first the right ones, then those of each usual mistake."""
    X, W_q, W_k, W_v = numbers
    # The matrices and the scale: not scaled, scaled by d; K and V swapped; one W transposed, or all.
    ways = [((W_q, W_k, W_v), by) for by in ((scale,) if scale == 1 else (scale, 1.0, scale * scale))]
    ways += [((W_q, W_v, W_k), scale), ((W_q.T, W_k, W_v), scale), ((W_q, W_k.T, W_v), scale)]
    ways += [((W_q, W_k, W_v.T), scale), ((W_q.T, W_k.T, W_v.T), scale)]
    for W, by in ways:
        Q, K, V = (X @ matrix for matrix in W)
        steps = attention(Q, K, V, allowed, scale=by)
        yield steps.weights, steps.output
    scores = scale * (X @ W_q) @ (X @ W_k).T
    wrong = [softmax(np.where(allowed, scores, -np.inf).T).T]  # softmax over each column
    if not allowed.all():
        wrong.append(np.where(allowed, softmax(scores), 0.0))  # masked after the softmax
        wrong.append(softmax(np.where(allowed, -np.inf, scores)))  # mask inverted
    for weights in wrong:
        yield weights, weights @ (X @ W_v)
