"""The scheduler of a user's own Dask cluster: connected to, and asked, with a word where it does not answer."""

from __future__ import annotations

import queue
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from attn_cli.errors import MachineError, UsageError
from attn_cli.io.console import say
from attn_cli.io.escape import visible
from attn_cli.io.files import reason

SILENCE = 2.0  # seconds without an answer before that is said
GRACE = 1.0  # seconds, after its own limit, in which Dask may say what was wrong
PROBE = 0.5  # seconds to find out why nobody answers
PARTING = 0.5  # seconds to take leave of a scheduler that was not reached
# What Dask says where its settings do not fit the address
OF_SETTINGS = ("ssl_context", "encryption required")
EXAMPLE = "An address is tcp://host:8786."
Found = TypeVar("Found")


def ask(work: Callable[[], Found], waiting: str, silence: float, seconds: float | None = None) -> Found:
    """Return what `work` returns, which waits for another machine; after some silence, say `waiting`.

    It runs in a thread of its own: Dask sets no limit where a connection is taken and nothing comes, and a look-up of
    a host lets no signal through. Raises TimeoutError after so many seconds.
    """
    answers: queue.SimpleQueue[tuple[Found | None, BaseException | None]] = queue.SimpleQueue()

    def answer() -> None:
        try:
            answers.put((work(), None))
        except BaseException as error:
            answers.put((None, error))

    threading.Thread(target=answer, daemon=True).start()
    left = threading.TIMEOUT_MAX if seconds is None else seconds
    first = min(silence, left)
    try:
        found, error = answers.get(timeout=first)
    except queue.Empty:
        if left > first:
            say(waiting)
        try:
            found, error = answers.get(timeout=left - first)
        except queue.Empty:
            raise TimeoutError from None
    if error is not None:
        raise error
    return found  # type: ignore[return-value]


def connect(dask: Any, address: str, seconds: float) -> Any:
    """Return a client of the scheduler at an address; MachineError if none answers in time. `dask` is its library."""
    name, place = visible(address), _place(dask.comm, address)
    client = dask.Client.__new__(dask.Client)  # known here, so that it can be closed where it cannot be made

    def work() -> None:
        try:
            client.__init__(address, timeout=seconds, set_as_default=False)
        except BaseException as error:
            failed = _failed(error, name, place, seconds)
            with suppress(BaseException):
                client.close(timeout=PARTING)
            client.status = "closed"  # or it would try again when it is forgotten
            raise failed from None

    waiting = f"attn: waiting for the Dask scheduler at {name} (at most {seconds:g} s: --connect-timeout)."
    try:
        ask(work, waiting, SILENCE, seconds + GRACE)
    except TimeoutError:
        said = f"The scheduler at {name} accepted the connection but did not answer in {seconds:g} s."
        raise MachineError(said, "Is it a Dask scheduler? --connect-timeout waits longer.") from None
    return client


def _place(comm: Any, address: str) -> tuple[str, int] | None:
    """Return the host and the port of an address, where it has them; UsageError for what is none that Dask knows."""
    try:
        scheme, place = comm.addressing.parse_address(address)
        comm.registry.get_backend(scheme)
        host, port = comm.addressing.parse_host_port(place) if scheme in ("tcp", "tls") else ("", 0)
    except ValueError as error:
        said = f"--scheduler cannot be {visible(address)}: {_said(error)}."
        raise UsageError(said, EXAMPLE, "--scheduler") from None
    return (host, port) if port else None


def _failed(error: BaseException, name: str, place: tuple[str, int] | None, seconds: float) -> Exception:
    """Return in the place of Dask's error what it means."""
    said = _said(error)
    if isinstance(error, FileNotFoundError) or any(word in said for word in OF_SETTINGS):
        hint = "Its certificates are those of Dask's own settings: distributed.comm.tls."
        return UsageError(f"--scheduler cannot be {name}: {said}.", hint, "--scheduler")
    if isinstance(error, (OSError, ImportError)):
        why = _reason(error) or _refusal(place) or f"it does not answer in {seconds:g} s"
        hint = "It is started with: dask scheduler. One with TLS has an address tls://host:8786."
        return MachineError(f"Cannot reach the scheduler at {name}: {why}.", hint)
    hint = f"{EXAMPLE} One with TLS has tls:// instead."
    return MachineError(f"What answers at {name} does not speak as a scheduler of Dask does.", hint)


def _reason(error: BaseException | None) -> str:
    """Return the system's reason at the root of an error; nothing where it is no more than that time is up."""
    found = ""
    while error is not None:
        if not isinstance(error, TimeoutError) and getattr(error, "strerror", None):
            found = visible(str(error.strerror))  # type: ignore[attr-defined]
        elif isinstance(error, ImportError):
            found = _said(error)
        error = error.__cause__ or error.__context__
    return found


def _refusal(place: tuple[str, int] | None) -> str:
    """Return why a port cannot be connected to, of which Dask's last try says nothing; nothing where it can."""
    try:
        if place is not None:
            socket.create_connection(place, PROBE).close()
    except TimeoutError:
        pass
    except OSError as error:
        return reason(error)
    return ""


def _said(error: BaseException) -> str:
    return visible(" ".join(str(error).split())[:200]).rstrip(".") or type(error).__name__
