"""The mask lab and padding: words, polarities, corners, and rows in which nothing is left to look at."""

import json
import math
import re

import numpy as np
import pytest

from attn_cli import Settings, trace_cross, trace_masked, trace_self
from attn_cli.core.masks import Mask, named, widened, with_padding
from attn_cli.errors import UsageError
from attn_cli.pipeline.sources.matrices import trace_matrices
from attn_cli.render.screen.text import cells
from attn_cli.teach.examples import load
from tests.shell import here, plain

CAT = "The cat sat on a mat"
RANDOM = ("-e", "random")


def lab(*args, command="masked"):
    """The record with the views of the mask."""
    ran = here(command, *args, "--show", "mask", "-f", "json")
    assert (ran.code, ran.err) == (0, "")
    return json.loads(ran.out)


def screen(*args, command="masked", width="200", env=None):
    ran = here(command, *args, "--show", "mask", "--width", width, env=env)
    assert (ran.code, ran.err) == (0, "")
    return ran.out


# Padding


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("mask", ["none", "causal", "window:1"])
@pytest.mark.parametrize(
    "more",
    [
        {"embedding": "random"},
        {"embedding": "random", "projection": "identity", "score": "cosine"},
        {"head": "subject"},
        {"projection": "roles-deep"},
        {"projection": "roles-deep", "layer": 1},
    ],
    ids=str,
)
def test_padding_changes_no_weight_of_a_real_word(side, mask, more):
    """The rules count distances or places from the start; both are moved alike for queries and keys."""
    settings = Settings(mask=mask, **more)
    alone = trace_self(CAT, settings)
    padded = trace_self(CAT, Settings(mask=mask, pad=3, pad_side=side, **more))
    real = slice(3, None) if side == "left" else slice(0, -3)
    np.testing.assert_allclose(padded.weights[real, real], alone.weights, rtol=0, atol=1e-12)
    np.testing.assert_allclose(padded.output[real], alone.output, rtol=0, atol=1e-10)
    assert not padded.weights[:, list(padded.pad_keys)].any()


@pytest.mark.parametrize("projection", ["roles", "roles-deep", "identity"])
def test_in_cross_attention_the_context_is_padded_also_below_and_the_text_is_not(projection):
    alone = trace_cross("she", "likes black coffee", Settings(projection=projection))
    padded = trace_cross("she", "likes black coffee", Settings(projection=projection, pad=2))
    assert padded.query_tokens == ("she",)
    assert padded.key_tokens == ("likes", "black", "coffee", "<pad>", "<pad>")
    np.testing.assert_allclose(padded.weights[:, :3], alone.weights, rtol=0, atol=1e-12)
    assert not padded.mask[:, 3:].any()


def test_left_padding_under_a_causal_mask_leaves_rows_with_nothing_which_are_zeros_and_noted():
    trace = trace_masked(CAT, Settings(embedding="random", pad=2, pad_side="left"))
    assert not trace.weights[:2].any() and not trace.output[:2].any()
    np.testing.assert_allclose(trace.weights[2:].sum(axis=1), 1)
    assert any("fully masked row: <pad> (0), <pad> (1)" in note for note in trace.notes)
    assert any("2 padding tokens stand before the text" in note for note in trace.notes)


def test_padding_has_an_id_and_zeros_and_is_no_unknown_word():
    trace = trace_self("she likes she", Settings(pad=2))
    assert trace.query_ids == (0, 1, 0, 2, 2)
    assert trace.unknown == ()
    assert not trace.x_query[3:].any()
    record = trace.to_dict()
    assert (record["padding"], record["mask_name"]) == ([3, 4], "padding")
    assert trace_self("she likes she").to_dict()["padding"] is None


def test_a_word_that_is_spelled_like_padding_is_a_word():
    trace = trace_self("a <pad> b", Settings(embedding="random", tokenizer="whitespace", pad=1))
    assert trace.mask.tolist() == [[True, True, True, False]] * 4


def test_a_mask_file_states_the_text_alone_and_is_joined_with_padding(tmp_path):
    path = tmp_path / "mask.txt"
    path.write_text("1 0\n1 1\n")
    for side, wanted in (
        ("right", [[1, 0, 0], [1, 1, 0], [1, 1, 0]]),
        ("left", [[0, 1, 1], [0, 1, 0], [0, 1, 1]]),
    ):
        settings = Settings(
            "words", embedding="random", mask=str(path), mask_true="allowed", pad=1, pad_side=side
        )
        assert trace_self("a b", settings).mask.astype(int).tolist() == wanted


def test_no_rule_needs_more_than_the_rows_that_are_asked_for():
    mask = with_padding(named("causal", 10**6, 10**6), 10**6, 10**6, range(3))
    assert np.flatnonzero(mask.rows([5])[0]).tolist() == [3, 4, 5]
    assert mask.label == "causal, padding"
    assert with_padding(None, 3, 3, range(2, 3)).label == "padding"
    part = widened(Mask("m", 1, 1, np.array([[False]])), 2, 3, range(1, 2), range(2, 3))
    assert part.rows([0, 1]).tolist() == [[True] * 3, [True, True, False]]


def test_padding_of_a_long_text_is_hidden_there_too():
    trace = trace_self("w " * 1100, Settings(embedding="random", pad=5, pad_side="left"))
    assert trace.condensed
    assert int(trace.shown.links.keys.min()) == 5
    assert "The mask is padding." in trace.notes


def test_rows_of_zeros_pad_given_vectors_and_given_queries_refuse_it():
    trace = trace_matrices("example", load("coffee").given, Settings(pad=1))
    assert trace.key_tokens == ("she", "likes", "coffee", "<pad>")
    assert not trace.x_key[3].any() and not trace.weights[:, 3].any()
    with pytest.raises(UsageError, match="gives Q, K and V themselves"):
        trace_matrices("example", load("day1").given, Settings(pad=1))


def test_a_side_without_padding_is_noted_and_a_number_out_of_range_is_refused():
    assert "--pad-side counts only with --pad." in trace_self("a", Settings(pad_side="left")).notes
    for n in ("0", "-1", "10001"):
        assert here("self", "a", "--pad", n).code == 2


@pytest.mark.parametrize("side", ["left", "right"])
def test_the_walk_turns_on_a_word_and_never_on_padding(side):
    for more in ({}, {"embedding": "random"}):
        trace = trace_self("the dog chased the cat", Settings(pad=4, pad_side=side, **more))
        assert trace.query_tokens[trace.focus[0]] != "<pad>"
        alone = trace_self("the dog chased the cat", Settings(**more))
        assert trace.query_tokens[trace.focus[0]] == alone.query_tokens[alone.focus[0]]


def test_padding_is_said_to_start_as_zeros():
    out = here("explain", "the cat", *RANDOM, "--pad", "1", "--steps", "-q", "<pad>", "--width", "200").out
    assert '"<pad>" starts' not in out or "padding, which starts as zeros" in out
    assert "x = [0  0  0  0]" in out


# The lab


def test_every_query_says_in_words_whom_it_may_look_at():
    words = lab(CAT, *RANDOM)["mask_views"]["words"]
    assert words[2] == '"sat" may look at "The", "cat", "sat" (3 of 6).'
    assert words[0] == '"The" may look at "The" (1 of 6).'
    out = screen(CAT, *RANDOM)
    assert all(sentence in out for sentence in words)


def test_words_that_occur_twice_are_told_apart_and_long_lists_are_counted():
    words = lab("the cat the " + "dog " * 20, *RANDOM)["mask_views"]["words"]
    assert words[2] == '"the" (2) may look at "the" (0), "cat", "the" (2) (3 of 23).'
    assert "..." in words[-1] and words[-1].endswith("(23 of 23).")


@pytest.mark.parametrize(
    "args",
    [(CAT,), (CAT, "--mask", "window:1"), (CAT, "--pad", "2"), (CAT, "--mask", "none"), (CAT, "-q", "sat")],
)
def test_the_views_are_one_mask_in_each_polarity(args):
    record = lab(*args, *RANDOM)
    views = record["mask_views"]
    allowed = record["mask"] or [[True] * 6] * 6
    assert views["torch_sdpa"] == views["keras"] == allowed
    assert views["torch_mha"] == [[not may for may in row] for row in allowed]
    assert views["additive"] == [[0.0 if may else None for may in row] for row in allowed]
    pads = record["padding"]
    assert views["key_padding"] == (pads and [j in pads for j in range(len(record["key_tokens"]))])


def test_the_screen_writes_the_three_polarities_side_by_side():
    out = screen(CAT, *RANDOM)
    lines = [line for line in out.splitlines() if re.match(r"(The|cat|sat|on|a|mat) .*[TF]\b.*[TF]", line)]
    assert len(lines) == 6
    for i, line in enumerate(lines):
        marks = re.findall(r"\b[TF]\b", line)
        sdpa, mha, keras = marks[:6], marks[6:12], marks[12:]
        assert sdpa == keras == ["T" if j <= i else "F" for j in range(6)]
        assert mha == ["F" if j <= i else "T" for j in range(6)]


def test_what_is_added_is_zero_or_minus_infinity():
    out = screen("a b c", *RANDOM)
    part = out.split("added to the scores")[1].split("Adding")[0]
    assert [line.split() for line in re.findall(r"^[abc] .*", part, re.M)] == [
        ["a", "0", "-inf", "-inf"],
        ["b", "0", "0", "-inf"],
        ["c", "0", "0", "0"],
    ]


def test_masked_after_the_softmax_a_row_would_not_sum_to_one():
    record = json.loads(here("masked", "a b c", *RANDOM, "--steps", "-f", "json").out)
    left = []
    for i, row in enumerate(record["heads"][0]["scaled_scores"]):
        exps = [math.exp(score) for score in row]
        left.append(sum(exps[: i + 1]) / sum(exps))
    worst = min(left)
    assert f"would sum to {worst:.3f}" in screen("a b c", *RANDOM)


def test_both_corners_are_shown_where_lengths_differ_and_only_there():
    out = screen("a b", "x y z", *RANDOM, command="cross")
    part = out.split("which corner?")[1]
    rows = [re.findall(r"\b[TF]\b", line) for line in part.splitlines() if re.match(r"[ab] ", line)]
    assert rows[0] == ["T", "F", "F", "T", "T", "F"]
    assert rows[1] == ["T", "T", "F", "T", "T", "T"]
    assert "which corner?" not in screen("a b", *RANDOM)
    blind = screen("a b c", "x", *RANDOM, command="cross")
    assert "the first 2 queries see nothing" in blind


def test_a_fully_masked_row_is_explained_and_otherwise_the_way_to_one_is_told():
    out = screen(CAT, *RANDOM, "--pad", "2", "--pad-side", "left")
    assert 'Every key is masked for "<pad>" (0), "<pad>" (1).' in out
    assert "NaN with need_weights=True" in out
    out = screen(CAT, *RANDOM)
    assert "No row shown here is fully masked" in out and "need_weights" not in out


def test_a_window_a_file_and_no_mask_are_told_in_words(tmp_path):
    assert "at most 2 places away" in screen(CAT, *RANDOM, "--mask", "window:2")
    path = tmp_path / "mask.txt"
    path.write_text("0 1\n0 0\n")
    said = screen("a b", *RANDOM, "--mask", str(path), "--mask-true", "blocked")
    assert "True in it means blocked." in said
    assert '"a" may look at "a" (1 of 2).' in said
    refused = here("masked", "a b", *RANDOM, "--mask", str(path), "--show", "mask")
    assert refused.code == 2 and "--mask-true" in refused.err
    assert "Every query may look at every key." in screen("a b", *RANDOM, command="self")


def test_a_file_that_is_called_padding_is_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "padding").write_text("1 0\n1 1\n")
    out = screen("a b", *RANDOM, "--mask", "./padding", "--mask-true", "allowed", "--pad", "1")
    assert "The mask comes from ./padding." in out


@pytest.mark.parametrize("form", ["csv", "tsv", "code:numpy"])
def test_a_form_that_the_lab_has_not_is_refused(form):
    ran = here("masked", CAT, *RANDOM, "--show", "mask", "-f", form)
    assert ran.code == 2 and f"no {form} form" in ran.err


def test_the_lab_is_markdown_too():
    out = here("masked", "a b", *RANDOM, "--show", "mask", "-f", "markdown").out
    assert "### torch MHA: T is blocked" in out
    assert "| a | F | T |" in out
    assert r"| a | 0 | \-inf |" in out


HOSTILE = "[red] \x1b[31mESC </td> \u202eRTL 🦊🦊 \\input{x} " + "long" * 1200


@pytest.mark.parametrize("width", ["20", "40", "80"])
@pytest.mark.parametrize("text", [CAT, HOSTILE, "one", "w " * 60], ids=["cat", "hostile", "one", "sixty"])
def test_no_line_is_wider_than_the_terminal_and_no_token_is_obeyed(width, text):
    for color in ("never", "always"):
        ran = here(
            "masked", text, *RANDOM, "--tokenizer", "whitespace", "--show", "mask", "--width", width,
            "--pad", "1", "--pad-side", "left", "--color", color,
        )  # fmt: skip
        assert ran.code == 0
        out = plain(ran.out)
        assert max(cells(line) for line in out.splitlines()) <= int(width)
        assert "\x1b" not in out and "\u202e" not in out
        assert "nan" not in out.replace("NaN", "").split("A fully masked row")[0]


def test_a_long_text_shows_a_part_and_says_so():
    out = screen("w " * 1100, *RANDOM, width="80")
    assert "of 1,100 rows" in out and "of 1,100 columns" in out
    assert lab("w " * 1100, *RANDOM)["mask_views"] is None
    assert '"w" (700) may look at' in screen("w " * 1100, *RANDOM, "-q", "700", width="80")
