"""Every option once, as an Annotated alias; a command takes the groups of options that it understands.

Defaults come from Settings and View. Where None leaves a choice open, the help says what is chosen then.
"""

import inspect
from collections.abc import Callable
from dataclasses import fields
from functools import wraps
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperCommand

from attn_cli.errors import ConfigError, NoText, UsageError
from attn_cli.trace import Settings
from attn_cli.view import View
from attn_cli.visible import as_utf8


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
    # How to show it
    "format": Annotated[
        Literal[
            *("table", "bars", "json", "jsonl", "csv", "tsv", "markdown", "latex", "html", "svg"),
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


class Command(TyperCommand):
    """A command that knows where its values came from, and shows its help where a text is missing."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command; a bad value that came from a variable is blamed on the variable (exit 78)."""
        output = ctx.params.get("output")
        if output not in (None, "-") and _source(ctx, "format") == "ENVIRONMENT":
            ctx.params["format"] = None  # the file's suffix was typed, the variable was not
        try:
            return super().invoke(ctx)
        except NoText as error:
            raise UsageError(error.message, f"{error.hint}\n{ctx.get_help()}") from None
        except UsageError as error:
            if error.option == "--tidy" and _source(ctx, "tidy") == "ENVIRONMENT":
                ctx.params["tidy"] = False  # a standing wish for csv is no wish for this table
                return super().invoke(ctx)
            name = error.option.lstrip("-").replace("-", "_")
            if name and _source(ctx, name) == "ENVIRONMENT":
                variable = "ATTN_" + name.upper()
                raise ConfigError(f"{variable}: {error.message}", error.hint) from None
            raise


def _source(ctx: Any, parameter: str) -> str:
    source = ctx.get_parameter_source(parameter)
    return source.name if source is not None else ""


def takes(
    *groups: type[Settings] | type[View], without: tuple[str, ...] = ()
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Let a command take the options of Settings, of View, or of both, and receive them as those records.

    The command's own parameters come first; it gets `settings` and `view` as keyword arguments. The options
    named in `without` are not offered, and keep their defaults.
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
                annotation=OPTIONS[field.name],
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
