"""The speed of `attn batch`: against an older attn, bare NumPy, other forms and other numbers of processes.

Each row is a pair of commands that are run in turns; the ratio is that of their medians, of seconds of processor time
(user and system, with the processes that they start) and of seconds by the clock.

    python -m tests.bench.batch [--old ATTN] [--lines 20000] [--rounds 3]
    python -m tests.bench.batch --dask 1000000 [--rounds 1]    beside a cluster that is started
    python -m tests.bench.batch --costs                        lines a second, and bytes a line
"""

from __future__ import annotations

import argparse
import os
import resource
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

WORDS = 18  # of a sentence
FLOOR_BATCH = 64  # sentences
ROOT = Path(__file__).parents[2]


class Spent(NamedTuple):
    """Seconds of a processor, and by the clock."""

    processor: float
    clock: float


class Row(NamedTuple):
    """Two commands, and how many times faster the second should be."""

    name: str
    first: list[str]
    second: list[str]
    wanted: float
    by_clock: bool = False


def sentences(n: int) -> list[str]:
    """Return sentences of WORDS words, common words more often, as in a text."""
    from attn_cli.vectors.table import bundled

    words = [word for word in bundled().words()[:8000] if word.isalpha()]
    share = 1 / np.arange(1, len(words) + 1)
    draw = np.random.default_rng(0)
    chosen = draw.choice(len(words), (n, WORDS), p=share / share.sum())
    return [" ".join(words[i] for i in row).capitalize() + "." for row in chosen]


def floor(path: str) -> None:
    """Compute what attn batch computes of the file's lines with bare NumPy in padded batches, and throw it away."""
    from attn_cli.models.model_file import load_model
    from attn_cli.settings.settings import Settings
    from attn_cli.vectors.table import bundled

    table, stack = bundled(), load_model(Settings())
    assert stack is not None
    head = stack.last.heads[0]
    W_q, W_k, W_v = (W.astype(np.float64) for W in (head.W_q, head.W_k, head.W_v))
    assert head.position is not None
    R, b = (M.astype(np.float64) for M in head.position)
    vectors = np.concatenate([table.matrix.astype(np.float64), np.zeros((1, table.dim))])
    places = {word: n for n, word in enumerate(table.words())}
    missing = len(vectors) - 1
    lines = Path(path).read_text().lower().replace(".", "").splitlines()
    for start in range(0, len(lines), FLOOR_BATCH):
        rows = [
            [places.get(word, missing) for word in line.split()]
            for line in lines[start : start + FLOOR_BATCH]
        ]
        n = max(map(len, rows))
        X = vectors[np.array([row + [missing] * (n - len(row)) for row in rows])]
        hidden = np.arange(n) >= np.array([len(row) for row in rows])[:, np.newaxis]
        Q, K, V = X @ W_q, X @ W_k, X @ W_v
        reach = len(R) // 2
        distance = np.clip(np.arange(n) - np.arange(n)[:, np.newaxis], -reach, reach) + reach
        term = (Q @ R.T + b)[:, np.arange(n)[:, np.newaxis], distance]
        scores = (Q @ K.swapaxes(1, 2) + term) / np.sqrt(Q.shape[-1])
        scores = np.where(hidden[:, np.newaxis], -np.inf, scores)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        weights @ V  # thrown away


def spent(command: list[str]) -> Spent:
    """Return what a command takes; it must end well."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    environ = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    subprocess.run(command, check=True, cwd=ROOT, env=environ)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Spent(used, time.perf_counter() - start)


def compare(row: Row, rounds: int) -> str:
    """Return a line with the medians of both commands, and how many times faster the second is."""
    taken: list[tuple[Spent, Spent]] = [(spent(row.first), spent(row.second)) for _ in range(rounds)]
    firsts, seconds = zip(*taken, strict=True)
    at = int(row.by_clock)
    one, other = (statistics.median(side[at] for side in sides) for sides in (firsts, seconds))
    pairs = ", ".join(f"{first[at] / second[at]:.2f}" for first, second in taken)
    what = "clock" if row.by_clock else "processor"
    ratio = f"{one / other:6.2f} ({pairs}), wanted {row.wanted}"
    return f"{row.name:52} {one:8.2f} s {other:8.2f} s ({what})  ratio {ratio}"


def figures(share: float = 1.0) -> Iterator[tuple[str, str, float, float]]:
    """Yield the time of two workers over that of one process, and what it is to be; of that share of the lines."""
    one = "one process"
    rows = [  # what, lines, rounds, the suffix of the output, options, those of the second, times as fast to reach
        ("two workers, summary", 100_000, 3, ".jsonl", ("--fields", "summary"), (), 1.8),
        ("two workers, all fields to Parquet", 30_000, 3, ".parquet", ("--fields", "all"), (), 1.8),
        ("Dask, two workers, summary", 1_000_000, 1, "/", ("--fields", "summary"), ("--engine", "dask"), 1.7),
    ]
    for what, most, rounds, suffix, options, more, times in rows:
        lines = int(most * share)
        with tempfile.TemporaryDirectory() as folder:
            attn = [sys.executable, "-m", "attn_cli", "batch", write(folder, lines), *options]
            first, second = (
                [*attn, "--workers", f"{n}", "-o", f"{folder}/{n}{suffix}", *also]
                for n, also in ((1, ()), (2, more))
            )
            pairs = [(spent(first).clock, spent(second).clock) for _ in range(rounds)]
        yield f"{what}, {lines:,} lines", one, statistics.median(b / a for a, b in pairs), 1 / times


def memory(command: list[str]) -> int:
    """Return the most memory that a command's processes held at once, one process at a time, in KiB."""
    script = (
        "import resource, subprocess, sys\n"
        "subprocess.run(sys.argv[1:], check=True)\n"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, *command], cwd=ROOT, capture_output=True, check=True)
    return int(done.stdout)


def on_dask(folder: str, lines: int, rounds: int) -> None:
    """Print how long two workers of a started cluster take, beside two processes; the bytes must be the same."""
    from tests.machines import Machines

    path = write(folder, lines)
    out = [f"{folder}/one/", f"{folder}/many/"]
    attn = [sys.executable, "-m", "attn_cli", "batch", path, "--fields", "summary", "--force"]
    with Machines(2) as machines:
        dask = [*attn, "--engine", "dask", "--scheduler", machines.address, "-o", out[1]]
        name = f"two processes / Dask, two workers, {lines:,} lines"
        row = Row(name, [*attn, "--workers", "2", "-o", out[0]], dask, 0.8, True)
        print(compare(row, rounds), flush=True)
    names = sorted(os.listdir(out[0]))
    same = names == sorted(os.listdir(out[1])) and all(
        Path(out[0], name).read_bytes() == Path(out[1], name).read_bytes() for name in names
    )
    print(f"{len(names)} files: {'the same bytes' if same else 'OTHER BYTES'}")


def costs(folder: str, lines: int) -> None:
    """Print how many lines a second of a processor takes, and the bytes of a line, with several fields and forms."""
    path = write(folder, lines)
    attn = [sys.executable, "-m", "attn_cli", "batch", path, "--workers", "1"]
    print(f"{'fields':<28}{'form':<12}{'lines a second':>16}{'bytes a line':>16}")
    usual = "query_tokens,key_tokens,weights,summary"
    for fields, form in (
        *((usual, form) for form in ("jsonl", "jsonl.gz", "jsonl.zst", "parquet", "npz")),
        *(("summary", form) for form in ("jsonl", "jsonl.gz", "parquet")),
        *(("query_tokens,weights", form) for form in ("parquet",)),
        *(("all", form) for form in ("jsonl", "jsonl.gz")),
    ):
        out = Path(folder, "out")
        seconds = spent([*attn, "--fields", fields, "-f", form, "-o", f"{out}/", "--force"]).processor
        size = sum(part.stat().st_size for part in out.glob("part-*"))
        name = "as usual" if fields == usual else fields
        print(f"{name:<28}{form:<12}{lines / seconds:>16,.0f}{size / lines:>16,.0f}", flush=True)


def write(folder: str, lines: int) -> str:
    """Write a file of so many sentences, and return its path."""
    path = Path(folder, "lines.txt")
    some = sentences(min(lines, 20_000))
    path.write_text("".join(f"{some[n % len(some)]}\n" for n in range(lines)))
    return str(path)


def halves(path: str, command: list[str]) -> list[str]:
    """Return a command that runs `command` twice at once, with a half of the lines each: what the machine can do."""
    lines = Path(path).read_text().splitlines(keepends=True)
    middle = len(lines) // 2
    runs = []
    for name, part in (("first", lines[:middle]), ("second", lines[middle:])):
        Path(f"{path}.{name}").write_text("".join(part))
        own = [word.replace(path, f"{path}.{name}") for word in command]
        runs.append(shlex.join([*own[:-1], f"{own[-1]}.{name}.jsonl"]))
    return ["sh", "-c", f"{' & '.join(runs)} & wait"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--old", help="an older attn to compare with")
    parser.add_argument("--lines", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--many", type=int, default=0, help="lines of the long run whose memory is measured")
    parser.add_argument("--floor", metavar="FILE", help="compute the floor of this file, and nothing else")
    parser.add_argument(
        "--dask", type=int, metavar="LINES", help="compare with a Dask cluster, and nothing else"
    )
    parser.add_argument("--costs", action="store_true", help="print costs, and nothing else")
    given = parser.parse_args()
    if given.dask or given.costs:
        with tempfile.TemporaryDirectory() as folder:
            if given.dask:
                on_dask(folder, given.dask, given.rounds)
            if given.costs:
                costs(folder, given.lines)
        return
    if given.floor:
        floor(given.floor)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "lines.txt"))
        Path(path).write_text("".join(f"{line}\n" for line in sentences(given.lines)))
        out = [str(Path(folder, name)) for name in ("out.jsonl", "out.parquet", "old.jsonl")]
        attn = [sys.executable, "-m", "attn_cli", "batch", path, "--workers"]
        summary = [*attn, "1", "--fields", "summary", "-o", out[0]]
        whole = [*attn, "1", "--fields", "all", "-o", out[0]]
        columns = [*attn, "1", "--fields", "query_tokens,weights", "-o", out[1]]
        two = [*attn, "2", "--fields", "summary", "-o", out[0]]
        bare = [sys.executable, "-m", "tests.bench.batch", "--floor", path]
        rows = [
            Row("all fields as JSON Lines / Parquet, tokens and weights", whole, columns, 3),
            Row("one process / two workers", summary, two, 1.8, True),
            Row(
                "one process / two at once, each with half the lines",
                summary,
                halves(path, summary),
                1.8,
                True,
            ),
            Row("bare NumPy / --fields summary (1/3 or more)", bare, summary, 0.33),
        ]
        if given.old:
            old = [given.old, "batch", path, "-o", out[2]]
            rows = [
                Row("older attn / --fields summary", old, summary, 15),
                Row("older attn / all fields", old, whole, 5),
                *rows,
            ]
        for row in rows:
            print(compare(row, given.rounds), flush=True)
        spent(whole)
        sizes = [os.path.getsize(name) for name in out[:2]]
        print(
            f"bytes: {sizes[0]:,} all fields, {sizes[1]:,} Parquet: {sizes[0] / sizes[1]:.1f} times, wanted 5"
        )
        if given.many:
            few = memory([*attn, "1", "--fields", "summary", "-o", os.devnull])
            Path(path).write_text(
                "".join(f"{line}\n" for line in sentences(given.lines)) * (given.many // given.lines)
            )
            many = memory([*attn, "1", "--fields", "summary", "-o", os.devnull])
            told = f"{few:,} KiB at {given.lines:,} lines, {many:,} at {given.many:,}"
            print(f"memory: {told}: {many / few:.3f}, wanted 1.05")


if __name__ == "__main__":
    main()
