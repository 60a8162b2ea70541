"""attn compute and attn show: attention of matrices, and weights that came from elsewhere on attn's own screens."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import typer

from attn_cli.cli import origins, read_text
from attn_cli.cli.deliver import choose, deliver, settings_for
from attn_cli.cli.options import argument, own, takes
from attn_cli.errors import FileError, InputError, refuse, visible
from attn_cli.io.progress import Progress
from attn_cli.render.result import OF_TRACE, trace_result
from attn_cli.settings import declare
from attn_cli.settings.output import View
from attn_cli.settings.settings import Settings, check_shaping

if TYPE_CHECKING:
    from attn_cli.inputs.matrices import Given
    from attn_cli.pipeline.for_page import Page

LABELS = ("tokens", "context_tokens")
MATRICES_HELP = (
    "JSON, .npz or .safetensors with Q, K, V, or X, W_q, W_k, W_v; or one CSV a matrix, named after it "
    "(Q.csv K.csv V.csv). - is JSON on standard input."
)


@takes("seed projection COMPUTED PLACED measure ROWS SCREEN tidy FIGURE")
def compute(
    context: typer.Context,
    settings: Settings,
    view: View,
    files: list[str] | None = argument("FILE...", MATRICES_HELP, default=None),
    batch: int | None = own("N", "Which item of a batch, from 0.", declare.INPUT),
) -> None:
    """Attention from given matrices.

    A file holds Q, K and V, or X with W_q, W_k and W_v; and optionally b_q, b_k, b_v, W_o, b_o, context
    (for cross-attention), mask, heads, kv_heads, layout, score, tokens and context_tokens. Q, K and V may be
    (heads, n, d) or (batch, heads, n, d), X (batch, n, d). in_proj_weight and the like are read as in PyTorch.

    Example: attn compute matrices.json --score dot
    """
    view = choose(view, OF_TRACE)
    is_piped = sys.stdin is not None and not sys.stdin.isatty()
    given = _given(files or (["-"] if is_piped else []), batch)
    if origins.origin(context, "temperature") == origins.TYPED:
        given = given._replace(temperature=None)
    settings = origins.prefer_given(context, settings, given, "score mask heads layout temperature")
    settings = settings_for(settings, view)
    from attn_cli.pipeline.sources.matrices import trace_matrices  # loads NumPy

    with Progress("Attending") as progress:
        trace = trace_matrices("compute", given, settings, progress)
    deliver(trace_result(trace, view), view)


def _given(files: list[str], batch: int | None) -> Given:
    refuse(not files, "There is no file.", "Try: attn compute matrices.json", "FILE")
    from attn_cli.inputs.matrices import given_from
    from attn_cli.inputs.record import json_of, read_record

    together: dict[str, object] = {}
    for file in files:
        if file == "-" and sys.stdin is None:
            raise FileError("Standard input is closed.", "Give a file.")
        record = json_of(read_text.piped_in(), "standard input") if file == "-" else read_record(file)
        if not isinstance(record, dict):
            raise InputError("Standard input is not a JSON object of named matrices.")
        for key in sorted(together.keys() & record.keys()):
            if key in LABELS and together[key] == record[key]:
                continue  # K and V may bear the same labels
            conflict = "is not what was given before" if key in LABELS else "was given before"
            raise InputError(f"{visible(file)}: {visible(key)} {conflict}.", "Give it once.")
        together |= record
    name = "standard input" if files == ["-"] else ", ".join(map(visible, files))
    return given_from(together, name, batch)


FILE_HELP = "JSON or CSV (also attn's own), .npy, .npz or .safetensors; - is standard input."
TOKENS_HELP = "The tokens, between spaces, as a JSON list, or in a file (a JSON list, or one a line)."
KEYS_HELP = "Those of the keys, where they differ from the queries'."


# The weights are given: no setting of how they are computed.
@takes("join_pieces hide_special renormalize layer head mask mask_true ROWS threads SCREEN tidy FIGURE")
def show_(
    settings: Settings,
    view: View,
    file: str | None = argument("FILE", FILE_HELP, default=None),
    tokens: str | None = own("TOKENS|FILE", TOKENS_HELP, declare.TEXT),
    context_tokens: str | None = own("TOKENS|FILE", KEYS_HELP, declare.TEXT),
    array: str | None = own("NAME", "Which array, where a file holds several.", declare.INPUT),
    batch: int | None = own("N", "Which text of a batch, from 0.", declare.INPUT),
) -> None:
    """Weights from elsewhere: a model's attention, or an earlier attn JSON.

    An array is (n_q, n_k), (heads, n_q, n_k) or (layers, heads, n_q, n_k), as transformers' output_attentions
    stacked; with five axes the second is the batch; with --batch, four axes are (batch, heads, n_q, n_k). Nothing
    is computed again. If neither --mask nor the file gives the mask, it is inferred from exact zeros: everything
    above the diagonal, or padding.

    Example: attn self "The cat sat" -f json --steps | attn show -
    """
    view = choose(view, OF_TRACE)
    check_shaping(settings)
    settings = settings_for(settings, view)
    saved = read_text.labelled_weights(file, "show", array, batch, tokens, context_tokens)
    from attn_cli.pipeline.sources.weights import trace_weights

    def page() -> Page:
        from attn_cli.pipeline.for_page import page_of_weights  # only for a page

        return page_of_weights(saved, settings)

    deliver(replace(trace_result(trace_weights(saved, settings), view), page=page), view)
