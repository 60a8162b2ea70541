"""The two sides of a race: attn and its opponent, each at its fastest, on the same numbers.

Their answers are compared before anything is timed: a fast wrong answer is worth nothing.
"""

import io
import math
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from attn_cli.core import streaming
from attn_cli.core.attend import attend, strongest_links
from attn_cli.errors import AttnError
from attn_cli.io.terminal import TRUECOLOR, Terminal
from attn_cli.render import Matrix
from attn_cli.render.numbers import weight
from attn_cli.render.ramps import shades
from attn_cli.render.screen.grid import Grid
from tests.shell import plain

Side = Callable[[], object]
RELATIVE, ABSOLUTE = (
    1e-4,
    (2e-5, 1e-8),
)  # for float32; an output sums numbers of both signs, weights have none
ROWS = 256  # whose links are checked
TOP = 5  # links of each row
LABEL, CELL, DIGITS = 12, 5, 3  # of a drawing
NUMBER = re.compile(r"(?<![\w.])(?:\.\d+|1\.00)")


class Case(NamedTuple):
    """One thing to measure: its part of the benchmark, what attn does, against whom, the ratio to reach, how large."""

    group: str
    job: str
    against: str
    to_reach: float | None
    tokens: int
    heads: int = 1
    dim: int = 64
    causal: bool = False


class Sides(NamedTuple):
    ours: Side
    theirs: Side
    check: Callable[[], None] = lambda: None  # compares their answers before anything is timed
    around: Callable[[], AbstractContextManager[None]] = nullcontext  # entered while they are timed


def numbers(case: Case) -> list[np.ndarray]:
    shape = (case.heads, case.tokens, case.dim) if case.heads > 1 else (case.tokens, case.dim)
    draw = np.random.default_rng(0)
    return [draw.standard_normal(shape, dtype=np.float32) for _ in "QKV"]


def pytorch():
    """Return the module torch, or None where it is not installed, or broken."""
    try:
        import torch  # takes a second or two
    except (ImportError, OSError):
        return None
    return torch


def ours(case: Case, threads: int) -> Side:
    Q, K, V = numbers(case)
    mask = "causal" if case.causal else None
    if case.job == "links":
        return lambda: strongest_links(Q, K, V, TOP, mask, threads=threads)
    wanted = case.job == "weights"
    return lambda: attend(Q, K, V, mask, return_weights=wanted, threads=threads)


def textbook(case: Case, threads: int) -> Sides:
    """Return attn, and the textbook formula in NumPy; the mask is made beforehand."""
    Q, K, V = numbers(case)
    root = np.float32(math.sqrt(case.dim))
    hidden = np.triu(np.ones((case.tokens, case.tokens), bool), 1) if case.causal else None

    def theirs():
        scores = Q @ np.swapaxes(K, -1, -2) / root
        if hidden is not None:
            np.copyto(scores, -np.inf, where=hidden)
        exps = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights = exps / exps.sum(axis=-1, keepdims=True)
        return weights, weights @ V

    return _checked(ours(case, threads), theirs)


def explicit(case: Case, threads: int) -> Sides:
    """Return attn, and PyTorch's softmax(Q K^T) V, which gives the weights; Q is scaled, the mask ready."""
    torch = pytorch()
    Q, K, V = (torch.from_numpy(M) for M in numbers(case))
    scale = 1 / math.sqrt(case.dim)
    hidden = torch.ones(case.tokens, case.tokens, dtype=torch.bool).triu(1) if case.causal else None

    def theirs():
        scores = (Q * scale) @ K.mT
        if hidden is not None:
            scores.masked_fill_(hidden, -math.inf)
        weights = torch.softmax(scores, -1)
        return weights, weights @ V

    return _checked(ours(case, threads), theirs)


def fused(case: Case, threads: int) -> Sides:
    """Return attn, and PyTorch's scaled_dot_product_attention on (1, heads, n, d), its fastest shape."""
    torch = pytorch()
    shape = (1, case.heads, case.tokens, case.dim)
    Q, K, V = (torch.from_numpy(M).view(shape) for M in numbers(case))
    call, causal = torch.nn.functional.scaled_dot_product_attention, case.causal
    return _checked(ours(case, threads), lambda: call(Q, K, V, is_causal=causal))


def output_alone(case: Case, threads: int) -> Sides:
    mine, output = ours(case, threads), ours(case._replace(job="output"), threads)
    return Sides(mine, output, lambda: _links_agree(*numbers(case)))


def one_thread(case: Case, threads: int) -> Sides:
    return _checked(ours(case, 2), ours(case, 1))


def beside_another(case: Case, threads: int) -> Sides:
    """Return the same, with a process beside them that keeps a processor busy."""

    @contextmanager
    def busy():
        with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
            yield
            process.kill()

    return one_thread(case, threads)._replace(around=busy)


def floor(case: Case, threads: int) -> Sides:
    """Return attn, and the two matrix products and the exponential alone, in tiles of attn's size."""
    Q, K, V = numbers(case)
    wide = min(case.tokens, streaming.TILE_KEYS)
    rows = min(case.tokens, streaming.TILE // (streaming.TILE_KEYS * Q.itemsize))
    if case.job == "weights":  # whole rows, which become part of the answer
        most = max(streaming.FEWEST_ROWS, streaming.ROW_BLOCK_BYTES // (case.tokens * Q.itemsize))
        rows, wide = min(case.tokens, streaming.MOST_ROWS, most), case.tokens
    if case.causal:
        rows = min(rows, streaming.MOST_MASKED_ROWS)
    exp = np.exp2 if streaming.has_quick_exp2() else np.exp
    buffer = np.empty(rows * wide, Q.dtype)
    output = np.empty((rows, case.dim), Q.dtype)
    heads = [M.reshape(-1, *M.shape[-2:]) for M in (Q * Q.dtype.type(case.dim**-0.5), K, V)]

    def theirs() -> None:
        for q, k, v in zip(*heads, strict=True):
            for start in range(0, case.tokens, rows):
                part = q[start : start + rows]
                end = min(start + rows, case.tokens) if case.causal else case.tokens
                for low in range(0, end, wide):
                    high = min(low + wide, end)
                    scores = buffer[: len(part) * (high - low)].reshape(len(part), high - low)
                    np.matmul(part, k[low:high].T, out=scores)
                    exp(scores, out=scores)
                    np.matmul(scores, v[low:high], out=output[: len(part)])

    return Sides(ours(case, 1), theirs)


def _checked(mine: Side, theirs: Side) -> Sides:
    return Sides(mine, theirs, lambda: agree(mine(), theirs()))


def agree(mine: object, theirs: object) -> None:
    """Raise AttnError unless two answers, (weights, output) or an output, are the same in what both have."""
    answers = (answer if isinstance(answer, tuple) else (answer,) for answer in (mine, theirs))
    one, other = ([np.asarray(part) for part in parts[::-1] if part is not None] for parts in answers)
    for a, b, absolute in zip(one, other, ABSOLUTE, strict=False):
        if a.size != b.size or not np.allclose(a, b.reshape(a.shape), RELATIVE, absolute):
            raise AttnError(
                "Two ways to compute attention disagree here, so nothing was timed.",
                "Please report it with what the benchmark says of this machine.",
            )


def _links_agree(Q: np.ndarray, K: np.ndarray, V: np.ndarray) -> None:
    """Raise AttnError unless the strongest links of some rows are those of their whole weights."""
    links, output = strongest_links(Q[:ROWS], K, V, TOP)
    weights, right = attend(Q[:ROWS], K, V)
    order = np.argsort(-weights, axis=1, kind="stable")[:, :TOP]
    agree((links.weights, output), (np.take_along_axis(weights, order, axis=1), right))
    agree((links.weights, output), (np.take_along_axis(weights, links.keys, axis=1), right))


def drawing(case: Case, threads: int) -> Sides:
    """Return attn, and rich.table.Table at its best (no box, no padding, styles made once), which draw weights."""
    n = case.tokens
    weights = np.random.default_rng(0).dirichlet(np.ones(n), n)
    tokens = [f"w{i}" for i in range(n)]
    matrix = Matrix(tokens, tokens, weights, is_weights=True, shaded=True, digits=DIGITS)
    terminal = Terminal(LABEL + (CELL + 1) * n, TRUECOLOR)
    styles = list(shades("viridis", TRUECOLOR))

    def ours():
        return terminal.paint(Grid(matrix, terminal).lines())

    def theirs():
        out = io.StringIO()
        console = Console(file=out, force_terminal=True, color_system="truecolor", width=terminal.width)
        table = Table(box=None, padding=0, show_header=True, pad_edge=False)
        table.add_column("", width=LABEL)
        for token in tokens:
            table.add_column(Text(token), width=CELL, no_wrap=True)
        low, high = weights.min(), weights.max()
        places = np.rint((weights - low) / (high - low) * (len(styles) - 1)).astype(int).tolist()
        shown = weight(DIGITS)
        for token, row, place in zip(tokens, weights.tolist(), places, strict=True):
            cells = [Text(f" {text}", styles[p]) for text, p in zip(shown.row(row), place, strict=True)]
            table.add_row(Text(token), *cells)
        console.print(table)
        return out.getvalue()

    def check():
        one, other = (NUMBER.findall(plain(side()))[: n * n] for side in (ours, theirs))
        if one != other or len(one) != n * n:
            raise AttnError("Two drawings of one matrix show different numbers, so nothing was timed.")

    return Sides(ours, theirs, check)
