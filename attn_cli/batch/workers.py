"""Who computes an input: this process and others of this machine, in order; and what a worker of a cluster does."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cache
from itertools import chain, cycle, groupby, starmap
from mmap import mmap
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import attn_cli
from attn_cli.batch import LINES, Chunk, ChunkOutput, Job, compute, forms, manifest as manifests
from attn_cli.batch.cut import Cut, Plan
from attn_cli.batch.folder import Folder, folder_of
from attn_cli.batch.manifest import OWNER, Manifest, PartEntry, hashes_of_files, part_name
from attn_cli.core.threads import one_blas_thread
from attn_cli.errors import AttnError, MachineError, NoMemory, WriteError, refuse_input
from attn_cli.io.files import reason

if TYPE_CHECKING:
    from concurrent.futures import Future, ProcessPoolExecutor

Report = Callable[[int], object]  # gets how many lines more are written
Check = Callable[[], object]  # called before a part takes its place
OWNER_BYTES = 16  # of a run's name in its folder
PATIENCE = 2.0  # seconds after which it is asked whether all processes live
SLOT = 1 << 26  # bytes that a chunk's may have in memory that is shared; more are sent
AHEAD = 2  # chunks per process that may be computed, or be under way, before the one that is written next
# A worker of a cluster may have several threads, and a Computer does one thing at a time.
_of_thread = threading.local()


class Local:
    """So many processes of this machine, with this one if it is one."""

    def __init__(self, workers: int) -> None:
        self.workers = workers

    def map(self, function: Callable[..., Any], tasks: Iterable[tuple[Any, ...]]) -> list[Any]:
        """Return what the function returns for each task, in order."""
        return [*starmap(function, tasks)]

    def parts(
        self, job: Job, folder: Folder, plan: Plan, manifest: Manifest, report: Report
    ) -> Iterator[PartEntry]:
        """Write the parts that the manifest does not name, and yield each; raise the error of the first bad line."""
        cuts = plan.parts(frozenset(manifest.parts))
        found = outputs(job, chain.from_iterable(cut.chunks() for cut in cuts), self.workers)
        for number, chunks in groupby(found, lambda chunk: (chunk.first - 1) // manifests.LINES):
            yield write_part(folder, job, number, chunks, report, lambda: None)


def outputs(
    job: Job, chunks: Iterator[Chunk], workers: int = 1, is_ready: Callable[[], bool] = lambda: True
) -> Iterator[ChunkOutput]:
    """Yield what each chunk of an input becomes, in order; nobody asks for more after one with an error.

    Other processes are started for more than one chunk. A chunk that is not ready is waited for where all else is done.
    """
    with compute.Computer(job) as computer:
        for chunk in chunks:
            if workers > 1 and len(chunk.lines) == LINES:
                break
            yield forms.write_chunk(computer, chunk)
        else:
            return
    yield from _of_processes(job, chain([chunk], chunks), workers, is_ready)


def _of_processes(
    job: Job, chunks: Iterator[Chunk], workers: int, is_ready: Callable[[], bool]
) -> Iterator[ChunkOutput]:
    """Yield what chunks become, in their order; so many processes compute them, and end with this one.

    On Linux they are copies of this one, which has loaded everything. A few chunks are computed ahead; those under way
    come before a wait for the next. A chunk's bytes, where memory is shared, stay until the next is asked for.
    """
    from concurrent.futures import ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool
    from multiprocessing import get_context

    slots: list[mmap] = []
    is_linux = sys.platform == "linux"
    with suppress(OSError):
        slots = [mmap(-1, SLOT) for _ in range(AHEAD * workers if is_linux else 0)]
    pool = ProcessPoolExecutor(workers, get_context("fork" if is_linux else "spawn"), _begin, (slots,))
    with warnings.catch_warnings():  # NumPy's own threads are none of Python's, and wait
        warnings.simplefilter("ignore", DeprecationWarning)
        pool.submit(os.getpid)
    turns = cycle(range(AHEAD * workers))
    pending: deque[Future[tuple[ChunkOutput, int, int]]] = deque()
    try:
        while True:
            while len(pending) < AHEAD * workers and (is_ready() or not pending):
                chunk = next(chunks, None)
                if chunk is None:
                    break
                pending.append(pool.submit(_output, job, chunk, next(turns)))
            if not pending:
                return
            found, turn, size = _result(pending.popleft(), pool)
            yield found._replace(data=memoryview(slots[turn])[:size]) if size else found
    except BrokenProcessPool:
        said = "A process that computed lines was killed: memory may be short."
        raise MachineError(said, "Try fewer --workers.") from None
    finally:
        # Where the interpreter shuts down in order, it would race with the pool's thread, and say so.
        pool.shutdown(wait=not is_linux, cancel_futures=True)


def _result(one: Future[Any], pool: ProcessPoolExecutor) -> Any:
    """Return what a process found. A process that was killed while it wrote one would be waited for without end."""
    from concurrent.futures import wait

    while not wait([one], PATIENCE).done:
        processes = list(pool._processes.values())
        if all(each.is_alive() for each in processes) or wait([one], PATIENCE).done:
            continue
        for each in processes:  # they hold the pipe, too, of which the pool reads the rest of what is missing
            each.kill()
        pool._result_queue._writer.close()  # type: ignore[attr-defined]
    return one.result()


def _begin(slots: list[mmap]) -> None:
    """Prepare a process. Signals are the first process's affair, and this one ends when that does, whatever ends it."""
    from multiprocessing import parent_process

    def end_with_parent() -> None:
        parent = parent_process()
        assert parent is not None  # it was started by one
        parent.join()
        os._exit(1)

    _slots[:] = slots
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=end_with_parent, daemon=True).start()


def _output(job: Job, chunk: Chunk, turn: int) -> tuple[ChunkOutput, int, int]:
    """Return what a chunk becomes, its turn, and how many bytes were left in the slot of that turn, not sent."""
    found = forms.write_chunk(_computer(job), chunk)
    size = len(found.data)
    if turn >= len(_slots) or size > SLOT:
        return found._replace(data=bytes(found.data)), turn, 0
    _slots[turn][:size] = found.data
    return found._replace(data=b""), turn, size


_computer = cache(compute.Computer)  # of a process of the pool
_slots: list[mmap] = []  # memory that it shares with the first


def write_part(
    folder: Folder, job: Job, number: int, chunks: Iterable[ChunkOutput], report: Report, check: Check
) -> PartEntry:
    """Write the chunks of one part, and return what the manifest says of it; raise the error of a bad line."""
    lines = refused = 0

    def write(stream: IO[bytes]) -> None:
        nonlocal lines, refused
        with forms.FORMS[job.form].sink(stream, job) as put:
            for chunk in chunks:
                if chunk.error is not None:
                    raise chunk.error
                put(chunk.data)
                lines, refused = lines + chunk.lines, refused + chunk.refused
                report(chunk.lines)
        check()

    name = part_name(number, job.form)
    size, found = folder.put(name, write)
    return PartEntry(name, 1 + number * manifests.LINES, lines, refused, size, found)


def claim(folder: Folder) -> str:
    """Let the parts of a run that begins now, and of no other, come into the folder; return its name."""
    owner = os.urandom(OWNER_BYTES // 2).hex()
    folder.put(OWNER, lambda stream: stream.write(owner.encode()))
    return owner


def release(folder: Folder) -> None:
    """Let no more parts come into the folder from the workers of a run that has gone."""
    if folder.read(OWNER, OWNER_BYTES) is not None:
        folder.remove([OWNER])


# What a worker of a cluster does


class PartTask(NamedTuple):
    """One part of a job: what it takes to compute it anywhere."""

    version: str  # of attn
    lines_a_part: int
    job: bytes  # pickled: the same job is known by its bytes
    files: dict[str, str]  # hashes of the files that the settings name
    folder: str
    owner: str  # the run's name in the folder
    cut: Cut


def compute_part(task: PartTask) -> PartEntry:
    """Compute a part, and write it to its place; WriteError where the folder is another run's now, or nobody's."""
    if task.version != attn_cli.__version__:
        said = f"A worker has attn {attn_cli.__version__}, and this is {task.version}."
        raise MachineError(said, "Install the same version on all machines.")
    manifests.LINES = task.lines_a_part
    computer, folder = _prepared(task), folder_of(task.folder)

    def check() -> None:
        if folder.read(OWNER, OWNER_BYTES) != task.owner.encode():
            said = f"{folder.name} is no longer this run's: it has ended, or another has begun."
            raise WriteError(said, "Give each run a folder of its own.")

    chunks = (forms.write_chunk(computer, chunk) for chunk in task.cut.chunks())
    with one_blas_thread():  # with more, a long line's last bits would be others than on one machine
        return write_part(folder, computer.job, task.cut.number, chunks, lambda lines: None, check)


def on_a_worker(function: Callable[..., Any], *task: Any) -> Any:
    """Do a task; raise AttnError, which can be sent, for what goes wrong with the machine."""
    try:
        return function(*task)
    except AttnError:
        raise
    except MemoryError:
        raise NoMemory from None
    except OSError as error:
        raise WriteError(f"A worker cannot go on: {reason(error)}.") from None


def _prepared(task: PartTask) -> compute.Computer:
    """Return what computes the job: models, vectors, tables of words are kept for the parts that follow."""
    if getattr(_of_thread, "job", None) != task.job:
        if hasattr(_of_thread, "computer"):
            _of_thread.job = None
            _of_thread.computer.close()
        job: Job = pickle.loads(task.job)
        for name, found in (hashes_of_files(job.settings) if task.files else {}).items():
            said = f"A worker has another {name} than this machine."
            refuse_input(task.files.get(name, found) != found, said, "Give all machines the same files.")
        _of_thread.computer, _of_thread.job = compute.Computer(job), task.job
    computer: compute.Computer = _of_thread.computer
    return computer
