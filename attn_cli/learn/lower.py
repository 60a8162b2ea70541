"""Layers that were pretrained, as a file: what it holds, checked, and the settings that follow from it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from attn_cli.errors import InputError, UsageError
from attn_cli.io.array_files import read_safetensors
from attn_cli.io.escape import visible
from attn_cli.learn.layers import LayerSizes
from attn_cli.settings.training import ModelTraining

if TYPE_CHECKING:
    from attn_cli.io.array_types import Arrays
    from attn_cli.vectors.store.vectors import Vectors

FORMAT = "attn-layers/1"


class Lower(NamedTuple):
    """Layers that were learned from running text: their sizes, features, and parameters."""

    name: str
    sizes: LayerSizes
    names: list[str]
    endings: int
    itself: int
    arrays: Arrays
    facts: dict[str, object]


def read_lower(path: str, table: Vectors) -> Lower:
    """Return what `attn learn pretrain` wrote; raise InputError where it is not that, or learned on other vectors."""
    shown = visible(path)
    arrays, about = read_safetensors(path)
    if about.get("format") != FORMAT:
        raise InputError(f"{shown} holds no pretrained layers.", "Make some with attn learn pretrain.")
    if about.get("fingerprint") != table.fingerprint():
        raise InputError(
            f"{shown} was learned on other vectors ({visible(about.get('vectors', '?'))}).",
            "Give these with --embedding.",
        )
    try:
        settings = json.loads(about["settings"])
        sizes = LayerSizes(*(int(settings[name]) for name in LayerSizes._fields))
        endings, itself = int(settings["endings"]), int(settings["itself"])
        facts = {"texts": json.loads(about["trained_on"]), "words": int(about["words"])}
        names = arrays.pop("start.names").tobytes().decode().split("\n")
    except (KeyError, ValueError, TypeError, RecursionError):
        raise InputError(f"{shown} is damaged: its settings or names are missing.") from None
    return Lower(visible(Path(path).name), sizes, names, endings, itself, arrays, facts)


def sized(settings: ModelTraining, lower: Lower | None) -> ModelTraining:
    """Return the settings with the sizes of pretrained layers; another size that was asked for is refused."""
    if lower is None:
        return settings
    usual = ModelTraining()
    for name, size in lower.sizes._asdict().items():
        if getattr(settings, name) not in (getattr(usual, name), size):
            raise UsageError(
                f"--{name} {getattr(settings, name)} does not fit {lower.name}, which has {size}.",
                f"Leave out --{name}: pretrained layers set the sizes.",
                f"--{name}",
            )
    return replace(settings, **lower.sizes._asdict(), endings=lower.endings, itself=lower.itself)
