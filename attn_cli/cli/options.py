"""Options for Typer, made of the settings that settings/settings.py and settings/output.py declare.

A command whose parameters are `settings: Settings` and `view: View` has all of them. Options and arguments that several
commands share and that are not settings stand here too.
"""

import inspect
import sys
from collections.abc import Callable, Collection, Sequence
from functools import wraps
from typing import Annotated, Any, Literal, NamedTuple

import typer
from typer.core import TyperOption

from attn_cli.cli.origins import Command
from attn_cli.io.escape import as_utf8
from attn_cli.render.formats import is_given
from attn_cli.render.result import OF_RECORD
from attn_cli.settings.declare import HELP, OUTPUT, TEXT, Setting, declared
from attn_cli.settings.output import View
from attn_cli.settings.settings import Settings

Function = Callable[..., None]
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


class Takes(NamedTuple):
    """Which options of its records of settings a command takes, and which formats it can be asked for."""

    function: Function
    left_out: tuple[str, ...] = ()  # settings that keep their defaults
    taken: tuple[str, ...] = ()  # if any, these alone are taken
    typed: bool = False  # no variable and no configuration file changes what is computed
    can: Collection[str] = ()  # what its result has, where -f offers only the formats of that
    help: str = ""  # of -f

    def takes(self, one: Setting) -> bool:
        """Tell whether the command has the option of a setting."""
        return one.name in self.taken if self.taken else one.name not in self.left_out


def without(*names: str, typed: bool = False) -> Callable[[Function], Takes]:
    """Let a command take the options of its records of settings without these, which keep their defaults.

    With `typed`, no variable and no configuration file changes what is computed.
    """
    return lambda function: Takes(function, left_out=names, typed=typed)


def only(*names: str, can: Collection[str] = (), help: str = "") -> Callable[[Function], Takes]:
    """Let a command take these options of its records of settings alone; -f those formats that it can give.

    With `help` for -f, no variable sets that.
    """
    return lambda function: Takes(function, taken=names, can=can, help=help)


def _with_options(of: Takes) -> Function:
    """Return a command's function as Typer reads it: with options in the place of its records of settings.

    It is made when it is asked for, because score functions, mask rules and formats can be added to a running program.
    """
    parameters, records, repeated = [], {}, []
    for name, given in inspect.signature(of.function, eval_str=True).parameters.items():
        if name not in RECORDS:
            parameters.append(given)
            continue
        taken = [one for one in declared(given.annotation).values() if of.takes(one)]
        records[name] = given.annotation, [one.name for one in taken]
        repeated += [one.name for one in taken if one.is_repeated]
        parameters += [_parameter(one, of, of.typed and name == "settings") for one in taken]

    @wraps(of.function)
    def run(**values: Any) -> None:
        if values.get("query") is not None:
            values["query"] = as_utf8(values["query"])
        for name in repeated:
            values[name] = tuple(map(as_utf8, values[name] or ()))
        for name, (record, names) in records.items():
            values[name] = record(**{one: values.pop(one) for one in names})
        of.function(**values)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def _parameter(one: Setting, of: Takes, typed: bool) -> inspect.Parameter:
    """Return the parameter of a setting's option."""
    names, help = one.names(), ""
    if one.name == "format" and of.can:
        names = tuple(name for name in names if is_given(name, of.can))
        help = of.help or f"{one.help_text()}  [default: {one.unset}]"
    kind: Any = Literal.__getitem__(names) if names else one.type
    kind = list[kind] if one.is_repeated else kind
    default = None if one.is_repeated else one.default
    about = option(one, help, has_variable=not (typed or of.help))
    kind = Annotated[kind | None if default is None else kind, about]
    return inspect.Parameter(one.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)


def single_command(name: str, function: Function | Takes) -> Any:
    """Return the command that Typer makes of a function."""
    app = typer.Typer(rich_markup_mode=None, add_completion=False)
    made = _with_options(function if isinstance(function, Takes) else Takes(function))
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
        _help_option("--help", "Show all options.", "full_help"),
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
        help="Show one part at a time on a cleared screen and wait for a key; ? lists the keys.",
        rich_help_panel=OUTPUT,
    ),
]

# Options of the commands that answer with a small record.
SOURCES = "word2vec (bundled), a file, or an imported name."
NameOrFile = Annotated[str | None, argument("[NAME|FILE]", SOURCES)]
Vectors = Annotated[str | None, option(SETTINGS["embedding"], f"{SOURCES}  [default: word2vec]")]
of_record = only("format", "output", can=OF_RECORD)  # what such a command takes of a View
