"""The index that is kept in the cache, damaged: it is seen, or nothing comes of it."""

import itertools
import re
import struct
from random import Random
from typing import NamedTuple
from zlib import crc32

import numpy as np

from attn_cli.errors import AttnError
from attn_cli.vectors import word_index as cache
from attn_cli.vectors.detect import open_file
from attn_cli.vectors.open_vectors import FileVectors, describe
from attn_cli.vectors.word_index import MAGIC, TAIL
from tests.fuzz.cases import Asked, Bench, Broken, check_found, scaled
from tests.fuzz.mutate import digits, edited, mutated
from tests.fuzz.seeds import ABSENT, KNOWN, WORDS, binary, text

PIECE = 96
MANY = (*WORDS, ABSENT)


class Kept(NamedTuple):
    """A sound file, the index that belongs to it and where it is kept, and what the file holds."""

    path: str
    index_path: str
    index: bytes
    vectors: dict[str, np.ndarray]
    words: list[bytes]


def originals(bench: Bench) -> list[Kept]:
    doubled = (*WORDS, "cat", "dog", "cat")
    kinds = {
        "a.txt": text(doubled, 4, True),
        "b.txt": text(WORDS, 2, False),
        "c.bin": binary(doubled, 3, b"\n"),
    }
    return [_kept(bench, name, data) for name, data in kinds.items()]


def _kept(bench: Bench, name: str, data: bytes) -> Kept:
    path = bench.folder / name
    path.write_bytes(data)
    with scaled(PIECE):
        vectors = open_file(str(path))
        assert isinstance(vectors, FileVectors)
        found = vectors.find(MANY)
        encoded = vectors.encoded_index()
        cache.keep_index(vectors.form.source, encoded)
        words = [word for block in vectors.rows() for word in block.words]
        return Kept(str(path), str(cache.index_path(vectors.form.source.path)), encoded, found, words)


def drawn(kepts: list[Kept], seed: int, number: int) -> tuple[Kept, bytes, bool, Asked]:
    """Return a file, a damaged index of it, and whether the index's checksums were made to fit the damage."""
    rng = Random(seed << 40 | number)
    kept = rng.choice(kepts)
    asked = Asked((*KNOWN, ABSENT) if rng.random() < 0.7 else MANY, PIECE, rng.random())
    if rng.random() < 0.5:
        return kept, mutated(kept.index, rng, [other.index for other in kepts]), False, asked
    return kept, forged(kept.index, rng), True, asked


def forged(encoded: bytes, rng: Random) -> bytes:
    """Damage an index, and let all its checksums say that it is sound."""
    entries, repeats, length = TAIL.unpack(encoded[-TAIL.size :])[1:4]
    count = 2 * entries + repeats
    bounds = (0, 8 * entries, 16 * entries, 8 * count)
    parts = [encoded[start:stop] for start, stop in itertools.pairwise(bounds)]
    about = encoded[-TAIL.size - length : -TAIL.size]
    which = rng.randrange(4)
    body = b"".join(_scratched(part, rng) if which == at else part for at, part in enumerate(parts))
    counts = [entries, repeats, len(about)]
    if which == 3 and rng.random() < 0.5:
        about = _lied(about, rng)
    elif which == 3:
        counts[rng.randrange(3)] = rng.choice((0, 1, 11, 13, 2**31, 2**32 - 1))
    sums = [crc32(body[at : at + 32]) for at in range(0, len(body), 32)]
    end = struct.pack(f"={len(sums)}I", *sums) + about + TAIL.pack(MAGIC, *counts, 0)[:-4]
    return body + end + struct.pack("=I", crc32(end))


def _scratched(part: bytes, rng: Random) -> bytes:
    return mutated(part, rng)[: len(part)].ljust(len(part), b"\0")


def _lied(header: bytes, rng: Random) -> bytes:
    if rng.random() < 0.1:
        return rng.choice(_HEADERS)
    if rng.random() < 0.5:
        return edited(header, rng, digits)
    found = rng.choice([*re.finditer(rb"\d+", header)])
    return header[: found.start()] + rng.choice(_LIES) + header[found.end() :]


_LIES = (b"0", b"-1", b"1", b"11", b"13", b"1e400", b"12.5", b"NaN", b"1_2", b"", b"x", b"[]", b"null", b"9" * 5000,
         b"\xd9\xa1", b" 12", b"18446744073709551616", b"-9223372036854775808")  # fmt: skip
_HEADERS = (*b"|[]|null|1|{}|=|entries=1|\xff|\0".split(b"|"), b"[" * 60000, b'{"entries": 1e400}')


def run(kept: Kept, bench: Bench, index: bytes, is_forged: bool, asked: Asked) -> bool:
    """Look words up beside a damaged index; tell whether the index was taken."""
    with open(kept.index_path, "wb") as file:
        file.write(index)
    with scaled(PIECE):
        try:
            vectors = open_file(kept.path)
            assert isinstance(vectors, FileVectors)
            taken = vectors.index is not None
            found = vectors.find(asked.words)
            check_found(found, asked.words, vectors)
            if not is_forged:
                _check_right(kept, found, asked)
            if asked.more < 0.3:
                words = [word for block in vectors.rows() for word in block.words]
                if not is_forged and words != kept.words:
                    raise Broken(f"its rows are {words!r}")
                describe(vectors)
        except AttnError:
            if is_forged:
                return True
            raise Broken("a damaged index makes a sound file unreadable") from None
    return taken


def _check_right(kept: Kept, found: dict[str, np.ndarray], asked: Asked) -> None:
    for word in asked.words:
        right, given = kept.vectors.get(word), found.get(word)
        if (right is None) != (given is None) or not np.array_equal(right, given):
            raise Broken(f"{word!r} is {right!r}; with the damaged index {given!r}")
