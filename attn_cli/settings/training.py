"""How word vectors and models are trained: every setting with its default, bounds and help."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from attn_cli.settings.declare import Setting, T

MOST = 2**31 - 1


def _number(default: T, help: str, most: int = MOST, least: int = 1, unset: str = "") -> T:
    """Declare a whole number from `least` to `most`."""
    hint = f"Give {least} to {most:,}."
    about = Setting("", help, bounds=(least, most), hint=hint, unset=unset, has_variable=False)
    return about.field(default)


def _other(default: T, help: str, metavar: str, unset: str = "", hint: str = "") -> T:
    """Declare names or a decimal number; one with a `hint` lies above 0, up to 1."""
    bounds = (math.ulp(0), 1) if hint else None
    about = Setting("", help, metavar=metavar, bounds=bounds, hint=hint, unset=unset, has_variable=False)
    return about.field(default)


@dataclass(frozen=True)
class VectorTraining:
    """How word vectors are trained; the defaults are those of the bundled ones."""

    dim: int = _number(100, "Numbers in a vector.")
    window: int = _number(5, "Words on each side that count as context.")
    negative: int = _number(8, "Random words for each true one.")
    epochs: int = _number(6, "Passes over the text.")
    sample: float = _other(1e-4, "Words with a larger share of the text are thinned out.", "F")
    words: int = _number(40_000, "Keep at most N words.")
    min_count: int = _number(10, "Leave out words seen less often.")
    remove: int = _number(1, "Shared directions to remove from the vectors.", least=0)
    length: float = _other(4.0, "The length that every vector is given.", "L")
    seed: int = _number(0, "Seed; with one worker, the same vectors again.", least=0)
    workers: int = _number(1, "Threads; more than one is not repeatable.")


@dataclass(frozen=True)
class ModelTraining:
    """How a model is trained; None means the default for one layer, or for several, or all relations."""

    relations: str | None = _other(None, "The heads to learn, between commas.", "NAMES", "all")
    layers: int = _number(1, "Layers; more than one needs PyTorch (attn-cli[learn]).", 50)
    heads: int = _number(8, "Heads in each layer below the last.", 64)
    epochs: int | None = _number(
        None, "Passes over the sentences.", 10_000, unset="12, with several layers 18"
    )
    rate: float | None = _other(
        None, "Step size.", "F", "0.003, with several layers 0.0015", "Give a number above 0, up to 1."
    )
    dim: int = _number(32, "Numbers in a query of the last layer, d_k.", 1024)
    reach: int = _number(12, "Longer distances count as this one.", 1000)
    width: int = _number(128, "Numbers per word between several layers.", 4096)
    wide: int = _number(320, "Hidden units of each word's own network, with several layers.", 16384)
    seed: int = _number(0, "Seed; the same gives the same model.", least=0)
    threads: int = _number(1, "Threads for several layers; the last digits depend on it.", 256)
    # The rest is no option.
    dropout: float = 0.2
    endings: int = 600
    itself: int | None = None  # none, or 1000
    blend: float = 0.5
    balance: float | None = None  # 1, or 2
    batch: int = 1500
    punctuation: float = 0.5
    pairs: float = 0.1

    def with_defaults(self) -> ModelTraining:
        """Return the settings with what depends on the number of layers filled in."""
        usual = {"epochs": (12, 18), "rate": (0.003, 0.0015), "balance": (1.0, 2.0), "itself": (0, 1000)}
        missing = {name: two[self.layers > 1] for name, two in usual.items() if getattr(self, name) is None}
        return replace(self, **missing)  # type: ignore[arg-type]
