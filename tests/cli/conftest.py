"""Small models with random parameters, made once: what changes one changes a copy."""

import pytest

from tests.models.checkpoints.by_hand import gpt2, small_bert, small_gpt2


@pytest.fixture(scope="session")
def models(tmp_path_factory):
    """Return a folder of models: two that read on, one of them without its head, and two that fill gaps, likewise."""
    at = tmp_path_factory.mktemp("models")
    small_gpt2(at / "gpt2")
    small_gpt2(at / "letters", gpt2(places=20))
    small_gpt2(at / "untied", tie_word_embeddings=False)
    small_bert(at / "bert")
    small_bert(at / "bare", head=False)
    return at


@pytest.fixture
def letters(models):
    return str(models / "letters")


@pytest.fixture
def bert(models):
    return str(models / "bert")
