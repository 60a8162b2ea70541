"""The whole matrix, step by step: each step's formula, shape, numbers, and one sentence of real values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from attn_cli.core.scores import score_named
from attn_cli.io.plural import count
from attn_cli.render.blocks import Block, Columns, Formula, Heading, Links, Matrix, Say
from attn_cli.render.numbers import plain, share
from attn_cli.render.views.wording import d_k, projection, quoted, short, warmth
from attn_cli.trace.head import Head
from attn_cli.trace.steps import STEPS
from attn_cli.trace.trace import Trace

if TYPE_CHECKING:
    from attn_cli.io.array_types import Array

MOST_ROWS = 12
FEW_ROWS = 4
MOST_COLUMNS = 120


def walk(trace: Trace, only: Sequence[str] = (), each: bool = False) -> Iterator[Block]:
    """Yield every step that this trace has (of those in `only`, if it names any), each with its numbers.

    With `each`, a step of `only` that is not there is told to be missing, and why.
    """
    head = trace.heads[0] if trace.shown.scores is None else trace.shown
    if len(trace.head_names) > 1:
        other = next(name for name in reversed(trace.head_names) if name != head.name)
        yield Say(f"The steps below are those of head {head.name}; --head {other} walks through another.")
    facts = _facts(trace, head)
    number = 0
    for step in STEPS:
        blocks = list(_numbers(trace, head, step.name))
        if not blocks:
            if each and step.name in only:
                yield Say(f"{step.title}: {_LACKING[step.name]}")
            continue
        number += 1
        if only and step.name not in only:
            continue
        yield Heading(f"{number}. {step.title}", 3)
        paper = step.latex if _is_as_in_paper(trace, head, step.name) else ""
        yield Formula(step.formula.format(**facts) + _shape(trace, head, step.name), latex=paper)
        yield from blocks
        if step.name in ("weights", "output") and _is_shut(trace, head):
            yield Say(f"{quoted(trace.query_tokens[trace.focus[0]])} may look at nothing: zeros.")
            continue
        sentence = step.alone if step.alone and len(trace.key_tokens) == 1 else step.sentence
        yield Say(sentence.format(**facts | _step_facts(trace, head, step.name)))


# Why a step that was asked for is not there.
_LACKING = {
    "tokens": "there is no text, only matrices.",
    "x_query": "Q, K and V are given themselves.",
    "encodings_query": "nothing is added for a token's place; --positions sinusoidal adds an encoding.",
    "W_q": "Q, K and V are given themselves.",
    "position_scores": "nothing is added to the scores for the distance of two words.",
    "masked_scores": "there is no mask; --mask causal sets one.",
} | dict.fromkeys(("q", "k", "v", "scores", "scaled_scores", "output"), "the weights were given without it.")


def _is_shut(trace: Trace, head: Head) -> bool:
    """Tell whether the row that the sentences speak of is fully masked."""
    return not head.weights[trace.held(trace.focus[0])].any()


def _is_as_in_paper(trace: Trace, head: Head, name: str) -> bool:
    """Tell whether the paper's formula is right for this trace, and says more than the one in words."""
    score = score_named(trace.score)
    scaled = score.is_scaled and score.latex is not None and trace.temperature == 1
    return {
        "x_query": True,
        "W_q": trace.projection.layout != "out-in" and not (trace.learned and _passes_on(head)),
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
    score = score_named(trace.score)
    scaling = f"scores / √{d_k(trace)}" if score.is_scaled else "scores"
    if trace.temperature != 1:
        scaling += f" / {warmth(trace)}"
    applied = {
        f"apply_{m}": "given"
        if given
        else "X, for W_v is the identity"
        if m == "v" and trace.learned and _passes_on(head)
        else (f"X W_{m}" if in_out else f"W_{m} x, for each row x of X") + bias[f"b_{m}"]
        for m in "qkv"
    }
    return {
        **applied,
        "tokens": count(len(trace.query_tokens), "token", "tokens"),
        "distinct": len(set(trace.query_tokens)),
        "d": 0 if trace.x_query is None else trace.x_query.shape[1],
        "compare": f"{score.matrix}, every query with every key",
        "scaling": scaling,
        "projection": f"{projection(trace)}.{_values(trace, head)}",
        "position": _position(trace, head),
        "weights": "W_q, W_k" if trace.learned and _passes_on(head) else "W_q, W_k, W_v",
        "unmasked": (unmasked := "scaled" if head.position_scores is None else "scaled + position"),
        "before": unmasked if trace.mask is None else "masked",
    }


def _step_facts(trace: Trace, head: Head, name: str) -> dict[str, object]:
    i = trace.focus[0]
    at = trace.held(i)
    query = quoted(trace.query_tokens[i])
    facts: dict[str, object] = {"query": query, "masking": _masking(trace, i)}
    if name == "x_query" and trace.x_query is not None:
        start = trace.x_query if trace.placed is None else trace.placed.words_query
        facts |= {"first": plain(start[i, 0], 3), "source": _source(trace)}
    if name == "encodings_query" and trace.placed is not None and trace.x_query is not None:
        words, places = trace.placed.words_query[i, 0], trace.placed.encodings_query[i, 0]
        facts |= {"place": trace.place(i), "before": plain(words, 3), "added": plain(places, 3)}
        facts["first"] = plain(trace.x_query[i, 0], 3)
    if name in ("q", "k", "v"):
        matrix = getattr(head, name)
        shows_one = _is_x(trace) or (name == "v" and _passes_on_x(trace, head))
        key = i if name == "q" or shows_one else int(np.argmax(head.weights[at]))
        facts |= {
            "key": quoted(trace.key_tokens[key]) if name != "q" else query,
            "first": ", ".join(plain(x, 3) for x in matrix[key][:3].tolist()),
        }
    if name in ("scores", "scaled_scores", "position_scores", "weights", "output"):
        facts |= _peak(trace, head, name, at)
    return facts


def _peak(trace: Trace, head: Head, name: str, at: int) -> dict[str, object]:
    """Return the row's largest number at this step, and whose it is."""
    row = _told(head, name)[at]
    j = int(np.argmax(row))
    shown = getattr(head, name if name != "output" else "weights")[at]
    assert head.scores is not None
    itself = trace.is_self and name == "weights" and j == int(trace.rows[at])
    key = "itself" if itself else quoted(trace.key_tokens[j])
    allowed = row if trace.mask is None else row[trace.mask[at]]
    if name == "weights" and len(allowed) > 1 and float(np.ptp(allowed)) < 1e-12:
        key = "each word that it may look at"
    value = float(shown[j])
    beside = float(head.scaled_scores[at][j]) if head.scaled_scores is not None else 0.0
    return {
        "key": key,
        "value": plain(value, 3) if name.endswith("scores") else share(value),
        "sum": plain(beside + value, 3),
        "before": plain(float(head.scores[at][j]), 3),
        "why": _why(trace),
    }


def _told(head: Head, name: str) -> Array:
    """Return the matrix whose largest number in a row the sentence of this step is about."""
    by = "weights" if name in ("output", "position_scores", "masked_scores") else name
    matrix: Array = getattr(head, "scores" if name == "scaled_scores" else by)
    return matrix


def _passes_on(head: Head) -> bool:
    """Tell whether W_v is the identity: a value is what came in."""
    W = head.W_v
    return (
        W is not None and head.b_v is None and W.shape[0] == W.shape[1] and bool((np.eye(len(W)) == W).all())
    )


def _values(trace: Trace, head: Head) -> str:
    """Say what a learned head's values are."""
    if trace.learned is None:
        return ""
    if _passes_on(head):
        return " W_v is the identity: each word passes on its own vector."
    if trace.learned.values == "words":
        return " W_v was fitted so that each word passes on its own word vector, as closely as possible."
    return " W_v was learned with the rest, so a value is not a word vector."


def _position(trace: Trace, head: Head) -> str:
    if head.position_vectors is None:
        return "as given"
    divided = f" / √{d_k(trace)}" if score_named(trace.score).is_position_scaled else ""
    warm = f" / {warmth(trace)}" if trace.temperature != 1 else ""
    return f"(q·r + b){divided}{warm}, with one r and one b for each distance"


def _why(trace: Trace) -> str:
    """Say what the division does."""
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


def _masking(trace: Trace, i: int) -> str:
    if trace.mask is None:
        return "No mask: every query may look at every key."
    allowed = [quoted(trace.key_tokens[int(j)]) for j in np.flatnonzero(trace.mask[trace.held(i)])]
    query = quoted(trace.query_tokens[i])
    if not allowed:
        return f"{query} may look at nothing."
    shown = allowed if len(allowed) <= MOST_ROWS else [*allowed[:6], "...", *allowed[-4:]]
    return f"{query} may look at {' '.join(shown)} ({len(allowed)} of {len(trace.key_tokens)})."


def _numbers(trace: Trace, head: Head, name: str) -> Iterator[Block]:
    rows, keys = trace.query_tokens, trace.key_tokens
    if name == "tokens":
        if trace.query_ids is not None:
            yield _tokens(trace)
        return
    if name == "W_q":
        names = ("W_q",) if trace.projection.source == "identity" else ("W_q", "W_k", "W_v")
        told = names[:2] if trace.learned and _passes_on(head) else names
        yield from _weights(head, told, trace.settings.round)
        return
    if name == "x_query":
        if trace.x_query is not None and trace.x_key is not None:
            X, context = (
                (trace.x_query, trace.x_key)
                if trace.placed is None
                else (trace.placed.words_query, trace.placed.words_key)
            )
            yield _wide("X", rows, X, trace.settings.round)
            if not trace.is_self:
                yield _wide("context", keys, context, trace.settings.round)
        return
    if name == "encodings_query":
        if trace.placed is not None and trace.x_query is not None:
            sides = (
                (trace.placed.encodings_query, trace.pad_queries),
                (trace.placed.encodings_key, trace.pad_keys),
            )
            P, padding = max(sides, key=lambda side: len(side[0]))
            yield _wide("P", _places(len(P), padding), P, trace.settings.round)
            yield _wide("X + P", rows, trace.x_query, trace.settings.round)
        return
    matrix = getattr(head, name)
    given = trace.settings.round if head.W_q is None else None  # Q, K and V are inputs only where given
    if matrix is None or (name == "masked_scores" and trace.mask is None):
        return
    passed_on = name == "v" and _passes_on_x(trace, head)
    if name in ("q", "k", "v") and (_is_x(trace) or passed_on):
        i = trace.focus[0]
        more = f"{count(len(rows) - 1, 'more row', 'more rows')}, as in X"
        columns = [str(c) for c in range(matrix.shape[1])]
        yield Matrix([rows[i]], columns, matrix[i][np.newaxis], corner=name.upper(), fits=True, more=more)
        return
    if name in ("q", "k", "v", "output"):
        yield _wide(
            name.upper()[:1] if name != "output" else "output",
            rows if name in ("q", "output") else keys,
            matrix,
            given if name != "output" else None,
        )
        if name == "output" and trace.output_words is not None:
            yield Say(
                "The words nearest to each output, with their cosines, among the commonest words and those of the text:"
            )
            yield Links([(rows[i], _near(trace.output_words[i])) for i in trace.listed[: 2 * MOST_ROWS]])
        return
    yield _square(trace, head, matrix, name)


def _near(words: tuple[tuple[str, float], ...]) -> list[tuple[str, str]]:
    return [(word, share(cosine)) for word, cosine in words]


def _passes_on_x(trace: Trace, head: Head) -> bool:
    """Tell whether V only repeats X, as a learned head with the identity for W_v has it."""
    return trace.learned is not None and trace.is_self and _passes_on(head)


def _is_x(trace: Trace) -> bool:
    """Tell whether Q, K and V only repeat X."""
    return trace.projection.source == "identity" and len(trace.head_names) == 1 and trace.is_self


def _places(n: int, padding: range) -> list[str]:
    """Name the places of n tokens; padding has none."""
    own = iter(range(n))
    return ["padding" if i in padding else f"place {next(own)}" for i in range(n)]


def _tokens(trace: Trace) -> Columns:
    assert trace.query_ids is not None and trace.key_ids is not None
    pairs = list(zip(trace.query_tokens, trace.query_ids, strict=True))
    if trace.apart:
        pairs += zip(trace.key_tokens, trace.key_ids, strict=True)
    rows = [[short(token), str(number)] for token, number in pairs[: 2 * MOST_ROWS]]
    if len(pairs) > len(rows):
        rows.append([f"{len(pairs) - len(rows):,} more", "…"])
    return Columns(["token", "id"], rows)


def _wide(name: str, rows: Sequence[str], matrix: Array, digits: int | None = None) -> Matrix:
    most = MOST_ROWS * 2 if matrix.shape[1] <= MOST_ROWS else MOST_ROWS
    more = f"{len(matrix) - most:,} more rows" if len(matrix) > most else ""
    columns = [str(c) for c in range(matrix.shape[1])]
    return Matrix(rows[:most], columns, matrix[:most], corner=name, fits=True, more=more, digits=digits)


def _weights(head: Head, names: tuple[str, ...], digits: int | None) -> Iterator[Block]:
    for name in names:
        W = getattr(head, name)
        if W is None:
            continue
        most = len(W) if len(W) <= MOST_ROWS else FEW_ROWS
        more = f"{len(W) - most:,} more rows" if len(W) > most else ""
        numbers = [str(n) for n in range(max(W.shape))]
        columns = numbers[: W.shape[1]]
        yield Matrix(numbers[:most], columns, W[:most], corner=name, fits=True, more=more, digits=digits)
        bias = getattr(head, f"b{name[1:]}")
        if bias is not None:
            row = [f"b{name[1:]}"]
            yield Matrix(row, numbers[: len(bias)], bias[np.newaxis], fits=True, digits=digits)


def _square(trace: Trace, head: Head, matrix: Array, name: str) -> Matrix:
    """Return a step's rows and columns; of a condensed trace those round the strongest key, by their places."""
    rows = [trace.query_tokens[int(i)] for i in trace.rows]
    values = matrix
    if trace.mask is not None and name in ("masked_scores", "weights"):
        values = np.where(trace.mask, matrix, np.nan)
    most = 10 * MOST_ROWS
    sums = [f"{s:.3f}" for s in matrix.sum(axis=1)] if name == "weights" else []
    around = None
    columns = trace.key_tokens
    if trace.condensed:
        around = int(np.argmax(_told(head, name)[trace.held(trace.focus[0])]))
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
