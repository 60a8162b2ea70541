"""`attn effect` on a model of GPT-2's size: `python -m tests.bench.effect [--pairs N]`.

A random GPT-2 small (float32) is written to a temporary folder. Whole processes: `attn effect TEXT -m DIR -f json`
beside `attn self TEXT -m DIR -f json`, in turn. In one process: without each of the 144 heads, against passes that give
the logits of a text, 16 and 512 tokens long.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from attn_cli.models.checkpoints.layers import Changes
from attn_cli.pipeline.effect import knock_outs, word_of
from attn_cli.pipeline.passes import open_passes
from attn_cli.settings.settings import Settings
from tests.bench.pretrained import TEXT, write_gpt2

ROOT = Path(__file__).parents[2]
TO_REACH = {"whole process": 1.5, 16: 40.0, 512: 80.0}
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def seconds(work: Callable[[], object]) -> float:
    """Return how long some work takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def whole(command: str, folder: str) -> float:
    """Return how long `attn COMMAND` takes on the model."""
    args = [sys.executable, "-m", "attn_cli", command, TEXT, "-m", folder, "-f", "json"]
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return seconds(lambda: subprocess.run(args, check=True, stdout=subprocess.DEVNULL, cwd=ROOT, env=env))


def text_of(n: int) -> str:
    """Return a text of so many tokens: one a letter, for no pair of letters with a space between is a token."""
    return "".join(LETTERS[i % 26] for i in range(2 * n))


def passes(folder: str, n: int, pairs: int) -> float:
    """Return how many passes' time it takes to knock out every head once, over n tokens."""
    with open_passes([(text_of(n), None)], Settings(model=folder)) as (read,):
        assert len(read.tokens) == n, len(read.tokens)
        word = word_of(read, None, "--target")

        def one() -> None:
            run = read.run.changed(Changes())
            run.logits(read.place)

        def every() -> None:
            assert sum(1 for _ in knock_outs(read, word, None, False, lambda part: None)) == 144

        return statistics.median(
            [seconds(every) / statistics.median(seconds(one) for _ in range(5)) for _ in range(pairs)]
        )


def main() -> None:
    """Print the ratios beside what they are to reach."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=5, help="how often each is measured")
    pairs = parser.parse_args().pairs
    with tempfile.TemporaryDirectory() as room:
        folder = os.path.join(room, "gpt2")
        write_gpt2(Path(folder))
        found = {
            "whole process": statistics.median(
                whole("effect", folder) / whole("self", folder) for _ in range(pairs)
            ),
            **{n: passes(folder, n, max(1, pairs // 3)) for n in (16, 512)},
        }
    for name, most in TO_REACH.items():
        what = (
            "effect / self, whole process"
            if name == "whole process"
            else f"144 knock-outs, in passes of {name} tokens"
        )
        print(f"{what:<42} {found[name]:8.2f}   to reach {most:g}")


if __name__ == "__main__":
    main()
