"""Layers that were pretrained, as a file: what it holds, checked, and the settings that follow from it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from attn_cli.errors import InputError, UsageError, visible
from attn_cli.io.array_files import read_safetensors
from attn_cli.models.model_file import FORMAT as MODEL_FORMAT, model_arrays, read_model
from data.making.layers import LayerSizes
from data.making.settings import DeepTraining

if TYPE_CHECKING:
    from attn_cli.io.types import Arrays
    from attn_cli.vectors import Vectors

FORMAT = "attn-layers/1"


class Lower(NamedTuple):
    """Layers that were learned before, from running text or as a whole model: their sizes, features, and parameters."""

    name: str
    sizes: LayerSizes
    names: list[str]
    endings: int
    itself: int
    arrays: Arrays
    facts: Mapping[str, object]
    heads: tuple[str, ...] = ()  # of a trained model, those that it has
    values: Arrays | None = None  # of a trained model, its last layer's W_v and b_v

    @property
    def dim(self) -> int | None:
        """The d_k of a trained model's last layer; of layers without named heads there is none yet."""
        return int(self.arrays[f"{self.sizes.layers - 1}.R"].shape[2]) if self.heads else None

    @property
    def reach(self) -> int:
        """The reach of the last layer: of a trained model, it may be longer than that of the layers below."""
        return self.arrays[f"{self.sizes.layers - 1}.b"].shape[1] // 2 if self.heads else self.sizes.reach


def read_lower(path: str, table: Vectors, option: str = "--pretrained") -> Lower:
    """Return what pretraining or training wrote; InputError where it is not that, or of other vectors."""
    shown = visible(path)
    arrays, about = read_safetensors(path)
    if about.get("format") == MODEL_FORMAT:
        return _of_model(path, table, option)
    if about.get("format") != FORMAT:
        raise InputError(
            f"{shown} holds no pretrained layers.", "Make some with python -m data.making pretrain."
        )
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


def _of_model(path: str, table: Vectors, option: str) -> Lower:
    """Return a trained model's layers, heads included, by the names that they learn under."""
    stack = read_model(path)
    if stack.fingerprint != table.fingerprint():
        raise InputError(
            f"{stack.name} was learned on other vectors ({visible(stack.vectors)}).",
            "Give these with --embedding.",
        )
    if stack.W_in is None or stack.words is not None:
        what = "is a language model" if stack.words is not None else "has one layer"
        raise InputError(
            f"{stack.name} {what}: only heads of several layers are learned on.", f"Leave out {option}."
        )
    found, _ = model_arrays(path)
    arrays = {name: np.asarray(value, np.float32) for name, value in found.items() if name != "start.names"}
    start = arrays.pop("start.vectors")
    arrays["start"] = np.vstack([start, np.zeros((1, start.shape[1]), np.float32)])
    last = stack.layers - 1
    values = {
        name: found[name] for name in (f"{last}.W_v", f"{last}.b_v") if arrays.pop(name, None) is not None
    }
    for layer in range(stack.layers):
        for name in {f"{layer}.{part}_{m}" for part in "Wb" for m in "qkv"} & set(arrays):
            by_head = np.moveaxis(arrays[name], 0, -2)
            arrays[name] = by_head.reshape(*by_head.shape[:-2], -1)
    heads, distances = arrays["0.b"].shape
    sizes = LayerSizes(stack.layers, heads, stack.W_in.shape[1], arrays["0.W_1"].shape[1], distances // 2)
    names = found["start.names"].tobytes().decode().split("\n")
    settings = stack.facts.get("settings")
    if not isinstance(settings, dict) or not {"endings", "itself"} <= set(settings):
        raise InputError(f"{stack.name} does not say how it was trained.")
    facts = {
        key: stack.facts[key]
        for key in ("trained_on", "epochs", "settings", "pretrained_on", "teachers", "imitated_on", "widened")
        if key in stack.facts
    }
    return Lower(
        visible(Path(path).name), sizes, names, int(settings["endings"]), int(settings["itself"]), arrays, facts,
        tuple(head.name for head in stack.last.heads), values,
    )  # fmt: skip


def sized(settings: DeepTraining, lower: Lower | None) -> DeepTraining:
    """Return the settings with the sizes of pretrained layers; another size that was asked for is refused.

    Only the reach, which becomes that of the last layer, may be a longer one.
    """
    if lower is None:
        return settings
    usual = DeepTraining()
    sizes = lower.sizes._asdict() | {"reach": lower.reach, "itself": lower.itself}
    sizes |= {"dim": lower.dim} if lower.dim else {}
    for name, size in sizes.items():
        asked = getattr(settings, name)
        if name == "reach" and asked != usual.reach and asked > size:
            sizes[name] = asked
        elif asked not in (getattr(usual, name), size):
            raise UsageError(
                f"--{name} {asked} does not fit {lower.name}, which has {size}.",
                f"Leave out --{name}: pretrained layers set the sizes."
                + (" A longer reach is taken." if name == "reach" else ""),
                f"--{name}",
            )
    return replace(settings, **sizes, endings=lower.endings)
