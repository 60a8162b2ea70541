"""The mask of a run: the one asked for by name or in a file, or the one given, joined with padding."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from attn_cli.core import masks
from attn_cli.core.mask_arguments import stretches
from attn_cli.errors import InputError, UsageError
from attn_cli.io.array_files import is_safetensors, read_npy
from attn_cli.io.escape import visible
from attn_cli.io.files import looks_like_file, read_bytes, regular
from attn_cli.io.plural import count
from attn_cli.pipeline.embed import Inputs, Side
from attn_cli.settings.settings import Settings
from attn_cli.settings.validate import find_rows


def wanted_mask(settings: Settings, given: object, inputs: Inputs, name: str = "") -> masks.Mask | None:
    """Return the mask that is wanted, joined with padding and --without; a stated one states the text's own tokens."""
    query, key = inputs.query, inputs.key
    mask = stated_mask(settings, given, len(query.own), len(key.own), name)
    if key.padding:
        mask = _padded(mask, query, key)
    return without_keys(mask, settings, query.tokens, key.tokens)


def without_keys(
    mask: masks.Mask | None, settings: Settings, queries: Sequence[str], keys: Sequence[str]
) -> masks.Mask | None:
    """Return the mask that also hides the keys that --without names."""
    found = (find_rows(one, keys, "--without") for one in settings.without)
    off = sorted({key for places in found for key in places})
    return masks.with_off(mask, len(queries), len(keys), tuple(off))


def _padded(mask: masks.Mask | None, query: Side, key: Side) -> masks.Mask:
    """Return the mask over all tokens that also hides the padding."""
    n_q, n_k = len(query.tokens), len(key.tokens)
    if mask is not None and mask.array is None:
        mask = mask._replace(n_q=n_q, n_k=n_k)
    elif mask is not None:
        mask = masks.widened(mask, n_q, n_k, query.own, key.own)
    return masks.with_padding(mask, n_q, n_k, key.padding)


def wanted_masks(
    settings: Settings, given: object, inputs: Inputs, name: str, heads: int
) -> list[masks.Mask | None]:
    """Return the mask that is wanted as `wanted_mask` does: one for all heads, or of three axes one a head."""
    parts = [given] if settings.mask is not None else _by_heads(given, name, heads)
    return [wanted_mask(settings, part, inputs, name) for part in parts]


def _by_heads(given: object, name: str, heads: int) -> list[object]:
    """Return what a mask (heads, n_q, n_k) says of each head; any other is one for all."""
    if given is None or isinstance(given, str):
        return [given]
    try:
        array = np.asarray(given)
    except ValueError:  # later an InputError says what it is
        return [given]
    if array.ndim != 3:
        return [given]
    if len(array) not in (1, heads):
        raise InputError(
            f"The mask in {name} has shape {array.shape}, but there {'is' if heads == 1 else 'are'} "
            f"{count(heads, 'head', 'heads')}.",
            "A mask of three axes is (heads, n_q, n_k).",
        )
    return list(array)


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
        raise UsageError(
            "A mask file needs --mask-true allowed or --mask-true blocked: what does True mean in it?",
            "True is 'may attend' in torch's scaled_dot_product_attention and in Keras, "
            "'blocked' in torch's MultiheadAttention.",
            option="--mask-true",
        )
    return mask_from_values(visible(wanted), read_mask(wanted), settings.mask_true, n_q, n_k)


def read_mask(path: str | Path) -> object:
    """Read a mask file: .npy, JSON (rows, or an object with `mask`), or lines of 0 and 1 (true, false)."""
    from attn_cli.inputs.record import json_of, read_record  # only those who give a file need it

    data = read_bytes(path)
    if data[:6] == b"\x93NUMPY":
        return read_npy(path)
    if data[:2] == b"PK" or is_safetensors(data):
        content: object = read_record(path)
    elif data.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"[", b"{"):
        content = json_of(data, visible(str(path)))
    else:
        return _mask_lines(data.decode("utf-8-sig", "replace"), visible(str(path)))
    if not isinstance(content, dict):
        return content
    if "mask" not in content:
        raise InputError(f"{visible(str(path))} holds no array named mask.")
    return content["mask"]


def _mask_lines(text: str, name: str) -> list[list[bool]]:
    meaning = {"0": False, "1": True, "false": False, "true": True, "f": False, "t": True}
    rows = []
    for number, line in enumerate(text.splitlines(), 1):
        cells = line.replace(",", " ").replace(";", " ").lower().split()
        unknown = [cell for cell in cells if cell not in meaning]
        if unknown:
            raise InputError(f"{name}, line {number}: {visible(unknown[0][:40])!r} is neither 0 nor 1.")
        if cells:
            rows.append([meaning[cell] for cell in cells])
    return rows


def mask_from_values(
    name: str, values: object, mask_true: str, n_q: int, n_k: int, may_stretch: bool = False
) -> masks.Mask:
    """Return the mask that `values` (n_q, n_k) states; `mask_true` says what True means in it.

    With `may_stretch`, an axis of 1 counts for all queries, or for all keys.

    Values are booleans, or the numbers 0 and 1. `allowed` is the polarity of torch's
    scaled_dot_product_attention and of Keras, `blocked` that of torch's MultiheadAttention.
    """
    try:
        array = np.asarray(values)
    except ValueError:
        raise InputError(f"The mask in {name} is not a rectangle: its rows differ in length.") from None
    if array.dtype != np.bool_ and not (array.dtype.kind in "iuf" and np.isin(array, (0, 1)).all()):
        raise InputError(
            f"The mask in {name} holds other values than true and false (or 1 and 0).",
            "State for each query which keys it may attend to.",
        )
    fits = array.ndim == 2 and may_stretch and stretches(array.shape, (n_q, n_k))
    if not fits and array.shape != (n_q, n_k):
        raise InputError(
            f"The mask in {name} has shape {array.shape}, but there are {count(n_q, 'query', 'queries')} and "
            f"{count(n_k, 'key', 'keys')}.",
            f"Give {count(n_q, 'row', 'rows')} of {count(n_k, 'value', 'values')}.",
        )
    allowed = np.broadcast_to(array.astype(np.bool_), (n_q, n_k))
    return masks.Mask(name, n_q, n_k, allowed if mask_true == "allowed" else ~allowed)
