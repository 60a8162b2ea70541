"""Help in two lengths: -h, which fits a screen, and --help, with every option under the heading of its group."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from inspect import cleandoc
from itertools import chain
from typing import IO, Any, NamedTuple

from attn_cli.io.console import USUAL_WIDTH, columns, folded, stream_width
from attn_cli.settings.declare import GROUPS

# What people use most: of attn its commands, of a command its options. Whatever is not listed here shows all it has.
_OF_A_TEXT = "query head mask score temperature embedding format output"
USUAL = {
    "attn": "explain self masked cross compare lookup example check",
    "attn explain": "query versus steps context head mask format output",
    "attn self": _OF_A_TEXT,
    "attn masked": "query head show score temperature embedding format output",
    "attn cross": _OF_A_TEXT,
    "attn lookup": "from projection embedding score temperature steps format output",
    "attn compute": "query heads mask score temperature steps format output",
    "attn check": "expect tol mask score head heads format output",
    "attn exercise": "seed topic dim words mask key format output",
    "attn compare": "vary context query head mask temperature format output",
    "attn show": "tokens layer head query join-pieces hide-special format output",
    "attn page": "words context head model mask query exact output",
    "attn heads": "model projection weights layer probe format output",
    "attn effect": "target against measure strongest model projection format output",
    "attn lens": "model projection context query next ids format output",
    "attn patch": "model target against context corrupt-context figure format output",
    "attn generate": "model count sample-temperature top-p stop head format output",
    "attn live": "model matrices weights head mask temperature record replay",
    "attn example": "query mask score temperature heads steps format output",
    "attn vectors train": "output dim window epochs words min-count seed workers",
    "attn learn train": "output dev embedding relations dim epochs rate seed",
    "attn batch": "kind keep-going mask head embedding top steps output",
}
WIDEST = 100  # columns of help, unless --width says more: longer lines are hard to read
LEFT = 30  # cells for an option and what it takes, where the screen is 80 wide or more
LEAST = 20  # cells for what is said of it; with less room it stands below, so far indented:
BELOW = 6
MANY = 8  # of an option's choices, as many are named in the short help
EXAMPLES = ("Example: ", "Start with: ")


class Row(NamedTuple):
    """What is typed, and what it does."""

    typed: str
    text: str


def short_help(ctx: Any, stream: IO[str] | None) -> str:
    """Return what a command does, the options (of a group, the commands) that people use most, and an example."""
    width = _width(ctx, stream)
    about, *rest = paragraphs(ctx.command)
    entries = getattr(ctx.command, "entries", None)
    usual = [name for name in USUAL.get(ctx.command_path, "").split() if entries is None or name in entries]
    if entries is not None:
        rows = [Row(name, _summary(entries[name])) for name in usual or entries]
        others = [name for name in entries if usual and name not in usual]
    else:
        rows, others = _usual_rows(ctx, usual), []
    lines = [*_usage(ctx, width), "", *folded(about, width)]
    lines += ["", *_table(rows, width)] if rows else []
    lines += ["", *folded(f"More commands: {', '.join(others)}.", width, 2)] if others else []
    lines += ["", *(line for text in rest if text.startswith(EXAMPLES) for line in _example(text, width))]
    lines += folded(f"--help has all options{' and commands' if entries is not None else ''}.", width)
    return "\n".join(lines) + "\n"


def full_help(ctx: Any, stream: IO[str] | None) -> str:
    """Return all there is to say of a command: its arguments, and its options group by group."""
    width = _width(ctx, stream)
    said = (ctx.command.help, ctx.command.epilog)
    about, end = ([("", *_indented(text, width)) for text in _split(part)] for part in said)
    options = [("", f"{heading}:", *_table(rows, width)) for heading, rows in sections(ctx).items()]
    return "\n".join(chain(_usage(ctx, width), *about, *options, *end)) + "\n"


def _width(ctx: Any, stream: IO[str] | None) -> int:
    """Return the columns to use: those of --width, else ATTN_WIDTH, else COLUMNS or the terminal's, up to WIDEST."""
    takes_width = any(getattr(one, "envvar", None) == "ATTN_WIDTH" for one in ctx.command.params)
    typed = "\n".join(ctx.meta.get("typed", ()) if takes_width else ())
    said = [*re.findall(r"(?m)^--width[=\n](\d+)$", typed), os.environ.get("ATTN_WIDTH", "")]
    return next(filter(None, map(columns, said)), min(stream_width(stream) or USUAL_WIDTH, WIDEST))


def _split(text: str | None) -> list[str]:
    return [" ".join(part.split()) for part in cleandoc(text or "").split("\n\n") if part.strip()]


def paragraphs(command: Any) -> list[str]:
    """Return what is said of a command, each paragraph on a line."""
    return [*_split(command.help), *_split(command.epilog)]


def _summary(entry: tuple[str, Any]) -> str:
    where, what = entry
    if isinstance(what, dict):
        return _split(where)[0]
    function = getattr(import_module(where), what)
    return _split(getattr(function, "function", function).__doc__)[0]


def _usual_rows(ctx: Any, usual: Sequence[str]) -> list[Row]:
    arguments = [one for one in ctx.command.params if one.param_type_name == "argument"]
    options = {name.lstrip("-"): one for one in own_options(ctx.command) for name in one.opts}
    chosen = [options[name] for name in usual] if usual else list(dict.fromkeys(options.values()))
    return [_row(one, ctx, is_brief=True) for one in (*arguments, *chosen)]


def own_options(command: Any) -> list[Any]:
    """Return the options of a command except those that show its help."""
    return [one for one in command.params if one.param_type_name == "option" and one.expose_value]


def sections(ctx: Any) -> dict[str, list[Row]]:
    """Return the rows of --help by heading; an option without a known group stands under Options."""
    found: dict[str, list[Row]] = {"Arguments": [], "Commands": [], **{group: [] for group in GROUPS}}
    for name, entry in getattr(ctx.command, "entries", {}).items():
        found["Commands"].append(Row(name, _summary(entry)))
    kept, ctx.default_map = ctx.default_map, None  # the program's own defaults: no file is read
    for one in ctx.command.params:
        is_argument = one.param_type_name == "argument"
        heading = "Arguments" if is_argument else one.rich_help_panel or "Options"
        found.setdefault(heading, []).append(_row(one, ctx))
    ctx.default_map = kept
    return {heading: rows for heading, rows in found.items() if rows}


def _row(one: Any, ctx: Any, is_brief: bool = False) -> Row:
    """Return what is typed for a parameter and what it does; in brief, without its default."""
    if is_brief:
        text = (one.help or "").partition("  [")[0] + ("  [required]" if one.required else "")
    else:
        text = str(one.get_help_record(ctx)[1])
    if one.param_type_name == "argument":
        return Row(one.make_metavar(ctx), text)
    typed = ", ".join(sorted(one.opts, key=len))
    if one.is_flag:
        return Row(" / ".join([typed, *([] if is_brief else one.secondary_opts)]), text)
    choices = getattr(one.type, "choices", ())
    if one.metavar or not choices:
        return Row(f"{typed} {one.make_metavar(ctx=ctx)}", text)
    return _choice_row(typed, text, choices, MANY if is_brief else len(choices))


def _choice_row(typed: str, text: str, choices: Sequence[str], most: int) -> Row:
    """Return the row of an option with choices, which it names, at most so many, unless its text names all."""
    said, bracket, rest = text.partition("  [")
    name = f"{typed} {typed.rpartition('--')[2].upper()}"
    if len(choices) == 1:
        return Row(f"{typed} {choices[0]}", text)
    if all(re.search(rf"(?<![\w-]){re.escape(one)}(?![\w-])", said) for one in choices):
        return Row(name, text)
    if len(brief := f"{typed} <{'|'.join(choices)}>") <= LEFT:
        return Row(brief, text)
    listed = choices[:most] if len(choices) > most + 1 else choices
    more = f" and {len(choices) - len(listed)} more" if len(listed) < len(choices) else ""
    return Row(name, f"{said} One of {', '.join(listed)}{more}.{bracket}{rest}")


def _usage(ctx: Any, width: int) -> list[str]:
    pieces = [piece.strip("{}") for piece in ctx.command.collect_usage_pieces(ctx)]
    return folded(" ".join(["Usage:", ctx.command_path, *pieces]), width, len("Usage: "))


def _example(text: str, width: int) -> list[str]:
    label, _, command = text.partition(": ")
    return [text] if len(text) <= width else [f"{label}:", *_indented(command, width)]


def _indented(text: str, width: int) -> list[str]:
    lines = _example(text, width - 2) if text.startswith(EXAMPLES) else folded(text, width - 2)
    return [f"  {line}" for line in lines]


def _table(rows: Iterable[Row], width: int) -> Iterator[str]:
    """Yield rows in two columns; what is too long for the first has a line of its own."""
    rows = list(rows)
    most = min(LEFT, width * 3 // 8)
    first = max((len(row.typed) for row in rows if len(row.typed) <= most), default=most)
    is_beside = width - first - 4 >= LEAST
    edge = first + 4 if is_beside else BELOW
    for row in rows:
        lines = [line.rstrip() for line in folded(row.text, width - edge)] if row.text else []
        if lines and is_beside and len(row.typed) <= first:
            yield f"  {row.typed:<{first}}  {lines.pop(0)}"
        else:
            yield from (f"  {line}" for line in folded(row.typed, width - 2, 2))
        yield from (f"{'':{edge}}{line}" for line in lines)
