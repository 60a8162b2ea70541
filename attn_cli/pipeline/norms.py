"""What comes of the weights: the length of what each key adds to a query, beside them, and drawn in their place."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from attn_cli.core.heads import strongest
from attn_cli.errors import UsageError
from attn_cli.io.array_types import Array
from attn_cli.models.joining import Joining
from attn_cli.pipeline.attend import LINKS
from attn_cli.settings.settings import WEIGHT, WITH_RESIDUAL
from attn_cli.trace.head import Head
from attn_cli.trace.trace import Trace


def with_norms(trace: Trace, joining: Joining) -> Trace:
    """Return a trace that has attended, with the norms that its settings ask for; UsageError where there are none."""
    measure = trace.settings.measure
    if trace.heads[0].v is None or trace.condensed:
        why = (
            "shows whole matrices: this text is too long"
            if trace.condensed
            else "needs values, which are missing"
        )
        hint = "Give a shorter text, or --full." if trace.condensed else "Leave it out."
        raise UsageError(f"--measure {measure} {why}.", hint, "--measure")
    if measure == WITH_RESIDUAL:
        shown = replace(trace.shown, norms=_of_all(trace, joining))
        return replace(trace, shown=shown, derived=_formula(joining, True))
    count = len(trace.head_names)
    heads = []
    for head in trace.heads:
        assert head.v is not None
        lengths = joining.lengths(head.v, trace.head_names.index(head.name), count)
        heads.append(replace(head, lengths=lengths, norms=head.weights * lengths))
    mean = np.mean([head.norms for head in heads if head.norms is not None], axis=0)
    shown = next((head for head in heads if head.name == trace.shown.name), replace(trace.shown, norms=mean))
    return replace(trace, heads=tuple(heads), shown=shown, derived=_formula(joining))


def _of_all(trace: Trace, joining: Joining) -> Array:
    if joining.residual is None or trace.has_second_input or joining.W_o is None:
        where = (
            "In cross-attention no key is the query"
            if trace.has_second_input
            else "Nothing joins these heads"
        )
        hint = "Try --measure norm."
        raise UsageError(f"{where}: --measure {WITH_RESIDUAL} has no meaning here.", hint, "--measure")
    weights, values, outputs = (
        np.stack([getattr(head, name) for head in trace.heads]) for name in ("weights", "v", "output")
    )
    return joining.lengths_of_all(weights, values, outputs)


def _formula(joining: Joining, with_residual: bool = False) -> str:
    made = "weight · v" if joining.W_o is None else "weight · v W_o"
    if not with_residual:
        return f"norm = ‖{made}‖, where v = x W_v + b_v"
    normed = f"norm({made}, summed over heads)" if joining.inner else f"{made}, summed over heads"
    own = "and x where the key is the query"
    scale = ", a norm's scale held as it is for the whole sum"
    whole = (
        f"‖norm({normed}, {own})‖{scale}"
        if joining.outer
        else f"‖{normed}, {own}‖{scale * bool(joining.inner)}"
    )
    return f"norm = {whole}"


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
    heads = tuple(
        shown if head is trace.shown else swapped(head) for head in trace.heads if head.norms is not None
    )
    return replace(trace, heads=heads or (shown,), shown=shown)


def beside(trace: Trace, norms: Trace) -> Trace:
    """Return a trace of weights with the norms that another one holds as the weights of the same heads."""
    found = {head.name: head.weights for head in (*norms.heads, norms.shown)}
    heads = [replace(head, norms=found.get(head.name)) for head in (*trace.heads, trace.shown)]
    return replace(trace, heads=tuple(heads[:-1]), shown=heads[-1], derived=norms.derived)
