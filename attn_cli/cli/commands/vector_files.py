"""attn vectors: files of word vectors imported, removed, exported, downloaded, given n-grams; vectors trained."""

from __future__ import annotations

import os
from itertools import chain

from attn_cli.cli.options import NameOrFile, argument, own
from attn_cli.cli.read_text import prepare_index
from attn_cli.errors import CreateError, WriteError, count, refuse, shell_quote, visible
from attn_cli.io.console import put_plain, say
from attn_cli.io.progress import Progress, TrainingBar
from attn_cli.settings.declare import OUTPUT, VECTORS
from attn_cli.settings.training import SubwordTraining, VectorTraining

CORPORA = argument("CORPUS...", "Text files, one sentence per line: plain, .gz or .xz.")
USUAL = ("king", "coffee", "fox")
EXPORTED = own("FILE", "Where to: .txt, .vec, .bin or .safetensors.", OUTPUT, "--output", "-o", default=...)
PACKAGE = argument("[NAME]", "A set of gensim-data; without one, all are listed.", default=None)
OUTPUT_FILE = own("FILE", "Where the vectors go (.safetensors).", OUTPUT, "--output", "-o", default=...)


def import_(
    file: str = argument("FILE", "A file of word vectors, in any format."),
    name: str | None = own("NAME", "The name.  [default: the file's own]", VECTORS),
) -> None:
    """Register a file of word vectors under a name and index it for fast lookup.

    A large file gets an index in the user's cache; it stays where it is. A packed one (.gz, .xz) is unpacked
    beside the user's data.

    Example: attn vectors import glove.6B.50d.txt --name glove
    """
    from attn_cli.vectors import as_text, names

    with Progress("Importing") as progress:
        imported, vectors, notes = names.import_file(file, name, progress, lambda line: say(f"attn: {line}"))
    for note in notes:
        say(f"attn: {note}")
    doubled = vectors.about.get("doubled")
    counted = f"; {int(doubled):,} duplicates (the first occurrence is used)" if doubled else ""
    size = f"{count(vectors.n_words, 'word', 'words')} of {count(vectors.dim, 'number', 'numbers')}"
    say(f"attn: imported {imported}: {size}{counted}.")
    usual = vectors.find(USUAL)  # a word to try: a common one, else the first of some letters, else the first
    first = [] if usual else [as_text(word) for word in next(vectors.word_blocks())[:1000]]
    word = next(chain(usual, (word for word in first if word.isalpha() and len(word) > 3), first))
    quoted = shell_quote(word)
    typed = f"{quoted} -e {imported}" if word[:1] != "-" else f"-e {imported} -- {quoted}"
    say(f"attn: try: attn vectors nearest {typed}")


def remove(name: str = argument("NAME", "An imported name.")) -> None:
    """Forget an imported name.

    Its index, and what was unpacked for it, go with it. The file that was imported stays where it is.

    Example: attn vectors remove glove
    """
    from attn_cli.vectors.names import remove as forget

    for path in forget(name):
        say(f"attn: removed {visible(path)}.")


def export(
    output: str = EXPORTED,
    source: NameOrFile = None,
    words: int | None = own("N", "Only the first N words.  [default: all]", VECTORS),
) -> None:
    """Write word vectors as text, binary or a table.

    Text and binary are word2vec's, which others read; the table is attn's own.

    Example: attn vectors export -o word2vec.bin
    """
    from attn_cli.vectors import lookup, names

    is_none = words is not None and words < 1
    refuse(is_none, f"--words cannot be {words}.", "Give a whole number above 0.", "--words")
    source = prepare_index(source)
    _refuse_same(source, output)
    with Progress("Exporting") as progress:
        n, size = names.export(lookup.open_table(source), output, words, progress)
    say(f"attn: wrote {visible(output)}: {count(n, 'word', 'words')}, {size:,} bytes.")


def _refuse_same(source: str, output: str) -> None:
    from attn_cli.vectors.lookup import path_for

    is_file = source != "word2vec" and os.path.exists(output)
    is_same = is_file and os.path.samefile(path_for(source), output)
    said = f"{visible(output)} is the file that is read: it would be replaced."
    refuse(is_same, said, "Write to another file.", "--output")


def download(name: str | None = PACKAGE) -> None:
    """Download pretrained vectors of gensim-data, and import them.

    They are checked, and go where gensim keeps them too (GENSIM_DATA_DIR, else ~/gensim-data). An interrupted
    download resumes next time. Code that comes with a package is never run.

    Example: attn vectors download glove-wiki-gigaword-50
    """
    from attn_cli.io.signals import raised
    from attn_cli.vectors import catalogue, download as downloads, names

    if name is None:
        from attn_cli.render.screen.text import aligned  # loads Rich

        rows = [("name", "words", "dim", "MB", "licence")]
        for one in sorted(catalogue.fetch_index().packages.values(), key=lambda package: package.bytes or 0):
            size = "?" if one.bytes is None else f"{one.bytes / 1e6:,.0f}"
            words, dim = ("?" if number is None else f"{number:,}" for number in (one.words, one.dim))
            rows.append((one.name, words, dim, size, one.licence))
        put_plain(aligned(rows, (1, 2, 3)))
        return
    was_there = catalogue.local(name)
    try:
        with Progress("Downloading") as progress, raised():
            path = str(downloads.download(name, progress, lambda line: say(f"attn: {line}")))
    except KeyboardInterrupt:
        say("attn: interrupted. What has arrived is kept: the same command goes on from there.")
        raise
    if was_there and names.read_record(name):
        say(f"attn: {name} is there already: {visible(path)}.")
        return
    say(f"attn: {'there already' if was_there else 'downloaded'}: {visible(path)}.")
    try:
        import_(path, name)
    except (CreateError, WriteError) as error:
        hint = f"The file is there, without its name: attn vectors import {shell_quote(path)}"
        raise type(error)(error.message, hint) from None


def train(settings: VectorTraining, corpora: list[str] = CORPORA, output: str = OUTPUT_FILE) -> None:
    """Train word vectors on running text.

    It is gensim's Word2Vec, skip-gram; the text is lower-cased.

    Example: attn vectors train corpus.txt.xz -o my.safetensors
    """
    from attn_cli.vectors.train import train_file

    with TrainingBar() as bar:
        made = train_file(corpora, output, settings, bar)
    size = f"{made['words']:,} words of {made['dim']} numbers, {made['bytes']:,} bytes"
    say(f"attn: wrote {made['file']}: {size}.")


def subwords(settings: SubwordTraining, output: str = OUTPUT_FILE, source: NameOrFile = None) -> None:
    """Add character n-grams to word vectors, so that vectors of unknown words can be guessed from their spelling.

    The file that is written has the same words and vectors, and n-grams beside them: --oov subword needs them. The
    bundled vectors have them already.

    Example: attn vectors subwords glove.6B.50d.txt -o glove.safetensors
    """
    from attn_cli.vectors.lookup import open_table
    from attn_cli.vectors.train import subwords_file

    source = prepare_index(source)
    _refuse_same(source, output)
    with TrainingBar() as bar:
        made = subwords_file(open_table(source), output, settings, bar)
    say(f"attn: wrote {visible(output)}: n-grams of {made.words:,} words, {made.bytes:,} bytes.")
    if made.cosine is not None:
        say(
            f"attn: of {made.held_back:,} words held back, guesses have a cosine of {made.cosine:.3f} "
            "with their own vectors on average (0 by chance)."
        )
