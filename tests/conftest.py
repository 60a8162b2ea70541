"""Fixtures that several files share."""

import pytest


@pytest.fixture
def at(tmp_path, monkeypatch):
    """Run the test in a folder of its own, and return that folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
