"""Attention by the thousand: every fast way beside the readable core, as a share of what they may differ by.

`python -m tests.fuzz.attention [--problems N]` draws problems of every kind in tests/problems.py: nine of ten small, on
tiny tiles, one of ten large enough for tiles of the real size. The smallest problem that fails is told.
"""

import typer
from hypothesis import HealthCheck, given, settings, strategies as st

from tests.problems import KINDS, compared, made, tiled

# Of a vector; longer ones leave the core itself few digits.
LENGTHS = st.sampled_from((1, 2, 3, 5, 8, 16, 33, 64, 65, 100, 300, 768, 1024))
LONG = 40_000  # cells and more: the sides of a large problem
SIMPLE = {"bias": "none", "distance": "none", "cap": "none"}  # many at once hide one another


@st.composite
def drawn(draw):
    """Return a kind of problem and how it is to be worked on: tiles, k, threads."""
    kind = draw(KINDS)._replace(d_k=draw(LENGTHS), **(SIMPLE if draw(st.integers(1, 10)) <= 3 else {}))
    tiles = draw(st.integers(1, 6)), draw(st.integers(1, 6))
    if draw(st.integers(1, 10)) == 10:
        one = int(1500 ** draw(st.floats(0, 1)))
        sides = one, max(int(1500 ** draw(st.floats(0, 1))), LONG // one)
        n_q, n_k = draw(st.permutations(sides))
        kind = kind._replace(n_q=n_q, n_k=n_k, d_k=min(kind.d_k, 4_000_000 // (n_q + n_k)))
        tiles = (None, None)
    return kind, tiles, {"k": draw(st.integers(1, 11)), "threads": draw(st.integers(1, 3))}


def main(problems: int = 20_000) -> None:
    worst = {}

    @settings(max_examples=problems, deadline=None, database=None, suppress_health_check=[*HealthCheck])
    @given(drawn())
    def check(problem):
        kind, tiles, how = problem
        with tiled(*tiles):
            for what, share in compared(made(kind), **how):
                worst[what] = max(share, worst.get(what, 0))
                assert share <= 1, f"{what}: {share:.2f} of the tolerance"

    check()
    print("worst error, as a share of the tolerance:")
    print(*(f"{what:<42}{share:>9.3f}" for what, share in worst.items()), sep="\n")


if __name__ == "__main__":
    typer.run(main)
