"""The commands that make what lies in data/: `python -m data.making` lists them."""

from __future__ import annotations

from attn_cli.cli.commands.learn import TREEBANK, say_epoch, say_trained
from attn_cli.cli.options import Vectors, argument, own
from attn_cli.cli.read_text import prepare_index
from attn_cli.errors import visible
from attn_cli.settings.declare import OUTPUT, TRAINING
from data.making.settings import (
    DeepTraining,
    EncoderTraining,
    LanguageTraining,
    OneLayerTraining,
    Pretraining,
)


def train(
    treebanks: list[str] = argument("TREEBANK...", TREEBANK),
    output: str = own("FILE", "Where the model goes (.safetensors).", OUTPUT, "--output", "-o", default=...),
    dev: list[str] | None = own(
        "TREEBANK", "Sentences held back: accuracy is measured on them. May be repeated.", TRAINING
    ),
    teacher: list[str] | None = own(
        "MODEL", "A model whose weights are learned on --text as well. May be repeated.", TRAINING
    ),
    text: list[str] | None = own(
        "TEXT", "Running text to learn from --teacher on. May be repeated.", TRAINING
    ),
    spliced: str | None = own(
        "FILE",
        "Spliced passages (python -m data.making splice) to learn from as well, three words for each of the others.",
        TRAINING,
    ),
    labelled: list[str] | None = own(
        "FILE",
        "Text with a teacher's weights (python -m data.making label), in place of both. May be repeated.",
        TRAINING,
    ),
    embedding: Vectors = None,
    *,
    settings: DeepTraining,
) -> None:
    """Learn attention heads from treebanks (Universal Dependencies), and from passages with pronouns.

    Several layers are learned, with PyTorch. Ctrl-C ends it and writes what whole passes have learned.

    Example: python -m data.making train en_ewt-ud-train.conllu --dev en_ewt-ud-dev.conllu -o my.safetensors
    """
    from attn_cli.io.progress import TrainingBar
    from attn_cli.io.signals import raised
    from data.making.train_deep import train_file

    prepare_index(embedding)
    with TrainingBar() as bar, raised():
        made = train_file(
            treebanks,
            output,
            dev or [],
            embedding or "word2vec",
            settings,
            bar,
            lambda epoch: say_epoch(bar, epoch),
            teacher or [],
            text or [],
            spliced,
            labelled or [],
        )
    say_trained(made)


def encoder(
    folder: str = argument("FOLDER", "A pretrained encoder: model.safetensors, config.json, tokenizer.json."),
    treebanks: list[str] = argument("TREEBANK...", TREEBANK),
    output: str = own("FILE", "Where the model goes (.safetensors).", OUTPUT, "--output", "-o", default=...),
    some: list[str] | None = own(
        "TREEBANK",
        "One of the treebanks of which a sixth of the sentences will do. May be repeated.",
        TRAINING,
    ),
    dev: list[str] | None = own(
        "TREEBANK", "Sentences held back: accuracy is measured on them. May be repeated.", TRAINING
    ),
    embedding: Vectors = None,
    *,
    settings: EncoderTraining,
) -> None:
    """Learn heads on top of a pretrained encoder of word pieces: a teacher for `train --teacher`.

    It is no model for attn itself. Ctrl-C ends it and writes what whole passes have learned.

    Example: python -m data.making encoder bert/ en_ewt-ud-train.conllu -o teacher.safetensors
    """
    from attn_cli.errors import count
    from attn_cli.io.console import say
    from attn_cli.io.progress import TrainingBar
    from attn_cli.io.signals import raised
    from data.making.train_encoder import train_encoder

    prepare_index(embedding)
    vectors = embedding or "word2vec"
    with TrainingBar() as bar, raised():
        done = train_encoder(
            folder,
            treebanks,
            some or [],
            output,
            dev or [],
            vectors,
            settings,
            bar,
            lambda epoch: say_epoch(bar, epoch),
        )
    say(f"attn: wrote {visible(output)}: {count(done, 'pass', 'passes')}.")


def label(
    teacher: str = argument("MODEL", "A model of train or encoder."),
    texts: list[str] = argument("TEXT...", "A sentence on each line: plain, .gz or .xz."),
    output: str = own("FILE", "Where the labels go (.safetensors).", OUTPUT, "--output", "-o", default=...),
    words: int = own(
        "N", "Words to read; after the last line, the first comes again.", TRAINING, default=5_000_000
    ),
    threads: int = own("N", "Threads; the last digits depend on it.", TRAINING, default=1),
    embedding: Vectors = None,
) -> None:
    """Write down where a teacher's heads look in running text, for `train --labelled` to learn from many times.

    Ctrl-C ends it and writes what was read.

    Example: python -m data.making label encoder.safetensors corpus.txt.xz -o labels.safetensors
    """
    from attn_cli.io.console import say
    from attn_cli.io.progress import Progress
    from attn_cli.io.signals import raised
    from data.making.labels import label_file

    prepare_index(embedding)
    with Progress("attn:") as progress, raised():
        vectors = embedding or "word2vec"
        made = label_file(
            teacher, texts, output, words, threads, vectors, lambda n: progress.rate(n, "words", words)
        )
    say(f"attn: wrote {visible(output)}: {made.words:,} words in {made.lines:,} lines.")


def one_layer(
    treebanks: list[str] = argument("TREEBANK...", TREEBANK),
    output: str = own("FILE", "Where the model goes (.safetensors).", OUTPUT, "--output", "-o", default=...),
    dev: list[str] | None = own(
        "TREEBANK", "Sentences held back: accuracy is measured on them. May be repeated.", TRAINING
    ),
    teacher: str = own("MODEL", "A model of several layers to learn from on --text.", TRAINING, default=...),
    text: list[str] = own("TEXT", "Running text. May be repeated.", TRAINING, default=...),
    embedding: Vectors = None,
    *,
    settings: OneLayerTraining,
) -> None:
    """Learn one layer of heads from treebanks, and from a model of several layers on running text.

    Example: python -m data.making one-layer ewt.conllu --teacher deep.safetensors --text corpus.txt -o my.safetensors
    """
    from attn_cli.io.progress import TrainingBar
    from attn_cli.io.signals import raised
    from data.making.one_layer import train_file

    prepare_index(embedding)
    vectors = embedding or "word2vec"
    with TrainingBar() as bar, raised():
        made = train_file(
            treebanks,
            output,
            dev or [],
            vectors,
            settings,
            bar,
            lambda epoch: say_epoch(bar, epoch),
            teacher,
            text,
        )
    say_trained(made)


def passages(
    texts: list[str] = argument("TEXT...", "A sentence a line, or CoNLL-U: plain, .gz or .xz."),
    output: str = own(
        "FILE", "Where the passages go (.jsonl, also .gz or .xz).", OUTPUT, "--output", "-o", default=...
    ),
) -> None:
    """Make passages from running text: the last time that a line names a thing, it says "it".

    What "it" stands for is known then, without a teacher: training learns a head antecedent from such
    passages, beside others.

    Example: python -m data.making passages corpus.txt.xz -o it.jsonl.xz
    """
    from attn_cli.errors import count
    from attn_cli.io.console import say
    from attn_cli.io.progress import Progress
    from data.making.make_passages import passages_file

    with Progress("attn:") as progress:
        made = passages_file(texts, output, lambda lines: progress.rate(lines, "lines", None))
    found = count(made.passages, "passage", "passages")
    say(f"attn: wrote {visible(made.file)}: {found} with {count(made.nouns, 'noun', 'different nouns')}.")


def splice(
    texts: list[str] = argument(
        "TEXT...", "A sentence a line: plain, .gz or .xz; and CoNLL-U, for its tags."
    ),
    output: str = own(
        "FILE", "Where the passages go (.jsonl, also .gz or .xz).", OUTPUT, "--output", "-o", default=...
    ),
    seed: int = own("N", "Seed; the same gives the same passages.", TRAINING, default=0, min=0),
) -> None:
    """Make passages of two parts: a line that names things, and what another line says of one of them.

    There the thing is "it" ("they", "he", "she"): nothing but what is said tells which one it is.

    Example: python -m data.making splice corpus.txt.xz en_ewt-ud-train.conllu -o spliced.jsonl.xz
    """
    from attn_cli.errors import count
    from attn_cli.io.console import say
    from attn_cli.io.progress import Progress
    from data.making.splice import splices_file

    with Progress("attn:") as progress:
        made = splices_file(texts, output, seed, lambda lines: progress.rate(lines, "lines", None))
    found = count(made.passages, "passage", "passages")
    say(f"attn: wrote {visible(made.file)}: {found} about {count(made.nouns, 'noun', 'different nouns')}.")


def graft(
    treebanks: list[str] = argument("TREEBANK...", "CoNLL-U: plain, .gz or .xz."),
    output: str = own(
        "FILE", "Where the sentences go (.conllu, also .gz or .xz).", OUTPUT, "--output", "-o", default=...
    ),
    seed: int = own("N", "Seed; the same gives the same sentences.", TRAINING, default=0, min=0),
) -> None:
    """Make sentences of two: a relative clause of one, behind a noun of another that is the subject of what follows.

    What governs each word is known, so that training learns who does something across a clause.

    Example: python -m data.making graft en_ewt-ud-train.conllu -o grafted.conllu.xz
    """
    from attn_cli.errors import count
    from attn_cli.io.console import say
    from attn_cli.io.progress import Progress
    from data.making.graft import grafts_file

    with Progress("attn:") as progress:
        made = grafts_file(treebanks, output, seed, lambda done: progress.rate(done, "sentences", None))
    say(f"attn: wrote {visible(output)}: {count(made, 'sentence', 'sentences')}.")


def exchange(
    treebanks: list[str] = argument("TREEBANK...", "CoNLL-U: plain, .gz or .xz."),
    output: str = own(
        "FILE", "Where the sentences go (.conllu, also .gz or .xz).", OUTPUT, "--output", "-o", default=...
    ),
    times: int = own("N", "How often each sentence is varied.", TRAINING, default=13, min=1),
    seed: int = own("N", "Seed; the same gives the same sentences.", TRAINING, default=0, min=0),
) -> None:
    """Vary the sentences of treebanks: phrases change places with phrases of the same kind from other sentences.

    They are text for `label`, of the kind that a treebank is of.

    Example: python -m data.making exchange en_ewt-ud-train.conllu -o exchanged.conllu.gz
    """
    from attn_cli.errors import count
    from attn_cli.io.console import say
    from attn_cli.io.progress import Progress
    from data.making.exchange import varied_file

    with Progress("attn:") as progress:
        made = varied_file(
            treebanks, output, times, seed, lambda done: progress.rate(done, "sentences", None)
        )
    say(f"attn: wrote {visible(output)}: {count(made, 'sentence', 'sentences')}.")


def stories(
    texts: list[str] = argument("TEXT...", "A sentence a line: plain, .gz or .xz."),
    output: str = own(
        "FILE", "Where the stories go (.txt, also .gz or .xz).", OUTPUT, "--output", "-o", default=...
    ),
    times: int = own(
        "N", "Stories, at most, that begin with each line that can begin one.", TRAINING, default=4, min=1
    ),
    tales: int = own("N", "Tales of a small world, from a grammar, among them.", TRAINING, default=0, min=0),
    seed: int = own("N", "Seed; the same gives the same stories.", TRAINING, default=0, min=0),
) -> None:
    """Make stories of lines of running text that fit, for `language` to learn whom he and she can be.

    Tales are made of sentences of our own (data/making/tales.txt), in which what is told agrees.

    Example: python -m data.making stories corpus.txt.xz -o stories.txt.xz
    """
    from attn_cli.errors import count
    from attn_cli.io.console import say
    from attn_cli.io.progress import Progress
    from data.making.stories import stories_file

    with Progress("attn:") as progress:
        made = stories_file(
            texts, output, times, tales, seed, lambda done: progress.rate(done, "lines", None)
        )
    say(f"attn: wrote {visible(output)}: {count(made, 'story', 'stories')}.")


def widen(
    model: str = argument("MODEL", "A model of several layers that train wrote."),
    output: str = own("FILE", "Where the model goes (.safetensors).", OUTPUT, "--output", "-o", default=...),
    width: int = own("N", "Numbers per word between the layers.", TRAINING, default=256),
    wide: int = own("N", "Hidden units of each word's own network.", TRAINING, default=640),
    itself: int = own(
        "N", "The commonest words that have a learned vector of their own.", TRAINING, default=10_000
    ),
    seed: int = own("N", "Seed; the same gives the same model.", TRAINING, default=0, min=0),
    embedding: Vectors = None,
) -> None:
    """Make a trained model larger, for `train --pretrained` to go on from: it says nearly what it said before.

    Example: python -m data.making widen roles-deep.safetensors -o wide.safetensors
    """
    from attn_cli.io.console import say
    from data.making.widen import Wider, widen_file

    prepare_index(embedding)
    numbers = widen_file(model, output, Wider(width, wide, itself), seed, embedding or "word2vec")
    say(f"attn: wrote {visible(output)}: {numbers:,} numbers.")


def leads(
    model: str = argument("MODEL", "A model's file with a head antecedent; it is written anew."),
    passages: str = argument("PASSAGES", "Passages that it was not trained on (.jsonl, also .gz or .xz)."),
) -> None:
    """Measure from which lead on a pronoun's strongest link is mostly right, and put it into the model's file.

    Training does so too, with --dev. The numbers of the model stay as they are.

    Example: python -m data.making leads my.safetensors litbank-dev.jsonl.xz
    """
    from attn_cli.io.console import say
    from attn_cli.io.progress import TrainingBar
    from data.making.leads import measure_leads

    with TrainingBar() as bar:
        found = measure_leads(model, passages, bar)
    for word, one in found.items():
        of = ", ".join(one["forms"])
        say(
            f"attn: {word}: from a lead of {one['lead']:.3f} on, {one['right']} of {one['count']} right ({of})"
        )


def pretrain(
    texts: list[str] = argument("TEXT...", "A sentence on each line: plain, .gz or .xz."),
    output: str = own("FILE", "Where the layers go (.safetensors).", OUTPUT, "--output", "-o", default=...),
    embedding: Vectors = None,
    *,
    settings: Pretraining,
) -> None:
    """Learn the layers below the heads from running text, by guessing masked words.

    `train --pretrained FILE` goes on from there. The file is written anew every so many words; Ctrl-C ends it and
    writes what was learned.

    Example: python -m data.making pretrain corpus.txt.xz -o lower.safetensors
    """
    from attn_cli.io.console import say
    from attn_cli.io.progress import TrainingBar
    from attn_cli.io.signals import raised
    from data.making.pretrain import pretrain_file

    prepare_index(embedding)
    with TrainingBar() as bar, raised():

        def tell(words: int, loss: float) -> None:
            bar.tell(f"attn: {words:,} words: loss {loss:.4f}")

        made = pretrain_file(texts, output, embedding or "word2vec", settings, bar, tell)
    how = "interrupted; " if made.interrupted else ""
    say(f"attn: {how}wrote {visible(made.file)}: {made.words:,} words read, {made.bytes:,} bytes.")
    if made.interrupted:
        raise KeyboardInterrupt


def language(
    texts: list[str] = argument(
        "TEXT...", "A sentence a line, CoNLL-U, or passages (.jsonl): plain, .gz or .xz."
    ),
    output: str = own("FILE", "Where the model goes (.safetensors).", OUTPUT, "--output", "-o", default=...),
    dev: str | None = own(
        "TREEBANK", "Sentences on which heads are measured, and named for what they do.", TRAINING
    ),
    embedding: Vectors = None,
    *,
    settings: LanguageTraining,
) -> None:
    """Learn a small causal language model from running text, with PyTorch.

    It guesses the next word. Of each file, every thousandth line is held back: the perplexity is told on those.
    The file is written twenty times on the way; Ctrl-C ends it and writes what was learned.

    Example: python -m data.making language corpus.txt.xz --dev en_ewt-ud-dev.conllu -o my.safetensors
    """
    from attn_cli.errors import count
    from attn_cli.io.console import say
    from attn_cli.io.progress import TrainingBar
    from attn_cli.io.signals import raised
    from data.making.train_language import train_file

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


def likeness(
    treebanks: list[str] = argument("TREEBANK...", TREEBANK),
    pairs: str = own("FILE", "Pairs of sentences that say like things.", TRAINING, "--pairs", default=...),
    dev: str = own("FILE", "Pairs that are held back: accuracy is measured on them.", TRAINING, default=...),
    output: str = own("FILE", "Where U goes (.safetensors).", OUTPUT, "--output", "-o", default=...),
) -> None:
    """Find the directions of the bundled vectors that tell kinds of words apart, and try them on pairs of sentences.

    What is tried is W_q = a (I + b U U^T): the best a and b are the program's LENGTHEN and KIND.

    Example: python -m data.making likeness ewt.conllu --pairs tried.tsv --dev held-back.tsv -o my.safetensors
    """
    from attn_cli.io.atomic import written
    from attn_cli.io.console import say
    from data.making.likeness import directions, every_try, kinds_of_words, read_pairs, write

    U = directions(kinds_of_words(treebanks))
    for (a, b), of in [*every_try(read_pairs(pairs), U).items()][:10]:
        say(f"attn: a {a}, b {b}: {of.found:.3f} found, weight {of.weight:.3f}, surprise {of.surprise:.3f}")
    with written(output) as stream:
        write(stream, U, treebanks, dev)


def shown(
    treebank: str = argument("TREEBANK", "CoNLL-U: plain, .gz or .xz."),
    sentences: int = own("N", "How many sentences, of 6 to 20 words.", TRAINING, default=400),
) -> None:
    """Measure what each head of the language model does for its guess, by places and by content.

    docs/decisions/0017-a-language-model.md says what was chosen by it.

    Example: python -m data.making shown en_ewt-ud-dev.conllu
    """
    from attn_cli.io.console import put_plain
    from attn_cli.learn.treebank import read_treebank
    from attn_cli.models.model_file import bundled
    from attn_cli.vectors.lookup import open_table
    from data.making.shown_head import Measured, measure

    put_plain(" ".join(f"{name:>10}" for name in Measured._fields) + "\n")
    for one in measure(bundled("language"), open_table("word2vec"), read_treebank(treebank), sentences):
        numbers = " ".join(f"{number:10.4f}" for number in one[2:])
        put_plain(f"{one.layer:>10} {one.head:>10} {numbers}\n")
