"""Text that is packed with gzip or xz, unpacked piece by piece in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, Protocol

from attn_cli.errors import InputError
from attn_cli.io.escape import visible

PIECE = 1 << 22
MOST_GROWTH = 100  # text packs to a third or a tenth: what packs more tightly holds next to nothing
GROWTH_COUNTS_FROM = 1 << 26
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
    import lzma  # only those who read packed text pay for these
    import zlib

    grown = 0
    try:
        for piece in _unpacked(file, packed):
            grown += len(piece)
            if grown > GROWTH_COUNTS_FROM and grown > MOST_GROWTH * file.tell():
                raise InputError(
                    f"{name} unpacks to more than {MOST_GROWTH} times its size: that is no text of words.",
                    "Unpack it yourself if it is sound.",
                )
            yield piece
    except (EOFError, zlib.error, lzma.LZMAError, MemoryError) as error:
        reason = str(error) or type(error).__name__
        raise InputError(
            f"{name} cannot be unpacked: {visible(reason)}.", f"Test it with {packed} -t, and fetch it again."
        ) from None


class _Stream(Protocol):
    """One gzip member or xz stream."""

    @property
    def eof(self) -> bool:
        """Whether it has ended."""

    @property
    def unused_data(self) -> bytes:
        """The bytes behind its end."""

    def feed(self, raw: bytes) -> tuple[bytes, bool]:
        """Return the next piece, and whether more raw bytes are needed for another."""


def _unpacked(file: IO[bytes], packed: str) -> Iterator[bytes]:
    """Yield pieces of one stream after another."""
    raw = b""
    while raw or (raw := file.read(PIECE)):
        stream: _Stream = _Gzip() if packed == "gzip" else _Xz()
        while not stream.eof:
            piece, hungry = stream.feed(raw)
            raw = b""
            if piece:
                yield piece
            if hungry and not stream.eof and not (raw := file.read(PIECE)):
                raise EOFError("it is cut off")
        raw = stream.unused_data.lstrip(b"\0") or file.read(PIECE).lstrip(b"\0")


class _Gzip:
    def __init__(self) -> None:
        import zlib

        self.inflate = zlib.decompressobj(wbits=31)

    @property
    def eof(self) -> bool:
        return self.inflate.eof

    @property
    def unused_data(self) -> bytes:
        return self.inflate.unused_data

    def feed(self, raw: bytes) -> tuple[bytes, bool]:
        piece = self.inflate.decompress(self.inflate.unconsumed_tail + raw, PIECE)
        return piece, not self.inflate.unconsumed_tail and len(piece) < PIECE


class _Xz:
    def __init__(self) -> None:
        import lzma

        self.expand = lzma.LZMADecompressor(lzma.FORMAT_XZ, XZ_MEMORY)

    @property
    def eof(self) -> bool:
        return self.expand.eof

    @property
    def unused_data(self) -> bytes:
        return self.expand.unused_data

    def feed(self, raw: bytes) -> tuple[bytes, bool]:
        piece = self.expand.decompress(raw, PIECE)
        return piece, self.expand.needs_input
