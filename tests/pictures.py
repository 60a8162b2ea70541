"""The pictures of the documentation: docs/pictures/commands.txt says which command draws each.

A figure needs Matplotlib and a page Chromium; where these are missing, its picture is left as it is.
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


def commands() -> dict[str, str]:
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
        if path.suffix == ".svg":
            return path.read_bytes()
        with chromium() as browser:
            opened = Opened(browser.new_page(color_scheme="light"))
            opened.go(path)
            saved = opened.saved("save-svg").encode()
            opened.page.close()
            return saved
    except pytest.skip.Exception:
        return None


def seen(svg: bytes):
    """Return the size of a picture, its texts, the kinds of all that is drawn, in order, and where each begins."""
    root = ET.fromstring(svg)
    size = [round(float(root.get(side, "0").removesuffix("pt"))) for side in ("width", "height")]
    texts, kinds, places = [], [], []
    for one in root.iter():
        name = one.tag.rpartition("}")[2]
        if name in SHAPES:
            path = re.match(r"M\s*(-?[\d.]+)[\s,]+(-?[\d.]+)", one.get("d", ""))
            texts += [one.text or ""] * (name == "text")
            kinds.append(name)
            places.append([*map(float, path.groups() if path else (one.get("x", "0"), one.get("y", "0")))])
    return size, texts, kinds, places


def are_alike(one: bytes, other: bytes) -> bool:
    """Tell whether two pictures have the same size and texts, and all that is drawn in the same order and places."""
    (*same, places), (*as_well, others) = seen(one), seen(other)
    return same == as_well and all(map(lambda here, there: math.dist(here, there) <= NEAR, places, others))


def changed() -> Iterator[tuple[Path, bytes]]:
    for name, command in commands().items():
        kept = FOLDER / name
        with tempfile.TemporaryDirectory() as folder:
            new = draw(command, Path(folder))
        if new is not None and not (kept.exists() and are_alike(new, kept.read_bytes())):
            yield kept, new
