"""attn show: weights that came from elsewhere, on attn's own screens."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from attn_cli.cli.deliver import choose, deliver, settings_for
from attn_cli.cli.options import argument, own, takes
from attn_cli.cli.read_text import labelled_weights
from attn_cli.render.result import OF_TRACE, trace_result
from attn_cli.settings.declare import INPUT, TEXT
from attn_cli.settings.output import View
from attn_cli.settings.settings import Settings
from attn_cli.settings.validate import check_shaping

if TYPE_CHECKING:
    from attn_cli.pipeline.for_page import Page


# The weights are given: no setting of how they are computed.
@takes("join_pieces hide_special renormalize layer head mask mask_true ROWS threads SCREEN tidy FIGURE")
def show_(
    file: str | None = argument(
        "FILE",
        "JSON or CSV (also attn's own), .npy, .npz or .safetensors; - is standard input.",
        default=None,
    ),
    tokens: str | None = own(
        "TOKENS|FILE",
        "The tokens, between spaces, as a JSON list, or in a file (a JSON list, or one a line).",
        TEXT,
    ),
    context_tokens: str | None = own(
        "TOKENS|FILE", "Those of the keys, where they differ from the queries'.", TEXT
    ),
    array: str | None = own("NAME", "Which array, where a file holds several.", INPUT),
    batch: int | None = own("N", "Which text of a batch, from 0.", INPUT),
    *,
    settings: Settings,
    view: View,
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
    saved = labelled_weights(file, "show", tokens, array, batch, context_tokens)
    from attn_cli.pipeline.sources.weights import trace_weights

    def page() -> Page:
        from attn_cli.pipeline.for_page import page_of_weights  # only for a page

        return page_of_weights(saved, settings)

    deliver(replace(trace_result(trace_weights(saved, settings), view), page=page), view)
