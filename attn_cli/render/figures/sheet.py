"""The sheet that a figure is drawn on: axes whose units are inches, from the upper left corner."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from attn_cli.errors import UsageError
from attn_cli.render.figures.pen import INCH, LINE, Pen

if TYPE_CHECKING:
    from matplotlib.axes import Axes

EDGE = 0.12  # inches of white around everything
GAP = 0.07  # between a label and what it names
HEADLINE, SMALL = 12.0, 8.5  # points
LEAST_FONT, LARGEST_FONT, LARGEST_OF_ALL = 4.0, 11.0, 18.0
GROWTH = 20.0  # points an inch, of labels in lines of more than half an inch: a slide
LETTER = 0.35  # of the font size: half the height of a letter, which a label is centred by


class Area(NamedTuple):
    """The inches that a sheet has; None is as many as are needed."""

    width: float | None = None
    height: float | None = None


class Plan(Protocol):
    """Where everything stands in a figure: what every kind has of it."""

    @property
    def title(self) -> Sequence[str]:
        """The title's lines."""
        ...

    @property
    def width(self) -> float:
        """The inches that it takes across."""
        ...

    @property
    def height(self) -> float:
        """The inches that it takes from top to bottom."""
        ...


class Drawing(Protocol):
    """What one kind of figure shows: it knows where everything stands, and how it is drawn."""

    @property
    def title(self) -> str:
        """What stands above it; nothing if empty."""
        ...

    def _replace(self, *, title: str) -> Drawing:
        """Return it with another title."""
        ...

    def texts(self) -> Iterable[str]:
        """Return the tokens that are written."""
        ...

    def plan(self, pen: Pen, area: Area) -> Plan:
        """Return where everything stands, or raise UsageError where the area has no room for it."""
        ...

    def draw(self, sheet: Sheet, plan: Any) -> None:
        """Draw it on a sheet as its own plan says; the title stands there already."""
        ...


class Box(NamedTuple):
    """A rectangle on the sheet, in inches."""

    x: float
    y: float
    width: float
    height: float


class Sheet(NamedTuple):
    """Axes of so many inches, the pen, and what has to be said of the figure."""

    axes: Axes
    pen: Pen
    notes: list[str]
    width: float
    height: float

    def text(
        self,
        x: float,
        y: float,
        text: str,
        size: float,
        align: str = "left",
        turned: float = 0,
        color: str | tuple[float, float, float] | None = None,
        weight: str = "normal",
    ) -> None:
        """Write a text whose letters are centred on the point; `turned` is in degrees, against the clock."""
        down = LETTER * size / INCH
        angle = math.radians(turned)
        self.axes.text(
            x + down * math.sin(angle),
            y + down * math.cos(angle),
            text,
            size=size,
            ha=align,
            va="baseline",
            rotation=turned,
            rotation_mode="anchor",
            color=color or self.pen.ink,
            weight=weight,
            family=list(self.pen.fonts.families),
            parse_math=False,
        )


def font_of(pitch: float) -> float:
    """Return the size of labels whose lines are so many inches apart; 0 where none can be read."""
    points = min(LARGEST_FONT + max(0.0, pitch - 0.55) * GROWTH, LARGEST_OF_ALL, pitch * INCH * 0.78)
    return points if points >= LEAST_FONT else 0.0


def label_step(pitch: float) -> int:
    """Return 1 where every label has room at this pitch, 3 where every third has."""
    return max(1, math.ceil(LEAST_FONT * LINE / (pitch * INCH)))


def label_font(pitch: float) -> float:
    """Return the size of labels at this pitch: where there is no room for each of them, that of every so many-th."""
    return font_of(pitch * label_step(pitch)) or LEAST_FONT


def title_lines(pen: Pen, title: str, width: float) -> list[str]:
    """Return the title in lines that fit between the edges."""
    return folded(pen, pen.drawable(title), width, HEADLINE, "bold") if title else []


def folded(pen: Pen, text: str, width: float, size: float, weight: str = "normal") -> list[str]:
    """Return a text in lines that fit between the edges, broken between words."""
    lines: list[str] = []
    for word in text.split(" "):
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and pen.width(longer, size, weight) <= width - 2 * EDGE:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


def title_height(lines: Sequence[str]) -> float:
    """Return the inches that the title takes."""
    return len(lines) * HEADLINE * LINE / INCH + (GAP if lines else 0.0)


def draw_title(sheet: Sheet, lines: Sequence[str]) -> None:
    """Write the title at the top left."""
    step = HEADLINE * LINE / INCH
    for n, line in enumerate(lines):
        sheet.text(EDGE, EDGE + (n + 0.5) * step, line, HEADLINE, weight="bold")


def note_step(sheet: Sheet, step: int, what: str) -> None:
    """Say that only every so many-th label is written."""
    if step > 1:
        sheet.notes.append(f"Every {step}{ordinal(step)} {what} is named; a larger --size has room for more.")


def too_small(area: Area) -> UsageError:
    """Return the error of an area that has no room for a figure."""
    return UsageError(
        f"{area.width:g} x {area.height:g} inches are too few for this figure.",
        "Give a larger --size.",
        "--size",
    )


def ordinal(number: int) -> str:
    """Return the letters of an ordinal.

    >>> [f"{n}{ordinal(n)}" for n in (2, 3, 11, 21)]
    ['2nd', '3rd', '11th', '21st']
    """
    if number % 100 in (11, 12, 13):
        return "th"
    return {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")


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
