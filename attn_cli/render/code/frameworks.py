"""How each framework says the steps that all of them have, and what each does in its own way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from attn_cli.render.code.plan import Recipe
from attn_cli.render.code.softmax import Step, in_keras, in_numpy, in_torch


class Dialect(NamedTuple):
    """One framework's words; `{}` stands for what a word is said of."""

    name: str
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
    masked: str
    polarity: str  # what True means in a mask
    plain: str  # a row of numbers as Python's own
    attended: Callable[[Recipe, Step], Iterator[list[str]]]  # weights and output


NUMPY = Dialect(
    name="numpy",
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
    masked="np.where(mask, {}, -np.inf)",
    polarity="True = may attend.",
    plain="{}.tolist()",
    attended=in_numpy,
)

TORCH = Dialect(
    name="torch",
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
    masked="torch.where(mask, {}, -torch.inf)",
    polarity="True = may attend, as in scaled_dot_product_attention.",
    plain="{}.tolist()",
    attended=in_torch,
)

KERAS = Dialect(
    name="keras",
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
    masked='ops.where(mask, {}, float("-inf"))',
    polarity="True = may attend, as in the attention_mask of Keras' layers.",
    plain="ops.convert_to_numpy({}).tolist()",
    attended=in_keras,
)

DIALECTS = {"numpy": NUMPY, "torch": TORCH, "keras": KERAS}
