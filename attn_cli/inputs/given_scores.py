"""Scores that are given in the place of Q and K: raw, scaled or masked ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from attn_cli.errors import InputError

if TYPE_CHECKING:
    from attn_cli.io.array_types import Array

SCORES = ("masked_scores", "scaled_scores", "scores")  # the one that is computed first is taken


class GivenScores(NamedTuple):
    """Scores (heads, n_q, n_k), -inf where masked, and the name they were given by; only raw `scores` are scaled."""

    name: str
    values: Array

    @property
    def is_raw(self) -> bool:
        """Whether a given scale is still to be applied."""
        return self.name == "scores"


def read_scores(record: Mapping[str, object], name: str) -> dict[str, Array]:
    """Return the scores that a record starts from, under their name; nothing where it has Q, or X, or no scores.

    null and -Infinity are masked. Raises InputError for what is no number.
    """
    if any(record.get(key) is not None for key in ("Q", "X")):
        return {}
    key = next((key for key in SCORES if record.get(key) is not None), None)
    if key is None:
        return {}
    values = _numbers(record[key], f"{name}: {key}")
    if values.ndim not in (2, 3, 4) or 0 in values.shape:
        raise InputError(
            f"{name}: {key} has shape {values.shape}; it should have 2 to 4 axes and no empty one.",
            "Give (n_q, n_k), (heads, n_q, n_k) or (batch, heads, n_q, n_k).",
        )
    return {key: values}


def taken_scores(arrays: dict[str, Array]) -> GivenScores | None:
    """Take the scores out of the arrays, after an item of the batch was chosen; None where there are none."""
    key = next((key for key in SCORES if key in arrays), None)
    if key is None:
        return None
    values = arrays.pop(key)
    return GivenScores(key, values if values.ndim == 3 else values[np.newaxis])


def _numbers(value: object, where: str) -> Array:
    """Return numbers as float64; null becomes -inf."""
    try:
        written = np.asarray(value)
    except ValueError:
        written = np.array("")
    if written.dtype.kind == "O" and all(_is_cell(cell) for cell in written.ravel().tolist()):
        cells = [-np.inf if cell is None else cell for cell in written.ravel().tolist()]
        written = np.array(cells, dtype=np.float64).reshape(written.shape)
    if written.dtype.kind not in "iufb":
        raise InputError(f"{where} is not a matrix of numbers.", "Give rows of equally many numbers.")
    numbers = written.astype(np.float64)
    if (bad := np.isnan(numbers) | np.isposinf(numbers)).any():
        place = tuple(int(n) for n in np.argwhere(bad)[0])
        raise InputError(
            f"{where} holds a number that is not finite, at {place}.", "null or -Infinity masks a key."
        )
    return numbers


def _is_cell(cell: object) -> bool:
    return cell is None or (isinstance(cell, (int, float)) and not isinstance(cell, bool))
