"""Figures on the command line: which file holds one, what is refused, and what is said."""

import re
from pathlib import Path

import numpy as np
import pytest

from tests.shell import attn, here, refused

TEXT = ("self", "the cat sat", "-e", "random", "--heads", "2")


def test_without_matplotlib_the_message_installs_it_and_all_else_is_shown(at, monkeypatch, without):
    monkeypatch.setattr("attn_cli.render.formats.built_in.find_spec", lambda name: None)
    assert "pip install 'attn-cli[figures]'" in refused(*TEXT, "-o", "x.png", code=69)
    assert list(at.iterdir()) == []
    without("matplotlib")
    for more in (["-f", "json"], ["-o", "x.svg"]):
        assert here(*TEXT, *more).code == 0


needed = pytest.mark.usefixtures("figures")


@pytest.fixture
def figures(at):
    pytest.importorskip("matplotlib", minversion="3.11")
    return at


@needed
def test_the_suffix_says_what_is_drawn_and_a_preference_in_a_file_gives_way_where_there_is_no_figure():
    for name, start in (("x.png", b"\x89PNG"), ("X.PDF", b"%PDF"), ("x.svg", b"<svg")):
        assert here(*TEXT, "-o", name) == (0, "", "")
        assert Path(name).read_bytes().startswith(start)
    assert here("explain", "the cat sat", "--figure", "steps", "-o", "z.png") == (0, "", "")
    assert here(*TEXT, "--figure", "links", "-o", "y.svg") == (0, "", "")
    assert b"<!DOCTYPE svg" in Path("y.svg").read_bytes()
    Path("attn.toml").write_text('figure = "links"\ndpi = 50\n')
    assert here(*TEXT).code == 0
    assert here(*TEXT, "-o", "x.svg").code == 0
    assert ">query</text>" in Path("x.svg").read_text() and "weight" in Path("x.svg").read_text()


@needed
def test_all_heads_are_computed_for_a_figure_of_them_and_one_head_or_layers_that_differ_are_refused():
    assert here(*TEXT, "--figure", "heads", "-o", "x.svg").code == 0
    assert ">head 1</text>" in Path("x.svg").read_text()
    assert here(*TEXT, "--figure", "heads", "--head", "mean", "-o", "x.svg").code == 0
    deep = ["self", "a b", "-p", "roles-deep", "--head", "all", "--figure", "heads", "-o", "x.svg"]
    assert "8 and 12 heads: they do not fit" in refused(*deep, "--layer", "all")
    assert here(*deep, "--layer", "0").code == 0


# Half the temperature squares the odds: .756 / .244 = 3.10 becomes 9.6, which is .906 / .094; twice is their root.
SIDES = """
1,0.5 => .756 .244 .322 .678 the cat key 1 .906 .094 .183 .817 the cat key 0.5 +.150 -.150 -.138 +.138 the cat key \
0.5_minus_1 the cat query weight .094 .500 .906 difference -.150 .000 +.150
1,0.5,2 => .756 .244 .322 .678 the cat key 1 .906 .094 .183 .817 the cat key 0.5 .638 .362 .408 .592 the cat key 2 \
the cat query weight .094 .500 .906
"""


def texts_of(*line):
    found = re.findall(r"<text[^>]*>([^<]*)</text>", here(*line, "-f", "svg").out)
    return " ".join(text.replace(" ", "_") for text in found)


@needed
@pytest.mark.parametrize("line", SIDES.strip().replace("\\\n", "").splitlines())
def test_sides_stand_beside_each_other_in_one_scale_and_the_difference_of_two(line):
    values, _, expected = line.partition(" => ")
    line = ("compare", "the cat", "-e", "random", "--vary", f"temperature={values}", "--figure", "heatmap")
    assert texts_of(*line) == f"Self-attention_by_temperature {expected}"


# The rollout by hand: of each layer, half the mean of its heads and half the identity; (.775 .225) times (.6875 .25).
LAYERS = """
--layer all --head all --figure heads => Self-attention,_2_heads_in_each_of 2_layers head_0 a b layer_0 head_1 \
head_0 a b a b layer_1 head_1 a b weight .000 .500 1.00
--layer all --head rollout --figure heatmap => Self-attention,_attention_rollout .589 .411 .338 .663 a b key a b \
query weight .250 .500 .750 weights .338_to_.663
--layer 1 --head 1 --figure links => Self-attention,_head_1 query key a b a b weight 0.900 0.450 0.225
--head all --figure heads -q b --shades full => Self-attention,_2_heads head_0 b a b head_1 a b weight .000 .500 1.00 \
full_scale
"""


@needed
@pytest.mark.parametrize("line", LAYERS.strip().replace("\\\n", "").splitlines())
def test_figures_of_layers_name_them_and_a_rollout_has_the_numbers_of_all(line, at):
    weights = [[[[0.5, 0.5], [1, 0]], [[0.25, 0.75], [0, 1]]], [[[1, 0], [0, 1]], [[0.1, 0.9], [0.8, 0.2]]]]
    np.savez("w.npz", attentions=weights, tokens=["a", "b"])
    options, _, expected = line.partition(" => ")
    assert texts_of("show", "w.npz", *options.split()) == expected


@needed
def test_a_difference_runs_as_far_below_zero_as_above_it_and_to_one_with_full_shades():
    line = ["compare", "the cat sat", "--vary", "temperature=1,0.5", "--figure", "heatmap", "-f", "svg"]
    apart = [ends for ends in re.findall(r">([+-][.0-9]+)</text>", here(*line).out) if float(ends)]
    assert apart[-2:] == ["-.145", "+.145"]
    assert re.findall(r">([+-]1[.0-9]*)</text>", here(*line, "--shades", "full").out) == ["-1.00", "+1.00"]


@needed
def test_layers_and_heads_of_a_file_are_drawn_and_weights_have_every_figure_but_steps():
    np.save("w.npy", np.full((3, 2, 4, 4), 0.25))
    saved = ("w.npy", "--tokens", "a b c d", "-o", "x.svg", "--figure")
    assert here("heads", "--weights", *saved, "heads").code == 0
    shown = Path("x.svg").read_text()
    assert all(f">layer {n}</text>" in shown for n in range(3)) and ">a</text>" in shown
    heads = ("--figure", "heads", "-o", "y.svg")
    assert ">weight</text>" in shown and here("heads", "a " * 90, *heads).code == 0
    assert ">mean weight</text>" in Path("y.svg").read_text()
    refused("heads", "--weights", *saved, "bars")
    np.save("w.npy", np.full((2, 4, 4), 1 / 4))
    for kind in ("heatmap", "links", "bars", "heads"):
        assert here("show", *saved, kind).code == 0
    assert "--figure bars" in refused("show", *saved, "steps")


@needed
def test_what_the_figure_leaves_out_is_said_and_an_existing_file_stays_where_drawing_fails():
    ran = here("self", "the cat and the dog", "-e", "random", "--figure", "bars", "-q", "the", "-o", "x.png")
    assert ran.code == 0 and "-q 3" in ran.err
    Path("x.png").write_text("mine")
    refused(*TEXT, "--size", "50x50", "--dpi", "1200", "-o", "x.png")
    assert "--figure links" in refused(*TEXT, "--top", "1", "-o", "x.png")
    many = ("self", "a " * 300, "-e", "random", "--figure", "links", "-o", "x.png")
    assert "up to 200 tokens" in refused(*many) and Path("x.png").read_text() == "mine"
    refused(*TEXT, "-o", "none/x.png", code=73)
    assert here("self", "the cat sat on it " * 250, "-e", "random", "-o", "x.svg").code == 0
    assert "mean weight" in Path("x.svg").read_text()


RC = {"font.size: 40\ntext.usetex: True\nbad key\n": 0, "\xff\xfe": 78}


@needed
@pytest.mark.parametrize(("content", "code"), RC.items())
def test_a_matplotlibrc_changes_nothing_or_is_named(content, code):
    Path("matplotlibrc").write_bytes(content.encode("latin-1"))
    ran = attn(*TEXT, "-o", "x.png", env={"PYTHONHASHSEED": "0", "MPLCONFIGDIR": "/proc/none"})
    assert ran.code == code and ran.err.count("\n") == (code != 0)
    assert code == 0 or "matplotlibrc" in ran.err
