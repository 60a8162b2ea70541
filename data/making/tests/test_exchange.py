"""Sentences whose phrases change places: which may, and what governs each word then."""

import pytest

from attn_cli.learn.treebank import read_treebank
from data.making.exchange import exchanged, phrases, varied
from data.making.tests.running import making
from tests.parsed import conllu

READ = "she/PRON/2/nsubj read/VERB/0/root the/DET/4/det letter/NOUN/2/obj quickly/ADV/2/advmod"
SOLD = "we/PRON/2/nsubj sold/VERB/0/root an/DET/5/det old/ADJ/5/amod car/NOUN/2/obj"
WENT = "they/PRON/2/nsubj went/VERB/0/root in/ADP/5/case the/DET/5/det house/NOUN/2/obl"
PARTED = "what/PRON/4/obl did/AUX/3/aux go/VERB/0/root into/ADP/3/case it/PRON/1/obj"


@pytest.fixture
def some(tmp_path):
    (tmp_path / "some.conllu").write_text(conllu(READ, SOLD, WENT, PARTED))
    return tmp_path


def whole(phrase):
    return " ".join(phrase.sentence.words[phrase.start : phrase.end])


def test_a_phrase_takes_the_place_of_another_and_every_governor_moves_with_it(some):
    read, sold, *_ = read_treebank(str(some / "some.conllu"))
    letter = next(one for one in phrases(read) if one.root == 3)
    car = next(one for one in phrases(sold) if one.root == 4)
    made = exchanged(read, [letter], [car])
    assert " ".join(made.words) == "she read an old car quickly"
    assert made.governors == (1, -1, 4, 4, 1, 1)
    assert made.relations == ("nsubj", "root", "det", "amod", "obj", "advmod")
    assert made.tags == ("PRON", "VERB", "DET", "ADJ", "NOUN", "ADV")


def test_phrases_stand_together_and_their_kind_names_the_preposition(some):
    read, sold, went, parted = read_treebank(str(some / "some.conllu"))
    assert [*map(whole, phrases(sold))] == ["we", "an", "old", "an old car"]
    assert [one.kind() for one in phrases(went)][-1] == ("obl", "NOUN", "in")
    assert [one.kind() for one in phrases(read)][2] == ("obj", "NOUN", "DET")
    assert [*map(whole, phrases(parted))] == ["it"], "what ... into it is parted"


def test_each_sentence_is_varied_so_many_times(some):
    made = [*varied([str(some / "some.conllu")], 50, 0)]
    texts = {" ".join(one.words) for one in made}
    assert {"we read an old car quickly", "she sold the letter", "they went in the house"} <= texts
    assert 130 < len(made) <= 200, "now and then no phrase of a sentence is drawn"
    for one in made:
        assert one.governors.count(-1) == 1
        assert all(0 <= above < len(one.words) for above in one.governors if above >= 0)


def test_the_command_writes_a_treebank_that_is_read_again(some):
    done = making("exchange", "some.conllu", "--times", "2", "-o", "made.conllu.gz", cwd=some)
    assert done.code == 0 and "attn: wrote made.conllu.gz: " in done.err
    assert {one.words[1] for one in read_treebank(str(some / "made.conllu.gz"))} <= {
        "read",
        "sold",
        "went",
        "did",
    }
    (some / "short.conllu").write_text(conllu("go/VERB/0/root"))
    none = making("exchange", "short.conllu", "-o", "made.conllu.gz", cwd=some)
    assert none.code == 65 and "No phrase of these sentences" in none.err
