"""llama.cpp itself beside attn: `python -m tests.models.checkpoints.llama_cpp [CASE ...]`.

A small random model of each architecture is written as a GGUF file, its matrices in each type of numbers as llama.cpp
quantizes them, and both compute the scores of all words after each token (BERT: the vectors of its tokens). Largest
differences are printed, as shares of the largest score: attn's from llama.cpp's of a file that holds the same numbers
in float32, which is rounding alone; and from llama.cpp's of the same file, where it rounds what it multiplies to eight
bits. Keys and values are kept in float32. llama.cpp takes GELU from a table in half precision, and BERT's by tanh as
well: where there is GELU, differences are near 1e-4, else near 1e-6.

It needs llama-cpp-python (`pip install llama-cpp-python` compiles it, a quarter of an hour), NumPy and threadpoolctl.
"""

from __future__ import annotations

import argparse
import ctypes
import itertools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from attn_cli.models.checkpoints.gguf_models import ARCHITECTURES
from attn_cli.models.checkpoints.quantized import QUANTIZED
from attn_cli.models.checkpoints.run import Checkpoint, texts
from tests.models.checkpoints.gguf_by_hand import BYTE_PAIRS, WORD_PIECES, gguf, small, stored

Scores = np.ndarray
IDS = [1, 2, 3, 4, 5, 6, 7, 1, 3, 5, 2, 2, 6, 4]
SIZES = {"d": 256, "wide": 512, "words": len(BYTE_PAIRS["tokenizer.ggml.tokens"])}
# What a converter may write beside the defaults: of small(), of the metadata, and further tensors
FACTORS = np.linspace(1, 8, 32, dtype=np.float32)
LONGROPE = {"rope_factors_short.weight": FACTORS[::-1].copy(), "rope_factors_long.weight": 2 * FACTORS}
CASES: dict[str, tuple[str, dict[str, object], dict[str, np.ndarray]]] = {
    **{name: (name, {}, {}) for name in ARCHITECTURES},
    # llama.cpp rounds the ends of YaRN's range, which GPT-OSS does not
    "gpt-oss": ("gpt-oss", {f"gpt-oss.rope.scaling.{key}": None
        for key in ("type", "factor", "original_context_length")}, {}),
    "llama, alone": ("llama", {"pairs": 4}, {}),
    "llama, as 3.1": ("llama", {}, {"rope_freqs.weight": FACTORS}),
    "llama, linear": ("llama", {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0}, {}),
    "llama, yarn": ("llama", {"llama.rope.scaling.type": "yarn", "llama.rope.scaling.factor": 4.0,
        "llama.rope.scaling.original_context_length": 16}, {}),
    "qwen2, one for all": ("qwen2", {"pairs": 1}, {}),
    "qwen3, yarn": ("qwen3", {"qwen3.rope.scaling.type": "yarn", "qwen3.rope.scaling.factor": 2.0,
        "qwen3.rope.scaling.original_context_length": 32}, {}),
    "gemma3, eight layers": ("gemma3", {"layers": 8, "gemma3.rope.freq_base": 1e6}, {}),
    "gemma3, linear": ("gemma3", {"layers": 8, "gemma3.rope.scaling.type": "linear",
        "gemma3.rope.scaling.factor": 8.0}, {}),
    "gemma3, no window": ("gemma3", {"gemma3.attention.sliding_window": None, "gemma3.rope.freq_base": 1e6}, {}),
    "gemma3, a pattern": ("gemma3", {"layers": 3, "gemma3.attention.sliding_window_pattern": [True, False, True]}, {}),
    "gemma3, one in two": ("gemma3", {"layers": 3, "gemma3.attention.sliding_window_pattern": 2}, {}),
    "phi3, as 4": ("phi3", {"phi3.attention.sliding_window": 0}, {}),
    "phi3, a part": ("phi3", {"phi3.rope.dimension_count": 48}, {}),
    "phi3, longrope": ("phi3", {"phi3.rope.scaling.attn_factor": 1.2, "phi3.context_length": 512,
        "phi3.rope.scaling.original_context_length": 256}, LONGROPE),
    "phi3, long": ("phi3", {"phi3.rope.scaling.attn_factor": 1.2, "phi3.rope.scaling.original_context_length": 8},
        LONGROPE),
    "olmo2, as 3": ("olmo2", {"layers": 4, "olmo2.attention.sliding_window": 4,
        "olmo2.attention.sliding_window_pattern": [True, True, False, True]}, {}),
}  # fmt: skip
TYPES = {"F32": 0, "F16": 1} | {name: kind for kind, (name, _) in QUANTIZED.items()}
MOST, WITH_GELU = 5e-6, 1e-3  # of the largest score, where the numbers are the same
GELU = ("gpt2", "bert", "gemma", "gemma2", "gemma3")


def library() -> ctypes.CDLL:
    """Return llama.cpp's own code for types of numbers."""
    import llama_cpp

    return ctypes.CDLL(str(Path(llama_cpp.__file__).parent / "lib" / "libggml-base.so"))


def quantizer(type_: str) -> tuple[Callable[[np.ndarray], object], Callable[[np.ndarray], object]]:
    """Return what makes tensors of a type as llama.cpp does, and what makes float32 of the same numbers."""
    if type_ == "F32":
        return stored, stored
    if type_ == "F16":
        half = lambda M: M.astype(np.float16)  # noqa: E731
        return lambda M: stored(half(M)), lambda M: stored(half(M).astype(np.float32))
    ggml, kind = library(), TYPES[type_]
    dtype, numbers, unpack = QUANTIZED[kind][1]
    ggml.ggml_quantize_chunk.restype = ctypes.c_size_t
    spelled = type_.replace("Q", "q").replace("IQ", "iq") if type_.endswith("_K") else type_.lower()
    read = getattr(ggml, f"dequantize_row_{spelled}")

    def made(M: np.ndarray) -> tuple[int, tuple[int, ...], bytes]:
        M, room = np.ascontiguousarray(M), np.empty(M.size // numbers * dtype.itemsize, np.uint8)
        rows, columns = map(ctypes.c_int64, M.shape)
        start = ctypes.c_int64(0)
        size = ggml.ggml_quantize_chunk(kind, _at(M), _at(room), start, rows, columns, None)
        assert size == len(room)
        return kind, M.shape, room.tobytes()

    def same(M: np.ndarray) -> object:
        packed, found = np.frombuffer(made(M)[2], np.uint8), np.empty(M.shape, np.float32)
        read(_at(packed), _at(found), ctypes.c_int64(M.size))
        np.testing.assert_array_equal(unpack(packed.view(dtype)).reshape(M.shape), found)  # bit for bit
        return stored(found)

    return made, same


def _at(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def theirs(path: Path, kind: str) -> Scores:
    """Return llama.cpp's scores after each token, (n, words); BERT's vectors, (n, d)."""
    import llama_cpp

    is_bert = kind == "bert"
    model = llama_cpp.Llama(
        str(path), n_ctx=256, n_batch=256, n_ubatch=256, n_threads=1, logits_all=not is_bert, embedding=is_bert,
        pooling_type=llama_cpp.LLAMA_POOLING_TYPE_NONE, type_k=0, type_v=0, verbose=False,
    )  # fmt: skip
    if is_bert:
        model.tokenize = lambda text: IDS
        return np.array(model.embed("x", normalize=False))
    model.eval(IDS)
    return np.array(model.scores[: len(IDS)])


def ours(path: Path, kind: str) -> Scores:
    """Return the same of attn."""
    with Checkpoint(str(path)) as checkpoint:
        assert not checkpoint.model.notes, checkpoint.model.notes
        run = checkpoint.run(texts([IDS]))
        if kind == "bert":
            *_, _last = run.steps()
            return run.output()[0]
        return run.logits()[0]


def chances(scores: Scores) -> Scores:
    """Return each row's probabilities."""
    exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def compared(name: str, type_: str, folder: Path) -> dict[str, float]:
    """Return how far attn is from llama.cpp in a case: of the largest score, and in probabilities of next words."""
    kind, given, more = CASES[name]
    of_tokens = WORD_PIECES | {"tokenizer.ggml.token_type_count": 2} if kind == "bert" else BYTE_PAIRS
    if kind == "phi3":
        given = {"phi3.attention.sliding_window": 0} | given  # llama.cpp computes Phi 3 without its window
    sizes = SIZES | ({"words": len(WORD_PIECES["tokenizer.ggml.tokens"])} if kind == "bert" else {})
    found = []
    for n, quantize in enumerate(quantizer(type_)):
        metadata, tensors = small(kind, 3, quantize, **(sizes | of_tokens | given))
        path = folder / f"{n}.gguf"
        path.write_bytes(gguf(metadata, tensors | {name: stored(array) for name, array in more.items()}))
        found.append(theirs(path, kind))
    (as_it_runs, same), own = found, ours(folder / "0.gguf", kind)
    most, words = abs(same).max(), abs(chances(own) - chances(as_it_runs)).max()
    shares = {"same numbers": abs(own - same).max() / most, "same file": abs(own - as_it_runs).max() / most}
    return shares | {"next words": words}


def main() -> int:
    """Print the table; the exit code is 1 where something differs by more than rounding."""
    parser = argparse.ArgumentParser(prog="python -m tests.models.checkpoints.llama_cpp")
    parser.add_argument("cases", nargs="*", metavar="CASE", default=[*CASES])
    parser.add_argument("--types", default="F32 F16 Q8_0 Q4_K Q6_K", help="or all")
    asked = parser.parse_args()
    types = [*TYPES] if asked.types == "all" else asked.types.split()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # llama.cpp talks even when it is told not to
    wrong = 0
    for name, type_ in itertools.product(asked.cases, types):
        with TemporaryDirectory() as folder:
            far = compared(name, type_, Path(folder))
        print(f"{name:<22}{type_:<8}{', '.join(f'{of} {one:.0e}' for of, one in far.items())}", flush=True)
        wrong += far["same numbers"] > (WITH_GELU if CASES[name][0] in GELU else MOST)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
