"""A Dask cluster: one of this machine, or the user's own by the address of its scheduler.

Only this module imports Dask.
"""

from __future__ import annotations

import logging
import queue
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from attn_cli.batch.scheduler import ask, connect
from attn_cli.batch.workers import Failure
from attn_cli.errors import MachineError, MissingExtra
from attn_cli.io.console import say
from attn_cli.io.escape import count, visible
from attn_cli.io.signals import cleaned_up

TRIES = 10  # of a task whose worker dies, on this machine
PATIENCE = 10.0  # seconds for the scheduler of this machine to answer
TICK = 0.5  # seconds between two looks whether the scheduler is there
AHEAD = 3  # tasks a processor that are handed out
LEAST_AHEAD = 16  # of them, so that a cluster that grows with its work sees some
WAIT = 10.0  # seconds without a worker, or an answer, before that is said
GONE = 5.0  # seconds without its process after which a worker of this machine is replaced
QUIET = dict.fromkeys(("distributed", "distributed.client", "distributed.worker", "tornado"), "critical")
SETTINGS = {
    "distributed.scheduler.allowed-failures": TRIES,
    "distributed.worker.profile.enabled": False,
    "distributed.scheduler.http.routes": [],  # no pages that others could read
    "distributed.worker.http.routes": [],
    "logging": QUIET,
}
# What Python would say of a run that is ended by a signal; it cleans up all the same.
NO_WARNING = "ignore:resource_tracker"


class Cluster:
    """Processes that do tasks, in any order. Use it in a `with` statement.

    `workers` processes of one thread are started here, unless `scheduler` is the address of others, which has so many
    seconds to answer.
    """

    def __init__(self, workers: int, scheduler: str | None = None, timeout: float = PATIENCE) -> None:
        self.workers, self.scheduler, self.timeout = workers, scheduler, timeout
        self.opened = ExitStack()
        self.pending: dict[str, tuple[int, Any]] = {}  # tasks by their keys: their numbers and futures
        self.ended: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.seen = time.monotonic()  # when there was a worker
        self.local: Any = None  # the cluster that was started here
        self.gone: dict[Any, float] = {}  # since when workers of it have no process

    def __enter__(self) -> Cluster:
        try:
            from dask import config

            config.set({"logging": QUIET})
            import distributed
        except ImportError:
            raise MissingExtra("--engine dask needs Dask.", "pip install 'attn-cli[dask]'") from None
        logging.getLogger("distributed").setLevel(logging.CRITICAL)
        with ExitStack() as opening:  # closed only if something fails
            if self.scheduler is None:
                self.local = opening.enter_context(_local_cluster(self.workers))
            self.client = opening.enter_context(
                _client(distributed, self.scheduler, self.local, self.timeout)
            )
            self.opened = opening.pop_all()
        return self

    def __exit__(self, *raised: object) -> None:
        self.drop_after(-1)
        with (
            suppress(Exception),
            warnings.catch_warnings(),
        ):  # a scheduler that has gone cannot be taken leave of
            warnings.simplefilter("ignore")
            self.opened.close()

    @property
    def name(self) -> str:
        """What messages call it."""
        return (
            "The local cluster" if self.scheduler is None else f"The scheduler at {visible(self.scheduler)}"
        )

    def results(
        self, function: Callable[..., Any], tasks: Iterable[tuple[Any, ...]]
    ) -> Iterator[tuple[int, Any]]:
        """Yield the number of each task and what the function returned for it, as they come.

        A few tasks are handed out at a time. Raises what a Failure holds, and MachineError where the scheduler is
        lost, or where the workers of a task die again and again.
        """
        coming = enumerate(tasks)
        is_more = True
        while is_more or self.pending:
            while is_more and len(self.pending) < self._ahead():
                number, task = next(coming, (-1, ()))
                is_more = number >= 0
                if is_more:
                    self._hand_out(function, number, task)
            if self.pending:
                yield from self._next()

    def in_order(self, function: Callable[..., Any], tasks: Iterable[tuple[Any, ...]]) -> list[Any]:
        """Return what the function returned for each task; raise the first failure."""
        found = dict(self.results(function, tasks))
        made = [found[number] for number in range(len(found))]
        for one in made:
            if isinstance(one, Failure):
                raise one.exception()
        return made

    def drop_after(self, number: int) -> None:
        """Forget the tasks that come after one."""
        for key, (other, future) in list(self.pending.items()):
            if other > number:
                del self.pending[key]
                with suppress(Exception):
                    future.cancel()

    def _hand_out(self, function: Callable[..., Any], number: int, task: tuple[Any, ...]) -> None:
        from uuid import uuid4  # only on a cluster

        key = f"attn-{function.__name__}-{number}-{uuid4().hex}"
        with self._connected():
            future = self.client.submit(function, *task, key=key, pure=False)
        self.pending[key] = number, future
        future.add_done_callback(self.ended.put)

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
            found = self._ask(future.result)
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
            if self.client.status != "running" or "Cancelled" in type(error).__name__:
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
        return MachineError(
            f"{self.name} was lost.", "Start it anew: the same command goes on where this run was."
        )

    def _ahead(self) -> int:
        return max(AHEAD * self._threads(), LEAST_AHEAD)

    def _threads(self) -> int:
        """Return how many tasks the workers can do at a time, as far as is known here."""
        if self.scheduler is None:
            return self.workers
        with self._connected():
            about = self._ask(lambda: self.client.scheduler_info(n_workers=-1))["workers"]
        return sum(worker["nthreads"] for worker in about.values())

    def _ask(self, work: Callable[[], Any]) -> Any:
        return ask(work, f"attn: {self.name} does not answer: waiting for it.", WAIT)


@contextmanager
def _client(dask: Any, scheduler: str | None, local: Any, seconds: float) -> Iterator[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # other versions of packages that attn has nothing to do with
        if scheduler is None:
            client = dask.Client(local, timeout=PATIENCE, set_as_default=False)
        else:
            client = connect(dask, scheduler, seconds)
    try:
        yield client
    finally:
        client.close(timeout=TICK)


@contextmanager
def _local_cluster(workers: int) -> Iterator[Any]:
    """Start processes of this machine, which only this one can talk to; they end with it, whatever ends it."""
    import shutil
    from tempfile import mkdtemp

    import distributed
    from dask import config

    folder = mkdtemp(prefix="attn-dask-")
    sys.warnoptions.append(NO_WARNING)
    try:
        with cleaned_up(lambda: shutil.rmtree(folder, ignore_errors=True)), config.set(SETTINGS):
            try:
                start: Any = distributed.LocalCluster  # not typed
                cluster = start(
                    n_workers=workers,
                    threads_per_worker=1,
                    host="127.0.0.1",
                    dashboard_address="127.0.0.1:0",
                    scheduler_kwargs={"dashboard": False},
                    memory_limit=None,
                    local_directory=folder,
                    security=True,  # the keys of this run: nobody else on this machine can send it work
                    silence_logs=logging.CRITICAL,
                )
            except (RuntimeError, OSError) as error:
                said = f"The local cluster cannot start: {visible(str(error)[:200]).rstrip('.')}."
                raise MachineError(said, f"Try fewer than {count(workers, 'worker', 'workers')}.") from None
            try:
                yield cluster
            finally:
                cluster.close(timeout=PATIENCE)
    finally:
        sys.warnoptions.remove(NO_WARNING)
        shutil.rmtree(folder, ignore_errors=True)
