"""How the bundled models are trained: every setting with its default, bounds and help; and what is checked before."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from attn_cli.errors import UsageError, visible
from attn_cli.io.atomic import creatable
from attn_cli.io.files import regular
from attn_cli.settings.declare import MODEL, TRAINING, check
from attn_cli.settings.training import ModelTraining, bits_a_number, number, step_size
from data.making.layers import pytorch


def words_beside(help: str, default: float) -> float:
    """Declare how many other words a pass reads for each word of the sentences."""
    return TRAINING(help, default, metavar="F", bounds=(0, 100), hint="Give a number from 0 to 100.")


def share_of_lines(help: str, default: float) -> float:
    """Declare for which share of the lines something is done, or how many more come beside each."""
    return TRAINING(help, default, metavar="F", bounds=(0, 1), hint="Give a number from 0 to 1.")


def short_products() -> bool:
    """Declare whether products of matrices have sixteen bits."""
    said = "Multiply matrices in sixteen bits: faster, where the processor can; the last digits differ."
    return TRAINING(said, False)


@dataclass(frozen=True)
class DeepTraining:
    """How a model of several layers is trained; None means the default, with pretrained layers or without."""

    relations: str | None = MODEL(
        "The heads to learn, between commas.", metavar="NAMES", unset="all that the texts teach"
    )
    pretrained: str | None = TRAINING(
        "A model, or layers (python -m data.making pretrain), to go on from.", metavar="FILE", unset="none"
    )
    freeze: bool = TRAINING("Keep what --pretrained has as it is: only heads that are new learn.", False)
    layers: int = number(5, MODEL, "Layers.", 50, 2)
    heads: int = number(8, MODEL, "Heads in each layer below the last.", 64)
    epochs: int | None = number(
        None, TRAINING, "Passes over the sentences.", 10_000, unset="18, with pretrained layers 12"
    )
    rate: float | None = step_size(None, "0.0015, with pretrained layers 0.001")
    dim: int = number(32, MODEL, "Numbers in a query of the last layer, d_k.", 1024)
    reach: int = number(
        12,
        MODEL,
        "Largest relative distance; longer ones are clipped to it. With --pretrained, of the last layer only.",
        1000,
    )
    width: int = number(128, MODEL, "Numbers per word between several layers.", 4096)
    wide: int = number(320, MODEL, "Hidden units of each word's own network, with several layers.", 16384)
    bits: str = bits_a_number("16")
    seed: int = number(0, TRAINING, "Seed; the same gives the same model.", least=0)
    threads: int = number(1, TRAINING, "Threads for several layers; the last digits depend on it.", 256)
    dropout: float = TRAINING(
        "Share of the numbers between several layers that is left out at random.",
        0.2,
        metavar="F",
        bounds=(0, 0.99),
        hint="Give a number from 0 to 0.99.",
    )
    balance: str | None = TRAINING(
        "Loss weight of words without the relation, relative to those with it; lower values find more links and "
        "invent more. For single heads: 2,object=1.",
        metavar="F,...",
        unset="2",
    )
    imitated: float = words_beside(
        "With --teacher or --labelled, words of running text for each word of the sentences.", 1.0
    )
    splices: float = words_beside(
        "With --spliced, words of its passages for each word of the sentences.", 1.5
    )
    itself: int | None = number(
        None, MODEL, "The commonest words that have a learned vector of their own.", 100_000, 0, unset="1000"
    )
    bfloat16: bool = short_products()
    # The rest is not an option.
    endings: int = 600
    apart: float = 0.6  # of these, the share whose lines and clauses are read apart
    compared: int = 96  # passages of a batch of those
    contrast: float = 1.0  # what such a comparison counts
    blend: float = 0.5
    batch: int = 1500
    punctuation: float = 0.5
    pairs: float = 0.1
    keep: float = 0.998  # of the moving mean of several layers' parameters, at each step; 0 takes none
    texts: float = 0.5  # of the passages, the share that each pass draws

    def with_defaults(self) -> DeepTraining:
        """Return the settings with what depends on pretrained layers filled in."""
        usual = {"epochs": (18, 12), "rate": (0.0015, 0.001), "balance": ("2", "2"), "itself": (1000, 1000)}
        missing = {
            name: each[bool(self.pretrained)] for name, each in usual.items() if getattr(self, name) is None
        }
        return replace(self, **missing)  # type: ignore[arg-type]


@dataclass(frozen=True)
class OneLayerTraining(ModelTraining):
    """How the bundled model of one layer is trained."""

    epochs: int = number(8, TRAINING, "Passes over the sentences and lines.", 10_000)
    bits: str = bits_a_number("8")
    words: int = number(1_000_000, TRAINING, "Words of running text that the teacher reads.")
    itself: int = 2000
    # What the weight of a word on itself is multiplied by afterwards: so more links are found, and invented.
    afterwards: str = (
        "1,relations=1,head=1,subject=0.75,object=0.75,oblique=0.55,determiner=0.7,coordination=0.6"
    )


@dataclass(frozen=True)
class EncoderTraining:
    """How heads are learned on top of a pretrained encoder, to be a teacher."""

    relations: str | None = MODEL(
        "The heads to learn, between commas.", metavar="NAMES", unset="all that the treebanks teach"
    )
    epochs: int = number(4, TRAINING, "Passes over the sentences.", 10_000)
    rate: float = step_size(0.0012)
    balance: str = TRAINING(
        "Loss weight of words without the relation, relative to those with it.",
        "2,head=0.15,subject=1,object=1",
        metavar="F,...",
    )
    seed: int = number(0, TRAINING, "Seed; the same gives the same model.", least=0)
    threads: int = number(1, TRAINING, "Threads; the last digits depend on it.", 256)
    # The rest is not an option.
    bfloat16: bool = True
    dim: int = 64
    reach: int = 60
    dropout: float = 0.3
    itself: int = 1000
    batch: int = 700
    keep: float = 0.995


@dataclass(frozen=True)
class Pretraining:
    """How the layers below the named heads learn from running text; the defaults are those of roles-deep."""

    words: int = number(16_000_000, TRAINING, "Words to read; after the last line, the first comes again.")
    layers: int = number(
        5, MODEL, "Layers of the model to come; the last one's heads are not learned here.", 50, 2
    )
    heads: int = number(8, MODEL, "Heads in each layer.", 64)
    rate: float = step_size(0.001)
    reach: int = number(12, MODEL, "Longer distances count as this one.", 1000)
    width: int = number(192, MODEL, "Numbers per word between the layers.", 4096)
    wide: int = number(512, MODEL, "Hidden units of each word's own network.", 16384)
    guesses: int = number(5000, TRAINING, "How many of the commonest words are masked and guessed.")
    every: int = number(500_000, TRAINING, "Write the file after each so many words.")
    seed: int = number(0, TRAINING, "Seed; the same gives the same layers.", least=0)
    threads: int = number(1, TRAINING, "Threads; the last digits depend on it.", 256)
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
    """How a language model is trained; the defaults are mostly those of the bundled one before it learned on."""

    pretrained: str | None = TRAINING(
        "A language model of the same sizes to go on from.", metavar="FILE", unset="none"
    )
    words: int = number(20_000_000, TRAINING, "Learn from the first N words of the text.")
    layers: int = number(3, MODEL, "Layers.", 50)
    heads: int = number(8, MODEL, "Heads in each layer.", 64)
    width: int = number(128, MODEL, "Numbers per word between the layers.", 4096)
    wide: int = number(384, MODEL, "Hidden units of each word's own network.", 16384)
    corrected: int = number(7_500, MODEL, "The commonest words whose vectors are corrected.", least=0)
    reach: int = number(16, MODEL, "Longer distances count as this one.", 1000)
    bits: str = bits_a_number("8")
    rate: float = step_size(0.004)
    named: float = share_of_lines(
        "Pairs of lines for each line, whose second one names what the first one named after the same word.",
        0.03,
    )
    related: float = share_of_lines(
        "Pairs of lines for each line, whose second one is about similar things.", 0.0
    )
    pairs: float = share_of_lines(
        "Of the lines, the share that is read after the one before it in its file.", 0.1
    )
    made: str | None = TRAINING(
        "Of the texts, one whose sentences others have too: its held-back lines are not measured.",
        metavar="FILE",
        unset="none",
    )
    bfloat16: bool = short_products()
    seed: int = number(0, TRAINING, "Seed; the same gives the same model.", least=0)
    threads: int = number(1, TRAINING, "Threads; the last digits depend on it.", 256)
    # The rest is not an option.
    batch: int = 3000
    endings: int = 400
    common: int = 1000  # words whose scores are always computed
    sampled: int = 1000  # others, drawn for each batch
    repeated: float = 0.04
    random: float = 0.1  # random words said twice, for each word of the text


def check_before(
    settings: DeepTraining | EncoderTraining | LanguageTraining | OneLayerTraining | Pretraining,
    files: Iterable[str],
    output: str,
) -> None:
    """Raise where a file to read, a setting or the file to write is none, or where PyTorch is missing."""
    for path in files:
        regular(path)
    check(settings)
    if (
        isinstance(settings, DeepTraining | LanguageTraining | Pretraining)
        and settings.width % settings.heads
    ):
        raise UsageError(
            f"--width {settings.width} cannot be shared equally among --heads {settings.heads}.",
            option="--heads",
        )
    if not output.lower().endswith(".safetensors"):
        raise UsageError(f"A model is written as .safetensors, not as {visible(output)}.", option="--output")
    creatable(output)
    pytorch()
