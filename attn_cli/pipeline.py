"""The one path: a text, given matrices, or ready weights become a Trace."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from attn_cli import masks
from attn_cli.attention import Links
from attn_cli.checks import check, find_rows, unused
from attn_cli.errors import InputError, UsageError
from attn_cli.files import looks_like_file, regular
from attn_cli.heads import Layer, Ready, given_qkv, projected, stacked
from attn_cli.inputs import (
    Inputs,
    Opened,
    embedded,
    for_positions,
    given_x,
    padded,
    phrased,
    placed,
    rounded,
    wrong_pairing,
)
from attn_cli.learned import chosen
from attn_cli.tokens import tokenize
from attn_cli.trace import LARGE, Embedding, Head, Projected, Settings, Trace
from attn_cli.visible import visible
from attn_cli.work import ReadyWeights, Report, Work, mean_head

if TYPE_CHECKING:
    from attn_cli.arrays import Array
    from attn_cli.matrices import Given
    from attn_cli.saved import Saved
    from attn_cli.shown import Shaping
    from attn_cli.stack import Stack

LINKS = 5
NAMED_WORDS = 3
COMMONEST = 10_000
MOST_NAMED = 200
_ODD = "Bytes that are not UTF-8 were read as U+FFFD."


def trace_self(text: str, settings: Settings | None = None, report: Report | None = None) -> Trace:
    """Self-attention: queries, keys and values come from the same text.

    >>> trace_self("she likes coffee", Settings(embedding="random")).weights.shape
    (3, 3)
    """
    return trace_text("self", text, None, settings or Settings(), report)


def trace_masked(text: str, settings: Settings | None = None, report: Report | None = None) -> Trace:
    """Masked self-attention: causal (each word looks only back) unless the settings say otherwise."""
    settings = settings or Settings()
    return trace_text(
        "masked",
        text,
        None,
        replace(settings, mask="causal" if settings.mask is None else settings.mask),
        report,
    )


def trace_cross(
    text: str, context: str, settings: Settings | None = None, report: Report | None = None
) -> Trace:
    """Cross-attention: queries come from `text`, keys and values from `context`."""
    return trace_text("cross", text, context, settings or Settings(), report)


def trace_text(
    kind: str,
    text: str,
    context: str | None,
    settings: Settings,
    report: Report | None = None,
    name_outputs: bool = False,
    shared: Opened | None = None,
) -> Trace:
    """Turn text into a Trace; keys and values come from `context`, or from the text itself if None.

    With `name_outputs`, the words nearest to each output are looked up where outputs are word vectors.
    `shared` is what `inputs.opened` opened with these settings, where many texts are read; the numbers are the same.
    """
    check(settings)
    before, settings = settings, for_positions(settings)
    stack = chosen(settings) if shared is None else shared.stack
    query = tokenize(text, settings.tokenizer, settings.keep_punctuation)
    key = query if context is None else tokenize(context, settings.tokenizer, settings.keep_punctuation)
    for tokens, side in ((query.tokens, "text"), (key.tokens, "context")):
        if not tokens:
            raise InputError(
                f"There is no token in the {side}: nothing to attend to.",
                "Type some words; --keep-punctuation makes tokens of punctuation marks.",
            )
    table = None if shared is None else shared.table
    inputs = embedded(query.tokens, None if context is None else key.tokens, settings, stack, report, table)
    dropped = query.dropped if context is None else query.dropped + key.dropped
    odd = "\ufffd" in text or "\ufffd" in (context or "")
    notes = [_ODD] if odd else []
    notes += _about_positions(before, settings, stack) + unused(settings, learned=stack is not None)
    inputs = _ready(inputs._replace(dropped=dropped, notes=(*notes, *inputs.notes)), settings, stack is None)
    mask = _mask(settings, None, inputs)
    if stack is None:
        layer, more = projected(inputs, settings, None)
    else:
        is_long = len(inputs.query_tokens) * len(inputs.key_tokens) > LARGE
        inputs, layer, more = stacked(inputs, stack, settings, mask, report if is_long else None)
        report = _rest(report, layer.about.layer or 0)
    inputs = inputs._replace(notes=(*inputs.notes, *more))
    trace = _attended(kind, inputs, layer, settings, mask, report)
    trace = _with_other_layout(trace, inputs, layer, settings, mask, None)
    return replace(trace, output_words=_output_words(trace, inputs)) if name_outputs else trace


def trace_matrices(kind: str, given: Given, settings: Settings, report: Report | None = None) -> Trace:
    """Turn given matrices, Q, K, V or X with or without W, into a Trace."""
    check(settings)
    notes = [f"Ignored in {given.name}: {', '.join(given.ignored)}."] if given.ignored else []
    notes += unused(settings, words=False, has_x=given.get("Q") is None)
    if given.get("Q") is not None:
        settings = replace(settings, positions=None)
    settings = replace(
        settings,
        layout=settings.layout or given.layout,
        score=settings.score or given.score,
    )
    stack = None if settings.projection is None else chosen(settings)
    if stack is not None:
        raise wrong_pairing(stack, f"given by {given.name}")
    if given.get("Q") is not None:
        if settings.pad:
            raise UsageError(
                f"{given.name} gives Q, K and V themselves: there are no vectors to add padding to.",
                "Give X and W, or leave out --pad.",
                "--pad",
            )
        inputs, layer = given_qkv(given, settings)
    else:
        inputs = _ready(given_x(given), settings)
        layer, more = projected(inputs, settings, given)
        notes += more
    inputs = inputs._replace(notes=(*inputs.notes, *notes))
    mask = _mask(settings, given.mask, inputs, given.name)
    trace = _attended(kind, inputs, layer, settings, mask, report)
    return _with_other_layout(trace, inputs, layer, settings, mask, given)


def _with_other_layout(
    trace: Trace,
    inputs: Inputs,
    layer: Layer,
    settings: Settings,
    mask: masks.Mask | None,
    given: Given | None,
) -> Trace:
    """Add a note on what the other layout would change, where W fits in both and the file does not say which."""
    if not layer.is_square or trace.condensed:
        return trace
    used = layer.about.layout or "in-out"
    other = {"in-out": "out-in", "out-in": "in-out"}[used]
    try:
        turned, _ = projected(inputs, replace(settings, layout=other), given)
        there = _attended(trace.kind, inputs, turned, settings, mask, None)
    except InputError:  # W_o or a bias fits in one layout alone
        return trace
    how = {"in-out": "x W", "out-in": "W x"}
    told = f"W is square, so its shape cannot tell its layout: it was read as {used} ({how[used]})."
    change = np.abs(trace.weights - there.weights)
    i, j = (int(n) for n in np.unravel_index(int(change.argmax()), change.shape))
    if change[i, j] > 1e-9:
        here, instead = float(trace.weights[i, j]), float(there.weights[i, j])
        pair = f"{visible(trace.query_tokens[int(trace.rows[i])])} on {visible(trace.key_tokens[j])}"
        told += f" As {other} ({how[other]}), the weight of {pair} would be {instead:.3f}, not {here:.3f}."
    else:
        same = (
            trace.output is not None and there.output is not None and np.allclose(trace.output, there.output)
        )
        told += f" As {other} ({how[other]}), the weights would be the same"
        told += ", and the output too." if same else ", but the output would not."
    return replace(trace, notes=(*trace.notes, told))


def _about_positions(before: Settings, settings: Settings, stack: Stack | None) -> list[str]:
    """Return what is to be told of the projection that goes with positions."""
    if settings.positions != "sinusoidal":
        return []
    if settings.projection != before.projection:
        return ["The projection is identity here: roles, the default, has a position term of its own."]
    return [] if stack is None else [f"{stack.name} was learned without positions added to its vectors."]


def _ready(inputs: Inputs, settings: Settings, is_last: bool = True) -> Inputs:
    """Add positions and padding, and round, where that is asked for.

    Places are those of the text's own tokens: padding has none. A stack rounds its last layer's input itself.
    """
    if settings.positions == "sinusoidal":
        inputs = placed(inputs)
    if settings.pad:
        inputs = padded(inputs, settings.pad, settings.pad_side)
    return rounded(inputs, settings.round) if settings.round is not None and is_last else inputs


def trace_phrases(
    kind: str,
    query: str,
    keys: Sequence[str],
    values: Callable[[Sequence[str]], Array],
    settings: Settings,
    report: Report | None = None,
) -> Trace:
    """Turn a query and keys, each a phrase, into a Trace; `values` returns V (n_k, d_v) of the keys that are left.

    A phrase of several words is the mean of their vectors. The projection is the identity unless another is
    chosen; it makes queries and keys alone. Keys differ from each other.
    """
    check(settings)
    _check_phrases(settings)
    settings = replace(settings, projection=settings.projection or "identity")
    if chosen(settings) is not None:
        raise UsageError(
            f"{visible(str(settings.projection))} was learned for sentences; a dictionary's keys are none.",
            "Use -p identity, random, or a file of weights.",
            "--projection",
        )
    inputs = phrased(query, keys, settings, report)
    inputs = rounded(inputs, settings.round) if settings.round is not None else inputs
    odd = any("\ufffd" in phrase for phrase in (query, *keys))
    notes = [*([_ODD] if odd else []), *unused(settings)]
    layer, more = projected(inputs, settings, None)
    if settings.projection != "identity":
        more.append("The values are given: the projection makes queries and keys alone.")
    inputs = inputs._replace(notes=(*notes, *inputs.notes, *more))
    V = values(inputs.key_tokens)
    # W is left out of the record: with a W_v it would claim values that these are not.
    heads = tuple(Ready(head.name, None, head.q, head.k, V) for head in layer.heads)
    layer = layer._replace(heads=heads, projection=None)
    mask = _mask(settings, None, inputs)
    return _attended(kind, inputs, layer, settings, mask, report)


def _check_phrases(settings: Settings) -> None:
    """Refuse what makes no sense without a text: a dictionary's keys have no order, and no end to pad."""
    idle = {
        "--pad": settings.pad is not None,
        "--positions": settings.positions not in (None, "none"),
    }
    for option, is_set in idle.items():
        if is_set:
            raise UsageError(f"{option} does not go with a dictionary.", f"Leave out {option}.", option)


def trace_weights(kind: str, saved: Saved, settings: Settings, shaping: Shaping | None = None) -> Trace:
    """Turn ready weights into a Trace: nothing is computed anew, and only attn's own JSON brings steps along.

    `shaping` says what becomes of word pieces and special tokens.
    """
    # Only who has ready weights needs these.
    from attn_cli.retold import retold
    from attn_cli.shown import shown

    check(settings)
    settings = replace(settings, head=settings.head or saved.head)
    n_q, n_k = saved.weights.shape[-2:]
    mask = _stated(settings, saved.mask, n_q, n_k, saved.name)
    if mask is not None and mask.array is not None and settings.mask is None:
        mask = mask._replace(name=saved.mask_name or "as given")
    is_stated = settings.mask is not None or saved.mask is not None
    found = shown(saved, settings, mask, is_stated, shaping)
    notes = (*saved.notes, *found.notes, *unused(settings, words=False, learned=True))
    about = Embedding("given", saved.name, None, None, None)
    inputs = Inputs(
        found.query_tokens,
        found.key_tokens,
        saved.has_text,
        None,
        None,
        about,
        *saved.looked_up,
        notes=notes,
        apart=(saved.record or {}).get("kind") == "cross",
    )
    layer = Layer(Projected("given", saved.name, None, None, found.layer), found.head_names, found.head, ())
    work = ReadyWeights(found.kept, found.weights, found.mask)
    trace = _recorded(kind, inputs, layer, settings, work, ("given", 1.0), None)
    return trace if saved.record is None or found.is_shaped else retold(trace, saved.record)


def _rest(report: Report | None, below: int) -> Report | None:
    """Return a report of the last layer's work that goes on where that of the layers below ended."""
    return None if report is None else lambda done: report((below + done) / (below + 1))


def _mask(settings: Settings, given: object, inputs: Inputs, name: str = "") -> masks.Mask | None:
    """Return the mask that is wanted, joined with padding; a stated one states the text's own tokens."""
    n_q, n_k = len(inputs.query_tokens), len(inputs.key_tokens)
    own_queries, own_keys = inputs.own_queries, inputs.own_keys
    mask = _stated(settings, given, len(own_queries), len(own_keys), name)
    if not inputs.pad_keys:
        return mask
    if mask is not None:
        by_rule = mask.array is None
        mask = (
            mask._replace(n_q=n_q, n_k=n_k)
            if by_rule
            else masks.widened(mask, n_q, n_k, own_queries, own_keys)
        )
    return masks.with_padding(mask, n_q, n_k, inputs.pad_keys)


def _stated(settings: Settings, given: object, n_q: int, n_k: int, name: str) -> masks.Mask | None:
    """Return the mask of the settings, by name or from a file, else the one that `name` gives."""
    wanted = settings.mask
    if wanted is None and given is not None:
        if not isinstance(given, str):
            return masks.from_array(name, given, "allowed", n_q, n_k)
        try:
            return masks.named(given, n_q, n_k)
        except UsageError as error:
            raise InputError(f"{name}: {error.message}", error.hint) from None
    if wanted is None or not looks_like_file(wanted):
        return masks.named("none" if wanted is None else wanted, n_q, n_k)
    regular(wanted)
    if settings.mask_true is None:
        raise UsageError(
            "A mask file needs --mask-true allowed or --mask-true blocked: what does True mean in it?",
            "True is 'may attend' in torch's scaled_dot_product_attention and in Keras, "
            "'blocked' in torch's MultiheadAttention.",
            option="--mask-true",
        )
    from attn_cli.matrices import read_mask  # only those who give a file need it

    return masks.from_array(visible(wanted), read_mask(wanted), settings.mask_true, n_q, n_k)


def _check_bias(bias: Array | None, n_q: int, n_k: int) -> None:
    if bias is not None and bias.shape != (n_q, n_k):
        raise InputError(
            f"position_scores has shape {bias.shape}, but there are {n_q} queries and {n_k} keys."
        )


def _attended(
    kind: str,
    inputs: Inputs,
    layer: Layer,
    settings: Settings,
    mask: masks.Mask | None,
    report: Report | None,
) -> Trace:
    """Attend with the layer's heads, and keep the record."""
    n_q, n_k = len(inputs.query_tokens), len(inputs.key_tokens)
    _check_bias(layer.heads[0].bias, n_q, n_k)
    score = settings.score or "scaled"
    root = float(1 / np.sqrt(layer.heads[0].q.shape[1]))
    scale = root if score == "scaled" else 1.0
    # A learned position term goes with the dot product: it is divided as that is, and as trained beside cosines.
    beside = root if score == "cosine" else scale
    work = Work(layer.heads, mask, scale / settings.temperature, score, beside / settings.temperature)
    return _recorded(kind, inputs, layer, settings, work, (score, scale), report)


def _recorded(
    kind: str,
    inputs: Inputs,
    layer: Layer,
    settings: Settings,
    work: Work | ReadyWeights,
    scored: tuple[str, float],
    report: Report | None,
) -> Trace:
    """Let the heads work, by blocks of rows where the matrix is large, and keep the record."""
    n_q, n_k = len(inputs.query_tokens), len(inputs.key_tokens)
    score, scale = scored
    shown = layer.shown
    asked = () if settings.query is None else find_rows(settings.query, inputs.query_tokens)
    wanted = max(LINKS, settings.top or 0)
    rows, focus, swept, notes = np.arange(n_q), asked, {}, list(inputs.notes)
    if condensed := n_q * n_k > LARGE and not settings.full:
        swept = work.sweep(n_q, wanted, shown == "mean", report)
        focus = asked or (_telling(swept[shown].links, inputs),)
        focus = focus[: max(1, LARGE // n_k)]
        rows = np.array(focus, dtype=np.intp)
        notes += _condensed_notes(n_q, n_k, len(asked), len(focus), work.mask)
    heads = work.records(rows, wanted, swept)
    allowed = work.allowed(rows)
    mean = mean_head(heads, wanted, swept.get("mean"), allowed) if shown == "mean" else None
    top = mean or next(head for head in heads if head.name == shown)
    if not focus and layer.turns_on is not None:
        focus = (layer.turns_on,)
    focus = focus or (_telling(Links(top.top_keys, top.top_weights), inputs),)
    notes += _row_notes(top, inputs, n_k if heads[0].scores is not None else 0)
    outputs = [head.output for head in heads if head.output is not None]
    ids = _ids(inputs.query_tokens, inputs.key_tokens)
    return Trace(
        kind=kind,
        settings=settings,
        query_tokens=inputs.query_tokens,
        key_tokens=inputs.key_tokens,
        query_ids=ids[:n_q] if inputs.has_text else None,
        key_ids=ids[n_q:] if inputs.has_text else None,
        unknown=inputs.unknown,
        replaced=dict(inputs.replaced),
        dropped=inputs.dropped,
        embedding=inputs.embedding,
        x_query=inputs.x_query,
        x_key=inputs.x_key,
        positions=settings.positions or "none",
        placed=inputs.placed,
        projection=layer.about,
        score=score,
        scale=scale,
        temperature=float(settings.temperature),
        mask_name="none" if work.mask is None else work.mask.told,
        mask=allowed,
        rows=rows,
        focus=focus,
        head_names=layer.names,
        heads=tuple(heads),
        shown=top,
        learned=layer.learned,
        W_o=layer.projection.W_o if layer.projection else None,
        b_o=layer.projection.b_o if layer.projection else None,
        layer_output=layer.projection.joined(outputs) if layer.projection else None,
        output_words=None,
        condensed=condensed,
        notes=tuple(dict.fromkeys(notes)),
        apart=inputs.apart,
        pad_queries=inputs.pad_queries,
        pad_keys=inputs.pad_keys,
    )


def _output_words(trace: Trace, inputs: Inputs) -> tuple[tuple[tuple[str, float], ...], ...] | None:
    """Return the words nearest to each output, where values are word vectors: W_v leaves or restores them."""
    values = trace.learned.values if trace.learned else "learned"
    alone = trace.projection.source == "identity" and len(trace.head_names) == 1
    if inputs.table is None or trace.output is None or not (alone or values == "words"):
        return None
    if len(trace.output) > MOST_NAMED:
        return None
    from attn_cli.vectors.nearest import nearest_each

    also = dict.fromkeys((*trace.query_tokens, *trace.key_tokens))
    return tuple(
        tuple(found)
        for found in nearest_each(inputs.table, trace.output, NAMED_WORDS, COMMONEST, tuple(also))
    )


def _ids(query: tuple[str, ...], key: tuple[str, ...]) -> tuple[int, ...]:
    numbers = {token: n for n, token in enumerate(dict.fromkeys((*query, *key)))}
    return tuple(numbers[token] for token in (*query, *key))


def _telling(links: Links, inputs: Inputs) -> int:
    """Return the query whose link to a differently written word is the strongest of all.

    Words without a vector do not count: zeros score alike with everything.
    """
    best, telling = -1.0, 0
    unknown = set(inputs.unknown)
    for i, token in enumerate(inputs.query_tokens):
        if token in unknown or i in inputs.pad_queries:
            continue
        for j, weight in zip(links.keys[i], links.weights[i], strict=True):
            key = inputs.key_tokens[j] if j >= 0 else token
            if key.casefold() != token.casefold() and key not in unknown:
                if weight > best:
                    best, telling = float(weight), i
                break
    return telling


def _condensed_notes(n_q: int, n_k: int, asked: int, kept: int, mask: masks.Mask | None) -> list[str]:
    notes = [f"{n_q:,} x {n_k:,} weights: only each row's strongest links are kept (--full insists)."]
    if asked > kept:
        notes.append(f"{asked:,} rows were asked for: the first {kept:,} are kept.")
    if mask is not None:
        notes.append(f"The mask is {mask.told}.")
    return notes


def _row_notes(head: Head, inputs: Inputs, n_k: int) -> list[str]:
    notes = []
    shut = np.flatnonzero(head.top_keys[:, 0] < 0)
    if len(shut):
        names = ", ".join(f"{visible(inputs.query_tokens[i])} ({i})" for i in shut[:5])
        more = f" and {len(shut) - 5} more" if len(shut) > 5 else ""
        notes.append(f"A fully masked row: {names}{more} may look at nothing, so its weights are zeros.")
    if n_k == 1:
        notes.append("One key: its weight is 1 whatever the numbers are.")
    return notes
