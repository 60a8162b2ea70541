"""What a figure is drawn with: colours, fonts, and tokens as they can be shown."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from attn_cli.io.escape import visible
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


FIRST = "DejaVu Sans"

# Asked before the others: fonts of many letters, in one style, that systems bring along.
WIDELY_MADE = (
    *("Noto Sans", "Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Emoji", "Symbola", "Arial Unicode MS"),
    *("Hiragino Sans", "PingFang SC", "Apple SD Gothic Neo", "Microsoft YaHei", "Yu Gothic", "Malgun Gothic"),
    *("Segoe UI", "Segoe UI Symbol", "Segoe UI Emoji", "Nirmala UI", "FreeSans", "FreeSerif", "Unifont"),
)
NO_FONT = "Last Resort"  # Matplotlib's own, which draws a box for every letter there is
UNDRAWN = frozenset("\ufe0e\ufe0f\u200d")  # say how their neighbours look, and have no picture of their own


class Fonts(NamedTuple):
    """The families that draw some texts, in the order in which they are asked, and the characters that none has."""

    families: tuple[str, ...]
    missing: frozenset[str]


def fonts_for(texts: Iterable[str]) -> Fonts:
    """Return the fonts that draw all characters of these texts, as far as there are any."""
    wanted = {ord(char) for text in texts for char in text if char not in UNDRAWN}
    from matplotlib import font_manager

    wanted -= _letters(font_manager.findfont(FIRST))
    families = [FIRST]
    for name, path in _files() if wanted else ():
        if found := wanted & _letters(path):
            families.append(name)
            wanted -= found
        if not wanted:
            break
    return Fonts(tuple(families), frozenset(map(chr, wanted)))


@lru_cache(maxsize=1)
def _files() -> Sequence[tuple[str, str]]:
    """Return the families that there are, each with the file of its upright letters; widely made ones first."""
    from matplotlib import font_manager

    files: dict[str, str] = {}
    for one in font_manager.fontManager.ttflist:
        if one.name.startswith(NO_FONT):
            continue
        if one.style == "normal" and one.weight in (400, "normal", "regular", "book"):
            files.setdefault(one.name, one.fname)
    order = {name: n for n, name in enumerate(WIDELY_MADE)}
    return sorted(files.items(), key=lambda file: (order.get(file[0], len(order)), file[0]))


@lru_cache(maxsize=512)
def _letters(path: str) -> frozenset[int]:
    """Return the characters that a font file has; none where it cannot be read, or draws no outlines."""
    from matplotlib.ft2font import FT2Font

    try:
        font = FT2Font(path)
        return frozenset(font.get_charmap()) if font.scalable else frozenset()
    except (OSError, RuntimeError, ValueError):
        return frozenset()


def advice(missing: Iterable[str], tokens: Sequence[str]) -> str:
    """Return a sentence on the characters that no font has: the first of them, their token, what to install."""
    chars = sorted(missing)
    char = chars[0]
    token = next((token for token in tokens if char in token), char)
    name = unicodedata.name(char, "").lower()
    more = f", nor {len(chars) - 1} more" if len(chars) > 1 else ""
    if unicodedata.category(char) == "So":
        hint = "Install one with outlines, such as Symbola or Noto Emoji; colour fonts cannot be drawn."
    else:
        hint = f"Install one of its script{f' ({name.split()[0]})' if name else ''}, such as Noto Sans."
    about = f"U+{ord(char):04X}{f' ({name})' if name else ''}"
    return f"No font here has {about} of {token[:40]!r}{more}: the figure shows its code. {hint}"
