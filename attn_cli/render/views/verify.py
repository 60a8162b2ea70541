"""What attn verify found of a model: the verdict, and its figures layer by layer."""

from __future__ import annotations

from collections.abc import Iterator

from attn_cli.errors import count, visible
from attn_cli.pipeline.verify import Figure, Verdict
from attn_cli.render import Block, Columns, Heading, Say
from attn_cli.settings import View

SIDES = {"self": "encoder", "masked": "decoder", "cross": "cross", None: "whole model"}
BESIDE = (
    "The largest differences over all texts; inputs, output and logits are divided by their largest number."
)
ALONE = (
    "This is no proof: nothing was compared with the original, which takes torch and transformers. The layers' tensors "
    "fit what is said of their sizes. keys: of config.json, unknown to attn; sums: of rows (and the sink), less 1; "
    "ahead: weights of later words; prefix: how a text's first half differs without the rest."
)


def screen(found: Verdict, view: View) -> Iterator[Block]:
    """Yield the verdict, and the figures of each layer with what they may be."""
    bad, against = found.exceeded, found.against or "what its own file says"
    verdict = f"{'DISAGREES' if bad else 'agrees'} with {against}"
    yield Heading(f"{visible(found.source)} ({found.family}) {verdict}", 1)
    read = f"{count(found.texts, 'text', 'texts')}, {count(found.tokens, 'token', 'tokens')}."
    yield Say(f"{read} {f'Too large: {bad.name} of {_row(bad)}' if bad else 'No figure is too large'}.")
    cells = {(_row(one), one.name): f"{one.largest:.2g}" for one in found.figures}
    limits = {one.name: f"{one.tolerance:g}" for one in found.figures}
    rows = dict.fromkeys(row for row, _ in cells)
    filled = [(row, *(cells.get((row, name), "") for name in limits)) for row in rows]
    yield Columns(("", *limits), [*filled, ("may be", *limits.values())])
    yield Say(BESIDE if found.against else ALONE)
    yield from (Say(f"Note: {note}") for note in found.notes)


def sentence(found: Verdict) -> str:
    """Return the verdict in a line, with its largest figures."""
    bad, largest = found.exceeded, dict[str, float]()
    for one in found.figures:
        largest[one.name] = max(largest.get(one.name, 0.0), one.largest)
    told = ", ".join(f"{name} {value:.2g}" for name, value in largest.items())
    if found.against is None:
        held = f"{bad.name} of {_row(bad)} is too large" if bad else "it holds"
        why = next((f" {note}" for note in found.notes if note.startswith("transformers")), "")
        alone = "Verified against the model's own file alone, which is no proof"
        return f"{alone}: {held} (largest: {told}).{why}"
    agrees = f"disagree, in {bad.name} of {_row(bad)}, with" if bad else "agree with"
    of = "this text" if found.texts == 1 else "these texts, each on both sides"
    verdict = f"the model's own numbers {agrees} {found.against}"
    return f"Verified on {of}: {verdict} (largest differences: {told})."


def _row(one: Figure) -> str:
    return SIDES[one.attention] + ("" if one.layer is None else f" {one.layer}")
