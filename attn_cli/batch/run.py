"""A run over an input: its chunks are computed, here or by other processes, and written to a stream or into parts."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import chain, groupby
from typing import IO, TYPE_CHECKING, Any, NamedTuple, Protocol

import attn_cli
from attn_cli.batch import manifest as manifests
from attn_cli.batch.compute import Computer
from attn_cli.batch.cut import Cut, Plan, blocks_of, scan_block
from attn_cli.batch.folder import Folder, folder_of
from attn_cli.batch.forms import FORMS, write_chunk
from attn_cli.batch.lines import LINES, Chunk, Feed, chunks_of
from attn_cli.batch.manifest import Manifest, PartEntry, hashes_of_files, part_name
from attn_cli.batch.resume import ManifestWriter, check_inputs, check_owner, open_run
from attn_cli.core.threads import one_blas_thread
from attn_cli.errors import AttnError, InputError, MachineError, NoMemory, WriteError
from attn_cli.io.console import say
from attn_cli.io.escape import count
from attn_cli.io.files import reason

if TYPE_CHECKING:
    from attn_cli.batch.inputs import Input
    from attn_cli.batch.job import ChunkOutput, Job

LinesReport = Callable[
    [int, float | None], None
]  # gets the lines that are written, and the share that is done
_of_thread = threading.local()  # a worker may have several, and a Computer does one thing at a time


class Engine(Protocol):
    """Who computes the parts of a folder."""

    def map(self, function: Callable[..., Any], tasks: Iterable[tuple[Any, ...]]) -> list[Any]:
        """Return what the function returns for each task, in order."""
        ...

    def parts(
        self, job: Job, folder: Folder, plan: Plan, manifest: Manifest, report: Callable[[int], None]
    ) -> Iterator[PartEntry]:
        """Write the parts that the manifest does not name, and yield each; raise the error of the first bad line."""
        ...


class Local:
    """So many processes of this machine, with this one if it is one."""

    def __init__(self, workers: int) -> None:
        self.workers = workers

    def map(self, function: Callable[..., Any], tasks: Iterable[tuple[Any, ...]]) -> list[Any]:
        """Return what the function returns for each task, in order."""
        return [function(*task) for task in tasks]

    def parts(
        self, job: Job, folder: Folder, plan: Plan, manifest: Manifest, report: Callable[[int], None]
    ) -> Iterator[PartEntry]:
        """Write the parts that the manifest does not name, and yield each; raise the error of the first bad line."""
        cuts = plan.parts(frozenset(manifest.parts))
        found = outputs(job, chain.from_iterable(cut.chunks() for cut in cuts), self.workers)
        for number, chunks in groupby(found, lambda chunk: (chunk.first - 1) // manifests.LINES):
            yield write_part(folder, job, number, _reported(chunks, report))


def _reported(chunks: Iterable[ChunkOutput], report: Callable[[int], None]) -> Iterator[ChunkOutput]:
    for chunk in chunks:
        yield chunk
        report(chunk.lines)


def outputs(
    job: Job, chunks: Iterator[Chunk], workers: int = 1, is_ready: Callable[[], bool] = lambda: True
) -> Iterator[ChunkOutput]:
    """Yield what each chunk of an input becomes, in order, up to one with an error.

    Other processes are started once there is more than one chunk to do: lines that come one by one, or are few, are
    computed here. A chunk that is not ready is waited for where nothing else is left to do.
    """
    with Computer(job) as computer:
        for chunk in chunks:
            if workers > 1 and len(chunk.lines) == LINES:
                break
            found = write_chunk(computer, chunk)
            yield found
            if found.error is not None:
                return
        else:
            return
    from attn_cli.batch.workers import outputs_of_processes  # only for many lines

    for found in outputs_of_processes(job, chain([chunk], chunks), workers, is_ready):
        yield found
        if found.error is not None:
            return


def write_stream(
    job: Job, files: Sequence[Input], workers: int, stream: IO[bytes], report: LinesReport
) -> tuple[int, int]:
    """Write all records to a stream; raise the error of a bad line after those before it.

    Lines come from standard input where there are no files. Returns how many there were, and how many were refused.
    """
    feed, lines, refused = Feed(files), 0, 0
    with FORMS[job.form].sink(stream, job) as write:
        for chunk in outputs(job, chunks_of(feed.groups(), 1, feed.is_ready), workers, feed.is_ready):
            if chunk.data:
                write(chunk.data)
            lines, refused = lines + chunk.lines, refused + chunk.refused
            report(lines, feed.done)
            if chunk.error is not None:
                raise chunk.error
    return lines, refused


def write_folder(
    job: Job, files: Sequence[Input], folder: Folder, engine: Engine, force: bool, report: LinesReport
) -> tuple[int, int]:
    """Write the parts of a folder that are missing; return how many lines are in it, and how many were refused.

    Where all are there, nothing is done, and nothing is counted.
    """
    check_inputs(folder, files)
    with folder.locked():
        plan = Plan(files, engine.map(scan_block, blocks_of(files)))
        manifest = open_run(folder, job, plan, engine.map, force)
        done = f"{count(manifest.lines, 'line', 'lines')} in {count(len(manifest.parts), 'part', 'parts')}"
        if manifest.complete:
            bad = f", {manifest.refused:,} of them refused" if manifest.refused else ""
            say(f"attn: {folder.name} is complete: {done}{bad}. --force writes it anew.")
            return 0, 0
        if manifest.parts:
            say(f"attn: {folder.name} has {done}: going on.")
        _fill(job, folder, plan, manifest, engine, report)
    return manifest.lines, manifest.refused


def _fill(
    job: Job, folder: Folder, plan: Plan, manifest: Manifest, engine: Engine, report: LinesReport
) -> None:
    """Let an engine write the parts that are missing, and name them in the manifest."""
    done = manifest.lines

    def add_lines(more: int) -> None:
        nonlocal done
        done += more
        report(done, done / plan.lines if plan.lines else None)

    writer = ManifestWriter(folder, manifest)
    with writer.opened():
        for part in engine.parts(job, folder, plan, manifest, add_lines):
            writer.add(part)


def write_part(
    folder: Folder,
    job: Job,
    number: int,
    chunks: Iterable[ChunkOutput],
    check: Callable[[], None] = lambda: None,
) -> PartEntry:
    """Write the chunks of one part, and return what the manifest says of it; raise the error of a bad line.

    `check` is called before the part takes its place, and may raise.
    """
    lines = refused = 0

    def write(stream: IO[bytes]) -> None:
        nonlocal lines, refused
        with FORMS[job.form].sink(stream, job) as put:
            for chunk in chunks:
                if chunk.error is not None:
                    raise chunk.error
                put(chunk.data)
                lines, refused = lines + chunk.lines, refused + chunk.refused
        check()

    name = part_name(number, job.form)
    size, found = folder.put(name, write)
    return PartEntry(name, 1 + number * manifests.LINES, lines, refused, size, found)


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
    """Compute a part, and write it to its place."""
    if task.version != attn_cli.__version__:
        said = f"A worker has attn {attn_cli.__version__}, and this is {task.version}."
        raise MachineError(said, "Install the same version on all machines.")
    manifests.LINES = task.lines_a_part
    job, computer = _prepared(task)
    folder, number = folder_of(task.folder), task.cut.number
    chunks = (write_chunk(computer, chunk) for chunk in task.cut.chunks())
    with one_blas_thread():  # with more, a long line's last bits would be others than on one machine
        return write_part(folder, job, number, chunks, lambda: check_owner(folder, task.owner))


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


def _prepared(task: PartTask) -> tuple[Job, Computer]:
    """Return the job and what computes it: models, vectors, tables of words are kept for the parts that follow."""
    if getattr(_of_thread, "of", None) != task.job:
        if hasattr(_of_thread, "opened"):
            _of_thread.of = None
            _of_thread.opened.close()
        job: Job = pickle.loads(task.job)
        _check_files(job, task.files)
        _of_thread.opened = ExitStack()
        _of_thread.computer = _of_thread.opened.enter_context(Computer(job))
        _of_thread.job, _of_thread.of = job, task.job
    return _of_thread.job, _of_thread.computer


def _check_files(job: Job, wanted: dict[str, str]) -> None:
    """Refuse to compute with another file of vectors, or another model, than where the run was started."""
    for name, found in (hashes_of_files(job.settings) if wanted else {}).items():
        if wanted.get(name, found) != found:
            said = f"A worker has another {name} than this machine."
            raise InputError(said, "Give all machines the same files.")
