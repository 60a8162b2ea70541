"""How a result is shown: every output option, declared once."""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import attn_cli  # names what lies above: each file under render/formats registers its own
from attn_cli.core.scores import SCORES
from attn_cli.errors import UsageError, did_you_mean, refuse, visible
from attn_cli.io.console import NARROWEST, WIDEST
from attn_cli.io.types import dataclass, replace
from attn_cli.settings.declare import LONGEST, OUTPUT, SHORTEST, area_of, check, split

if TYPE_CHECKING:
    from attn_cli.io.terminal import Terminal

STANDARD_OUTPUT = ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")
FIGURES = ("heatmap", "links", "bars", "heads", "steps")
PALETTES = ("viridis", "cividis", "blues", "greys")
MOST_DIGITS = 17  # a double has no more
AREA = f"Give the width and the height, each from {SHORTEST} to {LONGEST} inches, as 8x4.5."


@dataclass(frozen=True)
class View:
    """How to show a result; None leaves the choice to attn."""

    about = "Output format."
    format: str | None = OUTPUT(about, short="-f", choices=lambda: attn_cli.formats(), unset="table")
    # A forgotten attn.toml must never make attn write a file.
    about = "Write to FILE; its suffix chooses the format."
    output: str | None = OUTPUT(about, short="-o", metavar="FILE", has_variable=False)
    tidy: bool = OUTPUT("A row a link instead of a matrix: query,key,weight.", False)
    steps: bool = OUTPUT("Also output the matrices of every step.", False)
    about = "With -q, write out the products of the winner and its rivals, or of all keys."
    by_hand: str = OUTPUT(about, "two", choices=("two", "all"))
    about, hint = "Only these keys of the JSON, as weights,heads.name.", "attn schema names them all."
    fields: str | None = OUTPUT(about, metavar="KEYS", parts=lambda: every_key(), hint=hint, unset="all")
    precision: int | None = OUTPUT("Digits in matrices and bars.", bounds=(0, MOST_DIGITS), unset="what fits")
    color: str = OUTPUT("When to use colour.", "auto", choices=("auto", "always", "never"))
    about = "Shades: viridis or cividis for dark backgrounds, blues or greys for light ones."
    palette: str | None = OUTPUT(about, choices=PALETTES)
    about = (
        "Colour scale of weights: auto follows the matrix's own range; full is always 0 to 1, so pictures are "
        "comparable."
    )
    shades: str = OUTPUT(about, "auto", choices=("auto", "full"))
    about = "Kind of figure for a .png, .pdf or .svg; without it, a .svg is a picture of the terminal screen."
    figure: str | None = OUTPUT(about, choices=FIGURES, unset="heatmap in .png and .pdf")
    dpi: int | None = OUTPUT("Dots an inch of a figure; 200 suits slides.", bounds=(30, 1200), unset="150")
    about = "Size of a figure in inches, as 8x4.5."
    size: str | None = OUTPUT(about, metavar="WxH", form=area_of, hint=AREA, unset="what it needs")
    about = 'Title of a figure; "" leaves it out.'
    title: str | None = OUTPUT(about, metavar="TEXT", has_variable=False, unset="what it shows")
    about = "Check the model on this text first, as attn verify, and say what came of it."
    verified: bool = OUTPUT(about, False)
    del about, hint  # those of the setting below them
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
ADDED = {"mask_views": "--show mask"}  # keys that a record has only if an option adds them

Node: TypeAlias = dict[str, Any]  # of a JSON Schema
Keys: TypeAlias = "dict[str, Keys | None]"  # chosen keys, and what is chosen of each: None for all of it


def schema_text() -> str:
    """Return the JSON Schema of everything that attn prints as JSON, with every score that there is."""
    names = ", ".join(f'"{name}"' for name in SCORES)
    return SCHEMA.read_text(encoding="utf-8").replace(KNOWN_SCORES, names)


@cache
def _definitions() -> dict[str, Node]:
    import json  # only those who choose keys need them

    found: dict[str, Node] = json.loads(SCHEMA.read_text(encoding="utf-8"))["$defs"]
    return found


def nodes_of(kind: str) -> dict[str, Node]:
    """Return the schema of each key of a record of this kind (self, lookup, compare, ...), in its order there."""
    definitions = _definitions()
    if kind in NO_TRACES:
        return dict(definitions[kind]["properties"])
    more = {"lookup": definitions["lookup"]["properties"], "example": {"acts": definitions["acts"]}}
    found = [*definitions["trace"]["properties"].items()]
    notes = [key for key, _ in found].index("notes")
    return dict([*found[:notes], *more.get(kind, {}).items(), *found[notes:]])


def _below(node: Node) -> dict[str, Node]:
    """Return the schema of each key that an object has, or that the objects of a list have."""
    found: dict[str, Node] = dict(node.get("properties", {}))
    others = [*node.get("anyOf", ()), *node.get("allOf", ()), node.get("items")]
    if "$ref" in node:
        others.append(_definitions()[node["$ref"].removeprefix("#/$defs/")])
    for other in others:
        found |= _below(other) if isinstance(other, dict) else {}
    return found


def every_key() -> tuple[str, ...]:
    """Return every value that a name in --fields can have, before a dot."""
    kinds = ("lookup", "example", "compare", "examples")
    return tuple(dict.fromkeys([ALL_KEYS, *(key for kind in kinds for key in nodes_of(kind))]))


def chosen_keys(fields: str | None, kind: str, what: str | None = "") -> Keys | None:
    """Return the keys that `fields` chooses of a record of this kind, in the record's order; None for all.

    Raises UsageError for a key that no record of this kind has, and where nothing is chosen. A key of ADDED needs its
    option to be `what`; with None, it is taken as it is.
    """
    names = ALWAYS if fields is None else split(fields)
    if fields is None or ALL_KEYS in names:
        return None
    nodes = nodes_of(kind)
    for name in names:
        is_missing = what is not None and name in nodes and ADDED.get(name, what) != what
        refuse(is_missing, f"{name} is there with {ADDED.get(name)} only.", option="--fields")
    found = _chosen(keys_named(names), nodes, f"JSON of kind {kind}")
    said = "--fields names no key but schema and kind, which are always there."
    refuse(set(names) <= set(ALWAYS), said, "Try: --fields weights,summary", "--fields")
    return {key: found.get(key) for key in nodes if key in ALWAYS or key in found}


def _chosen(named: Keys, nodes: dict[str, Node], of: str, start: str = "") -> Keys:
    """Return the keys that are named, in the order of `nodes`; `start` stands before one in --fields, `of` has it."""
    for key in named:
        if key not in nodes:
            known = [f"{start}{name}" for name in nodes]
            listed = f"Its keys are {', '.join(nodes)}."
            hint = listed if start else "attn schema names the keys of each kind."
            hint = f"{did_you_mean(start + key, known)}{hint}" if nodes else f"Ask for {of}."
            raise UsageError(f"{of} has no key {visible(key)!r}.", hint, "--fields")
    kept = ((key, f"{start}{key}", named[key]) for key in nodes if key in named)
    return {key: below and _chosen(below, _below(nodes[key]), name, f"{name}.") for key, name, below in kept}


def keys_named(names: Iterable[str]) -> Keys:
    """Return the keys that names with dots choose; a key without a dot is chosen whole.

    >>> keys_named(["weights", "heads.name", "heads.layer"])
    {'weights': None, 'heads': {'name': None, 'layer': None}}
    """
    found: dict[str, list[str] | None] = {}
    for name in names:
        key, dot, rest = name.partition(".")
        below = found.setdefault(key, [])
        found[key] = [*below, rest] if dot and below is not None else None
    return {key: None if below is None else keys_named(below) for key, below in found.items()}


def names_of(keys: Keys) -> list[str]:
    """Return chosen keys as --fields names them: what `keys_named` reads."""
    found = [
        [key] if below is None else [f"{key}.{one}" for one in names_of(below)] for key, below in keys.items()
    ]
    return [*chain(*found)]


def cut(value: Any, keys: Keys | None) -> Any:
    """Return what is chosen of a record, of an object in it, or of each object of a list; None where it is not there.

    >>> cut({"heads": [{"name": "0", "layer": 0}], "notes": []}, {"heads": {"name": None}})
    {'heads': [{'name': '0'}]}
    """
    if keys is None or value is None:
        return value
    if isinstance(value, list):
        return [cut(one, keys) for one in value]
    return {key: cut(value.get(key), below) for key, below in keys.items()}
