"""Named values: files of JSON, .npz, .npy, .safetensors, or one matrix as CSV; and KEY=VALUE, as somebody types it."""

from __future__ import annotations

import io
import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from attn_cli.errors import InputError, count, listed, refuse, refuse_input, visible
from attn_cli.inputs.csv_matrix import WrittenNumber, is_csv, is_number, read_sheet
from attn_cli.io import array_files, files
from attn_cli.io.types import Array, NDArray

Record: TypeAlias = Mapping[str, object]
MOST_BYTES = 1 << 30
MOST_TEXT = 1 << 28
LONGEST = 60  # characters of what is quoted in a message
RECIPE = "Where it was made: numpy.savez('attention.npz', attentions=torch.stack(attentions).cpu().numpy())"
# The matrices of a CSV file with a row for each token of the text, and those with a row, or a column, for each key.
ROWS_OF_TEXT = ("Q", "q", "X", "scores", "scaled_scores", "masked_scores", "weights", "output")
ROWS_OF_KEYS = ("K", "k", "V", "v", "context")
COLUMNS_OF_KEYS = ("scores", "scaled_scores", "masked_scores", "weights")


def read_record(path: str | Path, as_written: bool = False) -> dict[str, object]:
    """Read a file of named values: a JSON object, a .npz or a safetensors file, or one matrix as .csv or .tsv.

    A CSV file is named after its matrix: Q.csv, weights.csv. With `as_written`, numbers from text know how many
    decimals they were written with.
    """
    data, name = files.read_bytes(path, MOST_BYTES), visible(str(path))
    if not is_csv(path) or is_binary(data):
        found = values_in(data, name, as_written)
        if not isinstance(found, dict):
            raise InputError(f"{name} is not a JSON object of named matrices.")
        return found
    name, (cells, rows, columns) = Path(path).stem, read_sheet(path)
    numbers = [list(map(WrittenNumber, row)) for row in cells]
    record: dict[str, object] = {name: numbers if as_written else np.array(numbers)}
    if rows is not None and name in (*ROWS_OF_TEXT, *ROWS_OF_KEYS):
        record["tokens" if name in ROWS_OF_TEXT else "context_tokens"] = rows
    if columns is not None and name in COLUMNS_OF_KEYS:
        record["context_tokens"] = columns
    return record


def is_binary(data: bytes) -> bool:
    """Tell by a file's first bytes whether it holds arrays, or a pickle, and no text."""
    return data.startswith((b"\x93NUMPY", b"PK", b"\x80")) or array_files.is_safetensors(data)


def values_in(data: bytes, name: str, as_written: bool = False) -> object:
    """Return what the bytes of a file hold, by name: arrays of .npz or safetensors, values of JSON; or a lone one.

    Raises InputError for what is none of these, and for pickles, which are never read.
    """
    file = io.BytesIO(data)
    if array_files.is_safetensors(data):
        return dict(array_files.safetensors_in(file, name)[0])
    said = f"{name} is a pickle, as torch.save writes: pickles can run code, so attn never reads them."
    refuse_input(data[:1] == b"\x80" or (data[:2] == b"PK" and b"data.pkl" in data[:4096]), said, RECIPE)
    if data[:2] == b"PK":
        return {
            key: to_python(array, name) for key, array in array_files.npz_in(file, name, MOST_BYTES).items()
        }
    if data[:6] == b"\x93NUMPY":
        return array_files.npy_in(file, name)
    if len(data) > MOST_TEXT:
        raise InputError(f"{name}: {len(data):,} bytes of JSON are too many.", "Save it as .npy.")
    return json_of(data, name, as_written)


def to_python(array: NDArray[Any], where: str) -> object:
    """Return texts and single values as Python objects, as NumPy saves even `"scaled"` as an array."""
    try:
        return array.tolist() if array.ndim == 0 or array.dtype.kind in "SU" else array
    except (SystemError, ValueError):  # code points beyond Unicode
        raise InputError(f"{where} holds characters that do not exist.") from None


def as_array(value: object) -> NDArray[Any]:
    """Return a value as an array; one of None, without an axis, where lists have rows of several lengths."""
    try:
        return np.asarray(value)
    except ValueError:
        return np.array(None)


def json_of(data: bytes, name: str, as_written: bool = False) -> object:
    """Return a JSON text's value, numbers `as_written` with their decimals; InputError, with the place."""
    try:
        text = data.decode("utf-8-sig")
        return json.loads(text, parse_float=WrittenNumber) if as_written else json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"{name}, line {error.lineno}, column {error.colno}: not JSON.") from None
    except UnicodeDecodeError:
        raise InputError(f"{name} is neither JSON nor .npz nor .safetensors.") from None
    except (ValueError, RecursionError):
        raise InputError(f"{name}: a number is too long, or lists are nested too deeply.") from None


def numbers_in(value: object, where: str) -> NDArray[Any]:
    """Return numbers as an array; raise InputError, which `where` begins and has the place, where they are not one."""
    found = as_array(value)
    if found.dtype.kind not in "iufb":
        said = f"{where} is not a matrix of numbers{_crooked(value)}."
        raise InputError(said, "Give rows of equally many numbers.")
    return found


def _crooked(value: object, at: str = "") -> str:
    """Return in words the first place where nested lists do not form an array; nothing where it lies very deep."""
    if len(at) > LONGEST:
        return ""
    if not isinstance(value, list):
        is_number = isinstance(value, (int, float))
        return "" if is_number or not at else f": {visible(json.dumps(value)[:40])} stands at {at.strip()}"
    lengths = [len(part) if isinstance(part, list) else -1 for part in value]
    for place, length in enumerate(lengths):
        if length != lengths[0]:
            first, other = map(_size, (value[0], value[place]))
            return f": {at}[0] {first}, {at}[{place}] {other}"
    return next(filter(None, (_crooked(part, f"{at}[{i}]") for i, part in enumerate(value))), "")


def _size(part: object) -> str:
    return f"has {count(len(part), 'number', 'numbers')}" if isinstance(part, list) else "is no list"


def array(value: object, key: str, axes: tuple[int, ...], name: str, may_be_masked: bool = False) -> Array:
    """Return finite numbers as float64, which have one of these numbers of axes, none of them empty.

    `name` and `key` begin the message of the InputError. Masked numbers are null or -Infinity, and become -inf.
    """
    where = f"{name}: {key}"
    if may_be_masked and (cells := as_array(value)).dtype.kind == "O" and cells.ndim:
        filled = [-np.inf if cell is None else cell for cell in cells.ravel().tolist()]
        value = np.array(filled, object).reshape(cells.shape).tolist()
    numbers = numbers_in(value, where).astype(np.float64)
    if numbers.ndim not in axes or 0 in numbers.shape:
        wanted = f"{axes[0]} axes" if len(axes) == 1 else f"{axes[0]} to {axes[-1]} axes"
        said = f"{where} has shape {numbers.shape}; it should have {wanted} and no empty one."
        hint = "Give (n_q, n_k), (heads, n_q, n_k) or (batch, heads, n_q, n_k)." if may_be_masked else ""
        raise InputError(said, hint)
    if (bad := ~(np.isfinite(numbers) | (may_be_masked & np.isneginf(numbers)))).any():
        place = tuple(int(n) for n in np.argwhere(bad)[0])
        hint = "null or -Infinity masks a key." if may_be_masked else ""
        raise InputError(f"{where} holds a number that is not finite, at {place}.", hint)
    return numbers


def texts(record: Record, key: str, name: str, batch: int | None = None) -> tuple[str, ...] | None:
    """Return the tokens that a record holds under a key, of one text of a batch; None where it has none."""
    value = record.get(key)
    if value is None:
        return None
    if not isinstance(value, list):
        raise InputError(f"{name}: {key} should be a list of tokens.")
    return strings(one_of(value, batch), f"{name}: {key}", as_given=True)


def one_of(values: Sequence[object], batch: int | None) -> Sequence[object]:
    """Return the tokens of one text of a batch; the values themselves where there is no batch."""
    chosen = values[batch or 0] if 0 <= (batch or 0) < len(values) else None
    return chosen if isinstance(chosen, list) and (len(values) == 1 or batch is not None) else values


def strings(values: Sequence[object], where: str, as_given: bool = False) -> tuple[str, ...]:
    """Return tokens, lone surrogates as U+FFFD unless `as_given`; InputError, which `where` begins, if unsound."""
    tokens = [one.decode("utf-8", "replace") if isinstance(one, bytes) else one for one in values]
    for place, text in enumerate(tokens):
        if not isinstance(text, str) or not text:
            what = "is empty" if text == "" else "is not a string"
            raise InputError(f"{where}: token {place} {what}.", "Give each token a name.")
    found = map(str, tokens)
    if as_given:
        return tuple(found)
    return tuple(one.encode("utf-8", "surrogatepass").decode("utf-8", "replace") for one in found)


MOST_PAIRS = 2000
TRY = 'Write KEY=VALUE, as in: attn lookup colour color=black "top speed=250"'


class Pairs(NamedTuple):
    """A dictionary: a value, as typed, for each key; and notes on its input."""

    values: Mapping[str, str]
    notes: tuple[str, ...] = ()


def pairs_from(arguments: Sequence[str]) -> list[tuple[str, str]]:
    """Return (key, value) of each KEY=VALUE, cut at the first = and stripped."""
    pairs = []
    for argument in arguments:
        key, equals, value = (part.strip() for part in argument.partition("="))
        shown = repr(visible(argument[:LONGEST]))
        refuse(not equals, f"{shown} is not a pair: it has no =.", TRY)
        refuse(not key or not value, f"{shown} has no {'value' if key else 'key'}.", TRY)
        pairs.append((key, value))
    return pairs


def pairs_in(record: Mapping[str, object], name: str) -> list[tuple[str, str]]:
    """Return (key, value) of each pair in an object of texts and numbers."""
    pairs = []
    for key, value in record.items():
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
        text = str(value).strip() if is_number or isinstance(value, str) else ""
        if not key.strip() or not text:
            what = f"the value of {visible(key[:LONGEST])!r} is neither a text nor a number"
            hint = 'Write an object such as {"color": "black", "top speed": 250}.'
            raise InputError(f"{name}: {what if key.strip() else 'a key is empty'}.", hint)
        pairs.append((key.strip(), text))
    return pairs


def dictionary(pairs: Iterable[tuple[str, str]]) -> Pairs:
    """Return a dictionary of these pairs; of a repeated key the last value counts, with a note."""
    values = dict(pairs := list(pairs))
    refuse(not values, "There is no pair to look up in.", TRY)
    if len(values) > MOST_PAIRS:
        raise InputError(f"{len(values):,} pairs are too many: {MOST_PAIRS:,} are the limit.")
    repeated = [key for key, times in Counter(key for key, _ in pairs).items() if times > 1]
    counted = f"Given more than once: {listed(repeated)}. As in a Python dictionary, the last value counts."
    notes = [counted] if repeated else []
    words = [value for value in values.values() if not is_number(value)]
    if 0 < len(words) < len(values):
        notes.append(f"{visible(words[0][:LONGEST])!r} is not a number, so all values count as words.")
    return Pairs(MappingProxyType(values), tuple(notes))


def numbers_of(pairs: Pairs) -> list[float] | None:
    """Return the values as numbers; None if one is not a number."""
    values = pairs.values.values()
    if not all(map(is_number, values)):
        return None
    for value in values:
        if not math.isfinite(float(value)):
            said = f"The value {visible(value[:LONGEST])} is more than a number can hold."
            raise InputError(said, "Give a smaller one.")
    return [float(value) for value in values]
