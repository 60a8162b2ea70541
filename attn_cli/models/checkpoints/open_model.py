"""A pretrained model whose files are open, and its tokenizer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from attn_cli.io.escape import visible
from attn_cli.models.checkpoints.config import find_folder
from attn_cli.models.checkpoints.run import Checkpoint
from attn_cli.models.checkpoints.tokenizer import TextEncoder


class OpenModel(NamedTuple):
    """A pretrained model whose files are open, and its tokenizer."""

    name: str  # as notes show it
    checkpoint: Checkpoint
    encoder: TextEncoder


@contextmanager
def open_model(model: str) -> Iterator[OpenModel]:
    """Open the model in a folder, or in the local Hugging Face cache."""
    folder = find_folder(model)
    with Checkpoint(folder) as checkpoint:
        yield OpenModel(visible(model), checkpoint, TextEncoder(folder, checkpoint.model.family))
