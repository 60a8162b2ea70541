"""From tokens to X: each token's vector, and what is done about a token that has none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol
from unicodedata import normalize
from zlib import crc32

import numpy as np

from attn_cli.errors import InputError, UsageError
from attn_cli.files import first_bytes, looks_like_file
from attn_cli.tensors import is_safetensors
from attn_cli.vectors.table import BUNDLED, Table, bundled, read_table
from attn_cli.vectors.text import read_text
from attn_cli.visible import visible

if TYPE_CHECKING:
    from attn_cli.arrays import Array


class Embedded(NamedTuple):
    """X (kept tokens, d), which tokens were kept, and the distinct tokens without a vector."""

    X: Array
    kept: tuple[int, ...]
    unknown: tuple[str, ...]


def open_table(embedding: str, others: str = "") -> Table:
    """Return the bundled table, or the one in a file; its content tells the format.

    `others` are further names that the caller takes, for help with a mistake.
    """
    if embedding == BUNDLED:
        return bundled()
    if not looks_like_file(embedding):
        raise UsageError(
            f"There are no vectors {visible(embedding)!r} (-e).",
            f"Choose word2vec, {others}or a file (with a slash or a suffix such as .txt).",
            "--embedding",
        )
    if is_safetensors(first_bytes(embedding)):
        return read_table(embedding)
    return read_text(embedding)


def random_vector(token: str, dim: int, seed: int) -> Array:
    """Return a normal random vector (dim,) that depends on the seed and the token as written, alone."""
    return np.random.default_rng([seed, crc32(token.encode("utf-8", "surrogatepass"))]).standard_normal(dim)


def random_vectors(tokens: Sequence[str], dim: int, seed: int) -> Embedded:
    """Return a random vector for each token."""
    drawn = {token: random_vector(token, dim, seed) for token in tokens}
    return Embedded(np.array([drawn[token] for token in tokens]), tuple(range(len(tokens))), ())


class Start(Protocol):
    """What a learned model adds to a word's vector for its spelling: to all words', or to unknown ones' only."""

    @property
    def always(self) -> bool:
        """Whether known words get it too."""

    def of(self, word: str) -> Array:
        """Return what is added, (d,)."""


def embed(tokens: Sequence[str], table: Table, oov: str, seed: int, start: Start | None = None) -> Embedded:
    """Return the tokens' vectors; `oov` says what becomes of a token that has none.

    A token is looked up as written, then lower-cased, then with a straight apostrophe and composed
    accents. `zero` gives it zeros, `random` a random vector (of the table's one length, if it has one),
    `skip` leaves it out, `error` refuses it; `model` gives it what the learned model starts it with.
    """
    distinct = list(dict.fromkeys(tokens))
    known = {token: found[1] for token in distinct if (found := look_up(token, table)) is not None}
    if start is not None and start.always:
        known = {token: vector + start.of(token) for token, vector in known.items()}
    unknown = tuple(token for token in distinct if token not in known)
    if unknown and oov == "error":
        raise InputError(
            f"No vector in {table.name} for {', '.join(map(repr, map(visible, unknown[:10])))}.",
            "Choose --oov zero, random or skip to go on without.",
        )
    for token in unknown:
        own = oov == "model" and start is not None
        known[token] = start.of(token) if own and start else _stand_in(token, table, oov, seed)
    kept = [i for i, token in enumerate(tokens) if oov != "skip" or token not in unknown]
    X = np.array([known[tokens[i]] for i in kept]).reshape(len(kept), table.dim)
    return Embedded(X, tuple(kept), unknown)


def look_up(token: str, table: Table) -> tuple[str, Array] | None:
    """Return the form under which the table has the token, and its vector (dim,); None if it has none."""
    lower = token.lower()
    forms = list(dict.fromkeys((token, lower, normalize("NFC", lower).replace("’", "'"))))
    found = table.find(forms)
    return next(((form, found[form]) for form in forms if form in found), None)


def _stand_in(token: str, table: Table, oov: str, seed: int) -> Array:
    if oov != "random":
        return np.zeros(table.dim)
    vector = random_vector(token, table.dim, seed)
    return vector if table.length is None else vector * table.length / np.linalg.norm(vector)
