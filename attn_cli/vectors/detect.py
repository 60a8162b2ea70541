"""Open a file of vectors: its content tells the format (GloVe, word2vec, fastText, gensim, NumPy, safetensors)."""

from __future__ import annotations

import os
import re
import sys

import numpy as np

from attn_cli.errors import InputError, refuse_input, shell_quote, visible
from attn_cli.io.array_files import Entry, is_safetensors, npz_in, safetensors_entries
from attn_cli.io.files import packing, pieces, read_bytes
from attn_cli.io.types import Array
from attn_cli.vectors import (
    DIRECTIONS,
    NGRAMS,
    SAFETENSORS,
    FileRows,
    NGrams,
    SourceFile,
    Vectors,
    VectorTable,
    as_bytes,
    npy_rows,
    open_vectors,
    read_exactly,
    table_of,
    word2vec,
)

ENOUGH = 1 << 18  # bytes of a large text that tell its layout
TELLING = 1 << 13  # bytes behind a header that tell text from binary: more than the longest word
WORD_LISTS = (".words", ".vocab", ".txt")  # beside a bare matrix: one word a line
PICKLE, PROTOCOLS = b"\x80", (b"\2", b"\3", b"\4", b"\5")
ZIP, NPY = b"PK\x03\x04", b"\x93NUMPY"

WORDS_BESIDE = "and put the words, one a line, into vectors.words."
AS_NPY = f"as vectors.npy, {WORDS_BESIDE}"
UNTORCH = (
    "Convert it: python -c \"import numpy, torch; numpy.save('vectors.npy', torch.load({path}, "
    f"weights_only=True)['NAME'].numpy())\" with the NAME of its embedding, {WORDS_BESIDE}"
)
# Formats that attn does not read: how they start, what they are called, and the way round; {path} is the file.
FOREIGN = (
    (
        rb"\xba\x16\x4f\x2f",
        "a fastText model (.bin)",
        'Convert it: python -c "from gensim.models.fasttext import load_facebook_vectors as f; '
        "f({path}).save_word2vec_format('vectors.bin', binary=True)\"",
    ),
    (
        rb"SQLite format 3\0",
        "an SQLite database, as Magnitude's files are",
        "Take the vectors that it was made from, or write its rows out as text: a word and its numbers a line.",
    ),
    (
        rb"GGUF.\0\0\0",
        "a GGUF model",
        f"Take its token embeddings out with the gguf package, numpy.save them {AS_NPY}",
    ),
    (rb"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19", "a PyTorch file", UNTORCH),
    (rb"PK\x03\x04.{26}[^\0]*(?:data\.pkl|byteorder)", "a PyTorch file", UNTORCH),
    (rb"\x89HDF\r\n", "an HDF5 file", f"Take the matrix out with h5py, numpy.save it {AS_NPY}"),
    (rb"BZh[1-9]1AY&SY", "packed with bzip2", "Unpack it: bunzip2 -k {path}"),
    (rb"\x28\xb5\x2f\xfd", "packed with zstd", "Unpack it: unzstd {path}"),
    (rb"7z\xbc\xaf\x27\x1c", "a 7z archive", "Unpack it first."),
    (rb"Rar!\x1a\x07", "a RAR archive", "Unpack it first."),
    (rb".{257}ustar", "a tar archive", "Unpack it: tar -xf {path}"),
    (rb"\xff\xfe|\xfe\xff", "UTF-16 text", "Convert it: iconv -f UTF-16 -t UTF-8 {path}"),
)


def open_file(path: str, name: str | None = None) -> Vectors:
    """Return the vectors in a file; its first bytes tell the format, not its suffix."""
    source = SourceFile.at(path, name)
    with source.opened() as file:
        start = file.read(1 << 16)
    refuse_input(not start, f"{source.name} is empty.", "Type a word and its numbers on each line.")
    for pattern, form, hint in FOREIGN:
        if re.match(pattern, start, re.DOTALL):
            raise InputError(f"{source.name} is {form}: attn does not read that.", _with_path(hint, source))
    if is_safetensors(start[:9]):
        return _safetensors(source)
    if start.startswith(NPY):
        return table_of(source.name, _words_beside(source), npy_rows(source), {"format": "npy"}, source.size)
    if start.startswith(ZIP):
        return _npz(source, start)
    if start[:1] == PICKLE and start[1:2] in PROTOCOLS:
        from attn_cli.vectors.gensim_pickle import read_gensim  # only gensim's own files need it

        return read_gensim(source)
    return _lines(source, packing(start))


def _with_path(hint: str, source: SourceFile) -> str:
    """Return a hint with the file's path in it: for the shell, or inside the Python that it has in double quotes."""
    if '"' not in hint:
        return hint.replace("{path}", source.quoted())
    before, code, after = hint.split('"')
    return before + shell_quote(code.replace("{path}", repr(source.path)), double=True) + after


def _lines(source: SourceFile, packed: str) -> Vectors:
    start, is_all = start_of(source, packed)
    if _is_binary(start):
        if packed:
            hint = f"Unpack and name it: attn vectors import {source.quoted()}"
            raise InputError(f"{source.name} is a packed word2vec binary.", hint)
        return open_vectors.FileVectors(word2vec.binary_format(source, start))
    try:
        return _text(source, packed, start, is_all)
    except InputError:
        if b"\0" not in start:
            raise
        what = f"is not a text file of word vectors: there is a zero byte at {start.index(0):,}"
        raise InputError(f"{source.name} {what}.", "Is it the file that was meant?") from None


def _text(source: SourceFile, packed: str, start: bytes, is_all: bool) -> Vectors:
    """Return the vectors of a text; of a small one every row is checked, and all are held in memory."""
    form = word2vec.text_format(source, packed, start, is_all)
    if not is_all:
        return open_vectors.FileVectors(form)
    words: list[bytes] = []
    parts: list[Array] = [np.empty((0, form.dim))]
    with source.opened() as file:
        for offsets, some, vectors in form.blocks(file):
            matrix = vectors(slice(None))
            unsound = np.flatnonzero(~np.isfinite(matrix).all(axis=1))
            if len(unsound):
                where = form.where(int(offsets[unsound[0]]))
                raise InputError(f"{where}: a number is not finite.", "Replace NaN and infinity.")
            words += some
            parts.append(matrix)
    about = {"format": form.kind + (f", {packed}" if packed else "")}
    return table_of(source.name, words, np.concatenate(parts), about, source.size)


def start_of(source: SourceFile, packed: str) -> tuple[bytes, bool]:
    """Return enough of a text or binary file, unpacked, to tell its format, and whether that is all of it.

    Raises InputError where a packed file holds something else.
    """
    with source.opened() as file:
        if not packed and source.size >= open_vectors.INDEXED_FROM:
            start = read_exactly(file, 0, ENOUGH, source.name)
            if start.count(b"\n") > 1:
                return start, False
        start, is_all = b"", True
        for piece in pieces(file, packed, source.name):
            start += piece
            if len(start) >= open_vectors.INDEXED_FROM:
                is_all = False
                break
    if packed and (is_safetensors(start[:9]) or start.startswith((NPY, ZIP, PICKLE))):
        what = f"{source.name} is packed, and holds neither text nor a word2vec binary."
        raise InputError(what, f"Unpack it: {packed} -dk {source.quoted()}")
    return start, is_all


def _is_binary(start: bytes) -> bool:
    """Tell whether a header line is followed by records, and not by lines that can be read."""
    line, newline, rest = start.partition(b"\n")
    fields = line.split()
    if not newline or len(line) > word2vec.LONGEST_HEADER or len(fields) != 2:
        return False
    dim = int(fields[1]) if fields[1].isdigit() and len(fields[1]) < 7 else 1
    first = rest.partition(b"\n")[0].split()[-dim:] if dim else []
    if len(first) == dim and all(word2vec.is_number(field, underscore=True) for field in first):
        return False
    head = rest[:TELLING]
    try:
        head.decode("utf-8")
    except UnicodeDecodeError as error:
        is_cut = error.start >= TELLING - 3 and error.reason == "unexpected end of data"
        if not is_cut:  # a letter in two
            return True
    return any(byte < 9 or 13 < byte < 32 for byte in head)


def _safetensors(source: SourceFile) -> VectorTable:
    """Return a table that `attn vectors train` or `export` wrote, or a bare matrix with a list of words beside it."""
    with source.opened() as file:
        entries, about = safetensors_entries(file, source.name)
        words, vectors = entries.get("words"), entries.get("vectors")
        matrices = [entry for entry in entries.values() if len(entry.shape) == 2]
        if words is None and len(matrices) == 1 and _word_list(source) is not None:
            listed, vectors, about = _words_beside(source), matrices[0], {}
        elif words is None or vectors is None or len(vectors.shape) != 2 or words.dtype != np.uint8:
            said = f"{source.name} is not a table of word vectors: it needs the arrays vectors and words."
            beside = "Put a list of words, one a line, beside it (with the suffix .words)"
            raise InputError(said, f"{beside}, or see docs/vectors.md.")
        else:
            listed = read_exactly(file, words.offset, words.size, source.name).split(b"\n")
            about.pop("doubled", None)
    rows = FileRows.of(source, vectors)
    ngrams = _ngrams(source, entries.get(NGRAMS), entries.get(DIRECTIONS), rows.shape[1])
    return table_of(source.name, listed, rows, {**about, **SAFETENSORS}, source.size, ngrams)


def _ngrams(source: SourceFile, rows: Entry | None, directions: Entry | None, dim: int) -> NGrams | None:
    """Return the n-grams that `attn vectors subwords` added; InputError where they do not fit the vectors."""
    if rows is None and directions is None:
        return None
    if rows and directions and len(rows.shape) == 2 and min(rows.shape):
        is_right = directions.shape == (rows.shape[1] + 1, dim) and rows.dtype == np.int8
        if is_right and directions.dtype in (np.float16, np.float32):
            return NGrams(FileRows.of(source, rows), FileRows.of(source, directions))
    what = f"{source.name} is damaged: its n-grams do not fit its vectors."
    raise InputError(what, "Make them anew with attn vectors subwords.")


def _npz(source: SourceFile, start: bytes) -> VectorTable:
    if b".npy" not in start[:4096]:
        raise InputError(f"{source.name} is a ZIP archive.", f"Unpack it: unzip {source.quoted()}")
    with source.opened() as file:
        arrays = npz_in(file, source.name)
    matrices = [key for key, array in arrays.items() if array.ndim == 2 and array.dtype.kind == "f"]
    lists = [key for key, array in arrays.items() if array.ndim == 1 and array.dtype.kind in "US"]
    if len(matrices) != 1 or len(lists) > 1:
        held = f"{len(matrices)} matrices and {len(lists)} lists of words"
        hint = "Save it as numpy.savez('vectors.npz', words=words, vectors=matrix)."
        raise InputError(f"{source.name} holds {held}; one of each is wanted.", hint)
    listed = arrays[lists[0]] if lists else np.array([])
    if listed.dtype.kind == "U" and listed.size and listed.dtype.itemsize:
        codes = np.frombuffer(listed.tobytes(), np.dtype("u4").newbyteorder(listed.dtype.byteorder))
        if codes.max() > sys.maxunicode:  # NumPy does not look, and makes text that is none
            raise InputError(f"{source.name}: its list of words holds what is not text.")
    words = [as_bytes(word) if isinstance(word, str) else bytes(word) for word in listed.tolist()]
    words = words if lists else _words_beside(source)
    return table_of(source.name, words, arrays[matrices[0]], {"format": "npz"}, source.size)


def _word_list(source: SourceFile) -> str | None:
    stem = os.path.splitext(source.path)[0]
    return next((stem + suffix for suffix in WORD_LISTS if os.path.isfile(stem + suffix)), None)


def _words_beside(source: SourceFile) -> list[bytes]:
    path = _word_list(source)
    if path is None:
        stem = visible(os.path.splitext(os.path.basename(source.path))[0])
        hint = f"Put the words beside it, one a line in the order of the rows, in {stem}.words."
        raise InputError(f"{source.name} holds numbers, and no words.", hint)
    return read_bytes(path).replace(b"\r\n", b"\n").removesuffix(b"\n").split(b"\n")
