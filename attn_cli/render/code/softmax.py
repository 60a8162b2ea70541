"""From scores to weights and output, as each framework does it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from attn_cli.core.mask_rules import rule_named
from attn_cli.core.scores import score_named
from attn_cli.render.code.literals import called, commented
from attn_cli.render.code.plan import Recipe

LARGEST = 1e3  # scores beyond it lose too much in the float32 that most of Keras works in


class Step(NamedTuple):
    """The names that the steps so far have given to things."""

    queries: str
    keys: str
    factor: str
    scores: str  # what the softmax is taken of
    weights: str
    output: str
    has_mask: bool
    has_position: bool
    is_dot: bool  # whether scores are dot products of the queries and keys named here


def in_numpy(recipe: Recipe, step: Step) -> Iterator[list[str]]:
    """Yield the softmax written out, and the output."""
    s = step.scores
    why = "The largest score of a row is taken off first: that cancels out, and keeps exp small."
    if recipe.shut:
        yield [
            *commented(f"Softmax over the keys. {why} A query that may look at nothing has zeros."),
            f"largest = {s}.max(axis=-1, keepdims=True)",
            f"exps = np.exp({s} - np.where(np.isneginf(largest), 0.0, largest))",
            "total = exps.sum(axis=-1, keepdims=True)",
            f"{step.weights} = exps / np.where(total == 0.0, 1.0, total)",
        ]
    else:
        yield [
            *commented(f"Softmax over the keys: each row sums to one. {why}"),
            f"exps = np.exp({s} - {s}.max(axis=-1, keepdims=True))",
            f"{step.weights} = exps / exps.sum(axis=-1, keepdims=True)",
        ]
    yield _mixed(step)


def _mixed(step: Step) -> list[str]:
    return [*commented("Output: the values, mixed by the weights."), f"{step.output} = {step.weights} @ V"]


def in_torch(recipe: Recipe, step: Step) -> Iterator[list[str]]:
    """Yield the weights, and the output from PyTorch's own attention, which returns no weights."""
    weights = f"torch.softmax({step.scores}, dim=-1)"
    about = "Softmax over the keys: each row sums to one."
    lines = [f"{step.weights} = {weights}"]
    if recipe.shut:
        about += " A query that may look at nothing gets NaN from it; its weights are zeros here."
        lines = [
            f"shut = torch.isneginf({step.scores}).all(dim=-1, keepdim=True)",
            f"{step.weights} = {weights}.masked_fill(shut, 0.0)",
        ]
    yield [*commented(about), *lines]
    if not step.is_dot:
        yield _mixed(step)
        return
    about = (
        "Output: the values, mixed by the weights, from the same Q, K and V in one call. It takes query, key, value, "
        "scales by 1 / sqrt(d_k) unless scale says otherwise, and returns no weights."
    )
    lines, mask = [], ""
    if step.has_mask and not step.has_position:
        about += " In torch.nn.MultiheadAttention, True in attn_mask would mean may not attend."
        mask = "mask"
    elif step.has_position:
        about += " An attn_mask of numbers is added to the scaled scores; -inf masks."
        mask = "position_scores"
        if step.has_mask:
            lines, mask = ["bias = position_scores.masked_fill(~mask, -torch.inf)"], "bias"
    if recipe.shut:
        about += " Older versions give NaN, not zeros, where nothing is allowed."
    on, off = ("", "") if recipe.several else ("[None]", "[0]")
    if not recipe.several:
        about += " [None] and [0] put on and take off an axis for heads."
    arguments = [name + on for name in (step.queries, step.keys, "V")]
    arguments += [f"attn_mask={mask}"] if mask else []
    arguments.append(f"scale={step.factor}")
    lines += called(f"{step.output} = F.scaled_dot_product_attention", arguments, off)
    if recipe.shut:
        lines.append(f"{step.output} = {step.output}.masked_fill(shut, 0.0)")
    yield [*commented(about), *lines]


def in_keras(recipe: Recipe, step: Step) -> Iterator[list[str]]:
    """Yield weights and output, and Keras' own attention beside them where it can do the same."""
    about, s = "Softmax over the keys: each row sums to one.", step.scores
    lines = [f"{step.weights} = ops.softmax({s}, axis=-1)"]
    if len(recipe.trace.key_tokens) == 1:
        about = "Softmax over one key: 1 whatever its score, 0 where it is masked. (ops.softmax would warn of it.)"
        lines = [f'{step.weights} = ops.cast(ops.isfinite({s}), "float64")']
    elif recipe.shut:
        about += (
            " A query that may look at nothing gets NaN from it; its weights are zeros here. (In Keras' own layers "
            "such a row is zeros or not, by layer and version.)"
        )
        lines = [
            f"shut = ops.all(ops.isinf({s}), axis=-1, keepdims=True)",
            f"{step.weights} = ops.where(shut, ops.zeros_like({s}), ops.softmax({s}, axis=-1))",
        ]
    yield [*commented(about), *lines]
    yield _mixed(step)
    if has_layer(recipe):
        yield _layer(recipe, step)


def has_layer(recipe: Recipe) -> bool:
    """Tell whether keras.layers.Attention can do it: no position term, no mask but the causal one, usual scores."""
    scores = [head.scaled_scores for head in recipe.heads if head.scaled_scores is not None]
    return (
        score_named(recipe.trace.score).as_dot is not None
        and (recipe.rule is None or bool(rule_named(recipe.rule)[0].keras_argument))
        and (recipe.trace.mask is None) == (recipe.rule is None)
        and all(head.position_scores is None for head in recipe.heads)
        and len(recipe.trace.key_tokens) > 1  # Keras warns of a softmax over one
        and max(float(np.abs(M).max()) for M in scores) < LARGEST
    )


def _layer(recipe: Recipe, step: Step) -> list[str]:
    about = (
        "The same from a layer. Its inputs are query, VALUE, key. It does not scale (use_scale=True would learn a "
        "factor), so the queries are scaled before. It may work in float32, whatever it is given."
    )
    axis, first = ("", "") if recipe.several else ("[None]", "[0]")
    factor = f"({step.factor})" if "/" in step.factor else step.factor
    arguments = [f"[{step.queries}{axis} * {factor}, V{axis}, {step.keys}{axis}]"]
    if recipe.rule is not None:
        about += " Its causal mask is this one, from the top left corner."
        arguments.append(rule_named(recipe.rule)[0].keras_argument)
    about += (
        " The heads stand on its batch axis." if recipe.several else " [None] puts on an axis for a batch."
    )
    return [
        *commented(about),
        'attention = keras.layers.Attention(use_scale=False, score_mode="dot", dtype="float64")',
        *called("its_output, its_weights = attention", [*arguments, "return_attention_scores=True"]),
        f"difference = float(ops.max(ops.abs(its_weights{first} - {step.weights})))",
    ]
