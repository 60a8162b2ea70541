"""From a text to a Trace."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING

from attn_cli.errors import InputError, visible
from attn_cli.io.types import OnPart, part_of, replace
from attn_cli.models.encoder import EncoderStack
from attn_cli.pipeline import Inputs, check_no_knock_out, each_once, knock_out_notes, prepare_inputs, project
from attn_cli.pipeline.embed import NOT_UTF8, Shared, embed_tokens, open_projection, settings_for_positions
from attn_cli.pipeline.mask import wanted_mask
from attn_cli.pipeline.record import Attended, record_layers
from attn_cli.settings import (
    ALL,
    MOST_GUESSED,
    Settings,
    check_layered,
    check_length,
    check_measure,
    check_model,
    check_shaping,
    check_without_model,
    check_words,
    settings_for_masked,
    settings_of,
    unused,
    with_words_at_each,
)
from attn_cli.text.tokenize import Tokens, tokenize
from attn_cli.trace import LARGE, Trace
from attn_cli.vectors.spelling import forms

if TYPE_CHECKING:
    from attn_cli.models.checkpoints.open_model import OpenModel
    from attn_cli.pipeline.sources.checkpoint import Reading

# What to do about a text in another language: by itself, and beside a second text.
OTHER_VECTORS = (
    "Give vectors of its language with -e.",
    "Give vectors that are aligned across both languages with -e, such as fastText's.",
)
NAMED_WORDS = 3
COMMONEST = 10_000
MOST_NAMED = 200
READ_FIRST = 1 << 16  # characters
Text = str | Sequence[str]  # a text, or tokens that are already cut


def trace_self(
    text: Text, settings: Settings | None = None, report: OnPart | None = None, *, keep_weights: bool = False
) -> Trace:
    """Self-attention: queries, keys and values come from the same text, or list of tokens.

    With `keep_weights`, the steps of a pretrained model hold its X and W too, as those of attn's own heads do.

    >>> trace_self(["she", "likes", "coffee"], Settings(embedding="random"))
    <Trace self: 3 queries x 3 keys, head 0; she likes coffee>
    """
    return trace_text("self", text, None, settings or Settings(), report, keep_weights=keep_weights)


def trace_masked(
    text: Text, settings: Settings | None = None, report: OnPart | None = None, *, keep_weights: bool = False
) -> Trace:
    """Masked self-attention: causal (each word looks only back) unless the settings say otherwise.

    Without a projection it is the bundled language model's, which says the next words; a long text has that of roles.
    """
    given = settings or Settings()
    asked, notes = settings_of("masked", given), list[str]()
    # Roles may not have what these ask for: next words, a layer, a head.
    asks = given.next or given.next_at == ALL or given.layer is not None or given.head or given.knock_out
    if asked.projection != given.projection and not asks and _is_long(text, given):
        is_shown = f"A text of more than {MOST_GUESSED} tokens is shown with roles, which takes less time"
        notes.append(f"{is_shown}; -p {asked.projection} says its next words too.")
        asked = settings_for_masked(given)
    trace = trace_text("masked", text, None, asked, report, keep_weights=keep_weights)
    return replace(trace, notes=(*trace.notes, *notes)) if notes else trace


def _is_long(text: Text, settings: Settings) -> bool:
    """Tell whether a text has more than MOST_GUESSED tokens, by what stands first in a very long one."""
    if isinstance(text, str) and len(text) > MOST_GUESSED:
        text = tokenize(text[:READ_FIRST], settings.tokenizer, settings.keep_punctuation).tokens
    return len(text) > MOST_GUESSED


def trace_cross(
    text: Text,
    context: Text,
    settings: Settings | None = None,
    report: OnPart | None = None,
    *,
    keep_weights: bool = False,
) -> Trace:
    """Cross-attention: queries come from `text`, keys and values from `context`."""
    return trace_text("cross", text, context, settings or Settings(), report, keep_weights=keep_weights)


def trace_text(
    kind: str,
    text: Text,
    context: Text | None,
    settings: Settings,
    report: OnPart | None = None,
    name_outputs: bool = False,
    shared: Shared | None = None,
    keep_weights: bool = False,
) -> Trace:
    """Turn text into a Trace; keys and values come from `context`, or from the text itself if None.

    With `name_outputs`, the words nearest to each output are looked up where outputs are word vectors.
    With `keep_weights`, the trace of a pretrained model has the layer's matrices, as that of any other has.
    `shared` is what `embed.open_shared` opened, where many texts are read with the same settings.
    """
    settings = settings if settings.model is None else with_words_at_each(settings)
    settings = check_measure(settings)
    asked = kind, text, context, settings, report, shared, name_outputs, keep_weights
    with closing(layers_of_text(*asked)) as layers:
        return record_layers(layers, settings)


def layers_of_text(
    kind: str,
    text: Text,
    context: Text | None,
    settings: Settings,
    report: OnPart | None = None,
    shared: Shared | None = None,
    name_outputs: bool = False,
    keep_weights: bool = False,
) -> Generator[Attended, None, None]:
    """Yield the layer that is asked for, or each (--layer all), of a model on disk, or of vectors and a projection."""
    settings = check_measure(settings)
    if settings.model is not None:
        with _reading(kind, text, context, settings, shared and shared.model) as reading:
            yield from reading._replace(keep_weights=keep_weights).attended(settings, report)
        return
    if kind == "cross":
        settings = settings_of(kind, settings)
    before, settings = settings, settings_for_positions(settings)
    shared = shared or open_projection(settings)
    stack, notes = shared.stack, list[str]()
    is_language = stack is not None and stack.words is not None
    check_without_model(settings, is_language)
    if stack is not None and is_language:
        from attn_cli.pipeline.next_words import settings_for, with_next  # only a language model needs them

        settings = with_words_at_each(settings)
        settings, notes = settings_for(kind, settings, stack, context is not None)
        before = settings
    if stack is not None:
        settings = each_once(settings, stack)
    else:
        check_no_knock_out(settings, settings.projection or "this projection")
        if settings.layer == ALL:
            check_layered(settings)
    inputs = read_inputs(text, context, before, shared, report)
    inputs = inputs._replace(notes=(*inputs.notes, *notes, *knock_out_notes(settings)))
    each = range(stack.layers) if stack is not None and settings.layer == ALL else [settings.layer]

    def finish(trace: Trace) -> Trace:
        if name_outputs:
            trace = replace(trace, vocabulary=vocabulary(trace, inputs))
        if stack is not None and stack.words is not None:
            return with_next(trace, inputs, stack, report)
        return replace(trace, output_words=output_words(trace, inputs)) if name_outputs else trace

    for layer in each:
        one = _layer(kind, inputs, replace(settings, layer=layer), shared, report)
        yield one._replace(finish=finish) if layer == each[-1] else one


def _layer(kind: str, inputs: Inputs, settings: Settings, shared: Shared, report: OnPart | None) -> Attended:
    stack, mask = shared.stack, wanted_mask(settings, None, inputs)
    if stack is None:
        layer = project.project_inputs(inputs, settings, None, shared.weights)
        return Attended(kind, inputs, layer, settings, mask, report=report)
    is_long = len(inputs.query.tokens) * len(inputs.key.tokens) > LARGE
    inputs, layer = project.project_with_model(inputs, stack, settings, mask, report if is_long else None)
    below = layer.projection.about.layer or 0  # the layers whose work is done
    joining = partial(stack.joining, layer.projection, below, inputs.query.X)
    left = part_of(report, below, below + 1)
    return Attended(kind, inputs, layer, settings, mask, stack.layers, left, joining)


def output_words(trace: Trace, inputs: Inputs) -> tuple[tuple[tuple[str, float], ...], ...] | None:
    """Return the words nearest to each output, where values are word vectors: W_v leaves or restores them."""
    values = trace.learned.values if trace.learned else "learned"
    alone = trace.projection.source == "identity" and len(trace.head_names) == 1
    is_word = alone or values == "words"
    if inputs.table is None or trace.output is None or not is_word or len(trace.output) > MOST_NAMED:
        return None
    from attn_cli.vectors.lookup import nearest_each

    also = tuple(dict.fromkeys((*trace.query_tokens, *trace.key_tokens)))
    return tuple(map(tuple, nearest_each(inputs.table, trace.output, NAMED_WORDS, COMMONEST, also)))


def vocabulary(trace: Trace, inputs: Inputs) -> dict[str, int] | None:
    """Return the rows of the tokens in a table of word vectors that lies in memory, as they are looked up."""
    row_of = getattr(inputs.table, "row_of", None)
    if row_of is None or len(trace.query_tokens) > MOST_NAMED:
        return None
    tokens = dict.fromkeys((*trace.query_tokens, *trace.key_tokens))
    found = {token: [row for form in forms(token) if (row := row_of(form)) is not None] for token in tokens}
    return {token: rows[0] for token, rows in found.items() if rows}


@contextmanager
def _reading(
    kind: str, text: Text, context: Text | None, settings: Settings, opened: OpenModel | None
) -> Iterator[Reading]:
    """Let a model on disk read the text; nothing is computed once the reading is left."""
    # Only for a model on disk.
    from attn_cli.models.checkpoints.open_model import open_model
    from attn_cli.pipeline.sources import checkpoint, checkpoint_text

    assert settings.model is not None
    check_model(settings)
    check_shaping(settings)
    if not isinstance(text, str) or not isinstance(context, str | None):
        raise InputError("A model cuts its text itself.", "Give a text, not tokens.")
    with nullcontext(opened) if opened is not None else open_model(settings.model) as model:
        reading = checkpoint.read_texts(kind, text, context, settings, model)
        checkpoint_text.check_named(settings, reading.query, reading.key, model.encoder)
        with closing(reading.run):
            yield reading


def read_inputs(
    text: Text, context: Text | None, before: Settings, shared: Shared, report: OnPart | None = None
) -> Inputs:
    """Cut, look up and prepare both sides of attention; `before` are the settings as they were given."""
    settings, stack = settings_for_positions(before), shared.stack
    query = _tokens(text, "text", settings)
    key = None if context is None else _tokens(context, "context", settings)
    inputs = embed_tokens(query.tokens, key and key.tokens, settings, stack, report, shared.table)
    sides = (query,) if key is None else (query, key)
    is_odd = any("\ufffd" in token for found in sides for tokens in found for token in tokens)
    notes = [NOT_UTF8] if is_odd else []
    notes += _about_language(query, key, inputs, settings)
    notes += _about_positions(before, settings, stack) + unused(settings, learned=stack is not None)
    dropped = tuple(mark for found in sides for mark in found.dropped)
    inputs = inputs._replace(dropped=dropped, notes=(*notes, *inputs.notes))
    return prepare_inputs(inputs, settings, stack is None)


def _tokens(text: Text, side: str, settings: Settings) -> Tokens:
    """Return the tokens of a text, or those that were given; there is at least one."""
    if isinstance(text, str):
        size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
        check_length(size, settings)
        found = tokenize(text, settings.tokenizer, settings.keep_punctuation)
    else:
        found = Tokens(tuple(text), ())
        for place, token in enumerate(found.tokens):
            if not isinstance(token, str) or not token:
                said = f"Token {place} of the {side} is {token!r}."
                raise InputError(said, "Each token is a text of its own.")
    check_words(found.tokens, settings)
    if not found.tokens:
        more = "" if settings.keep_punctuation else "; --keep-punctuation makes tokens of punctuation marks"
        raise InputError(f"There is no token in the {side}: nothing to attend to.", f"Type some words{more}.")
    return found


def _about_language(query: Tokens, key: Tokens | None, inputs: Inputs, settings: Settings) -> list[str]:
    """Return the note on a text that is not English, where it meets the bundled vectors of English words."""
    strange = {*inputs.unknown, *inputs.replaced}
    if inputs.embedding.source != "word2vec" or settings.tokenizer == "characters" or not strange:
        return []
    from attn_cli.text.languages import foreign_words  # only for a text with unknown words

    sides = {"text": query} if key is None else {"text": query, "context": key}
    found = {name: foreign_words(side.tokens, strange, side.dropped)[:3] for name, side in sides.items()}
    names = [name for name, words in found.items() if words]
    if not names:
        return []
    whose = f"The {names[0]} seems" if len(names) == 1 else "Both texts seem"
    words = ", ".join(map(visible, dict.fromkeys(word for side in found.values() for word in side)))
    there = f"{inputs.embedding.name} holds vectors of English words: the weights mean little"
    return [f"{whose} not to be English ({words}), and {there}. {OTHER_VECTORS[key is not None]}"]


def _about_positions(before: Settings, settings: Settings, stack: EncoderStack | None) -> list[str]:
    if settings.positions != "sinusoidal":
        return []
    if settings.projection != before.projection:
        return ["The projection is identity here: roles, the default, has a position term of its own."]
    if stack is None:
        return []
    own = ": its heads have a position term of their own" * (stack.attention(0).heads[0].position is not None)
    return [f"{stack.name} was learned without positions added to its vectors{own}."]
