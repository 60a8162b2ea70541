"""attn compare and attn heads: settings, texts or models beside each other, and all the heads of one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import typer

from attn_cli.cli import origins, read_text
from attn_cli.cli.deliver import choose, deliver
from attn_cli.cli.options import SETTINGS, Context, Texts, option, own, takes
from attn_cli.errors import UsageError, as_utf8, did_you_mean, refuse, visible
from attn_cli.io.progress import Progress
from attn_cli.io.types import replace
from attn_cli.render.result import OF_BLOCKS, Result, figure_of, readable, result_of
from attn_cli.settings import SHOWN_ONLY, Settings, View, declare, declared

if TYPE_CHECKING:
    from attn_cli.teach.compare import Value

CAN = {"blocks", "bars", "record", "rows", "drawing"}
HINT = 'Try: attn compare "The cat sat on the mat" --vary score=scaled,dot'
VARY_HELP = "The option to vary, and two or three values of it; default is its own default."
WITH_HELP = "Another text with the same settings, in the place of --vary."
MODEL_HELP = "A pretrained model, as attn self takes it. Given twice: which heads and next words differ."
MODEL = option(SETTINGS["model"]._replace(help=MODEL_HELP), default=None)


@takes("TOKENS VECTORS MODEL pair COMPUTED PLACED ROWS SCREEN FIGURE")
def compare(
    context: typer.Context,
    settings: Settings,
    view: View,
    texts: Texts = None,
    vary: list[str] | None = own("OPTION=A,B[,C]", VARY_HELP, declare.COMPARED),
    beside: str | None = own("TEXT", WITH_HELP, declare.COMPARED, "--with"),
    second: Context = None,
    model: list[str] | None = MODEL,
) -> None:
    """A text under two or three values of one option, two texts, or two models, side by side.

    For two values the signed difference is shown too. One sentence says what changed. All other options apply to
    every side. With two models (-m twice), or two texts in one model, all heads are measured first, and the one that
    differs most is shown.

    Example: attn compare "The cat sat on the mat" --vary score=scaled,dot
    """
    view = choose(view, CAN, "compare", "compare", figures=("heatmap",))
    leave = "Leave one of the two out."
    refuse(beside is not None and vary, "--vary and --with each vary one thing.", leave, "--with")
    models = model or []
    if origins.origin(context, "model") == origins.VARIABLE:
        models = [os.environ["ATTN_MODEL"]]  # Click has split it at its spaces
    is_other = vary is not None or beside is not None or len(models) > 2 or len(set(models)) == 1
    said = "With -m more than once, two different models are compared, with all else the same."
    refuse(len(models) > 1 and is_other, said, "Give -m twice, without --vary and --with.", "--model")
    settings = replace(settings, model=models[0] if len(models) == 1 else None)
    is_varied = beside is None and len(models) < 2
    varied, values = _varied(context, texts or [], vary or []) if is_varied else ("", ())
    text, other = read_text.text_and_context(texts, second, "compare", settings)
    from attn_cli.render.views import comparison as views
    from attn_cli.teach import compare as teaching  # loads NumPy

    for embedding in values if varied == "embedding" else ():
        read_text.prepare_index(None if embedding is None else str(embedding), "random, ")
    with read_text.attention_progress(None if varied == "embedding" else settings.embedding) as progress:
        if is_varied:
            found = teaching.compare(text, other, settings, varied, values, progress)
        else:
            sides = text, text if beside is None else as_utf8(beside)
            found = teaching.compare_texts(sides, other, settings, models, progress)
    remarks = views.talk_of(found)
    seen = replace(found, traces=tuple(map(readable, found.traces)))
    result = Result(
        "compare",
        lambda view: views.screen_of(seen, view),
        lambda view: views.record(found, view.steps),
        rows=lambda view: views.comparison_rows(found),
        drawing=figure_of("heatmap.compared", found, notes=remarks),
        remarks=lambda: remarks,
    )
    deliver(result, view)


def _varied(context: typer.Context, texts: list[str], vary: list[str]) -> tuple[str, tuple[Value, ...]]:
    if not vary and not texts:
        raise read_text.NoText("compare")
    refuse(not vary, "Say what to vary: --vary OPTION=A,B, or --with TEXT.", HINT, "--vary")
    said = "One option is varied at a time: with two, it would not be clear which of them changed a number."
    refuse(len(vary) > 1, said, "Run attn compare once for each.", "--vary")
    name, _, listed = vary[0].partition("=")
    given = visible(vary[0][:60])
    written = [value.strip() for value in listed.split(",")]
    found = len(written) if all(written) else "an empty one" if "," in listed else "none"
    said = f"--vary takes an option and two or three values of it; {given!r} has {found}."
    refuse(found not in (2, 3), said, HINT, "--vary")
    parameter = _parameter(context, name.strip().lstrip("-"))
    option = str(parameter.name)
    said = f"--{option.replace('_', '-')} is both set and varied."
    refuse(origins.origin(context, option) == origins.TYPED, said, "Leave one of the two out.", "--vary")
    values = tuple(None if text == "default" else _typed(context, parameter, text) for text in written)
    usual = getattr(Settings(), option)
    is_twice = len({usual if value is None else value for value in values}) < len(values)
    refuse(is_twice, f"--vary {given} has the same value twice.", "Give different ones.", "--vary")
    return option, values


def _parameter(context: typer.Context, name: str) -> Any:
    options = [option for option in declared(Settings) if option not in SHOWN_ONLY]
    others = {written.lstrip("-"): one for one in context.command.params for written in one.opts}
    found = others.get(name.replace("_", "-"))
    if found is not None and found.name in options:
        return found
    options = [option.replace("_", "-") for option in options]
    what = "how long it takes" if name == "threads" else "what is shown"
    why = f"changes {what}, and no number" if name in others else "is not an option"
    swap = "attn explain TEXT --swap OLD=NEW varies a word of the text. " if name == "text" else ""
    hint = f"{swap or did_you_mean(name, options)}Options are {', '.join(options)}."
    raise UsageError(f"--vary cannot vary {visible(name[:40])!r}: it {why}.", hint, "--vary")


def _typed(context: typer.Context, parameter: Any, text: str) -> Value:
    """Return a value as the option itself would read it, with the option's own error."""
    name = str(parameter.name)
    if parameter.multiple:
        return text
    try:
        value: Value = declared(Settings)[name].read(parameter.type_cast_value(context, text))
    except typer.BadParameter as error:
        from attn_cli.cli.report_error import nearest_choice  # only for help with a mistake

        message = error.message.partition(" Recognized values")[0]  # of a switch: many ways to say yes
        hint = "Give yes or no." if message != error.message else nearest_choice(error, parameter).rstrip()
        raise UsageError(f"--vary {name.replace('_', '-')}: {message}", hint, "--vary") from None
    return value


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
    weights: str | None = own("FILE", WEIGHTS_HELP, declare.INPUT),
    tokens: str | None = own(
        "TOKENS|FILE", "With --weights: the tokens, as attn show takes them.", declare.TEXT
    ),
    corpus: str | None = own("FILE", TEXTS_HELP, declare.INPUT, "--texts"),
    context: Context = None,
    kind: Literal["self", "masked", "cross"] | None = own("", KIND_HELP, declare.ATTENTION),
    array: str | None = own(
        "NAME", "With --weights: which array, where a file holds several.", declare.INPUT
    ),
    batch: int | None = own("N", "With --weights: which text of a batch, from 0.", declare.INPUT),
    layer: int | None = own("N", LAYER_HELP, declare.ATTENTION),
    rollout: bool = own("", ROLLOUT_HELP, declare.SHOWN, default=False),
    probe: bool = own("", PROBE_HELP, declare.ATTENTION, default=False),
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
    from attn_cli.pipeline import check_no_knock_out, every_head
    from attn_cli.render.views import heads as views

    progress = Progress("Attending")
    if weights is not None:
        check_no_knock_out(settings, weights)
        found = every_head.saved_layers(read_text.labelled_weights(weights, "heads", array, batch, tokens))
    else:
        text, second = read_text.text_and_context(texts, context, "heads", settings)
        kind = kind or ("self" if second is None else "cross")
        found = every_head.layers_over(kind, text, second, settings, progress, layer)
    size = views.map_size(view.with_width(), layer is not None)
    with progress:
        measured = every_head.measure_heads(found, size, settings, layer, rollout)
    drawing = figure_of("maps.every_head", measured, notes=measured.notes)
    deliver(result_of("heads", measured, views, drawing=drawing), view)


def _over_texts(file: str, kind: str, layer: int | None, settings: Settings, view: View) -> None:
    view = choose(view, {*OF_BLOCKS, "rows"}, "heads --texts", "heads_of_texts")
    from attn_cli.batch import numbered
    from attn_cli.pipeline.heads_of_texts import measure_texts
    from attn_cli.render.views import heads_of_texts as views

    if file == "-":
        read_text.wait_for_input()
    with Progress("Attending") as progress:
        found = measure_texts(numbered(file, progress), kind, settings, layer)
    deliver(result_of("heads_of_texts", found, views), view)


def _by_probe(layer: int | None, settings: Settings, view: View) -> None:
    view = choose(view, {*OF_BLOCKS, "rows"}, "heads --probe", "heads_by_probe")
    from attn_cli.pipeline.probe import probe
    from attn_cli.render.views import probe as views

    with Progress("Probing") as progress:
        found = probe(settings, layer, progress)
    deliver(result_of("heads_by_probe", found, views), view)


def _refuse_all(given: Mapping[str, object], why: str) -> None:
    for name, value in given.items():
        refuse(value is not None, f"{name} {why}.", option=name)
