"""Word vectors written for other programs: word2vec's text and binary, which gensim reads, and attn's own table."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from attn_cli.errors import InputError, UsageError, did_you_mean, visible
from attn_cli.io.atomic import creatable, written
from attn_cli.io.types import OnPart, no_report
from attn_cli.vectors.table import Rows, Vectors, as_text, kept_about, write_table

TEXT = (".txt", ".vec")
SUFFIXES = (*TEXT, ".bin", ".safetensors")


def export(
    vectors: Vectors, output: str, most: int | None = None, report: OnPart = no_report
) -> tuple[int, int]:
    """Write the vectors (the first `most` words, or all), all or nothing, as float32; return its words and bytes.

    The suffix is the format: .txt and .vec are word2vec's text, .bin its binary, .safetensors a table that attn opens
    quickest. InputError for a word with a space in text or binary, where it would be read back as two.
    """
    suffix = Path(output).suffix.lower()
    if suffix not in SUFFIXES:
        said = f"Vectors are not written as {visible(Path(output).name)!r}."
        raise UsageError(said, f"{did_you_mean(suffix, SUFFIXES)}Use {', '.join(SUFFIXES)}.", "--output")
    creatable(output)
    count = vectors.n_words if most is None else min(most, vectors.n_words)
    parts = _first(vectors, count, report)
    with written(output) as stream:
        if suffix == ".safetensors":
            words, matrices = zip(*parts, strict=True)
            matrix, about = np.concatenate(matrices), kept_about(vectors.about)
            write_table(stream, [*itertools.chain(*words)], matrix, about, vectors.ngrams)
        else:
            stream.write(b"%d %d\n" % (count, vectors.dim))
            for rows in parts:
                for word in rows.words:
                    if word.translate(None, b" \t\n\r\x0b\x0c") != word:
                        said = f"{vectors.name}: the word {visible(as_text(word))!r} holds a space"
                        hint = "Export to .safetensors, which keeps it."
                        raise InputError(f"{said}, and would be read back as something else.", hint)
                if suffix in TEXT:  # each number the shortest that is read back as the same float32
                    numbers = [" ".join(row).encode() + b"\n" for row in rows.matrix.astype("U").tolist()]
                else:
                    numbers = [row.tobytes() for row in rows.matrix.astype("<f4")]
                stream.write(b"".join(b"%b %b" % pair for pair in zip(rows.words, numbers, strict=True)))
        size = stream.tell()
    return count, size


def _first(vectors: Vectors, count: int, report: OnPart) -> Iterator[Rows]:
    """Yield the first `count` words and their vectors as float32, which all must hold."""
    for words, matrix in vectors.rows(report):
        kept = min(count, len(words))
        with np.errstate(over="ignore"):
            numbers = matrix[:kept].astype(np.float32)
        for row in np.flatnonzero(~np.isfinite(numbers).all(axis=1)).tolist():
            what = "is too large for float32" if np.isfinite(matrix[row]).all() else "holds NaN or infinity"
            word = visible(as_text(words[row]))
            raise InputError(f"{vectors.name}: the vector of {word!r} {what}.", "Replace or remove its row.")
        yield Rows(words[:kept], numbers)
        count -= kept
        if not count:
            return
