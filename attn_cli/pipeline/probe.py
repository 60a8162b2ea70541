"""Every head on random tokens that come again: what it does where no text helps it, and whether it copies.

A score is the mean weight that goes to a pattern over the rows where it is possible, on random tokens (Olsson et al.
2022, "In-context Learning and Induction Heads").

Whether a head copies, so that a word that it looks at becomes likelier, is read from weights alone. What a head makes
of words, W_E W_V W_O W_U, is V x V: of each word that is looked at, each word's score. Where most of its eigenvalues
are positive, words make themselves likelier (Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits").
Those that are not 0 are the eigenvalues of W_O (W_U W_E) W_V, d_v x d_v. Only what is linear counts: tables, matrices
on the way, norms' centring and gains. Left out are the norms' divisions by a word's own size, which are positive,
biases, positions, networks, the activation before an output, caps on scores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from itertools import islice

import numpy as np

from attn_cli.io.types import Array, Bools, NamedTuple, OnPart, replace
from attn_cli.models.checkpoints import Layer, Model, Stack
from attn_cli.models.checkpoints.open_model import MASKS, UNKNOWN, Encoded, OpenModel, open_model
from attn_cli.models.checkpoints.reader import Reader, check_finite
from attn_cli.models.checkpoints.run import texts
from attn_cli.models.checkpoints.weights import Weights
from attn_cli.models.encoder import EncoderStack, matrix_of
from attn_cli.models.logit_parts import FrozenNorm
from attn_cli.pipeline.every_head import LayerWeights, open_stack, read_layers, stack_layers, up_to
from attn_cli.pipeline.sources import checkpoint, checkpoint_text
from attn_cli.settings import Settings
from attn_cli.text.wordpieces import is_special
from attn_cli.trace.head_roles import Role, Text, find_patterns, measure
from attn_cli.vectors import as_text, lookup

# Of the heads of a layer, sum(eigenvalues) / sum(|eigenvalues|).
Copying = Callable[[int], list[float | None]]
BLOCK, ONE = 4096, np.ones(1, np.float32)  # words at once; the scale at which norms are held


def _shares(out: Array, K: Array, V: Array, where: str) -> list[float | None]:
    """Return each head's share, None where all eigenvalues are 0; InputError for what is not finite.

    `out` (h d_v, m) is W_O W_U, K (m, d) is W_U W_E, and V (d, h or fewer, d_v) has the W_V of groups of heads.
    """
    with np.errstate(all="ignore"):
        read = np.tensordot(K, V, 1).transpose(1, 0, 2)  # (h or fewer, m, d_v)
        out = out.reshape(-1, V.shape[2], len(K))
        circuits = (out @ np.repeat(read, len(out) // len(read), axis=0)).astype(np.float64)
    check_finite(where, circuits)
    found = np.linalg.eigvals(circuits)
    sums, sizes = found.sum(axis=1).real, np.abs(found).sum(axis=1)
    return [float(one / size) if size else None for one, size in zip(sums, sizes, strict=True)]


def _through(rows: Array, norm: FrozenNorm) -> Array:
    return norm._replace(shift=None, scale=ONE).forward(rows)


def of_checkpoint(model: Model, weights: Weights) -> Copying:
    """Return what tells of the heads of a model's last stack, which has an output table, whether they copy."""
    head, stack = model.logits, list(model.stacks.values())[-1]
    reader, words = Reader(weights, stack), stack.words
    width = words.width if head.dense or head.project else stack.d

    def through(rows: Array, name: str | None, made: int | None = None) -> Array:
        """Return rows times a matrix that makes so many numbers, or through a norm of scale 1."""
        if name is not None and made is not None:
            return rows @ reader.linear_weights(name, rows.shape[-1], made)[0]
        return rows if name is None else _through(rows, reader.frozen(name, rows))

    names = [weights.find(*tables) or tables[0] for tables in (head.tables, words.tables)]
    scored, read = weights.stored(names[0], None, width), weights.stored(names[1], None, words.width)
    K: Array = np.zeros((width, words.width), np.float32)
    count = min(scored.entry.shape[0], read.entry.shape[0])
    for start in range(0, count, BLOCK):
        many = min(BLOCK, count - start)
        U = scored.rows(start, many)
        K = K + U.T @ (U if names[0] == names[1] else read.rows(start, many))
    K = through(K, words.project, stack.d) if words.project_first else through(K, words.norm)
    K = through(K, words.norm) if words.project_first else through(K, words.project, stack.d)

    def copying(n: int) -> list[float | None]:
        layer = stack.layers[n]
        V, _ = reader.head_matrices(layer, "v")
        out, _ = reader.linear_weights(layer.tensor("o"), stack.heads * stack.d_k, stack.d)
        before, after = _norms_beside(stack, n)
        out = through(through(reduce(through, after, out), head.dense, width), head.norm)
        return _shares(through(out, head.project, width), reduce(through, before, K), V, layer.place)

    return copying


def _norms_beside(stack: Stack, n: int) -> tuple[list[str], list[str]]:
    """Return the norms on the way from the words to what the heads of layer n read, and from there to the scores."""

    def named(layers: Sequence[Layer], *roles: str) -> list[str]:
        return [one.tensor(role) for one in layers for role in roles if role in one.names]

    both = ("norm_1", "norm_2") if stack.adds_to_norm or not stack.pre_norm else ()
    below, own, above = stack.layers[:n], stack.layers[n : n + 1], stack.layers[n + 1 :]
    after = named(own, "after_1", *both[stack.pre_norm :]) + named(above, *both)
    before = named(below, *both) + named(own, *["norm_1"] * stack.pre_norm)
    return before, [*after, *filter(None, [stack.last_norm])]


def of_stack(stack: EncoderStack, read: Array, scored: Array) -> Copying:
    """Return the same of a language model of attn's own, of `read` (V, d) and `scored` (V, d) vectors of words."""
    assert stack.words is not None  # only a language model is asked
    layers, P = stack.encoders, stack.words.P
    K = scored.T @ read if stack.W_in is None else scored.T @ read @ stack.W_in
    norms = [norm.frozen(K) for layer in layers for norm in (layer.norm_1, layer.norm_2)]

    def copying(n: int) -> list[float | None]:
        about, W_o = layers[n].attention, layers[n].attention.W_o
        assert W_o is not None  # these layers have one
        k, out = (reduce(_through, some, rows) for some, rows in ((norms[: 2 * n], K), (norms[2 * n :], W_o)))
        return _shares(out @ P, k, np.stack([head.W_v for head in about.heads], axis=1), stack.name)

    return copying


LENGTH, TIMES = 50, 2  # random tokens, and how often they come
SCORES = {  # of a model that looks back, and of one that looks at all tokens
    "masked": ("induction", "previous", "same", "first"),
    "self": ("previous", "next", "same", "first"),
}


class ProbedHead(NamedTuple):
    """One head: what it is named for, its share of each pattern, and whether it copies, -1 to 1; None for no value."""

    layer: int
    head: str
    name: str
    induction: float | None = None
    previous: float | None = None
    next: float | None = None
    same: float | None = None
    first: float | None = None
    copying: float | None = None


class Probe(NamedTuple):
    """What every head of a model does on random tokens."""

    source: str
    attention: str  # self or masked
    seed: int
    tokens: tuple[str, ...]  # as they are read, those that frame a text too
    ids: tuple[int, ...] | None
    notes: tuple[str, ...]
    length: int = 0  # of the random tokens, which come so many
    times: int = TIMES
    heads: tuple[ProbedHead, ...] = ()

    def record(self) -> dict[str, object]:
        """Return it as JSON has it."""
        about = self._asdict() | {"heads": [one._asdict() for one in self.heads]}
        return {"schema": "attn/1", "kind": "heads_by_probe", **about}


# Without its heads; which tokens frame the text
Opened = tuple[Probe, Sequence[bool], Iterator[LayerWeights], Copying | None]


def probe(settings: Settings, layer: int | None = None, report: OnPart | None = None) -> Probe:
    """Return what each head of a model, else of the bundled language model, does on random tokens.

    `layer` is the only one that is wanted, or None. Raises UsageError for one that there is not.
    """
    heads = list[ProbedHead]()
    with _on_disk(settings, layer, report) if settings.model else _learned(settings) as opened:
        found, frames, layers, copying_of = opened
        names = [str(token) for token in found.ids or found.tokens]
        for one in up_to(layer, layers):
            if layer in (None, one.number):
                copying = copying_of(one.number) if copying_of else [None] * len(one.heads)
                roles = roles_on_repeats(one.weights, one.mask, names, frames)
                for head, role, share in zip(one.heads, roles, copying, strict=True):
                    scores = {name: role.shares[name] for name in SCORES[found.attention]}
                    heads.append(ProbedHead(one.number, head, role.name, copying=share, **scores))
    return found._replace(length=(len(frames) - sum(frames)) // TIMES, heads=tuple(heads))


def roles_on_repeats(weights: Array, mask: Bools, names: Sequence[str], frames: Sequence[bool]) -> list[Role]:
    """Return what each head does with weights (h, n, n) over tokens of these names; rows of `frames` do not count."""
    allowed = mask & ~np.array(frames)[:, np.newaxis]
    found = find_patterns(Text(names, names, True), allowed)
    return [measure(one, allowed, found) for one in weights]


@contextmanager
def _on_disk(settings: Settings, last: int | None, report: OnPart | None) -> Iterator[Opened]:
    """Open a model on disk, which reads tokens of its vocabulary; one with a decoder too reads with its encoder."""
    assert settings.model is not None
    with open_model(settings.model) as model:
        of, weights = model.checkpoint.model, model.checkpoint.weights
        side, asked = checkpoint_text.side_of(of, "self", None)
        ids, frames = _random_ids(model, of.stacks[side], settings.seed)
        tokens = Encoded(ids, tuple(map(model.encoder.token, ids)), frames, ())
        run = model.checkpoint.run(texts([ids]))
        if report is not None:
            run.report_to(report, last)
        why = None if run.has_head() else "has no language-model head in its files"
        why = why if len(of.stacks) == 1 else "is probed by its encoder, which scores no words"
        notes = of.notes if why is None else (*of.notes, f"{model.name} {why}: no copying.")
        found = Probe(model.name, asked, settings.seed, tokens.tokens, ids, notes)
        layers = read_layers(checkpoint.Reading(run, side, asked, tokens, tokens, model), settings)
        yield found, frames, layers, None if why else of_checkpoint(of, weights)


def _random_ids(model: OpenModel, stack: Stack, seed: int) -> tuple[tuple[int, ...], tuple[bool, ...]]:
    """Return random tokens TIMES times between those that frame a text, and which frame it."""
    weights, words, encoder = model.checkpoint.weights, stack.words, model.encoder
    table = weights.stored(weights.find(*words.tables) or words.tables[0], None, words.width)
    every = np.random.default_rng(seed).permutation(table.entry.shape[0]).tolist()
    plain = ((n, word) for n in every if not is_special(word := encoder.token(n)))
    drawn = tuple(islice((n for n, word in plain if word not in (*MASKS, *UNKNOWN)), LENGTH))
    framed = encoder.encode(encoder.text(*drawn or (0,)))
    inner = [n for n, is_frame in enumerate(framed.special) if not is_frame] or [0]
    start, stop = framed.ids[: inner[0]], framed.ids[inner[-1] + 1 :]
    if (places := Reader(weights, stack).places()) is not None:
        drawn = drawn[: max(0, places - len(start) - len(stop)) // TIMES]
    inside = (False,) * (TIMES * len(drawn))
    return (*start, *drawn * TIMES, *stop), ((True,) * len(start) + inside + (True,) * len(stop))


@contextmanager
def _learned(settings: Settings) -> Iterator[Opened]:
    """Open a model of attn's own, by default language, which reads words of its vocabulary."""
    settings = replace(settings, projection=settings.projection or "language", tokenizer="whitespace")
    shared = open_stack(settings)
    stack, table = shared.stack, shared.table
    assert stack is not None and table is not None
    known = [as_text(word) for block in table.word_blocks() for word in block]
    drawn = (known[n] for n in np.random.default_rng(settings.seed).permutation(len(known)).tolist())
    words = TIMES * tuple(islice((word for word in drawn if word.split() == [word]), LENGTH))
    notes = () if stack.words else (f"{stack.name} scores no words: no copying.",)
    found = Probe(stack.name, "masked" if stack.words else "self", settings.seed, words, None, notes)
    copying = None
    if stack.words is not None:  # words are read, and scored, with what was learned beside their vectors
        scored = matrix_of(table).astype(np.float64)
        scored[: len(stack.words.corrections)] += stack.words.corrections
        copying = of_stack(stack, lookup.embed(known, table, "model", 0, stack.spelling).X, scored)
    layers = stack_layers("self", " ".join(words), None, settings, shared)
    yield found, (False,) * len(words), layers, copying
