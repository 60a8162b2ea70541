"""A language model: trained on small data to the end, its arithmetic in NumPy and in PyTorch, its heads measured."""

import json
import math
import re
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

import jsonschema
import numpy as np
import pytest

from attn_cli.errors import InputError, UsageError
from attn_cli.io.array_files import read_safetensors, write_safetensors
from attn_cli.learn.language_score import PATTERNS, perplexity
from attn_cli.models.encoder import causal, matrix_of
from attn_cli.models.model_file import CASES, EXPONENTS, quantized, read_model
from attn_cli.vectors import bundled
from attn_cli.vectors.lookup import embed
from data.making.corpus import HELD_BACK
from data.making.language_text import LEAST_RANDOM, LONGEST, MOST_RANDOM, LanguageText
from data.making.settings import LanguageTraining
from data.making.tests.running import COMMAND, making
from data.making.train_language import train_file
from tests.parsed import conllu
from tests.shell import ROOT, attn, surroundings

SMALL = LanguageTraining(
    words=50_000, layers=2, heads=2, width=16, wide=16, corrected=50, reach=4, rate=0.01, batch=200, common=20,
    sampled=30,
)  # fmt: skip
OPTIONS = "--layers 2 --heads 2 --width 16 --wide 16 --corrected 50 --reach 4".split()  # noqa: SIM905
ANIMALS, PLACES = ("cat", "dog", "fox", "hen"), ("house", "field", "wood")
LINES = [f"The {animal} sleeps in the {place}." for animal in ANIMALS for place in PLACES] * 90
DEV = "The/DET/2/det cat/NOUN/3/nsubj sleeps/VERB/0/root ./PUNCT/3/punct"


def silent(stage):
    pass


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a text and a treebank."""
    made = tmp_path_factory.mktemp("language")
    (made / "text.txt").write_text("\n".join(LINES) + "\n")
    (made / "dev.conllu").write_text(conllu(DEV) * 3)
    return made


@pytest.fixture(scope="module")
def trained(folder, torch):
    """A small model, and what its training told."""
    output = str(folder / "small.safetensors")
    dev = str(folder / "dev.conllu")
    return train_file([str(folder / "text.txt")], output, dev, "word2vec", SMALL, silent)


def test_it_learns_the_text_and_is_measured_on_the_lines_held_back(trained):
    stack, table = read_model(trained.file), bundled()
    words = len(LINES) * 7 - 7  # every thousandth line is held back
    assert trained.words == words and not trained.interrupted
    # Two words of seven cannot be known: which animal and which place.
    least = (len(ANIMALS) * len(PLACES)) ** (1 / 7)
    found = perplexity(stack, table, [LINES[999].replace(".", " .").split()], silent)
    assert least * 0.98 < found.perplexity < 2 * least
    assert found.words == 7 and found.unknown == 0
    assert trained.perplexity == pytest.approx(found.perplexity, rel=0.01)
    assert stack.facts["held_back"]["perplexity"] == trained.perplexity


def test_the_same_text_and_seed_give_the_same_bytes_and_another_seed_others(trained, folder, torch):
    data = []
    for seed in (0, 1):
        output, settings = (
            str(folder / f"seed{seed}.safetensors"),
            LanguageTraining(**{**vars(SMALL), "seed": seed}),
        )
        train_file(
            [str(folder / "text.txt")], output, str(folder / "dev.conllu"), "word2vec", settings, silent
        )
        with open(output, "rb") as file:
            data.append(file.read())
    with open(trained.file, "rb") as file:
        assert data[0] == file.read()
    assert data[1] != data[0]


def test_its_file_has_eight_bits_a_number_or_sixteen(folder, torch):
    found = {}
    for bits in ("8", "16"):
        output = str(folder / f"bits{bits}.safetensors")
        settings = LanguageTraining(**{**vars(SMALL), "bits": bits, "words": 5000})
        train_file([str(folder / "text.txt")], output, None, "word2vec", settings, silent)
        found[bits] = read_safetensors(output)[0]
    expected = quantized(found["16"])
    assert any(name.endswith(EXPONENTS) for name in expected) and expected.keys() == found["8"].keys()
    for name, wanted in expected.items():  # of two trainings: a whole number may be rounded the other way
        np.testing.assert_allclose(found["8"][name].astype(float), wanted.astype(float), atol=1, err_msg=name)


def test_numpy_and_pytorch_compute_the_same(trained, torch):
    from data.making.language import Language

    stack, table = read_model(trained.file), bundled()
    text = LanguageText(table, SMALL.endings, SMALL.corrected)
    texts = ("The quick zwxing fox's cub sleeps in 1903 , the US house .", "Dogs bark")
    lines = [text.split() for text in texts]
    for line in lines:
        text.add(line)
    text.freeze()
    settings = LanguageTraining(**{**vars(SMALL), "pretrained": trained.file})
    learner = Language(text, text.counts(range(2)), table.matrix, settings)
    with torch.no_grad():
        H = learner.hidden(text.batch([text.line(0), text.line(1)]))
        loss, count = learner.exact(text.batch([text.line(0), text.line(1)]))
    for n, line in enumerate(lines):
        X = embed(line, table, "model", 0, stack.spelling).X
        ours = stack.last_rows(X, causal(len(line)))
        np.testing.assert_allclose(ours, H[n, : len(line)].numpy(), rtol=0, atol=2e-5)
    found = perplexity(stack, table, lines, silent)
    assert found.words == count and math.log(found.perplexity) == pytest.approx(loss / count, abs=1e-5)


def test_the_sampled_loss_is_nearly_the_whole_one(trained, folder, torch):
    from data.making.language import Language

    table = bundled()
    text = LanguageText(table, 10, 10)
    lines, _ = text.read([str(folder / "text.txt")], 3000, silent)
    text.freeze()
    settings = LanguageTraining(**{**vars(SMALL), "corrected": 10, "sampled": 4000})
    learner = Language(text, text.counts(lines), table.matrix, settings)
    batch = text.batch([text.line(number) for number in range(30)])
    with torch.no_grad():
        sampled = np.mean([float(learner.loss(batch)) for _ in range(5)])
    loss, count = learner.exact(batch)
    assert sampled == pytest.approx(loss / count, rel=0.01)


def test_no_gradient_reaches_a_word_from_a_place_before_it(trained, folder, torch):
    from data.making.language import Language

    table = bundled()
    text = LanguageText(table, 10, 10)
    text.add(["the", "old", "cat", "sleeps", "in", "a", "new", "house"])
    text.freeze()
    settings = LanguageTraining(**{**vars(SMALL), "corrected": 10})
    learner = Language(text, text.counts(range(1)), table.matrix, settings)
    learner.vectors = learner.vectors.requires_grad_()
    for place in range(8):
        H = learner.hidden(text.batch([text.line(0)]))
        (slope,) = torch.autograd.grad(H[0, place].sum() + (H[0, place] ** 2).sum(), learner.vectors)
        reached = slope.abs().sum(1)[text.rows[text.line(0)]] > 0
        assert reached.tolist() == [True] * (place + 1) + [False] * (7 - place)


def test_nothing_is_measured_of_a_text_whose_sentences_others_have(tmp_path):
    texts = [str(tmp_path / name) for name in ("a.txt", "b.txt")]
    for path in texts:
        Path(path).write_text(f"The cat sat in {Path(path).name}.\n" * (HELD_BACK + 5))
    sizes = []
    for made in (None, texts[1]):
        text = LanguageText(bundled(), 10, 0)
        sizes.append([*map(len, text.read(texts, 10**6, silent, made))])
    with pytest.raises(UsageError, match="none of the texts"):
        train_file(
            texts[:1],
            str(tmp_path / "c.safetensors"),
            None,
            "word2vec",
            LanguageTraining(made=texts[1]),
            silent,
        )
    assert sizes == [[2 * HELD_BACK + 8, 2], [2 * HELD_BACK + 8, 1]]  # and it is not learned either


def test_lines_are_read_after_the_one_before_or_said_twice_and_each_is_learned_from_once(folder):
    text = LanguageText(bundled(), 0, 0)
    lines, held_back = text.read([str(folder / "text.txt")], 2000, silent)
    text.freeze()
    assert len(held_back) == 0 and text.words(lines).size >= 2000
    draw = np.random.default_rng(0)
    whole = sum(batch.size for batch in text.batches(lines, 100, 0.0, 0.0, 0.0, 0.0, draw))
    assert whole == len(text.words(lines))
    after = list(text.batches(lines, 100, 1.0, 0.0, 0.0, 0.0, draw))
    assert sum(batch.size for batch in after) == whole, "the line before is read, not guessed"
    said = [(*text.line(number).tolist(),) for number in lines]
    found = Counter()
    for batch in after:
        for places, asked in zip(batch.places, batch.rows >= 0, strict=True):
            tokens = (*batch.distinct[places[: 1 + np.flatnonzero(asked)[-1]]].tolist(),)
            found[tokens[: int(asked.argmax())], tokens[int(asked.argmax()) :]] += 1
    assert found == Counter(zip([(), *said], said, strict=False))
    for batch in text.batches(lines, 100, 0.0, 1.0, 0.0, 0.0, draw):
        for row in batch.rows:
            said = row[row >= 0]
            assert (said[: len(said) // 2] == said[len(said) // 2 :]).all()


def test_random_words_are_said_twice_and_guessed_the_second_time(folder):
    text = LanguageText(bundled(), 0, 0)
    lines, _ = text.read([str(folder / "text.txt")], 2000, silent)
    text.freeze()
    texts, random = 0, 0
    for batch in text.batches(lines, 100, 0.0, 0.0, 0.5, 0.0, np.random.default_rng(0)):
        texts += batch.size
        for row, places in zip(batch.rows[~batch.is_text], batch.places[~batch.is_text], strict=True):
            asked = np.flatnonzero(row >= 0)
            assert asked.size >= LEAST_RANDOM and (np.diff(asked) == 1).all()
            said = text.rows[batch.distinct[places]]
            assert (said[asked - asked.size] == row[asked]).all()
            random += asked.size
    assert texts == len(text.words(lines)) and 0.5 * texts <= random < 0.5 * texts + MOST_RANDOM


def test_a_name_without_a_vector_comes_again_in_another_line_after_the_same_word():
    text = LanguageText(bundled(), 0, 0)
    for line in ("Old Zwxq sleeps .", "I saw old Qxzw and the dog .", "The Wqzx ran .", "A dog ran ."):
        text.add(line.split())
    text.freeze()
    token = {name: number for number, name in enumerate(text._numbers)}
    pairs = 0
    for batch in text.batches(range(4), 100, 0.0, 0.0, 0.0, 5.0, np.random.default_rng(0)):
        for row, places in zip(batch.rows[~batch.is_text], batch.places[~batch.is_text], strict=True):
            asked = np.flatnonzero(row >= 0)
            said = batch.distinct[places][: asked[-1] + 1].tolist()
            first, second = said[: asked[0]], said[asked[0] :]
            name = token["Zwxq"] if token["Zwxq"] in first else token["Qxzw"]
            assert first.count(name) == second.count(name) == 1
            before = [text.rows[part[part.index(name) - 1]] for part in (first, second)]
            assert before[0] == before[1] == text.rows[token["old"]]
            pairs += 1
    assert pairs == 20


def test_a_line_is_followed_by_the_one_that_is_most_like_it():
    text = LanguageText(bundled(), 0, 0)
    lines = (
        "The goats ate grass .",
        "Music fills a concert hall .",
        "A goat eats hay .",
        "She sang at the concert .",
    )
    for line in (*lines, *lines[:1]):
        text.add(line.split())
    text.freeze()
    found = set()
    for batch in text.batches(range(5), 100, 0.0, 0.0, 0.0, 0.0, np.random.default_rng(0), 1.0):
        for row, places in zip(batch.rows[~batch.is_text], batch.places[~batch.is_text], strict=True):
            asked = np.flatnonzero(row >= 0)
            said = [[*text._numbers][i] for i in batch.distinct[places][: asked[-1] + 1]]
            found.add((" ".join(said[: asked[0]]), " ".join(said[asked[0] :])))
    assert found == {(lines[0], lines[2]), (lines[1], lines[3]), (lines[2], lines[0]), (lines[3], lines[1])}


def test_a_line_is_cut_at_the_longest_text_and_padding_is_no_word():
    text = LanguageText(bundled(), 0, 0)
    assert text.add(["cat"] * (LONGEST + 9)) == LONGEST and text.add(["dog", "zwxq"]) == 2
    text.freeze()
    batch = text.batch([text.line(0), text.line(1)])
    assert batch.size == LONGEST + 2 and (batch.rows[1, 2:] == -1).all()
    assert batch.rows[1, 1] == text.unknown


def test_words_have_the_capitals_that_they_mostly_have_within_a_sentence():
    table = bundled()
    text, words = LanguageText(table, 0, 0), [word for block in table.word_blocks() for word in block]
    said = [
        "We saw Paris .",
        "Paris is in the EU .",
        '" Yes , " said Paris , " we saw the eu . "',
        "Cats saw EU",
    ]
    for line in [*said, "cats saw EU", "the EU saw cats", "the EU saw a Cat", "a cat or a cat , cat"]:
        text.add(line.split())
    text.freeze()
    bits = np.unpackbits(text.cases(range(8)), axis=1)
    names = ("paris", "eu", "yes", "we", "cats", "cat", "the")
    found = {name: bits[:, words.index(name.encode())].tolist() for name in names}
    assert found == {name: [0, 0] for name in names} | {"paris": [1, 0], "eu": [1, 1]}


def test_a_trained_file_tells_its_heads_names_and_measures(trained):
    stack = read_model(trained.file)
    names = [head.name for layer in range(2) for head in stack.attention(layer).heads]
    assert set(trained.named) == {name for name in names if not name.isdigit()} == set(stack.facts["scores"])
    for name in trained.named:
        facts = stack.learned(stack.layer_of(name), name)
        assert facts.about == PATTERNS[re.sub(r"-\d+$", "", name)].about
        assert not facts.taught and facts.accuracy == stack.facts["scores"][name]["accuracy"]


def test_a_model_of_ones_own_says_the_next_words_and_refuses_other_vectors(trained, folder, tmp_path):
    ran = attn("masked", "The cat sleeps in", "-p", trained.file, "--next", "2", "-f", "json")
    record = json.loads(ran.out)
    assert ran.code == 0 and record["next_words"][0]["word"] == "the"
    assert record["next_words"][0]["probability"] > 0.8
    told = attn("generate", "The fox sleeps", "-p", trained.file, "--count", "6").out.splitlines()
    said = json.loads(told[-1])
    assert re.fullmatch(r" in the \w+\. The \w+", said["written"]), said["written"]
    assert said["key_tokens"][-2:] == [".", "The"] and json.loads(told[-2])["word"] == "the"
    other = tmp_path / "other.txt"
    other.write_text("cat 1 0 0\nthe 0 1 0\n")
    refused = attn("masked", "the cat", "-p", trained.file, "-e", str(other))
    assert refused.code != 0 and "was learned on the vectors word2vec and fits no others" in refused.err


def test_score_prints_the_perplexity_and_every_heads_measures(trained, folder):
    ran = attn("learn", "score", trained.file, str(folder / "dev.conllu"))
    assert ran.code == 0 and "induction" in ran.out and "Perplexity " in ran.out
    record = json.loads(attn("learn", "score", trained.file, str(folder / "dev.conllu"), "-f", "json").out)
    schema = json.loads((Path(__file__).parents[3] / "attn_cli" / "schema.json").read_text())
    jsonschema.validate(record, {**schema, "oneOf": [{"$ref": "#/$defs/language-score"}]})
    assert record["words"] == 12 and len(record["heads"]) == 4
    assert record["heads"][0]["measures"]["previous"]["count"] == 9


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["text.txt", "-o", "a.txt"], "written as .safetensors"),
        (["text.txt", "-o", "a.safetensors", "--width", "20", "--heads", "3"], "cannot be shared equally"),
        (["nothing.txt", "-o", "a.safetensors"], "nothing.txt"),
        (["text.txt", "-o", "a.safetensors", "--pretrained", "small.safetensors"], "a model of these sizes"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(args, told, folder, torch):
    ran = making("language", *args, cwd=folder)
    assert ran.code not in (0, 70) and told in ran.err and len(ran.err.splitlines()) == 1
    assert not (folder / "a.safetensors").exists()


def test_files_without_a_word_are_refused(folder, torch):
    (folder / "empty.txt").write_text("\n\n")
    with pytest.raises(InputError, match="no text in these files"):
        train_file(
            [str(folder / "empty.txt")], str(folder / "a.safetensors"), None, "word2vec", SMALL, silent
        )


def test_an_interrupt_writes_what_was_learned(folder, torch):
    long = folder / "long.txt"
    long.write_text("\n".join(LINES * 40) + "\n")
    args = [*COMMAND, "language", str(long), "-o", str(folder / "cut.safetensors"), *OPTIONS]
    with subprocess.Popen(
        args, stderr=subprocess.PIPE, text=True, env=surroundings() | {"PYTHONPATH": ROOT}
    ) as running:
        assert running.stderr is not None
        for line in running.stderr:
            if "learning" in line:
                break
        time.sleep(1)
        running.send_signal(signal.SIGINT)
        rest = running.stderr.read()
    assert running.returncode == 130 and "interrupted; wrote" in rest
    assert 0 < read_model(str(folder / "cut.safetensors")).facts["words"] < 40 * len(LINES) * 7


def test_a_file_that_scores_other_words_than_the_vectors_have_is_refused(trained):
    stack = read_model(trained.file)
    assert stack.words is not None
    with pytest.raises(InputError, match="there are 10 vectors"):
        stack.words.scores(np.zeros((1, 16)), matrix_of(bundled())[:10])


@pytest.mark.parametrize(
    "wrong", [np.zeros((2, 3)), np.zeros(6, np.uint8), np.zeros((3, 6), np.uint8)], ids=str
)
def test_bits_of_words_capitals_of_another_shape_are_refused(wrong, trained, tmp_path):
    arrays, about = read_safetensors(trained.file)
    path = tmp_path / "wrong.safetensors"
    with path.open("wb") as stream:
        write_safetensors(stream, {**arrays, CASES: wrong}, about)
    with pytest.raises(InputError, match=f"{CASES} has shape"):
        read_model(str(path))
