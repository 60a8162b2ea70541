"""Shades for values: ramps of colours, the values that they run between, and the legend that says so.

Ramps have steadily growing (or falling) lightness, suitable for colour-blind readers. Anchors: viridis and cividis are
those of matplotlib (CC0); blues and greys follow ColorBrewer 2.0 (Apache 2.0). The low end of a ramp is dark for dark
backgrounds, and light for light ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import TypeVar

import numpy as np
from rich.color import Color
from rich.style import Style

from attn_cli.io.terminal import Terminal
from attn_cli.io.types import Array, Ints, NamedTuple
from attn_cli.render import Beside, Block, Maps, Matrix, ShadeRange, numbers
from attn_cli.settings import View

SHADES = 64
DARK = {
    "viridis": "440154 472d7b 3b528b 2c728e 21918c 28ae80 5ec962 addc30 fde725",
    "cividis": "00224e 123570 3b496c 575d6d 707173 8a8678 a59c74 c3b369 fee838",
}
LIGHT = {
    "blues": "f7fbff deebf7 c6dbef 9ecae1 6baed6 4292c6 2171b5 08519c 08306b",
    "greys": "ffffff f0f0f0 d9d9d9 bdbdbd 969696 737373 525252 252525 000000",
}
# Where nobody knows the background: each colour stands out 3 to 1 from white and from black, and text on it 4.5 to 1.
# The least shades are the background itself.
EITHER = {"either": "7f93b8 8a7cc4 b0569c c2185b"}
PAPER = "blues"  # for pages, unless another one is asked for
# The blues of a page on its dark background, from that to nearly white.
NIGHT = "161d25 15314c 16497a 2171b5 4292c6 6baed6 9ecae1 deebf7"
# For differences: purple or blue below zero, orange above, which every kind of colour vision tells apart; zero is
# the background. The light one is ColorBrewer's PuOr.
DIVERGING_DARK = "9ecae1 4292c6 1d4e7a 262626 7a4310 d9822b fdd0a2"
DIVERGING_LIGHT = "542788 998ec3 d8daeb f7f7f7 fee0b6 f1a340 b35806"
DIVERGING_EITHER = "3b76c4 6f86ae 949494 949494 a8865a b8642a"
# Sixteen colours have few steps of lightness that every scheme keeps in order: (background, foreground).
_SIXTEEN = {  # by whether it is a difference, and whether the background is dark (None: unknown)
    (False, True): ((0, 7), (4, 15), (6, 0), (2, 0), (3, 0), (15, 0)),
    (False, False): ((15, 0), (7, 0), (6, 0), (4, 15), (0, 15)),
    (True, True): ((6, 0), (4, 15), (0, 7), (0, 7), (1, 15), (3, 0)),
    (True, False): ((4, 15), (6, 0), (15, 0), (15, 0), (3, 0), (1, 15)),
    (False, None): ((8, 15), (6, 0), (5, 15), (1, 15)),
    (True, None): ((4, 15), (6, 0), (8, 15), (8, 15), (5, 15), (1, 15)),
}
_INKS = {True: (4, 6, 2, 3), False: (6, 4, 0), None: (6, 5, 1)}
BOLD = Style(bold=True)

RGB = tuple[int, int, int]


def page_colors(name: str) -> tuple[str, str, str]:
    """Return the colours of a picture in a palette: of the background, of ink on it, and of what stands back."""
    return ("#101418", "#eceff1", "#8a949c") if name in DARK else ("#ffffff", "#111111", "#767676")


def styles_on(
    terminal: Terminal, palette: str | None, is_ink: bool = True, is_difference: bool = False
) -> Sequence[Style | None]:
    """Return SHADES styles for a terminal: inks or cells, None each where it has no colours."""
    if not terminal.colors:
        return [None] * SHADES
    name = palette or {True: "viridis", False: "blues", None: "either"}[terminal.dark]
    return inks(name, terminal.colors) if is_ink else shades(name, terminal.colors, is_difference)


# Cached for each number of colours: a Style keeps the codes of the first terminal that it was drawn on.
@lru_cache(maxsize=8)
def shades(name: str, colors: int, is_difference: bool = False) -> tuple[Style, ...]:
    """Return SHADES cell styles, each a background and readable text on it; the order is that of `ramp`."""
    pairs = [(Color.from_rgb(*text_on(rgb)), Color.from_rgb(*rgb)) for rgb in ramp(name, is_difference)]
    if colors == 16:
        steps = _SIXTEEN[is_difference, _background(name)]
        pairs = [(Color.from_ansi(text), Color.from_ansi(back)) for back, text in steps]
    styles = [Style(color=text, bgcolor=back) for text, back in pairs]
    if name in EITHER and not is_difference:
        styles[: len(styles) // 10 or 1] = [Style()] * (len(styles) // 10 or 1)
    return _spread(styles)


def _background(name: str) -> bool | None:
    return None if name in EITHER else name in DARK


def _spread(styles: Sequence[Style]) -> tuple[Style, ...]:
    return tuple(styles[i * len(styles) // SHADES] for i in range(SHADES))


@lru_cache(maxsize=8)
def inks(name: str, colors: int) -> tuple[Style, ...]:
    """Return SHADES text styles for bars and blocks; the ramp's faint end is left out."""
    few = map(Color.from_ansi, _INKS[_background(name)])
    full = (Color.from_rgb(*rgb) for rgb in strong(name))
    return _spread([Style(color=color) for color in (few if colors == 16 else full)])


def strong(name: str) -> list[RGB]:
    """Return SHADES colours that stand out from the background; the ramp's faint end is left out."""
    colors = ramp(name)
    skip = 0 if name in EITHER else SHADES // 3
    return [colors[skip + i * (SHADES - 1 - skip) // (SHADES - 1)] for i in range(SHADES)]


def ramp(name: str, is_difference: bool = False) -> list[RGB]:
    """Return SHADES colours from the least value to the largest; those of a difference suit the same background."""
    codes = (DARK | LIGHT | EITHER)[name]
    if is_difference:
        codes = {True: DIVERGING_DARK, False: DIVERGING_LIGHT, None: DIVERGING_EITHER}[_background(name)]
    return between(codes)


def between(codes: str) -> list[RGB]:
    """Return SHADES colours, linear between anchors such as those of `NIGHT`."""
    anchors, colors = [bytes.fromhex(code) for code in codes.split()], list[RGB]()
    for i in range(SHADES):
        place = i * (len(anchors) - 1) / (SHADES - 1)
        low = min(int(place), len(anchors) - 2)
        sides = zip(anchors[low], anchors[low + 1], strict=True)
        red, green, blue = (round(a + (b - a) * (place - low)) for a, b in sides)
        colors.append((red, green, blue))
    return colors


def text_on(rgb: RGB) -> RGB:
    """Return black or white, whichever stands out more (WCAG 2 relative luminance)."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (v / 255 for v in rgb)]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return (0, 0, 0) if luminance > 0.179 else (255, 255, 255)


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
    return np.where(np.isnan(values), -1, np.nan_to_num(places)).astype(np.intp)


def shade_range(block: Matrix) -> ShadeRange:
    """Return the values that a matrix's shades run between; zero is in the middle of a difference's."""
    if block.scale is not None:
        return block.scale
    known = block.values[~np.isnan(block.values)]
    if block.is_difference:
        return ShadeRange(-numbers.largest(known), numbers.largest(known))
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
    >>> weight_range(0.25, 0.75, even=1 / 2).held, weight_range(0.8, 1.0, even=1 / 2).most
    (None, 1.0)
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
        scale, form = block.scale, numbers.map_format(block)
    elif masked.all():
        return Legend("", "", "", has_masked=True)
    else:
        scale, form = shade_range(block), numbers.exact(block._replace(digits=None))
    low, middle, high = form.row([scale.least, (scale.least + scale.most) / 2, scale.most])
    more = "full scale" if scale.is_full else ""
    if scale.held is not None:
        first, last = form.row(scale.held)
        low, high, more = (first, last, more) if first == last else (low, high, f"weights: {first} to {last}")
    return Legend(low, middle, high, more, bool(masked.any()))
