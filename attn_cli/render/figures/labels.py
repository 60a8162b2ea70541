"""Tokens beside the rows and above the columns of a matrix, turned where they would overlap."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import NamedTuple

from attn_cli.render.figures.pen import INCH, LINE, Pen
from attn_cli.render.figures.sheet import GAP, LEAST_FONT, Sheet, label_font, label_step

SLANT = math.sqrt(0.5)


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


def row_labels(
    pen: Pen, texts: Sequence[str], pitch: float, least: float = 0.0, most: float | None = None
) -> Labels:
    """Return the labels of rows, which take `least` inches at least, and `most` where letters can be so small."""
    font, step = label_font(pitch), label_step(pitch)
    extent = pen.widest(texts[::step], font) + GAP
    if most is not None and extent > most:
        font = max(LEAST_FONT, font * most / extent)
        extent = pen.widest(texts[::step], font) + GAP
    return Labels(texts, pitch, font, step, 0, max(least, extent))


def column_labels(pen: Pen, texts: Sequence[str], pitch: float) -> Labels:
    """Return the labels of columns: level where they fit, else slanted, else upright."""
    font, step = label_font(pitch), label_step(pitch)
    widths = [pen.width(text, font) for text in texts[::step]]
    widest, line = max(widths), LINE * font / INCH
    labels = Labels(texts, pitch, font, step)
    if widest <= pitch * step * 0.9:
        return labels._replace(extent=line + GAP)
    if pitch * step * SLANT < line:
        return labels._replace(turned=90, extent=widest + GAP)
    places = [place * pitch for place in labels.places()]
    ends = [place + wide * SLANT for place, wide in zip(places, widths, strict=True)]
    overhang = max(0.0, max(ends) + pitch / 2 - len(texts) * pitch)
    return labels._replace(turned=45, extent=SLANT * (widest + line) + GAP, overhang=overhang)


def draw_rows(
    sheet: Sheet,
    labels: Labels,
    x: float,
    y: float,
    align: str = "right",
    faint: Collection[int] = (),
) -> None:
    """Write labels beside rows that begin at y; they end, or with `align` left begin, at x; some stand back."""
    for i in labels.places():
        color = sheet.pen.faint if i in faint else sheet.pen.ink
        sheet.text(x, y + (i + 0.5) * labels.pitch, labels.texts[i], labels.font, align, color=color)


def draw_columns(sheet: Sheet, labels: Labels, x: float, y: float) -> None:
    """Write labels above columns that begin at x; y is the upper edge of the matrix."""
    for j in labels.places():
        middle = x + (j + 0.5) * labels.pitch
        if labels.turned:
            sheet.text(middle, y - GAP, labels.texts[j], labels.font, turned=labels.turned)
        else:
            sheet.text(middle, y - labels.extent / 2, labels.texts[j], labels.font, "center")
