"""How a result is shown: every output option, declared once."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from attn_cli.core.scores import SCORES
from attn_cli.errors import UsageError, did_you_mean
from attn_cli.io.escape import visible
from attn_cli.settings.declare import LONGEST, OUTPUT, SHORTEST, area_of, check, split

if TYPE_CHECKING:
    from attn_cli.io.terminal import Terminal

STANDARD_OUTPUT = ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")
FIGURES = ("heatmap", "links", "bars", "heads", "steps")
PALETTES = ("viridis", "cividis", "blues", "greys")
MOST_DIGITS = 17  # a double has no more
NARROWEST, WIDEST = 20, 10_000  # columns
AREA = f"Give the width and the height, each from {SHORTEST} to {LONGEST} inches, as 8x4.5."


def _formats() -> tuple[str, ...]:
    import attn_cli  # which names what lies above: each file under render/formats registers its own

    return attn_cli.formats()


@dataclass(frozen=True)
class View:
    """How to show a result; None leaves the choice to attn."""

    format: str | None = OUTPUT("Output format.", short="-f", choices=_formats, unset="table")
    # A forgotten attn.toml must never make attn write a file.
    output: str | None = OUTPUT(
        "Write to FILE; its suffix chooses the format.", short="-o", metavar="FILE", has_variable=False
    )
    tidy: bool = OUTPUT("Rows of query,key,weight instead of a matrix (csv and tsv).", False)
    steps: bool = OUTPUT("Also output the matrices of every step.", False)
    by_hand: str = OUTPUT(
        "With -q, write out the products of the winner and its rivals, or of all keys.",
        "two",
        choices=("two", "all"),
    )
    fields: str | None = OUTPUT(
        "Only these keys of the JSON, such as weights,summary.",
        metavar="KEYS",
        parts=lambda: every_key(),
        hint="attn schema names them all.",
        unset="all",
    )
    precision: int | None = OUTPUT("Digits in matrices and bars.", bounds=(0, MOST_DIGITS), unset="what fits")
    color: str = OUTPUT("When to use colour.", "auto", choices=("auto", "always", "never"))
    palette: str | None = OUTPUT(
        "Shades: viridis or cividis for dark backgrounds, blues or greys for light ones.", choices=PALETTES
    )
    shades: str = OUTPUT(
        "Colour scale of weights: auto follows the matrix's own range; full is always 0 to 1, so pictures are "
        "comparable.",
        "auto",
        choices=("auto", "full"),
    )
    figure: str | None = OUTPUT(
        "Kind of figure for a .png, .pdf or .svg; without it, a .svg is a picture of the terminal screen.",
        choices=FIGURES,
        unset="heatmap in .png and .pdf",
    )
    dpi: int | None = OUTPUT("Dots an inch of a figure; 200 suits slides.", bounds=(30, 1200), unset="150")
    size: str | None = OUTPUT(
        "Size of a figure in inches, as 8x4.5.", metavar="WxH", form=area_of, hint=AREA, unset="what it needs"
    )
    title: str | None = OUTPUT(
        'Title of a figure; "" leaves it out.', metavar="TEXT", has_variable=False, unset="what it shows"
    )
    width: int | None = OUTPUT("Columns to use.", bounds=(NARROWEST, WIDEST), unset="the terminal's")
    as_bars: bool = False  # of -f bars, in a file that is a page or a picture

    @property
    def has_bars(self) -> bool:
        """Whether weights are shown as bars."""
        return self.format == "bars" or self.as_bars

    @property
    def to_standard_output(self) -> bool:
        """Whether the result goes to standard output, by whichever of its names."""
        return self.output in (None, "-", *STANDARD_OUTPUT)

    @property
    def to_ordinary_file(self) -> bool:
        """Whether the result goes into a file, existing or new: no device and no pipe."""
        path = str(self.output)
        return not self.to_standard_output and (not os.path.exists(path) or os.path.isfile(path))

    def terminal(self) -> Terminal:
        """Return the terminal that the output goes to."""
        from attn_cli.io.terminal import terminal_of  # only what is shown needs it

        return terminal_of(not self.to_standard_output, self.color, self.width)

    def with_width(self) -> View:
        """Return the view with the width of its terminal."""
        return replace(self, width=self.terminal().width)

    def __post_init__(self) -> None:
        check(self)


def is_json(format: str | None, output: str | None, command: str = "") -> bool:
    """Tell whether a command's result is JSON: then an error is one object too."""
    by_suffix = not format and (output or "").lower().endswith((".json", ".jsonl"))
    return command == "batch" or by_suffix or format in ("json", "jsonl")


SCHEMA = Path(__file__).parents[1] / "schema.json"
KNOWN_SCORES = '"scaled", "dot", "cosine"'  # in the file; others are there as soon as they are registered
ALL_KEYS = "all"
ALWAYS = ("schema", "kind")  # in every record
NO_TRACES = ("compare", "examples")  # kinds with keys of their own

# Keys that a record has only if an option of the command adds them.
ADDED = {"mask_views": "--show mask"}


def schema_text() -> str:
    """Return the JSON Schema of everything that attn prints as JSON, with every score that there is."""
    names = ", ".join(f'"{name}"' for name in SCORES)
    return SCHEMA.read_text(encoding="utf-8").replace(KNOWN_SCORES, names)


@cache
def keys_of(kind: str) -> tuple[str, ...]:
    """Return the keys of a record of this kind (self, lookup, compare, ...), in the order that they have there."""
    import json  # only those who choose keys need them

    definitions = json.loads(SCHEMA.read_text(encoding="utf-8"))["$defs"]
    keys, lookup = ([*definitions[name]["properties"]] for name in ("trace", "lookup"))
    if kind in NO_TRACES:
        return tuple(definitions[kind]["properties"])
    more = {"lookup": lookup, "example": ["acts"]}.get(kind, [])
    at = keys.index("notes")
    return (*keys[:at], *more, *keys[at:])


def every_key() -> tuple[str, ...]:
    """Return every value that a name in --fields can have."""
    kinds = ("lookup", "example", "compare", "examples")
    return tuple(dict.fromkeys([ALL_KEYS, *(key for kind in kinds for key in keys_of(kind))]))


def chosen_keys(fields: str | None, kind: str, added: tuple[str, ...] = ()) -> tuple[str, ...] | None:
    """Return the keys that `fields` chooses of a record of this kind, in the record's order; None for all.

    `added` are the keys that an option of the command adds. Raises UsageError for a key that no record of this kind
    has, and where nothing is chosen.
    """
    names = ALWAYS if fields is None else split(fields)
    if fields is None or ALL_KEYS in names:
        return None
    keys = keys_of(kind)
    for name in names:
        if name in ADDED and name in keys and name not in added:
            raise UsageError(f"{name} is there with {ADDED[name]} only.", option="--fields")
        if name not in keys:
            hint = f"{did_you_mean(name, keys)}attn schema names the keys of each kind."
            raise UsageError(f"JSON of kind {kind} has no key {visible(name)!r}.", hint, "--fields")
    if set(names) <= set(ALWAYS):
        said = "--fields names no key but schema and kind, which are always there."
        raise UsageError(said, "Try: --fields weights,summary", "--fields")
    return tuple(key for key in keys if key in ALWAYS or key in names)
