"""Whole processes on a model's file beside transformers: `python -m tests.bench.models_on_disk [--pairs N]`.

Random models in the shapes of GPT-2 small (float32) and Llama 3.2 1B (bfloat16) are written to a temporary folder, as
safetensors and as GGUF in F16 and Q8_0 (8 GB), and read from the page cache. `attn self TEXT -m MODEL -f json` and
transformers, which loads a model as it does unless told otherwise, run in turn; each prints the weights of a layer.
Peak memory is held against the size of the file and 1.3 times the largest layer in float32.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tests.bench.opponents import WHOLE_TRANSFORMERS
from tests.bench.pretrained import TEXT, byte_pairs, write_gpt2
from tests.models.checkpoints.by_hand import as_bfloat16, safetensors
from tests.models.checkpoints.gguf_by_hand import converted, eight_bits, llama, stored

ROOT = Path(__file__).parents[2]
LLAMA = {
    "model_type": "llama", "vocab_size": 32_000, "hidden_size": 2048, "num_hidden_layers": 16,
    "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 8192, "rms_norm_eps": 1e-5,
    "max_position_embeddings": 4096, "hidden_act": "silu", "tie_word_embeddings": False, "dtype": "bfloat16",
}  # fmt: skip
TO_REACH, MEMORY = 0.25, 1.3  # of transformers' time; of the largest layer, beside the file
MIB = 1 << 20


class Model(NamedTuple):
    """A model: what makes its folder, its layers, and the bytes of its largest layer in float32."""

    make: Callable[[Path], tuple[list[str], list[str]]]  # it returns the tokenizer's words and merges
    layers: int
    largest: int


class Ran(NamedTuple):
    """What a process took: seconds, and bytes at its peak."""

    seconds: float
    peak: int


def ran(command: list[str], output: int = subprocess.DEVNULL) -> Ran:
    """Run a process to its end."""
    env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    start = time.perf_counter()
    child = subprocess.Popen(
        command, stdout=output, stderr=subprocess.PIPE, env=env | {"HF_HUB_OFFLINE": "1"}, cwd=ROOT
    )
    assert child.stderr is not None
    said = child.stderr.read()
    _, status, usage = os.wait4(child.pid, 0)
    seconds = time.perf_counter() - start
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"{command[-6:]}: {said.decode()[-2000:]}")
    return Ran(seconds, usage.ru_maxrss * 1024)


def write_llama(folder: Path) -> tuple[list[str], list[str]]:
    """Write a random Llama of a billion numbers, and return its tokenizer's words and merges."""
    draw = np.random.default_rng(0).standard_normal(1 << 20, np.float32) * np.float32(0.02)

    def some(*shape: int) -> np.ndarray:
        return as_bfloat16(np.resize(draw, shape))

    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LLAMA))
    arrays = llama(kv=8, d=2048, wide=8192, layers=16, heads=32, words=32_000, some=some)
    (folder / "model.safetensors").write_bytes(safetensors(arrays))
    return byte_pairs(folder, 32_000)


MODELS = {
    "GPT-2 small": Model(write_gpt2, 12, 4 * 12 * 768 * 768),
    "Llama 1B": Model(write_llama, 16, 4 * (2048 * (2 * 2048 + 2 * 512) + 3 * 2048 * 8192)),
}
TYPES = {"F16": lambda array: stored(array.astype(np.float16)), "Q8_0": eight_bits}


def write(name: str, folder: Path) -> None:
    """Write a model's folder, and GGUF files of it into the same."""
    words, merges = MODELS[name].make(folder)
    tokenizer = {
        "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2", "tokenizer.ggml.tokens": words,
        "tokenizer.ggml.merges": merges, "tokenizer.ggml.token_type": [1] * len(words),
    }  # fmt: skip
    for type_, quantize in TYPES.items():
        converted(folder, folder / f"{type_}.gguf", quantize, **tokenizer)


def rows(name: str, folder: Path, file: str, pairs: int) -> Iterator[str]:
    """Yield the lines of a model's file: its first layer and its last."""
    model, path = MODELS[name], folder / file if file else folder
    attn = [sys.executable, "-m", "attn_cli", "self", TEXT, "-m", str(path), "-f", "json", "--layer"]
    with tempfile.TemporaryFile() as output:
        ran([*attn, "0"], output.fileno())
        output.seek(0)
        ids = json.dumps(json.load(output)["query_input_ids"])
    layers = "0", str(model.layers - 1)
    theirs = [sys.executable, "-c", WHOLE_TRANSFORMERS, str(folder), file, layers[-1], ids]
    sides = [*attn, layers[0]], theirs, [*attn, layers[1]]  # transformers computes all layers
    for side in sides:
        ran(side)
    times = zip(*([ran(side) for side in sides] for _ in range(pairs)), strict=True)
    first, other, last = (Ran(*map(statistics.median, zip(*side, strict=True))) for side in times)
    bound = (folder / (file or "model.safetensors")).stat().st_size + MEMORY * model.largest
    for layer, own in zip(layers, (first, last), strict=True):
        ratio = own.seconds / other.seconds
        yield (
            f"{name + ', ' + (file or 'safetensors'):<26}{layer:>5}{own.seconds:>8.2f} s{other.seconds:>10.2f} s"
            f"{ratio:>7.3f} {'yes' if ratio <= TO_REACH else 'no':<4}{own.peak / MIB:>7.0f}{other.peak / MIB:>13.0f}"
            f"{bound / MIB:>7.0f} {'yes' if own.peak <= bound else 'no'}"
        )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.models_on_disk")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument(
        "--write", nargs=2, metavar=("MODEL", "FOLDER"), help="write a model, and measure nothing"
    )
    asked = parser.parse_args()
    if asked.write:
        write(asked.write[0], Path(asked.write[1]))
        return
    print(
        f"{'medians of whole processes':<26}layer      attn transformers  ratio     MiB transformers  bound"
    )
    for n, name in enumerate(MODELS):
        with tempfile.TemporaryDirectory() as parent:
            folder = Path(parent) / str(n)
            # By another process: a child's peak begins with what its parent holds.
            ran([sys.executable, "-m", "tests.bench.models_on_disk", "--write", name, str(folder)])
            for file in ("", *(f"{type_}.gguf" for type_ in TYPES)):
                for row in rows(name, folder, file, asked.pairs):
                    print(row, flush=True)


if __name__ == "__main__":
    main()
