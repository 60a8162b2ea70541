"""Files, read and written safely: only regular files in, never half a file out."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from attn_cli.errors import AttnError, FileError, InputError, visible

NUMBERS = (".bin", ".json", ".npy", ".npz", ".safetensors", ".csv", ".tsv", ".kv", ".model", ".vectors")
SUFFIXES = (*NUMBERS, ".txt", ".vec", ".gz", ".xz", ".conllu")

# How a file that others may have replaced is opened, where the system knows these flags.
UNFOLLOWED = sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_BINARY", "O_CLOEXEC"))


def data_path(name: str) -> Path:
    """Return where the bundled file `name` lies: inside the installed package, else beside it."""
    package = Path(__file__).resolve().parent.parent
    inside = package / "data" / name
    return inside if inside.exists() else package.parent / "data" / name


def beside(module: str, name: str) -> str:
    """Return the text of a file of the package, in the folder of the module whose `__file__` this is."""
    with open(os.path.join(os.path.dirname(module), name), encoding="utf-8", newline="") as stream:
        return stream.read()


# The user's folders: the variable that names where they lie, and where they lie without it.
USER_FOLDERS = {
    "cache": ("XDG_CACHE_HOME", "~/.cache"),
    "config": ("XDG_CONFIG_HOME", "~/.config"),
    "data": ("XDG_DATA_HOME", "~/.local/share"),
}


def user_folder(kind: str) -> str | None:
    """Return attn's folder in the user's `cache`, `config` or `data`; None where the user has no home."""
    if not sys.platform.startswith("linux"):
        import platformdirs  # on Linux its answer is these few lines, without ten milliseconds of import

        return str(getattr(platformdirs, f"user_{kind}_dir")("attn", False))
    variable, usual = USER_FOLDERS[kind]
    given = os.environ.get(variable, "")
    base = given if os.path.isabs(given) else os.path.expanduser(usual)
    return os.path.join(base, "attn") if os.path.isabs(base) else None


def looks_like_file(value: str) -> bool:
    """Tell whether an option's value names a file: it has a slash or a known suffix."""
    return "/" in value or os.sep in value or os.path.splitext(value)[1].lower() in SUFFIXES


def regular(path: str | Path) -> Path:
    """Return `path` if it is a readable regular file; raise FileError, saying why, if not."""
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
    if stat.S_ISDIR(mode):
        raise FileError(f"Cannot read {name}: it is a directory.", "Give a regular file.")
    if not stat.S_ISREG(mode):
        hint = "Give a regular file, or pipe it in where - is taken."
        raise FileError(f"Cannot read {name}: it is not a regular file.", hint)
    if not os.access(path, os.R_OK):
        raise FileError(f"Cannot read {name}: permission denied.", "Check its permissions.")


@contextmanager
def system_errors(kind: type[AttnError], said: str, hint: str = "") -> Iterator[None]:
    """Raise an error of this kind, which says so and the reason, for what the system refuses inside the block."""
    try:
        yield
    except AttnError:
        raise
    except OSError as error:
        raise kind(f"{said}: {reason(error)}.", hint) from None


def is_regular(path: str) -> bool:
    """Tell whether `path` itself is a regular file: no link to one; OSError where nothing is there."""
    return stat.S_ISREG(os.lstat(path).st_mode)


@contextmanager
def open_regular(path: str) -> Iterator[IO[bytes]]:
    """Open a file of a folder that others write to: no link is followed, no FIFO is waited for, no device is opened.

    Raises FileNotFoundError where nothing is there, FileError for what is not a regular file or cannot be read.
    """
    name = visible(path)
    try:
        if not is_regular(path):
            raise FileError(f"Cannot read {name}: it is not a regular file.")
        with open(os.open(path, os.O_RDONLY | UNFOLLOWED), "rb") as stream:
            if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):  # it was replaced between the two looks
                raise FileError(f"Cannot read {name}: it is not a regular file.")
            yield stream
    except (FileNotFoundError, FileError):
        raise
    except OSError as error:
        raise FileError(f"Cannot read {name}: {reason(error)}.") from None


def first_bytes(path: str | Path) -> bytes:
    """Return the first bytes of a regular file: what tells its format."""
    return read_bytes(path, sys.maxsize, 9)


def read_bytes(path: str | Path, limit: int = 1 << 28, count: int = -1) -> bytes:
    """Read a whole regular file of at most `limit` bytes, or the first `count`."""
    path = regular(path)
    size = path.stat().st_size
    if size > limit:
        raise FileError(f"Cannot read {visible(str(path))}: {size:,} bytes is above the limit of {limit:,}.")
    with system_errors(FileError, f"Cannot read {visible(str(path))}"), path.open("rb") as file:
        return file.read(count)


LONGEST_LINE = 1 << 20


def packed_lines(path: str | Path) -> Iterator[bytes]:
    """Yield the lines of a plain, gzip or xz text; those longer than LONGEST_LINE bytes in parts, cut at a space."""
    with regular(path).open("rb") as raw:
        yield from unpacked_lines(raw, visible(str(path)))


def unpacked_lines(raw: IO[bytes], name: str) -> Iterator[bytes]:
    """Yield the lines of an open text file as packed_lines does; `raw.tell()` tells how far it is."""
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


def reason(error: Exception) -> str:
    """Return why a file could not be opened, in the system's words where there are any."""
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)


PIECE = 1 << 22
UNPACKED_PIECE = 1 << 20  # smaller: its words are objects, each many times as large as it was packed
MOST_GROWTH = 30  # text packs to a third or a tenth; what packs more tightly holds almost nothing
GROWTH_COUNTS_FROM = 1 << 24
XZ_MEMORY = 1 << 27  # twice what xz -9 needs
MAGIC = {b"\x1f\x8b": "gzip", b"\xfd7zXZ\x00": "xz"}


def packing(start: bytes) -> str:
    """Tell from its first bytes how a file is packed: gzip, xz, or not at all (an empty string)."""
    return next((kind for magic, kind in MAGIC.items() if start.startswith(magic)), "")


def pieces(file: IO[bytes], packed: str, name: str) -> Iterator[bytes]:
    """Yield what an open file holds, unpacked, in pieces of at most PIECE bytes; `file.tell()` tells how far it is.

    Raises InputError where the packing is damaged, cut off, or hides more than MOST_GROWTH times the file's size.
    """
    file.seek(0)
    if not packed:
        while piece := file.read(PIECE):
            yield piece
        return
    import lzma
    import zlib

    grown = 0
    try:
        for piece in _unpacked(file, packed):
            grown += len(piece)
            if grown > GROWTH_COUNTS_FROM and grown > MOST_GROWTH * file.tell():
                said = f"{name} unpacks to more than {MOST_GROWTH} times its size"
                raise InputError(
                    f"{said}: that is not a text of words.", "Unpack it yourself if it is sound."
                )
            yield piece
    except (EOFError, zlib.error, lzma.LZMAError, MemoryError) as error:
        said = f"{name} cannot be unpacked: {visible(str(error) or type(error).__name__)}."
        raise InputError(said, f"Test it with {packed} -t, and fetch it again.") from None


def _unpacked(file: IO[bytes], packed: str) -> Iterator[bytes]:
    import lzma  # only for packed text
    import zlib

    raw = b""  # of one gzip member or xz stream after another
    while raw or (raw := file.read(PIECE)):
        inflate = zlib.decompressobj(wbits=31)
        expand = lzma.LZMADecompressor(lzma.FORMAT_XZ, XZ_MEMORY)
        stream = inflate if packed == "gzip" else expand
        while not stream.eof:
            piece = stream.decompress(raw, UNPACKED_PIECE)
            if piece:
                yield piece
            raw = inflate.unconsumed_tail  # lzma keeps what is left over itself
            is_hungry = expand.needs_input if packed == "xz" else not raw and len(piece) < UNPACKED_PIECE
            if is_hungry and not stream.eof and not (raw := file.read(PIECE)):
                raise EOFError("it is cut off")
        raw = stream.unused_data.lstrip(b"\0") or file.read(PIECE).lstrip(b"\0")
