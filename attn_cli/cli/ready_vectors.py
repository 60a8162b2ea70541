"""The index of a large file of vectors, made when the file is first used."""

from __future__ import annotations

import os

from attn_cli.io.progress_bar import Progress


def ready(embedding: str | None, others: str = "") -> None:
    """Make the index of a large file of vectors at its first use, and say so on standard error.

    `others` are further names that the command takes, as for open_table.
    """
    if embedding in (None, "word2vec", "random"):
        return  # the usual case pays for nothing
    from attn_cli.io.files import looks_like_file

    if looks_like_file(str(embedding)) and _is_small(str(embedding)):
        return
    from attn_cli.io.console import say
    from attn_cli.vectors.import_file import keep_index
    from attn_cli.vectors.lookup import open_table

    with Progress("Indexing") as progress:
        told = keep_index(open_table(str(embedding), others), progress)
    if told:
        say(f"attn: {told}")


def _is_small(path: str) -> bool:
    from attn_cli.io.compressed import packing
    from attn_cli.io.files import first_bytes
    from attn_cli.vectors.formats.on_disk import INDEXED_FROM

    if not os.path.isfile(path) or os.path.getsize(path) >= INDEXED_FROM:
        return False
    return not packing(first_bytes(path))
