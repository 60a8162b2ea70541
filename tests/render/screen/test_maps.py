"""Small multiples: every head as a small map, at any width, with names, shades and masks that can be read."""

import re
from functools import lru_cache
from itertools import product

import numpy as np
import pytest
from rich.cells import cell_len

from attn_cli import Settings, trace_cross, trace_masked, trace_self
from attn_cli.inputs.matrices import Given
from attn_cli.io.terminal import Terminal
from attn_cli.pipeline.sources.matrices import trace_matrices
from attn_cli.render.formats import render
from attn_cli.settings.output import View

BARS = "▁▂▃▄▅▆▇█"
DIGITS = "0123456789"
FOX = "The quick brown fox jumped over the lazy dog"
WIDE = "東京 は 中文注意力机制图在这里 e\u0301e\u0301e\u0301 👩‍👩‍👧 x"
INCOMPREHENSIBLE = "My incomprehensibilities notwithstanding we go on to the old town hall"
MANY = {name: " ".join(f"w{i}" for i in range(n)) for name, n in (("forty words", 40), ("seventy words", 70))}
TEXTS = {"one word": "Hi", "two words": "She sleeps", "nine words": FOX, "eleven words": INCOMPREHENSIBLE}
TEXTS |= {"wide characters": WIDE, "thirty words": f"{FOX} {FOX} {FOX} now we rest", **MANY}


@lru_cache(maxsize=64)
def traced(text, build=trace_self, **options):
    return build(text, Settings(head="all", tokenizer="whitespace", **options))


def screen(trace, width, encoding="utf-8"):
    text = render(trace, View(width=width), Terminal(width=width, encoding=encoding))
    assert max(map(cell_len, text.split("\n"))) <= width
    return text


def shortened(shown, name):
    """Tell whether `shown` is a name, or its ends about a mark that stands for what is left out."""
    before, mark, after = shown.partition("~" if "~" in shown else "…")
    is_ends = name.startswith(before) and name.endswith(after) and before + after != ""
    return is_ends if mark else shown == name


def bands(text, n):
    """Cut the maps out of a screen: of each band its heads, and of each row its label and its maps' cells."""
    start, stop = text.index("\n\n") + 2, re.search(r"\n[Cc]olumns", text).start()
    for band in text[start:stop].split("\n\n"):
        heads, numbers, *rows = band.split("\n")
        cell = 1 if "01" in numbers else 2
        edge = numbers.index("0") - (cell - 1) - 3
        one = "".join(str(j % 10).rjust(cell) for j in range(n))
        starts = [found.start() for found in re.finditer(re.escape(one), numbers)]
        step = starts[1] - starts[0] if len(starts) > 1 else 3 + cell * n
        assert len(starts) == len(heads.split())
        assert numbers[edge:] == "".join(f"   {one}".ljust(step) for _ in starts).rstrip()
        found = []
        for row in rows:
            label, cells = row, ""
            while label and cell_len(label) > edge:
                label, cells = label[:-1], label[-1] + cells
            maps = [cells[m * step :][3 : 3 + cell * n] for m in range(len(starts))]
            marks = [[one[j * cell : (j + 1) * cell].strip() for j in range(n)] for one in maps]
            found.append((label.strip(), marks))
        yield heads.split(), found


@pytest.mark.parametrize("kind", TEXTS)
@pytest.mark.parametrize("width", [20, 27, 40, 80, 200])
def test_every_head_and_every_word_is_named_or_its_ends_are(width, kind):
    trace = traced(TEXTS[kind])
    shown = set(screen(trace, width).split())
    for name in (*trace.head_names, *trace.query_tokens):
        assert any(shortened(word, name) for word in shown), name
    assert set(trace.head_names) <= shown or width < 40 or len(trace.key_tokens) > 9


# Those of which one column a word fits beside the labels; in ASCII, labels are words and not spelled out.
KINDS = ("two words", "nine words", "eleven words", "wide characters", "thirty words")
NOT = {("thirty words", 40), ("wide characters", "ascii")}
EVERY = product(KINDS, (40, 80, 97, 200), ("utf-8", "ascii"))
FITTING = [one for one in EVERY if one[:2] not in NOT and one[::2] not in NOT]


@pytest.mark.parametrize(("kind", "width", "encoding"), FITTING)
@pytest.mark.parametrize("mask", ["none", "causal", "window:1"])
def test_a_map_shows_every_weight_of_every_head(kind, mask, width, encoding):
    trace = traced(TEXTS[kind], mask=mask)
    n = len(trace.key_tokens)
    ramp = BARS if encoding == "utf-8" else DIGITS
    largest = max(head.weights.max() for head in trace.heads)
    names = []
    for heads, rows in bands(screen(trace, width, encoding), n):
        assert len(rows) == n
        for place, shown in enumerate(heads):
            head = trace.heads[len(names)]
            assert shortened(shown, head.name)
            names.append(head.name)
            for i, (label, maps) in enumerate(rows):
                number, word = label.split(maxsplit=1)
                assert int(number) == i and shortened(word, trace.query_tokens[i])
                for j, mark in enumerate(maps[place]):
                    if trace.mask is not None and not trace.mask[i, j]:
                        assert mark == ("–" if encoding == "utf-8" else "-")
                        continue
                    assert len(set(mark)) == 1 and mark[0] in ramp
                    level = ramp.index(mark[0]) / (len(ramp) - 1)
                    assert abs(level - head.weights[i, j] / largest) < 1 / (len(ramp) - 1), (head.name, i, j)
    assert names == list(trace.head_names)


def test_a_query_has_its_rows_a_context_its_columns_and_too_many_digits_or_words_a_matrix_of_each_head():
    trace = trace_cross("she sleeps", "bees hum although nobody listens", Settings(head="all"))
    for width in (40, 80, 200):
        shown = screen(trace, width)
        words = set(re.findall(r"[^\s,:()]+", shown))
        assert all(any(shortened(word, token) for word in words) for token in trace.key_tokens)
        assert "numbered as the rows are" not in " ".join(shown.split()), "the columns are other words"
    trace = traced(FOX, query="the")
    assert trace.listed == (6,)
    shown = screen(trace, 100).partition("The weights")[2]
    (rows,) = {tuple(label for label, _ in rows) for _, rows in bands(shown, 9)}
    assert rows == ("6 the",)
    text = render(traced("she sleeps"), View(width=80, precision=3), Terminal(width=80))
    assert len(re.findall(r"(?<![\d.])(?:0|1)?\.\d{3}(?!\d)|1\.000", text)) >= 11 * 4
    assert "Columns are numbered" not in text
    trace = traced(TEXTS["seventy words"])
    assert all(f"Head {name}" in screen(trace, 100) for name in trace.head_names)


def test_what_a_head_finds_is_its_strongest_links_and_a_masked_row_holds_no_shade():
    trace = traced(FOX)
    maps, _, told = screen(trace, 200).partition("What each head finds")
    low, high = re.search(rf"shades: (\S+) {BARS} (\S+)", maps).groups()
    assert float(low) == 0
    assert float(high) == pytest.approx(max(head.weights.max() for head in trace.heads), abs=0.005)
    for head in trace.heads:
        (line,) = (line for line in told.split("\n") if line.split()[:1] == [head.name])
        shown = {(a, b): float(w) for a, b, w in re.findall(r"(\S+) -> (\S+) +([\d.]+)", line)}
        wanted = [
            (float(head.weights[i, j]), (trace.query_tokens[i], trace.key_tokens[j]))
            for i in range(9)
            if (j := int(head.weights[i].argmax())) != i and head.weights[i, j] >= 0.5
        ]
        assert len(shown) == min(4, len(wanted)) and min(shown.values(), default=1) >= 0.5
        for weight, link in sorted(wanted, reverse=True)[: len(shown)]:
            assert min(abs(weight - w) for w in shown.values()) < 0.001 and (link in shown or len(shown) == 4)

    for build in (trace_self, trace_masked):  # a head that finds nothing is not said to be masked
        told = screen(traced("she sleeps", build), 100).partition("What each head finds")[2]
        assert "masked" not in told.partition("--head NAME")[0]
    allowed = np.ones((3, 3), bool)
    allowed[0] = False
    arrays = {name: np.random.default_rng(0).standard_normal((3, 4)) for name in "QKV"}
    given = Given("given", arrays, tokens=(*"abc",), context_tokens=(*"abc",), mask=allowed.tolist())
    made = trace_matrices("self", given, Settings(heads=2, head="all"))
    for _, rows in bands(screen(made, 80), 3):
        assert rows[0][1] == [["–"] * 3] * 2
        assert all(mark[0] in BARS for one in rows[1][1] for mark in one)
