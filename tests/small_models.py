"""Small models with random parameters, as files: what `attn learn train` could have written."""

from dataclasses import replace

import numpy as np

from attn_cli.models.model_file import write_model
from attn_cli.pipeline.sources.text import trace_text
from attn_cli.vectors.table import VectorTable

FEATURES = ("*", "x", "Xx", "-s", "-ing", "=cat")


def table(words: str = "the cat dog sees big a", dim: int = 4, seed: int = 0) -> VectorTable:
    """Return a table of random vectors."""
    names = words.split()
    matrix = np.random.default_rng([seed, dim]).standard_normal((len(names), dim))
    return VectorTable("file", "table", b"\n" + "\n".join(names).encode() + b"\n", matrix, {})


def typed(vectors: VectorTable) -> str:
    """Return a table as a file that somebody could have typed, every digit kept."""
    lines = (
        f"{word} {' '.join(map(repr, row.tolist()))}"
        for word, row in zip(vectors.words(), vectors.matrix, strict=True)
    )
    return "\n".join(lines) + "\n"


def attention(draw: np.random.Generator, layer: int, heads: int, d: int, d_k: int, reach: int) -> dict:
    return {
        f"{layer}.W_q": draw.standard_normal((heads, d, d_k)),
        f"{layer}.W_k": draw.standard_normal((heads, d, d_k)),
        f"{layer}.b_q": draw.standard_normal((heads, d_k)),
        f"{layer}.b_k": draw.standard_normal((heads, d_k)),
        f"{layer}.R": draw.standard_normal((heads, 2 * reach + 1, d_k)),
        f"{layer}.b": draw.standard_normal((heads, 2 * reach + 1)),
    }


def arrays(heads: int = 3, layers: int = 1, dim: int = 4, seed: int = 0) -> dict:
    """Return the arrays of a model; with several layers a word has 6 numbers, and W_v makes dim of them."""
    draw = np.random.default_rng([seed, layers])
    made = {
        "start.names": np.frombuffer("\n".join(FEATURES).encode(), np.uint8),
        "start.vectors": draw.standard_normal((len(FEATURES), dim)),
    }
    if layers == 1:
        return made | attention(draw, 0, heads, dim, 2, 2)
    width, wide, below = 6, 5, 2
    made |= {"in.W": draw.standard_normal((dim, width)), "in.b": draw.standard_normal(width)}
    for n in range(layers - 1):
        made |= attention(draw, n, below, width, 3, 2)
        made |= {
            f"{n}.W_v": draw.standard_normal((below, width, 4)),
            f"{n}.b_v": draw.standard_normal((below, 4)),
            f"{n}.W_o": draw.standard_normal((below * 4, width)),
            f"{n}.b_o": draw.standard_normal(width),
            f"{n}.W_1": draw.standard_normal((width, wide)),
            f"{n}.b_1": draw.standard_normal(wide),
            f"{n}.W_2": draw.standard_normal((wide, width)),
            f"{n}.b_2": draw.standard_normal(width),
        }
        for k in (1, 2):
            made |= {
                f"{n}.gain_{k}": draw.standard_normal(width),
                f"{n}.shift_{k}": draw.standard_normal(width),
            }
    made |= attention(draw, layers - 1, heads, width, 2, 2)
    last = layers - 1
    return made | {
        f"{last}.W_v": draw.standard_normal((width, dim)),
        f"{last}.b_v": draw.standard_normal(dim),
    }


def write(
    path, made: dict, vectors: VectorTable, heads: list[str], facts: dict | None = None, always: bool = False
) -> str:
    """Write a model for these vectors, and return where it is."""
    with open(path, "wb") as stream:
        write_model(stream, made, vectors.name, vectors.fingerprint(), always, heads, facts or {})
    return str(path)


def trace_checkpoint(kind, text, context, settings, model, keep_weights=False):
    """The trace of a pretrained model's folder, as `-m` gives it."""
    return trace_text(kind, text, context, replace(settings, model=str(model)), keep_weights=keep_weights)
