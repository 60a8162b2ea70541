"""Arrays from files: what is written is read, what lies is refused, and nothing in a file is run."""

import io
import json
import os
import struct
import tracemalloc
import zipfile
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from attn_cli.errors import FileError, InputError
from attn_cli.io.array_files import DTYPES, npy_in, npz_in, read_safetensors, write_safetensors
from tests.shell import python
from tests.thorough import often

SMALL = 5_000_000


def safetensors(header, data=b""):
    """The bytes of a safetensors file, by hand: the header's length, the header, the arrays."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def entry(dtype="F64", shape=(1,), start=0, stop=8):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [start, stop]}


def npy(header, data=b"", version=1):
    """The bytes of a .npy file, by hand."""
    text = (header if isinstance(header, str) else repr(header)).encode()
    size = struct.pack("<H" if version == 1 else "<I", len(text))
    return b"\x93NUMPY" + bytes([version, 0]) + size + text + data


def described(descr="<f8", shape=(1,), fortran=False):
    return {"descr": descr, "fortran_order": fortran, "shape": shape}


def zipped(data):
    with zipfile.ZipFile(out := io.BytesIO(), "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("M.npy", data)
    return out.getvalue()


def read_npy(path):
    with open(path, "rb") as stream:
        return npy_in(stream, str(path))


def read_npz(path, **limit):
    with open(path, "rb") as stream:
        return npz_in(stream, str(path), **limit)


def saved(save, *args, **arrays):
    save(out := io.BytesIO(), *args, **arrays)
    return out.getvalue()


@contextmanager
def little_memory(limit=SMALL):
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < limit
    finally:
        tracemalloc.stop()


def made(arrays, about):
    write_safetensors(out := io.BytesIO(), arrays, about)
    return out.getvalue()


def test_what_is_written_is_read(file):
    draw = np.random.default_rng(0)
    codes = enumerate(DTYPES.items())
    arrays = {f"{name} é\n": draw.integers(0, 2, (3, 2, n)).astype(code) for n, (name, code) in codes}
    arrays["turned"] = np.asfortranarray(draw.random((4, 3)))
    found, about = read_safetensors(file(made(arrays, {"made": "by é", "length": "4"})))
    assert about == {"made": "by é", "length": "4"} and list(found) == list(arrays)
    for name, array in arrays.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)
    # It is laid out as the format's readme says, and the same content gives the same bytes.
    arrays = {"x": np.array([[1.5, -2.0]]), "y": np.array([7], "<i4")}
    data = made(arrays, {"k": "v"})
    assert data == made(arrays, {"k": "v"})
    (length,) = struct.unpack("<Q", data[:8])
    assert length % 8 == 0 and data[8:9] == b"{"
    entries = {"x": entry("F64", (1, 2), 0, 16), "y": entry("I32", (1,), 16, 20)}
    assert json.loads(data[8 : 8 + length]) == {"__metadata__": {"k": "v"}} | entries
    assert data[8 + length :] == struct.pack("<ddi", 1.5, -2.0, 7)


def test_a_file_made_by_hand_is_read_also_a_scalar_and_an_empty_array(file):
    header = {"w": entry("F32", (2, 2), 10, 26), "h": entry("F16", (1,), 8, 10)}
    header |= {"s": entry("F64", (), 0, 8), "e": entry("F32", (0, 3), 26, 26)}
    data = struct.pack("<de4f", 2.5, 0.5, 1, 2, 3, 4)
    arrays, about = read_safetensors(file(safetensors(header | {"__metadata__": {"format": "pt"}}, data)))
    assert about == {"format": "pt"} and arrays["e"].shape == (0, 3)
    assert [arrays[name].tolist() for name in "whs"] == [[[1, 2], [3, 4]], [0.5], 2.5]
    assert read_safetensors(file(safetensors({"__metadata__": ["format"]}))) == ({}, {})


def test_mapped_arrays_are_views_that_cannot_be_written_and_cost_no_memory(file):
    path = file(made({"x": np.zeros(SMALL, np.uint8)}, {}))
    with little_memory():
        arrays, _ = read_safetensors(path, mapped=True)
    with pytest.raises(ValueError, match="read-only"):
        arrays["x"][0] = 1


TRAP = b"cbuiltins\nexit\n(tR."  # a pickle that ends the run of whoever loads it
EIGHT, OVERLAP = b"12345678", {"a": entry(), "b": entry("F32", (1,), 6, 10)}
TOLD = {
    "too short for a safetensors file: 7 bytes": b"1234567",
    "claims 3 bytes; the file has 10": struct.pack("<Q", 3) + b"{}",
    "byte 8: the header is not JSON": safetensors(b"{'a': 1}"),
    "byte 8: the header is not a JSON object": safetensors(b"[]"),
    "'a'.* holds numbers of the type F8_E5M2": safetensors({"a": entry("F8_E5M2", (1,), 0, 1)}, b"1"),
    "'a'.* has a malformed header entry": safetensors({"a": {**entry(), "data_offsets": [0, 4, 8]}}, EIGHT),
    "its arrays overlap, or leave bytes over": safetensors(OVERLAP, b"12" + EIGHT),
}
# no entries, no lengths, too much, too many axes, and places that are none
ENTRIES = [1, {"dtype": "F64", "shape": [1]}, entry(["F64"]), {**entry(), "shape": "1"}, entry("F32")]
ENTRIES += [entry(shape=shape) for shape in ((True,), (1.0,), (-1, -1), (2,), (1 << 47, 1 << 47), (1,) * 100)]
ENTRIES += [entry(start=-8, stop=0), entry("U8", (0,), 8, 0), entry(shape=(1 << 37,), stop=1 << 40)]
ENTRIES += [entry("U8", (1 << 32, 1 << 32, 0))]
LIES = [
    *(b"", TRAP, struct.pack("<Q", 1 << 63) + b"{}", b"\xff" * 8 + b"{}"),
    *(safetensors(b""), safetensors(b'{"\xff": 1}')),
    *(safetensors(b'{"a":%b}' % value) for value in (b"[" * 100_000, b"9" * 5000)),
    *(safetensors({"a": one}, EIGHT) for one in ENTRIES),
    *(safetensors({"a": entry(), "b": entry()}, EIGHT), safetensors({"a": entry()}, EIGHT + b"9")),
    safetensors(b'{"a":%b,"a":%b}' % ((json.dumps(entry()).encode(),) * 2), EIGHT),
]


@pytest.mark.parametrize(
    ("said", "lie"), [*(("", lie) for lie in LIES), *TOLD.items()], ids=lambda one: str(one)[:9]
)
def test_a_safetensors_file_that_lies_is_refused_without_much_memory(said, lie, file):
    path = file(lie, "liar.safetensors")
    with little_memory(), pytest.raises(InputError, match=f"liar.*{said}"):
        read_safetensors(path)


def test_a_header_above_the_limit_is_refused_unread_and_what_is_no_regular_file_too(file, tmp_path):
    for path in (tmp_path, tmp_path / "missing", "/dev/null"):
        with pytest.raises(FileError):
            read_safetensors(path)
    path = file(struct.pack("<Q", 100_000_001) + b"{")
    os.truncate(path, 100_000_009)
    said = "100,000,001 bytes, above the limit of 100,000,000"
    with little_memory(), pytest.raises(InputError, match=said):
        read_safetensors(path)


def test_a_lie_is_refused_also_where_python_leaves_out_assertions(file):
    path = file(safetensors({"a": entry(shape=(-1, -1))}, EIGHT))
    script = "from attn_cli.io.array_files import read_safetensors as read\n"
    script += "try: read(sys.argv[1])\nexcept ValueError as error: print(type(error).__name__)"
    assert python(script, path, flags=["-O"]).out == "InputError\n"


ARRAYS = [np.arange(6.0).reshape(2, 3), np.asfortranarray([[0.0, 1], [3, 4]]), np.arange(4, dtype=">i2")]
ARRAYS += [np.array([[True, False]]), np.float32(2.5), np.zeros((0, 3))]


@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: f"{array.dtype.str}{array.shape}")
def test_what_numpy_saves_is_read(array, file):
    np.testing.assert_array_equal(read_npy(file(saved(np.save, array))), array)
    for save in (np.savez, np.savez_compressed):
        arrays = read_npz(file(saved(save, M=array, other=np.eye(2))))
        assert set(arrays) == {"M", "other"}
        np.testing.assert_array_equal(arrays["M"], array)


NUMBER = struct.pack("<d", 1.0)
NPY_LIES = [
    *(b"", TRAP, b"\x93NUMPY\x01", npy(described(), NUMBER, version=9)),
    # headers: none, of zeros, not closed, deep, of signs, of code
    *map(npy, ("", "\0\0", "{'descr': '<f8', 'shape': (1,", "(" * 5000, "-" * 9000 + "1")),
    npy("{'descr': __import__('os').getcwd(), 'fortran_order': False, 'shape': ()}"),
    *map(npy, (described("zzz"), described("<i99"), described("|V0", (5,)), described("|S0", (5,)))),
    # a tebibyte, a product beyond 64 bits, a number too many, negative lengths, a truth value, too many axes
    *(npy(described(shape=shape), NUMBER) for shape in ((1 << 37,), (1 << 40,) * 2, (2,), (-1,), (-1, -1))),
    *(npy(described(shape=shape), NUMBER) for shape in ((True,), (1,) * 100)),
    npy(described(("<f8", (2,))), NUMBER * 2),
    *(npy(described(descr), TRAP) for descr in ("|O", [("a", "|O")])),
]


@pytest.mark.parametrize("lie", NPY_LIES, ids=range(len(NPY_LIES)))
def test_a_npy_file_that_lies_is_refused_without_much_memory(lie, file):
    bare, packed = file(lie, "liar.npy"), file(zipped(lie), "liar.npz")
    for read, path in ((read_npy, bare), (read_npz, packed), (read_npz, bare)):
        with little_memory(), pytest.raises(InputError, match="liar"):
            read(path)


def test_a_small_file_that_unpacks_to_a_large_one_is_refused_unread_even_if_its_directory_lies(
    file, monkeypatch
):
    whole = npy(described("|u1", (1 << 24,)), bytes(1 << 24))
    bomb = file(zipped(whole), "bomb.npz")
    assert os.path.getsize(bomb) < 1 << 16
    with little_memory(), pytest.raises(InputError, match="16,777"):
        read_npz(bomb, limit=len(whole) - 1)
    assert read_npz(bomb, limit=len(whole))["M"].shape == (1 << 24,)
    monkeypatch.setattr("attn_cli.io.array_files.GROWTH_COUNTS_FROM", 1 << 20)
    said = r"^\S+bomb\.npz unpacks from [\d,]+ to 16,777,\d+ bytes, more than 100 times its size\."
    with little_memory(), pytest.raises(InputError, match=said):
        read_npz(bomb)
    assert read_npz(file(saved(np.savez, M=np.zeros(1 << 18))))["M"].shape == (1 << 18,)
    data = bytearray(zipped(npy(described("|u1", (1 << 22,)), bytes(1 << 22))))
    at = data.rindex(b"PK\x01\x02") + 24  # where the directory has the unpacked size
    data[at : at + 4] = struct.pack("<I", 200)
    with little_memory(), pytest.raises(InputError):
        read_npz(file(data))


SOUND = {
    read_npy: saved(np.save, np.arange(6.0).reshape(2, 3)),
    read_npz: saved(np.savez_compressed, M=np.arange(6.0).reshape(2, 3), b=np.ones(3)),
    read_safetensors: safetensors({"a": entry(), "b": entry("F32", (2, 1), 8, 16)}, bytes(16)),
}


@pytest.mark.parametrize("read", SOUND)
@settings(max_examples=often(150), deadline=None, derandomize=True, suppress_health_check=[*HealthCheck])
@given(st.data())
def test_a_damaged_file_is_read_or_refused_but_never_a_bug(read, file, data):
    damaged = bytearray(SOUND[read])
    change = st.tuples(st.integers(0, len(damaged) - 1), st.integers(0, 255))
    for at, value in data.draw(st.lists(change, min_size=1, max_size=3)):
        damaged[at] = value
    damaged = damaged[: data.draw(st.sampled_from([len(damaged), len(damaged) // 2]))]
    try:
        read(file(damaged))
    except InputError as refused:
        assert refused.message.endswith(".")
