"""Word pieces joined to words, and special tokens recognized: functions on tokens and weights."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np

from attn_cli.io.types import Array, Bools, NamedTuple

# Tokens that frame a text. Besides these: <|endoftext|> and all of that form.
_FRAME = "[CLS] [SEP] [PAD] <s> </s> <pad> <cls> <sep> <bos> <eos> <eod> <start_of_turn> <end_of_turn>"
_FRAMING = frozenset(_FRAME.split())
_FRAMED = "<[|\uff5c][^<>]*[|\uff5c]>"
# Tokens that stand for a word of the text.
_STANDS_IN = r"\[MASK\]|\[UNK\]|<mask>|<unk>|<extra_id_[0-9]+>"
_BYTE = "<0x([0-9A-F]{2})>"  # how SentencePiece writes a byte that no piece covers
_NEWLINE = r"<0x0A>|\n+"  # as Llama and as Gemma write it
_END, _ON = "</w>", "@@"
SPACE = "␣"  # a space that is to be seen


class Word(NamedTuple):
    """A word, and the run of tokens that it is made of."""

    name: str
    start: int
    size: int
    is_special: bool = False  # whether it is one token that frames the text; pieces that spell one are not


def is_special(token: str) -> bool:
    """Tell whether a token frames the text, as [CLS] and </s> do; [UNK] and [MASK] stand for words of it."""
    return token in _FRAMING or (token[:1] == "<" and re.fullmatch(_FRAMED, token) is not None)


def is_padding(token: str) -> bool:
    """Tell whether a special token is named for padding, as [PAD] and <pad> are."""
    return is_special(token) and "pad" in token.lower()


def _stands_alone(token: str) -> bool:
    return is_special(token) or re.fullmatch(_STANDS_IN, token) is not None


# The byte of each character of a byte-level token: printable bytes stand for themselves, the others are the characters
# from U+0100 on, in order (Radford et al. 2019, GPT-2, encoder.py, bytes_to_unicode).
_PRINTABLE = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))
_OTHERS = (byte for byte in range(256) if byte not in _PRINTABLE)
_BYTES = {chr(byte): byte for byte in _PRINTABLE} | {chr(0x100 + n): byte for n, byte in enumerate(_OTHERS)}
_BLANKS = frozenset(char for char, byte in _BYTES.items() if byte in b" \t\n\r\v\f")
_LINE_END = next(char for char, byte in _BYTES.items() if byte == 10)


# Whether a token has the mark of a scheme.
MARKED: dict[str, Callable[[str], bool]] = {
    "byte-level": lambda token: token[:1] in _BLANKS,  # Ġ (a space) starts a word, as in GPT-2 and RoBERTa
    "sentencepiece": lambda token: token[:1] == "▁",  # starts a word, as in T5 and Llama
    "wordpiece": lambda token: token.startswith("##") and len(token) > 2,  # continues one, as in BERT
    "ended": lambda token: token.endswith(_END),  # </w> ends one, as in CLIP and XLM
    # More follows, as in fairseq's BPE.
    "continued": lambda token: token.endswith(_ON) and len(token) > len(_ON),
    "spaces": lambda token: token[:1] == " ",  # starts a word, in tokens decoded one by one
}


def scheme(tokens: Sequence[str]) -> str | None:
    """Return how the tokens mark pieces, one of MARKED; without marks, by bytes that make no character alone."""
    words = [token for token in tokens if token and not _stands_alone(token)]
    marked = {name: sum(map(is_marked, words)) for name, is_marked in MARKED.items()}
    found = max(marked, key=lambda name: marked[name])
    if marked[found]:
        return found
    if any(re.fullmatch(_BYTE, token) for token in words):
        return "sentencepiece"
    data = [one for token in words if (one := _bytes_of(token)) is not None]
    is_cut = not all(map(_is_text, data)) and _is_text(b"".join(data))
    return "byte-level" if is_cut and len(data) == len(words) else None


def _bytes_of(text: str) -> bytes | None:
    """Return the bytes that byte-level pieces stand for; None where there are other characters."""
    return bytes(_BYTES[char] for char in text) if all(char in _BYTES for char in text) else None


def _is_text(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def words(tokens: Sequence[str], found: str | None) -> list[Word]:
    """Return the words that the tokens form under a scheme, in order; under None each token is one.

    >>> [word.name for word in words(["[CLS]", "walk", "##ing", "home", "[SEP]"], "wordpiece")]
    ['[CLS]', 'walking', 'home', '[SEP]']
    """
    starts = [i for i in range(len(tokens)) if found is None or _starts(found, tokens, i)]
    stops = [*starts[1:], len(tokens)]
    made = []
    for start, stop in zip(starts, stops, strict=True):
        run = tokens[start:stop]
        made.append(Word(_name(found, run), start, len(run), is_special(run[0])))
    return made


def _starts(found: str, tokens: Sequence[str], i: int) -> bool:
    """Tell whether token i starts a word."""
    token, before = tokens[i], tokens[i - 1]
    if i == 0 or _stands_alone(token) or _stands_alone(before):
        return True
    if found == "ended":
        return before.endswith(_END)
    if found == "continued":
        return not MARKED[found](before)
    if found == "wordpiece":
        return not MARKED[found](token)
    if found == "sentencepiece" and any(re.fullmatch(_NEWLINE, one) for one in (token, before)):
        return True
    if found == "spaces":
        return token[:1].isspace() or before[-1:] == "\n"
    return MARKED[found](token) or (found == "byte-level" and before[-1:] == _LINE_END)


def _name(found: str | None, pieces: Sequence[str]) -> str:
    """Return the text of a word: its pieces without their marks; a byte that belongs to no character as <0xE2>."""
    raw = "".join(pieces)
    if found is None or (len(pieces) == 1 and _stands_alone(raw)):
        return raw
    if found == "wordpiece":
        return pieces[0] + "".join(piece[2:] for piece in pieces[1:])
    if found == "continued":
        return "".join(piece.removesuffix(_ON) for piece in pieces[:-1]) + pieces[-1]
    if found == "ended":
        plain = "".join(piece.removesuffix(_END) for piece in pieces)
        data = _bytes_of(plain)
        if data is not None and _is_text(data):  # XLM's letters are not bytes
            plain = data.decode("utf-8")
        return plain or raw
    if found == "spaces":
        return raw.strip() or raw.replace(" ", SPACE)
    data = _bytes_of(raw) if found == "byte-level" else b"".join(map(_piece_bytes, pieces))
    return raw if data is None else _decoded(data).strip() or raw


def as_text(tokens: Sequence[str]) -> tuple[str, ...]:
    """Return byte-level tokens as text, with ␣ for a space; other tokens stay as they are.

    >>> as_text(["The", "Ġcaf", "Ã©"]), as_text(["walk", "##ing"])
    (('The', '␣caf', 'é'), ('walk', '##ing'))
    """
    if scheme(tokens) != "byte-level":
        return tuple(tokens)
    return tuple(token if _stands_alone(token) else _bytes_as_text(token) for token in tokens)


def _bytes_as_text(token: str) -> str:
    data = _bytes_of(token)
    return token if data is None else _decoded(data).replace(" ", SPACE)


def _decoded(data: bytes) -> str:
    """Return bytes as text, those that are none spelled out.

    >>> _decoded(b"caf" + bytes([0xC3]))
    'caf<0xC3>'
    """
    text = data.decode("utf-8", "surrogateescape")
    return "".join(f"<0x{ord(char) - 0xDC00:02X}>" if "\udc80" <= char <= "\udcff" else char for char in text)


def _piece_bytes(piece: str) -> bytes:
    byte = re.fullmatch(_BYTE, piece)
    spaced = piece.replace("▁", " ")
    return bytes([int(byte[1], 16)]) if byte else spaced.encode("utf-8", "surrogatepass")


def join(weights: Array, queries: Sequence[Word], keys: Sequence[Word]) -> Array:
    """Return the weights between words, (..., words, words), from those between pieces (..., n_q, n_k).

    Attention to a word is the sum over its pieces, attention from a word the mean over them, so that a row's sum
    stays (Clark et al. 2019, "What Does BERT Look At?", section 4.1).
    """
    to_words = np.add.reduceat(weights, [word.start for word in keys], axis=-1)
    summed = np.add.reduceat(to_words, [word.start for word in queries], axis=-2)
    joined: Array = summed / np.array([word.size for word in queries])[:, np.newaxis]
    return joined


def join_mask(mask: Bools, queries: Sequence[Word], keys: Sequence[Word]) -> Bools:
    """Return the mask of words: one may attend to another if any of its pieces may attend to any of the other's."""
    to_words = np.logical_or.reduceat(mask, [word.start for word in keys], axis=-1)
    return np.logical_or.reduceat(to_words, [word.start for word in queries], axis=-2)
