"""Shades for values: ramps of steadily growing (or falling) lightness, suitable for colour-blind readers.

Anchors: viridis and cividis are those of matplotlib (CC0); blues and greys follow ColorBrewer 2.0 (Apache 2.0). The
low end of a ramp is dark for dark backgrounds, and light for light ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from rich.color import Color
from rich.style import Style

from attn_cli.io.terminal import Terminal

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
