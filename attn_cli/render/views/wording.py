"""Words of every screen: tokens in a sentence, titles, which head is meant, the terms of a score as formulas."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from attn_cli.core.scores import score_named
from attn_cli.errors import count
from attn_cli.render import joined, listed, plain, quoted_at, share
from attn_cli.trace import Head, Trace

KINDS = {"self": "self-attention", "masked": "self-attention", "cross": "cross-attention"}
MOST_CELLS = 20_000  # of a matrix that is drawn
FEW_KEYS = 36  # this many always fit in a row or a list
MOST_NAMED, FIRST_NAMED, LAST_NAMED = 12, 6, 4  # keys named in a sentence


def key_named(trace: Trace, i: int, j: int) -> str:
    """Return key j in quotation marks, or `itself` if it is query i's own, as the object of a sentence."""
    return "itself" if trace.is_self and i == j else quoted_at(trace.key_tokens, j)


def may_look_at(trace: Trace, i: int) -> str:
    """Return which keys the mask allows to query i, in a sentence."""
    query, keys = quoted_at(trace.query_tokens, i), trace.key_tokens
    allowed = [*range(len(keys))]
    if trace.mask is not None:
        allowed = np.flatnonzero(trace.mask[trace.row_in_arrays(i)]).tolist()
    if not allowed:
        return f"{query} may look at nothing."
    last = allowed[-LAST_NAMED:] if len(allowed) > MOST_NAMED else allowed[FIRST_NAMED:]
    first, end = ([quoted_at(keys, j) for j in some] for some in (allowed[:FIRST_NAMED], last))
    names = [*first, *["..."] * (len(allowed) > MOST_NAMED), *end]
    return f"{query} may look at {', '.join(names)} ({len(allowed):,} of {len(keys):,})."


def is_large(trace: Trace) -> bool:
    """Return whether the weights are shown as a map, and a row by a few of its strongest keys."""
    n_q, n_k = len(trace.query_tokens), len(trace.key_tokens)
    return trace.condensed or (n_q * n_k > MOST_CELLS and n_k > FEW_KEYS)


def size(trace: Trace) -> str:
    """Return how many queries and keys there are."""
    n_q, n_k = len(trace.query_tokens), len(trace.key_tokens)
    return f"{count(n_q, 'query (row)', 'queries (rows)')} x {count(n_k, 'key (column)', 'keys (columns)')}"


def title(trace: Trace) -> str:
    """Return the screen's title: the kind of attention, and its size."""
    return f"{kind_of(trace)}: {size(trace)}"


def kind_of(trace: Trace, masked: bool | None = None) -> str:
    """Return the kind of attention: `Masked self-attention`; by default as the trace is masked."""
    is_text = trace.kind == "show" and trace.is_self and trace.query_ids is not None
    kind = KINDS.get("self" if is_text else trace.kind, "attention")
    is_masked = trace.mask_name != "none" if masked is None else masked
    return f"Masked {kind}" if is_masked else kind.capitalize()


def no_arithmetic(trace: Trace) -> tuple[str, str]:
    """Return why weights without scores have no arithmetic, and where there is some."""
    settings, so = trace.settings, "so there is no arithmetic to show."
    if trace.kind == "show":
        why = f"These weights were given without queries, keys and scores, {so}"
        return why, "attn self ... -f json --steps holds them."
    if trace.drawn == "norm":
        return "Norms are made of the weights and have no scores of their own.", "Leave out --measure."
    made = {
        "--join-pieces": settings.join_pieces,
        "--hide-special": settings.hide_special,
        "--between": settings.between != "all",
        f"--head {settings.head}": settings.head in ("mean", "rollout"),
    }
    options = joined([option for option, is_set in made.items() if is_set])
    return f"These weights were made of others and have no scores of their own, {so}", f"Leave out {options}."


# The heads


def head_named(name: str) -> str:
    """Return `head "subject"`, or `head 3`."""
    return f"head {name}" if name.isdigit() else f'head "{name}"'


def head_of_layer(head: Head) -> str:
    """Return `head 3`, or `head 3 of layer 1` where there are several layers."""
    return head_named(head.name) + ("" if head.layer is None else f" of layer {head.layer}")


def of_layers(layers: int | None) -> str:
    """Return ` of 0 to 11`, where a layer is one of several."""
    return f" of 0 to {layers - 1}" if layers and layers > 1 else ""


def shown_part(trace: Trace) -> str:
    """Return which layer and head of a pretrained model a screen shows, in a sentence."""
    layer, n = trace.projection.layer, len(trace.head_names)
    where = f"Layers 0 to {layer}" if trace.has_layers else f"Layer {layer}{of_layers(trace.stack_layers)}"
    head = {"all": f"all {n} heads", "mean": f"the mean of {n} heads"}.get(trace.settings.head or "")
    head = head or f"{head_named(trace.shown.name)} of 0 to {n - 1}"
    return f"{where}, {head}, of {trace.embedding.name}; --layer and --head show others."


def shared_with(trace: Trace, head: Head) -> str:
    """Return a sentence on the heads that share this head's keys and values; empty if none does."""
    kv_heads, n = trace.projection.kv_heads, len(trace.head_names)
    if kv_heads is None or not (head.name.isascii() and head.name.isdigit()):
        return ""
    each = n // kv_heads
    own = int(head.name) // each
    others = [str(h) for h in range(own * each, (own + 1) * each) if str(h) != head.name]
    return (
        f"Head {head.name} shares W_k and W_v, so keys and values too, with "
        f"{'head' if len(others) == 1 else 'heads'} {listed(others)} "
        f"(grouped queries: key head {own} of 0 to {kv_heads - 1})."
    )


# The terms of a score


def formula(trace: Trace) -> str:
    """Return the formula of the weights, with this trace's own numbers in it."""
    if not trace.is_scored:
        return trace.derived
    head, scores = trace.heads[0], score_named(trace.score).symbol + root_divisor(trace)
    distance, heat = "" if head.position_scores is None else " + distance", temperature_divisor(trace)
    of_what = f"{scores}{heat}{distance}"
    if trace.softcap is not None:
        cap, after = plain(trace.softcap), f"{heat}{distance}"
        # What was given is added to what the cap leaves; a rotation comes before it.
        if head.rotated is not None:
            scores, after = f"({scores}{distance})", heat
        of_what = f"{cap} tanh({scores} / {cap}){after}"
    elif trace.temperature_scales_distance and heat:
        of_what = f"({scores}{distance}){heat}"
    mean = "the mean of the heads' " * (trace.shown.name == "mean" and len(trace.head_names) > 1)
    sink = "" if head.sink is None else "; sink"
    if trace.shown.sink is not None and len(trace.shown_heads) == 1:
        sink += f" {plain(trace.shown.sink)}{heat}"
    return f"weights = {mean}softmax({of_what}{sink})"


def sink_takes(trace: Trace, heads: Sequence[Head], row: int | None = None) -> str:
    """Return what a sink takes of a row, or of all that are listed, in a sentence; empty where there is none."""
    row = trace.focus[0] if row is None and trace.condensed else row  # of the others no sum is kept
    held = [trace.row_in_arrays(i) for i in (trace.listed if row is None else [row])]
    taken = [shares[held] for head in heads if (shares := trace.sink_shares(head)) is not None]
    if not taken:
        return ""
    ends = dict.fromkeys(share(float(end(taken))) for end in (np.min, np.max))
    whose = "The sink takes" if len(heads) == 1 else "The heads' sinks take"
    of = "each row" if row is None else f"the row of {quoted_at(trace.query_tokens, row)}"
    return f"{whose} {' to '.join(ends)} of {of}; the words share the rest."


def root_divisor(trace: Trace) -> str:
    """Return ` / √32` where the scores are scaled, ` × 0.3333` by what a model has in its place, else nothing."""
    if trace.own_scale is not None:
        return f" × {plain(trace.own_scale)}"
    return f" / √{d_k(trace)}" if score_named(trace.score).is_scaled else ""


def temperature_divisor(trace: Trace) -> str:
    """Return ` / 0.5`, the temperature as it was typed, where it is not 1."""
    return f" / {trace.temperature:.12g}" if trace.temperature != 1 else ""


def divisor(trace: Trace) -> str:
    """Return what scores are divided by, root and temperature; empty where by nothing."""
    return root_divisor(trace) + temperature_divisor(trace)


def position_term(trace: Trace, numerator: str = "q·r + b") -> str:
    """Return what a learned head adds for a distance: the numerator, divided as the scores are."""
    root = f" / √{d_k(trace)}" if score_named(trace.score).is_position_scaled else ""
    return f"({numerator}){root}{temperature_divisor(trace)}"


def distance_of_model(head: Head) -> tuple[str, str, str]:
    """Return what a model adds for distances, whether that is learned, and whose idea it is."""
    P = head.position_scores
    if head.slope is not None:
        steps = np.zeros(0) if P is None else np.diff(P[-1])
        rounded = "" if np.allclose(steps, steps[:1], rtol=2e-3, atol=0) else ", in bfloat16"
        told = f"a slope of its own, here {plain(-head.slope)}, times the places back{rounded}"
        return told, "fixed and not learned", "ALiBi, Press et al. 2022"
    if P is None or np.allclose(P[1:, 1:], P[:-1, :-1], rtol=1e-6, atol=1e-6):
        return "one number for each range of distances", "learned", "Raffel et al. 2020"
    told = "q times a key made of the distance, plus k times a query made of it"
    return told, "learned", "He et al. 2021, DeBERTa"


def rotated_term(trace: Trace, content: str = "content") -> str:
    """Return what rotation by position adds for a distance: the score of the rotated vectors less the content."""
    return f"{rotated_symbol(score_named(trace.score).symbol)}{divisor(trace)} - {content}"


def rotated_symbol(symbol: str) -> str:
    """Return a score's symbol for the queries and keys that are rotated by position: q'·k'."""
    return symbol.replace("q", "q'").replace("k", "k'")


def cap_term(trace: Trace, score: str) -> str:
    """Return what the soft cap makes of a score: `50 tanh(scaled / 50)`, the cap divided by the temperature."""
    cap = plain((trace.softcap or 0.0) / trace.temperature)
    return f"{cap} tanh({score} / {cap})"


def d_k(trace: Trace) -> int:
    """Return how many numbers a query has."""
    q = trace.heads[0].q
    return 0 if q is None else int(q.shape[1])
