"""What an interactive page is made of: the trace of each layer, every head in it, and words to type with."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from attn_cli.inputs.saved_weights import Saved
from attn_cli.io.types import Array, NamedTuple, OnPart, replace
from attn_cli.models.encoder import EncoderStack
from attn_cli.pipeline import embed, wanted_layer
from attn_cli.pipeline.record import Attended, record
from attn_cli.pipeline.sources.text import layers_of_text, trace_text
from attn_cli.settings import ALL, MEAN, Settings, settings_for_masked, settings_of
from attn_cli.trace import Trace
from attn_cli.vectors import as_float64, as_text, lookup
from attn_cli.vectors.spelling import SpellingFeatures

if TYPE_CHECKING:
    from attn_cli.pipeline.generate import Step, Writer

IN_PAGES = ("zero", "model", "skip")  # what the page does with a word that has no vector


class Words(NamedTuple):
    """What a page needs to read another sentence: words, their vectors (words, d), and those of spellings."""

    words: Sequence[str]
    vectors: Array
    features: Sequence[str]
    starts: Array | None
    always: bool
    oov: str


class Page(NamedTuple):
    """What goes into a page: the traces of its layers, made one after the other, and what else was asked for."""

    layers: Iterable[Trace]
    n_layers: int = 1
    shown: int = 0  # the place of the layer that the page opens with
    about: Mapping[str, str] = MappingProxyType({})  # what each head was taught
    words: Words | None = None
    text: str | None = None  # as it was typed
    context: str | None = None
    writing: Mapping[str, object] = MappingProxyType({})  # the steps of a text that was written
    exact: Collection[str] = ()  # heads whose numbers are held in full, however many they are
    most_exact: int = 120_000  # numbers of heads that are held in full: 960 KB


def page_of(
    kind: str, text: str, context: str | None, settings: Settings, words: int, report: OnPart | None = None
) -> Page:
    """Return what a page of this text holds; with `words` commonest words of the vectors, if they can be typed."""
    settings = settings_of("cross", settings) if kind == "cross" else settings
    settings = replace(settings_for_masked(settings) if kind == "masked" else settings, every_head=True)
    settings = replace(settings, layer=None) if isinstance(settings.layer, str) else settings  # all are there
    every = replace(settings, layer=ALL)
    if settings.model is not None:
        layers = layers_of_text(kind, text, context, replace(every, next=0), report)
        return _of_layers(layers, settings)._replace(text=text, context=context)
    shared = embed.open_projection(embed.settings_for_positions(settings))
    stack = shared.stack
    about = {}
    if stack is not None:
        last = stack.layers - 1
        taught = {name: stack.learned(last, name).about for name in stack.head_names(last)}
        about = {name: text for name, text in taught.items() if text}
    if stack is None or stack.layers == 1:
        trace = trace_text(kind, text, context, settings, report, shared=shared)
        return Page([trace], 1, 0, about, _words(trace, settings, words, stack), text, context)
    page = _of_layers(layers_of_text(kind, text, context, every, report, shared), settings, stack.name)
    return page._replace(about=about, text=text, context=context)


def page_of_weights(saved: Saved, settings: Settings) -> Page:
    """Return the page of every layer of saved weights."""
    from attn_cli.pipeline.sources.weights import layers_of_weights, trace_weights  # only for ready weights

    settings = replace(settings, every_head=True)
    if settings.layer == MEAN:
        return Page([trace_weights(saved, settings)])
    layers = layers_of_weights(saved, replace(settings, layer=ALL))
    return _of_layers(layers, replace(settings, layer=None) if settings.layer == ALL else settings)


def page_of_writing(writer: Writer, steps: Sequence[Step], settings: Settings) -> Page:
    """Return the page of a text that a model wrote, and each token's step; the first is that of row `first`."""
    kind, layer, head = writer.shown
    # Of the last one's row nothing is written.
    ids = [step.told.id for step in steps[:-1] if step.told.id is not None]
    layers = writer.layers(ids, replace(settings, layer=ALL, head=None, every_head=True))
    told = [[(one.word, one.probability) for one in (step.told, *step.runners_up)] for step in steps]
    first = len(steps[0].key_tokens) - 1 if kind == "masked" else 0
    page = _of_layers(layers, replace(settings, layer=layer))
    return page._replace(writing={"first": first, "head": head, "steps": told})


def _of_layers(layers: Iterator[Attended], settings: Settings, name: str | None = None) -> Page:
    first = next(layers)
    shown = wanted_layer(settings, first.layers, name or str(first.inputs.embedding.name))
    return Page(map(record, chain((first,), layers)), first.layers, shown)


def why_not_typed(trace: Trace, settings: Settings) -> str:
    """Return the reason why no other sentence can be typed into the page; nothing where one can."""
    reasons = {
        "keys come from a second text": trace.has_second_input,
        "random vectors are drawn where attn is": settings.embedding == "random",
        "the tokens are characters": settings.tokenizer == "characters",
        "positions are added": settings.positions == "sinusoidal",
        "padding is added": bool(settings.pad),
        "numbers are rounded": settings.round is not None,
        f"--oov {trace.embedding.oov} needs all the vectors": trace.embedding.oov not in IN_PAGES,
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def _words(trace: Trace, settings: Settings, count: int, stack: EncoderStack | None) -> Words | None:
    """Return the commonest words, and those of the text itself; None where no other sentence can be typed."""
    if not count or why_not_typed(trace, settings):
        return None
    table = lookup.open_table("word2vec" if settings.embedding is None else settings.embedding)
    assert trace.embedding.oov is not None
    names, parts = list[str](), list[Array]()  # of the commonest
    for rows in table.rows():
        left = count - len(names)
        parts.append(as_float64(rows.matrix[:left]))
        names += map(as_text, rows.words[:left])
        if len(names) >= count:
            break
    own = {form: x for form, x in lookup.look_up_all(trace.query_tokens, table).values() if form not in names}
    vectors = np.concatenate([*parts, *(vector[np.newaxis] for vector in own.values())])
    spelling = SpellingFeatures({}, np.zeros((0, table.dim)), False) if stack is None else stack.spelling
    features = sorted(spelling.places, key=lambda name: spelling.places[name])
    return Words([*names, *own], vectors, features, spelling.vectors, spelling.always, trace.embedding.oov)
