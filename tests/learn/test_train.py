"""Training word vectors: on little texts, from every kind of file, and never half a result."""

import gzip
import json
import lzma
import os
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from attn_cli.errors import CreateError, FileError, InputError, UsageError
from attn_cli.settings.training import VectorTraining as TrainSettings
from attn_cli.vectors.lookup import nearest, open_table
from attn_cli.vectors.train import Corpus, finish, fit, train_file
from tests.learn.test_learn import interrupted_at
from tests.shell import COMMAND, here, record, refused
from tests.thorough import takes_long


@pytest.fixture(scope="module", autouse=True)
def gensim():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # whatever others' packages warn of is not ours to judge
        pytest.importorskip("gensim", reason="gensim is not installed: pip install gensim")


SMALL = TrainSettings(dim=8, window=2, negative=2, epochs=2, sample=0.0, min_count=1, seed=3, length=2.5)
CLOSE = {"rtol": 1e-3, "atol": 1e-4}  # a unit of float16, in which vectors are stored
# Each animal and each tool keeps its own company; "The" comes first in all.
LINES = [
    f"The {animal} {verb} in the {place}, doesn't it?"
    for animal in ("cat", "dog", "fox", "hen")
    for verb in ("sleeps", "eats", "runs")
    for place in ("house", "field", "wood")
] + [f"The {tool} lies on the bench ." for tool in ("hammer", "saw", "drill")]
TEXT = "\n".join(LINES * 3) + "\n"


def trained(tmp_path, name, data, settings=SMALL, output="out.safetensors"):
    (tmp_path / name).write_bytes(data if isinstance(data, bytes) else data.encode())
    train_file([str(tmp_path / name)], str(tmp_path / output), settings, lambda stage: None)
    return tmp_path / output


def test_the_same_text_and_seed_give_the_same_bytes_packed_or_plain_whatever_the_name(tmp_path):
    first = trained(tmp_path, "text.txt", TEXT, output="a.safetensors").read_bytes()
    assert trained(tmp_path, "text.txt", TEXT).read_bytes() == first
    assert trained(tmp_path, "text.txt", TEXT, replace(SMALL, seed=4)).read_bytes() != first
    plain = open_table(str(tmp_path / "a.safetensors"))
    for name, pack in (("text.gz", gzip.compress), ("text.xz", lzma.compress), ("text", gzip.compress)):
        packed = open_table(str(trained(tmp_path, name, pack(TEXT.encode()))))
        assert packed.words() == plain.words()
        np.testing.assert_allclose(packed.matrix[:], plain.matrix[:], **CLOSE)
    lines = TEXT.splitlines(keepends=True)  # and so do its parts, one after the other
    (tmp_path / "one.txt").write_text("".join(lines[:40]))
    (tmp_path / "two.txt.gz").write_bytes(gzip.compress("".join(lines[40:]).encode()))
    parts, whole = [tmp_path / name for name in ("one.txt", "two.txt.gz")], [tmp_path / "text.txt"]
    (words, vectors), (same_words, same) = (fit(paths, SMALL, lambda stage: None) for paths in (parts, whole))
    assert words == same_words
    np.testing.assert_allclose(vectors, same, **CLOSE)


def test_a_trained_table_is_lower_cased_most_frequent_first_of_one_length_and_limited(tmp_path):
    found = open_table(str(trained(tmp_path, "text.txt", TEXT)))
    words = found.words()
    counts = {"the": 3 * (36 * 2 + 3 * 2), "in": 108, "n't": 108, "cat": 27, "bench": 9, "hammer": 3}
    assert words[0] == "the" and len(words) == len(set(words))
    assert {"n't", "does", ",", "?"} <= set(words), "cut as `words` does, with punctuation kept"
    assert not {"The", "doesn't"} & set(words)
    order = [words.index(word) for word, count in counts.items() if count != 108]
    assert order == sorted(order)
    assert found.matrix.dtype == np.float16 and found.length == SMALL.length
    np.testing.assert_allclose(np.linalg.norm(found.matrix[:].astype(float), axis=1), SMALL.length, rtol=2e-3)
    assert json.loads(found.about["settings"]).items() >= {"seed": 3, "dim": 8}.items()
    assert found.about["texts"] == "text.txt"
    rare = open_table(str(trained(tmp_path, "text.txt", TEXT, replace(SMALL, min_count=9)))).words()
    assert "bench" in rare and "hammer" not in rare
    few = open_table(str(trained(tmp_path, "text.txt", TEXT, replace(SMALL, words=10)))).words()
    assert len(few) <= 10 and few[0] == "the"


def test_words_of_one_company_are_near_each_other_and_lines_are_learned_from_to_their_ends(tmp_path):
    settings = TrainSettings(dim=16, window=3, negative=5, epochs=60, sample=0, min_count=1)
    found = open_table(str(trained(tmp_path, "text.txt", TEXT, settings)))
    cat = found.find(["cat"])["cat"]
    cosines = dict(nearest(found, cat, 100))
    near, far = ([cosines[w] for w in words.split()] for words in ("dog fox hen", "hammer saw drill"))
    assert min(near) > max(far)
    words = [f"word{i % 97}" for i in range(11_000)]
    words[10_400:10_410] = ["zebra", "stripe"] * 5
    (tmp_path / "line.txt").write_text(" ".join(words) + "\n")
    assert [*map(len, Corpus([tmp_path / "line.txt"], lambda stage: None, 1))] == [10_000, 1000]

    def zebra(epochs):
        settings = replace(SMALL, epochs=epochs)
        names, vectors = fit([tmp_path / "line.txt"], settings, lambda stage: None)
        return vectors[names.index("zebra")]

    assert not np.array_equal(zebra(1), zebra(3)), "what is learned from moves with each pass"


def test_finished_vectors_lack_what_all_words_share_and_progress_never_goes_back(tmp_path):
    draw = np.random.default_rng(0)
    shared = draw.standard_normal(6)
    vectors = draw.standard_normal((200, 6)) + 5 * draw.standard_normal((200, 1)) * shared + 3
    done = finish(vectors.astype(np.float32), remove=1, length=2.0).astype(float)
    centred = vectors - vectors.mean(axis=0)
    strongest = np.linalg.svd(centred)[2][:1]
    wanted = centred - centred @ strongest.T @ strongest
    wanted *= 2 / np.linalg.norm(wanted, axis=1, keepdims=True)
    np.testing.assert_allclose(done, wanted, rtol=0, atol=5e-3)
    assert np.abs(done @ shared / np.linalg.norm(shared)).max() < 0.2
    untouched = finish(np.array([[3.0, 0.0], [-3.0, 0.0], [0.0, 4.0], [0.0, -4.0]], np.float32), 0, 1.0)
    assert untouched.tolist() == [[1, 0], [-1, 0], [0, 1], [0, -1]]
    (tmp_path / "text.txt").write_text(TEXT)
    (tmp_path / "short.txt").write_text(LINES[0])
    seen = []
    fit([tmp_path / name for name in ("text.txt", "short.txt", "short.txt")], SMALL, seen.append)
    phases = ["vocabulary", "epoch 1 of 2", "epoch 2 of 2"]
    assert [*dict.fromkeys(stage.phase for stage in seen)] == phases
    for phase in phases:
        done = [stage.done for stage in seen if stage.phase == phase]
        assert done == sorted(done) and done[0] >= 0 and done[-1] == 1


def test_a_text_that_cannot_be_learned_from_is_refused_and_nothing_is_written(tmp_path):
    packed, smaller = gzip.compress(TEXT.encode()), lzma.compress(TEXT.encode())
    wrong = {"blank.txt": b"\n \n\n", "short.gz": packed[: len(packed) // 2], "short.xz": smaller[:-40]}
    wrong |= {"damaged.gz": packed[:20] + bytes(10) + packed[30:], "damaged.xz": smaller[:60] + bytes(40)}
    for name, data in wrong.items():
        with pytest.raises(InputError):
            trained(tmp_path, name, data)
        assert [path.name for path in tmp_path.iterdir()] == [name]
        (tmp_path / name).unlink()


def test_what_could_only_fail_after_hours_is_refused_at_once_with_what_to_try(tmp_path):
    with pytest.raises(InputError) as error:
        trained(tmp_path, "text.txt", "a b c\n", TrainSettings(min_count=5))
    assert "--min-count" in error.value.hint
    (tmp_path / "text.txt").write_text(TEXT)
    seen, text, output = [], *(str(tmp_path / name) for name in ("text.txt", "out.safetensors"))
    with pytest.raises(FileError):
        train_file([str(tmp_path / "missing.txt")], output, SMALL, seen.append)
    with pytest.raises(CreateError):
        train_file([text], str(tmp_path / "nowhere" / "out.safetensors"), SMALL, seen.append)
    wrong = [("dim", 0), ("epochs", 0), ("seed", -1), ("remove", 8), ("length", 0.0), ("length", 1e4)]
    for name, value in (*wrong, ("sample", 2.0)):
        with pytest.raises(UsageError):
            train_file([text], output, replace(SMALL, **{name: value}), seen.append)
    assert seen == [] and not (tmp_path / "out.safetensors").exists()


def test_the_command_trains_and_says_what_it_wrote(tmp_path, at):
    (tmp_path / "text.txt").write_text(TEXT)
    options = "--dim 8 --window 2 --negative 2 --epochs 2 --sample 0 --min-count 1 --seed 3 --length 2.5"
    ran = here("vectors", "train", "text.txt", "-o", "mine.SafeTensors", *options.split())
    assert (ran.code, ran.out) == (0, ""), ran.err
    assert "vocabulary" in ran.err and "epoch 2 of 2" in ran.err and "mine.SafeTensors" in ran.err
    same = trained(tmp_path, "text.txt", TEXT)
    assert Path("mine.SafeTensors").read_bytes() == same.read_bytes()
    assert record("self", "the cat sleeps", "-e", "mine.SafeTensors")["unknown"] == []


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")
@pytest.mark.parametrize("phase", ["vocabulary", pytest.param("epoch 2", marks=takes_long)])
def test_an_interrupted_training_is_130_and_leaves_no_file(phase, tmp_path):
    (tmp_path / "text.txt").write_text(TEXT * 200)
    (tmp_path / "old.safetensors").write_bytes(b"old")
    train = [*COMMAND, "vectors", "train", "text.txt", "-o", "old.safetensors", "--epochs", "100000"]
    assert interrupted_at(train, tmp_path, phase)[0] == 130
    assert sorted(path.name for path in tmp_path.iterdir()) == ["old.safetensors", "text.txt"]
    assert (tmp_path / "old.safetensors").read_bytes() == b"old"


def test_training_without_gensim_is_69_with_the_line_that_installs_it(at, without):
    (at / "text.txt").write_text(TEXT)
    without("gensim")
    assert "pip install gensim" in refused("vectors", "train", "text.txt", "-o", "out.safetensors", code=69)
    assert os.listdir() == ["text.txt"]
