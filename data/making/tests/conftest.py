"""Fixtures that the tests of the program have too, and PyTorch."""

import os

import pytest

from tests.conftest import at, kept, own  # noqa: F401


@pytest.fixture(scope="module")
def torch():
    """PyTorch, its settings as they were afterwards; where it is missing, the tests are skipped or fail."""
    if os.environ.get("ATTN_REQUIRE_TORCH") == "1":
        import torch
    else:
        torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")
    threads, strict = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    yield torch
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(strict)
