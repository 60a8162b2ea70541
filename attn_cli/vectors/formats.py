"""Which format a file of vectors has, by its content; what attn does not read is named, with the way round."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import numpy as np

from attn_cli.errors import InputError
from attn_cli.files import read_bytes
from attn_cli.tensors import is_safetensors, npy_header, read_npz, safetensors_entries
from attn_cli.vectors.binary import LONGEST_HEADER, binary_format
from attn_cli.vectors.lines import read_rows
from attn_cli.vectors.onfile import INDEXED_FROM, FileVectors
from attn_cli.vectors.original import FileRows, Original, exactly, look_at, packing, pieces
from attn_cli.vectors.table import Table, as_bytes, read_table, table_of
from attn_cli.vectors.text import text_format
from attn_cli.visible import visible

if TYPE_CHECKING:
    from attn_cli.arrays import Array
    from attn_cli.vectors.interface import Vectors

ENOUGH = 1 << 18
WORD_LISTS = (".words", ".vocab", ".txt")  # beside a bare matrix: one word a line
PICKLE, TORCH = b"\x80", b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19"
ZIP, NPY = b"PK\x03\x04", b"\x93NUMPY"
# By their first bytes: what it is, and what to do.
REFUSED = {
    b"\xba\x16\x4f\x2f": (
        "a fastText model (.bin)",
        'Convert it: python -c "from gensim.models.fasttext import load_facebook_vectors as f; '
        "f('{path}').save_word2vec_format('vectors.bin', binary=True)\"",
    ),
    b"SQLite format 3\0": (
        "an SQLite database, as Magnitude's files are",
        "Take the vectors that it was made from, or export them from the database as text.",
    ),
    b"GGUF": (
        "a GGUF model",
        "Take its token embeddings out with the gguf package, numpy.save them, and put the words beside.",
    ),
    TORCH: ("a PyTorch file", "TORCH"),
    b"\x89HDF": ("an HDF5 file", "Take the matrix out with h5py, numpy.save it, and put the words beside."),
    b"BZh": ("packed with bzip2", "Unpack it: bunzip2 -k {path}"),
    b"(\xb5/\xfd": ("packed with zstd", "Unpack it: unzstd {path}"),
    b"7z\xbc\xaf": ("a 7z archive", "Unpack it first."),
    b"Rar!": ("a RAR archive", "Unpack it first."),
    b"%PDF": ("a PDF", "Give a file of word vectors."),
    b"\xff\xfe": ("UTF-16 text", "Convert it: iconv -f UTF-16 -t UTF-8 {path}"),
    b"\xfe\xff": ("UTF-16 text", "Convert it: iconv -f UTF-16 -t UTF-8 {path}"),
}
UNTORCH = (
    "Convert it: python -c \"import numpy, torch; numpy.save('vectors.npy', torch.load('{path}', weights_only=True))\""
    ", and put the words, one a line, into vectors.words."
)


def open_file(path: str, name: str | None = None) -> Vectors:
    """Return the vectors in a file; what its first bytes are tells the format, its suffix nothing."""
    original = look_at(path, name)
    with original.opened() as file:
        start = file.read(1 << 16)
    if not start:
        raise InputError(f"{original.name} is empty.", "Type a word and its numbers on each line.")
    _refuse(original, start)
    if is_safetensors(start[:9]):
        return _safetensors(original)
    if start.startswith(NPY):
        return _npy(original)
    if start.startswith(ZIP):
        return _npz(original, start)
    if start.startswith(PICKLE):
        return _pickled(original)
    return _lines(original, packing(start))


def _refuse(original: Original, start: bytes) -> None:
    """Raise InputError for a format that attn recognises and does not read."""
    for magic, (what, hint) in REFUSED.items():
        if start.startswith(magic):
            hint = UNTORCH if hint == "TORCH" else hint
            raise InputError(
                f"{original.name} is {what}: attn does not read that.", hint.replace("{path}", original.name)
            )


def _lines(original: Original, packed: str) -> Vectors:
    """Return what a text or a word2vec binary holds, packed or not."""
    start, is_all = _start(original, packed)
    if _is_binary(start):
        if packed:
            raise InputError(
                f"{original.name} is a packed word2vec binary.",
                f"Unpack it (attn vectors import {original.name}), or: {packed} -dk {original.name}",
            )
        return FileVectors(binary_format(original, start))
    if is_all:
        words, matrix, claimed = read_rows(start, original.name)
        kind = "text" if claimed is None else "word2vec text"
        return table_of(original.name, words, matrix, {"format": kind + (f", {packed}" if packed else "")})
    return FileVectors(text_format(original, packed, start))


def _start(original: Original, packed: str) -> tuple[bytes, bool]:
    """Return enough of an unpacked file to know its format by, and whether that is all of it."""
    with original.opened() as file:
        if not packed and original.size >= INDEXED_FROM:
            start = exactly(file, 0, ENOUGH, original.name)
            if start.count(b"\n") > 1:
                return start, False
        start = b""
        for piece in pieces(file, packed, original.name):
            start += piece
            if len(start) >= INDEXED_FROM:
                return start, False
    return start, True


def _is_binary(start: bytes) -> bool:
    """Tell whether a header line is followed by records, and not by lines that can be read."""
    line, newline, rest = start.partition(b"\n")
    if not newline or len(line) > LONGEST_HEADER or len(line.split()) != 2:
        return False
    fields = line.split()
    dim = int(fields[1]) if fields[1].isdigit() and len(fields[1]) < 7 else 1
    first = rest.partition(b"\n")[0].split()[-dim:] if dim else []
    if len(first) == dim and all(_is_numeric(field) for field in first):
        return False
    head = rest[:4096]
    try:
        head.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.start < 4093 or error.reason != "unexpected end of data":  # else a letter is cut in two
            return True
    return any(byte < 9 or 13 < byte < 32 for byte in head)


def _is_numeric(field: bytes) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def _safetensors(original: Original) -> Table:
    with original.opened() as file:
        entries, _ = safetensors_entries(file, original.name)
    matrices = [key for key, entry in entries.items() if len(entry.shape) == 2]
    if "words" in entries or len(matrices) != 1 or _word_list(original) is None:
        return read_table(original.path, original.name)
    entry = entries[matrices[0]]
    rows = FileRows(original, entry.offset, entry.dtype, (entry.shape[0], entry.shape[1]))
    return table_of(original.name, _words_beside(original), rows, {"format": "safetensors"})


def _npy(original: Original) -> Table:
    return table_of(original.name, _words_beside(original), npy_rows(original), {"format": "npy"})


def npy_rows(original: Original) -> FileRows | Array:
    """Return the matrix of a .npy file, its rows unread; one in columns is read whole."""
    with original.opened() as file:
        shape, is_fortran, dtype = npy_header(file, original.size, original.name)
        offset = file.tell()
        if len(shape) != 2 or not 0 < min(shape) <= max(shape) <= original.size:
            raise InputError(f"{original.name} holds an array of shape {shape}, not a row for each word.")
        if offset + shape[0] * shape[1] * dtype.itemsize > original.size:
            raise InputError(f"{original.name} is cut off: its header claims the shape {shape}.")
        if is_fortran:
            data = exactly(file, offset, original.size - offset, original.name)
            return np.frombuffer(data, dtype, shape[0] * shape[1]).reshape(shape, order="F")
    return FileRows(original, offset, dtype, (shape[0], shape[1]))


def _npz(original: Original, start: bytes) -> Table:
    if b"data.pkl" in start[:4096] or b"/byteorder" in start[:4096]:
        raise InputError(
            f"{original.name} is a PyTorch file: attn does not read that.",
            UNTORCH.replace("{path}", original.name),
        )
    if b".npy" not in start[:4096]:
        raise InputError(f"{original.name} is a ZIP archive.", f"Unpack it: unzip {original.name}")
    arrays = read_npz(original.path)
    matrices = [key for key, array in arrays.items() if array.ndim == 2 and array.dtype.kind == "f"]
    lists = [key for key, array in arrays.items() if array.ndim == 1 and array.dtype.kind in "US"]
    if len(matrices) != 1 or len(lists) > 1:
        raise InputError(
            f"{original.name} holds {len(matrices)} matrices and {len(lists)} lists of words; one of each is wanted.",
            "Save it as numpy.savez('vectors.npz', words=words, vectors=matrix).",
        )
    words = _word_array(arrays[lists[0]], original.name) if lists else _words_beside(original)
    return table_of(original.name, words, arrays[matrices[0]], {"format": "npz"})


def _word_array(array: Array, name: str) -> list[bytes]:
    """Return the words of an array of text, or of bytes."""
    if array.dtype.kind == "U" and array.size and array.dtype.itemsize:
        codes = np.frombuffer(array.tobytes(), np.dtype("u4").newbyteorder(array.dtype.byteorder))
        if codes.max() > sys.maxunicode:  # NumPy does not look, and makes text that is none
            raise InputError(f"{name}: its list of words holds what is no text.")
    return [as_bytes(word) if isinstance(word, str) else bytes(word) for word in array.tolist()]


def _pickled(original: Original) -> Table:
    from attn_cli.vectors.pickled import read_pickled  # only gensim's own files need it

    found = read_pickled(original.path)
    about = {"format": "gensim", **found.about}
    matrix: Array | FileRows | None = found.matrix
    if found.matrix_path is not None:
        matrix = npy_rows(look_at(found.matrix_path))
    if matrix is None:
        raise InputError(f"{original.name} holds no vectors.")
    return table_of(original.name, found.words, matrix, about)


def _word_list(original: Original) -> str | None:
    """Return the path of the list of words beside a bare matrix, if there is one."""
    stem = os.path.splitext(original.path)[0]
    return next((stem + suffix for suffix in WORD_LISTS if os.path.isfile(stem + suffix)), None)


def _words_beside(original: Original) -> list[bytes]:
    path = _word_list(original)
    if path is None:
        stem = visible(os.path.splitext(os.path.basename(original.path))[0])
        raise InputError(
            f"{original.name} holds numbers, and no words.",
            f"Put the words beside it, one a line in the order of the rows, in {stem}.words.",
        )
    return read_bytes(path).replace(b"\r\n", b"\n").removesuffix(b"\n").split(b"\n")
