"""What shades mean: the range of a matrix, never stretched over weights that are alike; 0 to 1 on request."""

import re

import numpy as np
import pytest

from attn_cli.io.terminal import Terminal
from attn_cli.render import Matrix
from attn_cli.render.ramps import FULL, SHADES, shade_range, shading
from attn_cli.render.screen.draw import draw
from attn_cli.settings.output import View
from tests.shell import plain, refused, told as shown

PICTURES = ("table", "html", "latex", "svg")
TEXT = "she likes coffee"


def weights(*rows):
    values = np.array(rows)
    names = [f"w{i}" for i in range(values.shape[1])]
    return Matrix(names[: len(rows)], names, values, is_weights=True, shaded=True)


def contrast(matrix):
    """How much of the ramp lies between the lightest and the darkest cell, 0 to 1."""
    places = shading(matrix.values, shade_range(matrix))
    return (places.max() - places[places >= 0].min()) / (SHADES - 1)


def legend(text):
    if text.startswith("<svg"):  # the texts that stand on one line
        lines = dict.fromkeys(re.findall(r'<text x="\d+" y="(\d+)"', text))
        texts = [re.findall(rf'<text x="\d+" y="{y}"[^>]*>([^<]*)', text) for y in lines]
        text = "\n".join(map(" ".join, texts))
    text = re.sub(r"\\attnbar\{\w+\}\{2\}", " ", re.sub("<[^>]*>", "", text))
    found = [" ".join(line.split()) for line in text.splitlines() if re.search("[Ss]hades: ", line)]
    return [re.sub(" [▁-█v^.]{2,} ", " ", line) for line in found]


@pytest.mark.parametrize("n", [2, 3, 4, 7, 10, 100])
def test_weights_that_are_nearly_alike_have_nearly_the_same_shade_and_one_if_only_rounding_differs(n):
    """Uniform attention is half way between light and dark: where one shade ends, and the next begins."""
    even, noise = 1 / n, np.random.default_rng(n).uniform(-3e-8, 3e-8, (n, n))
    matrix = weights(*(even + noise))
    assert len(np.unique(shading(matrix.values, shade_range(matrix)))) == 1
    for part in (0.0, 0.01, 0.1, 0.3):  # of the even share, from the least to the largest
        row = np.linspace(even * (1 - part / 2), even * (1 + part / 2), n)
        assert contrast(weights(row, row[::-1])) == pytest.approx(part, abs=1.01 / SHADES)


@pytest.mark.parametrize("format", PICTURES)
def test_two_pictures_with_full_shades_can_be_compared(format):
    args = ("-f", format, "--shades", "full")
    for line in (("example", "coffee"), ("self", TEXT), ("self", TEXT, "--head", "all")):
        (found,) = legend(shown(*line, *args))
        assert re.search(r"0+ 1\.00", found.replace(".000", "0")) and "full scale" in found
    (found,) = legend(shown("example", "coffee", "-f", format))  # of a widened range
    assert "weights: .284 to .382" in found and ".166" in found and ".500" in found


def test_a_range_is_as_wide_as_an_even_share_or_as_its_weights_and_full_shades_are_the_same_everywhere():
    assert contrast(weights([0.6, 0.2, 0.2], [0.25, 0.25, 0.5])) == 1.0
    assert shade_range(weights([0.6, 0.2, 0.2])) == (0.2, 0.6, None, False)
    changes = weights([0.1, -0.3])._replace(is_weights=False, is_difference=True)
    assert shade_range(changes)[:2] == (-0.3, 0.3)  # zero is in the middle
    third, row, masked = [1 / 3] * 3, [0.3, 0.4, 0.3], [0.5, 0.5, np.nan]
    assert np.all(abs(shading(np.array([third]), shade_range(weights(third))) - (SHADES - 1) / 2) <= 0.5)
    assert shading(np.array([[1.0]]), shade_range(weights([1.0]))) == SHADES - 1
    assert shade_range(weights(row, masked))[:2] == pytest.approx((0.2, 0.6))  # .3 to .5, widened to 2 / 5
    assert shading(np.array([masked]), shade_range(weights(masked)))[0, 2] == -1
    assert shading(np.array([1.5, 1.0, -0.5]), FULL).tolist() == [SHADES - 1, SHADES - 1, 0]
    found = {}
    for rows in ([[0.25, 0.75], [0.5, 0.5]], [[0.25, 0.25, 0.5], [0.4, 0.3, 0.3]]):
        text = Terminal(80, 1 << 24).paint(draw([weights(*rows)], View(shades="full"), Terminal(80, 1 << 24)))
        for style, number in re.findall(r"\x1b\[([\d;]+)m +(\.\d{3})\x1b", text):
            found.setdefault(number, set()).add(style)
    assert {".250", ".500", ".750"} <= set(found) and all(len(styles) == 1 for styles in found.values())
    assert found[".250"] != found[".500"] != found[".750"]


def test_a_comparison_shares_one_scale_scores_keep_theirs_and_a_variable_sets_the_shades():
    line = ("compare", TEXT, "--vary", "t=1,4", "-e", "random")
    full = legend(shown(*line, "--shades", "full"))
    assert full == ["shades: .000 1.00 full scale", "shades: -1.00 +1.00 full scale"]
    found = legend(shown(*line))
    assert len(found) == 2 and "weights: .206 to .517" in found[0]
    page = legend(shown(*line, "-f", "html"))
    assert page[0] == page[1] != page[2]
    line = ("explain", TEXT, "-e", "random", "--only", "scores", "--shades")
    stretched, full = (legend(shown(*line, how)) for how in ("auto", "full"))
    assert stretched == full and "full scale" not in full[0]
    text = " ".join(f"w{i}" for i in range(300))
    found = legend(plain(shown("self", text, "-e", "random", "--shades", "full", "--width", "80")))
    assert found and "full" not in found[0]
    env = {"ATTN_SHADES": "full"}
    assert "full scale" in shown("self", TEXT, env=env)
    assert "full scale" not in shown("self", TEXT, "--shades", "auto", env=env)
    refused("self", TEXT, "--shades", "ful")
