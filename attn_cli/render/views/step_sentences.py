"""The values that fill in each step's formula and sentence."""

from __future__ import annotations

import numpy as np

from attn_cli.core.scores import GIVEN, score_named
from attn_cli.errors import count
from attn_cli.io.types import Array
from attn_cli.render import joined, plain, quoted, share
from attn_cli.render.views import origins, wording
from attn_cli.trace import Head, Trace

NORMED = "Each query and key is normalized, then multiplied by learned norm weights."
ROTATED = "Queries and keys are then rotated by position; Q and K below are shown before that rotation."


def walk_facts(trace: Trace, head: Head) -> dict[str, object]:
    """Return the values for the formulas, the same at every step."""
    summed = "scaled" if head.position_scores is None else "scaled + distance"
    unmasked, capped = summed, "scaled"
    if trace.softcap is not None:  # what was given for the distance is added to what the cap leaves
        is_after = head.position_scores is not None and head.rotated is None
        unmasked = "capped + distance" if is_after else "capped"
        capped = f"({summed})" if head.rotated is not None and "+" in summed else capped
    before, numbering = unmasked if trace.mask is None else "masked", "ids number the distinct ones from 0"
    if trace.query_input_ids is not None:
        numbering = "ids are those of the model's vocabulary"
    elif trace.vocabulary is not None:
        numbering = f"ids are their rows in the table of {trace.embedding.name}.{one_vector(trace)}".rstrip(
            "."
        )
    total = f"row sum of exp({before})"
    return {
        **{f"apply_{name}": _applied(trace, head, name) for name in "qkv"},
        "tokens": count(len(trace.query_tokens), "token", "tokens"),
        "distinct": len(set(trace.query_tokens)),
        "numbering": numbering,
        "d": 0 if trace.x_query is None else trace.x_query.shape[1],
        "compare": score_named(trace.score).matrix + ", every query with every key" * (trace.score != GIVEN),
        "scaling": f"scores{wording.divisor(trace)}",
        "projection": " ".join(_projection(trace, head)),
        "position": _position(trace, head),
        "capping": wording.cap_term(trace, capped),
        "cap": plain((trace.softcap or 0.0) / trace.temperature, 3),
        "weights": "W_q, W_k" if keeps_values(trace, head) else "W_q, W_k, W_v",
        "unmasked": unmasked,
        "before": before,
        "total": total if head.sink is None else f"({total} + exp(sink))",
        "sunk": f" {wording.sink_takes(trace, [head], trace.focus[0])}".rstrip(),
    }


def _applied(trace: Trace, head: Head, name: str) -> str:
    if head.W_q is None:
        return "given"
    if name == "v" and keeps_values(trace, head):
        return "X, for W_v is the identity"
    made = f"W_{name} x, for each row x of X" if trace.projection.layout == "out-in" else f"X W_{name}"
    made += f" + b_{name}" * (getattr(head, f"b_{name}") is not None)
    return made if head.qk_norm is None or name == "v" else f"norm({made})"


def _projection(trace: Trace, head: Head) -> list[str]:
    values, learned = "", trace.learned
    if keeps_values(trace, head):
        values = "W_v is the identity: each word passes on its own vector."
    elif learned is not None and learned.values == "words":
        values = "W_v was fitted so that each word passes on its own word vector, as closely as possible."
    elif learned is not None:
        values = "W_v was learned with the rest, so a value is not a word vector."
    norm, rotation = NORMED * (head.qk_norm is not None), ROTATED * (head.rotated is not None)
    shared = wording.shared_with(trace, head)
    return [said for said in (f"{origins.projection(trace)}.", values, norm, shared, rotation) if said]


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
        sides = trace.query_tokens, trace.key_tokens
        query, key = (tuple(trace.vocabulary.get(token, "–") for token in side) for side in sides)
        return query, key
    return None if trace.query_ids is None or trace.key_ids is None else (trace.query_ids, trace.key_ids)


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
    x, placed, facts = trace.x_query, trace.placed, dict[str, object](query=query)
    if name == "masked_scores":
        masking = "No mask: every query may look at every key."
        facts["masking"] = masking if trace.mask is None else wording.may_look_at(trace, i)
    elif name == "x_query" and x is not None:
        first = (x if placed is None else placed.words_query)[i, 0]
        facts |= {"first": plain(first, 3), "source": source(trace, i)}
    elif name == "encodings_query" and placed is not None and x is not None:
        numbers = {"before": placed.words_query, "added": placed.encodings_query, "first": x}
        facts |= {part: plain(matrix[i, 0], 3) for part, matrix in numbers.items()}
        facts["place"] = trace.place(i)
    elif name in ("q", "k", "v"):
        j = i if name == "q" or repeats_x(trace, head, name) else int(np.argmax(head.weights[at]))
        first = ", ".join(plain(number, 3) for number in getattr(head, name)[j][:3].tolist())
        facts |= {"key": query if name == "q" else quoted(trace.key_tokens[j]), "first": first}
    elif name.endswith("scores") or name in ("weights", "output"):
        facts |= _peak(trace, head, name, at)
    return facts


def _peak(trace: Trace, head: Head, name: str, at: int) -> dict[str, object]:
    row = ranking(head, name)[at]
    j = int(np.argmax(row))
    key = quoted(trace.key_tokens[j])
    if trace.is_self and name in ("scores", "weights") and j == int(trace.rows[at]):
        key = "itself"
    allowed = row if trace.mask is None else row[trace.mask[at]]
    if name == "weights" and len(allowed) > 1 and float(np.ptp(allowed)) < 1e-12:
        key = "each word that it may look at"

    def number(of: str) -> float:
        return 0.0 if (matrix := getattr(head, of)) is None else float(matrix[at][j])

    value, before = number("weights" if name == "output" else name), number("scores")
    if name == "capped_scores":
        before = number("scaled_scores") + (0.0 if head.rotated is None else number("position_scores"))
    scale = "nothing is divided: the scores go to the softmax as they are"
    if trace.temperature != 1:
        scale = "a temperature below 1 sharpens the softmax, above 1 flattens it"
    elif trace.own_scale is not None:
        scale = f"all are multiplied by the same {plain(trace.own_scale)}: the order stays"
    elif score_named(trace.score).is_scaled and trace.scale != 1:
        by = plain(1 / trace.scale)
        scale = f"all are divided by the same {by}: the order stays, the weights come closer together"
    return {
        "key": key,
        "value": plain(value, 3) if name.endswith("scores") else share(value),
        "sum": plain(number("scaled_scores") + value, 3),
        "before": plain(before, 3),
        "why": scale,
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
    is_unknown, is_zero = token in trace.unknown, trace.x_query is not None and not trace.x_query[i].any()
    lacks, guessed = f"{about.name} has no vector for it", "guessed from the parts of its spelling"
    if trace.learned is not None and trace.learned.spelled:
        if layer:
            return below
        if not is_unknown:
            return "they are its word vector plus what its spelling adds"
        if about.oov == "subword":
            return f"{lacks}: they are made of one that is {guessed}, and what its spelling adds"
    if about.source != "given" and is_unknown:
        stand_ins = {"random": "random numbers stand in", "subword": f"one is {guessed}"}
        stand_in = "zeros stand in" if is_zero else stand_ins.get(str(about.oov), "zeros stand in")
        from_spelling = f"{trace.projection.name} starts from its spelling"
        return f"{lacks}, and {from_spelling if about.oov == 'model' else stand_in}"
    return {
        "word2vec": "word2vec learned it from the words near it in much text",
        "random": f"drawn at random from seed {about.seed} and the word itself",
        "file": f"they come from {about.name}",
        "given": "they were given",
    }[about.source]
