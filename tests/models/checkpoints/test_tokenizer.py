"""A checkpoint's tokenizer gives the ids that transformers gives, and unfit files are refused."""

import json
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from attn_cli.errors import AttnError, FileError, InputError, MissingExtra
from attn_cli.models.checkpoints.tokenizer import TextEncoder
from tests.models.checkpoints.by_hand import PIECES, byte_pairs, word_pieces

WORDS = (*PIECES, "##", "Cat", "é")
BYTES = ("<s>", "<pad>", "</s>", "<unk>", *"Ġabcdehostuw!", "Ġt", "he", "Ġthe")
MERGES = ("Ġ t", "h e", "Ġt he")


def test_without_the_library_the_line_that_installs_it_is_given(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(MissingExtra, match=r"pip install 'attn-cli\[models\]'") as found:
        TextEncoder(str(tmp_path), "bert")
    assert found.value.code == 69


def test_word_pieces_are_read_from_vocab_txt(tokenizers, tmp_path):
    word_pieces(tmp_path, WORDS)
    found = TextEncoder(str(tmp_path), "bert").encode("The CATS walking")
    assert found.tokens == ("[CLS]", "the", "cat", "##s", "walk", "##ing", "[SEP]")
    assert found.ids == (2, 5, 6, 7, 8, 9, 3)
    assert found.special == (True, *[False] * 5, True) and set(found.types) == {0}
    pair = TextEncoder(str(tmp_path), "bert").encode("cat", "home")
    assert pair.tokens == ("[CLS]", "cat", "[SEP]", "home", "[SEP]") and pair.types == (0, 0, 0, 1, 1)
    word_pieces(tmp_path, WORDS, lower=False)
    assert TextEncoder(str(tmp_path), "bert").encode("Cat").tokens == ("[CLS]", "Cat", "[SEP]")


def test_byte_pairs_are_read_from_vocab_json_and_merges_txt(tokenizers, tmp_path):
    byte_pairs(tmp_path, BYTES, MERGES)
    tokens = {
        family: TextEncoder(str(tmp_path), family).encode("that the").tokens
        for family in ("gpt2", "opt", "bart")
    }
    plain = ("t", "h", "a", "t", "Ġthe")
    assert tokens == {"gpt2": plain, "opt": ("</s>", *plain), "bart": ("<s>", *plain, "</s>")}


def test_a_tokenizer_json_beats_the_others_and_cuts_nothing(tokenizers, tmp_path):
    word_pieces(tmp_path, WORDS)
    made = tokenizers.BertWordPieceTokenizer({word: n for n, word in enumerate(WORDS)})
    made.enable_truncation(4)
    made.enable_padding(length=12)
    made.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "vocab.txt").write_text("nothing")
    found = TextEncoder(str(tmp_path), "bert").encode("the cat the cat the cat")
    assert found.tokens == ("[CLS]", *["the", "cat"] * 3, "[SEP]")


@pytest.mark.parametrize("family", ["bert", "gpt2", "roberta"])
def test_the_ids_are_those_of_transformers(family, tokenizers, transformers, tmp_path):
    files = tmp_path / "files"
    files.mkdir()
    if family == "bert":
        word_pieces(files, WORDS)
        made = transformers.BertTokenizer(vocab=str(files / "vocab.txt"))
    else:
        byte_pairs(files, BYTES, MERGES)
        kind = transformers.GPT2Tokenizer if family == "gpt2" else transformers.RobertaTokenizer
        merges = [tuple(line.split()) for line in MERGES]
        made = kind(vocab={word: n for n, word in enumerate(BYTES)}, merges=merges)
    made.save_pretrained(tmp_path / "saved")
    for text in ("the cat", "walking the cats home", "that house, the thé"):
        expected = made(text)["input_ids"]
        assert list(TextEncoder(str(files), family).encode(text).ids) == expected, text
        assert list(TextEncoder(str(tmp_path / "saved"), family).encode(text).ids) == expected, text


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("tokenizer.json", b""),
        ("tokenizer.json", b"{}"),
        ("tokenizer.json", b"[" * 1_000_000),
        ("tokenizer.json", b'{"model": {"type": "BPE", "vocab": {"a": -1}, "merges": []}}'),
        ("tokenizer.json", b'{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [["b", "c"]]}}'),
        ("tokenizer.json", b'{"model": {"type": "Unigram", "vocab": [], "unk_id": 7}}'),
        ("tokenizer.json", b"\xff\xfe"),
        ("vocab.txt", b"\xff\xfe"),
        ("vocab.txt", b""),
        ("vocab.json", b"[]"),
        ("vocab.json", b'{"a": -1}'),
        ("vocab.json", b'{"a": 1e400}'),
        ("vocab.json", b"[" * 1_000_000),
        ("merges.txt", b"a b c\n"),
        ("merges.txt", b"zz yy\n"),
        ("tokenizer_config.json", b"[" * 1_000_000),
    ],
)
def test_a_hostile_file_is_refused_soon(name, content, tokenizers, tmp_path):
    if name in ("vocab.json", "merges.txt"):
        byte_pairs(tmp_path, BYTES, MERGES)
    if name == "tokenizer_config.json":
        word_pieces(tmp_path, WORDS)
    (tmp_path / name).write_bytes(content)
    start = time.monotonic()
    with pytest.raises(AttnError) as found:
        TextEncoder(str(tmp_path), "roberta").encode("the cat")
    assert found.value.code in (65, 66) and len(str(found.value)) < 800
    assert time.monotonic() - start < 10


def words_alone(normalizer=None, pre_tokenizer=None, decoder=None):
    """Return a tokenizer.json that knows one word."""
    return json.dumps(
        {
            "version": "1.0", "added_tokens": [], "normalizer": normalizer, "pre_tokenizer": pre_tokenizer,
            "post_processor": None, "decoder": decoder, "truncation": None, "padding": None,
            "model": {"type": "WordLevel", "vocab": {"u": 0}, "unk_token": "u"},
        }
    )  # fmt: skip


def test_an_expression_that_never_ends_is_refused_in_one_line_and_no_panic_is_shown(
    tokenizers, tmp_path, capfd
):
    slow = {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}
    (tmp_path / "tokenizer.json").write_text(words_alone(pre_tokenizer=slow))
    start = time.monotonic()
    with pytest.raises(InputError, match="cannot encode the text") as found:
        TextEncoder(str(tmp_path), "bert").encode("a" * 200 + "b")
    assert "\n" not in str(found.value) and time.monotonic() - start < 30
    assert capfd.readouterr().err == ""
    os.write(2, b"standard error is as before")
    assert capfd.readouterr().err == "standard error is as before"


def test_a_normalizer_that_makes_texts_ever_longer_is_refused(tokenizers, tmp_path):
    longer = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 32}
    for part in ("normalizer", "decoder"):
        steps = {"type": "Sequence", f"{part}s": [longer] * 5}
        (tmp_path / "tokenizer.json").write_text(words_alone(**{part: steps}))
        with pytest.raises(InputError, match="33,554,432 times as long"):
            TextEncoder(str(tmp_path), "bert")
    usual = [{"type": "Prepend", "prepend": "▁"}, longer | {"content": "▁"}]
    (tmp_path / "tokenizer.json").write_text(words_alone({"type": "Sequence", "normalizers": usual}))
    assert TextEncoder(str(tmp_path), "bert").encode("a").ids == (0,)


def test_a_giant_file_and_a_circle_of_links_are_refused(tokenizers, tmp_path):
    with (tmp_path / "tokenizer.json").open("wb") as file:
        file.truncate(1 << 30)
    with pytest.raises(FileError, match="above the limit"):
        TextEncoder(str(tmp_path), "bert")
    (tmp_path / "tokenizer.json").unlink()
    word_pieces(tmp_path, WORDS)
    (tmp_path / "vocab.txt").unlink()
    (tmp_path / "vocab.txt").symlink_to("vocab.txt")
    with pytest.raises(FileError, match="no tokenizer"):
        TextEncoder(str(tmp_path), "bert")


def test_a_vocabulary_that_is_larger_than_any_is_refused_at_once(tokenizers, tmp_path):
    names = {"vocab.txt": b"\n", "vocab.json": b",", "merges.txt": b"\n"}
    for name, between in names.items():
        folder = tmp_path / name
        folder.mkdir()
        for other in names:
            (folder / other).write_bytes(b"{}")
        if name != "vocab.txt":
            (folder / "vocab.txt").unlink()
        (folder / name).write_bytes(b"a" + between * 1_100_000)
        start = time.monotonic()
        with pytest.raises(InputError, match=rf"{name} has more than 1,048,576 words"):
            TextEncoder(str(folder), "gpt2")
        with (folder / name).open("wb") as file:
            file.truncate(24_000_000)
        with pytest.raises(FileError, match=r"24,000,000 bytes is above the limit"):
            TextEncoder(str(folder), "gpt2")
        assert time.monotonic() - start < 5


def test_threads_that_encode_at_the_same_time_leave_standard_error_as_it_was(tokenizers, tmp_path):
    byte_pairs(tmp_path, BYTES, MERGES)
    encoder, before = TextEncoder(str(tmp_path), "gpt2"), os.fstat(2).st_ino

    def ask(_):
        for _ in range(1000):
            encoder.encode("the")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(ask, range(8)))
    assert os.fstat(2).st_ino == before


def test_a_text_that_cannot_be_encoded_is_refused(tokenizers, tmp_path):
    word_pieces(tmp_path, WORDS)
    with pytest.raises(InputError, match="cannot encode the text"):
        TextEncoder(str(tmp_path), "bert").encode("a\ud800b")
    byte_pairs(tmp_path, BYTES, MERGES)
    (tmp_path / "vocab.txt").unlink()
    with pytest.raises(InputError, match="no tokens"):
        TextEncoder(str(tmp_path), "gpt2").encode("")


def test_sentencepiece_is_refused_with_a_line_that_converts_it(tokenizers, tmp_path):
    (tmp_path / "tokenizer.model").write_bytes(b"\x0a\x0e")
    with pytest.raises(FileError, match=r"tokenizer\.model") as found:
        TextEncoder(str(tmp_path), "llama")
    assert "save_pretrained('.')" in found.value.hint
    (tmp_path / "tokenizer.model").rename(tmp_path / "source.spm")
    with pytest.raises(FileError, match="token ids"):
        TextEncoder(str(tmp_path), "marian")
    (tmp_path / "source.spm").unlink()
    with pytest.raises(FileError, match=r"no tokenizer\.json"):
        TextEncoder(str(tmp_path), "marian")


def test_a_token_as_text_has_a_space_in_front_where_it_starts_a_word(tokenizers, tmp_path):
    byte_pairs(tmp_path, BYTES, MERGES)
    found = TextEncoder(str(tmp_path), "gpt2")
    assert [found.text(BYTES.index(token)) for token in ("Ġthe", "he", "<s>")] == [" the", "he", "<s>"]
    assert found.text(999) == "<999>" and found.mask() == (None, None)
    (tmp_path / "bert").mkdir()
    word_pieces(tmp_path / "bert", WORDS)
    found = TextEncoder(str(tmp_path / "bert"), "bert")
    assert [found.text(n) for n in (5, 7, 2)] == ["the", "##s", "[CLS]"]
    assert found.mask() == ("[MASK]", 4)
    pieces = tokenizers.Tokenizer(
        tokenizers.models.Unigram([("<unk>", 0.0), ("▁the", -1.0), ("s", -2.0), ("▁", -3.0)], 0)
    )
    pieces.decoder = tokenizers.decoders.Metaspace()
    (tmp_path / "t5").mkdir()
    pieces.save(str(tmp_path / "t5" / "tokenizer.json"))
    found = TextEncoder(str(tmp_path / "t5"), "t5")
    assert [found.text(n) for n in (1, 2, 3)] == [" the", "s", "▁"]


def test_the_mask_of_roberta_is_one_token_and_takes_its_space_along(tokenizers, tmp_path):
    names = [*BYTES, "<mask>"]
    byte_pairs(tmp_path, names, MERGES)
    found = TextEncoder(str(tmp_path), "roberta")
    name, id_ = found.mask()
    assert name == "<mask>" and id_ == len(BYTES)
    expected = [0, names.index("he"), id_, names.index("Ġthe"), 2]
    assert list(found.encode("he <mask> the").ids) == expected
