"""The pictures of docs/figures.md are what its commands draw."""

import re
import shlex
import xml.etree.ElementTree as ET

import pytest

from tests.docs import ROOT
from tests.shell import attn

pytest.importorskip("matplotlib", minversion="3.11")

PAGE = (ROOT / "docs" / "figures.md").read_text(encoding="utf-8")
PICTURES = re.findall(r"\]\(pictures/([\w.]+)\)", PAGE)


def drawn(svg):
    """The texts of a picture, and its size: what stays the same where Matplotlib draws a line otherwise."""
    root = ET.fromstring(svg)
    size = [round(float(root.get(side).removesuffix("pt"))) for side in ("width", "height")]
    return size, [one.text for one in root.iter("{http://www.w3.org/2000/svg}text")]


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_what_its_command_draws(name, at):
    (command,) = [line for line in PAGE.splitlines() if line.startswith("$ attn") and f"-o {name}" in line]
    assert attn(*shlex.split(command)[2:]).code == 0
    kept = (ROOT / "docs" / "pictures" / name).read_bytes()
    assert drawn((at / name).read_bytes()) == drawn(kept)
    assert len(kept) < 60_000


def test_no_picture_is_left_over():
    assert sorted(PICTURES) == sorted(path.name for path in (ROOT / "docs" / "pictures").iterdir())
