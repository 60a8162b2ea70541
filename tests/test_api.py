"""The package as Python users meet it: names, version, settings that are checked when they are made."""

import tomllib
from importlib.metadata import version

import pytest

import attn_cli
from attn_cli import AttnError, Settings
from tests.docs import ROOT
from tests.shell import attn


def test_dir_lists_the_public_names_before_they_are_used():
    assert set(attn_cli.__all__) | {"__version__"} <= set(dir(attn_cli))


def test_every_name_that_dir_lists_is_there():
    for name in dir(attn_cli):
        assert getattr(attn_cli, name) is not None or name in ("__cached__", "__builtins__")


def test_the_version_stands_in_one_place():
    assert attn("--version").out == f"attn {attn_cli.__version__}\n"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["tool"]["hatch"]["version"] == {"path": "attn_cli/__init__.py"}
    assert version("attn-cli") == attn_cli.__version__
    assert f"\nversion: {attn_cli.__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")


def test_a_bad_setting_is_an_error_of_attn_and_a_value_error_with_the_command_lines_exit_code():
    with pytest.raises(ValueError) as caught:
        Settings(pad_side="up")
    assert isinstance(caught.value, AttnError) and caught.value.code == 2
    assert str(caught.value) == "pad_side cannot be 'up'. Choose right, left."
