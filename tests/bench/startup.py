"""Whole processes: the CPU time of attn over that of Python itself and of the libraries that it loads."""

import sys
from collections.abc import Iterator

from tests.bench.row import ATTN, Row, compared

CAT, FOX = "The cat sat on the mat", "The quick brown fox jumped over the lazy dog"
DRAWN, DEEP = ("--color", "always"), ("-p", "roles-deep", "--color", "always")
# What whole processes are measured against; the libraries are those that `attn self` computes and draws with.
PASS, NUMPY, LIBRARIES = "pass", "import numpy", "import its libraries"
CODE = {PASS: PASS, NUMPY: NUMPY, LIBRARIES: "import numpy, typer, rich.segment"}
OPPONENTS = {name: [sys.executable, "-c", code] for name, code in CODE.items()}
CASES = (
    ("self", ("self", CAT, *DRAWN), LIBRARIES, 1.08),
    ("explain", ("explain", FOX, *DRAWN), LIBRARIES, 1.2),
    ("explain, json", ("explain", FOX, "-f", "json"), LIBRARIES, 1.05),
    ("self, deep", ("self", CAT, *DEEP), NUMPY, 1.3 * 1.6),
    ("explain, deep", ("explain", FOX, *DEEP), NUMPY, 1.3 * 2.0),
    ("--help", ("--help",), NUMPY, 1.5),
    ("--version", ("--version",), PASS, 1.5),
)


def rows(pairs: int = 15) -> Iterator[Row]:
    for name, args, opponent, limit in CASES:
        yield compared(f"attn {name}, CPU", [*ATTN, *args], opponent, OPPONENTS[opponent], limit, pairs)
