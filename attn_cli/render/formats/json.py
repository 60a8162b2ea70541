"""The record of a result as JSON: json over several lines, jsonl on one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attn_cli.render.formats import FORMATS, Format, Written

if TYPE_CHECKING:
    from attn_cli.io.terminal import Terminal
    from attn_cli.render.result import Result
    from attn_cli.settings.output import View


def json(result: Result, view: View, terminal: Terminal) -> Written:
    """Return the record, or what --fields chooses of it."""
    return Written(_dumped([result.record(view)], result.kind, view, terminal))


def jsonl(result: Result, view: View, terminal: Terminal) -> Written:
    """Return each record on a line."""
    return Written(_dumped(result.records or [result.record(view)], result.kind, view, terminal))


def _dumped(records: list[dict[str, object]], kind: str, view: View, terminal: Terminal) -> str:
    from attn_cli.io.json_text import dumps

    keys = keys_in(view, kind)
    chosen = [record if keys is None else {key: record.get(key) for key in keys} for record in records]
    return "".join(dumps(record, view.format == "jsonl", not terminal.unicode) for record in chosen)


def keys_in(view: View, kind: str) -> tuple[str, ...] | None:
    """Return the keys that the view chooses of a record of this kind, in their order; None for all."""
    if view.fields is None:
        return None
    from attn_cli.settings.output import ADDED, chosen_keys  # only those who choose keys need them

    return chosen_keys(view.fields, kind, tuple(ADDED))


def needs_weights(view: View, kind: str) -> bool:
    """Return whether the view shows what a layer projects with: every step, or a key of the JSON that --steps adds."""
    if view.steps or view.fields is None:
        return view.steps
    from attn_cli.trace.trace import OF_STEPS, OF_WEIGHTS  # only those who choose keys need them

    return not {*(keys_in(view, kind) or ())}.isdisjoint((*OF_STEPS, *OF_WEIGHTS))


FORMATS["json"] = Format("record", json, (".json",))
FORMATS["jsonl"] = Format("record", jsonl, (".jsonl",), also=(".json",))  # one line of JSON is JSON
