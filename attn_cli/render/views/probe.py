"""What attn heads --probe shows: the strongest heads of each score, a map of all, and the same for programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from attn_cli.io.escape import count, fixed, visible
from attn_cli.pipeline.probe import SCORES, TIMES
from attn_cli.render.blocks import Block, Columns, Heading, Links, Maps, Matrix, Say
from attn_cli.render.shade_scale import FULL
from attn_cli.render.views.finding import SCREENS, next_commands
from attn_cli.render.views.heads import WORDS
from attn_cli.render.views.wording import joined

if TYPE_CHECKING:
    from attn_cli.io.array_types import Array
    from attn_cli.pipeline.probe import Probe, ProbedHead
    from attn_cli.settings.output import View

STRONGEST = 5
TITLES = {name: WORDS[name][0] for name in SCORES["self"] + SCORES["masked"]} | {"same": "duplicate token"}
MEASURES = ("induction", "previous", "next", "same", "first", "copying")


def screen(found: Probe, view: View) -> Iterator[Block]:
    """Yield the strongest heads of each score, and a map of all; a table where there are no maps, or of one layer."""
    layers = sorted({one.layer for one in found.heads})
    heads = count(len(found.heads) // len(layers), "head", "heads")
    which = f"{len(layers)} layers x {heads}" if len(layers) > 1 else f"layer {layers[0]}, {heads}"
    tokens = f"{found.length} random {'tokens' if found.ids else 'words'}, {TIMES} times, seed {found.seed}"
    yield Heading(f"Heads by probe: {which}, {tokens}", 1)
    yield Say(_finding(found))
    yield Heading("The strongest heads of each score", 2)
    yield Links([(name, _strongest(found, name)) for name in found.measures])
    if len(layers) > 1 and view.format not in ("markdown", "latex"):
        yield from _maps(found, layers)
    else:
        yield Columns(["head", *found.measures], [_row(one, found) for one in found.heads])
    yield from _meaning(found)
    yield Say(f"Weights of {visible(found.source)}.")
    yield from (Say(f"Note: {note}") for note in found.notes)
    if view.format in SCREENS:
        yield _next(found)


def _value(head: ProbedHead, name: str) -> float | None:
    return head.copying if name == "copying" else head.scores.get(name)


def _label(head: ProbedHead) -> str:
    return visible(f"{head.layer}.{head.head}")


def _finding(found: Probe) -> str:
    """Return how many heads are named for each score, with the head that leads it."""
    names, parts = Counter(one.name for one in found.heads), list[str]()
    for name in SCORES[found.kind]:
        if many := names[name]:
            label, value = _strongest(found, name)[0]
            look = "" if parts else "looks " if many == 1 else "look "
            parts.append(f"{many:,} {look}mostly at {WORDS[name][2].partition(',')[0]} ({label}: {value})")
    total = count(len(found.heads), "head", "heads")
    if not parts:
        return f"None of {total} does one of these things on random tokens."
    return f"Of {total}, {joined(parts)}. Random tokens mean nothing: a head has only their order to go by."


def _strongest(found: Probe, name: str) -> Sequence[tuple[str, str]]:
    known = [(value, one) for one in found.heads if (value := _value(one, name)) is not None]
    known.sort(key=lambda pair: -pair[0])
    return [(_label(one), fixed(value, 3)) for value, one in known[:STRONGEST]]


def _row(head: ProbedHead, found: Probe) -> Sequence[str]:
    values = (_value(head, name) for name in found.measures)
    return [_label(head), *("-" if value is None else fixed(value, 3) for value in values)]


def _maps(found: Probe, layers: Sequence[int]) -> Iterator[Block]:
    """Yield a small map of layers and heads for each score, and one with signs for copying."""
    columns = range(len(found.heads) // len(layers))
    values = [_matrix(found, name, len(layers)) for name in found.measures]
    shares = len(SCORES[found.kind])
    names = [TITLES[name] for name in found.measures[:shares]]
    labels = [""] * len(layers), [""] * len(columns)
    yield Maps(names, *labels, values[:shares], FULL, layers, columns)
    yield Say("Rows are layers, columns are heads.", quiet=True)
    if shares < len(values):
        yield Heading("Copying: layers x heads", 2)
        heads, rows = ([str(n) for n in some] for some in (columns, layers))
        yield Matrix(rows, heads, values[shares], "layer\\head", shaded=True, is_difference=True)


def _matrix(found: Probe, name: str, layers: int) -> Array:
    values = [np.nan if (value := _value(one, name)) is None else value for one in found.heads]
    return np.array(values).reshape(layers, -1)


def _meaning(found: Probe) -> Iterator[Block]:
    said = (f"{name}: at {WORDS[name][2].partition(',')[0]}" for name in SCORES[found.kind])
    yield Say(f"A score is the mean weight, where that is possible: {'; '.join(said)}.", quiet=True)
    if "copying" in found.measures:
        yield Say(
            "Copying: the sum of the eigenvalues of W_E W_V W_O W_U over that of their sizes, -1 to 1. At 1, a word "
            "that the head looks at becomes likelier. Of norms, centring and weights count.",
            quiet=True,
        )


def _next(found: Probe) -> Say:
    best = max(found.heads, key=lambda one: one.scores[SCORES[found.kind][0]] or 0.0)
    model = "-m DIR" if found.ids else "-p language"
    one = f"attn {found.kind} TEXT {model} --layer {best.layer} --head {best.head}"
    return next_commands(
        (one, "the first of these heads on a text"), (f"attn heads TEXT {model}", "all heads on it")
    )


def record(found: Probe) -> dict[str, object]:
    """Return the JSON of the probe."""
    return {
        "schema": "attn/1",
        "kind": "heads_by_probe",
        "source": found.source,
        "attention": found.kind,
        "seed": found.seed,
        "length": found.length,
        "times": TIMES,
        "tokens": found.tokens,
        "ids": found.ids,
        "heads": [
            {"layer": one.layer, "head": one.head, "name": one.name}
            | {name: _value(one, name) for name in MEASURES}
            for one in found.heads
        ],
        "notes": found.notes,
    }


def rows(found: Probe) -> Iterator[Sequence[object]]:
    """Yield a row for each head, with its name and its scores."""
    yield "layer", "head", "name", *MEASURES
    for head in found.heads:
        values = (_value(head, name) for name in MEASURES)
        yield head.layer, head.head, head.name, *("" if value is None else value for value in values)
