"""The sheet that a figure is drawn on: axes whose units are inches, from the upper left corner."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from attn_cli.errors import UsageError, refuse
from attn_cli.render.figures.pen import EDGE, GAP, HEADLINE, INCH, LINE, Labels, Pen
from attn_cli.render.views.wording import head_named
from attn_cli.trace import Head, Trace

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LETTER = 0.35  # of the font size: half the height of a letter, which a label is centred by
LEAST_ROW, WANTED, LONGEST = 0.085, 8.0, 17.0  # inches of a row; of rows of middling number, and at most
ROUNDS = 8  # of fitting cells and labels into a given size
MOST = 200  # tokens of figures that have a line for each


class Plan(NamedTuple):
    """Where everything stands: the inches that all takes, and what draws all but the title."""

    width: float
    height: float
    draw: Callable[[Sheet], None]


class Frame(NamedTuple):
    """What a figure is planned for: its title, its pen, and its inches (width, height) where a size is given."""

    title: str
    pen: Pen
    size: tuple[float, float] | None = None

    @property
    def width(self) -> float | None:
        """The given width."""
        return self.size and self.size[0]

    def lines(self, width: float) -> list[str]:
        """Return the title in lines that fit between the edges."""
        return self.pen.folded(self.pen.drawable(self.title), width, HEADLINE, "bold") if self.title else []

    def top(self, width: float) -> float:
        """Return the inches from the top to what is below the title, in a figure of the given width, else this one."""
        lines = len(self.lines(self.width or width))
        return EDGE + (lines * HEADLINE * LINE / INCH + (GAP if lines else 0.0))

    def row_pitch(self, n: int, sizes: tuple[float, float], rest: float) -> float:
        """Return the inches of each of n rows: what is left of a size, at least sizes[0], or at most sizes[1]."""
        least, most = sizes
        if self.size is None:
            return natural(n, most)
        width, height = self.size
        pitch = (height - self.top(width) - rest) / n
        self.check_room(pitch >= least)
        return pitch

    def check_room(self, is_enough: bool) -> None:
        """Raise UsageError for a size that has no room for a figure."""
        if self.size is not None and not is_enough:
            what = f"{self.size[0]:g} x {self.size[1]:g} inches are too few for this figure."
            raise UsageError(what, "Give a larger --size.", "--size")

    def fitted(
        self,
        place: Callable[[float], Plan],
        cell: float,
        cells: tuple[int, int],
        least: float,
        smallest: float,
    ) -> Plan:
        """Return the plan whose cells, (across, down) of them, are as large as the size lets them be.

        `place` makes a plan of a cell's inches: first `cell`, then `least` or more; at last it shrinks to `smallest`.
        """
        plan, (across, down) = place(cell), cells
        if self.size is None:
            return plan
        width, height = self.size
        for _ in range(ROUNDS):
            wide = (width - (plan.width - cell * across)) / across
            high = (height - (plan.height - cell * down)) / down
            cell = max(least, (cell + min(wide, high)) / 2)
            plan = place(cell)
        while plan.width > width or plan.height > height:
            cell *= 0.97
            self.check_room(cell >= smallest)
            plan = place(cell)
        return plan


class Drawing(NamedTuple):
    """What a figure shows: its title, the tokens that are written, and how all finds its place, else UsageError."""

    title: str
    texts: Sequence[str]
    plan: Callable[[Frame], Plan]


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
        down, angle = LETTER * size / INCH, math.radians(turned)
        look: dict[str, Any] = {"ha": align, "va": "baseline", "rotation": turned, "rotation_mode": "anchor"}
        look |= {"family": list(self.pen.fonts.families), "size": size, "weight": weight}
        x, y = x + down * math.sin(angle), y + down * math.cos(angle)
        self.axes.text(x, y, text, color=color or self.pen.ink, parse_math=False, **look)

    def title(self, lines: Sequence[str]) -> None:
        """Write the title at the top left."""
        for n, line in enumerate(lines):
            self.text(EDGE, EDGE + (n + 0.5) * HEADLINE * LINE / INCH, line, HEADLINE, weight="bold")

    def rows(
        self, labels: Labels, x: float, y: float, align: str = "right", faint: Collection[int] = ()
    ) -> None:
        """Write labels beside rows that begin at y; they end, or with `align` left begin, at x; some stand back."""
        for i in labels.places():
            color = self.pen.faint if i in faint else self.pen.ink
            self.text(x, y + (i + 0.5) * labels.pitch, labels.texts[i], labels.font, align, color=color)

    def columns(self, labels: Labels, x: float, y: float) -> None:
        """Write labels above columns that begin at x; y is the upper edge of the matrix."""
        up, align = (GAP, "left") if labels.turned else (labels.extent / 2, "center")
        for j in labels.places():
            middle = x + (j + 0.5) * labels.pitch
            self.text(middle, y - up, labels.texts[j], labels.font, align, labels.turned)

    def note_step(self, step: int, what: str) -> None:
        """Say that only every so many-th label is written."""
        if step > 1:
            self.notes.append(f"One {what} in {step} is named; a larger --size has room for more.")


def natural(n: float, most: float) -> float:
    """Return the inches of each of n rows where the size is free, `most` at the most."""
    return min(most, max(WANTED / n, LEAST_ROW), LONGEST / n)


def head_title(trace: Trace, head: Head) -> str:
    """Return the end of a title: which head is shown; "" where there is one."""
    if len(trace.head_names) == 1:
        return ""
    if head.name in ("mean", "rollout"):
        return f", {head.name} of the heads" if head.name == "mean" else ", attention rollout"
    layer = "" if head.layer is None else f", layer {head.layer}"
    return f"{layer}, {head_named(head.name)}"


def refuse_top(trace: Trace, kind: str) -> None:
    """Raise UsageError where --top asks for links alone."""
    hint = "--figure links and --figure bars show the strongest links alone."
    what = f"--figure {kind} draws all weights, without --top."
    refuse(trace.settings.top is not None, what, hint, "--top")


def refuse_long(kind: str, *tokens: int) -> None:
    """Raise UsageError for more tokens than a figure has lines for."""
    most = max(tokens, default=0)
    hint = "--top K shows the strongest." if kind == "bars" else "--figure heatmap takes more."
    refuse(most > MOST, f"--figure {kind} draws up to {MOST} tokens; here are {most:,}.", hint, "--figure")
