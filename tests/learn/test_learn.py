"""Learning attention: the gradient, the steps, the lessons, and training as a user runs it."""

import json
import lzma
import os
import signal
import subprocess
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from attn_cli.cli.commands.learn import _screen, say_epoch, say_trained
from attn_cli.errors import CreateError, WriteError
from attn_cli.io import atomic
from attn_cli.learn.batches import SHAPES, UNKNOWN, Vocabulary, batches, concatenated, feature_names
from attn_cli.learn.one_layer import Adam, OneLayer, loss_and_gradient
from attn_cli.learn.relations import RELATIONS, balances, blends
from attn_cli.learn.score import head_weights
from attn_cli.learn.train import Epoch, Trained, Trainer, to_learn_from, train_file
from attn_cli.learn.treebank import read_treebank
from attn_cli.models.model_file import read_model
from attn_cli.settings.training import ModelTraining as TrainSettings
from attn_cli.vectors.lookup import open_table
from attn_cli.vectors.spelling import features
from tests import shell
from tests.cli.tables import told as cases
from tests.parsed import conllu, parsed
from tests.shell import COMMAND, surroundings
from tests.small_models import table, write
from tests.thorough import takes_long

HEADS = ("relations", "subject", "object")
LINES = (
    "Anna/PROPN/2/nsubj reads/VERB/0/root old/ADJ/4/amod books/NOUN/2/obj ./PUNCT/2/punct",
    "Zebras/NOUN/2/nsubj graze/VERB/0/root",
    "Who/PRON/3/nsubj never/ADV/3/advmod reads/VERB/0/root the/DET/6/det Unread/ADJ/6/amod books/NOUN/3/obj",
    "Hi/INTJ/0/root",
)
KNOWN = "anna reads old books the who never a-b 3.14 Hi walking talking singing"


def lessons(heads=HEADS, dim=3, lines=LINES):
    """The numbered words, and a batch of all sentences with targets as exact as float64 has them."""
    words = Vocabulary(table(KNOWN, dim), 5, 2, heads)
    batch = words.batch([words.encode(parsed(line)) for line in lines])
    targets = batch.targets.astype(np.float64)
    total = targets.sum(axis=3, keepdims=True)
    targets /= np.where(total == 0, 1, total)
    return words, batch._replace(targets=targets, importance=batch.importance.astype(np.float64))


def learner(words, blend=0.5, balance=0.3, seed=0, reach=2, d_k=2):
    """One layer in float64, every parameter drawn at random."""
    settings = TrainSettings(dim=d_k, reach=reach, blend=blend, balance=balance, seed=seed)
    made = OneLayer(words, words.matrix().astype(np.float64), settings)
    draw = np.random.default_rng([seed, 7])
    for value in made.parameters.values():
        value[...] = draw.standard_normal(value.shape) * 0.7
    made.parameters["start"][-1] = 0
    return made


def loss_by_hand(made, batch, blend):
    """The mean surprise of a head's rows, those without its relation counting less; heads by their importance."""
    total, weights = 0, made.weights(batch)
    for h, balance in enumerate(made.balance):
        rows, places = [], np.argwhere(batch.is_word)
        for s, i in places:
            A, T = (M[s, h, i][batch.targets[s, h, i] > 0] for M in (weights, batch.targets))
            rows.append(-(1 - blend) * T @ np.log(A) - blend * np.log(A.sum()))
        has = np.array([batch.has_link[s, h, i] for s, i in places])
        rest = ~has & [batch.known[s, h, i] for s, i in places]
        counts = np.where(has, 1, rest * balance * min(1, has.sum() / rest.sum()))
        total += batch.importance[h] * (counts @ rows) / counts.sum()
    return total


@pytest.mark.parametrize(("blend", "balance"), [(0.0, 0.3), (0.5, 0.3), (1.0, 1.0), (0.25, 0.0)])
def test_the_loss_is_that_of_its_formula_and_every_slope_that_of_finite_differences(blend, balance):
    words, batch = lessons()
    batch.known[2, :, 1] = False  # of "never" it is not known
    made = learner(words, blend, balance)
    loss, slopes = made.gradients(batch)
    assert set(slopes) == set(made.parameters) and loss == pytest.approx(loss_by_hand(made, batch, blend))
    for name, parameter in made.parameters.items():
        numeric = np.zeros_like(parameter)
        for place in np.ndindex(parameter.shape):
            kept, sides = parameter[place], []
            for parameter[place] in (kept + 1e-5, kept - 1e-5):
                sides.append(made.gradients(batch)[0])
            parameter[place] = kept
            numeric[place] = (sides[0] - sides[1]) / 2e-5
        if name == "start":
            numeric[-1] = 0  # what stands for no feature is not a parameter
            assert not slopes[name][-1].any()
        np.testing.assert_allclose(slopes[name], numeric, rtol=0, atol=1e-8, err_msg=name)
    words, batch = lessons(("subject",), lines=LINES[1:2])  # one row with a link, and one without
    made = learner(words, blend, balance)
    assert made.gradients(batch)[0] == pytest.approx(loss_by_hand(made, batch, blend))


def test_with_blend_it_is_enough_to_find_one_of_the_wanted_words():
    words, batch = lessons()
    A = np.eye(batch.targets.shape[3])[batch.targets.argmax(axis=3)]
    loss, slopes = loss_and_gradient(A, batch, 1.0, 1.0)
    assert loss == pytest.approx(0) and not slopes.any()
    loss, slopes = loss_and_gradient(A, batch, 0.5, 1.0)
    missed = (batch.targets > 0) & (A == 0)
    assert 0 < loss < np.inf and missed.any() and (slopes[missed] < 0).all()
    assert balances(["relations", "subject", "head"], 1.0) == [0.3, 1.0, 0.3]
    assert balances(["relations", "object"], 0.2) == [0.2, 0.2]
    assert balances(["subject", "object", "head"], "2, object = 0.5") == [2.0, 0.5, 0.3]
    assert blends(["subject", "antecedent"], 0.25) == [0.25, 1.0]
    assert learner(words, balance=1.0).balance.tolist() == [0.3, 1.0, 1.0]


def test_adam_divides_the_mean_slope_by_the_root_of_the_mean_square_both_freed_of_their_start_at_zero():
    draw = np.random.default_rng(0)
    ours = {"W": draw.standard_normal((3, 4)), "b": draw.standard_normal(5)}
    adam, theirs = Adam(ours), {name: [value.copy(), 0, 0] for name, value in ours.items()}
    for t in range(1, 21):
        slopes = {n: draw.standard_normal(v.shape) * 10.0 ** draw.integers(-6, 3) for n, v in ours.items()}
        adam.step(slopes, 0.1 / t)
        for name, g in slopes.items():
            x, m, v = theirs[name]
            m, v = 0.9 * m + 0.1 * g, 0.98 * v + 0.02 * g * g
            x -= 0.1 / t * m / (1 - 0.9**t) / (np.sqrt(v / (1 - 0.98**t)) + 1e-8)
            theirs[name] = [x, m, v]
            np.testing.assert_allclose(ours[name], x, rtol=1e-12, atol=1e-12)


def test_before_anything_is_learned_a_relation_that_is_a_distance_is_known():
    words, batch = lessons(("previous", "next"))
    A = OneLayer(words, words.matrix(), TrainSettings(dim=16, reach=3, blend=0.5, balance=0.3)).weights(batch)
    n = int(batch.is_word[2].sum())
    assert min(A[2, 0, :n, :n].diagonal(-1).min(), A[2, 1, :n, :n].diagonal(1).min()) > 0.9
    assert min(A[2, 0, 0, 0], A[2, 1, n - 1, n - 1]) > 0.9, "where no word is there, at itself"


def test_a_words_row_is_its_vector_or_its_features_and_targets_sum_to_one():
    words, batch = lessons()
    made = learner(words)
    X = made.inputs(batch)
    np.testing.assert_allclose(X[0, 0], words.table.find(["anna"])["anna"], rtol=1e-6)
    zebras = [words.places[name] for name in features("Zebras") if name in words.places]
    np.testing.assert_allclose(X[1, 0], made.parameters["start"][zebras].sum(axis=0), rtol=1e-12)
    assert not X[~batch.is_word].any()
    assert np.abs(batch.targets.sum(axis=3) - batch.is_word[:, None]).max() < 1e-6
    for (s, line), (h, head) in product(enumerate(LINES), enumerate(HEADS)):
        wanted = RELATIONS[head].links_to_learn(parsed(line))
        for i in range(len(parsed(line).words)):
            assert set(np.flatnonzero(batch.targets[s, h, i])) == set(wanted.get(i, {i: 1}))
            assert batch.has_link[s, h, i] == (i in wanted)
    assert feature_names(table(KNOWN, 3), 2, 3) == [*SHAPES, "-g", "-ing", "=anna", "=reads", "=old"]
    assert feature_names(table("sing ring king"), 3, 0) == [*SHAPES, "-g", "-ng"]  # the rest is one letter
    words = ["cab", "bad", "elf", *(f"xyz{n}" for n in range(37))]  # of 40, the first two are common
    assert feature_names(table(" ".join(words)), 9, 1) == [*SHAPES, "-f", "=cab"]


@pytest.mark.parametrize("seed", [None, 0])
@pytest.mark.parametrize("size", [1, 30, 200])
def test_batches_hold_every_sentence_once_and_no_more_words_than_they_may(size, seed):
    lengths = np.random.default_rng(5).integers(1, 60, 300).tolist()
    groups = batches(lengths, size, None if seed is None else np.random.default_rng(seed))
    assert sorted(i for group in groups for i in group) == list(range(300))
    for group in groups:
        assert len(group) == 1 or max(lengths[i] for i in group) * len(group) <= size
    if size == 200:  # of like length, so that little is padding
        assert sum(max(lengths[i] for i in group) * len(group) for group in groups) < 1.2 * sum(lengths)


def test_two_sentences_joined_keep_each_its_own_links():
    words = Vocabulary(table(KNOWN, 3), 5, 2, HEADS)
    first, second = (words.encode(parsed(line)) for line in (LINES[0], LINES[2]))
    both = concatenated(first, second)
    apart, together = words.batch([first, second]), words.batch([both])
    n, m = len(first.words), len(second.words)
    assert together.words[0].tolist() == [*first.words, *second.words]
    assert both.features == [*first.features, *second.features]
    np.testing.assert_array_equal(together.targets[0, :, :n, :n], apart.targets[0, :, :n, :n])
    np.testing.assert_array_equal(together.targets[0, :, n:, n:], apart.targets[1, :, :m, :m])
    assert not together.targets[0, :, :n, n:].any() and not together.targets[0, :, n:, :n].any()
    assert together.texts[0].sentences == (*first.sentences, *second.sentences)


DOERS, DEEDS, THINGS, MANNERS = (
    [f"{letter}{vowel}{letter}{ending}" for letter in "bdfgklm" for vowel in "aio"]
    for ending in ("ax", "eth", "um", "ly")
)
VECTOR_FILE = "mine.txt"


def little_vectors():
    """A vector for each word but a few: its class, and noise."""
    draw, lines = np.random.default_rng(11), ""
    for kind, words in enumerate((DOERS, DEEDS, THINGS, MANNERS)):
        for word in words[:-1]:
            vector = np.eye(6)[kind] * 2 + draw.standard_normal(6) * 0.3
            lines += f"{word} {' '.join(f'{x:.4f}' for x in vector)}\n"
    return lines


def little_language(count, seed, longest=5):
    """Sentences in which words stand in any order, and only their kind tells who did what."""
    draw = np.random.default_rng([seed, 13])
    texts = []
    for _ in range(count):
        kinds = [(DOERS, "NOUN", "nsubj"), (DEEDS, "VERB", "root"), (THINGS, "NOUN", "obj")]
        kinds += [(MANNERS, "ADV", "advmod")] * int(draw.integers(0, longest))
        order = draw.permutation(len(kinds))
        verb = 1 + int(np.flatnonzero(order == 1)[0])
        drawn = [(words[draw.integers(len(words))], *kind) for words, *kind in (kinds[i] for i in order)]
        texts.append(" ".join(f"{word}/{tag}/{verb * (of != 'root')}/{of}" for word, tag, of in drawn))
    return texts


@pytest.fixture
def little(tmp_path):
    """A folder with the little language's vectors, its train.conllu and its dev.conllu."""
    (tmp_path / VECTOR_FILE).write_text(little_vectors())
    (tmp_path / "train.conllu").write_text(conllu(*little_language(300, 0)))
    (tmp_path / "dev.conllu").write_text(conllu(*little_language(60, 1)))
    return tmp_path


QUICK = TrainSettings(relations="subject,object", epochs=12, rate=0.02, dim=4, reach=2, endings=20, batch=200)


def trained(folder, output, settings=QUICK, dev=("dev.conllu",), report=lambda stage: None, tell=None):
    told, names = [], ("train.conllu", output, VECTOR_FILE, *dev)
    text, output, vectors, *held = (str(folder / name) for name in names)
    return train_file([text], output, held, vectors, settings, report, tell or told.append), told


def test_what_can_be_learned_is_learned(little):
    made, told = trained(little, "model.safetensors")
    assert [epoch.number for epoch in told] == list(range(1, 13)) and made.epochs == 12
    assert told[-1].loss < told[0].loss / 3
    for score in made.scores:
        assert score.count == 60
        assert score.baseline < 0.5 and score.accuracy > 0.95, score
        assert told[0].accuracy[score.name] < score.accuracy
        assert told[-1].accuracy[score.name] == pytest.approx(score.accuracy, abs=0.02)


def test_the_same_seed_gives_the_same_bytes_and_another_seed_gives_others(little):
    files = [little / f"{name}.safetensors" for name in "abc"]
    for file, seed in zip(files, (3, 3, 4), strict=True):
        trained(little, file.name, replace(QUICK, epochs=2, seed=seed))
    assert files[0].read_bytes() == files[1].read_bytes()
    first, other = (read_model(str(file)).last.heads[0].W_q for file in files[1:])
    assert not np.array_equal(first, other)


def as_written(trainer, path):
    """Round what a trainer has learned as a file does, write it, and read it again."""
    learned = trainer.learner.copy().items()
    trainer.learner.restore({name: value.astype(np.float16).astype(np.float32) for name, value in learned})
    arrays = trainer.arrays() | {
        "start.names": np.frombuffer("\n".join(trainer.words.names).encode(), np.uint8)
    }
    is_deep = trainer.learner.layers > 1
    return read_model(write(path, arrays, trainer.words.table, list(trainer.words.heads), always=is_deep))


def test_training_and_the_program_compute_the_same_weights(little):
    table, heads = open_table(str(little / VECTOR_FILE)), ["subject", "object", "previous"]
    sentences = read_treebank(str(little / "train.conllu"))
    dev = [*read_treebank(str(little / "dev.conllu"))[:20], *map(parsed, LINES)]
    trainer = Trainer(table, heads, sentences, dev, replace(QUICK, epochs=2, itself=30))
    trainer.epoch(0, lambda stage: None)
    stack, batch = as_written(trainer, little / "model"), trainer.words.batch(trainer.dev)
    theirs = trainer.learner.weights(batch)
    for s, sentence in enumerate(dev):
        ours, n = head_weights(stack, table, sentence.words), len(sentence.words)
        for h, head in enumerate(heads):
            np.testing.assert_allclose(ours[head], theirs[s, h, :n, :n], rtol=0, atol=1e-5)
            assert not theirs[s, h, :n, n:].any()
    assert (batch.words[batch.is_word] == UNKNOWN).sum() > 10, "unknown words are among them"


OPTIONS = ["-e", VECTOR_FILE, "--relations", "subject,object", "--dim", "4", "--reach", "2"]


def test_the_command_writes_a_model_of_several_treebanks_that_the_others_read(little, at):
    (little / "rest.conllu.xz").write_bytes(lzma.compress(conllu(*little_language(150, 3)).encode()))
    (little / "more.conllu").write_text(conllu(*little_language(9, 2)))
    train = ["train.conllu", "rest.conllu.xz", "--dev", "dev.conllu", "-o", "my model.safetensors"]
    train += ["--dev", "more.conllu"]
    ran = shell.here("learn", "train", *train, *OPTIONS, "--epochs", "6", "--rate", "0.02")
    assert (ran.code, ran.out) == (0, ""), ran.err
    assert "epoch 1:" in ran.err and "epoch 6:" in ran.err and "my model.safetensors" in ran.err
    file = ["-p", "./my model.safetensors", "-e", VECTOR_FILE]
    text = f"{DOERS[0]} {MANNERS[0]} {DEEDS[1]} {THINGS[2]}"
    record = shell.record("self", text, *file, "--head", "subject")
    assert (record["projection"]["source"], record["head"]) == ("learned", "subject")
    learned = record["learned"]
    assert (learned["trained_on"], learned["scored_on"]) == (["train.conllu", "rest.conllu.xz"], "dev.conllu")
    assert read_model("my model.safetensors").facts["scored_on"] == "dev.conllu", "the first of two"
    scored = shell.record("learn", "score", "my model.safetensors", "dev.conllu", "-e", VECTOR_FILE)
    subject, _ = scored["heads"]
    assert [subject[key] - learned[key] for key in ("accuracy", "baseline")] == [0, 0]
    assert set(os.listdir(little)) == {VECTOR_FILE, *train[:2], *train[3::2]}


WRONG = f"""
. --relations=subject,friend => 2 friend | . --relations=Subject => 2 Subject | . --relations= => 2 --relations
. --relations=head,subject,subject => 2 subject | . --relations=subject, => 2 --relations | . --rate nan => 2 --rate
. -o model.json => 2 safetensors | . -o model => 2 safetensors | . -e nobody => 2 nobody | . -e random => 2 random
. --balance 2,3 => 2 --balance | . --balance 101 => 2 --balance | . --balance object=x => 2 --balance
. --balance Object=1 => 2 --balance | . --balance nan => 2 --balance | . dev.conllu --dev copy.conllu => 2 --dev
dev.conllu --dev copy.conllu => 2 --dev | missing.conllu => 66 missing.conllu | ./ => 66 . | long.conllu => 65
. missing.conllu => 66 missing.conllu | . --dev missing.conllu => 66 missing.conllu | . bad.conllu => 65 bad.conllu
. -e missing.txt => 66 missing.txt | . -o nowhere/m.safetensors => 73 nowhere | . -o {"x" * 300}.safetensors => 73 xxx
. -o folder.safetensors => 73 folder.safetensors | . -o train.conllu/m.safetensors => 73 train.conllu
"""


def test_what_is_wrong_is_refused_before_the_work(little, at):
    (little / "folder.safetensors").mkdir()
    (little / "bad.conllu").write_text("plain words\n")
    (little / "copy.conllu").write_bytes((little / "dev.conllu").read_bytes())
    (little / "long.conllu").write_text(conllu(" ".join(["x/X/0/root", *["y/X/1/dep"] * 100])))
    before = set(os.listdir(little))
    for line, end in cases(WRONG):
        code, _, named = end.partition(" ")
        words = ["train.conllu" if word == "." else word for word in line]
        said = shell.refused("learn", "train", *OPTIONS, "-o", "m.safetensors", *words, code=int(code))
        assert named in said.partition("Choose")[0] and "epoch" not in said
        assert set(os.listdir(little)) == before


def interrupted_at(command, folder, phrase, env=None):
    """Send an interrupt at the first line that holds this phrase, and return how the process ended."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=folder, env=env or surroundings(), **pipes) as process:
        try:
            assert any(phrase in line for line in process.stderr), f"{phrase!r} was never said"
            process.send_signal(signal.SIGINT)
            out, rest = process.communicate(timeout=60)
        finally:
            process.kill()
    assert out == "" and "Traceback" not in rest and "bug" not in rest
    return process.returncode, rest


def works(folder, name):
    """Check that a file is a whole model, which the program computes with."""
    file = str(Path(folder, name))
    assert shell.record("self", f"{DOERS[0]} {DEEDS[1]}", "-p", file, "-e", str(Path(folder, VECTOR_FILE)))
    assert read_model(file).last.heads[0].name == "subject"


SCORING = ("scoring", [*OPTIONS, "--dev", "dev.conllu", "--epochs", "1"], {"dev": (12_000, 3)})
INTERRUPTED = [
    ("epoch 3:", [*OPTIONS, "--epochs", "10000"], {}),
    pytest.param(*SCORING, marks=takes_long),
    ("epoch 1 of", ["-e", VECTOR_FILE], {"train": (1200, 2, 60)}),  # before the first pass is whole
]


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")
@pytest.mark.parametrize(("phrase", "args", "files"), INTERRUPTED)
def test_an_interrupt_is_130_and_leaves_the_last_whole_pass_or_changes_nothing(phrase, args, files, little):
    (little / "old.safetensors").write_bytes(b"old")
    for name, size in files.items():
        (little / f"{name}.conllu").write_text(conllu(*little_language(*size)))
    train = [*COMMAND, "learn", "train", "train.conllu", *args, "-o", "old.safetensors"]
    code, rest = interrupted_at(train, little, phrase)
    assert code == 130
    assert set(os.listdir(little)) == {VECTOR_FILE, "train.conllu", "dev.conllu", "old.safetensors"}
    if phrase == "epoch 1 of":
        assert "wrote" not in rest and (little / "old.safetensors").read_bytes() == b"old"
        return
    assert "wrote old.safetensors" in rest and ("interrupted" in rest or phrase == "scoring")
    works(little, "old.safetensors")
    assert read_model(str(little / "old.safetensors")).facts["epochs"] >= (3 if phrase == "epoch 3:" else 1)


def shown_in_a_pass(little, texts, **changes):
    """A trainer whose learner learns nothing, the batches that it is shown in one pass, and their texts' lengths."""
    settings = replace(QUICK, **{"pairs": 0.0} | changes)
    sentences = [parsed(text) for text in texts]
    made = Trainer(open_table(str(little / VECTOR_FILE)), ["subject"], sentences, [], settings)
    shown, rates = [], []
    made.learner.learn = lambda batch, rate: shown.append(batch) or rates.append(rate) or 0.0
    made.epoch(0, lambda stage: None)
    steps, total = np.arange(len(rates)), len(rates) * settings.epochs
    wanted = settings.rate * np.minimum(1, (steps + 1) / 100) * np.maximum(0.02, 1 - steps / total)
    assert rates == pytest.approx(wanted.tolist()), "it rises for 100 steps, and falls to a fiftieth"
    return made, shown, [int(row.sum()) for batch in shown for row in batch.is_word]


def test_punctuation_pairs_and_hidden_words_come_as_often_as_they_should(little):
    texts = [f"{DOERS[0]}/NOUN/2/nsubj {DEEDS[0]}/VERB/0/root ./PUNCT/2/punct"] * 400
    for share in (0.0, 0.5, 1.0):
        *_, found = shown_in_a_pass(little, texts, punctuation=share)
        assert len(found) == 400 and set(found) <= {2, 3}
        assert found.count(2) / 400 == pytest.approx(share, abs=0.1)
    texts = [f"{DOERS[0]}/NOUN/2/nsubj {DEEDS[0]}/VERB/0/root"] * 400
    assert set(shown_in_a_pass(little, texts)[2]) == {2}
    *_, found = shown_in_a_pass(little, texts, pairs=1.0, epochs=1, batch=1)
    assert max(found) == 50, "no text has more words"
    *_, found = shown_in_a_pass(little, texts, pairs=0.3)
    assert sum(found) == 800 and 0.2 < sum(n > 2 for n in found) / len(found) < 0.45
    made, shown, _ = shown_in_a_pass(little, [*texts, *texts[:200], *[f"{DOERS[1]}/NOUN/0/root"] * 3])
    hidden = np.concatenate([batch.words[batch.is_word] == UNKNOWN for batch in shown])
    assert 0 < hidden.mean() < 0.05, "what is common is nearly always shown"
    rare, common = made.hidden[made.words.row(DOERS[1])], made.hidden[made.words.row(DOERS[0])]
    assert 0.05 < rare < 0.15 and 0.02 < common < 0.021


def test_what_is_longer_than_a_sentence_or_a_passage_may_be_is_left_out(tmp_path):
    files = [tmp_path / name for name in ("a.conllu", "b.jsonl")]
    files[0].write_text(conllu(*(" ".join(["x/X/0/root", *["y/X/1/dep"] * n]) for n in (99, 100))))
    marked = ({"tokens": ["x"] * n, "pronoun": 1, "antecedents": [[0, 1]]} for n in (160, 161))
    files[1].write_text("\n".join(map(json.dumps, marked)))
    assert [len(one.words) for one in to_learn_from([*map(str, files)])] == [100, 160]


def test_an_interrupt_in_a_pass_leaves_what_the_pass_before_it_had(little):
    def at_the_end(stage):
        if stage.phase == "epoch 2 of 12" and stage.done == 1:
            raise KeyboardInterrupt

    def at_once(epoch):
        raise KeyboardInterrupt

    for name, stops in (("a.safetensors", {"tell": at_once}), ("b.safetensors", {"report": at_the_end})):
        made, _ = trained(little, name, dev=(), **stops)
        assert made.interrupted and made.epochs == 1
    assert (little / "a.safetensors").read_bytes() == (little / "b.safetensors").read_bytes()


def test_scores_that_cannot_be_added_leave_the_model_and_say_so(little, monkeypatch):
    calls, real = [], atomic.written

    def written(path):
        calls.append(path)
        if len(calls) == 2:
            raise CreateError("Cannot create model.safetensors: No space left on device.")
        return real(path)

    monkeypatch.setattr(atomic, "written", written)
    with pytest.raises(WriteError, match=r"left on device\. The model is there, without its scores\."):
        trained(little, "model.safetensors")
    works(little, "model.safetensors")


def test_what_training_came_to_is_said_and_a_share_of_nothing_is_a_dash(capsys):
    told: list[str] = []
    for epoch in (Epoch(2, 0.5, {}), Epoch(3, 0.25, {"subject": 0.75})):
        say_epoch(SimpleNamespace(tell=told.append), epoch)
    assert told == ["attn: epoch 2: loss 0.5000", "attn: epoch 3: loss 0.2500; subject 0.750"]
    known = {"subject": (0.5, 0.5), "object": (0.6, 0.5), "previous": (0.1, 0.9), "antecedent": (None, 0.2)}
    scores = [SimpleNamespace(name=name, accuracy=a, baseline=b) for name, (a, b) in known.items()]
    made = Trained("m.safetensors", 1234, 1, scores, False)
    say_trained(made)
    said = "attn: head subject is no better than a fixed distance (0.500, 0.500).\n"
    assert capsys.readouterr().err == f"{said}attn: wrote m.safetensors: 1 pass, 1,234 bytes.\n"
    with pytest.raises(KeyboardInterrupt):
        say_trained(made._replace(scores=[], epochs=2, interrupted=True))
    assert capsys.readouterr().err == "attn: interrupted; wrote m.safetensors: 2 passes, 1,234 bytes.\n"
    shares = dict.fromkeys(("baseline", "nearest", "precision", "hard", "content", "candidates"))
    one = SimpleNamespace(name="subject", accuracy=0.0, count=1234, **shares)
    for candidates, more in ((None, []), (0.25, ["0.250"])):
        other = SimpleNamespace(**vars(one) | {"candidates": candidates})
        table, *about = _screen([other, one])
        assert table.rows[0] == ["subject", "0.000", *["–"] * 5, *more, "1,234"]
        assert len(about) == len(table.rows[1]) - 2 and ("of two" in table.header) == bool(more)
