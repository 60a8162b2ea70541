"""Stories of lines that fit: who is in a line, which lines are told, and that nobody in a story comes from nowhere."""

import numpy as np
import pytest

from attn_cli.vectors.lookup import open_table
from data.making.corpus import HELD_BACK
from data.making.stories import (
    HE,
    IT,
    MARKS,
    MOST,
    NOT_TOLD,
    SHE,
    THEY,
    I,
    Stories,
    concrete,
    is_told,
    lines,
    read_line,
    told_lines,
)
from data.making.tales import tales
from data.making.tests.running import making

TOLD = [
    "The man opened the old door.",
    "The girl walked along the river.",
    "His wife sat by the fire.",
    "He looked at the horse.",
    "She looked at her house.",
    "They went into the garden.",
    "The children ran to them.",
    "I took my boat home.",
    "He gave me his bread.",
    "He saw the woman.",
    "Then she put her hand on the table.",
    "The idea was considered by the king.",
]
LEFT = [
    '"He came," she said.',
    "He is here now.",
    "You went home to him.",
    "He went with Tom.",
    "Tom went to him.",
]


def line(text):
    return read_line(text, (*text.lower().rstrip(".").split(), "."))


@pytest.fixture(scope="module")
def table():
    return open_table("word2vec")


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("\n".join([*TOLD, *LEFT] * 9) + "\n")
    return path


@pytest.mark.parametrize(
    ("said", "needs", "gives", "points"),
    [
        ("He went.", HE, HE, set()),
        ("The old man took his hat.", 0, HE | IT, {"man"}),
        ("A man met his wife.", 0, HE | SHE, set()),
        ("His wife saw him.", HE, HE | SHE, set()),
        ("She told the man he was late.", SHE, SHE | HE, {"man"}),
        ("The end came when it rained.", 0, IT, set()),
        ("They saw me.", THEY | I, THEY | I, set()),
        ("A girl came and the girl laughed.", 0, SHE, set()),  # the second time she is known
        ("It rained.", IT, IT, set()),
        ("A dog took its bone.", 0, IT, set()),
        ("The girls opened their old box and looked into it.", 0, THEY | IT, {"girls"}),
    ],
)
def test_a_pronoun_needs_somebody_before_it(said, needs, gives, points):
    read = line(said)
    assert (read.needs, read.gives, read.points) == (needs, gives, points)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("He walked home again .", True),
        ("He went home .", False),  # four tokens
        ("He walked home", False),
        ("He needs a red bed .", False),  # nothing of the past
        ("He has walked home .", False),
        ("You walked home .", False),
        ("They have walked home , they had .", False),
        ("He was said to have walked home .", True),
        ("He looked at him .", False),  # at whom?
        ("She took her hand and walked to her .", False),
        ("She took her hand and walked .", True),
        ("The king said that he knew him .", True),
        ("He walked" + " and walked" * 7 + " .", False),
    ],
)
def test_what_is_told_is_past(said, expected):
    assert is_told(tuple(said.lower().split())) == expected


def test_lines_are_whole_without_names_and_each_once(text):
    found = [one.text for one in told_lines([str(text)], lambda done: None)]
    assert sorted(found) == sorted(TOLD)
    assert not NOT_TOLD & MARKS


def test_lines_that_training_holds_back_are_left_out(tmp_path):
    (tmp_path / "long.txt").write_text("".join(f"Line {n}.\n" for n in range(1, 2 * HELD_BACK + 2)))
    found = [text for text, _ in lines(str(tmp_path / "long.txt"))]
    assert len(found) == 2 * HELD_BACK - 1 and not {"Line 1000.", "Line 2000."} & {*found}


def test_abstract_lines_go_first(text, table, monkeypatch):
    monkeypatch.setattr("data.making.stories.RARELY", 0.05)  # in so short a text a content word is not rarer
    some = told_lines([str(text)], lambda done: None)
    kept = {one.text for one in concrete(some, table)}
    assert TOLD[-1] not in kept and {TOLD[0], TOLD[1]} <= kept


def test_nobody_in_a_story_comes_from_nowhere(table):
    made = Stories([line(said) for said in TOLD], table)
    draw, longest, following = np.random.default_rng(0), 0, set()
    assert made.firsts and not {TOLD.index("They went into the garden."), 10} & {*made.firsts}
    for first in made.firsts * 20:
        story = made.story(first, draw)
        known, people = made.lines[first].gives, {*made.lines[first].people}
        for n in story[1:]:
            one = made.lines[n]
            assert one.needs and not one.needs & ~known and one.points <= people
            known, people = known | one.gives, people | one.people
            following.add(one.text)
        assert len({*story}) == len(story)
        longest = max(longest, sum(len(made.lines[n].words) for n in story))
    assert 30 < longest <= MOST
    # A woman can come in where nobody knows her yet as his wife, and never as the woman.
    assert "His wife sat by the fire." in following and "He saw the woman." not in following


def test_the_command_writes_stories_the_same_again_and_refuses_a_text_without_any(text, tmp_path):
    for name, seed in (("a.txt", "0"), ("b.txt", "0"), ("c.txt", "1")):
        done = making("stories", text, "-o", name, "--times", "2", "--seed", seed, cwd=tmp_path)
        assert done.code == 0 and f"wrote {name}: " in done.err, done.err
    a, b, c = ((tmp_path / f"{name}.txt").read_text() for name in "abc")
    assert a == b != c and a
    assert {one + "." for story in a.splitlines() for one in story.rstrip(".").split(". ")} <= {*TOLD}
    (tmp_path / "none.txt").write_text("no\n")
    told = making("stories", text, "-o", "e.txt", "--times", "2", "--tales", "7", cwd=tmp_path)
    with_tales = (tmp_path / "e.txt").read_text().splitlines()
    assert (
        told.code == 0
        and {*with_tales} == {*a.splitlines(), *tales(7, 0)}
        and len(with_tales) == len(a.splitlines()) + 7
    )
    none = making("stories", "none.txt", "-o", "d.txt", "--tales", "3", cwd=tmp_path)
    assert none.code == 65 and "No story" in none.err and not (tmp_path / "d.txt").exists()
