"""Tensors of a folder, read piece by piece; and folders that lie."""

import json
import os
import struct
import tracemalloc

import numpy as np
import pytest

from attn_cli.errors import AttnError, FileError, InputError
from attn_cli.models.checkpoints.reader import product
from attn_cli.models.checkpoints.weights import Weights
from tests.models.checkpoints.by_hand import as_bfloat16, safetensors


def folder_of(tmp_path, arrays, name="model.safetensors"):
    (tmp_path / name).write_bytes(safetensors(arrays))
    return str(tmp_path)


def refused(folder, *asked, error=InputError):
    with pytest.raises(error) as found:
        weights = Weights(str(folder))
        try:
            weights.read(*asked)
        finally:
            weights.close()
    assert "\n" not in str(found.value)
    return str(found.value)


NUMBERS = np.array([[1.0, -2.5, 0.15625], [3e5, 1e-3, 0.0]], np.float32)


@pytest.mark.parametrize("kind", ["float32", "float16", "bfloat16", "float64"])
def test_every_kind_of_number_becomes_float32(kind, tmp_path):
    exact = NUMBERS.copy()
    exact[1, :2] = 7  # what each kind can hold
    stored = as_bfloat16(exact) if kind == "bfloat16" else exact.astype(kind)
    weights = Weights(folder_of(tmp_path, {"a.weight": stored}))
    assert weights.read("a.weight", 2, 3).dtype == np.float32
    np.testing.assert_array_equal(weights.read("a.weight", 2, None), exact)
    np.testing.assert_array_equal(
        weights.rows("a.weight", np.array([[1, 0, 1]]), 3, "row"), exact[[[1, 0, 1]]]
    )
    weights.close()


@pytest.mark.parametrize("part", [1, 12, 1 << 20])
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("kind", ["float32", "float16", "bfloat16"])
def test_a_matrix_is_multiplied_in_parts_as_it_is_whole(part, threads, kind, tmp_path, monkeypatch):
    monkeypatch.setattr("attn_cli.models.checkpoints.reader.PART", part)
    monkeypatch.setattr("attn_cli.core.threads.processors", lambda: threads)
    M = np.arange(-15, 15, dtype=np.float32).reshape(10, 3)
    weights = Weights(folder_of(tmp_path, {"a": as_bfloat16(M) if kind == "bfloat16" else M.astype(kind)}))
    stored = weights.stored("a", 10, 3)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(product(x, stored), x @ M.T)
    x = np.arange(20, dtype=np.float32).reshape(2, 10)
    np.testing.assert_array_equal(product(x, stored, in_out=True), x @ M)
    assert weights.matrix("a", 10, 3).held is None
    held = weights.matrix("a", 10, 3)  # again: it stays in memory
    np.testing.assert_array_equal(held.held, M)
    os.truncate(tmp_path / "model.safetensors", 0)
    np.testing.assert_array_equal(product(x, held, in_out=True), x @ M)
    np.testing.assert_array_equal(product(x[:, :3], held), x[:, :3] @ M.T)
    weights.close()


def test_matrices_are_held_as_long_as_there_is_room(tmp_path, monkeypatch):
    monkeypatch.setattr(Weights, "room", 10)
    weights = Weights(folder_of(tmp_path, {"a": NUMBERS, "b": NUMBERS}))
    found = [weights.matrix(name, 2, 3).held for name in "abab"]
    assert [one is None for one in found] == [True, True, False, True]
    weights.close()


def test_tensors_without_numbers_of_other_shapes_or_rows_that_are_not_there_are_refused(tmp_path):
    empty = {"no rows": np.zeros((0, 3), np.float32), "no columns": np.zeros((3, 0), "f4")}
    folder = folder_of(tmp_path, empty)
    assert "shape (0, 3): it holds no numbers" in refused(folder, "no rows", None, 3)
    assert "shape (3, 0): it holds no numbers" in refused(folder, "no columns", 3, None)
    folder = folder_of(tmp_path, {"a": NUMBERS, "q": np.zeros((2, 2), np.int8), "o.qweight": NUMBERS})
    assert "by config.json it would be (3, any)" in refused(folder, "a", 3, None)
    assert "shape (2, 3)" in refused(folder, "a", 6)
    assert "quantised" in refused(folder, "q", 2, 2)
    assert "quantised (GPTQ or AWQ)" in refused(folder, "o.weight", 2, 2)
    assert "has no tensor b" in refused(folder, "b")
    weights = Weights(folder_of(tmp_path, {"a": NUMBERS}))
    for row in (-1, 2, 1 << 40):
        with pytest.raises(InputError, match=f"no token {row}: .* has 2 rows"):
            weights.rows("a", np.array([0, row]), 3, "token")
    weights.close()


def test_a_file_that_shrinks_while_threads_multiply_it_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("attn_cli.models.checkpoints.reader.PART", 3)
    monkeypatch.setattr("attn_cli.core.threads.processors", lambda: 2)
    weights = Weights(folder_of(tmp_path, {"a": np.ones((1000, 3), np.float32)}))
    stored = weights.stored("a", 1000, 3)
    os.truncate(tmp_path / "model.safetensors", 6000)
    for x, in_out in ((np.ones((2, 3), np.float32), False), (np.ones((2, 1000), np.float32), True)):
        with pytest.raises(InputError, match="changed while it was read"):
            product(x, stored, in_out)
    weights.close()


def test_where_nothing_reads_at_positions_a_seek_does(tmp_path, monkeypatch):
    monkeypatch.delattr(os, "preadv")
    weights = Weights(folder_of(tmp_path, {"a": NUMBERS}))
    np.testing.assert_array_equal(weights.read("a", 2, 3), NUMBERS)
    os.truncate(tmp_path / "model.safetensors", 80)
    with pytest.raises(InputError, match="changed while it was read"):
        weights.read("a", 2, 3)
    weights.close()


def test_a_name_is_found_with_its_prefix_and_by_its_elder_spelling(tmp_path):
    arrays = {name: np.zeros(2, np.float32) for name in ("bert.x.gamma", "bert.x.beta", "y.weight")}
    weights = Weights(folder_of(tmp_path, arrays), ("bert.",))
    assert weights.find("x.weight") == "bert.x.gamma" and weights.find("x.bias") == "bert.x.beta"
    assert weights.find("z.weight", "y.weight") == "y.weight" and weights.find("z.weight") is None
    assert weights.maybe("z.weight", 2) is None
    weights.close()


def test_shards_are_opened_when_a_tensor_of_theirs_is_wanted(tmp_path):
    folder_of(tmp_path, {"a": NUMBERS}, "one.safetensors")
    index = {"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    weights = Weights(str(tmp_path))
    np.testing.assert_array_equal(weights.read("a", 2, 3), NUMBERS)
    with pytest.raises(FileError, match=r"two\.safetensors"):
        weights.read("b", 2, 3)
    weights.close()


@pytest.mark.parametrize(
    "file",
    ["../one.safetensors", "/etc/passwd", "a/../b.safetensors", "..", "b\\c.safetensors", "model.bin", ""],
)
def test_an_index_that_points_elsewhere_is_refused(file, tmp_path):
    index = {"weight_map": {"a": file}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert "beside it" in refused(tmp_path, "a")


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"weight_map": []}', '{"weight_map": {"a": 1}}', "[" * 100_000, '{"weight_map": null}'],
)
def test_an_index_that_is_none_is_refused(text, tmp_path):
    (tmp_path / "model.safetensors.index.json").write_text(text)
    assert "weight_map" in refused(tmp_path, "a")


def test_an_index_that_names_a_tensor_its_file_lacks_is_refused(tmp_path):
    folder_of(tmp_path, {"b": NUMBERS}, "one.safetensors")
    (tmp_path / "model.safetensors.index.json").write_text('{"weight_map": {"a": "one.safetensors"}}')
    assert "has no tensor a" in refused(tmp_path, "a")


def lying(shape, offsets, data=b"\0" * 64, dtype="F32"):
    header = json.dumps({"a": {"dtype": dtype, "shape": shape, "data_offsets": offsets}}).encode()
    return struct.pack("<Q", len(header)) + header + data


LIES = (
    *(([1 << 40, 1 << 40], [0, 64]), ([16], [0, 1 << 47]), ([1 << 60], [0, 64]), ([-4, -4], [0, 64])),
    *(([True, 16], [0, 64]), ([1] * 40, [0, 4]), ([4], [0, 16]), ({"a": 1}, [0, 64])),
)
HOSTILE = [
    *(b"", struct.pack("<Q", 1 << 60) + b"{}", struct.pack("<Q", (1 << 24) + 1) + b"{" + b" " * (1 << 24)),
    *(
        lying([32], [0, 64], dtype="BF17"),
        lying([32], [32, 96], dtype="BF16"),
        *(lying(*one) for one in LIES),
    ),
]


@pytest.mark.parametrize("content", HOSTILE)
def test_a_hostile_file_is_refused_in_little_memory(content, tmp_path):
    (tmp_path / "model.safetensors").write_bytes(content)
    tracemalloc.start()
    refused(tmp_path, "a")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8_000_000


def test_a_large_tensor_takes_its_own_size_of_memory_and_no_more(tmp_path):
    folder = folder_of(tmp_path, dict.fromkeys("ab", np.ones((1000, 1000), np.float32)))
    weights = Weights(folder)
    tracemalloc.start()
    weights.read("a", 1000, 1000)
    weights.rows("b", np.array([5]), 1000, "row")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    weights.close()
    assert peak < 4_500_000


def test_pickles_are_refused_with_a_line_that_converts_them(tmp_path):
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80\x02.")
    told = refused(tmp_path, "a", error=FileError)
    assert "can run code" in told and "weights_only=True" in told and "'pytorch_model.bin'" in told


def test_what_is_no_checkpoint_is_refused(tmp_path):
    assert "no model.safetensors" in refused(tmp_path, "a", error=FileError)
    assert "no model.safetensors" in refused(tmp_path / "none", "a", error=FileError)
    os.mkfifo(tmp_path / "model.safetensors")
    refused(tmp_path, "a", error=AttnError)
