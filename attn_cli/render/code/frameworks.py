"""How each framework writes the steps that all of them share, and its own way from scores to output."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from attn_cli.render.code.plan import ScriptPlan
from attn_cli.render.code.softmax import Names, in_keras, in_numpy, in_torch


class Framework(NamedTuple):
    """One framework's expressions; `{}` in them is the operand."""

    name: str
    title: str
    imports: tuple[str, ...]
    library: str
    array: tuple[str, str]  # what encloses a list of numbers
    bools: tuple[str, str]  # and a list of booleans
    swap_last: str  # the last two axes
    split: str  # M's columns among the heads
    join: str
    mask: str
    polarity: str  # what True means in a mask
    attend: Callable[[ScriptPlan, Names], Iterator[list[str]]]  # weights and output
    root: str = "d_k**0.5"
    transpose: str = "{}.T"  # of a matrix
    take: Callable[[str, int], str] = lambda name, axis: f"{name}[{':, ' * axis}place]"  # rows along an axis
    to_list: str = "{}.tolist()"


FRAMEWORKS = {
    "numpy": Framework(
        name="numpy",
        title="NumPy",
        imports=("import numpy as np",),
        library="np",
        array=("np.array(", ")"),
        bools=("np.array(", ")"),
        swap_last="{}.swapaxes(-1, -2)",
        split="np.split(M, heads, axis=1)",
        join="np.concatenate([*{}], axis=-1)",
        mask="np.where(mask, {}, -np.inf)",
        polarity="True = may attend.",
        attend=in_numpy,
        root="np.sqrt(d_k)",
    ),
    "torch": Framework(
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
        swap_last="{}.mT",
        split="M.chunk(heads, dim=1)",
        join="torch.cat([*{}], dim=-1)",
        mask="torch.where(mask, {}, -torch.inf)",
        polarity="True = may attend, as in scaled_dot_product_attention.",
        attend=in_torch,
    ),
    "keras": Framework(
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
        swap_last="ops.swapaxes({}, -1, -2)",
        split="ops.split(M, heads, axis=1)",
        join="ops.concatenate([*{}], axis=-1)",
        mask='ops.where(mask, {}, float("-inf"))',
        polarity="True = may attend, as in the attention_mask of Keras' layers.",
        attend=in_keras,
        transpose="ops.transpose({})",
        take=lambda name, axis: f"ops.take({name}, place, axis={axis})",
        to_list="ops.convert_to_numpy({}).tolist()",
    ),
}
