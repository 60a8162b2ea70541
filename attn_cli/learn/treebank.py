"""Treebanks in CoNLL-U: each sentence's words, and which word governs which (Universal Dependencies)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from attn_cli.errors import InputError
from attn_cli.files import packed_lines
from attn_cli.visible import visible

COLUMNS = 10
MOST_WORDS = 1000


class Sentence(NamedTuple):
    """A sentence: its words, the place of each word's governor (-1 for the root), and its relation to it."""

    words: tuple[str, ...]
    governors: tuple[int, ...]
    relations: tuple[str, ...]
    tags: tuple[str, ...]

    def without_punctuation(self) -> Sentence:
        """Return the sentence without its punctuation; what a mark governs goes to the mark's governor."""
        kept = [i for i, tag in enumerate(self.tags) if tag != PUNCTUATION]
        place = {i: n for n, i in enumerate(kept)}

        def governor(i: int) -> int:
            above = self.governors[i]
            seen = 0
            while above >= 0 and above not in place and seen < len(self.words):
                above, seen = self.governors[above], seen + 1
            return place.get(above, -1)

        return Sentence(
            tuple(self.words[i] for i in kept),
            tuple(governor(i) for i in kept),
            tuple(self.relations[i] for i in kept),
            tuple(self.tags[i] for i in kept),
        )


PUNCTUATION = "PUNCT"


def read_treebank(path: str) -> list[Sentence]:
    """Return the sentences of a CoNLL-U file (plain, .gz or .xz), basic dependencies only.

    Multiword rows (3-4) and empty ones (5.1) are left out. A malformed row is an InputError with its line.
    """
    return list(_sentences(path))


def _sentences(path: str) -> Iterator[Sentence]:
    name = visible(path)
    rows: list[list[str]] = []
    found = False
    for number, raw in enumerate(packed_lines(path), 1):
        line = raw.decode("utf-8", "replace").rstrip("\r\n")
        if not line.strip():
            if rows:
                found = True
                yield _sentence(rows, f"{name}, the sentence that ends at line {number - 1:,}")
            rows = []
        elif not line.startswith("#"):
            row = line.split("\t")
            if len(row) != COLUMNS:
                raise InputError(
                    f"{name}, line {number:,}: {len(row)} columns where CoNLL-U has {COLUMNS}.",
                    "Give a treebank in CoNLL-U, its columns between tabs.",
                )
            if not ("-" in row[0] or "." in row[0]):
                if row[0] != str(len(rows) + 1):
                    raise InputError(
                        f"{name}, line {number:,}: word {visible(row[0][:20])} where {len(rows) + 1} was due."
                    )
                if not row[1]:
                    raise InputError(f"{name}, line {number:,}: the word is empty.")
                rows.append(row)
                if len(rows) > MOST_WORDS:
                    raise InputError(f"{name}, line {number:,}: a sentence of more than {MOST_WORDS} words.")
    if rows:
        found = True
        yield _sentence(rows, f"{name}, the last sentence")
    if not found:
        raise InputError(f"{name} holds no sentence.", "Give a treebank in CoNLL-U.")


def _sentence(rows: list[list[str]], where: str) -> Sentence:
    governors = []
    for number, row in enumerate(rows, 1):
        head = row[6]
        if not (head.isascii() and head.isdigit() and int(head) <= len(rows)) or int(head) == number:
            raise InputError(f"{where}: the governor of word {number} is {visible(head[:20])!r}.")
        governors.append(int(head) - 1)
    return Sentence(
        tuple(row[1] for row in rows),
        tuple(governors),
        tuple(row[7] for row in rows),
        tuple(row[3] for row in rows),
    )
