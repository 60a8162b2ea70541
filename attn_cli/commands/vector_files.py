"""attn vectors: files of word vectors imported, exported, downloaded, and trained on running text."""

from __future__ import annotations

from typing import Annotated

import typer

from attn_cli.commands.common import Progress, ready
from attn_cli.errors import UsageError
from attn_cli.visible import visible


def import_(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="A file of word vectors, in any format.", show_default=False)
    ],
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="The name.  [default: the file's own]")
    ] = None,
) -> None:
    """Give a file of word vectors a name for -e, and make it quick.

    A large file gets an index in the user's cache; it stays where it is. A packed one (.gz, .xz) is unpacked
    beside the user's data.

    Example: attn vectors import glove.6B.50d.txt --name glove
    """
    _import(file, name)


def _import(file: str, name: str | None) -> None:
    from attn_cli.plain import say
    from attn_cli.vectors.importing import import_file

    with Progress("Importing") as progress:
        made = import_file(file, name, progress)
    about = made.vectors.describe()
    doubled = made.vectors.about.get("doubled")
    counted = f"; {int(doubled):,} doubled, the first of each counts" if doubled else ""
    if made.before is not None:
        say(f"attn: {made.name} stood for {visible(str(made.before))} before.")
    say(f"attn: imported {made.name}: {about['words']:,} words of {about['dim']:,} numbers{counted}.")
    say(f"attn: try: attn vectors nearest king -e {made.name}")


def export(
    output: Annotated[
        str,
        typer.Option("--output", "-o", metavar="FILE", help="Where to: .txt, .vec, .bin or .safetensors."),
    ],
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME|FILE]", help="word2vec (bundled), a file, or an imported name.", show_default=False
        ),
    ] = None,
    words: Annotated[
        int | None, typer.Option("--words", metavar="N", help="Only the first N words.  [default: all]")
    ] = None,
) -> None:
    """Write word vectors for other programs: word2vec's text or binary, or a table of attn's own.

    Example: attn vectors export -o word2vec.bin
    """
    from attn_cli.plain import say
    from attn_cli.vectors.export import export as write
    from attn_cli.vectors.lookup import open_table

    if words is not None and words < 1:
        raise UsageError(f"--words cannot be {words}.", "Give a whole number above 0.", "--words")
    ready(source)
    with Progress("Exporting") as progress:
        made = write(open_table(source or "word2vec"), output, words, progress)
    say(f"attn: wrote {visible(made.file)}: {made.words:,} words, {made.bytes:,} bytes.")


def download(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A set of vectors of gensim-data.", show_default=False)
    ],
) -> None:
    """Download pretrained vectors of gensim-data, check them, and import them.

    They go where gensim keeps them too (GENSIM_DATA_DIR, else ~/gensim-data). What breaks off is resumed the next
    time. No code that comes along is run.

    Example: attn vectors download glove-wiki-gigaword-50
    """
    from attn_cli.plain import say
    from attn_cli.vectors.download import download as fetch

    with Progress("Downloading") as progress:
        path = fetch(name, progress, lambda line: say(f"attn: {line}"))
    say(f"attn: downloaded {visible(str(path))}.")
    _import(str(path), name)


def train(
    corpora: Annotated[
        list[str],
        typer.Argument(metavar="CORPUS...", help="Text files, a sentence a line: plain, .gz or .xz."),
    ],
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="Where the vectors go (.safetensors).")
    ],
    dim: Annotated[int, typer.Option(metavar="N", help="Numbers in a vector.")] = 100,
    window: Annotated[int, typer.Option(metavar="N", help="Words on each side that count as context.")] = 5,
    negative: Annotated[int, typer.Option(metavar="N", help="Random words set against each true one.")] = 8,
    epochs: Annotated[int, typer.Option(metavar="N", help="Passes over the text.")] = 6,
    sample: Annotated[
        float, typer.Option(metavar="F", help="Above this share, words are thinned out.")
    ] = 1e-4,
    words: Annotated[int, typer.Option(metavar="N", help="At most so many words are kept.")] = 40_000,
    min_count: Annotated[int, typer.Option(metavar="N", help="Words seen less often are left out.")] = 10,
    remove: Annotated[int, typer.Option(metavar="N", help="Directions that all words share, taken out.")] = 1,
    length: Annotated[float, typer.Option(metavar="L", help="The length that every vector is given.")] = 4.0,
    seed: Annotated[
        int, typer.Option(metavar="N", help="Seed; with one worker, the same vectors again.")
    ] = 0,
    workers: Annotated[int, typer.Option(metavar="N", help="Threads; more than one is not repeatable.")] = 1,
) -> None:
    """Train word vectors on running text (gensim's Word2Vec, skip-gram), lower-cased.

    Example: attn vectors train corpus.txt.xz -o my.safetensors
    """
    from attn_cli.plain import say
    from attn_cli.render.progress import TrainingBar
    from attn_cli.vectors.train import TrainSettings, train_file

    settings = TrainSettings(
        dim=dim, window=window, negative=negative, epochs=epochs, sample=sample, words=words,
        min_count=min_count, remove=remove, length=length, seed=seed, workers=workers,
    )  # fmt: skip
    with TrainingBar() as bar:
        made = train_file(corpora, output, settings, bar)
    say(f"attn: wrote {made['file']}: {made['words']:,} words of {dim} numbers, {made['bytes']:,} bytes.")
