"""The tokenizer in a GGUF file's metadata, as the tokenizer.json that the tokenizers package reads.

A file names what splits a text into words ("tokenizer.ggml.pre"); the expressions are those of the models' own
tokenizer.json. SentencePiece's merges are made of its scores, as transformers makes them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from attn_cli.errors import InputError, did_you_mean, visible
from attn_cli.models.checkpoints.gguf import STRING, Gguf, Packed

Json = dict[str, Any]
# normalizer, pre_tokenizer, decoder, and model but for its words
Parts = tuple[Json | None, Json | None, Json, Json]
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
MOST_WORDS, LONGEST_PIECE = 1 << 20, 256
SPACE = "\u2581"  # SentencePiece's
_TAIL = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_HEAD = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+"
LLAMA_3 = _HEAD + r"|\p{N}{1,3}" + _TAIL
QWEN_2 = _HEAD + r"|\p{N}" + _TAIL
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_WORDS = (_UPPER + "*" + _LOWER + "+", _UPPER + "+" + _LOWER + "*")
_WORD = "|".join(r"[^\r\n\p{L}\p{N}]?" + word + r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?" for word in _WORDS)
GPT_4O = _WORD + r"|\p{N}{1,3}" + _TAIL.replace(r"\n]*", r"\n/]*", 1)
# What splits a text: an expression, or GPT-2's own, with digits one by one or not; whether it is normalized (NFC), and
# whether a text begins with a token of its own where the file does not say
SPLITS: dict[str, Json] = {
    **{name: {} for name in ("gpt-2", "gpt2", "default")},
    **{name: {"pattern": LLAMA_3, "bos": True} for name in ("llama-bpe", "llama3", "llama-v3")},
    **{name: {"pattern": QWEN_2, "nfc": True} for name in ("qwen2", "deepseek-r1-qwen")},
    "gpt-4o": {"pattern": GPT_4O},
    "smollm": {"digits": True},
}


def gguf_tokenizer(gguf: Gguf) -> bytes:
    """Return the tokenizer.json of a GGUF file's tokenizer; raise InputError where attn cannot rebuild it."""
    kind = gguf.metadata.get("tokenizer.ggml.model")
    if kind not in KINDS:
        said = f"{gguf.where} has a tokenizer of the kind {visible(str(kind))[:40]!r}"
        raise InputError(f"{said}, which attn cannot rebuild.", f"It knows {', '.join(KINDS)}.")
    tokens, types = _list(gguf, "tokens", STRING), _list(gguf, "token_type", optional=True)
    types = types or [NORMAL] * len(tokens)
    if len(types) != len(tokens) or not tokens:
        raise _damaged(gguf, f"{len(tokens):,} tokens and {len(types):,} types")
    normalizer, splitter, decoder, model = KINDS[kind](gguf, tokens, types)
    plain = dict.fromkeys(("normalized", "single_word", "lstrip", "rstrip"), False)
    special = [
        {"id": n, "content": text, "special": type_ != USER_DEFINED, **plain}
        for n, (text, type_) in enumerate(zip(tokens, types, strict=True))
        if type_ in (CONTROL, USER_DEFINED, UNKNOWN) and text
    ]
    made: Json = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": special}
    made |= {"normalizer": normalizer, "pre_tokenizer": splitter}
    made["post_processor"] = _frame(gguf, tokens, kind)
    made |= {"decoder": decoder, "model": model | {"vocab": {text: n for n, text in enumerate(tokens)}}}
    return json.dumps(made).encode()


def _pairs_of_bytes(gguf: Gguf, tokens: list[str], types: list[int]) -> Parts:
    """Byte pair encoding over bytes, as GPT-2, Llama 3 and Qwen have it."""
    name = gguf.metadata.get("tokenizer.ggml.pre", "default")
    if name not in SPLITS:
        said = f"{gguf.where} splits texts by {visible(str(name))[:40]!r}, which attn does not know."
        raise InputError(said, f"{did_you_mean(str(name), SPLITS)}It knows {', '.join(SPLITS)}.")
    pattern = SPLITS[name].get("pattern")
    bytes_ = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    steps: list[Json] = [{"type": "Digits", "individual_digits": True}] if SPLITS[name].get("digits") else []
    if pattern is not None:
        by = {"Regex": pattern}
        steps.append({"type": "Split", "pattern": by, "behavior": "Isolated", "invert": False})
    steps.append(bytes_ | {"use_regex": pattern is None})
    normalizer = {"type": "NFC"} if SPLITS[name].get("nfc") else None
    model = {"type": "BPE", "merges": _list(gguf, "merges", STRING), "ignore_merges": pattern == LLAMA_3}
    return normalizer, {"type": "Sequence", "pretokenizers": steps}, bytes_ | {"use_regex": True}, model


def _sentence_piece(gguf: Gguf, tokens: list[str], types: list[int]) -> Parts:
    """SentencePiece's byte pair encoding, as Llama 2 and Gemma have it: what it does not know becomes bytes."""
    begins = gguf.metadata.get("tokenizer.ggml.add_space_prefix", True) is not False
    steps: list[Json] = [{"type": "Prepend", "prepend": SPACE}] if begins else []
    steps.append({"type": "Replace", "pattern": {"String": " "}, "content": SPACE})
    spoken = {"type": "Replace", "pattern": {"String": SPACE}, "content": " "}
    decoder = {"type": "Sequence", "decoders": [spoken, {"type": "ByteFallback"}, {"type": "Fuse"}]}
    if len(scores := _list(gguf, "scores")) != len(tokens):
        raise _damaged(gguf, f"{len(tokens):,} tokens and {len(scores):,} scores")
    unknown = next((text for text, type_ in zip(tokens, types, strict=True) if type_ == UNKNOWN), None)
    model: Json = {"type": "BPE", "merges": [*_merges(tokens, types, scores)], "unk_token": unknown}
    model |= {"fuse_unk": True, "byte_fallback": True}
    return {"type": "Sequence", "normalizers": steps}, None, decoder, model


def _merges(tokens: list[str], types: list[int], scores: list[float]) -> Iterator[list[str]]:
    """Yield every pair of pieces that makes a piece: pieces of high scores first, and of one piece's pairs likewise."""
    each = enumerate(zip(tokens, types, strict=True))
    place = {text: n for n, (text, type_) in each if type_ in (NORMAL, UNUSED)}
    for whole in sorted(place, key=lambda text: -scores[place[text]]):
        if len(whole) <= LONGEST_PIECE:
            cuts = ((whole[:n], whole[n:]) for n in range(1, len(whole)))
            found = [pair for pair in cuts if pair[0] in place and pair[1] in place]
            yield from map(list, sorted(found, key=lambda pair: (place[pair[0]], place[pair[1]])))


def _word_pieces(gguf: Gguf, tokens: list[str], types: list[int]) -> Parts:
    """BERT's word pieces: llama.cpp marks what begins a word, BERT what goes on."""
    for n, (text, type_) in enumerate(zip(tokens, types, strict=True)):
        if type_ not in (CONTROL, UNKNOWN) and text[:1] + text[-1:] != "[]":
            tokens[n] = text[1:] if text[:1] == SPACE else f"##{text}"
    cleaned = dict.fromkeys(("lowercase", "clean_text", "handle_chinese_chars"), True)
    normalizer = {"type": "BertNormalizer", "strip_accents": None, **cleaned}
    model = {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##"}
    decoder = {"type": "WordPiece", "prefix": "##", "cleanup": True}
    return normalizer, {"type": "BertPreTokenizer"}, decoder, model | {"max_input_chars_per_word": 100}


Rebuild = Callable[[Gguf, list[str], list[int]], Parts]
KINDS: dict[str, Rebuild] = {"gpt2": _pairs_of_bytes, "llama": _sentence_piece, "bert": _word_pieces}


def _frame(gguf: Gguf, tokens: list[str], kind: str) -> Json | None:
    """Return what stands before and after a text: its first and last token, where the file adds them."""
    names = {"bos": "bos_token_id", "eos": "eos_token_id"}
    if kind == "bert":
        names = {"bos": "cls_token_id", "eos": "seperator_token_id"}  # as llama.cpp spells it
        if f"tokenizer.ggml.{names['bos']}" not in gguf.metadata:
            names["bos"] = "bos_token_id"
    ids, pre = {}, gguf.metadata.get("tokenizer.ggml.pre", "default")
    begins = kind == "llama" or (kind == "gpt2" and SPLITS[pre].get("bos", False))
    for end, name in names.items():
        usual = kind == "bert" or (begins and end == "bos")
        id_ = gguf.metadata.get(f"tokenizer.ggml.{name}")
        if gguf.metadata.get(f"tokenizer.ggml.add_{end}_token", usual) and id_ is not None:
            if type(id_) is not int or id_ >= len(tokens):
                raise _damaged(gguf, f"{name} {visible(str(id_))[:40]}")
            ids[end] = id_

    def framed(text: str, type_: int, *ends: str) -> list[Json]:
        around: dict[str, list[Json]] = {
            end: [{"SpecialToken": {"id": tokens[ids[end]], "type_id": type_}}] for end in ends if end in ids
        }
        own: Json = {"Sequence": {"id": text, "type_id": type_}}
        return [*around.get("bos", []), own, *around.get("eos", [])]

    single = framed("A", 0, "bos", "eos")
    second = framed("B", 1, *(("eos",) if kind == "bert" else ("bos", "eos")))
    named = {tokens[n]: {"id": tokens[n], "ids": [n], "tokens": [tokens[n]]} for n in ids.values()}
    made = {"type": "TemplateProcessing", "single": single, "pair": single + second, "special_tokens": named}
    return made if ids else None


def _list(gguf: Gguf, name: str, kind: int | None = None, optional: bool = False) -> list[Any]:
    found = gguf.metadata.get(f"tokenizer.ggml.{name}")
    if found is None and optional:
        return []
    if (
        not isinstance(found, Packed)
        or found.length > MOST_WORDS
        or (found.kind == STRING) != (kind == STRING)
    ):
        raise _damaged(gguf, f"no list of {name}")
    return found.values()


def _damaged(gguf: Gguf, what: str) -> InputError:
    return InputError(f"The tokenizer in {gguf.where} is not sound: it has {what}.", "Get the file anew.")
