"""Numbers of the page: arrays as base64, in the smallest type that holds them."""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from attn_cli.io.array_types import Array, Bools

Stored = dict[str, object]  # where an array lies in the page, its type and its shape
REST = 2.0**24


class Numbers:
    """The arrays of one page. Equal arrays are held once; `elements` are the script elements that hold them."""

    def __init__(self) -> None:
        self.elements: list[str] = []
        self._known: dict[tuple[str, bytes], str] = {}

    def add(self, array: Array | None) -> Stored | None:
        """Hold an array as float16 or float32 where that loses nothing, else as float32 and the rest as float16.

        The rest brings each number to within 2^-35 of its size.
        """
        if array is None:
            return None
        full = np.ascontiguousarray(array, dtype="<f8")
        for name, kind in (("f16", "<f2"), ("f32", "<f4")):
            with np.errstate(over="ignore", under="ignore"):
                short = full.astype(kind)
            if np.array_equal(short, full):
                return self._hold(name, short.tobytes(), full.shape)
        head = full.astype("<f4")
        with np.errstate(under="ignore"):
            rest = ((full - head) * REST).astype("<f2")
        if not (
            np.isfinite(head).all() and np.isfinite(rest).all()
        ):  # beyond what float32 or the rest can hold
            return self._hold("f64", full.tobytes(), full.shape)
        return self._hold("f48", head.tobytes() + rest.tobytes(), full.shape)

    def add_bytes(self, array: Array | Bools) -> Stored:
        """Hold an array of whole numbers from 0 to 255."""
        return self._hold("u8", array.astype(np.uint8).tobytes(), array.shape)

    def add_coarse(self, weights: Array) -> dict[str, Stored | None]:
        """Hold weights (n_q, n_k) as 8-bit shares of the largest in their row, and those."""
        tops = weights.max(axis=1, keepdims=True)
        shares = np.rint(weights / np.where(tops == 0, 1, tops) * 255)
        return {"weights": self.add_bytes(shares), "tops": self.add(tops.astype("<f4"))}

    def _hold(self, kind: str, data: bytes, shape: tuple[int, ...]) -> Stored:
        key = (kind, data)
        if key not in self._known:
            self._known[key] = name = f"n{len(self._known)}"
            self.elements.append(f'<script type="text/plain" id="{name}">{b64encode(data).decode()}</script>')
        return {"id": self._known[key], "type": kind, "shape": list(shape)}
