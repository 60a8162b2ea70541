"""What a command shows when nothing is asked: the table says it, the command does it, help and docs tell it."""

import json

import numpy as np
import pytest

from attn_cli import Settings, trace_cross, trace_masked, trace_self
from attn_cli.settings.settings import DEFAULTS, MOST_GUESSED, usual
from tests.pipeline.records import record
from tests.shell import here

TEXT = "The quick brown fox jumped over the lazy dog"
TRACES = {
    "self": lambda settings=None: trace_self(TEXT, settings),
    "masked": lambda settings=None: trace_masked(TEXT, settings),
    "cross": lambda settings=None: trace_cross(TEXT, "A cat sat on the mat", settings),
}


@pytest.mark.parametrize("command", TRACES)
def test_the_table_of_defaults_gives_way_to_a_head_of_roles_other_vectors_and_heads_of_ones_own(command):
    trace, default = TRACES[command](), DEFAULTS[command]
    shown = trace.projection.name, trace.shown.name, trace.mask_name
    assert shown == (default.projection, default.head, default.mask)
    assert TRACES[command](Settings(head="subject")).projection.name == "roles"
    assert TRACES[command](Settings(embedding="random")).projection.source == "random"
    assert TRACES[command](Settings(heads=2)).projection.source == "identity"
    assert TRACES[command](Settings(projection="roles")).shown.name == "relations"


def test_masked_shows_the_next_words_and_why_the_mask_exists_and_no_weight_above_the_diagonal():
    trace = trace_masked(TEXT)
    assert not np.triu(trace.weights, 1).any()
    np.testing.assert_allclose(trace.weights.sum(axis=1), 1)
    first, second = trace.next_words.words[:2]
    said = " ".join(here("masked", TEXT, "--width", "80").out.split())
    assert f'no word may look ahead: after "dog" it expects "{first.word}"' in said and second.word in said
    i = trace.query_tokens.index("dog")  # the row that is furthest above an even share of what it may look at
    assert f'"dog" looks most at "{trace.key_tokens[trace.weights[i].argmax()]}"' in said
    assert "Next: attn explain TEXT -p language" in said and "attn masked TEXT --next-at all" in said


@pytest.mark.parametrize("n", [MOST_GUESSED, MOST_GUESSED + 1])
def test_a_long_text_keeps_roles_and_says_so_unless_it_is_asked_what_comes_next(n):
    text = " ".join(["cat"] * n)
    trace = trace_masked(text)
    is_long = n > MOST_GUESSED
    assert trace.projection.name == ("roles" if is_long else "language")
    assert any("-p language says its next words" in note for note in trace.notes) == is_long
    assert (trace.next_words is None) == is_long
    if is_long:
        assert trace_masked(text, Settings(next=1)).projection.name == "language"


@pytest.mark.parametrize("command", ["self", "explain"])
def test_a_mask_in_another_command_changes_no_model(command):
    bare, under = (record(command, TEXT, *more) for more in ((), ("--mask", "causal")))
    assert bare["projection"] == under["projection"] and bare["head"] == under["head"]


def test_a_batch_keeps_roles_and_help_tells_the_table(tmp_path):
    (tmp_path / "lines.txt").write_text(TEXT)
    ran = here("batch", str(tmp_path / "lines.txt"), "--kind", "masked", "--fields", "projection,mask_name")
    assert json.loads(ran.out)["projection"]["name"] == "roles"
    batch, masked = (" ".join(here(command, "--help").out.split()) for command in ("batch", "masked"))
    assert "masked has the heads of roles" in batch
    assert all(f"[default: {usual(field)}" in masked for field in ("projection", "head", "mask"))
