"""Matrices of a model in half the bytes: a row's numbers are whole numbers of eight bits times one power of two.

This is block floating point (Wilkinson 1963, "Rounding Errors in Algebraic Processes") with one block per row. Because
the factor is a power of two, what is dequantized is exact in float16, and is quantized to the same bytes again.
"""

from __future__ import annotations

import numpy as np

from attn_cli.io.types import Array, Arrays, NDArray

EXPONENTS = ".exponents"  # what the name of a matrix ends with where its rows' exponents are
FEWEST = 1000  # numbers in a matrix that is quantized
MOST = 127  # of a row, the largest number
LEAST_EXPONENT, MOST_EXPONENT = -24, 9  # of float16: from its least number above zero, to 127 * 2^9


def in_bits(arrays: Arrays, bits: str) -> Arrays:
    """Return a model's arrays as its file is to hold them: in float16, or with `bits` 8 their matrices quantized."""
    halves: Arrays = {name: np.ascontiguousarray(value, dtype=np.float16) for name, value in arrays.items()}
    return quantized(halves) if bits == "8" else halves


def quantized(arrays: Arrays) -> Arrays:
    """Return a model's arrays with its matrices of float16, (..., rows, columns), as int8 and exponents (..., rows).

    A number is off by at most a 127th of the largest in its row.
    """
    found: Arrays = {}
    for name, value in arrays.items():
        is_matrix = value.dtype == np.float16 and value.ndim > 1 and value.size >= FEWEST
        if is_matrix and np.isfinite(value).all():
            found |= dict(zip((name, name + EXPONENTS), _quantized(value), strict=True))
        else:
            found[name] = value
    return found


def _quantized(matrix: Array) -> tuple[NDArray[np.int8], NDArray[np.int8]]:
    """Return whole numbers up to MOST, and what power of two each row's are to be multiplied by.

    >>> numbers, exponents = _quantized(np.array([[1.0, -2.0, 0.3], [0, 0, 0]]))
    >>> numbers.tolist(), exponents.tolist()
    ([[32, -64, 10], [0, 0, 0]], [-5, -24])
    """
    wide = np.asarray(matrix, np.float64)
    largest = np.abs(wide).max(axis=-1)
    with np.errstate(divide="ignore"):
        exponents = np.ceil(np.log2(largest / MOST)).clip(LEAST_EXPONENT, MOST_EXPONENT).astype(np.int8)
    whole = np.rint(wide * np.exp2(-exponents.astype(float))[..., np.newaxis])
    clipped = whole.clip(-MOST, MOST)  # 65,504 = 127.9 * 2^9 is the one that is too large
    return clipped.astype(np.int8), exponents


def dequantized(arrays: Arrays) -> Arrays:
    """Return a model's arrays with its int8 matrices as float32; what has no fitting exponents stays as it is.

    Their numbers are halves all the same; widening them once here is quicker than each time that they are used.
    """
    found = {name: value for name, value in arrays.items() if not name.endswith(EXPONENTS)}
    for name, value in found.items():
        exponents = arrays.get(name + EXPONENTS)
        if exponents is None or value.dtype != np.int8 or exponents.shape != value.shape[:-1]:
            continue
        fits = np.all((exponents >= LEAST_EXPONENT) & (exponents <= MOST_EXPONENT)) and np.all(value >= -MOST)
        if exponents.dtype == np.int8 and fits:
            found[name] = value * np.exp2(exponents.astype(np.float32))[..., np.newaxis]
    return found
