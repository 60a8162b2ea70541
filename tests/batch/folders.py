"""Folders of parts, and who computes them, for the tests of batch."""

import json
import pickle
from pathlib import Path

from attn_cli.batch import cluster, manifest as manifests, workers
from attn_cli.errors import AttnError

WORDS = ["The", "quick", "brown", "fox", "jumped", "over", "the", "lazy", "dog"]


def write(n: int, name: str = "lines.txt", bad: tuple[int, ...] = ()) -> str:
    """Write n lines of one to nine words, those at `bad` (from 0) without any."""
    lines = ("..." if i in bad else " ".join(WORDS[: 1 + i * 7 % 9]) for i in range(n))
    Path(name).write_text("".join(f"{line}\n" for line in lines))
    return name


def manifest(folder: str = "out") -> dict[str, object]:
    found: dict[str, object] = json.loads(Path(folder, "manifest.json").read_text())
    return found


def ended(about: dict[str, object], start: int, end: int | None = None) -> dict[str, object]:
    """Return a manifest as it was when a run was ended that had written only some of its parts."""
    parts = about["parts"][start:end]
    counts = {key: sum(part[key] for part in parts) for key in ("lines", "refused")}
    return about | counts | {"complete": False, "parts": parts}


def content(folder: str = "out") -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


def records() -> str:
    """Return what the parts hold together; all of them are in the manifest as they are."""
    found, parts = "", manifest()["parts"]
    for part in parts:
        path = f"out/{part['file']}"
        assert manifests.hash_of_file(path) == (part["bytes"], part["blake2b"])
        text = Path(path).read_text()
        assert (part["first"], part["lines"]) == (1 + found.count("\n"), text.count("\n"))
        found += text
    assert set(content()) == {"manifest.json", *(part["file"] for part in parts)}
    return found


class Here(cluster.Dask):
    """In the place of a cluster: tasks are done in this process, and kept in a file."""

    def __enter__(self):
        return self

    def __exit__(self, *raised):
        pass

    def results(self, function, tasks, stop=()):
        found = list(tasks)
        Path("tasks").write_bytes(pickle.dumps(found))
        for number, task in enumerate(found):
            try:
                yield number, workers.on_a_worker(function, *task)
            except AttnError as error:
                yield number, error
