"""How each framework says the steps that all of them have, and what each does in its own way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from attn_cli.core.masks import window_size
from attn_cli.render.code.plan import Recipe
from attn_cli.render.code.softmax import Step, in_keras, in_numpy, in_torch


class Dialect(NamedTuple):
    """One framework's words; `{}` stands for what a word is said of."""

    title: str
    imports: tuple[str, ...]
    library: str
    array: tuple[str, str]  # what stands around a list of numbers
    bools: tuple[str, str]  # and around one of booleans
    flipped: str  # a matrix
    swapped: str  # the last two axes
    split: str  # M's columns among the heads
    join: str
    root: str  # of d_k
    taken: Callable[[str, int], str]  # rows of an array by `place`, along an axis
    masks: dict[str, str]
    masked: str
    polarity: str  # what True means in a mask
    evened: tuple[str, ...]  # M divided by the largest of each row, before squares overflow
    unit: tuple[str, ...]  # the body of a function that gives each row of M length 1
    plain: str  # a row of numbers as Python's own
    attended: Callable[[Recipe, Step], Iterator[list[str]]]  # weights and output


NUMPY = Dialect(
    title="NumPy",
    imports=("import numpy as np",),
    library="np",
    array=("np.array(", ")"),
    bools=("np.array(", ")"),
    flipped="{}.T",
    swapped="{}.swapaxes(-1, -2)",
    split="np.split(M, heads, axis=1)",
    join="np.concatenate([*{}], axis=-1)",
    root="np.sqrt(d_k)",
    taken=lambda name, axis: f"{name}[{':, ' * axis}place]",
    masks={
        "causal": "np.tril(np.ones((n_q, n_k), dtype=bool))",
        "causal-bottom-right": "np.tril(np.ones((n_q, n_k), dtype=bool), n_k - n_q)",
        "window": "np.abs(np.arange(n_q)[:, None] - np.arange(n_k)) <= {}",
    },
    masked="np.where(mask, {}, -np.inf)",
    polarity="True = may attend.",
    evened=(
        "largest = np.abs(M).max(axis=-1, keepdims=True)",
        "M = M / np.where(largest == 0.0, 1.0, largest)  # else squares would be beyond numbers",
    ),
    unit=(
        "length = np.linalg.norm(M, axis=-1, keepdims=True)",
        "return M / np.where(length == 0.0, 1.0, length)",
    ),
    plain="{}.tolist()",
    attended=in_numpy,
)

TORCH = Dialect(
    title="PyTorch",
    imports=(
        "import torch",
        "import torch.nn.functional as F",
        "",
        "torch.set_default_dtype(torch.float64)",
    ),
    library="torch",
    array=("torch.tensor(", ")"),
    bools=("torch.tensor(", ")"),
    flipped="{}.T",
    swapped="{}.mT",
    split="M.chunk(heads, dim=1)",
    join="torch.cat([*{}], dim=-1)",
    root="d_k**0.5",
    taken=lambda name, axis: f"{name}[{':, ' * axis}place]",
    masks={
        "causal": "torch.ones(n_q, n_k, dtype=torch.bool).tril()",
        "causal-bottom-right": "torch.ones(n_q, n_k, dtype=torch.bool).tril(n_k - n_q)",
        "window": "(torch.arange(n_q)[:, None] - torch.arange(n_k)).abs() <= {}",
    },
    masked="torch.where(mask, {}, -torch.inf)",
    polarity="True = may attend, as in scaled_dot_product_attention.",
    evened=(
        "largest = M.abs().amax(dim=-1, keepdim=True)",
        "M = M / torch.where(largest == 0.0, 1.0, largest)  # else squares would be beyond numbers",
    ),
    unit=(
        "length = torch.linalg.vector_norm(M, dim=-1, keepdim=True)",
        "return M / torch.where(length == 0.0, 1.0, length)",
    ),
    plain="{}.tolist()",
    attended=in_torch,
)

KERAS = Dialect(
    title="Keras",
    imports=(
        "# Any backend will do; JAX has float64 only with JAX_ENABLE_X64=1.",
        "import keras",
        "from keras import ops",
    ),
    library="ops",
    array=("ops.array(", ', dtype="float64")'),
    bools=("ops.array(", ', dtype="bool")'),
    flipped="ops.transpose({})",
    swapped="ops.swapaxes({}, -1, -2)",
    split="ops.split(M, heads, axis=1)",
    join="ops.concatenate([*{}], axis=-1)",
    root="d_k**0.5",
    taken=lambda name, axis: f"ops.take({name}, place, axis={axis})",
    masks={
        "causal": "ops.tril(ops.ones((n_q, n_k))) > 0",
        "causal-bottom-right": "ops.tril(ops.ones((n_q, n_k)), n_k - n_q) > 0",
        "window": "ops.abs(ops.arange(n_q)[:, None] - ops.arange(n_k)) <= {}",
    },
    masked='ops.where(mask, {}, float("-inf"))',
    polarity="True = may attend, as in the attention_mask of Keras' layers.",
    evened=(
        "largest = ops.max(ops.abs(M), axis=-1, keepdims=True)",
        "M = M / ops.where(largest == 0.0, 1.0, largest)  # else squares would be beyond numbers",
    ),
    unit=(
        "length = ops.sqrt(ops.sum(ops.square(M), axis=-1, keepdims=True))",
        "return M / ops.where(length == 0.0, 1.0, length)",
    ),
    plain="ops.convert_to_numpy({}).tolist()",
    attended=in_keras,
)

DIALECTS = {"numpy": NUMPY, "torch": TORCH, "keras": KERAS}


def mask_rule(dialect: Dialect, rule: str) -> str:
    """Return the expression that makes the mask of that name."""
    if rule.startswith("window"):
        return dialect.masks["window"].format(window_size(rule))
    return dialect.masks[rule]
