"""What is known of a folder of parts: which lines are in which, of what input, made with what settings."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from hashlib import blake2b, file_digest
from typing import IO, Any, get_type_hints

import attn_cli
from attn_cli.batch import Job, forms
from attn_cli.errors import FileError, InputError, visible
from attn_cli.io.files import system_errors
from attn_cli.settings import Settings

MANIFEST = "manifest.json"
SCHEMA = "attn-batch/1"
LINES = 10_240  # of a part; the last has what is left
PART = re.compile(rf"part-[0-9]{{5,}}\.(?:{'|'.join(map(re.escape, forms.FORMS))})")
OWNER = ".run"  # which run's parts may come into the folder: those of a run that has gone may still be on their way
BESIDE = ".new"  # behind the name of a file with a URL that is not in its place yet
OURS = re.compile(rf"(?:{PART.pattern}|{re.escape(MANIFEST)}|{re.escape(OWNER)})(?:{re.escape(BESIDE)})?")
MAX_MANIFEST_BYTES = 1 << 26  # bytes of a manifest
ROOM, ENTRY = 1 << 22, 512  # bytes that it has for the settings, and for each part
MOST_NAMES, LONGEST_NAME = 8, 200  # of settings that a message lists, and characters of each
ANEW = "Give another folder, or --force to start anew."
OF_A_MODEL = (".json", ".txt", ".model", ".safetensors")  # files of its folder


@dataclass(frozen=True)
class PartEntry:
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
    parts: dict[int, PartEntry] = field(default_factory=dict)
    complete: bool = False

    @property
    def lines(self) -> int:
        """How many lines of the input are in the parts."""
        return sum(part.lines for part in self.parts.values())

    @property
    def refused(self) -> int:
        """How many of these were refused."""
        return sum(part.refused for part in self.parts.values())

    def text(self) -> str:
        """Return it as JSON, the parts in their order."""
        about = {"schema": SCHEMA, "complete": self.complete, "lines": self.lines, "refused": self.refused}
        parts = [asdict(self.parts[number]) for number in sorted(self.parts)]
        return json.dumps({**about, "input": self.input, "run": self.run, "parts": parts}, indent=1) + "\n"


TYPES = {"schema": str, "complete": bool, "input": dict, "run": dict, "parts": list}
TYPES |= {"lines": int, "refused": int}
OF_PART = get_type_hints(PartEntry)


def most_bytes(lines: int) -> int:
    """Return how many bytes the manifest of so many lines has at most: JSON takes 23 times as much when it is read."""
    return min(MAX_MANIFEST_BYTES, ROOM + ENTRY * -(-lines // LINES))


def read_manifest(
    text: bytes, folder: str, source: Mapping[str, Any], run: Mapping[str, Any], lines: int
) -> Manifest:
    """Return the manifest that this run has written, whose input has so many lines.

    Anybody may have written it, so nothing in it counts before all of it was compared: with the run, with the lines of
    the input, and with itself. InputError where it is another run's, or anything is wrong: then it says nothing at all.
    """
    name = f"{folder.rstrip('/')}/{MANIFEST}"
    try:
        record = json.loads(text.decode())
    except (ValueError, RecursionError):
        record = None
    if not _is_of(record, TYPES) or record["schema"] != SCHEMA:
        raise InputError(f"{name} is not an attn batch manifest.", ANEW)
    if record["parts"] or record["complete"]:  # otherwise there is nothing that another run could lose
        if what := _differences(record, source, run):
            raise InputError(f"{folder} holds another run: {what}.", ANEW)
        if what := _contradiction(record, str(run["format"]), lines):
            raise InputError(f"{name} cannot be right: {what}.", ANEW)
    parts = [PartEntry(**about) for about in record["parts"]]
    return Manifest(dict(source), dict(run), {part.number: part for part in parts}, record["complete"])


def _is_of(record: Any, types: Mapping[str, type]) -> bool:
    """Tell whether a record has these keys and no others, with values of these types."""
    return isinstance(record, dict) and {key: type(value) for key, value in record.items()} == types


def _contradiction(record: Mapping[str, Any], form: str, lines: int) -> str:
    """Return in words what is wrong in a manifest of a run over so many lines; nothing where all fits together."""
    parts, count = record["parts"], -(-lines // LINES)
    for n, about in enumerate(parts):
        if not _is_of(about, OF_PART) or not _is_possible(PartEntry(**about), form, lines):
            return f"entry {n} of its parts is not of this input"
    numbers = [PartEntry(**about).number for about in parts]
    if numbers != sorted(set(numbers)):
        return "its parts are not in order"
    if record["complete"] and len(parts) != count:
        return f"it says complete, and names {len(parts):,} of {count:,} parts"
    if any(record[key] != sum(about[key] for about in parts) for key in ("lines", "refused")):
        return "its counts are not those of its parts"
    return ""


def _is_possible(part: PartEntry, form: str, lines: int) -> bool:
    """Tell whether an input of so many lines has this part: all but its bytes and what was refused is known."""
    start = part.number * LINES
    wanted = (part_name(part.number, form), 1 + start, min(LINES, lines - start))
    is_ours = 0 <= start < lines and (part.file, part.first, part.lines) == wanted
    is_hash = re.fullmatch("[0-9a-f]{32}", part.blake2b) is not None
    return is_ours and 0 <= part.refused <= part.lines and part.bytes >= 0 and is_hash


def part_name(number: int, form: str) -> str:
    """Return the name of a part, as part-00003.jsonl.gz."""
    return f"part-{number:05}.{form}"


def output_identity(job: Job) -> dict[str, Any]:
    """Return everything but the input that determines the output's bytes; settings at their default are omitted."""
    usual = vars(Settings())
    about: dict[str, Any] = {"attn": attn_cli.__version__, "kind": job.kind, "format": job.form}
    about |= {"fields": list(job.keys), "steps": job.steps, "tidy": job.tidy, "ascii": job.ascii_only}
    settings = {
        name: value
        for name, value in vars(job.settings).items()
        if value != usual[name] and name != "threads"  # they change no number
    }
    return about | {"lines_a_part": LINES, "files": hashes_of_files(job.settings), "settings": settings}


def hashes_of_files(settings: Settings) -> dict[str, str]:
    """Return the hash of each file, or folder of a model, that settings name: what is in it decides the numbers."""
    files = (settings.embedding, settings.projection, settings.mask)
    found = {name: hash_of_file(name)[1] for name in files if name is not None and os.path.isfile(name)}
    if settings.embedding is not None and settings.embedding not in found:
        from attn_cli.vectors.names import path_of  # only for imported names, of which no usual run knows

        path = None if settings.embedding in ("word2vec", "random") else path_of(settings.embedding)
        found |= {} if path is None else {settings.embedding: hash_of_file(path)[1]}
    if settings.model is not None:
        from attn_cli.models.checkpoints.open_model import find_folder  # only for a model on disk

        folder, digest = find_folder(settings.model), blake2b(digest_size=16)
        if os.path.isfile(folder):  # GGUF
            return found | {settings.model: hash_of_file(folder)[1]}
        for name in sorted(os.listdir(folder)):
            path = os.path.join(folder, name)
            if name.endswith(OF_A_MODEL) and os.path.isfile(path):
                digest.update(f"{name} {hash_of_file(path)[1]} ".encode())
        found[settings.model] = digest.hexdigest()
    return found


def _differences(found: Mapping[str, Any], source: Mapping[str, Any], run: Mapping[str, Any]) -> str:
    """Return in words what is not as it was; nothing where all is."""
    if not _same(found["input"], source):
        return "its input was another"
    if _same(found["run"], run):
        return ""
    was, now = ({**one, **_dict(one.get("settings"))} for one in (found["run"], run))
    before, after = _dict(was.get("files")), _dict(now.get("files"))
    changed = [key for key in {*was, *now} - {"settings", "files"} if not _same(was.get(key), now.get(key))]
    changed += [f"{path} was changed" for path in after if path in before and before[path] != after[path]]
    names = [name[:LONGEST_NAME] for name in sorted(changed)[:MOST_NAMES]]
    return f"it was made with other settings ({visible(', '.join(names) or 'settings')})"


def _same(found: Any, ours: Any) -> bool:
    """Tell whether two values are the same JSON, in which True is not 1; what is nested too deep is not ours."""
    try:
        return json.dumps(found, sort_keys=True) == json.dumps(ours, sort_keys=True)
    except RecursionError:
        return False


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def hash_of_file(path: str) -> tuple[int, str]:
    """Return the bytes of a file that the user named, and their hash."""
    with system_errors(FileError, f"Cannot read {visible(path)}"), open(path, "rb") as stream:
        return hash_of(stream)


def hash_of(stream: IO[bytes]) -> tuple[int, str]:
    """Return the bytes that are left in a stream, and their hash."""
    start = stream.tell()
    digest = file_digest(stream, lambda: blake2b(digest_size=16))  # type: ignore[arg-type]
    return stream.tell() - start, digest.hexdigest()
