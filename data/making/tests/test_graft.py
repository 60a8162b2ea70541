"""Sentences grafted from two: which clause may stand behind which noun, and what governs each word then."""

import pytest

from attn_cli.learn.treebank import read_treebank
from data.making.graft import clauses, conllu, graft, hosts, kind
from data.making.tests.running import making
from tests.parsed import conllu as parsed

CLAUSE = (
    "she/PRON/2/nsubj knows/VERB/0/root a/DET/4/det dog/NOUN/2/obj that/PRON/6/nsubj chased/VERB/4/acl:relcl "
    "the/DET/8/det cat/NOUN/6/obj"
)
HOST = "the/DET/2/det fox/NOUN/3/nsubj slept/VERB/0/root in/ADP/6/case a/DET/6/det barn/NOUN/3/obl"


@pytest.fixture
def read(tmp_path):
    def read(*sentences):
        (tmp_path / "some.conllu").write_text(parsed(*sentences))
        return read_treebank(str(tmp_path / "some.conllu"))

    return read


def test_a_clause_stands_behind_a_subject_and_every_governor_moves_with_it(read):
    with_clause, host = read(CLAUSE, HOST)
    ((of_noun, clause),) = clauses(with_clause)
    (noun,) = hosts(host)
    made = graft(host, noun, clause)
    assert of_noun == kind("fox") == (False, False)
    assert " ".join(made.words) == "the fox that chased the cat slept in a barn"
    assert made.governors == (1, 6, 3, 1, 5, 3, -1, 9, 9, 6)
    assert made.relations[:7] == ("det", "nsubj", "nsubj", "acl:relcl", "det", "obj", "root")
    assert made.tags[6:] == ("VERB", "ADP", "DET", "NOUN")


@pytest.mark.parametrize(
    ("changed", "to"),
    [
        ("acl:relcl", "acl"),
        ("the/DET/8/det", ",/PUNCT/8/punct"),
        ("dog/NOUN", "Rex/PROPN"),
        (
            "the/DET/8/det cat/NOUN/6/obj",
            "the/DET/8/det cat/NOUN/2/obj",
        ),  # the clause is the one word "chased"
    ],
)
def test_other_clauses_are_left(read, changed, to):
    (sentence,) = read(
        CLAUSE.replace(changed, to).replace(
            "that/PRON/6", "that/PRON/2" if "6/obj" in changed else "that/PRON/6"
        )
    )
    assert not list(clauses(sentence))


@pytest.mark.parametrize(
    ("changed", "to"),
    [
        ("NOUN/3/nsubj", "NOUN/3/obj"),
        ("fox/NOUN", "it/PRON"),
        ("slept/VERB/0/root in/ADP/6/case", ",/PUNCT/4/punct slept/VERB/0/root"),
        ("in/ADP/6/case", "in/ADP/2/case"),
    ],
)
def test_other_nouns_take_none(read, changed, to):
    (sentence,) = read(HOST.replace(changed, to))
    assert not list(hosts(sentence))


@pytest.mark.parametrize(("noun", "found"), [
    ("dogs", (True, False)), ("glass", (False, False)), ("men", (True, True)), ("Doctors", (True, True)),
])  # fmt: skip
def test_who_goes_with_persons_and_many_with_many(noun, found):
    assert kind(noun) == found


def test_the_command_writes_a_treebank_that_is_read_again(tmp_path):
    (tmp_path / "some.conllu").write_text(parsed(CLAUSE, HOST))
    done = making("graft", "some.conllu", "-o", "made.conllu.xz", cwd=tmp_path)
    assert done == (0, "", "attn: wrote made.conllu.xz: 2 sentences.\n")
    made = read_treebank(str(tmp_path / "made.conllu.xz"))
    assert {" ".join(one.words) for one in made} == {"the fox that chased the cat slept in a barn"}
    assert conllu(made[0]).splitlines()[3] == "4\tchased\t_\tVERB\t_\t_\t2\tacl:relcl\t_\t_"
    own = making("graft", "some.conllu", "-o", "some.conllu", cwd=tmp_path)
    assert own.code == 2 and "some.conllu is a text that is read" in own.err


def test_its_commands_are_listed():
    for args, code in (((), 2), (("--help",), 0)):
        listed = making(*args)
        assert listed.code == code and "\n  graft " in listed.out + listed.err
