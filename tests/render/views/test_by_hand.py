"""Whole screens, documents and sheets of vectors and matrices so small that each number can be checked by hand."""

import re
import shlex
from pathlib import Path

import pytest

from tests.docs import alike
from tests.shell import here

FILES = {
    "v.txt": "a 2 0 0 0\nb 1 0 0 0\nc 0 2 0 0\nd 0 0 0 0\ne -1 0 0 0\n",
    "qkv.json": '{"Q": [[2,0],[0,2]], "K": [[1,0],[0,1],[1,1]], "V": [[1,0],[0,1],[2,2]]}',
    "place.json": '{"Q": [[2,0],[0,2]], "K": [[1,0],[0,1],[1,1]], "V": [[1,0],[0,1],[2,2]], "scale": 0.5, '
    '"position_scores": [[0,2,-1],[1,0.5,1]]}',
    "capped.json": '{"Q": [[2,0],[0,2]], "K": [[1,0],[0,1],[0.5,1]], "V": [[1,0],[0,1],[2,2]], "softcap": 1, '
    '"sinks": [0.5], "position_scores": [[0,1.8,0],[0,0,0]]}',
    "wide.json": '{"Q": [[1,1,1,1,1,1,1,1,1]], "K": [[1,1,1,1,1,1,1,1,1],[0,0,0,0,0,0,0,0,2]], '
    '"V": [[1,0,0,0,0,0,0,0],[0,0,0,0,0,0,0,2]]}',
    "scores.json": '{"scores": [[1,0],[null,2]], "V": [[1],[2]]}',
    "weights.json": '{"weights": [[0.75,0.25],[0.5,0.5]]}',
    "pairs.json": '{"a": "10", "b": "-4", "c": "1"}',
    "words.json": '{"a": "low", "b": "high", "c": "low", "A": "none"}',
    "right.json": '{"scores": [[2,0,2],[0,2,2]], "weights": [[0.446,0.108,0.446],[0.108,0.446,0.446]]}',
    "turned.json": '{"scores": [[2,0],[0,2],[2,2]]}',
    "wrong.json": '{"scores": [[2,0,2],[0,2,7]], "weights": [[0.446,0.108,0.446],[0.108,0.446,0.9]], "n": [1]}',
    "part.json": '{"scores": [[2,0,2],[0,2,null]]}',
    "follows.json": '{"scores": [[2,0,2],[0,2,3]], "scaled_scores": [[1.414,0,1.414],[0,1.414,2.121]]}',
    "undivided.json": '{"weights": [[0.468,0.063,0.468],[0.063,0.468,0.468]]}',
}
# Each command with what it prints, of a document behind its style or preamble; ... stands for what is left out.
PAGE = (Path(__file__).parent / "by_hand.txt").read_text(encoding="utf-8")
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
        (at / name).write_text(text)
    text, parts = shown(line), wanted.rstrip("\n").split("\n...\n")
    is_alike = alike(wanted.splitlines(), text.splitlines())
    assert is_alike or (len(parts) > 1 and all(part in text for part in parts)), text
