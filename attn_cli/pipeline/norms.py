"""What comes of the weights: the length of what each key adds to a query, beside them, and drawn in their place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from attn_cli.core.heads import strongest
from attn_cli.errors import UsageError
from attn_cli.io.array_types import Array
from attn_cli.models.logit_parts import Joining
from attn_cli.pipeline.attend import LINKS
from attn_cli.settings.settings import MEAN, WEIGHT, WITH_RESIDUAL
from attn_cli.trace.head import Head
from attn_cli.trace.trace import Trace


def with_norms(trace: Trace, joining: Joining) -> Trace:
    """Return a trace that has attended, with the norms that its settings ask for; UsageError where there are none."""
    measure, names = trace.settings.measure, trace.head_names
    if trace.condensed:
        what = f"--measure {measure} shows whole matrices: this text is too long for it."
        raise UsageError(what, "Give a shorter text, or --full.", "--measure")
    if measure == WITH_RESIDUAL:
        return beside(trace, {trace.shown.name: _of_all(trace, joining)}, _formula(joining, True))
    lengths = {}
    for head in trace.heads:
        if head.v is None or not head.v.size:
            raise UsageError("Scores alone have no values that norms could be of.", option="--measure")
        made = joining.part(head.v, names.index(head.name), len(names))
        lengths[head.name] = np.linalg.norm(made, axis=-1)
    norms = {head.name: head.weights * lengths[head.name] for head in trace.heads}
    mean: Array = np.mean([*norms.values()], axis=0)
    return beside(trace, {MEAN: mean, **norms}, _formula(joining), lengths)


def _of_all(trace: Trace, joining: Joining) -> Array:
    if joining.residual is None or trace.has_second_input:
        of_two, alone = "In cross-attention no key is the query", "No layer joins these heads to a residual"
        why = of_two if trace.has_second_input else alone
        what = f"{why}: --measure {WITH_RESIDUAL} has no meaning here."
        raise UsageError(what, "Try --measure norm.", "--measure")
    made = (np.stack([getattr(head, name) for head in trace.heads]) for name in ("weights", "v", "output"))
    return joining.lengths_of_all(*made)


def _formula(joining: Joining, with_residual: bool = False) -> str:
    made = "weight · v" if joining.W_o is None else "weight · v W_o"
    if not with_residual:
        return f"norm = ‖{made}‖, where v = x W_v + b_v"
    heads = f"{'LN' if joining.inner else ''}(sum over heads of {made})"
    scale = ", LN's scale that of the whole sum" if joining.inner or joining.outer else ""
    whole = f"{heads} + x where the key is the query"
    return f"norm = ‖{f'LN({whole})' if joining.outer else whole}‖{scale}"


def beside(
    trace: Trace, norms: Mapping[str, Array], derived: str, lengths: Mapping[str, Array] | None = None
) -> Trace:
    """Return a trace of weights with norms of its heads, by name; `derived` says how they were made."""

    def found(head: Head) -> Head:
        return replace(head, norms=norms.get(head.name), lengths=(lengths or {}).get(head.name))

    heads = {head.name: found(head) for head in trace.heads}
    shown = heads.get(trace.shown.name) or found(trace.shown)
    return replace(trace, heads=tuple(heads.values()), shown=shown, derived=derived)


def drawn(trace: Trace) -> Trace:
    """Return the trace as views draw it: where norms are measured, they are its weights, and these its norms."""
    if trace.settings.measure == WEIGHT:
        return trace
    k = max(LINKS, trace.settings.top or 0)

    def swapped(head: Head) -> Head:
        assert head.norms is not None
        top = strongest(head.norms, k, trace.mask_of(head))
        return replace(head, ready=head.norms, norms=head.weights, top=top, steps=None, sink=None)

    shown = swapped(trace.shown)
    measured = [head for head in trace.heads if head.norms is not None]
    heads = tuple(shown if head is trace.shown else swapped(head) for head in measured)
    return replace(trace, heads=heads or (shown,), shown=shown)
