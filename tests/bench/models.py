"""Models on disk, of random numbers, beside transformers, which loads a model as it does unless told otherwise.

They have the shapes of GPT-2 small and BERT base (float32) and Llama 3.2 1B (bfloat16), and are read from the page
cache. `passes`: in one process, loaded before. `on_disk`: whole processes (8 GB of disk), whose peak memory is held
against the size of the file and 1.3 times the largest layer in float32.
"""

import importlib.util
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from timeit import Timer

import numpy as np

from attn_cli.models.checkpoints.run import Checkpoint, texts
from tests.bench.row import ATTN, Row, compared, peak, ran
from tests.models.checkpoints import by_hand
from tests.models.checkpoints.gguf_by_hand import converted, eight_bits, llama, stored

TEXT = "The cat sat on the mat because it was tired"
LAYERS = 12
GPT2 = by_hand.GPT2 | {
    "n_embd": 768, "n_layer": LAYERS, "n_head": 12, "activation_function": "gelu_new", "n_positions": 1024,
    "vocab_size": 50257,
}  # fmt: skip
BERT = by_hand.BERT | {
    "hidden_size": 768, "num_hidden_layers": LAYERS, "num_attention_heads": 12, "intermediate_size": 3072,
    "hidden_act": "gelu", "vocab_size": 30522, "max_position_embeddings": 512,
}  # fmt: skip
LLAMA = {
    "model_type": "llama", "vocab_size": 32_000, "hidden_size": 2048, "num_hidden_layers": 16,
    "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 8192, "rms_norm_eps": 1e-5,
    "max_position_embeddings": 4096, "hidden_act": "silu", "tie_word_embeddings": False, "dtype": "bfloat16",
}  # fmt: skip
# sys.argv: a folder, the name of a GGUF file in it or nothing, the layer, the token ids. A whole process that prints
# one layer's weights; what cuts a text into tokens is not even loaded.
WHOLE_TRANSFORMERS = """
import json, sys
import torch
from transformers import AutoModel

folder, file, layer, ids = sys.argv[1:]
model = AutoModel.from_pretrained(folder, attn_implementation="eager", gguf_file=file or None)
with torch.no_grad():
    found = model(torch.tensor([json.loads(ids)]), output_attentions=True).attentions[int(layer)]
json.dump(found[0].tolist(), sys.stdout)
"""
THEIRS = "transformers, eager"


def write_gpt2(folder: Path) -> tuple[list[str], list[str]]:
    """Write a random GPT-2 small, and return its tokenizer's words and merges."""
    save_small(folder, GPT2, by_hand.gpt2(vocabulary=50257, places=1024, d=768, layers=LAYERS))
    return byte_pairs(folder, 50_257)


def write_bert(folder: Path) -> None:
    arrays = by_hand.bert(vocabulary=30522, places=512, d=768, layers=LAYERS, head=False, wide=4)
    save_small(folder, BERT, arrays)


def write_llama(folder: Path) -> tuple[list[str], list[str]]:
    """Write a random Llama of a billion numbers, and return its tokenizer's words and merges."""
    draw = np.random.default_rng(0).standard_normal(1 << 20, np.float32) * np.float32(0.02)
    some = lambda *shape: by_hand.as_bfloat16(np.resize(draw, shape))  # noqa: E731
    by_hand.saved(folder, LLAMA, llama(kv=8, d=2048, wide=8192, layers=16, heads=32, words=32_000, some=some))
    return byte_pairs(folder, 32_000)


def byte_pairs(folder: Path, count: int) -> tuple[list[str], list[str]]:
    """Write a byte-level tokenizer of so many words into a model's folder, and return its words and merges."""
    letters = [*map(chr, (*range(33, 127), *range(161, 173), *range(174, 324)))]  # GPT-2's, for the bytes
    pairs = [(a, b) for a in letters for b in letters][: count - len(letters) - 1]
    words = [*dict.fromkeys([*letters, *(a + b for a, b in pairs), "<|endoftext|>"])]
    merges = [*map(" ".join, pairs)]
    by_hand.byte_pairs(folder, words, merges)
    return words, merges


def save_small(folder: Path, config: dict, arrays: dict) -> None:
    by_hand.saved(folder, config, {name: array * np.float32(0.02) for name, array in arrays.items()})


WRITERS = {"GPT-2 small": write_gpt2, "BERT base": write_bert}


def is_there(*names: str) -> bool:
    missing = [name for name in names if not importlib.util.find_spec(name)]
    if missing:
        print(f"Models: not measured, because {', '.join(missing)} is not installed.", file=sys.stderr)
    return not missing


@contextmanager
def on_one_processor() -> Iterator[None]:
    all_of_them = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(all_of_them)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, all_of_them)


def our_weights(checkpoint: Checkpoint, ids: list[int]) -> list[np.ndarray]:
    return [one.attended.weights for one in islice(checkpoint.run(texts([ids])).steps(), LAYERS)]


def their_model(folder: str):
    import torch
    from transformers import AutoModel

    model = AutoModel.from_pretrained(folder, attn_implementation="eager").eval()

    @torch.no_grad()
    def weights(ids):
        return [one.numpy() for one in model(torch.tensor([ids]), output_attentions=True).attentions]

    return weights


def passes(pairs: int = 7) -> Iterator[Row]:
    if not is_there("torch", "transformers"):
        return
    import torch

    torch.set_num_threads(1)
    with on_one_processor(), tempfile.TemporaryDirectory() as name:
        for model, count in (("GPT-2 small", 128), ("GPT-2 small", 512), ("BERT base", 128)):
            folder = Path(name, model)
            if not folder.exists():
                WRITERS[model](folder)
            ids, theirs = [n * 397 % 20_000 for n in range(count)], their_model(str(folder))
            with Checkpoint(str(folder)) as checkpoint:
                for one, other in zip(our_weights(checkpoint, ids), theirs(ids), strict=True):
                    np.testing.assert_allclose(one, other, rtol=0, atol=1e-5)
                our_weights(checkpoint, ids)  # the second pass holds what it reads
                sides = (partial(our_weights, checkpoint, ids), partial(theirs, ids))
                timers = [Timer(side, timer=time.process_time) for side in sides]
                times = [[timer.timeit(1) for timer in timers] for _ in range(pairs)]
            both = map(list, zip(*times, strict=True))
            yield Row(f"all layers' weights, {model}, {count} tokens", THEIRS, *both, 0.75)


# What makes a model's folder, its layers, and the bytes of its largest layer in float32.
MODELS = {
    "GPT-2 small": (write_gpt2, LAYERS, 4 * 12 * 768 * 768),
    "Llama 1B": (write_llama, 16, 4 * (2048 * (2 * 2048 + 2 * 512) + 3 * 2048 * 8192)),
}
TYPES = {"F16": lambda array: stored(array.astype(np.float16)), "Q8_0": eight_bits}


def on_disk(pairs: int = 5) -> Iterator[Row]:
    if not is_there("torch", "transformers", "tokenizers", "gguf"):
        return
    for name, (make, layers, largest) in MODELS.items():
        with tempfile.TemporaryDirectory() as room:
            folder = Path(room, "model")
            words, merges = make(folder)
            tokenizer = {
                "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2", "tokenizer.ggml.tokens": words,
                "tokenizer.ggml.merges": merges, "tokenizer.ggml.token_type": [1] * len(words),
            }  # fmt: skip
            for kind, quantize in TYPES.items():
                converted(folder, folder / f"{kind}.gguf", quantize, **tokenizer)
            for file in ("", *(f"{kind}.gguf" for kind in TYPES)):
                attn = [*ATTN, "self", TEXT, "-m", str(folder / file), "-f", "json", "--layer"]
                ids = json.dumps(json.loads(ran([*attn, "0"]).out)["query_input_ids"])
                last = str(layers - 1)  # theirs computes all layers
                theirs = [sys.executable, "-c", WHOLE_TRANSFORMERS, str(folder), file, last, ids]
                held = peak(theirs)
                bound = (folder / (file or "model.safetensors")).stat().st_size + 1.3 * largest
                for layer in ("0", last):
                    what, ours = f"{name}, {file or 'safetensors'}, layer {layer}", [*attn, layer]
                    yield compared(what, ours, "transformers", theirs, 0.25, pairs, "clock")
                    yield Row(f"{what}, peak", "transformers", [peak(ours)], [held], None, "B")
                    yield Row(f"{what}, peak", "file + 1.3 of a layer", [peak(ours)], [bound], 1.0, "B")
