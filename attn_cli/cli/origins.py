"""Where an option's value comes from: typed, an ATTN_* variable, attn.toml or the user's own file, or the default.

What is typed counts most. A refused value is blamed on the variable, or on the file and line, that it came from.
"""

import os
import sys
from typing import Any

from typer.core import TyperCommand

from attn_cli.cli.read_text import NoText
from attn_cli.errors import AttnError, ConfigError, SettingError, UsageError
from attn_cli.io.files import user_folder
from attn_cli.io.types import replace
from attn_cli.settings import CONFLICTS_WITH_MODEL, WITH_MODEL, Settings, beside_model
from attn_cli.settings.output import is_json

HERE = "attn.toml"
TYPED, VARIABLE, FILE = "COMMANDLINE", "ENVIRONMENT", "DEFAULT_MAP"  # Click's names
NOT_TYPED = (VARIABLE, FILE)
DEFAULTS = Settings()
STATED = ("score", "mask", "heads", "layout", "temperature")  # what a file of matrices may say, too
# Options that, set by a variable or file, are ignored where they do not apply: tidy, meant for CSV, must not make a
# table fail.
IGNORED_IF_UNSUPPORTED = {"tidy": False, "fields": None, "figure": None, "dpi": None, "size": None}


def origin(ctx: Any, name: str) -> str:
    """Return where a parameter's value comes from, as Click names it."""
    source = ctx.get_parameter_source(name)
    return source.name if source is not None else ""


def place(ctx: Any, name: str) -> str:
    """Return the variable, or the file and line, that sets a parameter; nothing where it is typed or left out."""
    source = origin(ctx, name)
    if source == VARIABLE:
        return "ATTN_" + name.upper()
    return str(ctx.default_map.origin(name).place) if source == FILE else ""


def user_config() -> str | None:
    """Return the path of the user's own configuration file; None where the user has no home."""
    folder = user_folder("config")
    return folder and os.path.join(folder, "config.toml")


def config_files() -> list[str]:
    """Return the configuration files that exist, the one that counts more first."""
    return [path for path in (HERE, user_config()) if path is not None and os.path.exists(path)]


class Command(TyperCommand):
    """A command whose options have defaults from files, and whose errors name where a bad value came from."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse what was typed; configuration files give the defaults of the options that have a variable."""
        ctx.meta["typed"] = tuple(args)  # help is asked for before --width is read
        if not ctx.resilient_parsing and (paths := config_files()):
            from attn_cli.cli.config_files import FileDefaults  # most users have no such file

            ctx.default_map = FileDefaults(self, ctx, paths)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> None:
        """Run the command; a bad value that came from a variable or a file is blamed on that (exit 78)."""
        output = ctx.params.get("output")
        if output not in (None, "-") and origin(ctx, "format") in NOT_TYPED:
            ctx.params["format"] = None  # the file's suffix was typed, the format was not
        try:
            _resolve_model_conflicts(ctx)
            _reset_model_options(ctx)
            self._run(ctx)
        except BaseException as error:  # a SystemExit is a verdict; a ConfigError names the file itself
            is_object = is_json(ctx.params.get("format"), output, ctx.info_name)
            is_known = isinstance(error, AttnError) and not isinstance(error, ConfigError)
            if isinstance(error, SystemExit) or (is_known and not is_object):
                _name_settings(ctx)
            raise
        _name_settings(ctx)

    def _run(self, ctx: Any) -> None:
        """Run the command; a general preference that does not fit this command gives way."""
        try:
            super().invoke(ctx)
        except NoText as error:
            from attn_cli.cli.help import short_help  # only for help

            raise UsageError(error.message, f"{error.hint}\n{short_help(ctx, sys.stderr)}") from None
        except UsageError as error:
            name = error.option.removeprefix("--")
            is_bad = isinstance(error, SettingError)  # it fits no command
            is_ignored = name in IGNORED_IF_UNSUPPORTED and not is_bad and origin(ctx, name) in NOT_TYPED
            if is_ignored or (name == "format" and origin(ctx, name) == FILE and ctx.params[name]):
                ctx.params[name] = IGNORED_IF_UNSUPPORTED.get(name)
                self._run(ctx)
                return
            raise with_origin(error, ctx) from None


def _resolve_model_conflicts(ctx: Any) -> None:
    """Let a --model override settings of variables and files; a typed one drops a --model that is not typed."""
    if not ctx.params.get("model") or not set(CONFLICTS_WITH_MODEL) <= ctx.params.keys():
        return  # learn score has its own model
    typed = [name for name in CONFLICTS_WITH_MODEL if origin(ctx, name) == TYPED]
    if typed and origin(ctx, "model") == TYPED:
        raise beside_model(typed[0])
    beaten = ["model"] if typed else CONFLICTS_WITH_MODEL
    ctx.params.update((name, getattr(DEFAULTS, name)) for name in beaten)


def _reset_model_options(ctx: Any) -> None:
    """Let a standing --next or --join-pieces wait for a model, and --renormalize for --hide-special."""
    waits = WITH_MODEL if "model" in ctx.params and not ctx.params["model"] else ()
    if not ctx.params.get("hide_special"):
        waits = (*waits, "renormalize")
    ctx.params.update((name, getattr(DEFAULTS, name)) for name in waits if origin(ctx, name) in NOT_TYPED)


def with_origin(error: UsageError, ctx: Any) -> AttnError:
    """Return the error as the user knows the value: by its option, its variable, or its line in a file."""
    message = error.of_option if isinstance(error, SettingError) else error.message
    name = error.option.lstrip("-").replace("-", "_")
    if name and (where := place(ctx, name)):
        found = ConfigError(f"{where}: {message}", error.hint)
        found.line = error.line
        return found
    error.message = message
    return error


def prefer_given(ctx: Any, settings: Settings, given: Any) -> tuple[Settings, Any]:
    """Let what a file of matrices says beat a variable or a configuration file; only a typed option beats it.

    The temperature, whose default is a number too, is moved into the settings.
    """
    said = [name for name in STATED if getattr(given, name) is not None]
    beaten = [name for name in said if origin(ctx, name) in NOT_TYPED]
    ctx.params.update(dict.fromkeys(beaten))  # so that it is not reported as used
    settings = replace(settings, **{name: getattr(DEFAULTS, name) for name in beaten})
    if given.temperature is not None and origin(ctx, "temperature") != TYPED:
        settings = replace(settings, temperature=given.temperature)
    return settings, given._replace(temperature=None)


def _name_settings(ctx: Any) -> None:
    found = {name: ctx.default_map.origin(name) for name in ctx.params if origin(ctx, name) == FILE}
    is_used = {name: (one.value, one.path) == (ctx.params[name], HERE) for name, one in found.items()}
    if used := [name.replace("_", "-") for name in found if is_used[name]]:
        from attn_cli.io.console import say

        say(f"attn: settings from {HERE}: {', '.join(used)}.")
