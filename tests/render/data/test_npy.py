"""-f npy: the whole matrix as a NumPy file, however long the text."""

import io
import subprocess
from dataclasses import replace

import numpy as np
import pytest

from attn_cli import Settings, trace_cross, trace_masked, trace_self
from attn_cli.errors import UsageError
from attn_cli.render.formats.built_in import npy_parts as npy
from tests.shell import COMMAND, attn, here, record, refused, surroundings, terminal
from tests.thorough import like_cases

TEXT = "The quick brown fox jumped over the lazy dog"
LONG = " ".join(f"w{i % 97}" for i in range(1100))  # a little more than a million weights


def loaded(trace):
    return np.load(io.BytesIO(b"".join(npy(trace))), allow_pickle=False)


def test_the_file_holds_the_weights_of_what_is_shown_and_all_heads_are_an_axis():
    for trace in (trace_self(TEXT), trace_cross(TEXT, "a cat", Settings(head="mean"))):
        np.testing.assert_array_equal(loaded(trace), trace.weights)
    row = trace_self(TEXT, Settings(query="the"))
    np.testing.assert_array_equal(loaded(row), row.weights[[6]])
    for settings in (Settings(head="all"), Settings(head="all", projection="identity")):  # 11, and one
        every = trace_self(TEXT, settings)
        np.testing.assert_array_equal(loaded(every), [head.weights for head in every.heads])


KINDS = [{}, {"mask": "causal"}, {"mask": "window:3", "embedding": "random"}]
KINDS += [{"score": "cosine", "threads": 2}]
KINDS += [{"embedding": "random", "heads": 2, "head": "mean", "dtype": "float32"}]


@pytest.mark.parametrize("kind", KINDS, ids=str)
@like_cases
def test_a_long_text_has_all_its_weights_in_the_file_although_none_are_kept(kind):
    settings = Settings(**kind)
    trace = trace_self(LONG, settings)
    assert trace.condensed
    found, whole = loaded(trace), trace_self(LONG, replace(settings, full=True))
    within = 1e-12 if settings.dtype == "float64" else 1e-6
    np.testing.assert_allclose(found, whole.weights, rtol=0, atol=within)
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-5)


def test_a_suffix_chooses_it_rows_are_rows_and_links_alone_are_no_matrix(at):
    assert here("self", TEXT, "--head", "all", "-o", "weights.npy").code == 0
    assert record("show", "weights.npy", "--head", "0")["head"] == "0"
    command = [*COMMAND, "self", TEXT, "-f", "npy"]
    done = subprocess.run(command, capture_output=True, env=surroundings(), cwd=at, check=True)
    assert np.load(io.BytesIO(done.stdout)).shape == (9, 9)
    ran = terminal("self", TEXT, "-f", "npy")
    assert ran.code == 2 and "-o weights.npy" in ran.out
    assert loaded(trace_self(TEXT, Settings(dtype="float32"))).dtype == np.float32
    assert loaded(trace_self(TEXT)).dtype == np.float64
    found = loaded(trace_masked(LONG, Settings(query="700")))
    assert found.shape == (1, 1100) and found[0, 701:].max() == 0
    assert found.sum() == pytest.approx(1)
    unread = ("self", "no token of this is looked up", "-e", "no/such/vectors.txt")
    assert "--top" in refused(*unread, "-f", "npy", "--top", "2")  # before the work
    with pytest.raises(UsageError, match="--top"):
        loaded(trace_self(TEXT, Settings(top=2)))
    ran = here("self", LONG, "-e", "random", "-o", "w.npy")
    assert ran.code == 0 and "strongest links" not in ran.err
    assert "steps" in here("self", TEXT, "-o", "w.npy", "--steps").err
    before = {path: path.read_bytes() for path in at.iterdir()}
    assert attn("self", LONG, "-f", "npy", "-o", "/dev/full", cwd=at).code == 74
    assert attn("self", TEXT, "-o", "no/such/place.npy", cwd=at).code == 73
    assert {path: path.read_bytes() for path in at.iterdir()} == before  # a full disk leaves nothing
