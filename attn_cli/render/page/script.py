"""The modules of the page as one script, and the page around it, closed by a strict Content-Security-Policy."""

from __future__ import annotations

import re
from base64 import b64encode
from functools import cache
from hashlib import sha256
from json import dumps
from zlib import MAX_WBITS, compress

import numpy as np

from attn_cli.core.masks import MASKS
from attn_cli.core.scores import SCORES
from attn_cli.io.array_types import Array, Bools
from attn_cli.io.files import beside

_IMPORT = re.compile(r'^import \{ (.*?) \} from "\./(\w+)\.js";$', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|const|let|class) ([\w$]+))", re.MULTILINE)
_COMMENT = re.compile(r"^ *//[^\n]*\n|^ */\*.*?\*/\n", re.MULTILINE | re.DOTALL)
_INDENT = re.compile(r"^ +", re.MULTILINE)  # no string of the modules goes over several lines
POLICY = (
    "default-src 'none'; script-src 'sha256-{script}'; style-src 'sha256-{style}'; img-src data: blob:; "
    "base-uri 'none'; form-action 'none'"
)


def script() -> str:
    """Return the modules as one script: each in a function of its own, after those that it imports from.

    Comments are left out. A module may import by name alone, from its neighbours, and not in a circle.
    """
    parts: dict[str, str] = {}
    _add("main", parts, ())
    return '"use strict";\n' + "\n".join(parts.values())


def _add(name: str, parts: dict[str, str], above: tuple[str, ...]) -> None:
    """Add a module, after what it imports."""
    if name in parts:
        return
    if name in above:
        raise ValueError(f"modules of the page import in a circle: {' -> '.join((*above, name))}")
    source = _INDENT.sub("", _COMMENT.sub("", read(f"{name}.js")))
    source = source.replace("/* scores */", _scores()).replace("/* masks */", _masks())
    for _, other in _IMPORT.findall(source):
        _add(other, parts, (*above, name))
    body = _IMPORT.sub(lambda found: f"const {{ {found[1].replace(' as ', ': ')} }} = {found[2]}_js;", source)
    names, body = ", ".join(_EXPORT.findall(body)), _EXPORT.sub("", body).strip()
    parts[name] = f"const {name}_js = (() => {{\n{body}\nreturn {{ {names} }};\n}})();"


def _scores() -> str:
    """Return the entries of SCORES in core.js."""
    return "".join(
        f"\n  {name}: {{ ...sumOf((a, b) => {terms.term}, {terms.rows}), "
        f"isScaled: {dumps(score.is_scaled)}, isPositionScaled: {dumps(score.is_position_scaled)} }},"
        for name, score in SCORES.items()
        if (terms := score.javascript) is not None
    )


def _masks() -> str:
    """Return the entries of MASKS in core.js: of each name, its rules by how many numbers follow it."""
    stems: dict[str, str] = {}
    for name, rule in MASKS.items():
        if rule.javascript:
            stem, made = name.partition(":")[0], f"(i, j, n_q, n_k, a, b) => {rule.javascript}"
            stems[stem] = f"{stems.get(stem, '')}{rule.numbers}: {made}, "
    return "".join(f"\n  {dumps(stem)}: {{ {rules}}}," for stem, rules in stems.items())


def style() -> str:
    """Return the style sheet without comments and indents."""
    return _INDENT.sub("", _COMMENT.sub("", read("page.css")))


@cache
def read(name: str) -> str:
    """Return the text of a file beside this one."""
    return beside(__file__, name)


def policy(script: str, style: str) -> str:
    """Return the policy that lets this script and this style run, and nothing else load or leave."""
    one, other = (b64encode(sha256(text.encode()).digest()).decode() for text in (script, style))
    return POLICY.format(script=one, style=other)


Stored = dict[str, object]  # where an array lies in the page, its type and its shape
REST = 2.0**24
LEAST_PACKED = 4096  # bytes: what is smaller is drawn at once, in the overview


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
        if not (np.isfinite(head).all() and np.isfinite(rest).all()):  # beyond what these can hold
            return self._hold("f64", full.tobytes(), full.shape)
        return self._hold("f48", head.tobytes() + rest.tobytes(), full.shape)

    def add_half(self, array: Array | None) -> Stored | None:
        """Hold an array that is only drawn as float16, or as float32 where that is too small."""
        if array is None:
            return None
        with np.errstate(over="ignore", under="ignore"):
            half = array.astype("<f2")
        if np.isfinite(half).all():
            return self._hold("f16", half.tobytes(), array.shape)
        return self.add(array.astype("<f4"))

    def add_bytes(self, array: Array | Bools) -> Stored:
        """Hold an array of whole numbers from 0 to 255."""
        return self._hold("u8", array.astype(np.uint8).tobytes(), array.shape)

    def add_coarse(self, weights: Array, levels: int) -> dict[str, object]:
        """Hold weights (n_q, n_k) as shares of the largest in their row, in so many steps, and those."""
        tops = weights.max(axis=1, keepdims=True)
        shares = np.rint(weights / np.where(tops == 0, 1, tops) * levels)
        return {"levels": levels, "weights": self.add_bytes(shares), "tops": self.add(tops.astype("<f4"))}

    def _hold(self, kind: str, data: bytes, shape: tuple[int, ...]) -> Stored:
        key = (kind, data)
        packed = compress(data, 6, -MAX_WBITS) if kind == "u8" and len(data) > LEAST_PACKED else data
        is_packed = len(packed) < len(data)
        if key not in self._known:
            self._known[key] = name = f"n{len(self._known)}"
            self.elements.append(
                f'<script type="text/plain" id="{name}">{b64encode(packed).decode()}</script>'
            )
        return {"id": self._known[key], "type": kind, "shape": list(shape)} | (
            {"packed": True} if is_packed else {}
        )
