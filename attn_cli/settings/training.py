"""How word vectors and models are trained: every setting with its default, bounds and help."""

from __future__ import annotations

import math
from dataclasses import dataclass

from attn_cli.settings.declare import MODEL, TRAINING, VECTORS, Setting, T

MOST = 2**31 - 1


def number(default: T, group: str, help: str, most: int = MOST, least: int = 1, unset: str = "") -> T:
    """Declare a whole number from `least` to `most`."""
    hint = f"Give {least} to {most:,}."
    about = Setting(group, help, bounds=(least, most), hint=hint, unset=unset, has_variable=False)
    return about.field(default)


def other(default: T, group: str, help: str, metavar: str, unset: str = "", hint: str = "") -> T:
    """Declare names or a decimal number; one with a `hint` lies above 0, up to 1."""
    bounds = (math.ulp(0), 1) if hint else None
    about = Setting(group, help, metavar=metavar, bounds=bounds, hint=hint, unset=unset, has_variable=False)
    return about.field(default)


def bits_a_number(default: str) -> str:
    """Declare how many bits a number of the file has."""
    about = Setting(
        MODEL, "Bits of a number in the file; 8 halve it, and cost up to 1/127 of the largest number in a row.",
        choices=("16", "8"),
        has_variable=False,
    )  # fmt: skip
    return about.field(default)


@dataclass(frozen=True)
class VectorTraining:
    """How word vectors are trained; the defaults are those of the bundled ones."""

    dim: int = number(100, VECTORS, "Numbers in a vector.")
    window: int = number(5, TRAINING, "Words on each side that count as context.")
    negative: int = number(8, TRAINING, "Negative samples per true context word.")
    epochs: int = number(6, TRAINING, "Passes over the text.")
    sample: float = other(
        1e-4,
        TRAINING,
        "Subsampling threshold: words more frequent than this share of the text are dropped at random.",
        "F",
    )
    words: int = number(40_000, VECTORS, "Keep at most N words.")
    min_count: int = number(10, VECTORS, "Leave out words seen less often.")
    remove: int = number(1, VECTORS, "Shared directions to remove from the vectors.", least=0)
    length: float = other(4.0, VECTORS, "The length that every vector is given.", "L")
    seed: int = number(0, TRAINING, "Seed; with one worker, the same vectors again.", least=0)
    workers: int = number(1, TRAINING, "Threads; more than one is not repeatable.")


@dataclass(frozen=True)
class SubwordTraining:
    """How n-grams are learned from words' vectors; the defaults are those of the bundled ones."""

    buckets: int = number(16_384, VECTORS, "Rows that n-grams share.", 1 << 24)
    rank: int = number(48, VECTORS, "Numbers in a row.", 10_000)
    words: int = number(100_000, TRAINING, "Learn from the first N words.")
    seed: int = number(0, TRAINING, "Seed of the words that are held back to measure with.", least=0)
    # The rest is not an option.
    penalty: float = 2.0
    steps: int = 60


@dataclass(frozen=True)
class ModelTraining:
    """How a model of one layer is trained."""

    relations: str | None = other(
        None, MODEL, "The heads to learn, between commas.", "NAMES", "all that the texts teach"
    )
    epochs: int = number(12, TRAINING, "Passes over the sentences.", 10_000)
    rate: float = other(0.003, TRAINING, "Step size.", "F", hint="Give a number above 0, up to 1.")
    dim: int = number(32, MODEL, "Numbers in a query of the last layer, d_k.", 1024)
    reach: int = number(12, MODEL, "Largest relative distance; longer ones are clipped to it.", 1000)
    bits: str = bits_a_number("16")
    seed: int = number(0, TRAINING, "Seed; the same gives the same model.", least=0)
    balance: str = other(
        "1",
        TRAINING,
        "Loss weight of words without the relation, relative to those with it; lower values find more links and "
        "invent more. For single heads: 2,object=1.",
        "F,...",
    )
    # The rest is not an option.
    endings: int = 600
    itself: int = 0
    blend: float = 0.5
    batch: int = 1500
    punctuation: float = 0.5
    pairs: float = 0.1
    texts: float = 0.5  # of the passages, the share that each pass draws
