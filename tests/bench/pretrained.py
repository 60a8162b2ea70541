"""Models on disk beside transformers: `python -m tests.bench.pretrained [--pairs N]`.

Random models in the shapes of GPT-2 small and BERT base are written to a temporary folder (1 GB) and read from the
page cache. Processes of both sides run in turn, with as many threads as there are processors, and with one. What they
import is not counted: whole processes are measured by `tests.bench.models_on_disk`.
"""

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from attn_cli.core.threads import processors
from attn_cli.io.array_files import write_safetensors
from attn_cli.models.checkpoints.run import Checkpoint, texts
from tests.bench.opponents import TRANSFORMERS
from tests.bench.timing import quartiles
from tests.models.checkpoints.by_hand import BERT, GPT2, bert, gpt2

TEXT = "The cat sat on the mat because it was tired"
IDS = [n * 397 % 20_000 for n in range(128)]
RUNS = 3  # in one process, after one that is not counted
SHAPE = {"d": 768, "layers": 12}
OURS = """
import json, sys
from attn_cli.models.checkpoints.run import Checkpoint, texts
from itertools import islice
from tests.bench.pretrained import measured

def attentions():
    with Checkpoint(sys.argv[1]) as checkpoint:
        steps = checkpoint.run(texts([json.loads(sys.argv[3])])).steps()
        return [one.attended.weights for one in islice(steps, 12)]

measured(attentions)
"""


class Row(NamedTuple):
    """What was measured, pair by pair, and the ratio to reach."""

    what: str
    against: str
    ratios: list[float]
    limit: float


def measured(attentions: Callable[[], list[np.ndarray]]) -> None:
    """Print the median of the seconds of some runs, and this process's largest resident memory in KiB."""
    seconds = []
    for _ in range(1 + RUNS):
        start = time.perf_counter()
        found = attentions()
        seconds.append(time.perf_counter() - start)
    assert [one.shape for one in found] == [(1, 12, len(IDS), len(IDS))] * 12
    status = Path("/proc/self/status").read_text().splitlines()
    peak = next(line.split()[1] for line in status if line.startswith("VmHWM"))
    print(json.dumps([statistics.median(seconds[1:]), int(peak)]))


def make(folder: Path) -> dict[str, Path]:
    """Write the two models, with tokenizers of their size, and return their folders."""
    write_gpt2(folder / "gpt2")
    sizes = {
        "hidden_size": 768,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "intermediate_size": 3072,
    }
    config = BERT | sizes | {"hidden_act": "gelu", "vocab_size": 30522, "max_position_embeddings": 512}
    _write(folder / "bert", config, bert(vocabulary=30522, places=512, head=False, wide=4, **SHAPE))
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *TEXT.lower().split()]
    pieces = list(dict.fromkeys(pieces))
    (folder / "bert" / "vocab.txt").write_text("\n".join([*pieces, *(f"w{n}" for n in range(30_000))]) + "\n")
    return {"GPT-2 small": folder / "gpt2", "BERT base": folder / "bert"}


def write_gpt2(folder: Path) -> tuple[list[str], list[str]]:
    """Write a random GPT-2 small, and return its tokenizer's words and merges."""
    head = {
        "n_embd": 768,
        "n_layer": 12,
        "n_head": 12,
        "activation_function": "gelu_new",
        "n_positions": 1024,
    }
    _write(folder, GPT2 | head | {"vocab_size": 50257}, gpt2(vocabulary=50257, places=1024, **SHAPE))
    return byte_pairs(folder, 50_257)


def byte_pairs(folder: Path, count: int) -> tuple[list[str], list[str]]:
    """Write a byte-level tokenizer of so many words into a model's folder, and return its words and merges."""
    letters = [
        chr(n) for n in (*range(33, 127), *range(161, 173), *range(174, 324))
    ]  # GPT-2's, for the bytes
    pairs = [(a, b) for a in letters for b in letters][: count - len(letters) - 1]
    words = [*dict.fromkeys([*letters, *(a + b for a, b in pairs), "<|endoftext|>"])]
    merges = [*map(" ".join, pairs)]
    (folder / "vocab.json").write_text(json.dumps({token: n for n, token in enumerate(words)}))
    (folder / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n")
    return words, merges


def _write(folder: Path, config: dict[str, object], arrays: dict[str, np.ndarray]) -> None:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    small = {name: array * np.float32(0.02) for name, array in arrays.items()}
    with (folder / "model.safetensors").open("wb") as stream:
        write_safetensors(stream, small, {"format": "pt"})


def child(code: str, folder: Path, threads: int) -> tuple[float, int]:
    """Return the seconds and the peak that a process of one side prints."""
    command = [sys.executable, "-c", code, str(folder), str(threads), json.dumps(IDS)]
    env = os.environ | {"OPENBLAS_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}  # ours has threads of its own
    all_of_them = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(all_of_them)[-threads:])
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=env, check=True)
    finally:
        os.sched_setaffinity(0, all_of_them)
    seconds, peak = json.loads(done.stdout)
    return seconds, peak


def figures() -> Iterator[tuple[str, str, float, float]]:
    """Yield what a pass takes beside transformers, in processor time, on one thread: models are loaded before."""
    if not all(map(importlib.util.find_spec, ("torch", "transformers"))):
        return
    all_of_them = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(all_of_them)})  # ours has a thread a processor
    try:
        with tempfile.TemporaryDirectory() as folder:
            models = make(Path(folder))
            for name, count in (("GPT-2 small", 128), ("GPT-2 small", 512), ("BERT base", 128)):
                what = f"all layers' weights, {name}, {count} tokens"
                yield what, "transformers, eager", _passes(models[name], count), 0.75
    finally:
        os.sched_setaffinity(0, all_of_them)


def _passes(folder: Path, count: int) -> float:
    """Return the ratio of the processor time of passes that keep all layers' weights, the median of pairs."""
    import torch
    from transformers import AutoModel

    torch.set_num_threads(1)
    ids = [n * 397 % 20_000 for n in range(count)]
    model = AutoModel.from_pretrained(folder, attn_implementation="eager").eval()

    def theirs() -> list[np.ndarray]:
        with torch.no_grad():
            return [one.numpy() for one in model(torch.tensor([ids]), output_attentions=True).attentions]

    with Checkpoint(str(folder)) as checkpoint:

        def ours() -> list[np.ndarray]:
            steps = checkpoint.run(texts([ids])).steps()
            return [one.attended.weights for one in islice(steps, SHAPE["layers"])]

        for mine, other in zip(ours(), theirs(), strict=True):
            np.testing.assert_allclose(mine, other, rtol=0, atol=1e-5)
        ours()  # the second pass holds what it reads
        times = [[_processor_time(side) for side in (ours, theirs)] for _ in range(7)]
    return statistics.median(one / other for one, other in times)


def _processor_time(side: Callable[[], object]) -> float:
    start = time.process_time()
    side()
    return time.process_time() - start


def rows(folder: Path, pairs: int) -> Iterator[Row]:
    """Yield what is measured."""
    for name, model in make(folder).items():
        peaks = []
        for threads in sorted({1, processors()}, reverse=True):
            times = []
            for _ in range(pairs):
                (ours, peak), (theirs, their_peak) = (
                    child(code, model, threads) for code in (OURS, TRANSFORMERS)
                )
                times.append(ours / theirs)
                peaks.append(peak / their_peak)
            yield Row(f"{name}, all layers, threads: {threads}", "transformers, eager", times, 1.1)
        yield Row("  the same: largest memory", "transformers, eager", peaks, 0.4)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.pretrained")
    parser.add_argument("--pairs", type=int, default=5)
    pairs = parser.parse_args().pairs
    if missing := [
        name for name in ("torch", "transformers", "tokenizers") if not importlib.util.find_spec(name)
    ]:
        print(f"Models on disk: not measured, because {', '.join(missing)} is not installed.")
        return
    print(f"{'what':<42}{'against':<28}{'ratio':>7}{'quartiles':>13}{'to reach':>10}")
    with tempfile.TemporaryDirectory() as folder:
        for row in rows(Path(folder), pairs):
            ratio, (low, high) = statistics.median(row.ratios), quartiles(row.ratios)
            told = f"{row.limit:.2f} {'yes' if ratio <= row.limit else 'no'}"
            print(
                f"{row.what:<42}{row.against:<28}{ratio:>7.3f}{f'{low:.2f}-{high:.2f}':>13}{told:>10}",
                flush=True,
            )


if __name__ == "__main__":
    main()
