"""A run whose output is a folder of parts with a manifest, so that a run that was ended can be continued.

A part is written beside its place, synced and renamed, and only then named in the manifest, which is replaced as a
whole. After a kill there are complete parts, of which the manifest names all but at most the last; that one is
computed again, and is the same.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from typing import IO, TYPE_CHECKING, Any

import attn_cli
from attn_cli.batch.forms import FORMS
from attn_cli.errors import CreateError, FileError, InputError
from attn_cli.io.atomic import sync_folder, written
from attn_cli.io.escape import visible
from attn_cli.io.files import reason
from attn_cli.settings.settings import Settings

if TYPE_CHECKING:
    from attn_cli.batch.job import Job
    from attn_cli.batch.write import Written

MANIFEST = "manifest.json"
SCHEMA = "attn-batch/1"
LINES = 10_240  # a part has at least so many, but for the last
BLOCK = 1 << 20
PATIENCE = 5.0  # seconds that another run may take to leave the folder
PART = re.compile(r"part-\d{5,}\.[a-z.]+")
FREE = ("threads",)  # settings that change no number


@dataclass(frozen=True)
class Part:
    """One part: its file, the lines that are in it, how many of them were refused, and its bytes with their hash."""

    file: str
    first: int
    lines: int
    refused: int
    bytes: int
    blake2b: str


@dataclass
class Manifest:
    """What is known of a folder of parts."""

    input: dict[str, Any]
    run: dict[str, Any]
    parts: list[Part] = field(default_factory=list)
    complete: bool = False

    @property
    def lines(self) -> int:
        """How many lines of the input are in the parts."""
        return sum(part.lines for part in self.parts)

    @property
    def refused(self) -> int:
        """How many of these were refused."""
        return sum(part.refused for part in self.parts)

    def text(self) -> str:
        """Return it as JSON."""
        about = {"schema": SCHEMA, "complete": self.complete, "lines": self.lines, "refused": self.refused}
        parts = [asdict(part) for part in self.parts]
        return json.dumps({**about, "input": self.input, "run": self.run, "parts": parts}, indent=1) + "\n"


def run_of(job: Job) -> dict[str, Any]:
    """Return what decides the bytes of a run's output, beside its input; what is as usual is left out."""
    usual = vars(Settings())
    settings = {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in vars(job.settings).items()
        if value != usual[name] and name not in FREE
    }
    named = (job.settings.embedding, job.settings.projection, job.settings.mask)
    files = {name: _state(name) for name in named if name is not None and os.path.isfile(name)}
    about = {"attn": attn_cli.__version__, "kind": job.kind, "format": job.form, "fields": list(job.keys)}
    return {
        **about,
        "steps": job.steps,
        "ascii": job.ascii_only,
        "lines_a_part": LINES,
        "files": files,
        "settings": settings,
    }


def _state(path: str) -> list[int]:
    """Return the bytes of a file, and when it was changed."""
    about = os.stat(path)
    return [about.st_size, about.st_mtime_ns]


def fingerprint(path: str) -> dict[str, Any]:
    """Return the bytes of a file and their hash."""
    try:
        with open(path, "rb") as stream:
            size, found = _hashed(stream)
    except OSError as error:
        raise FileError(f"Cannot read {visible(path)}: {reason(error)}.") from None
    return {"bytes": size, "blake2b": found}


def _hashed(stream: IO[bytes]) -> tuple[int, str]:
    digest, size = blake2b(digest_size=16), 0
    while block := stream.read(BLOCK):
        digest.update(block)
        size += len(block)
    return size, digest.hexdigest()


class Folder:
    """A folder of parts, which one run at a time writes."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.name = visible(path)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other runs out; CreateError where one is in, or where the folder cannot be made."""
        try:
            os.makedirs(self.path, exist_ok=True)
            descriptor = os.open(self.path, os.O_RDONLY)
        except OSError as error:
            raise CreateError(
                f"Cannot create {self.name}: {reason(error)}.", "Choose another place."
            ) from None
        try:
            _lock(descriptor, self.name)
            yield
        finally:
            os.close(descriptor)

    def opened(self, source: dict[str, Any], run: dict[str, Any], force: bool) -> Manifest:
        """Return the manifest of a run to go on with, or of a new one; parts that are not as they were written go.

        Raises InputError where the folder holds something else, unless `force`, which starts anew.
        """
        found = None if force else self._read()
        if found is None:
            self._clear(force)
            return Manifest(source, run)
        what = _differences(found, source, run)
        if what:
            raise InputError(
                f"{self.name} holds another run: {what}.", "Give another folder, or --force to start anew."
            )
        whole = list(self._whole(found.parts))
        if len(whole) < len(found.parts):
            found = Manifest(source, run, whole)
        return found

    def _read(self) -> Manifest | None:
        path = os.path.join(self.path, MANIFEST)
        try:
            with open(path, encoding="utf-8") as stream:
                record = json.load(stream)
            parts = [Part(**part) for part in record["parts"]]
            return Manifest(record["input"], record["run"], parts, record["complete"] is True)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise FileError(f"Cannot read {visible(path)}: {reason(error)}.") from None
        except (ValueError, TypeError, KeyError, RecursionError):
            raise InputError(
                f"{visible(path)} is no manifest of attn batch.",
                "Give another folder, or --force to start anew.",
            ) from None

    def _clear(self, force: bool) -> None:
        """Remove what an earlier run has left, the manifest first; refuse a folder of other files, unless `force`."""
        try:
            names = os.listdir(self.path)
            ours = [name for name in names if PART.fullmatch(name)]
            if not force and any(not name.startswith(".") for name in names if name not in ours):
                raise InputError(
                    f"{self.name} is no empty folder, and holds no run of attn batch.",
                    "Give another folder, or --force to write into this one.",
                )
            for name in [MANIFEST] * (MANIFEST in names) + ours:
                os.unlink(os.path.join(self.path, name))
            sync_folder(self.path)
        except OSError as error:
            if isinstance(error, InputError):
                raise
            raise CreateError(f"Cannot write into {self.name}: {reason(error)}.") from None

    def _whole(self, parts: Iterable[Part]) -> Iterator[Part]:
        """Yield the parts from the first one on, up to one that is missing or was changed."""
        for part in parts:
            path = os.path.join(self.path, part.file)
            if not PART.fullmatch(part.file) or not os.path.isfile(path):
                return
            if fingerprint(path) != {"bytes": part.bytes, "blake2b": part.blake2b}:
                return
            yield part

    def store(self, manifest: Manifest) -> None:
        """Write the manifest: what it names is there."""
        with written(os.path.join(self.path, MANIFEST)) as stream:
            stream.write(manifest.text().encode())

    def write(self, job: Job, manifest: Manifest, chunks: Iterable[Written]) -> None:
        """Write chunks into parts; a part counts when the manifest names it.

        Raises the error of a bad line; the part that it is in is not written.
        """
        chunks = iter(chunks)
        for first in chunks:
            name = f"part-{len(manifest.parts):05}.{job.form}"
            path = os.path.join(self.path, name)
            lines = refused = 0
            with written(path) as stream:
                sink = FORMS[job.form].sink(stream, job)
                chunk: Written | None = first
                try:
                    while chunk is not None:
                        if chunk.error is not None:
                            raise chunk.error
                        sink.write(chunk.data)
                        lines, refused = lines + chunk.lines, refused + chunk.refused
                        chunk = next(chunks, None) if lines < LINES else None
                    sink.close()
                except BaseException:
                    sink.drop()
                    raise
            about = fingerprint(path)
            part = Part(name, manifest.lines + 1, lines, refused, about["bytes"], about["blake2b"])
            manifest.parts.append(part)
            self.store(manifest)
        manifest.complete = True
        self.store(manifest)


def _differences(found: Manifest, source: dict[str, Any], run: dict[str, Any]) -> str:
    """Return in words what is not as it was; nothing where all is."""
    if found.input != source:
        return "its input was another"
    was, now = ({**one, **one.get("settings", {})} for one in (found.run, run))
    names = sorted(name for name in {*was, *now} - {"settings"} if was.get(name) != now.get(name))
    return f"it was made with other settings ({visible(', '.join(names))})" if names else ""


def _lock(descriptor: int, name: str) -> None:
    """Lock a folder; a run that was killed may hold it for another moment."""
    try:
        import fcntl
    except ImportError:  # a system without locks
        return
    end = time.monotonic() + PATIENCE
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > end:
                raise CreateError(f"Another run is writing into {name}.", "Wait for its end.") from None
            time.sleep(0.05)
        except OSError:  # a file system without locks
            return
