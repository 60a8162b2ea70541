"""Whole screens, documents and sheets of vectors and matrices so small that each number can be checked by hand."""

import re
import shlex
from pathlib import Path

import pytest

from tests.docs import alike
from tests.shell import here

PAGE = (Path(__file__).parent / "by_hand.txt").read_text(encoding="utf-8")
FILES = dict(re.findall(r"^(\w+\.\w+): (.*)", PAGE.partition("$ attn ")[0], re.M))
# Each command with what it prints, of a document behind its style or preamble; ... stands for what is left out.
SCREENS = [block.partition("\n")[::2] for block in PAGE.split("\n$ attn ")[1:]]
BEFORE = re.compile(r"(?s)^.*(?=<body|\\(attntitle|begin\{document\}))")


def shown(line: str) -> str:
    """Run a command, V standing for the vectors and LONG for a long text of them, and return what it prints."""
    args = shlex.split(line.replace(" V", " -e v.txt -p identity").replace("LONG", f"'{300 * 'a b c d '}'"))
    ran = here(*args, env={"ATTN_WIDTH": "100"})
    return (ran.err + BEFORE.sub("", ran.out)).rstrip("\n")


@pytest.mark.parametrize(("line", "wanted"), SCREENS, ids=[line for line, _ in SCREENS])
def test_a_whole_screen_is_as_it_was_checked_by_hand(at, line, wanted):
    for name, text in FILES.items():
        (at / name).write_text(text.replace(" / ", "\n"))
    text, parts = shown(line), wanted.rstrip("\n").split("\n...\n")
    is_alike = alike(wanted.splitlines(), text.splitlines())
    assert is_alike or (len(parts) > 1 and all(part in text for part in parts)), text
