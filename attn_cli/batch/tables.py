"""Records as columns: Arrow, Parquet, and NumPy files of one part each. pyarrow is needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from attn_cli.errors import AttnError, MissingExtra, UsageError, did_you_mean
from attn_cli.io.escape import visible

try:
    import pyarrow as pa
except ImportError:
    raise MissingExtra(
        "Columns (parquet, arrow, npz) and zst need pyarrow.", "pip install 'attn-cli[batch]'"
    ) from None

if TYPE_CHECKING:
    from attn_cli.batch.job import Job
    from attn_cli.batch.records import Record

SCHEMA = "attn-table/1"  # columns are only ever added
ALWAYS = ("schema", "kind")  # which are metadata of the table

Rows = Sequence["Record | AttnError"]


def _types(number: Any) -> dict[str, Any]:
    """Return the type of each column there is, where weights are numbers of this type."""
    words, ids, matrix = pa.list_(pa.string()), pa.list_(pa.int32()), pa.list_(pa.list_(number))
    strongest = [("query", pa.string()), ("key", pa.string()), ("weight", number)]
    places = [("query_index", pa.int32()), ("key_index", pa.int32())]
    link = [("query", pa.int32()), ("key", pa.int32()), ("weight", number)]
    return {
        "query_tokens": words,
        "key_tokens": words,
        "query_ids": ids,
        "key_ids": ids,
        "unknown": words,
        "dropped": words,
        "mask_name": pa.string(),
        "head": pa.string(),
        "weights": matrix,
        "output": matrix,
        "summary": pa.list_(pa.struct(strongest + places)),
        "links": pa.list_(pa.struct(link)),
        "notes": words,
    }


def columns_of(keys: Sequence[str], is_all: bool) -> tuple[str, ...]:
    """Return the keys of a record that become columns: all that can, or UsageError for one that cannot."""
    known = _types(pa.float64())
    if is_all:
        return (*ALWAYS, *(key for key in keys if key in known))
    for key in keys:
        if key not in known and key not in ALWAYS:
            hint = f"{did_you_mean(key, known)}Columns are {', '.join(known)}."
            raise UsageError(f"There is no column {visible(key)!r} in tables.", hint, "--fields")
    return tuple(keys)


def schema_of(job: Job) -> Any:
    """Return the Arrow schema of a job's table."""
    types = _types(pa.float32() if job.settings.dtype == "float32" else pa.float64())
    fields = [pa.field("line", pa.int64(), nullable=False)]
    fields += [pa.field(key, types[key]) for key in job.keys if key in types]
    if job.keep_going:
        fields.append(pa.field("error", pa.struct([("code", pa.int16()), ("message", pa.string())])))
    return pa.schema(fields, metadata={"attn.schema": SCHEMA, "attn.kind": job.kind})


def columns(rows: Rows, job: Job, first: int) -> bytes:
    """Return rows as one batch of an Arrow stream; `first` is the number of the first line."""
    schema = schema_of(job)
    stream = pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, schema) as writer:
        made = [_column(field, rows, first) for field in schema]
        writer.write_batch(pa.record_batch(made, schema=schema))
    data: bytes = stream.getvalue().to_pybytes()
    return data


def _column(field: Any, rows: Rows, first: int) -> Any:
    """Return a column of rows, of which `first` is the number of the first."""
    name, type_ = field.name, field.type
    if name == "line":
        return pa.array(range(first, first + len(rows)), type_)
    if name == "error":
        bad = [
            {"code": row.code, "message": row.message} if isinstance(row, AttnError) else None for row in rows
        ]
        return pa.array(bad, type_)
    values = [None if isinstance(row, AttnError) else row[name] for row in rows]
    if name in ("weights", "output"):
        return _matrices(values, type_)
    if name == "links":
        keys = ("query", "key", "weight")
        values = [links and [dict(zip(keys, link, strict=True)) for link in links] for links in values]
    return pa.array(values, type_)


def _matrices(values: Sequence[Any], type_: Any) -> Any:
    """Return matrices, or None, as lists of lists, without a Python object for each number."""
    dtype = type_.value_type.value_type.to_pandas_dtype()
    empty = np.empty((0, 0), dtype)
    made = [empty if value is None else np.asarray(value, dtype) for value in values]
    flat = np.concatenate([M.ravel() for M in made]) if made else np.empty(0, dtype)
    heights = np.array([len(M) for M in made], np.int64)
    widths = np.repeat(np.array([M.shape[1] for M in made], np.int64), heights)
    inner = pa.ListArray.from_arrays(_offsets(widths), pa.array(flat))
    missing = pa.array([value is None for value in values], pa.bool_())
    return pa.ListArray.from_arrays(_offsets(heights), inner, mask=missing)


def _offsets(lengths: Any) -> Any:
    return pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())


def zstd(data: bytes) -> bytes:
    """Return the data as one frame of zstd."""
    packed: bytes = pa.compress(data, codec="zstd", asbytes=True)
    return packed


@contextmanager
def _parquet(stream: IO[bytes], job: Job) -> Iterator[Callable[[bytes], None]]:
    """Write batches as a Parquet file; after an error nothing more is written, and the stream may be closed."""
    from pyarrow import parquet  # another library to load

    file = pa.PythonFile(stream, mode="w")
    writer = parquet.ParquetWriter(file, schema_of(job), compression="zstd")
    try:
        yield lambda data: _write(writer, data)
        writer.close()
    except BaseException:
        writer.is_open = False
        raise


@contextmanager
def _arrow(stream: IO[bytes], job: Job) -> Iterator[Callable[[bytes], None]]:
    """Write batches as an Arrow file."""
    writer = pa.ipc.new_file(pa.PythonFile(stream, mode="w"), schema_of(job))
    yield lambda data: _write(writer, data)
    writer.close()


def _write(writer: Any, data: bytes) -> None:
    for batch in pa.ipc.open_stream(data):
        writer.write_batch(batch)


@contextmanager
def _npz(stream: IO[bytes], job: Job) -> Iterator[Callable[[bytes], None]]:
    """Hold a part, and write it as arrays: of lists, all values one after the other and the lengths."""
    batches: list[Any] = []
    yield lambda data: batches.extend(pa.ipc.open_stream(data))
    table = pa.Table.from_batches(batches, schema_of(job))
    arrays: dict[str, Any] = {}
    for name in table.column_names:
        _flatten(name, table[name].combine_chunks(), arrays)
    np.savez(stream, **arrays)


def _flatten(name: str, column: Any, arrays: dict[str, Any]) -> None:
    """Add a column as plain arrays: `name`, of a list also `name_lengths`, of a struct one for each of its fields."""
    if pa.types.is_list(column.type):
        lengths = column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
        inner = column.type.value_type
        arrays[f"{name}_rows" if pa.types.is_list(inner) else f"{name}_lengths"] = lengths
        _flatten(name, column.flatten(), arrays)
    elif pa.types.is_struct(column.type):
        for at, field in enumerate(column.type):
            _flatten(f"{name}_{field.name}", column.flatten()[at], arrays)
    elif pa.types.is_string(column.type):
        arrays[name] = np.array(column.fill_null("").to_pylist(), dtype=np.str_)
    else:
        numbers = column.fill_null(-1) if pa.types.is_integer(column.type) else column
        arrays[name] = numbers.to_numpy(zero_copy_only=False)


SINKS: dict[str, Callable[[IO[bytes], Job], Any]] = {"parquet": _parquet, "arrow": _arrow, "npz": _npz}
