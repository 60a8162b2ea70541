"""What heads are taught and scored on: treebanks in CoNLL-U (Universal Dependencies), and passages.

Passages, JSON Lines, mark pronouns, one a record of `tokens`; `pronoun`, its place; `antecedents`, half-open spans of
mentions of the same person or thing; and, where two names compete, both spans as `candidates`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any, NamedTuple

from attn_cli.errors import InputError, refuse_input, visible
from attn_cli.io.files import packed_lines

PUNCTUATION = "PUNCT"
COLUMNS = 10
MOST_WORDS, MOST_TOKENS = 1000, 2000  # of a sentence, and of a passage
MAX_TREEBANK_BYTES = 1 << 29  # bytes, unpacked: forty times the training part of UD_English-EWT
NAME, OTHER = "PROPN", "X"  # the only tags that a passage's own words give
ENDS = (".", "!", "?", "''", "”", '"', "“", "``", "'", "‘", "’", "--", "—", ":", ";")


class Antecedents(NamedTuple):
    """A pronoun, the places of all words of what it stands for, and names (half-open spans) that compete for it."""

    pronoun: int
    words: tuple[int, ...]
    candidates: tuple[tuple[int, int], ...] = ()


class Sentence(NamedTuple):
    """A sentence: its words, the place of each word's governor (-1 for the root), and its relation to it.

    A passage has `antecedents` instead: what some of its pronouns stand for; who governs whom is not known.
    """

    words: tuple[str, ...]
    governors: tuple[int, ...]
    relations: tuple[str, ...]
    tags: tuple[str, ...]
    antecedents: tuple[Antecedents, ...] | None = None

    @property
    def is_parsed(self) -> bool:
        """Whether it is known who governs whom."""
        return self.antecedents is None

    def without_punctuation(self) -> Sentence:
        """Return the sentence without its punctuation; what a mark governs goes to the mark's governor."""
        kept = [i for i, tag in enumerate(self.tags) if tag != PUNCTUATION]
        place = {i: n for n, i in enumerate(kept)}

        def governor(i: int) -> int:
            above, steps = self.governors[i], 0
            while above >= 0 and above not in place and steps < len(self.words):
                above, steps = self.governors[above], steps + 1
            return place.get(above, -1)

        columns = self.words, self.relations, self.tags
        words, relations, tags = (tuple(column[i] for i in kept) for column in columns)
        found = None if self.antecedents is None else _moved(self.antecedents, place)
        return Sentence(words, tuple(map(governor, kept)), relations, tags, found)


def _moved(antecedents: tuple[Antecedents, ...], place: Mapping[int, int]) -> tuple[Antecedents, ...]:
    """Return what pronouns stand for, where some words are left out and others have new places."""
    found = []
    for one in antecedents:
        words = tuple(place[word] for word in one.words if word in place)
        spans = [[place[word] for word in range(*span) if word in place] for span in one.candidates]
        if one.pronoun in place and words:
            candidates = tuple((span[0], span[-1] + 1) for span in spans if span)
            found.append(Antecedents(place[one.pronoun], words, candidates))
    return tuple(found)


def read_treebank(path: str) -> list[Sentence]:
    """Return the sentences of a CoNLL-U file (plain, .gz or .xz), basic dependencies only.

    Multiword rows (3-4) and empty ones (5.1) are left out. A malformed row is an InputError with its line.
    """
    name, rows, sentences = visible(path), list[tuple[int, list[str]]](), list[Sentence]()
    for number, raw in chain(_numbered_lines(path), [(0, b"")]):  # an empty line ends a sentence
        data = raw.removeprefix(b"\xef\xbb\xbf") if number == 1 else raw
        line = data.decode("utf-8", "replace").rstrip("\r\n")
        if not line.strip():
            sentences += [_sentence(rows, name)] if rows else []
            rows = []
        elif not line.startswith("#") and (row := _row(line, len(rows) + 1, f"{name}, line {number:,}")):
            rows.append((number, row))
    refuse_input(not sentences, f"{name} holds no sentence.", "Give a treebank in CoNLL-U.")
    return sentences


def _numbered_lines(path: str) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a file, packed or not, numbered from 1; InputError where there is no end of them."""
    read = 0
    for number, raw in enumerate(packed_lines(path), 1):
        read += len(raw)
        if read > MAX_TREEBANK_BYTES:
            most = MAX_TREEBANK_BYTES >> 20
            raise InputError(f"{visible(path)} unpacks to more than {most} MB.", "Give a part of it.")
        yield number, raw


def _row(line: str, due: int, where: str) -> list[str] | None:
    """Return the columns of a word's row; None for a multiword row (3-4) or an empty one (5.1)."""
    row = line.split("\t")
    if len(row) != COLUMNS:
        said = f"{where}: {len(row)} columns where CoNLL-U has {COLUMNS}."
        raise InputError(said, "Give a treebank in CoNLL-U, its columns between tabs.")
    if re.fullmatch(r"[0-9]+[-.][0-9]+", row[0]):
        return None
    if row[0] != str(due):
        raise InputError(f"{where}: word {visible(row[0][:20])!r} where {due} was due.")
    if due > MOST_WORDS:
        raise InputError(f"{where}: a sentence of more than {MOST_WORDS} words.")
    if not row[1]:
        raise InputError(f"{where}: the word is empty.")
    return row


def _sentence(rows: list[tuple[int, list[str]]], name: str) -> Sentence:
    governors = []
    for i, (number, row) in enumerate(rows, 1):
        head = row[6]
        is_place = head.isascii() and head.isdigit() and len(head) < 7 and int(head) <= len(rows)
        if not is_place or int(head) == i:
            said = f"{visible(head[:20])!r} is not a governor of word {i}."
            raise InputError(f"{name}, line {number:,}: {said}")
        governors.append(int(head) - 1)
    columns = list(zip(*(row for _, row in rows), strict=True))
    return Sentence(columns[1], tuple(governors), columns[7], columns[3])


def is_passages(path: str) -> bool:
    """Tell by its name whether a file holds passages, and not a treebank."""
    return ".jsonl" in path.lower()


def read_passages(path: str) -> list[Sentence]:
    """Return the passages of a file (plain, .gz or .xz); records of the same tokens are one passage.

    A malformed record is an InputError with its line.
    """
    name = visible(path)
    merged: dict[tuple[str, ...], list[Antecedents]] = {}
    for number, raw in _numbered_lines(path):
        if raw.strip():
            tokens, found = _record(raw, f"{name}, line {number:,}")
            merged.setdefault(tokens, []).append(found)
    hint = "Give a record with tokens, pronoun, antecedents a line."
    refuse_input(not merged, f"{name} holds no passage.", hint)
    return [_passage(tokens, tuple(every)) for tokens, every in merged.items()]


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
    if not 0 < len(tokens) <= MOST_TOKENS:
        raise InputError(f"{where}: {len(tokens):,} tokens, where 1 to {MOST_TOKENS:,} are taken.")
    if isinstance(pronoun, bool) or not isinstance(pronoun, int) or not 0 <= pronoun < len(tokens):
        raise InputError(f"{where}: pronoun must be the place of a token, 0 to {len(tokens) - 1}.")
    right = _spans(record.get("antecedents"), len(tokens), f"{where}: antecedents")
    candidates = _spans(record.get("candidates", []), len(tokens), f"{where}: candidates")
    refuse_input(not right, f"{where}: antecedents must hold a span.")
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
    """Return a passage; its tags are PUNCT for a mark, PROPN for a capitalized word that opens no sentence, else X."""
    n, tags = len(tokens), list[str]()
    for before, token in zip((".", *tokens), tokens, strict=False):
        is_name = token[0].isupper() and before not in ENDS and token != "I"
        tags.append(PUNCTUATION if not any(map(str.isalnum, token)) else NAME if is_name else OTHER)
    return Sentence(tokens, (-1,) * n, ("",) * n, tuple(tags), found)
