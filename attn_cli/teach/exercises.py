"""Exercises: attention in small whole numbers that work out by hand, another for every seed.

Numbers are drawn until they make a good exercise. What is good does not depend on the mask and the score, so
that a seed has the same numbers under all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from attn_cli.core.attention import attention, softmax
from attn_cli.errors import UsageError
from attn_cli.inputs.matrices import given_from
from attn_cli.pipeline.from_matrices import trace_matrices
from attn_cli.settings.settings import Settings

if TYPE_CHECKING:
    from attn_cli.io.array_types import Array, Bools, Ints
    from attn_cli.trace.trace import Trace

    Numbers = tuple[Array, Array, Array, Array]  # X (n, d), and W_q, W_k, W_v (d, d)

SEEDS = (0, 2**63 - 1)
SIZES = (2, 4)  # of d, and of the sentence: what can be done by hand within the hour
MASKS, SCORES = ("none", "causal"), ("scaled", "dot")
DIGITS, OUTPUT_DIGITS = 3, 2  # after the point: of every rounded number, and of the output
ANSWERS = ("q", "k", "v", "scores", "scaled_scores", "weights", "output")

LARGEST_X, LARGEST_W, SMALLEST = {2: 2, 3: 2, 4: 1}, {2: 2, 3: 1, 4: 1}, -1
LARGEST_PROJECTED = 6
SMALLEST_SCORE, LARGEST_SCORE = -4, 6
SATURATED, FAINTEST = 0.97, 0.001
APART = 0.01
BATCH = 2048  # draws at a time; another number would give every seed another exercise

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
        """How many numbers a word has, and a query, a key and a value."""
        return len(self.W_q)

    @property
    def command(self) -> str:
        """The command that makes this exercise."""
        words = f" --words {len(self.tokens)}" if len(self.tokens) != 3 else ""
        mask = f" --mask {self.mask}" if self.mask != "none" else ""
        score = f" --score {self.score}" if self.score != "scaled" else ""
        return f"attn exercise --seed {self.seed} --dim {self.dim}{words}{mask}{score}"


def make(seed: int, dim: int = 2, words: int = 3, mask: str = "none", score: str = "scaled") -> Exercise:
    """Return the exercise of that seed, the same on any machine.

    >>> make(7).tokens == make(7, mask="causal").tokens, make(7).X == make(7, mask="causal").X
    (True, True)
    """
    _check("--seed", seed, *SEEDS)
    _check("--dim", dim, *SIZES)
    _check("--words", words, *SIZES)
    random = np.random.default_rng([seed, dim, words])
    sentence = SENTENCES[words][int(random.integers(len(SENTENCES[words])))]
    drawn = _drawn(random, words, dim)
    X, *W = next(numbers for numbers in drawn if _is_good(numbers))  # about one draw in ten thousand is
    rows = [matrix.astype(int).tolist() for matrix in (X, *W)]
    return Exercise(seed, mask, score, tuple(sentence.split()), *rows)


def inputs(exercise: Exercise) -> dict[str, object]:
    """Return what is given, as a record of named matrices that attn reads."""
    return {
        "about": exercise.command,
        "tokens": list(exercise.tokens),
        "X": exercise.X,
        "W_q": exercise.W_q,
        "W_k": exercise.W_k,
        "W_v": exercise.W_v,
        "layout": "in-out",
        "mask": exercise.mask,
        "score": exercise.score,
    }


def solve(exercise: Exercise, score: str | None = None) -> Trace:
    """Return every step of the exercise, computed as attn computes everything; `score` may be another one."""
    return trace_matrices("exercise", given_from(inputs(exercise), "the exercise"), Settings(score=score))


def answers(trace: Trace) -> dict[str, list[list[float]]]:
    """Return the matrices that are asked for, in full precision; where masked, a weight is 0."""
    steps = {name: getattr(trace.shown, name) for name in ANSWERS}
    return {name: matrix.tolist() for name, matrix in steps.items()}


def unanswered(exercise: Exercise) -> dict[str, list[list[None]]]:
    """Return the same matrices with nothing in them yet; without scaling there are no scaled scores."""
    n, d = len(exercise.tokens), exercise.dim
    wide = {name: d if name in ("q", "k", "v", "output") else n for name in ANSWERS}
    if exercise.score == "dot":
        del wide["scaled_scores"]
    return {name: [[None] * columns for _ in range(n)] for name, columns in wide.items()}


def _check(option: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        why = "" if option == "--seed" else ": more is too much to do by hand, and less is no exercise"
        raise UsageError(
            f"{option} cannot be {value}.", f"Give a whole number from {least} to {most:,}{why}.", option
        )


# What makes a good exercise.


def _drawn(random: np.random.Generator, n: int, d: int) -> Iterator[Numbers]:
    """Yield X, W_q, W_k and W_v without end: whole numbers that are small throughout and nowhere dull."""
    while True:
        X = random.integers(SMALLEST, LARGEST_X[d], (BATCH, n, d), endpoint=True)
        W = random.integers(SMALLEST, LARGEST_W[d], (3, BATCH, d, d), endpoint=True)
        made = X @ W  # Q, K, V
        scores = made[0] @ made[1].swapaxes(1, 2)
        small = (abs(made).max((0, 2, 3)) <= LARGEST_PROJECTED) & (scores.max((1, 2)) <= LARGEST_SCORE)
        kept = np.flatnonzero(small & (scores.min((1, 2)) >= SMALLEST_SCORE))
        # Rows are words; two equal columns would be the same work twice.
        matrices = (X[kept], *made[:, kept], *made[:, kept].swapaxes(2, 3), scores[kept])
        for i in kept[_vary(matrices) & _mix(W[:, kept]) & _choose(scores[kept])]:
            yield (X[i].astype(float), *W[:, i].astype(float))


def _vary(matrices: Sequence[Ints]) -> Bools:
    """Tell of which exercises no matrix, (b, n, ...), has two equal rows or a row of zeros."""
    varied = np.ones(len(matrices[0]), dtype=bool)
    for matrix in matrices:
        varied &= np.all(np.any(matrix, axis=2), axis=1)
        for i in range(matrix.shape[1]):
            for j in range(i):
                varied &= np.any(matrix[:, i] != matrix[:, j], axis=1)
    return varied


def _mix(W: Ints) -> Bools:
    """Tell of which exercises every W, (3, b, d, d), uses all numbers and is neither symmetric nor like another."""
    uses_all = np.all(np.any(W, axis=2) & np.any(W, axis=3), axis=2)
    is_symmetric = np.all(W.swapaxes(2, 3) == W, axis=(2, 3))
    is_like_another = np.all(W[[1, 2, 0]] == W, axis=(2, 3))
    mixed: Bools = np.all(uses_all & ~is_symmetric & ~is_like_another, axis=0)
    return mixed


def _choose(scores: Ints) -> Bools:
    """Tell in which scores, (b, n, n), words choose: each row has one largest, and not all have the same one.

    Some word looks at another most. Under a causal mask, too, each row has one largest and some word looks back.
    """
    n = scores.shape[1]
    choices = scores.argmax(2)
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
    return all(_is_lively(numbers, *kind) for kind in kinds) and all(_shows(numbers, *kind) for kind in kinds)


def _allowed(mask: str, n: int) -> Bools:
    whole = np.ones((n, n), dtype=bool)
    return np.tril(whole) if mask == "causal" else whole


def _is_lively(numbers: Numbers, allowed: Bools, scale: float) -> bool:
    """Tell whether no weight is nearly all or nothing, and rounding at each step, as by hand, gives the same answer."""
    X, W_q, W_k, W_v = numbers
    steps = attention(X @ W_q, X @ W_k, X @ W_v, allowed, scale=scale)
    if steps.weights[allowed.sum(1) > 1].max() > SATURATED or steps.weights[allowed].min() < FAINTEST:
        return False
    exps = np.exp(steps.masked_scores).round(DIGITS)
    weights = (exps / exps.sum(1, keepdims=True)).round(DIGITS)
    mixed = weights @ (X @ W_v)
    # A hair more and a hair less: what lies half way would be rounded up by one and down by another.
    near = [(mixed + hair).round(OUTPUT_DIGITS) for hair in (-1e-9, 1e-9)]
    right = steps.output.round(OUTPUT_DIGITS)
    return np.array_equal(weights, steps.weights.round(DIGITS)) and all(
        np.array_equal(m, right) for m in near
    )


def _shows(numbers: Numbers, allowed: Bools, scale: float) -> bool:
    """Tell whether every usual mistake shows: no two of these answers, one of them right, look alike."""
    found = [np.hstack(pair).ravel() for pair in _answered(numbers, allowed, scale)]
    return all(abs(a - b).max() > APART for i, a in enumerate(found) for b in found[:i])


def _answered(numbers: Numbers, allowed: Bools, scale: float) -> Iterator[tuple[Array, Array]]:
    """Yield weights and output: the right ones, then those of each usual mistake."""
    X, *W = numbers

    def attended(W: list[Array], allowed: Bools, scale: float) -> tuple[Array, Array]:
        Q, K, V = (X @ matrix for matrix in W)
        steps = attention(Q, K, V, allowed, scale=scale)
        return steps.weights, steps.output

    yield attended(W, allowed, scale)
    if scale != 1:
        yield attended(W, allowed, 1.0)  # not scaled
        yield attended(W, allowed, scale * scale)  # scaled by d
    yield attended([W[0], W[2], W[1]], allowed, scale)  # K and V swapped
    for turned in ((0,), (1,), (2,), (0, 1, 2)):  # W transposed: one of them, or all
        yield attended([matrix.T if i in turned else matrix for i, matrix in enumerate(W)], allowed, scale)
    scores = scale * (X @ W[0]) @ (X @ W[1]).T
    wrong = [softmax(np.where(allowed, scores, -np.inf).T).T]  # softmax over each column
    if not allowed.all():
        wrong.append(np.where(allowed, softmax(scores), 0.0))  # masked after the softmax
        wrong.append(softmax(np.where(allowed, -np.inf, scores)))  # mask inverted
    for weights in wrong:
        yield weights, weights @ (X @ W[2])
