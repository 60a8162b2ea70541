"""Files that hold all or nothing: written beside, synced, renamed; what a killed run left is swept."""

from __future__ import annotations

import errno
import io
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO

from attn_cli.errors import AttnError, CreateError, WriteError
from attn_cli.io.console import CheckedStream
from attn_cli.io.escape import visible
from attn_cli.io.files import is_regular, reason
from attn_cli.io.signals import cleaned_up

TRIES = 100  # of a new name beside the file
UNSYNCED = (errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.EROFS)  # of folders, on some file systems
LONGEST_NAME = 255  # bytes
BINARY = getattr(os, "O_BINARY", 0)


@contextmanager
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
    with _creating(name):
        part = StagedFile(_target(path, follow))
    with cleaned_up(part.remove):
        try:
            with _creating(name):
                stream = part.open()
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
        said = f"{name} is written, but its folder cannot be synced: {reason(error)}."
        raise WriteError(said, "It may not outlast a loss of power.") from None


@contextmanager
def _creating(name: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        raise CreateError(f"Cannot create {name}: {reason(error)}.", "Choose another place.") from None


@contextmanager
def _direct(target: str | Path, name: str) -> Iterator[IO[bytes]]:
    """Open a device or a pipe, whose writes are checked like all others."""
    number = _opened_already(str(target))
    with _creating(name):
        descriptor = os.open(target, os.O_WRONLY) if number is None else os.dup(number)
    try:
        with CheckedStream(descriptor, owned=True) as stream:
            yield stream  # type: ignore[misc]
    except (BrokenPipeError, AttnError):
        raise
    except OSError as error:
        raise WriteError(f"Cannot write {name}: {reason(error)}.") from None


def _opened_already(path: str) -> int | None:
    """Return the number of a descriptor that a path such as /dev/fd/3 names; a shell has opened its file."""
    standard = {"/dev/stdout": 1, "/dev/stderr": 2}
    found = re.fullmatch("/(?:dev|proc/self)/fd/([0-9]{1,7})", path)
    return int(found[1]) if found else standard.get(path)


def growing(path: str | Path, resumed: bool = False) -> IO[bytes]:
    """Open a file that is whole only later, as a download's: from its start, or behind what is there."""
    how = os.O_APPEND if resumed else os.O_TRUNC
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | how | BINARY, 0o666)
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
    with locked_folder(folder):
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
        self.locks = ExitStack()  # descriptors that are locked while they are open

    def open(self) -> IO[bytes]:
        """Create the file, after sweeping what killed runs have left."""
        sweep(self.target)
        for _ in range(TRIES):
            self.path = _beside(self.target)
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | BINARY, 0o600)
            try:
                lock(descriptor)
                if os.fstat(descriptor).st_nlink:  # not swept before it was locked
                    self.locks.callback(os.close, os.dup(descriptor))
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
            descriptor = os.open(self.target, os.O_RDONLY)
            self.locks.callback(os.close, descriptor)
            lock(descriptor)
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
        self._remove(self.old)

    def remove(self) -> None:
        """Remove the unfinished file, if it is there."""
        self._remove(self.path)

    def _remove(self, path: str) -> None:
        with suppress(OSError):
            if path:
                os.unlink(path)
        self._unlock()

    def _unlock(self) -> None:
        with suppress(OSError):
            self.locks.close()


def _beside(target: str) -> str:
    folder, name = os.path.split(target)
    return os.path.join(folder, f".{name[:40]}.{os.urandom(4).hex()}.part")


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


def lock(descriptor: int, is_shared: bool = False) -> None:
    """Lock a file or a folder for as long as it is open, where the system and the file system have locks."""
    with suppress(ImportError, OSError):
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX)


@contextmanager
def locked_folder(folder: str) -> Iterator[None]:
    """Let one process at a time replace the files of a folder."""
    with ExitStack() as opened:
        with suppress(OSError):  # one that may not be read, or a system that opens none
            descriptor = os.open(folder, os.O_RDONLY)
            opened.callback(os.close, descriptor)
            lock(descriptor)
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
    """Return the file that `path` leads to; OSError where none can be created there."""
    folder, name = os.path.split(path)
    target = os.path.realpath(path) if follow else os.path.join(os.path.realpath(folder), name)
    if not follow and os.path.lexists(target) and not is_regular(target):
        raise OSError(errno.EEXIST, "what is there is not a regular file")
    wrong = 0
    if os.path.islink(target):  # what realpath returns of a loop
        wrong = errno.ELOOP
    elif len(os.fsencode(os.path.basename(target))) > LONGEST_NAME:
        wrong = errno.ENAMETOOLONG
    elif os.path.isdir(target):
        wrong = errno.EISDIR
    elif os.path.exists(target) and not os.access(target, os.W_OK):
        wrong = errno.EACCES
    if wrong:
        raise OSError(wrong, os.strerror(wrong))
    return target


def _mode(target: str) -> int:
    """Return the permissions of a file, or those that a new one gets."""
    if os.path.exists(target):
        return stat.S_IMODE(os.stat(target).st_mode)
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
