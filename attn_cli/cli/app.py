"""The app: one visible list of commands, and main() with the single except."""

from __future__ import annotations

import os
import sys

import attn_cli
from attn_cli.errors import NoMemory, UsageError, did_you_mean, visible

TYPE_CHECKING = False  # `attn --version` needs no typing
if TYPE_CHECKING:
    from typing import Any


def _listed(written: str) -> dict[str, tuple[str, Any]]:
    """Return commands by name: the module, of those in attn_cli.cli.commands, and the function."""
    parts = (one.split(":") for one in written.split())
    return {function.rstrip("_"): (f"attn_cli.cli.commands.{module}", function) for module, function in parts}


COMMANDS: dict[str, tuple[str, Any]] = {  # a noun has its help and its verbs
    **_listed(
        "attend:explain attend:self_ attend:masked attend:cross compute:lookup compute:compute check:check "
        "check:exercise compare:compare compute:show_ attend:page compare:heads next_word:effect next_word:patch "
        "next_word:lens learn:verify live:live next_word:generate compute:example"
    ),
    "vectors": (
        "Word vectors: what is known of them, neighbours, analogies, files in and out, training.\n\n"
        "Example: attn vectors nearest colour",
        _listed(
            "vectors:list_ vectors:info vectors:nearest vectors:analogy vector_files:import_ vector_files:remove "
            "vector_files:export vector_files:download vector_files:train vector_files:subwords"
        ),
    ),
    "learn": (
        "Learned attention: train a layer of heads on a treebank, score any model.\n\n"
        "Example: attn learn score roles en_ewt-ud-dev.conllu",
        _listed("learn:score learn:train"),
    ),
    **_listed("batch:batch config:config config:schema"),
}
ABOUT = "See attention: every step, every number, from a shell."
EPILOG = (
    'Start with:  attn explain "The quick brown fox jumped over the lazy dog"\n\n'
    "Most options have a variable of their own: ATTN_PALETTE is the default of --palette. attn.toml holds defaults too."
)


def main(args: list[str]) -> int:
    """Run attn with these arguments and return its exit code; the only place where errors end."""
    try:
        from attn_cli.io import console

        if args in (["--version"], ["-V"]):  # answered before Typer is loaded
            return console.put_plain(f"attn {attn_cli.__version__}\n")
        console.is_paged = "--no-pager" not in args
        return _run(args)
    except BrokenPipeError:
        from contextlib import suppress

        with suppress(OSError, ValueError, AttributeError):  # closing it raises no second error
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        from attn_cli.io.signals import exit_code

        return exit_code()
    except BaseException as error:  # the one place where every error becomes a line and an exit code
        from attn_cli.cli.report_error import report

        return report(error, args)


def _run(args: list[str]) -> int:
    import gc

    import typer.main

    command = typer.main.get_command(_app())
    if "_ATTN_COMPLETE" in os.environ:
        from attn_cli.cli.completion import take_questions

        take_questions()
        command.main(args=args, prog_name="attn")
        return 0
    with command.make_context("attn", list(args)) as context:
        gc.enable()
        gc.set_threshold(100_000)  # a short command makes fewer objects, NumPy's included, and no garbage
        gc.freeze()
        _check_memory()
        command.invoke(context)
    return 0


LEAST_MEMORY = 256 << 20  # bytes of addresses: less, and the libraries below NumPy end the process themselves


def _check_memory() -> None:
    """Raise NoMemory where a limit on memory (ulimit -v) leaves too little to load NumPy."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit not in (-1, resource.RLIM_INFINITY) and limit < LEAST_MEMORY:
        raise NoMemory


def _group(listed: dict[str, tuple[str, Any]]) -> Any:
    """Return the class of a group of commands; it is made here because Typer is loaded late."""
    from typer.core import TyperGroup

    from attn_cli.cli.options import common_options, single_command

    class Group(TyperGroup):
        """A group that imports a command when it is named."""

        entries = listed

        def __init__(self, **attributes: Any) -> None:
            super().__init__(**{**attributes, "add_help_option": False})
            self.params.extend(common_options())

        def list_commands(self, ctx: Any) -> list[str]:
            return list(listed)

        def get_command(self, ctx: Any, cmd_name: str) -> Any:
            if cmd_name not in listed and ctx.resilient_parsing:
                return None
            if cmd_name not in listed:
                from attn_cli.cli.report_error import where_it_went

                hint = f"{did_you_mean(cmd_name, listed)}See {ctx.command_path} --help."
                unknown = UsageError(f"No such command {visible(cmd_name[:60])!r}.", hint)
                raise where_it_went(f"{ctx.command_path} {cmd_name}") or unknown
            where, what = listed[cmd_name]
            if isinstance(what, dict):
                verbs: Any = dict.fromkeys(what)
                return _group(what)(name=cmd_name, help=where, commands=verbs, rich_markup_mode=None)
            from importlib import import_module

            return single_command(cmd_name, getattr(import_module(where), what))

    return Group


def _app() -> Any:
    import typer

    from attn_cli.cli.options import root

    quiet: dict[str, Any] = {"rich_markup_mode": None, "add_completion": False}
    app = typer.Typer(cls=_group(COMMANDS), help=ABOUT, epilog=EPILOG, **quiet)
    app.callback(invoke_without_command=True)(root)
    return app
