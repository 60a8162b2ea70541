"""Files that hold all or nothing: written beside, synced, renamed; what a killed run left is swept."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from string import hexdigits
from typing import IO, TYPE_CHECKING

from attn_cli.errors import AttnError, CreateError, WriteError
from attn_cli.io.escape import visible
from attn_cli.io.files import is_regular, reason
from attn_cli.io.signals import cleaned_up
from attn_cli.io.streams import CheckedStream

if TYPE_CHECKING:
    from pathlib import Path

TRIES = 100  # of a new name beside the file
UNSYNCED = (errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.EROFS)  # of folders, on some file systems


@contextlib.contextmanager
def written(path: str | Path, follow: bool = True) -> Iterator[IO[bytes]]:
    """Open `path` for writing so that it holds all or nothing: written beside, synced, then renamed.

    A symbolic link is followed and an existing file keeps its permissions. What a killed run has left beside it is
    removed. A device or a pipe is written to directly. Without `follow`, for a folder that others write to, a link, a
    device and a pipe are refused. Raises CreateError when it cannot be opened, WriteError when writing fails; then
    nothing was changed, unless the message says otherwise.
    """
    name = visible(str(path))
    is_special = _opened_already(str(path)) is not None or (os.path.exists(path) and not os.path.isfile(path))
    if is_special and follow:
        with _direct(path, name) as stream:
            yield stream
        return
    try:
        part = StagedFile(_target(path, follow))
    except (OSError, ValueError) as error:
        raise CreateError(f"Cannot create {name}: {reason(error)}.", "Choose another place.") from None
    with cleaned_up(part.remove):
        try:
            stream = part.open()
        except OSError as error:
            part.remove()
            raise CreateError(f"Cannot create {name}: {reason(error)}.", "Choose another place.") from None
        try:
            with stream:
                yield stream
                part.sync(stream)
            part.take_place()
        except BaseException as error:
            part.remove()
            if isinstance(error, OSError) and not isinstance(error, AttnError):
                raise WriteError(f"Cannot write {name}: {reason(error)}.", "Nothing was changed.") from None
            raise
    try:
        sync_folder(os.path.dirname(part.target))
    except OSError as error:
        raise WriteError(
            f"{name} is written, but its folder cannot be synced: {reason(error)}.",
            "It may not outlast a loss of power.",
        ) from None


def growing(path: str | Path, resumed: bool = False) -> IO[bytes]:
    """Open a file that is whole only later, as a download's: from its start, or behind what is there."""
    how = os.O_APPEND if resumed else os.O_TRUNC
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | how | getattr(os, "O_BINARY", 0), 0o666)
    return io.BufferedWriter(CheckedStream(descriptor, owned=True))


def write_together(
    folder: str, contents: Mapping[str, bytes], last: str, check: Callable[[], object] = lambda: None
) -> None:
    """Write several files into a folder as one: all of them, or, after an error or a signal, those of before.

    `last` is the one of them that says that the others are whole: it is absent while the others are replaced, so its
    presence always means a consistent set, even after a kill. `check` looks at the folder, and may refuse it,
    when no other process can be at it. Raises CreateError or WriteError.
    """
    names = [*(name for name in contents if name != last), last]
    with _locked_folder(folder):
        check()
        try:
            parts = [StagedFile(_target(os.path.join(folder, name))) for name in names]
        except OSError as error:
            raise CreateError(f"Cannot write into {visible(folder)}: {reason(error)}.") from None
        with cleaned_up(lambda: _undo(parts)):
            try:
                for name, part in zip(names, parts, strict=True):
                    with part.open() as stream:
                        stream.write(contents[name])
                        part.sync(stream)
                for part in reversed(parts):
                    part.set_aside()
                for part in parts:
                    part.take_place()
                sync_folder(folder)
            except BaseException as error:
                left = "Nothing was changed."
                if not _undo(parts):
                    left = "What is there does not belong together: write it again with --force."
                if isinstance(error, OSError):
                    raise WriteError(f"Cannot write into {visible(folder)}: {reason(error)}.", left) from None
                raise
        for part in parts:
            part.forget_old()
            sweep(part.target)


def _undo(parts: list[StagedFile]) -> bool:
    """Put back what was there before; return whether all of it is."""
    are_back = [part.restore() for part in parts]
    for part in parts:
        part.remove()
    return all(are_back)


class StagedFile:
    """An unfinished file beside its target, under a name that `sweep` knows, locked until it has taken its place."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.mode = _mode(target)
        self.was_there = os.path.lexists(target)
        self.path = self.old = ""
        self.lock = self.old_lock = -1

    def open(self) -> IO[bytes]:
        """Create the file, after sweeping what killed runs have left."""
        sweep(self.target)
        for _ in range(TRIES):
            self.path = _beside(self.target)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
            descriptor = os.open(self.path, flags, 0o600)
            try:
                _wait_for_lock(descriptor)
                if os.fstat(descriptor).st_nlink:  # not swept before it was locked
                    self.lock = os.dup(descriptor)
                    return io.BufferedWriter(CheckedStream(descriptor, owned=True))
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    def sync(self, stream: IO[bytes]) -> None:
        """Bring all that was written to the disk."""
        stream.flush()
        os.chmod(self.path, self.mode)
        os.fsync(stream.fileno())

    def take_place(self) -> None:
        """Replace the target."""
        os.replace(self.path, self.target)
        self.path = ""
        if not self.old:
            self._unlock()

    def set_aside(self) -> None:
        """Move the target of before out of the way, where it can be restored from."""
        if self.was_there:
            self.old_lock = os.open(self.target, os.O_RDONLY)
            _wait_for_lock(self.old_lock)
            self.old = _beside(self.target)
            os.replace(self.target, self.old)

    def restore(self) -> bool:
        """Put the target of before back, or remove what is new; return whether that was possible."""
        try:
            if self.old and os.path.lexists(self.old):
                os.replace(self.old, self.target)
            elif not self.path and not self.was_there and os.path.lexists(self.target):
                os.unlink(self.target)
        except OSError:
            return False
        return not self.was_there or os.path.lexists(self.target)

    def forget_old(self) -> None:
        """Remove the target of before."""
        if self.old:
            _remove(self.old)
        self._unlock()

    def remove(self) -> None:
        """Remove the unfinished file, if it is there."""
        if self.path and os.path.lexists(self.path):
            _remove(self.path)
        self._unlock()

    def _unlock(self) -> None:
        locks, self.lock, self.old_lock = (self.lock, self.old_lock), -1, -1
        for lock in locks:
            if lock >= 0:
                with contextlib.suppress(OSError):
                    os.close(lock)


def _beside(target: str) -> str:
    folder, name = os.path.split(target)
    return os.path.join(folder, f".{name[:40]}.{os.urandom(4).hex()}.part")


def sweep(target: str) -> None:
    """Remove what killed runs have left beside `target`: unfinished files that no process holds locked."""
    folder, name = os.path.split(target)
    start, end = f".{name[:40]}.", ".part"
    length = len(start) + 8 + len(end)
    with contextlib.suppress(OSError), os.scandir(folder or ".") as entries:
        for entry in entries:
            is_ours = len(entry.name) == length and entry.name.startswith(start) and entry.name.endswith(end)
            if is_ours and set(entry.name[len(start) : -len(end)]) <= set(hexdigits):
                remove_unlocked(entry.path)


def remove_unlocked(
    path: str,
    is_done_with: Callable[[str], bool] = lambda path: True,
    first: Callable[[str], object] = lambda path: None,
) -> bool:
    """Remove a file unless a process has it locked or, once locked, `is_done_with` says it is still needed.

    Return whether it was removed; where there are no locks (Windows, some file systems) nothing is.
    """
    try:
        import fcntl

        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except (ImportError, OSError):
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode) or not is_done_with(path):
            return False
        first(path)
        os.unlink(path)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def _wait_for_lock(descriptor: int) -> None:
    """Lock an unfinished file, for as long as it is open; a sweep may hold it for a moment."""
    with contextlib.suppress(ImportError, OSError):  # a system, or a file system, without locks
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX)


@contextlib.contextmanager
def _locked_folder(folder: str) -> Iterator[None]:
    """Let one process at a time replace the files of a folder."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:  # one that may not be read, or a system that opens none
        yield
        return
    try:
        _wait_for_lock(descriptor)
        yield
    finally:
        os.close(descriptor)


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
    """Return the file that `path` leads to; OSError where none can be created there."""
    folder, name = os.path.split(path)
    target = os.path.realpath(path) if follow else os.path.join(os.path.realpath(folder), name)
    if not follow and os.path.lexists(target) and not is_regular(target):
        raise OSError(errno.EEXIST, "what is there is not a regular file")
    if os.path.islink(target):  # what realpath returns of a loop
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    if len(os.fsencode(os.path.basename(target))) > 255:
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
    if os.path.isdir(target):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if os.path.exists(target) and not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    return target


def _mode(target: str) -> int:
    """Return the permissions of a file, or those that a new one gets."""
    if os.path.exists(target):
        return stat.S_IMODE(os.stat(target).st_mode)
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)


@contextlib.contextmanager
def _direct(target: str | Path, name: str) -> Iterator[IO[bytes]]:
    """Open a device or a pipe, whose writes are checked like all others."""
    number = _opened_already(str(target))
    try:
        descriptor = os.open(target, os.O_WRONLY) if number is None else os.dup(number)
        stream = CheckedStream(descriptor, owned=True)
    except OSError as error:
        raise CreateError(f"Cannot create {name}: {reason(error)}.", "Choose another place.") from None
    try:
        with stream:
            yield stream  # type: ignore[misc]
    except BrokenPipeError:
        raise
    except AttnError:
        raise
    except OSError as error:
        raise WriteError(f"Cannot write {name}: {reason(error)}.") from None


def _opened_already(path: str) -> int | None:
    """Return the number of a descriptor that a path such as /dev/fd/3 names; a shell has opened its file."""
    standard = {"/dev/stdout": 1, "/dev/stderr": 2}
    if path in standard:
        return standard[path]
    folder, _, number = path.rpartition("/")
    is_one = (
        folder in ("/dev/fd", "/proc/self/fd") and number.isascii() and number.isdigit() and len(number) < 8
    )
    return int(number) if is_one else None
