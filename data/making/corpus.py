"""Running text to learn from: each line's tokens, as they stand or as rows of the word vectors, some lines held back.

Text files have a line for each sentence; treebanks (CoNLL-U) give the words of their sentences, and passages (.jsonl)
several sentences that follow each other. Texts are streamed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from attn_cli.io.files import packed_lines
from attn_cli.learn.treebank import is_passages, read_passages, read_treebank
from attn_cli.text.tokenize import tokenize
from attn_cli.vectors.spelling import forms

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from attn_cli.vectors import VectorTable

HELD_BACK = 1000  # of each file, every so many lines one is not learned from
UNKNOWN = -1
STRAIGHT = str.maketrans("“”", '""')  # quotes as running text has them


def lines(path: str, held_back: bool = False) -> Iterator[tuple[str, ...]]:
    """Yield the tokens of each line that is learned from, or of those held back; marks are kept, empty lines not.

    The file is plain, .gz or .xz; of a treebank (.conllu) each sentence counts as a line.
    """
    yield from (tokens for tokens, is_held_back in marked_lines(path) if is_held_back == held_back)


def marked_lines(path: str) -> Iterator[tuple[tuple[str, ...], bool]]:
    """Yield the tokens of each line that has any, and whether the line is held back."""
    for number, tokens in enumerate(_tokens(path), 1):
        if tokens:
            yield tokens, number % HELD_BACK == 0


def _tokens(path: str) -> Iterator[tuple[str, ...]]:
    if ".conllu" in path.lower():
        yield from (sentence.words for sentence in read_treebank(path))
    elif is_passages(path):
        yield from (
            tuple(word.translate(STRAIGHT) for word in passage.words) for passage in read_passages(path)
        )
    else:
        for line in packed_lines(path):
            yield tokenize(line.decode("utf-8", "replace"), keep_punctuation=True).tokens


class WordRows:
    """Tokens to rows of a table of vectors, found as a lookup finds them: as written, then lower-cased."""

    def __init__(self, table: VectorTable) -> None:
        self.rows = {word.decode("utf-8", "replace"): row for word, row in table.word_rows().items()}
        self.known: dict[str, int] = {}

    def row(self, token: str) -> int:
        """Return the row of a token's vector, or UNKNOWN."""
        found = self.known.get(token)
        if found is None:
            rows = (self.rows[form] for form in forms(token) if form in self.rows)
            found = self.known[token] = next(rows, UNKNOWN)
        return found

    def of(self, tokens: Sequence[str]) -> NDArray[np.int32]:
        """Return the rows of these tokens, (n,)."""
        return np.array([self.row(token) for token in tokens], dtype=np.int32)


def sentences(paths: Sequence[str], words: WordRows, held_back: bool = False) -> Iterator[NDArray[np.int32]]:
    """Yield each line of these files as rows of the word vectors, in order."""
    for path in paths:
        for tokens in lines(path, held_back):
            yield words.of(tokens)
