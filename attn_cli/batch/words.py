"""The words of many texts, each looked up once: a table of their vectors that grows with the texts."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np

from attn_cli.errors import AttnError
from attn_cli.settings.declare import size_of
from attn_cli.vectors.lookup import embed, random_vectors

if TYPE_CHECKING:
    from attn_cli.io.array_types import Array
    from attn_cli.pipeline.embed import Shared
    from attn_cli.settings.settings import Settings

MOST_BYTES = 1 << 26  # of vectors; then the table is emptied
FIRST_ROWS = 256
LONGEST = 64  # letters; a text with a longer word is computed by itself


class WordTable:
    """The rows X of the words met so far, as `embed_tokens` makes them, in `matrix`."""

    def __init__(self, settings: Settings, shared: Shared, dim: int) -> None:
        self.settings, self.shared = settings, shared
        self.oov = settings.oov or ("zero" if shared.stack is None else "model")
        self.longest = min(LONGEST, (size_of(settings.max_word) or 0) // 4)
        self.most = max(FIRST_ROWS, MOST_BYTES // (8 * dim))
        self.matrix: Array = np.empty((FIRST_ROWS, dim))
        self.places: dict[str, int] = {}  # of words; -1 where --oov error or skip has to do with one
        self.used = 0  # rows of `matrix`

    def add(self, texts: Sequence[Sequence[str]]) -> None:
        """Look up the words that are new, all at once; where one of them is refused, each text by itself.

        If there are too many, all others are forgotten first: their rows no longer hold.
        """
        if len(self.places) > self.most:
            self.places.clear()
            self.used = 0
        new = {token for tokens in texts for token in tokens if token not in self.places}
        try:
            self._add(sorted(new))
        except AttnError:
            for tokens in texts:
                with suppress(AttnError):  # said when the text is computed by itself
                    self._add([token for token in dict.fromkeys(tokens) if token not in self.places])

    def rows(self, tokens: Sequence[str]) -> list[int] | None:
        """Return each token's row in `matrix`; None where the text must be computed by itself.

        That is where a token is long, or where --oov error or skip has to do with it.
        """
        found = [self.places.get(token, -1) for token in tokens]
        return None if -1 in found else found

    def _add(self, words: Sequence[str]) -> None:
        """Look up words, and hold them unless they are long."""
        new = [word for word in words if len(word) <= self.longest]
        if not new:
            return
        X, unknown = self._embedded(new)
        if self.oov in ("error", "skip"):
            self.places |= dict.fromkeys(unknown, -1)
            new = [token for token in new if token not in unknown]
        start, self.used = self.used, self.used + len(new)
        while self.used > len(self.matrix):
            self.matrix = np.concatenate([self.matrix, np.empty_like(self.matrix)])
        self.matrix[start : self.used] = X
        self.places |= {token: start + n for n, token in enumerate(new)}

    def _embedded(self, words: list[str]) -> tuple[Array, tuple[str, ...]]:
        """Return the vectors of words, those that are left out excepted, and the words without one."""
        settings, stack, table = self.settings, self.shared.stack, self.shared.table
        if settings.embedding == "random":
            return random_vectors(words, self.matrix.shape[1], settings.seed).X, ()
        assert table is not None  # open_shared has opened it
        oov = "skip" if self.oov == "error" else self.oov
        found = embed(words, table, oov, settings.seed, None if stack is None else stack.spelling)
        return found.X, found.unknown
