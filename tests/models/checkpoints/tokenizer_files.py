"""Small tokenizer.json files, sound and hostile."""

import base64
import json
import struct

LETTERS = ("a", "b", "c", "d", "ab", "u")
SPACE = r"\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA_3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + SPACE
)
ENDLESS = r"\w*\w*\d\s"  # of a run of n letters it tries all pairs of places, from each of them


def tokenizer_json(**parts):
    """Return a tokenizer.json that knows letters, with these parts."""
    words = {"type": "WordLevel", "vocab": {word: n for n, word in enumerate(LETTERS)}, "unk_token": "u"}
    made = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
        "pre_tokenizer": None, "post_processor": None, "decoder": None, "model": words,
    }  # fmt: skip
    return json.dumps(made | parts, ensure_ascii=False)


def replace(old, new):
    return {"type": "Replace", "pattern": {"String": old}, "content": new}


def split(expression):
    pattern = {"Regex": expression}
    return {"type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": False}


def byte_level(regex=False, prefix=False):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": regex}


def metaspace(scheme="always"):
    return {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": True}


def normalizers(*steps):
    return {"type": "Sequence", "normalizers": list(steps)}


def pre_tokenizers(*steps):
    return {"type": "Sequence", "pretokenizers": list(steps)}


def template(times=1, ids=1, texts=1, tokens=None):
    """Return a template: a token that stands for so many `ids`, so many `times`, and the text so often."""
    special = {"id": "c", "ids": [2] * ids, "tokens": ["c"] * (ids if tokens is None else tokens)}
    text = {"Sequence": {"id": "A", "type_id": 0}}
    single = [{"SpecialToken": {"id": "c", "type_id": 0}}] * times + [text] * texts
    pair = [text, {"Sequence": {"id": "B", "type_id": 1}}]
    return {"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": {"c": special}}


def unigram(*pieces, **more):
    vocab = [["u", 0.0], *([piece, -1.0 - n] for n, piece in enumerate(pieces))]
    return {"type": "Unigram", "unk_id": 0, "vocab": vocab, "byte_fallback": False, **more}


def charsmap(replaced, value=None):
    """Return SentencePiece's map of characters, as base64; `value` takes the place of the first text's place.

    Each node of the trie has a block of 256 units to itself: a letter's unit is at the block's start, xor the letter.
    """
    texts, units, blocks = b"", {}, {b"": 256}
    for key, text in replaced.items():
        for end in range(1, len(key.encode()) + 1):
            blocks.setdefault(key.encode()[:end], 256 * (len(blocks) + 1))
        units[blocks[key.encode()]] = 1 << 31 | (len(texts) if value is None else value)
        texts += text.encode() + b"\0"
    for start, block in blocks.items():
        place = blocks[start[:-1]] ^ start[-1] if start else 0
        is_end = block in units
        units[place] = (place ^ block) << 10 | is_end << 8 | (start[-1] if start else 0)
    count = 256 * (len(blocks) + 1)
    trie = struct.pack(f"<{count}I", *(units.get(place, 0) for place in range(count)))
    return base64.b64encode(struct.pack("<I", len(trie)) + trie + texts).decode()


def precompiled(data):
    return {"type": "Precompiled", "precompiled_charsmap": data}
