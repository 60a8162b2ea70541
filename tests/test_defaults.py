"""What a command shows when nothing is asked: the table says it, the command does it, help and docs tell it."""

import pytest

from attn_cli import Settings, trace_cross, trace_masked, trace_self
from attn_cli.models.model_file import bundled
from attn_cli.settings.defaults import DEFAULTS, ROLES_HEADS, usual
from tests.shell import here

TEXT = "The quick brown fox jumped over the lazy dog"
TRACES = {
    "self": lambda settings=None: trace_self(TEXT, settings),
    "masked": lambda settings=None: trace_masked(TEXT, settings),
    "cross": lambda settings=None: trace_cross(TEXT, "A cat sat on the mat", settings),
}


@pytest.mark.parametrize("command", TRACES)
def test_a_command_shows_what_the_table_of_defaults_says(command):
    trace, default = TRACES[command](), DEFAULTS[command]
    shown = trace.projection.name, trace.shown.name, trace.mask_name
    assert shown == (default.projection, default.head, default.mask)


@pytest.mark.parametrize("command", TRACES)
def test_a_head_of_roles_other_vectors_and_heads_of_ones_own_come_before_the_default(command):
    assert TRACES[command](Settings(head="subject")).projection.name == "roles"
    assert TRACES[command](Settings(embedding="random")).projection.source == "random"
    assert TRACES[command](Settings(heads=2)).projection.source == "identity"
    assert TRACES[command](Settings(projection="roles")).shown.name == "relations"


def test_the_heads_that_select_roles_are_those_of_roles():
    assert bundled("roles").head_names(0) == ROLES_HEADS


def test_help_tells_the_table():
    told = " ".join(here("masked", "--help").out.split())
    assert all(f"[default: {usual(field)}" in told for field in ("projection", "head", "mask"))
