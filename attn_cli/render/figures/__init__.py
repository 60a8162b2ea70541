"""Figures of attention for papers and slides, drawn by Matplotlib."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from attn_cli.errors import ConfigError, MissingExtra, refuse, visible
from attn_cli.pipeline.beside import drawn
from attn_cli.render.figures import heatmap, maps, one_row
from attn_cli.render.figures.pen import missing_note, pen_for
from attn_cli.render.figures.sheet import Drawing, Frame, Sheet
from attn_cli.settings import NORM, View, declare

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from attn_cli.trace import Trace

FIGURES: dict[str, Callable[[Trace, View], Drawing]] = {
    one.__name__: one for one in (heatmap.heatmap, heatmap.links, one_row.bars, maps.heads, one_row.steps)
}
DPI = 150
MOST_DOTS, LONGEST_SIDE = 150_000_000, 65_000  # of a picture: more, and memory or Matplotlib gives out
INSTALL = "Install it: pip install 'attn-cli[figures]'"
LEAST = (3, 11)  # the first that shapes Arabic and joins Indic letters, and embeds any font in PDF
SETTINGS = {
    "text.parse_math": False,  # a token may hold $ and \
    "pdf.fonttype": 42,  # whole letters, which can be searched and copied
    "svg.fonttype": "none",  # text stays text
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial"],  # what a reader of SVG may have
    "svg.hashsalt": "attn",  # the same figure is the same file
    "hatch.linewidth": 0.6,
    "path.simplify": False,
}


def subject(trace: Trace, view: View) -> Drawing:
    """Return what the view's figure shows of a trace; UsageError where it cannot be drawn."""
    return FIGURES[view.figure or "heatmap"](trace, view)


def other_rows(trace: Trace, view: View) -> list[str]:
    """Return what to say where several rows were asked for, and the figure has room for one."""
    if view.figure not in ("bars", "steps") or len(trace.focus) == 1:
        return []
    rows = ", ".join(str(i) for i in trace.focus[1:4]) + (", ..." if len(trace.focus) > 4 else "")
    return [f"The figure shows row {trace.focus[0]} of those that match; -q {rows} would be another."]


def figure(
    trace: Trace,
    kind: str = "heatmap",
    ax: Axes | None = None,
    *,
    title: str | None = None,
    size: tuple[float, float] | None = None,
    palette: str | None = None,
    shades: str = "auto",
    precision: int | None = None,
) -> Figure:
    """Return a trace as a Matplotlib figure: a heatmap, links, bars, heads or steps.

    It is as large as it needs to be, or `size` (width, height) in inches. With `ax` it is drawn into these axes,
    which get inches as their units, and their own figure is returned. Raises UsageError for an unknown kind and for
    what the trace has no figure of, MissingExtra without Matplotlib.
    """
    trace = drawn(trace)
    shades = "auto" if trace.drawn == NORM else shades  # norms have no largest one
    wanted = None if size is None else f"{size[0]:g}x{size[1]:g}"
    view = View(figure=kind, size=wanted, title=title, palette=palette, shades=shades, precision=precision)
    with drawing():
        made, notes = _drawn(subject(trace, view), view, ax)
    for note in (*notes, *other_rows(trace, view)):
        warnings.warn(note, stacklevel=2)
    return made


def picture(shown: Drawing, view: View) -> tuple[bytes, list[str]]:
    """Return a figure as a PNG, a PDF or an SVG file, as the output's name says, and what has to be said of it."""
    form = os.path.splitext(view.output or "")[1].lower().removeprefix(".") or "svg"
    dpi = view.dpi or DPI
    with drawing():
        made, notes = _drawn(shown, view, None, form == "svg")
        width, height = (round(side * dpi) for side in made.get_size_inches().tolist())
        is_large = width * height > MOST_DOTS or max(width, height) > LONGEST_SIDE
        hint = "Give fewer dots an inch, or a smaller --size."
        refuse(is_large, f"A picture of {width:,} x {height:,} dots is too large.", hint, "--dpi")
        data, title = io.BytesIO(), visible(shown.title)
        # What a file says of itself: nothing that differs from run to run.
        about: dict[str, Any] = {"Creator": "attn", "Title": title, "Date": None}
        if form == "png":
            about = {"Software": None, "Title": title.encode("latin-1", "replace").decode("latin-1")}
        elif form == "pdf":
            about = {"Creator": "attn", "Producer": None, "CreationDate": None, "Title": title}
        made.savefig(data, format=form, dpi=dpi, metadata=about)
    return data.getvalue(), notes


def _drawn(shown: Drawing, view: View, ax: Axes | None, keeps_all: bool = False) -> tuple[Figure, list[str]]:
    from matplotlib.figure import Figure

    title = shown.title if view.title is None else view.title
    pen = pen_for(view, [*shown.texts, title], keeps_all)
    if ax is None:
        frame = Frame(title, pen, declare.area_of(view.size))
        plan = shown.plan(frame)
        width, height = frame.size or (plan.width, plan.height)
        made = Figure(figsize=(width, height), facecolor=pen.paper)
        ax = made.add_axes((0, 0, 1, 1))
    else:
        made = ax.figure.get_figure(root=True)
        box = ax.get_window_extent()
        width, height = box.width / made.dpi, box.height / made.dpi
        frame = Frame(title, pen, (width, height))
        plan = shown.plan(frame)
    ax.set_axis_off()
    ax.set(xlim=(0, width), ylim=(height, 0), autoscale_on=False)
    sheet = Sheet(ax, pen, [], width, height)
    sheet.title(frame.lines(width))
    plan.draw(sheet)
    ax.set(xlim=(0, width), ylim=(height, 0))
    return made, [*sheet.notes, *missing_note(pen, shown.texts)]


def not_installed() -> MissingExtra:
    """Return the error of a figure without Matplotlib."""
    return MissingExtra("Figures need Matplotlib, which is not installed.", INSTALL)


@contextlib.contextmanager
def drawing() -> Iterator[None]:
    """Let Matplotlib draw without a word, by its own defaults; MissingExtra where it is not installed, or too old."""
    talk = logging.getLogger("matplotlib")
    level = talk.level
    talk.setLevel(logging.CRITICAL)  # of a folder that it cannot write to, of fonts that it looks for
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _check_version()
            import matplotlib

            with matplotlib.rc_context():
                matplotlib.rcdefaults()
                matplotlib.rcParams.update(SETTINGS)
                yield
    finally:
        talk.setLevel(level)


def _check_version() -> None:
    try:
        import matplotlib
    except ImportError as error:
        if error.name != "matplotlib":
            raise
        raise not_installed() from None
    except Exception as error:  # whatever its own settings make it stumble over
        why = visible(" ".join(str(error).split())[:200])
        hint = "Look at MPLBACKEND, and at a file matplotlibrc here or in ~/.config/matplotlib."
        raise ConfigError(f"Matplotlib does not start: {why.rstrip('.')}.", hint) from None
    found = matplotlib.__version_info__
    if (found.major, found.minor) < LEAST:
        said = f"Figures need Matplotlib {LEAST[0]}.{LEAST[1]}; {matplotlib.__version__} is installed."
        raise MissingExtra(said, INSTALL)
