"""What a figure is drawn with: colours, fonts, and tokens as they can be shown."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from attn_cli.errors import visible
from attn_cli.render.ramps import PAPER, RGB, page_colors
from attn_cli.settings import View

LONGEST = 24  # characters of a label
LINE = 1.25  # a line's height in font sizes
INCH = 72.0  # points
EDGE = 0.12  # inches of white around everything
GAP = 0.07  # between a label and what it names
HEADLINE, SMALL = 12.0, 8.5  # points
ROW = LINE * SMALL / INCH  # inches of a line of small letters
LEAST_FONT, LARGEST_FONT, LARGEST_OF_ALL = 4.0, 11.0, 18.0
GROWTH = 20.0  # points per inch, of labels in lines of more than half an inch: a slide
SLANT = math.sqrt(0.5)
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


class Labels(NamedTuple):
    """Labels of rows or columns that are `pitch` inches apart; every `step`-th is written."""

    texts: Sequence[str]
    pitch: float
    font: float
    step: int
    turned: int = 0
    extent: float = 0.0  # inches across the rows, or above the columns
    overhang: float = 0.0  # inches by which a slanted one stands out beyond the last column

    def places(self) -> range:
        """Return which of them are written."""
        return range(0, len(self.texts), self.step)


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

    def folded(self, text: str, width: float, size: float, weight: str = "normal") -> list[str]:
        """Return a text in lines that fit between the edges, broken between words."""
        lines: list[str] = []
        for word in text.split(" "):
            longer = f"{lines[-1]} {word}" if lines else word
            if lines and self.width(longer, size, weight) <= width - 2 * EDGE:
                lines[-1] = longer
            else:
                lines.append(word)
        return lines

    def _labels(self, tokens: Sequence[str], pitch: float) -> Labels:
        # Where there is no room for each of them, every so many-th.
        step = max(1, math.ceil(LEAST_FONT * LINE / (pitch * INCH)))
        return Labels([*map(self.shown, tokens)], pitch, font_of(pitch * step) or LEAST_FONT, step)

    def rows(
        self, tokens: Sequence[str], pitch: float, least: float = 0.0, most: float | None = None
    ) -> Labels:
        """Return the labels of rows, which take `least` inches at least, and `most` where letters can be so small."""
        labels = self._labels(tokens, pitch)
        font, shown = labels.font, labels.texts[:: labels.step]
        extent = self.widest(shown, font) + GAP
        if most is not None and extent > most:
            font = max(LEAST_FONT, font * most / extent)
            extent = self.widest(shown, font) + GAP
        return labels._replace(font=font, extent=max(least, extent))

    def columns(self, tokens: Sequence[str], pitch: float) -> Labels:
        """Return the labels of columns: level where they fit, else slanted, else upright."""
        labels = self._labels(tokens, pitch)
        room, line = pitch * labels.step, LINE * labels.font / INCH
        widths = [self.width(text, labels.font) for text in labels.texts[:: labels.step]]
        widest = max(widths)
        if widest <= room * 0.9:
            return labels._replace(extent=line + GAP)
        if room * SLANT < line:
            return labels._replace(turned=90, extent=widest + GAP)
        ends = [place * pitch + wide * SLANT for place, wide in zip(labels.places(), widths, strict=True)]
        overhang = max(0.0, max(ends) + pitch / 2 - len(tokens) * pitch)
        return labels._replace(turned=45, extent=SLANT * (widest + line) + GAP, overhang=overhang)


def font_of(pitch: float) -> float:
    """Return the size of labels whose lines are so many inches apart; 0 where none can be read."""
    points = min(LARGEST_FONT + max(0.0, pitch - 0.55) * GROWTH, LARGEST_OF_ALL, pitch * INCH * 0.78)
    return points if points >= LEAST_FONT else 0.0


@lru_cache(maxsize=4096)
def _width(text: str, families: tuple[str, ...], weight: str) -> float:
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextToPath

    look = FontProperties(family=list(families), size=100, weight=weight)
    wide: float = TextToPath().get_text_width_height_descent(text, look, False)[0]
    return wide / 100 / INCH


def pen_for(view: View, tokens: Iterable[str], keeps_all: bool = False) -> Pen:
    """Return the pen that draws these tokens in the view's palette."""
    name = view.palette or ("greys" if view.color == "never" else PAPER)
    paper, ink, faint = page_colors(name)
    fonts = fonts_for(map(visible, dict.fromkeys(tokens)))
    if keeps_all:
        fonts = fonts._replace(families=(*fonts.families, "sans-serif"))
    return Pen(ink, paper, faint, name, fonts, keeps_all)


def on_paper(rgb: RGB) -> tuple[float, float, float]:
    """Return a colour as Matplotlib takes it: each part from 0 to 1."""
    red, green, blue = (part / 255 for part in rgb)
    return red, green, blue


def fonts_for(texts: Iterable[str]) -> Fonts:
    """Return the fonts that draw all characters of these texts, as far as there are any."""
    from matplotlib import font_manager

    wanted = {ord(char) for text in texts for char in text if char not in UNDRAWN}
    wanted -= _letters(font_manager.findfont(FIRST))
    families = [FIRST]
    for name, path in _files() if wanted else ():
        if found := wanted & _letters(path):
            families.append(name)
            wanted -= found
    return Fonts(tuple(families), frozenset(map(chr, wanted)))


@lru_cache(maxsize=1)
def _files() -> Sequence[tuple[str, str]]:
    """Return the families that there are, each with the file of its upright letters; widely made ones first."""
    from matplotlib import font_manager

    files: dict[str, str] = {}
    for one in font_manager.fontManager.ttflist:
        is_upright = one.style == "normal" and one.weight in (400, "normal", "regular", "book")
        if is_upright and not one.name.startswith(NO_FONT):
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


def missing_note(pen: Pen, tokens: Iterable[str]) -> list[str]:
    """Return a sentence on the characters that no font has: the first of them, its token, what to install."""
    if pen.keeps_all or not pen.fonts.missing:
        return []
    char, *others = sorted(pen.fonts.missing)
    token = next((shown for shown in map(visible, tokens) if char in shown), char)
    name = unicodedata.name(char, "").lower()
    more = f", nor {len(others)} more" if others else ""
    if unicodedata.category(char) == "So":
        hint = "Install one with outlines, such as Symbola or Noto Emoji; colour fonts cannot be drawn."
    else:
        hint = f"Install one of its script{f' ({name.split()[0]})' if name else ''}, such as Noto Sans."
    about = f"U+{ord(char):04X}{f' ({name})' if name else ''}"
    return [f"No font here has {about} of {token[:40]!r}{more}: the figure shows its code. {hint}"]
