"""Options for Typer, made of the settings that settings/settings.py and settings/output.py declare.

A command whose parameters are `settings: Settings` and `view: View` has all of them. Options and arguments that several
commands share and that are no settings stand here too.
"""

import inspect
import sys
from collections.abc import Callable, Sequence
from functools import partial, wraps
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperOption

from attn_cli.cli.origins import Command
from attn_cli.io.escape import as_utf8
from attn_cli.settings.declare import HELP, OUTPUT, TEXT, Setting, declared
from attn_cli.settings.output import View
from attn_cli.settings.settings import Settings

Function = Callable[..., None]
Taking = partial[Function]  # makes the function of a command with its options
RECORDS = ("settings", "view")  # parameters that stand for the options that their classes declare
OF_FIGURES = ("figure", "dpi", "size", "title")  # what a command without figures does not take
SETTINGS: dict[str, Setting] = declared(Settings) | declared(View)


def offers(*values: str) -> Callable[[str], list[str]] | None:
    """Return a completion function that offers these values; the shell itself completes file names."""
    return (
        (lambda incomplete: [value for value in values if value.startswith(incomplete)]) if values else None
    )


def argument(metavar: str, help: str, *values: str) -> Any:
    """Return Typer's description of an argument; the shell offers `values`."""
    return typer.Argument(metavar=metavar, help=help, show_default=False, autocompletion=offers(*values))


def own(metavar: str, help: str, *names: str, group: str = "", values: Sequence[str] = ()) -> Any:
    """Return Typer's description of a command's own option; without `names` it bears its parameter's.

    `group` is one of GROUPS: the heading above it in --help.
    """
    return typer.Option(
        *names, metavar=metavar, help=help, rich_help_panel=group or None, autocompletion=offers(*values)
    )


def option(one: Setting, help: str = "", has_variable: bool = True) -> Any:
    """Return Typer's description of a declared setting; `help` is for a command that takes a narrower one."""
    unset = f"  [default: {one.unset}]" if one.unset else ""
    return typer.Option(
        f"{one.option}/--no-{one.option[2:]}" if one.type is bool else one.option,
        *([one.short] if one.short else []),
        help=help or one.help_text() + unset,
        metavar=one.metavar,
        envvar=one.variable if has_variable else None,
        show_envvar=bool(help),
        autocompletion=offers(*one.completions()) if one.metavar else None,
        rich_help_panel=one.group or None,
    )


def without(*names: str, typed: bool = False) -> Callable[[Function], Taking]:
    """Let a command take the options of its records of settings without these, which keep their defaults.

    With `typed`, no variable and no configuration file changes what is computed.
    """
    return lambda function: partial(_with_options, function, names, typed)


def _with_options(function: Function, left_out: tuple[str, ...] = (), typed: bool = False) -> Function:
    """Return a command's function as Typer reads it: with options in the place of its records of settings.

    It is made when it is asked for, because score functions and mask rules can be added to a running program.
    """
    given = inspect.signature(function, eval_str=True).parameters
    records: dict[str, Any] = {name: one.annotation for name, one in given.items() if name in RECORDS}
    parameters = [one for name, one in given.items() if name not in records]
    added = {
        name: [one for one in declared(record).values() if one.name not in left_out]
        for name, record in records.items()
    }
    for name, settings in added.items():
        has_variable = not (typed and name == "settings")
        for one in settings:
            kind: Any = Literal.__getitem__(one.names()) if one.names() else one.type
            kind = list[kind] if one.is_repeated else kind
            default = None if one.is_repeated else one.default
            kind = kind | None if default is None else kind
            about = Annotated[kind, option(one, "", has_variable)]
            keyword = inspect.Parameter.KEYWORD_ONLY
            parameters.append(inspect.Parameter(one.name, keyword, default=default, annotation=about))

    @wraps(function)
    def run(**values: Any) -> None:
        if values.get("query") is not None:
            values["query"] = as_utf8(values["query"])
        for name in (one.name for settings in added.values() for one in settings if one.is_repeated):
            values[name] = tuple(map(as_utf8, values[name] or ()))
        for name, settings in added.items():
            values[name] = records[name](**{one.name: values.pop(one.name) for one in settings})
        function(**values)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def single_command(name: str, function: Function | Taking) -> Any:
    """Return the command that Typer makes of a function."""
    app = typer.Typer(rich_markup_mode=None, add_completion=False)
    made = function() if isinstance(function, partial) else _with_options(function)
    app.command(name, cls=Command, add_help_option=False)(made)
    command: Any = typer.main.get_command(app)
    command.params.extend(common_options())
    return command


def common_options() -> list[TyperOption]:
    """Return the options of every command and group: -h for the short help, --help for the full one, --no-pager."""
    no_pager = TyperOption(  # main() obeys it before anything is parsed, for --help acts at once
        param_decls=["--no-pager"],
        is_flag=True,
        expose_value=False,
        help="Print a long screen, or help, without a pager.",
        rich_help_panel=OUTPUT,
    )
    return [
        no_pager,
        _help_option("-h", "Show what people use most, and an example.", "short_help"),
        _help_option("--help", "Show everything, as here.", "full_help"),
    ]


def _help_option(name: str, help: str, which: str) -> TyperOption:
    def show(ctx: Any, parameter: object, value: bool) -> None:
        if value and not ctx.resilient_parsing:
            from attn_cli.cli import help as helping  # only for who asks
            from attn_cli.io.pager import put_screen

            put_screen(getattr(helping, which)(ctx, sys.stdout))
            ctx.exit()

    return TyperOption(
        param_decls=[name],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=show,
        help=help,
        rich_help_panel=HELP,
    )


Texts = Annotated[list[str] | None, argument("TEXT", "The text, in quotes; - is standard input.")]
Context = Annotated[
    str | None, own("TEXT", "Keys and values come from this second text.", "--context", group=TEXT)
]
Pause = Annotated[
    bool,
    typer.Option(
        "--pause",
        help="One part at a time on a cleared screen, at a key; ? lists the keys.",
        rich_help_panel=OUTPUT,
    ),
]

# Options of the commands that answer with a small record.
SOURCES = "word2vec (bundled), a file, or an imported name."
Source = Annotated[str | None, argument("[NAME|FILE]", SOURCES)]
Vectors = Annotated[str | None, option(SETTINGS["embedding"], f"{SOURCES}  [default: word2vec]")]
RecordFormat = Annotated[
    Literal["table", "json", "jsonl"] | None, option(SETTINGS["format"], "Output format.  [default: table]")
]
Output = Annotated[str | None, option(SETTINGS["output"], SETTINGS["output"].help_text())]
