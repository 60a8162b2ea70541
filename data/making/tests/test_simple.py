"""Plain lines that tell something: which are taken, and that the command writes them, and the same again."""

import gzip

import pytest

from data.making.corpus import HELD_BACK
from data.making.simple import MARKS, is_plain, lines, simple
from data.making.tests.running import making

STORY = [
    "He looked at the old door.",
    'She said, "No!" and looked.',
    "The old door looked shut.",
    "She shut her old door.",
]
REST = [
    "The data were sent by bus.",
    "Data by bus, data by train.",
    "We send data by bus.",
    "A bus is a bus, by bus.",
]
TEXT = [*STORY, *REST] * 9


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("\n".join(TEXT) + "\n")
    return path


def test_lines_are_kept_whose_words_come_beside_he_or_she(text):
    assert {*simple([str(text)], lambda done: None)} == {*STORY}
    assert [*simple([str(text)], lambda done: None)] == [line for line in TEXT if line in STORY]


def test_lines_that_training_holds_back_are_left_out(tmp_path):
    (tmp_path / "long.txt").write_text("".join(f"Line {n}.\n" for n in range(1, 2 * HELD_BACK + 2)))
    found = [text for text, _ in lines(str(tmp_path / "long.txt"))]
    assert len(found) == 2 * HELD_BACK - 1 and not {"Line 1000.", "Line 2000."} & {*found}


@pytest.mark.parametrize(
    ("line", "is_taken"),
    [
        ("The fox slept well.", True),
        ('"The fox slept!" slept the fox.', True),
        ("“The fox slept.”", True),
        ('"The fox slept well.', False),  # the quote has no end
        ("the fox slept well.", False),
        ("The fox slept well", False),
        ("The fox slept.", False),  # four tokens
        ("The fox slept zwxq well.", False),
        ("The fox (well) slept.", False),
        ("The fox slept well" + " and slept well" * 8 + ".", False),
    ],
)
def test_a_plain_line_is_a_whole_short_sentence_of_common_words(line, is_taken, tmp_path):
    (tmp_path / "one.txt").write_text(line)
    (read,) = lines(str(tmp_path / "one.txt"))
    assert is_plain(read, MARKS | {"the", "fox", "slept", "well", "and"}) == is_taken


def test_the_command_writes_the_lines_and_refuses_a_text_without_any(text, tmp_path):
    for name in ("a.txt", "b.txt.gz"):
        done = making("simple", text, "-o", name, cwd=tmp_path)
        assert done.code == 0 and f"wrote {name}: 36 lines" in done.err, done.err
    written = (tmp_path / "a.txt").read_text()
    assert written.splitlines() == [line for line in TEXT if line in STORY]
    assert gzip.decompress((tmp_path / "b.txt.gz").read_bytes()).decode() == written
    own = making("simple", text, "-o", text, cwd=tmp_path)
    assert own.code == 2 and "it would be replaced" in own.err
    (tmp_path / "none.txt").write_text("no\n")
    none = making("simple", "none.txt", "-o", "c.txt", cwd=tmp_path)
    assert none.code == 65 and "plain words" in none.err and not (tmp_path / "c.txt").exists()
