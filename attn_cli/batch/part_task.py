"""What a worker of a cluster does: it computes one part, and writes it to its place.

What it needs for a job (models, vectors, tables of words) is opened once, and kept for the parts that follow.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import cache
from typing import Any, NamedTuple, TypeVar

import attn_cli
from attn_cli.batch import manifest as manifests
from attn_cli.batch.compute import Computer
from attn_cli.batch.cut import Cut, Place, Scan, scan_block
from attn_cli.batch.folder import folder_of
from attn_cli.batch.inputs import Block, Input
from attn_cli.batch.job import Job
from attn_cli.batch.lines import Chunks, Feed, open_lines
from attn_cli.batch.manifest import Part, hashes_of_files
from attn_cli.batch.parts import check_owner, write_part
from attn_cli.batch.workers import Failure
from attn_cli.batch.write import Written, write_chunk
from attn_cli.core.threads import one_blas_thread
from attn_cli.errors import AttnError, FileError, InputError, MachineError, NoMemory, WriteError
from attn_cli.io.files import reason

Answer = TypeVar("Answer")
# glibc's mallopt: from how many bytes on memory comes from the system by itself, and goes back there at once.
MMAP_THRESHOLD, TRIM_THRESHOLD = -3, -1
KEPT_BYTES = 1 << 25  # where glibc's own, rising threshold ends
_of_thread = threading.local()  # a worker may have several, and a Computer does one thing at a time


class PartTask(NamedTuple):
    """One part of a job: what it takes to compute it anywhere."""

    version: str  # of attn
    lines_a_part: int
    job: bytes  # pickled: the same job is known by its bytes
    files: dict[str, str]  # hashes of the files that the settings name
    folder: str
    owner: str  # the run's name in the folder
    cut: Cut


def job_bytes(job: Job) -> bytes:
    """Return a job as tasks hold it."""
    return pickle.dumps(job)


def compute_part(task: PartTask) -> Part | Failure:
    """Compute and write a part; what went wrong is returned, not raised: it would be wrong again."""
    return _answered(lambda: _written_part(task))


def scan(file: Input, block: Block) -> Scan | Failure:
    """Scan a block of an input."""
    return _answered(lambda: scan_block(file, block))


def holds(folder: str, part: Part) -> bool | Failure:
    """Tell whether a part is there as it was written."""
    return _answered(lambda: folder_of(folder).holds(part))


def _answered(work: Callable[[], Answer]) -> Answer | Failure:
    try:
        return work()
    except MemoryError:
        return Failure.of(NoMemory())
    except AttnError as error:
        return Failure.of(error)
    except OSError as error:
        return Failure.of(WriteError(f"A worker cannot go on: {reason(error)}."))


def _written_part(task: PartTask) -> Part:
    if task.version != attn_cli.__version__:
        raise MachineError(
            f"A worker has attn {attn_cli.__version__}, and this is {task.version}.",
            "Install the same version on all machines.",
        )
    manifests.LINES = task.lines_a_part
    job, computer = _prepared(task)
    folder, chunks = folder_of(task.folder), _chunks(computer, task.cut)
    with one_blas_thread():  # with more, a long line's last bits would be others than on one machine
        return write_part(folder, job, task.cut.number, chunks, lambda: check_owner(folder, task.owner))


def _prepared(task: PartTask) -> tuple[Job, Computer]:
    """Return the job and what computes it, which is kept for the next part."""
    if getattr(_of_thread, "of", None) != task.job:
        if hasattr(_of_thread, "opened"):
            _of_thread.of = None
            _of_thread.opened.close()
        _keep_memory()
        job: Job = pickle.loads(task.job)
        _check_files(job, task.files)
        _of_thread.opened = ExitStack()
        _of_thread.computer = _of_thread.opened.enter_context(Computer(job))
        _of_thread.job, _of_thread.of = job, task.job
    return _of_thread.job, _of_thread.computer


@cache
def _keep_memory() -> None:
    """Have the process use freed memory again: Dask's workers give back every array at once, and take it anew.

    Dask starts them with MALLOC_TRIM_THRESHOLD_, which stops glibc from raising its thresholds by itself. Small
    products then take three times as long. Where the C library is another, nothing is done.
    """
    with suppress(OSError, AttributeError, TypeError):
        import ctypes  # a part takes a second

        mallopt = ctypes.CDLL(None).mallopt
        mallopt(MMAP_THRESHOLD, KEPT_BYTES)
        mallopt(TRIM_THRESHOLD, 2 * KEPT_BYTES)


def _check_files(job: Job, wanted: dict[str, str]) -> None:
    """Refuse to compute with another file of vectors, or another model, than where the run was started."""
    for name, found in (hashes_of_files(job.settings) if wanted else {}).items():
        if wanted.get(name, found) != found:
            raise InputError(
                f"A worker has another {name} than this machine.", "Give all machines the same files."
            )


def _chunks(computer: Computer, cut: Cut) -> Iterator[Written]:
    """Yield what the chunks of a part become."""
    first = 1 + cut.number * manifests.LINES
    start = cut.pieces[0]
    skip = start.skip if isinstance(start, Place) else 0
    sources = _sources(cut)
    try:
        chunks = Chunks(Feed(sources, 1), first - skip)
        chunks.skip(skip)
        chunks.part = manifests.LINES
        left = cut.lines
        while left and (chunk := next(chunks, None)) is not None:
            left -= len(chunk.lines)
            yield write_chunk(computer, chunk)
        if left:
            raise FileError(
                f"The input has {left:,} fewer lines than it had.", "Start again when it is as it should be."
            )
    finally:
        sources.close()


def _sources(cut: Cut) -> Any:
    for piece in cut.pieces:
        if isinstance(piece, Place):
            with open_lines(piece.file, piece.start) as source:
                yield source
        else:
            yield piece
