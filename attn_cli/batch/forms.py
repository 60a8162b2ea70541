"""The forms that records are written in, by name (also the suffix of their files): JSON Lines, or pyarrow's columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from attn_cli.batch.lines import Chunk, ChunkOutput, Job
from attn_cli.errors import AttnError, MissingExtra, UsageError, did_you_mean
from attn_cli.io.escape import json_line, visible
from attn_cli.settings.output import cut

if TYPE_CHECKING:
    from attn_cli.batch.compute import Computer
    from attn_cli.settings.output import Keys

    # A file that is open for the bytes of chunks. Where the block ends well, what comes last is written.
    Sink = AbstractContextManager[Callable[[bytes], object]]

SCHEMA = "attn-table/1"  # columns are only ever added
ALWAYS = ("schema", "kind")  # which are metadata of the table


def _pyarrow() -> Any:
    """Return pyarrow, which only those load who ask for columns or zst."""
    try:
        import pyarrow
    except ImportError:
        said = "Columns (parquet, arrow, npz) and zst need pyarrow."
        raise MissingExtra(said, "pip install 'attn-cli[batch]'") from None
    return pyarrow


def _gzip(data: bytes) -> bytes:
    import gzip  # only for what is to be compressed

    return gzip.compress(data, 6, mtime=0)


def _zstd(data: bytes) -> bytes:
    packed: bytes = _pyarrow().compress(data, codec="zstd", asbytes=True)
    return packed


# Files of columns


@contextmanager
def _parquet(stream: IO[bytes], job: Job) -> Iterator[Callable[[bytes], None]]:
    """Write batches as a Parquet file; after an error nothing more is written, and the stream may be closed."""
    from pyarrow import parquet  # another library to load

    file = _pyarrow().PythonFile(stream, mode="w")
    writer = parquet.ParquetWriter(file, _schema(job), compression="zstd")
    try:
        yield lambda data: _write(writer, data)
        writer.close()
    except BaseException:
        writer.is_open = False
        raise


@contextmanager
def _arrow(stream: IO[bytes], job: Job) -> Iterator[Callable[[bytes], None]]:
    """Write batches as an Arrow file."""
    pa = _pyarrow()
    writer = pa.ipc.new_file(pa.PythonFile(stream, mode="w"), _schema(job))
    yield lambda data: _write(writer, data)
    writer.close()


def _write(writer: Any, data: bytes) -> None:
    for batch in _pyarrow().ipc.open_stream(data):
        writer.write_batch(batch)


@contextmanager
def _npz(stream: IO[bytes], job: Job) -> Iterator[Callable[[bytes], None]]:
    """Hold a part, and write it as arrays: of lists, all values one after the other and the lengths."""
    import numpy as np

    pa = _pyarrow()
    batches: list[Any] = []
    yield lambda data: batches.extend(pa.ipc.open_stream(data))
    table = pa.Table.from_batches(batches, _schema(job))
    arrays: dict[str, Any] = {}
    for name in table.column_names:
        _flatten(name, table[name].combine_chunks(), arrays)
    np.savez(stream, **arrays)


def _flatten(name: str, column: Any, arrays: dict[str, Any]) -> None:
    """Add a column as plain arrays: `name`, of a list also `name_lengths`, of a struct one for each of its fields."""
    import numpy as np

    types = _pyarrow().types
    if types.is_list(column.type):
        lengths = column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
        arrays[f"{name}_rows" if types.is_list(column.type.value_type) else f"{name}_lengths"] = lengths
        _flatten(name, column.flatten(), arrays)
    elif types.is_struct(column.type):
        for at, field in enumerate(column.type):
            _flatten(f"{name}_{field.name}", column.flatten()[at], arrays)
    elif types.is_string(column.type):
        arrays[name] = np.array(column.fill_null("").to_pylist(), dtype=np.str_)
    else:
        numbers = column.fill_null(-1) if types.is_integer(column.type) else column
        arrays[name] = numbers.to_numpy(zero_copy_only=False)


class Form(NamedTuple):
    """One form: how the JSON Lines of a chunk are packed, None where rows become columns; what opens a file of it."""

    pack: Callable[[bytes], bytes] | None
    sink: Callable[[IO[bytes], Job], Sink] = lambda stream, job: nullcontext(stream.write)
    has_extra: bool = False  # whether it needs pyarrow
    is_whole: bool = False  # whether a file is held in memory before it is written


FORMS = {
    "jsonl": Form(lambda data: data),
    "jsonl.gz": Form(_gzip),
    "jsonl.zst": Form(_zstd, has_extra=True),
    "parquet": Form(None, _parquet, has_extra=True),
    "arrow": Form(None, _arrow, has_extra=True),
    "npz": Form(None, _npz, has_extra=True, is_whole=True),
}


def form_of(path: str) -> str | None:
    """Return the form that a file's suffix names; None if it names none.

    >>> form_of("x.jsonl.gz"), form_of("X.PARQUET"), form_of("x.csv")
    ('jsonl.gz', 'parquet', None)
    """
    return next((name for name in FORMS if path.lower().endswith(f".{name}")), None)


def keys_of_form(form: str, keys: Keys, is_all: bool) -> Keys:
    """Return the keys of a record in this form: of columns all that can be one, or UsageError for one that cannot.

    MissingExtra where the form needs pyarrow, and it is not installed.
    """
    known = _types(_pyarrow().float64()) if FORMS[form].has_extra else {}
    if FORMS[form].pack is not None:
        return keys
    if is_all:
        return {key: below for key, below in keys.items() if key in known or key in ALWAYS}
    for key in keys:
        if key not in known and key not in ALWAYS:
            hint = f"{did_you_mean(key, known)}Columns are {', '.join(known)}."
            raise UsageError(f"There is no column {visible(key)!r} in tables.", hint, "--fields")
    return keys


def write_chunk(computer: Computer, chunk: Chunk) -> ChunkOutput:
    """Compute the lines of a chunk, up to a bad one that ends the run, and write them in the form of the job."""
    job, pack = computer.job, FORMS[computer.job.form].pack
    written: list[Any] = []  # lines of JSON, or rows of columns
    refused, error = 0, None
    for number, row in enumerate(computer.rows(chunk.lines), chunk.first):
        if isinstance(row, AttnError):
            row.line = number
            if not job.keep_going:
                error = row
                break
            refused += 1
        if pack is None:
            written.append(row)
        else:
            record = row.as_record() if isinstance(row, AttnError) else cut(row, job.chosen)
            written.append(json_line(record, job.ascii_only))
    lines = b"" if pack is None or not written else pack(b"".join(written))
    data = lines if pack is not None else _columns(written, job, chunk.first)
    return ChunkOutput(data, len(written), refused, chunk.first, error)


# Columns of a chunk


def _types(number: Any) -> dict[str, Any]:
    """Return the type of each column there is, where weights are numbers of this type."""
    pa = _pyarrow()
    words, ids, matrix = pa.list_(pa.string()), pa.list_(pa.int32()), pa.list_(pa.list_(number))
    strongest = [("query", pa.string()), ("key", pa.string()), ("weight", number)]
    places = [("query_index", pa.int32()), ("key_index", pa.int32())]
    link = [("query", pa.int32()), ("key", pa.int32()), ("weight", number)]
    return {
        **dict.fromkeys(("query_tokens", "key_tokens"), words),
        **dict.fromkeys(("query_ids", "key_ids"), ids),
        **dict.fromkeys(("unknown", "dropped"), words),
        **dict.fromkeys(("mask_name", "head"), pa.string()),
        **dict.fromkeys(("weights", "output"), matrix),
        "summary": pa.list_(pa.struct(strongest + places)),
        "links": pa.list_(pa.struct(link)),
        "notes": words,
    }


def _schema(job: Job) -> Any:
    """Return the Arrow schema of a job's table."""
    pa = _pyarrow()
    types = _types(pa.float32() if job.settings.dtype == "float32" else pa.float64())
    fields = [pa.field("line", pa.int64(), nullable=False)]
    fields += [pa.field(key, types[key]) for key in job.chosen if key in types]
    if job.keep_going:
        fields.append(pa.field("error", pa.struct([("code", pa.int16()), ("message", pa.string())])))
    return pa.schema(fields, metadata={"attn.schema": SCHEMA, "attn.kind": job.kind})


def _columns(rows: Sequence[Any], job: Job, first: int) -> bytes:
    """Return rows, records or errors, as one batch of an Arrow stream; `first` is the number of the first line."""
    pa, schema = _pyarrow(), _schema(job)
    stream = pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, schema) as writer:
        made = [_column(field.name, field.type, rows, first) for field in schema]
        writer.write_batch(pa.record_batch(made, schema=schema))
    data: bytes = stream.getvalue().to_pybytes()
    return data


def _column(name: str, type_: Any, rows: Sequence[Any], first: int) -> Any:
    bad = [isinstance(row, AttnError) for row in rows]
    if name == "line":
        values: list[Any] = list(range(first, first + len(rows)))
    elif name == "error":
        found = zip(rows, bad, strict=True)
        values = [{"code": row.code, "message": row.message} if is_bad else None for row, is_bad in found]
    else:
        values = [None if is_bad else row[name] for row, is_bad in zip(rows, bad, strict=True)]
    if name in ("weights", "output"):
        return _matrices(values, type_)
    if name == "links":
        keys = ("query", "key", "weight")
        values = [links and [dict(zip(keys, link, strict=True)) for link in links] for links in values]
    return _pyarrow().array(values, type_)


def _matrices(values: Sequence[Any], type_: Any) -> Any:
    """Return matrices, or None, as lists of lists, without a Python object for each number."""
    import numpy as np

    pa, dtype = _pyarrow(), type_.value_type.value_type.to_pandas_dtype()
    made = [np.empty((0, 0), dtype) if value is None else np.asarray(value, dtype) for value in values]
    heights = np.array([len(M) for M in made], np.int64)
    widths = np.repeat(np.array([M.shape[1] for M in made], np.int64), heights)
    flat = np.concatenate([np.empty(0, dtype), *(M.ravel() for M in made)])
    ends, outer = (pa.array(np.cumsum(np.insert(lengths, 0, 0)), pa.int32()) for lengths in (widths, heights))
    missing = pa.array([value is None for value in values], pa.bool_())
    return pa.ListArray.from_arrays(outer, pa.ListArray.from_arrays(ends, pa.array(flat)), mask=missing)
