"""Files, read and written safely: only regular files in, never half a file out."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from typing import IO, TYPE_CHECKING

from attn_cli.errors import AttnError, CreateError, FileError, WriteError
from attn_cli.io.escape import visible

if TYPE_CHECKING:
    from pathlib import Path  # eight milliseconds

SUFFIXES = (
    *(".txt", ".vec", ".bin", ".json", ".npy", ".npz", ".safetensors", ".csv", ".tsv"),
    *(".gz", ".xz", ".kv", ".model", ".conllu", ".vectors"),
)

_BINARY = getattr(os, "O_BINARY", 0)  # on Windows alone
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _BINARY


def data_path(name: str) -> Path:
    """Return where the bundled file `name` lies: inside the installed package, else beside it."""
    from pathlib import Path

    package = Path(__file__).resolve().parent.parent
    inside = package / "data" / name
    return inside if inside.exists() else package.parent / "data" / name


def looks_like_file(value: str) -> bool:
    """Tell whether an option's value names a file: it has a slash or a known suffix."""
    return "/" in value or os.sep in value or os.path.splitext(value)[1].lower() in SUFFIXES


def regular(path: str | Path) -> Path:
    """Return `path` if it is a readable regular file; raise FileError, saying why, if not."""
    from pathlib import Path

    check_regular(path)
    return Path(path)


def check_regular(path: str | Path) -> None:
    """Raise FileError, saying why, if `path` is not a readable regular file."""
    name = visible(str(path))
    if "://" in str(path):
        raise FileError(f"Cannot read {name}: attn reads local files only.", "Download the file first.")
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError) as error:
        raise FileError(f"Cannot read {name}: {reason(error)}.", "Check the path.") from None
    if not stat.S_ISREG(mode):
        if stat.S_ISDIR(mode):
            raise FileError(f"Cannot read {name}: it is a directory.", "Give a regular file.")
        hint = "Give a regular file, or pipe it in where - is taken."
        raise FileError(f"Cannot read {name}: it is not a regular file.", hint)
    if not os.access(path, os.R_OK):
        raise FileError(f"Cannot read {name}: permission denied.", "Check its permissions.")


def first_bytes(path: str | Path) -> bytes:
    """Return the first bytes of a regular file: what tells its format."""
    return _read(regular(path), 9)


def read_bytes(path: str | Path, limit: int = 1 << 28) -> bytes:
    """Read a whole regular file of at most `limit` bytes."""
    path = regular(path)
    size = path.stat().st_size
    if size > limit:
        raise FileError(f"Cannot read {visible(str(path))}: {size:,} bytes is above the limit of {limit:,}.")
    return _read(path, -1)


def _read(path: Path, count: int) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(count)
    except OSError as error:
        raise FileError(f"Cannot read {visible(str(path))}: {error.strerror}.") from None


LONGEST_LINE = 1 << 20


def packed_lines(path: str | Path) -> Iterator[bytes]:
    """Yield the lines of a text file that is plain, gzip or xz; its first bytes tell which.

    A line that is longer than LONGEST_LINE bytes comes in parts, cut at a space.
    """
    with regular(path).open("rb") as raw:
        yield from unpacked_lines(raw, visible(str(path)))


def unpacked_lines(raw: IO[bytes], name: str) -> Iterator[bytes]:
    """Yield the lines of an open text file as packed_lines does; `raw.tell()` tells how far it is."""
    from attn_cli.io.compressed import packing, pieces  # only for long texts

    rest = b""
    for piece in pieces(raw, packing(raw.read(6)), name):
        *lines, rest = (rest + piece).split(b"\n")
        yield from (line + b"\n" for line in lines)
        while len(rest) > LONGEST_LINE:
            at = rest.rfind(b" ", 0, LONGEST_LINE)
            at = LONGEST_LINE if at <= 0 else at
            yield rest[:at]
            rest = rest[at:]
    if rest:
        yield rest


def creatable(path: str | Path) -> None:
    """Raise CreateError if no file can be created at `path`: checked before hours of work, not after."""
    name = visible(str(path))
    if os.path.isdir(path):
        raise CreateError(f"Cannot create {name}: it is a directory.")
    if len(os.fsencode(os.path.basename(path))) > 255:
        raise CreateError(f"Cannot create {name}: File name too long.")
    folder = os.path.dirname(os.path.realpath(path))
    if not os.path.isdir(folder):
        raise CreateError(f"Cannot create {name}: there is no such folder.")
    if not os.access(folder, os.W_OK):
        raise CreateError(f"Cannot create {name}: its folder cannot be written to.")


@contextlib.contextmanager
def written(path: str | Path) -> Iterator[IO[bytes]]:
    """Open `path` for writing so that it holds all or nothing: written beside, synced, then renamed.

    A symbolic link is followed and an existing file keeps its permissions. What a killed run has left beside it is
    removed. A device or a pipe is written to directly. Raises CreateError when it cannot be opened, WriteError when
    writing fails; then nothing was changed, unless the message says otherwise.
    """
    name = visible(str(path))
    if os.path.exists(path) and not os.path.isfile(path):
        with _direct(path, name) as stream:
            yield stream
        return
    from attn_cli.io.signals import cleaned_up  # with streams, only for writing

    try:
        target = _target(path)
        mode = _mode(target)
        sweep(target)
        beside = beside_name(target)
    except (OSError, ValueError) as error:
        raise CreateError(f"Cannot create {name}: {reason(error)}.", "Choose another place.") from None
    with cleaned_up(lambda: os.unlink(beside)):
        try:
            descriptor = _created(beside)
        except OSError as error:
            raise CreateError(f"Cannot create {name}: {reason(error)}.", "Choose another place.") from None
        try:
            with _buffered(descriptor) as stream:
                yield stream
                stream.flush()
                os.chmod(beside, mode)
                os.fsync(descriptor)
            os.replace(beside, target)
        except BaseException as error:
            with contextlib.suppress(OSError):
                os.unlink(beside)
            if isinstance(error, OSError) and not isinstance(error, AttnError):
                raise WriteError(f"Cannot write {name}: {reason(error)}.", "Nothing was changed.") from None
            raise
    try:
        sync_folder(os.path.dirname(target))
    except OSError as error:
        raise WriteError(
            f"{name} is written, but its folder cannot be synced: {reason(error)}.",
            "It may not outlast a loss of power.",
        ) from None


def _target(path: str | Path) -> str:
    """Return the file that `path` leads to; OSError where none can be created there."""
    target = os.path.realpath(path)
    if os.path.islink(target):  # what realpath returns of a loop
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    if len(os.fsencode(os.path.basename(target))) > 255:
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
    if os.path.exists(target) and not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    return target


def _mode(target: str) -> int:
    return stat.S_IMODE(os.stat(target).st_mode) if os.path.exists(target) else 0o666 & ~_umask()


def beside_name(target: str) -> str:
    """Return a new path beside `target` for what is to replace it; `sweep` knows it by its form."""
    folder, name = os.path.split(target)
    return os.path.join(folder, f".{name[:40]}.{os.urandom(4).hex()}.part")


def sweep(target: str) -> None:
    """Remove what killed runs have left beside `target`: unfinished files that no process holds locked."""
    folder, name = os.path.split(target)
    start, end = f".{name[:40]}.", ".part"
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            is_part = entry.name.startswith(start) and entry.name.endswith(end)
            if (
                is_part
                and len(entry.name) == len(start) + 8 + len(end)
                and entry.is_file(follow_symlinks=False)
            ):
                with contextlib.suppress(OSError):
                    remove_unlocked(entry.path)


def remove_unlocked(
    path: str,
    is_done_with: Callable[[str], bool] = lambda path: True,
    first: Callable[[str], object] = lambda path: None,
) -> None:
    """Remove a file unless a process holds it locked, or it turns out, once locked, not to be done with."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
    try:
        if _lock(descriptor) and is_done_with(path):
            first(path)
            os.unlink(path)
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> bool:
    """Lock an unfinished file for as long as it is open; return whether no other process holds it.

    Where there are no locks (Windows, some file systems) the answer is False: nothing is swept.
    """
    try:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (ImportError, OSError):
        return False
    return True


def _created(path: str) -> int:
    """Create a file and return its descriptor, locked against `sweep`."""
    descriptor = os.open(path, _CREATE, 0o600)
    try:
        _lock(descriptor)
        if not os.fstat(descriptor).st_nlink:  # swept between the two calls
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
    except BaseException:
        os.close(descriptor)
        with contextlib.suppress(OSError):
            os.unlink(path)
        raise
    return descriptor


def _buffered(descriptor: int) -> IO[bytes]:
    from attn_cli.io.streams import CheckedStream

    return io.BufferedWriter(CheckedStream(descriptor, owned=True))


def sync_folder(folder: str) -> None:
    """Make the names in a folder durable, where the file system knows how."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return  # a folder that may be written to, but not read
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.EROFS):
            raise
    finally:
        os.close(descriptor)


def write_together(folder: str, contents: Mapping[str, bytes], last: str) -> None:
    """Write several files into a folder as one: all of them, or, after an error or a signal, those of before.

    `last` is the one of them that says that the others are whole: while they are replaced it is not there, so that
    who finds it finds a set that belongs together, even after a kill. Raises CreateError or WriteError.
    """
    from attn_cli.io.signals import cleaned_up

    paths = {name: os.path.join(folder, name) for name in (*(n for n in contents if n != last), last)}
    parts = {name: beside_name(path) for name, path in paths.items()}  # what is to take its place
    waiting = {name: beside_name(path) for name, path in paths.items()}  # the file of before, meanwhile

    def undo() -> None:
        try:
            for name, path in paths.items():
                if os.path.lexists(waiting[name]):
                    os.replace(waiting[name], path)
                elif started and not os.path.lexists(parts[name]) and name not in there:
                    _remove(path)
        finally:
            for part in filter(os.path.lexists, parts.values()):
                _remove(part)

    started = False
    there = {name for name, path in paths.items() if os.path.lexists(path)}
    with _locked_folder(folder), cleaned_up(undo):
        try:
            for name, path in paths.items():
                _write_part(parts[name], contents[name], _mode(_target(path)))
            started = True
            for name in reversed(paths):
                if name in there:
                    os.replace(paths[name], waiting[name])
            for name, path in paths.items():
                os.replace(parts[name], path)
            sync_folder(folder)
        except BaseException as error:
            left = "Nothing was changed."
            try:
                undo()
            except OSError:
                left = "What is there does not belong together: write it again with --force."
            if isinstance(error, OSError):
                raise WriteError(f"Cannot write into {visible(folder)}: {reason(error)}.", left) from None
            raise
        for name, path in paths.items():
            if name in there:
                _remove(waiting[name])
            sweep(path)


@contextlib.contextmanager
def _locked_folder(folder: str) -> Iterator[None]:
    """Let one process at a time replace the files of a folder."""
    try:
        import fcntl

        descriptor = os.open(folder, os.O_RDONLY)
    except (ImportError, OSError):  # a system without locks, a folder that may not be read
        yield
        return
    try:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _write_part(path: str, data: bytes, mode: int) -> None:
    descriptor = _created(path)
    with _buffered(descriptor) as stream:
        stream.write(data)
        stream.flush()
        os.chmod(path, mode)
        os.fsync(descriptor)


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)


@contextlib.contextmanager
def _direct(target: str | Path, name: str) -> Iterator[IO[bytes]]:
    """Open a device or a pipe, whose writes are checked like all others."""
    from attn_cli.io.streams import CheckedStream

    try:
        stream = CheckedStream(os.open(target, os.O_WRONLY), owned=True)
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


def reason(error: Exception) -> str:
    """Return why a file could not be opened, in the system's words where there are any."""
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
