"""The files that a run reads: named one by one or by patterns, on this machine or by URLs; and their fingerprint."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from typing import IO, Any, NamedTuple

from attn_cli.batch.storage import file_system, is_url, open_url, reached
from attn_cli.errors import FileError
from attn_cli.io.escape import visible
from attn_cli.io.files import check_regular, reason

BLOCK = 1 << 26  # bytes that are hashed together: a fingerprint can be made of many at once
PIECE = 1 << 20
WILD = "*?["


class Input(NamedTuple):
    """A file of lines, and its bytes."""

    path: str
    size: int

    @property
    def name(self) -> str:
        """The path as messages show it."""
        return visible(self.path)

    @contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        """Open it; FileError where it cannot be read."""
        if is_url(self.path):
            with open_url(self.path) as remote:
                yield remote
            return
        check_regular(self.path)
        with open(self.path, "rb") as stream:
            yield stream


def inputs_of(names: Sequence[str]) -> list[Input]:
    """Return the files that paths and patterns name, each pattern's in the order of their names."""
    return [found for name in names for found in (_remote(name) if is_url(name) else _local(name))]


def _local(name: str) -> list[Input]:
    paths = [name]
    if any(sign in name for sign in WILD) and not os.path.lexists(name):
        from glob import glob  # only for patterns

        paths = sorted(path for path in glob(name, recursive=True) if not os.path.isdir(path))
        _check_found(paths, name)
    for path in paths:
        check_regular(path)
    return [Input(path, os.path.getsize(path)) for path in paths]


def _remote(name: str) -> list[Input]:
    with reached(name):
        system, path = file_system(name)
        if any(sign in path for sign in WILD):
            about = system.glob(path, detail=True)
            found = sorted(
                (one for one in about.values() if one["type"] == "file"), key=lambda one: str(one["name"])
            )
            _check_found(found, name)
        else:
            found = [system.info(path)]
            if found[0]["type"] != "file":
                raise FileError(f"Cannot read {visible(name)}: it is a directory.", "Give its files: DIR/*")
        before = (
            name.removesuffix(path) if name.endswith(path) else ""
        )  # the protocol, with a host where one is named
        urls = [before + one["name"] if before else system.unstrip_protocol(one["name"]) for one in found]
        return [Input(url, int(one["size"])) for url, one in zip(urls, found, strict=True)]


def _check_found(paths: Sequence[object], name: str) -> None:
    if not paths:
        raise FileError(f"Cannot read {visible(name)}: no file is named like that.", "Check the pattern.")


# The fingerprint


class Block(NamedTuple):
    """A piece of a file: where it starts, and how many bytes it has."""

    start: int
    size: int


def blocks_of(file: Input) -> list[Block]:
    """Return the blocks of a file, in order."""
    return [Block(start, min(BLOCK, file.size - start)) for start in range(0, file.size, BLOCK)]


def pieces_of(file: Input, block: Block) -> Iterator[bytes]:
    """Yield the bytes of a block, some at a time; FileError where there are fewer."""
    with file.open() as stream:
        try:
            stream.seek(block.start)
            left = block.size
            while left and (piece := stream.read(min(PIECE, left))):
                left -= len(piece)
                yield piece
        except OSError as error:
            raise FileError(f"Cannot read {file.name}: {reason(error)}.") from None
    if left:
        raise FileError(
            f"Cannot read {file.name}: it was truncated during the run.", "Rerun when it is complete."
        )


def fingerprint(files: Sequence[Input]) -> dict[str, Any]:
    """Return the bytes of files and their hash."""
    hashes = []
    for file in files:
        found = []
        for block in blocks_of(file):
            digest = blake2b(digest_size=16)
            for piece in pieces_of(file, block):
                digest.update(piece)
            found.append(digest.hexdigest())
        hashes.append(found)
    return joined(files, hashes)


def joined(files: Sequence[Input], hashes: Sequence[Sequence[str]]) -> dict[str, Any]:
    """Return the fingerprint of files whose blocks have these hashes.

    A file of one block has that block's hash, one of more the hash of its blocks' hashes; so have several files.
    """
    about: dict[str, Any] = {"bytes": sum(file.size for file in files)}
    whole = [_one([*found] or [_of("")]) for found in hashes]
    return about | ({"files": len(files)} if len(files) > 1 else {}) | {"blake2b": _one(whole)}


def _one(hashes: Sequence[str]) -> str:
    return hashes[0] if len(hashes) == 1 else _of("".join(hashes))


def _of(text: str) -> str:
    return blake2b(text.encode(), digest_size=16).hexdigest()
