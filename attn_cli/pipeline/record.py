"""The last step of every way in: the heads attend, and the result becomes a Trace."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from attn_cli.core.head_weights import Turned
from attn_cli.core.heads import Links
from attn_cli.core.masks import Mask
from attn_cli.errors import InputError, NotFinite
from attn_cli.io.escape import fixed, visible
from attn_cli.pipeline.attend import LINKS, ReadyWeights, Work, mean_head
from attn_cli.pipeline.inputs import Inputs
from attn_cli.pipeline.project import Layer, ungoverned
from attn_cli.settings.settings import Settings
from attn_cli.settings.validate import find_rows
from attn_cli.trace.computation import Placed
from attn_cli.trace.head import Head
from attn_cli.trace.trace import LARGE, Trace

if TYPE_CHECKING:
    from attn_cli.core.fast import Report
    from attn_cli.pipeline.attend import HeadsOfText

NAMED_WORDS = 3
COMMONEST = 10_000
MOST_NAMED = 200
MOST_OFF = 20
SHUNNED = 3.0  # e^3: twenty times less than the words before


def build_trace(
    kind: str,
    inputs: Inputs,
    layer: Layer,
    settings: Settings,
    mask: Mask | None,
    report: Report | None,
) -> Trace:
    """Attend with the layer's heads, and keep the record."""
    heads = tuple(_in_dtype(head, settings.dtype) for head in layer.heads)
    work = Work(
        heads, mask, layer.score or settings.score or "scaled", settings.temperature, settings.threads
    )
    try:
        trace = record_trace(kind, inputs, layer, settings, work, report)
    except NotFinite as error:
        names = [tuple(map(visible, side.tokens)) for side in (inputs.query, inputs.key)]
        raise NotFinite(error.query, error.key, *names) from None
    if layer.turned is None or trace.condensed:
        return trace
    try:
        turned, _ = layer.turned()
        there = build_trace(kind, inputs, turned._replace(turned=None), settings, mask, None)
    except InputError:  # W_o or a bias fits in one layout alone
        return trace
    return replace(trace, notes=(*trace.notes, _layout_note(trace, there)))


def _off_note(mask: Mask | None, inputs: Inputs) -> list[str]:
    """Return the note on tokens that --without takes out of what may be looked at."""
    if mask is None or not mask.off:
        return []
    names = [f"{visible(inputs.key.tokens[key])} ({key})" for key in mask.off[:MOST_OFF]]
    more = f" and {len(mask.off) - MOST_OFF:,} more" if len(mask.off) > MOST_OFF else ""
    return [f"Nobody may look at {', '.join(names)}{more} (--without)."]


def _in_dtype(head: Head, dtype: str) -> Head:
    """Return the head with q, k, v and bias in float32 or float64."""
    with np.errstate(over="ignore"):  # an overflow to infinity is refused by the score check
        q, k, v, bias = (
            M if M is None else M.astype(dtype, copy=False) for M in (head.q, head.k, head.v, head.bias)
        )
    turned = head.turned and Turned(*(M.astype(dtype, copy=False) for M in head.turned))
    return replace(head, q=q, k=k, v=v, bias=bias, turned=turned)


def record_trace(
    kind: str,
    inputs: Inputs,
    layer: Layer,
    settings: Settings,
    work: Work | ReadyWeights | HeadsOfText,
    report: Report | None,
) -> Trace:
    """Let the heads work, by blocks of rows where the matrix is large, and keep the record."""
    query, key = inputs.query, inputs.key
    n_q, n_k = len(query.tokens), len(key.tokens)
    shown = layer.shown
    asked = () if settings.query is None else find_rows(settings.query, query.tokens)
    if settings.versus is not None:  # every format refuses a token that there is not
        find_rows(settings.versus, key.tokens, "--versus")
    wanted = max(LINKS, settings.top or 0)
    rows, focus, summaries, notes = np.arange(n_q), asked, {}, list(inputs.notes)
    if condensed := n_q * n_k > LARGE and not settings.full:
        summaries = work.summaries(wanted, shown == "mean", report)
        focus = asked or (_telling(summaries[shown].links, inputs),)
        focus = focus[: max(1, LARGE // n_k)]
        rows = np.array(focus, dtype=np.intp)
        notes += _condensed_notes(n_q, n_k, len(asked), len(focus), work.mask)
    allowed = None if work.mask is None else work.mask.rows(rows)
    heads = work.attended(rows, allowed, wanted, summaries)
    mean = mean_head(heads, allowed, wanted, summaries.get("mean")) if shown == "mean" else None
    top = mean or next(head for head in heads if head.name == shown)
    focus = focus or (_turning_point(top, layer, inputs),)
    notes += _row_notes(top, inputs, n_k if heads[0].scores is not None else 0)
    is_causal = work.mask is not None and work.mask.label.startswith("causal")
    if is_causal and layer.learned and not (condensed or asked):
        notes += _untaught_mask(top, layer.learned.layers, inputs)
    notes += _off_note(work.mask, inputs)
    outputs = [head.output for head in heads if head.output is not None]
    numbers = {token: n for n, token in enumerate(dict.fromkeys((*query.tokens, *key.tokens)))}
    return Trace(
        kind=kind,
        settings=settings,
        query_tokens=query.tokens,
        key_tokens=key.tokens,
        query_ids=tuple(numbers[token] for token in query.tokens) if inputs.has_text else None,
        key_ids=tuple(numbers[token] for token in key.tokens) if inputs.has_text else None,
        unknown=inputs.unknown,
        replaced=dict(inputs.replaced),
        dropped=inputs.dropped,
        embedding=inputs.embedding,
        x_query=query.X,
        x_key=key.X,
        positions=settings.positions or "none",
        placed=_placed(inputs),
        projection=layer.projection.about,
        score=work.score,
        scale=work.scale,
        temperature=float(settings.temperature),
        mask_name="none" if work.mask is None else work.mask.label,
        mask=allowed,
        rows=rows,
        focus=focus,
        head_names=layer.names,
        heads=tuple(heads),
        shown=top,
        learned=layer.learned,
        W_o=layer.projection.output_weights_as_given,
        b_o=layer.projection.b_o,
        layer_output=layer.projection.joined(outputs),
        output_words=None,
        condensed=condensed,
        notes=tuple(dict.fromkeys(notes)),
        apart=inputs.apart,
        pad_queries=query.padding,
        pad_keys=key.padding,
        long_view=summaries[shown].view if condensed else None,
        source=work,
    )


def _turning_point(head: Head, layer: Layer, inputs: Inputs) -> int:
    """Return the query most worth a look: the word that the sentence turns on, else that of the strongest link."""
    found = None if layer.governor is None else ungoverned(layer.governor, inputs)
    return _telling(head.links, inputs) if found is None else found


def _placed(inputs: Inputs) -> Placed | None:
    query, key = inputs.query, inputs.key
    if query.words is None or query.encodings is None:
        return None
    assert key.words is not None and key.encodings is not None
    return Placed(query.words, key.words, query.encodings, key.encodings)


def _layout_note(trace: Trace, there: Trace) -> str:
    """Return a note on what the other layout would change."""
    used, other = (one.projection.layout or "in-out" for one in (trace, there))
    how = {"in-out": "x W", "out-in": "W x"}
    told = f"W is square, so its shape cannot tell its layout: it was read as {used} ({how[used]})."
    change = np.abs(trace.weights - there.weights)
    i, j = (int(n) for n in np.unravel_index(int(change.argmax()), change.shape))
    if change[i, j] > 1e-9:
        here, instead = float(trace.weights[i, j]), float(there.weights[i, j])
        pair = f"{visible(trace.query_tokens[int(trace.rows[i])])} on {visible(trace.key_tokens[j])}"
        told += f" As {other} ({how[other]}), the weight of {pair} would be {instead:.3f}, not {here:.3f}."
    else:
        one, two = trace.output, there.output
        same = one is not None and two is not None and np.allclose(one, two)
        told += f" As {other} ({how[other]}), the weights would be the same"
        told += ", and the output too." if same else ", but the output would not."
    return told


def output_words(trace: Trace, inputs: Inputs) -> tuple[tuple[tuple[str, float], ...], ...] | None:
    """Return the words nearest to each output, where values are word vectors: W_v leaves or restores them."""
    values = trace.learned.values if trace.learned else "learned"
    alone = trace.projection.source == "identity" and len(trace.head_names) == 1
    if inputs.table is None or trace.output is None or not (alone or values == "words"):
        return None
    if len(trace.output) > MOST_NAMED:
        return None
    from attn_cli.vectors.nearest import nearest_each

    also = dict.fromkeys((*trace.query_tokens, *trace.key_tokens))
    return tuple(
        tuple(found)
        for found in nearest_each(inputs.table, trace.output, NAMED_WORDS, COMMONEST, tuple(also))
    )


def _telling(links: Links, inputs: Inputs) -> int:
    """Return the query whose link to a differently written word is the strongest of all.

    Words without a vector do not count: zeros score alike with everything.
    """
    best, telling = -1.0, 0
    unknown = set(inputs.unknown)
    for i, token in enumerate(inputs.query.tokens):
        if token in unknown or i in inputs.query.padding:
            continue
        for j, weight in zip(links.keys[i], links.weights[i], strict=True):
            key = inputs.key.tokens[j] if j >= 0 else token
            if key.casefold() != token.casefold() and key not in unknown:
                if weight > best:
                    best, telling = float(weight), i
                break
    return telling


def kept_note(n_q: int, n_k: int) -> str:
    """Return the note of a condensed trace on what it keeps."""
    return f"{n_q:,} x {n_k:,} weights: only each row's strongest links are kept (--full insists)."


def _condensed_notes(n_q: int, n_k: int, asked: int, kept: int, mask: Mask | None) -> list[str]:
    notes = [kept_note(n_q, n_k)]
    if asked > kept:
        notes.append(f"{asked:,} rows were asked for: the first {kept:,} are kept.")
    if mask is not None:
        notes.append(f"The mask is {mask.label}.")
    return notes


def _untaught_mask(head: Head, layers: int, inputs: Inputs) -> list[str]:
    """Return a note on what a head that was trained without a mask does where the word that it looks for is hidden.

    Its distance terms tell: whether it looks ahead at all, and whether it shuns or prefers a word's own place.
    """
    P = head.position_scores
    n = len(head.weights)
    own = inputs.query.own
    if P is None or layers > 1 or P.shape != (n, n) or own.stop - own.start < 3:
        return []
    first, second, last = own.start, own.start + 1, own.stop
    inner = range(second, last - 1)
    ahead = _median([P[i, i + 1 : last].max() - P[i, first:i].max() for i in inner])
    behind = _median([P[i, first:i].max() - P[i, i] for i in inner])
    if ahead < -SHUNNED or abs(behind) < SHUNNED:
        return []
    name = f"Head {visible(head.name)} was trained without a mask"
    if behind < 0:
        return [
            f"{name}, and a word that finds nothing looks at itself: its own place is the sign for nothing."
        ]
    looks, back = (visible(inputs.query.tokens[i]) for i in (second, first))
    return [
        f"{name}, to look ahead too, and hardly ever at the word itself. {looks} may look at {back} and itself alone, "
        f"with a distance of {fixed(P[second, first], 2)} and {fixed(P[second, second], 2)}: so {back} gets "
        f"{float(head.weights[second, first]):.2f}, for want of another word."
    ]


def _median(numbers: list[float]) -> float:
    """Return the median; NumPy's own imports its masked arrays, which takes longer than all that is computed here."""
    ordered = sorted(numbers)
    middle = len(ordered) // 2
    return float((ordered[~middle] + ordered[middle]) / 2)


def _row_notes(head: Head, inputs: Inputs, n_k: int) -> list[str]:
    notes = []
    shut = np.flatnonzero(head.links.keys[:, 0] < 0)
    if len(shut):
        names = ", ".join(f"{visible(inputs.query.tokens[i])} ({i})" for i in shut[:5])
        more = f" and {len(shut) - 5} more" if len(shut) > 5 else ""
        notes.append(f"A fully masked row: {names}{more} may look at nothing, so its weights are zeros.")
    if n_k == 1:
        notes.append("One key: its weight is 1 whatever the numbers are.")
    return notes
