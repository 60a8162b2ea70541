"""A student's answer: the matrices of any of the steps, and to how many digits each was given."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np

from attn_cli.errors import InputError, refuse_input, visible
from attn_cli.inputs import csv_matrix, matrices
from attn_cli.inputs.record import read_record
from attn_cli.io.types import Array, Bools, NamedTuple, NDArray
from attn_cli.teach.replay import GRADED_STEPS, OF_HEADS, SCORE_STEPS, Problem, Procedure, possible_arrays

FEWEST_DIGITS, MOST_DIGITS = 2, 17  # fewer are not believed: in a small matrix 0.5 may stand for 0.50
DEEPEST = 8

# What may stand beside the matrices and is not a matrix.
LABELS = {"name", "student", "kind", "head", "query_tokens", "key_tokens", "mask_name", "mask_convention"}


Record = Mapping[str, object]


class Matrix(NamedTuple):
    """One step as it was given: NaN for null; infinities and the like as they stand."""

    values: Array
    digits: int

    @property
    def half_unit(self) -> float:
        """Half a unit of the last digit given: how far rounding may have moved a number."""
        return float(0.5 * 10.0**-self.digits)


class Submission(NamedTuple):
    """An answer: matrices by the names of the steps, and the names of what else it holds."""

    name: str
    steps: Mapping[str, Matrix]
    others: tuple[str, ...] = ()
    head: str | None = None  # of attn's own JSON: the head whose weights and output are at the top level
    stacks: Mapping[str, Matrix] = {}  # of attn's own JSON: each step of all its heads


def read_submission(path: str, asked: Iterable[str] = GRADED_STEPS) -> Submission:
    """Read an answer from JSON, .npz, .safetensors, or a CSV file of one matrix; NaN and null are masked cells."""
    return submission_from(read_record(path, as_written=True), visible(str(path)), asked)


def submission_from(record: Record, name: str, asked: Iterable[str] = GRADED_STEPS) -> Submission:
    """Take the steps from a record of named values; Q, K and V are accepted for q, k and v.

    From attn's own JSON the heads' matrices are taken too. InputError where none of the steps asked for is there.
    """
    known = {*GRADED_STEPS, "Q", "K", "V"}
    blank = [key for key in record if key in known and _is_blank(record[key])]
    record = {key: value for key, value in record.items() if value is not None and key not in blank}
    is_own, found, head = record.get("schema") == "attn/1", record.get("heads"), record.get("head")
    heads, stacks = found if isinstance(found, list) else [], {}
    for step in OF_HEADS:
        parts = [part for one in heads if isinstance(one, dict) and (part := one.get(step)) is not None]
        if parts and len(parts) == len(heads):
            stacks[step] = matrix_from(parts if len(parts) > 1 else parts[0], f"{name}: {step} of the heads")
    steps = dict(stacks)
    for step in GRADED_STEPS:
        key = step if step in record or step not in "qkv" else step.upper()
        if key in record:
            steps[step] = matrix_from(record[key], f"{name}: {key}")
    others = (
        ()
        if is_own
        else tuple(visible(str(key)) for key in record if key not in known | matrices.KNOWN | LABELS)
    )
    if not steps and blank:
        raise InputError(f"{name}: nothing is filled in yet.", "Put numbers in the place of null.")
    if steps.keys().isdisjoint(asked):
        wanted = " or ".join(", ".join(asked).rsplit(", ", 1))
        names = [*steps, *others][:8]
        held = f": it holds {', '.join(names)}" if names else ""
        said = f"{name} has none of {wanted}{held}."
        raise InputError(said, "Name the matrices so, or a CSV file after its matrix: weights.csv.")
    return Submission(name, steps, others, head if is_own and isinstance(head, str) else None, stacks)


def _is_blank(value: object) -> bool:
    """Tell whether nothing is filled in: null, or lists of only null, as in a worksheet's template."""
    return value is None or (isinstance(value, list) and bool(value) and all(map(_is_blank, value)))


def matrix_from(value: object, where: str) -> Matrix:
    """Return a matrix with the digits that it was given to; raise InputError where it is not a matrix of numbers."""
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in "iuf":
            raise InputError(f"{where} is not a matrix of numbers: it holds {value.dtype}.")
        decimals, values = _array_decimals(value), value.astype(np.float64)
        # 0.1 in float32 means 0.1, not 0.10000000149.
        values = np.round(values, decimals) if decimals < MOST_DIGITS else values
    else:
        try:
            values, decimals = np.array(_numbers(value), dtype=np.float64), _text_decimals(value)
        except (ValueError, OverflowError):
            values = np.array(np.nan)
        said = f"{where} is not a matrix of numbers."
        refuse_input(values.ndim == 0, said, "Give rows of equally many numbers; null is a masked cell.")
    # Programs drop trailing zeros: 0.5 may be 0.50, and 1 may be 1.00. Three different numbers show one digit.
    fractions = values[np.isfinite(values) & (values != np.round(values))]
    if decimals == 1 and len(np.unique(fractions)) > FEWEST_DIGITS:
        return Matrix(values, 1)
    return Matrix(values, min(MOST_DIGITS, max(FEWEST_DIGITS, decimals)))


def _numbers(value: object, depth: int = 0) -> object:
    """Return nested lists with NaN for null; ValueError for anything but numbers in lists."""
    if isinstance(value, list) and depth < DEEPEST:
        return [_numbers(item, depth + 1) for item in value]
    if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float))):
        raise ValueError
    return float("nan") if value is None else value


def _text_decimals(value: object) -> int:
    if isinstance(value, list):
        return max(map(_text_decimals, value), default=0)
    return value.decimals if isinstance(value, csv_matrix.WrittenNumber) else 0


def _array_decimals(array: NDArray[np.generic]) -> int:
    """Return how many decimals an array's numbers show when written as short as possible."""
    numbers = array[np.isfinite(array)] if array.dtype.kind == "f" else array[:0]
    wide = numbers.astype(np.float64)
    with np.errstate(all="ignore"):
        shown = (np.round(wide, n).astype(array.dtype) for n in range(MOST_DIGITS))
        return next((n for n, one in enumerate(shown) if np.array_equal(one, numbers)), MOST_DIGITS)


MASKED_BELOW = -999.0  # a score below this, and far below all others, is a masked one such as -1e9

# From one array (heads, rows, columns); a number as a layout's name is that head alone.
_LAYOUTS: dict[str, Callable[[Array], Array]] = {
    "stack": lambda heads: heads,
    "side": lambda heads: np.concatenate(list(heads), axis=-1),
    "below": lambda heads: np.concatenate(list(heads), axis=0),
    "mean": lambda heads: np.asarray(heads.mean(axis=0)),
    "sum": lambda heads: np.asarray(heads.sum(axis=0)),
}


def accepted_layouts(
    problem: Problem, procedure: Procedure, step: str, arrays: list[Array], target: str, digits: int | None
) -> list[list[Array]]:
    """Return a step's arrays, (heads, rows, columns) each, in every layout that is accepted, the usual one first.

    `target` is mean, all or a head's number; `digits` those of a student who rounded each head before joining them.
    """
    is_projected, is_score = step in ("q", "k", "v"), step in SCORE_STEPS
    layouts: tuple[str, ...] = ("stack", "side") if step == "output" else ("stack",)
    if problem.heads == 1 or step == "layer_output":
        layouts = ("0",)
    elif target not in ("mean", "all"):
        layouts = (target, *["stack"] * (is_projected or is_score), *["side"] * is_projected)
    elif is_projected or is_score:
        layouts = ("side", "stack") if is_projected else ("stack", "mean")
    elif target == "mean":
        layouts = ("mean",)

    def laid_out(layout: str) -> list[Array]:
        heads = arrays + rounded(arrays, digits) if layout in ("mean", "sum") else arrays
        lay_out = _LAYOUTS.get(layout)
        return [array[int(layout)] if lay_out is None else lay_out(array) for array in heads]

    found = [laid_out(layout) for layout in layouts]
    if step == "output" and target == "mean":  # with W_o, some give the layer's output
        layer = possible_arrays(problem, procedure, "layer_output", {"output": arrays})
        found += [[array[0] for array in layer]] if layer else []
    if procedure.heads_apart and step in (*SCORE_STEPS, "weights", "output"):
        others = ("stack", "side", "below", *map(str, range(problem.heads)), "sum")
        found += [laid_out(layout) for layout in others]
    return found


def rounded(arrays: list[Array], digits: int | None) -> list[Array]:
    """Return the step rounded as by a student who rounds each step: one array, or none."""
    return [] if digits is None or not arrays else [np.round(arrays[-1], digits)]


def fit_shape(given: Array, shape: tuple[int, ...]) -> Array | None:
    """Return the matrix in that shape, where only axes of length one differ; None if it does not fit."""
    extra = max(0, given.ndim - len(shape))
    is_line = given.ndim == 1 and 1 in shape[-2:] and given.size == int(np.prod(shape))
    is_like = given.shape[extra:] == shape and set(given.shape[:extra]) <= {1}
    return given.reshape(shape) if is_line or is_like else None


def submitted_heads(
    given: Array, step: str, arrays: list[Array], target: str, digits: int | None
) -> list[Array]:
    """Return the student's own numbers as (heads, rows, columns), to compute the next step from: one array, or none.

    Masked cells, which hold no number, get the computed one, rounded. Heads cannot be taken back out of their mean.
    """
    usual = arrays[0]
    heads = len(usual)
    alone = fit_shape(given, usual.shape[1:]) if heads == 1 or target.isdigit() else None
    own = fit_shape(given, usual.shape)
    if alone is not None:
        own = np.copy(usual)
        own[0 if heads == 1 else int(target)] = alone
    elif own is None and given.shape == (usual.shape[1], heads * usual.shape[2]) and step in ("q", "k", "v"):
        own = np.stack(np.split(given, heads, axis=1))
    if own is None:
        return []
    return [np.where(masked_cells(own, step, usual), (rounded(arrays, digits) or arrays)[-1], own)]


def masked_cells(given: Array, step: str, usual: Array) -> Bools:
    """Return which cells stand for masked: they hold no number, or a score far below all others, as -1e9."""
    if step not in SCORE_STEPS:
        return ~np.isfinite(given)
    largest = float(np.max(np.abs(usual), initial=0.0, where=np.isfinite(usual)))
    with np.errstate(invalid="ignore"):
        return ~np.isfinite(given) | (given < min(MASKED_BELOW, -100 * largest))
