"""Faults while vectors are imported and read: `python -m tests.fuzz.kill [--runs N]`.

Whatever happens, the user's file is as it was, and the cache holds a sound index, or none.
"""

import contextlib
import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple
from unittest import mock

import numpy as np
import typer

from attn_cli.errors import AttnError
from attn_cli.io.array_files import read_safetensors
from attn_cli.vectors import SourceFile, detect, open_vectors as cache
from tests.shell import ROOT, started

LINES = 100_000  # of 20 numbers: some 20 MB
DIM = 20
NOISE = ("Traceback", "A bug in attn", "Warning")
Outcome = tuple[str, list[str]]  # how a run ended, and what was lost


class Stage(NamedTuple):
    """A folder with a large file of vectors, and the places that attn keeps things in."""

    folder: Path
    content: bytes  # of the file
    lines: int

    @property
    def file(self) -> Path:
        return self.folder / "words.txt"

    @property
    def places(self) -> dict[str, str]:
        return {f"XDG_{name.upper()}_HOME": str(self.folder / name) for name in ("cache", "data")}

    def kept(self, pattern: str) -> list[Path]:
        return [*self.folder.glob(f"*/attn/vectors/{pattern}")]

    def clear(self) -> None:
        for name in ("cache", "data"):
            shutil.rmtree(self.folder / name, ignore_errors=True)

    def run(self, *args: str) -> subprocess.Popen:
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return started("vectors", *args, env=self.places, cwd=ROOT, **pipes)

    def importing(self) -> subprocess.Popen:
        return self.run("import", str(self.file), "--name", "x")


def row(line: int) -> np.ndarray:
    return np.arange(DIM) * 0.125 - line


@contextlib.contextmanager
def stage(lines: int = LINES) -> Iterator[Stage]:
    with tempfile.TemporaryDirectory(prefix="attn-kill-") as made:
        rows = (f"w{line} {' '.join(f'{number:.4f}' for number in row(line))}\n" for line in range(lines))
        on = Stage(Path(made), "".join(rows).encode(), lines)
        on.file.write_bytes(on.content)
        yield on


def ended(process: subprocess.Popen) -> tuple[str, str]:
    _, said = process.communicate(timeout=60)  # a run that hangs ends the campaign
    code = process.returncode
    return (f"signal {-code}" if code < 0 else f"exit {code}"), said.decode("utf-8", "replace")


def unsound(on: Stage) -> list[str]:
    """Return what is wrong after a fault: with the file, the index, a lookup, or the folders."""
    wrong = [] if on.file.read_bytes() == on.content else ["the user's file changed"]
    with mock.patch.dict(os.environ, on.places):
        wrong += filter(None, (_index_wrong(on, path) for path in on.kept("*.index")))
        right = {f"w{line}": row(line).tolist() for line in (on.lines // 2, on.lines - 1)}
        found = detect.open_file(str(on.file)).find((*right, f"w{on.lines}"))
        if {word: vector.tolist() for word, vector in found.items()} != right:
            wrong.append(f"a lookup gives {found}")
    known = re.compile(r".*\.(index|json)|\..*\.part")
    return wrong + [f"{one} is left" for one in on.kept("*") if not known.fullmatch(one.name)]


def _index_wrong(on: Stage, path: Path) -> str:
    """Tell what is wrong with a kept index; of one that is of a file as it is now, every place is compared."""
    try:
        places = sorted(read_safetensors(path)[0]["offsets"].tolist())
    except (AttnError, KeyError) as error:
        return f"no sound index is kept: {error!r}"
    source = SourceFile.at(on.file)
    taken = str(cache.index_path(source.path)) == str(path) and cache.WordIndex.of(source, "text")
    right = itertools.accumulate(map(len, on.content.splitlines(keepends=True)), initial=0)
    return "the kept index has wrong places" if taken and places != [*right][:-1] else ""


def noise(said: str) -> list[str]:
    return [f"it says {said[-300:]!r}"] if any(word in said for word in NOISE) else []


def duration(on: Stage) -> float:
    """Return how long an import takes from start to end, in seconds."""
    on.clear()
    start = time.monotonic()
    end, said = ended(on.importing())
    assert end == "exit 0", said
    return time.monotonic() - start


def killed(on: Stage, runs: int, number: int, seed: int, taken: float) -> Iterator[Outcome]:
    """Send a signal at random moments, with an older index in place in half of the runs."""
    rng = Random(seed)
    for run in range(runs):
        is_older = run % 2 == 0
        for left in on.kept(".*.part"):
            left.unlink()
        if not (is_older and on.kept("*.index")):  # of an earlier run
            on.clear()
            if is_older:
                ended(on.importing())
        os.utime(on.file)  # what is kept is now out of date
        process = on.importing()
        _wait(on, process, rng, taken, is_writing=run % 4 > 1)
        process.send_signal(number)
        end, said = ended(process)
        wrong = unsound(on)
        if number == signal.SIGINT:
            # No line of attn's is in the traceback: Python itself was starting.
            is_before = "KeyboardInterrupt" in said and "attn_cli" not in said if said else end == "signal 2"
            end = "before attn began" if is_before else end
            wrong += [] if end in ("exit 130", "exit 0", "before attn began") else [f"{end}: {said[-200:]}"]
            wrong += ["an interrupted run leaves a .part"] if on.kept(".*.part") else []
        wrong += [] if end == "before attn began" else noise(said)
        yield end, [f"run {run}: {one}" for one in wrong]


def _wait(on: Stage, process: subprocess.Popen, rng: Random, taken: float, is_writing: bool) -> None:
    """Wait for a random moment of the whole run, or for one just after it began to write an index or a name."""
    if not is_writing:
        time.sleep(rng.uniform(0, 1.5 * taken))
        return
    folder = "cache" if rng.random() < 0.6 else "data"
    while process.poll() is None and not [*on.folder.glob(f"{folder}/attn/vectors/.*.part")]:
        time.sleep(0.0002)
    time.sleep(rng.uniform(0, 0.004))


def changing(on: Stage, runs: int, seed: int) -> Iterator[Outcome]:
    """The file shrinks, grows and is rewritten while words are looked up in it."""
    rng = Random(seed)
    on.clear()
    for _ in range(0, runs, 4):
        nearest = ("nearest", f"w{rng.randrange(on.lines)}", "-e", str(on.file), "--top", "3")
        kinds = (nearest, ("info", str(on.file)), ("import", str(on.file), "--name", "x"))
        running = [on.run(*verb) for verb in rng.choices(kinds, k=4)]
        while any(process.poll() is None for process in running):
            _rewrite(on, rng)
            time.sleep(rng.choice((0.01, 0.1, 0.5)))
        for end, said in map(ended, running):
            is_allowed = end in ("exit 0", "exit 65", "exit 66")
            yield end, noise(said) + ([] if is_allowed else [f"{end}: {said[-300:]}"])
    on.file.write_bytes(on.content)
    yield "all is as it was", unsound(on)


def _rewrite(on: Stage, rng: Random) -> None:
    beside, some = on.folder / "sound.txt", rng.randrange(len(on.content))
    match rng.randrange(5):
        case 0:
            os.truncate(on.file, some)
        case 1:
            beside.write_bytes(on.content[:some])
            os.replace(beside, on.file)
        case 2:
            with on.file.open("r+b") as stream:
                stream.seek(rng.randrange(max(1, on.file.stat().st_size)))
                stream.write(rng.randbytes(4096))
        case kind:
            if kind == 3:
                on.file.unlink()
            on.file.write_bytes(on.content)


def shown(fault: str, outcomes: Iterator[Outcome]) -> int:
    told = [*outcomes]
    lost = [one for _, wrong in told for one in wrong]
    print(f"{fault:<30}{len(told):>5} runs{len(lost):>5} lost")
    for end, count in sorted(Counter(end for end, _ in told).items()):
        print(f"    {count:>5}  {end}")
    for one, count in Counter(lost).most_common(12):
        print(f"    LOST {count} times: {one}")
    sys.stdout.flush()
    return len(lost)


def main(runs: int = 200, seed: int = 1) -> None:
    """Kill so many times; the other faults go with it."""
    with stage() as on:
        taken = duration(on)
        losses = shown("SIGKILL", killed(on, runs, signal.SIGKILL, seed, taken))
        losses += shown("SIGINT", killed(on, runs // 4, signal.SIGINT, seed + 1, taken))
        losses += shown("a file that changes", changing(on, runs, seed + 2))
    print(f"{losses} lost; seed {seed}")
    sys.exit(bool(losses))


if __name__ == "__main__":
    typer.run(main)
