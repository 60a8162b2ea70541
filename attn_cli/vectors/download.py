"""Download pretrained word vectors of gensim-data to where gensim keeps its own, so that both share them.

The vectors NAME are the file NAME/NAME.gz in folder(). NAME/__init__.py beside it, gensim's code to read them, is
stored for gensim and never run here. A download is collected in NAME~part until its checksum is right, because gensim
takes a folder NAME for a finished download; the next call resumes what is in NAME~part.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from attn_cli.errors import CreateError, FileError, InputError, WriteError, visible
from attn_cli.io import atomic, files
from attn_cli.io.types import OnPart
from attn_cli.vectors import catalogue

if TYPE_CHECKING:
    from http.client import HTTPResponse

OnText = Callable[[str], None]
SLACK = 1 << 20  # bytes that a file may have beyond the size in the index


def download(name: str, report: OnPart = lambda _: None, say: OnText = lambda _: None) -> Path:
    """Return the data file of the model `name`; download it unless it is there with the right checksum.

    A download that was stopped is resumed, and one that another process makes is waited for. `say` gets sentences about
    what is unusual. Raises UsageError for an unknown name, FileError when the network fails, InputError for another
    file than announced, CreateError and WriteError when it cannot be stored.
    """
    path = catalogue.local(name)
    index = catalogue.cached_index() if path else None
    known = index.packages.get(name) if index else None
    if not (path and known and _md5(path) == known.checksum):
        try:
            index = catalogue.fetch_index()
        except (FileError, InputError) as error:
            if path is None or known:
                raise
            say(f"{name} is there, but its checksum could not be checked. {error.message}")
            return path
        path = _ensure(catalogue.find_package(index, name), report, say)
        catalogue.store_index(index)
    report(1.0)
    return path


def _ensure(package: catalogue.Package, report: OnPart, say: OnText) -> Path:
    path = catalogue.folder() / package.name / f"{package.name}.gz"
    if path.is_file():
        if _md5(path) == package.checksum:
            return path
        say(f"{package.name} is there, but is not what the index announces: it is downloaded anew.")
    with _creating(catalogue.folder()):
        catalogue.folder().mkdir(parents=True, exist_ok=True)
    hint = "What has arrived is kept: try again when it can be written."
    busy = cache(lambda: say("Another attn is downloading: waiting for it."))
    said = f"Cannot write {visible(str(path))}"
    with atomic.locked_folder(str(catalogue.folder()), busy), files.system_errors(WriteError, said, hint):
        if not (path.is_file() and _md5(path) == package.checksum):  # another process may have fetched it
            _fetch_package(package, path.parent, report)
    return path


def _md5(path: Path) -> str:
    with files.system_errors(FileError, f"Cannot read {visible(str(path))}"), path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def _fetch_package(package: catalogue.Package, home: Path, report: OnPart) -> None:
    url, stage = f"{catalogue.addresses()[1]}/{package.name}", catalogue.folder() / f"{package.name}~part"
    data, reader = stage / f"{package.name}.gz", stage / "__init__.py"
    with _creating(stage):
        stage.mkdir(exist_ok=True)
    try:
        needed = (package.bytes or 0) - (data.stat().st_size if data.exists() else 0)
        if needed > (free := shutil.disk_usage(catalogue.folder()).free):
            room = f"{needed:,} bytes are needed, {free:,} are free"
            said = f"Cannot write {visible(str(data.parent))}: {room}."
            raise WriteError(said, "Make room, or set GENSIM_DATA_DIR to a folder on a larger disk.")
        _fetch_reader(f"{url}/{reader.name}", reader)
        _fetch(f"{url}/{data.name}", package, data, report)
        with data.open("r+b") as file:
            os.fsync(file.fileno())
        if home.is_dir():  # with a file that is missing or wrong
            if reader.exists() and not (home / reader.name).exists():
                reader.replace(home / reader.name)
            data.replace(home / data.name)
            shutil.rmtree(stage, ignore_errors=True)
        else:
            stage.rename(home)
        atomic.sync_folder(str(catalogue.folder()))
    except BaseException:
        if not (data.exists() and data.stat().st_size):
            shutil.rmtree(stage, ignore_errors=True)
        raise


def _fetch_reader(url: str, path: Path) -> None:
    """Store gensim's code to read the file, if the server has it; attn never runs it."""
    try:
        code = catalogue.body_of(url, 1 << 20)
    except catalogue.RefusalError as error:
        if not 400 <= error.status < 500:
            raise
    else:
        with atomic.written(path) as stream:
            stream.write(code)


def _fetch(url: str, package: catalogue.Package, path: Path, report: OnPart) -> None:
    """Fetch a package's file to `path`, resuming what is there; InputError if its MD5 is wrong."""
    if path.exists() and _md5(path) == package.checksum:
        return
    is_resumed = _store(url, package.bytes, path, report)
    got = _md5(path)
    if got == package.checksum:
        return
    path.unlink()
    if not is_resumed:
        said = (
            f"{path.name} from {catalogue.host_of(url)} is damaged: its MD5 is {got}, not {package.checksum}."
        )
        raise InputError(said, "Try again: it begins anew.")
    _fetch(url, package, path, report)  # what was there was of something else: fetch all of it


def _store(url: str, most: int | None, path: Path, report: OnPart) -> bool:
    """Write a file to `path`; return whether it was resumed. InputError if there is more than was announced."""
    answer, have = _ask_from(url, path.stat().st_size if path.exists() else 0)
    is_resumed, host = have > 0, catalogue.host_of(url)
    with contextlib.closing(answer):
        announced = None if answer.length is None else have + answer.length
        limit = announced if most is None else most + SLACK
        if limit is None:
            raise InputError(f"Neither the index nor {host} says how large {path.name} is.")
        too_much = InputError(f"{host} sends more of {path.name} than the {limit:,} bytes that it may have.")
        if max(announced or 0, have) > limit:
            path.unlink(missing_ok=True)
            raise too_much
        with atomic.growing(path, is_resumed) as file:
            for piece in catalogue.arriving(answer, url):
                have += len(piece)
                if have > limit:
                    path.unlink()
                    raise too_much
                file.write(piece)
                report(min(1.0, have / max(1, most or announced or limit)))
    return is_resumed


def _ask_from(url: str, start: int) -> tuple[HTTPResponse, int]:
    """Ask for a file from byte `start` on; return the answer and the byte at which it begins: `start` or 0."""
    if start:
        try:
            answer = catalogue.ask(url, {"Range": f"bytes={start}-"})
        except catalogue.RefusalError as error:
            if error.status != 416:
                raise
        else:
            if answer.status == 200:
                return answer, 0
            if answer.getheader("Content-Range", "").startswith(f"bytes {start}-"):
                return answer, start
            answer.close()
    return catalogue.ask(url), 0


def _creating(path: Path) -> contextlib.AbstractContextManager[None]:
    hint = "Set GENSIM_DATA_DIR to a folder that can be written to."
    return files.system_errors(CreateError, f"Cannot create {visible(str(path))}", hint)
