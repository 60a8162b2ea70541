"""What stands beside the weights of a trace: the norms of what comes of them, which views can draw, and its notes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from attn_cli.core.heads import strongest
from attn_cli.core.masks import Mask
from attn_cli.errors import UsageError, fixed, refuse, visible
from attn_cli.io.types import Array, replace
from attn_cli.models.logit_parts import Joining
from attn_cli.pipeline import Inputs, attend
from attn_cli.settings import MEAN, WEIGHT, WITH_RESIDUAL
from attn_cli.trace import Head, Learned, Trace

MOST_EXCLUDED = 20
CLEAR_LEAD = 3.0  # e^3: twenty times less than the words before


def with_norms(trace: Trace, joining: Joining) -> Trace:
    """Return a trace that has attended, with the norms that its settings ask for; UsageError where there are none."""
    measure, names = trace.settings.measure, trace.head_names
    what = f"--measure {measure} shows whole matrices: this text is too long for it."
    refuse(trace.condensed, what, "Give a shorter text, or --full.", "--measure")
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
    k = max(attend.LINKS, trace.settings.top or 0)

    def swapped(head: Head) -> Head:
        assert head.norms is not None
        top = strongest(head.norms, k, trace.mask_of(head))
        return replace(head, ready=head.norms, norms=head.weights, top=top, steps=None, sink=None)

    shown = swapped(trace.shown)
    measured = [head for head in trace.heads if head.norms is not None]
    heads = tuple(shown if head is trace.shown else swapped(head) for head in measured)
    return replace(trace, heads=heads or (shown,), shown=shown)


def notes_on_rows(
    head: Head, inputs: Inputs, mask: Mask | None, is_scored: bool, learned: Learned | None
) -> list[str]:
    """Return the notes on fully masked rows, a single key, keys that are hidden, and a head without its match.

    `learned` tells of the head where each row is shown, and of no model otherwise.
    """
    notes = []
    shut = np.flatnonzero(head.links.keys[:, 0] < 0)
    if len(shut):
        names = ", ".join(f"{visible(inputs.query.tokens[i])} ({i})" for i in shut[:5])
        more = f" and {len(shut) - 5} more" if len(shut) > 5 else ""
        notes.append(f"A fully masked row: {names}{more} may look at nothing, so its weights are zeros.")
    if is_scored and len(inputs.key.tokens) == 1:
        notes.append("One key: its weight is 1 whatever the numbers are.")
    if learned and learned.layers == 1 and mask is not None and mask.label.startswith("causal"):
        notes += _trained_unmasked(head, inputs)
    if mask is not None and mask.excluded:
        names = ", ".join(f"{visible(inputs.key.tokens[j])} ({j})" for j in mask.excluded[:MOST_EXCLUDED])
        left = len(mask.excluded) - MOST_EXCLUDED
        more = f" and {left:,} more" if left > 0 else ""
        notes.append(f"Hidden from every query: {names}{more} (--without).")
    return notes


def layout_note(trace: Trace, there: Trace) -> str:
    """Return a note on what the other layout would change."""
    used, other = (one.projection.layout or "in-out" for one in (trace, there))
    how = {"in-out": "x W", "out-in": "W x"}
    note = f"W is square, so its shape does not determine its layout; it was read as {used} ({how[used]})."
    change = np.abs(trace.weights - there.weights)
    i, j = (int(n) for n in np.unravel_index(int(change.argmax()), change.shape))
    if change[i, j] > 1e-9:
        here, instead = float(trace.weights[i, j]), float(there.weights[i, j])
        pair = f"{visible(trace.query_tokens[int(trace.rows[i])])} on {visible(trace.key_tokens[j])}"
        note += f" As {other} ({how[other]}), the weight of {pair} would be {instead:.3f}, not {here:.3f}."
    else:
        one, two = trace.output, there.output
        same = one is not None and two is not None and np.allclose(one, two)
        note += f" As {other} ({how[other]}), the weights would be the same"
        note += ", and the output too." if same else ", but the output would not."
    return note


def kept_note(n_q: int, n_k: int) -> str:
    """Return the note of a condensed trace on what it keeps."""
    return f"{n_q:,} x {n_k:,} weights: only each row's strongest links are kept (--full keeps all)."


def condensed_notes(n_q: int, n_k: int, asked: int, kept: int, mask: Mask | None) -> list[str]:
    """Return the notes on a matrix that is too large to hold: what is kept of it, and which mask it has."""
    cut = [f"{asked:,} rows were asked for: the first {kept:,} are kept."] if asked > kept else []
    return [kept_note(n_q, n_k), *cut, *([] if mask is None else [f"The mask is {mask.label}."])]


def _trained_unmasked(head: Head, inputs: Inputs) -> list[str]:
    """Return a note on what a head that was trained without a mask does where the word that it looks for is hidden.

    Its distance terms tell whether it looks ahead at all, and whether it avoids or prefers a word's own position.
    """
    P = head.position_scores
    n = len(head.weights)
    own = inputs.query.own
    if P is None or P.shape != (n, n) or own.stop - own.start < 3:
        return []
    first, second, last = own.start, own.start + 1, own.stop
    before = [(P[i, first:i].max(), i) for i in range(second, last - 1)]
    leads = np.sort([(P[i, i + 1 : last].max() - most, most - P[i, i]) for most, i in before], axis=0)
    # The medians; np.median would load numpy.ma.
    ahead, behind = (leads[(len(leads) - 1) // 2] + leads[len(leads) // 2]) / 2
    if ahead < -CLEAR_LEAD or abs(behind) < CLEAR_LEAD:
        return []
    name = f"Head {visible(head.name)} was trained without a mask"
    if behind < 0:
        return [f'{name}, and a word without a match attends to itself: weight on itself means "no match".']
    looks, back = (visible(inputs.query.tokens[i]) for i in (second, first))
    return [
        f"{name}, to look ahead too, and hardly ever at the word itself. Here {looks} may attend only to {back} and "
        f"itself, with distance terms {fixed(P[second, first], 2)} and {fixed(P[second, second], 2)}, so {back} gets "
        f"{float(head.weights[second, first]):.2f}: there is no other candidate."
    ]
