"""The scheduler of a Dask cluster, of this machine or a user's own: started, connected to, and asked."""

from __future__ import annotations

import logging
import shutil
import socket
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from tempfile import mkdtemp
from typing import Any, TypeVar

from attn_cli.batch.storage import one_line
from attn_cli.errors import MachineError, MissingExtra, UsageError, count, visible
from attn_cli.io import console, files, signals

START = 10.0  # seconds for the scheduler of this machine to answer, and to end
SILENCE = 2.0  # seconds without an answer before that is said
GRACE = 1.0  # seconds, after its own limit, in which Dask may say what was wrong
PROBE = 0.5  # seconds to find out why nobody answers
PARTING = 0.5  # seconds to take leave of a scheduler
LONGEST = 200  # characters of what Dask says
# What Dask says where its settings do not fit the address
OF_SETTINGS = ("ssl_context", "encryption required")
EXAMPLE = "An address is tcp://host:8786."
TRIES = 10  # of a task whose worker dies, on this machine
QUIET = dict.fromkeys(("distributed", "distributed.client", "distributed.worker", "tornado"), "critical")
SETTINGS = {
    "distributed.scheduler.allowed-failures": TRIES,
    "distributed.worker.profile.enabled": False,
    "distributed.scheduler.http.routes": [],  # no pages that others could read
    "distributed.worker.http.routes": [],
    # Freed memory is used again: with Dask's own 64 KiB, small products take three times as long.
    "distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_": 1 << 26,
    "distributed.nanny.pre-spawn-environ.MALLOC_MMAP_THRESHOLD_": 1 << 25,
    "logging": QUIET,
}
OF_THIS_MACHINE: dict[str, Any] = {"threads_per_worker": 1, "host": "127.0.0.1", "memory_limit": None}
OF_THIS_MACHINE |= {"dashboard_address": "127.0.0.1:0", "scheduler_kwargs": {"dashboard": False}}
OF_THIS_MACHINE["silence_logs"] = logging.CRITICAL
OF_THIS_MACHINE["security"] = True  # the keys of this run: nobody else on this machine can send it work
# What Python would say of a run that is ended by a signal; it cleans up all the same.
NO_WARNING = "ignore:resource_tracker"
Found = TypeVar("Found")


def load_dask() -> Any:
    """Return Dask's library, whose own messages are held back; MissingExtra where it is not installed."""
    try:
        from dask import config

        config.set({"logging": QUIET})
        import distributed
    except ImportError:
        raise MissingExtra("--engine dask needs Dask.", "pip install 'attn-cli[dask]'") from None
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    return distributed


@contextmanager
def local_cluster(dask: Any, workers: int) -> Iterator[Any]:
    """Start processes of this machine, which only this one can talk to; they end with it, whatever ends it."""
    from dask import config

    with ExitStack() as undo:
        folder = mkdtemp(prefix="attn-dask-")
        remove = partial(shutil.rmtree, folder, ignore_errors=True)
        undo.callback(remove)
        sys.warnoptions.append(NO_WARNING)
        undo.callback(sys.warnoptions.remove, NO_WARNING)
        undo.enter_context(signals.cleaned_up(remove))
        undo.enter_context(config.set(SETTINGS))
        try:
            cluster = dask.LocalCluster(n_workers=workers, local_directory=folder, **OF_THIS_MACHINE)
        except (RuntimeError, OSError) as error:
            said = f"The local cluster cannot start: {one_line(error, LONGEST)}."
            raise MachineError(said, f"Try fewer than {count(workers, 'worker', 'workers')}.") from None
        undo.callback(cluster.close, timeout=START)
        yield cluster


@contextmanager
def client(dask: Any, cluster: Any, seconds: float) -> Iterator[Any]:
    """Connect to a local cluster, or to the scheduler at an address; MachineError if none answers in time."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # other versions of packages that attn has nothing to do with
        if isinstance(cluster, str):
            made = _connected(dask, cluster, seconds)
        else:
            made = dask.Client(cluster, timeout=START, set_as_default=False)
    try:
        yield made
    finally:
        made.close(timeout=PARTING)


def ask(work: Callable[[], Found], waiting: str, silence: float, seconds: float | None = None) -> Found:
    """Return what `work` returns, which waits for another machine; after some silence, say `waiting`.

    It runs in a thread of its own: Dask sets no limit where a connection is taken and nothing comes, and a look-up of
    a host lets no signal through. Raises TimeoutError after so many seconds.
    """
    answer: Future[Found] = Future()

    def run() -> None:
        try:
            answer.set_result(work())
        except BaseException as error:
            answer.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    first = silence if seconds is None else min(silence, seconds)
    if wait([answer], first).not_done and first != seconds:
        console.say(waiting)
        wait([answer], None if seconds is None else seconds - first)
    if not answer.done():
        raise TimeoutError
    return answer.result()


def _connected(dask: Any, address: str, seconds: float) -> Any:
    """Return a client of the scheduler at an address; MachineError if none answers in time."""
    name, place = visible(address), _place(dask.comm, address)
    made = dask.Client.__new__(dask.Client)  # known here, so that it can be closed where it cannot be made

    def work() -> None:
        try:
            made.__init__(address, timeout=seconds, set_as_default=False)
        except BaseException as error:
            failed = _failed(error, name, place, seconds)
            with suppress(BaseException):
                made.close(timeout=PARTING)
            made.status = "closed"  # or it would try again when it is forgotten
            raise failed from None

    waiting = f"attn: waiting for the Dask scheduler at {name} (at most {seconds:g} s: --connect-timeout)."
    try:
        ask(work, waiting, SILENCE, seconds + GRACE)
    except TimeoutError:
        said = f"The scheduler at {name} accepted the connection but did not answer in {seconds:g} s."
        raise MachineError(said, "Is it a Dask scheduler? --connect-timeout waits longer.") from None
    return made


def _place(comm: Any, address: str) -> tuple[str, int] | None:
    """Return the host and the port of an address, where it has them; UsageError for what is none that Dask knows."""
    try:
        scheme, place = comm.addressing.parse_address(address)
        comm.registry.get_backend(scheme)
        host, port = comm.addressing.parse_host_port(place) if scheme in ("tcp", "tls") else ("", 0)
    except ValueError as error:
        said = f"--scheduler cannot be {visible(address)}: {one_line(error, LONGEST)}."
        raise UsageError(said, EXAMPLE, "--scheduler") from None
    return (host, port) if port else None


def _failed(error: BaseException, name: str, place: tuple[str, int] | None, seconds: float) -> Exception:
    """Return in the place of Dask's error what it means."""
    said = one_line(error, LONGEST)
    if isinstance(error, FileNotFoundError) or any(word in said for word in OF_SETTINGS):
        hint = "Its certificates are those of Dask's own settings: distributed.comm.tls."
        return UsageError(f"--scheduler cannot be {name}: {said}.", hint, "--scheduler")
    if not isinstance(error, (OSError, ImportError)):
        hint = f"{EXAMPLE} One with TLS has tls:// instead."
        return MachineError(f"What answers at {name} does not speak as a scheduler of Dask does.", hint)
    why = said if isinstance(error, ImportError) else f"it does not answer in {seconds:g} s"
    try:
        if place is not None:  # of its last try Dask does not say why
            socket.create_connection(place, PROBE).close()
    except OSError as refusal:
        why = why if isinstance(refusal, TimeoutError) else files.reason(refusal)
    hint = "It is started with: dask scheduler. One with TLS has an address tls://host:8786."
    return MachineError(f"Cannot reach the scheduler at {name}: {why}.", hint)
