"""The forms that records are written in, by name (also the suffix of their files): JSON Lines, or pyarrow's columns."""

from __future__ import annotations

import csv
import gc
import gzip
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import IO, Any, NamedTuple

import numpy as np

from attn_cli.batch import Chunk, ChunkOutput, Job
from attn_cli.batch.compute import Computer
from attn_cli.batch.records import COLUMNS, Record, Row, columns_of
from attn_cli.errors import AttnError, MissingExtra, UsageError, did_you_mean, visible
from attn_cli.inputs.csv_matrix import as_cell
from attn_cli.io.json_text import json_line
from attn_cli.settings.output import Keys, cut
from attn_cli.trace import usual_keys

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


def _separated(rows: Sequence[Row], job: Job, first: int) -> bytes:
    """Return the links of rows as lines of CSV, or TSV."""
    out = io.StringIO()
    found = zip(*(column.tolist() for column in columns_of(_computed(rows, first)).values()), strict=True)
    writer = csv.writer(out, delimiter=DELIMITERS[job.form], lineterminator="\n")
    writer.writerows(map(as_cell, row) for row in found)
    return out.getvalue().encode("utf-8", "backslashreplace")


@contextmanager
def _headed(stream: IO[bytes], job: Job) -> Iterator[Put]:
    """Write the names of columns above what is written."""
    stream.write(DELIMITERS[job.form].join(COLUMNS).encode() + b"\n")
    yield stream.write


@contextmanager
def _columnar(stream: IO[bytes], job: Job) -> Iterator[Put]:
    """Write batches as a file of Parquet, or of Arrow; after an error nothing more is written to the stream."""
    pa, schema = load_pyarrow(), _schema(job)
    file = pa.PythonFile(stream, mode="w")
    is_parquet = job.form == "parquet"
    if is_parquet:
        from pyarrow import parquet  # another library to load

        # Of numbers that hardly repeat, a dictionary takes twice the time and more room.
        writer = parquet.ParquetWriter(file, schema, compression="zstd", use_dictionary=False)
    else:
        writer = pa.ipc.new_file(file, schema)
    try:
        yield lambda data: [writer.write_batch(batch) for batch in pa.ipc.open_stream(data)]
        writer.close()
    finally:
        if is_parquet:
            writer.is_open = False  # or it would write when it is forgotten


@contextmanager
def _npz(stream: IO[bytes], job: Job) -> Iterator[Put]:
    """Hold a part, and write it as arrays: of lists, all values one after the other and the lengths."""
    pa, batches = load_pyarrow(), list[Any]()
    yield lambda data: batches.extend(pa.ipc.open_stream(bytes(data)))
    table, arrays = pa.Table.from_batches(batches, _schema(job)), dict[str, Any]()
    for name in table.column_names:
        _flatten(name, table[name].combine_chunks(), arrays)
    np.savez(stream, **arrays)


def _flatten(name: str, column: Any, arrays: dict[str, Any]) -> None:
    """Add a column as plain arrays: `name`, of a list also `name_lengths`, of a struct one for each of its fields."""
    types = load_pyarrow().types
    if types.is_list(column.type):
        lengths = column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
        arrays[f"{name}_rows" if types.is_list(column.type.value_type) else f"{name}_lengths"] = lengths
        _flatten(name, column.flatten(), arrays)
    elif types.is_struct(column.type):
        for field, values in zip(column.type, column.flatten(), strict=True):
            _flatten(f"{name}_{field.name}", values, arrays)
    elif types.is_string(column.type):
        arrays[name] = np.array(column.fill_null("").to_pylist(), dtype=np.str_)
    else:
        numbers = column.fill_null(-1) if types.is_integer(column.type) else column
        arrays[name] = numbers.to_numpy(zero_copy_only=False)


def _types(number: Any) -> dict[str, Any]:
    """Return the type of each column there is, where weights are numbers of this type."""
    pa = load_pyarrow()
    text, place, real = pa.string(), pa.int32(), pa.float64()
    words, ids, matrix = pa.list_(text), pa.list_(place), pa.list_(pa.list_(number))
    strongest = {"query": text, "key": text, "weight": number, "query_index": place, "key_index": place}
    links = pa.list_(pa.struct({"query": place, "key": place, "weight": number}))
    bits = {"query": text, "entropy": real, "most": real, "nearly_uniform": pa.bool_()}
    bits |= {"longer": place, "nearer": place, "temperature_95": real}
    head = {"name": text, "layer": place, "mask": pa.list_(pa.list_(pa.bool_()))}
    types = {"query_tokens": words, "key_tokens": words, "query_ids": ids, "key_ids": ids}
    types |= {"unknown": words, "dropped": words, "mask_name": text, "head": text}
    types |= {"weights": matrix, "output": matrix, "summary": pa.list_(pa.struct(strongest))}
    types |= {"diagnostics": pa.list_(pa.struct(bits)), "entropy": pa.list_(pa.list_(real)), "links": links}
    heads = pa.list_(pa.struct(head | {"weights": matrix, "output": matrix, "links": links}))
    return types | {"heads": heads, "notes": words}


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
    if job.tidy:
        made = [*map(pa.array, columns_of(_computed(rows, first)).values(), schema.types)]
    else:
        made = [_column(field, rows, first) for field in schema]
    stream = pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, schema) as writer:
        writer.write_batch(pa.record_batch(made, schema=schema))
    return memoryview(stream.getvalue())


def parquet_of(columns: Mapping[str, Any], dtype: str | None = None) -> bytes:
    """Return columns as a Parquet file; those of links have the types of links, with weights of `dtype`."""
    from pyarrow import parquet

    pa, stream = load_pyarrow(), io.BytesIO()
    schema = None if dtype is None else _link_types(pa.type_for_alias(dtype))
    parquet.write_table(pa.table(columns, schema), stream, compression="zstd")
    return stream.getvalue()


def _computed(rows: Sequence[Row], first: int) -> list[tuple[int, Record]]:
    """Return the records among rows, each with the number of its line."""
    return [(number, row) for number, row in enumerate(rows, first) if not isinstance(row, AttnError)]


def _column(field: Any, rows: Sequence[Any], first: int) -> Any:
    """Return a column: a field of each row, the number of its line, or its error."""
    name = field.name
    if name == "line":
        return load_pyarrow().array(range(first, first + len(rows)), field.type)
    if name == "error":
        errors = (row if isinstance(row, AttnError) else None for row in rows)
        said = [one and {"code": one.code, "message": one.message} for one in errors]
        return load_pyarrow().array(said, field.type)
    values: list[Any] = [None if isinstance(row, AttnError) else row[name] for row in rows]
    if name in ("weights", "output"):  # rows as they are, without a Python object for each number
        dtype = np.dtype(f"f{field.type.value_type.value_type.bit_width // 8}")
        values = [value if value is None else list(np.ascontiguousarray(value, dtype)) for value in values]
    elif name == "links":
        values = [_tuples(links) for links in values]
    elif name == "heads":
        values = [of and [{**one, "links": _tuples(one.get("links"))} for one in of] for of in values]
    return load_pyarrow().array(values, field.type)


def _tuples(links: Sequence[Any] | None) -> list[tuple[Any, ...]] | None:
    return None if links is None else [*map(tuple, links)]


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
    "jsonl.gz": Form(lambda *rows: gzip.compress(_lines(*rows), 6, mtime=0)),
    "jsonl.zst": Form(lambda *rows: load_pyarrow().compress(_lines(*rows), "zstd", True), has_extra=True),
    "parquet": Form(_columns, _columnar, has_extra=True, is_table=True),
    "arrow": Form(_columns, _columnar, has_extra=True, is_table=True),
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

    UsageError for a chosen one that cannot be a column; MissingExtra if pyarrow is needed, and not installed.
    """
    known = _types(load_pyarrow().float64()) if FORMS[form].has_extra else {}
    has_columns = FORMS[form].is_table
    if chosen is None:
        return {key: None for key in usual_keys(steps) if not has_columns or key in known or key in ALWAYS}
    if has_columns:
        columns = {key: below for key, below in chosen.items() if key not in ALWAYS}
        _cut_type(load_pyarrow().struct(known), columns)
    return chosen


def write_chunk(computer: Computer, chunk: Chunk) -> ChunkOutput:
    """Compute the lines of a chunk, up to a bad one that ends the run, and write them in the form of the job."""
    job, rows, refused, error = computer.job, list[Row](), 0, None
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
