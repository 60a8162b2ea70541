"""Threads of our own over independent tasks, each with one thread of BLAS.

Two threads of BLAS wait for each other at the end of each product; beside a busy neighbour that makes them many
times slower than one. Ours wait once, at the end of all the work.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache
from operator import length_hint
from threading import RLock
from typing import TYPE_CHECKING, TypeVar

from attn_cli.io.types import OnPart

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

    from threadpoolctl import ThreadpoolController


Task = TypeVar("Task")
_waiting_line = RLock()


def processors() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run(
    tasks: Sequence[Task],
    worker: Callable[[], Callable[[Task], None]],
    threads: int,
    report: OnPart | None = None,
) -> None:
    """Do every task, `threads` at a time; each thread calls `worker` once, for a function with its own buffers.

    This thread is one of them, and reports what part is done. The first error ends the work and is raised.
    """
    waiting = iter(tasks)

    def work(tell: OnPart | None) -> None:
        try:
            do = worker()
            for task in waiting:
                do(task)
                if tell:
                    tell(1 - length_hint(waiting) / len(tasks))
        finally:
            deque(waiting, 0)  # after an error the other threads find nothing left to do

    def help_out() -> None:
        with one_blas_thread(alone=False):
            work(None)

    others: list[Future[None]] = []
    count = min(threads, len(tasks)) - 1
    with one_blas_thread():
        try:
            others += [_helpers(count).submit(help_out) for _ in range(count)]
            work(report)
        finally:
            deque(waiting, 0)  # an interrupt may come before this thread has begun to work
            begun = [other for other in others if not other.cancel()]
            for other in begun:
                other.exception()  # waits for its end
        for other in begun:
            other.result()


@cache
def _helpers(count: int) -> ThreadPoolExecutor:
    """Return helping threads, which stay: to start them anew would take longer than a small product."""
    from concurrent.futures import ThreadPoolExecutor  # loads the logging package, for large work alone

    return ThreadPoolExecutor(count)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_helpers.cache_clear)  # a child has none of its parent's threads


@contextmanager
def one_blas_thread(alone: bool = True) -> Iterator[None]:
    """Hold BLAS to one thread; `alone` has callers in other threads wait for each other.

    The number is the whole process's: of two overlapping callers, the first may restore it while the second still
    needs it. Where OpenBLAS is built on OpenMP, each thread has a number of its own, so each of ours sets it.
    """
    if os.environ.get("OPENBLAS_NUM_THREADS") == "1":  # as the program sets it, before NumPy is loaded
        yield
        return
    with _waiting_line if alone else nullcontext(), _controller().limit(limits=1, user_api="blas"):
        yield


@cache
def _controller() -> ThreadpoolController:
    from threadpoolctl import ThreadpoolController  # looks through all loaded libraries, once

    return ThreadpoolController()
