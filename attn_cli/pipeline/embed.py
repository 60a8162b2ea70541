"""Both sides of attention before projection: tokens and their vectors, from text, phrases or given matrices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from attn_cli.errors import InputError, UsageError
from attn_cli.io.escape import visible
from attn_cli.io.plural import count
from attn_cli.models.encoder import EncoderStack
from attn_cli.models.model_file import load_model
from attn_cli.models.rounding import to_digits
from attn_cli.pipeline.read_weights import read_weights
from attn_cli.settings.settings import Settings
from attn_cli.text.tokenize import tokenize
from attn_cli.trace.trace import Embedding, Placed
from attn_cli.vectors.lookup import Embedded, embed, open_table, random_vectors
from attn_cli.vectors.store.table import OnProgress, no_progress

if TYPE_CHECKING:
    from attn_cli.inputs.matrices import Given
    from attn_cli.io.array_types import Array
    from attn_cli.vectors.store.vectors import OpenVectors, Vectors

RANDOM_DIM = 4
PAD = "<pad>"
NOT_UTF8 = "Bytes that are not UTF-8 were read as U+FFFD."


class Inputs(NamedTuple):
    """Both sides before projection: tokens, their vectors, and where these came from."""

    query_tokens: tuple[str, ...]
    key_tokens: tuple[str, ...]
    has_text: bool
    x_query: Array | None
    x_key: Array | None
    embedding: Embedding
    unknown: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    table: Vectors | None = None
    replaced: Mapping[str, str] = MappingProxyType({})
    placed: Placed | None = None
    apart: bool = False  # whether keys come from a second text or a second X
    pad_queries: range = range(0)
    pad_keys: range = range(0)

    @property
    def own_queries(self) -> range:
        """The queries that are no padding."""
        return _without(self.pad_queries, len(self.query_tokens))

    @property
    def own_keys(self) -> range:
        """The keys that are no padding."""
        return _without(self.pad_keys, len(self.key_tokens))


def _without(padding: range, n: int) -> range:
    """Return the places that are left of n where padding takes one end of them."""
    return range(len(padding), n) if padding.start == 0 else range(padding.start)


def add_padding(inputs: Inputs, n: int, side: str) -> Inputs:
    """Add n padding tokens with zero vectors after the keys (`right`) or before them (`left`).

    Where the text looks at itself, its queries get them too. Padding matters as what is looked at, so of two
    texts only the context gets it.
    """
    assert inputs.x_query is not None and inputs.x_key is not None
    start = len(inputs.key_tokens) if side == "right" else 0
    places = range(start, start + n)
    key_tokens = (*inputs.key_tokens[:start], *(PAD,) * n, *inputs.key_tokens[start:])
    x_key = np.insert(inputs.x_key, [start] * n, 0.0, axis=0)
    is_self = inputs.x_key is inputs.x_query
    where = f"{'after' if side == 'right' else 'before'} the {'text' if is_self else 'context'}"
    stand = count(n, "padding token stands", "padding tokens stand")
    told = f"{stand} {where}: zero vectors, and nobody may look at them."
    inputs = inputs._replace(key_tokens=key_tokens, x_key=x_key, pad_keys=places, notes=(*inputs.notes, told))
    if inputs.placed is not None:
        words, P = (
            np.insert(M, [start] * n, 0.0, axis=0)
            for M in (inputs.placed.words_key, inputs.placed.encodings_key)
        )
        before = inputs.placed._replace(words_key=words, encodings_key=P)
        if is_self:
            before = Placed(words, words, P, P)
        inputs = inputs._replace(placed=before)
    if not is_self:
        return inputs
    return inputs._replace(query_tokens=key_tokens, x_query=x_key, pad_queries=places)


class Shared(NamedTuple):
    """What many texts share: the learned model, the word vectors, the weights of a file; None where there are none."""

    stack: EncoderStack | None
    table: Vectors | None
    weights: Given | None


def open_shared(settings: Settings) -> Shared:
    """Open the model and the word vectors that these settings name, and check that they fit, once for many texts."""
    from attn_cli.vectors.store.vectors import VectorMemo  # one text looks each word up once

    settings = settings_for_positions(settings)
    stack = load_model(settings)
    weights = None if stack is not None else read_weights(settings)
    if settings.embedding == "random":
        return Shared(stack, None, weights)
    table = VectorMemo(_table(settings))
    if stack is not None:
        check_pairing(stack, table)
    return Shared(stack, table, weights)


def settings_for_positions(settings: Settings) -> Settings:
    """Return the settings with the projection that goes with positions where none was chosen: no learned one."""
    by_default = settings.projection is None and settings.embedding in (None, "word2vec")
    if settings.positions == "sinusoidal" and by_default:
        return replace(settings, projection="identity")
    return settings


def _table(settings: Settings) -> OpenVectors:
    return open_table("word2vec" if settings.embedding is None else settings.embedding, "random, ")


def embed_tokens(
    tokens: Sequence[str],
    context: Sequence[str] | None,
    settings: Settings,
    stack: EncoderStack | None,
    report: OnProgress | None = None,
    table: Vectors | None = None,
) -> Inputs:
    """Look up both sides' tokens; `context` None means that the text attends to itself.

    A learned model (`stack`) must have been learned on these very vectors, and has its own for unknown words.
    `table` are the vectors where they are open already, and known to fit.
    """
    if settings.oov == "model" and stack is None:
        raise UsageError(
            "--oov model needs a learned projection.", "Choose zero, random, nearest, skip or error.", "--oov"
        )
    oov = settings.oov or ("zero" if stack is None else "model")
    if settings.embedding == "random":
        if stack is not None:
            raise wrong_pairing(stack, "random vectors")
        dim = settings.dim or RANDOM_DIM
        about = Embedding("random", "random", dim, None, settings.seed)

        def vectors(words: Sequence[str]) -> Embedded:
            return random_vectors(words, dim, settings.seed)

        notes: tuple[str, ...] = ()
        table = None
    else:
        if table is None:
            table = _table(settings)
            if stack is not None:
                check_pairing(stack, table)
        seed = settings.seed if oov == "random" else None
        about = Embedding(table.source, table.name, table.dim, oov, seed, table.length)
        start = None if stack is None else stack.start

        def vectors(words: Sequence[str]) -> Embedded:
            return embed(words, table, oov, settings.seed, start, report or no_progress)

        notes = ()
    query = vectors(tokens)
    key = query if context is None else vectors(context)
    if table is not None and (doubled := table.about.get("doubled")):
        told = count(int(doubled), "doubled word", "doubled words")
        notes = (f"{told} in {table.name}: the first of each counts.",)
    replaced = {**query.replaced, **key.replaced}
    query_tokens = tuple(tokens[i] for i in query.kept)
    key_tokens = query_tokens if context is None else tuple(context[i] for i in key.kept)
    unknown = tuple(dict.fromkeys(query.unknown + key.unknown))
    if not query_tokens or not key_tokens:
        side = "token" if context is None else "query" if not query_tokens else "key"
        raise InputError(
            f"No {side} is left: {about.name} has a vector for none of them, and --oov skip leaves such out.",
            "Choose --oov random or zero, or other vectors.",
        )
    notes += _replaced_notes(replaced)
    notes += _unknown_notes(unknown, {*query_tokens, *key_tokens}, oov, stack is not None)
    inputs = Inputs(
        query_tokens, key_tokens, True, query.X, key.X, about, unknown, (), notes, table, replaced
    )
    return inputs._replace(apart=context is not None)


def add_positions(inputs: Inputs) -> Inputs:
    """Add to each vector the sinusoids of its token's place; both sides count from 0."""
    from attn_cli.models.sinusoids import sinusoidal  # only those who ask for positions need it

    if inputs.x_query is None or inputs.x_key is None:
        return inputs
    P_query = sinusoidal(*inputs.x_query.shape)
    is_self = inputs.x_key is inputs.x_query
    P_key = P_query if is_self else sinusoidal(*inputs.x_key.shape)
    x_query = inputs.x_query + P_query
    x_key = x_query if is_self else inputs.x_key + P_key
    return inputs._replace(
        x_query=x_query, x_key=x_key, placed=Placed(inputs.x_query, inputs.x_key, P_query, P_key)
    )


def round_inputs(inputs: Inputs, digits: int) -> Inputs:
    """Round the vectors, and what was added to them for their places, to so many digits after the point."""
    if inputs.x_query is None or inputs.x_key is None:
        return inputs
    before = inputs.placed and Placed(*(to_digits(M, digits) for M in inputs.placed))
    sums = (inputs.x_query, inputs.x_key)
    if before is not None:  # a sum of rounded numbers: rounding it takes away what floats add at the end
        sums = (before.words_query + before.encodings_query, before.words_key + before.encodings_key)
    is_self = inputs.x_key is inputs.x_query
    x_query = to_digits(sums[0], digits)
    x_key = x_query if is_self else to_digits(sums[1], digits)
    return inputs._replace(x_query=x_query, x_key=x_key, placed=before)


def embed_phrases(
    query: str, keys: Sequence[str], settings: Settings, report: OnProgress | None = None
) -> Inputs:
    """Look up a query and keys that are phrases: each is the mean of its words' vectors.

    A phrase whose words are all skipped is left out.
    """
    cut = {p: tokenize(p, settings.tokenizer, settings.keep_punctuation) for p in (query, *keys)}
    for phrase, found in cut.items():
        if not found.tokens:
            raise InputError(
                f"There is no word in {visible(phrase)!r}, so it has no vector.",
                "Type some words; --keep-punctuation makes tokens of punctuation marks.",
            )
    flat = [word for key in keys for word in cut[key].tokens]
    inputs = embed_tokens(cut[query].tokens, flat, settings, None, report)
    assert inputs.x_query is not None and inputs.x_key is not None
    skipped = set(inputs.unknown) if inputs.embedding.oov == "skip" else set()
    query_tokens, x_query = _means({query: cut[query].tokens}, inputs.x_query, skipped)
    key_tokens, x_key = _means({key: cut[key].tokens for key in keys}, inputs.x_key, skipped)
    dropped = tuple(mark for phrase in (query, *keys) for mark in cut[phrase].dropped)
    return inputs._replace(
        query_tokens=query_tokens, key_tokens=key_tokens, x_query=x_query, x_key=x_key, dropped=dropped
    )


def _means(
    phrases: Mapping[str, Sequence[str]], X: Array, skipped: set[str]
) -> tuple[tuple[str, ...], Array]:
    names, rows, start = [], [], 0
    for phrase, words in phrases.items():
        stop = start + sum(word not in skipped for word in words)
        if stop > start:
            names.append(phrase)
            with np.errstate(over="ignore"):  # infinity is refused where it would make a score
                rows.append(X[start:stop].mean(axis=0))
        start = stop
    return tuple(names), np.array(rows)


def check_pairing(stack: EncoderStack, table: Vectors) -> None:
    """Refuse a model on other vectors than those it was learned on."""
    if stack.fingerprint != table.fingerprint():
        raise wrong_pairing(stack, table.name)
    if stack.dim != table.dim:
        raise InputError(
            f"{stack.name} is not a sound model: it takes {stack.dim} numbers a word, not {table.dim}.",
            "Make one with attn learn train.",
        )


def wrong_pairing(stack: EncoderStack, vectors: str) -> InputError:
    """Return the error for a model that was learned on other vectors than these."""
    return InputError(
        f"{stack.name} was learned on the vectors {visible(stack.vectors)} and fits no others; these are {vectors}.",
        "Choose other vectors (-e), or another projection (-p identity).",
    )


def _replaced_notes(replaced: Mapping[str, str]) -> tuple[str, ...]:
    if not replaced:
        return ()
    pairs = ", ".join(f"{visible(word)} ({visible(used)})" for word, used in list(replaced.items())[:8])
    more = f" and {len(replaced) - 8} more" if len(replaced) > 8 else ""
    return (f"No vector of its own; the closest spelling stands in: {pairs}{more}.",)


def _unknown_notes(unknown: tuple[str, ...], tokens: set[str], oov: str, learned: bool) -> tuple[str, ...]:
    if not unknown:
        return ()
    words = ", ".join(visible(word) for word in unknown[:8]) + (", ..." if len(unknown) > 8 else "")
    done = {
        "zero": "zeros stand in" if learned else "zeros stand in, so each scores 0 with every word",
        "nearest": "no known word is spelled like it, so zeros stand in"
        if len(unknown) == 1
        else "no known words are spelled like them, so zeros stand in",
        "random": "random vectors stand in",
        "skip": "left out",
        "model": f"the model starts from {'its' if len(unknown) == 1 else 'their'} spelling",
    }[oov]
    notes: tuple[str, ...] = (f"No vector for {words}: {done}.",)
    if oov in ("zero", "nearest") and tokens <= set(unknown) and not learned:
        notes += ("No token has a vector: all weights are equal and mean nothing. Try --oov random.",)
    return notes


def take_x(given: Given) -> Inputs:
    """Take X, and the context where there is one, from given matrices."""
    X = given.get("X")
    if X is None:
        weights = " attn show draws ready weights." if "weights" in given.ignored else ""
        raise InputError(
            f"{given.name} holds neither Q, K, V nor X.", f"Give Q, K and V, or X and W.{weights}"
        )
    context = given.get("context")
    x_key = X if context is None else context
    if x_key.shape[1] != X.shape[1]:
        raise InputError(f"X has shape {X.shape} and context {x_key.shape}: both need equally many columns.")
    query_tokens = given_labels(given.tokens, len(X), "q", given.name)
    key_tokens = (
        query_tokens if context is None else given_labels(given.context_tokens, len(x_key), "k", given.name)
    )
    about = Embedding("given", given.name, X.shape[1], None, None)
    return Inputs(
        query_tokens, key_tokens, given.tokens is not None, X, x_key, about, apart=context is not None
    )


def given_labels(tokens: tuple[str, ...] | None, n: int, letter: str, name: str) -> tuple[str, ...]:
    """Return the tokens that were given, else labels such as q0 and q1."""
    if tokens is None:
        return tuple(f"{letter}{i}" for i in range(n))
    if len(tokens) != n:
        raise InputError(f"{name} has {len(tokens)} tokens for {n} rows.", "Give one token a row.")
    return tokens


def prepare_inputs(inputs: Inputs, settings: Settings, is_last: bool = True) -> Inputs:
    """Add positions and padding, and round, where that is asked for.

    Places are those of the text's own tokens: padding has none. A stack rounds its last layer's input itself.
    """
    if settings.positions == "sinusoidal":
        inputs = add_positions(inputs)
    if settings.pad:
        inputs = add_padding(inputs, settings.pad, settings.pad_side)
    return round_inputs(inputs, settings.round) if settings.round is not None and is_last else inputs
