"""A mask as an array of values, as a file states it: which polarity, which shape."""

from __future__ import annotations

import numpy as np

from attn_cli.core.masks import Mask
from attn_cli.errors import InputError
from attn_cli.io.plural import count


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
