"""From a query and keys that are phrases to a Trace."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from attn_cli.errors import InputError, UsageError
from attn_cli.io.array_types import Array
from attn_cli.io.escape import visible
from attn_cli.io.progress import OnPart
from attn_cli.models.model_file import load_model, read_weights
from attn_cli.models.projection import Projection
from attn_cli.pipeline.embed import NOT_UTF8, embed_tokens
from attn_cli.pipeline.inputs import Inputs, Side, round_inputs
from attn_cli.pipeline.knock_out import check_no_knock_out
from attn_cli.pipeline.mask import wanted_mask
from attn_cli.pipeline.project import project_inputs
from attn_cli.pipeline.record import Attended
from attn_cli.settings.settings import Settings
from attn_cli.settings.validate import check_words, unused
from attn_cli.text.tokenize import tokenize
from attn_cli.trace.head import Head

VALUES_GIVEN = "The values are given: the projection makes queries and keys alone."


Values = Callable[[Sequence[str]], Array]  # of keys, V (n_k, d_v)


def attend_phrases(
    query: str, keys: Sequence[str], values: Values, settings: Settings, report: OnPart | None = None
) -> Attended:
    """Let a query look at keys, each a phrase; `values` makes those of the keys that are left.

    A phrase of several words is the mean of their vectors. The projection is the identity unless another is
    chosen; it makes queries and keys alone. Keys differ from each other.
    """
    idle = {"--pad": settings.pad is not None, "--positions": settings.positions not in (None, "none")}
    for option, is_set in idle.items():  # keys have no order, and no end to pad
        if is_set:
            raise UsageError(f"{option} does not apply to a dictionary.", f"Leave out {option}.", option)
    check_no_knock_out(settings, "a dictionary")
    settings = replace(settings, projection=settings.projection or "identity")
    if load_model(settings) is not None:
        said = f"{visible(str(settings.projection))} was learned for sentences; a dictionary's keys are none."
        raise UsageError(said, "Use -p identity, random, or a file of weights.", "--projection")
    weights = read_weights(settings)
    inputs = round_inputs(_embed_phrases(query, keys, settings, report), settings)
    notes = [NOT_UTF8] if any("\ufffd" in phrase for phrase in (query, *keys)) else []
    inputs = inputs._replace(notes=(*notes, *unused(settings), *inputs.notes))
    layer = project_inputs(inputs, settings, None, weights)
    more = () if settings.projection == "identity" else (VALUES_GIVEN,)
    V = values(inputs.key.tokens)
    # W is left out of the record: with a W_v it would claim values that these are not.
    heads = tuple(Head(head.name, q=head.q, k=head.k, v=V) for head in layer.heads)
    bare = Projection(layer.projection.about, ())
    layer = layer._replace(heads=heads, projection=bare, notes=(*layer.notes, *more), other_layout=None)
    return Attended("lookup", inputs, layer, settings, wanted_mask(settings, None, inputs), report=report)


def _embed_phrases(query: str, keys: Sequence[str], settings: Settings, report: OnPart | None) -> Inputs:
    """Look up a query and keys: each is the mean of its words' vectors; one whose words are all skipped is left out."""
    cut = {p: tokenize(p, settings.tokenizer, settings.keep_punctuation) for p in (query, *keys)}
    for phrase, found in cut.items():
        check_words(found.tokens, settings)
        if not found.tokens:
            said = f"There is no word in {visible(phrase)!r}, so it has no vector."
            raise InputError(said, "Type some words; --keep-punctuation makes tokens of punctuation marks.")
    flat = [word for key in keys for word in cut[key].tokens]
    inputs = embed_tokens(cut[query].tokens, flat, settings, None, report)
    skipped = set(inputs.unknown) if inputs.embedding.oov == "skip" else set()
    dropped = tuple(mark for phrase in (query, *keys) for mark in cut[phrase].dropped)
    query_side = _means({query: cut[query].tokens}, inputs.query, skipped)
    key = _means({key: cut[key].tokens for key in keys}, inputs.key, skipped)
    return inputs._replace(query=query_side, key=key, dropped=dropped)


def _means(phrases: Mapping[str, Sequence[str]], words: Side, skipped: set[str]) -> Side:
    """Return the phrases with the means of their words' vectors."""
    assert words.X is not None
    names, rows, start = [], [], 0
    for phrase, parts in phrases.items():
        stop = start + sum(word not in skipped for word in parts)
        if stop > start:
            names.append(phrase)
            with np.errstate(over="ignore"):  # infinity is refused where it would make a score
                rows.append(words.X[start:stop].mean(axis=0))
        start = stop
    return Side(tuple(names), np.array(rows))
