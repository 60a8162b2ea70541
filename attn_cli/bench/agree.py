"""Both sides' answers compared before anything is timed: a wrong answer would be quick for nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from attn_cli.bench.cases import TOP
from attn_cli.bench.records import Case
from attn_cli.core.attend import attend, strongest_links
from attn_cli.errors import AttnError

if TYPE_CHECKING:
    from attn_cli.io.array_types import Array

RELATIVE, ABSOLUTE, NEAR_ZERO = 1e-4, 2e-5, 1e-8
ROWS = 256  # of an answer compared at a time, and of the queries whose links are looked up by hand
REPORT = "Please report it with what attn bench says of this machine."


def agree(mine: object, theirs: object) -> None:
    """Raise AttnError unless two answers are the same: (weights, output), (None, output), or an output.

    Where one side gives no weights, the outputs are compared. Numbers of float32 may differ by 1e-4 of themselves,
    those of an output, which sums both signs, by 2e-5 too.
    """
    (*weights, output), (*their_weights, their_output) = _parts(mine), _parts(theirs)
    both = zip(weights, their_weights, strict=False)
    if not _close(output, their_output, ABSOLUTE) or not all(_close(a, b, NEAR_ZERO) for a, b in both):
        raise AttnError("Two ways to compute attention disagree here, so nothing was timed.", REPORT)


def links_agree(case: Case, arrays: tuple[Array, Array, Array]) -> Callable[[], None]:
    """Return what compares the strongest links of some rows with those of their whole weights."""
    Q, K, V = arrays

    def check() -> None:
        links, output = strongest_links(Q[:ROWS], K, V, TOP)
        weights, right = attend(Q[:ROWS], K, V)
        assert weights is not None
        order = np.argsort(-weights, axis=1, kind="stable")[:, :TOP]
        agree((links.weights, output), (np.take_along_axis(weights, order, axis=1), right))
        agree((links.weights, output), (np.take_along_axis(weights, links.keys, axis=1), right))

    return check


def _parts(answer: object) -> list[Array]:
    parts = answer if isinstance(answer, tuple) else (answer,)
    return [np.asarray(part) for part in parts if part is not None]


def _close(one: Array, other: Array, absolute: float) -> bool:
    """Tell whether two arrays of equal size are close, some rows at a time: the largest leave no room for a copy."""
    width = one.shape[-1]
    if one.size != other.size or width != other.shape[-1]:
        return False
    rows = zip(_slices(one.reshape(-1, width)), _slices(other.reshape(-1, width)), strict=True)
    return all(np.allclose(a, b, RELATIVE, absolute) for a, b in rows)


def _slices(M: Array) -> Iterator[Array]:
    yield from (M[start : start + ROWS] for start in range(0, len(M), ROWS))
