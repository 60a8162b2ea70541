"""gensim-data, a collection of pretrained word vectors: its index, what has been downloaded of it, and HTTP to it.

HTTP is urllib's, to http and https alone, with a time limit per operation. pooch (with requests) would save some 60
lines, but cannot resume, reads the page of a redirection into memory, and ignores the machine's own certificates.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple
from urllib.parse import urljoin, urlsplit

from attn_cli.errors import AttnError, ConfigError, FileError, InputError, UsageError, did_you_mean, visible
from attn_cli.io import atomic, files

if TYPE_CHECKING:
    from http.client import HTTPMessage, HTTPResponse
    from urllib.request import OpenerDirector, Request

INDEX_URL = "https://raw.githubusercontent.com/RaRe-Technologies/gensim-data/master/list.json"
FILES_URL = "https://github.com/RaRe-Technologies/gensim-data/releases/download"
CACHED_INDEX = "information.json"  # gensim's name for it
INDEX_LIMIT = 1 << 24
MOST_BYTES = 1 << 40
_NAME = re.compile(r"(?!(?i:con|prn|aux|nul|com[0-9]|lpt[0-9])(?:\.|$))[A-Za-z0-9_][A-Za-z0-9_.+-]{0,119}")
_MD5 = re.compile(r"[0-9a-f]{32}")

CHUNK = 1 << 18
KEPT = "Try again: what has arrived is kept."
NO_NETWORK = (
    "Is there a network? ATTN_MIRROR names another place. A file fetched otherwise: attn vectors import FILE."
)
TIMEOUT = 20.0  # seconds for one network operation


class Package(NamedTuple):
    """What the index says of a model, None where it says nothing; its licence is printable."""

    name: str
    bytes: int | None
    words: int | None
    dim: int | None
    licence: str
    checksum: str  # MD5


class Index(NamedTuple):
    """The index as it was sent, its models, and the names of its corpora."""

    raw: bytes
    packages: dict[str, Package]
    corpora: frozenset[str]


def is_name(name: str) -> bool:
    """Tell whether `name` may name a set of vectors: no slash, no leading dot, no sign of a shell, no device."""
    return _NAME.fullmatch(name) is not None


def folder() -> Path:
    """Return the folder of downloads, which is gensim's: GENSIM_DATA_DIR, else gensim-data at home."""
    return Path(os.environ.get("GENSIM_DATA_DIR") or os.path.expanduser("~/gensim-data"))


def local(name: str) -> Path | None:
    """Return the data file of the model `name` if it has been downloaded, else None."""
    path = folder() / name / f"{name}.gz"
    return path if is_name(name) and path.is_file() else None


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
    try:
        parts = urlsplit(mirror)
        whole = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        whole = False
    if not whole or not (mirror.isascii() and mirror.isprintable()) or set(mirror) & set(' ?#"<>\\'):
        what = "which is not an address that begins with http:// or https://"
        hint = "Try: ATTN_MIRROR=https://example.org/gensim-data"
        raise ConfigError(f"ATTN_MIRROR is {visible(mirror)!r}, {what}.", hint)
    if "@" in parts.netloc:
        raise ConfigError("ATTN_MIRROR holds a user or a password, which attn does not send.")
    return f"{mirror}/list.json", mirror


def fetch_index() -> Index:
    """Fetch the index, without entries that cannot be right; FileError, InputError or ConfigError where that fails."""
    url, _ = addresses()
    return _read_index(body_of(url, INDEX_LIMIT), host_of(url))


def cached_index() -> Index | None:
    """Return the index as attn or gensim last fetched it, None if there is none or it is damaged."""
    path = folder() / CACHED_INDEX
    try:
        return _read_index(files.read_bytes(path, INDEX_LIMIT), str(path))
    except AttnError:
        return None


def store_index(index: Index) -> None:
    """Store the index where gensim looks for it when there is no network; a full disk is not an error."""
    with contextlib.suppress(AttnError), atomic.written(folder() / CACHED_INDEX) as stream:
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
    return Index(raw, packages, frozenset(_mapping(index, "corpora")))


def _package(name: str, entry: object) -> Package | None:
    """Return what an entry of the index says, or None if it cannot be right; models come whole, corpora in parts."""
    usual: dict[str, object] = {"file_name": f"{name}.gz", "parts": 1, "file_size": None}
    match given := usual | (entry if isinstance(entry, dict) else {}):
        case {"file_name": str(file), "checksum": str(md5), "file_size": None | int() as size}:
            is_whole = type(given["parts"]) is int and given["parts"] == 1
            is_sound = is_whole and is_name(name) and is_name(file) and _MD5.fullmatch(md5.lower())
            if is_sound and (size is None or _count(size)):
                words = _count(given.get("num_records"))
                dim = _count(_mapping(given, "parameters").get("dimension"))
                return Package(name, size, words, dim, _text(given.get("license")), md5.lower())
    return None


def _mapping(entry: Mapping[str, object], key: str) -> Mapping[str, object]:
    value = entry.get(key)
    return value if isinstance(value, dict) else {}


def _count(value: object) -> int | None:
    return value if type(value) is int and 0 < value <= MOST_BYTES else None


def _text(value: object) -> str:
    """Return a text of the index on one printable line; a very long one ends in an ellipsis."""
    if not isinstance(value, str):
        return ""
    cut = value[:2000] + "…" * (len(value) > 2000)
    return visible(" ".join(cut.split()))


def find_package(index: Index, name: str) -> Package:
    """Return the package of that name; UsageError, naming others, if there is none."""
    if name in index.packages:
        return index.packages[name]
    shown = visible(name)
    short = sorted((known for known in index.packages if known[0] != "_"), key=len)[:3]
    listed = " or ".join(filter(None, [", ".join(short[:-1]), *short[-1:]]))
    hint = did_you_mean(name, index.packages, 3).rstrip() or (f"Try {listed}." if short else "")
    if name in index.corpora:
        raise UsageError(f"{shown!r} is a corpus, not a set of word vectors.", hint)
    raise UsageError(f"There are no word vectors named {shown!r}.", hint)


class RefusalError(FileError):
    """The server answered, but not with the file; `status` is the HTTP status."""

    def __init__(self, url: str, status: int, reason: str) -> None:
        hint = "Try again later, or set ATTN_MIRROR to a mirror."
        super().__init__(_failure(url, f"{status} {reason}"), hint)
        self.status = status


def _opener() -> OpenerDirector:
    """Return urllib's opener, with the environment's proxies, which follows redirections to http and https only."""
    from urllib import request

    class Redirects(request.HTTPRedirectHandler):
        def http_error_302(
            self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage
        ) -> HTTPResponse | None:
            fp.close()  # the page that comes with a redirection may be endless
            target = urljoin(req.full_url, headers.get("Location", ""))
            if not target.lower().startswith(("http://", "https://")):
                raise ValueError(f"it redirects to {target}")
            return super().http_error_302(req, fp, code, msg, headers)

        http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302

    opener = request.build_opener(Redirects())
    opener.addheaders = [("User-Agent", "attn")]
    return opener


def ask(url: str, headers: Mapping[str, str] | None = None) -> HTTPResponse:
    """Open an http or https address; raise FileError if it cannot be reached or does not answer with the file."""
    from http.client import HTTPException
    from urllib.error import HTTPError
    from urllib.request import Request

    try:
        answer: HTTPResponse = _opener().open(Request(url, headers=dict(headers or {})), timeout=TIMEOUT)
    except HTTPError as error:
        error.close()
        raise RefusalError(url, error.code, error.reason) from None
    except (OSError, HTTPException, ValueError) as error:
        raise _unreachable(url, error, NO_NETWORK) from None
    if answer.status != 200 and not (answer.status == 206 and headers):
        answer.close()
        raise RefusalError(url, answer.status, answer.reason)
    return answer


def arriving(answer: HTTPResponse, url: str) -> Iterator[bytes]:
    """Yield the body of an answer as it arrives; raise FileError if it ends before its announced end."""
    from http.client import HTTPException

    left = answer.length
    while left is None or left > 0:
        try:
            piece = answer.read1(CHUNK if left is None else min(CHUNK, left))
        except (OSError, HTTPException, ValueError) as error:
            raise _unreachable(url, error) from None
        if not piece and left:
            raise _unreachable(url, f"the connection ended {left:,} bytes too early")
        if not piece:
            return
        left = None if left is None else left - len(piece)
        yield piece


def body_of(url: str, limit: int) -> bytes:
    """Return the whole of a small file."""
    body = bytearray()
    with contextlib.closing(ask(url)) as answer:
        for piece in arriving(answer, url):
            body += piece
            if len(body) > limit:
                what = f"{url.rpartition('/')[2]} from {host_of(url)}"
                raise InputError(f"{what} is above the limit of {limit:,} bytes.")
    return bytes(body)


def _unreachable(url: str, why: Exception | str, hint: str = KEPT) -> FileError:
    reason = getattr(why, "reason", why)  # a URLError holds the error that caused it
    reason = getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
    return FileError(_failure(url, str(reason)), hint)


def _failure(url: str, reason: str) -> str:
    printable = visible(" ".join(reason.split())[:300]).rstrip(".")  # a server's words
    return f"Cannot download {url.rpartition('/')[2]} from {host_of(url)}: {printable}."


def host_of(url: str) -> str:
    """Return an address's host, printable."""
    return visible(urlsplit(url).netloc)
