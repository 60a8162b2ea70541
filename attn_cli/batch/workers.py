"""Several processes that compute chunks, whose results come back in order."""

from __future__ import annotations

import os
import signal
import sys
import threading
import warnings
from collections import deque
from functools import cache
from typing import TYPE_CHECKING

from attn_cli.batch.compute import Computer
from attn_cli.batch.forms import write_chunk
from attn_cli.errors import MachineError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future, ProcessPoolExecutor

    from attn_cli.batch.job import ChunkOutput, Job
    from attn_cli.batch.lines import Chunk

AHEAD = 2  # chunks a process that may be computed, or be under way, before the one that is written next


def outputs_of_processes(
    job: Job, chunks: Iterator[Chunk], workers: int, is_ready: Callable[[], bool]
) -> Iterator[ChunkOutput]:
    """Yield what chunks become, in their order; so many processes compute them, and end with this one.

    A few are computed ahead. Where the next cannot be read without waiting, what is under way comes first.
    """
    from concurrent.futures.process import BrokenProcessPool

    pool = _pool(workers)
    pending: deque[Future[ChunkOutput]] = deque()
    try:
        while True:
            while len(pending) < AHEAD * workers and (is_ready() or not pending):
                chunk = next(chunks, None)
                if chunk is None:
                    break
                pending.append(pool.submit(_output, job, chunk))
            if not pending:
                return
            yield pending.popleft().result()
    except BrokenProcessPool:
        said = "A process that computed lines was killed: memory may be short."
        raise MachineError(said, "Try fewer --workers.") from None
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _pool(workers: int) -> ProcessPoolExecutor:
    """Start processes: on Linux as copies of this one, which has loaded everything."""
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    context = get_context("fork" if sys.platform == "linux" else "spawn")
    pool = ProcessPoolExecutor(workers, context, _begin)
    with warnings.catch_warnings():  # NumPy's own threads are none of Python's, and wait
        warnings.simplefilter("ignore", DeprecationWarning)
        pool.submit(os.getpid)
    return pool


def _begin() -> None:
    """Prepare a process. Signals are the first process's affair, and this one ends when that does, whatever ends it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    from multiprocessing import parent_process

    parent = parent_process()
    assert parent is not None  # it was started by one
    parent.join()
    os._exit(1)


def _output(job: Job, chunk: Chunk) -> ChunkOutput:
    """Return what a chunk becomes, in a process of the pool."""
    return write_chunk(_computer(job), chunk)


@cache
def _computer(job: Job) -> Computer:
    return Computer(job)
