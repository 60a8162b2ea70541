"""Files that hold all or nothing: written beside, synced, renamed; what a killed run left is swept."""

from __future__ import annotations

import errno
import io
import os
import re
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, TypeVar

from attn_cli.errors import AttnError, CreateError, WriteError, visible
from attn_cli.io import console, files, signals

T = TypeVar("T")
UNSYNCED = (errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.EROFS)  # of folders, on some file systems
TICK = 0.02  # seconds between two tries to lock
BINARY = getattr(os, "O_BINARY", 0)


@contextmanager
def written(path: str | Path, follow: bool = True) -> Iterator[IO[bytes]]:
    """Open `path` for writing so that it holds all or nothing: written beside, synced, then renamed.

    A symbolic link is followed, an existing file keeps its permissions, and a device or a pipe is written to directly.
    Without `follow`, for a folder that others write to, these are refused. Raises CreateError when it cannot be opened,
    WriteError when writing fails; then nothing was changed, unless the message says otherwise.
    """
    name = visible(str(path))
    is_special = _opened_already(str(path)) is not None or (os.path.exists(path) and not os.path.isfile(path))
    if is_special and follow:
        with _direct(path, name) as stream:
            yield stream
        return
    with ExitStack() as held, signals.cleaned_up(held.close):
        try:
            with files.system_errors(CreateError, f"Cannot create {name}", "Choose another place."):
                target = _target(path, follow)
                stream, part = _staged(target, held)
            with stream:
                yield stream
                stream.flush()
                with suppress(FileNotFoundError):
                    os.chmod(part, stat.S_IMODE(os.stat(target).st_mode))
                os.fsync(stream.fileno())
            os.replace(part, target)
        except BaseException as error:
            held.close()
            if isinstance(error, OSError) and not isinstance(error, AttnError):
                raise WriteError(
                    f"Cannot write {name}: {files.reason(error)}.", "Nothing was changed."
                ) from None
            raise
    said = f"{name} is written, but its folder cannot be synced"
    with files.system_errors(WriteError, said, "It may not outlast a loss of power."):
        sync_folder(os.path.dirname(target))


@contextmanager
def _direct(target: str | Path, name: str) -> Iterator[IO[bytes]]:
    number = _opened_already(str(target))
    with files.system_errors(CreateError, f"Cannot create {name}", "Choose another place."):
        descriptor = os.open(target, os.O_WRONLY) if number is None else os.dup(number)
    try:
        with console.CheckedStream(descriptor, "wb") as stream:
            yield stream
    except (BrokenPipeError, AttnError):
        raise
    except OSError as error:
        raise WriteError(f"Cannot write {name}: {files.reason(error)}.") from None


def _opened_already(path: str) -> int | None:
    """Return the number of a descriptor that a path such as /dev/fd/3 names; a shell has opened its file."""
    standard = {"/dev/stdout": 1, "/dev/stderr": 2}
    found = re.fullmatch("/(?:dev|proc/self)/fd/([0-9]{1,7})", path)
    return int(found[1]) if found else standard.get(path)


def growing(path: str | Path, resumed: bool = False) -> IO[bytes]:
    """Open a file that is whole only later, as a download's: from its start, or behind what is there."""
    return io.BufferedWriter(console.CheckedStream(path, "ab" if resumed else "wb"))


def write_together(
    folder: str, contents: Mapping[str, bytes], last: str, check: Callable[[], object] = lambda: None
) -> None:
    """Write several files into a folder as one: all of them, or none where one of them cannot be written.

    `last` is absent while the others are replaced, so its presence always means a whole set, even after a kill.
    `check` looks at the locked folder, and may refuse it. Raises CreateError or WriteError.
    """
    is_begun = False
    with locked_folder(folder):
        check()
        try:
            with ExitStack() as staged:  # they take their places in the opposite order
                for name in (last, *(name for name in contents if name != last)):
                    stream = staged.enter_context(written(os.path.join(folder, name)))
                    stream.write(contents[name])
                    stream.flush()
                    os.fsync(stream.fileno())
                is_begun = True
                with suppress(FileNotFoundError):
                    os.unlink(os.path.join(folder, last))
        except AttnError as error:
            if is_begun:
                error.hint = "What is there does not belong together: write it again with --force."
            raise


def _staged(target: str, held: ExitStack) -> tuple[IO[bytes], str]:
    """Create an unfinished file beside its target, locked until `held` is closed, which removes what is left."""
    sweep(target)
    folder, name = os.path.split(target)
    mode = 0o600 if os.path.exists(target) else 0o666  # that of an existing file follows at its end
    for _ in range(100):  # of a new name, which may be swept before it is locked
        path = os.path.join(folder, f".{name[:40]}.{os.urandom(4).hex()}.part")
        held.callback(_quietly, os.unlink, path)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | BINARY, mode)
        try:
            is_locked = lock(descriptor)
            if os.fstat(descriptor).st_nlink:
                if is_locked:  # Windows has no such lock, and renames no file that is open
                    held.callback(_quietly, os.close, os.dup(descriptor))
                return io.BufferedWriter(console.CheckedStream(descriptor, "wb")), path
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
    raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))


def _quietly(call: Callable[[T], object], value: T) -> None:
    with suppress(OSError):
        call(value)


def sweep(target: str) -> None:
    """Remove what killed runs have left beside `target`: unfinished files that no process holds locked."""
    folder, name = os.path.split(target)
    ours = re.compile(re.escape(f".{name[:40]}.") + "[0-9a-f]{8}[.]part")
    with suppress(OSError), os.scandir(folder or ".") as entries:
        for entry in entries:
            if ours.fullmatch(entry.name):
                remove_unlocked(entry.path)


def remove_unlocked(path: str) -> None:
    """Remove a file unless a process has it locked; where there are no locks (some file systems) it stays."""
    with suppress(ImportError, OSError), ExitStack() as opened:
        import fcntl

        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        opened.callback(os.close, descriptor)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.unlink(path)


def lock(descriptor: int, is_shared: bool = False, busy: Callable[[], object] = lambda: None) -> bool:
    """Lock a file or a folder for as long as it is open; return whether the system and the file system have locks.

    `busy` is called, again and again, while another process has it locked; it may raise.
    """
    try:
        import fcntl
    except ImportError:
        return False
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_NB | (fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX))
            return True
        except BlockingIOError:
            busy()
            time.sleep(TICK)
        except OSError:
            return False


@contextmanager
def locked_folder(folder: str, busy: Callable[[], object] = lambda: None) -> Iterator[None]:
    """Let one process at a time be at a folder, where it may be read; `busy` is as in `lock`."""
    descriptor = None
    with ExitStack() as held:
        with suppress(OSError):
            descriptor = os.open(folder, os.O_RDONLY)
            held.callback(_quietly, os.close, descriptor)  # an error would hide what happened inside
        if descriptor is not None:
            lock(descriptor, busy=busy)
        yield


def sync_folder(folder: str) -> None:
    """Make the names in a folder durable, where the file system knows how."""
    try:
        descriptor = os.open(folder or ".", os.O_RDONLY)
    except OSError:
        return  # a folder that may be written to, but not read
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in UNSYNCED:
            raise
    finally:
        os.close(descriptor)


def _target(path: str | Path, follow: bool = True) -> str:
    folder, name = os.path.split(path)
    target = os.path.realpath(path) if follow else os.path.join(os.path.realpath(folder), name)
    if not follow and os.path.lexists(target) and not files.is_regular(target):
        raise OSError(errno.EEXIST, "what is there is not a regular file")
    # The system itself refuses a loop of links, and a name that is too long.
    with suppress(FileNotFoundError):
        if stat.S_ISDIR(os.stat(target).st_mode):
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not os.access(target, os.W_OK):
            raise OSError(errno.EACCES, os.strerror(errno.EACCES))
    return target


def creatable(path: str | Path) -> None:
    """Raise CreateError if no file can be created at `path`: checked before hours of work, not after."""
    folder = os.path.dirname(os.path.realpath(path))
    with files.system_errors(CreateError, f"Cannot create {visible(str(path))}"):
        _target(path)
        if not os.path.isdir(folder):
            raise OSError(errno.ENOENT, "there is no such folder")
        if not os.access(folder, os.W_OK):
            raise OSError(errno.EACCES, "its folder cannot be written to")
