"""attn learn: train a model on treebanks, and score it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

from attn_cli.cli.deliver import deliver_record, record_view, terminal_for
from attn_cli.cli.options import Output, RecordFormat, Vectors, argument, own
from attn_cli.cli.read_text import prepare_index
from attn_cli.errors import InputError
from attn_cli.io.escape import visible
from attn_cli.settings.declare import OUTPUT, TRAINING
from attn_cli.settings.training import ModelTraining

if TYPE_CHECKING:
    from attn_cli.learn.score import Score
    from attn_cli.render.blocks import Block

TREEBANK = "CoNLL-U: plain, .gz or .xz."


def score(
    model: Annotated[str, argument("MODEL", "roles, roles-deep, language, or a file.")],
    treebank: Annotated[str, argument("TREEBANK", TREEBANK)],
    embedding: Vectors = None,
    format: RecordFormat = None,
    output: Output = None,
) -> None:
    """How often each head is right, beside the best fixed distance.

    Of the words that have the head's relation in the treebank, the share whose strongest link is one
    of the right words; and of the strongest links to another word, the share that are right.

    Example: attn learn score roles en_ewt-ud-dev.conllu
    """
    from attn_cli.io.plural import count
    from attn_cli.learn.score import score as measure
    from attn_cli.learn.treebank import read_treebank
    from attn_cli.models.model_file import named
    from attn_cli.pipeline.embed import check_pairing
    from attn_cli.render.blocks import Say
    from attn_cli.render.screen.draw import draw
    from attn_cli.render.screen.training_bar import TrainingBar
    from attn_cli.vectors.lookup import open_table

    view = record_view(format, output)
    stack = named(model)
    prepare_index(embedding)
    table = open_table(embedding or "word2vec")
    check_pairing(stack, table)
    sentences = read_treebank(treebank)
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
    terminal, blocks = terminal_for(view), [*_screen(scores), Say(visible(source))]
    deliver_record("score", record, view, lambda: terminal.paint(draw(blocks, view, terminal)))


def _screen(scores: Sequence[Score]) -> Iterator[Block]:
    """Yield a row for each head, and what its columns are."""
    from attn_cli.render.blocks import Columns, Say

    rows = []
    for one in scores:
        shares = ["–" if x is None else f"{x:.3f}" for x in (one.accuracy, one.baseline, one.precision)]
        rows.append([one.name, *shares, f"{one.count:,}"])
    yield Columns(["head", "right", "fixed distance", "precision", "words"], rows)
    yield Say("")
    yield Say(
        "right: of the words that have the relation, the share whose strongest link is one of the right words."
    )
    yield Say("fixed distance: the share that the best single distance gets, chosen on this treebank.")
    yield Say("precision: of the strongest links that go to another word, the share that are right.")


def train(
    treebanks: Annotated[list[str], argument("TREEBANK...", TREEBANK)],
    output: Annotated[
        str, own("FILE", "Where the model goes (.safetensors).", "--output", "-o", group=OUTPUT)
    ],
    dev: Annotated[
        str | None, own("TREEBANK", "Sentences held back: accuracy is measured on them.", group=TRAINING)
    ] = None,
    embedding: Vectors = None,
    *,
    settings: ModelTraining,
) -> None:
    """Learn attention heads from treebanks (Universal Dependencies).

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

        made = train_file(treebanks, output, dev, embedding or "word2vec", settings, bar, report)
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
