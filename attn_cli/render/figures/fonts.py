"""Fonts for tokens: DejaVu Sans, which comes with Matplotlib, then whichever of this machine's fonts has the rest."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

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
