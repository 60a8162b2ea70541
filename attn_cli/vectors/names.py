"""Sets of word vectors that have a name: bundled, imported, downloaded."""

from __future__ import annotations

from typing import NamedTuple

from attn_cli.errors import AttnError
from attn_cli.vectors import cache, gensim_data
from attn_cli.vectors.formats import open_file
from attn_cli.vectors.onfile import FileVectors
from attn_cli.vectors.table import BUNDLED, bundled


class Listed(NamedTuple):
    """One set as it is listed: words and dim are None where only reading it through would tell."""

    name: str
    source: str
    words: int | None
    dim: int | None
    format: str
    path: str | None


def path_of(name: str) -> str | None:
    """Return the file that a name stands for: imported, else downloaded; None if there is none."""
    path = cache.named_path(name) or gensim_data.local(name)
    return None if path is None else str(path)


def known() -> list[str]:
    """Return all names that stand for a file."""
    return sorted({*cache.names(), *gensim_data.installed()})


def listing() -> list[Listed]:
    """Return the bundled set and every named one, without reading any of them through."""
    table = bundled()
    listed = [Listed(BUNDLED, "bundled", table.n_words, table.dim, "safetensors", None)]
    imported = set(cache.names())
    for name in known():
        source = "imported" if name in imported else "downloaded"
        listed.append(_listed(name, source, path_of(name)))
    return listed


def _listed(name: str, source: str, path: str | None) -> Listed:
    try:
        vectors = open_file(str(path), name)
    except AttnError as error:
        return Listed(name, source, None, None, f"unreadable: {error.message}", str(path))
    if isinstance(vectors, FileVectors):
        words = vectors.index.entries if vectors.index else vectors.form.claimed
        return Listed(name, source, words, vectors.dim, vectors.form.kind, str(path))
    return Listed(name, source, vectors.n_words, vectors.dim, vectors.about.get("format", ""), str(path))
