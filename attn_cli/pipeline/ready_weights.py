"""One layer's weights without scores: ready ones, and those made of others, by a rollout or by joining pieces."""

from __future__ import annotations

import re
from functools import partial

import numpy as np

from attn_cli.core.masks import Mask, find_rule
from attn_cli.core.scores import GIVEN
from attn_cli.errors import InputError, UsageError, count, fixed, refuse, shortened
from attn_cli.inputs.saved_weights import Saved
from attn_cli.io.types import Array, Bools, Ints, NamedTuple, replace
from attn_cli.models.projection import Projection
from attn_cli.pipeline import Inputs, Layer, Side, shown_head, wanted_layer
from attn_cli.pipeline.mask import infer_mask, left_padding, padding_rows, weighted_links
from attn_cli.pipeline.record import EACH_ROLLED, Attended
from attn_cli.settings import ALL, ROLLOUT, WEIGHT, Settings
from attn_cli.text import wordpieces as pieces
from attn_cli.trace import Head, Projected, Trace, head_roles

SUM_TOLERANCE = 1e-3  # as near to one as weights of 16 bits come
COARSE = 2**-7  # bfloat16 keeps 8 bits of a number, and may cut off the rest
MOST_NAMED = 8
AS_THEY_ARE = "and are shown as they are."  # the end of a note on rows that do not sum to one
SHARE_HIDDEN = re.compile(r", with [^ ]+ of a row's weight on average")  # of a note on one layer


class SelectedWeights(NamedTuple):
    """The weights of one layer's heads that are to be shown, with their tokens and mask."""

    query_tokens: tuple[str, ...]
    key_tokens: tuple[str, ...]
    head_names: tuple[str, ...]  # all in the layer
    head: str  # the one to show, or mean
    kept: tuple[str, ...]  # those whose weights are here
    weights: Array  # (kept, n_q, n_k)
    allowed: Bools | None  # (n_q, n_k)
    mask_name: str
    layer: int | None  # where there are several, or were when the weights were computed
    notes: tuple[str, ...] = ()
    second: int | None = None  # the place where the second text of a pair begins
    most: float = 1.0  # that any of them can be

    @property
    def mask(self) -> Mask | None:
        """The mask, as a rule where it still is one; None where all is allowed."""
        n_q, n_k = self.weights.shape[1:]
        if self.allowed is None or self.allowed.all():
            return None
        rule, name = Mask(self.mask_name, n_q, n_k), self.mask_name
        if find_rule(name) is not None:
            if np.array_equal(rule.rows(np.arange(n_q)), self.allowed):
                return rule
            name = f"{name} of all tokens"
        return Mask(name, n_q, n_k, self.allowed)

    def with_notes(self, *notes: str) -> SelectedWeights:
        """Return the same with these notes too."""
        return self._replace(notes=(*self.notes, *notes))

    def layer_of(self, about: Projected) -> Layer:
        """Return the layer of these heads, with nothing left to compute."""
        heads = (Head(name, ready=one) for name, one in zip(self.kept, self.weights, strict=True))
        return Layer(self.head_names, self.head, tuple(heads), Projection(about, ()), score=GIVEN)


def select_weights(saved: Saved, settings: Settings, mask: Mask | None, is_stated: bool) -> SelectedWeights:
    """Return one layer of saved weights, masked, joined and renormalized as asked.

    A mask that somebody stated must hide zeros alone; where nobody did, one is inferred from exact zeros.
    """
    layer = wanted_layer(settings, len(saved.weights), saved.name)
    head = shown_head(settings.head, saved.heads)
    is_alone = head in saved.heads and settings.head != ALL and not settings.every_head
    kept = slice(saved.heads.index(head), saved.heads.index(head) + 1) if is_alone else slice(None)
    of_layer, names = saved.weights[layer], saved.heads[kept]
    weights, notes = _sound(of_layer[kept].astype(np.float64), saved.name, names)
    if len(saved.weights) > 1 and settings.layer is None:
        notes.insert(0, f"Layer {layer} is shown, the last of 0 to {layer}.")
    n_q, n_k = weights.shape[1:]
    queries = saved.query_tokens or tuple(f"q{i}" for i in range(n_q))
    keys = saved.key_tokens or tuple(f"k{j}" for j in range(n_k))
    allowed, rule = (None, "none") if mask is None else (mask.rows(np.arange(n_q)), mask.name)
    number = layer if len(saved.weights) > 1 else saved.layer
    shown = saved.heads, head, names, weights, allowed, rule, number
    found = SelectedWeights(queries, keys, *shown, tuple(notes))
    if not is_stated or mask is not None:
        used, in_layer = weighted_links(saved.weights), weighted_links(of_layer)
        if is_stated:
            found = _with_mask(found, used, in_layer, saved.padded)
        else:
            allowed, name, padding, more = infer_mask(used, in_layer, keys, saved.padded)
            found = _zeroed(found, padding)._replace(allowed=allowed, mask_name=name).with_notes(*more)
    # Where the lower half of all bits is empty, they have been of bfloat16.
    is_float32 = of_layer.dtype == np.float32
    is_coarse = is_float32 and not (np.ascontiguousarray(of_layer).view(np.uint32) & 0xFFFF).any()
    found = found.with_notes(*_sums(found, COARSE if is_coarse else SUM_TOLERANCE))
    if not joins_or_hides(settings):
        return found
    if saved.query_tokens is None and saved.key_tokens is None:
        raise without_tokens(settings, saved.name)
    return pieces_joined_or_hidden(found, settings)


def _sound(weights: Array, name: str, heads: tuple[str, ...]) -> tuple[Array, list[str]]:
    """Return weights without NaN, and notes; refuse numbers that no softmax gives, naming their place."""
    if weights.min() >= 0 and weights.max() <= 1 + SUM_TOLERANCE:  # no NaN
        return np.minimum(weights, 1.0) + 0.0, []  # and no -0.0
    missing = np.isnan(weights)
    fully_masked = missing.all(axis=-1, keepdims=True)
    bad = (missing & ~fully_masked) | np.isinf(weights) | (weights < 0) | (weights > 1 + SUM_TOLERANCE)
    if bad.any():
        h, i, j = np.argwhere(bad)[0]
        where = f"head {shortened(heads[h])}, query {i}, key {j} is {weights[h, i, j]:.6g}"
        hint = "Are these scores, before the softmax, or weights under dropout (model.eval() turns it off)?"
        raise InputError(f"{name}: the weight of {where}; weights lie between 0 and 1.", hint)
    rows = count(int(fully_masked.any(axis=0).sum()), "query has", "queries have")
    note = f"{rows} NaN weights, as PyTorch returns for fully masked rows; shown as zeros."
    return np.minimum(np.where(missing, 0.0, weights), 1.0) + 0.0, [note]


def _with_mask(found: SelectedWeights, used: Bools, in_layer: Bools, padded: Bools | None) -> SelectedWeights:
    """Check that the weights obey a stated mask; the rows of padding on the left need not."""
    allowed = found.allowed
    assert allowed is not None  # the mask that was stated
    padding = left_padding(used, found.key_tokens, padded)
    idle = padding_rows(in_layer, allowed)
    if padding and len(idle) and idle[-1] < padding:
        allowed = allowed.copy()
        allowed[:, :padding] = False
        idle = padding_rows(in_layer, allowed)
        allowed[idle] = False
        found = _zeroed(found, idle)._replace(allowed=allowed, mask_name="exact zeros")
        token = shortened(found.key_tokens[0])
        masked = "masked; its own rows mean nothing, and zeros stand in."
        found = found.with_notes(f"{token} pads the text on the left: {masked}")
    wrong = np.argwhere(found.weights.any(axis=0) & ~allowed)
    if len(wrong):
        i, j = wrong[0]
        query, key = (shortened(tokens[n]) for tokens, n in ((found.query_tokens, i), (found.key_tokens, j)))
        there = f"key {j} ({key}), but its weight there is {found.weights[:, i, j].max():.3g}"
        hint = "Leave out --mask, or give the mask under which the weights were made."
        raise InputError(f"The mask {found.mask_name} shuts query {i} ({query}) off from {there}.", hint)
    return found


def _zeroed(found: SelectedWeights, rows: Ints) -> SelectedWeights:
    weights = found.weights.copy()
    weights[:, rows] = 0.0
    return found._replace(weights=weights)


def _sums(found: SelectedWeights, tolerance: float) -> list[str]:
    sums = found.weights.sum(axis=-1)
    if found.allowed is not None:
        sums = sums[:, found.allowed.any(axis=-1)]
    odd = sums[np.abs(sums - 1) > tolerance]
    if not len(odd):
        return []
    span = f"{odd.min():.3f}" if np.ptp(odd) < SUM_TOLERANCE / 2 else f"{odd.min():.3f} to {odd.max():.3f}"
    rows = f"{len(odd):,} of {count(sums.size, 'row', 'rows')}"
    return [f"{rows} do not sum to one but to {span}, {AS_THEY_ARE}"]


def without_tokens(settings: Settings, name: str) -> UsageError:
    """Return the error of a file without tokens, which are to be joined or hidden."""
    option = "--join-pieces" if settings.join_pieces else "--hide-special"
    return UsageError(f"{option} needs tokens, and {name} has none.", "Give --tokens.", option)


def joins_or_hides(settings: Settings) -> bool:
    """Tell whether tokens are to be joined or hidden, or those of one text of a pair shown alone."""
    return settings.join_pieces or settings.hide_special or settings.between != ALL


def pieces_joined_or_hidden(found: SelectedWeights, settings: Settings) -> SelectedWeights:
    """Show a part of a pair, join pieces to words, and leave out special tokens, as is asked for."""
    if settings.between != ALL:
        found = _part_of_pair(found, settings)
    sides = (found.query_tokens, found.key_tokens)
    marks = pieces.scheme((*sides[0], *sides[1])) if settings.join_pieces else None
    queries, keys = words = [pieces.words(tokens, marks) for tokens in sides]
    if marks is not None:
        sizes = dict.fromkeys((len(old), len(new)) for old, new in zip(sides, words, strict=True))
        text = ", ".join(f"{old:,} tokens made {count(n, 'word', 'words')}" for old, n in sizes)
        found = found._replace(
            query_tokens=tuple(word.name for word in queries),
            key_tokens=tuple(word.name for word in keys),
            weights=np.minimum(pieces.join(found.weights, queries, keys), found.most),
            allowed=None if found.allowed is None else pieces.join_mask(found.allowed, queries, keys),
        ).with_notes(f"Word pieces are joined ({text}): sums over a key's pieces, means over a query's.")
    elif settings.join_pieces:
        unmarked = "No token has the mark of a word piece (##, Ġ, ▁, @@ or </w>): none is joined."
        found = found.with_notes(unmarked)
    if not settings.hide_special:
        return found
    hidden = [word.name for word in (*queries, *keys) if word.is_special]
    rows, columns = (np.flatnonzero([not word.is_special for word in of_side]) for of_side in words)
    if not len(rows) or not len(columns):
        raise InputError("Nothing is left: all tokens are special.", "Leave out --hide-special.")
    names = list(dict.fromkeys(map(shortened, hidden)))
    text = ", ".join(names[:MOST_NAMED]) + (" and others" if len(names) > MOST_NAMED else "")
    kept = _only(found, rows, columns, settings.renormalize, f"Hidden: {text}", False)
    return kept if hidden else kept._replace(notes=(*found.notes, "No token is special: none is hidden."))


def _part_of_pair(found: SelectedWeights, settings: Settings) -> SelectedWeights:
    """Keep the rows of one text of a pair and the columns of one, and say how much weight is there."""
    if found.second is None:
        said = f"--between {settings.between} needs a pair of texts, which a model on disk reads."
        raise UsageError(said, "Give the second text: --pair TEXT.", "--between")
    sides = zip(settings.between.split("-"), (len(found.query_tokens), len(found.key_tokens)), strict=True)
    second = found.second
    rows, columns = (np.arange(second) if side == "a" else np.arange(second, n) for side, n in sides)
    text = f"Only from text {settings.between.replace('-', ' to text ')}"
    renormalizes = None if settings.hide_special else settings.renormalize
    return _only(found._replace(second=None), rows, columns, renormalizes, text, True)


def _only(
    found: SelectedWeights, rows: Ints, columns: Ints, renormalizes: bool | None, text: str, tells_left: bool
) -> SelectedWeights:
    """Return the weights of these queries and keys alone, and say how much of each row is left, or has gone.

    Where `renormalizes` is None, the rows are to lose more, which is told then.
    """
    before = found.weights[:, rows]
    weights = before[..., columns]
    sums, left = before.sum(axis=-1), weights.sum(axis=-1)
    share = fixed(float((left if tells_left else sums - left).mean()), 1, "%")
    first, more = f"{text}, with {share} of a row's weight on average.", list[str]()
    if renormalizes:
        weights = np.minimum(weights / np.where(left == 0, 1, left)[..., np.newaxis], 1.0)
        empty = int(((left == 0) & (sums > 0)).sum())
        more = [f"{count(empty, 'row', 'rows')} gave all to hidden tokens: zeros are left."] * (empty > 0)
    told = {None: "", True: " Rows are renormalised.", False: " Rows are not renormalised."}[renormalizes]
    return found._replace(
        query_tokens=tuple(found.query_tokens[i] for i in rows),
        key_tokens=tuple(found.key_tokens[j] for j in columns),
        weights=weights,
        allowed=None if found.allowed is None else found.allowed[np.ix_(rows, columns)],
    ).with_notes(first + told, *more)


FEW = 4  # layers that a formula names one by one


class Rolled(NamedTuple):
    """Attention rollout through the layers so far: weights (n, n), and which keys they can reach (n, n)."""

    weights: Array | None = None
    reached: Bools | None = None  # None: no layer yet

    def through(self, weights: Array, allowed: Bools | None) -> Rolled:
        """Return the rollout after one more layer: the weights of its heads (h, n, n), and its mask (n, n)."""
        n = weights.shape[-1]
        own = np.ones((n, n), np.bool_) if allowed is None else allowed | np.eye(n, dtype=np.bool_)
        reached = own if self.reached is None else own.astype(np.float64) @ self.reached > 0
        return Rolled(head_roles.rolled_out(self.weights, weights), reached)

    def instead_of(self, found: SelectedWeights, settings: Settings) -> SelectedWeights:
        """Return the rollout in the place of its last layer's heads, its pieces joined as `settings` ask."""
        assert self.weights is not None and self.reached is not None
        n, reaches_all = len(self.reached), self.reached.all()
        is_causal = np.array_equal(self.reached, np.tri(n, dtype=np.bool_))
        name = "none" if reaches_all else "causal" if is_causal else "what the layers reach"
        allowed, weights = None if reaches_all else self.reached, np.minimum(self.weights, 1.0)[np.newaxis]
        found = found._replace(head=ROLLOUT, kept=(ROLLOUT,), weights=weights)
        found = found._replace(allowed=allowed, mask_name=name)
        return pieces_joined_or_hidden(found, settings) if joins_or_hides(settings) else found


def check_rollout(settings: Settings) -> None:
    """Raise UsageError for what does not apply to a rollout, which is made of the model's own weights."""
    for option, given in (("--without", settings.without), ("--knock-out", settings.knock_out)):
        said = f"{option} does not apply to a rollout, which follows the weights as they are."
        refuse(settings.head == ROLLOUT and given, said, "Leave one of them out.", option)


def rollout_formula(layer: int) -> str:
    """Return what the rollout up to a layer is.

    >>> rollout_formula(1)
    'weights = A1 A0, each A = (mean of the heads + I) / 2, rows divided by their sums'
    >>> [rollout_formula(n).partition(",")[0].replace("...", "to") for n in (3, 4)]
    ['weights = A3 A2 A1 A0', 'weights = A4 to A1 A0']
    """
    product = [f"A{n}" for n in range(layer, -1, -1)] if layer < FEW else [f"A{layer}", "...", "A1", "A0"]
    return f"weights = {' '.join(product)}, {EACH_ROLLED}"


def rolled_weights(saved: Saved, settings: Settings, mask: Mask | None, is_stated: bool) -> SelectedWeights:
    """Return the rollout through a file's layers up to the one asked for, checked and masked as each of them is."""
    last = wanted_layer(settings, len(saved.weights), saved.name)
    if len(saved.weights) < 2:
        raise UsageError(f"--head rollout goes through layers, and {saved.name} has one.", option="--head")
    check_one_text(is_one_text(saved), saved.name)
    rolled, notes = Rolled(), dict[str, None]()
    for layer in range(last + 1):
        asked = replace(settings, layer=layer, head=ALL, join_pieces=False, hide_special=False)
        found = select_weights(saved, asked, mask, is_stated)
        check_one_text(found.weights.shape[1] == found.weights.shape[2], saved.name)
        rolled = rolled.through(found.weights, found.allowed)
        notes.update(dict.fromkeys(note for note in found.notes if not note.endswith(AS_THEY_ARE)))
    return rolled.instead_of(found._replace(notes=tuple(notes)), settings)


def is_one_text(saved: Saved) -> bool:
    """Tell whether the queries of saved weights are their keys, as far as the file says."""
    return saved.query_tokens == saved.key_tokens and (saved.record or {}).get("kind") != "cross"


def check_one_text(is_one: bool, name: str, option: str = "--head") -> None:
    """Raise UsageError where queries and keys are two texts: no layer hands its keys to the next one's queries."""
    asked = "--head rollout" if option == "--head" else option
    said = f"{asked} needs self-attention; in {name} queries and keys are two texts."
    refuse(not is_one, said, option=option)


def without_selection(settings: Settings) -> Settings:
    """Return settings for the complete trace (all rows, full matrix) from which the requested one is derived."""
    return replace(settings, query=None, versus=None, top=None, full=True)


def between_words(trace: Trace, settings: Settings, second: int | None = None) -> Attended:
    """Return a whole trace's weights between words, or without special tokens, or of a part of a pair, as asked.

    What it becomes has no scores: a score belongs to two pieces, not to two words. `second`: where a pair's b begins.
    """
    start, _, stop = settings.between.partition("-")
    between = f"from text {start} to text {stop}" if stop else ""
    shaped = "joined to words" * settings.join_pieces or "without special tokens" * settings.hide_special
    found = pieces_joined_or_hidden(selected(trace, second), settings)
    of = "the model's weights" if settings.measure == WEIGHT else trace.derived
    return made_of(trace, found, settings, ", ".join(filter(None, (of, between, shaped))))


def selected(trace: Trace, second: int | None = None) -> SelectedWeights:
    """Return a trace's weights, apart from what made them; `second` is where a pair's second text begins."""
    sides, heads = (trace.query_tokens, trace.key_tokens), (trace.head_names, trace.shown.name)
    kept, weights = tuple(head.name for head in trace.heads), np.array([head.weights for head in trace.heads])
    mask, most = (trace.mask, trace.mask_name), 1.0 if trace.settings.measure == WEIGHT else np.inf
    about = trace.projection.layer, trace.notes
    return SelectedWeights(*sides, *heads, kept, weights, *mask, *about, second=second, most=most)


def made_of(trace: Trace, found: SelectedWeights, settings: Settings, derived: str) -> Attended:
    """Return other weights than those of `trace`, made of them; `derived` says how, as a formula would."""
    layer, layers = found.layer_of(trace.projection), trace.stack_layers
    is_two = trace.has_second_input or settings.between in ("a-b", "b-a")
    sides, notes = (Side(found.query_tokens), Side(found.key_tokens)), (*found.notes, *_sunk(trace, settings))
    inputs = Inputs(*sides, True, trace.embedding, notes=notes, has_second_input=is_two)
    finish = partial(replace, derived=derived, stack_layers=layers)
    return Attended(trace.kind, inputs, layer, settings, found.mask, layers or 1, finish=finish)


def _sunk(trace: Trace, settings: Settings) -> list[str]:
    """Return a note on what sinks take of the weights that others are made of, if there are sinks."""
    heads = trace.heads if settings.head == ALL else (trace.shown,)
    shares = [share for head in heads if (share := trace.sink_shares(head)) is not None]
    if not shares:
        return []
    span = " to ".join(dict.fromkeys(fixed(float(end(shares)), 1, "%") for end in (np.min, np.max)))
    taken = "a part of each layer's rows" if settings.head == ROLLOUT else f"{span} of a token's row"
    return [f"Sinks take {taken}; these weights leave that out."]
