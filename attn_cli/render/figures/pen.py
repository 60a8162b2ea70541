"""What a figure is drawn with: colours, fonts, and tokens as they can be shown."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from attn_cli.io.escape import visible
from attn_cli.render.figures.fonts import Fonts, advice, fonts_for
from attn_cli.render.palette import PAPER, RGB, page_colors, ramp, strong

if TYPE_CHECKING:
    from attn_cli.settings.output import View

LONGEST = 24  # characters of a label
LINE = 1.25  # a line's height in font sizes
INCH = 72.0  # points


class Pen(NamedTuple):
    """Colours and fonts of one figure."""

    ink: str
    paper: str
    faint: str  # for what stands back
    palette: str
    fonts: Fonts
    keeps_all: bool  # whether characters that no font here has are written all the same

    def shown(self, token: str) -> str:
        """Return a token as a label: inert, not too long, with codes in the place of what no font has."""
        text = visible(token)
        return self.drawable(text if len(text) <= LONGEST else f"{text[: LONGEST - 5]}…{text[-4:]}")

    def drawable(self, text: str) -> str:
        """Return a text inert, with codes in the place of what no font has."""
        text = visible(text)
        if self.keeps_all or self.fonts.missing.isdisjoint(text):
            return text
        return "".join(f"<U+{ord(char):04X}>" if char in self.fonts.missing else char for char in text)

    def width(self, text: str, size: float, weight: str = "normal") -> float:
        """Return the inches that a text of so many points takes."""
        return _width(text, self.fonts.families, weight) * size

    def widest(self, texts: Iterable[str], size: float) -> float:
        """Return the inches of the widest of these texts; 0 if there are none."""
        return max((self.width(text, size) for text in dict.fromkeys(texts)), default=0.0)

    def ramp(self, is_difference: bool = False) -> list[RGB]:
        """Return the colours of shaded cells, from the least value to the largest."""
        return ramp(self.palette, is_difference)

    def strong(self) -> list[RGB]:
        """Return the colours of lines and bars, which stand out from the paper."""
        return strong(self.palette)


@lru_cache(maxsize=4096)
def _width(text: str, families: tuple[str, ...], weight: str) -> float:
    """Return the inches that a text of one point takes."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextToPath

    look = FontProperties(family=list(families), size=100, weight=weight)
    wide: float = TextToPath().get_text_width_height_descent(text, look, False)[0]
    return wide / 100 / INCH


def pen_for(view: View, tokens: Iterable[str], keeps_all: bool = False) -> Pen:
    """Return the pen that draws these tokens in the view's palette."""
    name = view.palette or ("greys" if view.color == "never" else PAPER)
    paper, ink, faint = page_colors(name)
    texts = list(dict.fromkeys(tokens))
    fonts = fonts_for(map(visible, texts))
    if keeps_all:
        fonts = fonts._replace(families=(*fonts.families, "sans-serif"))
    return Pen(ink, paper, faint, name, fonts, keeps_all)


def missing_note(pen: Pen, tokens: Iterable[str]) -> list[str]:
    """Return what to say of characters that no font has."""
    if pen.keeps_all or not pen.fonts.missing:
        return []
    return [advice(pen.fonts.missing, list(map(visible, tokens)))]


def on_paper(rgb: RGB) -> tuple[float, float, float]:
    """Return a colour as Matplotlib takes it.

    >>> on_paper((0, 51, 255))
    (0.0, 0.2, 1.0)
    """
    red, green, blue = rgb
    return (red / 255, green / 255, blue / 255)
