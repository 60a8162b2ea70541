"""Output formats: each that can be chosen has a writer, and each writer takes every kind of block or none."""

import numpy as np
import pytest

from attn_cli.io.terminal import Terminal
from attn_cli.render.blocks import (
    Bars,
    Beside,
    Columns,
    Formula,
    Heading,
    Links,
    Maps,
    Matrix,
    Say,
    ShadeRange,
)
from attn_cli.render.formats import FORMATS, formats, render_blocks, suffixes
from attn_cli.settings.declare import declared
from attn_cli.settings.output import View

SCREENS = [name for name in formats() if FORMATS[name].needs in ("blocks", "bars")]

ONE = np.ones((1, 1))
BLOCKS = [
    Heading("Attention", 1),
    Say("plain words"),
    Formula("1 + 1 = 2"),
    Matrix(["cat"], ["dog"], ONE),
    Beside(["left", "right"], [Matrix(["cat"], ["dog"], ONE)] * 2),
    Maps(["0"], ["cat"], ["dog"], [ONE], ShadeRange(0.0, 1.0), [0]),
    Columns(["name", "number"], [["cat", "3"]]),
    Links([("cat", [("dog", "1.000")])]),
    Bars("", [("cat", 1.0)], 1.0),
]


def test_the_option_offers_every_format_that_is_written_and_no_other():
    assert declared(View)["format"].names() == formats()
    assert set(FORMATS) - {*formats()} == {"figure"}  # --figure, or a suffix, chooses it


def test_a_suffix_chooses_one_format():
    assert sum(len(one.suffixes) for one in FORMATS.values()) == len(suffixes())
    assert all(suffix.startswith(".") and suffix == suffix.lower() for suffix in suffixes())


@pytest.mark.parametrize("format", SCREENS)
def test_a_format_made_of_blocks_writes_every_kind_of_block(format):
    for block in BLOCKS:
        assert render_blocks([Heading("A", 1), block], View(format=format), Terminal(80)).strip()


@pytest.mark.parametrize("format", sorted(set(formats()) - set(SCREENS)))
def test_a_format_of_data_takes_no_blocks(format):
    with pytest.raises(ValueError, match="nothing that the format needs"):
        render_blocks(BLOCKS, View(format=format), Terminal(80))
