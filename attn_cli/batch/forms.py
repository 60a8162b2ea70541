"""The forms that records are written in, by name; each name is also the suffix of its files."""

from __future__ import annotations

from collections.abc import Callable
from typing import IO, TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from attn_cli.batch.job import Job


class Sink(Protocol):
    """What puts the bytes of chunks into a file."""

    def write(self, data: bytes) -> object:
        """Write what a chunk became."""
        ...

    def close(self) -> object:
        """Write what comes last."""
        ...

    def drop(self) -> object:
        """Let go of a file that is not finished: nothing more is written."""
        ...


class Plain:
    """A sink of bytes that stand one after the other."""

    def __init__(self, stream: IO[bytes], job: Job) -> None:
        self.stream = stream

    def write(self, data: bytes) -> object:
        """Write what a chunk became."""
        return self.stream.write(data)

    def close(self) -> None:
        """Do nothing: nothing comes last."""

    drop = close


def _columns(kind: str) -> Callable[[IO[bytes], Job], Sink]:
    def sink(stream: IO[bytes], job: Job) -> Sink:
        from attn_cli.batch.tables import SINKS  # only those who ask for columns need pyarrow

        made: Sink = SINKS[kind](stream, job)
        return made

    return sink


def _gzipped(data: bytes) -> bytes:
    import gzip  # only for what is to be compressed

    return gzip.compress(data, 6, mtime=0) if data else b""


def _with_zstd(data: bytes) -> bytes:
    from attn_cli.batch.tables import zstd

    return zstd(data) if data else b""


class Form(NamedTuple):
    """One form: how the JSON Lines of a chunk are packed, None where rows become columns; what makes a file of them."""

    pack: Callable[[bytes], bytes] | None
    sink: Callable[[IO[bytes], Job], Sink] = Plain
    has_extra: bool = False  # whether it needs pyarrow
    is_whole: bool = False  # whether a file is held in memory before it is written


FORMS = {
    "jsonl": Form(lambda data: data),
    "jsonl.gz": Form(_gzipped),
    "jsonl.zst": Form(_with_zstd, has_extra=True),
    "parquet": Form(None, _columns("parquet"), has_extra=True),
    "arrow": Form(None, _columns("arrow"), has_extra=True),
    "npz": Form(None, _columns("npz"), has_extra=True, is_whole=True),
}


def form_of(path: str) -> str | None:
    """Return the form that a file's suffix names; None if it names none.

    >>> form_of("x.jsonl.gz"), form_of("X.PARQUET"), form_of("x.csv")
    ('jsonl.gz', 'parquet', None)
    """
    return next((name for name in FORMS if path.lower().endswith(f".{name}")), None)
