"""The whole matrix, step by step: each step's formula, shape, numbers, and one sentence of real values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from attn_cli.core.scores import GIVEN, score_named
from attn_cli.io.escape import count, shell_quote
from attn_cli.render.blocks import Block, Columns, Formula, Heading, Links, Matrix, Say
from attn_cli.render.numbers import share
from attn_cli.render.views.step_sentences import (
    keeps_values,
    ranking,
    repeats_x,
    shown_ids,
    step_facts,
    walk_facts,
)
from attn_cli.render.views.whys import walked, why
from attn_cli.render.views.wording import head_of_layer, quoted, short
from attn_cli.trace.head import Head
from attn_cli.trace.steps import STEPS
from attn_cli.trace.trace import Trace

if TYPE_CHECKING:
    from attn_cli.io.array_types import Array

MOST_ROWS = 12
FEW_ROWS = 4
MOST_COLUMNS = 120


def walk(trace: Trace, only: Sequence[str] = (), each: bool = False) -> Iterator[Block]:
    """Yield each step of the trace with its numbers: all steps, or those in `only`.

    With `each`, a step of `only` that the trace lacks is named with the reason.
    """
    head = trace.heads[0] if trace.shown.scores is None else trace.shown
    others = [f"--head {shell_quote(name)}" for name in trace.head_names[::-1] if name != head.name][:1]
    others += ["--layer N"] * trace.has_layers
    if others:
        yield Say(f"The steps below are those of {head_of_layer(head)}; {' or '.join(others)} shows another.")
    facts = walk_facts(trace, head)
    of = walked(trace, trace.focus[0])
    number = 0
    for step in STEPS:
        blocks = list(_numbers(trace, head, step.name))
        if not blocks:
            if each and step.name in only:
                yield Say(f"{step.title}: {_WHY_MISSING[step.name]}")
            continue
        number += 1
        if only and step.name not in only:
            continue
        yield Heading(f"{number}. {step.title}", 3)
        latex = step.latex if _matches_paper(trace, head, step.name) else ""
        yield Formula(step.formula.format(**facts) + _shape(trace, head, step.name), latex=latex)
        yield from blocks
        if step.name in ("weights", "output") and not head.weights[trace.row_in_arrays(trace.focus[0])].any():
            yield Say(f"{quoted(trace.query_tokens[trace.focus[0]])} may look at nothing: zeros.")
            continue
        sentence = step.alone if step.alone and len(trace.key_tokens) == 1 else step.sentence
        yield Say(sentence.format(**facts | step_facts(trace, head, step.name)))
        if of is not None and (reason := why(step.name, of)):
            yield Say(reason)


# Why the trace lacks a step that was asked for.
_WHY_MISSING = (
    {
        "tokens": "there is no text, only matrices.",
        "x_query": "Q, K and V are given themselves.",
        "encodings_query": "nothing is added for a token's place; --positions sinusoidal adds an encoding.",
        "W_q": "Q, K and V are given themselves.",
        "position_scores": "nothing is added to the scores for the distance of two words.",
        "capped_scores": "no score is capped.",
        "masked_scores": "there is no mask; --mask causal sets one.",
    }
    | dict.fromkeys(
        ("q", "k", "v", "scores", "scaled_scores", "output"), "the weights were given without it."
    )
    | {
        "v": "no values were given.",
        "output": "no values were given, so there is nothing to mix.",
    }
)


def _matches_paper(trace: Trace, head: Head, name: str) -> bool:
    """Return whether the paper's formula holds for this trace and says more than the one in words."""
    score = score_named(trace.score)
    scaled = (
        score.is_scaled and score.latex is not None and trace.temperature == 1 and trace.own_scale is None
    )
    return {
        "x_query": True,
        "W_q": trace.projection.layout != "out-in" and not keeps_values(trace, head),
        "scores": score.latex is not None,
        "scaled_scores": scaled,
        "weights": scaled and trace.mask is None and head.position_scores is None and trace.softcap is None,
        "output": True,
    }.get(name, False)


def _shape(trace: Trace, head: Head, name: str) -> str:
    matrix = getattr(trace if name.startswith("x_") else head, name, None)
    if name == "encodings_query":
        matrix = trace.x_query
    if name == "tokens" or matrix is None:
        return ""
    shape = (len(trace.rows), len(trace.key_tokens)) if name == "masked_scores" else matrix.shape
    return f"   [{shape[0]:,} × {shape[1]:,}]"


def _numbers(trace: Trace, head: Head, name: str) -> Iterator[Block]:
    """Yield one step's numbers; nothing if the trace lacks the step."""
    of_trace = {"tokens": _tokens, "x_query": _vectors, "encodings_query": _encodings}
    if name in of_trace:
        yield from of_trace[name](trace)
    elif name == "W_q":
        yield from _weights(trace, head)
    elif name in ("q", "k", "v"):
        yield from _projected(trace, head, name)
    elif name == "output":
        yield from _output(trace, head)
    elif getattr(head, name) is not None and not (name == "masked_scores" and trace.mask is None):
        yield _square(trace, head, getattr(head, name), name)


def _tokens(trace: Trace) -> Iterator[Block]:
    if (ids := shown_ids(trace)) is None:
        return
    pairs = list(zip(trace.query_tokens, ids[0], strict=True))
    if trace.has_second_input:
        pairs += zip(trace.key_tokens, ids[1], strict=True)
    rows = [[short(token), str(number)] for token, number in pairs[: 2 * MOST_ROWS]]
    if len(pairs) > len(rows):
        rows.append([f"{len(pairs) - len(rows):,} more", "…"])
    yield Columns(["token", "id"], rows)


def _vectors(trace: Trace) -> Iterator[Block]:
    if trace.x_query is None or trace.x_key is None:
        return
    placed = trace.placed
    X, context = (trace.x_query, trace.x_key) if placed is None else (placed.words_query, placed.words_key)
    yield _wide("X", trace.query_tokens, X, trace.settings.round)
    if not trace.is_self:
        yield _wide("context", trace.key_tokens, context, trace.settings.round)


def _encodings(trace: Trace) -> Iterator[Block]:
    if trace.placed is None or trace.x_query is None:
        return
    sides = ((trace.placed.encodings_query, trace.pad_queries), (trace.placed.encodings_key, trace.pad_keys))
    P, padding = max(sides, key=lambda side: len(side[0]))
    own = iter(range(len(P)))
    places = ["padding" if i in padding else f"place {next(own)}" for i in range(len(P))]
    yield _wide("P", places, P, trace.settings.round)
    yield _wide("X + P", trace.query_tokens, trace.x_query, trace.settings.round)


def _projected(trace: Trace, head: Head, name: str) -> Iterator[Block]:
    """Yield Q, K or V; one row of it where it only repeats X."""
    matrix = getattr(head, name)
    if matrix is None:
        return
    tokens = trace.query_tokens
    if repeats_x(trace, head, name):
        i = trace.focus[0]
        more = f"{count(len(tokens) - 1, 'more row', 'more rows')}, as in X"
        yield _wide(name.upper(), [tokens[i]], matrix[[i]])._replace(more=more)
        return
    digits = trace.settings.round if head.W_q is None else None  # Q, K and V are inputs only where given
    yield _wide(name.upper(), tokens if name == "q" else trace.key_tokens, matrix, digits)


def _output(trace: Trace, head: Head) -> Iterator[Block]:
    if head.output is None:
        return
    yield _wide("output", trace.query_tokens, head.output)
    if trace.of_model and trace.x_query is not None and trace.W_o is None:
        yield Say("W_o, which joins the outputs of all heads, is too large to be kept: the walk ends here.")
    if trace.output_words is None:
        return
    yield Say(
        "The words nearest to each output, with their cosines, among the commonest words and those of the text:"
    )
    yield Links(
        [
            (trace.query_tokens[i], [(word, share(cosine)) for word, cosine in trace.output_words[i]])
            for i in trace.listed[: 2 * MOST_ROWS]
        ]
    )


def _wide(name: str, rows: Sequence[str], matrix: Array, digits: int | None = None, most: int = 0) -> Matrix:
    most = most or (MOST_ROWS * 2 if matrix.shape[1] <= MOST_ROWS else MOST_ROWS)
    more = f"{len(matrix) - most:,} more rows" if len(matrix) > most else ""
    columns = [str(c) for c in range(matrix.shape[1])]
    return Matrix(rows[:most], columns, matrix[:most], corner=name, fits=True, more=more, digits=digits)


def _weights(trace: Trace, head: Head) -> Iterator[Block]:
    """Yield W_q, W_k and W_v with their biases, leaving out those that are the identity."""
    names = ("q",) if trace.projection.source == "identity" else ("q", "k", "v")
    digits = trace.settings.round
    for name in names[:2] if keeps_values(trace, head) else names:
        W, bias = getattr(head, f"W_{name}"), getattr(head, f"b_{name}")
        if W is None:
            continue
        most = len(W) if len(W) <= MOST_ROWS else FEW_ROWS
        yield _wide(f"W_{name}", [str(n) for n in range(len(W))], W, digits, most)
        if bias is not None:
            yield _wide("", [f"b_{name}"], bias[np.newaxis], digits)


def _square(trace: Trace, head: Head, matrix: Array, name: str) -> Matrix:
    """Return a step's matrix; of a condensed trace, with columns centred on the strongest key."""
    rows = [trace.query_tokens[int(i)] for i in trace.rows]
    columns, values, around, most = trace.key_tokens, matrix, None, 10 * MOST_ROWS
    if (mask := trace.mask_of(head)) is not None and name in ("masked_scores", "weights"):
        values = np.where(mask, matrix, np.nan)
    elif name in ("scores", "scaled_scores") and trace.score == GIVEN:
        values = np.where(np.isfinite(matrix), matrix, np.nan)  # masked ones, as they were given
    sums = [f"{s:.3f}" for s in matrix.sum(axis=1)] if name == "weights" else []
    if trace.condensed:
        around = int(np.argmax(ranking(head, name)[trace.row_in_arrays(trace.focus[0])]))
        rows = [f"{i} {token}" for i, token in zip(trace.rows, rows, strict=True)]
        columns = tuple(f"{j} {token}" for j, token in enumerate(columns))
    return Matrix(
        rows[:most],
        columns,
        values[:most],
        corner="query\\key",
        sums=sums[:most],
        is_weights=name == "weights",
        shaded=True,
        fits=len(trace.key_tokens) > MOST_COLUMNS,
        row_numbers=None if trace.condensed else [int(i) for i in trace.rows[:most]],
        around=around,
        more=f"{len(rows) - most:,} more rows" if len(rows) > most else "",
    )
