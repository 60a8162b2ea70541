"""A trained model made larger: it says nearly what it said, and has room to learn."""

import numpy as np
import pytest

from attn_cli import Settings, trace_masked, trace_self
from attn_cli.models.model_file import read_model
from data.making.tests.running import making
from tests.shell import ROOT

DEEP = f"{ROOT}/data/roles-deep.safetensors"
SENTENCE = "The animal did not cross the street because it was too tired"


@pytest.fixture(scope="module")
def sizes():
    """Those of the bundled model: numbers a word, hidden units, and words with a vector of their own."""
    now = read_model(DEEP)
    return now.W_in.shape[1], now.encoders[0].b_1.size, now.facts["settings"]["itself"]


def test_it_says_nearly_what_it_said_with_more_numbers(sizes, tmp_path):
    width, wide, itself = sizes
    asked = "--width", str(width + 64), "--wide", str(wide + 100), "--itself", str(itself + 500)
    done = making("widen", DEEP, *asked, "-o", "wider.safetensors", cwd=tmp_path)
    assert done.code == 0 and "attn: wrote wider.safetensors: " in done.err, done.err
    path = str(tmp_path / "wider.safetensors")
    wider = read_model(path)
    assert (wider.W_in.shape[1], wider.encoders[0].b_1.size) == (width + 64, wide + 100)
    assert (
        wider.facts["settings"]["itself"] == itself + 500
        and wider.facts["widened"]["from"] == "roles-deep.safetensors"
    )
    for head in ("relations", "head", "antecedent"):
        before, now = (
            trace_self(SENTENCE, Settings(projection=one, head=head)).weights for one in (DEEP, path)
        )
        np.testing.assert_allclose(now, before, atol=0.1)
        assert (now.argmax(axis=1) == before.argmax(axis=1)).mean() > 0.9


def test_a_language_model_of_twice_the_width_says_the_same(tmp_path):
    before = f"{ROOT}/data/language.safetensors"
    width = read_model(before).W_in.shape[1]
    asked = "--width", str(2 * width), "--wide", "1100", "--itself", "12000"
    done = making("widen", before, *asked, "-o", "wider.safetensors", cwd=tmp_path)
    assert done.code == 0, done.err
    after = str(tmp_path / "wider.safetensors")
    for layer in (0, 1, 2):
        found = [
            trace_masked("The cat sat on the mat", Settings(projection=one, layer=str(layer))).weights
            for one in (before, after)
        ]
        np.testing.assert_allclose(*found, atol=0.01)


def test_a_size_that_cannot_be_is_refused(sizes, tmp_path):
    width, wide, itself = sizes
    for wrong, said in (
        (("--width", str(width - 8)), f"--width {width - 8} is less than the model has, {width}"),
        (("--width", str(2 * width + 8)), "is more than twice"),
        (
            ("--width", str(width + 1), "--wide", str(wide), "--itself", str(itself)),
            "cannot be shared among 8 heads",
        ),
    ):
        done = making("widen", DEEP, *wrong, "-o", "wider.safetensors", cwd=tmp_path)
        assert done.code == 2 and said in done.err, done.err
    one_layer = making("widen", f"{ROOT}/data/roles.safetensors", "-o", "wider.safetensors", cwd=tmp_path)
    assert one_layer.code == 65 and "roles.safetensors has one layer" in one_layer.err, one_layer.err
