"""What a tokenizer.json may ask of this process: each of its parts is held against a table before the library reads it.

The tables say how many times as long a step can make a text. A tokenizer with a part that they do not have runs in a
separate process; what is beyond any sound tokenizer is refused.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from attn_cli.errors import InputError
from attn_cli.io.escape import visible
from attn_cli.models.checkpoints.tokenizer_patterns import is_known

if TYPE_CHECKING:
    from attn_cli.io.array_types import Bools

MOST_STEPS = 32  # of a part, with those inside them; sound ones have six
MOST_GROWTH = 1 << 14  # of a text by all steps, at worst; ALBERT's could reach 2,904
MOST_FRAMING = 1 << 10  # tokens that a template adds; sound ones add three
MOST_VALUES = 1 << 21  # in a file; a vocabulary of 900,000 pieces with their scores has 1.8 million
MOST_OBJECTS = 1 << 16  # in a model, where each takes ten times a word's memory; sound ones have three
MOST_ADDED = 1 << 22  # bytes of added tokens, as normalized: the library makes an automaton of them
MOST_PIECES = 1 << 22  # bytes of a Unigram model's pieces: the library makes a trie of 330 bytes for each
LONGEST_PIECE = 1 << 9  # bytes: the trie is as deep, and the library walks it down by recursion
LONGEST_WORD, LONGEST_AFFIX = 1 << 10, 1 << 6  # WordPiece's time grows with the word's square and more
NESTED = ("normalizers", "pretokenizers", "processors", "decoders")
PARTS = ("added_tokens", "normalizer", "pre_tokenizer", "post_processor", "decoder")
MODEL = re.compile(rb'"model"\s*:\s*')
# The key that follows an object; the words "}," and ":" of a vocabulary, with a number between them, are none.
AFTER_OBJECT = re.compile(rb'\}(?=\s*,\s*"([^"]*[A-Za-z\\][^"]*)"\s*:)')
AFTER_VOCABULARY = {b"merges", b"unk_token", b"type"}
# A vocabulary that is an object is no Unigram model's: theirs are lists.
WITHOUT_TRIE = re.compile(
    rb'\{\s*(?:"\w+"\s*:\s*(?:null|true|false|[\d.]+|"[^"\\]*")\s*,\s*)*+"vocab"\s*:\s*\{'
)
HINT = "Compare it with the file of the model's publisher."

Step = dict[str, Any]


class Examined(NamedTuple):
    """A tokenizer.json that has been looked at."""

    data: bytes  # what the library is to read
    growth: int = 1  # how many times as long the tokenizer makes a text, at most
    unbounded: str = ""  # the part whose cost cannot be foreseen; nothing where the tokenizer is plain


class Parts(NamedTuple):
    """The parts of a tokenizer.json."""

    head: Step  # all but the model; what a key that stands twice says is its last value
    model: bytes | memoryview  # JSON still: the vocabulary is not walked here


def examine(data: bytes, name: str) -> Examined:
    """Return what the library is to read of a tokenizer.json, and its cost; raise InputError if no sound one is so."""
    if _count(data, b",") > MOST_VALUES:
        return Examined(data, unbounded=f"more than {MOST_VALUES:,} values")
    head, model = _parts(data)
    unbounded = ["its model"] if _is_large_tree(model) else []
    grown = {part: _growth(part, head.get(part), name, unbounded) for part in PARTS[1:]}
    if _added(head.get("added_tokens"), grown["normalizer"]) > MOST_ADDED:
        unbounded.append("its added tokens")
    text = grown["normalizer"] * grown["pre_tokenizer"] * grown["post_processor"]
    if max(text, grown["decoder"]) > MOST_GROWTH:
        most = max(text, grown["decoder"])
        raise InputError(f"{name} makes a text up to {most:,} times as long.", HINT)
    return Examined(_joined(head, model), text, unbounded[0] if unbounded else "")


def unbounded_model(model: Any) -> str:
    """Return what of a model that has been read makes its cost unforeseeable; nothing where it is plain."""
    if getattr(model, "max_input_chars_per_word", 0) > LONGEST_WORD:
        return "max_input_chars_per_word"
    affixes = ("continuing_subword_prefix", "end_of_word_suffix")
    return next((key for key in affixes if len(getattr(model, key, None) or "") > LONGEST_AFFIX), "")


def _parts(data: bytes) -> Parts:
    """Return a file's parts. The model is cut out where it stands last, as the library writes it."""
    import orjson

    found, stop = MODEL.search(data), data.rfind(b"}")
    if found and not data[stop + 1 :].strip() and data[found.end() : found.end() + 1] == b"{":
        try:
            head = orjson.loads(data[: found.end()] + b"null}")  # it fails if the key is not the file's own
        except ValueError:
            head = None
        keys = set(AFTER_OBJECT.findall(data, found.end()))
        if isinstance(head, dict) and keys <= AFTER_VOCABULARY:  # nothing follows the model
            return Parts(head, memoryview(data)[found.end() : stop])
    head = orjson.loads(data)
    if not isinstance(head, dict):
        raise ValueError("it is not an object with a model")
    return Parts(head, orjson.dumps(head.get("model")))


def _joined(head: Step, model: bytes | memoryview) -> bytes:
    """Return a tokenizer.json of the parts that were looked at. It pads and cuts nothing."""
    import orjson

    parts = orjson.dumps({"version": "1.0"} | {key: head[key] for key in ("version", *PARTS) if key in head})
    return b"".join((parts[:-1], b',"model":', model, b"}"))


def _growth(part: str, steps: object, name: str, unbounded: list[str]) -> int:
    """Return how many times as long a part makes a text at most; list in `unbounded` what is in no table."""
    growths = []
    for step in _flat(part, steps, name):
        kind = step.get("type") if isinstance(step, dict) else None
        growth = KINDS[part].get(kind, 0) if isinstance(kind, str) else 0
        growths.append(growth(step, name) if callable(growth) else growth)
        if not growths[-1]:
            unbounded.append(f"the step {visible(str(kind))[:40]} of its {part}")
    return prod(growth or 1 for growth in growths)


def _flat(part: str, steps: object, name: str) -> Iterator[Any]:
    """Yield a part's steps, and those inside its sequences."""
    waiting, count = [steps], 0
    while waiting:
        step = waiting.pop()
        if step is None:
            continue
        count += 1
        if count > MOST_STEPS:
            raise InputError(f"{name} has more than {MOST_STEPS} steps in its {part}.", HINT)
        yield step
        if isinstance(step, dict):
            waiting += [one for key in NESTED if isinstance(step.get(key), list) for one in step[key]]


def _added(tokens: object, growth: int) -> int:
    """Return how many bytes added tokens have, once they are normalized."""
    if not isinstance(tokens, list):
        return 0
    some = (one for one in tokens if isinstance(one, dict))
    return sum(_size(one.get("content")) * (growth if one.get("normalized", True) else 1) for one in some)


def _size(text: object) -> int:
    return len(text.encode("utf-8", "surrogatepass")) if isinstance(text, str) else 0


def _replaced(step: Step, name: str) -> int:
    """Return how many times as long its content is as what a Replace step looks for; 0 for an unknown expression."""
    length = max(1, _size(step["pattern"].get("String"))) if _split(step, name) else 0
    return length and max(1, -(-_size(step.get("content")) // length))


def _split(step: Step, name: str) -> int:
    pattern = step.get("pattern")
    kinds = list(pattern) if isinstance(pattern, dict) else []
    return int(kinds == ["String"] or (kinds == ["Regex"] and is_known(step["pattern"]["Regex"])))


def _template(step: Step, name: str) -> int:
    """Return how often a template repeats its text, and refuse one that adds very many tokens."""
    repeated, ids = 1, step.get("special_tokens")
    for key in ("single", "pair"):
        pieces = step.get(key)
        if not isinstance(pieces, list) or not isinstance(ids, dict):
            return 0
        named = [(kind, one.get("id")) for piece in pieces if isinstance(piece, dict)
                 for kind, one in piece.items() if isinstance(one, dict)]  # fmt: skip
        sizes = [_framing(ids.get(id_)) for kind, id_ in named if kind == "SpecialToken"]
        texts = [id_ for kind, id_ in named if kind == "Sequence"]
        if (size := sum(sizes) + len(texts)) > MOST_FRAMING:
            raise InputError(f"{name} makes {size:,} tokens of a text of one.", HINT)
        repeated = max([repeated, *map(texts.count, texts)])
    return repeated


def _framing(special: object) -> int:
    """Return how many tokens a special token of a template stands for."""
    lists = [special.get(key) for key in ("ids", "tokens")] if isinstance(special, dict) else []
    return max([1, *(len(one) for one in lists if isinstance(one, list))])


def _charsmap(step: Step, name: str) -> int:
    """Return the length of the longest text that a character map puts in; raise InputError if the map is damaged.

    SentencePiece's layout: the size of a trie, the trie's units of four bytes, and texts with a zero after each. A
    unit says, by exclusive or, where those that follow it are. Where a key ends, that unit has the place of its text.
    """
    import numpy as np

    try:
        data = base64.b64decode(step.get("precompiled_charsmap") or "", validate=True)
    except (TypeError, ValueError):
        data = b""
    size = int.from_bytes(data[:4], "little")
    if size % 4 or not 4 <= size <= len(data) - 4:
        raise InputError(f"The character map of {name} is damaged.", HINT)
    units, texts = np.frombuffer(data, "<u4", size // 4, 4), data[4 + size :]
    follows = np.arange(units.size) ^ ((units >> 10) << ((units & (1 << 9)) >> 6)).astype(np.int64)
    is_inner = units < 1 << 31
    ends = follows[is_inner & (units >> 8 & 1 == 1)]
    if np.any(follows[is_inner] | 255 >= units.size) or np.any((units[ends] & 0x7FFFFFFF) >= len(texts)):
        raise InputError(f"The character map of {name} is damaged.", HINT)
    return max(1, *map(len, texts.split(b"\0")))


def _byte_level(step: Step, name: str) -> int:
    return 4 if step.get("add_prefix_space", True) else 2  # a byte becomes a letter of two; so does the space


# How many times as long a step makes a text at most, in bytes of UTF-8; 0 where that, or its time, cannot be foreseen
KINDS: dict[str, dict[str, int | Callable[[Step, str], int]]] = {
    "normalizer": {
        "Sequence": 1, "BertNormalizer": 3, "Strip": 1, "StripAccents": 1, "Nmt": 1, "Lowercase": 2,
        "NFC": 3, "NFD": 3, "NFKC": 11, "NFKD": 11, "Precompiled": _charsmap, "Replace": _replaced,
        "Prepend": lambda step, name: 1 + _size(step.get("prepend")), "ByteLevel": 2,
    },
    "pre_tokenizer": {
        "Sequence": 1, "BertPreTokenizer": 1, "ByteLevel": _byte_level, "CharDelimiterSplit": 1, "Metaspace": 4,
        "Whitespace": 1, "WhitespaceSplit": 1, "Punctuation": 1, "Digits": 1, "UnicodeScripts": 1,
        "FixedLength": 1, "Split": _split,
    },
    "post_processor": {
        "Sequence": 1, "BertProcessing": 1, "RobertaProcessing": 1, "ByteLevel": 1,
        "TemplateProcessing": _template,
    },
    "decoder": {
        "Sequence": 1, "ByteLevel": 1, "WordPiece": 1, "Metaspace": 1, "BPEDecoder": 1, "CTC": 1,
        "ByteFallback": 1, "Fuse": 1, "Strip": 1, "Replace": _replaced,
    },
}  # fmt: skip


def _is_large_tree(model: bytes | memoryview) -> bool:
    """Tell whether the library may make a deep or a large tree of a model."""
    import numpy as np

    if _count(model, b"{") > MOST_OBJECTS or _count(model, b'"') > 4 * MOST_VALUES:
        return True
    if WITHOUT_TRIE.match(model):
        return False
    lengths = np.diff(np.flatnonzero(_quotes(model)))[::2]
    return bool(lengths.sum() > MOST_PIECES or lengths.max(initial=0) > LONGEST_PIECE)


def _quotes(data: bytes | memoryview) -> Bools:
    """Tell of each byte of JSON whether it is a quotation mark around a string."""
    import numpy as np

    letters = np.frombuffer(data, np.uint8)
    slashes = np.flatnonzero(letters[:-1] == ord("\\"))
    starts = np.flatnonzero(np.diff(slashes, prepend=-2) > 1)  # of runs: every other one escapes what follows
    within = np.arange(slashes.size) - np.repeat(starts, np.diff(starts, append=slashes.size))
    found: Bools = letters == ord('"')
    found[slashes[within % 2 == 0] + 1] = False
    return found


def _count(data: bytes | memoryview, sign: bytes) -> int:
    """Return how often a sign stands in a file."""
    import numpy as np

    return int(np.count_nonzero(np.frombuffer(data, np.uint8) == ord(sign)))
