"""From tokens to X, missing vectors replaced as --oov says; and back: the words nearest to a vector, by cosine."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TypeAlias
from zlib import crc32

import numpy as np

from attn_cli.errors import InputError, UsageError, did_you_mean, visible
from attn_cli.io.files import looks_like_file
from attn_cli.io.types import Array, NamedTuple, OnPart, no_report
from attn_cli.vectors import BUNDLED, Rows, Vectors, as_bytes, as_text, bundled, require_finite
from attn_cli.vectors.spelling import (
    SpellingFeatures,
    closest,
    did_you_mean as words_meant,
    forms,
    guess,
    guessable,
)

Near: TypeAlias = "list[tuple[str, float]]"  # words and their cosines
Found: TypeAlias = "tuple[str, Array]"


class Embedded(NamedTuple):
    """X (kept tokens, d), which tokens were kept, the distinct tokens without a vector, and stand-ins for some."""

    X: Array
    kept: tuple[int, ...]
    unknown: tuple[str, ...]
    replaced: dict[str, str]


def open_table(embedding: str, others: str = "") -> Vectors:
    """Return the bundled vectors, or those in a file or under a name; an error's hint names `others`, too."""
    if embedding == BUNDLED:
        return bundled()
    # Only those who give vectors of their own pay for it.
    from attn_cli.vectors.detect import open_file

    path = path_for(embedding, others)
    return open_file(path, None if path == embedding else visible(embedding))


def path_for(embedding: str, others: str = "") -> str:
    """Return the file that is meant: one with a slash or a known suffix, one under a name, or one that is there."""
    if looks_like_file(embedding):
        return embedding
    from attn_cli.vectors.names import all_names, path_of

    named = path_of(embedding)
    if named is not None or os.path.exists(embedding):
        return named or embedding
    near = did_you_mean(embedding, [BUNDLED, *all_names()])
    said = f"There are no vectors {visible(embedding)!r}{' (-e)' if others else ''}."
    hint = f"{near}Choose word2vec, {others}a file, or a name that attn vectors list shows."
    raise UsageError(said, hint, "--embedding")


def random_vector(token: str, dim: int, seed: int) -> Array:
    """Return a normal random vector (dim,) that depends on the seed and the token as written, alone."""
    return np.random.default_rng([seed, crc32(token.encode("utf-8", "surrogatepass"))]).standard_normal(dim)


def random_vectors(tokens: Sequence[str], dim: int, seed: int) -> Embedded:
    """Return a random vector for each token."""
    drawn = {token: random_vector(token, dim, seed) for token in tokens}
    return Embedded(np.array([drawn[token] for token in tokens]), tuple(range(len(tokens))), (), {})


def embed(
    tokens: Sequence[str],
    table: Vectors,
    oov: str,
    seed: int,
    spelling: SpellingFeatures | None = None,
    report: OnPart = no_report,
) -> Embedded:
    """Return the tokens' vectors; `oov` says what becomes of a token that has none.

    `zero` gives it zeros, `random` a random vector (of the table's one length, if it has one), `skip` leaves it out,
    `error` refuses it, `nearest` gives it that of the word with the closest spelling, `subword` a guess from its parts,
    `model` what the learned model starts it with. What a model adds for spelling, `nearest` and `subword` get too.
    """
    distinct = list(dict.fromkeys(tokens))
    known = {token: vector for token, (_, vector) in look_up_all(distinct, table, report).items()}
    unknown = [token for token in distinct if token not in known]
    replaced: dict[str, str] = {}
    if unknown and oov == "error":
        said = f"No vector in {table.name} for {', '.join(map(repr, map(visible, unknown[:10])))}."
        meant = words_meant(unknown[:10], table, report)
        raise InputError(said, f"{meant}Choose --oov zero, random, nearest or skip to go on.")
    if unknown and oov == "nearest":
        replaced = closest(unknown, table, report)
        found = table.find(replaced.values())
        known |= {one: require_finite(found[used], used, table.name) for one, used in replaced.items()}
        unknown = [token for token in unknown if token not in replaced]
    if unknown and oov == "subword":
        known |= guess(guessable(unknown, table), table)
    if spelling is not None and spelling.always:
        known = {token: vector + spelling.of(replaced.get(token, token)) for token, vector in known.items()}
    own = spelling if oov == "model" else None
    for token in unknown:
        if token not in known:
            known[token] = own.of(token) if own else _stand_in(token, table, oov, seed)
    kept = [i for i, token in enumerate(tokens) if oov != "skip" or token not in unknown]
    X = np.array([known[tokens[i]] for i in kept]).reshape(len(kept), table.dim)
    return Embedded(X, tuple(kept), tuple(unknown), replaced)


def look_up_all(tokens: Sequence[str], table: Vectors, report: OnPart = no_report) -> dict[str, Found]:
    """Return the form that the table has of each token, and its vector (dim,); InputError if that is not finite."""
    wanted = {token: forms(token) for token in tokens}
    found = table.find(dict.fromkeys(form for those in wanted.values() for form in those), report)
    return {
        token: (form, require_finite(found[form], form, table.name))
        for token, those in wanted.items()
        if (form := next((form for form in those if form in found), None)) is not None
    }


def look_up(token: str, table: Vectors) -> Found | None:
    """Return the form under which the table has the token, and its vector (dim,); None if it has none."""
    return look_up_all([token], table).get(token)


def _stand_in(token: str, table: Vectors, oov: str, seed: int) -> Array:
    if oov != "random":
        return np.zeros(table.dim)
    vector = random_vector(token, table.dim, seed)
    return vector if table.length is None else vector * table.length / np.linalg.norm(vector)


def nearest(
    vectors: Vectors, vector: Array, k: int, without: Collection[str] = (), report: OnPart = no_report
) -> Near:
    """Return the k words whose vectors have the largest cosine with `vector` (dim,), largest first.

    Ties go to the word that stands earlier. The words `without` and vectors that hold NaN or infinity are left out.
    """
    left_out = {as_bytes(word) for word in without}
    (found,) = _nearest(vectors.rows(report), vector[np.newaxis], k + len(left_out))
    return [(as_text(word), cosine) for word, cosine in found if word not in left_out][:k]


def analogy(
    vectors: Vectors, words: Sequence[str], found: Sequence[Array], k: int, report: OnPart = no_report
) -> Near:
    """Return the k words that are to the third of `words` as the second is to the first; the three are left out.

    They are nearest to b/|b| - a/|a| + c/|c| (3CosAdd: Mikolov, Yih and Zweig 2013, "Linguistic Regularities in
    Continuous Space Word Representations").
    """
    a, b, c = _units(np.array(found))
    return nearest(vectors, b - a + c, k, words, report)


def nearest_each(
    vectors: Vectors, outputs: Array, k: int, commonest: int, also: Sequence[str] = ()
) -> list[Near]:
    """Return, for each row of `outputs` (n, dim), the k nearest words, nearest first; zeros have no neighbours.

    The `commonest` first words are searched, and those of `also` that have a vector: rare words are often near, and
    mean little to a reader.
    """
    found = _nearest(_some_rows(vectors, commonest, also), outputs, k)
    return [
        [(as_text(word), cosine) for word, cosine in near] if vector.any() else []
        for vector, near in zip(outputs, found, strict=True)
    ]


def _some_rows(vectors: Vectors, count: int, also: Sequence[str]) -> Iterator[Rows]:
    """Yield the first `count` words and their vectors, then those of `also` that are not among them."""
    others = {as_bytes(form): vector for form, vector in look_up_all(also, vectors).values()}
    for words, matrix in vectors.rows():
        some = Rows(words[:count], matrix[:count])
        yield some
        for word in others.keys() & some.words:
            del others[word]
        count -= len(some.words)
        if not count:
            break
    if others:
        yield Rows([*others], np.array([*others.values()], dtype=matrix.dtype))


# Candidates are chosen in single precision, whose error is far smaller, and then computed in full.
MARGIN = 1e-4


def _nearest(blocks: Iterable[Rows], vectors: Array, k: int) -> list[list[tuple[bytes, float]]]:
    """Return, for each of the vectors (n, dim), the k words of `blocks` with the largest cosine, largest first."""
    units, before = _units(vectors), 0
    best: list[list[tuple[float, int, bytes]]] = [[] for _ in units]
    for words, matrix in blocks:
        rough = _rough(matrix, units)
        of_vector, few = np.nonzero(rough >= _least(rough, best, k))
        exact = np.einsum("ij,ij->i", _units(matrix[few].astype(np.float64)), units[of_vector])
        cosines = np.clip(exact, -1, 1).tolist()
        for n, i, cosine in zip(of_vector.tolist(), few.tolist(), cosines, strict=True):
            best[n].append((-cosine, before + i, words[i]))
        best = [sorted(near)[:k] for near in best]
        before += len(words)
    return [[(word, -minus) for minus, _, word in near] for near in best]


def _least(rough: Array, best: list[list[tuple[float, int, bytes]]], k: int) -> Array:
    """Return, for each row of rough cosines, below which of them a word cannot be among the k best: (rows, 1)."""
    least = np.array([[-near[-1][0] - MARGIN if len(near) == k else -2.0] for near in best])
    if rough.shape[1] <= k:
        return least
    np.copyto(rough, -3.0, where=np.isnan(rough))
    here: Array = np.maximum(least, np.partition(rough, -k, axis=1)[:, -k, np.newaxis] - MARGIN)
    return here


def _rough(matrix: Array, units: Array) -> Array:
    """Return the cosines (n, words) in single precision; NaN where a vector holds NaN or infinity."""
    rows = matrix.astype(np.float32) if matrix.dtype == np.float16 else matrix
    with np.errstate(all="ignore"):
        lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))
        cosines: Array = (units.astype(rows.dtype) @ rows.T) / lengths
        odd = np.flatnonzero(~((lengths > 1e-15) & (lengths < 6e4)))  # zeros, tiny, huge or not finite
        if len(odd):
            cosines[:, odd] = units @ _units(matrix[odd].astype(np.float64)).T
            cosines[:, odd[~np.isfinite(matrix[odd]).all(axis=1)]] = np.nan
    return cosines


def _units(rows: Array) -> Array:
    """Return the rows at length one (zeros stay zeros), however large or small their numbers are."""
    largest = np.abs(rows).max(axis=1, keepdims=True)
    rows = rows / np.where(largest == 0, 1, largest)
    lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))[:, np.newaxis]
    return rows / np.where(lengths == 0, 1, lengths)
