"""Options for Typer, made of the settings that settings/__init__.py and settings/output.py declare.

A command whose parameters are `settings: Settings` and `view: View` has all of them, or those that `takes` names.
Options and arguments that several commands share and that are not settings stand here too.
"""

import inspect
import math
import sys
from collections.abc import Callable, Collection, Sequence
from functools import partial, wraps
from typing import Annotated, Any, Literal, NamedTuple

import typer
from typer.core import TyperOption

import attn_cli
from attn_cli.cli.origins import Command
from attn_cli.errors import USAGE, as_utf8, refuse
from attn_cli.io.console import put_plain, put_screen, say
from attn_cli.render import formats, result
from attn_cli.settings import Settings, View, declared
from attn_cli.settings.declare import HELP, OUTPUT, TEXT, Setting, now

Function = Callable[..., None]
RECORDS = ("settings", "view")  # parameters that stand for the options that their classes declare
SETTINGS: dict[str, Setting] = declared(Settings) | declared(View)
TOGETHER = {  # what many commands take
    "TOKENS": "tokenizer keep_punctuation max_text max_word",
    "VECTORS": "embedding dim seed oov",
    "MODEL": "projection layer join_pieces hide_special renormalize between knock_out knock_out_with",
    "COMPUTED": "heads head layout score temperature mask mask_true without round threads",
    "PLACED": "pad pad_side positions",
    "ROWS": "query versus top full dtype",
    "SCREEN": "format output steps by_hand fields precision color palette shades width",
    "FIGURE": "figure dpi size title",
}


def _offers(values: Sequence[str]) -> Callable[[str], list[str]] | None:
    """Return a completion function that offers these values; the shell itself completes file names."""
    return (lambda incomplete: [one for one in values if one.startswith(incomplete)]) if values else None


def argument(metavar: str, help: str, *values: str, default: Any = ...) -> Any:
    """Return Typer's description of an argument; the shell offers `values`."""
    offered = _offers(values)
    return typer.Argument(default, metavar=metavar, help=help, show_default=False, autocompletion=offered)


def _number(parameter: typer.CallbackParam, value: float | None) -> float | None:
    name = parameter.opts[0]  # no comparison puts nan outside a range
    refuse(value is not None and math.isnan(value), f"{name} cannot be nan.", "Give a number.", name)
    return value


def own(metavar: str, help: str, group: str = "", *names: str, default: Any = None, **more: Any) -> Any:
    """Return Typer's description of a command's own option; the shell offers `values`, and Typer takes `more`."""
    more |= {"metavar": metavar or None, "rich_help_panel": group or None}
    more["autocompletion"] = _offers(more.pop("values", ()))
    more["callback"] = _number if more.keys() & {"min", "max"} else None
    return typer.Option(default, *names, help=help, **more)


def option(one: Setting, help: str = "", default: Any = ..., has_variable: bool = True) -> Any:
    """Return Typer's description of a declared setting; `help` is for a command that takes a narrower one."""
    unset = f"  [default: {one.unset}]" if one.unset else ""
    name = f"{one.option}/--no-{one.option[2:]}" if one.type is bool else one.option
    return own(
        *(one.metavar or "", help or one.help_text() + unset, one.group, name, *filter(None, [one.short])),
        default=default,
        values=(one.names() or now(one.examples)) if one.metavar else (),
        envvar=one.variable if has_variable else None,
        show_envvar=bool(help),
    )


class Takes(NamedTuple):
    """Which options of its records of settings a command takes, and which formats it can be asked for."""

    function: Function
    names: Collection[str] = ()  # those of settings; all if there are none here
    typed: bool = False  # no variable and no configuration file changes what is computed
    can: Collection[str] = ()  # what its result has, where -f offers only the formats of that
    help: str = ""  # of -f, which then no variable sets


def takes(names: str, **more: Any) -> Callable[[Function], Takes]:
    """Let a command take these options of its records alone, or those of TOGETHER; `more` are fields of Takes."""
    listed = tuple(" ".join(TOGETHER.get(name, name) for name in names.split()).split())
    return lambda function: Takes(function, listed, **more)


def _with_options(of: Takes) -> Function:
    """Return a command's function as Typer reads it, made anew each time: formats can be added at run time."""
    parameters, records = [], {}
    every = inspect.signature(of.function, eval_str=True).parameters.values()
    # Those of records come last, unless a command says where.
    for one in sorted(every, key=lambda one: one.name in RECORDS and one.kind is not one.KEYWORD_ONLY):
        if one.name not in RECORDS:
            parameters.append(one)
            continue
        taken = [each for each in declared(one.annotation).values() if each.name in (of.names or [each.name])]
        records[one.name] = one.annotation, taken
        is_typed = one.name == "settings" and (of.typed or one.annotation is not Settings)
        parameters += [_parameter(each, of, is_typed) for each in taken]

    @wraps(of.function)
    def run(**values: Any) -> None:
        values |= {name: as_utf8(values[name]) for name in ("query", "pair") if values.get(name) is not None}
        for name, (record, taken) in records.items():
            given = {one.name: values.pop(one.name) for one in taken}
            repeated = [one.name for one in taken if one.is_repeated]
            given |= {one: tuple(map(as_utf8, given[one] or ())) for one in repeated}
            values[name] = record(**given)
        of.function(**values)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def _parameter(one: Setting, of: Takes, typed: bool) -> inspect.Parameter:
    names, help = one.names(), ""
    if one.name == "format" and of.can:
        names = tuple(name for name in names if formats.is_given(name, of.can))
        help = of.help or f"{one.help_text()}  [default: {one.unset}]"
    kind: Any = Literal.__getitem__(names) if names else one.type
    kind = list[kind] if one.is_repeated else kind
    default = None if one.is_repeated else one.default
    about = option(one, help, default, has_variable=not (typed or of.help))
    kind = kind | None if default is None else kind
    return inspect.Parameter(one.name, inspect.Parameter.KEYWORD_ONLY, default=about, annotation=kind)


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
    flag = partial(TyperOption, is_flag=True, expose_value=False)
    shown: dict[str, Any] = {"rich_help_panel": HELP, "is_eager": True, "callback": _show_help}
    no_pager = "Print a long screen, or help, without a pager."  # main() obeys it, for --help acts at once
    return [
        flag(param_decls=["--no-pager"], help=no_pager, rich_help_panel=OUTPUT),
        flag(param_decls=["-h"], help="Show what people use most, and an example.", **shown),
        flag(param_decls=["--help"], help="Show all options.", **shown),
    ]


def _show_help(ctx: Any, parameter: typer.CallbackParam, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        from attn_cli.cli.help import full_help, short_help  # only for who asks

        put_screen((short_help if parameter.opts == ["-h"] else full_help)(ctx, sys.stdout))
        ctx.exit()


SCRIPT_HELP = "Print the completion script for bash, zsh, fish, powershell."
TEXT_HELP = "The text, in quotes; - is standard input."
PAUSE_HELP = "Show one part at a time on a cleared screen and wait for a key; ? lists the keys."
CONTEXT_HELP = "Keys and values come from this second text."
Texts = Annotated[list[str] | None, argument("TEXT", TEXT_HELP)]
Context = Annotated[str | None, own("TEXT", CONTEXT_HELP, TEXT, "--context", default=...)]
Pause = Annotated[bool, own("", PAUSE_HELP, OUTPUT, "--pause", default=...)]
# Options of the commands that answer with a small record.
SOURCES = "word2vec (bundled), a file, or an imported name."
NameOrFile = Annotated[str | None, argument("[NAME|FILE]", SOURCES)]
Vectors = Annotated[str | None, option(SETTINGS["embedding"], f"{SOURCES}  [default: word2vec]")]
of_record = takes("format output", can=result.OF_RECORD)  # what such a command takes of a View


def root(
    context: typer.Context,
    version: bool = own("", "Show the version.", HELP, "--version", "-V", default=False),
    show_completion: str | None = own("SHELL", SCRIPT_HELP, HELP),
    install_completion: str | None = own("SHELL", "Install completion for that shell.", HELP),
) -> None:
    """Obey the options of attn itself; without a command, show the short help."""
    if version:
        put_plain(f"attn {attn_cli.__version__}\n")
    elif shell := show_completion or install_completion:
        from attn_cli.cli.completion import install, script

        put_plain((script if show_completion else install)(shell))
    elif context.invoked_subcommand is None:
        from attn_cli.cli.help import short_help

        say(short_help(context, sys.stderr).rstrip())
        raise typer.Exit(USAGE)
    else:
        return
    raise typer.Exit
