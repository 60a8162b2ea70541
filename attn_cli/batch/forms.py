"""The forms that records are written in, by name (also the suffix of its files); a chunk of lines in one of them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from attn_cli.batch.job import ChunkOutput, Job
from attn_cli.errors import AttnError
from attn_cli.io.escape import json_line

if TYPE_CHECKING:
    from attn_cli.batch.compute import Computer
    from attn_cli.batch.lines import Chunk

# A file that is open for the bytes of chunks. Where the block ends well, what comes last is written.
Sink = AbstractContextManager[Callable[[bytes], object]]


def _bytes(stream: IO[bytes], job: Job) -> Sink:
    return nullcontext(stream.write)


def _columns(kind: str, stream: IO[bytes], job: Job) -> Sink:
    from attn_cli.batch.tables import SINKS  # only those who ask for columns need pyarrow

    made: Sink = SINKS[kind](stream, job)
    return made


def _gzipped(data: bytes) -> bytes:
    import gzip  # only for what is to be compressed

    return gzip.compress(data, 6, mtime=0) if data else b""


def _with_zstd(data: bytes) -> bytes:
    from attn_cli.batch.tables import zstd

    return zstd(data) if data else b""


class Form(NamedTuple):
    """One form: how the JSON Lines of a chunk are packed, None where rows become columns; what opens a file of it."""

    pack: Callable[[bytes], bytes] | None
    sink: Callable[[IO[bytes], Job], Sink] = _bytes
    has_extra: bool = False  # whether it needs pyarrow
    is_whole: bool = False  # whether a file is held in memory before it is written


FORMS = {
    "jsonl": Form(lambda data: data),
    "jsonl.gz": Form(_gzipped),
    "jsonl.zst": Form(_with_zstd, has_extra=True),
    "parquet": Form(None, partial(_columns, "parquet"), has_extra=True),
    "arrow": Form(None, partial(_columns, "arrow"), has_extra=True),
    "npz": Form(None, partial(_columns, "npz"), has_extra=True, is_whole=True),
}


def form_of(path: str) -> str | None:
    """Return the form that a file's suffix names; None if it names none.

    >>> form_of("x.jsonl.gz"), form_of("X.PARQUET"), form_of("x.csv")
    ('jsonl.gz', 'parquet', None)
    """
    return next((name for name in FORMS if path.lower().endswith(f".{name}")), None)


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
            record = row.as_record() if isinstance(row, AttnError) else row
            written.append(json_line(record, job.ascii_only))
    if pack is not None:
        data = pack(b"".join(written))
    else:
        from attn_cli.batch.tables import columns  # only those who ask for columns need pyarrow

        data = columns(written, job, chunk.first)
    return ChunkOutput(data, len(written), refused, chunk.first, error)
