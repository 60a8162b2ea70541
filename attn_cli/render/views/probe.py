"""What attn heads --probe shows: the strongest heads of each score, a map of all, and the same for programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from attn_cli.io.escape import count, fixed, visible
from attn_cli.pipeline.probe import SCORES, Probe, ProbedHead
from attn_cli.render.blocks import Block, Heading, Links, Matrix, Say
from attn_cli.render.shade_scale import FULL, FULL_DIFFERENCE
from attn_cli.render.views.heads import WORDS
from attn_cli.render.views.wording import joined
from attn_cli.settings.output import View

STRONGEST = 5
MEANS = {name: words[2].partition(",")[0] for name, words in WORDS.items()}
COPYING = (
    "Copying: the sum of the eigenvalues of W_E W_V W_O W_U over that of their sizes, -1 to 1. At 1, a word that the "
    "head looks at becomes likelier."
)


def screen(found: Probe, view: View) -> Iterator[Block]:
    """Yield the strongest heads of each score, then each score as a matrix of layers and heads."""
    layers = sorted({one.layer for one in found.heads})
    heads, scores = range(len(found.heads) // len(layers)), SCORES[found.attention]
    values = {name: [getattr(one, name) for one in found.heads] for name in (*scores, "copying")}
    values = {name: own for name, own in values.items() if any(value is not None for value in own)}
    ranked = {name: _ranked(found, own) for name, own in values.items()}
    size = f"{count(len(layers), 'layer', 'layers')} x {count(len(heads), 'head', 'heads')}"
    random = f"{found.length} random {'tokens' if found.ids else 'words'}, {found.times} times"
    yield Heading(f"Heads by probe: {size}, {random}, seed {found.seed}", 1)
    yield Say(_finding(found, ranked))
    yield Heading("The strongest heads of each score", 2)
    yield Links([*ranked.items()])
    labels = [str(n) for n in layers], [str(n) for n in heads]
    for name, own in values.items():
        matrix = Matrix(*labels, np.array(own, np.float64).reshape(len(layers), -1), name, shaded=True)
        is_signed = name == "copying"
        yield matrix._replace(is_difference=is_signed, scale=FULL_DIFFERENCE if is_signed else FULL)
    said = "; ".join(f"{name}: at {MEANS[name]}" for name in scores)
    yield Say(f"Rows are layers. A score is the mean weight, where that is possible: {said}.", quiet=True)
    yield from [Say(COPYING, quiet=True)] * ("copying" in values)
    yield Say(f"Weights of {visible(found.source)}.")
    yield from (Say(f"Note: {note}") for note in found.notes)


def _ranked(found: Probe, values: Sequence[float | None]) -> Sequence[tuple[str, str]]:
    known = [(value, one) for value, one in zip(values, found.heads, strict=True) if value is not None]
    best = sorted(known, key=lambda pair: -pair[0])[:STRONGEST]
    return [(visible(f"{one.layer}.{one.head}"), fixed(value, 3)) for value, one in best]


def _finding(found: Probe, ranked: dict[str, Sequence[tuple[str, str]]]) -> str:
    """Return how many heads are named for each score, with the head that leads it."""
    names = [one.name for one in found.heads]
    counts = [(name, names.count(name)) for name in SCORES[found.attention] if name in names]
    parts = [
        f"{many:,} {'looks' if many == 1 else 'look'} mostly at {MEANS[name]} ({': '.join(ranked[name][0])})"
        for name, many in counts
    ]
    said = joined(parts) if parts else "none does one of these things"
    return f"Of {count(len(names), 'head', 'heads')}, {said}. Random tokens mean nothing: only their order is left."


def rows(found: Probe) -> Iterator[Sequence[object]]:
    """Yield a row for each head, with its name and its scores."""
    yield ProbedHead._fields
    yield from found.heads
