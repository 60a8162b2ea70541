"""Word vectors of real size: lookup, index and reading beside gensim, in CPU seconds of whole processes.

They are a text of 400,000 words x 50 and a word2vec binary of 3,000,000 x 300: 4 GB of disk, and ten minutes.
"""

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tests.bench.row import Row, compared, peak, ran
from tests.bench.startup import NUMPY, OPPONENTS

TEXT, BINARY = (400_000, 50), (3_000_000, 300)
PART = 20_000
OPEN = "import sys; from attn_cli.vectors.detect import open_file as o; v = o(sys.argv[1]); "
FIND, BUILD, READ = (OPEN + code for code in ("v.find(sys.argv[2:])", "v.indexed()", "[*v.rows()]"))
KEEP = OPEN + "from attn_cli.vectors.open_vectors import keep_index as k; k(v)"
LOAD = "import sys; from gensim.models import KeyedVectors as K; K.load_word2vec_format(sys.argv[1], {})"


def make(path: Path, count: int, dim: int, binary: bool) -> list[str]:
    """Write a file of random vectors of distinct words, and return ten of these, spread over it."""
    draw = np.random.default_rng(0)
    lengths, letters = draw.integers(4, 13, count), draw.integers(97, 123, (count, 12), dtype=np.uint8)
    named = [row[:n].tobytes() + b"%d" % i for i, (row, n) in enumerate(zip(letters, lengths, strict=True))]
    with path.open("wb") as stream:
        stream.write(b"%d %d\n" % (count, dim) if binary else b"")
        for start in range(0, count, PART):
            matrix = draw.standard_normal((PART, dim), dtype=np.float32)
            for word, row in zip(named[start : start + PART], matrix, strict=False):
                numbers = row.tobytes() if binary else b" ".join([b"%.5f" % x for x in row.tolist()]) + b"\n"
                stream.write(word + b" " + numbers)
    return [word.decode() for word in named[:: count // 10][:10]]


def from_memory(command: list[str]) -> float:
    """Return the CPU seconds of a command on a file, which is read once before: neither side pays for the disk."""
    with open(command[3], "rb", buffering=0) as file:
        while file.read(1 << 24):
            pass
    return ran(command).cpu


def rows(pairs: int = 3) -> Iterator[Row]:
    def of(path: Path, code: str, *more: str) -> list[str]:
        return [sys.executable, "-c", code, str(path), *more]

    with tempfile.TemporaryDirectory() as name:
        os.environ["XDG_CACHE_HOME"] = f"{name}/cache"
        text, binary = Path(name, "text.txt"), Path(name, "binary.bin")
        make(text, *TEXT, binary=False)
        some = make(binary, *BINARY, binary=True)
        find, build = ("absent word, no index", FIND), ("index build", BUILD)
        for path, option, jobs, limits in (
            (text, "no_header=True", (find, build, ("whole file to float32", READ)), (1 / 40, 1 / 30, 1 / 8)),
            (binary, "binary=True", (find, build), (1 / 25, 1 / 9)),
        ):
            codes = LOAD.format(option), *(code for _, code in jobs)
            rounds = [[from_memory(of(path, code, "absent")) for code in codes] for _ in range(pairs)]
            theirs, *ours = map(list, zip(*rounds, strict=True))
            for (what, _), seconds, to_reach in zip(jobs, ours, limits, strict=True):
                yield Row(f"{what}, {path.name}", "gensim's load", seconds, theirs, to_reach)
        ran(of(binary, KEEP))
        find, numpy = of(binary, FIND, *some), OPPONENTS[NUMPY]
        yield compared("10 words by index, binary.bin", find, NUMPY, numpy, 1.15, 7 * pairs)
        above = [peak(find) - peak(numpy) for _ in range(7)]
        yield Row("the same: peak above import numpy", "-", above, [], 8 << 20, "B")
