"""The index of gensim-data, a collection of pretrained word vectors, and which of them have been downloaded."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from attn_cli.errors import (
    AttnError,
    ConfigError,
    CreateError,
    InputError,
    UsageError,
    WriteError,
    did_you_mean,
)
from attn_cli.io.atomic import written
from attn_cli.io.escape import visible
from attn_cli.io.files import read_bytes
from attn_cli.vectors.http import body_of, host_of

INDEX_URL = "https://raw.githubusercontent.com/RaRe-Technologies/gensim-data/master/list.json"
FILES_URL = "https://github.com/RaRe-Technologies/gensim-data/releases/download"
CACHED_INDEX = "information.json"  # gensim's name for it
INDEX_LIMIT = 1 << 24
MOST_PARTS = 64
MOST_BYTES = 1 << 40
LONGEST_TEXT = 2000
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,119}")
_MD5 = re.compile(r"[0-9a-f]{32}")


class Package(NamedTuple):
    """What the index says of a model, None where it says nothing; its texts are printable."""

    name: str
    bytes: int | None
    words: int | None
    dim: int | None
    description: str
    licence: str
    checksums: tuple[str, ...]  # MD5, one per part

    @property
    def file(self) -> str:
        """The name of its data file."""
        return f"{self.name}.gz"

    @property
    def parts(self) -> list[str]:
        """The names of the files that it is sent in, numbered as gensim numbers them."""
        if len(self.checksums) == 1:
            return [self.file]
        return [f"{self.file}_0{i}" for i in range(len(self.checksums))]


class Index(NamedTuple):
    """The index as it was sent, its models, its corpora, and the names of malformed entries."""

    raw: bytes
    packages: dict[str, Package]
    corpora: frozenset[str]
    malformed: frozenset[str]


def is_name(name: str) -> bool:
    """Tell whether `name` may name a set of vectors: no slash, no leading dot, nothing special to a shell."""
    return _NAME.fullmatch(name) is not None


def folder() -> Path:
    """Return the folder of downloads, which is gensim's: GENSIM_DATA_DIR, else gensim-data at home."""
    return Path(os.environ.get("GENSIM_DATA_DIR") or os.path.expanduser("~/gensim-data"))


def local(name: str) -> Path | None:
    """Return the data file of the model `name` if it has been downloaded, else None."""
    if not is_name(name):
        return None
    path = folder() / name / f"{name}.gz"
    return path if path.is_file() else None


def installed() -> list[str]:
    """Return the names of the models that have been downloaded, in order, without those the index calls corpora."""
    try:
        there = [name for name in sorted(os.listdir(folder())) if local(name)]
    except OSError:
        return []
    index = cached_index() if there else None
    return [name for name in there if index is None or name not in index.corpora]


def addresses() -> tuple[str, str]:
    """Return the address of the index, and the one below which the files lie: of ATTN_MIRROR, if it is set."""
    mirror = os.environ.get("ATTN_MIRROR", "").rstrip("/")
    if not mirror:
        return INDEX_URL, FILES_URL
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(mirror)
        whole = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        whole = False
    if not whole or not (mirror.isascii() and mirror.isprintable()) or set(mirror) & set(' ?#"<>\\'):
        raise ConfigError(
            f"ATTN_MIRROR is {visible(mirror)!r}, which is not an address that begins with http:// or https://.",
            "Try: ATTN_MIRROR=https://example.org/gensim-data",
        )
    if "@" in parts.netloc:
        raise ConfigError("ATTN_MIRROR holds a user or a password, which attn does not send.")
    return f"{mirror}/list.json", mirror


def fetch_index() -> Index:
    """Fetch the index; entries that cannot be right are left out.

    Raises FileError when the network fails, InputError when the answer is no index, ConfigError when the mirror is no
    http or https address.
    """
    url, _ = addresses()
    return _read_index(body_of(url, INDEX_LIMIT), host_of(url))


def cached_index() -> Index | None:
    """Return the index as attn or gensim last fetched it, None if there is none or it is damaged."""
    path = folder() / CACHED_INDEX
    try:
        return _read_index(read_bytes(path, INDEX_LIMIT), str(path))
    except AttnError:
        return None


def store_index(index: Index) -> None:
    """Store the index where gensim looks for it when there is no network; a full disk is no error."""
    with contextlib.suppress(CreateError, WriteError), written(folder() / CACHED_INDEX) as stream:
        stream.write(index.raw)


def _read_index(raw: bytes, source: str) -> Index:
    try:
        index = json.loads(raw)
    except (ValueError, RecursionError):
        raise InputError(f"The index from {visible(source)} is not JSON.", "Check ATTN_MIRROR.") from None
    models = index.get("models") if isinstance(index, dict) else None
    if not isinstance(models, dict):
        raise InputError(f"The index from {visible(source)} names no models.", "Check ATTN_MIRROR.")
    read = {name: _package(name, entry) for name, entry in models.items()}
    packages = {name: package for name, package in read.items() if package is not None}
    malformed = frozenset(name for name, package in read.items() if package is None)
    return Index(raw, packages, frozenset(_mapping(index, "corpora")), malformed)


def _package(name: str, entry: object) -> Package | None:
    """Return what an entry of the index says, or None if it cannot be right."""
    if not is_name(name) or not isinstance(entry, dict):
        return None
    file, parts, size = entry.get("file_name", f"{name}.gz"), entry.get("parts", 1), entry.get("file_size")
    if not isinstance(file, str) or not is_name(file):
        return None
    if type(parts) is not int or not 1 <= parts <= MOST_PARTS:
        return None
    if size is not None and (type(size) is not int or not 1 <= size <= MOST_BYTES):
        return None
    keys = ["checksum"] if parts == 1 else [f"checksum-{i}" for i in range(parts)]
    checksums = tuple(value.lower() for key in keys if isinstance(value := entry.get(key), str))
    if len(checksums) != parts or not all(map(_MD5.fullmatch, checksums)):
        return None
    return Package(
        name,
        size,
        _count(entry.get("num_records")),
        _count(_mapping(entry, "parameters").get("dimension")),
        _text(entry.get("description")),
        _text(entry.get("license")),
        checksums,
    )


def _mapping(entry: Mapping[str, object], key: str) -> Mapping[str, object]:
    value = entry.get(key)
    return value if isinstance(value, dict) else {}


def _count(value: object) -> int | None:
    return value if type(value) is int and 0 < value < MOST_BYTES else None


def _text(value: object) -> str:
    """Return a text of the index on one printable line; a very long one ends in an ellipsis."""
    if not isinstance(value, str):
        return ""
    cut = value[:LONGEST_TEXT] + "…" * (len(value) > LONGEST_TEXT)
    return visible(" ".join(cut.split()))


def find_package(index: Index, name: str) -> Package:
    """Return the package of that name; UsageError, naming others, if there is none."""
    if name in index.packages:
        return index.packages[name]
    shown = visible(name)
    if name in index.malformed:
        raise InputError(f"What the index says of {shown!r} cannot be right.", "Check ATTN_MIRROR.")
    short = sorted((known for known in index.packages if known[0] != "_"), key=len)[:3]
    near = did_you_mean(name, index.packages, 3).rstrip()
    hint = near or (f"Try {_or(short)}." if short else "")
    if name in index.corpora:
        raise UsageError(f"{shown!r} is a corpus, not a set of word vectors.", hint)
    raise UsageError(f"There are no word vectors named {shown!r}.", hint)


def _or(names: list[str]) -> str:
    return " or ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
