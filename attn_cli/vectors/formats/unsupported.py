"""Formats that attn recognises by their first bytes but does not read, each with a way to convert it."""

from __future__ import annotations

import re
from typing import NamedTuple

from attn_cli.errors import InputError
from attn_cli.io.escape import visible
from attn_cli.vectors.store.source_file import SourceFile


class Foreign(NamedTuple):
    """A format: how it starts, what it is called, and the way round; {path} stands for the file."""

    start: bytes  # a regular expression
    name: str
    hint: str


WORDS_BESIDE = "and put the words, one a line, into vectors.words."
UNTORCH = (
    "Convert it: python -c \"import numpy, torch; numpy.save('vectors.npy', torch.load({path}, "
    f"weights_only=True)['NAME'].numpy())\" with the NAME of its embedding, {WORDS_BESIDE}"
)
FOREIGN = (
    Foreign(
        rb"\xba\x16\x4f\x2f",
        "a fastText model (.bin)",
        'Convert it: python -c "from gensim.models.fasttext import load_facebook_vectors as f; '
        "f({path}).save_word2vec_format('vectors.bin', binary=True)\"",
    ),
    Foreign(
        rb"SQLite format 3\0",
        "an SQLite database, as Magnitude's files are",
        "Take the vectors that it was made from, or write its rows out as text: a word and its numbers a line.",
    ),
    Foreign(
        rb"GGUF.\0\0\0",
        "a GGUF model",
        f"Take its token embeddings out with the gguf package, numpy.save them as vectors.npy, {WORDS_BESIDE}",
    ),
    Foreign(rb"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19", "a PyTorch file", UNTORCH),
    Foreign(rb"PK\x03\x04.{26}[^\0]*(?:data\.pkl|byteorder)", "a PyTorch file", UNTORCH),
    Foreign(
        rb"\x89HDF\r\n",
        "an HDF5 file",
        f"Take the matrix out with h5py, numpy.save it as vectors.npy, {WORDS_BESIDE}",
    ),
    Foreign(rb"BZh[1-9]1AY&SY", "packed with bzip2", "Unpack it: bunzip2 -k {path}"),
    Foreign(rb"(?:\x28\xb5\x2f\xfd)", "packed with zstd", "Unpack it: unzstd {path}"),
    Foreign(rb"7z\xbc\xaf\x27\x1c", "a 7z archive", "Unpack it first."),
    Foreign(rb"Rar!\x1a\x07", "a RAR archive", "Unpack it first."),
    Foreign(rb".{257}ustar", "a tar archive", "Unpack it: tar -xf {path}"),
    Foreign(rb"\xff\xfe|\xfe\xff", "UTF-16 text", "Convert it: iconv -f UTF-16 -t UTF-8 {path}"),
)


def refuse_foreign(source: SourceFile, start: bytes) -> None:
    """Raise InputError for a format that attn recognises and does not read."""
    for foreign in FOREIGN:
        if re.match(foreign.start, start, re.DOTALL):
            # Inside Python that stands inside the shell's quotes, or for the shell itself.
            path = visible(repr(source.path)) if '"' in foreign.hint else source.quoted()
            raise InputError(
                f"{source.name} is {foreign.name}: attn does not read that.",
                foreign.hint.replace("{path}", path),
            )
