"""Models with eight bits a number: half the bytes, numbers near those that were, and the same when quantized anew."""

import numpy as np
import pytest

from attn_cli.errors import InputError
from attn_cli.io.array_files import read_safetensors
from attn_cli.models import model_file
from attn_cli.models.int8 import EXPONENTS, dequantized, in_bits, quantized
from attn_cli.models.model_file import model_arrays, read_model
from tests import small_models as models
from tests.parsed import conllu
from tests.shell import attn


def bundled(name="roles-deep"):
    return model_arrays(str(model_file.data_path(f"{name}.safetensors")))[0]


def bytes_of(arrays):
    return sum(value.nbytes for value in arrays.values())


def test_quantized_matrices_take_half_the_bytes_near_what_was_and_stay_the_same():
    draw = np.random.default_rng(0)  # the file has eight bits a number already: others are made of them
    arrays = {
        name: value if value.dtype == np.uint8 else (value * draw.random(value.shape)).astype(np.float16)
        for name, value in bundled("roles").items()
    }
    small = quantized(arrays)
    assert bytes_of(small) < 0.55 * bytes_of(arrays)
    again = dequantized(small)
    assert again.keys() == arrays.keys()
    changed = 0
    for name, value in arrays.items():
        assert again[name].shape == value.shape
        np.testing.assert_array_equal(again[name].astype(value.dtype), again[name])  # each is a half
        if name + EXPONENTS in small:
            wide = value.astype(np.float64)
            assert (np.abs(again[name] - wide) <= np.abs(wide).max(axis=-1, keepdims=True) / 127).all()
            changed += 1
        else:
            np.testing.assert_array_equal(again[name], value)
    assert changed > 3
    once = quantized(arrays)
    twice = in_bits({n: v for n, v in dequantized(once).items() if v.dtype != np.uint8}, "8")
    twice |= {n: v for n, v in once.items() if v.dtype == np.uint8}
    assert all(np.array_equal(twice[name], once[name]) for name in once) and twice.keys() == once.keys()
    matrix = np.full((2, 1000), np.inf, np.float16)
    assert quantized({"W": matrix})["W"] is matrix


@pytest.mark.parametrize("size", [6e-8, 1e-6, 1.0, 6e4, 65280, 65504])
def test_rows_of_every_size_that_a_half_can_hold_are_quantized(size):
    row = np.linspace(-size, size, 1000).astype(np.float16)
    matrix = np.stack([row, np.zeros_like(row)])
    again = dequantized(quantized({"W": matrix}))["W"]
    assert np.isfinite(again).all() and not again[1].any()
    np.testing.assert_allclose(
        again[0].astype(float), row.astype(float), atol=max(size / 127, 2**-25), rtol=0
    )


@pytest.mark.parametrize("change", ["shape", "type", "large", "small", "missing"])
def test_exponents_that_do_not_fit_are_refused(tmp_path, change):
    made = models.arrays(layers=1, dim=400)
    halves = {n: v if v.dtype == np.uint8 else v.astype(np.float16) for n, v in made.items()}
    arrays = quantized(halves)
    name = "0.W_q" + EXPONENTS
    assert name in arrays
    arrays[name] = {
        "shape": arrays[name][:, :1],
        "type": arrays[name].astype(np.int16),
        "large": np.full_like(arrays[name], 100),
        "small": np.full_like(arrays[name], -100),
        "missing": None,
    }[change]
    whole = {key: value for key, value in arrays.items() if value is not None}
    path = models.write(tmp_path / "m.safetensors", whole, models.table(dim=400), ["a", "b", "c"])
    with pytest.raises(InputError) as refused:
        read_model(path)
    assert "0.W_q has shape" in refused.value.message and "int8" in refused.value.message


def test_training_with_eight_bits_writes_half_the_bytes_and_says_so_in_the_file(at):
    words = [f"w{n}" for n in range(30)]
    bank = [
        f"{a}/NOUN/2/nsubj {b}/VERB/0/root {c}/NOUN/2/obj" for a, b, c in zip(*[iter(words)] * 3, strict=True)
    ]
    (at / "bank.conllu").write_text(conllu(*bank))
    draw = np.random.default_rng(0)
    rows = (f"{word} {' '.join(f'{x:.3f}' for x in draw.standard_normal(40))}" for word in words)
    (at / "v.txt").write_text("\n".join(rows) + "\n")
    common = ("bank.conllu", "-e", "v.txt", "--epochs", "1", "--relations", "subject,object")
    for bits in ("16", "8"):
        done = attn("learn", "train", *common, "--bits", bits, "-o", f"{bits}.safetensors", cwd=at)
        assert done.code == 0, done.err
    (plain, _), (small, about) = (read_safetensors(at / f"{bits}.safetensors") for bits in ("16", "8"))
    assert bytes_of(small) < 0.6 * bytes_of(plain) and '"bits": "8"' in about["facts"]
    expected = dequantized(quantized(plain))
    found = model_arrays(str(at / "8.safetensors"))[0]
    for name, wanted in expected.items():  # of two trainings: an eighth bit may be rounded the other way
        np.testing.assert_allclose(found[name], wanted, atol=np.abs(wanted).max() / 64, err_msg=name)
    shown = attn("self", "w1 w2 w3", "-e", "v.txt", "-p", "8.safetensors", "--head", "subject", cwd=at)
    assert shown.code == 0 and "subject" in shown.out
    wrong = attn("learn", "train", *common, "--bits", "12", "-o", "12.safetensors", cwd=at)
    assert wrong.code == 2 and "'16', '8'" in wrong.err
