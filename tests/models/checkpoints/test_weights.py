"""Tensors of a folder, read piece by piece; and folders that lie."""

import json
import os
import struct
from contextlib import closing

import numpy as np
import pytest

from attn_cli.errors import AttnError, FileError, InputError
from attn_cli.models.checkpoints.reader import product
from attn_cli.models.checkpoints.weights import Weights
from tests.memory import peak
from tests.models.checkpoints.by_hand import as_bfloat16, safetensors


def folder_of(tmp_path, arrays, name="model.safetensors"):
    (tmp_path / name).write_bytes(safetensors(arrays))
    return str(tmp_path)


def opened(tmp_path, arrays, *prefixes):
    return closing(Weights(folder_of(tmp_path, arrays), prefixes))


def refused(folder, *asked, error=InputError):
    with pytest.raises(error, match=r"^[^\n]+\Z") as found, closing(Weights(str(folder))) as weights:
        weights.read(*asked)
    return str(found.value)


CHANGED = r"changed while it was read\. Try again when it is complete\."
NUMBERS = np.array([[1.0, -2.5, 0.15625], [3e5, 1e-3, 0.0]], np.float32)


@pytest.mark.parametrize("kind", ["float32", "float16", "bfloat16", "float64"])
def test_every_kind_of_number_becomes_float32(kind, tmp_path):
    exact = NUMBERS.copy()
    exact[1, :2] = 7  # what each kind can hold
    stored = as_bfloat16(exact) if kind == "bfloat16" else exact.astype(kind)
    with opened(tmp_path, {"a.weight": stored}) as weights:
        assert weights.read("a.weight", 2, 3).dtype == np.float32
        np.testing.assert_array_equal(weights.read("a.weight", 2, None), exact)
        rows = weights.rows("a.weight", np.array([[1, 0, 1]]), 3, "row")
    np.testing.assert_array_equal(rows, exact[[[1, 0, 1]]])


@pytest.mark.parametrize("part", [1, 12, 1 << 20])
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("kind", ["float32", "float16", "bfloat16"])
def test_a_matrix_is_multiplied_in_parts_as_it_is_whole(part, threads, kind, tmp_path, monkeypatch):
    monkeypatch.setattr("attn_cli.models.checkpoints.reader.PART", part)
    monkeypatch.setattr("attn_cli.core.threads.processors", lambda: threads)
    M = np.arange(-15, 15, dtype=np.float32).reshape(10, 3)
    x, wide = np.arange(6, dtype=np.float32).reshape(2, 3), np.arange(20, dtype=np.float32).reshape(2, 10)
    with opened(tmp_path, {"a": as_bfloat16(M) if kind == "bfloat16" else M.astype(kind)}) as weights:
        first, held = weights.matrix("a", 10, 3), weights.matrix("a", 10, 3)  # again: it stays in memory
        assert first.held is None
        np.testing.assert_array_equal(held.held, M)
        for stored in (weights.stored("a", 10, 3), held):
            np.testing.assert_array_equal(product(x, stored), x @ M.T)
            np.testing.assert_array_equal(product(wide, stored, in_out=True), wide @ M)
            os.truncate(tmp_path / "model.safetensors", 0)  # which what is held does not mind


def test_matrices_are_held_as_long_as_there_is_room(tmp_path, monkeypatch):
    monkeypatch.setattr(Weights, "room", 10)
    with opened(tmp_path, {"a": NUMBERS, "b": NUMBERS}) as weights:
        assert [weights.matrix(name, 2, 3).held is None for name in "abab"] == [True, True, False, True]
        assert not weights.matrix("a", 2, 3).held.flags.writeable
        weights.room = 6
        assert [weights.matrix("b", 2, 3).held is None, weights.room] == [False, 0]


def test_tensors_without_numbers_of_other_shapes_or_rows_that_are_not_there_are_refused(tmp_path):
    empty = {"no rows": np.zeros((0, 3), np.float32), "no columns": np.zeros((3, 0), "f4")}
    folder = folder_of(tmp_path, empty)
    assert "shape (0, 3): it holds no numbers" in refused(folder, "no rows", None, 3)
    assert "shape (3, 0): it holds no numbers" in refused(folder, "no columns", 3, None)
    folder = folder_of(tmp_path, {"a": NUMBERS, "q\x1b": np.zeros((2, 2), np.int8), "o.qweight": NUMBERS})
    assert "by config.json it would be (3, any)" in refused(folder, "a", 3, None)
    assert "shape (2, 3)" in refused(folder, "a", 6)
    assert "quantised (GPTQ or AWQ)" in refused(folder, "o.weight", 2, 2)
    said = "has no tensor b. Its config.json is of another model, or the checkpoint is not complete."
    assert said in refused(folder, "b")
    assert "has no tensor b^[." in refused(folder, "b\x1b")
    assert "q^[: the weights are quantised (int8 numbers)" in refused(folder, "q\x1b", 2, 2)
    with opened(tmp_path, {"a": NUMBERS, "stack": NUMBERS[..., None]}) as weights:
        np.testing.assert_array_equal(weights.read("stack[1]", 3, 1), NUMBERS[1, :, None])
        for name, said in (("stack[2]", r"\(2, 3, 1\): there is no 2"), ("a[0]", r"\(3,\); by config.json")):
            with pytest.raises(InputError, match=said):
                weights.read(name, 3, 1)
        for row in (-1, 2, 1 << 40):
            with pytest.raises(InputError, match=f"no token {row}: .* has 2 rows") as found:
                weights.rows("a", np.array([0, row]), 3, "token")
            assert found.value.hint == "A token is 0 to 1."


def test_a_file_that_shrinks_while_threads_multiply_it_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("attn_cli.models.checkpoints.reader.PART", 3)
    monkeypatch.setattr("attn_cli.core.threads.processors", lambda: 2)
    with opened(tmp_path, {"a": np.ones((1000, 3), np.float32)}) as weights:
        stored = weights.stored("a", 1000, 3)
        os.truncate(tmp_path / "model.safetensors", 6000)
        for n, in_out in ((3, False), (1000, True)):
            with pytest.raises(InputError, match=CHANGED):
                product(np.ones((2, n), np.float32), stored, in_out)


def test_where_nothing_reads_at_positions_a_seek_does(tmp_path, monkeypatch):
    parts = os.preadv  # which a system may read in parts
    monkeypatch.setattr(os, "preadv", lambda file, views, offset: parts(file, [views[0][:5]], offset))
    with opened(tmp_path, {"a": NUMBERS}) as weights:
        np.testing.assert_array_equal(weights.read("a", 2, 3), NUMBERS)
    monkeypatch.delattr(os, "preadv")
    with opened(tmp_path, {"a": NUMBERS}) as weights:
        np.testing.assert_array_equal(weights.read("a", 2, 3), NUMBERS)
        os.truncate(tmp_path / "model.safetensors", 80)
        with pytest.raises(InputError, match=CHANGED):
            weights.read("a", 2, 3)


def test_a_name_is_found_with_its_prefix_and_by_its_elder_spelling(tmp_path):
    arrays = {name: np.zeros(2, np.float32) for name in ("bert.x.gamma", "bert.x.beta", "y.weight")}
    with opened(tmp_path, arrays, "bert.") as weights:
        assert weights.find("x.weight") == "bert.x.gamma" and weights.find("x.bias") == "bert.x.beta"
        assert weights.find("z.weight", "y.weight") == "y.weight" and weights.find("z.weight") is None
        assert weights.maybe("z.weight", 2) is None


def indexed(tmp_path, files):
    folder_of(tmp_path, {"a": NUMBERS}, "one.safetensors")
    text = files if isinstance(files, str) else json.dumps({"weight_map": files})
    (tmp_path / "model.safetensors.index.json").write_text(text)
    return str(tmp_path)


def test_shards_are_opened_when_a_tensor_of_theirs_is_wanted(tmp_path):
    files = {"a": "one.safetensors", "b": "two.safetensors", "c": "one.safetensors"}
    folder = indexed(tmp_path, files)
    with closing(Weights(folder)) as weights:
        np.testing.assert_array_equal(weights.read("a", 2, 3), NUMBERS)
    said = refused(indexed(tmp_path, {"a": "\x1b" + "x" * 999}), "a")
    assert f"points to ^[{'x' * 198}." in said
    folder = indexed(tmp_path, files)
    assert "two.safetensors" in refused(folder, "b", 2, 3, error=FileError)
    assert "has no tensor c, which model.safetensors.index.json says it has." in refused(folder, "c")


ELSEWHERE = "../one.safetensors /etc/passwd a/../b.safetensors .. b\\c.safetensors model.bin "  # and no name
NO_INDEX = ["", "[]", "{}", "[" * 100_000]
NO_INDEX += ['{"weight_map": []}', '{"weight_map": {"a": 1}}', '{"weight_map": null}']


@pytest.mark.parametrize("files", [*({"a": file} for file in ELSEWHERE.split(" ")), *NO_INDEX])
def test_an_index_that_is_none_or_points_elsewhere_is_refused(files, tmp_path):
    said = "needs a weight_map, from names to files." if files in NO_INDEX else "be .safetensors beside it."
    assert said in refused(indexed(tmp_path, files), "a")


LIE = b'{"a": {"dtype": "BF16", "shape": [32], "data_offsets": [32, 96]}}'


@pytest.mark.parametrize("header", [b"{" + b" " * (1 << 24), LIE])
def test_a_header_that_is_too_long_or_lies_is_refused_in_little_memory(header, tmp_path):
    content = struct.pack("<Q", len(header)) + header + b"\0" * 64
    (tmp_path / "model.safetensors").write_bytes(content)
    assert peak(lambda: refused(tmp_path, "a")) < 8_000_000


def test_a_large_tensor_takes_its_own_size_of_memory_and_no_more(tmp_path):
    with opened(tmp_path, dict.fromkeys("ab", np.ones((1000, 1000), np.float32))) as weights:
        assert peak(lambda: weights.read("a", 1000, 1000)) < 4_500_000
        assert peak(lambda: weights.rows("b", np.array([5]), 1000, "row")) < 4_500_000


def test_what_is_no_checkpoint_is_refused_and_pickles_with_a_line_that_converts_them(tmp_path):
    said = "has no model.safetensors and no model.safetensors.index.json. Give the folder of a checkpoint."
    for folder in (tmp_path, tmp_path / "none"):
        assert said in refused(folder, "a", error=FileError)
    for name, converts in {"z.bin": "z.bin", "y$(x).pt": "pytorch_model.bin", "a.ckpt": "a.ckpt"}.items():
        (tmp_path / name).write_bytes(b"\x80\x02.")  # the first by name is told
        told = refused(tmp_path, "a", error=FileError)
        assert f"its weights in {name}, a format that can run code" in told
        assert f"torch.load('{converts}', weights_only=True)" in told
    os.mkfifo(tmp_path / "model.safetensors")
    refused(tmp_path, "a", error=AttnError)
