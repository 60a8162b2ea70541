"""Pretraining on running text: what is masked, what is learned, and heads that go on from there."""

import json
import os

import numpy as np
import pytest

from attn_cli.errors import InputError
from attn_cli.io.array_files import read_safetensors
from attn_cli.learn.batches import UNKNOWN
from attn_cli.learn.relations import RELATIONS
from attn_cli.learn.score import head_weights
from attn_cli.models.model_file import read_model
from attn_cli.vectors.lookup import open_table
from data.making.layers import NONE
from data.making.lower import read_lower
from data.making.masked_lines import Lines
from data.making.pretrain import pretrain_file
from data.making.settings import Pretraining
from data.making.tests.running import making
from tests.parsed import conllu
from tests.shell import attn

if os.environ.get("ATTN_REQUIRE_TORCH") != "1":
    pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")

SMALL = Pretraining(
    words=30_000, layers=3, heads=2, width=16, wide=24, reach=3, guesses=8, every=8000, endings=5, itself=3, batch=120,
    rate=0.03, keep=0.9,
)  # fmt: skip
NOUNS, VERBS = ("cat", "dog", "fox"), ("sleeps", "eats", "runs")


@pytest.fixture
def folder(tmp_path):
    """Vectors of nine words, and a text in which each word tells what comes two places on."""
    draw = np.random.default_rng(5)
    words = ["the", "a", *NOUNS, *VERBS, "here"]
    rows = (f"{word} {' '.join(f'{x:.4f}' for x in draw.standard_normal(6))}" for word in words)
    (tmp_path / "v.txt").write_text("\n".join(rows) + "\n")
    lines = (f"The {NOUNS[k]} here {VERBS[k]} ." for k in draw.integers(0, 3, 1500).tolist())
    (tmp_path / "text.txt").write_text("\n".join(lines) + "\n")
    return tmp_path


def made(folder, name="lower.safetensors", **changes):
    settings = Pretraining(**{**vars(SMALL), **changes})
    told = []
    done = pretrain_file(
        [str(folder / "text.txt")], str(folder / name), str(folder / "v.txt"), settings, lambda stage: None,
        lambda words, loss: told.append((words, loss)),
    )  # fmt: skip
    return done, told


def test_masked_words_are_learned_from_the_words_around_them(folder):
    done, told = made(folder)
    assert 30_000 <= done.words < 30_200 and [words // 8000 for words, _ in told] == [1, 2, 3, 3]
    # A noun and a verb each tell the other; "the" and "here" are always there. Not to know is to be lost among 8.
    assert told[-1][1] < 1 < told[0][1] < np.log(8)
    assert done.bytes == (folder / "lower.safetensors").stat().st_size


def test_the_same_seed_gives_the_same_bytes_and_another_seed_gives_others(folder):
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        made(folder, f"{name}.safetensors", seed=seed, words=2000)
    a, b, c = (read_safetensors(folder / f"{name}.safetensors") for name in "abc")
    assert all(np.array_equal(a[0][key], b[0][key]) for key in a[0]) and a[1] == b[1]
    assert not np.array_equal(a[0]["0.W_q"], c[0]["0.W_q"])


def test_a_masked_word_gives_neither_its_vector_nor_its_spelling(folder):
    source = Lines(open_table(str(folder / "v.txt")), [], SMALL)
    draw = np.random.default_rng(0)
    lines = source.encode([["The", "fox", "here", "runs", "Unheard"]] * 400)
    batch = source.masked(lines, draw)
    words = np.array([0, 4, 8, 7, UNKNOWN])
    wanted = batch.wanted != NONE
    assert 0.1 < wanted[:, :2].mean() < 0.3 and not wanted[:, 2].any(), "here is not among the 8 commonest"
    assert not wanted[:, 4].any(), "an unknown word cannot be guessed"
    np.testing.assert_array_equal(batch.wanted[wanted], np.broadcast_to(words, wanted.shape)[wanted])
    bare = (batch.features == len(source.names)).all(axis=2)
    gone = bare & wanted
    assert (batch.words[gone] == UNKNOWN).all() and not (bare & ~wanted).any()
    assert 0.8 < gone.sum() / wanted.sum() < 0.97, "some of those that are guessed stay"


PASSAGE = {"tokens": ["The", "cat", "sleeps", "where", "it", "eats"], "pronoun": 4, "antecedents": [[0, 2]]}


def to_learn_from(folder):
    """Write a treebank and a passage."""
    bank = [f"The/DET/2/det {noun}/NOUN/3/nsubj sleeps/VERB/0/root" for noun in NOUNS] * 3
    (folder / "bank.conllu").write_text(conllu(*bank))
    (folder / "some.jsonl").write_text(json.dumps(PASSAGE) + "\n")


def test_heads_go_on_from_pretrained_layers_and_take_their_sizes(folder):
    made(folder, words=3000)
    to_learn_from(folder)
    held_back = PASSAGE | {"tokens": ["A", *PASSAGE["tokens"][1:]]}
    (folder / "dev.jsonl").write_text(json.dumps(held_back) + "\n")
    ran = making(
        "train", "bank.conllu", "some.jsonl", "--dev", "dev.jsonl", "-e", "v.txt", "--pretrained",
        "lower.safetensors", "--epochs", "2", "-o", "model.safetensors", cwd=folder,
    )  # fmt: skip
    assert ran.code == 0, ran.err
    stack = read_model(str(folder / "model.safetensors"))
    assert stack.layers == 3 and stack.W_in.shape == (6, 16)
    assert "antecedent" in [head.name for head in stack.last.heads]
    assert stack.facts["pretrained_on"]["texts"] == ["text.txt"]
    assert stack.facts["scores"]["antecedent"]["count"] == 1 and stack.facts["scored_on"] == "dev.jsonl"
    making(
        "train", "bank.conllu", "-e", "v.txt", "--layers", "2", "--heads", "2", "--width", "8", "--wide", "8",
        "--epochs", "1", "-o", "old.safetensors", cwd=folder,
    )  # fmt: skip
    ran = making(
        "train", "some.jsonl", "-e", "v.txt", "--pretrained", "old.safetensors", "--freeze", "--epochs", "2",
        "-o", "new.safetensors", cwd=folder,
    )  # fmt: skip
    assert ran.code == 0, ran.err
    old, new = (read_model(str(folder / f"{name}.safetensors")) for name in ("old", "new"))
    heads = {head.name: head for head in new.last.heads}
    assert set(heads) - {head.name for head in old.last.heads} == {"antecedent"}
    for head in old.last.heads:
        for ours, theirs in ((head.W_q, heads[head.name].W_q), (head.W_v, heads[head.name].W_v)):
            np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(old.encoders[0].W_1, new.encoders[0].W_1)
    assert new.facts["trained_on"] == ["bank.conllu", "some.jsonl"]
    wrong = making(
        "train", "bank.conllu", "-e", "v.txt", "--pretrained", "lower.safetensors", "--width", "32", "-o",
        "m.safetensors", cwd=folder,
    )  # fmt: skip
    assert wrong.code == 2 and "--width 32" in wrong.err and "16" in wrong.err and wrong.err.count("\n") == 1


def test_a_new_head_may_reach_farther_than_those_that_are_kept(folder):
    to_learn_from(folder)
    learn, small = ["train", "-e", "v.txt", "--epochs", "1"], ["--width", "8", "--wide", "8"]
    sizes = ["--layers", "2", "--heads", "2", *small, "--reach", "3"]
    one = [*learn, "bank.conllu", *sizes, "-o", "old.safetensors"]
    assert making(*one, cwd=folder).code == 0
    on = [*learn, "some.jsonl", "--pretrained", "old.safetensors", "--freeze", "-o", "new.safetensors"]
    assert making(*on, "--reach", "5", cwd=folder).code == 0
    old, new = (read_model(str(folder / f"{name}.safetensors")) for name in ("old", "new"))
    assert {len(head.position.b) // 2 for head in new.last.heads} == {5}
    assert {len(head.position.b) // 2 for head in new.encoders[0].attention.heads} == {3}
    table = open_table(str(folder / "v.txt"))
    words = [*NOUNS * 3, "sleeps"]
    assert len(words) > 5 + 1, "some are further apart than either reach"
    before, after = head_weights(old, table, words), head_weights(new, table, words)
    assert set(after) - set(before) == {"antecedent"}
    for name, weights in before.items():
        np.testing.assert_allclose(after[name], weights, rtol=1e-6, err_msg=name)
    again = [*learn, "some.jsonl", "--pretrained", "new.safetensors", "-o", "third.safetensors"]
    assert making(*again, cwd=folder).code == 0
    third = read_model(str(folder / "third.safetensors"))
    assert {len(head.position.b) // 2 for head in third.last.heads} == {5}, "it stays"
    wrong = making(*again, "--reach", "4", cwd=folder)
    assert wrong.code == 2 and wrong.err.count("\n") == 1
    assert "--reach 4" in wrong.err and "5" in wrong.err


def test_a_model_of_another_query_size_is_learned_on_and_another_size_is_refused(folder):
    to_learn_from(folder)
    sizes = "--layers 2 --heads 2 --width 8 --wide 8".split()  # noqa: SIM905
    learn = ["train", "-e", "v.txt", "--epochs", "1"]
    assert making(*learn, "bank.conllu", *sizes, "--dim", "8", "-o", "old.safetensors", cwd=folder).code == 0
    on = [*learn, "bank.conllu", "some.jsonl", "--pretrained", "old.safetensors", "-o", "new.safetensors"]
    assert making(*on, cwd=folder).code == 0
    assert {head.W_q.shape[1] for head in read_model(str(folder / "new.safetensors")).last.heads} == {8}
    wrong = making(*on, "--dim", "16", cwd=folder)
    assert wrong.code == 2 and "--dim 16" in wrong.err and wrong.err.count("\n") == 1


def test_texts_teach_the_heads_that_they_can_and_no_other(folder):
    to_learn_from(folder)
    learn = ["train", "-e", "v.txt", "--epochs", "1", "-o", "model.safetensors"]
    names = {}
    for texts in (("some.jsonl",), ("bank.conllu",), ("some.jsonl", "bank.conllu")):
        assert making(*learn, *texts, cwd=folder).code == 0
        names[texts] = {head.name for head in read_model(str(folder / "model.safetensors")).last.heads}
    assert names["some.jsonl",] == {"antecedent", "previous", "next"}
    assert names["bank.conllu",] == set(RELATIONS) - {"antecedent"}
    assert names["some.jsonl", "bank.conllu"] == set(RELATIONS)
    for text, head, kind in (
        ("some.jsonl", "subject", "treebank"),
        ("bank.conllu", "antecedent", "passages"),
    ):
        wrong = making(*learn, text, "--relations", f"{head},previous", cwd=folder)
        assert wrong.code == 2 and head in wrong.err and kind in wrong.err and wrong.err.count("\n") == 1


def test_freeze_needs_a_model_and_a_head_that_is_new(folder):
    to_learn_from(folder)
    learn = ["train", "bank.conllu", "-e", "v.txt", "--epochs", "1"]
    sizes = "--layers 2 --heads 2 --width 8 --wide 8".split()  # noqa: SIM905
    assert making(*learn, *sizes, "-o", "old.safetensors", cwd=folder).code == 0
    for options, said in (([], "--pretrained"), (["--pretrained", "old.safetensors"], "nothing is left")):
        wrong = making(*learn, *options, "--freeze", "-o", "new.safetensors", cwd=folder)
        assert wrong.code == 2 and said in wrong.err and wrong.err.count("\n") == 1
        assert not (folder / "new.safetensors").exists()


def test_dropout_changes_what_is_learned_and_is_noted(folder):
    to_learn_from(folder)
    learn = "train bank.conllu -e v.txt --epochs 1 --layers 2 --heads 2 --width 8 --wide 8".split()  # noqa: SIM905
    found = []
    for share in ("0", "0.9"):
        assert making(*learn, "--dropout", share, "-o", "model.safetensors", cwd=folder).code == 0
        found.append(read_model(str(folder / "model.safetensors")))
        assert found[-1].facts["settings"]["dropout"] == float(share)
    assert not np.array_equal(found[0].encoders[0].W_1, found[1].encoders[0].W_1)
    ran = making(
        "train", "some.jsonl", "-e", "v.txt", "--epochs", "1", "--pretrained", "model.safetensors", "--freeze",
        "-o", "more.safetensors", cwd=folder,
    )  # fmt: skip
    assert ran.code == 0, ran.err
    assert read_model(str(folder / "more.safetensors")).facts["settings"]["dropout"] == 0


def test_a_model_of_one_layer_is_not_learned_on(folder):
    to_learn_from(folder)
    learn = ["train", "bank.conllu", "-e", "v.txt", "--epochs", "1"]
    assert attn("learn", *learn, "-o", "one.safetensors", cwd=folder).code == 0
    wrong = making(*learn, "--pretrained", "one.safetensors", "-o", "two.safetensors", cwd=folder)
    assert wrong.code == 65 and "one layer" in wrong.err and wrong.err.count("\n") == 1


def test_what_is_no_file_of_pretrained_layers_is_refused(folder):
    table = open_table(str(folder / "v.txt"))
    made(folder, words=500)
    assert read_lower(str(folder / "lower.safetensors"), table).sizes.width == 16
    with pytest.raises(InputError, match="other vectors"):
        read_lower(str(folder / "lower.safetensors"), open_table("word2vec"))
    args = "train text.txt --pretrained v.txt -e v.txt -o m.safetensors".split()  # noqa: SIM905
    ran = making(*args, cwd=folder)
    assert ran.code == 65 and ran.err.count("\n") == 1


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (["text.txt", "-o", "lower.npz"], 2, "safetensors"),
        (["text.txt", "-o", "l.safetensors", "--width", "15"], 2, "--heads 8"),
        (["missing.txt", "-o", "l.safetensors"], 66, "missing.txt"),
        (["empty.txt", "-o", "l.safetensors"], 65, "4 to 60 words"),
    ],
)
def test_what_cannot_be_pretrained_is_refused(args, code, said, folder):
    (folder / "empty.txt").write_text("one two\n")
    ran = making("pretrain", *args, "-e", "v.txt", cwd=folder)
    assert ran.code == code and said in ran.err and ran.err.count("\n") == 1
