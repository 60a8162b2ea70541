"""Faults while vectors are imported and read: `python -m tests.fuzz.kill [--runs N]`.

Killed at any moment, interrupted, not allowed to write, a file that changes under its reader. What is promised: the
user's file is as it was, and the cache holds a sound index, or none. Full disks are a matter of tests/faults.
"""

import argparse
import contextlib
import hashlib
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
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple
from unittest import mock

import numpy as np

from attn_cli.errors import AttnError
from attn_cli.io.array_files import read_safetensors
from attn_cli.vectors import detect, open_vectors as cache
from attn_cli.vectors.table import SourceFile
from tests.shell import COMMAND, ROOT, surroundings

LINES = 100_000  # of 20 numbers: some 20 MB
DIM = 20
NOISE = ("Traceback", "A bug in attn", "Warning")


class Stage(NamedTuple):
    """A folder with a large file of vectors, and the places that attn keeps things in."""

    folder: Path
    file: Path
    lines: int
    digest: str

    @property
    def cache(self) -> Path:
        return self.folder / "cache" / "attn" / "vectors"

    @property
    def data(self) -> Path:
        return self.folder / "data" / "attn" / "vectors"

    @property
    def places(self) -> dict[str, str]:
        """Where this run keeps things, as variables."""
        return {f"XDG_{name.upper()}_HOME": str(self.folder / name) for name in ("cache", "data")}


class Told(NamedTuple):
    """What one kind of fault came to: how many runs, how they ended, and what was lost."""

    fault: str
    runs: int
    ends: Counter[str]
    lost: list[str]


def row(line: int) -> np.ndarray:
    return np.arange(DIM) * 0.125 - line


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@contextlib.contextmanager
def stage(lines: int = LINES) -> Iterator[Stage]:
    with tempfile.TemporaryDirectory(prefix="attn-kill-") as made:
        file = Path(made, "words.txt")
        with file.open("w") as stream:
            for line in range(lines):
                stream.write(f"w{line} {' '.join(f'{number:.4f}' for number in row(line))}\n")
        yield Stage(Path(made), file, lines, digest(file))


def started(on: Stage, *args: str, preexec: Callable[[], None] | None = None) -> subprocess.Popen[bytes]:
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(
        [*COMMAND, *args], env=surroundings(on.places), cwd=ROOT, preexec_fn=preexec, **pipes
    )


def ended(process: subprocess.Popen[bytes]) -> tuple[str, str]:
    try:
        _, said = process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return "hang", ""
    code = process.returncode
    return (f"signal {-code}" if code < 0 else f"exit {code}"), said.decode("utf-8", "replace")


def importing(on: Stage, preexec: Callable[[], None] | None = None) -> subprocess.Popen[bytes]:
    return started(on, "vectors", "import", str(on.file), "--name", "x", preexec=preexec)


def unsound(on: Stage) -> list[str]:
    """Return what is wrong after a fault: with the file, the index, a lookup, or the folders."""
    wrong = [] if digest(on.file) == on.digest else ["the user's file changed"]
    with mock.patch.dict(os.environ, on.places):
        wrong += filter(None, (_index_wrong(on, path) for path in on.cache.glob("*.index")))
        wrong += _lookup_wrong(on)
    for folder in (on.cache, on.data):
        names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
        wrong += [
            f"{name} is left" for name in names if not re.fullmatch(r".*\.(index|json)|\..*\.part", name)
        ]
    return wrong


def _index_wrong(on: Stage, path: Path) -> str:
    """Tell what is wrong with a kept index; of one that is of a file as it is now, every place is compared."""
    try:
        places = sorted(read_safetensors(path)[0]["offsets"].tolist())
    except (AttnError, KeyError) as error:
        return f"no sound index is kept: {error!r}"
    source = SourceFile.at(on.file)
    taken = str(cache.index_path(source.path)) == str(path) and cache.WordIndex.of(source, "text")
    lengths = [len(line) + 1 for line in on.file.read_bytes().split(b"\n")]
    is_right = places == [0, *itertools.accumulate(lengths[:-2])]
    return "the kept index has wrong places" if taken and not is_right else ""


def _lookup_wrong(on: Stage) -> list[str]:
    right = {f"w{line}": row(line).tolist() for line in (on.lines // 2, on.lines - 1)}
    found = detect.open_file(str(on.file)).find((*right, f"w{on.lines}"))
    is_right = {word: vector.tolist() for word, vector in found.items()} == right
    return [] if is_right else [f"a lookup gives {found}"]


def held(on: Stage) -> str:
    indexes = len([*on.cache.glob("*.index")])
    parts = len([*on.cache.glob(".*.part"), *on.data.glob(".*.part")])
    return f"{indexes} index, {'named' if [*on.data.glob('*.json')] else 'no name'}, {parts} .part"


def noise(said: str) -> list[str]:
    return [f"it says {said[-300:]!r}"] if any(word in said for word in NOISE) else []


def cleared(on: Stage) -> None:
    for name in ("cache", "data"):
        shutil.rmtree(on.folder / name, ignore_errors=True)


def duration(on: Stage) -> float:
    """Return how long an import takes from start to end, in seconds: the second of two."""
    for _ in range(2):
        cleared(on)
        start = time.monotonic()
        end, said = ended(importing(on))
        if end != "exit 0":
            raise SystemExit(f"An import without any fault ends with {end}: {said}")
    return time.monotonic() - start


def killed(on: Stage, runs: int, number: int, seed: int, taken: float) -> Told:
    """Send a signal at random moments, with an older index in place in half of the runs."""
    rng, told = Random(seed), Told(signal.Signals(number).name, runs, Counter(), [])
    for run in range(runs):
        is_older = run % 2 == 0
        prepare(on, is_older)
        process = importing(on)
        _wait(on, process, rng, taken, is_writing=run % 4 > 1)
        process.send_signal(number)
        end, said = ended(process)
        wrong = unsound(on)
        if number == signal.SIGINT:
            end = "before attn began" if _before_attn(end, said) else end
            wrong += [] if end in ("exit 130", "exit 0", "before attn began") else [f"{end}: {said[-200:]}"]
            wrong += [] if held(on).endswith(" 0 .part") else ["an interrupted run leaves a .part"]
        wrong += [] if end == "before attn began" else noise(said)
        told.ends[f"{end}, {'older' if is_older else 'none'} before: {held(on)}"] += 1
        told.lost.extend(f"run {run}: {what}" for what in wrong)
    return told


def _wait(on: Stage, process: subprocess.Popen[bytes], rng: Random, taken: float, is_writing: bool) -> None:
    """Wait for a random moment of the whole run, or for one just after it began to write an index or a name."""
    if not is_writing:
        time.sleep(rng.uniform(0, 1.5 * taken))
        return
    folder = on.cache if rng.random() < 0.6 else on.data
    while process.poll() is None and not [*folder.glob(".*.part")]:
        time.sleep(0.0002)
    time.sleep(rng.uniform(0, 0.004))


def _before_attn(end: str, said: str) -> bool:
    """Tell whether an interrupt met Python itself while it started: no line of attn's is in the traceback."""
    if not said:
        return end == "signal 2"
    return "KeyboardInterrupt" in said and "attn_cli" not in said


def prepare(on: Stage, is_older: bool) -> None:
    """Clear all, or let there be an index of the file as it was a moment ago."""
    for left in [*on.cache.glob(".*.part"), *on.data.glob(".*.part")]:
        left.unlink()
    if not (is_older and [*on.cache.glob("*.index")]):  # of an earlier run
        cleared(on)
        if is_older:
            ended(importing(on))
    os.utime(on.file)  # what is kept is now out of date


def not_allowed(on: Stage) -> Told:
    """The cache cannot be written to, is not a folder, or cannot even be made."""
    told, place = Told("no place to write", len(UNUSABLE), Counter(), []), on.folder / "cache"
    for kind, make in UNUSABLE.items():
        cleared(on)
        make(on, place)
        end, said = ended(importing(on, _bound if os.geteuid() == 0 else None))
        told.ends[f"{kind}: {end}"] += 1
        told.lost.extend(noise(said) + ([] if end.startswith("exit") else [f"{end}: {said}"]))
        if place.is_symlink() or place.is_file():
            place.unlink()
        elif place.is_dir():
            place.chmod(0o700)
        told.lost.extend(unsound(on))
    return told


def _lock(on: Stage, place: Path) -> None:
    on.cache.mkdir(parents=True)
    on.folder.chmod(0o755)
    on.cache.chmod(0o500)


UNUSABLE: dict[str, Callable[[Stage, Path], object]] = {
    "a folder that is locked": _lock,
    "a file in its place": lambda on, place: place.write_text(""),
    "a broken link": lambda on, place: place.symlink_to(on.folder / "nowhere" / "at all"),
    "no home": lambda on, place: place.mkdir(mode=0o000),
}


def _bound() -> None:
    """Let a folder's permissions bind root too, from the next program on: the two powers to ignore them are dropped."""
    import ctypes

    for power in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
        ctypes.CDLL(None).prctl(24, power, 0, 0, 0)  # PR_CAPBSET_DROP


def changing(on: Stage, runs: int, seed: int) -> Told:
    """The file shrinks, grows and is rewritten while words are looked up in it."""
    rng, told = Random(seed), Told("a file that changes", runs, Counter(), [])
    whole, sound = on.file.read_bytes(), on.folder / "sound.txt"
    cleared(on)
    for run in range(0, runs, 4):
        nearest = ("nearest", f"w{rng.randrange(on.lines)}", "-e", str(on.file), "--top", "3")
        kinds = (nearest, ("info", str(on.file)), ("import", str(on.file), "--name", "x"))
        verbs = rng.choices(kinds, k=4)
        started_now = [started(on, "vectors", *verb) for verb in verbs]
        while any(process.poll() is None for process in started_now):
            _rewrite(on.file, whole, sound, rng)
            time.sleep(rng.choice((0.01, 0.1, 0.5)))
        for verb, process in zip(verbs, started_now, strict=True):
            end, said = ended(process)
            told.ends[end] += 1
            allowed = end in ("exit 0", "exit 65", "exit 66")
            told.lost.extend(noise(said) + ([] if allowed else [f"run {run} {verb}: {end}: {said[-300:]}"]))
    on.file.write_bytes(whole)
    told.lost.extend(unsound(on))
    return told


def _rewrite(file: Path, whole: bytes, beside: Path, rng: Random) -> None:
    match rng.randrange(5):
        case 0:
            os.truncate(file, rng.randrange(len(whole)))
        case 1:
            beside.write_bytes(whole[: rng.randrange(len(whole))])
            os.replace(beside, file)
        case 2:
            with file.open("r+b") as stream:
                stream.seek(rng.randrange(max(1, file.stat().st_size)))
                stream.write(rng.randbytes(4096))
        case kind:
            if kind == 3:
                file.unlink()
            file.write_bytes(whole)


def shown(told: Told) -> None:
    print(f"{told.fault:<30}{told.runs:>5} runs{len(told.lost):>5} lost")
    for end, count in sorted(told.ends.items()):
        print(f"    {count:>5}  {end}")
    for lost, count in Counter(told.lost).most_common(12):
        print(f"    LOST {count} times: {lost}")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.kill", description=__doc__)
    parser.add_argument("--runs", type=int, default=200, help="kills; the other faults go with them")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    began, losses = time.monotonic(), 0
    with stage() as on:
        taken = duration(on)
        print(f"an import of {on.file.stat().st_size:,} bytes takes {taken:.2f} s")
        for fault, *args in (
            (killed, asked.runs, signal.SIGKILL, asked.seed, taken),
            (killed, asked.runs // 4, signal.SIGINT, asked.seed + 1, taken),
            (not_allowed,),
            (changing, asked.runs, asked.seed + 2),
        ):
            told = fault(on, *args)
            losses += len(told.lost)
            shown(told)
    print(f"{losses} lost in {time.monotonic() - began:.0f} s; seed {asked.seed}")
    return 1 if losses else 0


if __name__ == "__main__":
    sys.exit(main())
