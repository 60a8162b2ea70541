"""A screen cut into parts at its headings, and a part into screenfuls: nothing is lost, little is torn."""

import numpy as np
import pytest

from attn_cli.io.terminal import Terminal
from attn_cli.render import Columns, Formula, Heading, Links, Matrix, Say
from attn_cli.render.formats import render_blocks
from attn_cli.render.screen.draw import parts_of, screenfuls
from attn_cli.settings.output import View
from tests.thorough import like_cases

VIEW = View(format="table", width=40)
TERMINAL = Terminal(40)
NAMES = [f"word{n}" for n in range(9)]
TABLE = Columns(("word", "n"), [(name, str(n)) for n, name in enumerate(NAMES)])
WIDE = Matrix(NAMES, NAMES, np.arange(81.0).reshape(9, 9) / 81, digits=3)  # goes on below an empty line
PART = [Heading("A heading"), Say("Some words. " * 12), TABLE, Formula("a = b"), WIDE, Say("The end.")]


def lines_of(text):
    return [line for line in text.splitlines() if line]


@pytest.mark.parametrize("rows", range(1, 60))
@like_cases
def test_screenfuls_hold_every_line_once_in_order_and_fit(rows):
    screens = screenfuls(PART, VIEW, TERMINAL, 40, rows)
    whole = render_blocks(PART, VIEW, TERMINAL)
    assert [line for screen in screens for line in lines_of(screen)] == lines_of(whole)
    assert all(screen.count("\n") <= rows and not screen.startswith("\n") for screen in screens)
    assert len(screens) == 1 or rows < whole.count("\n")


def test_a_part_begins_at_each_heading_and_what_fits_is_not_torn():
    before = [Say(letter) for letter in "abcdefg"]
    for rows in (10, 12):  # the table has ten
        screens = screenfuls([*before, TABLE], VIEW, TERMINAL, 40, rows)
        assert [lines_of(screen)[0].split()[0] for screen in screens] == ["a", "word"]
    screens = screenfuls([*before[:2], TABLE], VIEW, TERMINAL, 40, 11)  # a heading is not left alone
    assert [len(lines_of(screen)) for screen in screens] == [11, 1]
    # A wide matrix is cut between its tables.
    tables = [table.splitlines() for table in render_blocks([WIDE], VIEW, TERMINAL).split("\n\n")]
    height = max(map(len, tables))
    assert len(tables) > 1
    screens = screenfuls([WIDE], VIEW, TERMINAL, 40, height + 3)
    assert [lines_of(screen) for screen in screens] == [list(filter(None, table)) for table in tables]
    first = [Heading("One", 1), Heading("Two"), Say("a"), Say("b")]
    blocks = [*first, Heading("Three", 3), Say("c"), Heading("Four")]
    assert [len(part) for part in parts_of(blocks)] == [4, 2, 1]
    assert [block for part in parts_of(blocks) for block in part] == blocks
    titled = [Heading("A title", 1), Say("A sentence."), *blocks[4:]]
    assert [len(part) for part in parts_of(titled)] == [4, 1]
    assert list(parts_of([])) == []
    assert list(parts_of([Say("no heading")])) == [[Say("no heading")]]
    view, wide = View(format="table", width=100), Terminal(100)
    lines = [Say("x" * 100) for _ in range(6)]
    assert [screen.count("\n") for screen in screenfuls(lines, view, wide, 40, 9)] == [3, 3]
    assert [screen.count("\n") for screen in screenfuls(lines, view, wide, 100, 9)] == [6]
    chinese = [Say("中" * 25) for _ in range(6)]  # two cells each
    assert [screen.count("\n") for screen in screenfuls(chinese, view, wide, 40, 8)] == [4, 2]


@pytest.mark.parametrize("width", range(16, 60))
def test_links_fill_a_line_and_no_more(width):
    block = Links([("word0", [(name, ".25") for name in NAMES])])
    lines = lines_of(render_blocks([block], VIEW, Terminal(width)))
    one = len("  word0 .25")
    assert max(map(len, lines)) <= width < len(lines[0]) + one
