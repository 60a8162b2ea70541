"""The layers and heads of a page: in full where the page computes with them, else as they are drawn."""

from __future__ import annotations

import numpy as np

from attn_cli.core.scores import SCORES
from attn_cli.io.array_types import Array
from attn_cli.pipeline.for_page import Page
from attn_cli.render.page.script import Numbers, Stored
from attn_cli.render.palette import SHADES
from attn_cli.trace.head import ROTATED, Head
from attn_cli.trace.head_roles import MIXED, Text, find_patterns, measure
from attn_cli.trace.trace import Trace

MOST_EDITED = 150  # numbers of a matrix that can be typed over
SMALL_MAP = 16
# Steps from 0 to a row's largest weight, in pages of at most so many weights: what is drawn has SHADES shades.
STEPS_OF_ROUNDED = ((500_000, 255), (2_000_000, SHADES - 1), (float("inf"), SHADES // 2 - 1))


def layer_of(trace: Trace, page: Page, place: int, numbers: Numbers) -> dict[str, object]:
    """Return a layer: its input, its mask and its heads."""
    made_of = [
        [M for M in (head.q, head.k, head.v) if M is not None] or [head.weights] for head in trace.heads
    ]
    size = sum(M.size for arrays in made_of for M in arrays)
    is_open = place == page.shown
    # A typed sentence needs the matrices of every head, whatever their number.
    is_small = page.words is not None or size * page.n_layers <= page.most_exact
    cells = page.n_layers * sum(head.weights.size for head in trace.heads)
    levels = next(levels for most, levels in STEPS_OF_ROUNDED if cells <= most)
    number = trace.projection.layer or 0
    roles = _roles(trace) if page.n_layers > 1 else {}
    made = []
    for head in trace.heads:
        is_asked = bool({head.name, f"{number}/{head.name}"} & {*page.exact})
        is_first = is_open and (size <= page.most_exact or head.name == trace.shown.name)
        exact = is_small or is_asked or (is_first and not page.exact)
        about = {"name": head.name, "about": page.about.get(head.name, ""), "role": roles.get(head.name, "")}
        made.append(about | _head(trace, head, numbers, levels if not exact else 0, page.words is not None))
    hold = numbers.add if is_small else numbers.add_half if is_open else lambda _: None
    apart = trace.has_second_input and trace.x_key is not None
    return {
        "number": number,
        "x": hold(trace.x_query),
        "xKey": hold(trace.x_key) if apart else None,
        "rounded": not is_small,
        "allowed": None if trace.mask is None or page.n_layers == 1 else numbers.add_bytes(trace.mask),
        "heads": made,
    }


def _roles(trace: Trace) -> dict[str, str]:
    """Return what each head that has but a number does on this text, where it clearly does something."""
    is_text, found = trace.query_ids is not None, {}
    queries, keys = (tokens if is_text else None for tokens in (trace.query_tokens, trace.key_tokens))
    text = Text(queries, keys, not trace.has_second_input)
    for head in trace.heads:
        mask = trace.mask_of(head)
        allowed = np.ones(head.weights.shape, np.bool_) if mask is None else mask
        name = measure(head.weights, allowed, find_patterns(text, allowed)).name
        found[head.name] = name if head.name.isdigit() and name != MIXED else ""
    return found


def _head(trace: Trace, head: Head, numbers: Numbers, levels: int, with_weights: bool) -> dict[str, object]:
    """Return a head: q, k and v, or what makes them; or, with `levels`, its weights alone, rounded to that many."""
    made: dict[str, object] = {}
    if len(head.weights.ravel()) > 64 * 64:
        made["thumb"] = _thumb(head.weights, numbers)
    if levels:
        return made | numbers.add_coarse(head.weights, levels)
    if head.q is None or head.v is None or not trace.is_scored or trace.score not in SCORES:
        return made | {"weights": numbers.add(head.weights)}
    made |= {"scale": head.scale, "softcap": head.softcap, "sink": head.sink}
    if head.mask is not None:
        made["allowed"] = numbers.add_bytes(head.mask.rows(trace.rows))
    for name in ROTATED if head.rotated is not None else ():
        made[name] = numbers.add(getattr(head, name))
    if with_weights and head.W is not None:
        return made | _weights(head, numbers) | _position(head, numbers, True)
    return made | {name: numbers.add(getattr(head, name)) for name in "qkv"} | _position(head, numbers, False)


def _weights(head: Head, numbers: Numbers) -> dict[str, Stored | None]:
    """Return W and b of a head as in x W; an identity is left out."""
    W = head.W
    assert W is not None
    names = ("W_q", "W_k", "W_v", "b_q", "b_k", "b_v")
    return {name: None if _is_identity(M := getattr(W, name)) else numbers.add(M) for name in names}


def _is_identity(M: Array | None) -> bool:
    return M is None or (M.ndim == 2 and M.shape[0] == M.shape[1] and bool((np.eye(len(M)) == M).all()))


def _position(head: Head, numbers: Numbers, whole: bool) -> dict[str, Stored | None]:
    """Return what a head adds for distances: R and b, or the terms of this text alone where they are fewer."""
    if head.position is None:
        return {"bias": numbers.add(head.bias)}
    R, b = head.position
    assert head.q is not None and head.k is not None
    cells = len(head.q) * len(head.k)
    if whole or head.q.size <= MOST_EDITED or 3 * cells > R.size:
        return {"R": numbers.add(R), "b": numbers.add(b)}
    reach = len(b) // 2
    distances = np.arange(len(head.k)) - np.arange(len(head.q))[:, np.newaxis]
    places = np.clip(distances, -reach, reach) + reach
    term = np.take_along_axis(head.position.by_distance(head.q), places, axis=1)
    return {"distance": numbers.add(term)}


def _thumb(weights: Array, numbers: Numbers) -> Stored:
    """Return a small picture of the weights: the largest of each block, as shares of the largest of all."""
    edges = [np.linspace(0, n, min(n, SMALL_MAP) + 1).astype(int)[:-1] for n in weights.shape]
    blocks = np.maximum.reduceat(np.maximum.reduceat(weights, edges[0], axis=0), edges[1], axis=1)
    return numbers.add_bytes(np.rint(blocks / (blocks.max() or 1) * 255))
