"""Options for Typer, made of the settings that settings/settings.py and settings/output.py declare.

`takes(Settings, View)` gives a command all of them. Options and arguments that several commands share and that are
no settings stand here too.
"""

import inspect
from collections.abc import Callable, Sequence
from functools import partial, wraps
from typing import Annotated, Any, Literal

import typer

from attn_cli.cli.origins import Command
from attn_cli.io.escape import as_utf8
from attn_cli.settings.declare import Setting, declared
from attn_cli.settings.output import View
from attn_cli.settings.settings import Settings

Function = Callable[..., None]
Taking = partial[Function]  # makes the function of a command with its options
SETTINGS: dict[str, Setting] = declared(Settings) | declared(View)


def offers(*values: str) -> Callable[[str], list[str]] | None:
    """Return a completion function that offers these values; the shell itself completes file names."""
    return (
        (lambda incomplete: [value for value in values if value.startswith(incomplete)]) if values else None
    )


def argument(metavar: str, help: str, *values: str) -> Any:
    """Return Typer's description of an argument; the shell offers `values`."""
    return typer.Argument(metavar=metavar, help=help, show_default=False, autocompletion=offers(*values))


def own(metavar: str, help: str, *names: str, values: Sequence[str] = ()) -> Any:
    """Return Typer's description of a command's own option; without `names` it bears its parameter's."""
    return typer.Option(*names, metavar=metavar, help=help, autocompletion=offers(*values))


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
        rich_help_panel=None if help else one.group or None,
    )


def takes(*records: type, without: tuple[str, ...] = (), typed: bool = False) -> Callable[[Function], Taking]:
    """Let a command take the options of Settings, of View, or of both, and receive them as those records.

    The command's own parameters come first; it gets `settings` and `view` as keyword arguments. The options
    named in `without` are not offered, and keep their defaults. With `typed`, no variable and no configuration file
    changes what is computed. Another record of declared settings may stand in the place of Settings.
    """
    return lambda function: partial(_with_options, function, records, without, typed)


def _with_options(
    function: Function, records: tuple[type, ...], without: tuple[str, ...], typed: bool
) -> Function:
    """Return a command's function as Typer reads it, with a parameter for each option.

    It is made when it is asked for, because score functions and mask rules can be added to a running program.
    """
    own = inspect.signature(function, eval_str=True).parameters.values()
    parameters = [one for one in own if one.name not in ("settings", "view")]
    added = {
        record: [one for name, one in declared(record).items() if name not in without] for record in records
    }
    for record, settings in added.items():
        has_variable = not (typed and record is Settings)
        for one in settings:
            kind: Any = Literal.__getitem__(one.names()) if one.names() else one.type
            kind = kind | None if one.default is None else kind
            about = Annotated[kind, option(one, "", has_variable)]
            keyword = inspect.Parameter.KEYWORD_ONLY
            parameters.append(inspect.Parameter(one.name, keyword, default=one.default, annotation=about))

    @wraps(function)
    def run(**values: Any) -> None:
        if values.get("query") is not None:
            values["query"] = as_utf8(values["query"])
        for record, settings in added.items():
            made = record(**{one.name: values.pop(one.name) for one in settings})
            values["view" if record is View else "settings"] = made
        function(**values)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def single_command(name: str, function: Function | Taking) -> Any:
    """Return the command that Typer makes of a function."""
    app = typer.Typer(rich_markup_mode=None, add_completion=False)
    app.command(name, cls=Command)(function() if isinstance(function, partial) else function)
    return typer.main.get_command(app)


Texts = Annotated[list[str] | None, argument("TEXT", "The text, in quotes; - is standard input.")]
Context = Annotated[str | None, own("TEXT", "Keys and values come from this second text.", "--context")]

# Options of the commands that answer with a small record.
SOURCES = "word2vec (bundled), a file, or an imported name."
Source = Annotated[str | None, argument("[NAME|FILE]", SOURCES)]
Vectors = Annotated[str | None, option(SETTINGS["embedding"], f"{SOURCES}  [default: word2vec]")]
RecordFormat = Annotated[
    Literal["table", "json", "jsonl"] | None, option(SETTINGS["format"], "Output format.  [default: table]")
]
Output = Annotated[str | None, option(SETTINGS["output"], SETTINGS["output"].help_text())]
