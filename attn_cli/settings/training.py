"""How word vectors and models are trained: every setting with its default, bounds and help."""

from __future__ import annotations

import math
from dataclasses import dataclass

from attn_cli.settings.declare import MODEL, TRAINING, VECTORS, Group, T

MOST = 2**31 - 1


def number(default: T, group: Group, help: str, most: int = MOST, least: int = 1, unset: str = "") -> T:
    """Declare a whole number from `least` to `most`."""
    return group(help, default, bounds=(least, most), hint=f"Give {least} to {most:,}.", unset=unset)


def step_size(default: T, unset: str = "") -> T:
    """Declare a step size of training: a number above 0, up to 1."""
    hint = "Give a number above 0, up to 1."
    return TRAINING("Step size.", default, metavar="F", bounds=(math.ulp(0), 1), hint=hint, unset=unset)


def bits_a_number(default: str) -> str:
    """Declare how many bits a number of the file has."""
    about = "Bits of a number in the file; 8 halve it, and cost up to 1/127 of the largest number in a row."
    return MODEL(about, default, choices=("16", "8"))


@dataclass(frozen=True)
class VectorTraining:
    """How word vectors are trained; the defaults are those of the bundled ones."""

    dim: int = number(100, VECTORS, "Numbers in a vector.")
    window: int = number(5, TRAINING, "Words on each side that count as context.")
    negative: int = number(8, TRAINING, "Negative samples per true context word.")
    epochs: int = number(6, TRAINING, "Passes over the text.")
    about = "Subsampling threshold: words more frequent than this share of the text are dropped at random."
    sample: float = TRAINING(about, 1e-4, metavar="F")
    del about  # the help of the setting below it
    words: int = number(40_000, VECTORS, "Keep at most N words.")
    min_count: int = number(10, VECTORS, "Leave out words seen less often.")
    remove: int = number(1, VECTORS, "Shared directions to remove from the vectors.", least=0)
    length: float = VECTORS("The length that every vector is given.", 4.0, metavar="L")
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

    about = "The heads to learn, between commas."
    relations: str | None = MODEL(about, metavar="NAMES", unset="all that the texts teach")
    epochs: int = number(12, TRAINING, "Passes over the sentences.", 10_000)
    rate: float = step_size(0.003)
    dim: int = number(32, MODEL, "Numbers in a query of the last layer, d_k.", 1024)
    reach: int = number(12, MODEL, "Largest relative distance; longer ones are clipped to it.", 1000)
    bits: str = bits_a_number("16")
    seed: int = number(0, TRAINING, "Seed; the same gives the same model.", least=0)
    about = (
        "Loss weight of words without the relation, relative to those with it; lower values find more links and "
        "invent more. For single heads: 2,object=1."
    )
    balance: str = TRAINING(about, "1", metavar="F,...")
    del about  # the help of the setting below it
    # The rest is not an option.
    endings: int = 600
    itself: int = 0
    blend: float = 0.5
    batch: int = 1500
    punctuation: float = 0.5
    pairs: float = 0.1
    texts: float = 0.5  # of the passages, the share that each pass draws
