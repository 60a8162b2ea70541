"""Passages that running text gives by itself: which noun becomes *it*, and what is left alone."""

import gzip
import json
import lzma
from pathlib import Path

import pytest

from attn_cli.learn.treebank import read_passages
from data.making.make_passages import MOST_OF_A_NOUN, repeat
from data.making.tests.running import making

SHIP = "The crew saw a ship in the fog before the ship was lost ."


def found(text):
    return repeat(text.split())


@pytest.mark.parametrize(
    ("text", "changed", "antecedents"),
    [
        (SHIP, "The crew saw a ship in the fog before it was lost .", ["a ship"]),
        (
            "A very old ship met a storm and the ship 's mast fell .",
            "A very old ship met a storm and its mast fell .",
            ["A very old ship"],
        ),
        (
            "Of ship and crew it is said that the ship was lost .",
            None,  # no other thing with a determiner stands before
            None,
        ),
        (
            "By ship the crew came , and the ship was lost .",
            "By ship the crew came , and it was lost .",
            ["ship"],  # without an article
        ),
        (
            "The crew saw his ship in the fog . The ship was lost .",
            "The crew saw his ship in the fog . It was lost .",
            ["his ship"],
        ),
        (
            "The dog saw a ship before the ship sank in the fog , and the ship was lost .",
            "The dog saw a ship before the ship sank in the fog , and it was lost .",
            ["a ship", "the ship"],
        ),
    ],
)
def test_the_last_noun_that_a_line_repeats_becomes_it(text, changed, antecedents):
    one = found(text)
    if changed is None:
        assert one is None
        return
    assert " ".join(one.tokens) == changed
    assert one.tokens[one.pronoun].lower() in ("it", "its")
    assert [" ".join(one.tokens[start:end]) for start, end in one.antecedents] == antecedents


@pytest.mark.parametrize(
    "text",
    [
        "The crew saw a ship in the fog before the captain was lost .",  # said once
        "The crew saw a king in the fog before the king was lost .",  # a person
        "The crew saw the ships in the fog before the ships were lost .",  # several
        "The crew saw a ship in the fog before the ship sank .",  # may be a compound: the ship channel
        "The crew saw a ship in the fog before a ship was lost .",  # another one
        "The crew saw the Ship in the fog before the Ship was lost .",  # a name
        "The crew saw a ship or the ship was lost .",  # too near
        "The old ship sailed for many days and the ship was lost .",  # nothing else is named
        "He said that he knew of ship and that the ship was lost .",  # the same: that names nothing
        "The king met two people in the hall and the people had bread .",  # several
        "The crew saw a ship in the fog before the ship 's been lost .",  # 's is a verb
        "the ship",
        "",
    ],
)
def test_a_line_without_such_a_noun_gives_no_passage(text):
    assert found(text) is None


@pytest.mark.parametrize("name", ["it.jsonl", "it.jsonl.gz", "it.jsonl.xz"])
def test_the_command_writes_passages_that_training_reads(at, name):
    Path("some.txt").write_text(f"{SHIP}\nNothing here .\n", encoding="utf-8")
    done = making("passages", "some.txt", "-o", name)
    assert done.code == 0 and "1 passage with 1 noun" in done.err
    (passage,) = read_passages(name)
    assert passage.words == found(SHIP).tokens
    assert [(one.pronoun, one.words) for one in passage.antecedents] == [(9, (3, 4))]
    unpack = {"gz": gzip.open, "xz": lzma.open}.get(name.rpartition(".")[2], open)
    with unpack(name) as file:
        assert json.loads(file.read())["pronoun"] == 9


def test_the_same_text_gives_the_same_bytes(at):
    Path("some.txt").write_text(f"{SHIP}\n", encoding="utf-8")
    for name in ("one.jsonl.gz", "two.jsonl.gz"):
        assert making("passages", "some.txt", "-o", name).code == 0
    assert Path("one.jsonl.gz").read_bytes() == Path("two.jsonl.gz").read_bytes()


def test_a_noun_that_is_everywhere_does_not_fill_the_file(at):
    # Every thousandth line is held back, as from all learning.
    Path("some.txt").write_text(f"{SHIP}\n" * (MOST_OF_A_NOUN + 5), encoding="utf-8")
    assert making("passages", "some.txt", "-o", "it.jsonl").code == 0
    assert len(Path("it.jsonl").read_text(encoding="utf-8").splitlines()) == MOST_OF_A_NOUN


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["some.txt", "-o", "it.txt"], 2, ".jsonl"),
        (["same.jsonl", "-o", "same.jsonl"], 2, "would be replaced"),
        (["none.txt", "-o", "it.jsonl"], 66, "none.txt"),
        (["empty.txt", "-o", "it.jsonl"], 65, "names a thing again"),
        (["some.txt", "-o", "no/it.jsonl"], 73, "no such folder"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(at, arguments, code, said):
    Path("some.txt").write_text(f"{SHIP}\n", encoding="utf-8")
    Path("empty.txt").write_text("Nothing is said twice .\n", encoding="utf-8")
    Path("same.jsonl").write_text(f"{SHIP}\n", encoding="utf-8")
    done = making("passages", *arguments)
    assert done.code == code and said in done.err and done.err.count("\n") == 1
    assert sorted(path.name for path in Path().iterdir()) == ["empty.txt", "same.jsonl", "some.txt"]
    assert Path("same.jsonl").read_text(encoding="utf-8") == f"{SHIP}\n"


def test_a_long_line_gives_none_and_a_treebank_is_read(at):
    long = " ".join(["So", "far", ","] * 24 + SHIP.split())
    Path("long.txt").write_text(f"{long}\n", encoding="utf-8")
    assert found(long) is not None
    assert making("passages", "long.txt", "-o", "it.jsonl").code == 65
    rows = [f"{n}\t{word}\t_\tX\t_\t_\t{int(n > 1)}\tdep\t_\t_" for n, word in enumerate(SHIP.split(), 1)]
    Path("some.conllu").write_text("\n".join(rows) + "\n\n", encoding="utf-8")
    assert making("passages", "some.conllu", "-o", "it.jsonl").code == 0
    assert read_passages("it.jsonl")[0].words == found(SHIP).tokens
