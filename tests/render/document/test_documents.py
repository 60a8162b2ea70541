"""What goes on slides: LaTeX, HTML and SVG are whole, inert, self-contained, and say what the screen says."""

import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings, strategies as st

from attn_cli import render as kinds
from attn_cli.errors import visible
from attn_cli.io.terminal import Terminal
from attn_cli.render.documents.svg import CELL
from attn_cli.render.documents.tex_escape import HELPERS, arithmetic, escape, prose
from attn_cli.render.formats import FORMATS as DRAWS, formats, render_blocks, suffixes
from attn_cli.settings.declare import declared
from attn_cli.settings.output import View
from tests.latex import BEYOND, FOX, HOSTILE, LATIN, SIXTY, read
from tests.shell import told as shown
from tests.thorough import often

FORMATS = ["latex", "html", "svg"]
PAGES = ["html", "svg"]
SVG = "{http://www.w3.org/2000/svg}"
LINES = read(r"""
self FOX | masked FOX --head all --palette cividis | explain FOX | example coffee --mask causal --steps
self FOX --head all --precision 2 --color never | self SIXTY -p identity --width 40 | self HOSTILE WORDS
masked HOSTILE WORDS --show mask --pad 2 --pad-side left | compare HOSTILE WORDS --vary mask=none,causal
explain BEYOND WORDS | lookup 'color\input{x}' color=<b> 'hue=$&_^%~#{}'
""")


def drawn(blocks, format, **options):
    return render_blocks(blocks, View(format=format, **options), Terminal())


def parsed(text):
    """A picture as a tree, or a page: it is XML too, but for its first line."""
    assert text.startswith(("<!doctype html>\n", "<svg"))
    return ET.fromstring(text.removeprefix("<!doctype html>\n"))


def words(tree):
    seen = [element for element in tree.iter() if element.tag not in ("style", "title")]
    return " ".join(part for element in seen for part in (element.text, element.tail) if part)


def cells_of(format, text):
    """The numbers in the cells of all matrices, row after row; in a picture, sums stand among them."""
    if format == "svg":
        runs = [element.text.strip() for element in parsed(text).iter(f"{SVG}text")]
        return [run for run in runs if re.fullmatch(r"\.\d+|1\.0+", run)]
    if format == "latex":
        return re.findall(r"\\attncell\{.{6}\}\{.{6}\}\{(.*?)\}", text)
    tables = [table for table in parsed(text).iter("table") if "weights" in table.get("class", "")]
    return [td.text for table in tables for td in table.iter("td") if td.get("class") != "sum"]


TAGS = "html head meta title style body h1 h2 h3 p code div table caption thead tbody tr th td span bdi svg rect g text"


@pytest.mark.parametrize("line", LINES, ids=lambda line: " ".join(line)[:40])
@pytest.mark.parametrize("format", FORMATS)
def test_every_screen_is_well_formed_self_contained_and_the_same_each_time(format, line):
    text = shown(*line, "-f", format)
    assert text == shown(*line, "-f", format)
    assert text.endswith("\n")
    if format == "latex":
        assert_whole(text)
        return
    tree = parsed(text)
    assert {element.tag.removeprefix(SVG) for element in tree.iter()} <= {*TAGS.split()}
    names = {name for element in tree.iter() for name in element.attrib}
    assert not {name for name in names if name.endswith(("href", "src")) or name.startswith("on")}
    own = "".join(style.text for style in tree.iter("style"))
    assert not re.search(r"url\(|@import|@font-face|http", own)
    assert format == "svg" or "http" not in text.replace(HOSTILE, "")


def assert_whole(text):
    """A LaTeX file: ASCII, its groups and environments closed, and no row with too few or too many cells."""
    assert text.isascii() and all(char.isprintable() or char == "\n" for char in text)
    assert balance(text) == 0
    for name in ("tabular", "document"):
        assert text.count(f"\\begin{{{name}}}") == text.count(f"\\end{{{name}}}")
    for spec, body in re.findall(r"\\begin\{tabular\}(?:\[t\])?\{(.*?)\}\n(.*?)\\end\{tabular\}", text, re.S):
        columns = len(re.sub(r"@\{.*?\}", "", spec.replace(r"@{\ }", "")).replace("}", ""))
        rows = [line for line in body.splitlines() if line.endswith(r"\\")]
        assert rows
        for row in rows:
            spanned = sum(int(n) - 1 for n in re.findall(r"\\multicolumn\{(\d+)\}", row))
            assert len(re.findall(r"(?<!\\)&", row)) + 1 + spanned == columns, row


def balance(text):
    """Open braces less closed ones; it must never be below zero."""
    depth = 0
    for mark in re.findall(r"\\.|%[^\n]*|[{}]", text):
        depth += {"{": 1, "}": -1}.get(mark, 0)
        assert depth >= 0
    return depth


def test_the_option_offers_every_format():
    assert declared(View)["format"].names() == formats()
    assert set(DRAWS) - {*formats()} == {"figure"}  # --figure, or a suffix, chooses it
    assert sum(len(one.suffixes) for one in DRAWS.values()) == len(suffixes())
    assert all(suffix.startswith(".") and suffix == suffix.lower() for suffix in suffixes())


@pytest.mark.parametrize("format", FORMATS)
def test_a_precision_shows_every_number_and_what_is_too_large_is_a_map(format):
    text = shown("self", SIXTY, "-p", "identity", "-f", format, "--precision", "4")
    numbers = [cell for cell in cells_of(format, text) if format != "svg" or cell != "1.000"]
    assert len(numbers) == 60 * 60
    assert all(re.fullmatch(r"\.\d{4}|1\.000", number) for number in numbers)
    text = shown("self", SIXTY, "-p", "identity", "-f", format, "--color", "never")
    assert not re.findall(r'#(?!fff\b|111\b|000\b|ffffff|111111)\w{3,6}(?=["; ])', text)
    assert "attncell{" not in text.replace("\\providecommand{\\attncell}", "")
    assert format == "svg" or "shades without numbers" not in text
    text = shown("self", " ".join([FOX] * 30), "-f", format)
    assert "too many to draw" in text and len(text) < 100_000


@pytest.mark.parametrize("format", ["latex", "html"])
def test_many_columns_lose_digits_then_numbers_and_the_reader_is_told(format):
    few, more, many, most = (drawn([matrix(n)], format) for n in (12, 18, 60, 90))
    many, last = (words(parsed(text)) if format == "html" else text for text in (many, most))
    assert "To fit" not in few
    assert "To fit: two digits." in more
    assert "To fit: shades without numbers." in many
    assert "columns 0 to 44 of 90" in last.lower()
    assert "The columns stand in 2 tables." in last
    looks = ['class="up"><span>w00<', 'class="tight weights"'] if format == "html" else [r"\attnturn{w00}"]
    assert all(look in most for look in looks)
    cells = len(re.findall(r"\\attnheat\{" if format == "latex" else 'class="heat s', most))
    assert cells == 90 * 90


def matrix(n):
    names = [f"w{i:02d}" for i in range(n)]
    weights = np.random.default_rng(n).dirichlet(np.ones(n), n)
    return kinds.Matrix(names, names, weights, "query\\key", [], True, True)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 0.0, 1e300, -1e-300])
def test_a_matrix_of_one_value_whatever_it_is_can_be_drawn(format, value):
    for n in (1, 70):
        names = [str(j) for j in range(n)]
        block = kinds.Matrix(["a"], names, np.full((1, n), value), "", ["-1.0"], shaded=True)
        text = drawn([block], format)
        assert "nan" not in text
        assert_whole(text) if format == "latex" else parsed(text)


def test_a_longer_matrix_keeps_its_sums_a_wider_page_shows_more_and_unshaded_matrices_lose_no_numbers():
    names = [f"row{i}" for i in range(50)]
    text = drawn([kinds.Matrix(names, ["a"], np.ones((50, 1)), "", [f"{i}.5" for i in range(50)])], "latex")
    assert re.findall(r"\\textbf\{row(\d+)\} & \S+ & (\d+)\.5", text) == [(str(i), str(i)) for i in range(50)]
    assert "Rows 25 to 49 of 50" in text
    assert len(cells_of("html", shown("self", FOX, "--head", "all", "-f", "html", "--precision", "3"))) == 891
    narrow, wide = (drawn([matrix(18)], "html", width=width) for width in (60, 200))
    assert "shades without numbers" in narrow and "To fit" not in wide
    values = np.random.default_rng(0).standard_normal((2, 400))
    block = kinds.Matrix(["a", "b"], [str(j) for j in range(400)], values, "X")
    assert "more columns" in drawn([block._replace(fits=True)], "html")
    assert len(re.findall(r"(?:\$-\$)?\d\.\d{1,3}(?= )", drawn([block], "latex"))) == 800


def test_long_tables_go_on_wide_matrices_stand_below_each_other_and_markdown_has_digits_as_asked():
    # In LaTeX `\\` takes a star, and what stands in brackets.
    text = drawn([kinds.Matrix(["[2em]", "*"], ["a"], np.ones((2, 1)))], "latex")
    assert not re.search(r"\\\\\s*[\[*]", text)
    for n, tables in ((36, 1), (37, 2)):
        rows = drawn([kinds.Columns(["a", "b"], [[str(i), "1"] for i in range(n)])], "latex")
        assert rows.count(r"\begin{tabular}") == tables
    for n, is_abreast in ((12, True), (13, False)):  # together 24 columns, and 26
        assert (r"\begin{minipage}" in drawn([kinds.Beside("ab", [matrix(n)] * 2)], "latex")) is is_abreast
    blocks = [matrix(18), kinds.Bars("", [("a", 0.5)], 1.0), kinds.Formula("a`b")]
    head, _, row, *others = drawn(blocks, "markdown", precision=2).splitlines()
    assert head.count(" | ") == row.count(" | ") == 18 and re.fullmatch(r"\| w00( \| \.\d\d){18} \|", row)
    assert others[-5:] == ["| link | weight |", "|:--|--:|", "| a | 0.50 |", "", "`a'b`"]
    text = drawn([kinds.Say("東京"), kinds.Bars("", [("a", 0.56)], 1.0)], "svg")
    assert f'textLength="{4 * CELL}"' in text and re.search(r'width="4\.5" height="24"', text)
    assert parsed(drawn([kinds.Say("a")], "svg")).get("width") == str(20 * CELL + 2 * 24)


def luminance(code):
    """Relative luminance as WCAG 2 defines it."""
    parts = [int(code[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    dark, bright = sorted((luminance(one), luminance(other)))
    return (bright + 0.05) / (dark + 0.05)


def colour_pairs(format, text):
    if format == "latex":
        return re.findall(r"\\attncell\{(\w{6})\}\{(\w{6})\}", text)
    if format == "html":
        return re.findall(r"\.s\d+ \{ background: #(\w{6}); color: #(\w{6}); \}", text)
    tree, sides, pairs = parsed(text), ("x", "y", "width"), []
    boxes = [(*(float(r.get(s, 0)) for s in sides), r.get("fill")[1:]) for r in tree.iter(f"{SVG}rect")]
    for run in tree.iter(f"{SVG}text"):
        x, y = float(run.get("x")), float(run.get("y"))
        behind = [b for b in boxes if b[0] <= x < b[0] + b[2] and b[1] <= y < b[1] + 24] or boxes[:1]
        ink = run.get("fill") or next(g.get("fill") for g in tree.iter(f"{SVG}g"))
        pairs.append((behind[-1][3], ink[1:]))
    return pairs


@pytest.mark.parametrize("palette", ["viridis", "cividis", "blues", "greys"])
@pytest.mark.parametrize("format", FORMATS)
def test_every_number_can_be_read_on_its_shade(format, palette):
    values = np.linspace(0, 1, 64).reshape(8, 8)
    block = kinds.Matrix(list("abcdefgh"), list("abcdefgh"), values, "", [], True, True)
    pairs = colour_pairs(format, drawn([kinds.Heading("A", 1), block], format, palette=palette))
    assert len({back for back, _ in pairs}) >= 60
    assert min(contrast(back, ink) for back, ink in pairs) >= 4.5
    if (format, palette) == ("latex", "viridis"):  # from the least weight to the largest
        assert (pairs[0][0], pairs[-1][0]) == ("440154", "FDE725")


@pytest.mark.parametrize("format", PAGES)
def test_a_dark_palette_makes_a_dark_page_and_words_from_right_to_left_leave_numbers_where_they_are(format):
    for palette, is_dark in ((None, False), ("blues", False), ("viridis", True), ("cividis", True)):
        text = drawn([kinds.Heading("A", 1)], format, palette=palette)
        of_page = re.search(r"background: #(\w+); color: #(\w+); \}\nh1", text)
        back, ink = of_page.groups() if of_page else colour_pairs("svg", text)[0]
        back, ink = (code * 2 if len(code) == 3 else code for code in (back, ink))
        assert (luminance(back) < 0.2) is is_dark and contrast(back, ink) > 12
    text = drawn([kinds.Say('So "x" gives 0.3506 to "שלום", 0.2134 to "سلام".')], format)
    apart = [one.text for one in parsed(text).iter() if one.text and "ש" in one.text]
    assert "שלום" in apart and not any(re.search(r"\d", part) for part in apart)


@settings(max_examples=often(30), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.text(min_size=1, max_size=30), min_size=1, max_size=4))
@example(['"><script>', "</title>", "]]>", "\ud800"])
@example(["&#0;", "\x00", "\ufffe", "\U000e0001"])
def test_any_token_makes_a_well_formed_page_that_shows_it(tokens):
    blocks = [kinds.Heading(tokens[0], 1), kinds.Say(tokens[-1]), kinds.Formula("1 + 1", tokens[0])]
    blocks += [kinds.Links([(tokens[0], [(token, "1.000") for token in tokens])])]
    blocks += [kinds.Bars(tokens[0], [(token, 0.5) for token in tokens], 1.0)]
    blocks += [kinds.Matrix(tokens, tokens, np.zeros((len(tokens), len(tokens))), tokens[0], shaded=True)]
    text = drawn(blocks, "html")
    tree = parsed(text)
    seen = words(tree) + "".join(element.get("title", "") for element in tree.iter())
    assert all(visible(token) in seen for token in tokens)
    HTMLParser().feed(text)
    elements = [*tree.iter(), *parsed(drawn(blocks, "svg")).iter()]
    assert {element.tag.removeprefix(SVG) for element in elements} <= set(TAGS.split())
    assert_whole(drawn(blocks, "latex"))


SAFE_NAMES = """
textbackslash textasciicircum textasciitilde textless textgreater textbar ttfamily char kern u r H v c d b i j k
ensuremath attnchar attnletter mathrm frac times cdot div pm neg surd infty to leftarrow leq geq neq approx in circ
mu top allowbreak acute grave ddot dots S P ss ae oe AE OE o O l L pounds dag ddag textendash textemdash
textquoteleft textquoteright textquotedblleft textquotedblright textexclamdown textquestiondown dh DH dj DJ th TH
ng NG guillemotleft guillemotright guilsinglleft guilsinglright quotedblbase quotesinglbase texteuro textcopyright
textregistered texttrademark textcent textyen textcurrency textbrokenbar Gamma Delta Theta Lambda Xi Pi Sigma
Upsilon Phi Psi Omega alpha beta gamma delta varepsilon zeta eta theta iota kappa lambda nu xi pi rho varsigma sigma
tau upsilon varphi chi psi omega
"""
SAFE = {*"\\{}$&#%_`'^~=.", '"', *SAFE_NAMES.split()}


@settings(max_examples=often(200), deadline=None)
@given(st.text())
@example(HOSTILE)
@example(BEYOND)
@example(LATIN)
@example("--- ,, ``x'' ?` !` << >>")
def test_latex_of_any_text_has_no_command_that_the_text_brought(text):
    for written in (escape(text), prose(text)):
        assert written.isascii() and written.isprintable()
        assert balance(written) == 0
        assert set(re.findall(r"\\([A-Za-z]+|.)", written)) <= SAFE
        bare = re.sub(r"\\([A-Za-z]+|.)|\{\}\^", "", written)
        assert not set(bare) & set('\\$&#%~^_"<>|')
        assert not re.search(r"--|``|''|,,|\?`|!`", written), "no ligature"


NAMES = {"backslash": "\\", "asciicircum": "^", "asciitilde": "~", "bar": "|", "less": "<", "greater": ">"}
UNDONE = {rf"\{char}": char for char in "{}$&#%_"} | {r"{\ttfamily\char34}": '"', r"\kern0pt{}": ""}
UNDONE |= {rf"\text{name}{{}}": char for name, char in NAMES.items()}


@given(st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E)))
@example("{\\ttfamily\\char34} \\{ --- \\kern0pt{}")
def test_latex_shows_ascii_as_it_was_typed(text):
    marks = "|".join(map(re.escape, sorted(UNDONE, key=len, reverse=True)))
    assert re.sub(marks, lambda found: UNDONE[found[0]], escape(text)) == text


WRITTEN = {
    **dict.fromkeys(("café", "cafe\u0301"), r"caf\'{e}"),
    "naïve Łódź": r"na\"{\i}ve \L{}\'{o}d\'{z}",
    "你": r"\attnchar{4F60}{20320}",
    "\u202e": r"\textless{}U+202E\textgreater{}",
}
SET = {
    "weights = softmax(q·k / √4)": r"weights $=$ softmax$(q\cdot k/\sqrt{4})$",
    "0.33×0.84 + (-0.5)×2 = 1": r"$0.33\times 0.84+({-}0.5)\times 2=1$",
    "a token": "a token",
}


def test_letters_keep_their_accents_arithmetic_is_typeset_and_the_papers_formula_where_it_is_this_traces():
    for more in ("-t 1", "-t 2", "--score dot", "--score cosine"):  # of warm scores the page tells in words
        text = shown("example", "coffee", "--steps", *more.split(), "-f", "latex")
        assert (r"\frac{Q K^\top}{\sqrt{d_k}}" in text) is (more == "-t 1")
    assert {text: escape(text) for text in WRITTEN} == WRITTEN
    assert {text: arithmetic(text) for text in SET} == SET
    assert "U+#1" in HELPERS
