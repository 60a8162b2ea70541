"""The one path: a text, given matrices, or ready weights become a Trace."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from attn_cli import masks
from attn_cli.checks import check, unused
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
from attn_cli.record import attended, output_words, recorded
from attn_cli.tokens import tokenize
from attn_cli.trace import LARGE, Embedding, Projected, Settings, Trace
from attn_cli.visible import visible
from attn_cli.work import ReadyWeights

if TYPE_CHECKING:
    from attn_cli.arrays import Array
    from attn_cli.fast import Report
    from attn_cli.matrices import Given
    from attn_cli.saved import Saved
    from attn_cli.shown import Shaping
    from attn_cli.stack import Stack

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
    trace = attended(kind, inputs, layer, settings, mask, report)
    trace = _with_other_layout(trace, inputs, layer, settings, mask, None)
    return replace(trace, output_words=output_words(trace, inputs)) if name_outputs else trace


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
    trace = attended(kind, inputs, layer, settings, mask, report)
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
        there = attended(trace.kind, inputs, turned, settings, mask, None)
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
    return attended(kind, inputs, layer, settings, mask, report)


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
    trace = recorded(kind, inputs, layer, settings, work, ("given", 1.0), None)
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
