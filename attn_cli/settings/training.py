"""How word vectors and models are trained: every setting with its default, bounds and help."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from attn_cli.settings.declare import MODEL, TRAINING, VECTORS, Setting, T

MOST = 2**31 - 1


def _number(default: T, group: str, help: str, most: int = MOST, least: int = 1, unset: str = "") -> T:
    """Declare a whole number from `least` to `most`."""
    hint = f"Give {least} to {most:,}."
    about = Setting(group, help, bounds=(least, most), hint=hint, unset=unset, has_variable=False)
    return about.field(default)


def _other(default: T, group: str, help: str, metavar: str, unset: str = "", hint: str = "") -> T:
    """Declare names or a decimal number; one with a `hint` lies above 0, up to 1."""
    bounds = (math.ulp(0), 1) if hint else None
    about = Setting(group, help, metavar=metavar, bounds=bounds, hint=hint, unset=unset, has_variable=False)
    return about.field(default)


def _bits(default: str) -> str:
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

    dim: int = _number(100, VECTORS, "Numbers in a vector.")
    window: int = _number(5, TRAINING, "Words on each side that count as context.")
    negative: int = _number(8, TRAINING, "Negative samples per true context word.")
    epochs: int = _number(6, TRAINING, "Passes over the text.")
    sample: float = _other(
        1e-4,
        TRAINING,
        "Subsampling threshold: words more frequent than this share of the text are dropped at random.",
        "F",
    )
    words: int = _number(40_000, VECTORS, "Keep at most N words.")
    min_count: int = _number(10, VECTORS, "Leave out words seen less often.")
    remove: int = _number(1, VECTORS, "Shared directions to remove from the vectors.", least=0)
    length: float = _other(4.0, VECTORS, "The length that every vector is given.", "L")
    seed: int = _number(0, TRAINING, "Seed; with one worker, the same vectors again.", least=0)
    workers: int = _number(1, TRAINING, "Threads; more than one is not repeatable.")


@dataclass(frozen=True)
class SubwordTraining:
    """How n-grams are learned from words' vectors; the defaults are those of the bundled ones."""

    buckets: int = _number(16_384, VECTORS, "Rows that n-grams share.", 1 << 24)
    rank: int = _number(48, VECTORS, "Numbers in a row.", 10_000)
    words: int = _number(100_000, TRAINING, "Learn from the first N words.")
    seed: int = _number(0, TRAINING, "Seed of the words that are held back to measure with.", least=0)
    # The rest is not an option.
    penalty: float = 2.0
    steps: int = 60


@dataclass(frozen=True)
class ModelTraining:
    """How a model is trained; None means the default for one layer, or for several, or all relations."""

    relations: str | None = _other(
        None, MODEL, "The heads to learn, between commas.", "NAMES", "all that the texts teach"
    )
    pretrained: str | None = _other(
        None, TRAINING, "A model, or layers (attn learn pretrain), to go on from.", "FILE", "none"
    )
    freeze: bool = Setting(
        TRAINING, "Keep what --pretrained has as it is: only heads that are new learn.", has_variable=False
    ).field(False)
    layers: int = _number(1, MODEL, "Layers; more than one needs PyTorch (attn-cli[learn]).", 50)
    heads: int = _number(8, MODEL, "Heads in each layer below the last.", 64)
    epochs: int | None = _number(
        None,
        TRAINING,
        "Passes over the sentences.",
        10_000,
        unset="12, with several layers 18, pretrained ones 12",
    )
    rate: float | None = _other(
        None,
        TRAINING,
        "Step size.",
        "F",
        "0.003, with several layers 0.0015, pretrained ones 0.001",
        "Give a number above 0, up to 1.",
    )
    dim: int = _number(32, MODEL, "Numbers in a query of the last layer, d_k.", 1024)
    reach: int = _number(
        12,
        MODEL,
        "Largest relative distance; longer ones are clipped to it. With --pretrained, of the last layer only.",
        1000,
    )
    width: int = _number(128, MODEL, "Numbers per word between several layers.", 4096)
    wide: int = _number(320, MODEL, "Hidden units of each word's own network, with several layers.", 16384)
    bits: str = _bits("16")
    seed: int = _number(0, TRAINING, "Seed; the same gives the same model.", least=0)
    threads: int = _number(1, TRAINING, "Threads for several layers; the last digits depend on it.", 256)
    dropout: float = Setting(
        TRAINING, "Share of the numbers between several layers that is left out at random.", metavar="F",
        bounds=(0, 0.99), hint="Give a number from 0 to 0.99.", has_variable=False,
    ).field(0.2)  # fmt: skip
    balance: str | None = _other(
        None,
        TRAINING,
        "Loss weight of words without the relation, relative to those with it; lower values find more links and "
        "invent more. "
        "For single heads: 2,object=1.",
        "F,...",
        "1, with several layers 2",
    )
    # The rest is not an option.
    endings: int = 600
    itself: int | None = None  # none, or 1000
    blend: float = 0.5
    batch: int = 1500
    punctuation: float = 0.5
    pairs: float = 0.1
    keep: float = 0.998  # of the moving mean of several layers' parameters, at each step; 0 takes none
    texts: float = 0.5  # of the passages, the share that each pass draws
    imitated: float = 1.0  # words of running text for each word of the sentences, with --teacher

    def with_defaults(self) -> ModelTraining:
        """Return the settings with what depends on the number of layers filled in."""
        kind = 2 if self.pretrained else int(self.layers > 1)
        usual = {
            "epochs": (12, 18, 12),
            "rate": (0.003, 0.0015, 0.001),
            "balance": ("1", "2", "2"),
            "itself": (0, 1000, 1000),
        }
        missing = {name: each[kind] for name, each in usual.items() if getattr(self, name) is None}
        return replace(self, **missing)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Pretraining:
    """How the layers below the named heads learn from running text; the defaults are those of roles-deep."""

    words: int = _number(16_000_000, TRAINING, "Words to read; after the last line, the first comes again.")
    layers: int = _number(
        5, MODEL, "Layers of the model to come; the last one's heads are not learned here.", 50, 2
    )
    heads: int = _number(8, MODEL, "Heads in each layer.", 64)
    rate: float = _other(0.001, TRAINING, "Step size.", "F", hint="Give a number above 0, up to 1.")
    reach: int = _number(12, MODEL, "Longer distances count as this one.", 1000)
    width: int = _number(192, MODEL, "Numbers per word between the layers.", 4096)
    wide: int = _number(512, MODEL, "Hidden units of each word's own network.", 16384)
    guesses: int = _number(5000, TRAINING, "How many of the commonest words are masked and guessed.")
    every: int = _number(500_000, TRAINING, "Write the file after each so many words.")
    seed: int = _number(0, TRAINING, "Seed; the same gives the same layers.", least=0)
    threads: int = _number(1, TRAINING, "Threads; the last digits depend on it.", 256)
    # The rest is not an option.
    mask: float = 0.2  # of the words, the share that is guessed
    kept: float = 0.1  # of those, the share that is not masked
    unknown: float = 0.05  # of the words, the share without a vector
    keep: float = 0.999  # of the parameters' moving mean, at each step
    endings: int = 600
    itself: int = 3000
    batch: int = 2000
    punctuation: float = 0.5


@dataclass(frozen=True)
class LanguageTraining:
    """How a language model is trained; the defaults are those of the bundled one."""

    words: int = _number(20_000_000, TRAINING, "Learn from the first N words of the text.")
    layers: int = _number(3, MODEL, "Layers.", 50)
    heads: int = _number(8, MODEL, "Heads in each layer.", 64)
    width: int = _number(128, MODEL, "Numbers per word between the layers.", 4096)
    wide: int = _number(384, MODEL, "Hidden units of each word's own network.", 16384)
    corrected: int = _number(7_500, MODEL, "The commonest words whose vectors are corrected.", least=0)
    reach: int = _number(16, MODEL, "Longer distances count as this one.", 1000)
    bits: str = _bits("8")
    rate: float = _other(0.004, TRAINING, "Step size.", "F", hint="Give a number above 0, up to 1.")
    seed: int = _number(0, TRAINING, "Seed; the same gives the same model.", least=0)
    threads: int = _number(1, TRAINING, "Threads; the last digits depend on it.", 256)
    # The rest is not an option.
    batch: int = 3000
    endings: int = 400
    common: int = 1000  # words whose scores are always computed
    sampled: int = 1000  # others, drawn for each batch
    pairs: float = 0.1
    repeated: float = 0.04
    random: float = 0.1  # random words said twice, for each word of the text
