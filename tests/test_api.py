"""The package as Python users meet it: names and version."""

import tomllib
from importlib.metadata import version

import pytest

import attn_cli
from tests.docs import ROOT
from tests.shell import attn


def test_the_public_names_are_listed_before_they_are_used_and_each_is_there():
    assert set(attn_cli.__all__) | {"__version__"} <= set(dir(attn_cli))
    for name in attn_cli.__all__:
        assert getattr(attn_cli, name).__name__ == name
    assert all(hasattr(attn_cli, name) for name in dir(attn_cli))
    with pytest.raises(AttributeError):
        attn_cli.attention_of_a_kind_that_is_not_there  # noqa: B018


def test_the_version_stands_in_one_place():
    assert attn("--version").out == f"attn {attn_cli.__version__}\n"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["tool"]["hatch"]["version"] == {"path": "attn_cli/__init__.py"}
    assert version("attn-cli") == attn_cli.__version__
    assert f"\nversion: {attn_cli.__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
