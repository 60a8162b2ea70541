"""Learning from other models on running text: their weights are learned where no treebank says anything."""

import os
from types import SimpleNamespace

import numpy as np
import pytest

from attn_cli.errors import InputError
from attn_cli.learn.batches import Batch
from attn_cli.learn.relations import balances
from attn_cli.learn.score import head_weights
from attn_cli.models.model_file import read_model
from attn_cli.vectors.lookup import open_table
from data.making.deep import loss_and_gradient
from data.making.imitation import Teachers
from data.making.lower import Lower
from data.making.tests.running import making
from tests.parsed import conllu

NOUNS = ("cat", "dog", "fox", "hen")
WORDS = (*NOUNS, "eats", "sees", "sleeps", "runs", "here")
LEARN = (
    "train -e v.txt --relations subject,object --layers 2 --heads 2 --width 16 --wide 16 --rate 0.1".split()  # noqa: SIM905
)


@pytest.fixture
def folder(tmp_path):
    """Vectors, a treebank with objects, one without, and text with objects that nobody has parsed."""
    draw = np.random.default_rng(3)
    rows = (f"{word} {' '.join(f'{x:.4f}' for x in draw.standard_normal(8))}" for word in WORDS)
    (tmp_path / "v.txt").write_text("\n".join(rows) + "\n")
    pairs = [(a, verb, b) for a in NOUNS for verb in ("eats", "sees") for b in NOUNS]
    whole = (f"{a}/NOUN/2/nsubj {verb}/VERB/0/root {b}/NOUN/2/obj" for a, verb, b in pairs)
    none = [
        f"{a}/NOUN/2/nsubj {verb}/VERB/0/root here/ADV/2/advmod" for a in NOUNS for verb in ("sleeps", "runs")
    ]
    (tmp_path / "whole.conllu").write_text(conllu(*whole))
    (tmp_path / "none.conllu").write_text(conllu(*none * 4))
    (tmp_path / "text.txt").write_text("\n".join(" ".join(line) for line in pairs) + "\n")
    return tmp_path


def softmax(z):
    powers = np.exp(z - z.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def objects(folder, model):
    """The word that each verb of "cat eats hen" and "dog sees fox" most looks at in head object."""
    stack, table = read_model(str(folder / model)), open_table(str(folder / "v.txt"))
    return [
        int(head_weights(stack, table, words)["object"][1].argmax())
        for words in (("cat", "eats", "hen"), ("dog", "sees", "fox"))
    ]


def test_what_no_treebank_shows_is_learned_from_a_teacher(folder):
    if os.environ.get("ATTN_REQUIRE_TORCH") != "1":
        pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")
    ran = making(*LEARN, "whole.conllu", "--epochs", "200", "-o", "teacher.safetensors", cwd=folder)
    assert ran.code == 0, ran.err
    assert objects(folder, "teacher.safetensors") == [2, 2]
    student = [*LEARN, "none.conllu"]
    assert making(*student, "--epochs", "9", "-o", "alone.safetensors", cwd=folder).code == 0
    assert objects(folder, "alone.safetensors") != [2, 2], "its treebank has no object"
    taught = ["--teacher", "teacher.safetensors", "--text", "text.txt"]
    for name, epochs in (("a", "200"), ("b", "3"), ("c", "3")):
        ran = making(*student, *taught, "--epochs", epochs, "-o", f"{name}.safetensors", cwd=folder)
        assert ran.code == 0, ran.err
    assert objects(folder, "a.safetensors") == [2, 2]
    assert (folder / "b.safetensors").read_bytes() == (folder / "c.safetensors").read_bytes()
    facts = read_model(str(folder / "a.safetensors")).facts
    assert facts["trained_on"] == ["none.conllu"]
    assert facts["teachers"]["teacher.safetensors"]["trained_on"] == ["whole.conllu"]
    assert facts["imitated_on"]["texts"] == ["text.txt"] and facts["imitated_on"]["words"] >= 200 * 96
    more = ["train", "none.conllu", "-e", "v.txt", "--pretrained", "b.safetensors", "--epochs", "1"]
    assert making(*more, "-o", "d.safetensors", cwd=folder).code == 0
    facts = read_model(str(folder / "d.safetensors")).facts
    assert facts["trained_on"] == ["none.conllu"], "once, though it was learned from twice"
    assert facts["pretrained_on"]["imitated_on"]["texts"] == ["text.txt"]


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["--teacher", "v.txt"], 2, "--teacher needs --text"),
        (["--text", "text.txt"], 2, "--text needs --teacher"),
        (["--teacher", "gone.safetensors", "--text", "text.txt"], 66, "gone.safetensors"),
        (["--teacher", "text.txt", "--text", "text.txt"], 65, "text.txt"),
        (["--balance", "much"], 2, "--balance cannot be much."),
        (["--balance", "2,objects=1"], 2, "cannot be 2,objects=1."),
        (["--balance", "2,3"], 2, "cannot be 2,3."),
        (["--balance", "-1"], 2, "cannot be -1."),
    ],
)
def test_what_cannot_be_learned_from_is_refused(options, code, said, folder):
    wrong = making(*LEARN, "none.conllu", *options, "--epochs", "1", "-o", "m.safetensors", cwd=folder)
    assert wrong.code == code, wrong.err
    assert said in wrong.err and wrong.err.count("\n") == 1 and not (folder / "m.safetensors").exists()


@pytest.mark.parametrize(
    ("theirs", "ours", "ratio"),
    [("2", "2,object=1", 0.5), (2.0, "1", 0.5), ("object=0", "object=1", 1000.0), ("1", "object=0", 0.001)],
)
def test_a_teacher_is_read_by_the_balance_of_the_one_that_learns(theirs, ours, ratio):
    model = Lower("t", (), [], 0, 0, {}, {"settings": {"balance": theirs}})
    teachers = Teachers([model], [])
    teachers.words = SimpleNamespace(heads=("subject", "object"))
    found = teachers._ratio(model, np.array(balances(teachers.words.heads, ours)))
    assert found.shape == (2, 1) and found[1, 0] == pytest.approx(ratio)


@pytest.mark.parametrize(
    "facts", [{"settings": {"balance": "much"}}, {"settings": {"balance": None}}, {"settings": {}}]
)
def test_a_teacher_that_does_not_say_how_it_was_trained_is_refused(facts):
    model = Lower("t", (), [], 0, 0, {}, facts)
    teachers = Teachers([model], [])
    teachers.words = SimpleNamespace(heads=("subject",))
    with pytest.raises(InputError, match="does not say how"):
        teachers._ratio(model, np.ones(1))


def batch(T, is_word=None, **changes):
    """One sentence, heads as in T (h, n, n), each row known."""
    T = np.asarray(T, float)
    h, n = T.shape[:2]
    words = np.ones((1, n), bool) if is_word is None else np.array([is_word])
    made = Batch(
        np.zeros((1, n), int), np.zeros((1, n, 1), int), words, T[np.newaxis], np.zeros((1, h, n), bool),
        np.ones(h), np.ones((1, h, n), bool), is_imitated=True,
    )  # fmt: skip
    return made._replace(**changes)


def test_whoever_looks_as_the_teachers_do_has_nothing_to_learn():
    T = softmax(np.random.default_rng(0).standard_normal((2, 5, 5)))
    _, slope = loss_and_gradient(T[np.newaxis], batch(T), 0.5, np.array([0.3, 2.0]))
    np.testing.assert_allclose(slope, 0, atol=1e-15)


def test_the_slope_of_imitation_is_that_of_finite_differences():
    draw = np.random.default_rng(1)
    z, T = draw.standard_normal((1, 2, 4, 4)), softmax(draw.standard_normal((2, 4, 4)))
    z[..., 3] = -1e9
    T[:, :, 3] = 0
    T /= T.sum(axis=-1, keepdims=True)
    made = batch(T, [True, True, True, False], importance=np.array([0.7, 0.3]))
    balance = np.array([0.3, 2.0])
    _, slope = loss_and_gradient(softmax(z), made, 0.5, balance)
    for place in np.ndindex(1, 2, 3, 3):
        sides = []
        for step in (1e-6, -1e-6):
            moved = z.copy()
            moved[place] += step
            sides.append(loss_and_gradient(softmax(moved), made, 0.5, balance)[0])
        assert slope[place] == pytest.approx((sides[0] - sides[1]) / 2e-6, abs=1e-8)
    assert not slope[:, :, 3].any(), "padding teaches nothing"


def test_where_teachers_are_sure_rows_count_as_those_of_a_treebank_do():
    n, T = 6, np.eye(6)
    T[0], T[1] = T[5], T[4]
    A = softmax(np.random.default_rng(2).standard_normal((1, 1, n, n)))
    has_link = np.array([[[True, True, False, False, False, False]]])
    for balance in (0.3, 1.0, 2.0):
        soft = loss_and_gradient(A, batch([T]), 0.0, balance)
        hard = loss_and_gradient(A, batch([T], is_imitated=False, has_link=has_link), 0.0, balance)
        assert soft[0] == pytest.approx(hard[0])
        np.testing.assert_allclose(soft[1], hard[1], rtol=1e-12, atol=1e-15)


def test_single_heads_may_be_balanced_otherwise():
    heads = ["relations", "head", "subject", "object"]
    assert balances(heads, "2, object=1") == [0.3, 0.3, 2, 1]
    assert balances(heads, "relations=1.5") == [1.5, 0.3, 1, 1]
    for wrong in ("", "x", "nan", "101", "2,2", "object=", "object=1,object=2", "nobody=1"):
        with pytest.raises(ValueError):
            balances(heads, wrong)
