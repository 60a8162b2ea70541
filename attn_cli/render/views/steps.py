"""The whole matrix, step by step: each step's formula, shape, numbers, and one sentence of real values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np

from attn_cli.core.scores import GIVEN, score_named
from attn_cli.errors import count_more, shell_quote
from attn_cli.io.types import Array
from attn_cli.render import Block, Columns, Formula, Heading, Links, Matrix, Say, quoted, share, short
from attn_cli.render.views import step_sentences as facts_of, whys
from attn_cli.render.views.step_sentences import keeps_values, repeats_x
from attn_cli.render.views.wording import head_of_layer
from attn_cli.render.walk import STEPS
from attn_cli.trace import Head, Trace

MOST_ROWS, FEW_ROWS, MOST_COLUMNS = 12, 4, 120
MATRICES_GIVEN, WEIGHTS_GIVEN = "Q, K and V are given themselves.", "the weights were given without it."
# Why the trace lacks a step that was asked for.
_WHY_MISSING = {
    **dict.fromkeys(("x_query", "W_q"), MATRICES_GIVEN),
    **dict.fromkeys(("q", "k"), WEIGHTS_GIVEN),
    "tokens": "there is no text, only matrices.",
    "encodings_query": "nothing is added for a token's place; --positions sinusoidal adds an encoding.",
    "position_scores": "nothing is added to the scores for the distance of two words.",
    "capped_scores": "no score is capped.",
    "masked_scores": "there is no mask; --mask causal sets one.",
    "v": "no values were given.",
    "output": "no values were given, so there is nothing to mix.",
}


def walk(trace: Trace, only: Sequence[str] = (), each: bool = False) -> Iterator[Block]:
    """Yield each step of the trace with its numbers: all steps, or those in `only`.

    With `each`, a step of `only` that the trace lacks is named with the reason.
    """
    head, i = trace.stepped_head, trace.focus[0]
    others = [f"--head {shell_quote(name)}" for name in trace.head_names[::-1] if name != head.name][:1]
    others += ["--layer N"] * trace.has_layers
    if others:
        yield Say(f"The steps below are those of {head_of_layer(head)}; {' or '.join(others)} shows another.")
    facts, of = facts_of.walk_facts(trace, head), whys.walked(trace, i)
    sees_nothing = not head.weights[trace.row_in_arrays(i)].any()
    number = 0
    for step in STEPS if head.sink is None else (step.without_sum() for step in STEPS):
        name, is_wanted = step.name, not only or step.name in only
        blocks = list(_NUMBERS.get(name, partial(_square, name=name))(trace, head))
        number += bool(blocks)
        if not blocks and each and name in only:
            yield Say(f"{step.title}: {_WHY_MISSING[name]}")
        if not blocks or not is_wanted:
            continue
        yield Heading(f"{number}. {step.title}", 3)
        latex = step.latex if _matches_paper(trace, head, name) else ""
        yield Formula(step.formula.format(**facts) + _shape(trace, head, name), latex=latex)
        yield from blocks
        if name in ("weights", "output") and sees_nothing:
            yield Say(f"{quoted(trace.query_tokens[i])} may look at nothing: zeros.")
            continue
        sentence = step.alone if step.alone and len(trace.key_tokens) == 1 else step.sentence
        yield Say(sentence.format(**facts | facts_of.step_facts(trace, head, name)))
        if of is not None and (reason := whys.why(name, of)):
            yield Say(reason)


def _matches_paper(trace: Trace, head: Head, name: str) -> bool:
    score = score_named(trace.score)
    is_scaled = score.is_scaled and trace.temperature == 1 and trace.own_scale is None
    others = trace.mask, head.position_scores, trace.softcap, head.sink
    is_plain = all(part is None for part in others)
    return {
        "x_query": True,
        "W_q": trace.projection.layout != "out-in" and not keeps_values(trace, head),
        "scores": score.latex is not None,
        "scaled_scores": score.latex is not None and is_scaled,
        "weights": score.latex is not None and is_scaled and is_plain,
        "output": True,
    }.get(name, False)


def _shape(trace: Trace, head: Head, name: str) -> str:
    matrix = trace.x_query if name in ("x_query", "encodings_query") else getattr(head, name, None)
    if matrix is None:
        return ""
    rows, columns = matrix.shape if name != "masked_scores" else (len(trace.rows), len(trace.key_tokens))
    return f"   [{rows:,} × {columns:,}]"


# The numbers of each step; nothing where the trace lacks it


def _wide(name: str, rows: Sequence[str], matrix: Array, digits: int | None = None, most: int = 0) -> Matrix:
    most = most or (MOST_ROWS * 2 if matrix.shape[1] <= MOST_ROWS else MOST_ROWS)
    more = count_more(len(matrix) - most, "row") if len(matrix) > most else ""
    columns = [str(c) for c in range(matrix.shape[1])]
    return Matrix(rows[:most], columns, matrix[:most], corner=name, fits=True, more=more, digits=digits)


def _inputs(trace: Trace, head: Head, name: str) -> Iterator[Block]:
    """Yield the tokens with their ids, the words' vectors, or what is added to these for their places."""
    X, context, added, digits = trace.x_query, trace.x_key, trace.placed, trace.settings.round
    if name == "tokens" and (ids := facts_of.shown_ids(trace)) is not None:
        sides = [(trace.query_tokens, ids[0]), (trace.key_tokens, ids[1])][: 1 + trace.has_second_input]
        pairs = [[short(token), str(number)] for side in sides for token, number in zip(*side, strict=True)]
        more = [[f"{len(pairs) - 2 * MOST_ROWS:,} more", "…"]] * (len(pairs) > 2 * MOST_ROWS)
        yield Columns(["token", "id"], pairs[: 2 * MOST_ROWS] + more)
    elif name == "x_query" and X is not None and context is not None:
        yield _wide("X", trace.query_tokens, X if added is None else added.words_query, digits)
        if not trace.is_self:
            yield _wide("context", trace.key_tokens, context if added is None else added.words_key, digits)
    elif name == "encodings_query" and added is not None and X is not None:
        both = (added.encodings_query, trace.pad_queries), (added.encodings_key, trace.pad_keys)
        P, padding = max(both, key=lambda side: len(side[0]))
        own = iter(range(len(P)))
        places = ["padding" if i in padding else f"place {next(own)}" for i in range(len(P))]
        yield from (_wide("P", places, P, digits), _wide("X + P", trace.query_tokens, X, digits))


def _weights(trace: Trace, head: Head) -> Iterator[Block]:
    """Yield W_q, W_k and W_v with their biases, leaving out those that are the identity."""
    digits = trace.settings.round
    names = "q" if trace.projection.source == "identity" else "qk" if keeps_values(trace, head) else "qkv"
    for name in names:
        W, bias = getattr(head, f"W_{name}"), getattr(head, f"b_{name}")
        if W is not None:
            most = len(W) if len(W) <= MOST_ROWS else FEW_ROWS
            yield _wide(f"W_{name}", [str(n) for n in range(len(W))], W, digits, most)
        if W is not None and bias is not None:
            yield _wide("", [f"b_{name}"], bias[np.newaxis], digits)


def _projected(trace: Trace, head: Head, name: str) -> Iterator[Block]:
    """Yield Q, K or V; one row of it where it only repeats X."""
    matrix, tokens, i = getattr(head, name), trace.query_tokens, trace.focus[0]
    if matrix is None:
        return
    if len(tokens) > 1 and repeats_x(trace, head, name):
        more = f"{count_more(len(tokens) - 1, 'row')}, as in X"
        yield _wide(name.upper(), [tokens[i]], matrix[[i]])._replace(more=more)
        return
    digits = trace.settings.round if head.W_q is None else None  # Q, K and V are inputs only where given
    yield _wide(name.upper(), tokens if name == "q" else trace.key_tokens, matrix, digits)


def _square(trace: Trace, head: Head, name: str) -> Iterator[Block]:
    """Yield a matrix of queries and keys; of a condensed trace, with columns centred on the strongest key."""
    matrix = getattr(head, name)
    if matrix is None or (name == "masked_scores" and trace.mask is None):
        return
    places, columns, most = list(map(int, trace.rows)), trace.key_tokens, 10 * MOST_ROWS
    values, rows, around = matrix, [trace.query_tokens[i] for i in places], None
    if (mask := trace.mask_of(head)) is not None and name in ("masked_scores", "weights"):
        values = np.where(mask, matrix, np.nan)
    elif name in ("scores", "scaled_scores") and trace.score == GIVEN:
        values = np.where(np.isfinite(matrix), matrix, np.nan)  # masked ones, as they were given
    sums = [f"{total:.3f}" for total in matrix[:most].sum(axis=1)] if name == "weights" else []
    if trace.condensed:
        around = int(np.argmax(facts_of.ranking(head, name)[trace.row_in_arrays(trace.focus[0])]))
        rows = [f"{i} {token}" for i, token in zip(places, rows, strict=True)]
        columns = tuple(f"{j} {token}" for j, token in enumerate(columns))
    shown = Matrix(rows[:most], columns, values[:most], "query\\key", sums, name == "weights", shaded=True)
    more = count_more(len(rows) - most, "row") if len(rows) > most else ""
    numbers = None if trace.condensed else places[:most]
    yield shown._replace(fits=len(columns) > MOST_COLUMNS, row_numbers=numbers, around=around, more=more)


def _output(trace: Trace, head: Head) -> Iterator[Block]:
    if head.output is None:
        return
    yield _wide("output", trace.query_tokens, head.output)
    if trace.of_model and trace.x_query is not None and trace.W_o is None:
        yield Say("W_o, which joins the outputs of all heads, is too large to be kept: the walk ends here.")
    if (near := trace.output_words) is not None:
        cosines = "The words nearest to each output, with their cosines"
        yield Say(f"{cosines}, among the commonest words and those of the text:")
        rows = trace.listed[: 2 * MOST_ROWS]
        yield Links([(trace.query_tokens[i], [(word, share(by)) for word, by in near[i]]) for i in rows])


_NUMBERS: dict[str, Callable[[Trace, Head], Iterator[Block]]] = {
    **{name: partial(_inputs, name=name) for name in ("tokens", "x_query", "encodings_query")},
    "W_q": _weights,
    **{name: partial(_projected, name=name) for name in "qkv"},
    "output": _output,
}
