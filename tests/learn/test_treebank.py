"""Treebanks and passages: read in every wrapping, and refused with file and line where they are malformed."""

import json
import lzma
import random
from functools import partial
from gzip import compress

import pytest

from attn_cli.errors import FileError, InputError
from attn_cli.learn.treebank import MOST_WORDS, Antecedents, Sentence, read_passages, read_treebank
from tests.fuzz.mutate import mutated
from tests.parsed import conllu, parsed

CAT = "The/DET/2/det cat/NOUN/3/nsubj sleeps/VERB/0/root ./PUNCT/3/punct"
DOG = "Dogs/NOUN/2/nsubj bark/VERB/0/root"
TEXT = conllu(CAT, DOG)
ROWS = TEXT.splitlines(keepends=True)
SENTENCES = [parsed(CAT), parsed(DOG)]
packed = partial(compress, mtime=0)  # the same tests for each worker


@pytest.fixture
def read(tmp_path):
    def write_and_read(data, name="bank.conllu"):
        (tmp_path / name).write_bytes(data if isinstance(data, bytes) else data.encode())
        return read_treebank(str(tmp_path / name))

    return write_and_read


def columns(number, word="Dogs", governor="0"):
    return "\t".join([number, word, "_", "NOUN", "_", "_", governor, "root", "_", "_"]) + "\n"


def test_a_sentence_is_its_words_and_governors_whatever_stands_between_tabs(read):
    rows = ["0.1 so _", "1 I 4", "2-3 can't _", "2 ca 4", "3 n't 4", "4 swim 0", "4.1 swum _", "4.12 swam _"]
    (found,) = read("".join(columns(*row.split()) for row in rows))
    assert (found.words, found.governors) == (("I", "ca", "n't", "swim"), (3, 3, 3, -1))
    strange = ["東京", "e\u0301", "a b", "#", "-", "👍🏽", "\u00a0x", "\x1b[31m"]
    text = "".join(columns(str(i), word) for i, word in enumerate(strange, 1)) + "\n"
    assert read(text)[0].words == tuple(strange)
    words = "".join(columns(str(i)) for i in range(1, MOST_WORDS + 1))
    assert len(read(words)[0].words) == MOST_WORDS


WRAPPED = {
    "plain.conllu": TEXT, "plain-in-spite-of-its-name.xz": TEXT, "bank.conllu.gz": packed(TEXT.encode()),
    "bank.conllu.xz": lzma.compress(TEXT.encode()), "packed-in-spite-of-its-name": packed(TEXT.encode()),
    "crlf.conllu": TEXT.replace("\n", "\r\n"), "byte-order-mark.conllu": "\ufeff" + TEXT,
    "byte-order-mark-and-comment.conllu": "\ufeff# sent_id = 1\n" + TEXT,
    "no-final-blank-line.conllu": TEXT.rstrip("\n") + "\n", "no-final-newline.conllu": TEXT.rstrip("\n"),
    "many-blank-lines.conllu": "\n\n" + TEXT.replace("\n\n", "\n\n \n\n"),
    "comments.conllu": "# newdoc\n# text = a\tb\n" + TEXT.replace("\n2\t", "\n# in between\n2\t"),
}  # fmt: skip


@pytest.mark.parametrize(("name", "text"), WRAPPED.items(), ids=repr)
def test_the_same_sentences_come_out_of_every_wrapping(name, text, read):
    assert read(text, name) == SENTENCES


# a name: the text, and the line that is to be named (None where the whole file is to blame)
WRONG = ("", "_", "-1", "2", "3", "root", "1.0", "١", "9" * 5000)  # governors of the second of two words
MALFORMED = {
    "nine columns": ("".join([ROWS[0], ROWS[1].replace("\t_\n", "\n"), *ROWS[2:]]), 2),
    "eleven columns": ("".join([*ROWS[:3], ROWS[3].replace("\n", "\tx\n"), "\n"]), 4),
    "numbers from 2": ("# c\n" + columns("2"), 2),
    "an empty word": (columns("1") + columns("2", word=""), 2),
    "too many words": ("".join(columns(str(i)) for i in range(1, MOST_WORDS + 2)), MOST_WORDS + 1),
    "comments alone": ("# text\n\n \n# more\n", None),
    "empty rows alone": (columns("1.1") + "\n", None),
    **{
        f"number {n!r}": (columns("1") + columns(n), 2)
        for n in ("3", "1", "a-b", "1.x", "\ufeff2", "", "1-", ".")
    },
    **{f"governor {n[:9]!r}": (columns("1") + columns("2", governor=n) + "\n", 2) for n in WRONG},
}


@pytest.mark.parametrize("kind", MALFORMED)
def test_a_malformed_treebank_is_refused_by_file_and_line(kind, read):
    text, line = MALFORMED[kind]
    with pytest.raises(InputError) as refused:
        read(text, "bad.conllu")
    assert "bad.conllu" in refused.value.message and len(refused.value.message) < 300
    if line is not None:
        assert f"line {line:,}" in refused.value.message


LONG = packed(TEXT.encode() * 50)
NONSENSE = {
    "short.gz": LONG[:60], "damaged.gz": LONG[:20] + bytes(9) + LONG[29:],
    "short.xz": lzma.compress(TEXT.encode() * 50)[:-30], "utf-16.conllu": TEXT.encode("utf-16"),
    "a-line-of-5-MB": b"x" * (5 << 20), "a-word-of-5-MB": columns("1", "x" * (5 << 20)).encode(),
    "a-bomb-of-zeros.gz": packed(bytes(1 << 20)) * 64, "noise": random.Random(0).randbytes(1 << 18),
}  # fmt: skip


@pytest.mark.parametrize("name", NONSENSE)
def test_nonsense_is_refused_at_once(name, read):
    with pytest.raises(InputError):
        read(NONSENSE[name], name)


def test_no_damage_does_worse_than_refuse_and_what_is_no_regular_file_is_not_read(read, tmp_path):
    for seed in range(200):
        try:
            found = read(mutated(TEXT.encode(), random.Random(seed)))
        except InputError:
            continue
        for one in (*found, *(sentence.without_punctuation() for sentence in found)):
            n = len(one.words)
            assert len(one.governors) == len(one.relations) == len(one.tags) == n
            assert all(-1 <= above < n and above != i for i, above in enumerate(one.governors))
    for path in (tmp_path / "missing.conllu", tmp_path, "/dev/zero"):
        with pytest.raises(FileError):
            read_treebank(str(path))


YES = (
    "“/PUNCT/4/punct Yes/INTJ/4/discourse ,/PUNCT/2/punct go/VERB/0/root ,/PUNCT/6/punct Ann/PROPN/4/vocative"
)
BARE = {  # a sentence, and what it is without punctuation
    f"{YES} !/PUNCT/4/punct": "Yes/INTJ/2/discourse go/VERB/0/root Ann/PROPN/2/vocative",  # counted anew
    # what a mark governs goes to the mark's governor, and becomes a root where the mark is one
    "a/X/2/dep -/PUNCT/3/punct -/PUNCT/4/punct b/VERB/0/root c/X/2/dep": "a/X/2/dep b/VERB/0/root c/X/2/dep",
    "?/PUNCT/0/root why/ADV/1/dep not/PART/2/dep": "why/ADV/0/dep not/PART/1/dep",
    "./PUNCT/2/punct ./PUNCT/1/punct x/X/1/dep": "x/X/0/dep",  # a ring of marks
    DOG: DOG,
}


@pytest.mark.parametrize("text", BARE)
def test_without_punctuation_a_sentence_is_what_its_words_are(text):
    assert parsed(text).without_punctuation() == parsed(BARE[text])
    assert parsed("./PUNCT/0/root ./PUNCT/1/punct").without_punctuation() == Sentence((), (), (), ())


@pytest.mark.parametrize("kind", ["words", "blank lines"])
def test_a_small_file_that_unpacks_to_a_huge_one_is_refused(kind, read, monkeypatch):
    monkeypatch.setattr("attn_cli.learn.treebank.MAX_TREEBANK_BYTES", 1 << 20)
    many = "\n" * (2 << 20) if kind == "blank lines" else (columns("1", "a") + "\n") * 60_000
    with pytest.raises(InputError, match="unpacks to more than 1 MB"):
        read(packed(many.encode()), "bomb.gz")


TOKENS = ["Anna", ",", "who", "saw", "Bo", ",", "knew", "she", "liked", "him", "."]
SHE = {"tokens": TOKENS, "pronoun": 7, "antecedents": [[0, 1]], "candidates": [[0, 1], [4, 5]], "source": "a"}
HIM = {"tokens": TOKENS, "pronoun": 9, "antecedents": [[4, 5]]}


def passages(tmp_path, *records, name="some.jsonl"):
    data = "".join((one if isinstance(one, str) else json.dumps(one)) + "\n" for one in records).encode()
    (tmp_path / name).write_bytes(lzma.compress(data) if name.endswith(".xz") else data)
    return read_passages(str(tmp_path / name))


@pytest.mark.parametrize("name", ["some.jsonl", "some.jsonl.xz"])
def test_records_of_the_same_tokens_are_one_passage_and_no_pronoun_stands_for_itself(tmp_path, name):
    (found,) = passages(tmp_path, SHE, "", HIM, name=name)
    assert found.words == tuple(TOKENS) and not found.is_parsed
    assert found.antecedents == (Antecedents(7, (0,), ((0, 1), (4, 5))), Antecedents(9, (4,)))
    assert found.tags == ("X", "PUNCT", "X", "X", "PROPN", "PUNCT", "X", "X", "X", "X", "PUNCT")
    tokens = ["Then", "I", "saw", "Bo", ".", "I", ",", "too"]  # where "I" is no name
    (found,) = passages(tmp_path, SHE | {"tokens": tokens})
    assert found.tags == ("X", "X", "X", "PROPN", "PUNCT", "X", "PUNCT", "X")
    last = SHE | {"pronoun": 10, "antecedents": [[0, 1], [6, 11]]}
    (found,) = passages(tmp_path, last, HIM | {"pronoun": 0})
    assert [one.words for one in found.antecedents] == [(0, 6, 7, 8, 9), (4,)]


def test_without_punctuation_pronouns_have_new_places_and_without_a_passage_a_file_is_refused(tmp_path):
    bare = passages(tmp_path, SHE, HIM)[0].without_punctuation()
    assert bare.words == ("Anna", "who", "saw", "Bo", "knew", "she", "liked", "him")
    assert bare.antecedents == (Antecedents(5, (0,), ((0, 1), (3, 4))), Antecedents(7, (3,)))
    with pytest.raises(InputError, match="no passage"):
        passages(tmp_path, "")


def test_a_malformed_record_is_refused_with_its_line(tmp_path):
    for record, said in (
        *(("{", "not JSON"), ("[1]", "JSON object"), (SHE | {"tokens": "Anna"}, "tokens")),
        *((SHE | {"tokens": []}, "0 tokens"), (SHE | {"tokens": [*TOKENS, ""]}, "tokens")),
        *((SHE | {"pronoun": place}, "pronoun must be .* 0 to 10") for place in (11, -1, True)),
        *((SHE | {"antecedents": spans}, "antecedents") for spans in (3, [[1, 1]], [[0, 12]], [[-1, 1]])),
        *((SHE | {"candidates": [span]}, "candidates") for span in ([0], [0, 1, 2], [0, True], ["a", "b"])),
        (SHE | {"antecedents": []}, "antecedents must hold a span"),
    ):
        with pytest.raises(InputError, match=f"line 2: .*{said}"):
            passages(tmp_path, HIM, record)
