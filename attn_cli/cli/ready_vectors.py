"""The index of a large file of vectors, built when the file is first used."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from attn_cli.io.progress_bar import Progress


@contextmanager
def attending(embedding: str | None, label: str = "Attending") -> Iterator[Progress]:
    """Show the progress of attention over these vectors, after their index is built."""
    prepare_index(embedding, "random, ")
    with Progress(label) as progress:
        yield progress


def prepare_index(embedding: str | None, others: str = "") -> None:
    """Build the index of a large file of vectors at its first use, and say so on standard error.

    `others` are further names that the command takes, for the message of an unknown one.
    """
    if embedding in (None, "word2vec", "random"):
        return  # the usual case pays for nothing
    from attn_cli.io.files import looks_like_file

    if looks_like_file(str(embedding)) and _is_small(str(embedding)):
        return
    from attn_cli.io.console import say
    from attn_cli.vectors.lookup import open_table
    from attn_cli.vectors.names import keep_index

    with Progress("Indexing") as progress:
        note = keep_index(open_table(str(embedding), others), progress)
    if note:
        say(f"attn: {note}")


def _is_small(path: str) -> bool:
    from attn_cli.io.compressed import packing
    from attn_cli.io.files import first_bytes
    from attn_cli.vectors.formats.on_disk import INDEXED_FROM

    if not os.path.isfile(path) or os.path.getsize(path) >= INDEXED_FROM:
        return False
    return not packing(first_bytes(path))
