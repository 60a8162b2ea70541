"""Several layers on treebanks: the same arithmetic as the program's, learned with PyTorch, as a user runs it."""

import json
import os

import numpy as np
import pytest

from attn_cli.learn.batches import UNKNOWN
from attn_cli.learn.one_layer import loss_and_gradient
from attn_cli.learn.relations import RELATIONS
from attn_cli.learn.score import head_weights
from attn_cli.learn.treebank import read_treebank
from attn_cli.vectors.lookup import open_table
from data.making.deep import Deep
from data.making.settings import DeepTraining
from data.making.tests.running import COMMAND, making, paths
from data.making.train_deep import DeepTrainer
from tests.learn.test_learn import (  # noqa: F401
    DEEDS,
    DOERS,
    LINES,
    OPTIONS,
    VECTOR_FILE,
    as_written,
    interrupted_at,
    lessons,
    little,
    little_language,
    works,
)
from tests.parsed import parsed
from tests.shell import attn

QUICK = DeepTraining(
    relations="subject,object", epochs=12, rate=0.02, dim=4, reach=2, endings=20, batch=200, width=16, wide=16, heads=2,
    layers=2, dropout=0.0,
).with_defaults()  # fmt: skip


@pytest.fixture
def without_torch(tmp_path_factory):
    """An environment in which PyTorch cannot be imported."""
    folder = tmp_path_factory.mktemp("stub")
    (folder / "torch.py").write_text("raise ImportError('there is no torch here')\n")
    return {"PYTHONPATH": str(folder)}


def test_training_and_the_program_compute_the_same_weights(torch, little):
    table = open_table(str(little / VECTOR_FILE))
    settings = DeepTraining(**{**vars(QUICK), "layers": 3, "epochs": 2, "itself": 30, "dropout": 0.2})
    dev = [*read_treebank(str(little / "dev.conllu"))[:20], *map(parsed, LINES)]
    sentences = read_treebank(str(little / "train.conllu"))
    trainer = DeepTrainer(table, ["subject", "object", "previous"], sentences, dev, settings)
    trainer.epoch(0, lambda stage: None)
    stack = as_written(trainer, little / "model.safetensors")
    assert stack.layers == 3
    batch = trainer.words.batch(trainer.dev)
    theirs = trainer.learner.weights(batch)
    assert (batch.words == UNKNOWN).sum() > 10
    for s, sentence in enumerate(dev):
        ours, n = head_weights(stack, table, sentence.words), len(sentence.words)
        for h, head in enumerate(trainer.words.heads):
            np.testing.assert_allclose(ours[head], theirs[s, h, :n, :n], rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--dropout", "1"), ("--layers", "1"), ("--layers", "51"), ("--heads", "0"), ("--width", "0"), ("--wide", "0"),
        ("--threads", "0"), ("--width", "10"),
    ],
)  # fmt: skip
def test_wrong_usage_is_2_and_names_what_is_wrong(option, value, little):
    ran = making(
        "train", "train.conllu", *OPTIONS, "-o", "m.safetensors", "--heads", "3", option, value, cwd=little
    )
    assert (ran.code, ran.out) == (2, "") and ran.err.count("\n") == 1
    assert ("--heads" if value == "10" else option) in ran.err


def test_several_layers_count_their_loss_as_one_layer_does_and_learn_the_helping_tasks(torch, little):
    words, batch = lessons(tuple(name for name, one in RELATIONS.items() if one.distance is None))
    settings = QUICK
    deep = Deep(words, words.matrix(), settings, texts=batch.texts)
    exact = batch._replace(
        targets=batch.targets.astype(np.float32), importance=batch.importance.astype(np.float32)
    )
    wanted, _ = loss_and_gradient(deep.weights(exact), exact, settings.blend, deep.balance)
    assert deep.learn(exact, 0.001) == pytest.approx(wanted, rel=1e-5)
    words, batch = lessons(tuple(RELATIONS))
    settings = QUICK
    deep = Deep(words, words.matrix(), settings, texts=batch.texts)
    deep.learn(batch._replace(targets=batch.targets.astype(np.float32)), 0.001)
    for name in ("tag.b", "kind.b", "word.b"):
        assert deep.auxiliary[name].detach().numpy().any(), name


def test_several_layers_learn_too(torch, little):
    words, batch = lessons()
    settings = QUICK
    deep = Deep(words, words.matrix(), settings, texts=batch.texts)
    batch = batch._replace(
        targets=batch.targets.astype(np.float32), importance=batch.importance.astype(np.float32)
    )
    before = deep.copy()
    first = deep.learn(batch, 0.01)
    for _ in range(60):
        last = deep.learn(batch, 0.01)
    assert last < first / 2
    found = (
        np.take_along_axis(batch.targets, deep.weights(batch).argmax(axis=3)[..., None], axis=3)[..., 0] > 0
    )
    assert found[batch.has_link].mean() > 0.9
    deep.restore(before)
    for name, value in deep.copy().items():
        np.testing.assert_array_equal(value, before[name])


def test_several_layers_without_pytorch_are_69_with_the_line_that_installs_it(little, without_torch):
    deep = [*OPTIONS, "--layers", "2", "-o", "m.safetensors"]
    ran = making("train", "train.conllu", *deep, cwd=little, env=without_torch)
    assert (ran.code, ran.out) == (69, "")
    assert "pip install torch" in ran.err and ran.err.count("\n") == 1
    assert not (little / "m.safetensors").exists()


def test_several_layers_are_learned_and_used_and_the_same_seed_gives_the_same_bytes(
    torch, little, without_torch
):
    sizes = "--layers 2 --heads 2 --width 16 --wide 16 --epochs 2 --rate 0.01".split()  # noqa: SIM905
    train = ["train", "train.conllu", "--dev", "dev.conllu", *OPTIONS, *sizes, "-o"]
    for name in ("deep", "again"):
        ran = making(*train, f"{name}.safetensors", cwd=little)
        assert (ran.code, ran.out) == (0, ""), ran.err
    assert (little / "deep.safetensors").read_bytes() == (little / "again.safetensors").read_bytes()
    file = ["-p", "deep.safetensors", "-e", VECTOR_FILE, "-f", "json"]
    for layer, heads in ((0, 2), (1, 2)):
        used = attn(
            "self", f"{DOERS[0]} {DEEDS[1]} unheard", *file, "--layer", str(layer), "--head", "all", cwd=little,
            env=without_torch,
        )  # fmt: skip
        assert used.code == 0, used.err
        record = json.loads(used.out)
        assert len(record["heads"]) == heads and record["projection"]["layer"] == layer
        assert record["learned"]["layers"] == 2
        for head in record["heads"]:
            np.testing.assert_allclose(np.sum(head["weights"], axis=1), 1)


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")
def test_an_interrupt_of_several_layers_leaves_a_model_too(torch, little):
    options = ["--layers", "2", "--heads", "2", "--width", "16", "--wide", "16", "--epochs", "10000"]
    command = [*COMMAND, "train", "train.conllu", *OPTIONS, *options, "-o", "deep.safetensors"]
    code, rest = interrupted_at(command, little, "epoch 1:", paths())
    assert code == 130
    assert "interrupted" in rest and "wrote deep.safetensors" in rest
    works(little, "deep.safetensors")


def test_what_is_held_back_changes_nothing_that_is_learned(torch, little):
    table, made = open_table(str(little / VECTOR_FILE)), []
    sentences, odd = [*map(parsed, little_language(40, 0))], f"{DOERS[0]}/ODD/2/odd {DEEDS[0]}/VERB/0/root"
    for dev in ([], [parsed(odd)]):
        trainer = DeepTrainer(table, ["subject"], sentences, dev, QUICK)
        trainer.epoch(0, lambda stage: None)
        made.append((trainer.learner.copy(), trainer.learner.auxiliary))
    for ours, theirs in zip(*(part[0].values() for part in made), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert made[0][1]["tag.b"].shape == made[1][1]["tag.b"].shape
