"""A mask read off saved weights: zeros above the diagonal, at padding, and in whole rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from attn_cli.io.escape import shortened
from attn_cli.text.wordpieces import is_padding, is_special

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from attn_cli.io.array_types import Bools, Ints

MASK_HINT = " (--mask none shows zeros)"


class Inferred(NamedTuple):
    """What the zeros say: `allowed` (n_q, n_k), None where all is; the rows `idle` are padding's, and mean nothing."""

    allowed: Bools | None
    name: str
    idle: Ints
    notes: tuple[str, ...]


def infer_mask(
    weights: NDArray[Any], layer: NDArray[Any], tokens: tuple[str, ...], padded: Bools | None = None
) -> Inferred:
    """Return the mask of one layer, (heads, n_q, n_k), of all `weights`, (layers, heads, n_q, n_k).

    `padded` (n_k) tells the keys that an attention mask hides, where the file has one.
    """
    n_q, n_k = layer.shape[-2:]
    notes, name = [], "exact zeros"
    hidden, where = _padding(weights, tokens), "as padding does"
    lead = 0
    if padded is not None and _is_obeyed(weights, padded):
        hidden, lead = np.flatnonzero(padded), left_padding(weights, tokens, padded)
        where = "and attention_mask says that it is padding"
    elif padded is not None:
        notes.append("The file's attention_mask hides keys that get weight, and is not used")
    elif (found := left_padding(weights, tokens)) and _is_causal(weights[..., found:, found:]):
        lead, hidden = found, np.union1d(hidden, np.arange(found))
        where = "as padding on the left does"
    allowed = np.ones((n_q, n_k), np.bool_)
    if _is_causal(weights[..., lead:, lead:]):
        allowed, name = np.tri(n_q, dtype=np.bool_), "causal"
        behind = "Behind the padding, all above the diagonal" if lead else "Above the diagonal all"
        notes.append(f"{behind} is exactly 0, as under a causal mask: masked{MASK_HINT}")
    allowed[:, hidden] = False
    idle = idle_rows(layer, allowed)
    if len(hidden):
        rows = "; its own rows mean nothing, and zeros stand in" if len(idle) else ""
        notes.append(f"{shortened(tokens[hidden[0]])} gets exactly 0, {where}: masked{rows}{MASK_HINT}")
    blind = _blind(layer)
    allowed[blind] = False
    allowed[idle] = False
    name = "exact zeros" if len(hidden) or blind.any() else name
    return Inferred(None if allowed.all() else allowed, name, idle, tuple(f"{note}." for note in notes))


def left_padding(weights: NDArray[Any], tokens: tuple[str, ...], padded: Bools | None = None) -> int:
    """Return how many tokens pad a text on the left: nothing to their right, in any layer and head, looks at them.

    Such tokens are one special token, several times or named for padding, or those that `padded` tells. What they
    look at themselves means nothing: under a causal mask they see padding alone.
    """
    *_, n_q, n_k = weights.shape
    if n_q != n_k:
        return 0
    is_candidate = [is_special(token) and token == tokens[0] for token in tokens]
    run = int(np.argmin([*(is_candidate if padded is None else padded), False]))
    seen = np.zeros((n_q, run), np.bool_)
    for matrix in weights.reshape(-1, n_q, n_k):
        seen |= np.nan_to_num(matrix[:, :run]) != 0
    last = np.where(seen, np.arange(n_q)[:, np.newaxis], -1).max(axis=0, initial=-1)
    ends = np.flatnonzero(np.maximum.accumulate(last) <= np.arange(run)) + 1
    count = int(ends[-1]) if len(ends) else 0
    is_plain = padded is None and count == 1 and not is_padding(tokens[0])
    return 0 if is_plain or count == n_q else count


def idle_rows(layer: NDArray[Any], allowed: Bools) -> Ints:
    """Return the rows of a layer, (heads, n_q, n_k), with weight where the mask (n_q, n_k) allows none."""
    found: Ints = np.flatnonzero((np.nan_to_num(layer).any(axis=0) & ~allowed).any(axis=1))
    return found


def _is_obeyed(weights: NDArray[Any], padded: Bools) -> bool:
    """Tell whether nothing but padding looks at the keys that an attention mask hides."""
    *_, n_q, n_k = weights.shape
    rows = ~padded if n_q == n_k else np.ones(n_q, np.bool_)
    return not any(np.nan_to_num(one[np.ix_(rows, padded)]).any() for one in weights.reshape(-1, n_q, n_k))


def _is_causal(weights: NDArray[Any]) -> bool:
    """Tell whether all layers and heads, (..., n_q, n_k), have zeros above the diagonal and others below it."""
    *_, n_q, n_k = weights.shape
    if n_q != n_k or n_q == 1:
        return False
    above, below = np.triu_indices(n_q, 1), np.tril_indices(n_q, -1)
    matrices = weights.reshape(-1, n_q, n_k)
    if any(np.nan_to_num(matrix[above]).any() for matrix in matrices):
        return False
    return any(np.nan_to_num(matrix[below]).any() for matrix in matrices)


def _padding(weights: NDArray[Any], tokens: tuple[str, ...]) -> Ints:
    """Return the keys that are special tokens and get nothing in any layer and head, (..., n_q, n_k).

    A word may get nothing without a mask, as weights too small for a number become zero.
    """
    special = np.flatnonzero([is_special(token) for token in tokens])
    axes = tuple(range(weights.ndim - 1))
    used = np.nan_to_num(weights[..., special]).any(axis=axes)
    unused: Ints = special[np.logical_not(used)]
    return unused if len(unused) < len(tokens) else unused[:0]


def _blind(layer: NDArray[Any]) -> Bools:
    """Return which queries of a layer, (heads, n_q, n_k), have only zeros or NaN in every head."""
    unseeing: Bools = np.logical_not(np.nan_to_num(layer).any(axis=(0, 2)))
    return unseeing
