"""How a result is shown: every output option, declared once."""

from __future__ import annotations

from dataclasses import dataclass

from attn_cli.settings.declare import OUTPUT, Setting, check

FORMATS = (
    *("table", "bars", "json", "jsonl", "csv", "tsv", "markdown", "latex", "html", "svg", "npy", "page"),
    *("code:numpy", "code:torch", "code:keras"),
)
FIGURES = ("heatmap", "links", "bars", "heads", "steps")
PALETTES = ("viridis", "cividis", "blues", "greys")
MOST_DIGITS = 17  # a double has no more
NARROWEST, WIDEST = 20, 10_000  # columns


def _every_key() -> tuple[str, ...]:
    from attn_cli.settings.json_keys import every_key  # only those who choose keys need them

    return every_key()


@dataclass(frozen=True)
class View:
    """How to show a result; None leaves the choice to attn."""

    format: str | None = Setting(OUTPUT, "Output format.", short="-f", choices=FORMATS, unset="table").field(
        None
    )
    output: str | None = Setting(
        OUTPUT,
        "Write to FILE; its suffix chooses the format.",
        short="-o",
        metavar="FILE",
        has_variable=False,
        in_files=False,  # a forgotten attn.toml must never make attn write a file
    ).field(None)
    tidy: bool = Setting(OUTPUT, "Rows of query,key,weight instead of a matrix (csv and tsv).").field(False)
    steps: bool = Setting(OUTPUT, "Every step's matrices too.").field(False)
    by_hand: str = Setting(
        OUTPUT,
        "With -q, write out the products of the winner and its rivals, or of all keys.",
        choices=("two", "all"),
    ).field("two")
    fields: str | None = Setting(
        OUTPUT,
        "Only these keys of the JSON, such as weights,summary.",
        metavar="KEYS",
        parts=_every_key,
        hint="attn schema names them all.",
        unset="all",
    ).field(None)
    precision: int | None = Setting(
        OUTPUT, "Digits in matrices and bars.", bounds=(0, MOST_DIGITS), unset="what fits"
    ).field(None)
    color: str = Setting(OUTPUT, "When to use colour.", choices=("auto", "always", "never")).field("auto")
    palette: str | None = Setting(
        OUTPUT,
        "Shades: viridis or cividis for dark backgrounds, blues or greys for light ones.",
        choices=PALETTES,
    ).field(None)
    shades: str = Setting(
        OUTPUT,
        "Shades of weights: auto is the range of the matrix, full is 0 to 1, the same in every picture.",
        choices=("auto", "full"),
    ).field("auto")
    figure: str | None = Setting(
        OUTPUT,
        "What to draw into a .png, .pdf or .svg; without it, .svg is the screen.",
        choices=FIGURES,
        unset="heatmap in .png and .pdf",
    ).field(None)
    dpi: int | None = Setting(
        OUTPUT, "Dots an inch of a figure; 200 suits slides.", bounds=(30, 1200), unset="150"
    ).field(None)
    size: str | None = Setting(
        OUTPUT, "Size of a figure in inches, as 8x4.5.", metavar="WxH", is_area=True, unset="what it needs"
    ).field(None)
    title: str | None = Setting(
        OUTPUT,
        'Title of a figure; "" leaves it out.',
        metavar="TEXT",
        has_variable=False,
        in_files=False,
        unset="what it shows",
    ).field(None)
    width: int | None = Setting(
        OUTPUT, "Columns to use.", bounds=(NARROWEST, WIDEST), unset="the terminal's"
    ).field(None)
    as_bars: bool = (
        False  # the bars of -f bars, drawn in another format: in a file that is a page or a picture
    )

    @property
    def has_bars(self) -> bool:
        """Whether weights are shown as bars."""
        return self.format == "bars" or self.as_bars

    def __post_init__(self) -> None:
        check(self)


def is_json(format: str | None, output: str | None, command: str = "") -> bool:
    """Tell whether a command's result is JSON: then an error is one object too."""
    if command == "batch":
        return True
    return format in ("json", "jsonl") or (
        not format and (output or "").lower().endswith((".json", ".jsonl"))
    )
