"""The values that fill in each step's formula and sentence."""

from __future__ import annotations

import numpy as np

from attn_cli.core.scores import GIVEN, score_named
from attn_cli.io.array_types import Array
from attn_cli.io.escape import count
from attn_cli.render.numbers import plain, share
from attn_cli.render.views import wording
from attn_cli.render.views.origins import projection
from attn_cli.render.views.wording import divisor, joined, quoted
from attn_cli.trace.head import Head
from attn_cli.trace.trace import Trace

NORMED = "Each query and key is normalized, then multiplied by learned norm weights."
OF_MODEL = "ids are those of the model's vocabulary"
ROTATED = "Queries and keys are then rotated by position; Q and K below are shown before that rotation."


def walk_facts(trace: Trace, head: Head) -> dict[str, object]:
    """Return the values for the formulas, the same at every step."""
    compare = score_named(trace.score).matrix
    summed = "scaled" if head.position_scores is None else "scaled + distance"
    unmasked, capped = summed, "scaled"
    if trace.softcap is not None:  # what was given for the distance is added to what the cap leaves
        is_after = head.position_scores is not None and head.rotated is None
        unmasked = "capped + distance" if is_after else "capped"
        capped = summed if head.rotated is not None else capped
    return {
        **{f"apply_{name}": _applied(trace, head, name) for name in "qkv"},
        "tokens": count(len(trace.query_tokens), "token", "tokens"),
        "distinct": len(set(trace.query_tokens)),
        "numbering": _numbering(trace),
        "d": 0 if trace.x_query is None else trace.x_query.shape[1],
        "compare": compare + ("" if trace.score == GIVEN else ", every query with every key"),
        "scaling": f"scores{divisor(trace)}",
        "projection": " ".join(_projection(trace, head)),
        "position": _position(trace, head),
        "capping": wording.cap_term(trace, f"({capped})" if "+" in capped else capped),
        "cap": plain((trace.softcap or 0.0) / trace.temperature, 3),
        "weights": "W_q, W_k" if keeps_values(trace, head) else "W_q, W_k, W_v",
        "unmasked": unmasked,
        "before": (before := unmasked if trace.mask is None else "masked"),
        "total": f"row sum of exp({before})"
        if head.sink is None
        else f"(row sum of exp({before}) + exp(sink))",
        "sunk": f" {takes}" if (takes := wording.sink_takes(trace, [head], trace.focus[0])) else "",
    }


def _numbering(trace: Trace) -> str:
    if trace.query_input_ids is not None:
        return OF_MODEL
    if trace.vocabulary is not None:
        return f"ids are their rows in the table of {trace.embedding.name}.{one_vector(trace)}".rstrip(".")
    return "ids number the distinct ones from 0"


def _applied(trace: Trace, head: Head, name: str) -> str:
    if head.W_q is None:
        return "given"
    if name == "v" and keeps_values(trace, head):
        return "X, for W_v is the identity"
    made = f"W_{name} x, for each row x of X" if trace.projection.layout == "out-in" else f"X W_{name}"
    made += f" + b_{name}" * (getattr(head, f"b_{name}") is not None)
    return made if head.qk_norm is None or name == "v" else f"norm({made})"


def _projection(trace: Trace, head: Head) -> list[str]:
    """Return where W_q, W_k and W_v come from, and what else makes queries, keys and values, in sentences."""
    found = [f"{projection(trace)}."]
    if keeps_values(trace, head):
        found.append("W_v is the identity: each word passes on its own vector.")
    elif trace.learned is not None and trace.learned.values == "words":
        own = "each word passes on its own word vector, as closely as possible"
        found.append(f"W_v was fitted so that {own}.")
    elif trace.learned is not None:
        found.append("W_v was learned with the rest, so a value is not a word vector.")
    found += [NORMED] * (head.qk_norm is not None)
    found.append(wording.shared_with(trace, head))
    found += [ROTATED] * (head.rotated is not None)
    return list(filter(None, found))


def _position(trace: Trace, head: Head) -> str:
    if head.rotated is not None:
        rotated = wording.rotated_term(trace, "scaled")
        return f"{rotated}, where q' and k' are q and k after rotation by position"
    if head.position_vectors is not None:
        return f"{wording.position_term(trace)}, with one r and one b for each distance"
    heat = wording.temperature_divisor(trace)
    return f"{wording.distance_of_model(head)[0]}{heat}" if trace.of_model else "as given"


def shown_ids(trace: Trace) -> tuple[tuple[object, ...], tuple[object, ...]] | None:
    """Return the ids of queries and keys: in the vocabulary of the model or the vectors, else by first appearance."""
    if trace.query_input_ids is not None and trace.key_input_ids is not None:
        return trace.query_input_ids, trace.key_input_ids
    if trace.vocabulary is not None:
        query, key = (
            [trace.vocabulary.get(token, "–") for token in side]
            for side in (trace.query_tokens, trace.key_tokens)
        )
        return tuple(query), tuple(key)
    has_ids = trace.query_ids is not None and trace.key_ids is not None
    return (trace.query_ids or (), trace.key_ids or ()) if has_ids else None


def one_vector(trace: Trace) -> str:
    """Return a sentence on tokens that are written differently and have one vector, as "The" and "the"."""
    forms: dict[int, list[str]] = {}
    for token, row in (trace.vocabulary or {}).items():
        forms.setdefault(row, []).append(quoted(token))
    alike = next((names for names in forms.values() if len(names) > 1), None)
    return "" if alike is None else f" {joined(alike)} have one id, so one vector."


def step_facts(trace: Trace, head: Head, name: str) -> dict[str, object]:
    """Return the values for one step's sentence, about the first row in focus."""
    i = trace.focus[0]
    at, query = trace.row_in_arrays(i), quoted(trace.query_tokens[i])
    x, placed = trace.x_query, trace.placed
    if name == "masked_scores":
        masking = "No mask: every query may look at every key."
        return {"masking": masking if trace.mask is None else wording.may_look_at(trace, i)}
    if name == "x_query" and x is not None:
        first = (x if placed is None else placed.words_query)[i, 0]
        return {"query": query, "first": plain(first, 3), "source": source(trace, i)}
    if name == "encodings_query" and placed is not None and x is not None:
        numbers = {"before": placed.words_query, "added": placed.encodings_query, "first": x}
        written = {part: plain(matrix[i, 0], 3) for part, matrix in numbers.items()}
        return {"query": query, "place": trace.place(i), **written}
    if name in ("q", "k", "v"):
        is_own = name == "q" or repeats_x(trace, head, name)
        j = i if is_own else int(np.argmax(head.weights[at]))
        first = ", ".join(plain(number, 3) for number in getattr(head, name)[j][:3].tolist())
        return {"query": query, "key": query if name == "q" else quoted(trace.key_tokens[j]), "first": first}
    if name.endswith("scores") or name in ("weights", "output"):
        return {"query": query, **_peak(trace, head, name, at)}
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
    matrix: Array = getattr(head, "scores" if name in ("scores", "scaled_scores") else "weights")
    return matrix


def keeps_values(trace: Trace, head: Head) -> bool:
    """Return whether a learned head's W_v is the identity, so that its values are its input."""
    W = head.W_v
    if trace.learned is None or W is None or head.b_v is not None:
        return False
    return W.shape[0] == W.shape[1] and bool((np.eye(len(W)) == W).all())


def repeats_x(trace: Trace, head: Head, name: str) -> bool:
    """Return whether Q, K or V only repeats X: with W the identity, or with W_v the identity of a learned head."""
    is_identity = trace.projection.source == "identity" and len(trace.head_names) == 1
    return trace.is_self and (is_identity or (name == "v" and keeps_values(trace, head)))


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
    about, layer, token = trace.embedding, trace.projection.layer, trace.query_tokens[i]
    below = "it comes out of the layers below"
    if trace.of_model:
        made = below if layer else f"it is made of {joined(trace.x_parts or ('its token',))}"
        made = "it comes out of the layer's self-attention" if trace.has_second_input else made
        return f"{made}, and went through the layer's norm" if trace.projection.x_is_normed else made
    if i in trace.pad_queries and not layer:
        return "it is padding, which starts as zeros"
    lacks, guessed = f"{about.name} has no vector for it", "guessed from the parts of its spelling"
    if trace.learned is not None and trace.learned.spelled:
        if layer:
            return below
        if token not in trace.unknown:
            return "they are its word vector plus what its spelling adds"
        if about.oov == "subword":
            return f"{lacks}: they are made of one that is {guessed}, and what its spelling adds"
    if about.source != "given" and token in trace.unknown:
        if about.oov == "model":
            return f"{lacks}, and {trace.projection.name} starts from its spelling"
        is_zero = trace.x_query is not None and not trace.x_query[i].any()
        stand_ins = {"random": "random numbers stand in", "subword": f"one is {guessed}"}
        stand_in = stand_ins.get("" if is_zero else str(about.oov), "zeros stand in")
        return f"{lacks}, and {stand_in}"
    return {
        "word2vec": "word2vec learned it from the words near it in much text",
        "random": f"drawn at random from seed {about.seed} and the word itself",
        "file": f"they come from {about.name}",
        "given": "they were given",
    }[about.source]
