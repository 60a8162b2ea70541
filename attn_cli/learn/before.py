"""What is checked before a training: all that would only fail after hours of it."""

from __future__ import annotations

from collections.abc import Iterable

from attn_cli.errors import UsageError
from attn_cli.io.escape import visible
from attn_cli.io.files import creatable, regular
from attn_cli.learn.layers import pytorch
from attn_cli.settings.declare import check
from attn_cli.settings.training import LanguageTraining, ModelTraining, Pretraining


def check_before(
    settings: ModelTraining | LanguageTraining | Pretraining,
    files: Iterable[str],
    output: str,
    deep: bool = True,
) -> None:
    """Raise where a file to read, a setting or the file to write is none, or, for several layers, without PyTorch."""
    for path in files:
        regular(path)
    check(settings)
    if deep and settings.width % settings.heads:
        raise UsageError(
            f"--width {settings.width} cannot be shared equally among --heads {settings.heads}.",
            option="--heads",
        )
    if not output.lower().endswith(".safetensors"):
        raise UsageError(f"A model is written as .safetensors, not as {visible(output)}.", option="--output")
    creatable(output)
    if deep:
        pytorch()
