"""Passages spliced from two lines: which clause goes with which line; what is said tells which noun is meant."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from attn_cli.learn.batches import Vocabulary
from attn_cli.learn.treebank import read_passages
from attn_cli.models.model_file import read_model
from attn_cli.vectors.lookup import open_table
from data.making.contrast import apart, together
from data.making.splice import FEWEST, Lexicon, Spliced, splice
from data.making.tests.running import making
from tests.parsed import conllu

TAGS = (
    "gate/NOUN/0/root locked/VERB/1/acl dog/NOUN/1/nmod old/ADJ/3/amod",
    "saw/VERB/0/root wife/NOUN/1/obj is/AUX/1/aux",
)
FRAMES = "the gate , the dog , the gates , the wife ,".split()  # noqa: SIM905


@pytest.fixture
def lexicon(tmp_path):
    (tmp_path / "tags.conllu").write_text(conllu(*TAGS))
    found = Lexicon([str(tmp_path / "tags.conllu")])
    for _ in range(FEWEST):
        found.count(FRAMES)
    found.settle()
    return found


@pytest.mark.parametrize(
    ("line", "pronoun", "passage"),
    [
        ("He came back because the old gate was locked , and left .", "it", "because it was locked"),
        ("The gate 's rusty lock broke .", "its", ". Its rusty lock broke"),
        ("When we saw the gate at last , we ran .", "it", ". When we saw it at last"),
        ("The gates locked him out .", "they", ". They locked him out"),
        ("Nobody left before the wife saw him .", "she", "before she saw him"),
    ],
)
def test_what_a_line_says_of_a_thing_is_said_after_another_line(lexicon, line, pronoun, passage):
    tokens = line.split()
    (clause,) = lexicon.clauses(tokens, lexicon.found(tokens))
    before = f"The dog ran past the {clause.noun} ."
    if "When" in line:
        passage = passage.replace(". When", "when")
    made = splice(before.split(), (1, 5), clause, pronoun)
    assert " ".join(made.tokens) == f"The dog ran past the {clause.noun} {passage} ."
    assert made.tokens[made.pronoun].lower() == pronoun and made.right == (5,)
    assert made.clause == 6 + passage.startswith(".")


@pytest.mark.parametrize(
    "line",
    [
        "A gate was locked .",  # some gate, of which the other line does not speak
        "Of the gate we know little .",
        "The gate is .",  # says nothing
        "The gate keeper was locked in .",
        "We locked the gate of old .",  # not the whole phrase
    ],
)
def test_what_says_nothing_of_a_known_thing_is_left_alone(lexicon, line):
    tokens = line.split()
    assert not [*lexicon.clauses(tokens, lexicon.found(tokens))]


def test_the_command_writes_the_same_passages_again(at):
    Path("tags.conllu").write_text(conllu(*TAGS))
    lines = [
        "The dog ran past the gate .",
        "The gate was locked .",
        "An old dog saw the gate , the dog , it .",
    ]
    Path("some.txt").write_text("\n".join(lines * FEWEST) + "\n")
    for name in ("one.jsonl.xz", "two.jsonl.xz"):
        done = making("splice", "some.txt", "tags.conllu", "-o", name)
        assert done.code == 0 and "about 1 noun" in done.err, done.err
    assert Path("one.jsonl.xz").read_bytes() == Path("two.jsonl.xz").read_bytes()
    marked = {(one.words, tuple(one.antecedents)) for one in read_passages("one.jsonl.xz")}
    assert any(words[-4:] == ("It", "was", "locked", ".") for words, _ in marked)


def test_a_pronoun_after_another_line_is_compared_with_the_nouns_of_all(tmp_path):
    if os.environ.get("ATTN_REQUIRE_TORCH") != "1":
        pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")
    import torch

    draw = np.random.default_rng(3)
    names = ("dog", "gate", "saw", "it", "they", "locked", "gates")
    rows = (f"{word} {' '.join(f'{x:.4f}' for x in draw.standard_normal(8))}" for word in names)
    (tmp_path / "v.txt").write_text("\n".join(rows) + "\n")
    words = Vocabulary(open_table(str(tmp_path / "v.txt")), 5, 5, ["antecedent"])
    some = [
        Spliced(("dog", "saw", "gate", "it", "locked"), 3, (2,), (0, 2), 3),
        Spliced(("saw", "gate", "dog", "saw", "it"), 4, (1,), (1, 2), 3),
        Spliced(("dog", "saw", "it", "locked"), 2, (0,), (0,), 2),
        Spliced(("saw", "gates", "they", "locked"), 2, (1,), (1,), 2),
    ]
    made = apart(words, some)
    at = [[*made.batch.words[tuple(where.T)]] for where in (made.pronouns, made.nouns)]
    assert at == [
        [words.row(w) for w in row] for row in (("it", "it", "it", "they"), ("gate", "gate", "dog", "gates"))
    ]
    Q, K = draw.standard_normal((2, *made.is_word.shape, 4)).astype(np.float32)
    z = np.exp(Q[tuple(made.pronouns.T)] @ K[tuple(made.nouns.T)].T / 2)
    # Of the three that are "it", the first two stand for a gate; "they" has nothing to compare with.
    shares = [z[0, :2].sum() / z[0, :3].sum(), z[1, :2].sum() / z[1, :3].sum(), z[2, 2] / z[2, :3].sum(), 1]
    assert float(made.loss(torch, *map(torch.from_numpy, (Q, K)))) == pytest.approx(
        -np.log(shares).mean(), rel=1e-5
    )
    together_ = together(words, some)
    assert [one.links for one in together_[:2]] == [[{3: {2: 1.0}}], [{4: {1: 1.0}}]]


def test_training_reads_them_and_says_so(tmp_path):
    if os.environ.get("ATTN_REQUIRE_TORCH") != "1":
        pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")
    (tmp_path / "v.txt").write_text("dog 1 0 0\ngate 0 1 0\nsaw 0 0 1\nit 1 1 0\nlocked 1 0 1\n")
    record = {"tokens": ["dog", "saw", "gate", "it", "locked"], "pronoun": 3, "antecedents": [[2, 3]]}
    spliced = record | {"candidates": [[0, 1], [2, 3]], "clause": 3}
    (tmp_path / "few.jsonl").write_text(json.dumps(record) + "\n")
    (tmp_path / "spliced.jsonl").write_text(json.dumps(spliced) + "\n")
    learn = "train few.jsonl -e v.txt --layers 2 --heads 1 --width 4 --wide 4 --epochs 2 --spliced".split()  # noqa: SIM905
    for name in ("a", "b"):
        ran = making(*learn, "spliced.jsonl", "-o", f"{name}.safetensors", cwd=tmp_path)
        assert ran.code == 0, ran.err
    assert (tmp_path / "a.safetensors").read_bytes() == (tmp_path / "b.safetensors").read_bytes()
    facts = read_model(str(tmp_path / "a.safetensors")).facts
    assert facts["spliced_on"]["passages"] == "spliced.jsonl" and facts["spliced_on"]["read"] > 0
    ran = making(*learn, "few.jsonl", "-o", "c.safetensors", cwd=tmp_path)
    assert ran.code == 65 and "few.jsonl holds other passages" in ran.err


def test_spliced_passages_are_refused_where_no_head_learns_from_them(at):
    Path("few.jsonl").write_text('{"tokens": ["a", "it"], "pronoun": 1, "antecedents": [[0, 1]]}\n')
    spliced = ["--spliced", "few.jsonl", "-o", "m.safetensors"]
    done = making("train", "few.jsonl", "--relations", "next", *spliced)
    assert done.code == 2 and "--spliced" in done.err
