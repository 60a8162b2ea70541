"""Masks that files state: read from .npy, .npz, .safetensors, JSON or lines of text, and checked."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from attn_cli.core.masks import Mask
from attn_cli.errors import InputError
from attn_cli.inputs.matrices import json_of, read_record
from attn_cli.io.array_files import is_safetensors, read_npy
from attn_cli.io.escape import visible
from attn_cli.io.files import read_bytes
from attn_cli.io.plural import count


def read_mask(path: str | Path) -> object:
    """Read a mask file: .npy, JSON (rows, or an object with `mask`), or lines of 0 and 1 (true, false)."""
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


def mask_from_values(name: str, values: object, mask_true: str, n_q: int, n_k: int) -> Mask:
    """Return the mask that `values` (n_q, n_k) states; `mask_true` says what True means in it.

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
    if array.shape != (n_q, n_k):
        raise InputError(
            f"The mask in {name} has shape {array.shape}, but there are {count(n_q, 'query', 'queries')} and "
            f"{count(n_k, 'key', 'keys')}.",
            f"Give {count(n_q, 'row', 'rows')} of {count(n_k, 'value', 'values')}.",
        )
    allowed = array.astype(np.bool_)
    return Mask(name, n_q, n_k, allowed if mask_true == "allowed" else ~allowed)
