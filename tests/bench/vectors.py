"""Word vectors of real size: lookup, index and reading beside gensim: `python -m tests.bench.vectors [FOLDER]`.

It makes a text of 400,000 words x 50 and a word2vec binary of 3,000,000 x 300 (4 GB in FOLDER, else in a temporary
folder), and takes about ten minutes. CPU seconds of whole processes, one BLAS thread, compiled modules cached.
"""

import os
import statistics
import sys
import tempfile
from pathlib import Path

import numpy as np

from tests.bench.opponents import GENSIM_BINARY, GENSIM_TEXT, NUMPY
from tests.bench.startup import cpu

TEXT, BINARY = (400_000, 50), (3_000_000, 300)
PART = 20_000
ROUNDS = {"text": 5, "binary": 3}
OPEN = "import sys; from attn_cli.vectors.detect import open_file as o; v = o(sys.argv[1]); "
FIND = [sys.executable, "-c", OPEN + "v.find(sys.argv[2:])"]
BUILD = [sys.executable, "-c", OPEN + "v.encoded_index()"]
KEEP = [sys.executable, "-c", OPEN + "from attn_cli.vectors.open_vectors import keep_index as k; k(v)"]
READ = [sys.executable, "-c", OPEN + "[*v.rows()]"]
PEAK = "; print([line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')][0])"


def words(count: int) -> list[bytes]:
    """Return distinct words of 4 to 12 letters and a number."""
    draw = np.random.default_rng(0)
    lengths, letters = draw.integers(4, 13, count), draw.integers(97, 123, (count, 12), dtype=np.uint8)
    return [row[:n].tobytes() + b"%d" % i for i, (row, n) in enumerate(zip(letters, lengths, strict=True))]


def make(path: Path, count: int, dim: int, binary: bool) -> list[str]:
    """Write a file of random vectors, and return ten of its words, spread over it."""
    named = words(count)
    draw = np.random.default_rng(1)
    with path.open("wb") as stream:
        stream.write(b"%d %d\n" % (count, dim) if binary else b"")
        for start in range(0, count, PART):
            matrix = draw.standard_normal((PART, dim), dtype=np.float32)
            for word, row in zip(named[start : start + PART], matrix, strict=True):
                numbers = row.tobytes() if binary else b" ".join([b"%.5f" % x for x in row.tolist()]) + b"\n"
                stream.write(word + b" " + numbers)
    return [word.decode() for word in named[:: count // 10][:10]]


def peak(code: str, *args: str) -> int:
    """Return the largest resident memory of `python -c code`, in KiB."""
    import subprocess

    command = [sys.executable, "-c", code + PEAK, *args]
    return int(subprocess.run(command, capture_output=True, check=True).stdout)


def ratios(path: Path, gensim: list[str], jobs: dict[str, list[str]], rounds: int) -> dict[str, list[float]]:
    """Return each job's CPU over that of gensim's load, round by round."""
    found: dict[str, list[float]] = {name: [] for name in jobs}
    for _ in range(rounds):
        warm(path)
        whole = cpu([*gensim, str(path)])
        for name, command in jobs.items():
            warm(path)
            found[name].append(cpu(command) / whole)
    return found


def warm(path: Path) -> None:
    """Read a file once, so that neither side pays for the disk."""
    with path.open("rb", buffering=0) as file:
        while file.read(1 << 24):
            pass


def rows(folder: Path) -> list[tuple[str, str, float, float]]:
    """Return (case, opponent, median ratio, ratio to reach)."""
    os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
    found: list[tuple[str, str, float, float]] = []
    text, binary = folder / "text.txt", folder / "binary.bin"
    make(text, *TEXT, binary=False)
    some = make(binary, *BINARY, binary=True)
    jobs = {
        "no index, absent word, text": [*FIND, str(text), "absent"],
        "index build, text": [*BUILD, str(text)],
        "whole text to float32": [*READ, str(text)],
    }
    limits = dict(zip(jobs, (1 / 40, 1 / 30, 1 / 8), strict=True))
    for name, values in ratios(text, GENSIM_TEXT, jobs, ROUNDS["text"]).items():
        found.append((name, "gensim's load", statistics.median(values), limits[name]))
    jobs = {
        "no index, absent word, .bin": [*FIND, str(binary), "absent"],
        "index build, .bin": [*BUILD, str(binary)],
    }
    limits = dict(zip(jobs, (1 / 25, 1 / 9), strict=True))
    for name, values in ratios(binary, GENSIM_BINARY, jobs, ROUNDS["binary"]).items():
        found.append((name, "gensim's load", statistics.median(values), limits[name]))
    cpu([*KEEP, str(binary)])
    find, numpy = [*FIND, str(binary), *some], NUMPY
    cpu(find), cpu(numpy)
    values = [cpu(find) / cpu(numpy) for _ in range(21)]
    found.append(("10 words by index, .bin", "python import numpy", statistics.median(values), 1.15))
    above = [peak(OPEN + "v.find(sys.argv[2:])", str(binary), *some) - peak("import numpy") for _ in range(7)]
    found.append(("  the same: MiB above it", "python import numpy", statistics.median(above) / 1024, 8.0))
    return found


def main() -> None:
    """Print the table."""
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as folder:
        print(f"{'what':<30}{'against':<22}{'ratio':>8}{'1 in':>7}{'to reach':>10}")
        for name, against, ratio, limit in rows(Path(folder)):
            verdict = "" if ratio <= limit else "  missed"
            print(f"{name:<30}{against:<22}{ratio:>8.4f}{1 / ratio:>7.1f}{limit:>10.4f}{verdict}")


if __name__ == "__main__":
    main()
