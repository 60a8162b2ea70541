"""attn learn: train a model on treebanks, and score it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

from attn_cli.cli.deliver import choose, deliver
from attn_cli.cli.options import Vectors, argument, of_record, own
from attn_cli.cli.read_text import prepare_index
from attn_cli.errors import InputError
from attn_cli.io.escape import visible
from attn_cli.render.result import OF_RECORD, record_result
from attn_cli.settings.declare import OUTPUT, TRAINING
from attn_cli.settings.output import View
from attn_cli.settings.training import ModelTraining, Pretraining

if TYPE_CHECKING:
    from attn_cli.learn.score import Score
    from attn_cli.render.blocks import Block

TREEBANK = "CoNLL-U, or passages (.jsonl: tokens, pronoun, antecedents); plain, .gz or .xz."


@of_record
def score(
    model: Annotated[str, argument("MODEL", "roles, roles-deep, language, or a file.")],
    treebank: Annotated[str, argument("TREEBANK", TREEBANK)],
    embedding: Vectors = None,
    *,
    view: View,
) -> None:
    """How often each head is right, beside the best fixed distance.

    Of the words that have the head's relation in the treebank, the share whose strongest link is one
    of the right words; and of the strongest links to another word, the share that are right.

    Example: attn learn score roles en_ewt-ud-dev.conllu
    """
    from attn_cli.io.escape import count
    from attn_cli.learn.passages import read_sentences
    from attn_cli.learn.score import score as measure
    from attn_cli.models.model_file import named
    from attn_cli.pipeline.embed import check_pairing
    from attn_cli.render.blocks import Say
    from attn_cli.render.screen.training_bar import TrainingBar
    from attn_cli.vectors.lookup import open_table

    view = choose(view, OF_RECORD)
    stack = named(model)
    prepare_index(embedding)
    table = open_table(embedding or "word2vec")
    check_pairing(stack, table)
    sentences = read_sentences(treebank)
    if stack.words is not None:
        from attn_cli.cli.commands.learn_language import score_language  # only a language model needs it

        score_language(stack, table, sentences, treebank, view)
        return
    with TrainingBar(quiet=True) as bar:
        scores = measure(stack, table, sentences, bar)
    if not scores:
        raise InputError(f"{stack.name} has no head that bears a relation's name.")
    heads = [one._asdict() for one in scores]
    record = {"model": stack.name, "treebank": treebank, "sentences": len(sentences), "heads": heads}
    source = f"Model {stack.name}, treebank {treebank}, {count(len(sentences), 'sentence', 'sentences')}."
    blocks = [*_screen(scores), Say(visible(source))]
    deliver(replace(record_result("score", record), blocks=lambda view: blocks), view)


def _screen(scores: Sequence[Score]) -> Iterator[Block]:
    """Yield a row for each head, and what its columns are."""
    from attn_cli.render.blocks import Columns, Say

    has_candidates = any(one.candidates is not None for one in scores)
    rows = []
    for one in scores:
        found = [one.accuracy, one.baseline, one.nearest, one.precision, one.hard, one.content]
        shares = [
            "–" if x is None else f"{x:.3f}" for x in (*found, *([one.candidates] if has_candidates else []))
        ]
        rows.append([one.name, *shares, f"{one.count:,}"])
    names = ["right", "distance", "nearest", "precision", "hard", "content"]
    yield Columns(["head", *names, *(["of two"] if has_candidates else []), "words"], rows)
    yield Say("")
    yield Say(
        "right: of the words that have the relation, the share whose strongest link is one of the right words."
    )
    yield Say(
        "Two rules that need no model, each the best for these texts: distance, always so many words away; "
        "nearest, the nearest word of one part of speech on one side."
    )
    yield Say("precision: of the strongest links that go to another word, the share that are right.")
    yield Say("hard: right among the words for which that distance is wrong.")
    yield Say("content: right where the head's term for the distance is left out.")
    if has_candidates:
        yield Say("of two: where two names compete, the share in which the right one gets more weight.")


def train(
    treebanks: Annotated[list[str], argument("TREEBANK...", TREEBANK)],
    output: Annotated[
        str, own("FILE", "Where the model goes (.safetensors).", "--output", "-o", group=OUTPUT)
    ],
    dev: Annotated[
        list[str] | None,
        own(
            "TREEBANK", "Sentences held back: accuracy is measured on them. May be repeated.", group=TRAINING
        ),
    ] = None,
    teacher: Annotated[
        list[str] | None,
        own("MODEL", "A model whose weights are learned on --text as well. May be repeated.", group=TRAINING),
    ] = None,
    text: Annotated[
        list[str] | None,
        own("TEXT", "Running text to learn from --teacher on. May be repeated.", group=TRAINING),
    ] = None,
    embedding: Vectors = None,
    *,
    settings: ModelTraining,
) -> None:
    """Learn attention heads from treebanks (Universal Dependencies), and from passages with pronouns.

    One layer is learned in NumPy, several in PyTorch. Ctrl-C ends it and writes what whole passes have learned.

    Example: attn learn train en_ewt-ud-train.conllu --dev en_ewt-ud-dev.conllu -o my.safetensors
    """
    from attn_cli.io.console import say
    from attn_cli.io.signals import raised
    from attn_cli.learn.relations import RELATIONS
    from attn_cli.learn.train import Epoch, train_file
    from attn_cli.render.screen.training_bar import TrainingBar

    prepare_index(embedding)
    with TrainingBar() as bar, raised():

        def report(epoch: Epoch) -> None:
            right = "".join(f" {name} {share:.3f}" for name, share in epoch.accuracy.items())
            bar.tell(f"attn: epoch {epoch.number}: loss {epoch.loss:.4f}{';' if right else ''}{right}")

        made = train_file(
            treebanks,
            output,
            dev or [],
            embedding or "word2vec",
            settings,
            bar,
            report,
            teacher or [],
            text or [],
        )
    for one in made.scores:
        if one.accuracy is None or one.baseline is None or RELATIONS[one.name].distance is not None:
            continue
        if one.accuracy <= one.baseline:
            shares = f"{one.accuracy:.3f}, {one.baseline:.3f}"
            say(f"attn: head {one.name} is no better than a fixed distance ({shares}).")
    how = "interrupted; " if made.interrupted else ""
    passes = "1 pass" if made.epochs == 1 else f"{made.epochs} passes"
    say(f"attn: {how}wrote {visible(made.file)}: {passes}, {made.bytes:,} bytes.")
    if made.interrupted:
        raise KeyboardInterrupt


def passages(
    texts: Annotated[list[str], argument("TEXT...", "A sentence a line, or CoNLL-U: plain, .gz or .xz.")],
    output: Annotated[
        str,
        own("FILE", "Where the passages go (.jsonl, also .gz or .xz).", "--output", "-o", group=OUTPUT),
    ],
) -> None:
    """Make passages from running text: the last time that a line names a thing, it says "it".

    What "it" stands for is known then, without a teacher: attn learn train learns a head antecedent from such
    passages, beside others.

    Example: attn learn passages corpus.txt.xz -o it.jsonl.xz
    """
    from attn_cli.io.console import say
    from attn_cli.io.escape import count
    from attn_cli.io.progress import Progress
    from attn_cli.learn.make_passages import passages_file

    with Progress("attn:") as progress:
        made = passages_file(texts, output, lambda lines: progress.rate(lines, "lines", None))
    found = count(made.passages, "passage", "passages")
    say(f"attn: wrote {visible(made.file)}: {found} with {count(made.nouns, 'noun', 'different nouns')}.")


def pretrain(
    texts: Annotated[list[str], argument("TEXT...", "A sentence on each line: plain, .gz or .xz.")],
    output: Annotated[
        str, own("FILE", "Where the layers go (.safetensors).", "--output", "-o", group=OUTPUT)
    ],
    embedding: Vectors = None,
    *,
    settings: Pretraining,
) -> None:
    """Learn the layers below the heads from running text, by guessing masked words.

    `attn learn train --pretrained FILE` goes on from there. It needs PyTorch. The file is written anew every so many
    words; Ctrl-C ends it and writes what was learned.

    Example: attn learn pretrain corpus.txt.xz -o lower.safetensors
    """
    from attn_cli.io.console import say
    from attn_cli.io.signals import raised
    from attn_cli.learn.pretrain import pretrain_file
    from attn_cli.render.screen.training_bar import TrainingBar

    prepare_index(embedding)
    with TrainingBar() as bar, raised():

        def tell(words: int, loss: float) -> None:
            bar.tell(f"attn: {words:,} words: loss {loss:.4f}")

        made = pretrain_file(texts, output, embedding or "word2vec", settings, bar, tell)
    how = "interrupted; " if made.interrupted else ""
    say(f"attn: {how}wrote {visible(made.file)}: {made.words:,} words read, {made.bytes:,} bytes.")
    if made.interrupted:
        raise KeyboardInterrupt
