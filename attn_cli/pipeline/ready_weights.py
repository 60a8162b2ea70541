"""One layer's weights without scores: checked and masked, pieces joined to words, special tokens hidden."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np

from attn_cli.core import masks
from attn_cli.core.masks import find_rule
from attn_cli.core.scores import GIVEN
from attn_cli.errors import InputError, UsageError
from attn_cli.inputs.saved_weights import Saved
from attn_cli.io.array_types import Array, Bools, Ints, NDArray
from attn_cli.io.escape import count, fixed, shortened
from attn_cli.models.projection import Projection
from attn_cli.pipeline.inputs import Layer, shown_head, wanted_layer
from attn_cli.pipeline.mask import infer_mask, left_padding, padding_rows, weighted_links
from attn_cli.settings.settings import ALL, Settings
from attn_cli.text import wordpieces as pieces
from attn_cli.trace.head import Head, Projected

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
    is_joined_or_hidden: bool = False
    second: int | None = None  # the place where the second text of a pair begins
    most: float = 1.0  # that any of them can be

    @property
    def mask(self) -> masks.Mask | None:
        """The mask, as a rule where it still is one; None where all is allowed."""
        n_q, n_k = self.weights.shape[1:]
        if self.allowed is None or self.allowed.all():
            return None
        if find_rule(self.mask_name) is None:
            return masks.Mask(self.mask_name, n_q, n_k, self.allowed)
        rule = masks.Mask(self.mask_name, n_q, n_k)
        if np.array_equal(rule.rows(np.arange(n_q)), self.allowed):
            return rule
        return masks.Mask(f"{self.mask_name} of all tokens", n_q, n_k, self.allowed)

    def with_notes(self, *notes: str) -> SelectedWeights:
        """Return the same with these notes too."""
        return self._replace(notes=(*self.notes, *notes))

    def layer_of(self, about: Projected) -> Layer:
        """Return the layer of these heads, with nothing left to compute."""
        heads = (Head(name, ready=one) for name, one in zip(self.kept, self.weights, strict=True))
        return Layer(self.head_names, self.head, tuple(heads), Projection(about, ()), score=GIVEN)


def select_weights(
    saved: Saved, settings: Settings, mask: masks.Mask | None, is_stated: bool
) -> SelectedWeights:
    """Return one layer of saved weights, masked, joined and renormalized as asked.

    Where nobody stated a mask, one is inferred from exact zeros; where somebody did (`is_stated`), it is `mask`, and
    every weight that it hides must be zero.
    """
    layer = wanted_layer(settings, len(saved.weights), saved.name)
    head = shown_head(settings.head, saved.heads)
    chosen = head in saved.heads and settings.head != ALL and not settings.every_head
    kept = [saved.heads.index(head)] if chosen else list(range(len(saved.heads)))
    names = tuple(saved.heads[h] for h in kept)
    of_kept = saved.weights[layer, kept[0] : kept[-1] + 1]
    weights, notes = _sound(of_kept.astype(np.float64), saved.name, names)
    if len(saved.weights) > 1 and settings.layer is None:
        notes.insert(0, f"Layer {layer} is shown, the last of 0 to {layer}.")
    n_q, n_k = weights.shape[1:]
    found = SelectedWeights(
        saved.query_tokens or tuple(f"q{i}" for i in range(n_q)),
        saved.key_tokens or tuple(f"k{j}" for j in range(n_k)),
        saved.heads,
        head,
        names,
        weights,
        None if mask is None else mask.rows(np.arange(n_q)),
        "none" if mask is None else mask.name,
        layer if len(saved.weights) > 1 else saved.layer,
        tuple(notes),
    )
    if not is_stated or mask is not None:
        used, in_layer = weighted_links(saved.weights), weighted_links(saved.weights[layer])
        if is_stated:
            found = _with_given_mask(found, used, in_layer, saved.padded)
        else:
            allowed, name, padding, more = infer_mask(used, in_layer, found.key_tokens, saved.padded)
            found = _zeroed(found, padding)._replace(allowed=allowed, mask_name=name).with_notes(*more)
    found = found.with_notes(*_sums(found, COARSE if _is_bfloat16(saved.weights[layer]) else SUM_TOLERANCE))
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
        h, i, j = (int(n) for n in np.argwhere(bad)[0])
        raise InputError(
            f"{name}: the weight of head {shortened(heads[h])}, query {i}, key {j} is {weights[h, i, j]:.6g}; "
            "weights lie between 0 and 1.",
            "Are these scores, before the softmax, or weights under dropout (model.eval() turns it off)?",
        )
    rows = count(int(fully_masked.any(axis=0).sum()), "query has", "queries have")
    note = f"{rows} NaN weights, as PyTorch returns for fully masked rows; shown as zeros."
    return np.minimum(np.where(missing, 0.0, weights), 1.0) + 0.0, [note]


def _with_given_mask(
    found: SelectedWeights, used: Bools, in_layer: Bools, padded: Bools | None
) -> SelectedWeights:
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
        token = shortened(found.key_tokens[0])
        found = _zeroed(found, idle)._replace(allowed=allowed, mask_name="exact zeros")
        masked = "masked; its own rows mean nothing, and zeros stand in."
        found = found.with_notes(f"{token} pads the text on the left: {masked}")
    wrong = np.argwhere(found.weights.any(axis=0) & ~allowed)
    if len(wrong):
        i, j = (int(n) for n in wrong[0])
        raise InputError(
            f"The mask {found.mask_name} shuts query {i} ({shortened(found.query_tokens[i])}) off from key {j} "
            f"({shortened(found.key_tokens[j])}), but its weight there is {found.weights[:, i, j].max():.3g}.",
            "Leave out --mask, or give the mask under which the weights were made.",
        )
    return found


def _zeroed(found: SelectedWeights, rows: Ints) -> SelectedWeights:
    weights = found.weights.copy()
    weights[:, rows] = 0.0
    return found._replace(weights=weights)


def _is_bfloat16(weights: NDArray[Any]) -> bool:
    """Tell whether float32 numbers have the precision of bfloat16: the lower half of their bits is empty."""
    if weights.dtype != np.float32:
        return False
    return not (np.ascontiguousarray(weights).view(np.uint32) & 0xFFFF).any()


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
    queries, keys = (pieces.words(tokens, marks) for tokens in sides)
    if marks is not None:
        found = _joined(found, queries, keys)
    elif settings.join_pieces:
        unmarked = "No token has the mark of a word piece (##, Ġ, ▁, @@ or </w>): none is joined."
        found = found.with_notes(unmarked)
    if settings.hide_special:
        found = _without_special(found, queries, keys, settings.renormalize)
    return found._replace(is_joined_or_hidden=True)


def _joined(found: SelectedWeights, queries: list[pieces.Word], keys: list[pieces.Word]) -> SelectedWeights:
    sizes = ((len(found.query_tokens), len(queries)), (len(found.key_tokens), len(keys)))
    text = ", ".join(f"{old:,} tokens made {count(n, 'word', 'words')}" for old, n in dict.fromkeys(sizes))
    return found._replace(
        query_tokens=tuple(word.name for word in queries),
        key_tokens=tuple(word.name for word in keys),
        weights=np.minimum(pieces.join(found.weights, queries, keys), found.most),
        allowed=None if found.allowed is None else pieces.join_mask(found.allowed, queries, keys),
    ).with_notes(f"Word pieces are joined ({text}): sums over a key's pieces, means over a query's.")


def _part_of_pair(found: SelectedWeights, settings: Settings) -> SelectedWeights:
    """Keep the rows of one text of a pair and the columns of one, and say how much weight is there."""
    if found.second is None:
        said = f"--between {settings.between} needs a pair of texts, which a model on disk reads."
        raise UsageError(said, "Give the second text: --pair TEXT.", "--between")
    sides = zip(settings.between.split("-"), (len(found.query_tokens), len(found.key_tokens)), strict=True)
    second = found.second
    rows, columns = (np.arange(second) if side == "a" else np.arange(second, n) for side, n in sides)
    is_last = not settings.hide_special
    found, sums, left = _only(found, rows, columns, settings.renormalize and is_last)
    what = settings.between.replace("-", " to text ")
    rest = _rest(sums, left, settings.renormalize) if is_last else [""]
    share = fixed(float(left.mean()), 1, "%")
    first = f"Only from text {what}, with {share} of a row's weight on average. {rest[0]}"
    return found._replace(second=None).with_notes(first.rstrip(), *rest[1:])


def _without_special(
    found: SelectedWeights, queries: list[pieces.Word], keys: list[pieces.Word], renormalize: bool
) -> SelectedWeights:
    """Leave out the rows and the columns of special tokens, and say how much weight went with them."""
    hidden = [word.name for word in (*queries, *keys) if word.is_special]
    rows, columns = (np.flatnonzero([not word.is_special for word in words]) for words in (queries, keys))
    if not len(rows) or not len(columns):
        raise InputError("Nothing is left: all tokens are special.", "Leave out --hide-special.")
    found, sums, left = _only(found, rows, columns, renormalize)
    if not hidden:
        return found.with_notes("No token is special: none is hidden.")
    names = list(dict.fromkeys(map(shortened, hidden)))
    text = ", ".join(names[:MOST_NAMED]) + (" and others" if len(names) > MOST_NAMED else "")
    share, (rest, *more) = fixed(float((sums - left).mean()), 1, "%"), _rest(sums, left, renormalize)
    return found.with_notes(f"Hidden: {text}, with {share} of a row's weight on average. {rest}", *more)


def _only(
    found: SelectedWeights, rows: Ints, columns: Ints, renormalize: bool
) -> tuple[SelectedWeights, Array, Array]:
    """Return the weights of these queries and keys alone, and the sum of each row before and after."""
    before = found.weights[:, rows]
    weights = before[..., columns]
    sums, left = before.sum(axis=-1), weights.sum(axis=-1)
    if renormalize:
        weights = np.minimum(weights / np.where(left == 0, 1, left)[..., np.newaxis], 1.0)
    kept = found._replace(
        query_tokens=tuple(found.query_tokens[i] for i in rows),
        key_tokens=tuple(found.key_tokens[j] for j in columns),
        weights=weights,
        allowed=None if found.allowed is None else found.allowed[np.ix_(rows, columns)],
    )
    return kept, sums, left


def _rest(sums: Array, left: Array, renormalize: bool) -> list[str]:
    """Return notes on what became of rows whose other weights are not shown."""
    empty = int(((left == 0) & (sums > 0)).sum())
    if not renormalize:
        return ["Rows are not renormalised."]
    more = [f"{count(empty, 'row', 'rows')} gave all to hidden tokens: zeros are left."] if empty else []
    return ["Rows are renormalised.", *more]
