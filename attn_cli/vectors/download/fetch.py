"""Pretrained word vectors of gensim-data, fetched to where gensim keeps its own, so that both share them.

A model NAME is the file NAME/NAME.gz in folder(), and NAME/__init__.py beside it: the code with which
gensim reads the file. That code is stored for gensim's sake and never imported here. What has arrived of
a download lies in NAME~part until all of it is checked: gensim takes a folder NAME for a whole download.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple

from attn_cli.errors import AttnError, CreateError, FileError, InputError, WriteError
from attn_cli.io.escape import visible
from attn_cli.io.files import read_bytes
from attn_cli.vectors.download.catalogue import (
    Package,
    addresses,
    cached,
    fetched,
    folder,
    local,
    remember,
    wanted,
)
from attn_cli.vectors.download.http import CHUNK, RefusalError, arriving, ask, body_of, host_of

if TYPE_CHECKING:
    from http.client import HTTPMessage, HTTPResponse

READER_LIMIT = 1 << 20
SLACK = 1 << 20


def download(
    name: str,
    report: Callable[[float], None] | None = None,
    told: Callable[[str], None] | None = None,
) -> Path:
    """Return the data file of the model `name`, downloaded unless it is there and right.

    `report` gets the part that has arrived, 0 to 1; `told` gets sentences about what is unusual. What had
    arrived when a download was stopped is kept, and the next call goes on from there. Of two downloads
    of one model at once, the second waits for the first and uses its file.

    Raises UsageError for an unknown name, FileError when the network fails, InputError when what is sent
    is not what the index announces, CreateError and WriteError when it cannot be stored.
    """
    told, report = told or (lambda _: None), report or (lambda _: None)
    there = local(name)
    told_before = cached() if there else None
    known = told_before.packages.get(name) if told_before else None
    if not (there and known and _right(there, known)):
        try:
            index = fetched()
        except (FileError, InputError) as error:
            if there is None or known:
                raise
            told(f"{name} is there, but its checksum could not be checked. {error.message}")
            return there
        there = _current(wanted(index, name), report, told)
        remember(index)
    report(1.0)
    return there


def _current(package: Package, report: Callable[[float], None], told: Callable[[str], None]) -> Path:
    """Return the data file of a package, fetched unless what is there is right."""
    path = folder() / package.name / package.file
    there = local(package.name)
    if there and _right(there, package):
        return there
    if there:
        told(f"What is there of {package.name} is not what the index announces: it is downloaded anew.")
    with _creating(folder()):
        folder().mkdir(parents=True, exist_ok=True)
    with _alone(package.name, told), _writing(path):
        there = local(package.name)
        if not (there and _right(there, package)):  # another may have fetched it meanwhile
            _bring(package, report)
    return path


def _right(path: Path, package: Package) -> bool:
    """Tell whether a file is the package's: by its checksum, or by its size where only parts have checksums."""
    if len(package.checksums) == 1:
        return _md5(path) == package.checksums[0]
    return package.bytes in (None, path.stat().st_size)


def _md5(path: Path) -> str:
    import hashlib

    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    except OSError as error:
        raise FileError(f"Cannot read {visible(str(path))}: {error.strerror}.") from None


def _bring(package: Package, report: Callable[[float], None]) -> None:
    """Fetch a package's files beside its folder, and move them there when all are right."""
    _, base = addresses(None)
    stage = folder() / f"{package.name}~part"
    with _creating(stage):
        stage.mkdir(exist_ok=True)
    try:
        _check_room(package, stage)
        _fetch_reader(f"{base}/{package.name}/__init__.py", stage)
        before = 0
        for part, checksum in zip(package.parts, package.checksums, strict=True):
            source = _Source(f"{base}/{package.name}/{part}", checksum, package.bytes)
            share = _share(package, before, report)
            _fetch(source, stage / part, share)
            before += (stage / part).stat().st_size
        if len(package.parts) > 1:
            _join([stage / part for part in package.parts], stage / package.file)
        _publish(package, stage)
    except BaseException:
        if not any(path.stat().st_size for path in stage.glob(f"{package.file}*")):
            _remove(stage)
        raise


def _share(package: Package, before: int, report: Callable[[float], None]) -> Callable[[int, int], None]:
    """Return what reports the share of the whole package, when so many bytes of one part have arrived."""

    def arrived(have: int, announced: int) -> None:
        whole = package.bytes or announced * len(package.parts)
        report(min(1.0, (before + have) / max(1, whole)))

    return arrived


def _fetch_reader(url: str, stage: Path) -> None:
    """Store the code with which gensim reads the file, if the server has it; attn never runs it."""
    try:
        code = body_of(url, READER_LIMIT)
    except RefusalError as error:
        if not 400 <= error.status < 500:
            raise
    else:
        (stage / "__init__.py").write_bytes(code)


class _Source(NamedTuple):
    """Where a file comes from, its MD5, and the bytes that it, or what it is part of, has at most."""

    url: str
    checksum: str
    bytes: int | None


def _fetch(source: _Source, path: Path, arrived: Callable[[int, int], None]) -> None:
    """Bring a file, whole and with the right checksum, to `path`: what is there of it is gone on with."""
    note = _noted(path)
    if note.get("checksum", source.checksum) != source.checksum:
        path.unlink(missing_ok=True)  # of another edition
    start = path.stat().st_size if path.exists() else 0
    if start and _md5(path) == source.checksum:
        return
    validator = note.get("validator", "") if note.get("url") == source.url else ""
    answer, start = _ask_from(source.url, start, validator)
    with contextlib.closing(answer):
        _store(answer, source, path, start, arrived)
    got = _md5(path)
    if got != source.checksum:
        _discard(path)
        raise InputError(
            f"{path.name} from {host_of(source.url)} is damaged: its MD5 is {got}, not {source.checksum}.",
            "Try again: it begins anew.",
        )


def _ask_from(url: str, start: int, validator: str) -> tuple[HTTPResponse, int]:
    """Ask for a file from byte `start` on; return the answer, and the byte with which it really begins."""
    if start:
        headers = {"Range": f"bytes={start}-"} | ({"If-Range": validator} if validator else {})
        try:
            answer = ask(url, headers)
        except RefusalError as error:
            if error.status != 416:
                raise
        else:
            if answer.status == 200:
                return answer, 0
            if answer.getheader("Content-Range", "").startswith(f"bytes {start}-"):
                return answer, start
            answer.close()
    return ask(url), 0


def _store(
    answer: HTTPResponse, source: _Source, path: Path, start: int, arrived: Callable[[int, int], None]
) -> None:
    """Write an answer to `path` from byte `start` on, and no more of it than was announced."""
    host = host_of(source.url)
    announced = None if answer.length is None else start + answer.length
    limit = announced if source.bytes is None else source.bytes + SLACK
    if limit is None:
        raise InputError(f"Neither the index nor {host} tells the size of {path.name}.")
    too_much = InputError(f"{host} sends more of {path.name} than the {limit:,} bytes that it may have.")
    if max(announced or 0, start) > limit:
        _discard(path)
        raise too_much
    have = start
    if announced is not None:
        _require(announced - (path.stat().st_size if path.exists() else 0), path)
    with path.open("ab" if start else "wb") as file:
        _note(path, source, answer.headers)
        for piece in arriving(answer, source.url):
            have += len(piece)
            if have > limit:
                _discard(path)
                raise too_much
            file.write(piece)
            arrived(have, announced or limit)


def _note(path: Path, source: _Source, headers: HTTPMessage) -> None:
    """Keep beside a file what tells later whether the server still has the same."""
    etag, date = headers.get("ETag", ""), headers.get("Last-Modified", "")
    validator = etag if etag.startswith('"') else date  # a weak ETag cannot continue a file
    note = {"url": source.url, "checksum": source.checksum, "validator": validator}
    _note_path(path).write_text(json.dumps(note), encoding="utf-8")


def _noted(path: Path) -> dict[str, str]:
    """Return what was kept of a file: nothing if it cannot be read, and nothing that no header may hold."""
    try:
        note = json.loads(read_bytes(_note_path(path), READER_LIMIT))
    except (FileError, ValueError, RecursionError):
        return {}
    pairs = note.items() if isinstance(note, dict) else ()
    return {
        key: value
        for key, value in pairs
        if isinstance(value, str) and value.isascii() and value.isprintable() and len(value) < 1000
    }


def _note_path(path: Path) -> Path:
    return path.with_name(f"resume-{path.name}.json")


def _discard(path: Path) -> None:
    path.unlink(missing_ok=True)
    _note_path(path).unlink(missing_ok=True)


def _check_room(package: Package, stage: Path) -> None:
    """Refuse a package that the disk has no room for: one in parts needs it twice, to be joined."""
    if package.bytes is not None:
        there = [stage / part for part in package.parts if (stage / part).exists()]
        copies = 1 if len(package.parts) == 1 else 2
        _require(package.bytes * copies - sum(path.stat().st_size for path in there), stage)


def _require(needed: int, path: Path) -> None:
    import shutil

    free = shutil.disk_usage(path.parent).free
    if needed > free:
        raise WriteError(
            f"Cannot write {visible(str(path))}: {needed:,} bytes are needed, {free:,} are free.",
            "Make room, or set GENSIM_DATA_DIR to a folder on a larger disk.",
        )


def _join(parts: list[Path], whole: Path) -> None:
    import shutil

    with whole.open("wb") as joined:
        for part in parts:
            with part.open("rb") as file:
                shutil.copyfileobj(file, joined, CHUNK)


def _publish(package: Package, stage: Path) -> None:
    """Move a package to its place, at once: a rename is the last thing that can fail."""
    data, home = stage / package.file, folder() / package.name
    for path in stage.iterdir():
        if path not in (data, stage / "__init__.py"):
            path.unlink()
    with data.open("r+b") as file:
        os.fsync(file.fileno())
    _sync_folder(stage)
    if home.is_dir():  # with a file that is missing or wrong
        if (stage / "__init__.py").exists() and not (home / "__init__.py").exists():
            os.replace(stage / "__init__.py", home / "__init__.py")
        os.replace(data, home / package.file)
        _remove(stage)
        _sync_folder(home)
    else:
        os.rename(stage, home)
    _sync_folder(home.parent)


def _sync_folder(path: Path) -> None:
    if os.name == "nt":
        return  # Windows cannot
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _remove(stage: Path) -> None:
    import shutil

    shutil.rmtree(stage, ignore_errors=True)


@contextlib.contextmanager
def _alone(name: str, told: Callable[[str], None]) -> Iterator[None]:
    """Be the only download of `name`: wait while there is another. Without file locks, as on Windows, just go on."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    path = folder() / f"{name}~lock"
    while True:
        with _creating(path):
            lock = path.open("ab")
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                told(f"Another attn is downloading {name}: waiting for it.")
                fcntl.flock(lock, fcntl.LOCK_EX)
            except OSError:
                pass  # a file system without locks
            if _is_still(path, lock):
                try:
                    yield
                finally:
                    path.unlink(missing_ok=True)
                return


def _is_still(path: Path, file: IO[bytes]) -> bool:
    """Tell whether `path` is still the file that was opened, and not one that was made after it was removed."""
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


@contextlib.contextmanager
def _creating(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        hint = "Set GENSIM_DATA_DIR to a folder that can be written to."
        raise CreateError(f"Cannot create {visible(str(path))}: {error.strerror}.", hint) from None


@contextlib.contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if isinstance(error, AttnError):
            raise
        hint = "What has arrived is kept: try again when it can be written."
        raise WriteError(f"Cannot write {visible(str(path))}: {error.strerror or error}.", hint) from None
