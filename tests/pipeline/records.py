"""What the tests of this folder share: the records that attn prints, checked by the schema, and a small model."""

import numpy as np

from tests.models.checkpoints.by_hand import word_pieces
from tests.models.checkpoints.test_parity import made
from tests.schema import printed as record

__all__ = ["IDS", "TEXT", "attentions", "model_of", "record", "rolled_up_to"]
IDS = [2, 5, 6, 7, 8, 9, 10, 3]
TEXT = "the cats walking home"  # which IDS are the tokens of, in `word_pieces`


def model_of(case, transformers, at):
    model = made(transformers, case, 0, at)
    word_pieces(at)
    return model


def attentions(model):
    import torch

    with torch.no_grad():
        found = model(input_ids=torch.tensor([IDS]), output_attentions=True).attentions
    return [one[0].numpy() for one in found]


def rolled_up_to(layers, last):
    """Return the rollout of weights (layers, heads, n, n), in NumPy."""
    rolled = np.eye(layers.shape[-1])
    for heads in layers[: last + 1]:
        layer = 0.5 * heads.mean(axis=0) + 0.5 * np.eye(len(rolled))
        layer /= layer.sum(axis=1, keepdims=True)
        rolled = layer @ rolled
    return rolled
