"""The mask of a run: the one asked for by name or in a file, or the one given, joined with padding."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from attn_cli.core import arguments, masks
from attn_cli.errors import InputError, UsageError, count, refuse_input, shortened, visible
from attn_cli.io.files import looks_like_file, read_bytes, regular
from attn_cli.io.types import Bools, Ints, NDArray
from attn_cli.pipeline import Inputs
from attn_cli.settings import Settings, find_rows
from attn_cli.text.wordpieces import is_padding, is_special

MASK_HINT = " (--mask none shows zeros)"


def wanted_mask(settings: Settings, given: object, inputs: Inputs, name: str = "") -> masks.Mask | None:
    """Return the mask that is wanted, joined with padding and --without; a stated one is over the text's own tokens."""
    query, key = inputs.query, inputs.key
    mask = stated_mask(settings, given, len(query.own), len(key.own), name)
    if key.padding:
        n_q, n_k = len(query.tokens), len(key.tokens)
        if mask is not None and mask.array is not None:
            mask = masks.widened(mask, n_q, n_k, query.own, key.own)
        mask = masks.with_padding(mask and mask._replace(n_q=n_q, n_k=n_k), n_q, n_k, key.padding)
    return without_keys(mask, settings, query.tokens, key.tokens)


def without_keys(
    mask: masks.Mask | None, settings: Settings, queries: Sequence[str], keys: Sequence[str]
) -> masks.Mask | None:
    """Return the mask that also hides the keys that --without names."""
    found = (find_rows(one, keys, "--without") for one in settings.without)
    excluded = sorted({key for places in found for key in places})
    if not excluded:
        return mask
    return (mask or masks.Mask("none", len(queries), len(keys)))._replace(excluded=tuple(excluded))


def wanted_masks(
    settings: Settings, given: object, inputs: Inputs, name: str, heads: int
) -> list[masks.Mask | None]:
    """Return the masks that are wanted, as `wanted_mask` does: one for all heads, or one per head."""
    try:
        array = np.asarray(given)
    except ValueError:  # rows of different lengths, which `mask_from_values` refuses
        array = np.zeros(0)
    if settings.mask is not None or array.ndim != 3:
        return [wanted_mask(settings, given, inputs, name)]
    there = f"there {'is' if heads == 1 else 'are'} {count(heads, 'head', 'heads')}"
    said = f"The mask in {name} has shape {array.shape}, but {there}."
    refuse_input(len(array) not in (1, heads), said, "A mask of three axes is (heads, n_q, n_k).")
    return [wanted_mask(settings, part, inputs, name) for part in array]


def stated_mask(settings: Settings, given: object, n_q: int, n_k: int, name: str) -> masks.Mask | None:
    """Return the mask of the settings, by name or from a file, else the one that `name` gives."""
    wanted = settings.mask
    if wanted is None and given is not None:
        if not isinstance(given, str):
            return mask_from_values(name, given, "allowed", n_q, n_k, may_stretch=True)
        try:
            return masks.named(given, n_q, n_k)
        except UsageError as error:
            raise InputError(f"{name}: {error.message}", error.hint) from None
    if wanted is None or not looks_like_file(wanted):
        return masks.named("none" if wanted is None else wanted, n_q, n_k)
    regular(wanted)
    if settings.mask_true is None:
        said = "A mask file needs --mask-true allowed or --mask-true blocked: what does True mean in it?"
        hint = "True is 'may attend' in torch's scaled_dot_product_attention and in Keras, 'blocked' in "
        raise UsageError(said, f"{hint}torch's MultiheadAttention.", "--mask-true")
    return mask_from_values(visible(wanted), read_mask(wanted), settings.mask_true, n_q, n_k)


def read_mask(path: str | Path) -> object:
    """Read a mask file: .npy, JSON (rows, or an object with `mask`), or lines of 0 and 1 (true, false)."""
    from attn_cli.inputs.record import is_binary, values_in  # only those who give a file need it

    data, name = read_bytes(path), visible(str(path))
    if is_binary(data) or data.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"[", b"{"):
        content = values_in(data, name)
        if isinstance(content, dict) and "mask" not in content:
            raise InputError(f"{name} holds no array named mask.")
        return content["mask"] if isinstance(content, dict) else content
    meaning = {"0": False, "1": True, "false": False, "true": True, "f": False, "t": True}
    rows = []
    for number, line in enumerate(data.decode("utf-8-sig", "replace").splitlines(), 1):
        cells = line.replace(",", " ").replace(";", " ").lower().split()
        for cell in cells:
            if cell not in meaning:
                raise InputError(f"{name}, line {number}: {visible(cell[:40])!r} is neither 0 nor 1.")
        rows += [[meaning[cell] for cell in cells]] if cells else []
    return rows


def mask_from_values(
    name: str, values: object, mask_true: str, n_q: int, n_k: int, may_stretch: bool = False
) -> masks.Mask:
    """Return the mask that `values` (n_q, n_k) state, booleans or 0 and 1; `mask_true` says what True means in it.

    `allowed` is the polarity of torch's scaled_dot_product_attention and of Keras, `blocked` that of torch's
    MultiheadAttention. With `may_stretch`, an axis of 1 counts for all queries, or for all keys.
    """
    try:
        array = np.asarray(values)
    except ValueError:
        raise InputError(f"The mask in {name} is not a rectangle: its rows differ in length.") from None
    if array.dtype != np.bool_ and not (array.dtype.kind in "iuf" and np.isin(array, (0, 1)).all()):
        said = f"The mask in {name} holds other values than true and false (or 1 and 0)."
        raise InputError(said, "State for each query which keys it may attend to.")
    fits = array.ndim == 2 and may_stretch and arguments.stretches(array.shape, (n_q, n_k))
    if not fits and array.shape != (n_q, n_k):
        sides = f"{count(n_q, 'query', 'queries')} and {count(n_k, 'key', 'keys')}"
        hint = f"Give {count(n_q, 'row', 'rows')} of {count(n_k, 'value', 'values')}."
        raise InputError(f"The mask in {name} has shape {array.shape}, but there are {sides}.", hint)
    allowed = np.broadcast_to(array.astype(np.bool_), (n_q, n_k))
    return masks.Mask(name, n_q, n_k, allowed if mask_true == "allowed" else ~allowed)


def weighted_links(weights: NDArray[Any]) -> Bools:
    """Return which links (n_q, n_k) get weight in any layer or head of (..., n_q, n_k); NaN is no weight."""
    used = np.zeros(weights.shape[-2:], np.bool_)
    for matrix in weights.reshape(-1, *used.shape):
        used |= np.abs(matrix) > 0
    return used


def infer_mask(
    used: Bools, in_layer: Bools, tokens: tuple[str, ...], padded: Bools | None = None
) -> tuple[Bools | None, str, Ints, list[str]]:
    """Return the mask that the exact zeros of saved weights imply, its name, the rows of padding, and notes.

    `used` (n_q, n_k) tells the links that get weight in any layer, `in_layer` those of the layer that is shown, and
    `padded` (n_k) the keys that an attention mask hides, where the file has one.
    """
    (n_q, n_k), notes, name, lead = used.shape, [], "exact zeros", 0
    special = np.flatnonzero([is_special(token) for token in tokens])
    hidden, where = special[~used[:, special].any(axis=0)], "as padding does"
    if len(hidden) == n_k:  # a word may get none unmasked, as tiny weights become zero
        hidden = hidden[:0]
    own = np.ones(n_q, np.bool_) if padded is None or n_q != n_k else ~padded  # queries that are none
    if padded is not None and not used[np.ix_(own, padded)].any():
        hidden, lead = np.flatnonzero(padded), left_padding(used, tokens, padded)
        where = "and attention_mask says that it is padding"
    elif padded is not None:
        notes.append("The file's attention_mask hides keys that get weight, and is not used")
    elif (found := left_padding(used, tokens)) and _is_causal(used[found:, found:]):
        lead, hidden = found, np.union1d(hidden, np.arange(found))
        where = "as padding on the left does"
    allowed = np.ones((n_q, n_k), np.bool_)
    if _is_causal(used[lead:, lead:]):
        allowed, name = np.tri(n_q, dtype=np.bool_), "causal"
        behind = "Behind the padding, all weights" if lead else "All weights"
        zeros = f"{behind} above the diagonal are exactly 0"
        notes.append(f"{zeros}, so they are treated as causally masked{MASK_HINT}")
    allowed[:, hidden] = False
    idle = padding_rows(in_layer, allowed)
    if len(hidden):
        rows = "; its own rows are meaningless and shown as zeros" if len(idle) else ""
        notes.append(f"{shortened(tokens[hidden[0]])} gets exactly 0, {where}: masked{rows}{MASK_HINT}")
    fully_masked = ~in_layer.any(axis=1)
    allowed[fully_masked] = False
    allowed[idle] = False
    name = "exact zeros" if len(hidden) or fully_masked.any() else name
    return None if allowed.all() else allowed, name, idle, [f"{note}." for note in notes]


def left_padding(used: Bools, tokens: tuple[str, ...], padded: Bools | None = None) -> int:
    """Return how many tokens pad a text on the left: no link of `used` (n_q, n_k) leads to them from their right.

    They are one special token, repeated or named for padding, or those that `padded` tells; their rows mean nothing.
    """
    n_q, n_k = used.shape
    if n_q != n_k:
        return 0
    is_candidate = [is_special(token) and token == tokens[0] for token in tokens]
    run = int(np.argmin([*(is_candidate if padded is None else padded), False]))
    last = np.where(used[:, :run], np.arange(n_q)[:, np.newaxis], -1).max(axis=0, initial=-1)
    ends = np.flatnonzero(np.maximum.accumulate(last) <= np.arange(run)) + 1
    count = int(ends[-1]) if len(ends) else 0
    is_plain = padded is None and count == 1 and not is_padding(tokens[0])
    return 0 if is_plain or count == n_q else count


def padding_rows(in_layer: Bools, allowed: Bools) -> Ints:
    """Return the rows of a layer with weight where the mask (n_q, n_k) allows none."""
    return np.flatnonzero((in_layer & ~allowed).any(axis=1))


def _is_causal(used: Bools) -> bool:
    """Tell whether no weight lies above the diagonal, and some below it."""
    n_q, n_k = used.shape
    return n_q == n_k > 1 and not np.triu(used, 1).any() and bool(np.tril(used, -1).any())
