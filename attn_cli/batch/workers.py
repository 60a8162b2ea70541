"""Several processes that compute chunks, whose results come back in order."""

from __future__ import annotations

import os
import sys
import warnings
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from attn_cli.batch.compute import Computer
from attn_cli.batch.lines import Chunk
from attn_cli.batch.write import Written, write_chunk
from attn_cli.errors import AttnError, MachineError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.connection import Connection
    from multiprocessing.context import ForkContext, SpawnContext

    from attn_cli.batch.job import Job
    from attn_cli.batch.lines import Chunks

AHEAD = 2  # chunks a process that may be computed, or be under way, before the one that is written next
SECOND = 1 << 17  # bytes of lines that a process is sent, at most, before it has answered
ROOM = 8 * SECOND  # bytes that may be on their way to a process, or from it, where the system grants them


class Failure(NamedTuple):
    """An exception on its way to another process: exceptions that are made of other things than their text need it."""

    kind: type[BaseException]
    args: tuple[object, ...]
    state: dict[str, object]

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        """Return what `error` is made of."""
        return cls(type(error), error.args, dict(error.__dict__))

    def exception(self) -> BaseException:
        """Return the exception."""
        made = self.kind.__new__(self.kind)
        made.args = self.args
        made.__dict__.update(self.state)
        return made


def default_workers() -> int:
    """Return how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Workers:
    """Processes that do a job. Use them in a `with` statement; they end with it, or with this process."""

    def __init__(self, job: Job, count: int) -> None:
        self.job, self.count = job, count
        self.connections: list[Connection[Any, Any]] = []
        self.processes: list[Any] = []
        self.under_way: dict[Connection[Any, Any], deque[int]] = {}  # the numbers of its chunks
        self.at_once = AHEAD  # chunks that a process may be sent before it has answered

    def __enter__(self) -> Workers:
        context = _context()
        for _ in range(self.count):
            ours, theirs = context.Pipe()
            if not (_is_widened(ours) and _is_widened(theirs)):
                self.at_once = 1
            process = context.Process(
                target=_work, args=(self.job, theirs, [ours, *self.connections]), daemon=True
            )
            with warnings.catch_warnings():  # NumPy's own threads are none of Python's, and wait
                warnings.simplefilter("ignore", DeprecationWarning)
                process.start()
            theirs.close()
            self.connections.append(ours)
            self.processes.append(process)
        return self

    def __exit__(self, *raised: object) -> None:
        for connection in self.connections:
            connection.close()
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.join()

    def written(self, first: Chunk, chunks: Chunks) -> Iterator[Written]:
        """Yield what `first` and the chunks after it become, in their order.

        A chunk is read when a process is free or has one alone, unless too many wait for an earlier one. Where nothing
        can be read without waiting, what is under way comes first.
        """
        from multiprocessing.connection import wait

        self.under_way = {connection: deque[int]() for connection in self.connections}
        done: dict[int, Written | Exception] = {}
        chunk: Chunk | None = first
        turn = first.number  # of the chunk that is to be yielded next
        while chunk is not None or done or any(self.under_way.values()):
            while chunk is not None and chunk.number < turn + AHEAD * self.count:
                connection = self._free(chunk)
                if connection is None:
                    break
                _send(connection, chunk)
                self.under_way[connection].append(chunk.number)
                chunk = next(chunks, None) if chunks.is_ready() else WAITING
                if chunk is WAITING:
                    break
            busy = [connection for connection, numbers in self.under_way.items() if numbers]
            if turn in done:
                found = done.pop(turn)
                if isinstance(found, Exception):
                    raise found
                yield found
                turn += 1
            elif busy:
                ready: list[Any] = wait(busy)
                for connection in ready:
                    number = self.under_way[connection].popleft()
                    try:
                        done[number] = self._received(connection)
                    except (
                        Exception
                    ) as error:  # told when its turn comes: what comes before it is there, or will be
                        done[number] = error
            if chunk is WAITING and (chunks.is_ready() or not (busy or done)):
                chunk = next(chunks, None)

    def _free(self, chunk: Chunk) -> Connection[Any, Any] | None:
        """Return the process with least to do, if it takes the chunk at once; else None."""
        connection = min(self.connections, key=lambda connection: len(self.under_way[connection]))
        is_long = sum(map(len, filter(None, chunk.lines))) > SECOND
        return connection if len(self.under_way[connection]) < (1 if is_long else self.at_once) else None

    def _received(self, connection: Any) -> Written:
        try:
            data, rest = connection.recv_bytes(), connection.recv()
        except (EOFError, OSError):
            process = self.processes[self.connections.index(connection)]
            process.join()
            if process.exitcode == -9:  # what Linux does where memory is short
                said = "A process that computed lines was killed: memory may be short."
                raise MachineError(said, "Try fewer --workers.") from None
            raise AttnError(
                f"A process that computed lines ended ({process.exitcode}).", "Try --workers 1."
            ) from None
        if isinstance(rest, Failure):
            raise rest.exception()
        lines, refused, first, failure = rest
        return Written(data, lines, refused, first, failure and failure.exception())


WAITING = Chunk(sys.maxsize, 0, ())  # in the place of a chunk that cannot be read yet


def _context() -> ForkContext | SpawnContext:
    """Return how processes are started: on Linux as copies of this one, which has loaded everything."""
    from multiprocessing import get_context

    return get_context("fork") if sys.platform == "linux" else get_context("spawn")


def _is_widened(connection: Connection[Any, Any]) -> bool:
    """Make room for chunks and results of the usual size, so that no side waits; tell whether there is."""
    import socket

    try:
        with socket.socket(fileno=os.dup(connection.fileno())) as it:
            it.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, ROOM)
            return it.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) >= 3 * SECOND
    except (OSError, AttributeError):  # no socket, where the system has other pipes
        return False


def _send(connection: Any, chunk: Chunk) -> None:
    with suppress(OSError):  # a process that has ended is found when its result is waited for
        connection.send(chunk)


def _work(job: Job, connection: Any, others: list[Any]) -> None:
    """Compute chunks until there are no more: what a process does. Signals are the first process's affair."""
    import signal

    for other in others:
        other.close()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    code = 0
    try:
        with Computer(job) as computer:
            while True:
                _answer(connection, write_chunk(computer, connection.recv()))
    except (EOFError, BrokenPipeError, ConnectionError):
        pass  # the first process is done with us, or has gone
    except BaseException as error:
        code = 70
        with suppress(OSError):
            _tell(connection, error)
    os._exit(code)


def _answer(connection: Any, found: Written) -> None:
    connection.send_bytes(found.data)
    connection.send((found.lines, found.refused, found.first, found.error and Failure.of(found.error)))


def _tell(connection: Any, error: BaseException) -> None:
    """Send an exception in the place of a result."""
    connection.send_bytes(b"")
    try:
        connection.send(Failure.of(error))
    except Exception:  # one that cannot be sent
        connection.send(Failure(RuntimeError, (repr(error),), {}))
