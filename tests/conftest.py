"""Fixtures that several files share."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session", autouse=True)
def kept(tmp_path_factory):
    """Let nothing be read from, or written to, the folders of whoever runs the tests."""
    assert not Path("attn.toml").exists(), "attn.toml would change what is tested: move it away"
    folder = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        patch.setenv("XDG_DATA_HOME", str(folder / "data"))
        patch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
        patch.setenv("GENSIM_DATA_DIR", str(folder / "gensim-data"))
        yield folder


@pytest.fixture
def own(tmp_path, monkeypatch):
    """Give the test a cache, data and downloads of its own, and return the folder that holds them."""
    for variable, name in (
        ("XDG_CACHE_HOME", "cache"),
        ("XDG_DATA_HOME", "data"),
        ("GENSIM_DATA_DIR", "gensim-data"),
    ):
        monkeypatch.setenv(variable, str(tmp_path / "own" / name))
    return tmp_path / "own"


@pytest.fixture
def at(tmp_path, monkeypatch):
    """Run the test in a folder of its own, and return that folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
