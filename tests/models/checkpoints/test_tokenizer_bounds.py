"""What a tokenizer.json asks for is bounded before the library reads it; sound ones are read in this process."""

import base64
import json
import struct
import time

import pytest

from attn_cli.errors import InputError
from attn_cli.models.checkpoints import tokenizer
from attn_cli.models.checkpoints.tokenizer import TextEncoder
from attn_cli.models.checkpoints.tokenizer_bounds import examine
from attn_cli.models.checkpoints.tokenizer_process import TokenizerProxy
from tests.models.checkpoints.by_hand import GPT2, gpt2, saved
from tests.models.checkpoints.tokenizer_files import (
    LLAMA_3,
    SPACE,
    byte_level,
    charsmap,
    metaspace,
    normalizers,
    pre_tokenizers,
    precompiled,
    replace,
    split,
    template,
    tokenizer_json,
    unigram,
)
from tests.shell import shell

TEXT = "a b  ab, ﬁne Éa 1234 don't\n\n d"
LIGATURE = charsmap({"ﬁ": "fi", "É": "E", "\t": " "})
BERT = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None,
        "lowercase": True}  # fmt: skip
SPACES = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "▁"}
PUNCTUATION = {"type": "Punctuation", "behavior": "Contiguous"}
DIGITS = {"type": "Digits", "individual_digits": True}
O200K = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + SPACE
)
DEEPSEEK = (
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|"
    " ?[\\p{P}\\p{S}]+[\r\n]*|" + SPACE
)
CLIP = r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
# The parts of public tokenizers, as their tokenizer.json has them
PLAIN = {
    "BERT": {"normalizer": BERT, "pre_tokenizer": {"type": "BertPreTokenizer"}, "decoder": {"type": "WordPiece",
             "prefix": "##", "cleanup": True}, "post_processor": template()},
    "GPT-2": {"pre_tokenizer": byte_level(regex=True), "post_processor": byte_level(), "decoder": byte_level()},
    "GPT-2, of no type": {"pre_tokenizer": byte_level(regex=True), "model": {
        "dropout": None, "unk_token": None, "continuing_subword_prefix": "", "end_of_word_suffix": "",
        "fuse_unk": False, "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}},
    "Llama 2": {"normalizer": normalizers({"type": "Prepend", "prepend": "▁"}, replace(" ", "▁")),
                "post_processor": template(), "decoder": {"type": "Sequence", "decoders": [
                    replace("▁", " "), {"type": "ByteFallback"}, {"type": "Fuse"},
                    {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}},
    "Llama 3": {"pre_tokenizer": pre_tokenizers(split(LLAMA_3), byte_level())},
    "Qwen 2": {"normalizer": {"type": "NFC"},
               "pre_tokenizer": pre_tokenizers(split(LLAMA_3.replace("{1,3}", "")), byte_level())},
    "GPT-OSS": {"pre_tokenizer": pre_tokenizers(split(O200K), byte_level())},
    "DeepSeek": {"normalizer": normalizers(), "pre_tokenizer": pre_tokenizers(
        split(r"\p{N}{1,3}"), split("[一-龥぀-ゟ゠-ヿ]+"), split(DEEPSEEK), byte_level())},
    "Gemma": {"normalizer": replace(" ", "▁"), "pre_tokenizer": {
        "type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}},
    "SmolLM": {"pre_tokenizer": pre_tokenizers(DIGITS, byte_level(regex=True))},
    "Falcon": {"pre_tokenizer": pre_tokenizers(PUNCTUATION, byte_level(regex=True), DIGITS, split("[0-9][0-9][0-9]"))},
    "BLOOM": {"pre_tokenizer": pre_tokenizers(split(" ?[^(\\s|[.,!?…。，、।۔،])]+"), byte_level())},
    "CLIP": {"normalizer": normalizers({"type": "NFC"}, SPACES | {"pattern": {"Regex": r"\s+"}, "content": " "},
                                       {"type": "Lowercase"}),
             "pre_tokenizer": pre_tokenizers(split(CLIP) | {"behavior": "Removed", "invert": True}, byte_level())},
    "XLM-R": {"normalizer": normalizers(precompiled(LIGATURE), SPACES), "post_processor": template(),
              "pre_tokenizer": pre_tokenizers({"type": "WhitespaceSplit"}, metaspace()),
              "model": unigram("▁a", "▁", "a", "b", "fi")},
    "ALBERT": {"normalizer": normalizers(replace("``", '"'), replace("''", '"'), {"type": "NFKD"},
                                         {"type": "StripAccents"}, {"type": "Lowercase"}, precompiled(LIGATURE),
                                         SPACES), "pre_tokenizer": metaspace(), "model": unigram("▁a", "▁", "fi")},
}  # fmt: skip


def written(folder, text):
    (folder / "tokenizer.json").write_text(text)
    return str(folder)


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("order", ["as the library writes it", "by name"])
def test_a_public_kind_is_read_in_this_process_and_its_ids_are_the_librarys(
    name, order, tokenizers, tmp_path
):
    text = tokenizer_json(**PLAIN[name])
    text = json.dumps(json.loads(text), indent=1, sort_keys=order == "by name")
    encoder = TextEncoder(written(tmp_path, text), "bert")
    assert not isinstance(encoder._tokenizer, TokenizerProxy)
    expected = tokenizers.Tokenizer.from_str(text)
    found = encoder.encode(TEXT)
    assert (list(found.ids), list(found.tokens)) == (expected.encode(TEXT).ids, expected.encode(TEXT).tokens)


@pytest.mark.parametrize(
    "name",
    ["Albert", "Bert", "Camembert", "DistilBert", "Gemma", "GPT2", "GPTNeoX", "Llama", "Qwen2", "Roberta", "T5",
     "XLMRoberta"],
)  # fmt: skip
def test_the_tokenizers_that_transformers_makes_are_plain(name, transformers):
    made = getattr(transformers, f"{name}Tokenizer")()
    examined = examine(made.backend_tokenizer.to_str().encode(), "x")
    assert not examined.unbounded and examined.growth < 100


BEYOND = {
    "28 replacements that double": ({"normalizer": normalizers(*[replace("a", "aa")] * 28)}, "268,435,456 times"),
    "a replacement by 40,000 letters": ({"normalizer": replace("a", "b" * 40_000)}, "40,000 times as long"),
    "28 of a decoder": ({"decoder": {"type": "Sequence", "decoders": [replace("a", "aa")] * 28}}, "268,435,456"),
    "10 MB before a text": ({"normalizer": {"type": "Prepend", "prepend": "a" * 10_000_000}}, "10,000,001 times"),
    "34 ByteLevel normalizers": ({"normalizer": normalizers(*[{"type": "ByteLevel"}] * 34)}, "32 steps in its norm"),
    "34 ByteLevel pre_tokenizers": ({"pre_tokenizer": pre_tokenizers(*[byte_level()] * 34)}, "32 steps in its pre_"),
    "20 that put spaces in front": ({"pre_tokenizer": pre_tokenizers(*[byte_level(True, True)] * 20)}, "times as l"),
    "a million steps": ({"normalizer": normalizers(*[{"type": "NFC"}] * 100_000)}, "more than 32 steps"),
    "sequences in sequences": ({"pre_tokenizer": pre_tokenizers(*[pre_tokenizers(*[DIGITS] * 6)] * 6)}, "32 steps"),
    "a template of 90 million ids": ({"post_processor": template(3000, 30_000)}, "makes 90,000,001 tokens"),
    "a template of 2,000 texts": ({"post_processor": template(texts=2000)}, "makes 2,001 tokens"),
    "many templates": ({"post_processor": {"type": "Sequence", "processors": [template(texts=30)] * 5}}, "24,300,000"),
    "a template's ids without tokens": ({"post_processor": template(ids=3, tokens=1)}, "gives 4 ids and 2 tokens"),
    "a map of no bytes": ({"normalizer": precompiled("")}, "map of .* is damaged"),
    "a map that is not a base64": ({"normalizer": precompiled("?")}, "map of .* is damaged"),
    "a map of 4 GB in four bytes": ({"normalizer": precompiled("/////w==")}, "map of .* is damaged"),
    "a map without a trie": ({"normalizer": precompiled("AAAAAA==")}, "map of .* is damaged"),
    "a map of half a trie": ({"normalizer": precompiled(LIGATURE[:1000])}, "map of .* is damaged"),
    "a map that leads out of the trie": ({"normalizer": precompiled(base64.b64encode(
        struct.pack("<II", 4, 5 << 10) + b"a\0").decode())}, "map of .* is damaged"),
    "a map that leads out of its texts": ({"normalizer": precompiled(charsmap({"b": "B"}, 2))}, "map of .* is damaged"),
    "a map to long texts": ({"normalizer": precompiled(charsmap({"a": "b" * 20_000}))}, "20,000 times as long"),
}  # fmt: skip


@pytest.mark.parametrize("name", BEYOND)
def test_what_no_sound_tokenizer_asks_for_is_refused_at_once(name, tokenizers, tmp_path):
    parts, said = BEYOND[name]
    folder = written(tmp_path, tokenizer_json(**parts))
    start = time.monotonic()
    with pytest.raises(InputError, match=said) as found:
        TextEncoder(folder, "bert").encode("a")
    assert "\n" not in str(found.value) and "publisher" in found.value.hint
    assert time.monotonic() - start < 5


MODEL = json.dumps(json.loads(tokenizer_json())["model"])
EVIL = '"normalizer": ' + json.dumps(precompiled("/////w=="))
HIDDEN = {
    "after the model": f'{{"model": {MODEL}, {EVIL}}}',
    "after the model, escaped": f'{{"model": {MODEL}\n,\t{EVIL.replace("norm", chr(92) + "u006eorm")}}}',
    "between two models": f'{{"model": {MODEL}, {EVIL}, "model": {MODEL}}}',
    "before a second one": f'{{"model": {MODEL}, {EVIL}, "x": {{"model": {MODEL}}}}}',
    "after a model that is none": f'{{"model": "{{", {EVIL}}}',
    "in place of a sound one": f'{{"normalizer": null, {EVIL}, "model": {MODEL}}}',
}  # fmt: skip


@pytest.mark.parametrize("place", HIDDEN)
def test_a_part_is_looked_at_wherever_it_stands(place, tokenizers, tmp_path):
    with pytest.raises(InputError, match="character map"):
        TextEncoder(written(tmp_path, HIDDEN[place]), "bert")


def test_what_stands_twice_is_what_was_looked_at(tokenizers, tmp_path):
    text = f'{{{EVIL}, "normalizer": {json.dumps(replace("b", "a"))}, "model": {MODEL}}}'
    assert TextEncoder(written(tmp_path, text), "bert").encode("b").tokens == ("a",)


def test_words_that_look_like_the_end_of_a_model_change_nothing(tokenizers, tmp_path):
    words = ["u", "},", ":", '"},"normalizer":', "}},", ' "x":', "\\", '\\"},', ": {"]
    model = {"type": "WordLevel", "vocab": {word: n for n, word in enumerate(words)}, "unk_token": "u"}
    for order in (words, words[::-1]):
        model["vocab"] = {word: n for n, word in enumerate(order)}
        encoder = TextEncoder(written(tmp_path, tokenizer_json(model=model)), "bert")
        assert [encoder.encode(word).ids for word in order] == [(n,) for n in range(len(order))]


UNBOUNDED = {
    "an unknown expression": ({"pre_tokenizer": split("(a|b)+?")}, "a b"),
    "an unknown expression replaced": ({"normalizer": replace("", "b") | {"pattern": {"Regex": "a+?"}}}, "b b"),
    "a step that does not say its kind": ({"normalizer": {"pattern": {"String": "a"}, "content": "b"}}, "b b"),
    "a deep trie": ({"model": unigram("ab", "a" * 600)}, "ab"),
    "a deep trie of quotes": ({"model": unigram("ab", '"' * 600)}, "ab"),
    "a deep trie of backslashes": ({"model": unigram("ab", "\\" * 600)}, "ab"),
    "a deep trie that says so last": ({"model": {"vocab": [["u", 0.0], ["ab", -1.0], ["a" * 600, -1.0]],
                                                 "unk_id": 0, "type": "Unigram"}}, "ab"),
    "a trie of 5 MB": ({"model": unigram("ab", *(f"{n:0500}" for n in range(10_000)))}, "ab"),
    "words without end": ({"model": {"type": "WordPiece", "unk_token": "u", "continuing_subword_prefix": "##",
                                     "max_input_chars_per_word": 10**9, "vocab": {"u": 0, "a": 1}}}, "a"),
    "a long prefix of each letter": ({"model": {"type": "BPE", "continuing_subword_prefix": "a" * 100,
                                                "vocab": {"a": 0}, "merges": []}}, "a"),
    "2 million values": ({"model": {"type": "WordLevel", "vocab": {"u": 0, "a": 1}, "unk_token": "u",
                                    "x": [0] * 2_100_000}}, "a"),
    "many objects": ({"model": {"type": "WordLevel", "vocab": {"u": 0, "a": 1}, "unk_token": "u",
                                "x": [{}] * 100_000}}, "a"),
    "added tokens that grow": ({"normalizer": {"type": "Prepend", "prepend": "a" * 1000}, "added_tokens": [
        {"id": 6, "content": "b" * 5000, "single_word": False, "lstrip": False, "rstrip": False, "normalized": True,
         "special": False}]}, "b" * 5000),
}  # fmt: skip


@pytest.mark.parametrize("name", UNBOUNDED)
def test_what_cannot_be_bounded_runs_in_a_separate_process_with_the_librarys_ids(name, tokenizers, tmp_path):
    parts, text = UNBOUNDED[name]
    file = tokenizer_json(**parts)
    encoder = TextEncoder(written(tmp_path, file), "bert")
    assert isinstance(encoder._tokenizer, TokenizerProxy)
    assert list(encoder.encode(text).ids) == tokenizers.Tokenizer.from_str(file).encode(text).ids
    assert encoder.token(0) == tokenizers.Tokenizer.from_str(file).id_to_token(0)


def test_a_long_text_that_may_grow_is_encoded_in_a_separate_process(tokenizers, tmp_path, monkeypatch):
    encoder = TextEncoder(written(tmp_path, tokenizer_json(**PLAIN["ALBERT"])), "bert")
    expected = encoder.encode(TEXT)
    asked = []
    monkeypatch.setattr(
        TokenizerProxy, "encode", lambda self, *texts: asked.append(self) or real(self, *texts)
    )
    monkeypatch.setattr(tokenizer, "MOST_HERE", 100)
    assert encoder.encode(TEXT) == expected and "times as long" in asked[0].unbounded


real = TokenizerProxy.encode


def test_a_map_that_asks_for_gigabytes_does_not_end_attn_without_a_word(tokenizers, tmp_path):
    saved(tmp_path / "model", GPT2, gpt2())
    written(tmp_path / "model", tokenizer_json(normalizer=precompiled("/////w==")))
    ran = shell(f"ulimit -v 4000000; attn self 'a b' -m {tmp_path / 'model'}")
    assert ran.code == 65 and ran.err.count("\n") == 1 and "character map" in ran.err


def test_a_map_of_characters_is_read_as_the_library_reads_it(tokenizers):
    made = tokenizers.normalizers.Precompiled(base64.b64decode(LIGATURE))
    assert made.normalize_str("ﬁne É\ta") == "fine E a"
    data = tokenizer_json(normalizer=precompiled(charsmap({"a": "x" * 9, "ab": "y", "日本": "z"})))
    assert examine(data.encode(), "x").growth == 9
