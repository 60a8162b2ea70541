"""How each framework writes the steps that all of them share, and its own way from scores to weights and output."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from attn_cli.core.masks import rule_named
from attn_cli.core.scores import score_named
from attn_cli.render.code.literals import call_lines, comment_lines
from attn_cli.render.code.plan import ScriptPlan

MAX_FLOAT32_SCORE = 1e3  # scores beyond it lose too much in the float32 that most of Keras works in


class Names(NamedTuple):
    """The names that the script has given to its arrays so far."""

    queries: str
    keys: str
    factor: str
    scores: str  # what the softmax is taken of
    weights: str
    output: str


def in_numpy(plan: ScriptPlan, names: Names) -> Iterator[list[str]]:
    """Yield the softmax written out, and the output."""
    s = names.scores
    why = "The largest score of a row is subtracted first: it cancels out, and exp cannot overflow."
    if plan.has_empty_row:
        yield [
            *comment_lines(f"Softmax over the keys. {why} A query that may attend to nothing gets zeros."),
            f"largest = {s}.max(axis=-1, keepdims=True)",
            f"exps = np.exp({s} - np.where(np.isneginf(largest), 0.0, largest))",
            "total = exps.sum(axis=-1, keepdims=True)",
            f"{names.weights} = exps / np.where(total == 0.0, 1.0, total)",
        ]
    else:
        yield [
            *comment_lines(f"Softmax over the keys: each row sums to one. {why}"),
            f"exps = np.exp({s} - {s}.max(axis=-1, keepdims=True))",
            f"{names.weights} = exps / exps.sum(axis=-1, keepdims=True)",
        ]
    yield _mixed(names)


def _mixed(names: Names) -> list[str]:
    return [
        *comment_lines("Output: the values, mixed by the weights."),
        f"{names.output} = {names.weights} @ V",
    ]


def in_torch(plan: ScriptPlan, names: Names) -> Iterator[list[str]]:
    """Yield the weights, and the output from PyTorch's own attention, which returns no weights."""
    weights = f"torch.softmax({names.scores}, dim=-1)"
    about = "Softmax over the keys: each row sums to one."
    lines = [f"{names.weights} = {weights}"]
    if plan.has_empty_row:
        about += " A query that may attend to nothing would get NaN; its weights are set to zero here."
        lines = [
            f"empty = torch.isneginf({names.scores}).all(dim=-1, keepdim=True)",
            f"{names.weights} = {weights}.masked_fill(empty, 0.0)",
        ]
    yield [*comment_lines(about), *lines]
    if score_named(plan.trace.score).as_dot is None or plan.knows_more:
        yield _mixed(names)
        return
    about = (
        "Output: the values, mixed by the weights, from the same Q, K and V in one call. The function takes query, "
        "key, value, scales by 1 / sqrt(d_k) unless scale is given, and returns no weights."
    )
    lines, mask, has_mask = [], "", plan.trace.mask is not None
    if has_mask and not plan.has_position:
        about += " (In torch.nn.MultiheadAttention, True in attn_mask means may not attend.)"
        mask = "mask"
    elif plan.has_position:
        about += " An attn_mask of numbers is added to the scaled scores; -inf masks a key."
        mask = "position_scores"
        if has_mask:
            lines, mask = ["bias = position_scores.masked_fill(~mask, -torch.inf)"], "bias"
    if plan.has_empty_row:
        about += " Older versions of PyTorch give NaN, not zeros, where nothing is allowed."
    on, off = ("", "") if plan.several else ("[None]", "[0]")
    if not plan.several:
        about += " [None] adds an axis for heads, and [0] removes it."
    arguments = [name + on for name in (names.queries, names.keys, "V")]
    arguments += [f"attn_mask={mask}"] if mask else []
    arguments.append(f"scale={names.factor}")
    lines += call_lines(f"{names.output} = F.scaled_dot_product_attention", arguments, off)
    if plan.has_empty_row:
        lines.append(f"{names.output} = {names.output}.masked_fill(empty, 0.0)")
    yield [*comment_lines(about), *lines]


def in_keras(plan: ScriptPlan, names: Names) -> Iterator[list[str]]:
    """Yield weights and output, and Keras' own attention beside them where it can do the same."""
    about, s = "Softmax over the keys: each row sums to one.", names.scores
    lines = [f"{names.weights} = ops.softmax({s}, axis=-1)"]
    if len(plan.trace.key_tokens) == 1:
        about = "Softmax over a single key: 1 whatever its score, 0 where it is masked."
        about += " (ops.softmax would warn.)"
        lines = [f'{names.weights} = ops.cast(ops.isfinite({s}), "float64")']
    elif plan.has_empty_row:
        about += (
            " A query that may attend to nothing would get NaN; its weights are set to zero here. (Whether Keras' own "
            "layers give zeros for such a row depends on the layer and the version.)"
        )
        lines = [
            f"empty = ops.all(ops.isinf({s}), axis=-1, keepdims=True)",
            f"{names.weights} = ops.where(empty, ops.zeros_like({s}), ops.softmax({s}, axis=-1))",
        ]
    yield [*comment_lines(about), *lines]
    yield _mixed(names)
    if has_layer(plan):
        yield _layer(plan, names)


def has_layer(plan: ScriptPlan) -> bool:
    """Return whether keras.layers.Attention can do it: usual scores, no position term, no mask but the causal one."""
    scores = [head.scaled_scores for head in plan.heads if head.scaled_scores is not None]
    return (
        score_named(plan.trace.score).as_dot is not None
        and (plan.rule is None or bool(rule_named(plan.rule)[0].keras_argument))
        and (plan.trace.mask is None) == (plan.rule is None)
        and all(head.position_scores is None or head.rotated is not None for head in plan.heads)
        and not plan.knows_more
        and len(plan.trace.key_tokens) > 1  # Keras warns of a softmax over one
        and max(float(np.abs(M).max()) for M in scores) < MAX_FLOAT32_SCORE
    )


def _layer(plan: ScriptPlan, names: Names) -> list[str]:
    about = (
        "The same from Keras' own layer. Its inputs are query, VALUE, key. It does not scale (use_scale=True would "
        "learn a factor), so the queries are scaled beforehand. It may compute in float32, whatever it is given."
    )
    axis, first = ("", "") if plan.several else ("[None]", "[0]")
    factor = f"({names.factor})" if "/" in names.factor else names.factor
    arguments = [f"[{names.queries}{axis} * {factor}, V{axis}, {names.keys}{axis}]"]
    if plan.rule is not None:
        about += " Its causal mask starts from the top left corner, as this one does."
        arguments.append(rule_named(plan.rule)[0].keras_argument)
    about += " The heads are on its batch axis." if plan.several else " [None] adds a batch axis."
    return [
        *comment_lines(about),
        'attention = keras.layers.Attention(use_scale=False, score_mode="dot", dtype="float64")',
        *call_lines("its_output, its_weights = attention", [*arguments, "return_attention_scores=True"]),
        f"difference = float(ops.max(ops.abs(its_weights{first} - {names.weights})))",
    ]


class Framework(NamedTuple):
    """One framework's expressions; `{}` in them is the operand."""

    name: str
    title: str
    imports: tuple[str, ...]
    library: str
    array: str  # what makes an array of a list
    swap_last: str  # the last two axes
    split: str  # M's columns among the heads
    join: str
    mask: str
    polarity: str  # what True means in a mask
    pads: tuple[str, str]  # a number in a column after the last one, and a row of zeros
    attend: Callable[[ScriptPlan, Names], Iterator[list[str]]]  # weights and output
    root: str = "d_k**0.5"
    transpose: str = "{}.T"  # of a matrix
    take: Callable[[str, int], str] = lambda name, axis: f"{name}[{':, ' * axis}place]"  # rows along an axis
    to_list: str = "{}.tolist()"
    dtypes: tuple[str, str] = ("", "")  # arguments after a list of numbers, and after one of booleans


FRAMEWORKS = {
    "numpy": Framework(
        name="numpy",
        title="NumPy",
        imports=("import numpy as np",),
        library="np",
        array="np.array",
        swap_last="{}.swapaxes(-1, -2)",
        split="np.split(M, heads, axis=1)",
        join="np.concatenate([*{}], axis=-1)",
        mask="np.where(mask, {}, -np.inf)",
        polarity="True = may attend.",
        pads=("np.pad({}, ((0, 0), (0, 1)), constant_values={!r})", "np.pad(V, ((0, 1), (0, 0)))"),
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
        array="torch.tensor",
        swap_last="{}.mT",
        split="M.chunk(heads, dim=1)",
        join="torch.cat([*{}], dim=-1)",
        mask="torch.where(mask, {}, -torch.inf)",
        polarity="True = may attend, as in scaled_dot_product_attention.",
        pads=("F.pad({}, (0, 1), value={!r})", "F.pad(V, (0, 0, 0, 1))"),
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
        array="ops.array",
        dtypes=(', dtype="float64"', ', dtype="bool"'),
        swap_last="ops.swapaxes({}, -1, -2)",
        split="ops.split(M, heads, axis=1)",
        join="ops.concatenate([*{}], axis=-1)",
        mask='ops.where(mask, {}, float("-inf"))',
        polarity="True = may attend, as in the attention_mask of Keras' layers.",
        pads=("ops.pad({}, ((0, 0), (0, 1)), constant_values={!r})", "ops.pad(V, ((0, 1), (0, 0)))"),
        attend=in_keras,
        transpose="ops.transpose({})",
        take=lambda name, axis: f"ops.take({name}, place, axis={axis})",
        to_list="ops.convert_to_numpy({}).tolist()",
    ),
}
