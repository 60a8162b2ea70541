"""Both sides of attention before projection: tokens and their vectors, from text, phrases or given matrices."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from attn_cli.errors import InputError, UsageError, count, refuse, refuse_input, visible
from attn_cli.io.types import Array, NamedTuple, OnPart, no_report, replace
from attn_cli.models import model_file, projection
from attn_cli.models.encoder import EncoderStack
from attn_cli.pipeline import Inputs, Side, check_no_knock_out, mask, project, record, round_inputs
from attn_cli.settings import LIKENESS, Settings, check_words, unused
from attn_cli.text.tokenize import tokenize
from attn_cli.trace import Embedding, Head
from attn_cli.vectors import Vectors, lookup

if TYPE_CHECKING:
    from attn_cli.inputs.matrices import Given
    from attn_cli.models.checkpoints.open_model import OpenModel

RANDOM_DIM = 4
SHOWN = 8  # words in a note
NOT_UTF8 = "Bytes that are not UTF-8 were read as U+FFFD."
VALUES_GIVEN = "The values are given: the projection makes queries and keys alone."
Values = Callable[[Sequence[str]], Array]  # of keys, V (n_k, d_v)


class Shared(NamedTuple):
    """What many texts share, None where there is none: a learned model, word vectors, a file's weights, or a model."""

    stack: EncoderStack | None = None
    table: Vectors | None = None
    weights: Given | None = None
    model: OpenModel | None = None  # in place of all the others


def open_shared(settings: Settings) -> Shared:
    """Open the model and the word vectors that these settings name, and check that they fit, once for many texts."""
    settings = settings_for_positions(settings)
    shared = open_projection(settings)
    is_random = settings.embedding == "random"
    return shared if is_random else shared._replace(table=_table(settings, shared.stack))


def open_projection(settings: Settings) -> Shared:
    """Open the model, or the file of weights, that these settings name."""
    stack = model_file.load_model(settings)
    return Shared(stack, None, None if stack is not None else model_file.read_weights(settings))


def settings_for_positions(settings: Settings) -> Settings:
    """Return the settings with the projection that goes with positions where none was chosen: no learned one."""
    by_default = settings.projection is None and settings.embedding in (None, "word2vec")
    if settings.positions == "sinusoidal" and by_default:
        return replace(settings, projection="identity")
    return settings


def _table(settings: Settings, stack: EncoderStack | None) -> Vectors:
    table = lookup.open_table("word2vec" if settings.embedding is None else settings.embedding, "random, ")
    if stack is not None:
        check_pairing(stack, table)
    if settings.oov == "subword":
        from attn_cli.vectors.spelling import check_has_ngrams

        check_has_ngrams(table)
    return table


def usual_oov(settings: Settings, stack: EncoderStack | None) -> str:
    """Return what becomes of a token without a vector where nobody says it."""
    return "model" if stack is not None else "subword" if settings.projection == LIKENESS else "zero"


def embed_tokens(
    tokens: Sequence[str],
    context: Sequence[str] | None,
    settings: Settings,
    stack: EncoderStack | None,
    report: OnPart | None = None,
    table: Vectors | None = None,
) -> Inputs:
    """Look up both sides' tokens; `context` None means that the text attends to itself.

    A learned model (`stack`) must have been learned on these very vectors, and has its own for unknown words.
    `table` are the vectors where they are open already, and known to fit.
    """
    oov, dim = settings.oov or usual_oov(settings, stack), settings.dim or RANDOM_DIM
    if oov == "model" and stack is None:
        said = "--oov model needs a learned projection."
        raise UsageError(said, "Choose subword, zero, random, nearest, skip or error.", "--oov")
    look_up: Callable[[Sequence[str]], lookup.Embedded]
    if settings.embedding == "random":
        if stack is not None:
            raise wrong_pairing(stack, "random vectors")
        about = Embedding("random", "random", dim, None, settings.seed)
        look_up = partial(lookup.random_vectors, dim=dim, seed=settings.seed)
    else:
        table = _table(settings, stack) if table is None else table
        seed = settings.seed if oov == "random" else None
        about = Embedding(table.source, table.name, table.dim, oov, seed, table.length)
        spelling, report = None if stack is None else stack.spelling, report or no_report
        look_up = partial(
            lookup.embed, table=table, oov=oov, seed=settings.seed, spelling=spelling, report=report
        )
    query = look_up(tokens)
    key = query if context is None else look_up(context)
    query_tokens = tuple(tokens[i] for i in query.kept)
    key_tokens = query_tokens if context is None else tuple(context[i] for i in key.kept)
    if not query_tokens or not key_tokens:
        side = "token" if context is None else "query" if not query_tokens else "key"
        none = f"{about.name} has a vector for none of them, and --oov skip leaves such out"
        raise InputError(f"No {side} is left: {none}.", "Choose --oov random or zero, or other vectors.")
    replaced = {**query.replaced, **key.replaced}
    unknown = tuple(dict.fromkeys(query.unknown + key.unknown))
    notes = list[str]()
    if table is not None and (doubled := table.about.get("doubled")):
        text = count(int(doubled), "doubled word", "doubled words")
        notes.append(f"{text} in {table.name}: the first of each counts.")
    if replaced:
        named = [f"{visible(word)} ({visible(used)})" for word, used in list(replaced.items())[:SHOWN]]
        more = f" and {len(replaced) - SHOWN} more" if len(replaced) > SHOWN else ""
        stand = "No vector of its own; the closest spelling stands in"
        notes.append(f"{stand}: {', '.join(named)}{more}.")
    starts = dict(zip((*query_tokens, *key_tokens), (*query.X, *key.X), strict=True))
    notes += _on_unknown(unknown, starts, oov, stack is not None)
    texts = Side(query_tokens, query.X)
    other = texts if context is None else Side(key_tokens, key.X)
    return Inputs(texts, other, True, about, unknown, (), tuple(notes), table, replaced, context is not None)


def check_pairing(stack: EncoderStack, table: Vectors) -> None:
    """Refuse a model on other vectors than those it was learned on."""
    if stack.fingerprint != table.fingerprint():
        raise wrong_pairing(stack, table.name)
    said = f"{stack.name} is not a sound model: it takes {stack.dim} numbers a word, not {table.dim}."
    refuse_input(stack.dim != table.dim, said, "Make one with attn learn train.")


def wrong_pairing(stack: EncoderStack, vectors: str) -> InputError:
    """Return the error for a model that was learned on other vectors than these."""
    said = f"{stack.name} was learned on the vectors {visible(stack.vectors)} and fits no others; these are {vectors}."
    return InputError(said, "Choose other vectors (-e), or another projection (-p identity).")


def _on_unknown(unknown: Sequence[str], starts: Mapping[str, Array], oov: str, is_learned: bool) -> list[str]:
    """Return the notes on words without a vector; `starts` are the vectors that each token has in the end."""
    strange = [word for word in unknown if oov == "subword" and not starts[word].any()]
    same = _identical_starts(unknown, starts) if oov == "model" else ""
    notes = []
    for words, how in (([word for word in unknown if word not in strange], oov), (strange, "strange")):
        forms = ("word is spelled like it", "its"), ("words are spelled like them", "their")
        like, its = forms[len(words) != 1]
        done = {
            "zero": "zeros stand in" if is_learned else "zeros stand in, so each scores 0 with every word",
            "nearest": f"no known {like}, so zeros stand in",
            "subword": f"guessed from the parts of {its} spelling",
            "strange": f"no known word has {its} letters, so zeros stand in",
            "random": "random vectors stand in",
            "skip": "left out",
            "model": f"the model builds a vector from features of {its} spelling (shape, endings){same}",
        }
        if words:
            named = ", ".join(map(visible, words[:SHOWN])) + (", ..." if len(words) > SHOWN else "")
            notes.append(f"No vector for {named}: {done[how]}.")
    if unknown and oov in ("zero", "nearest") and starts.keys() <= set(unknown) and not is_learned:
        notes.append("No token has a vector: all weights are equal and mean nothing. Try --oov random.")
    return notes


def _identical_starts(unknown: Sequence[str], starts: Mapping[str, Array]) -> str:
    """Return `, which are the same for zwx and qxz`, for each group of words that a model cannot tell apart."""
    groups, texts = defaultdict[bytes, list[str]](list), []
    for word in unknown:
        groups[starts[word].tobytes()].append(visible(word))
    for group in groups.values():
        *named, last = group if len(group) <= SHOWN else (*group[:SHOWN], f"{len(group) - SHOWN} more")
        texts += [f"{', '.join(named)} and {last}"] if named else []
    return f", which are the same for {'; for '.join(texts)}" if texts else ""


def attend_phrases(
    query: str, keys: Sequence[str], values: Values, settings: Settings, report: OnPart | None = None
) -> record.Attended:
    """Let a query look at keys, each a phrase; `values` makes those of the keys that are left.

    A phrase of several words is the mean of their vectors. The projection is the identity unless another is
    chosen; it makes queries and keys alone. Keys differ from each other.
    """
    idle = {"--pad": settings.pad is not None, "--positions": settings.positions not in (None, "none")}
    for option, is_set in idle.items():  # keys have no order, and no end to pad
        refuse(is_set, f"{option} does not apply to a dictionary.", f"Leave out {option}.", option)
    check_no_knock_out(settings, "a dictionary")
    settings = replace(settings, projection=settings.projection or "identity")
    if model_file.load_model(settings) is not None:
        said = f"{visible(str(settings.projection))} was learned for sentences; a dictionary's keys are none."
        raise UsageError(said, "Use -p identity, random, or a file of weights.", "--projection")
    weights = model_file.read_weights(settings)
    inputs = round_inputs(_embed_phrases(query, keys, settings, report), settings)
    notes = [NOT_UTF8] if any("\ufffd" in phrase for phrase in (query, *keys)) else []
    inputs = inputs._replace(notes=(*notes, *unused(settings), *inputs.notes))
    layer = project.project_inputs(inputs, settings, None, weights)
    more = () if settings.projection == "identity" else (VALUES_GIVEN,)
    V = values(inputs.key.tokens)
    # W is left out of the record: with a W_v it would claim values that these are not.
    heads = tuple(Head(head.name, q=head.q, k=head.k, v=V) for head in layer.heads)
    bare = projection.Projection(layer.projection.about, ())
    layer = layer._replace(heads=heads, projection=bare, notes=(*layer.notes, *more), other_layout=None)
    return record.Attended(
        "lookup", inputs, layer, settings, mask.wanted_mask(settings, None, inputs), report=report
    )


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
