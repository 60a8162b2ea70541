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
from attn_cli.settings.declare import OUTPUT, Setting, check, split

if TYPE_CHECKING:
    from attn_cli.io.terminal import Terminal

STANDARD_OUTPUT = ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")
FIGURES = ("heatmap", "links", "bars", "heads", "steps")
PALETTES = ("viridis", "cividis", "blues", "greys")
MOST_DIGITS = 17  # a double has no more
NARROWEST, WIDEST = 20, 10_000  # columns


def _formats() -> tuple[str, ...]:
    import attn_cli  # which names what lies above: each file under render/formats registers its own

    return attn_cli.formats()


def _every_key() -> tuple[str, ...]:
    return every_key()


@dataclass(frozen=True)
class View:
    """How to show a result; None leaves the choice to attn."""

    format: str | None = Setting(OUTPUT, "Output format.", short="-f", choices=_formats, unset="table").field(
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
    steps: bool = Setting(OUTPUT, "Also output the matrices of every step.").field(False)
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
        "Colour scale of weights: auto follows the matrix's own range; full is always 0 to 1, so pictures are "
        "comparable.",
        choices=("auto", "full"),
    ).field("auto")
    figure: str | None = Setting(
        OUTPUT,
        "Kind of figure for a .png, .pdf or .svg; without it, a .svg is a picture of the terminal screen.",
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
    if command == "batch":
        return True
    return format in ("json", "jsonl") or (
        not format and (output or "").lower().endswith((".json", ".jsonl"))
    )


SCHEMA = Path(__file__).parents[1] / "schema.json"
KNOWN_SCORES = '"scaled", "dot", "cosine"'  # in the file; others are there as soon as they are registered
ALL_KEYS = "all"
ALWAYS = ("schema", "kind")  # in every record
NO_TRACES = ("compare", "examples")  # kinds with keys of their own

# Keys that a record has only if an option of the command adds them.
ADDED = {"mask_views": "--show mask"}


def _no_key(name: str, kind: str) -> UsageError:
    hint = f"{did_you_mean(name, keys_of(kind))}attn schema names the keys of each kind."
    return UsageError(f"JSON of kind {kind} has no key {visible(name)!r}.", hint, "--fields")


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
            raise _no_key(name, kind)
    if set(names) <= set(ALWAYS):
        raise UsageError(
            "--fields names no key but schema and kind, which are always there.",
            "Try: --fields weights,summary",
            "--fields",
        )
    return tuple(key for key in keys if key in ALWAYS or key in names)
