"""Descriptors that take all that is written to them, or raise: no count is ever ignored."""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import IO, Any, TextIO, cast

MOST = 1 << 30  # bytes in one call: Linux takes at most 2 GiB


class CheckedStream(io.RawIOBase):
    """A raw stream over a descriptor whose write() takes every byte, or raises OSError.

    Python's own raw streams return how many bytes were taken, and whoever does not look loses the rest: on a disk
    that fills up, in a non-blocking pipe, in a pipe whose writer was stopped and continued.
    """

    def __init__(self, descriptor: int, owned: bool = False) -> None:
        self.descriptor = descriptor
        self.owned = owned
        self.replaced: object = None

    def writable(self) -> bool:
        """Return True: this is what it is for."""
        return True

    def fileno(self) -> int:
        """Return the descriptor."""
        return self.descriptor

    def isatty(self) -> bool:
        """Tell whether the descriptor is a terminal."""
        return os.isatty(self.descriptor)

    def seekable(self) -> bool:
        """Tell whether the descriptor has a position."""
        try:
            os.lseek(self.descriptor, 0, os.SEEK_CUR)
        except OSError:
            return False
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move to a position, and return it."""
        return os.lseek(self.descriptor, offset, whence)

    def tell(self) -> int:
        """Return the position."""
        return os.lseek(self.descriptor, 0, os.SEEK_CUR)

    def write(self, data: Any, /) -> int:
        """Write all of `data`, bytes of any kind, and return how many; wait where the descriptor is full for now."""
        view = memoryview(data).cast("B")
        at = 0
        while at < len(view):
            try:
                count = os.write(self.descriptor, view[at : at + MOST])
            except InterruptedError:
                continue
            except BlockingIOError:
                _wait(self.descriptor)
                continue
            if not count:
                raise OSError(errno.EIO, "No byte was taken")
            at += count
        return len(view)

    def close(self) -> None:
        """Close the descriptor if it is owned; an error of that call is raised, for it may mean lost bytes."""
        if not self.closed:
            super().close()
            if self.owned:
                os.close(self.descriptor)


def _wait(descriptor: int) -> None:
    import select  # only where a stream does not block

    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    poll.poll()


def check_standard_streams() -> None:
    """Replace standard output and standard error by streams that take everything, whatever the environment says."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is not None and os.name == "posix":
            setattr(sys, name, _checked(stream))


def _checked(stream: TextIO) -> TextIO:
    """Return a text stream to the same descriptor, in the same encoding, that loses nothing.

    Nothing is buffered beneath the text: after a failed write no rest waits to be written a second time.
    """
    checked = CheckedStream(stream.fileno())
    checked.replaced = stream  # kept, for it would close the descriptor when it goes
    raw = cast("IO[bytes]", checked)
    return io.TextIOWrapper(raw, stream.encoding, stream.errors, newline="\n")
