"""The speed of `attn batch`: workers, Dask, forms; its costs: `python -m tests.bench.batch [LINES]`."""

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from tests.bench.row import ATTN, Row, compared, peak, ran

WORDS = 18  # of a sentence
SUMMARY = ("--fields", "summary")


def sentences(n: int) -> list[str]:
    """Return sentences of WORDS words, common words more often, as in a text."""
    from attn_cli.vectors import bundled

    words = [word for word in bundled().words()[:8000] if word.isalpha()]
    share = 1 / np.arange(1, len(words) + 1)
    draw = np.random.default_rng(0)
    chosen = draw.choice(len(words), (n, WORDS), p=share / share.sum())
    return [" ".join(words[i] for i in row).capitalize() + "." for row in chosen]


@contextmanager
def written(lines: int) -> Iterator[tuple[Path, list[str]]]:
    """Write a file of so many sentences; yield its folder, and the command that computes them, without an output."""
    with tempfile.TemporaryDirectory() as name:
        path, some = Path(name, "lines.txt"), sentences(min(lines, 20_000))
        path.write_text("".join(f"{some[n % len(some)]}\n" for n in range(lines)))
        yield Path(name), [*ATTN, "batch", str(path)]


def rows(pairs: int = 3) -> Iterator[Row]:
    for what, lines, rounds, suffix, options, more, times in (
        ("two workers, summary", 100_000, pairs, ".jsonl", SUMMARY, (), 1.8),
        ("two workers, all fields to Parquet", 30_000, pairs, ".parquet", ("--fields", "all"), (), 1.8),
        ("Dask, two workers, summary", 1_000_000, 1, "/", SUMMARY, ("--engine", "dask"), 1.7),
    ):
        with written(lines) as (folder, attn):
            ours, theirs = (
                [*attn, *options, "--workers", workers, "-o", f"{folder}/{workers}{suffix}", *also]
                for workers, also in (("2", more), ("1", ()))
            )
            both = [(ran(ours).clock, ran(theirs).clock) for _ in range(rounds)]
        yield Row(f"{what}, {lines:,} lines", "one process", *map(list, zip(*both, strict=True)), 1 / times)


def ways(pairs: int = 3, lines: int = 20_000) -> Iterator[Row]:
    def to(name: str, *options: str) -> list[str]:
        return [*attn, *options, "--workers", "1", "-o", str(folder / name)]

    with written(lines) as (folder, attn):
        whole = to("out.jsonl", "--fields", "all")
        columns = to("out.parquet", "--fields", "query_tokens,weights")
        what = "tokens and weights to Parquet, CPU"
        yield compared(what, columns, "all fields to jsonl", whole, 1 / 3, pairs)
        sizes = [[(folder / f"out.{form}").stat().st_size] for form in ("parquet", "jsonl")]
        yield Row("the same: bytes", "all fields to jsonl", *sizes, 1 / 5, "B")
        few = [peak(to("out.jsonl", *SUMMARY))]
    with written(10 * lines) as (folder, attn):
        many = [peak(to("out.jsonl", *SUMMARY))]
    yield Row(f"peak of {10 * lines:,} lines", f"of {lines:,}", many, few, 1.05, "B")


def costs(lines: int) -> None:
    """Print how many lines a second of a processor takes, and the bytes of a line, with several fields and forms."""
    print(f"{'fields':<28}{'form':<12}{'lines a second':>16}{'bytes a line':>16}")
    usual = "query_tokens,key_tokens,weights,summary"
    forms = {
        usual: ("jsonl", "jsonl.gz", "jsonl.zst", "parquet", "npz"),
        "summary": ("jsonl", "jsonl.gz", "parquet"),
        "query_tokens,weights": ("parquet",),
        "all": ("jsonl", "jsonl.gz"),
    }
    with written(lines) as (folder, attn):
        out = folder / "out"
        for fields, form in ((fields, form) for fields, some in forms.items() for form in some):
            command = [*attn, "--force", "--workers", "1", "--fields", fields, "-f", form, "-o", f"{out}/"]
            seconds = ran(command).cpu
            size = sum(part.stat().st_size for part in out.glob("part-*"))
            name = "as usual" if fields == usual else fields
            print(f"{name:<28}{form:<12}{lines / seconds:>16,.0f}{size / lines:>16,.0f}", flush=True)


if __name__ == "__main__":
    costs(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
