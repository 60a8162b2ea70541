"""attn learn and attn verify: a model of one layer trained on treebanks, models scored, and models on disk verified."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from attn_cli.cli.deliver import choose, deliver
from attn_cli.cli.options import Vectors, argument, of_record, own, takes
from attn_cli.cli.read_text import prepare_index, read_text
from attn_cli.errors import DIFFERENT, count, refuse_input, visible
from attn_cli.io.console import say
from attn_cli.io.progress import Progress, TrainingBar
from attn_cli.io.types import replace
from attn_cli.learn.treebank import Sentence, read_sentences
from attn_cli.render import Block, Columns, Say
from attn_cli.render.result import OF_BLOCKS, OF_RECORD, Record, record_result, result_of
from attn_cli.settings import Settings, View, declare, training

if TYPE_CHECKING:
    from attn_cli.learn.score import Score
    from attn_cli.learn.train import Epoch, Trained
    from attn_cli.models.encoder import EncoderStack
    from attn_cli.vectors import Vectors as WordVectors

DEV_HELP = "Sentences held back: accuracy is measured on them. May be repeated."
TREEBANK = "CoNLL-U, or passages (.jsonl: tokens, pronoun, antecedents); plain, .gz or .xz."
COLUMNS = (  # what those of the screen of a score are
    "",
    "right: of the words that have the relation, the share whose strongest link is one of the right words.",
    "Two baselines without a model, each tuned on these texts. distance: always the word at one fixed offset; "
    "nearest: the nearest word with one part of speech, on one side.",
    "precision: of the strongest links that go to another word, the share that are right.",
    "hard: right among the words for which that distance is wrong.",
    "content: right where the head's term for the distance is left out.",
    "of two: where two names compete, the share in which the right one gets more weight.",
)


@of_record
def score(
    view: View,
    model: str = argument("MODEL", "roles, roles-deep, language, or a file."),
    treebank: str = argument("TREEBANK", TREEBANK),
    embedding: Vectors = None,
) -> None:
    """Measure how often each head is right, against the best fixed-distance baseline.

    Of the words that have the head's relation in the treebank, the share whose strongest link is one
    of the right words; and of the strongest links to another word, the share that are right.

    Example: attn learn score roles en_ewt-ud-dev.conllu
    """
    from attn_cli.learn.score import score as measure
    from attn_cli.models.model_file import named
    from attn_cli.pipeline.embed import check_pairing
    from attn_cli.vectors.lookup import open_table

    view = choose(view, OF_RECORD)
    stack = named(model)
    table = open_table(prepare_index(embedding))
    check_pairing(stack, table)
    sentences = read_sentences(treebank)
    record: Record = {"model": stack.name, "treebank": treebank, "sentences": len(sentences)}
    if stack.words is None:
        with TrainingBar(quiet=True) as bar:
            scores = measure(stack, table, sentences, bar)
        refuse_input(not scores, f"{stack.name} has no head that bears a relation's name.")
        source = f"Model {stack.name}, treebank {treebank}, {count(len(sentences), 'sentence', 'sentences')}."
        kind = "score"
        blocks = [*_screen(scores), Say(visible(source))]
        record["heads"] = [one._asdict() for one in scores]
    else:
        kind = "language-score"
        more, blocks = _language(stack, table, sentences, treebank)
        record |= more
    deliver(replace(record_result(kind, record), blocks=lambda view: blocks), view)


def _screen(scores: Sequence[Score]) -> Iterator[Block]:
    has_candidates = any(one.candidates is not None for one in scores)
    rows = []
    for one in scores:
        found = [one.accuracy, one.baseline, one.nearest, one.precision, one.hard, one.content]
        shares = ["–" if x is None else f"{x:.3f}" for x in (*found, *[one.candidates] * has_candidates)]
        rows.append([one.name, *shares, f"{one.count:,}"])
    names = ["right", "distance", "nearest", "precision", "hard", "content", *["of two"] * has_candidates]
    yield Columns(["head", *names, "words"], rows)
    yield from map(Say, COLUMNS if has_candidates else COLUMNS[:-1])


def train(
    settings: training.ModelTraining,
    treebanks: list[str] = argument("TREEBANK...", TREEBANK),
    output: str = own(
        "FILE", "Where the model goes (.safetensors).", declare.OUTPUT, "--output", "-o", default=...
    ),
    dev: list[str] | None = own("TREEBANK", DEV_HELP, declare.TRAINING),
    embedding: Vectors = None,
) -> None:
    """Learn attention heads from treebanks (Universal Dependencies), and from passages with pronouns.

    One layer is learned, in NumPy. Ctrl-C ends it and writes what whole passes have learned.

    Example: attn learn train en_ewt-ud-train.conllu --dev en_ewt-ud-dev.conllu -o my.safetensors
    """
    from attn_cli.io.signals import raised
    from attn_cli.learn.train import train_file

    vectors = prepare_index(embedding)
    with TrainingBar() as bar, raised():
        made = train_file(
            treebanks, output, dev or [], vectors, settings, bar, lambda epoch: say_epoch(bar, epoch)
        )
    say_trained(made)


def say_epoch(bar: TrainingBar, epoch: Epoch) -> None:
    """Say the loss of an epoch, and how often each head was right."""
    right = "".join(f" {name} {share:.3f}" for name, share in epoch.accuracy.items())
    bar.tell(f"attn: epoch {epoch.number}: loss {epoch.loss:.4f}{';' if right else ''}{right}")


def say_trained(made: Trained) -> None:
    """Say which heads learned nothing, and what was written; raise KeyboardInterrupt where that was asked for."""
    from attn_cli.learn.relations import RELATIONS

    for one in made.scores:
        share, fixed = one.accuracy, one.baseline
        is_free = RELATIONS[one.name].distance is None
        if is_free and share is not None and fixed is not None and share <= fixed:
            say(f"attn: head {one.name} is no better than a fixed distance ({share:.3f}, {fixed:.3f}).")
    how = "interrupted; " if made.interrupted else ""
    passes = count(made.epochs, "pass", "passes")
    say(f"attn: {how}wrote {visible(made.file)}: {passes}, {made.bytes:,} bytes.")
    if made.interrupted:
        raise KeyboardInterrupt


def _language(
    stack: EncoderStack, table: WordVectors, sentences: Sequence[Sentence], treebank: str
) -> tuple[Record, list[Block]]:
    """Return a language model's perplexity on a treebank and what each head does, as JSON and as a screen."""
    from attn_cli.learn.language_score import PATTERNS, RANDOM, measure_heads, names_of, perplexity

    with TrainingBar(quiet=True) as bar:
        told = perplexity(stack, table, [sentence.words for sentence in sentences], bar)
        measured = measure_heads(stack, table, sentences, treebank, 0, bar)
    names, first = names_of(measured), measured[0].measures
    shown = [name for name in PATTERNS if any(name in one.measures for one in measured)]
    heads, rows = [], []
    for one in measured:
        name = names[one.layer, one.number]
        measures = {name: found._asdict() for name, found in one.measures.items()}
        about = {"layer": one.layer, "number": one.number, "name": name, "pattern": one.pattern}
        heads.append(about | {"measures": measures})
        shares = [f"{one.measures[name].accuracy:.2f}" for name in shown]
        rows.append([f"{one.layer}.{one.number}", name, *shares])
    rows.append(["", "best fixed distance", *(f"{first[name].baseline:.2f}" for name in shown)])
    said = [""]
    for name in shown:
        on = f" ({RANDOM})" if first[name].on == RANDOM else ""
        said.append(f"{name}: {PATTERNS[name].about}{on}.")
    of = f"model {visible(stack.name)}, treebank {visible(treebank)}"
    counts = f"{told.words:,} words, {told.unknown:,} of them without a vector"
    said += [
        "A share is of the words that have such a place before them: their strongest link falls on it.",
        f"Perplexity {told.perplexity:.1f} per word: {of}, {counts}.",
    ]
    return {**told._asdict(), "heads": heads}, [Columns(["head", "name", *shown], rows), *map(Say, said)]


VERIFIED_HELP = "Texts, each in quotes; - is standard input.  [default: three sentences]"


@takes("max_text max_word format output color width")
def verify(
    settings: Settings,
    view: View,
    model: str = argument("MODEL", "The model: a folder, a GGUF file, or a name, as for --model."),
    texts: list[str] | None = argument("[TEXT]...", VERIFIED_HELP, default=None),
) -> None:
    """Whether attn computes a model's own numbers: layer by layer beside transformers, or its file alone.

    Where torch and transformers are installed, both compute the same texts from the same files, offline. Elsewhere
    the file is checked alone, which is no proof: the shapes of its tensors, the keys of config.json, rows that sum
    to one, causal masks. Exit code 1 says that a figure is too large.

    Example: attn verify ./bert-base-uncased
    """
    view = choose(view, OF_BLOCKS, "verify", "verify")
    from attn_cli.pipeline import verify as verifying
    from attn_cli.render.views import verify as views

    given = [read_text(text, "verify", settings) for text in texts or ()] or verifying.TEXTS
    with Progress("Comparing"):
        found = verifying.verify(model, given, settings)
    deliver(result_of("verify", found, views), view)
    if found.exceeded is not None:
        raise SystemExit(DIFFERENT)
