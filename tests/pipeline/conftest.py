"""Small models that several files of this folder read."""

import pytest

from tests.models.checkpoints.by_hand import small_bert, small_gpt2


@pytest.fixture(scope="session")
def causal(tokenizers, tmp_path_factory):
    """A causal model of six letters: two layers of two heads."""
    return small_gpt2(tmp_path_factory.mktemp("gpt2"))


@pytest.fixture(scope="session")
def bert(tokenizers, tmp_path_factory):
    return small_bert(tmp_path_factory.mktemp("bert"))
