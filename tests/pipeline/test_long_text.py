"""A long text: what stands in for its matrix is what the whole matrix says, fits every screen, and can be stopped."""

import json
import math
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from functools import cache
from itertools import pairwise, product
from statistics import median

import numpy as np
import pytest
from rich.cells import cell_len

from attn_cli import Settings, trace_cross, trace_masked, trace_self
from attn_cli.inputs.matrices import Given
from attn_cli.io.terminal import Terminal
from attn_cli.pipeline.long_text import merged, spread, strongest_links
from attn_cli.pipeline.sources.matrices import trace_matrices
from attn_cli.render import share
from attn_cli.render.formats import render
from attn_cli.render.walk import Walk
from attn_cli.settings import View
from attn_cli.trace import LARGE
from tests.cli.test_hostile import TOKENS
from tests.schema import complaints
from tests.shell import here, record, refused, terminal, told
from tests.thorough import like_cases

N = 1010
CHANCE = np.random.default_rng(5)
WORDS = [f"w{i}" for i in CHANCE.integers(0, 300, N)]
TEXT = " ".join(WORDS)
RANDOM = Settings(embedding="random", tokenizer="whitespace")
BARS = "▁▂▃▄▅▆▇█"
PLAINLY = ("-e", "random", "--tokenizer", "whitespace")
MANY = [f"x{i}" for i in range(1300)]
SHUT = (" ".join(MANY), " ".join(MANY[:900]))
CASES = {
    "self": (trace_self, (TEXT,), RANDOM),
    "causal": (trace_masked, (TEXT,), RANDOM),
    "window": (trace_masked, (TEXT,), replace(RANDOM, mask="window:20")),
    "padding": (trace_masked, (TEXT,), replace(RANDOM, pad=60)),  # at the end, where it sees every word
    "mean": (trace_self, (TEXT,), replace(RANDOM, heads=2, head="mean")),
    "shut": (trace_cross, SHUT, replace(RANDOM, mask="causal-bottom-right")),
    "learned": (trace_self, (TEXT,), Settings(tokenizer="whitespace")),
}


@cache
def traced(case, **options):
    make, texts, settings = CASES[case]
    return make(*texts, replace(settings, **options))


def allowed_of(whole):
    return np.ones(whole.weights.shape, bool) if whole.mask is None else np.asarray(whole.mask)


def screen(trace, format="table", width=80, encoding="utf-8", walk=None, **options):
    view = View(format=format, **options)
    object.__setattr__(view, "width", width)  # also narrower than --width takes
    return render(trace, view, Terminal(width=width, encoding=encoding), walk)


def flat(text):
    return " ".join(text.split())


def bits_of(row):
    return -sum(w * math.log2(w) for w in row.tolist() if w > 0)


def blocks_of(n, every=1):
    """The pairs of edges of 40 blocks, or of each `every` of them."""
    return list(pairwise([-(-i * n // 40) for i in range(0, 41, every)]))


def check_blocks(view, whole):
    """Compare each block of a map with the allowed links of the whole matrix."""
    allowed, weights = allowed_of(whole), np.asarray(whole.weights)
    for r, rows in enumerate(pairwise(view.query_edges)):
        for c, columns in enumerate(pairwise(view.key_edges)):
            block = np.s_[slice(*rows), slice(*columns)]
            links = weights[block][allowed[block]]
            assert view.counts[r, c] == len(links)
            mean = sum(links.tolist()) / len(links) if len(links) else math.nan
            assert view.means[r, c] == pytest.approx(mean, rel=1e-9, abs=1e-15, nan_ok=True)


@pytest.mark.parametrize("case", CASES)
@like_cases
def test_the_long_view_has_block_means_entropies_and_counts_of_the_whole_matrix(case):
    view, whole = traced(case).long_view, traced(case, full=True)
    allowed = allowed_of(whole)
    assert view.means.shape == view.counts.shape == (40, 40)
    for edges, n in zip((view.query_edges, view.key_edges), allowed.shape, strict=True):
        sizes = [stop - start for start, stop in pairwise(edges)]
        assert (edges[0], edges[-1], len(edges)) == (0, n, 41) and max(sizes) - min(sizes) <= 1
    check_blocks(view, whole)
    for shape in ((20, 40), (7, 13), (1, 1), (99, 99)):
        less = merged(view, *shape)
        assert less.means.shape[0] <= shape[0] and less.means.shape[1] <= shape[1]
        check_blocks(less, whole)
    assert view.allowed.tolist() == allowed.sum(axis=1).tolist()
    for i in range(0, len(whole.query_tokens), 97):
        assert view.entropy[i] == pytest.approx(bits_of(whole.weights[i]), abs=1e-9)


def strongest_by_hand(whole, most):
    """The strongest of every link between differently written words, each pair of words once."""
    found = {}
    order = np.argsort(-np.where(allowed_of(whole), whole.weights, -1), axis=None, kind="stable").tolist()
    for i, j in (divmod(cell, len(whole.key_tokens)) for cell in order):
        pair = whole.query_tokens[i].casefold(), whole.key_tokens[j].casefold()
        if pair[0] != pair[1] and i not in whole.pad_queries:
            found.setdefault(pair, float(whole.weights[i, j]))
        if len(found) == most:
            break
    return list(found.values())


@pytest.mark.parametrize("case", ["causal", "learned", "padding"])
def test_the_strongest_links_are_the_strongest_of_the_whole_matrix(case):
    part, whole = traced(case), traced(case, full=True)
    found = strongest_links(part, part.shown, 10)
    assert found.is_sure
    assert [weight for _, _, weight in found.links] == pytest.approx(strongest_by_hand(whole, 10))
    for i, j, weight in found.links:
        assert part.query_tokens[i].casefold() != part.key_tokens[j].casefold()
        assert whole.weights[i, j] == pytest.approx(weight)


def test_strongest_links_that_may_not_be_all_are_not_said_to_be():
    """A word that comes hundreds of times fills what is kept of its rows: weaker links to others are not seen."""
    settings = replace(RANDOM, projection="identity", dim=64)
    trace = trace_self("once " + "often " * 600 + "seldom " * 450, settings)
    found = strongest_links(trace, trace.shown, 10)
    assert not found.is_sure
    same = trace_self("Word word " * 600, settings)
    assert strongest_links(same, same.shown, 10) == ([], False)
    assert "None of the 5 links kept of each row leads to a different word." in flat(screen(same))


def test_rows_of_padding_leave_no_doubt_about_the_strongest_links():
    """The first of them spreads its weight over the five words that it sees: .2, more than ten other links have."""
    X = np.eye(2)[[0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0] * 92]
    q = math.log(2) * math.sqrt(2)  # one word in eleven gets twice the weight of each other
    given = Given("m", {"X": X, "W_q": np.array([[0, q], [0, 0]]), "W_k": np.eye(2), "W_v": np.eye(2)})
    trace = trace_matrices("compute", given, Settings(pad=4, mask="window:5"))
    found = strongest_links(trace, trace.shown, 10)
    assert found.is_sure and found.links[-1][2] == pytest.approx(2 / 11)


@pytest.mark.parametrize("case", ["self", "causal", "shut", "padding"])
def test_the_entropies_told_are_the_lowest_the_median_and_the_highest(case):
    trace, whole = traced(case), traced(case, full=True)
    bits = {}
    for i, (row, keys) in enumerate(zip(whole.weights, allowed_of(whole).sum(axis=1).tolist(), strict=True)):
        if keys > 1 and i not in whole.pad_queries:
            bits[i] = bits_of(row), math.log2(keys)
    entropies, found = [own for own, _ in bits.values()], spread(trace, trace.long_view)
    told = found.lowest, found.median, found.highest
    assert told == pytest.approx((min(entropies), median(entropies), max(entropies)))
    assert set(found.ranked.tolist()) == set(bits)
    shares = [bits[i][0] / bits[i][1] for i in found.ranked.tolist()]
    assert all(before <= after + 1e-9 for before, after in pairwise(shares))


def drawn_map(text, ramp=BARS):
    """The rows of a map's cells, as they stand on the screen."""
    cells = f"[{ramp}–-]"
    return [found[1] for found in re.finditer(rf"^ *\d+ (?:.*\s)?\s*({cells}{{10,40}})$", text, re.MULTILINE)]


@pytest.mark.parametrize(
    ("width", "shape"), [(80, (20, 40)), (60, (20, 40)), (40, (10, 20)), (20, (10, 10)), (None, (20, 40))]
)
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
@pytest.mark.parametrize("case", ["self", "window"])
def test_a_map_fits_the_terminal_whole(case, encoding, width, shape):
    trace = traced(case)
    text = screen(trace, width=width, encoding=encoding)
    assert encoding == "utf-8" or text.isascii()
    assert all(cell_len(line) <= (width or 10_000) for line in text.splitlines())
    rows = drawn_map(text, BARS if encoding == "utf-8" else "0-9")
    assert (len(rows), {len(row) for row in rows}) == (shape[0], {shape[1]})
    means = merged(trace.long_view, *shape).means
    dash = "–" if encoding == "utf-8" else "-"
    assert [[cell == dash for cell in row] for row in rows] == np.isnan(means).tolist()
    ramp, cells = BARS if encoding == "utf-8" else "0123456789", "".join(rows)
    assert (cells[int(np.nanargmax(means))], cells[int(np.nanargmin(means))]) == (ramp[-1], ramp[0])
    low, high = np.nanmin(means), np.nanmax(means)
    for cell, mean in zip(cells, means.ravel().tolist(), strict=True):
        if cell != dash:
            assert abs((mean - low) / (high - low) * len(ramp) - (ramp.index(cell) + 0.5)) <= 0.65
    assert re.search(rf"shades: {low:.2g} \S+ {high:.2g}", flat(text))
    size = f"of {'about ' * (width != 20)}{round(N / shape[0])} queries x {round(N / shape[1])} keys"
    assert size + " that may be looked at." * (case == "window") in flat(text)


def test_the_shades_of_a_map_whose_weights_are_all_the_same_begin_at_zero():
    equal = screen(trace_self(" ".join(MANY[:1100]), replace(RANDOM, temperature=1e300)))
    assert {cell for row in drawn_map(equal) for cell in row} == {"█"}
    assert "shades: 0 ▁▂▃▄▅▆▇█ 0.00091" in equal


def test_on_a_narrow_terminal_there_is_a_map_and_no_place_of_a_link_is_cut():
    trace = traced("learned")
    for width, columns in ((8, 1), (12, 2), (19, 9)):
        rows = re.findall(r"^ *\d+ +([▁-█–]+)$", screen(trace, width=width), re.MULTILINE)
        assert [len(row) for row in rows] == [len(merged(trace.long_view, 10, columns).key_edges) - 1] * 10
    for i, j, weight in strongest_links(trace, trace.shown, 10).links:
        for width in (20, 39):
            assert f"{i} {WORDS[i]} -> {j} {WORDS[j]} {share(weight)}" in flat(screen(trace, width=width))


def test_every_head_has_its_strongest_links_and_the_main_one_the_map_and_top_lists_every_row():
    trace = traced("learned", head="all")
    text = screen(trace)
    assert text.count("shades:") == text.count("too many to draw") == 1
    assert all(f"\nHead {name}\n" in text for name in trace.head_names)
    assert text.count("to a different word") == len(trace.head_names)
    top = screen(traced("self", top=2))
    assert "shades:" in top and "The 2 strongest keys of each query:" in top
    assert len(re.findall(r"^w\d+ .*\d$", top, re.MULTILINE)) == N


@cache
def hostile():
    tokens = tuple((list(TOKENS) * 200)[:1100])
    arrays = {name: CHANCE.normal(size=(1100, 3)) for name in "QKV"}
    return trace_matrices("compute", Given("m", arrays, tokens=tokens, context_tokens=tokens), Settings())


DRAWN = ["table", "bars", "markdown", "latex", "html", "svg"]


@pytest.mark.parametrize(("format", "walk"), [("csv", None), ("json", None), *product(DRAWN, [None, Walk()])])
def test_every_format_of_a_long_text_is_bounded_and_obeys_no_word(format, walk):
    for trace, width in ((hostile(), 20), (hostile(), 80), (traced("shut"), 80)):
        for colour in ("auto", "never") if format in ("html", "latex") else ("auto",):
            text = screen(trace, format, width, walk=walk, color=colour)
            assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u200b\u2028]", text)
            if format in ("html", "svg"):
                ET.fromstring(text.partition("\n")[2] if format == "html" else text)
            if format not in DRAWN:
                continue
            assert len(text) < 400_000 and len(text.splitlines()) < 6_000
            assert "nan" not in re.sub(r"[a-z]*nan[a-z]+", "", text)
            if format not in ("latex", "html", "svg") and width == 80:
                assert len(text.splitlines()) < (500 if walk else 120)
            if format == "table":
                assert all(cell_len(line) <= width for line in text.splitlines())


def test_pages_have_the_map_with_every_block_and_its_mean():
    means = traced("self").long_view.means
    page = screen(traced("self"), "html")
    ET.fromstring(page.partition("\n")[2])
    titles = re.findall(r'<td class="heat s\d+" title="([^"]+)"></td>', page)
    assert titles == [f"{mean:.2g}" for mean in means.ravel().tolist()]
    latex = screen(traced("self"), "latex")
    assert latex.count(r"\attnheat{") >= 1600
    ten = merged(traced("self").long_view, 10, 10).means.tolist()
    table = re.findall(r"^\| \d+ w\S* \| (.*) \|$", screen(traced("self"), "markdown"), re.MULTILINE)
    assert table[:10] == [" | ".join(f"{mean:.2g}" for mean in row) for row in ten]


def test_a_row_on_request_has_the_places_of_words_that_are_written_alike():
    text = screen(traced("self", query="700"))
    table = text[text.index("\nkey ") : text.index(" others")]
    listed = re.findall(r"^(?:(\d+) )?(w\d+) ", table, re.MULTILINE)
    assert any(j for j, _ in listed)
    assert all(WORDS[int(j)] == word if j else WORDS.count(word) == 1 for j, word in listed)


@pytest.mark.parametrize("command", ["self", "explain"])
def test_a_row_of_some_hundred_words_is_told_in_the_long_form(command):
    words = " ".join(MANY[:300])
    text = here(command, words, *PLAINLY, "-q", "7", "--width", "80").out
    assert len(text.splitlines()) < 80 and text.count("q·k =") <= 2 and "288 others" in text
    few = (command, " ".join(MANY[:30]), *PLAINLY, "-q", "7", "--width", "80")
    short = here(*few).out
    assert short.count("q·k =") == 2 and "others" not in short
    assert here(*few, "--by-hand", "all").out.count("q·k =") == 30
    early = here(command, words, *PLAINLY, "-q", "5", "--mask", "causal").out
    assert "others" not in early and "\n294 masked" in early


def test_a_row_of_few_keys_is_whole_however_many_queries_there_are():
    text = screen(trace_cross(" ".join(MANY), " ".join(MANY[:30]), replace(RANDOM, query="7")))
    assert len(re.findall(r"^w?\S+ +-?\d", text, re.MULTILINE)) >= 30
    assert "others" not in text and "strongest keys" not in text


@pytest.mark.parametrize("format", ["table", "markdown", "html", "latex"])
@pytest.mark.parametrize("width", [20, 80])
def test_the_walk_of_a_long_text_shows_the_keys_that_its_sentences_speak_of(format, width):
    trace = traced("causal")
    row = trace.weights[trace.row_in_arrays(trace.focus[0])]
    text = screen(trace, format, width, walk=Walk(("weights",), by_hand=False, ending=False))
    at = f"{int(np.argmax(row))} {WORDS[int(np.argmax(row))]}"
    assert re.search(re.escape(at) if width == 80 or format != "table" else at.split()[0][:3], text)
    assert str(trace.focus[0]) in text and share(float(row.max())) in text


def test_rows_without_a_choice_and_rows_beyond_those_that_fit_are_told_of():
    text = flat(screen(traced("shut", query="3")))
    assert '"x3" may look at nothing' in text and '"x3" (3) may look at nothing.' in text
    alone = screen(trace_masked(TEXT, replace(RANDOM, mask="window:0")))
    assert "No row may look at more than one key." in alone
    many = trace_cross("a " * 1000, " ".join(MANY[:1250]), replace(RANDOM, query="a"))
    kept = "1,000 x 1,250 weights: only each row's strongest links are kept (--full keeps all)."
    assert many.notes == (kept, "1,000 rows were asked for: the first 800 are kept.")  # a million weights
    assert "760 more rows: -q NUMBER shows one" in flat(screen(many))
    one = trace_cross("a " * 41 + "b " * 959, " ".join(MANY[:1250]), replace(RANDOM, query="a"))
    assert "1 more row: -q NUMBER shows one" in flat(screen(one))
    assert len(screen(many).splitlines()) < 260


@pytest.mark.parametrize("options", [{}, {"query": "w7", "top": 2}])
def test_the_json_of_a_long_text_has_the_long_view(options):
    trace = traced("window", **options)
    found = json.loads(json.dumps(trace.to_dict(), allow_nan=False))
    assert not complaints(found)
    view, told, rows = trace.long_view, found["long_view"], found["query_rows"] or range(N)
    for name in ("entropy", "allowed"):
        assert told[name] == [getattr(view, name)[i] for i in rows]
    np.testing.assert_array_equal(np.array(told["map"].pop("values"), float), view.means)
    edges = {side: list(getattr(view, side)) for side in ("query_edges", "key_edges")}
    of = "mean weight of a block's allowed links"
    assert told["map"] == {"of": of, "allowed": view.counts.tolist()} | edges


def test_a_query_that_sees_nothing_has_no_entropy_and_a_short_text_no_long_view_which_show_refuses(at):
    (at / "long.json").write_text(json.dumps(traced("self").to_dict()))
    assert "--full" in refused("show", "long.json", code=65)
    told = traced("shut").to_dict()["long_view"]
    assert told["allowed"][:401] == [0] * 400 + [1]
    assert told["entropy"][:401] == [None] * 400 + [0]
    assert told["map"]["values"][0] == [None] * 40 and not any(told["map"]["allowed"][0])
    short = (trace_self("a b", RANDOM), trace_self("a b", replace(RANDOM, top=1)), traced("self", full=True))
    assert all(trace.to_dict()["long_view"] is None for trace in short[:2]) and short[2].long_view is None


@pytest.mark.parametrize("few", [9, 40])
@pytest.mark.parametrize("side", ["Q", "K"])
def test_few_queries_or_keys_have_a_row_or_a_column_each(few, side):
    sizes = dict.fromkeys("QK", LARGE // few + few) | {side: few}
    arrays = {name: CHANCE.normal(size=(size, 2)) for name, size in sizes.items()}
    given = Given("m", arrays | {"V": np.ones((sizes["K"], 1))})
    trace, whole = (trace_matrices("compute", given, Settings(full=full)) for full in (False, True))
    check_blocks(trace.long_view, whole)
    edges = trace.long_view.query_edges if side == "Q" else trace.long_view.key_edges
    assert edges == tuple(range(few + 1))
    text = screen(trace)
    rows = drawn_map(text)
    if side == "Q":
        assert (len(rows), {len(row) for row in rows}) == (few, {40})
    else:
        assert f"{few - 1} k{few - 1}" in flat(text)
        assert re.search(r"mean weight of (about )?[\d,]+ queries x 1 key", flat(text))


def test_weights_from_elsewhere_have_a_long_view_too(tmp_path):
    weights = CHANCE.dirichlet(np.full(1100, 0.1), 1100)
    np.save(tmp_path / "w.npy", weights)
    values = np.array(record("show", str(tmp_path / "w.npy"))["long_view"]["map"]["values"])
    expected = [[weights[a:b, c:d].mean() for c, d in blocks_of(1100)] for a, b in blocks_of(1100)]
    np.testing.assert_allclose(values, expected)
    shown = here("show", str(tmp_path / "w.npy"), "--width", "80").out
    assert len(drawn_map(shown)) == 20 and not [word for word in ("softmax", "scale") if word in shown]


def test_a_text_of_some_hundred_words_has_the_same_screen_of_all_its_weights():
    text = " ".join(MANY[:300])
    trace = trace_self(text, RANDOM)
    shown = screen(trace)
    assert trace.long_view is None and not trace.condensed
    means = [[trace.weights[a:b, c:d].mean() for c, d in blocks_of(300)] for a, b in blocks_of(300, 2)]
    cells = "".join(drawn_map(shown))
    assert len(cells) == 800
    assert cells[int(np.argmax(means))] == "█" and cells[int(np.argmin(means))] == "▁"
    assert "288 more rows" in shown


def test_the_mask_of_a_long_text_is_shown_where_it_ends():
    options = "--mask window:5 --show mask -q 700 --width 80"
    text = told("masked", TEXT, *PLAINLY, *options.split())
    assert "(685 to 724)" in text and f" {10 * 'F'}{11 * 'T'}{19 * 'F'}\n" in text


def test_the_mask_of_many_queries_is_shown_where_the_first_one_sees_something():
    args = ("cross", " ".join(MANY[:900]), "a b", *PLAINLY, "--mask", "causal-bottom-right")
    text = here(*args, "--show", "mask", "--width", "80").out
    assert '"x898" may look at "a" (1 of 2).' in text and '"x894"' not in text
    assert "5 of 900 rows (895 to 899)" in text
    assert re.search(r"top-left: .*queries 0 to 7 and keys 0 to 1:\nquery.key +a b\nx0 +T F\nx1 +T T", text)
    assert re.search(r"bottom-right: .*queries 892 to 899 and", text)
    assert re.search(r"898 x898 +T F\n899 x899 +T T\nTop-left", text)


def test_both_corners_of_a_long_mask_are_shown_where_they_are():
    trace = ("cross", " ".join(MANY[:1010]), " ".join(MANY[:1200]), *PLAINLY)
    text = here(*trace, "--mask", "causal-bottom-right", "--show", "mask", "--width", "80").out
    part = text[text.index("which corner?") :]
    rows = re.findall(r"^(?:\d+ )?x\d+((?: +[TF]){8}|  *[TF]{8})$", part, re.MULTILINE)
    steps = ["".join("T" if j <= i else "F" for j in range(8)) for i in range(8)]
    assert ["".join(row.split()) for row in rows] == 2 * steps


def test_a_bar_moves_and_is_taken_away():
    for case in ("self", "mean", "learned"):
        make, texts, settings = CASES[case]
        done = list[float]()
        make(*texts, settings, done.append)
        assert len(done) > 1 and done == sorted({*done}) and done[-1] == 1
    said = terminal("self", "the cat saw a dog " * 1000, "-e", "random").out
    done = [int(part) for part in re.findall(r"(\d+) %", said)]
    assert len(done) > 5 and done == sorted(done)
    assert re.search(r"\r +\r[^%]*5,000 x 5,000 weights", said)
