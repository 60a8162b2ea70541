"""Treebanks in CoNLL-U: the words of each sentence, and which word governs which (Universal Dependencies)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from attn_cli.errors import InputError
from attn_cli.io.escape import visible
from attn_cli.io.files import packed_lines

PUNCTUATION = "PUNCT"
COLUMNS = 10
MOST_WORDS = 1000
MAX_TREEBANK_BYTES = 1 << 29  # bytes, unpacked: forty times the training part of UD_English-EWT


class Antecedents(NamedTuple):
    """A pronoun, the places of all words of what it stands for, and names (half-open spans) that compete for it."""

    pronoun: int
    words: tuple[int, ...]
    candidates: tuple[tuple[int, int], ...] = ()


class Sentence(NamedTuple):
    """A sentence: its words, the place of each word's governor (-1 for the root), and its relation to it.

    A passage has `antecedents` instead: of some of its pronouns, what they stand for. Who governs whom is not known.
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

        return Sentence(
            tuple(self.words[i] for i in kept),
            tuple(governor(i) for i in kept),
            tuple(self.relations[i] for i in kept),
            tuple(self.tags[i] for i in kept),
            None if self.antecedents is None else _moved(self.antecedents, place),
        )


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
    name = visible(path)
    rows: list[tuple[int, list[str]]] = []
    sentences, read = [], 0
    for number, raw in enumerate(packed_lines(path), 1):
        read += len(raw)
        if read > MAX_TREEBANK_BYTES:
            raise InputError(
                f"{name} unpacks to more than {MAX_TREEBANK_BYTES >> 20} MB.", "Give a part of it."
            )
        data = raw.removeprefix(b"\xef\xbb\xbf") if number == 1 else raw
        line = data.decode("utf-8", "replace").rstrip("\r\n")
        if not line.strip():
            if rows:
                sentences.append(_sentence(rows, name))
            rows = []
        elif not line.startswith("#") and (row := _row(line, len(rows) + 1, f"{name}, line {number:,}")):
            rows.append((number, row))
    if rows:
        sentences.append(_sentence(rows, name))
    if not sentences:
        raise InputError(f"{name} holds no sentence.", "Give a treebank in CoNLL-U.")
    return sentences


def _row(line: str, due: int, where: str) -> list[str] | None:
    """Return the columns of a word's row; None for a multiword row (3-4) or an empty one (5.1)."""
    row = line.split("\t")
    if len(row) != COLUMNS:
        raise InputError(
            f"{where}: {len(row)} columns where CoNLL-U has {COLUMNS}.",
            "Give a treebank in CoNLL-U, its columns between tabs.",
        )
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
            raise InputError(
                f"{name}, line {number:,}: {visible(head[:20])!r} is not a governor of word {i}."
            )
        governors.append(int(head) - 1)
    columns = list(zip(*(row for _, row in rows), strict=True))
    return Sentence(columns[1], tuple(governors), columns[7], columns[3])
