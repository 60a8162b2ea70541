"""Fixtures of the tests of batch."""

import pytest

from attn_cli.batch import cluster, manifest as manifests
from tests.batch.folders import Here


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(manifests, "LINES", 512)


@pytest.fixture
def dask_here(monkeypatch):
    monkeypatch.setattr(cluster, "Dask", Here)
