"""Small models with random parameters, as files: what `attn learn train` could have written."""

from dataclasses import replace

import numpy as np

from attn_cli.models.model_file import write_model
from attn_cli.pipeline.sources.text import trace_text
from attn_cli.vectors import VectorTable
from attn_cli.vectors.spelling import features

FEATURES = ("*", "x", "Xx", "-s", "-ing", "=cat")


def table(words: str = "the cat dog sees big a", dim: int = 4, seed: int = 0) -> VectorTable:
    """Return a table of random vectors."""
    names = words.split()
    matrix = np.random.default_rng([seed, dim]).standard_normal((len(names), dim))
    return VectorTable("file", "table", "\n".join(["", *names, ""]).encode(), matrix, {})


def typed(vectors: VectorTable) -> str:
    """Return a table as a file that somebody could have typed, every digit kept."""
    rows = zip(vectors.words(), vectors.matrix.tolist(), strict=True)
    return "".join(f"{word} {' '.join(map(repr, row))}\n" for word, row in rows)


def attention(draw: np.random.Generator, layer: int, heads: int, d: int, d_k: int) -> dict:
    """Return the arrays of a layer's heads, which tell apart distances up to two."""
    shapes = {"W_q": (d, d_k), "W_k": (d, d_k), "b_q": (d_k,), "b_k": (d_k,), "R": (5, d_k), "b": (5,)}
    return {f"{layer}.{name}": draw.standard_normal((heads, *shape)) for name, shape in shapes.items()}


def arrays(heads: int = 3, layers: int = 1, dim: int = 4, seed: int = 0) -> dict:
    """Return the arrays of a model; with several layers a word has 6 numbers, and W_v makes dim of them."""
    draw = np.random.default_rng([seed, layers])
    made = {
        "start.names": np.frombuffer("\n".join(FEATURES).encode(), np.uint8),
        "start.vectors": draw.standard_normal((len(FEATURES), dim)),
    }
    if layers == 1:
        return made | attention(draw, 0, heads, dim, 2)
    width, wide, below, last = 6, 5, 2, layers - 1

    def drawn(place: object, **shapes: object) -> dict:
        return {f"{place}.{name}": draw.standard_normal(shape) for name, shape in shapes.items()}

    made |= drawn("in", W=(dim, width), b=width)
    for n in range(last):
        made |= attention(draw, n, below, width, 3)
        made |= drawn(n, W_v=(below, width, 4), b_v=(below, 4), W_o=(below * 4, width), b_o=width)
        made |= drawn(n, W_1=(width, wide), b_1=wide, W_2=(wide, width), b_2=width)
        made |= drawn(n, gain_1=width, shift_1=width, gain_2=width, shift_2=width)
    made |= attention(draw, last, heads, width, 2)
    return made | drawn(last, W_v=(width, dim), b_v=dim)


def weights_by_hand(made, h, words):
    """One head's weights of a model of one layer, by the formula, for the words of `table`."""
    found, n = table().find({word.lower() for word in words}), len(words)
    vectors = dict(zip(FEATURES, made["start.vectors"], strict=True))
    spelled = lambda word: sum((vectors[name] for name in features(word) if name in vectors), np.zeros(4))  # noqa: E731
    X = np.array([found.get(word.lower(), spelled(word)) for word in words])
    Q, K = (X @ made[f"0.W_{m}"][h] + made[f"0.b_{m}"][h] for m in "qk")
    away = np.clip(np.arange(n) - np.arange(n)[:, np.newaxis], -2, 2) + 2
    position = np.take_along_axis(Q @ made["0.R"][h].T, away, axis=1) + made["0.b"][h][away]
    exps = np.exp((Q @ K.T + position) / np.sqrt(2))
    return exps / exps.sum(axis=1, keepdims=True)


def write(
    path, made: dict, vectors: VectorTable, heads: list, facts: dict | None = None, always=False
) -> str:
    """Write a model for these vectors, and return where it is."""
    with open(path, "wb") as stream:
        write_model(stream, made, vectors.name, vectors.fingerprint(), always, heads, facts or {})
    return str(path)


def trace_checkpoint(kind, text, context, settings, model, keep_weights=False):
    """The trace of a pretrained model's folder, as `-m` gives it."""
    return trace_text(kind, text, context, replace(settings, model=str(model)), keep_weights=keep_weights)
