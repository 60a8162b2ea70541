"""The values that fill in each step's formula and sentence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from attn_cli.core.scores import GIVEN, score_named
from attn_cli.io.escape import count
from attn_cli.render.numbers import plain, share
from attn_cli.render.views.origins import projection
from attn_cli.render.views.wording import (
    cap_term,
    may_look_at,
    position_term,
    quoted,
    root_divisor,
    rotated_term,
    shared_with,
    temperature_divisor,
)
from attn_cli.trace.head import Head
from attn_cli.trace.trace import Trace

if TYPE_CHECKING:
    from attn_cli.io.array_types import Array


def walk_facts(trace: Trace, head: Head) -> dict[str, object]:
    """Return the values for the formulas, the same at every step."""
    in_out = trace.projection.layout != "out-in"
    bias = {name: f" + {name}" if getattr(head, name) is not None else "" for name in ("b_q", "b_k", "b_v")}
    given = head.W_q is None
    summed = "scaled" if head.position_scores is None else "scaled + distance"
    unmasked, capped = summed, "scaled" if head.rotated is None else summed
    if trace.softcap is not None:
        unmasked = (
            "capped" if head.position_scores is None or head.rotated is not None else "capped + distance"
        )
    applied = {
        f"apply_{m}": "given"
        if given
        else "X, for W_v is the identity"
        if m == "v" and keeps_values(trace, head)
        else _normed((f"X W_{m}" if in_out else f"W_{m} x, for each row x of X") + bias[f"b_{m}"], head, m)
        for m in "qkv"
    }
    return {
        **applied,
        "tokens": count(len(trace.query_tokens), "token", "tokens"),
        "distinct": len(set(trace.query_tokens)),
        "numbering": "ids number the distinct ones from 0"
        if trace.query_input_ids is None
        else "ids are those of the model's vocabulary",
        "d": 0 if trace.x_query is None else trace.x_query.shape[1],
        "compare": score_named(trace.score).matrix
        + ("" if trace.score == GIVEN else ", every query with every key"),
        "scaling": f"scores{root_divisor(trace)}{temperature_divisor(trace)}",
        "projection": f"{projection(trace)}.{_values(trace, head)}{_of_model(trace, head)}",
        "position": _position(trace, head),
        "capping": cap_term(trace, f"({capped})" if "+" in capped else capped),
        "cap": plain((trace.softcap or 0.0) / trace.temperature, 3),
        "weights": "W_q, W_k" if keeps_values(trace, head) else "W_q, W_k, W_v",
        "unmasked": unmasked,
        "before": unmasked if trace.mask is None else "masked",
    }


def shown_ids(trace: Trace) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Return the ids of queries and keys: in the vocabulary of a pretrained model, else by first appearance."""
    if trace.query_input_ids is not None and trace.key_input_ids is not None:
        return trace.query_input_ids, trace.key_input_ids
    if trace.query_ids is None or trace.key_ids is None:
        return None
    return trace.query_ids, trace.key_ids


def _normed(made: str, head: Head, name: str) -> str:
    """Return a formula of queries or keys within the norm that they go through, where there is one."""
    return made if head.qk_norm is None or name == "v" else f"norm({made})"


def _of_model(trace: Trace, head: Head) -> str:
    """Return what else a pretrained model does to make queries, keys and values, in sentences."""
    sentences = []
    if head.qk_norm is not None:
        sentences.append(
            "Each query and key is RMS-normalized: divided by its root mean square, then multiplied by learned norm "
            "weights."
        )
    if shared := shared_with(trace, head):
        sentences.append(shared)
    if head.rotated is not None:
        sentences.append(
            "Queries and keys are then rotated by position; Q and K below are shown before that rotation."
        )
    return "".join(f" {sentence}" for sentence in sentences)


def _position(trace: Trace, head: Head) -> str:
    """Return how the distance term comes about."""
    if head.rotated is not None:
        return f"{rotated_term(trace, 'scaled')}, where q' and k' are q and k after rotation by position"
    if head.position_vectors is not None:
        return f"{position_term(trace)}, with one r and one b for each distance"
    return (
        f"one number for each range of distances{temperature_divisor(trace)}"
        if trace.of_model
        else "as given"
    )


def step_facts(trace: Trace, head: Head, name: str) -> dict[str, object]:
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
        return {"query": query, "first": plain(start[i, 0], 3), "source": source(trace, i)}
    if name == "encodings_query" and trace.placed is not None and trace.x_query is not None:
        words, encodings = trace.placed.words_query, trace.placed.encodings_query
        numbers = {"before": words, "added": encodings, "first": trace.x_query}
        written = {part: plain(matrix[i, 0], 3) for part, matrix in numbers.items()}
        return {"query": query, "place": trace.place(i), **written}
    if name in ("q", "k", "v"):
        is_own = name == "q" or repeats_x(trace, head, name)
        key = i if is_own else int(np.argmax(head.weights[trace.row_in_arrays(i)]))
        first = ", ".join(plain(x, 3) for x in getattr(head, name)[key][:3].tolist())
        return {
            "query": query,
            "key": query if name == "q" else quoted(trace.key_tokens[key]),
            "first": first,
        }
    if name in ("scores", "scaled_scores", "position_scores", "capped_scores", "weights", "output"):
        return {"query": query, **_peak(trace, head, name, trace.row_in_arrays(i))}
    return {}


def _peak(trace: Trace, head: Head, name: str, at: int) -> dict[str, object]:
    """Return the row's largest number at this step, and its key."""
    row = ranking(head, name)[at]
    j = int(np.argmax(row))
    assert head.scores is not None
    is_itself = trace.is_self and name in ("scores", "weights") and j == int(trace.rows[at])
    key = "itself" if is_itself else quoted(trace.key_tokens[j])
    allowed = row if trace.mask is None else row[trace.mask[at]]
    if name == "weights" and len(allowed) > 1 and float(np.ptp(allowed)) < 1e-12:
        key = "each word that it may look at"
    value = float(getattr(head, "weights" if name == "output" else name)[at][j])
    scaled = 0.0 if head.scaled_scores is None else float(head.scaled_scores[at][j])
    before = float(head.scores[at][j])
    if name == "capped_scores":
        added = None if head.rotated is None else head.position_scores
        before = scaled + (0.0 if added is None else float(added[at][j]))
    return {
        "key": key,
        "value": plain(value, 3) if name.endswith("scores") else share(value),
        "sum": plain(scaled + value, 3),
        "before": plain(before, 3),
        "why": _scaling_effect(trace),
    }


def ranking(head: Head, name: str) -> Array:
    """Return the matrix by which a step's sentence picks the largest number of a row."""
    by_weight = name in ("output", "position_scores", "capped_scores", "masked_scores")
    matrix: Array = getattr(head, "weights" if by_weight else "scores" if name == "scaled_scores" else name)
    return matrix


def keeps_values(trace: Trace, head: Head) -> bool:
    """Return whether a learned head's W_v is the identity, so that its values are its input."""
    W = head.W_v
    is_square = W is not None and head.b_v is None and W.shape[0] == W.shape[1]
    return trace.learned is not None and W is not None and is_square and bool((np.eye(len(W)) == W).all())


def _values(trace: Trace, head: Head) -> str:
    if trace.learned is None:
        return ""
    if keeps_values(trace, head):
        return " W_v is the identity: each word passes on its own vector."
    if trace.learned.values == "words":
        return " W_v was fitted so that each word passes on its own word vector, as closely as possible."
    return " W_v was learned with the rest, so a value is not a word vector."


def _scaling_effect(trace: Trace) -> str:
    if trace.temperature != 1:
        return "a temperature below 1 sharpens the softmax, above 1 flattens it"
    if trace.own_scale is not None:
        return f"all are multiplied by the same {plain(trace.own_scale)}: the order stays"
    if not score_named(trace.score).is_scaled or trace.scale == 1:
        return "nothing is divided: the scores go to the softmax as they are"
    return f"all are divided by the same {plain(1 / trace.scale)}: the order stays, the weights come closer together"


def source(trace: Trace, i: int) -> str:
    """Return where the vector of query i comes from, in words."""
    about = trace.embedding
    if trace.of_model:
        made = (
            "it comes out of the layers below"
            if trace.projection.layer
            else f"it is made of {_joined(trace.x_parts)}"
        )
        made = "it comes out of the layer's self-attention" if trace.has_second_input else made
        return f"{made}, and went through the layer's norm" if trace.projection.x_is_normed else made
    if i in trace.pad_queries and not trace.projection.layer:
        return "it is padding, which starts as zeros"
    if trace.learned is not None and trace.learned.layers > 1:
        if trace.projection.layer:
            return "it comes out of the layers below"
        if trace.query_tokens[i] not in trace.unknown:
            return "they are made of its word vector and what its spelling adds"
        if about.oov == "subword":
            return (
                f"{about.name} has no vector for it: they are made of one that is guessed from the parts of its "
                "spelling, and what its spelling adds"
            )
    if about.source != "given" and trace.query_tokens[i] in trace.unknown:
        if about.oov == "model":
            return f"{about.name} has no vector for it, and {trace.projection.name} starts from its spelling"
        stand_ins = {
            "random": "random numbers stand in",
            "subword": "one is guessed from the parts of its spelling",
        }
        is_zero = trace.x_query is not None and not trace.x_query[i].any()
        stand_in = "zeros stand in" if is_zero else stand_ins.get(str(about.oov), "zeros stand in")
        return f"{about.name} has no vector for it, and {stand_in}"
    return {
        "word2vec": "word2vec learned it from the words near it in much text",
        "random": f"drawn at random from seed {about.seed} and the word itself",
        "file": f"they come from {about.name}",
        "given": "they were given",
    }[about.source]


def _joined(parts: Sequence[str]) -> str:
    """Return `its token`, `its token and its place`, or all three."""
    *first, last = parts or ("its token",)
    return f"{', '.join(first)} and {last}" if first else last


def repeats_x(trace: Trace, head: Head, name: str) -> bool:
    """Return whether Q, K or V only repeats X: with W the identity, or with W_v the identity of a learned head."""
    is_identity = trace.projection.source == "identity" and len(trace.head_names) == 1
    return trace.is_self and (is_identity or (name == "v" and keeps_values(trace, head)))
