"""attn show: weights that came from elsewhere, on attn's own screens."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from attn_cli.cli.deliver import choose_format, show
from attn_cli.cli.options import argument, own, without
from attn_cli.cli.read_text import labelled_weights
from attn_cli.errors import UsageError
from attn_cli.settings.declare import INPUT, TEXT
from attn_cli.settings.output import View
from attn_cli.settings.settings import Settings

# Settings of how weights are computed; these are given.
COMPUTED = (
    *("model", "next"),
    *("tokenizer", "keep_punctuation", "max_text", "max_word", "embedding", "dim", "seed", "oov"),
    *("projection", "heads", "layout", "score", "temperature", "pad", "pad_side", "positions", "round"),
)


@without(*COMPUTED)
def show_(
    file: Annotated[
        str | None,
        argument("FILE", "JSON (also attn's own), .npy, .npz or .safetensors; - is standard input."),
    ] = None,
    tokens: Annotated[
        str | None,
        own(
            "TOKENS|FILE",
            "The tokens, between spaces, as a JSON list, or in a file (a JSON list, or one a line).",
            group=TEXT,
        ),
    ] = None,
    context_tokens: Annotated[
        str | None, own("TOKENS|FILE", "Those of the keys, where they differ from the queries'.", group=TEXT)
    ] = None,
    join_pieces: Annotated[
        bool,
        typer.Option(
            help="Join word pieces (##ing, Ġthe, ▁the) to words: sums over keys, means over queries.",
            rich_help_panel=TEXT,
        ),
    ] = False,
    hide_special: Annotated[
        bool,
        typer.Option(help="Leave out [CLS], [SEP], <s>, padding and their like.", rich_help_panel=TEXT),
    ] = False,
    renormalize: Annotated[
        bool,
        typer.Option(help="Let the rows sum to one again when tokens are hidden.", rich_help_panel=TEXT),
    ] = False,
    array: Annotated[str | None, own("NAME", "Which array, where a file holds several.", group=INPUT)] = None,
    batch: Annotated[int | None, own("N", "Which text of a batch, from 0.", group=INPUT)] = None,
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
    saved = labelled_weights(file, "show", tokens, array, batch, context_tokens)
    from attn_cli.pipeline.from_weights import trace_weights
    from attn_cli.pipeline.ready_weights import Shaping

    trace = trace_weights(saved, settings, Shaping(join_pieces, hide_special, renormalize))
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
