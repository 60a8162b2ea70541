"""Score functions: how well each query meets each key. A new one is a new entry of SCORES.

An entry says how the scores are computed, and how every screen, document and script writes them. NumPy is imported
where numbers are computed, because the command line reads the names before it needs NumPy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import hypot, sqrt

from attn_cli.errors import UsageError, did_you_mean
from attn_cli.io.types import Array, NamedTuple

GIVEN = "given"  # the score of a trace whose scores came ready; nobody can ask for it
Write = Callable[[float], str]  # a number as the screen shows it


class ByHand(NamedTuple):
    """One score written out: `left` = the sum of `terms` (text and value), then the text `after`."""

    left: str
    terms: list[tuple[str, float]]
    after: str = ""


class Lines(NamedTuple):
    """Lines of a script that compute `scores` from Q and K; `{K_T}` in them is the last operand transposed.

    `operands` are the arrays whose dot products the scores are: what a framework's own attention is given.
    `careful` lines come first in the body of the helper function where numbers are too large or small to square.
    """

    scores: str
    before: tuple[str, ...] = ()
    operands: tuple[str, str] = ("Q", "K")
    helper: tuple[str, ...] = ()
    careful: tuple[str, ...] = ()


class Terms(NamedTuple):
    """A score in a page's JavaScript: the sum of `term` over the numbers a and b of two rows, shown as `label`.

    `rows` is the function of core.js that queries and keys go through first.
    """

    term: str
    label: str
    rows: str = "same"


class Score(NamedTuple):
    """One score function."""

    of: Callable[[Array, Array], Array]  # Q (..., n_q, d_k) and K (..., n_k, d_k) to scores (..., n_q, n_k)
    is_scaled: bool  # whether the scores are divided by sqrt(d_k)
    noun: str  # in sentences: the dot product of a query with a key
    symbol: str  # of one query and one key
    column: str  # the symbol as the header of a column
    matrix: str  # of all queries and keys
    ascii_matrix: str  # the same in a script
    latex: str | None  # the paper's formula, where it is this one
    help: str
    by_hand: Callable[[list[float], list[float], float, Write], ByHand]  # of q, k, their score
    lines: Mapping[str, Lines]  # by framework: numpy, torch, keras
    javascript: Terms | None = None  # None: no page can compute it
    # Rows of Q (or K) whose dot products are the scores: the fast way computes nothing else. None: it cannot.
    as_dot: Callable[[Array], Array] | None = None
    is_position_scaled: bool = True  # whether a learned position term is divided by sqrt(d_k) beside it
    note: str = ""  # said among the settings


def score_named(name: str) -> Score:
    """Return the score function of that name; raise UsageError, with the names there are, if none has it."""
    if name in SCORES or name == GIVEN:
        return SCORES.get(name, _AS_GIVEN)
    hint = f"{did_you_mean(name, SCORES)}Scores are {', '.join(SCORES)}."
    raise UsageError(f"There is no score {name!r}.", hint, "--score")


def scale_of(name: str, d_k: int) -> float:
    """Return what scores of that name are multiplied by before the softmax: 1/sqrt(d_k) where scaled, else 1."""
    return 1 / sqrt(d_k) if score_named(name).is_scaled else 1.0


def position_scale_of(name: str, d_k: int) -> float:
    """Return what a learned position term is multiplied by beside scores of that name.

    It goes with the dot product: divided as that is, and beside cosines as it was in training.
    """
    return 1 / sqrt(d_k) if score_named(name).is_position_scaled else 1.0


def dot(Q: Array, K: Array) -> Array:
    """Return the dot product of each query (row) with each key (column)."""
    return Q @ K.swapaxes(-1, -2)


def cosine(Q: Array, K: Array) -> Array:
    """Return the cosine of each query with each key; 0 where a vector is zero."""
    return dot(unit(Q), unit(K))


def unit(X: Array) -> Array:
    """Return each row divided by its length; a row of zeros stays. What overflows is caught by the score check."""
    import numpy as np

    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        largest = np.abs(X).max(axis=-1, keepdims=True)
        X = X / np.where(largest == 0, 1, largest)  # so that no square overflows
        length = np.sqrt((X * X).sum(axis=-1, keepdims=True))
        return X / np.where(length == 0, 1, length)


def _dot_by_hand(q: list[float], k: list[float], score: float, write: Write) -> ByHand:
    terms = [(f"{_factor(a, write)}×{_factor(b, write)}", a * b) for a, b in zip(q, k, strict=True)]
    return ByHand("q·k", terms)


def _cosine_by_hand(q: list[float], k: list[float], score: float, write: Write) -> ByHand:
    lengths = f"({write(hypot(*q))} × {write(hypot(*k))})"
    return _dot_by_hand(q, k, score, write)._replace(after=f"; / {lengths} = {write(score)}")


def _factor(x: float, write: Write) -> str:
    return write(x) if x >= 0 else f"({write(x)})"


# By framework: the length of each row of M, the largest size in it, and what chooses.
_UNIT = {
    "numpy": (
        "np.linalg.norm(M, axis=-1, keepdims=True)",
        "np.abs(M).max(axis=-1, keepdims=True)",
        "np.where",
    ),
    "torch": (
        "torch.linalg.vector_norm(M, dim=-1, keepdim=True)",
        "M.abs().amax(dim=-1, keepdim=True)",
        "torch.where",
    ),
    "keras": (
        "ops.sqrt(ops.sum(ops.square(M), axis=-1, keepdims=True))",
        "ops.max(ops.abs(M), axis=-1, keepdims=True)",
        "ops.where",
    ),
}
_UNIT_LINES = {
    framework: Lines(
        scores="Q_unit @ {K_T}",
        before=("Q_unit, K_unit = unit(Q), unit(K)",),
        operands=("Q_unit", "K_unit"),
        helper=(
            "def unit(M):",
            '"""Return M with each row scaled to length 1; a row of zeros stays as it is."""',
            f"length = {length}",
            f"return M / {where}(length == 0.0, 1.0, length)",
        ),
        careful=(
            f"largest = {largest}",
            f"M = M / {where}(largest == 0.0, 1.0, largest)  # so that no square overflows or vanishes",
        ),
    )
    for framework, (length, largest, where) in _UNIT.items()
}
_DOT = Score(
    of=dot,
    is_scaled=False,
    noun="dot product",
    symbol="q·k",
    column="q·k",
    matrix="Q Kᵀ: q·k",
    ascii_matrix="Q K^T",
    latex=r"Q K^\top",
    help="dot is q.k",
    by_hand=_dot_by_hand,
    lines=dict.fromkeys(_UNIT, Lines("Q @ {K_T}")),
    javascript=Terms("a * b", "q × k"),
    as_dot=lambda X: X,
    is_position_scaled=False,
)
SCORES: dict[str, Score] = {
    "scaled": _DOT._replace(is_scaled=True, help="scaled is q.k / sqrt(d_k)", is_position_scaled=True),
    "dot": _DOT,
    "cosine": Score(
        of=cosine,
        is_scaled=False,
        noun="cosine",
        symbol="cos(q, k)",
        column="cosine",
        matrix="cos(q, k)",
        ascii_matrix="cos(Q, K)",
        latex=None,
        help="cosine is cos(q, k)",
        by_hand=_cosine_by_hand,
        lines=_UNIT_LINES,
        javascript=Terms("a * b", "q × k", "unit"),
        as_dot=unit,
        note="scores are cosines",
    ),
}
# Given scores are passed in the place of Q; K is ignored.
_AS_GIVEN = _DOT._replace(
    of=lambda Q, K: Q,
    noun="score",
    symbol="score",
    column="score",
    matrix="given, so the steps begin here",
    ascii_matrix="scores",
    latex=None,
    as_dot=None,
)
