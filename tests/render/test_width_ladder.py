"""The width ladder: whatever the width and the number of tokens, no number is cut and no cell is empty."""

import re
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise, product

import numpy as np
import pytest
from rich.cells import cell_len

from attn_cli import Settings, Trace, trace_masked, trace_self
from attn_cli.io.terminal import Terminal
from attn_cli.render import Bars, Columns, Formula, Heading, Matrix, Say, share
from attn_cli.render.formats import render
from attn_cli.render.numbers import rungs
from attn_cli.render.result import trace_blocks
from attn_cli.render.screen.draw import draw
from attn_cli.render.walk import Walk
from attn_cli.settings import View
from tests.bench.row import peak
from tests.shell import COMMAND, record, told
from tests.thorough import like_cases, some, takes_long

WIDTHS = (20, 40, 80, 120, 200, None)
SIZES = (1, 2, 6, 12, 20, 40, 100, 300)
BARS = "▁▂▃▄▅▆▇█"
SPOKEN = re.compile(r"(?<![\w.])-?[0-9]+(?:\.[0-9]+)?(?:e[-+]?[0-9]+)?")

EMOJI = ("👩‍👩‍👧", "👍🏽", "🇬🇧", "❤️")
LETTERS = "abcdefghijklmopqrstuvwxyz"  # no n: stacked labels must not spell nan


def words(kind: str, n: int) -> list[str]:
    """Return n different tokens without digits, of a kind that is hard to lay out."""
    makers = {
        "letters": lambda a, b: a if n <= 25 else a + b,
        "long": lambda a, b: (a + b) * 6,
        "longer": lambda a, b: (a + b) * 20,
        "cjk": lambda a, b: "中文注意力机制图"[ord(a) % 4 :][:3] + chr(0x4E00 + 26 * ord(a) + ord(b)),
        "emoji": lambda a, b: EMOJI[ord(b) % 4] + chr(0x1F600 + (ord(a) - 97) * 3 + ord(b) % 3),
        "combining": lambda a, b: f"{a}\u0301{b}\u0323\u0308",
    }
    is_single = kind == "letters" and n <= 25
    pairs = [(a, a) for a in LETTERS] if is_single else list(product(LETTERS, LETTERS))
    return [makers[kind](a, b) for a, b in pairs[:n]]


ROWS = ("query", "learned", "learned-query", "masked-explain")  # modes with a row by hand
WALK, STORY = (View(steps=True), Walk()), (View(), Walk())
TABLE, BARS_VIEW = (View(), None), (View(format="bars"), None)
LEARNED = {"embedding": "word2vec"}
MODES: dict[str, tuple[tuple[View, Walk | None], dict[str, object]]] = {
    # name: (view and walk, settings)
    **dict.fromkeys(("table", "masked"), (TABLE, {})),
    **dict.fromkeys(("bars", "masked-bars"), (BARS_VIEW, {})),
    **dict.fromkeys(("explain", "masked-explain"), (WALK, {})),
    **dict.fromkeys(("top", "masked-top"), (TABLE, {"top": 4})),
    "story": (STORY, {}),
    "heads": (TABLE, {"heads": 2, "head": "all"}),
    "query": (TABLE, {"query": ""}),
    "bars-query": (BARS_VIEW, {"query": ""}),
    "steps": ((View(steps=True), None), {}),
    "precision": ((View(precision=6), None), {}),
    "sharp": (WALK, {"temperature": 1e-6}),
    "flat": (WALK, {"temperature": 1e300}),
    "learned": (WALK, LEARNED),
    "learned-story": (STORY, LEARNED),
    "learned-query": (TABLE, LEARNED | {"query": ""}),
    "learned-heads": (TABLE, LEARNED | {"head": "all"}),
}


@lru_cache(maxsize=256)
def traced(kind: str, n: int, mode: str) -> Trace:
    tokens = words(kind, n)
    settings = {"embedding": "random", "tokenizer": "whitespace", "seed": 3} | MODES[mode][1]
    if "query" in settings:
        settings["query"] = tokens[n // 2]
    build = trace_masked if mode.startswith("masked") else trace_self
    return build(" ".join(tokens), Settings(**settings))


def painted(blocks: Iterable, width: int | None, **more) -> str:
    return Terminal(width=width).paint(draw(blocks, View(width=width, **more), Terminal(width=width)))


def screen(kind: str, n: int, mode: str, width: int | None) -> str:
    view, walk = MODES[mode][0]
    return render(traced(kind, n, mode), replace(view, width=width), Terminal(width=width), walk)


def blocks_of(kind: str, n: int, mode: str, width: int | None) -> list:
    view, walk = MODES[mode][0]
    return list(trace_blocks(traced(kind, n, mode), replace(view, width=width), walk))


EACH_KIND = [*product(["letters"], SIZES), *product(["long"], (2, 12, 40)), *product(["longer"], (6, 300))]
EACH_KIND += [*product(["cjk"], (1, 6, 20)), *product(["emoji"], (6, 40)), *product(["combining"], (6, 20))]
FEW = [one for one in product(WIDTHS, MODES) if one[1] != "learned-heads" or one[0] in (20, 80, None)]


@pytest.mark.parametrize(("width", "mode"), FEW)
@like_cases
def test_no_line_is_wider_than_the_terminal_and_no_number_is_cut(mode, width):
    for kind, n in some(EACH_KIND, list(MODES).index(mode) + WIDTHS.index(width)):
        if n > 100 and (mode == "precision" or (mode, kind) == ("learned-heads", "longer")):
            continue  # all those pages, or as much as the short words show
        text = screen(kind, n, mode, width)
        assert width is None or max(map(cell_len, text.split("\n"))) <= width, (kind, n)
        assert not re.search(r"\d\.…|(?<![\w])-?\d*\.?\d+…", text), (kind, n)
        assert not re.search(r"\bnan\b|\binf\b|\bNone\b|-0(\.0+)?(?![\d.])", text), (kind, n)


def shortened(shown: str, name: str) -> bool:
    """Tell whether `shown` is a name, or its ends about a mark that stands for what is left out."""
    before, mark, after = shown.partition("…")
    is_ends = name.startswith(before) and name.endswith(after) and before + after != ""
    return is_ends if mark else shown == name


@pytest.mark.parametrize("width", [20, 27, 40, 80, 200])
def test_every_head_and_every_word_is_named_or_its_ends_are(width):
    for kind, n in (
        *product(["letters"], (1, 2, 9, 40, 70)),
        ("long", 12),
        ("longer", 6),
        ("cjk", 6),
        ("emoji", 6),
    ):
        trace = traced(kind, n, "learned-heads")
        shown = set(screen(kind, n, "learned-heads", width).split())
        for name in (*trace.head_names, *trace.query_tokens):
            assert any(shortened(word, name) for word in shown), (kind, n, name)
        assert set(trace.head_names) <= shown or width < 40 or n > 9, (kind, n)


@pytest.mark.parametrize("mode", ["explain", "top", "masked-top", *ROWS])
def test_a_sentence_or_a_formula_is_broken_between_its_numbers_and_a_small_table_has_no_empty_cell(mode):
    for kind, n in (("letters", 1), ("letters", 6), ("letters", 20), ("long", 12)):
        for block in blocks_of(kind, n, mode, 20):
            for width in (20, 33, 57) if isinstance(block, (Say, Formula, Heading)) else ():
                shown, whole = painted([block], width), painted([block], None)
                assert SPOKEN.findall(shown) == SPOKEN.findall(whole), shown
            for row in block.rows if isinstance(block, Columns) else ():
                assert all(cell.strip() for cell in row) and len(row) == len(block.header), row


def test_labels_take_digits_before_they_are_replaced_by_numbers():
    fox = trace_self("The quick brown fox jumped over the lazy dog", Settings(embedding="random", dim=4))
    for width, said in ((70, None), (61, "two digits."), (60, "two digits, numbered columns.")):
        text = render(fox, View(width=width), Terminal(width=width))
        header = next(line for line in text.splitlines() if line.startswith("query\\key"))
        assert ("jumped" in header) == ("numbered" not in (said or ""))
        assert (said is None) == ("To fit" not in text) and (said or "") in text
    text = render(fox, View(width=60, precision=3), Terminal(width=60))
    assert "columns 0 to 7 of 9" in text and "2 pages of columns" in text


@pytest.mark.parametrize("width", [20, 40, 80, 120, 200])
def test_heat_blocks_have_labels_and_heads_and_the_reader_is_told_when_a_matrix_was_condensed(width):
    for n in (24, 40, 100) if width < 200 else ():
        tokens = words("letters", n)
        text = screen("letters", n, "table", width)
        if "heat blocks" not in " ".join(text.split()):
            assert n == 24 and width > 80
            continue
        body = text[: text.index("shades:")]
        rows = [line for line in body.split("\n") if re.search(f"[{BARS}]", line)]
        assert len(rows) % n == 0 and rows, width
        numbered = rows[0].split()[0] == "0"
        for i, (line, token) in enumerate(zip(rows, tokens * (len(rows) // n), strict=True)):
            number, *label = line.split() if numbered else [str(i % n), *line.split()]
            assert number == str(i % n) and (label[0] == token or label[0].startswith(token[0])), line
        assert numbered == (n > 24 and "blocks of one" in " ".join(text.split()))  # no room for two letters
        heads = "".join(line for line in body.split("\n")[2:] if line not in rows)
        wanted = "0123456789" if numbered else "".join(tokens)
        assert set(wanted) <= set(heads)
    for n in SIZES:
        text = " ".join(screen("letters", n, "table", width).split())
        has_three = len(re.findall(r"(?<![\w.])(?:\.\d{3}|1\.00)(?![\w.])", text)) >= n * n
        assert has_three or "To fit:" in text or "too many to draw" in text, n
        if "too many to draw" not in text and "To fit:" not in text:
            assert "pages" not in text
    assert "288 more rows" in " ".join(screen("letters", 300, "table", 80).split())
    for wide in (80, None):
        assert "260 more rows" in " ".join(screen("letters", 300, "bars", wide).split())
    ranges = re.findall(r"(?m)^columns (\d+) to (\d+) of 100$", screen("long", 100, "precision", 60))
    assert ranges[0][0] == "0" and ranges[-1][1] == "99"
    assert all(int(after[0]) == int(before[1]) + 1 for before, after in pairwise(ranges))


@pytest.mark.parametrize("mode", ["bars", "bars-query", "masked-bars"])
@pytest.mark.parametrize("n", [6, 20, 300])
def test_the_longest_bar_is_as_long_as_it_says(mode, n):
    drawn = [block for block in blocks_of("letters", n, mode, 80) if isinstance(block, Bars)]
    largest = max(value for block in drawn for _, value in block.items if value is not None)
    assert {block.largest for block in drawn} == {largest}
    hidden = sum(value is None for block in drawn for _, value in block.items)
    mask = traced("letters", n, mode).mask
    assert n > 6 or hidden == (0 if mask is None else (~mask).sum())
    assert f"The longest bar is {share(largest)}." in screen("letters", n, mode, 80)
    for block in drawn if n < 300 else ():
        lines = painted([block], 80).splitlines()[-len(block.items) :]
        for line, (name, value) in zip(lines, block.items, strict=True):
            label, number = line.split()[:2]
            assert label == name
            assert number == "masked" if value is None else abs(float(number) - value) <= 0.0005, line


def test_more_width_never_shows_less():
    """Steps of the ladder: three digits, then two, then percent, then two-cell blocks, then one."""
    rungs = ["one cell", "two cells", "percent", "two digits"]

    def rung(width: int) -> int:
        text = " ".join(screen("letters", 20, "table", width).split())
        return next((i for i, name in enumerate(rungs) if name in text), len(rungs))

    climbed = [rung(width) for width in range(24, 160, 4)]
    assert climbed == sorted(climbed) and set(climbed) == {0, 1, 2, 3, 4}
    # At eighty columns: eleven words at three digits; then fewer digits, percent and blocks, beside each other.
    for n, expected in ((11, ""), (15, "two digits"), (20, "percent"), (30, "two cells"), (55, "one cell")):
        text = " ".join(screen("letters", n, "table", 80).split())
        assert "pages" not in text and (expected in text if expected else "To fit:" not in text), n


@takes_long
def test_five_thousand_words_are_condensed_in_little_memory_and_little_ink():
    args = ("self", " ".join(f"word{i}" for i in range(5000)), "-e", "random")
    out = told(*args)
    assert "too many to draw" in out and "4,988 more rows" in out and len(out) < 100_000
    for more in ([], ["-f", "json"]):
        assert peak([*COMMAND, *args, *more]) < 600e6
    found = record(*args)
    assert found["weights"] is None and found["mask"] is None and found["condensed"] is True
    assert {link[0] for link in found["links"]} == set(range(5000)) and len(found["links"]) <= 100_000


def test_differences_that_two_digits_would_show_as_zeros_have_three_or_none():
    for largest, numbers in ((4e-4, 2), (5e-4, 1), (0.003, 1), (0.005, 3), (1.0, 3), (1.5, 2)):
        block = Matrix(["a"], ["b"], np.array([[largest]]), is_difference=True)
        assert sum(rung.format is not None for rung in rungs(block)) == numbers
