"""Arrays from files: what is written is read, what lies is refused, and nothing in a file is run."""

import io
import json
import pickle
import struct
import subprocess
import sys
import tracemalloc
import zipfile
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from attn_cli.errors import FileError, InputError
from attn_cli.io.array_files import DTYPES, npy_in, npz_in, read_safetensors, write_safetensors
from tests.shell import surroundings
from tests.thorough import often

SMALL = 5_000_000
damage = settings(
    max_examples=often(150),
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


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


def zipped(**members):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(f"{name}.npy", data)
    return out.getvalue()


def read_npy(path):
    with open(path, "rb") as stream:
        return npy_in(stream, str(path))


def read_npz(path, **limit):
    with open(path, "rb") as stream:
        return npz_in(stream, str(path), **limit)


def saved(save, *args, **arrays):
    out = io.BytesIO()
    save(out, *args, **arrays)
    return out.getvalue()


@pytest.fixture
def file(tmp_path):
    def write(data, name="file"):
        path = tmp_path / name
        path.write_bytes(data)
        return path

    return write


@contextmanager
def little_memory():
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < SMALL
    finally:
        tracemalloc.stop()


# safetensors


def test_what_is_written_is_read(tmp_path):
    draw = np.random.default_rng(0)
    arrays = {
        f"{name} é\n": draw.integers(0, 2, (3, 2, n)).astype(code)
        for n, (name, code) in enumerate(DTYPES.items())
    }
    arrays["turned"] = np.asfortranarray(draw.random((4, 3)))
    with open(tmp_path / "file", "wb") as stream:
        write_safetensors(stream, arrays, {"made": "by é", "length": "4"})
    found, about = read_safetensors(tmp_path / "file")
    assert about == {"made": "by é", "length": "4"}
    assert list(found) == list(arrays)
    for name, array in arrays.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)


def test_the_same_content_gives_the_same_bytes(tmp_path):
    for name in "ab":
        with open(tmp_path / name, "wb") as stream:
            write_safetensors(stream, {"x": np.eye(3), "y": np.ones(2, "<f2")}, {"k": "v"})
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_a_file_is_laid_out_as_the_format_s_readme_says(tmp_path):
    with open(tmp_path / "file", "wb") as stream:
        write_safetensors(stream, {"x": np.array([[1.5, -2.0]]), "y": np.array([7], "<i4")}, {"k": "v"})
    data = (tmp_path / "file").read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    assert length % 8 == 0 and data[8:9] == b"{"
    assert json.loads(data[8 : 8 + length]) == {
        "__metadata__": {"k": "v"},
        "x": entry("F64", (1, 2), 0, 16),
        "y": entry("I32", (1,), 16, 20),
    }
    assert data[8 + length :] == struct.pack("<ddi", 1.5, -2.0, 7)


def test_a_file_made_by_hand_is_read(file):
    header = {
        "w": entry("F32", (2, 2), 2, 18),
        "h": entry("F16", (1,), 0, 2),
        "__metadata__": {"format": "pt"},
    }
    data = np.array([0.5], "<f2").tobytes() + np.array([[1, 2], [3, 4]], "<f4").tobytes()
    arrays, about = read_safetensors(file(safetensors(header, data)))
    assert about == {"format": "pt"}
    assert arrays["w"].tolist() == [[1, 2], [3, 4]] and arrays["h"].tolist() == [0.5]


def test_a_scalar_and_an_empty_array_are_read(file):
    header = {"s": entry("F64", (), 0, 8), "e": entry("F32", (0, 3), 8, 8)}
    arrays, _ = read_safetensors(file(safetensors(header, struct.pack("<d", 2.5))))
    assert arrays["s"].item() == 2.5 and arrays["e"].shape == (0, 3)


def test_mapped_arrays_are_views_that_cannot_be_written_and_cost_no_memory(tmp_path):
    with open(tmp_path / "file", "wb") as stream:
        write_safetensors(stream, {"x": np.zeros(SMALL, np.uint8)}, {})
    with little_memory():
        arrays, _ = read_safetensors(tmp_path / "file", mapped=True)
    with pytest.raises(ValueError, match="read-only"):
        arrays["x"][0] = 1


LIES = {
    "nothing": b"",
    "seven bytes": b"1234567",
    "a header beyond the file": struct.pack("<Q", 3) + b"{}",
    "a header of 2^63 bytes": struct.pack("<Q", 1 << 63) + b"{}",
    "a header of 2^64 - 1 bytes": b"\xff" * 8 + b"{}",
    "no header": safetensors(b""),
    "a header that is not JSON": safetensors(b"{'a': 1}"),
    "a header that is not UTF-8": safetensors(b'{"\xff": 1}'),
    "a header that is a list": safetensors(b"[]"),
    "a deep header": safetensors(b'{"a":' + b"[" * 100_000),
    "a number of 5000 digits": safetensors(b'{"a":' + b"9" * 5000 + b"}"),
    "an entry that is a number": safetensors({"a": 1}),
    "an entry without offsets": safetensors({"a": {"dtype": "F64", "shape": [1]}}, b"12345678"),
    "an unknown type": safetensors({"a": entry("F8_E5M2", (1,), 0, 1)}, b"1"),
    "a type that is a list": safetensors({"a": entry(["F64"])}, b"12345678"),
    "a shape that is text": safetensors({"a": {**entry(), "shape": "1"}}, b"12345678"),
    "a shape with a truth value": safetensors({"a": entry(shape=(True,))}, b"12345678"),
    "a shape with a fraction": safetensors({"a": entry(shape=(1.0,))}, b"12345678"),
    "negative lengths": safetensors({"a": entry(shape=(-1, -1))}, b"12345678"),
    "negative offsets": safetensors({"a": entry(start=-8, stop=0)}, b"12345678"),
    "offsets that run backwards": safetensors({"a": entry("U8", (0,), 8, 0)}, b"12345678"),
    "three offsets": safetensors({"a": {**entry(), "data_offsets": [0, 4, 8]}}, b"12345678"),
    "more than the file holds": safetensors({"a": entry(shape=(1 << 37,), stop=1 << 40)}, b"12345678"),
    "more than its offsets hold": safetensors({"a": entry(shape=(2,))}, b"12345678"),
    "less than its offsets hold": safetensors({"a": entry("F32")}, b"12345678"),
    "a product beyond 64 bits": safetensors({"a": entry("U8", (1 << 32, 1 << 32, 0), 0, 1)}, b"1"),
    "a huge product": safetensors({"a": entry(shape=(1 << 47, 1 << 47))}, b"12345678"),
    "more axes than an array has": safetensors({"a": entry(shape=(1,) * 100)}, b"12345678"),
    "two arrays in one place": safetensors({"a": entry(), "b": entry()}, b"12345678"),
    "two arrays that overlap": safetensors({"a": entry(), "b": entry("F32", (1,), 6, 10)}, b"1234567890"),
}


SAID = {
    "seven bytes": "too short for a safetensors file: 7 bytes",
    "a header beyond the file": "claims 3 bytes; the file has 10",
    "a header that is not JSON": "byte 8: the header is not JSON",
    "a header that is a list": "byte 8: the header is not a JSON object",
    "an unknown type": "'a'.* holds numbers of the type F8_E5M2",
    "three offsets": "'a'.* has a malformed header entry",
    "two arrays that overlap": "its arrays overlap, or leave bytes over",
}


@pytest.mark.parametrize("lie", LIES)
def test_a_safetensors_file_that_lies_is_refused_without_much_memory(lie, file):
    path = file(LIES[lie], "liar.safetensors")
    with little_memory(), pytest.raises(InputError, match=f"liar.*{SAID.get(lie, '')}"):
        read_safetensors(path)


def test_a_lie_is_refused_also_where_python_leaves_out_assertions(file):
    path = file(LIES["negative lengths"])
    script = "import sys; from attn_cli.io.array_files import read_safetensors as read\n"
    script += "try: read(sys.argv[1])\nexcept ValueError as error: print(type(error).__name__)"
    done = subprocess.run(
        [sys.executable, "-O", "-c", script, path], capture_output=True, text=True, env=surroundings()
    )
    assert done.stdout == "InputError\n"


# .npy and .npz


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6.0).reshape(2, 3),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.arange(4, dtype=">i2"),
        np.array([[True, False]]),
        np.float32(2.5),
        np.zeros((0, 3)),
    ],
    ids=lambda array: f"{array.dtype.str}{array.shape}",
)
def test_what_numpy_saves_is_read(array, file):
    found = read_npy(file(saved(np.save, array)))
    np.testing.assert_array_equal(found, array)
    for save in (np.savez, np.savez_compressed):
        arrays = read_npz(file(saved(save, M=array, other=np.eye(2))))
        assert set(arrays) == {"M", "other"}
        np.testing.assert_array_equal(arrays["M"], array)


class Trap:
    def __reduce__(self):
        return exec, ("raise SystemExit('what was in the file ran')",)


def test_object_arrays_are_refused_and_what_they_hold_does_not_run(file):
    trapped = np.array([Trap(), 1.0], dtype=object)
    with pytest.raises(InputError, match="run code"):
        read_npy(file(saved(np.save, trapped)))
    with pytest.raises(InputError, match="run code"):
        read_npz(file(saved(np.savez, M=trapped)))
    for read in (read_npy, read_npz, read_safetensors):
        with pytest.raises(InputError):
            read(file(pickle.dumps(Trap())))


NUMBER = struct.pack("<d", 1.0)
NPY_LIES = {
    "nothing": b"",
    "a magic alone": b"\x93NUMPY\x01",
    "an unknown version": npy(described(), NUMBER, version=9),
    "no header": npy(""),
    "a header of zeros": npy("\0\0"),
    "a header that is not closed": npy("{'descr': '<f8', 'shape': (1,"),
    "a deep header": npy("(" * 5000),
    "a header of signs": npy("-" * 9000 + "1"),
    "a header that is code": npy("{'descr': __import__('os').getcwd(), 'fortran_order': False, 'shape': ()}"),
    "an unknown type": npy(described("zzz")),
    "a type of a hundred bytes": npy(described("<i99")),
    "a tebibyte": npy(described(shape=(1 << 37,)), NUMBER),
    "a product beyond 64 bits": npy(described(shape=(1 << 40, 1 << 40)), NUMBER),
    "one number too many": npy(described(shape=(2,)), NUMBER),
    "a negative length": npy(described(shape=(-1,)), NUMBER),
    "two negative lengths": npy(described(shape=(-1, -1)), NUMBER),
    "a truth value for a length": npy(described(shape=(True,)), NUMBER),
    "more axes than an array has": npy(described(shape=(1,) * 100), NUMBER),
    "things of no size": npy(described("|V0", (5,))),
    "text of no length": npy(described("|S0", (5,))),
    "arrays in an array": npy(described(("<f8", (2,))), NUMBER * 2),
    "objects": npy(described("|O"), NUMBER),
    "objects in a record": npy(described([("a", "|O")]), NUMBER),
}


@pytest.mark.parametrize("lie", NPY_LIES)
def test_a_npy_file_that_lies_is_refused_without_much_memory(lie, file):
    path = file(NPY_LIES[lie], "liar.npy")
    with little_memory(), pytest.raises(InputError, match="liar"):
        read_npy(path)
    path = file(zipped(M=NPY_LIES[lie]), "liar.npz")
    with little_memory(), pytest.raises(InputError, match="liar"):
        read_npz(path)


def test_a_small_file_that_unpacks_to_a_large_one_is_refused_before_it_is_unpacked(file):
    bomb = file(zipped(M=npy(described("|u1", (1 << 24,)), bytes(1 << 24))), "bomb.npz")
    assert bomb.stat().st_size < 1 << 16
    with little_memory(), pytest.raises(InputError, match="16,777"):
        read_npz(bomb, limit=1 << 22)
    assert read_npz(bomb, limit=1 << 25)["M"].shape == (1 << 24,)


def test_a_directory_that_understates_what_is_in_the_archive_is_refused(file):
    data = bytearray(zipped(M=npy(described("|u1", (1 << 22,)), bytes(1 << 22))))
    at = data.rindex(b"PK\x01\x02") + 24  # where the directory has the unpacked size
    data[at : at + 4] = struct.pack("<I", 200)
    with little_memory(), pytest.raises(InputError):
        read_npz(file(data))


@pytest.mark.parametrize("where", ["", "missing", "/dev/null"])
def test_what_is_no_readable_regular_file_is_a_file_error(where, tmp_path):
    with pytest.raises(FileError):
        read_safetensors(where if where.startswith("/") else tmp_path / where)


# Damage: whatever a byte is changed to, a file is read or refused

SOUND = {
    read_npy: saved(np.save, np.arange(6.0).reshape(2, 3)),
    read_npz: saved(np.savez_compressed, M=np.arange(6.0).reshape(2, 3), b=np.ones(3)),
    read_safetensors: safetensors({"a": entry(), "b": entry("F32", (2, 1), 8, 16)}, bytes(16)),
}


@pytest.mark.parametrize("read", SOUND)
@damage
@given(st.data())
def test_a_damaged_file_is_read_or_refused_but_never_a_bug(read, file, data):
    damaged = bytearray(SOUND[read])
    for at, value in data.draw(
        st.lists(st.tuples(st.integers(0, len(damaged) - 1), st.integers(0, 255)), min_size=1, max_size=3)
    ):
        damaged[at] = value
    damaged = damaged[: data.draw(st.sampled_from([len(damaged), len(damaged) // 2]))]
    try:
        read(file(damaged))
    except InputError as refused:
        assert refused.message.endswith(".")
