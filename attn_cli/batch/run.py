"""A run over an input: its chunks, computed here or by several processes, in order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from attn_cli.batch.compute import Computer
from attn_cli.batch.write import Written, write_chunk

if TYPE_CHECKING:
    from attn_cli.batch.job import Job
    from attn_cli.batch.lines import Chunks


def written_chunks(job: Job, chunks: Chunks, workers: int = 1) -> Iterator[Written]:
    """Yield what each chunk of an input becomes, in order, up to one with an error.

    Other processes are started once there is more than one chunk to do: lines that come one by one, or are few, are
    computed here.
    """
    with Computer(job) as computer:
        for chunk in chunks:
            if workers > 1 and len(chunk.lines) == chunks.most:
                break
            found = write_chunk(computer, chunk)
            yield found
            if found.error is not None:
                return
        else:
            return
    from attn_cli.batch.workers import Workers  # only for many lines

    with Workers(job, workers) as processes:
        for found in processes.written(chunk, chunks):
            yield found
            if found.error is not None:
                return
