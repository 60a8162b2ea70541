"""Learning attention: the gradient, the steps, the lessons, and training as a user runs it."""

import json
import lzma
import os
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest

from attn_cli.errors import CreateError, WriteError
from attn_cli.learn.batches import SHAPES, UNKNOWN, Batch, Vocabulary, batches, concatenated, feature_names
from attn_cli.learn.one_layer import Adam, OneLayer, loss_and_gradient
from attn_cli.learn.relations import RELATIONS, balances
from attn_cli.learn.score import head_weights
from attn_cli.learn.train import Trainer, train_file
from attn_cli.models.model_file import read_model, write_model
from attn_cli.settings.training import ModelTraining as TrainSettings
from attn_cli.vectors.spelling import features
from attn_cli.vectors.table import VectorTable
from tests.parsed import conllu, parsed
from tests.shell import COMMAND, attn, surroundings
from tests.thorough import takes_long

HEADS = ("relations", "subject", "object")
LINES = (
    "Anna/PROPN/2/nsubj reads/VERB/0/root old/ADJ/4/amod books/NOUN/2/obj ./PUNCT/2/punct",
    "Zebras/NOUN/2/nsubj graze/VERB/0/root",
    "Who/PRON/3/nsubj never/ADV/3/advmod reads/VERB/0/root the/DET/6/det Unread/ADJ/6/amod books/NOUN/3/obj",
    "Hi/INTJ/0/root",
)
KNOWN = "anna reads old books the who never a-b 3.14 Hi walking talking singing".split()  # noqa: SIM905


@pytest.fixture
def torch():
    """PyTorch, its settings as they were afterwards; where it is missing, the test is skipped or fails."""
    if os.environ.get("ATTN_REQUIRE_TORCH") == "1":
        import torch
    else:
        torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")
    threads, strict = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    yield torch
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(strict)


def table(words=KNOWN, dim=3, seed=0):
    matrix = np.random.default_rng([seed, dim]).standard_normal((len(words), dim))
    return VectorTable("file", "table", b"\n" + "\n".join(words).encode() + b"\n", matrix, {})


def lessons(heads=HEADS, dim=3, lines=LINES):
    """The numbered words, and a batch of all sentences with targets as exact as float64 has them."""
    words = Vocabulary(table(dim=dim), 5, 2, heads)
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


@pytest.mark.parametrize(("blend", "balance"), [(0.0, 0.3), (0.5, 0.3), (1.0, 1.0), (0.25, 0.0)])
def test_every_slope_is_that_of_finite_differences(blend, balance):
    words, batch = lessons()
    made = learner(words, blend, balance)
    loss, slopes = made.gradients(batch)
    assert set(slopes) == set(made.parameters) and np.isfinite(loss)
    step = 1e-5
    for name, parameter in made.parameters.items():
        numeric = np.zeros_like(parameter)
        for place in np.ndindex(parameter.shape):
            kept = parameter[place]
            sides = []
            for shift in (step, -step):
                parameter[place] = kept + shift
                sides.append(made.gradients(batch)[0])
            parameter[place] = kept
            numeric[place] = (sides[0] - sides[1]) / (2 * step)
        if name == "start":
            numeric[-1] = 0  # what stands for no feature is not a parameter
            assert not slopes[name][-1].any()
        np.testing.assert_allclose(slopes[name], numeric, rtol=0, atol=1e-8, err_msg=name)


@pytest.mark.parametrize(("blend", "balance"), [(0.0, 0.3), (0.5, 0.3), (1.0, 1.0)])
def test_weights_loss_and_every_slope_are_those_of_pytorch(blend, balance, torch):
    words, batch = lessons(tuple(RELATIONS), dim=5)
    made = learner(words, blend, balance, seed=2, reach=3, d_k=4)
    p = {name: torch.tensor(value, requires_grad=True) for name, value in made.parameters.items()}
    h, d_k, n = len(words.heads), 4, batch.words.shape[1]
    total = 0
    for head in range(h):
        rows, counts = [], []
        for s in range(len(batch.words)):
            size = int(batch.is_word[s].sum())
            X = torch.stack(
                [
                    p["start"][batch.features[s, i]].sum(0)
                    if batch.words[s, i] == UNKNOWN
                    else torch.tensor(made.vectors[batch.words[s, i]])
                    for i in range(size)
                ]
            )
            own = slice(head * d_k, (head + 1) * d_k)
            Q, K = ((X @ p[f"0.W_{m}"] + p[f"0.b_{m}"])[:, own] for m in "qk")
            z = torch.stack(
                [
                    torch.stack(
                        [
                            (Q[i] @ (K[j] + p["0.R"][head, away]) + p["0.b"][head, away]) / d_k**0.5
                            for j in range(size)
                            if (away := max(-3, min(3, j - i)) + 3) >= 0
                        ]
                    )
                    for i in range(size)
                ]
            )
            A = torch.softmax(z, dim=1)
            ours = made.weights(batch)[s, head]
            np.testing.assert_allclose(ours[:size, :size], A.detach().numpy(), rtol=0, atol=1e-12)
            assert not ours[:, size:].any() and size <= n
            for i in range(size):
                T = torch.tensor(batch.targets[s, head, i, :size])
                found = A[i][T > 0].sum().log()
                rows.append(-(1 - blend) * (T * A[i].log()).sum() - blend * found)
                counts.append(bool(batch.has_link[s, head, i]))
        with_link, without = sum(counts), len(counts) - sum(counts)
        share = made.balance[head] * min(1, with_link / without) if without else 0
        weights = torch.tensor([1.0 if has else share for has in counts], dtype=torch.float64)
        if weights.sum():
            total = total + batch.importance[head] * (torch.stack(rows) * weights).sum() / weights.sum()
    total.backward()
    loss, slopes = made.gradients(batch)
    assert loss == pytest.approx(float(total.detach()), rel=1e-12)
    for name, slope in slopes.items():
        theirs = p[name].grad.numpy()
        if name == "start":
            theirs[-1] = 0
        np.testing.assert_allclose(slope, theirs, rtol=0, atol=1e-12, err_msg=name)


def test_a_row_without_a_link_counts_at_most_as_much_as_its_share_of_one_with():
    batch = one_row([0, 0, 1])._replace(has_link=np.array([[[True, True, False]]]))
    _, slopes = loss_and_gradient(np.full((1, 1, 3, 3), 1 / 3), batch, 0.0, np.array([0.5]))
    np.testing.assert_allclose(slopes[0, 0, 2], 0.5 * slopes[0, 0, 0], rtol=1e-12)
    assert slopes[0, 0, 0].any()


def one_row(T, has_link=True):
    """A batch of one sentence and one head, every row with the same target."""
    n = len(T)
    return Batch(
        np.zeros((1, n), int), np.zeros((1, n, 1), int), np.ones((1, n), bool),
        np.tile(np.array(T, float), (1, 1, n, 1)), np.full((1, 1, n), has_link), np.ones(1),
        np.ones((1, 1, n), bool),
    )  # fmt: skip


def test_the_loss_is_the_cross_entropy_and_with_blend_it_is_enough_to_find_one_of_the_wanted_words():
    T, A = np.array([0.75, 0.25, 0.0]), np.array([0.5, 0.25, 0.25])
    loss, slope = loss_and_gradient(np.tile(A, (1, 1, 3, 1)), one_row(T), 0.0, 0.3)
    assert loss == pytest.approx(-(0.75 * np.log(0.5) + 0.25 * np.log(0.25)))
    np.testing.assert_allclose(slope, np.tile((A - T) / 3, (1, 1, 3, 1)), rtol=1e-12)
    T, A = [0.5, 0.5, 0.0], np.tile([1.0, 0.0, 0.0], (1, 1, 3, 1))
    loss, slope = loss_and_gradient(A, one_row(T), 1.0, 0.3)
    assert loss == pytest.approx(0) and not slope.any()
    loss, slope = loss_and_gradient(A, one_row(T), 0.5, 0.3)
    assert loss > 0 and slope[0, 0, 0, 1] < 0 < slope[0, 0, 0, 0]
    assert balances(["relations", "subject", "head"], 1.0) == [0.3, 1.0, 0.3]
    assert balances(["relations", "object"], 0.2) == [0.2, 0.2]
    words, _ = lessons()
    assert learner(words, balance=1.0).balance.tolist() == [0.3, 1.0, 1.0]


def test_rows_without_the_relation_count_together_balance_times_as_much_as_those_with_it():
    n = 9
    batch = one_row([1 / n] * n)
    has_link = np.zeros((1, 1, n), bool)
    has_link[..., :2] = True
    A = np.full((1, 1, n, n), 1 / n)
    A[..., 2:, :] = np.eye(n)[0]  # rows that have no link lose nothing by looking at the first word
    targets = batch.targets.copy()
    targets[..., 2:, :] = np.eye(n)[0]
    for balance in (0.3, 1.0, 2.0):
        loss, _ = loss_and_gradient(A, batch._replace(has_link=has_link, targets=targets), 0.0, balance)
        assert loss == pytest.approx(np.log(n) / (1 + balance))


def test_adam_moves_as_pytorchs_does(torch):
    draw = np.random.default_rng(0)
    ours = {"W": draw.standard_normal((3, 4)), "b": draw.standard_normal(5)}
    theirs = {name: torch.tensor(value.copy(), requires_grad=True) for name, value in ours.items()}
    adam = Adam(ours)
    other = torch.optim.Adam(theirs.values(), betas=(0.9, 0.98), eps=1e-8)
    for step in range(20):
        rate = 0.1 / (1 + step)
        slopes = {
            name: draw.standard_normal(v.shape) * 10.0 ** draw.integers(-6, 3) for name, v in ours.items()
        }
        adam.step(slopes, rate)
        for group in other.param_groups:
            group["lr"] = rate
        for name, slope in slopes.items():
            theirs[name].grad = torch.tensor(slope)
        other.step()
        for name, value in ours.items():
            np.testing.assert_allclose(value, theirs[name].detach().numpy(), rtol=1e-12, atol=1e-12)


def test_before_anything_is_learned_a_relation_that_is_a_distance_is_known():
    words, batch = lessons(("previous", "next"))
    settings = TrainSettings(dim=4, reach=3, blend=0.5, balance=0.3)
    made = OneLayer(words, words.matrix(), settings)
    A = made.weights(batch)
    n = int(batch.is_word[2].sum())
    assert A[2, 0, range(1, n), range(n - 1)].min() > 0.9
    assert A[2, 1, range(n - 1), range(1, n)].min() > 0.9


def test_a_words_row_is_its_vector_or_its_features_and_targets_sum_to_one():
    words, batch = lessons()
    made = learner(words)
    X = made.inputs(batch)
    anna, zebras = X[0, 0], X[1, 0]
    np.testing.assert_allclose(anna, words.table.find(["anna"])["anna"], rtol=1e-6)
    places = [words.places[name] for name in features("Zebras") if name in words.places]
    np.testing.assert_allclose(zebras, made.parameters["start"][places].sum(axis=0), rtol=1e-12)
    assert not X[~batch.is_word].any()
    words = Vocabulary(table(), 5, 2, HEADS)
    batch = words.batch([words.encode(parsed(line)) for line in LINES])
    np.testing.assert_allclose(
        batch.targets.sum(axis=3), np.broadcast_to(batch.is_word[:, None], batch.has_link.shape), atol=1e-6
    )
    for s, line in enumerate(LINES):
        sentence = parsed(line)
        for h, head in enumerate(HEADS):
            wanted = RELATIONS[head].links_to_learn(sentence)
            for i in range(len(sentence.words)):
                assert set(np.flatnonzero(batch.targets[s, h, i])) == set(wanted.get(i, {i: 1}))
                assert batch.has_link[s, h, i] == (i in wanted)
    names = feature_names(table(), 2, 3)
    assert names[: len(SHAPES)] == list(SHAPES)
    assert set(names[len(SHAPES) : -3]) <= {"-g", "-ng", "-ing", "-lking", "-king", "-s", "-ks"}
    assert len(names) == len(SHAPES) + 2 + 3 and names[-3:] == ["=anna", "=reads", "=old"]


@pytest.mark.parametrize("seed", [None, 0, 1])
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
    words = Vocabulary(table(), 5, 2, HEADS)
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
    draw = np.random.default_rng(11)
    lines = []
    for kind, words in enumerate((DOERS, DEEDS, THINGS, MANNERS)):
        for word in words[:-1]:
            vector = np.eye(6)[kind] * 2 + draw.standard_normal(6) * 0.3
            lines.append(f"{word} {' '.join(f'{x:.4f}' for x in vector)}")
    return "\n".join(lines) + "\n"


def little_language(count, seed, longest=5):
    """Sentences in which words stand in any order, and only their kind tells who did what."""
    draw = np.random.default_rng([seed, 13])
    texts = []
    for _ in range(count):
        kinds = [(DOERS, "NOUN", "nsubj"), (DEEDS, "VERB", "root"), (THINGS, "NOUN", "obj")]
        kinds += [(MANNERS, "ADV", "advmod")] * int(draw.integers(0, longest))
        order = draw.permutation(len(kinds))
        verb = 1 + int(np.flatnonzero(order == 1)[0])
        texts.append(
            " ".join(
                f"{words[draw.integers(len(words))]}/{tag}/{0 if relation == 'root' else verb}/{relation}"
                for words, tag, relation in (kinds[i] for i in order)
            )
        )
    return texts


@pytest.fixture
def little(tmp_path):
    """A folder with the little language's vectors, its train.conllu and its dev.conllu."""
    (tmp_path / VECTOR_FILE).write_text(little_vectors())
    (tmp_path / "train.conllu").write_text(conllu(*little_language(300, 0)))
    (tmp_path / "dev.conllu").write_text(conllu(*little_language(60, 1)))
    return tmp_path


QUICK = TrainSettings(
    relations="subject,object", epochs=12, rate=0.02, dim=4, reach=2, endings=20, batch=200,
)  # fmt: skip


def trained(folder, output, settings=QUICK, dev="dev.conllu"):
    told = []
    made = train_file(
        [str(folder / "train.conllu")], str(folder / output), [str(folder / dev)] if dev else [],
        str(folder / VECTOR_FILE), settings, lambda stage: None, told.append,
    )  # fmt: skip
    return made, told


def test_what_can_be_learned_is_learned(little):
    made, told = trained(little, "model.safetensors")
    sentences = [parsed(text) for text in little_language(60, 1)]
    chance = np.mean([1 / len(sentence.words) for sentence in sentences])
    assert chance < 0.3
    assert [epoch.number for epoch in told] == list(range(1, 13)) and made.epochs == 12
    assert told[-1].loss < told[0].loss / 3
    for score in made.scores:
        assert score.count == 60
        assert score.baseline < 0.5 and score.accuracy > 0.95, score
        assert told[0].accuracy[score.name] < score.accuracy
        assert told[-1].accuracy[score.name] == pytest.approx(score.accuracy, abs=0.02)


def test_the_same_seed_gives_the_same_bytes_and_another_seed_gives_others(little):
    short = {**vars(QUICK), "epochs": 2}
    files = [little / f"{name}.safetensors" for name in "abc"]
    for file, seed in zip(files, (3, 3, 4), strict=True):
        trained(little, file.name, TrainSettings(**{**short, "seed": seed}))
    first, same, other = (read_model(str(file)).last.heads[0].W_q for file in files)
    assert files[0].read_bytes() == files[1].read_bytes()
    np.testing.assert_array_equal(first, same)
    assert not np.array_equal(first, other)


def as_written(trainer, path, folder, settings):
    """Round what a trainer has learned as a file does, write it, and read it again."""
    rounded = {
        name: value.astype(np.float16).astype(np.float32) for name, value in trainer.learner.copy().items()
    }
    trainer.learner.restore(rounded)
    names = np.frombuffer("\n".join(trainer.words.names).encode(), np.uint8)
    with path.open("wb") as stream:
        write_model(
            stream, trainer.arrays() | {"start.names": names}, "mine", "none", trainer.learner.layers > 1,
            list(trainer.words.heads), {},
        )  # fmt: skip
    return read_model(str(path))


def test_training_and_the_program_compute_the_same_weights(little):
    from attn_cli.learn.treebank import read_treebank
    from attn_cli.vectors.lookup import open_table

    table = open_table(str(little / VECTOR_FILE))
    settings = TrainSettings(**{**vars(QUICK), "epochs": 2, "itself": 30})
    sentences = read_treebank(str(little / "train.conllu"))
    dev = [*read_treebank(str(little / "dev.conllu"))[:20], *map(parsed, LINES)]
    trainer = Trainer(table, ["subject", "object", "previous"], sentences, dev, settings)
    trainer.epoch(0, lambda stage: None)
    stack = as_written(trainer, little / "model.safetensors", little, settings)
    assert stack.layers == 1
    batch = trainer.words.batch(trainer.dev)
    theirs = trainer.learner.weights(batch)
    unknown = 0
    for s, sentence in enumerate(dev):
        ours = head_weights(stack, table, sentence.words)
        n = len(sentence.words)
        unknown += int((batch.words[s, :n] == UNKNOWN).sum())
        for h, head in enumerate(trainer.words.heads):
            np.testing.assert_allclose(ours[head], theirs[s, h, :n, :n], rtol=0, atol=1e-5)
            assert not theirs[s, h, :n, n:].any()
    assert unknown > 10, "unknown words are among them"


OPTIONS = ["-e", VECTOR_FILE, "--relations", "subject,object", "--dim", "4", "--reach", "2"]


def test_the_command_writes_a_model_of_several_treebanks_that_the_others_read(little):
    whole = (little / "train.conllu").read_text()
    half = whole.index("\n\n", len(whole) // 2) + 2
    (little / "train.conllu").write_text(whole[:half])
    (little / "rest.conllu.xz").write_bytes(lzma.compress(whole[half:].encode()))
    train = ["train.conllu", "rest.conllu.xz", "--dev", "dev.conllu", "-o", "my model.safetensors"]
    ran = attn("learn", "train", *train, *OPTIONS, "--epochs", "6", "--rate", "0.02", cwd=little)
    assert (ran.code, ran.out) == (0, ""), ran.err
    assert "epoch 1:" in ran.err and "epoch 6:" in ran.err and "my model.safetensors" in ran.err
    file = ["-p", "./my model.safetensors", "-e", VECTOR_FILE]
    text = f"{DOERS[0]} {MANNERS[0]} {DEEDS[1]} {THINGS[2]}"
    used = attn("self", text, *file, "--head", "subject", "-f", "json", cwd=little)
    assert used.code == 0, used.err
    record = json.loads(used.out)
    assert (record["projection"]["source"], record["head"]) == ("learned", "subject")
    assert record["learned"]["trained_on"] == ["train.conllu", "rest.conllu.xz"]
    assert record["learned"]["scored_on"] == "dev.conllu"
    scored = attn(
        "learn", "score", "my model.safetensors", "dev.conllu", "-e", VECTOR_FILE, "-f", "json", cwd=little
    )
    assert scored.code == 0, scored.err
    by_name = {head["name"]: head for head in json.loads(scored.out)["heads"]}
    assert list(by_name) == ["subject", "object"]
    told = record["learned"]["accuracy"], record["learned"]["baseline"]
    assert told == (by_name["subject"]["accuracy"], by_name["subject"]["baseline"])
    texts = {VECTOR_FILE, "train.conllu", "rest.conllu.xz", "dev.conllu"}
    assert set(os.listdir(little)) == texts | {"my model.safetensors"}


WRONG = {
    "unknown relation": (["--relations", "subject,friend"], "friend"),
    "a relation in capitals": (["--relations", "Subject"], "Subject"),
    "a relation twice": (["--relations", "head,subject,subject"], "subject"),
    "an empty relation": (["--relations", "subject,"], "--relations"),
    "no relation": (["--relations", ""], "--relations"),
    "no pass": (["--epochs", "0"], "--epochs"),
    "passes below none": (["--epochs", "-1"], "--epochs"),
    "passes in words": (["--epochs", "many"], "--epochs"),
    "no step": (["--rate", "0"], "--rate"),
    "a step back": (["--rate", "-0.1"], "--rate"),
    "too long a step": (["--rate", "2"], "--rate"),
    "no number for a step": (["--rate", "nan"], "--rate"),
    "an infinite step": (["--rate", "inf"], "--rate"),
    "no numbers": (["--dim", "0"], "--dim"),
    "no reach": (["--reach", "0"], "--reach"),
    "a seed below 0": (["--seed", "-1"], "--seed"),
    "a suffix of another format": (["-o", "model.json"], "safetensors"),
    "no suffix": (["-o", "model"], "safetensors"),
    "vectors that nobody knows": (["-e", "nobody"], "nobody"),
    "random vectors": (["-e", "random"], "random"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_wrong_usage_is_2_and_names_what_is_wrong(kind, little):
    wrong, named = WRONG[kind]
    options = [*OPTIONS, "-o", "model.safetensors", *wrong]
    ran = attn("learn", "train", "train.conllu", *options, cwd=little)
    assert (ran.code, ran.out) == (2, ""), ran.err
    assert ran.err.count("\n") == 1 and named in ran.err.partition("Choose")[0]
    assert set(os.listdir(little)) == {VECTOR_FILE, "train.conllu", "dev.conllu"}


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["missing.conllu", "-o", "m.safetensors"], 66),
        (["train.conllu", "missing.conllu", "-o", "m.safetensors"], 66),
        (["train.conllu", "--dev", "missing.conllu", "-o", "m.safetensors"], 66),
        (["train.conllu", "dev.conllu", "--dev", "copy.conllu", "-o", "m.safetensors"], 2),
        (["train.conllu", "-e", "missing.txt", "-o", "m.safetensors"], 66),
        ([".", "-o", "m.safetensors"], 66),
        (["train.conllu", "-o", "nowhere/m.safetensors"], 73),
        (["train.conllu", "-o", "folder.safetensors"], 73),
        (["train.conllu", "-o", "train.conllu/m.safetensors"], 73),
        (["train.conllu", "-o", "x" * 300 + ".safetensors"], 73),
    ],
    ids=lambda value: " ".join(value)[:50] if isinstance(value, list) else str(value),
)
def test_what_cannot_be_read_or_written_is_refused_before_the_work(args, code, little):
    (little / "folder.safetensors").mkdir()
    (little / "copy.conllu").write_bytes((little / "dev.conllu").read_bytes())
    before = set(os.listdir(little))
    ran = attn("learn", "train", "-e", VECTOR_FILE, *args, cwd=little)
    assert (ran.code, ran.out) == (code, ""), ran.err
    assert ran.err.count("\n") == 1 and "epoch" not in ran.err
    assert set(os.listdir(little)) == before


def test_sentences_too_long_to_learn_from_are_not_all_there_may_be(little):
    long = " ".join(["x/X/0/root", *["y/X/1/dep"] * 100])
    (little / "long.conllu").write_text(conllu(long))
    ran = attn("learn", "train", "long.conllu", *OPTIONS, "-o", "m.safetensors", cwd=little)
    assert (ran.code, ran.out) == (65, "") and ran.err.count("\n") == 1


def started(folder, *args):
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([*COMMAND, "learn", "train", *args], cwd=folder, env=surroundings(), **pipes)


def interrupted_at(process, phrase):
    """Send an interrupt at the first line that holds this phrase, and return how the process ended."""
    said = ""
    try:
        for line in process.stderr:
            said += line
            if phrase in line:
                break
        else:
            pytest.fail(f"{phrase!r} was never said: {said}")
        process.send_signal(signal.SIGINT)
        out, rest = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert "Traceback" not in rest and "bug" not in rest
    assert out == ""
    return process.returncode, rest


def works(folder, name):
    """Check that a file is a whole model, which the program computes with."""
    used = attn("self", f"{DOERS[0]} {DEEDS[1]}", "-p", name, "-e", VECTOR_FILE, "-f", "json", cwd=folder)
    assert used.code == 0, used.err
    assert read_model(str(Path(folder, name))).last.heads[0].name == "subject"


posix = pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")


@posix
@pytest.mark.parametrize(
    ("phrase", "args", "files"),
    [
        ("epoch 3:", [*OPTIONS, "--epochs", "10000"], {}),
        pytest.param(
            "scoring",
            ["--dev", "dev.conllu", *OPTIONS, "--epochs", "1"],
            {"dev": (12_000, 3)},
            marks=takes_long,
        ),
        ("epoch 1 of", ["-e", VECTOR_FILE], {"train": (1200, 2, 60)}),  # before the first pass is whole
    ],
)
def test_an_interrupt_is_130_and_leaves_the_last_whole_pass_and_says_so_or_changes_nothing(
    phrase, args, files, little
):
    (little / "old.safetensors").write_bytes(b"old")
    for name, size in files.items():
        (little / f"{name}.conllu").write_text(conllu(*little_language(*size)))
    code, rest = interrupted_at(started(little, "train.conllu", *args, "-o", "old.safetensors"), phrase)
    assert code == 130
    assert set(os.listdir(little)) == {*(VECTOR_FILE, "train.conllu", "dev.conllu", "old.safetensors")}
    if phrase == "epoch 1 of":
        assert "wrote" not in rest and (little / "old.safetensors").read_bytes() == b"old"
        return
    assert "wrote old.safetensors" in rest and ("interrupted" in rest or phrase == "scoring")
    works(little, "old.safetensors")
    assert read_model(str(little / "old.safetensors")).facts["epochs"] >= (3 if phrase == "epoch 3:" else 1)


def trainer_and_batches(little, texts, dev=(), **changes):
    """A trainer whose learner learns nothing, and the batches that it is shown in one pass."""
    from attn_cli.vectors.lookup import open_table

    settings = TrainSettings(**{**vars(QUICK), "pairs": 0.0, **changes})
    sentences = [parsed(text) for text in texts]
    made = Trainer(
        open_table(str(little / VECTOR_FILE)), ["subject"], sentences, [*map(parsed, dev)], settings
    )
    shown = []
    made.learner.learn = lambda batch, rate: shown.append(batch) or 0.0
    made.epoch(0, lambda stage: None)
    return made, shown


def lengths(shown):
    return [int(row.sum()) for batch in shown for row in batch.is_word]


def test_punctuation_pairs_and_hidden_words_come_as_often_as_they_should(little):
    texts = [f"{DOERS[0]}/NOUN/2/nsubj {DEEDS[0]}/VERB/0/root ./PUNCT/2/punct"] * 400
    for share in (0.0, 0.5, 1.0):
        found = lengths(trainer_and_batches(little, texts, punctuation=share)[1])
        assert len(found) == 400 and set(found) <= {2, 3}
        assert found.count(2) / 400 == pytest.approx(share, abs=0.1)
    texts = [f"{DOERS[0]}/NOUN/2/nsubj {DEEDS[0]}/VERB/0/root"] * 400
    assert set(lengths(trainer_and_batches(little, texts)[1])) == {2}
    found = lengths(trainer_and_batches(little, texts, pairs=0.3)[1])
    assert sum(found) == 800 and 0.2 < sum(n > 2 for n in found) / len(found) < 0.45
    made, shown = trainer_and_batches(
        little, [f"{DOERS[0]}/NOUN/2/nsubj {DEEDS[0]}/VERB/0/root"] * 600 + [f"{DOERS[1]}/NOUN/0/root"] * 3
    )
    hidden = np.concatenate([batch.words[batch.is_word] == UNKNOWN for batch in shown])
    assert 0 < hidden.mean() < 0.05, "what is common is nearly always shown"
    rare, common = made.hidden[made.words.row(DOERS[1])], made.hidden[made.words.row(DOERS[0])]
    assert 0.05 < rare < 0.15 and 0.02 < common < 0.021


def test_an_interrupt_in_a_pass_leaves_what_the_pass_before_it_had(little):
    def run(name, stops_at):
        seen = []

        def report(stage):
            seen.append(stage)
            if stops_at == "the end of pass 2" and stage.phase == "epoch 2 of 12" and stage.done == 1:
                raise KeyboardInterrupt

        def told(epoch):
            if stops_at == "after pass 1":
                raise KeyboardInterrupt

        made = train_file(
            [str(little / "train.conllu")], str(little / name), [], str(little / VECTOR_FILE), QUICK, report, told,
        )  # fmt: skip
        assert made.interrupted and made.epochs == 1
        return (little / name).read_bytes()

    assert run("a.safetensors", "after pass 1") == run("b.safetensors", "the end of pass 2")


def test_scores_that_cannot_be_added_leave_the_model_and_say_so(little, monkeypatch):
    from attn_cli.io import atomic
    from attn_cli.learn import train

    calls = []

    def written(path):
        calls.append(path)
        if len(calls) == 2:
            raise CreateError("Cannot create model.safetensors: No space left on device.")
        return atomic.written(path)

    monkeypatch.setattr(train, "written", written)
    with pytest.raises(
        WriteError, match=r"No space left on device\. The model is there, without its scores\."
    ):
        trained(little, "model.safetensors")
    works(little, "model.safetensors")
