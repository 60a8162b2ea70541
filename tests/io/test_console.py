"""Messages on standard error: whole in a pipe, broken between words on a terminal."""

import json

import pytest

from attn_cli.io.console import folded
from tests.shell import attn, terminal

PATH = "/no/such/" + "folder/" * 12 + "weights.json"
WRONG = [
    ["self", "the cat", "--mask", "casual"],
    ["self", "the cat", "-f", "jsn"],
    ["self", "the cat", "-p", PATH],
    ["self", "the cat", "--head", "sbject"],
    ["self", "the", "cat", "sat"],
    ["compute", PATH],
    ["check", PATH, "--expect", PATH],
    ["vectors", "neerest"],
    ["vectors", "info", PATH],
    ["self", "漢字 " * 30, "-q", "語"],
]


@pytest.mark.parametrize("columns", [40, 60, 80])
@pytest.mark.parametrize("args", WRONG, ids=lambda args: " ".join(args)[:40])
def test_a_message_on_a_terminal_is_broken_between_words_only(args, columns):
    whole = attn(*args)
    assert whole.code and whole.err.count("\n") == 1, "in a pipe it is one line"
    shown = terminal(*args, columns=columns)
    assert shown.code == whole.code
    lines = shown.out.splitlines()
    assert " ".join(line.strip() for line in lines) == whole.err.strip()
    assert all(len(line) <= columns or " " not in line.strip() for line in lines)


def test_columns_beat_the_terminal_and_count_for_nothing_in_a_pipe():
    args = ["self", "the cat", "--mask", "casual"]
    narrow = terminal(*args, columns=120, env={"COLUMNS": "40"}).out.splitlines()
    assert len(narrow) > 2 and max(map(len, narrow)) <= 40
    assert attn(*args, env={"COLUMNS": "40"}).err == attn(*args).err


def test_an_error_object_stays_one_line_on_a_terminal():
    shown = terminal("self", "the cat", "--mask", "casual", "-f", "json", columns=40)
    assert json.loads(shown.out)["error"]["code"] == 2


def test_a_note_is_broken_like_an_error():
    shown = terminal("self", "zzxq likes coffee", "--dim", "3", "-f", "csv", columns=40)
    said = [line for line in shown.out.splitlines() if "," not in line or "attn" in line]
    assert any(line.startswith("attn: ") for line in said) and max(map(len, said)) <= 40


def test_folding_loses_nothing_and_breaks_no_word():
    text = "Cannot read  /a/very/long/path/of/one/word.npy: it  is 漢字漢字漢字 not there."
    for width in range(4, 90):
        lines = folded(text, width, 2)
        assert (
            " ".join(line.removeprefix("  ") if n else line for n, line in enumerate(lines)).split()
            == text.split()
        )
    assert folded(text, 200) == [text]
    for wide in ("漢字", "ＡＢ"):
        assert folded(f"{wide} {wide}", 8) == [wide, wide] and folded(f"{wide} {wide}", 9) == [
            f"{wide} {wide}"
        ]
