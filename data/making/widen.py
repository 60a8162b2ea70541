"""A trained model made larger, which says nearly what it said before: a student that begins where a smaller one ended.

Some columns of every word's row are doubled, and what reads them takes a part of each twin; heads and networks get
further numbers whose products are still zero; further words get a vector of their own, of zeros (Chen, Goodfellow and
Shlens 2016, "Net2Net: Accelerating Learning via Knowledge Transfer"). The norms of rows take their mean over more
columns than before: hence nearly.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from attn_cli.errors import InputError, UsageError, visible
from attn_cli.io.atomic import creatable, written
from attn_cli.learn.batches import feature_names
from attn_cli.models.model_file import CASES, in_bits, model_arrays, read_model, write_model
from attn_cli.vectors.lookup import open_table

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from attn_cli.io.types import Arrays

    Floats = NDArray[np.floating]

PART = (0.3, 0.7)  # of what is read of a column, what its twin gives: twins that learn alike would stay alike
NEW = 0.05  # the size of numbers that are new


class Wider(NamedTuple):
    """The sizes to be: numbers a word, hidden units, and words with a vector of their own."""

    width: int
    wide: int
    itself: int


def widen(arrays: Arrays, sizes: Wider, draw: np.random.Generator) -> Arrays:
    """Return the arrays of a model's file for a larger model; named heads keep their size, but for the rows they read.

    `arrays` have a matrix a head, and rows of `start.vectors` for all words of the larger model.
    """
    made = {name: np.asarray(value, np.float32) for name, value in arrays.items()}
    width = made["in.W"].shape[1]
    layers = sum(name.endswith(".W_q") for name in made)
    inner = len(made["0.b"])
    d_k, had = sizes.width // inner, width // inner
    longer = np.float32((d_k / had) ** 0.5)  # scores are divided by the root of d_k
    twins = draw.permutation(width)[: sizes.width - width]
    part = draw.uniform(*PART, len(twins)).astype(np.float32)[:, np.newaxis]

    def doubled(M: Floats) -> Floats:
        """Return what is given as columns, those of the twins too."""
        return np.concatenate([M, M[..., twins]], axis=-1)

    def shared(M: Floats) -> Floats:
        """Return what reads columns, (..., width, m): of those that have a twin it reads a part from each."""
        kept = np.array(M)
        kept[..., twins, :] *= 1 - part
        return np.concatenate([kept, M[..., twins, :] * part], axis=-2)

    def more(M: Floats, count: int, axis: int, size: float = 0.0) -> Floats:
        """Return M with so many further numbers along an axis, drawn at this size."""
        shape = list(M.shape)
        shape[axis] = count - shape[axis]
        return np.concatenate([M, draw.normal(size=shape).astype(np.float32) * size], axis=axis)

    for name in {"in.W", "in.b", "out.first"} & set(made):
        made[name] = doubled(made[name])
    if "out.W" in made:
        made["out.W"] = shared(made["out.W"])
    for layer in range(layers):
        for name in (f"{layer}.W_{m}" for m in "qkv"):
            made[name] = shared(made[name])
        if f"{layer}.W_o" not in made:  # that of the named heads, which nothing reads
            continue
        W_q, b_q, W_k, b_k, W_v, b_v = (f"{layer}.{kind}_{m}" for m in "qkv" for kind in "Wb")
        made[W_q] = more(made[W_q] * longer, d_k, -1, NEW)
        made[b_q] = more(made[b_q] * longer, d_k, -1)
        for name in (W_k, b_k, f"{layer}.R"):
            made[name] = more(made[name], d_k, -1)
        made[f"{layer}.b"] = made[f"{layer}.b"] * longer
        made[W_v], made[b_v] = more(made[W_v], d_k, -1, NEW), more(made[b_v], d_k, -1)
        W_o = made[f"{layer}.W_o"].reshape(inner, had, width)
        made[f"{layer}.W_o"] = doubled(more(W_o, d_k, 1).reshape(inner * d_k, width))
        made[f"{layer}.W_1"] = more(shared(made[f"{layer}.W_1"]), sizes.wide, -1, NEW)
        made[f"{layer}.b_1"] = more(made[f"{layer}.b_1"], sizes.wide, -1)
        made[f"{layer}.W_2"] = doubled(more(made[f"{layer}.W_2"], sizes.wide, 0))
        for name in ("b_o", "b_2", "gain_1", "shift_1", "gain_2", "shift_2"):
            made[f"{layer}.{name}"] = doubled(made[f"{layer}.{name}"])
    return made


def widen_file(path: str, output: str, sizes: Wider, seed: int, embedding: str) -> int:
    """Write a model of several layers as a larger one, of sixteen bits, and return how many numbers it has."""
    stack, table = read_model(path), open_table(embedding)
    found, about = model_arrays(path)
    names = found.pop("start.names").tobytes().decode().split("\n")
    kept = {name: found.pop(name) for name in [CASES] if name in found}
    settings = dict(stack.facts["settings"])  # type: ignore[call-overload]
    inner = len(found["0.b"]) if "in.W" in found else 0
    own = "itself" if stack.words is None else "corrected"
    had = Wider(found["in.W"].shape[1], found["0.W_1"].shape[1], int(settings[own])) if inner else sizes
    if not inner:
        raise InputError(f"{visible(path)} has one layer.", "Give a model of several layers.")
    for name, before, now in zip(Wider._fields, had, sizes, strict=True):
        if now < before:
            said = f"--{name} {now} is less than the model has, {before}."
            raise UsageError(said, f"Give {before} or more.", f"--{name}")
    if sizes.width > 2 * had.width:
        said = f"--width {sizes.width} is more than twice what the model has, {had.width}."
        raise UsageError(said, f"Give {2 * had.width} or less.", "--width")
    if sizes.width % inner:
        said = f"--width {sizes.width} cannot be shared among {inner} heads."
        raise UsageError(said, f"Give a multiple of {inner}.", "--width")
    creatable(output)
    wanted = feature_names(table, int(settings["endings"]), sizes.itself)
    start = np.zeros((len(wanted), table.dim), np.float32)
    start[[*map(wanted.index, names)]] = found["start.vectors"]
    made = widen({**found, "start.vectors": start}, sizes, np.random.default_rng(seed))
    arrays = in_bits(made, "16") | kept | {"start.names": np.frombuffer("\n".join(wanted).encode(), np.uint8)}
    facts = {
        **stack.facts,
        "settings": settings | {"width": sizes.width, "wide": sizes.wide, own: sizes.itself},
        "widened": {"from": visible(Path(path).name), "seed": seed, **had._asdict()},  # its sizes before
    }
    with written(output) as stream:
        heads = [head.name for head in stack.last.heads]
        write_model(stream, arrays, about["vectors"], about["fingerprint"], True, heads, facts)
    return sum(value.size for name, value in arrays.items() if name != "start.names")
