"""Many texts in one run: lines read, computed in groups of one shape, written in order, by several processes.

Here is what a run does with each line, and the lines: of files or of a pipe, without waiting for more than there is.
"""

from __future__ import annotations

import select
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, partial
from itertools import accumulate, chain
from typing import NamedTuple

from attn_cli.batch.storage import LONGEST_MAGIC, PIECE, Input, inputs_of, storage_errors
from attn_cli.errors import AttnError, InputError, refuse_input
from attn_cli.io.files import packing
from attn_cli.io.types import OnPart, dataclass
from attn_cli.settings import Settings, output

LONGEST_LINE = 1 << 20  # bytes
LINES = 512  # of a chunk
UTF_16 = (b"\xff\xfe", b"\xfe\xff")
UTF_8 = b"\xef\xbb\xbf"
BYTES = 4  # of a word, or fewer than most have
MOST_WEIGHTS = 1 << 22  # of the lines of a chunk

Line = bytes | None  # without its end; None for one that is longer than LONGEST_LINE


@dataclass(frozen=True)
class Job:
    """What is computed of each line, and how it is written, in a form that can be sent to another process."""

    kind: str  # self, masked or cross
    settings: Settings
    keys: tuple[str, ...]  # of a record, as --fields names them, in their order
    steps: bool  # whether heads have their steps
    keep_going: bool
    form: str  # one of FORMS
    tidy: bool = False  # whether links are written, a row each
    ascii_only: bool = False
    keep_weights: bool = False  # whether traces of a pretrained model hold what its layer projects with
    is_whole: bool = True  # whether chunks are the same at each run: those of a pipe come as they come

    @cached_property
    def chosen(self) -> output.Keys:
        """The keys, and what is chosen of each."""
        return output.keys_named(self.keys)


class Chunk(NamedTuple):
    """Some lines of an input: the number of the first line, from 1, and the lines."""

    first: int
    lines: Sequence[Line]


class ChunkOutput(NamedTuple):
    """What a chunk became: its bytes, lines, refused ones and first line's number; the error where the run ends."""

    data: bytes | memoryview
    lines: int
    refused: int
    first: int
    error: AttnError | None = None  # of a bad line: the bytes are those of the lines before it


class Feed:
    """The lines of a run's files, or of standard input where there is none."""

    def __init__(self, files: Sequence[Input]) -> None:
        self.files = files
        self.size = sum(file.size for file in files)
        self.read = 0  # bytes of these

    @property
    def done(self) -> float | None:
        """The share of the bytes that is read; None for a pipe."""
        return min(1.0, self.read / self.size) if self.size else None

    def groups(self) -> Iterator[list[Line]]:
        """Yield the lines as they are read, some at a time."""
        if not self.files:
            assert sys.stdin is not None  # there is a text
            with storage_errors("standard input"):
                read = partial(sys.stdin.buffer.read1, PIECE)  # type: ignore[union-attr]
                yield from split_lines(iter(read, b""), "standard input")
        before = 0
        for file in self.files:
            with file.open() as stream:
                for lines in split_lines(file.unpacked(stream), file.name):
                    self.read = before + stream.tell()
                    yield lines
            before += file.size

    def is_ready(self) -> bool:
        """Tell whether more can be read without waiting."""
        try:
            return bool(self.files) or bool(select.select([sys.stdin], [], [], 0)[0])
        except (OSError, ValueError):  # no descriptor of a system's own
            return True


def split_lines(pieces: Iterable[bytes], name: str, is_start: bool = True) -> Iterator[list[Line]]:
    """Yield the lines of a file's bytes, some at a time. A byte-order mark and line ends are dropped.

    InputError where the bytes are no text; they are looked at where they are those of the file's start.
    """
    rest, is_long = b"", False
    for piece in _checked(iter(pieces), name) if is_start else pieces:
        *whole, rest = (rest + piece).split(b"\n")
        lines = [None if len(line) > LONGEST_LINE else line.removesuffix(b"\r") for line in whole]
        if lines and is_long:
            lines[0], is_long = None, False
        if len(rest) > LONGEST_LINE:
            rest, is_long = b"", True
        yield lines
    if rest or is_long:
        yield [None if is_long else rest.removesuffix(b"\r")]


def _checked(pieces: Iterator[bytes], name: str) -> Iterator[bytes]:
    """Yield the bytes of a file without a byte-order mark; InputError where they are no text."""
    start = b""
    while len(start) < LONGEST_MAGIC and b"\n" not in start and (piece := next(pieces, b"")):
        start += piece
    check_text(start, name)
    if packed := packing(start):
        raise InputError(f"{name} is packed.", f"Unpack it: {packed} -dc FILE | attn batch")
    yield from chain([start.removeprefix(UTF_8)], pieces)


def check_text(start: bytes, name: str) -> None:
    """Raise InputError for a file that begins as UTF-16 does."""
    refuse_input(start[:2] in UTF_16, f"{name} looks like UTF-16.", "Convert it: iconv -f UTF-16 -t UTF-8")


def chunks_of(
    groups: Iterable[Sequence[Line]], first: int = 1, is_ready: Callable[[], bool] = lambda: True
) -> Iterator[Chunk]:
    """Yield lines in chunks of up to LINES, fewer of long lines; those of a pipe are not waited for to be so many."""
    groups, waiting = iter(groups), list[Line]()
    while True:
        while len(waiting) < LINES and (not waiting or is_ready()):
            group = next(groups, None)
            if group is None:
                break
            waiting += group
        if not waiting:
            return
        sizes = [len(line or b"") // BYTES for line in waiting[:LINES]]
        count = len(sizes)
        if max(sizes) * sum(sizes) > MOST_WEIGHTS:  # no sum of squares is larger than this product
            count = max(1, sum(square <= MOST_WEIGHTS for square in accumulate(size**2 for size in sizes)))
        yield Chunk(first, waiting[:count])
        del waiting[:count]
        first += count


def numbered(file: str, progress: OnPart) -> Iterator[tuple[int, str]]:
    """Yield the lines of a file, or of standard input, each with its number from 1.

    InputError for a line of more than LONGEST_LINE bytes.
    """
    feed = Feed(inputs_of([file]) if file != "-" else ())
    for number, line in enumerate(chain.from_iterable(feed.groups()), 1):
        if line is None:
            raise InputError(f"Line {number} is longer than {LONGEST_LINE:,} bytes.", "Give a text a line.")
        yield number, line.decode("utf-8", "replace")
        if feed.done is not None:
            progress(feed.done)
