"""The peak of memory is that of the words' numbers, not of the model: measured in processes of their own."""

import json
import math
import os
import struct
import subprocess
import sys
import tracemalloc

import pytest

from attn_cli import Settings, trace_self
from attn_cli.models.checkpoints.run import Checkpoint, texts, way_of
from tests.memory import peak
from tests.models.checkpoints.by_hand import gpt2, small_gpt2
from tests.models.checkpoints.gguf_by_hand import llama
from tests.shell import ROOT
from tests.thorough import takes_long

D, LAYERS, VOCABULARY = 1024, 3, 100_000
MIB = 1 << 20
SIZES = {"BF16": 2, "F16": 2, "F32": 4}
CODE = """
import sys
from attn_cli.models.checkpoints.run import Checkpoint, texts

with Checkpoint(sys.argv[1]) as checkpoint:
    run = checkpoint.run(texts([[1, 5, {last}] * 20]))
    run.logits(59) if sys.argv[2] == "next" else run.layer({layers} - 1)
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""
pytestmark = pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="needs Linux's /proc")


def hollow(path, tensors, dtype):
    """Write a safetensors file whose numbers are all zero: a hole that takes no room on the disk."""
    header, end = {}, 0
    for name, shape in tensors.items():
        start, end = end, end + math.prod(shape) * SIZES[dtype]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}
    encoded = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(encoded)) + encoded)
    os.truncate(path, 8 + len(encoded) + end)
    return end


def hollow_model(folder, dtype, sharded, tied):
    """Write a model without content, and return how many bytes its numbers would take."""
    sizes = {"kv": 16, "d": D, "wide": 4 * D, "layers": LAYERS, "heads": 16, "words": VOCABULARY}
    tensors = llama(**sizes, some=lambda *shape: [*shape])  # half a billion numbers
    tensors = {name: shape for name, shape in tensors.items() if not (tied and name == "lm_head.weight")}
    config = {
        "model_type": "llama", "hidden_size": D, "num_hidden_layers": LAYERS, "num_attention_heads": 16,
        "hidden_act": "silu", "tie_word_embeddings": tied,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    files = {name: f"model-{n % 4}.safetensors" for n, name in enumerate(tensors)}
    if sharded:
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": files}))
    else:
        files = dict.fromkeys(tensors, "model.safetensors")
    parts = {file: {name: tensors[name] for name in files if files[name] == file} for file in files.values()}
    return sum(hollow(folder / file, part, dtype) for file, part in parts.items())


def peak_alone(code, *args):
    """Return the largest resident memory of `python -c code`, in bytes."""
    env = os.environ | {"PYTHONPATH": ROOT, "OPENBLAS_NUM_THREADS": "1"}
    ran = subprocess.run([sys.executable, "-c", code, *args], capture_output=True, text=True, env=env)
    assert ran.returncode == 0, ran.stderr
    return int(ran.stdout) * 1024


@takes_long
@pytest.mark.parametrize("asked", ["next", "layer"])
@pytest.mark.parametrize(
    ("dtype", "sharded", "tied"),
    [("BF16", False, True), ("F16", True, False), ("F32", False, True), ("F32", True, False)],
)
def test_a_large_model_takes_less_than_100_mib(asked, dtype, sharded, tied, tmp_path):
    size = hollow_model(tmp_path, dtype, sharded, tied)
    assert size > 250 * MIB
    taken = peak_alone(CODE.format(last=VOCABULARY - 1, layers=LAYERS), str(tmp_path), asked)
    assert taken < 100 * MIB, f"{taken / MIB:.0f} MiB, of a model of {size / MIB:.0f}"


def test_twice_the_tokens_take_twice_the_memory_where_the_strongest_links_are_asked_for(tokenizers, tmp_path):
    """The weights of a layer, of all heads, would take four times as much, and more than all of this."""
    folder = small_gpt2(tmp_path / "gpt2", gpt2(places=2400), n_positions=2400, n_head=4)
    settings = Settings(model=folder, top=3, threads=1)  # each thread holds a block of rows
    trace = trace_self("a" * 1200, settings)
    assert trace.condensed and len(trace.query_tokens) == 1200
    less, more = (peak(lambda n=n: trace_self("a" * n, settings)) for n in (1200, 2400))
    assert more < 2.5 * less and more < 4 * 4 * 2400**2 / 2


def test_of_each_layer_that_a_word_s_vector_has_come_through_only_the_values_are_kept(tmp_path):
    n, d, layers = 1000, 64, 6
    tensors = gpt2(places=n, d=d, layers=layers)
    folder = small_gpt2(tmp_path / "gpt2", tensors, n_positions=n, n_embd=d, n_layer=layers)
    with Checkpoint(folder) as checkpoint:
        tracemalloc.start()
        way = way_of(checkpoint.run(texts([[1, 2] * (n // 2)])), n - 1)
        held, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    # Where queries and keys were, it would be twice that.
    assert way.trail.steps and held < 2 * layers * n * d * 4
