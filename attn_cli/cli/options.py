"""Every option once, as an Annotated alias; a command takes the groups of options that it understands.

Defaults come from Settings and View. Where None leaves a choice open, the help says what is chosen then.
"""

import inspect
import os
import sys
from collections.abc import Callable
from copy import copy
from dataclasses import fields, replace
from functools import wraps
from typing import Annotated, Any, Literal, get_args

import typer
from typer.core import TyperCommand

from attn_cli.errors import AttnError, ConfigError, NoText, UsageError
from attn_cli.io.escape import as_utf8
from attn_cli.settings.output import View, is_json
from attn_cli.settings.settings import Settings

HERE = "attn.toml"
STANDING = ("ENVIRONMENT", "DEFAULT_MAP")  # where a value comes from that nobody typed: a variable, a file


def offers(*values: str) -> Callable[[str], list[str]]:
    """Return a completion function that offers these values; a file's name is completed by the shell."""
    return lambda incomplete: [value for value in values if value.startswith(incomplete)]


def _option(*names: str, help: str, metavar: str | None = None, values: tuple[str, ...] = ()) -> Any:
    variable = "ATTN_" + names[0].lstrip("-").split("/")[0].replace("-", "_").upper()
    complete = offers(*values) if values else None
    return typer.Option(
        *names, help=help, metavar=metavar, envvar=variable, show_envvar=False, autocompletion=complete
    )


Texts = Annotated[
    list[str] | None,
    typer.Argument(metavar="TEXT", help="The text, in quotes; - is standard input.", show_default=False),
]
Output = Annotated[
    str | None,
    typer.Option("--output", "-o", metavar="FILE", help="Write to FILE; its suffix chooses the format."),
]

Embedding = Annotated[
    str | None,
    _option(
        "--embedding",
        "-e",
        values=("word2vec", "random"),
        metavar="NAME|FILE",
        help="Word vectors: word2vec (bundled), random, a file (text, .bin, .kv and others), or an imported name.  "
        "[default: word2vec]",
    ),
]

# Options of the commands that answer with a small record.
Vectors = Annotated[
    str | None,
    typer.Option(
        "--embedding",
        "-e",
        metavar="NAME|FILE",
        help="word2vec (bundled), a file, or an imported name.  [default: word2vec]",
        envvar="ATTN_EMBEDDING",
    ),
]
RecordFormat = Annotated[
    Literal["table", "json", "jsonl"] | None,
    typer.Option("--format", "-f", help="Output format.  [default: table]", envvar="ATTN_FORMAT"),
]

# For completion; a model's file says what its heads are.
HEADS = (
    *("relations", "head", "subject", "object", "oblique", "modifier", "determiner", "possessor"),
    *("coordination", "previous", "next", "mean", "all"),
)

OPTIONS: dict[str, Any] = {
    # What to compute
    "tokenizer": Annotated[
        Literal["words", "whitespace", "characters"],
        _option("--tokenizer", help="How to cut the text: English words, at spaces only, or characters."),
    ],
    "keep_punctuation": Annotated[
        bool,
        _option("--keep-punctuation/--no-keep-punctuation", help="Keep punctuation (tokenizer words only)."),
    ],
    "embedding": Embedding,
    "dim": Annotated[
        int | None, _option("--dim", metavar="N", help="Numbers in a random vector.  [default: 4]")
    ],
    "seed": Annotated[int, _option("--seed", metavar="N", help="Seed of everything random.")],
    "oov": Annotated[
        Literal["model", "zero", "random", "nearest", "skip", "error"] | None,
        _option(
            "--oov",
            help="A token without a vector gets the learned model's own, zeros, a random one or that of the closest "
            "spelling, is skipped, or is an error.  [default: model with a learned projection, else zero]",
        ),
    ],
    "projection": Annotated[
        str | None,
        _option(
            "--projection",
            "-p",
            values=("roles", "roles-deep", "identity", "random"),
            metavar="NAME|FILE",
            help="W_q, W_k, W_v: roles or roles-deep (learned), identity, random, or a file.  "
            "[default: roles with word2vec, random with random vectors, else identity]",
        ),
    ],
    "heads": Annotated[
        int | None,
        _option("--heads", metavar="N", help="Split the projection's columns into N heads.  [default: 1]"),
    ],
    "layer": Annotated[
        int | None,
        _option(
            "--layer", metavar="N", help="Layer of a learned model, 0 nearest the words.  [default: the last]"
        ),
    ],
    "head": Annotated[
        str | None,
        _option(
            "--head",
            metavar="NAME",
            values=HEADS,
            help="Which head to show: its name or number, mean, or all.  [default: relations, or the first]",
        ),
    ],
    "layout": Annotated[
        Literal["in-out", "out-in"] | None,
        _option(
            "--layout", help="Layout of weights from files: in-out is x W, out-in W x.  [default: in-out]"
        ),
    ],
    "score": Annotated[
        Literal["scaled", "dot", "cosine"] | None,
        _option(
            "--score", help="scaled is q.k / sqrt(d_k), dot is q.k, cosine is cos(q, k).  [default: scaled]"
        ),
    ],
    "temperature": Annotated[
        float, _option("--temperature", "-t", metavar="T", help="Divide scores by T > 0 before the softmax.")
    ],
    "mask": Annotated[
        str | None,
        _option(
            "--mask",
            values=("none", "causal", "causal-bottom-right", "window:1"),
            metavar="NAME|FILE",
            help="none, causal, causal-bottom-right, window:N, or a file.  "
            "[default: causal in masked, else none]",
        ),
    ],
    "mask_true": Annotated[
        Literal["allowed", "blocked"] | None,
        _option("--mask-true", help="What True means in a mask file; required with one."),
    ],
    "pad": Annotated[
        int | None,
        _option("--pad", metavar="N", help="Add N padding tokens, which nobody may look at."),
    ],
    "pad_side": Annotated[
        Literal["right", "left"],
        _option("--pad-side", help="Where padding goes: after the text, or before it."),
    ],
    "positions": Annotated[
        Literal["none", "sinusoidal"] | None,
        _option("--positions", help="What is added to X for each token's place.  [default: none]"),
    ],
    "round": Annotated[
        int | None,
        _option(
            "--round", metavar="N", help="Round the inputs (vectors and weights) to N digits, then compute."
        ),
    ],
    "query": Annotated[
        str | None,
        _option(
            "--query",
            "-q",
            metavar="TOKEN",
            help="Only this token's rows (or the row of this number), by hand.",
        ),
    ],
    "top": Annotated[
        int | None, _option("--top", metavar="K", help="Keep the K strongest links of each row.")
    ],
    "full": Annotated[
        bool, _option("--full/--no-full", help="Keep the whole matrix, even above a million weights.")
    ],
    "dtype": Annotated[
        Literal["float64", "float32"],
        _option("--dtype", help="Numbers to attend with; float32 is quicker and takes half the memory."),
    ],
    "threads": Annotated[
        int | None,
        _option(
            "--threads", metavar="N", help="Threads for large work, at most.  [default: one a processor]"
        ),
    ],
    # How to show it
    "format": Annotated[
        Literal[
            *("table", "bars", "json", "jsonl", "csv", "tsv", "markdown", "latex", "html", "svg", "npy"),
            *("code:numpy", "code:torch", "code:keras"),
        ]
        | None,
        _option("--format", "-f", help="Output format.  [default: table]"),
    ],
    "output": Output,
    "tidy": Annotated[
        bool, _option("--tidy/--no-tidy", help="Rows of query,key,weight instead of a matrix (csv and tsv).")
    ],
    "steps": Annotated[bool, _option("--steps/--no-steps", help="Every step's matrices too.")],
    "precision": Annotated[
        int | None,
        _option(
            "--precision",
            metavar="N",
            help="Digits in matrices and bars.  [default: what fits]",
        ),
    ],
    "color": Annotated[Literal["auto", "always", "never"], _option("--color", help="When to use colour.")],
    "palette": Annotated[
        Literal["viridis", "cividis", "blues", "greys"] | None,
        _option(
            "--palette",
            help="Shades: viridis or cividis for dark backgrounds, blues or greys for light ones.",
        ),
    ],
    "width": Annotated[
        int | None, _option("--width", metavar="N", help="Columns to use.  [default: the terminal's]")
    ],
}


def user_config() -> str | None:
    """Return where the user's own file of settings is looked for; None where the user has no home."""
    if not sys.platform.startswith("linux"):
        import platformdirs  # on Linux its answer is these few lines, without ten milliseconds of import

        return os.path.join(platformdirs.user_config_dir("attn", False), "config.toml")
    given = os.environ.get("XDG_CONFIG_HOME", "")
    base = given if os.path.isabs(given) else os.path.expanduser("~/.config")
    return os.path.join(base, "attn", "config.toml") if os.path.isabs(base) else None


def config_files() -> list[str]:
    """Return the files of settings that are there, the one that counts more first."""
    return [path for path in (HERE, user_config()) if path is not None and os.path.exists(path)]


class Command(TyperCommand):
    """A command that knows where its values came from, and shows its help where a text is missing."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse what was typed; files of settings give the defaults of the options that have a variable."""
        if not ctx.resilient_parsing and (paths := config_files()):
            ctx.default_map = _from_files(self, ctx, paths)
        return super().parse_args(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help with the program's own defaults; it needs no file, and minds no bad one."""
        kept, ctx.default_map = ctx.default_map, None
        super().format_help(ctx, formatter)
        ctx.default_map = kept

    def invoke(self, ctx: Any) -> Any:
        """Run the command; a bad value that came from a variable or a file is blamed on that (exit 78)."""
        output = ctx.params.get("output")
        if output not in (None, "-") and _source(ctx, "format") in STANDING:
            ctx.params["format"] = None  # the file's suffix was typed, the standing wish was not
        try:
            result = self._run(ctx)
        except AttnError as error:
            is_object = is_json(ctx.params.get("format"), output, ctx.info_name)
            if not is_object and not isinstance(error, ConfigError):  # which names the file itself
                _tell(ctx)
            raise
        except SystemExit:  # a verdict
            _tell(ctx)
            raise
        _tell(ctx)
        return result

    def _run(self, ctx: Any) -> Any:
        """Run the command; what was wished for in general gives way where this command cannot have it."""
        try:
            return super().invoke(ctx)
        except NoText as error:
            raise UsageError(error.message, f"{error.hint}\n{ctx.get_help()}") from None
        except UsageError as error:
            if error.option == "--tidy" and _source(ctx, "tidy") in STANDING:
                ctx.params["tidy"] = False  # a standing wish for csv is no wish for this table
                return self._run(ctx)
            if (
                error.option == "--format"
                and _source(ctx, "format") == "DEFAULT_MAP"
                and ctx.params["format"]
            ):
                ctx.params["format"] = None
                return self._run(ctx)
            raise blamed(error, ctx) from None


def blamed(error: UsageError, ctx: Any) -> AttnError:
    """Return the error that names the variable, or the line of a file, that a refused value came from."""
    name = error.option.lstrip("-").replace("-", "_")
    source = _source(ctx, name)
    if not name or source not in STANDING:
        return error
    place = "ATTN_" + name.upper() if source == "ENVIRONMENT" else ctx.default_map.origin(name).place
    found = ConfigError(f"{place}: {error.message}", error.hint)
    found.line = error.line
    return found


def stated_first(ctx: Any, settings: Settings, **stated: object) -> Settings:
    """Let what a file of matrices states itself beat a variable or a file of settings; only a typed option beats it."""
    given = {name for name, value in stated.items() if value is not None}
    standing = {name for name in given if _source(ctx, name) in STANDING}
    for name in standing:
        ctx.params[name] = None  # so that nobody is told it was used
    return (
        replace(settings, **{name: getattr(Settings(), name) for name in standing}) if standing else settings
    )


def _source(ctx: Any, parameter: str) -> str:
    source = ctx.get_parameter_source(parameter)
    return source.name if source is not None else ""


def _from_files(command: TyperCommand, ctx: Any, paths: list[str]) -> Any:
    """Return the files' defaults for a command: of the options that have a variable."""
    from attn_cli.settings.config_file import FromFiles  # nobody pays for files that are not there

    first = ctx
    while first.parent is not None and first.parent.parent is not None:
        first = first.parent
    root = ctx.find_root()
    names = {str(option.name): _for_others(option) for option in command.params if option.envvar}
    return FromFiles(paths, first.info_name, root.command.list_commands(root), names)


def _for_others(option: Any) -> set[str]:
    """Return the formats that a file may wish for in general, and that this command has not."""
    if option.name != "format":
        return set()
    return set(_choices(OPTIONS["format"])) - set(getattr(option.type, "choices", ()))


def _choices(option: Any) -> list[str]:
    """Return the values of an option that offers a few: of `Annotated[Literal[...] | None, ...]`."""
    kinds = get_args(get_args(option)[0])
    return [value for kind in kinds for value in get_args(kind)]


def _tell(ctx: Any) -> None:
    """Say on standard error which settings of attn.toml the command used, if any."""
    used = [
        name.replace("_", "-")
        for name, value in ctx.params.items()
        if _source(ctx, name) == "DEFAULT_MAP"
        and value == ctx.default_map.get(name)
        and ctx.default_map.origin(name).path == HERE
    ]
    if used:
        from attn_cli.io.console import say

        say(f"attn: settings from {HERE}: {', '.join(used)}.")


def _typed_alone(option: Any) -> Any:
    """Return an option that has no variable, and so follows no file of settings either."""
    about = copy(option.__metadata__[0])
    about.envvar = None
    return Annotated[option.__origin__, about]


def takes(
    *groups: type[Settings] | type[View], without: tuple[str, ...] = (), typed: bool = False
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Let a command take the options of Settings, of View, or of both, and receive them as those records.

    The command's own parameters come first; it gets `settings` and `view` as keyword arguments. The options
    named in `without` are not offered, and keep their defaults. With `typed`, what is computed follows what was
    typed alone, no variable and no file of settings.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        names = {Settings: "settings", View: "view"}
        own = [
            parameter
            for parameter in inspect.signature(command, eval_str=True).parameters.values()
            if parameter.name not in names.values()
        ]
        added = [
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=field.default,
                annotation=_typed_alone(OPTIONS[field.name])
                if typed and group is Settings
                else OPTIONS[field.name],
            )
            for group in groups
            for field in fields(group)
            if field.name not in without
        ]

        @wraps(command)
        def run(**values: Any) -> None:
            if values.get("query") is not None:
                values["query"] = as_utf8(values["query"])
            records = {
                names[group]: group(
                    **{field.name: values.pop(field.name) for field in fields(group) if field.name in values}
                )
                for group in groups
            }
            command(**values, **records)

        parameters = [*own, *added]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return run

    return decorate
