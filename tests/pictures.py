"""The pictures of the documentation: docs/pictures/commands.txt says which command draws each.

`python -m tests.docs` checks them, and with `--write` draws anew those that are out of date. A figure needs Matplotlib
and a page Chromium; where these are missing, its picture is left as it is.
"""

import math
import re
import shlex
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser import Opened, chromium
from tests.shell import ROOT, attn

FOLDER = Path(ROOT) / "docs" / "pictures"
COMMANDS = FOLDER / "commands.txt"
NEAR = 2.0  # units of a picture by which fonts of another version may move something
SHAPES = ("text", "rect", "path", "image")
Place = tuple[str, float, float]
Seen = tuple[list[int], list[str], list[Place]]


def commands() -> dict[str, str]:
    """Return the command of each picture by the name of its file."""
    lines = [line for line in COMMANDS.read_text(encoding="utf-8").splitlines() if line[:1] != "#"]
    return {Path(line.split()[-1]).with_suffix(".svg").name: line for line in lines}


def draw(command: str, folder: Path) -> bytes | None:
    """Run a command in a folder, and return its picture; None where this machine cannot draw it."""
    _, *args = shlex.split(command)
    path = folder / args[-1]
    try:
        if "--figure" in args:
            pytest.importorskip("matplotlib", minversion="3.11")  # an older one measures letters otherwise
        ran = attn(*args, cwd=folder)
        if ran.code:
            raise AssertionError(f"{command}: {ran.err}")
        return path.read_bytes() if path.suffix == ".svg" else _saved_by(path)
    except pytest.skip.Exception:
        return None


def _saved_by(path: Path) -> bytes:
    """Return the picture that a page saves, opened on a light screen."""
    with chromium() as browser:
        page = browser.new_page(color_scheme="light")  # type: ignore[attr-defined]
        opened = Opened(page)
        opened.go(path)
        saved = opened.saved("save-svg").encode()
        page.close()
        return saved


def seen(svg: bytes) -> Seen:
    """Return the size of a picture, its texts, and where each text and each shape begins, in the order drawn."""
    root = ET.fromstring(svg)
    size = [round(float(root.get(side, "0").removesuffix("pt"))) for side in ("width", "height")]
    drawn = [(one.tag.rpartition("}")[2], one) for one in root.iter()]
    texts = [one.text or "" for name, one in drawn if name == "text"]
    return size, texts, [(name, *_start(one)) for name, one in drawn if name in SHAPES]


def _start(shape: ET.Element) -> tuple[float, float]:
    found = re.match(r"M\s*(-?[\d.]+)[\s,]+(-?[\d.]+)", shape.get("d", ""))
    x, y = found.groups() if found else (shape.get("x", "0"), shape.get("y", "0"))
    return float(x), float(y)


def are_alike(one: bytes, other: bytes) -> bool:
    """Tell whether two pictures have the same size and texts, and all that is drawn in the same order and places."""
    (*same, places), (*as_well, others) = seen(one), seen(other)
    if same != as_well or [name for name, *_ in places] != [name for name, *_ in others]:
        return False
    moved = (math.dist(place, where) for (_, *place), (_, *where) in zip(places, others, strict=True))
    return max(moved, default=0.0) <= NEAR


def changed() -> Iterator[tuple[Path, bytes]]:
    """Yield the pictures that are out of date, each as it should be."""
    for name, command in commands().items():
        kept = FOLDER / name
        with tempfile.TemporaryDirectory() as folder:
            new = draw(command, Path(folder))
        if new is not None and not (kept.exists() and are_alike(new, kept.read_bytes())):
            yield kept, new
