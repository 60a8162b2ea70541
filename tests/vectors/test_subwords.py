"""Words guessed from the parts of their spelling: the bundled vectors, a table by hand, n-grams that are learned."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from attn_cli.errors import InputError, UsageError
from attn_cli.io.array_files import read_safetensors
from attn_cli.models.model_file import named
from attn_cli.settings.training import SubwordTraining
from attn_cli.vectors import NGrams, bundled, table_of
from attn_cli.vectors.detect import open_file
from attn_cli.vectors.lookup import embed, nearest
from attn_cli.vectors.names import export
from attn_cli.vectors.spelling import guess, ngrams
from attn_cli.vectors.train import subwords_file
from tests.io.test_array_files import made
from tests.shell import attn, record, refused, told
from tests.thorough import some

PARTS = ("cat", "dog", "fox", "hen", "owl", "pig", "rat", "sow", "tit", "yak")
SMALL = SubwordTraining(buckets=512, rank=4)


@pytest.fixture
def table():
    """A table whose vectors are the sums of those of their words' two halves."""
    draw = np.random.default_rng(0)
    parts = dict(zip(PARTS, draw.standard_normal((len(PARTS), 4)), strict=True))
    words = [a + b for a in PARTS for b in PARTS]
    matrix = np.array([parts[word[:3]] + parts[word[3:]] for word in words], np.float32)
    about = {"format": "text", "of": "halves"}
    return table_of("animals", [word.encode() for word in words], matrix, about, 0)


def learned(table, name="with.safetensors", settings=SMALL):
    pytest.importorskip("scipy", reason="SciPy is not installed")
    return subwords_file(table, name, settings, lambda stage: None)


KIN = {
    "forty-odd": {"seventy", "fifty", "thirty-three", "forty"},
    "emailed": {"mailed", "sent"},
    "skateboarder": {"skate", "skating", "skaters"},
    "Moonwalkers": {"walkers"},
}


def test_a_word_that_the_bundled_vectors_lack_is_near_words_of_its_kind():
    noted = json.loads(bundled().about["ngrams"])
    assert noted["held_back"] > 2900 and noted["cosine"] > 0.34
    for word in some(KIN):
        found = embed([word], bundled(), "subword", 0)
        assert found.unknown == (word,) and np.linalg.norm(found.X) == pytest.approx(4)
        assert KIN[word] & {word for word, _ in nearest(bundled(), found.X[0], 10)}


def test_a_guess_is_the_mean_and_the_n_grams_over_the_root_of_their_number(at):
    draw = np.random.default_rng(1)
    rows, directions = draw.integers(-9, 9, (16, 2)).astype(np.int8), draw.random((3, 5)).astype(np.float16)
    table = table_of("t", [b"cat"], np.ones((1, 5)), {}, 0, NGrams(rows, directions))
    used = [row for _, some in ngrams([b"dogs"], 2, 5, 16) for row in some]
    assert len(used) == 5 + 4 + 3 + 2  # <d do og gs s>, <do dog ogs gs>, <dog dogs ogs>, <dogs dogs>
    wanted = rows[used].sum(axis=0) / 14**0.5 @ directions[:2].astype(float) + directions[2]
    with pytest.raises(UsageError, match="needs n-grams"):
        guess(["dogs"], table_of("t", [b"cat"], np.ones((1, 5)), {}, 0))
    export(table, "t.safetensors")
    for read in (table, open_file("t.safetensors")):
        for found in guess(["Dogs", "dogs"], read).values():
            np.testing.assert_allclose(found, wanted, atol=1e-12)


def test_n_grams_are_learned_measured_and_read_back(at, table):
    made = learned(table)
    assert made.words == 100 and made.held_back == 7 and made.cosine > 0.75
    again = open_file("with.safetensors")
    assert again.fingerprint() == table.fingerprint()
    np.testing.assert_array_equal(again.matrix[:], table.matrix)
    learned(table, "same.safetensors")
    assert Path("same.safetensors").read_bytes() == Path("with.safetensors").read_bytes()
    seen, of_50 = [], replace(SMALL, words=50, seed=8)
    other = subwords_file(table, "few.safetensors", of_50, seen.append)
    of_each_number = [(phase, n / 4) for phase in ("words held back", "all words") for n in (1, 2, 3, 4)]
    assert [(stage.phase, stage.done) for stage in seen] == of_each_number
    few = learned(table, "few.safetensors", replace(of_50, seed=9))
    rarer = 50 - 50 // 4  # a tenth of which is held back
    assert (few.words, few.held_back) == (50, rarer // 10) and open_file("few.safetensors").n_words == 100
    of = {"rows": 512, "numbers": 4, "words": 50, "cosine": few.cosine, "held_back": 3}
    of["letters"] = "".join(sorted(set("".join(table.words()[:50]))))
    about = read_safetensors("few.safetensors")[1]
    assert json.loads(about.pop("ngrams")) == of and few.cosine != other.cosine
    assert about == {"format": "attn-vectors/1", "of": "halves"}
    export(again, "out.safetensors")  # keeps them
    ours, theirs = (guess(["owlish"], read)["owlish"] for read in (again, open_file("out.safetensors")))
    np.testing.assert_allclose(ours, theirs, rtol=1e-12)


@pytest.mark.parametrize("rank", [2, 4])
def test_n_grams_have_the_numbers_of_least_squares_with_a_penalty_on_their_size(at, table, rank):
    learned(table, settings=replace(SMALL, rank=rank))
    words, counts = table.words(), np.zeros((100, 512))
    for owner, row in ngrams([word.encode() for word in words], 2, 5, 512):
        np.add.at(counts, (owner, row), 1)
    counts /= np.sqrt(counts.sum(axis=1, keepdims=True))
    mean, scale = table.matrix.mean(axis=0), np.sqrt((table.matrix**2).mean())
    square = counts.T @ counts + SMALL.penalty * np.eye(512)  # of the vectors at size one
    numbers = np.linalg.solve(square, counts.T @ ((table.matrix - mean) / scale))
    guessed = counts @ numbers
    strongest = np.linalg.svd(guessed)[2][:rank]
    found = guess(words, open_file("with.safetensors"))
    wanted = guessed @ strongest.T @ strongest * scale + mean
    np.testing.assert_allclose([*found.values()], wanted, atol=0.02)


def holes(*numbers):
    return lambda directions: np.vstack([np.outer(numbers, np.ones(4)), directions[2:]]).astype("f4")


ROWS, DIRECTIONS = "ngrams", "ngrams.directions"
SPOILT = [
    *((ROWS, change, "damaged") for change in (None, np.float32, lambda M: M[:, :2], lambda M: M[:0])),
    (ROWS, lambda M: M[0], "damaged"),
    *((DIRECTIONS, change, "damaged") for change in (None, lambda M: M[:, :3])),
    *((DIRECTIONS, holes(*numbers), "n-grams") for numbers in ((np.nan, np.nan), (np.inf, -np.inf))),
]


@pytest.mark.parametrize(("name", "change", "said"), SPOILT)
def test_n_grams_that_do_not_fit_the_vectors_or_are_no_numbers_are_refused(at, table, name, change, said):
    learned(table)
    arrays, about = read_safetensors("with.safetensors")
    spoilt = arrays.pop(name)
    arrays |= {name: change(spoilt)} if change else {}
    Path("bad.safetensors").write_bytes(made(arrays, about))
    of = ("-e", "bad.safetensors", "-p", "identity", "--oov", "subword")
    assert said in refused("self", "catdog zzz", *of, code=65)
    known = attn("self", "catdog", "-e", "bad.safetensors", "-p", "identity")
    assert known.code == (65 if said == "damaged" else 0)


@pytest.mark.parametrize("scale", [1e-7, 1e6, 1e12])
def test_vectors_of_any_size_are_learned_from_alike(at, table, scale):
    def times(factor):
        return table_of("animals", table.block[1:-1].split(b"\n"), table.matrix * np.float64(factor), {}, 0)

    plain, scaled = learned(table), learned(times(scale), "scaled.safetensors")
    assert scaled.cosine == pytest.approx(plain.cosine, abs=1e-3)
    of = map(open_file, ("with.safetensors", "scaled.safetensors"))
    ours, theirs = (guess(["owlish"], vectors)["owlish"] for vectors in of)
    np.testing.assert_allclose(theirs / scale, ours, rtol=1e-3, atol=1e-3)
    with pytest.raises(InputError, match="too large"):
        learned(times(1e60), "not.safetensors")
    assert not Path("not.safetensors").exists()


def test_what_all_vectors_share_does_not_count_as_a_good_guess(at):
    draw = np.random.default_rng(2)
    words = {"".join(letters).encode() for letters in draw.choice(list("abcdefghij"), (600, 7))}
    made = learned(table_of("noise", sorted(words), draw.standard_normal((len(words), 20)) + 1.5, {}, 0))
    assert abs(made.cosine) < 0.15, "there is nothing to learn"


def test_a_word_in_capitals_is_learned_and_guessed_in_small_letters(at, table):
    words = [word.upper() for word in table.block[1:-1].split(b"\n")]
    cosine = learned(table_of("ANIMALS", words, table.matrix, {}, 0)).cosine
    assert cosine == pytest.approx(learned(table, "b.safetensors").cosine, abs=1e-3)
    wanted = guess(["owlish"], open_file("b.safetensors"))["owlish"]
    for vector in guess(["owlish", "OWLISH", "Owlish"], open_file("with.safetensors")).values():
        np.testing.assert_allclose(vector, wanted, atol=0.02)  # numbers of size one, stored in a byte


def test_a_guess_depends_on_the_word_alone_and_not_on_the_words_beside_it(at, table):
    learned(table)
    export(bundled(), "few.safetensors", 9)
    few = open_file("few.safetensors")
    np.testing.assert_array_equal(guess(["owlish"], few)["owlish"], guess(["owlish"], bundled())["owlish"])
    for vectors in (open_file("with.safetensors"), bundled()):
        words = [f"{part}{end}" for part in ("owl", "cat", "xo") for end in ("ish", "ly", "let", "ness", "s")]
        together = guess(words, vectors)
        for word in words:
            np.testing.assert_array_equal(guess([word], vectors)[word], together[word])


@pytest.mark.parametrize("oov", ["subword", "nearest"])
def test_a_model_adds_to_a_stand_in_what_it_adds_to_each_vector(oov):
    start = named("roles-deep").spelling
    assert start.always
    plain, started = (embed(["recieve", "cat"], bundled(), oov, 0, one).X for one in (None, start))
    added = {"subword": "recieve", "nearest": "receive"}[oov]  # nearest: as if that word stood there
    np.testing.assert_allclose(started - plain, [start.of(added), start.of("cat")], atol=1e-6)
    only_unknown = start._replace(always=False)
    alone = embed(["recieve"], bundled(), oov, 0, only_unknown).X[0]
    np.testing.assert_allclose(alone, plain[0], rtol=1e-12)


def test_the_screen_and_the_json_say_that_it_is_a_guess_and_of_what_there_is_none(at):
    of = ("-p", "identity", "--oov", "subword")
    found = record("self", "cats 😀 привет forty-odd", *of, "--steps")
    assert found["embedding"]["oov"] == "subword" and found["unknown"] == ["😀", "привет", "forty-odd"]
    assert [any(row) for row in found["x_query"]] == [True, False, False, True]
    guessed, zeros = "guessed from the parts of its spelling", "zeros stand in"
    deep = ("-p", "roles-deep", "--layer", "0", "--oov", "subword")
    for word, options in (("forty-odd", of), ("forty-odd", deep), ("😀", of)):
        screen = " ".join(told("explain", f"cats {word}", *options, "--query", word).split("Note")[0].split())
        assert (guessed in screen) == (word != "😀") == (zeros not in screen)


def test_the_command_tells_how_near_guesses_came_and_bad_input_is_one_line_and_writes_nothing(at, table):
    command = ("vectors", "subwords", "plain.safetensors", "-o")
    export(table, "plain.safetensors")
    before = Path("plain.safetensors").read_bytes()
    for arguments, code, said in (
        ("with.txt", 2, ".safetensors"),
        ("with.safetensors --buckets 0", 2, "--buckets"),
        ("no/with.safetensors", 73, "no such folder"),
        ("plain.safetensors", 2, "the file that is read"),
    ):
        assert said in refused(*command, *arguments.split(), code=code)
        assert [(path.name, path.read_bytes()) for path in at.iterdir()] == [("plain.safetensors", before)]
    pytest.importorskip("scipy", reason="SciPy is not installed")
    done = attn(*command, "with.safetensors", "--rank", "4")
    assert done.code == 0 and "7 words held back" in done.err
    assert "guessed" in told("self", "catdogs owl", "-e", "with.safetensors", "--oov", "subword")
