"""attn heads: every layer's heads at once, and what each of them does on a text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Literal

from attn_cli.cli.deliver import choose, deliver
from attn_cli.cli.options import Context, Texts, own, takes
from attn_cli.cli.read_text import labelled_weights, text_and_context, wait_for_input
from attn_cli.errors import InputError, refuse
from attn_cli.io.progress import Progress
from attn_cli.render.result import OF_BLOCKS, figure_of, result_of
from attn_cli.settings.declare import ATTENTION, INPUT, SHOWN, TEXT
from attn_cli.settings.output import View
from attn_cli.settings.settings import Settings

KIND_HELP = (
    "With --model: which attention; of an encoder and a decoder self is the encoder's, masked and cross "
    "the decoder's.  [default: cross with --context, else self]"
)
TEXTS_HELP = (
    "A text a line: what each head does on the mean of all, and how much that varies; - is standard input."
)
PROBE_HELP = "Without TEXT: what heads do on random tokens (--seed) that come again, and whether they copy."
ALONE = (  # settings that have no meaning for random tokens
    "tokenizer keep_punctuation join_pieces hide_special renormalize pair between score temperature mask mask_true "
    "without knock_out knock_out_with"
)
DEFAULT = Settings()
WEIGHTS_HELP = "Saved weights of all layers, as attn show reads them; - is standard input."
LAYER_HELP = "Show this layer only, with each head's share for every pattern."
ROLLOUT_HELP = "Attention rollout too: over all layers, or those up to --layer."


@takes(f"TOKENS model projection seed {ALONE} format output precision color palette shades width FIGURE")
def heads(
    settings: Settings,
    view: View,
    texts: Texts = None,
    weights: str | None = own("FILE", WEIGHTS_HELP, INPUT),
    tokens: str | None = own("TOKENS|FILE", "With --weights: the tokens, as attn show takes them.", TEXT),
    corpus: str | None = own("FILE", TEXTS_HELP, INPUT, "--texts"),
    context: Context = None,
    kind: Literal["self", "masked", "cross"] | None = own("", KIND_HELP, ATTENTION),
    array: str | None = own("NAME", "With --weights: which array, where a file holds several.", INPUT),
    batch: int | None = own("N", "With --weights: which text of a batch, from 0.", INPUT),
    layer: int | None = own("N", LAYER_HELP, ATTENTION),
    rollout: bool = own("", ROLLOUT_HELP, SHOWN, default=False),
    probe: bool = own("", PROBE_HELP, ATTENTION, default=False),
) -> None:
    """All layers and heads of a model on one screen, each with what it does on this text.

    A head is named by the pattern that gets most of its attention: the previous token, the next, itself, the
    first, separators, another occurrence of the same token, or the token after one (induction). One that spreads
    its attention nearly evenly is a bag of words; one without a clear pattern is mixed.

    Without a model these are the bundled heads, roles. Their names, and those of language, say what they do on any
    text.

    Example: attn heads "The cat sat, and the cat slept."
    """
    refuse((layer or 0) < 0, f"--layer cannot be {layer}.", "Layers count from 0.", "--layer")
    of_file: dict[str, object] = {"--tokens": tokens, "--array": array, "--batch": batch}
    rolled: dict[str, object] = {"--rollout": rollout or None}
    if probe:
        given = of_file | {"TEXT": texts, "--weights": weights, "--texts": corpus, "--context": context}
        changed = [name for name in ALONE.split() if getattr(settings, name) != getattr(DEFAULT, name)]
        given |= {"--kind": kind} | rolled | {f"--{name.replace('_', '-')}": True for name in changed}
        _refuse_all(given, "and --probe exclude each other")
    elif weights is not None:
        refuse(texts, "--weights brings its own tokens: leave out the text.", option="--weights")
    else:
        _refuse_all(of_file, "requires --weights")
    is_twice = weights is None and settings.model is not None and settings.projection is not None
    refuse(is_twice, "--model and --projection exclude each other.", option="--projection")
    if probe:
        _by_probe(layer, settings, view)
        return
    if corpus is not None:
        given = {"TEXT": texts, "--weights": weights, "--context": context, "--pair": settings.pair}
        _refuse_all(given | rolled, "and --texts exclude each other")
        _over_texts(corpus, kind or "self", layer, settings, view)
        return
    view = choose(view, {*OF_BLOCKS, "drawing"}, "heads", figures=("heads", "heatmap"))
    if weights is not None:
        _refuse_all({"--context": context, "--kind": kind}, "requires --model")
    from attn_cli.pipeline import every_head, inputs
    from attn_cli.render.views import heads as views

    progress = Progress("Attending")
    if weights is not None:
        inputs.check_no_knock_out(settings, weights)
        found = every_head.saved_layers(labelled_weights(weights, "heads", array, batch, tokens))
    else:
        text, second = text_and_context(texts, context, "heads", settings)
        kind = kind or ("self" if second is None else "cross")
        found = every_head.layers_over(kind, text, second, settings, progress, layer)
    size = views.map_size(view.with_width(), layer is not None)
    with progress:
        measured = every_head.measure_heads(found, size, settings, layer, rollout)
    drawing = figure_of("heads.every_head", measured, notes=measured.notes)
    deliver(result_of("heads", measured, views, drawing=drawing), view)


def _over_texts(file: str, kind: str, layer: int | None, settings: Settings, view: View) -> None:
    view = choose(view, {*OF_BLOCKS, "rows"}, "heads --texts", "heads_of_texts")
    from attn_cli.pipeline.heads_of_texts import measure_texts
    from attn_cli.render.views import heads_of_texts as views

    with Progress("Attending") as progress:
        found = measure_texts(_numbered(file, progress), kind, settings, layer)
    deliver(result_of("heads_of_texts", found, views), view)


def _by_probe(layer: int | None, settings: Settings, view: View) -> None:
    view = choose(view, {*OF_BLOCKS, "rows"}, "heads --probe", "heads_by_probe")
    from attn_cli.pipeline.probe import probe
    from attn_cli.render.views import probe as views

    with Progress("Probing") as progress:
        found = probe(settings, layer, progress)
    deliver(result_of("heads_by_probe", found, views), view)


def _numbered(file: str, progress: Progress) -> Iterator[tuple[int, str]]:
    """Yield the lines of a file, or of standard input, each with its number from 1."""
    from attn_cli.batch.lines import LONGEST_LINE, Feed
    from attn_cli.batch.storage import inputs_of

    if file == "-":
        wait_for_input()
    feed = Feed(inputs_of([file]) if file != "-" else ())
    for number, line in enumerate(chain.from_iterable(feed.groups()), 1):
        if line is None:
            raise InputError(f"Line {number} is longer than {LONGEST_LINE:,} bytes.", "Give a text a line.")
        yield number, line.decode("utf-8", "replace")
        if feed.done is not None:
            progress(feed.done)


def _refuse_all(given: Mapping[str, object], why: str) -> None:
    for option, value in given.items():
        refuse(value is not None, f"{option} {why}.", option=option)
