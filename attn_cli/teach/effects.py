"""Exercises on what comes of the weights: the length of what each word adds, and the parts of a logit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from attn_cli.io.types import Array, NamedTuple
from attn_cli.teach.exercises import BATCH, SEEDS, SENTENCES, check_range
from attn_cli.teach.replay import CORRECT, Problem, possible_arrays

GIVEN = {"norm": ("X", "W_v", "W_o", "weights"), "logit": ("stream", "U")}
STEPS = {"norm": ("v", "transformed", "lengths", "norms"), "logit": ("parts", "logits", "without")}
STREAM = ("embedding", "head 0", "head 1", "head 2", "network")  # what a last vector is the sum of
TENTHS = ((1, 2, 7), (1, 3, 6), (2, 3, 5), (1, 4, 5))  # of a row of weights, in any order
TEXTS = (
    *(("she drinks hot", ("tea", "milk", "soup")), ("the cat sat on the", ("mat", "table", "roof"))),
    *(("he plays the", ("piano", "game", "flute")), ("birds fly to the", ("south", "tree", "sea"))),
    *(("we eat fresh", ("bread", "fruit", "fish")), ("they sail across the", ("sea", "lake", "bay"))),
)


class EffectExercise(NamedTuple):
    """One exercise: the text, the words of the last matrices' columns, and the matrices that are given."""

    topic: str  # norm or logit
    seed: int
    tokens: tuple[str, ...]
    words: tuple[str, ...]
    given: Mapping[str, Array]

    @property
    def command(self) -> str:
        """The command that makes this exercise."""
        return f"attn exercise --topic {self.topic} --seed {self.seed}"

    @property
    def about(self) -> dict[str, object]:
        """What is told of it in JSON."""
        return {"topic": self.topic, "seed": self.seed}

    @property
    def inputs(self) -> dict[str, object]:
        """What is given, as a record that `attn check` reads."""
        whole = {name: M.astype(float if (M % 1).any() else int).tolist() for name, M in self.given.items()}
        labels = {"topic": self.topic, "tokens": list(self.tokens), "words": list(self.words)}
        return {"about": self.command, **labels, **whole}

    @property
    def answers(self) -> dict[str, list[list[float]]]:
        """The matrices that are asked for."""
        return {name: step[0].tolist() for name, step in solve(self.topic, self.given).steps.items()}

    @property
    def asked(self) -> tuple[str, ...]:
        """Their names."""
        return STEPS[self.topic]


def make(topic: str, seed: int) -> EffectExercise:
    """Return the exercise of that seed, the same on any machine."""
    check_range("--seed", seed, *SEEDS)
    random = np.random.default_rng([seed, *topic.encode()])
    texts = TEXTS if topic == "logit" else [(one, tuple(one.split())) for one in SENTENCES[3]]
    text, words = texts[int(random.integers(len(texts)))]
    given = next((_norms if topic == "norm" else _logits)(random))
    return EffectExercise(topic, seed, tuple(text.split()), words, given)


def solve(topic: str, given: Mapping[str, Array]) -> Problem:
    """Return the problem with every step, (1, rows, columns); ValueError where the matrices do not fit together."""
    if topic == "norm":
        X, W_v, W_o, weights = (given[name] for name in GIVEN[topic])
        problem = Problem({"v": (X @ W_v)[np.newaxis]}, (X, X), {"v": W_v, "o": W_o}, given_weights=weights)
    else:
        problem = Problem({"parts": (given["stream"] @ given["U"])[np.newaxis]})
    for step in STEPS[topic][1:]:
        earlier = {name: [array] for name, array in problem.steps.items()}
        (found,) = possible_arrays(problem, CORRECT, step, earlier)
        problem = problem._replace(steps={**problem.steps, step: found})
    return problem


def _draws(random: np.random.Generator, *shapes: tuple[int, int]) -> Iterator[list[Array]]:
    """Yield whole numbers from -1 to 2 without end, BATCH matrices of each shape at a time."""
    while True:
        yield [random.integers(-1, 2, (BATCH, *shape), endpoint=True).astype(float) for shape in shapes]


def _norms(random: np.random.Generator) -> Iterator[dict[str, Array]]:
    """Yield exercises whose lengths are whole, and where in some row the largest weight is not the largest norm."""
    for X, W_v, W_o in _draws(random, (3, 2), (2, 2), (2, 2)):
        v = X @ W_v
        f = v @ W_o
        made = f, v, X @ W_v.swapaxes(1, 2) @ W_o
        lengths, *mistaken = (np.sqrt((one * one).sum(axis=2)) for one in made)
        good = np.all(lengths == np.clip(lengths.round(), 1, 15), axis=1) & np.all(np.any(v, axis=2), axis=1)
        good &= (np.all(f, axis=2).sum(axis=1) > 1) & np.all(np.diff(np.sort(lengths)), axis=1)
        good &= np.all([abs(other - lengths).max(axis=1) > 0.1 for other in mistaken], axis=0)
        for n in np.flatnonzero(good):
            rows = [random.permutation(TENTHS[int(one)]) for one in random.integers(len(TENTHS), size=3)]
            weights = np.array(rows) / 10
            norms = weights * lengths[n]
            moved = int((norms.argmax(axis=1) != weights.argmax(axis=1)).sum())
            if 0 < moved < 3 and (np.diff(np.sort(norms))[:, 1] > 0.05).all():
                yield dict(zip(GIVEN["norm"], (X[n], W_v[n], W_o[n], weights), strict=True))


def _logits(random: np.random.Generator) -> Iterator[dict[str, Array]]:
    """Yield exercises where the word hangs on another head than on the one that adds most to it."""
    for streams, U in _draws(random, (len(STREAM), 2), (2, 3)):
        for n, parts in enumerate(streams @ U):
            logits = parts.sum(axis=0)
            every = np.vstack([logits, logits - parts[1:-1]])
            best = every.argmax(axis=1)
            adds = parts[1:-1, best[0]]
            most = 1 + int(adds.argmax())
            gaps = (*np.diff(np.sort(every))[:, 1], np.diff(np.sort(adds))[1], adds.max())
            is_other = best[most] == best[0] and (best != best[0]).sum() == 1
            if min(gaps) > 0 and is_other and len(np.unique(streams[n], axis=0)) == len(STREAM):
                yield {"stream": streams[n], "U": U[n]}
