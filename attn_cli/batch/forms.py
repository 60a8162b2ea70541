"""The forms that records are written in, by name (also the suffix of their files): JSON Lines, or pyarrow's columns."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import IO, Any, NamedTuple

from attn_cli.batch.compute import Computer
from attn_cli.batch.lines import Chunk, ChunkOutput, Job
from attn_cli.batch.records import Record, Row
from attn_cli.errors import AttnError, MissingExtra, UsageError, did_you_mean
from attn_cli.io.escape import json_line, visible
from attn_cli.settings.output import Keys, cut

# A file that is open for the bytes of chunks. Where the block ends well, what comes last is written.
Put = Callable[[bytes | memoryview], object]
Sink = AbstractContextManager[Put]

SCHEMA = "attn-table/1"  # columns are only ever added
LINKS_SCHEMA = "attn-links/1"  # likewise
DELIMITERS = {"csv": ",", "tsv": "\t"}
ALWAYS = ("schema", "kind")  # which are metadata of the table


def load_pyarrow() -> Any:
    """Return pyarrow, which only those load who ask for columns or zst."""
    try:
        import pyarrow
    except ImportError:
        said = "Columns (parquet, arrow, npz) and zst need pyarrow."
        raise MissingExtra(said, "pip install 'attn-cli[batch]'") from None
    return pyarrow


def _lines(rows: Sequence[Row], job: Job, first: int) -> bytes:
    """Return rows as JSON Lines."""
    records = (row.as_record() if isinstance(row, AttnError) else cut(row, job.chosen) for row in rows)
    return b"".join(json_line(record, job.ascii_only) for record in records)


def _gzip(rows: Sequence[Row], job: Job, first: int) -> bytes:
    import gzip  # only for what is to be compressed

    return gzip.compress(_lines(rows, job, first), 6, mtime=0)


def _separated(rows: Sequence[Row], job: Job, first: int) -> bytes:
    """Return the links of rows as lines of CSV, or TSV."""
    import csv
    import io

    from attn_cli.batch.records import columns_of
    from attn_cli.inputs.csv_matrix import as_cell

    out = io.StringIO()
    found = zip(*(column.tolist() for column in columns_of(_computed(rows, first)).values()), strict=True)
    writer = csv.writer(out, delimiter=DELIMITERS[job.form], lineterminator="\n")
    writer.writerows(map(as_cell, row) for row in found)
    return out.getvalue().encode("utf-8", "backslashreplace")


@contextmanager
def _headed(stream: IO[bytes], job: Job) -> Iterator[Put]:
    """Write the names of columns above what is written."""
    from attn_cli.batch.records import COLUMNS

    stream.write(DELIMITERS[job.form].join(COLUMNS).encode() + b"\n")
    yield stream.write


# Files of columns


@contextmanager
def _parquet(stream: IO[bytes], job: Job) -> Iterator[Put]:
    """Write batches as a Parquet file; after an error nothing more is written, and the stream may be closed."""
    from pyarrow import parquet  # another library to load

    file = load_pyarrow().PythonFile(stream, mode="w")
    # Of numbers that hardly repeat, a dictionary takes twice the time and more room.
    writer = parquet.ParquetWriter(file, _schema(job), compression="zstd", use_dictionary=False)
    try:
        yield lambda data: _write(writer, data)
        writer.close()
    except BaseException:
        writer.is_open = False
        raise


@contextmanager
def _arrow(stream: IO[bytes], job: Job) -> Iterator[Put]:
    """Write batches as an Arrow file."""
    pa = load_pyarrow()
    writer = pa.ipc.new_file(pa.PythonFile(stream, mode="w"), _schema(job))
    yield lambda data: _write(writer, data)
    writer.close()


def _write(writer: Any, data: bytes | memoryview) -> None:
    for batch in load_pyarrow().ipc.open_stream(data):
        writer.write_batch(batch)


@contextmanager
def _npz(stream: IO[bytes], job: Job) -> Iterator[Put]:
    """Hold a part, and write it as arrays: of lists, all values one after the other and the lengths."""
    import numpy as np

    pa = load_pyarrow()
    batches: list[Any] = []
    yield lambda data: batches.extend(pa.ipc.open_stream(bytes(data)))
    table = pa.Table.from_batches(batches, _schema(job))
    arrays: dict[str, Any] = {}
    for name in table.column_names:
        _flatten(name, table[name].combine_chunks(), arrays)
    np.savez(stream, **arrays)


def _flatten(name: str, column: Any, arrays: dict[str, Any]) -> None:
    """Add a column as plain arrays: `name`, of a list also `name_lengths`, of a struct one for each of its fields."""
    import numpy as np

    types = load_pyarrow().types
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


# Columns of a chunk


def _types(number: Any) -> dict[str, Any]:
    """Return the type of each column there is, where weights are numbers of this type."""
    pa = load_pyarrow()
    words, ids, matrix = pa.list_(pa.string()), pa.list_(pa.int32()), pa.list_(pa.list_(number))
    strongest = [("query", pa.string()), ("key", pa.string()), ("weight", number)]
    places = [("query_index", pa.int32()), ("key_index", pa.int32())]
    link = pa.struct([("query", pa.int32()), ("key", pa.int32()), ("weight", number)])
    bits = [("query", pa.string()), ("entropy", pa.float64()), ("most", pa.float64())]
    lengths = [("nearly_uniform", pa.bool_()), ("longer", pa.int32()), ("nearer", pa.int32())]
    head = [("name", pa.string()), ("layer", pa.int32()), ("mask", pa.list_(pa.list_(pa.bool_())))]
    return {
        **dict.fromkeys(("query_tokens", "key_tokens"), words),
        **dict.fromkeys(("query_ids", "key_ids"), ids),
        **dict.fromkeys(("unknown", "dropped"), words),
        **dict.fromkeys(("mask_name", "head"), pa.string()),
        **dict.fromkeys(("weights", "output"), matrix),
        "summary": pa.list_(pa.struct(strongest + places)),
        "diagnostics": pa.list_(pa.struct([*bits, *lengths, ("temperature_95", pa.float64())])),
        "entropy": pa.list_(pa.list_(pa.float64())),
        "links": pa.list_(link),
        "heads": pa.list_(
            pa.struct([*head, ("weights", matrix), ("output", matrix), ("links", pa.list_(link))])
        ),
        "notes": words,
    }


def _cut_type(type_: Any, keys: Keys | None, of: str = "") -> Any:
    """Return what chosen keys leave of a column's type; UsageError for one that it does not have."""
    pa = load_pyarrow()
    if keys is None:
        return type_
    if pa.types.is_list(type_):
        return pa.list_(_cut_type(type_.value_type, keys, of))
    known = [field.name for field in type_] if pa.types.is_struct(type_) else []
    for key in keys:
        if key not in known:
            names = [f"{of}{name}" for name in known]
            hint = f"{did_you_mean(of + key, names)}Columns are {', '.join(names)}."
            raise UsageError(f"There is no column {visible(of + key)!r} in tables.", hint, "--fields")
    return pa.struct([(key, _cut_type(type_.field(key).type, keys[key], f"{of}{key}.")) for key in keys])


def _link_types(number: Any) -> Any:
    """Return the schema of a table of links."""
    from attn_cli.batch.records import COLUMNS

    pa = load_pyarrow()
    types = [pa.int64(), pa.int32(), *[pa.string()] * 3, number, pa.int32(), pa.int32()]
    return pa.schema(list(zip(COLUMNS, types, strict=True)), metadata={"attn.schema": LINKS_SCHEMA})


def _schema(job: Job) -> Any:
    """Return the Arrow schema of a job's table."""
    pa = load_pyarrow()
    number = pa.type_for_alias(job.settings.dtype)
    if job.tidy:
        return _link_types(number)
    types = _types(number)
    fields = [pa.field("line", pa.int64(), nullable=False)]
    fields += [pa.field(key, _cut_type(types[key], of)) for key, of in job.chosen.items() if key in types]
    if job.keep_going:
        fields.append(pa.field("error", pa.struct([("code", pa.int16()), ("message", pa.string())])))
    return pa.schema(fields, metadata={"attn.schema": SCHEMA, "attn.kind": job.kind})


def _columns(rows: Sequence[Any], job: Job, first: int) -> memoryview:
    """Return rows, or their links, as one batch of an Arrow stream; `first` is the number of the first line."""
    pa, schema = load_pyarrow(), _schema(job)
    stream = pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, schema) as writer:
        if job.tidy:
            from attn_cli.batch.records import columns_of

            links = columns_of(_computed(rows, first))
            made = [pa.array(links[field.name], field.type) for field in schema]
        else:
            made = [_column(field.name, field.type, rows, first) for field in schema]
        writer.write_batch(pa.record_batch(made, schema=schema))
    return memoryview(stream.getvalue())


def parquet_of(columns: Mapping[str, Any], dtype: str | None = None) -> bytes:
    """Return columns as a Parquet file; those of links have the types of links, with weights of `dtype`."""
    from pyarrow import parquet

    pa, stream = load_pyarrow(), load_pyarrow().BufferOutputStream()
    schema = None if dtype is None else _link_types(pa.type_for_alias(dtype))
    parquet.write_table(pa.table(columns, schema), stream, compression="zstd")
    data: bytes = stream.getvalue().to_pybytes()
    return data


def _computed(rows: Sequence[Row], first: int) -> list[tuple[int, Record]]:
    """Return the records among rows, each with the number of its line."""
    return [(number, row) for number, row in enumerate(rows, first) if not isinstance(row, AttnError)]


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
        values = [_structs(links) for links in values]
    if name == "heads":
        values = [
            heads and [head | {"links": _structs(head.get("links"))} for head in heads] for heads in values
        ]
    return load_pyarrow().array(values, type_)


def _structs(links: Sequence[Any] | None) -> list[dict[str, Any]] | None:
    keys = ("query", "key", "weight")
    return None if links is None else [dict(zip(keys, link, strict=True)) for link in links]


def _matrices(values: Sequence[Any], type_: Any) -> Any:
    """Return matrices, or None, as lists of lists, without a Python object for each number."""
    import numpy as np

    pa, dtype = load_pyarrow(), np.dtype(f"f{type_.value_type.value_type.bit_width // 8}")
    made = [np.empty((0, 0), dtype) if value is None else np.asarray(value, dtype) for value in values]
    heights = np.array([len(M) for M in made], np.int64)
    widths = np.repeat(np.array([M.shape[1] for M in made], np.int64), heights)
    flat = np.concatenate([np.empty(0, dtype), *(M.ravel() for M in made)])
    ends, outer = (pa.array(np.cumsum(np.insert(lengths, 0, 0)), pa.int32()) for lengths in (widths, heights))
    missing = pa.array([value is None for value in values], pa.bool_())
    return pa.ListArray.from_arrays(outer, pa.ListArray.from_arrays(ends, pa.array(flat)), mask=missing)


class Form(NamedTuple):
    """One form: what encodes the rows of a chunk, given their job and the first one's number, and what opens a file."""

    encode: Callable[[Sequence[Row], Job, int], bytes | memoryview]
    sink: Callable[[IO[bytes], Job], Sink] = lambda stream, job: nullcontext(stream.write)
    has_extra: bool = False  # whether it needs pyarrow
    is_whole: bool = False  # whether a file is held in memory before it is written
    is_text: bool = False  # whether it may be written to a terminal
    is_table: bool = False  # whether it has columns, of records or of links, or of links alone


FORMS = {
    "jsonl": Form(_lines, is_text=True),
    "jsonl.gz": Form(_gzip),
    "jsonl.zst": Form(lambda *rows: load_pyarrow().compress(_lines(*rows), "zstd", True), has_extra=True),
    "parquet": Form(_columns, _parquet, has_extra=True, is_table=True),
    "arrow": Form(_columns, _arrow, has_extra=True, is_table=True),
    "npz": Form(_columns, _npz, has_extra=True, is_whole=True, is_table=True),
    "csv": Form(_separated, _headed, is_text=True, is_table=True),
    "tsv": Form(_separated, _headed, is_text=True, is_table=True),
}


def form_of(path: str) -> str | None:
    """Return the form that a file's suffix names; None if it names none.

    >>> form_of("x.jsonl.gz"), form_of("X.PARQUET"), form_of("x.md")
    ('jsonl.gz', 'parquet', None)
    """
    return next((name for name in FORMS if path.lower().endswith(f".{name}")), None)


def keys_of_form(form: str, chosen: Keys | None, steps: bool = False) -> Keys:
    """Return the keys of a record in this form: those that are chosen, or all, with those of --steps or without.

    Of all, columns are those that can be one. UsageError for a chosen one that cannot; MissingExtra if the form needs
    pyarrow, and it is not installed.
    """
    from attn_cli.trace.trace import usual_keys

    known = _types(load_pyarrow().float64()) if FORMS[form].has_extra else {}
    has_columns = FORMS[form].is_table
    if chosen is None:
        keys = usual_keys(steps)
        return {key: None for key in keys if not has_columns or key in known or key in ALWAYS}
    if has_columns:
        columns = {key: below for key, below in chosen.items() if key not in ALWAYS}
        _cut_type(load_pyarrow().struct([*known.items()]), columns)
    return chosen


def write_chunk(computer: Computer, chunk: Chunk) -> ChunkOutput:
    """Compute the lines of a chunk, up to a bad one that ends the run, and write them in the form of the job."""
    job, rows = computer.job, []
    refused, error = 0, None
    was_on = gc.isenabled()
    gc.disable()  # it would search records, which have no cycles, again and again
    try:
        for number, row in enumerate(computer.rows(chunk.lines), chunk.first):
            if isinstance(row, AttnError):
                row.line = number
                if not job.keep_going:
                    error = row
                    break
                refused += 1
            rows.append(row)
        data = FORMS[job.form].encode(rows, job, chunk.first) if rows else b""
    finally:
        if was_on:
            gc.enable()
    return ChunkOutput(data, len(rows), refused, chunk.first, error)
