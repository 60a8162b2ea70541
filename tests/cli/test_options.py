"""What is stated in two places agrees: choices, heads, palettes, and what a long text is shown with."""

import json

import pytest

from attn_cli import AttnError, Settings, trace_masked
from attn_cli.core.masks import MASKS
from attn_cli.core.scores import SCORES
from attn_cli.inputs.matrices import given_from
from attn_cli.learn.relations import RELATIONS
from attn_cli.models.model_file import BUNDLED as MODELS, bundled as bundled_model
from attn_cli.render.ramps import DARK, LIGHT
from attn_cli.settings import MOST_GUESSED, ROLES_HEADS
from attn_cli.settings.output import PALETTES
from tests.alike import assert_alike
from tests.docs import commands
from tests.shell import here, refused


def test_an_error_of_a_setting_names_the_field_in_python_and_the_option_on_the_command_line():
    with pytest.raises(ValueError, match=r"^pad_side cannot be 'up'\. Choose right, left\.$") as caught:
        Settings(pad_side="up")
    assert isinstance(caught.value, AttnError) and caught.value.code == 2
    assert Settings(dim=100_000).dim == 100_000  # the most that there may be
    said = refused("self", "a b", "--pad", "0")
    assert said == "attn: --pad cannot be 0. Give a whole number from 1 to 10,000.\n"


def test_a_score_and_a_mask_rule_that_are_added_to_the_registries_are_known_everywhere(monkeypatch, at):
    monkeypatch.setitem(SCORES, "double", SCORES["dot"]._replace(help="double is a name of its own"))
    monkeypatch.setitem(MASKS, "everything", MASKS["none"])
    assert Settings(score="double", mask="everything").score == "double"
    assert given_from({"X": [[1.0]], "score": "double"}, "given").score == "double"
    options = {option.name: option for option in commands()["self",].params}
    assert "double" in options["score"].type.choices and "double is a name" in options["score"].help
    assert "everything" in options["mask"].help
    (at / "attn.toml").write_text('score = "double"')
    chosen = ["self", "a b", "-e", "random", "--mask", "everything", "-f", "json"]
    found, usual = (json.loads(here(*chosen, *more).out) for more in ((), ("--score", "dot")))
    assert found["score"] == "double"
    assert_alike(found["weights"], usual["weights"])


def test_the_heads_and_palettes_that_are_offered_are_those_that_there_are():
    names = [head.name for head in bundled_model(MODELS[0]).last.heads]
    assert list(ROLES_HEADS) == list(names)
    assert names == [name for name, one in RELATIONS.items() if not one.of_passages]
    assert set(PALETTES) == {*DARK, *LIGHT}


@pytest.mark.parametrize("n", [MOST_GUESSED, MOST_GUESSED + 1])
def test_a_long_text_keeps_roles_and_says_so_unless_it_is_asked_for_what_they_lack(n, monkeypatch):
    text = " ".join(["cat"] * n)
    trace = trace_masked(text)
    is_long = n > MOST_GUESSED
    assert trace.projection.name == ("roles" if is_long else "language")
    assert any("-p language says its next words" in note for note in trace.notes) == is_long
    assert (trace.next_words is None) == is_long
    asked = {"next": 1, "next_at": "all", "layer": 0, "head": "article", "knock_out": ("0.0",)}
    monkeypatch.setattr("attn_cli.pipeline.sources.text.trace_text", lambda *args, **more: args[3])
    for name, value in asked.items():
        assert trace_masked(text, Settings(**{name: value})).projection == "language"
