"""Figures: what is drawn is what was computed, nothing overlaps, and nothing that somebody typed is obeyed."""

import re
import struct
import xml.etree.ElementTree as ET
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise

import numpy as np
import pytest

import attn_cli
from attn_cli import AttnError, Settings, figure, trace_cross, trace_masked, trace_self
from attn_cli.errors import UsageError
from attn_cli.inputs.matrices import given_from
from attn_cli.pipeline.sources.matrices import trace_matrices
from attn_cli.render import Matrix
from attn_cli.render.figures import FIGURES as DRAWN, _drawn, drawing, pen as fonts, picture, subject
from attn_cli.render.figures.heatmap import layer_maps
from attn_cli.settings.output import FIGURES, View
from attn_cli.teach.examples import load
from tests.models.checkpoints.by_hand import GEMMA2, byte_pairs, gemma2, saved as write, small_gpt_oss
from tests.thorough import like_cases

WORDS = "it was the best of times and counterrevolutionaries had a word for W".split()  # noqa: SIM905
RANDOM = Settings(embedding="random", projection="random", dim=8, heads=4, tokenizer="whitespace")
EVERY = replace(RANDOM, head="all")
HOSTILE = "$x^2$ \\alpha $ $$ <b>&amp; \x1b[31m \u202ereversed ]]> {} %s "
SIZES = (1, 2, 9, 40, 200)


@pytest.fixture(scope="module", autouse=True)
def matplotlib():
    """What draws them, loaded when the first is drawn: every worker collects this file."""
    return pytest.importorskip("matplotlib", minversion="3.11")


def words(n):
    return " ".join(WORDS[i % len(WORDS)] for i in range(n))


@lru_cache
def trace_of(kind, n):
    return trace_self(words(n), EVERY if kind == "heads" else RANDOM)


def texts(made):
    return [one for axes in made.axes for one in axes.texts if one.get_text()]


def written(made):
    return [one.get_text() for one in texts(made)]


def corners(text, renderer):
    """The four corners of a text's rectangle, turned as it is, and a little smaller than it is."""
    from matplotlib.transforms import Affine2D

    turned = text.get_rotation()
    text.set_rotation(0)
    box = text.get_window_extent(renderer)
    text.set_rotation(turned)
    at = text.get_transform().transform(text.get_position())
    inner = box.padded(-0.5) if box.width > 1 and box.height > 1 else box
    return Affine2D().rotate_deg_around(*at, turned).transform(inner.corners()[[0, 1, 3, 2]])


def overlap(one, other):
    """Whether two rectangles overlap: no side of either has them on its two sides."""
    sides = (end - start for box in (one, other) for start, end in pairwise(box[:3]))
    shadows = ((one @ normal, other @ normal) for normal in (np.array([-y, x]) for x, y in sides))
    return all(here.max() > there.min() and there.max() > here.min() for here, there in shadows)


def check_layout(made):
    """Every text is on the sheet, and no two of them overlap."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    renderer = FigureCanvasAgg(made).get_renderer()
    shown = texts(made)
    boxes = [corners(one, renderer) for one in shown]
    low, high = (np.array([side(box, 0) for box in boxes]) for side in (np.min, np.max))
    size = (made.bbox.width, made.bbox.height)
    assert low.min() >= 0 and (high <= size).all(), "a text leaves the sheet"
    near = (low[:, None] < high[None]).all(-1) & (low[None] < high[:, None]).all(-1)
    for i, j in np.argwhere(np.triu(near, 1)):
        assert not overlap(boxes[i], boxes[j]), (shown[i].get_text(), shown[j].get_text())


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("kind", FIGURES)
def test_no_label_overlaps_another_or_leaves_the_sheet(kind, n):
    check_layout(figure(trace_of(kind, n), kind))


@pytest.mark.parametrize("size", [(4.0, 3.0), (13.33, 7.5), (5.0, 9.0)])
@pytest.mark.parametrize("kind", FIGURES)
def test_a_figure_has_the_size_that_is_asked_for_and_fits_into_it(kind, size):
    made = figure(trace_of(kind, 9), kind, size=size)
    assert tuple(made.get_size_inches()) == size
    check_layout(made)
    with pytest.raises(UsageError, match="inches are too few"):
        figure(trace_of(kind, 40), kind, size=(1, 1))


def test_a_heat_map_has_the_weights_in_its_cells_and_in_its_shades_and_a_small_one_names_fewer_tokens():
    with pytest.warns(UserWarning, match=r"One token in \d+ is named"):
        check_layout(figure(trace_self(words(100), RANDOM), "heatmap", size=(4, 4)))
    with pytest.warns(UserWarning, match=r"One token in \d+ is named"):
        figure(trace_cross("she", words(100), RANDOM), size=(4, 4))
    blocks = written(figure(trace_cross(words(1100), words(1303), RANDOM), "heatmap"))
    assert "0" in blocks and not {"1,100", "1,303"} & {*blocks}  # each has the number of its first word
    assert {"query, in blocks of up to 28", "key, in blocks of up to 33"} <= {*blocks}  # 40 of 27.5, of 32.6
    trace = trace_self("the cat sat", RANDOM)
    made = figure(trace, palette="greys", shades="full")
    numbers = [float(text) for text in written(made) if re.fullmatch(r"1?\.\d\d+", text)][:9]
    assert numbers == pytest.approx(trace.weights.ravel().tolist(), abs=5e-4)
    greys = made.axes[0].collections[0].get_array().reshape(9, 4)[:, 0]
    assert (np.diff(greys[np.argsort(trace.weights.ravel())]) <= 0).all(), "a larger weight is darker"
    for kind in ("heatmap", "links"):  # of two texts
        made = figure(trace_cross("she", "likes coffee", RANDOM), kind)
        assert {"she", "likes", "coffee"} <= set(written(made))
        check_layout(made)


@pytest.mark.parametrize(("layers", "tokens", "heads"), [(1, 1, 1), (3, 5, 8), (12, 40, 12), (2, 300, 2)])
def test_maps_of_layers_stand_beside_each_other_in_one_scale_with_zero_in_its_middle(layers, tokens, heads):
    draw, rows, maps = np.random.default_rng(layers), [*map(str, range(layers))], {}
    for name, of in (("token", [WORDS[n % 6] for n in range(tokens)]), ("head", [*map(str, range(heads))])):
        values = draw.standard_normal((layers, len(of)))
        maps[name] = Matrix(rows, of, values, f"layer\\{name}", is_difference=True)
    most = max(np.abs(one.values).max() for one in maps.values())
    for size in (None, "8x6"):
        view = View(figure="heatmap", size=size)
        with drawing():
            made, _ = _drawn(layer_maps(maps, "What comes back", "share", view), view, None)
        check_layout(made)
    shown = written(made)
    assert {"token", "head", "layer", "share"} <= set(shown)
    numbers = [float(text) for text in shown if re.fullmatch(r"[+-]?\d*\.\d+", text)]
    assert (min(numbers), max(numbers)) == pytest.approx((-most, most), abs=0.01)
    assert shown.count("share") == 1


def hatched(made):
    return [patch for patch in made.axes[0].patches if patch.get_hatch() and hasattr(patch, "set_path")]


def test_a_masked_cell_is_hatched_and_the_bar_is_darkest_beside_the_largest_number():
    made = figure(trace_masked("the cat sat", RANDOM))
    cells = [text for text in written(made) if re.fullmatch(r"1?\.\d\d+", text)]
    assert len(cells) == 6 + 3  # those allowed, and the numbers along the bar
    assert len(hatched(made)) == 2 and "masked" in written(made)  # in the matrix and in the legend
    trace = trace_matrices("example", load("coffee").given, Settings())
    assert {"weights", ".284 to .382"} <= set(written(figure(trace)))
    assert "full scale" in written(figure(trace, shades="full"))
    made = figure(trace_self("the cat sat", RANDOM), palette="greys")
    (bar,) = made.axes[0].images
    _, right, bottom, top = bar.get_extent()
    shades, beside = bar.get_array()[:, 0, 0], {}
    for text in texts(made):
        x, y = text.get_position()
        if x > right and re.fullmatch(r"1?\.\d+", text.get_text()):
            place = int(np.clip((y - top) / (bottom - top) * len(shades), 0, len(shades) - 1))
            beside[float(text.get_text())] = shades[place]
    low, middle, high = sorted(beside)
    assert middle == pytest.approx((low + high) / 2, abs=1e-3)
    assert 1 >= beside[low] > beside[middle] > beside[high] >= 0


def test_the_widths_of_links_are_the_weights():
    trace = trace_self("the cat sat", RANDOM)
    made = figure(trace, "links", shades="full")
    (lines,) = [one for one in made.axes[0].collections if hasattr(one, "get_segments")]
    widths, ends = np.asarray(lines.get_linewidths()), np.array(lines.get_segments())
    assert (np.diff(widths) >= 0).all(), "the widest is drawn last, above the others"
    heights = {word: [] for word in trace.key_tokens}  # of its label as a query, and of that as a key
    for text in texts(made):
        heights.get(text.get_text(), []).append(text.get_position()[1])
    rows = np.array([*heights.values()])
    beside = [[np.abs(rows[:, side] - y).argmin() for y in ends[:, side, 1]] for side in (0, 1)]
    assert widths / 9 == pytest.approx(trace.weights[tuple(beside)], abs=1e-9)
    few = replace(RANDOM, heads=1, top=1)
    for trace, count in ((trace_masked("the cat sat", RANDOM), 6), (trace_self("the cat sat", few), 3)):
        collections = figure(trace, "links").axes[0].collections
        assert [len(one.get_segments()) for one in collections if hasattr(one, "get_segments")] == [count]


def test_bars_are_as_long_as_the_weights_and_the_steps_of_a_row_are_those_of_the_trace():
    trace = trace_self("the cat sat", replace(RANDOM, query="cat"))
    made = figure(trace, "bars")
    lengths = np.array([one.get_width() for one in made.axes[0].patches if hasattr(one, "get_width")])
    assert lengths / lengths.max() == pytest.approx(trace.weights[1] / trace.weights[1].max())
    assert 'What "cat" looks at' in " ".join(written(made))
    numbers = [text.get_position()[0] for text in texts(made) if re.fullmatch(r"0?\.\d+", text.get_text())]
    assert np.ptp(np.array(numbers) - lengths) == pytest.approx(0)  # each stands at the end of its bar
    named = [one.get_position()[1] for one in texts(made) if one.get_text() in ("the", "cat", "sat")][-3:]
    assert named[2] - named[1] == pytest.approx(named[1] - named[0]) != 0
    given = {"query": "cat", "mask": "causal", "temperature": 2.0}
    trace = trace_self("the cat sat", replace(RANDOM, dim=4, heads=1, **given))
    row = trace.row(1)
    made = figure(trace, "steps", precision=None)
    shown = written(made)
    assert {"query", "scores", "scaled", "masked", "exp", "weights", "output"} <= set(shown)
    assert {"q·k", "/ √4 / 2", "e^x"} <= set(shown)
    for number in (*row.scores, *row.scaled, *row.exps[:2]):
        assert f"{number:.3f}" in shown
    assert "sum 1.0000" in shown and f"sum {row.total:.4f}" in shown
    assert len(hatched(made)) == 3  # masked, exp and weights


CAPPED = {"Q": [[1.0, 2.0]], "K": [[3.0, 1.0], [0.5, 1.0], [1.0, 1.0]], "V": [[1.0], [2.0], [0.0]]}
CAPPED |= {"softcap": 2.0, "sinks": 0.5, "position_scores": [[0.5, 0.0, -1.0]]}
# By hand: 2 tanh(3.536 / 2) = 1.887; e^2.387 + e^1.417 + e^0.572 + e^0.5 = 18.4216; 10.878 / 18.4216 = .590
STEPS = """
From "q0" to its weights | 1.000 | 2.000 | query | q | 2 numbers | k0 | k1 | k2 | key | 5.000 | 2.500 | 3.000 | scores
q·k | 3.536 | 1.768 | 2.121 | scaled | / √2 | 1.887 | 1.417 | 1.572 | capped | 2 tanh(x / 2) | 0.500 | 0.000 | -1.000
distance | + as given | 2.387 | 1.417 | 0.572 | sum | capped + distance | 10.878 | 4.124 | 1.772 | exp | e^x
with the sink 18.4216 | .590 | .224 | .096 | weights | exp / 18.4216 | sum 0.9105 | 1.038 | output | Σ weight · v
1 number
Each column has shades of its own; zero has no colour where there are signs.
"""
SAYS = [  # settings, the figure, and texts that are in it or (!) are not
    (
        {"mask": "causal"},
        "links",
        "Masked links have no line. & Masked self-attention, head 0 & 1.000 & 0.500 & 0.250",
    ),
    ({}, "links", "Self-attention, head 0 & weight & !Masked links have no line."),
    ({"head": "mean"}, "links", "Self-attention, mean of the heads"),
    ({"top": 2}, "bars", 'What "sat" looks at, head 0, the 2 strongest of 3 & keys'),
    ({"query": "cat", "mask": "causal"}, "bars", 'What "cat" looks at, head 0 & masked & !1.000'),
    ({"query": "the", "mask": "causal", "top": 2}, "bars", "1.000 & !sat"),
    ({"query": "cat", "measure": "norm"}, "bars", 'What "cat" takes (norm), head 0 & !masked'),
    ({"measure": "norm"}, "heatmap", "norm & Self-attention, head 0 & !weight & query & key"),
    ({"measure": "norm"}, "links", "norm & !1.000"),  # which have no full scale
    ({"head": "all"}, "heads", "Self-attention, 4 heads & head 0 & head 3 & weight"),
    ({"head": "all", "measure": "norm"}, "heads", "norm & !weight"),
    ({"heads": 1, "dim": 4, "score": "dot"}, "steps", "scores & !scaled & e^x & exp & !masked & !sum"),
    (
        {"heads": 1, "dim": 4, "without": ("cat",)},
        "steps",
        "scaled + mask & Hatched: masked, which is not a number.",
    ),
    ({"heads": 1, "without": ("the", "cat", "sat")}, "steps", "nothing to share & sum 0.0000"),
    ({"heads": 1, "dim": 4, "temperature": 0.001}, "steps", "/ √4 / 0.001"),
]


@pytest.mark.parametrize(("given", "kind", "said"), SAYS)
def test_a_figure_says_what_it_shows_and_norms_stand_in_the_place_of_weights(given, kind, said):
    trace = trace_self("the cat sat", replace(RANDOM, **given))
    shades = "full" if "measure" in given else "auto"
    found = " & ".join(["", *written(made := figure(trace, kind, precision=3, shades=shades)), ""])
    for part in said.split(" & "):
        assert (f" & {part.lstrip('!')} & " in found.replace("\n", " ")) == (part[0] != "!"), (part, found)
    if "norm" in said and kind == "heatmap":
        numbers = [float(text) for text in written(made) if re.fullmatch(r"\d?\.\d+", text)][:9]
        assert numbers == pytest.approx(trace.shown.norms.ravel().tolist(), abs=6e-4)


def test_the_steps_of_a_capped_row_with_a_sink_and_what_no_figure_can_show():
    trace = trace_matrices("compute", given_from(CAPPED, "n.json"), Settings())
    assert written(figure(trace, "steps")) == re.split(r" \| |\n", STEPS.strip())
    for score, exp in {30.0: "e^x", 31.0: "e^(x - 31)", -30.0: "e^x", -40.5: "e^(x + 40.5)"}.items():
        given = given_from({"scores": [[score]], "V": [[1.0]]}, "n.json")
        assert exp in written(figure(trace_matrices("compute", given, Settings()), "steps"))
    assert not {"Self-attention, head 0"} & {*written(figure(trace_self("the cat", RANDOM), title=""))}
    for kind, words, given, said in (
        ("links", 201, {}, "--figure links draws up to 200 tokens; here are 201. --figure heatmap takes"),
        ("bars", 201, {}, "--figure bars draws up to 200 tokens; here are 201. --top K shows the strongest."),
        ("heatmap", 2, {"top": 1}, "--figure heatmap draws all weights, without --top."),
        ("heads", 2, {"top": 1, "head": "all"}, "--figure heads draws all weights, without --top."),
    ):
        with pytest.raises(UsageError, match=re.escape(said)):
            figure(trace_self("a " * words, replace(RANDOM, **given)), kind)
    for count, rows in ((2, "1"), (4, "1, 2, 3"), (5, "1, 2, 3, ...")):
        with pytest.warns(UserWarning, match=f"shows row 0 of those that match; -q {rows} would be another"):
            figure(trace_self("a " * count + "b", replace(RANDOM, query="a")), "bars")
    # It has room for both: no warning, which would be an error.
    figure(trace_self("a a b", replace(RANDOM, query="a")), "links")
    trace = trace_self("a b", RANDOM)
    with pytest.raises(UsageError, match="12,600 x 12,000 dots is too large"):
        drawn(trace, "x.png", dpi=1200, size="10.5x10")
    assert drawn(trace, "x.PNG") == drawn(trace, "x.png") and drawn(trace, None).startswith(b"<?xml")
    assert b"tEXtTitle\x00Attention of ?" not in drawn(trace_self("日本", RANDOM), "x.png", "bars")


def test_what_a_rotation_adds_is_capped_with_the_rest_and_not_added_to_it(tokenizers, tmp_path):
    capped, plain = write(tmp_path / "capped", GEMMA2, gemma2()), small_gpt_oss(tmp_path / "plain")
    for folder, sum_of in ((capped, "capped + mask"), (plain, "scaled + distance")):
        byte_pairs(folder)
        assert sum_of in written(figure(trace_self("dabca", Settings(model=folder)), "steps"))


def test_labels_are_cut_shrink_and_are_as_large_as_their_lines_let_them_be():
    pen = fonts.pen_for(View(), [])
    assert pen.shown("x" * 24) == "x" * 24 and pen.shown("a" * 20 + "bcdef") == "a" * 19 + "…" + "cdef"
    assert pen.shown("\x1b") == "^["
    sizes = {4.0 / 72 / 0.78 + 1e-9: 4.0, 4.0 / 72 / 0.78 - 1e-6: 0.0, 0.5: 11.0, 0.65: 13.0, 2.0: 18.0}
    assert {pitch: fonts.font_of(pitch) for pitch in sizes} == pytest.approx(sizes)
    lines = pen.folded("one two three", pen.width("one two", 10.0) + 2 * fonts.EDGE, 10.0)
    assert lines == ["one two", "three"]
    missing = fonts.Fonts(("DejaVu Sans",), frozenset("日本🦊"))
    (note,) = fonts.missing_note(pen._replace(fonts=missing), ["日", "本"])
    assert note == (
        "No font here has U+65E5 (cjk unified ideograph-65e5) of '日', nor 2 more: the figure shows its code. "
        "Install one of its script (cjk), such as Noto Sans."
    )
    (note,) = fonts.missing_note(pen._replace(fonts=missing._replace(missing=frozenset("🦊"))), ["fox🦊"])
    assert note.startswith("No font here has U+1F98A (fox face) of 'fox🦊': the figure")
    assert "with outlines" in note
    assert fonts.missing_note(pen._replace(fonts=missing, keeps_all=True), []) == []


def test_signs_have_two_colours_and_all_heads_share_a_scale():
    trace = trace_self("the cat sat", RANDOM)
    for kind, has_signs in (("steps", True), ("heatmap", False)):  # the ends of the scale that goes both ways
        assert bool(re.search(b"#542788|#b35806", drawn(trace, "x.svg", kind))) == has_signs
    positive = {name: value for name, value in CAPPED.items() if name in "QKV"}
    trace_of_positive = trace_matrices("compute", given_from(positive, "n.json"), Settings())
    assert not re.search(b"#542788|#b35806", drawn(trace_of_positive, "x.svg", "steps"))
    assert b"#08306b" in drawn(trace, "x.svg", "bars")
    assert b"#08306b" not in drawn(trace, "x.svg", "bars", color="never")
    trace = trace_self("the cat sat", EVERY)
    made = written(figure(trace, "heads"))
    assert {f"head {n}" for n in range(4)} <= set(made)
    assert f"{max(head.weights.max() for head in trace.heads):.3f}".lstrip("0") in made
    with pytest.raises(AttnError, match=r"One head of 4 .* Settings\(head=\"all\"\)"):
        figure(trace_self("the cat sat", RANDOM), "heads")


def drawn(trace, output, kind="heatmap", **options):
    view = View(figure=kind, output=output, **options)
    return picture(subject(trace, view), view)[0]


@pytest.mark.parametrize("suffix", ["png", "pdf", "svg"])
@pytest.mark.parametrize("kind", FIGURES)
@like_cases
def test_the_same_figure_is_the_same_file(kind, suffix):
    trace = trace_masked("the cat sat", EVERY)
    data = drawn(trace, f"x.{suffix}", kind)
    assert data == drawn(trace, f"x.{suffix}", kind)
    assert data[:8].startswith({"png": b"\x89PNG", "pdf": b"%PDF", "svg": b"<?xml"}[suffix])


def test_a_figure_is_drawn_into_axes_that_are_given_at_its_dpi_and_a_pdf_embeds_every_font(matplotlib):
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    trace = trace_self("the cat sat", RANDOM)
    before = dict(matplotlib.rcParams)
    plain = drawn(trace, "x.svg")
    assert dict(matplotlib.rcParams) == before
    with matplotlib.rc_context({"font.size": 30, "lines.linewidth": 9, "svg.fonttype": "path"}):
        assert drawn(trace, "x.svg") == plain
    assert set(DRAWN) == set(FIGURES) and attn_cli.figure is figure
    own = Figure(figsize=(10, 5))
    for axes, kind in zip(own.subplots(1, 2), ("heatmap", "links"), strict=True):
        assert figure(trace, kind, ax=axes) is own
        assert {"the", "cat", "sat"} <= {one.get_text() for one in axes.texts}
    FigureCanvasAgg(own).draw()
    trace = trace_self("the cat", RANDOM)
    for dpi in (50, 200):
        assert struct.unpack(">II", drawn(trace, "x.png", dpi=dpi, size="4x3")[16:24]) == (4 * dpi, 3 * dpi)
    data = drawn(trace_self("the cat שלום", RANDOM), "x.pdf")
    assert len(re.findall(rb"/FontFile\d? ", data)) == data.count(b"/Type /FontDescriptor") > 0
    assert b"/Subtype /Type3" not in data


@pytest.mark.parametrize("kind", FIGURES)
@like_cases
def test_hostile_tokens_are_shown_and_never_obeyed(kind):
    trace = trace_self(HOSTILE, EVERY if kind == "heads" else RANDOM)
    for suffix in ("png", "pdf"):
        assert drawn(trace, f"x.{suffix}", kind)
    root = ET.fromstring(drawn(trace, "x.svg", kind))
    shown = [one.text for one in root.iter("{http://www.w3.org/2000/svg}text")]
    for token in ("$x^2$", "\\alpha", "$$", "<b>&amp;", "^[[31m", "<U+202E>reversed", "]]>"):
        assert token in shown or kind == "heads", (token, shown)
    tags = {one.tag.rpartition("}")[2] for one in root.iter()}
    assert not tags & {"b", "script", "a", "foreignObject"}


def test_a_letter_that_no_font_has_is_spelled_out_and_told(monkeypatch):
    monkeypatch.setattr(fonts, "_files", lambda: ())
    trace = trace_self("the 日本 fox🦊", RANDOM)
    with pytest.warns(UserWarning, match=r"No font here has U\+65E5 .* of '日本', nor 2 more: .*[Ii]nstall"):
        made = figure(trace)
    assert {"<U+65E5><U+672C>", "fox<U+1F98A>"} <= set(written(made))
    check_layout(made)
    assert "日本" in drawn(trace, "x.svg").decode()  # whoever reads it may have the font
    monkeypatch.undo()
    with drawing():  # right to left needs no further font, and one of the system may have Chinese letters
        assert fonts.fonts_for(["שלום", "السلام"]) == (("DejaVu Sans",), frozenset())
        found = fonts.fonts_for(["日本語"])
    assert found.missing or len(found.families) > 1
    assert not any("Last Resort" in name for name in found.families)
