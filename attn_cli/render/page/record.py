"""A Trace, or those of several layers, as the record that the page computes with."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from attn_cli.core.masks import MASKS, find_rule, rule_in
from attn_cli.core.scores import SCORES
from attn_cli.errors import InputError, UsageError
from attn_cli.pipeline.for_page import why_not_typed
from attn_cli.render.page.script import Numbers, Stored
from attn_cli.render.palette import DIVERGING_DARK, NIGHT, PAPER, SHADES, between, ramp
from attn_cli.render.views.step_sentences import repeats_x, source, walk_facts
from attn_cli.render.views.wording import kind_of
from attn_cli.settings.declare import as_typed
from attn_cli.settings.settings import Settings
from attn_cli.settings.validate import find_rows
from attn_cli.trace.head import ROTATED, Head
from attn_cli.trace.head_roles import MIXED, Text, find_patterns, measure
from attn_cli.trace.steps import STEPS
from attn_cli.trace.trace import LARGE, Trace

if TYPE_CHECKING:
    from attn_cli.io.array_types import Array
    from attn_cli.pipeline.for_page import Page

MOST_EDITED = 150  # numbers of a matrix that can be typed over
MOST_TYPED = 60  # words of a sentence that is typed in
SMALL_MAP = 16
# Steps from 0 to a row's largest weight, in pages of at most so many weights: what is drawn has SHADES shades.
STEPS_OF_ROUNDED = ((500_000, 255), (2_000_000, SHADES - 1), (float("inf"), SHADES // 2 - 1))
STEP_KEYS = ("name", "title", "formula", "sentence", "alone")
SENT_FACTS = ("numbering", "projection", "position", "weights", "apply_q", "apply_k", "apply_v")


def record(page: Page, numbers: Numbers) -> tuple[Trace, dict[str, object]]:
    """Return the trace that the page opens with, and the record of all; its arrays go into `numbers`.

    The layers are taken one after the other: only the shown one is kept.
    """
    shown: Trace | None = None
    layers = []
    for place, trace in enumerate(page.layers):
        if trace.condensed:
            n_q, n_k = len(trace.query_tokens), len(trace.key_tokens)
            raise InputError(
                f"A page holds at most {LARGE:,} weights a head; these are {n_q:,} x {n_k:,}.",
                "Give a shorter text.",
            )
        shown = trace if place == page.shown else shown
        layers.append(_layer(trace, page, place, numbers))
    assert shown is not None  # the page names one of its layers
    shown = _without_folders(shown)
    return shown, _of_trace(shown, numbers) | {
        "shown": {"layer": page.shown, "head": shown.shown.name, "row": shown.focus[0]},
        "layers": layers,
        "vocabulary": _vocabulary(page, shown.settings, numbers),
        "untyped": _why_not_typed(page, shown),
        "command": _command(page, shown),
    }


def _without_folders(trace: Trace) -> Trace:
    """Return the trace with files and folders of its maker's machine named without the path to them."""
    vectors, projection = trace.embedding, trace.projection
    return replace(
        trace,
        embedding=vectors._replace(name=_file_name(vectors.name)),
        projection=projection._replace(name=_file_name(projection.name)),
    )


def _file_name(name: str | None) -> str | None:
    """Return the last part of a path; a name such as `org/model`, which is no path here, stays."""
    if name is None:
        return None
    path = Path(name)
    is_path = name.startswith(("/", ".", "~")) or path.is_absolute() or path.exists()
    return (path.name or path.resolve().name) if is_path else name


def _of_trace(trace: Trace, numbers: Numbers) -> dict[str, object]:
    """Return what the shown trace says of tokens and settings, and the words of the walk."""
    if trace.score in SCORES and SCORES[trace.score].javascript is None:
        what = f"The score {trace.score} has no JavaScript, so no page can compute it."
        raise UsageError(what, option="--score")
    # With one text, a mask from the other corner is the causal one.
    rules = {name.partition(":")[0]: rule for name, rule in MASKS.items() if rule.javascript}
    masks = [name for name, rule in rules.items() if trace.has_second_input or rule.corner != "bottom-right"]
    padding, tokens = trace.pad_keys, trace.query_tokens
    facts = walk_facts(trace, trace.stepped_head) if trace.is_scored else {}
    off = sorted({key for one in trace.settings.without for key in find_rows(one, trace.key_tokens)})
    return {
        "schema": "attn-page/1",
        "kind": trace.kind,
        "title": [kind_of(trace, masked) for masked in (False, True)],
        "queries": tokens,
        "keys": trace.key_tokens,
        "ids": trace.query_input_ids,
        "apart": trace.has_second_input,
        "unknown": trace.unknown,
        "dropped": trace.dropped,
        "scored": trace.is_scored and trace.score in SCORES,
        "score": trace.score if trace.score in SCORES else "scaled",
        "temperature": trace.temperature,
        "tempers_distance": trace.temperature_scales_distance,
        **_mask(trace, numbers),
        "padding": [padding.start, padding.stop],
        "off": off,
        "below": trace.learned is not None and trace.learned.layers > 1,
        "scores": {name: _score(name) for name, score in SCORES.items() if score.javascript is not None},
        "masks": masks,
        "steps": [{key: getattr(step, key) for key in STEP_KEYS} for step in STEPS if _has(trace, step.name)],
        # What the sentences of the walk say that no setting of the page changes.
        "facts": {name: facts[name] for name in SENT_FACTS if trace.is_scored},
        # Of q, k and v those that only repeat X: of these the walk shows the query's own row.
        "repeats": [name for name in "qkv" if trace.is_scored and repeats_x(trace, trace.stepped_head, name)],
        "sources": {} if trace.x_query is None else {one: source(trace, i) for i, one in enumerate(tokens)},
        "ramps": _ramps(),
    }


def _has(trace: Trace, step: str) -> bool:
    """Tell whether there can be numbers for a step of the walk; the mask can be changed, and is always there."""
    if step in ("masked_scores", "weights"):
        return trace.is_scored or step == "weights"
    of_text = {"tokens": trace.query_ids, "encodings_query": trace.placed, "x_query": trace.x_query}
    return (of_text[step] if step in of_text else getattr(trace.stepped_head, step)) is not None


def _mask(trace: Trace, numbers: Numbers) -> dict[str, object]:
    """Return the mask by its rule's name, or as an array under the name `given`."""
    name = rule_in(trace.mask_name)
    found = find_rule(name)
    if found is not None and found[0].javascript:
        return {"mask": name, "maskLabel": name, "allowed": None}
    assert trace.mask is not None
    return {"mask": "given", "maskLabel": name, "allowed": numbers.add_bytes(trace.mask)}


def _score(name: str) -> dict[str, object]:
    score = SCORES[name]
    return {
        "term": "" if score.javascript is None else score.javascript.label,
        "symbol": score.symbol,
        "matrix": score.matrix,
        "isScaled": score.is_scaled,
        "help": f"{name}: {score.help.partition(' is ')[2]}",
    }


def _ramps() -> dict[str, str]:
    ramps = {
        "light": ramp(PAPER),
        "lightSigned": ramp(PAPER, True),
        "dark": between(NIGHT),
        "darkSigned": between(DIVERGING_DARK),
    }
    return {name: "".join(bytes(colour).hex() for colour in colours) for name, colours in ramps.items()}


# Heads


def _layer(trace: Trace, page: Page, place: int, numbers: Numbers) -> dict[str, object]:
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
    made |= {"scale": head.scale, "softcap": head.softcap}
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


# Another sentence, and the command


def _vocabulary(page: Page, settings: Settings, numbers: Numbers) -> dict[str, object] | None:
    words = page.words
    if words is None:
        return None
    return {
        "words": words.words,
        "vectors": numbers.add(words.vectors),
        "features": words.features,
        "starts": numbers.add(words.starts),
        "always": words.always,
        "oov": words.oov,
        "tokenizer": settings.tokenizer,
        "keepPunctuation": settings.keep_punctuation,
        "most": MOST_TYPED,
    }


def _why_not_typed(page: Page, trace: Trace) -> str:
    """Return why no other sentence can be typed into the page, in a sentence; nothing where one can."""
    if page.words is not None:
        return ""
    reason = (
        why_not_typed(trace, trace.settings) or "it carries no words to type with (attn page carries some)"
    )
    if page.n_layers > 1 or trace.of_model:
        reason = "it has the numbers of a model's layers for this text, and not the model"
    elif page.text is None:
        reason = "its numbers were given, and not made of a text"
    return f"No other sentence can be typed into this page: {reason}."


def _command(page: Page, trace: Trace) -> dict[str, object] | None:
    """Return the command that made the trace, without what the page itself chooses; None where it was no text."""
    if page.text is None or trace.kind not in ("self", "masked", "cross"):
        return None
    return {
        "words": ["attn", trace.kind],
        "options": as_typed(trace.settings, LIVE),
        "text": page.text,
        "after": [] if page.context is None else [page.context],
        "head": trace.head_names[0],
        "score": trace.score if trace.settings.score is None else "scaled",
    }


# What the page itself chooses, or what changes no weight.
OF_PAGE = ("head", "layer", "score", "temperature", "mask", "mask_true", "without", "query", "versus")
LIVE = (*OF_PAGE, "top", "full", "next", "next_at", "threads")
