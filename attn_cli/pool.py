"""Threads of our own over independent tasks, each with one thread of BLAS.

Two threads of BLAS wait for each other at the end of each product; beside a busy neighbour that makes them many
times slower than one. Ours wait once, at the end of all the work.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController

Report = Callable[[float], None]
Task = TypeVar("Task")


def processors() -> int:
    """Return how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def run(
    tasks: Sequence[Task],
    worker: Callable[[], Callable[[Task], None]],
    threads: int,
    report: Report | None = None,
) -> None:
    """Do every task, `threads` at a time; each thread calls `worker` once, for a function with room of its own.

    This thread is one of them, and reports what part is done. The first error ends the work and is raised.
    """
    waiting = deque(tasks)

    def work(tell: Report | None) -> None:
        try:
            do = worker()
            while waiting:
                try:
                    task = waiting.popleft()
                except IndexError:  # another thread was quicker
                    return
                do(task)
                if tell:
                    tell(1 - len(waiting) / len(tasks))
        finally:
            waiting.clear()  # after an error the other threads stop, too

    threads = min(threads, len(tasks))
    with _one_blas_thread():
        if threads <= 1:
            work(report)
            return
        from concurrent.futures import ThreadPoolExecutor  # loads the logging package, for large work alone

        with ThreadPoolExecutor(threads - 1) as pool:
            try:
                others = [pool.submit(work, None) for _ in range(threads - 1)]
                work(report)
                for other in others:
                    other.result()
            finally:
                waiting.clear()  # an interrupt may come before this thread has begun to work


class _Holding:
    """How many callers work just now, and what gives BLAS back its threads after the last one."""

    def __init__(self) -> None:
        self.lock, self.callers = Lock(), 0
        self.give_back: Callable[[], None] = lambda: None


_holding = _Holding()


@contextmanager
def _one_blas_thread() -> Iterator[None]:
    if os.environ.get("OPENBLAS_NUM_THREADS") == "1":  # as the program sets it, before NumPy is loaded
        yield
        return
    with _holding.lock:  # the number is everybody's: the first one sets it, the last one sets it back
        if not _holding.callers:
            _holding.give_back = _controller().limit(limits=1, user_api="blas").restore_original_limits
        _holding.callers += 1
    try:
        yield
    finally:
        with _holding.lock:
            _holding.callers -= 1
            if not _holding.callers:
                _holding.give_back()


@cache
def _controller() -> ThreadpoolController:
    from threadpoolctl import ThreadpoolController  # looks through all loaded libraries, once

    return ThreadpoolController()
