"""A run over an input: its chunks, computed here or by other processes, in order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from attn_cli.batch.compute import Computer
from attn_cli.batch.lines import LineReader
from attn_cli.batch.write import Chunk, Written, write_chunk

if TYPE_CHECKING:
    from attn_cli.batch.job import Job
    from attn_cli.batch.lines import Source

LINES = 512  # of a chunk


def written_chunks(job: Job, source: Source) -> Iterator[Written]:
    """Yield what each chunk of the input's lines becomes, up to one with an error."""
    with Computer(job) as computer:
        for chunk in chunks(source):
            found = write_chunk(computer, chunk)
            yield found
            if found.error is not None:
                return


def chunks(source: Source, lines: int = LINES) -> Iterator[Chunk]:
    """Yield the lines of an input, some at a time."""
    reader, index, first = LineReader(source), 0, 1
    while found := reader.read(lines):
        yield Chunk(index, first, found)
        index, first = index + 1, first + len(found)
