"""Both sides' answers compared before anything is timed: a fast wrong answer is worth nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from attn_cli.bench.cases import TOP
from attn_cli.core.attend import attend, strongest_links
from attn_cli.errors import AttnError

if TYPE_CHECKING:
    from attn_cli.io.array_types import Array

RELATIVE, ABSOLUTE, NEAR_ZERO = 1e-4, 2e-5, 1e-8
ROWS = 256  # of an answer compared at a time, and of the queries whose links are checked


def agree(mine: object, theirs: object) -> None:
    """Raise AttnError unless two answers are the same: (weights, output), (None, output), or an output.

    Where one side gives no weights, only the outputs are compared. The relative tolerance is 1e-4, for float32; an
    output, which sums numbers of both signs, has an absolute one of 2e-5 too.
    """
    (*weights, output), (*their_weights, their_output) = _parts(mine), _parts(theirs)
    both = zip(weights, their_weights, strict=False)
    if not _close(output, their_output, ABSOLUTE) or not all(_close(a, b, NEAR_ZERO) for a, b in both):
        raise AttnError(
            "Two ways to compute attention disagree here, so nothing was timed.",
            "Please report it with what attn bench says of this machine.",
        )


def links_agree(Q: Array, K: Array, V: Array) -> None:
    """Raise AttnError unless the strongest links of some rows are those of their whole weights."""
    links, output = strongest_links(Q[:ROWS], K, V, TOP)
    weights, right = attend(Q[:ROWS], K, V)
    assert weights is not None
    order = np.argsort(-weights, axis=1, kind="stable")[:, :TOP]
    agree((links.weights, output), (np.take_along_axis(weights, order, axis=1), right))
    agree((links.weights, output), (np.take_along_axis(weights, links.keys, axis=1), right))


def _parts(answer: object) -> list[Array]:
    parts = answer if isinstance(answer, tuple) else (answer,)
    return [np.asarray(part) for part in parts if part is not None]


def _close(one: Array, other: Array, absolute: float) -> bool:
    """Tell whether two arrays of equal size are close; some rows at a time, to save memory."""
    width = one.shape[-1]
    if one.size != other.size or width != other.shape[-1]:
        return False
    a, b = one.reshape(-1, width), other.reshape(-1, width)
    starts = range(0, len(a), ROWS)
    return all(np.allclose(a[i : i + ROWS], b[i : i + ROWS], RELATIVE, absolute) for i in starts)
