"""Running text as training reads it: tokens, rows of the vectors, and the lines that are held back."""

import json
import lzma

import numpy as np

from attn_cli.vectors import VectorTable
from data.making.corpus import HELD_BACK, UNKNOWN, WordRows, lines, sentences
from tests.parsed import conllu


def words(*known):
    block = b"\n" + "\n".join(known).encode() + b"\n"
    return WordRows(VectorTable("file", "table", block, np.eye(len(known)), {}))


def packed(path, text):
    path.write_bytes(lzma.compress(text.encode()))
    return str(path)


def test_a_line_is_cut_as_the_vectors_text_was_with_its_marks_and_case(tmp_path):
    path = packed(tmp_path / "a.txt.xz", "The cat doesn't sit.\n\n  \nIt’s 3.5 m!\n")
    assert list(lines(path)) == [("The", "cat", "does", "n't", "sit", "."), ("It", "’s", "3.5", "m", "!")]


def test_every_thousandth_line_is_held_back_and_none_is_in_both(tmp_path):
    path = packed(tmp_path / "a.txt.xz", "".join(f"line {n}\n" for n in range(1, 2 * HELD_BACK + 2)))
    assert list(lines(path, held_back=True)) == [("line", "1000"), ("line", "2000")]
    learned = list(lines(path))
    assert len(learned) == 2 * HELD_BACK - 1 and ("line", "1000") not in learned


def test_passages_give_their_tokens_once_with_straight_quotes(tmp_path):
    tokens = ["“", "A", "cat", ".", "”", "It", "slept", "."]
    records = [{"tokens": tokens, "pronoun": at, "antecedents": [[1, 3]]} for at in (5, 6)]
    (tmp_path / "some.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records))
    assert [*lines(str(tmp_path / "some.jsonl"))] == [('"', "A", "cat", ".", '"', "It", "slept", ".")]


def test_a_token_has_the_row_that_a_lookup_finds(tmp_path):
    found = words("the", "it", "'s", "US", "us")
    assert found.of(["The", "IT", "’s", "US", "us", "Us", "zwx"]).tolist() == [0, 1, 2, 3, 4, 4, UNKNOWN]
    path = packed(tmp_path / "a.txt.xz", "The zwx\nIt\n")
    assert [one.tolist() for one in sentences([path, path], found)] == [[0, UNKNOWN], [1]] * 2


def test_a_treebank_gives_the_words_of_its_sentences(tmp_path):
    path = tmp_path / "a.conllu"
    path.write_text(conllu("Zebras/NOUN/2/nsubj graze/VERB/0/root ./PUNCT/2/punct"))
    assert list(lines(str(path))) == [("Zebras", "graze", ".")]
