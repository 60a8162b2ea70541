"""What is known of a folder of parts: which lines are in which, of what input, made with what settings."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from typing import IO, TYPE_CHECKING, Any

import attn_cli
from attn_cli.errors import FileError, InputError
from attn_cli.io.escape import visible
from attn_cli.io.files import reason
from attn_cli.settings.settings import Settings

if TYPE_CHECKING:
    from attn_cli.batch.job import Job

MANIFEST = "manifest.json"
SCHEMA = "attn-batch/1"
LINES = 10_240  # of a part; the last has what is left
PART = re.compile(r"part-\d{5,}\.[a-z.]+")
FREE = ("threads",)  # settings that change no number
PIECE = 1 << 20
OF_A_MODEL = (".json", ".txt", ".model", ".safetensors")  # files of its folder


@dataclass(frozen=True)
class Part:
    """One part: its file, the lines that are in it, how many of them were refused, and its bytes with their hash."""

    file: str
    first: int
    lines: int
    refused: int
    bytes: int
    blake2b: str

    @property
    def number(self) -> int:
        """Its place among the parts, from 0."""
        return (self.first - 1) // LINES


@dataclass
class Manifest:
    """What is known of a folder of parts, which are there by their numbers, in any order."""

    input: dict[str, Any]
    run: dict[str, Any]
    parts: dict[int, Part] = field(default_factory=dict)
    complete: bool = False

    @property
    def lines(self) -> int:
        """How many lines of the input are in the parts."""
        return sum(part.lines for part in self.parts.values())

    @property
    def refused(self) -> int:
        """How many of these were refused."""
        return sum(part.refused for part in self.parts.values())

    def add(self, part: Part) -> None:
        """Name a part that is there."""
        self.parts[part.number] = part

    def text(self) -> str:
        """Return it as JSON, the parts in their order."""
        about = {"schema": SCHEMA, "complete": self.complete, "lines": self.lines, "refused": self.refused}
        parts = [asdict(self.parts[number]) for number in sorted(self.parts)]
        return json.dumps({**about, "input": self.input, "run": self.run, "parts": parts}, indent=1) + "\n"


def read_manifest(text: bytes, name: str) -> Manifest:
    """Return the manifest that was written; InputError if it is none."""
    try:
        record = json.loads(text.decode())
        found = Manifest(record["input"], record["run"], complete=record["complete"] is True)
        for part in (Part(**about) for about in record["parts"]):
            if PART.fullmatch(part.file) and (part.first - 1) % LINES == 0 and 0 < part.lines <= LINES:
                found.add(part)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise InputError(
            f"{name} is no manifest of attn batch.", "Give another folder, or --force to start anew."
        ) from None
    return found


def part_name(number: int, form: str) -> str:
    """Return the name of a part.

    >>> part_name(3, "jsonl.gz")
    'part-00003.jsonl.gz'
    """
    return f"part-{number:05}.{form}"


def run_of(job: Job) -> dict[str, Any]:
    """Return what decides the bytes of a run's output, beside its input; what is as usual is left out."""
    usual = vars(Settings())
    settings = {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in vars(job.settings).items()
        if value != usual[name] and name not in FREE
    }
    about = {"attn": attn_cli.__version__, "kind": job.kind, "format": job.form, "fields": list(job.keys)}
    return {
        **about,
        "steps": job.steps,
        "ascii": job.ascii_only,
        "lines_a_part": LINES,
        "files": hashes_of_files(job.settings),
        "settings": settings,
    }


def hashes_of_files(settings: Settings) -> dict[str, str]:
    """Return the hash of each file, or folder of a model, that settings name: what is in it decides the numbers."""
    files = (settings.embedding, settings.projection, settings.mask)
    found = {name: hash_of_file(name)[1] for name in files if name is not None and os.path.isfile(name)}
    if settings.embedding is not None and settings.embedding not in found:
        from attn_cli.vectors.names import path_of  # only for imported names, of which no usual run knows

        path = None if settings.embedding in ("word2vec", "random") else path_of(settings.embedding)
        found |= {} if path is None else {settings.embedding: hash_of_file(path)[1]}
    if settings.model is not None:
        found[settings.model] = _hash_of_model(settings.model)
    return found


def _hash_of_model(model: str) -> str:
    from attn_cli.models.checkpoints.cache import find_folder  # only for a model on disk

    folder, digest = find_folder(model), blake2b(digest_size=16)
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        if name.endswith(OF_A_MODEL) and os.path.isfile(path):
            digest.update(f"{name} {hash_of_file(path)[1]} ".encode())
    return digest.hexdigest()


def differences(found: Manifest, source: dict[str, Any], run: dict[str, Any]) -> str:
    """Return in words what is not as it was; nothing where all is."""
    if found.input != source:
        return "its input was another"
    was, now = ({**one, **one.get("settings", {})} for one in (found.run, run))
    names = sorted(_different(was, now))
    return f"it was made with other settings ({visible(', '.join(names))})" if names else ""


def _different(was: dict[str, Any], now: dict[str, Any]) -> Iterator[str]:
    for name in {*was, *now} - {"settings", "files"}:
        if was.get(name) != now.get(name):
            yield name
    before, after = was.get("files", {}), now.get("files", {})
    yield from (f"{path} was changed" for path in after if path in before and before[path] != after[path])


def hash_of_file(path: str) -> tuple[int, str]:
    """Return the bytes of a file and their hash."""
    try:
        with open(path, "rb") as stream:
            return hash_of(stream)
    except OSError as error:
        raise FileError(f"Cannot read {visible(path)}: {reason(error)}.") from None


def hash_of(stream: IO[bytes]) -> tuple[int, str]:
    """Return the bytes that are left in a stream, and their hash."""
    digest, size = blake2b(digest_size=16), 0
    while piece := stream.read(PIECE):
        digest.update(piece)
        size += len(piece)
    return size, digest.hexdigest()
