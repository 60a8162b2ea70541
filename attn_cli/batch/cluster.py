"""A Dask cluster, of this machine or the user's own: it hands out parts, and again those whose worker died."""

from __future__ import annotations

import pickle
import queue
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import attn_cli
from attn_cli.batch import Job, manifest as manifests, storage
from attn_cli.batch.cut import Plan
from attn_cli.batch.folder import Folder, absolute
from attn_cli.batch.scheduler import START, ask, client, load_dask, local_cluster
from attn_cli.batch.workers import PartTask, Report, claim, compute_part, on_a_worker, release
from attn_cli.errors import AttnError, MachineError, MissingExtra, WriteError, visible
from attn_cli.io.console import say

TICK = 0.5  # seconds between two looks whether the scheduler is there
AHEAD = 3  # tasks a processor that are handed out
LEAST_AHEAD = 16  # of them, so that a cluster that grows with its work sees some
WAIT = 10.0  # seconds without a worker, or an answer, before that is said
GONE = 60.0  # seconds without a process until a worker is replaced: its nanny takes time on a busy machine
PATIENCE = 10.0  # seconds for a part to be seen here: shared folders are late


class Dask:
    """Processes that do tasks, in any order. Use it in a `with` statement.

    `workers` processes of one thread are started here, unless `scheduler` is the address of others, which has `timeout`
    seconds to answer.
    """

    def __init__(self, workers: int, scheduler: str | None = None, timeout: float = START) -> None:
        self.workers, self.scheduler, self.timeout = workers, scheduler, timeout
        self.name = "The local cluster" if scheduler is None else f"The scheduler at {visible(scheduler)}"
        self.opened = ExitStack()
        self.pending: dict[str, tuple[int, Any]] = {}  # tasks by their keys: their numbers and futures
        self.ended: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.seen = time.monotonic()  # when there was a worker
        self.local: Any = None  # the cluster that was started here
        self.gone: dict[Any, float] = {}  # since when workers of it have no process

    def __enter__(self) -> Dask:
        dask = load_dask()
        with ExitStack() as opening:  # closed only if something fails
            if self.scheduler is None:
                self.local = opening.enter_context(local_cluster(dask, self.workers))
            where = self.local if self.scheduler is None else self.scheduler
            self.client = opening.enter_context(client(dask, where, self.timeout))
            self.opened = opening.pop_all()
        return self

    def __exit__(self, *raised: object) -> None:
        self.drop_after(-1)
        with suppress(Exception), warnings.catch_warnings():  # a scheduler that has gone cannot be left
            warnings.simplefilter("ignore")
            self.opened.close()

    def map(self, function: Callable[..., Any], tasks: Iterable[tuple[Any, ...]]) -> list[Any]:
        """Return what the function returned for each task, in order; raise the first task's error that raised one."""
        in_order = [found for _, found in sorted(self.results(function, tasks), key=lambda one: one[0])]
        if errors := [one for one in in_order if isinstance(one, AttnError)]:
            raise errors[0]
        return in_order

    def parts(
        self, job: Job, folder: Folder, plan: Plan, manifest: manifests.Manifest, report: Report
    ) -> Iterator[manifests.PartEntry]:
        """Write the parts that the manifest does not name, and yield each; raise the error of the first bad line."""
        errors: dict[int, AttnError] = {}  # of bad lines, by their tasks: those before them may have others
        files = {} if self.scheduler is None else manifest.run["files"]
        whole = pickle.dumps(job), files, absolute(folder.path), claim(folder)
        cuts = plan.parts(frozenset(manifest.parts))
        try:
            tasks = ((PartTask(attn_cli.__version__, manifests.LINES, *whole, cut),) for cut in cuts)
            for number, found in self.results(compute_part, tasks, errors):
                if isinstance(found, AttnError):
                    if found.line is None:
                        raise found
                    errors[number] = found
                    self.drop_after(number)
                    continue
                _wait_for(folder, found)
                yield found
                report(found.lines)
        finally:
            with suppress(AttnError):
                release(folder)
        if errors:
            raise errors[min(errors)]

    def results(
        self, function: Callable[..., Any], tasks: Iterable[tuple[Any, ...]], stop: object = ()
    ) -> Iterator[tuple[int, Any]]:
        """Yield the number of each task and what the function returned for it, or its AttnError, as they come.

        A few tasks are handed out at a time, and no more once `stop` is true. Raises MachineError where the scheduler
        is lost, or where the workers of a task die again and again.
        """
        coming = enumerate(tasks)
        is_more = True
        while is_more or self.pending:
            while is_more and len(self.pending) < max(AHEAD * self._threads(), LEAST_AHEAD):
                number, task = next(coming, (-1, ()))
                is_more = number >= 0 and not stop
                if is_more:
                    with self._connected():
                        future = self.client.submit(on_a_worker, function, *task, pure=False)
                    self.pending[future.key] = number, future
                    future.add_done_callback(self.ended.put)
            if self.pending:
                yield from self._next()

    def drop_after(self, number: int) -> None:
        """Forget the tasks that come after one."""
        for key, (other, future) in list(self.pending.items()):
            if other > number:
                del self.pending[key]
                with suppress(Exception):
                    future.cancel()

    def _next(self) -> Iterator[tuple[int, Any]]:
        """Wait for a moment, or until a task has ended, and yield what it returned."""
        self._check()
        try:
            future = self.ended.get(timeout=TICK)
        except queue.Empty:
            return
        if future.key not in self.pending:
            return
        number, _ = self.pending.pop(future.key)
        with self._connected():
            if future.status == "cancelled":
                raise self._lost()
            found = self._ask(lambda: future.exception() or future.result())
            if isinstance(found, Exception) and not isinstance(found, AttnError):
                raise found
        self.seen = time.monotonic()
        yield number, found

    @contextmanager
    def _connected(self) -> Iterator[None]:
        """Say what happened to the machines, in the place of Dask's own errors."""
        try:
            yield
        except MachineError:
            raise
        except Exception as error:
            if type(error).__name__ == "KilledWorker":
                hint = "Memory may be short: try fewer workers. The same command goes on."
                raise MachineError("The workers of one part died, one after the other.", hint) from None
            if isinstance(error, ModuleNotFoundError) and str(error.name).startswith("attn_cli"):
                hint = "On each of its machines: pip install 'attn-cli[dask]'"
                raise MissingExtra(f"A worker of {visible(str(self.scheduler))} has no attn.", hint) from None
            is_cut = any(word in type(error).__name__ for word in ("Cancelled", "CommClosed"))
            if is_cut or self.client.status != "running":  # the client may not have noticed yet
                raise self._lost() from None
            raise

    def _check(self) -> None:
        """Raise MachineError if the scheduler is lost; say so if nobody works."""
        if self.client.status != "running":
            raise self._lost()
        if self.local is not None:
            self._replace_workers()
        elif self._threads():
            self.seen = time.monotonic()
        elif time.monotonic() - self.seen > WAIT:
            say(f"attn: {self.name} has no workers: waiting for one.")
            self.seen = float("inf")

    def _replace_workers(self) -> None:
        """Start others for workers whose process has gone: Dask starts none for one that died while it started."""
        now = time.monotonic()
        wanted, there = self.local.worker_spec, self.local.workers
        for name, worker in list(there.items()):
            if worker.is_alive():
                self.gone.pop(name, None)
            elif name in wanted and now - self.gone.setdefault(name, now) > GONE:
                del self.gone[name], wanted[name]
                self.local.scale(len(wanted))  # has Dask close it
        if len(wanted) < self.workers and there.keys() <= wanted.keys():  # the other may get its name
            self.local.scale(self.workers)

    def _lost(self) -> MachineError:
        hint = "Start it anew: the same command goes on where this run was."
        return MachineError(f"{self.name} was lost.", hint)

    def _threads(self) -> int:
        """Return how many tasks the workers can do at a time, as far as is known here."""
        if self.scheduler is None:
            return self.workers
        with self._connected():
            about = self._ask(lambda: self.client.scheduler_info(n_workers=-1))["workers"]
        return sum(worker["nthreads"] for worker in about.values())

    def _ask(self, work: Callable[[], Any]) -> Any:
        return ask(work, f"attn: {self.name} does not answer: waiting for it.", WAIT)


def _wait_for(folder: Folder, part: manifests.PartEntry) -> None:
    """Wait until a part that a worker wrote is seen here; WriteError if it is not: then the folder is not shared."""
    end = time.monotonic() + PATIENCE
    while not storage.is_url(folder.path) and folder.size(part.file) != part.bytes:
        if time.monotonic() > end:
            said = f"A worker wrote {folder.name.rstrip('/')}/{part.file}, and it is not here."
            hint = "All machines must see the folder: a shared one, or s3://, gs:// or hdfs://."
            raise WriteError(said, hint)
        time.sleep(0.1)
