"""The whole matrix, step by step: each step's formula, shape, numbers, and one sentence of real values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from attn_cli.core.scores import score_named
from attn_cli.io.plural import count
from attn_cli.render.blocks import Block, Columns, Formula, Heading, Links, Matrix, Say
from attn_cli.render.numbers import plain, share
from attn_cli.render.views.wording import (
    head_named,
    may_look_at,
    position_term,
    projection,
    quoted,
    root_divisor,
    short,
    temperature_divisor,
)
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
    if len(trace.head_names) > 1:
        other = next(name for name in reversed(trace.head_names) if name != head.name)
        yield Say(f"The steps below are those of {head_named(head.name)}; --head {other} shows another.")
    facts = _facts(trace, head)
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
        if step.name in ("weights", "output") and not head.weights[trace.held(trace.focus[0])].any():
            yield Say(f"{quoted(trace.query_tokens[trace.focus[0]])} may look at nothing: zeros.")
            continue
        sentence = step.alone if step.alone and len(trace.key_tokens) == 1 else step.sentence
        yield Say(sentence.format(**facts | _step_facts(trace, head, step.name)))


# Why the trace lacks a step that was asked for.
_WHY_MISSING = {
    "tokens": "there is no text, only matrices.",
    "x_query": "Q, K and V are given themselves.",
    "encodings_query": "nothing is added for a token's place; --positions sinusoidal adds an encoding.",
    "W_q": "Q, K and V are given themselves.",
    "position_scores": "nothing is added to the scores for the distance of two words.",
    "masked_scores": "there is no mask; --mask causal sets one.",
} | dict.fromkeys(("q", "k", "v", "scores", "scaled_scores", "output"), "the weights were given without it.")


def _matches_paper(trace: Trace, head: Head, name: str) -> bool:
    """Return whether the paper's formula holds for this trace and says more than the one in words."""
    score = score_named(trace.score)
    scaled = score.is_scaled and score.latex is not None and trace.temperature == 1
    return {
        "x_query": True,
        "W_q": trace.projection.layout != "out-in" and not (_keeps_values(trace, head)),
        "scores": score.latex is not None,
        "scaled_scores": scaled,
        "weights": scaled and trace.mask is None and head.position_scores is None,
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


def _facts(trace: Trace, head: Head) -> dict[str, object]:
    in_out = trace.projection.layout != "out-in"
    bias = {name: f" + {name}" if getattr(head, name) is not None else "" for name in ("b_q", "b_k", "b_v")}
    given = head.W_q is None
    unmasked = "scaled" if head.position_scores is None else "scaled + position"
    applied = {
        f"apply_{m}": "given"
        if given
        else "X, for W_v is the identity"
        if m == "v" and _keeps_values(trace, head)
        else (f"X W_{m}" if in_out else f"W_{m} x, for each row x of X") + bias[f"b_{m}"]
        for m in "qkv"
    }
    return {
        **applied,
        "tokens": count(len(trace.query_tokens), "token", "tokens"),
        "distinct": len(set(trace.query_tokens)),
        "d": 0 if trace.x_query is None else trace.x_query.shape[1],
        "compare": f"{score_named(trace.score).matrix}, every query with every key",
        "scaling": f"scores{root_divisor(trace)}{temperature_divisor(trace)}",
        "projection": f"{projection(trace)}.{_values(trace, head)}",
        "position": "as given"
        if head.position_vectors is None
        else f"{position_term(trace)}, with one r and one b for each distance",
        "weights": "W_q, W_k" if _keeps_values(trace, head) else "W_q, W_k, W_v",
        "unmasked": unmasked,
        "before": unmasked if trace.mask is None else "masked",
    }


def _step_facts(trace: Trace, head: Head, name: str) -> dict[str, object]:
    """Return the values for one step's sentence, about the first row in focus."""
    i = trace.focus[0]
    query = quoted(trace.query_tokens[i])
    if name == "masked_scores":
        is_masked = trace.mask is not None
        return {
            "masking": may_look_at(trace, i) if is_masked else "No mask: every query may look at every key."
        }
    if name == "x_query" and trace.x_query is not None:
        start = trace.x_query if trace.placed is None else trace.placed.words_query
        return {"query": query, "first": plain(start[i, 0], 3), "source": _source(trace)}
    if name == "encodings_query" and trace.placed is not None and trace.x_query is not None:
        words, encodings = trace.placed.words_query, trace.placed.encodings_query
        numbers = {"before": words, "added": encodings, "first": trace.x_query}
        written = {part: plain(matrix[i, 0], 3) for part, matrix in numbers.items()}
        return {"query": query, "place": trace.place(i), **written}
    if name in ("q", "k", "v"):
        is_own = name == "q" or _is_x(trace, head, name)
        key = i if is_own else int(np.argmax(head.weights[trace.held(i)]))
        first = ", ".join(plain(x, 3) for x in getattr(head, name)[key][:3].tolist())
        return {
            "query": query,
            "key": query if name == "q" else quoted(trace.key_tokens[key]),
            "first": first,
        }
    if name in ("scores", "scaled_scores", "position_scores", "weights", "output"):
        return {"query": query, **_peak(trace, head, name, trace.held(i))}
    return {}


def _peak(trace: Trace, head: Head, name: str, at: int) -> dict[str, object]:
    """Return the row's largest number at this step, and its key."""
    row = _ranking(head, name)[at]
    j = int(np.argmax(row))
    assert head.scores is not None
    is_itself = trace.is_self and name in ("scores", "weights") and j == int(trace.rows[at])
    key = "itself" if is_itself else quoted(trace.key_tokens[j])
    allowed = row if trace.mask is None else row[trace.mask[at]]
    if name == "weights" and len(allowed) > 1 and float(np.ptp(allowed)) < 1e-12:
        key = "each word that it may look at"
    value = float(getattr(head, "weights" if name == "output" else name)[at][j])
    scaled = 0.0 if head.scaled_scores is None else float(head.scaled_scores[at][j])
    return {
        "key": key,
        "value": plain(value, 3) if name.endswith("scores") else share(value),
        "sum": plain(scaled + value, 3),
        "before": plain(float(head.scores[at][j]), 3),
        "why": _scaling_effect(trace),
    }


def _ranking(head: Head, name: str) -> Array:
    """Return the matrix by which a step's sentence picks the largest number of a row."""
    by_weight = name in ("output", "position_scores", "masked_scores")
    matrix: Array = getattr(head, "weights" if by_weight else "scores" if name == "scaled_scores" else name)
    return matrix


def _keeps_values(trace: Trace, head: Head) -> bool:
    """Return whether a learned head's W_v is the identity, so that its values are its input."""
    W = head.W_v
    is_square = W is not None and head.b_v is None and W.shape[0] == W.shape[1]
    return trace.learned is not None and W is not None and is_square and bool((np.eye(len(W)) == W).all())


def _values(trace: Trace, head: Head) -> str:
    """Return what a learned head's values are."""
    if trace.learned is None:
        return ""
    if _keeps_values(trace, head):
        return " W_v is the identity: each word passes on its own vector."
    if trace.learned.values == "words":
        return " W_v was fitted so that each word passes on its own word vector, as closely as possible."
    return " W_v was learned with the rest, so a value is not a word vector."


def _scaling_effect(trace: Trace) -> str:
    if trace.temperature != 1:
        return "a temperature below 1 sharpens the softmax, above 1 flattens it"
    if not score_named(trace.score).is_scaled or trace.scale == 1:
        return "nothing is divided: the scores go to the softmax as they are"
    return f"all are divided by the same {plain(1 / trace.scale)}: the order stays, the weights come closer together"


def _source(trace: Trace) -> str:
    about = trace.embedding
    if trace.focus[0] in trace.pad_queries and not trace.projection.layer:
        return "it is padding, which starts as zeros"
    if trace.learned is not None and trace.learned.layers > 1:
        below = "it comes out of the layers below"
        return (
            below if trace.projection.layer else "they are made of its word vector and what its spelling adds"
        )
    if about.source != "given" and trace.query_tokens[trace.focus[0]] in trace.unknown:
        if about.oov == "model":
            return f"{about.name} has no vector for it, and {trace.projection.name} starts from its spelling"
        stand_in = "random numbers stand in" if about.oov == "random" else "zeros stand in"
        return f"{about.name} has no vector for it, and {stand_in}"
    return {
        "word2vec": "they were learned from which words occur near each other",
        "random": f"drawn at random from seed {about.seed} and the word itself",
        "file": f"they come from {about.name}",
        "given": "they were given",
    }[about.source]


def _numbers(trace: Trace, head: Head, name: str) -> Iterator[Block]:
    """Yield one step's numbers; nothing if the trace lacks the step."""
    if name == "tokens":
        yield from _tokens(trace)
    elif name == "x_query":
        yield from _vectors(trace)
    elif name == "encodings_query":
        yield from _encodings(trace)
    elif name == "W_q":
        yield from _weights(trace, head)
    elif name in ("q", "k", "v"):
        yield from _projected(trace, head, name)
    elif name == "output":
        yield from _output(trace, head)
    elif getattr(head, name) is not None and not (name == "masked_scores" and trace.mask is None):
        yield _square(trace, head, getattr(head, name), name)


def _tokens(trace: Trace) -> Iterator[Block]:
    if trace.query_ids is None or trace.key_ids is None:
        return
    pairs = list(zip(trace.query_tokens, trace.query_ids, strict=True))
    if trace.apart:
        pairs += zip(trace.key_tokens, trace.key_ids, strict=True)
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
    yield _wide("P", _places(len(P), padding), P, trace.settings.round)
    yield _wide("X + P", trace.query_tokens, trace.x_query, trace.settings.round)


def _projected(trace: Trace, head: Head, name: str) -> Iterator[Block]:
    """Yield Q, K or V; one row of it where it only repeats X."""
    matrix = getattr(head, name)
    if matrix is None:
        return
    tokens = trace.query_tokens
    if _is_x(trace, head, name):
        i = trace.focus[0]
        more = f"{count(len(tokens) - 1, 'more row', 'more rows')}, as in X"
        columns = list(map(str, range(matrix.shape[1])))
        yield Matrix([tokens[i]], columns, matrix[i][np.newaxis], corner=name.upper(), fits=True, more=more)
        return
    digits = trace.settings.round if head.W_q is None else None  # Q, K and V are inputs only where given
    yield _wide(name.upper(), tokens if name == "q" else trace.key_tokens, matrix, digits)


def _output(trace: Trace, head: Head) -> Iterator[Block]:
    if head.output is None:
        return
    yield _wide("output", trace.query_tokens, head.output)
    if trace.output_words is None:
        return
    yield Say(
        "The words nearest to each output, with their cosines, among the commonest words and those of the text:"
    )
    rows = trace.listed[: 2 * MOST_ROWS]
    words = [[(word, share(cosine)) for word, cosine in trace.output_words[i]] for i in rows]
    yield Links(list(zip([trace.query_tokens[i] for i in rows], words, strict=True)))


def _is_x(trace: Trace, head: Head, name: str) -> bool:
    """Return whether Q, K or V only repeats X: with W the identity, or with W_v the identity of a learned head."""
    is_identity = trace.projection.source == "identity" and len(trace.head_names) == 1
    return trace.is_self and (is_identity or (name == "v" and _keeps_values(trace, head)))


def _places(n: int, padding: range) -> list[str]:
    """Name the places of n tokens; padding has none."""
    own = iter(range(n))
    return ["padding" if i in padding else f"place {next(own)}" for i in range(n)]


def _wide(name: str, rows: Sequence[str], matrix: Array, digits: int | None = None) -> Matrix:
    most = MOST_ROWS * 2 if matrix.shape[1] <= MOST_ROWS else MOST_ROWS
    more = f"{len(matrix) - most:,} more rows" if len(matrix) > most else ""
    columns = [str(c) for c in range(matrix.shape[1])]
    return Matrix(rows[:most], columns, matrix[:most], corner=name, fits=True, more=more, digits=digits)


def _weights(trace: Trace, head: Head) -> Iterator[Block]:
    """Yield W_q, W_k and W_v with their biases, leaving out those that are the identity."""
    names = ("q",) if trace.projection.source == "identity" else ("q", "k", "v")
    digits = trace.settings.round
    for name in names[:2] if _keeps_values(trace, head) else names:
        W, bias = getattr(head, f"W_{name}"), getattr(head, f"b_{name}")
        if W is None:
            continue
        most = len(W) if len(W) <= MOST_ROWS else FEW_ROWS
        more = f"{len(W) - most:,} more rows" if len(W) > most else ""
        numbers = [str(n) for n in range(max(W.shape))]
        columns = numbers[: W.shape[1]]
        yield Matrix(
            numbers[:most], columns, W[:most], corner=f"W_{name}", fits=True, more=more, digits=digits
        )
        if bias is not None:
            yield Matrix([f"b_{name}"], numbers[: len(bias)], bias[np.newaxis], fits=True, digits=digits)


def _square(trace: Trace, head: Head, matrix: Array, name: str) -> Matrix:
    """Return a step's matrix; of a condensed trace, with columns centred on the strongest key."""
    rows = [trace.query_tokens[int(i)] for i in trace.rows]
    columns, around, most = trace.key_tokens, None, 10 * MOST_ROWS
    values = matrix
    if trace.mask is not None and name in ("masked_scores", "weights"):
        values = np.where(trace.mask, matrix, np.nan)
    sums = [f"{s:.3f}" for s in matrix.sum(axis=1)] if name == "weights" else []
    if trace.condensed:
        around = int(np.argmax(_ranking(head, name)[trace.held(trace.focus[0])]))
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
