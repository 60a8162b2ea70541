"""attn learn language: train a language model on running text; and the score of one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

from attn_cli.cli.deliver import deliver
from attn_cli.cli.options import Vectors, argument, own
from attn_cli.cli.read_text import prepare_index
from attn_cli.io.escape import visible
from attn_cli.render.result import record_result
from attn_cli.settings.declare import OUTPUT, TRAINING
from attn_cli.settings.output import View
from attn_cli.settings.training import LanguageTraining

if TYPE_CHECKING:
    from attn_cli.learn.language_heads import HeadMeasures
    from attn_cli.learn.language_score import Perplexity
    from attn_cli.learn.treebank import Sentence
    from attn_cli.models.encoder import EncoderStack
    from attn_cli.render.blocks import Block
    from attn_cli.vectors.open_vectors import OpenVectors


def language(
    texts: Annotated[list[str], argument("TEXT...", "A sentence a line, or CoNLL-U: plain, .gz or .xz.")],
    output: Annotated[
        str, own("FILE", "Where the model goes (.safetensors).", "--output", "-o", group=OUTPUT)
    ],
    dev: Annotated[
        str | None,
        own("TREEBANK", "Sentences on which heads are measured, and named for what they do.", group=TRAINING),
    ] = None,
    embedding: Vectors = None,
    *,
    settings: LanguageTraining,
) -> None:
    """Learn a small causal language model from running text, with PyTorch.

    It guesses the next word. Of each file, every thousandth line is held back: the perplexity is told on those.
    The file is written twenty times on the way; Ctrl-C ends it and writes what was learned.

    Example: attn learn language corpus.txt.xz --dev en_ewt-ud-dev.conllu -o my.safetensors
    """
    from attn_cli.io.console import say
    from attn_cli.io.escape import count
    from attn_cli.io.signals import raised
    from attn_cli.learn.train_language import train_file
    from attn_cli.render.screen.training_bar import TrainingBar

    prepare_index(embedding)
    with TrainingBar() as bar, raised():
        made = train_file(texts, output, dev, embedding or "word2vec", settings, bar)
    if made.perplexity is not None:
        say(f"attn: perplexity of the lines held back: {made.perplexity:.1f}")
    if made.named:
        say(f"attn: heads named for what they do: {', '.join(made.named)}")
    how = "interrupted; " if made.interrupted else ""
    words = count(made.words, "word", "words")
    say(f"attn: {how}wrote {visible(made.file)}: learned from {words}, {made.bytes:,} bytes.")
    if made.interrupted:
        raise KeyboardInterrupt


def score_language(
    stack: EncoderStack, table: OpenVectors, sentences: Sequence[Sentence], treebank: str, view: View
) -> None:
    """Write a language model's perplexity on a treebank, and what its heads do."""
    from attn_cli.learn.language_heads import measure_heads, names_of
    from attn_cli.learn.language_score import perplexity
    from attn_cli.render.screen.training_bar import TrainingBar

    with TrainingBar(quiet=True) as bar:
        told = perplexity(stack, table, [sentence.words for sentence in sentences], bar)
        measured = measure_heads(stack, table, sentences, treebank, 0, bar)
    names = names_of(measured)
    record = {
        "model": stack.name,
        "treebank": treebank,
        "sentences": len(sentences),
        "perplexity": told.perplexity,
        "words": told.words,
        "unknown": told.unknown,
        "heads": [
            {
                "layer": one.layer,
                "number": one.number,
                "name": names[one.layer, one.number],
                "pattern": one.pattern,
                "measures": {name: found._asdict() for name, found in one.measures.items()},
            }
            for one in measured
        ],
    }
    blocks = list(_screen(stack.name, treebank, told, measured, names))
    deliver(replace(record_result("language-score", record), blocks=lambda view: blocks), view)


def _screen(
    model: str,
    treebank: str,
    told: Perplexity,
    measured: Sequence[HeadMeasures],
    names: dict[tuple[int, int], str],
) -> Iterator[Block]:
    """Yield a row for each head with the share of each pattern, the best fixed distances, and the perplexity."""
    from attn_cli.learn.language_heads import PATTERNS, RANDOM
    from attn_cli.render.blocks import Columns, Say

    shown = [name for name in PATTERNS if any(name in one.measures for one in measured)]
    rows = [
        [
            f"{one.layer}.{one.number}",
            names[one.layer, one.number],
            *(f"{one.measures[name].accuracy:.2f}" for name in shown),
        ]
        for one in measured
    ]
    best = [f"{measured[0].measures[name].baseline:.2f}" for name in shown]
    yield Columns(["head", "name", *shown], [*rows, ["", "best fixed distance", *best]])
    yield Say("")
    for name in shown:
        on = f" ({RANDOM})" if measured[0].measures[name].on == RANDOM else ""
        yield Say(f"{name}: {PATTERNS[name].about}{on}.")
    yield Say("A share is of the words that have such a place before them: their strongest link falls on it.")
    yield Say(
        f"Perplexity {told.perplexity:.1f} per word: model {visible(model)}, treebank {visible(treebank)}, "
        f"{told.words:,} words, {told.unknown:,} of them without a vector."
    )
