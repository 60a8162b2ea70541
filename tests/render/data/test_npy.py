"""-f npy: the whole matrix as a NumPy file, however long the text."""

import io
import subprocess
from dataclasses import replace

import numpy as np
import pytest

from attn_cli import Settings, trace_cross, trace_masked, trace_self
from attn_cli.errors import UsageError
from attn_cli.render.formats.built_in import npy_parts as npy
from tests.shell import COMMAND, attn, here, surroundings, terminal
from tests.thorough import like_cases

TEXT = "The quick brown fox jumped over the lazy dog"
LONG = " ".join(f"w{i % 97}" for i in range(1100))  # a little more than a million weights


def loaded(trace):
    return np.load(io.BytesIO(b"".join(npy(trace))), allow_pickle=False)


SHORT = {
    "one head": (lambda: trace_self(TEXT), lambda trace: trace.weights),
    "a mean": (lambda: trace_cross(TEXT, "a cat", Settings(head="mean")), lambda trace: trace.weights),
    "all": (
        lambda: trace_self(TEXT, Settings(head="all")),
        lambda trace: [one.weights for one in trace.heads],
    ),
    "a row": (lambda: trace_self(TEXT, Settings(query="the")), lambda trace: trace.weights[[6]]),
    "all of one": (
        lambda: trace_self(TEXT, Settings(head="all", projection="identity")),
        lambda trace: trace.weights[np.newaxis],
    ),
}


@pytest.mark.parametrize("kind", SHORT)
def test_the_file_holds_the_weights_of_what_is_shown_and_all_heads_are_an_axis(kind):
    make, wanted = SHORT[kind]
    trace = make()
    np.testing.assert_array_equal(loaded(trace), wanted(trace))


def test_the_numbers_are_those_that_were_computed_with():
    assert loaded(trace_self(TEXT, Settings(dtype="float32"))).dtype == np.float32
    assert loaded(trace_self(TEXT)).dtype == np.float64


@pytest.mark.parametrize(
    "settings",
    [
        Settings(),
        Settings(mask="causal"),
        Settings(mask="window:3", embedding="random"),
        Settings(embedding="random", heads=2, head="mean", dtype="float32"),
        Settings(score="cosine", threads=2),
    ],
)
@like_cases
def test_a_long_text_has_all_its_weights_in_the_file_although_none_are_kept(settings):
    trace = trace_self(LONG, settings)
    assert trace.condensed
    found, whole = loaded(trace), trace_self(LONG, replace(settings, full=True))
    within = 1e-12 if settings.dtype == "float64" else 1e-6
    np.testing.assert_allclose(found, whole.weights, rtol=0, atol=within)
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-5)


def test_rows_of_a_long_text():
    trace = trace_masked(LONG, Settings(query="700"))
    found = loaded(trace)
    assert found.shape == (1, 1100) and found[0, 701:].max() == 0
    assert found.sum() == pytest.approx(1)


def test_the_suffix_of_a_file_chooses_it_and_attn_show_reads_it(at):
    assert attn("self", TEXT, "--head", "all", "-o", "weights.npy", cwd=at).code == 0
    shown = attn("show", "weights.npy", "--head", "0", "-f", "json", cwd=at)
    assert shown.code == 0 and '"head": "0"' in shown.out


def test_it_goes_down_a_pipe_and_a_terminal_is_spared(at):
    command = [*COMMAND, "self", TEXT, "-f", "npy"]
    done = subprocess.run(command, capture_output=True, env=surroundings(), cwd=at, check=True)
    assert np.load(io.BytesIO(done.stdout)).shape == (9, 9)
    ran = terminal("self", TEXT, "-f", "npy")
    assert ran.code == 2 and "-o weights.npy" in ran.out


def test_links_alone_are_no_matrix_and_that_is_said_before_the_work(at):
    ran = here(
        "self", "no token of this is looked up", *["-e", "no/such/vectors.txt", "-f", "npy", "--top", "2"]
    )
    assert ran.code == 2 and "--top" in ran.err
    with pytest.raises(UsageError, match="--top"):
        loaded(trace_self(TEXT, Settings(top=2)))


def test_nothing_is_said_to_be_left_out_where_nothing_is(at):
    ran = here("self", LONG, "-e", "random", "-o", "w.npy")
    assert ran.code == 0 and "strongest links" not in ran.err
    assert "steps" in here("self", TEXT, "-o", "w.npy", "--steps").err


def test_a_full_disk_is_an_error_and_leaves_nothing(at):
    assert attn("self", LONG, "-f", "npy", "-o", "/dev/full", cwd=at).code == 74
    assert attn("self", TEXT, "-o", "no/such/place.npy", cwd=at).code == 73
    assert not list(at.iterdir())
