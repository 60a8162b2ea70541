"""attn compare: a text under two or three values of one option, side by side."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import typer

from attn_cli.cli.deliver import choose, deliver
from attn_cli.cli.options import SETTINGS, Context, Texts, option, own, takes
from attn_cli.cli.origins import TYPED, VARIABLE, origin
from attn_cli.cli.read_text import NoText, attention_progress, prepare_index, text_and_context
from attn_cli.errors import UsageError, did_you_mean
from attn_cli.io.escape import as_utf8, visible
from attn_cli.render.result import Result, figure_of, readable
from attn_cli.settings.declare import COMPARED, declared
from attn_cli.settings.output import View
from attn_cli.settings.settings import SHOWN_ONLY, Settings

if TYPE_CHECKING:
    from attn_cli.teach.compare import Comparison, Value

CAN = {"blocks", "bars", "record", "rows", "drawing"}
HINT = 'Try: attn compare "The cat sat on the mat" --vary score=scaled,dot'
VARY_HELP = "The option to vary, and two or three values of it; default is its own default."
WITH_HELP = "Another text with the same settings, in the place of --vary."
MODEL_HELP = "A pretrained model, as attn self takes it. Given twice: which heads and next words differ."
MODEL = option(SETTINGS["model"]._replace(help=MODEL_HELP), default=None)


@takes("TOKENS VECTORS MODEL pair COMPUTED PLACED ROWS SCREEN FIGURE")
def compare(
    context: typer.Context,
    texts: Texts = None,
    vary: list[str] | None = own("OPTION=A,B[,C]", VARY_HELP, COMPARED),
    beside: str | None = own("TEXT", WITH_HELP, COMPARED, "--with"),
    second: Context = None,
    model: list[str] | None = MODEL,
    *,
    settings: Settings,
    view: View,
) -> None:
    """A text under two or three values of one option, two texts, or two models, side by side.

    For two values the signed difference is shown too. One sentence says what changed. All other options apply to
    every side. With two models (-m twice), or two texts in one model, all heads are measured first, and the one that
    differs most is shown.

    Example: attn compare "The cat sat on the mat" --vary score=scaled,dot
    """
    view = choose(view, CAN, "compare", "compare", figures=("heatmap",))
    if beside is not None and vary:
        said = "--vary and --with each vary one thing."
        raise UsageError(said, "Leave one of the two out.", "--with")
    models = _models(context, model or [], vary is not None or beside is not None)
    settings = replace(settings, model=models[0] if len(models) == 1 else None)
    is_varied = beside is None and len(models) < 2
    varied, values = _varied(context, texts or [], vary or []) if is_varied else ("", ())
    text, other = text_and_context(texts, second, "compare", settings)
    from attn_cli.teach.compare import compare as compared  # loads NumPy
    from attn_cli.teach.compare import compare_texts

    if not is_varied:
        with attention_progress(settings.embedding) as progress:
            sides = text, text if beside is None else as_utf8(beside)
            comparison = compare_texts(sides, other, settings, models, progress)
        deliver(_result(comparison), view)
        return
    for embedding in values if varied == "embedding" else ():
        prepare_index(None if embedding is None else str(embedding), "random, ")
    with attention_progress(None if varied == "embedding" else settings.embedding) as progress:
        comparison = compared(text, other, settings, varied, values, progress)
    deliver(_result(comparison), view)


def _result(comparison: Comparison) -> Result:
    from attn_cli.render.views.comparison import comparison_rows, record, screen_of, talk_of

    remarks = talk_of(comparison)
    seen = replace(comparison, traces=tuple(map(readable, comparison.traces)))
    return Result(
        "compare",
        blocks=lambda view: screen_of(seen, view),
        record=lambda view: record(comparison, view.steps),
        rows=lambda view: comparison_rows(comparison),
        drawing=figure_of("heatmap.compared", comparison, notes=remarks),
        remarks=lambda: remarks,
    )


def _models(context: typer.Context, given: list[str], is_varied: bool) -> list[str]:
    """Return the models: one that all sides share, or two that are compared."""
    if origin(context, "model") == VARIABLE:
        return [os.environ["ATTN_MODEL"]]  # Click has split it at its spaces
    if len(given) > 1 and (is_varied or len(given) > 2 or len(set(given)) == 1):
        said = "With -m more than once, two different models are compared, with all else the same."
        raise UsageError(said, "Give -m twice, without --vary and --with.", "--model")
    return given


def _varied(context: typer.Context, texts: list[str], vary: list[str]) -> tuple[str, tuple[Value, ...]]:
    """Return the option to vary, by its field of Settings, and its values in the option's own type."""
    if not vary and not texts:
        raise NoText("compare")
    if not vary:
        raise UsageError("Say what to vary: --vary OPTION=A,B, or --with TEXT.", HINT, "--vary")
    if len(vary) > 1:
        said = (
            "One option is varied at a time: with two, it would not be clear which of them changed a number."
        )
        raise UsageError(said, "Run attn compare once for each.", "--vary")
    name, _, listed = vary[0].partition("=")
    given = visible(vary[0][:60])
    written = [value.strip() for value in listed.split(",")]
    if not all(written) or not 2 <= len(written) <= 3:
        found = len(written) if all(written) else "an empty one" if "," in listed else "none"
        said = f"--vary takes an option and two or three values of it; {given!r} has {found}."
        raise UsageError(said, HINT, "--vary")
    parameter = _parameter(context, name.strip().lstrip("-"))
    option = str(parameter.name)
    if origin(context, option) == TYPED:
        said = f"--{option.replace('_', '-')} is both set and varied."
        raise UsageError(said, "Leave one of the two out.", "--vary")
    values = tuple(None if text == "default" else _typed(context, parameter, text) for text in written)
    usual = getattr(Settings(), option)
    if len({usual if value is None else value for value in values}) < len(values):
        raise UsageError(f"--vary {given} has the same value twice.", "Give different ones.", "--vary")
    return option, values


def _parameter(context: typer.Context, name: str) -> Any:
    by_name: dict[str, Any] = {}
    for parameter in context.command.params:
        if parameter.name in declared(Settings):
            by_name |= {written.lstrip("-"): parameter for written in (*parameter.opts, parameter.name)}
    if name in by_name and by_name[name].name not in SHOWN_ONLY:
        return by_name[name]
    options = [option.replace("_", "-") for option in declared(Settings) if option not in SHOWN_ONLY]
    others = {written.lstrip("-") for parameter in context.command.params for written in parameter.opts}
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
