"""attn vectors: look into word vectors, and train them."""

from __future__ import annotations

from typing import Annotated

import typer

from attn_cli.commands.common import FINEST, RecordFormat, Vectors, deliver, deliver_json, viewed
from attn_cli.errors import InputError, UsageError
from attn_cli.options import Command, Output
from attn_cli.visible import as_utf8, visible

app = typer.Typer(
    help="Word vectors: what is known of them, neighbours, training.\n\nExample: attn vectors nearest colour",
    rich_markup_mode=None,
    add_completion=False,
    no_args_is_help=False,
)

Source = Annotated[
    str | None,
    typer.Argument(metavar="[NAME|FILE]", help="word2vec (bundled), or a file.", show_default=False),
]


@app.command(cls=Command)
def info(source: Source = None, format: RecordFormat = None, output: Output = None) -> None:
    """What is known of a set of word vectors: size, length, settings, sources.

    Example: attn vectors info
    """
    from attn_cli.vectors.lookup import open_table
    from attn_cli.vectors.table import describe

    view = viewed(format, output)
    about = describe(open_table(source or "word2vec"))
    if view.format != "table":
        deliver_json({"schema": "attn/1", "kind": "vectors", **about}, view)
        return
    lines = [(key, value) for key, value in about.items() if value not in (None, {})]
    lines += list(dict(about["about"]).items())  # type: ignore[call-overload]
    shown = [visible(f"{key:<12} {_plain(value)}") for key, value in lines if key != "about"]
    deliver("\n".join(shown) + "\n", view)


@app.command(cls=Command)
def nearest(
    word: Annotated[
        str, typer.Argument(metavar="WORD", help="The word whose neighbours are wanted.", show_default=False)
    ],
    embedding: Vectors = None,
    top: Annotated[
        int, typer.Option("--top", metavar="K", help="How many neighbours.", envvar="ATTN_TOP")
    ] = 10,
    precision: Annotated[
        int, typer.Option("--precision", metavar="N", help="Digits shown.", envvar="ATTN_PRECISION")
    ] = 3,
    format: RecordFormat = None,
    output: Output = None,
) -> None:
    """The words nearest to a word, by cosine.

    Example: attn vectors nearest colour
    """
    from attn_cli.vectors.lookup import look_up, open_table
    from attn_cli.vectors.nearest import nearest as find

    view = viewed(format, output)
    if not 1 <= top <= 1_000_000:
        raise UsageError(f"--top cannot be {top}.", "Give a whole number from 1 to 1,000,000.", "--top")
    if not 0 <= precision <= FINEST:
        raise UsageError(f"--precision cannot be {precision}.", f"Give 0 to {FINEST}.", "--precision")
    table = open_table(embedding or "word2vec")
    word = as_utf8(word)
    found = look_up(word, table)
    if found is None:
        raise InputError(f"{table.name} has no vector for {visible(word)!r}.", "Check its spelling.")
    form, vector = found
    neighbours = find(table, vector, top, without=form)
    if view.format != "table":
        listed = [{"word": near, "cosine": cosine} for near, cosine in neighbours]
        record = {"schema": "attn/1", "kind": "nearest", "word": word, "found": form, "embedding": table.name}
        deliver_json({**record, "neighbours": listed}, view)
        return
    widest = max((len(visible(near)) for near, _ in neighbours), default=1)
    deliver("".join(f"{visible(n):<{widest}}  {c:.{precision}f}\n" for n, c in neighbours), view)


@app.command(cls=Command)
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


def _plain(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_plain(item)}" for key, item in value.items())
    return visible(f"{value:,}" if isinstance(value, int) else str(value))
