"""What a page carries: the modules that compute in the browser, the masks as expressions, and its heads."""

from __future__ import annotations

import re
from base64 import b64encode
from functools import cache
from hashlib import sha256
from json import dumps
from zlib import DEFLATED, MAX_WBITS, Z_RLE, compressobj

import numpy as np

from attn_cli.core import masks, scores
from attn_cli.io.files import beside
from attn_cli.io.types import Array, Bools
from attn_cli.pipeline.for_page import Page
from attn_cli.render.ramps import SHADES
from attn_cli.trace import ROTATED, Head, Trace
from attn_cli.trace.head_roles import MIXED, Pattern, Text, find_patterns, measure_shares, named

_IMPORT = re.compile(r'^import \{ (.*?) \} from "\./(\w+)\.js";$', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|const|let|class) ([\w$]+))", re.MULTILINE)
_COMMENT = re.compile(r"^ *//[^\n]*\n|^ */\*.*?\*/\n", re.MULTILINE | re.DOTALL)
_INDENT = re.compile(r"^ +", re.MULTILINE)  # no string of the modules goes over several lines
POLICY = (
    "default-src 'none'; script-src 'sha256-{script}'; style-src 'sha256-{style}'; img-src data: blob:; "
    "base-uri 'none'; form-action 'none'"
)


def script() -> str:
    """Return the modules as one script: each bare, in a function of its own, after those that it imports from."""
    parts: dict[str, str] = {}
    _add("main", parts)
    return '"use strict";\n' + "\n".join(parts.values())


def _add(name: str, parts: dict[str, str]) -> None:
    # A module may import by name alone, from its neighbours, and not in a circle.
    source = _bare(f"{name}.js").replace("/* scores */", _scores()).replace("/* masks */", _masks())
    for _, other in _IMPORT.findall(source):
        if other not in parts:
            _add(other, parts)
    body = _IMPORT.sub(lambda found: f"const {{ {found[1].replace(' as ', ': ')} }} = {found[2]}_js;", source)
    names, body = ", ".join(_EXPORT.findall(body)), _EXPORT.sub("", body).strip()
    parts[name] = f"const {name}_js = (() => {{\n{body}\nreturn {{ {names} }};\n}})();"


def _scores() -> str:
    return "".join(
        f"\n  {name}: {{ ...sumOf((a, b) => {terms.term}, {terms.rows}), "
        f"isScaled: {dumps(score.is_scaled)}, isPositionScaled: {dumps(score.is_position_scaled)} }},"
        for name, score in scores.SCORES.items()
        if (terms := score.javascript) is not None
    )


def _masks() -> str:
    """Return the entries of MASKS in core.js: of each name, its rules by how many numbers follow it."""
    stems: dict[str, str] = {}
    for name, rule in masks.MASKS.items():
        if rule.javascript:
            stem, made = name.partition(":")[0], f"(i, j, n_q, n_k, a, b) => {rule.javascript}"
            stems[stem] = f"{stems.get(stem, '')}{name.count(':')}: {made}, "
    return "".join(f"\n  {dumps(stem)}: {{ {rules}}}," for stem, rules in stems.items())


def style() -> str:
    """Return the style sheet without comments and indents."""
    return _bare("page.css")


def _bare(name: str) -> str:
    return _INDENT.sub("", _COMMENT.sub("", read(name)))


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
        with np.errstate(over="ignore", under="ignore"):
            for name, kind in (("f16", "<f2"), ("f32", "<f4")):
                if np.array_equal(short := full.astype(kind), full):
                    return self._hold(name, short.tobytes(), full.shape)
            head = full.astype("<f4")
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
        is_held = np.isfinite(half).all()
        return self._hold("f16", half.tobytes(), array.shape) if is_held else self.add(array.astype("<f4"))

    def add_bytes(self, array: Array | Bools) -> Stored:
        """Hold an array of whole numbers from 0 to 255."""
        return self._hold("u8", array.astype(np.uint8).tobytes(), array.shape)

    def add_coarse(self, weights: Array, levels: int) -> dict[str, object]:
        """Hold weights (n_q, n_k) as shares of the largest in their row, in so many steps, and those."""
        tops = weights.max(axis=1, keepdims=True)
        shares = np.rint(weights * (levels / np.where(tops == 0, 1, tops)))
        return {"levels": levels, "weights": self.add_bytes(shares), "tops": self.add(tops.astype("<f4"))}

    def _hold(self, kind: str, data: bytes, shape: tuple[int, ...]) -> Stored:
        key, is_packed = (kind, data), kind == "u8" and len(data) > LEAST_PACKED
        # Of weights, runs alone are found: other matches would cost time, and bits.
        packer = compressobj(6, DEFLATED, -MAX_WBITS, strategy=Z_RLE)
        packed = packer.compress(data) + packer.flush() if is_packed else data
        if key not in self._known:
            self._known[key], held = f"n{len(self._known)}", b64encode(packed).decode()
            self.elements.append(f'<script type="text/plain" id="{self._known[key]}">{held}</script>')
        said = {"packed": True} if is_packed else {}
        return {"id": self._known[key], "type": kind, "shape": list(shape), **said}


MOST_EDITED = 150  # numbers of a matrix that can be typed over
SMALL_MAP = 16
# Steps from 0 to a row's largest weight, in pages of at most so many weights: what is drawn has SHADES shades.
STEPS_OF_ROUNDED = ((500_000, 255), (6_000_000, SHADES - 1), (float("inf"), SHADES // 2 - 1))


def layer_of(trace: Trace, page: Page, place: int, numbers: Numbers) -> dict[str, object]:
    """Return a layer: its input, its mask and its heads."""
    made_of = [[M for M in (one.q, one.k, one.v) if M is not None] or [one.weights] for one in trace.heads]
    size = sum(M.size for arrays in made_of for M in arrays)
    is_open = place == page.shown
    # A typed sentence needs the matrices of every head, whatever their number.
    is_small = page.words is not None or size * page.n_layers <= page.most_exact
    cells = page.n_layers * sum(head.weights.size for head in trace.heads)
    levels = next(levels for most, levels in STEPS_OF_ROUNDED if cells <= most)
    number, made = trace.projection.layer or 0, []
    roles = _roles(trace) if page.n_layers > 1 else {}
    for head in trace.heads:
        is_asked = bool({head.name, f"{number}/{head.name}"} & {*page.exact})
        is_first = is_open and (size <= page.most_exact or head.name == trace.shown.name)
        exact = is_small or is_asked or (is_first and not page.exact)
        about = {"name": head.name, "about": page.about.get(head.name, ""), "role": roles.get(head.name, "")}
        made.append(about | _head(trace, head, numbers, 0 if exact else levels, page.words is not None))
    hold = numbers.add if is_small else numbers.add_half if is_open else lambda _: None
    return {
        "number": number,
        "x": hold(trace.x_query),
        "xKey": hold(trace.x_key) if trace.has_second_input else None,
        "rounded": not is_small,
        "allowed": None if trace.mask is None or page.n_layers == 1 else numbers.add_bytes(trace.mask),
        "heads": made,
    }


def _roles(trace: Trace) -> dict[str, str]:
    """Return what each head that has but a number does on this text, where it clearly does something."""
    is_text, found = trace.query_ids is not None, {}
    queries, keys = (tokens if is_text else None for tokens in (trace.query_tokens, trace.key_tokens))
    text, patterns = Text(queries, keys, not trace.has_second_input), dict[int, dict[str, Pattern]]()
    for head in trace.heads:
        mask, key = trace.mask_of(head), id(head.mask)
        allowed = np.ones(head.weights.shape, np.bool_) if mask is None else mask
        patterns[key] = patterns.get(key) or find_patterns(text, allowed)
        name = named(measure_shares(head.weights, allowed, patterns[key]), patterns[key])
        found[head.name] = name if head.name.isdigit() and name != MIXED else ""
    return found


def _head(trace: Trace, head: Head, numbers: Numbers, levels: int, with_weights: bool) -> dict[str, object]:
    """Return a head: q, k and v, or what makes them; or, with `levels`, its weights alone, rounded to that many."""
    made: dict[str, object] = {} if head.lengths is None else {"lengths": numbers.add(head.lengths)}
    if len(head.weights.ravel()) > 64 * 64:
        # A small picture: the largest weight of each block, as shares of the largest of all.
        edges = [np.linspace(0, n, min(n, SMALL_MAP) + 1).astype(int)[:-1] for n in head.weights.shape]
        blocks = np.maximum.reduceat(np.maximum.reduceat(head.weights, edges[0], axis=0), edges[1], axis=1)
        made["thumb"] = numbers.add_bytes(np.rint(blocks / (blocks.max() or 1) * 255))
    if levels:
        return made | numbers.add_coarse(head.weights, levels)
    if head.q is None or head.v is None or not trace.is_scored or trace.score not in scores.SCORES:
        return made | {"weights": numbers.add(head.weights)}
    made |= {"scale": head.scale, "softcap": head.softcap, "sink": head.sink}
    if head.mask is not None:
        made["allowed"] = numbers.add_bytes(head.mask.rows(trace.rows))
    for name in ROTATED if head.rotated is not None else ():
        made[name] = numbers.add(getattr(head, name))
    if with_weights and head.W is not None:
        # W and b as in x W; an identity is left out.
        for name in ("W_q", "W_k", "W_v", "b_q", "b_k", "b_v"):
            M: Array | None = getattr(head.W, name)
            is_identity = M is not None and M.ndim == 2 and np.array_equal(M, np.eye(len(M)))
            made[name] = None if is_identity else numbers.add(M)
        return made | _position(head, numbers, True)
    return made | {name: numbers.add(getattr(head, name)) for name in "qkv"} | _position(head, numbers, False)


def _position(head: Head, numbers: Numbers, whole: bool) -> dict[str, Stored | None]:
    """Return what a head adds for distances: R and b, or the terms of this text alone where they are fewer."""
    if head.position is None:
        return {"bias": numbers.add(head.bias)}
    R, b = head.position
    assert head.q is not None and head.k is not None
    cells = len(head.q) * len(head.k)
    if whole or head.q.size <= MOST_EDITED or 3 * cells > R.size:
        return {"R": numbers.add(R), "b": numbers.add(b)}
    reach, distances = len(b) // 2, np.arange(len(head.k)) - np.arange(len(head.q))[:, np.newaxis]
    places = np.clip(distances, -reach, reach) + reach
    return {"distance": numbers.add(np.take_along_axis(head.position.by_distance(head.q), places, axis=1))}
