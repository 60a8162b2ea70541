"""Text that is packed with gzip or xz, unpacked piece by piece in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO

from attn_cli.errors import InputError
from attn_cli.io.escape import visible

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
                raise InputError(
                    f"{name} unpacks to more than {MOST_GROWTH} times its size: that is not a text of words.",
                    "Unpack it yourself if it is sound.",
                )
            yield piece
    except (EOFError, zlib.error, lzma.LZMAError, MemoryError) as error:
        reason = str(error) or type(error).__name__
        raise InputError(
            f"{name} cannot be unpacked: {visible(reason)}.", f"Test it with {packed} -t, and fetch it again."
        ) from None


def _unpacked(file: IO[bytes], packed: str) -> Iterator[bytes]:
    """Yield pieces of one gzip member or xz stream after another."""
    import lzma  # only for packed text
    import zlib

    raw = b""
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
