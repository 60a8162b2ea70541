"""Passages in which pronouns are marked with what they stand for: JSON Lines, one pronoun a record.

A record has `tokens`; `pronoun`, its place; `antecedents`, half-open spans of mentions of the same person or thing;
and, where two names compete, both spans as `candidates`. `make_passages` makes such files from running text.
"""

from __future__ import annotations

import json
from typing import Any

from attn_cli.errors import InputError
from attn_cli.io.escape import visible
from attn_cli.io.files import packed_lines
from attn_cli.learn.treebank import MAX_TREEBANK_BYTES, PUNCTUATION, Antecedents, Sentence, read_treebank

MOST_WORDS = 2000
NAME, OTHER = "PROPN", "X"  # the only tags that a passage's own words give
ENDS = (".", "!", "?", "''", "”", '"', "“", "``", "'", "‘", "’", "--", "—", ":", ";")


def is_passages(path: str) -> bool:
    """Tell by its name whether a file holds passages, and not a treebank."""
    return ".jsonl" in path.lower()


def read_passages(path: str) -> list[Sentence]:
    """Return the passages of a file (plain, .gz or .xz); records of the same tokens are one passage.

    A malformed record is an InputError with its line.
    """
    name = visible(path)
    merged: dict[tuple[str, ...], list[Antecedents]] = {}
    read = 0
    for number, raw in enumerate(packed_lines(path), 1):
        read += len(raw)
        if read > MAX_TREEBANK_BYTES:
            raise InputError(
                f"{name} unpacks to more than {MAX_TREEBANK_BYTES >> 20} MB.", "Give a part of it."
            )
        if raw.strip():
            tokens, found = _record(raw, f"{name}, line {number:,}")
            merged.setdefault(tokens, []).append(found)
    if not merged:
        raise InputError(
            f"{name} holds no passage.", "Give a record with tokens, pronoun, antecedents a line."
        )
    return [_passage(tokens, tuple(found)) for tokens, found in merged.items()]


def read_sentences(path: str) -> list[Sentence]:
    """Return the sentences of a treebank, or the passages of a file whose name says .jsonl."""
    return read_passages(path) if is_passages(path) else read_treebank(path)


def _record(raw: bytes, where: str) -> tuple[tuple[str, ...], Antecedents]:
    """Return the tokens of a record, and its pronoun with what it stands for."""
    try:
        record = json.loads(raw)
    except (ValueError, RecursionError):
        raise InputError(f"{where}: this is not JSON.") from None
    if not isinstance(record, dict):
        raise InputError(f"{where}: a record is a JSON object.")
    tokens, pronoun = record.get("tokens"), record.get("pronoun")
    if not isinstance(tokens, list) or not all(isinstance(token, str) and token for token in tokens):
        raise InputError(f"{where}: tokens must be a list of words.")
    if not 0 < len(tokens) <= MOST_WORDS:
        raise InputError(f"{where}: {len(tokens):,} tokens, where 1 to {MOST_WORDS:,} are taken.")
    if isinstance(pronoun, bool) or not isinstance(pronoun, int) or not 0 <= pronoun < len(tokens):
        raise InputError(f"{where}: pronoun must be the place of a token, 0 to {len(tokens) - 1}.")
    right = _spans(record.get("antecedents"), len(tokens), f"{where}: antecedents")
    candidates = _spans(record.get("candidates", []), len(tokens), f"{where}: candidates")
    if not right:
        raise InputError(f"{where}: antecedents must hold a span.")
    words = {word for start, end in right for word in range(start, end)} - {pronoun}
    return tuple(tokens), Antecedents(pronoun, tuple(sorted(words)), candidates)


def _spans(value: Any, n: int, what: str) -> tuple[tuple[int, int], ...]:
    spans: list[Any] = value if isinstance(value, list) else [None]
    for span in spans:
        is_pair = isinstance(span, list) and len(span) == 2 and all(type(end) is int for end in span)
        if not is_pair or not 0 <= span[0] < span[1] <= n:
            raise InputError(f"{what} must be pairs [start, end) of places, 0 to {n}.")
    return tuple((start, end) for start, end in spans)


def _passage(tokens: tuple[str, ...], found: tuple[Antecedents, ...]) -> Sentence:
    n = len(tokens)
    return Sentence(tokens, (-1,) * n, ("",) * n, tuple(map(_tag, (".", *tokens), tokens)), found)


def _tag(before: str, token: str) -> str:
    """Return PUNCT for a mark, PROPN for a capitalized word that opens no sentence, X for any other word."""
    if not any(map(str.isalnum, token)):
        return PUNCTUATION
    return NAME if token[0].isupper() and before not in ENDS and token != "I" else OTHER
