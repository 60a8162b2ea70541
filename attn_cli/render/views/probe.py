"""What attn heads --probe shows: the strongest heads of each score, a map of all, and the same for programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from attn_cli.errors import count, fixed, visible
from attn_cli.pipeline.probe import SCORES, Probe, ProbedHead
from attn_cli.render import Block, Heading, Links, Matrix, Say, joined, ramps
from attn_cli.render.views.heads import WORDS
from attn_cli.settings import View

STRONGEST = 5
MEANS = {name: words[2].partition(",")[0] for name, words in WORDS.items()}
COPYING = (
    "Copying: the sum of the eigenvalues of W_E W_V W_O W_U over that of their sizes, -1 to 1. At 1, a word that the "
    "head looks at becomes likelier."
)


def screen(found: Probe, view: View) -> Iterator[Block]:
    """Yield the strongest heads of each score, then each score as a matrix of layers and heads."""
    layers, scores = sorted({one.layer for one in found.heads}), SCORES[found.attention]
    heads, ranked = range(len(found.heads) // len(layers)), dict[str, Sequence[tuple[str, str]]]()
    values = {name: [getattr(one, name) for one in found.heads] for name in (*scores, "copying")}
    for name in [*values]:
        pairs = zip(values[name], found.heads, strict=True)
        known = [(value, one) for value, one in pairs if value is not None]
        best = sorted(known, key=lambda pair: -pair[0])[:STRONGEST]
        if best:
            ranked[name] = [(visible(f"{one.layer}.{one.head}"), fixed(value, 3)) for value, one in best]
    size = f"{count(len(layers), 'layer', 'layers')} x {count(len(heads), 'head', 'heads')}"
    random = f"{found.length} random {'tokens' if found.ids else 'words'}, {found.times} times"
    yield Heading(f"Heads by probe: {size}, {random}, seed {found.seed}", 1)
    counts, parts = Counter(one.name for one in found.heads), []
    for name in filter(counts.__getitem__, scores):
        looks = "looks" if counts[name] == 1 else "look"
        parts.append(f"{counts[name]:,} {looks} mostly at {MEANS[name]} ({': '.join(ranked[name][0])})")
    of = f"Of {count(len(found.heads), 'head', 'heads')}"
    told = joined(parts) if parts else "none does one of these things"
    yield Say(f"{of}, {told}. Random tokens mean nothing: only their order is left.")
    yield Heading("The strongest heads of each score", 2)
    yield Links([*ranked.items()])
    for name in ranked:
        cells = np.array(values[name], np.float64).reshape(len(layers), -1)
        matrix = Matrix([*map(str, layers)], [*map(str, heads)], cells, name, shaded=True)
        is_signed = name == "copying"
        yield matrix._replace(
            is_difference=is_signed, scale=ramps.FULL_DIFFERENCE if is_signed else ramps.FULL
        )
    said = "; ".join(f"{name}: at {MEANS[name]}" for name in scores)
    yield Say(f"Rows are layers. A score is the mean weight, where that is possible: {said}.", quiet=True)
    yield from [Say(COPYING, quiet=True)] * ("copying" in ranked)
    yield from map(Say, (f"Weights of {visible(found.source)}.", *(f"Note: {note}" for note in found.notes)))


def rows(found: Probe) -> Iterator[Sequence[object]]:
    """Yield a row for each head, with its name and its scores."""
    yield ProbedHead._fields
    yield from found.heads
