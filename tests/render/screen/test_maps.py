"""Small multiples: every head as a small map, at any width, with names, shades and masks that can be read."""

import re
from functools import lru_cache

import pytest
from rich.cells import cell_len

from attn_cli import Settings, trace_cross, trace_masked, trace_self
from attn_cli.io.terminal import Terminal
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


@pytest.mark.parametrize("kind", TEXTS)
@pytest.mark.parametrize("width", [20, 27, 40, 80, 200])
def test_every_head_and_every_word_is_named_or_its_ends_are(width, kind):
    trace = traced(TEXTS[kind])
    shown = set(screen(trace, width).split())
    for name in (*trace.head_names, *trace.query_tokens):
        assert any(shortened(word, name) for word in shown), name
    assert set(trace.head_names) <= shown or width < 40 or len(trace.key_tokens) > 9


def test_a_context_has_its_columns_and_too_many_digits_or_words_a_matrix_of_each_head():
    trace = trace_cross("she sleeps", "bees hum although nobody listens", Settings(head="all"))
    for width in (40, 80, 200):
        shown = screen(trace, width)
        words = set(re.findall(r"[^\s,:()]+", shown))
        assert all(any(shortened(word, token) for word in words) for token in trace.key_tokens)
        assert "numbered as the rows are" not in " ".join(shown.split()), "the columns are other words"
    text = render(traced("she sleeps"), View(width=80, precision=3), Terminal(width=80))
    assert len(re.findall(r"(?<![\d.])(?:0|1)?\.\d{3}(?!\d)|1\.000", text)) >= 11 * 4
    assert "Columns are numbered" not in text
    trace = traced(TEXTS["seventy words"])
    assert all(f"Head {name}" in screen(trace, 100) for name in trace.head_names)


def test_a_head_that_finds_nothing_is_not_said_to_be_masked():
    for build in (trace_self, trace_masked):
        told = screen(traced("she sleeps", build), 100).partition("What each head finds")[2]
        assert "masked" not in told.partition("--head NAME")[0]
