"""attn show: weights that came from elsewhere, on attn's own screens."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from attn_cli.cli.deliver import choose_format, show
from attn_cli.cli.options import takes
from attn_cli.cli.read_text import NoFile, piped_in
from attn_cli.errors import InputError, UsageError
from attn_cli.io.escape import as_utf8, visible
from attn_cli.settings.output import View
from attn_cli.settings.settings import Settings

if TYPE_CHECKING:
    from attn_cli.trace.trace import Trace

# Settings of how weights are computed; these are given.
COMPUTED = (
    *("tokenizer", "keep_punctuation", "embedding", "dim", "seed", "oov", "projection", "heads", "layout"),
    *("score", "temperature", "pad", "pad_side", "positions", "round"),
)


@takes(Settings, View, without=COMPUTED)
def show_(
    file: Annotated[
        str | None,
        typer.Argument(
            metavar="FILE",
            help="JSON (also attn's own), .npy, .npz or .safetensors; - is standard input.",
            show_default=False,
        ),
    ] = None,
    tokens: Annotated[
        str | None,
        typer.Option(
            metavar="TOKENS|FILE",
            help="The tokens, between spaces, as a JSON list, or in a file (a JSON list, or one a line).",
        ),
    ] = None,
    context_tokens: Annotated[
        str | None,
        typer.Option(metavar="TOKENS|FILE", help="Those of the keys, where they differ from the queries'."),
    ] = None,
    join_pieces: Annotated[
        bool,
        typer.Option(
            "--join-pieces/--no-join-pieces",
            help="Join word pieces (##ing, Ġthe, ▁the) to words: sums over keys, means over queries.",
        ),
    ] = False,
    hide_special: Annotated[
        bool,
        typer.Option(
            "--hide-special/--no-hide-special", help="Leave out [CLS], [SEP], <s>, padding and their like."
        ),
    ] = False,
    renormalize: Annotated[
        bool,
        typer.Option(
            "--renormalize/--no-renormalize", help="Let the rows sum to one again when tokens are hidden."
        ),
    ] = False,
    array: Annotated[
        str | None, typer.Option(metavar="NAME", help="Which array, where a file holds several.")
    ] = None,
    batch: Annotated[int | None, typer.Option(metavar="N", help="Which text of a batch, from 0.")] = None,
    *,
    settings: Settings,
    view: View,
) -> None:
    """Weights from elsewhere: a model's attention, or an earlier attn JSON.

    An array is (n_q, n_k), (heads, n_q, n_k) or (layers, heads, n_q, n_k), as transformers' output_attentions
    stacked; five axes have the batch second. Nothing is computed again. Where neither --mask nor the file
    says who may look at whom, it is read off exact zeros: all above the diagonal, or at padding.

    Example: attn self "The cat sat" -f json --steps | attn show -
    """
    view = choose_format(view, settings)
    if renormalize and not hide_special:
        raise UsageError("--renormalize goes with --hide-special.", option="--renormalize")
    data, name = _read(file)
    from attn_cli.inputs.saved_weights import labelled, read_saved
    from attn_cli.inputs.token_labels import typed_tokens  # NumPy is loaded once there is something to show
    from attn_cli.pipeline.from_weights import trace_weights
    from attn_cli.pipeline.ready_weights import Shaping

    saved = read_saved(data, name, array, batch)
    if tokens is not None:
        saved = labelled(saved, typed_tokens(tokens, "--tokens", batch), None, "--tokens holds")
    if context_tokens is not None:
        context = typed_tokens(context_tokens, "--context-tokens", batch)
        saved = labelled(saved, None, context, "--context-tokens holds")
    trace = trace_weights(saved, settings, Shaping(join_pieces, hide_special, renormalize))
    _deliver(trace, view)


def _read(file: str | None) -> tuple[bytes, str]:
    """Return the bytes of the file, or of standard input, and what to call it."""
    from attn_cli.inputs.saved_weights import MOST_BYTES
    from attn_cli.io.files import read_bytes

    if file is not None and file != "-":
        return read_bytes(file, MOST_BYTES), visible(as_utf8(file))
    if sys.stdin is None or (file is None and sys.stdin.isatty()):
        raise NoFile("show")
    data = piped_in(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise InputError(f"Standard input holds more than {MOST_BYTES:,} bytes.", "Save one layer alone.")
    return data, "standard input"


def _deliver(trace: Trace, view: View) -> None:
    """Show the trace; what needs the steps that made the weights is refused, or said not to be there."""
    if not trace.is_scored and (view.format or "").startswith("code:"):
        raise UsageError(
            f"-f {view.format} needs queries, keys and values; {trace.embedding.name} holds weights alone.",
            "attn self ... -f json --steps holds them.",
            "--format",
        )
    if not trace.is_scored and view.steps:
        note = "There are no steps to show: the weights came ready."
        trace, view = replace(trace, notes=(*trace.notes, note)), replace(view, steps=False)
    show(trace, view)
