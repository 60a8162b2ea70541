"""Fixtures of the tests of batch."""

import pytest

from attn_cli.batch import cluster, manifest as manifests
from tests.batch.folders import Here


@pytest.fixture
def small(monkeypatch):
    """Let parts be of 512 lines."""
    monkeypatch.setattr(manifests, "LINES", 512)


@pytest.fixture
def dask_here(monkeypatch):
    """Let the tasks of a cluster be done in this process."""
    monkeypatch.setattr(cluster, "Dask", Here)
