"""Attention by the thousand: every fast way beside the readable core, as a share of what they may differ by.

`python -m tests.fuzz.attention [N] [SEED]` draws N problems of every kind in tests/problems.py: nine of ten small, on
tiles so tiny that each problem has many, one of ten large enough for tiles of the real size. What they may differ by
is 1e-6 in float32 and 1e-12 in float64, times the largest score where that is above 1.
"""

import sys
import time
import traceback

import numpy as np

from tests import problems as p
from tests.problems import DTYPES, Kind, compared, made, tiled

# Longer vectors leave the core itself few digits.
LENGTHS = (1, 1, 2, 3, 5, 8, 16, 33, 64, 65, 100, 300, 768, 1024)
LONG = 40_000  # cells and more: the sides of a large problem
CHOICES = (DTYPES, p.SCORES, p.RULES, p.PADDINGS, p.BIASES, p.DISTANCES, p.CAPS)
TOLD = 10  # failures that are printed


def drawn(draw, number):
    """Return a kind of problem and how it is to be worked on: tiles, k, threads."""
    is_large = draw.random() < 0.1
    n_q, n_k = (int(n) for n in draw.integers(1, 14, 2))
    if is_large:
        n_q, n_k = (int(np.exp(draw.uniform(0, np.log(1500)))) for _ in range(2))
        n_k = n_k if n_q * n_k > LONG else LONG // n_q + int(draw.integers(1, 300))
        n_q, n_k = (n_q, n_k) if draw.random() < 0.5 else (n_k, n_q)
    d_k = int(draw.choice(LENGTHS))
    d_k = min(d_k, 4_000_000 // (n_q + n_k))
    words = (str(draw.choice(c)) for c in CHOICES)
    kind = Kind(n_q, n_k, d_k, int(draw.integers(1, 9)), *words, seed=number)
    if draw.random() < 0.3:  # many at once hide one another
        kind = kind._replace(bias="none", distance="none", cap="none")
    tiles = (None, None) if is_large else tuple(int(n) for n in draw.integers(1, 7, 2))
    how = {"k": int(draw.integers(1, 12)), "threads": int(draw.integers(1, 4))}
    return kind, tiles, how


def main() -> int:
    asked = [int(word) for word in sys.argv[1:]]
    cases, seed = (*asked, *(20_000, 1)[len(asked) :])[:2]
    draw, worst = np.random.default_rng(seed), {}
    failed, by_tiles, began = 0, 0, time.perf_counter()
    for number in range(cases):
        kind, tiles, how = drawn(draw, number)
        try:
            with tiled(*tiles):
                problem = made(kind)
                by_tiles += problem.is_fast
                for what, share in compared(problem, **how):
                    if not share <= worst.get((what, kind.dtype), (-1.0, ""))[0]:
                        worst[what, kind.dtype] = share, f"{kind} tiles {tiles} {how}"
                    if not share <= 1:
                        raise AssertionError(f"{what}: {share:.2f} of the tolerance")
        except Exception:
            failed += 1
            if failed <= TOLD:
                print(f"{kind}\n  tiles {tiles} {how}\n{traceback.format_exc(limit=-2)}", flush=True)
    print(f"{'worst error, as a share of the tolerance':<42}{DTYPES[0]:>9}{DTYPES[1]:>9}")
    for what in dict.fromkeys(what for what, _ in worst):
        shares = (worst.get((what, dtype), (0.0, ""))[0] for dtype in DTYPES)
        print(f"{what:<42}" + "".join(f"{share:>9.3f}" for share in shares))
    print(f"the worst of all: {max(worst.values(), default=(0.0, ''))[1]}")
    took = f"{time.perf_counter() - began:.0f} s; {failed:,} failed; seed {seed}"
    print(f"{cases:,} problems, {by_tiles:,} of them by tiles, in {took}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
