"""Word pieces joined to words, and special tokens told from words: functions on tokens and weights alone."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from attn_cli.io.array_types import Array, Bools

# What frames a text and is none of its words. Beside these: <|endoftext|> and all of that form.
_FRAME = frozenset(
    {
        *("[CLS]", "[SEP]", "[PAD]", "<s>", "</s>", "<pad>", "<cls>", "<sep>", "<bos>", "<eos>", "<eod>"),
        *("<start_of_turn>", "<end_of_turn>"),
    }
)
_FRAMED = re.compile("<[|\uff5c][^<>]*[|\uff5c]>")
# What stands for a word of the text: of its own, but a word.
_STANDS_IN = re.compile(r"\[MASK\]|\[UNK\]|<mask>|<unk>|<extra_id_[0-9]+>")
_BYTE = re.compile("<0x([0-9A-F]{2})>")  # SentencePiece writes a byte that no piece has like this
_NEWLINE = "<0x0A>"


class Word(NamedTuple):
    """A word: its name, and the run of tokens that it is made of."""

    name: str
    start: int
    size: int
    is_special: bool = False  # a token that frames the text; pieces that spell one, as < s >, are none


def is_special(token: str) -> bool:
    """Tell whether a token frames the text, as [CLS] and </s> do; [UNK] and [MASK] stand for words of it."""
    return token in _FRAME or _FRAMED.fullmatch(token) is not None


def _stands_alone(token: str) -> bool:
    return is_special(token) or _STANDS_IN.fullmatch(token) is not None


def _byte_alphabet() -> dict[str, int]:
    """Return which byte each character of a byte-level token is.

    Printable bytes are themselves, the others the characters from U+0100 on, in order (Radford et al. 2019, GPT-2,
    encoder.py, bytes_to_unicode).
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + n): byte for n, byte in enumerate(others)}


_BYTES = _byte_alphabet()
_BLANKS = frozenset(char for char, byte in _BYTES.items() if byte in b" \t\n\r\v\f")
_LINE_END = next(char for char, byte in _BYTES.items() if byte == 10)


def scheme(tokens: Sequence[str]) -> str | None:
    """Return how the tokens mark pieces of words; None where no token has a mark.

    byte-level: Ġ (a space) starts a word, as in GPT-2 and RoBERTa. sentencepiece: ▁ starts one, as in T5 and
    Llama. wordpiece: ## goes on with one, as in BERT. spaces: a space starts one, in tokens decoded one by one.
    """
    words = [token for token in tokens if token and not _stands_alone(token)]
    marked = {
        "byte-level": sum(token[0] in _BLANKS for token in words),
        "sentencepiece": sum(token[0] == "▁" for token in words),
        "wordpiece": sum(_goes_on(token) for token in words),
        "spaces": sum(token[0] == " " for token in words),
    }
    found = max(marked, key=lambda name: marked[name])
    return found if marked[found] else None


def words(tokens: Sequence[str], found: str | None) -> list[Word]:
    """Return the words that tokens with such marks (see scheme) make, in order; without marks each is one.

    >>> [word.name for word in words(["[CLS]", "walk", "##ing", "home", "[SEP]"], "wordpiece")]
    ['[CLS]', 'walking', 'home', '[SEP]']
    """
    starts = [i for i in range(len(tokens)) if found is None or _starts(found, tokens, i)]
    stops = [*starts[1:], len(tokens)]
    return [_word(found, tokens[start:stop], start) for start, stop in zip(starts, stops, strict=True)]


def _word(found: str | None, run: Sequence[str], start: int) -> Word:
    return Word(_name(found, run), start, len(run), len(run) == 1 and is_special(run[0]))


def _goes_on(token: str) -> bool:
    return token.startswith("##") and len(token) > 2


def _starts(found: str, tokens: Sequence[str], i: int) -> bool:
    """Tell whether token i starts a word."""
    token = tokens[i]
    if i == 0 or _stands_alone(token) or _stands_alone(tokens[i - 1]):
        return True
    last = tokens[i - 1][-1:]
    if found == "wordpiece":
        return not _goes_on(token)
    if found == "byte-level":
        return token[:1] in _BLANKS or last == _LINE_END
    if found == "sentencepiece":
        return token[:1] == "▁" or _NEWLINE in (token, tokens[i - 1])
    return token[:1].isspace() or last == "\n"


def _name(found: str | None, pieces: Sequence[str]) -> str:
    """Return a word as it was written: its pieces without their marks."""
    raw = "".join(pieces)
    if found is None or (len(pieces) == 1 and _stands_alone(raw)):
        return raw
    if found == "wordpiece":
        return pieces[0] + "".join(piece[2:] for piece in pieces[1:])
    if found == "byte-level":
        data = bytes(_BYTES[char] for char in raw) if all(char in _BYTES for char in raw) else None
    elif found == "sentencepiece":
        data = b"".join(_piece_bytes(piece) for piece in pieces)
    else:
        return raw.strip() or raw.replace(" ", "␣")
    return _decoded(data) or raw


def _piece_bytes(piece: str) -> bytes:
    byte = _BYTE.fullmatch(piece)
    spaced = piece.replace("▁", " ")
    return bytes([int(byte[1], 16)]) if byte else spaced.encode("utf-8", "surrogatepass")


def _decoded(data: bytes | None) -> str:
    """Return bytes as text without blanks at its ends; nothing where they are no text, or blank."""
    try:
        return "" if data is None else data.decode("utf-8").strip()
    except UnicodeDecodeError:
        return ""


def join(weights: Array, queries: Sequence[Word], keys: Sequence[Word]) -> Array:
    """Return the weights between words, (..., words, words), of those between pieces (..., n_q, n_k).

    Attention to a word is the sum over its pieces, attention from a word the mean over them, so that a row's sum
    stays (Clark et al. 2019, "What Does BERT Look At?", section 4.1).
    """
    to_words = np.add.reduceat(weights, [word.start for word in keys], axis=-1)
    summed = np.add.reduceat(to_words, [word.start for word in queries], axis=-2)
    joined: Array = summed / np.array([word.size for word in queries])[:, np.newaxis]
    return joined


def join_mask(mask: Bools, queries: Sequence[Word], keys: Sequence[Word]) -> Bools:
    """Return who may look at whom: a word may look at a word if any piece of it may look at any of the other's."""
    to_words = np.logical_or.reduceat(mask, [word.start for word in keys], axis=-1)
    joined: Bools = np.logical_or.reduceat(to_words, [word.start for word in queries], axis=-2)
    return joined
