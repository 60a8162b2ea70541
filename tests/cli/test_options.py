"""What is stated in two places agrees: choices, formats, palettes and defaults."""

import inspect
from dataclasses import fields
from typing import get_args, get_type_hints

import pytest

from attn_cli.cli.commands.learn import train as train_model
from attn_cli.cli.commands.vector_files import train
from attn_cli.cli.options import HEADS, OPTIONS
from attn_cli.learn.relations import RELATIONS
from attn_cli.learn.settings import TrainSettings as ModelSettings
from attn_cli.models.model_file import BUNDLED as MODELS
from attn_cli.models.model_file import bundled as bundled_model
from attn_cli.render import FORMATS
from attn_cli.render.palette import NAMES
from attn_cli.settings.validate import CHOICES
from attn_cli.vectors.lookup import look_up
from attn_cli.vectors.nearest import nearest
from attn_cli.vectors.store.table import bundled
from attn_cli.vectors.train import TrainSettings


def offered(name: str) -> set[str]:
    kind = get_args(OPTIONS[name])[0]
    choices = get_args(kind)
    return {
        value for choice in choices for value in (get_args(choice) or (choice,)) if isinstance(value, str)
    }


@pytest.mark.parametrize("name", CHOICES)
def test_an_option_offers_what_the_check_accepts(name):
    assert offered(name) == set(CHOICES[name])


def test_every_format_and_every_palette_is_offered():
    assert offered("format") == set(FORMATS)
    assert offered("palette") == set(NAMES)


def test_training_by_command_and_by_library_have_the_same_defaults():
    parameters = inspect.signature(train).parameters
    assert get_type_hints(train)
    for field in fields(TrainSettings):
        assert parameters[field.name].default == field.default, field.name


def test_training_a_model_by_command_and_by_library_have_the_same_defaults():
    parameters = inspect.signature(train_model).parameters
    known = {field.name: field.default for field in fields(ModelSettings)}
    both = set(parameters) & set(known)
    assert both >= {"layers", "heads", "relations", "epochs", "rate", "dim", "reach", "seed"}
    for name in both:
        assert parameters[name].default == known[name], name
    assert set(parameters) - both == {"treebanks", "output", "dev", "embedding"}


def test_the_help_names_the_defaults_that_depend_on_the_number_of_layers():
    hints = get_type_hints(train_model, include_extras=True)
    for name in ("epochs", "rate"):
        said = get_args(hints[name])[1].help
        one, several = (getattr(ModelSettings(layers=layers).settled(), name) for layers in (1, 2))
        assert f"[default: {one}, with several layers {several}]" in said


def test_the_heads_that_are_offered_are_those_of_the_default_model_and_of_the_relations():
    names = [head.name for head in bundled_model(MODELS[0]).last.heads]
    assert list(HEADS) == [*names, "mean", "all"]
    assert names == list(RELATIONS)


def test_the_bundled_vectors_know_the_words_of_the_tutorials_and_put_colour_next_to_color():
    table = bundled()
    words = (
        "the quick brown fox jumped over the lazy dog cat sat on mat she likes coffee Manchester United hopes to "
        "perform better Taylor is setting new benchmarks with her Eras Tour brand model color colour black "
        "performance battery top speed horse power query key value attention"
    )
    assert [word for word in words.split() if look_up(word, table) is None] == []
    form, vector = look_up("color", table)
    assert nearest(table, vector, 1, [form])[0][0] == "colour"
    assert len(table.matrix) >= 30_000 and table.dim == 100
