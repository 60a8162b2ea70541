"""What shades mean: the values that they run between, and the legend that says so."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

import numpy as np

from attn_cli.io.types import Array, Ints, NamedTuple
from attn_cli.render.blocks import Beside, Block, Maps, Matrix, ShadeRange
from attn_cli.render.numbers import exact, largest, map_format
from attn_cli.render.palette import SHADES
from attn_cli.settings.output import View

UP = 0.51  # from here on to the next shade: not one half, where rounding errors would choose the shade
FULL = ShadeRange(0.0, 1.0, is_full=True)
FULL_DIFFERENCE = ShadeRange(-1.0, 1.0, is_full=True)  # of two weights
AnyBlock = TypeVar("AnyBlock", bound=Block)


def on_scale(blocks: Iterable[Block], view: View) -> Iterator[Block]:
    """Yield the blocks; with --shades full, weights have shades from 0 to 1, and their differences from -1 to 1."""
    return map(_full, blocks) if view.shades == "full" else iter(blocks)


def _full(block: AnyBlock) -> AnyBlock:
    match block:
        case Beside(_, parts):
            return block._replace(parts=[*map(_full, parts)])
        case Matrix(is_difference=True):
            return block._replace(scale=FULL_DIFFERENCE)
        case Matrix(is_weights=True):
            return block._replace(scale=FULL)
        case Maps(is_weights=True):
            return block._replace(scale=FULL)
    return block


def shading(values: Array, scale: ShadeRange) -> Ints:
    """Return each value's shade, 0 to SHADES - 1 from the least to the most of the range; -1 where masked.

    Values that differ by rounding errors alone have one shade, also half way between two, where uniform attention is.
    """
    width = scale.most - scale.least or 1.0
    with np.errstate(invalid="ignore", over="ignore"):
        places = np.floor((values - scale.least) / width * (SHADES - 1) + UP).clip(0, SHADES - 1)
    shades: Ints = np.where(np.isnan(values), -1, np.nan_to_num(places)).astype(np.intp)
    return shades


def shade_range(block: Matrix) -> ShadeRange:
    """Return the values that a matrix's shades run between; zero is in the middle of a difference's."""
    if block.scale is not None:
        return block.scale
    known = block.values[~np.isnan(block.values)]
    if block.is_difference:
        return ShadeRange(-largest(known), largest(known))
    if not known.size:
        return ShadeRange(0.0, 0.0)
    least, most = float(known.min()), float(known.max())
    # Each row of weights sums to 1, so the mean of those that are not masked is the even share.
    return weight_range(least, most, float(known.mean())) if block.is_weights else ShadeRange(least, most)


def weight_range(least: float, most: float, even: float) -> ShadeRange:
    """Return the range of weights that lie between these two, but one that covers an even share, 1/n, at least.

    So the contrast of two keys is full only if their weights differ by 1/n, not where they are .33 and .34, and
    uniform attention is half way between light and dark.

    >>> [round(x, 3) for x in weight_range(0.28, 0.38, even=1 / 3)[:2]], weight_range(0.2, 0.6, even=1 / 3)[:2]
    ([0.163, 0.497], (0.2, 0.6))
    """
    if most - least >= even:
        return ShadeRange(least, most)
    middle = (least + most) / 2
    return ShadeRange(middle - even / 2, min(1.0, middle + even / 2), held=(least, most))


def all_values(parts: Sequence[Matrix]) -> Array:
    """Return the values of matrices one below the other; narrower ones are filled up with NaN."""
    most = max(part.values.shape[1] for part in parts)
    wide = (((0, 0), (0, most - part.values.shape[1])) for part in parts)
    filled = (np.pad(part.values, by, constant_values=np.nan) for part, by in zip(parts, wide, strict=True))
    return np.concatenate([*filled])


def sharing_scale(parts: Sequence[Matrix]) -> list[Matrix]:
    """Return matrices that stand beside each other with one range of shades."""
    scale = shade_range(parts[0]._replace(values=all_values(parts), is_difference=False))
    return [part._replace(scale=scale) for part in parts]


class Legend(NamedTuple):
    """What the shades mean: the least, the middle and the largest value; all "" where everything is masked."""

    low: str
    middle: str
    high: str
    more: str = ""  # how the range was chosen, where it is not that of the values
    has_masked: bool = False


def legend(block: Matrix | Maps) -> Legend:
    """Return the legend of the shades of a matrix, or of small maps."""
    masked = np.isnan(block.values)
    if isinstance(block, Maps):
        scale, form = block.scale, map_format(block)
    elif masked.all():
        return Legend("", "", "", has_masked=True)
    else:
        scale, form = shade_range(block), exact(block._replace(digits=None))
    low, middle, high = form.row([scale.least, (scale.least + scale.most) / 2, scale.most])
    more = "full scale" if scale.is_full else ""
    if scale.held is not None:
        first, last = form.row(scale.held)
        low, high, more = (first, last, more) if first == last else (low, high, f"weights: {first} to {last}")
    return Legend(low, middle, high, more, bool(masked.any()))
