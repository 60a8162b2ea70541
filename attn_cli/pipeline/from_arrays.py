"""From weights in memory to a Trace: `attn_cli.show`, the same way as `attn show FILE`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from attn_cli.inputs.weights_in_memory import weights_in_memory
from attn_cli.pipeline.from_weights import trace_weights
from attn_cli.settings.settings import Settings
from attn_cli.settings.validate import check_shaping

if TYPE_CHECKING:
    from attn_cli.trace.trace import Trace


def show(
    weights: object,
    tokens: str | Sequence[str] | None = None,
    context_tokens: str | Sequence[str] | None = None,
    settings: Settings | None = None,
    *,
    batch: int | None = None,
) -> Trace:
    """Return attention weights of your own as a Trace, which a notebook draws: nothing is computed anew.

    `weights` is (n_q, n_k), (heads, n_q, n_k) or (layers, heads, n_q, n_k): an array, nested lists, a PyTorch tensor,
    or a tuple of arrays, which are stacked, as a model's `attentions`: (batch, heads, n_q, n_k) for each layer, of
    which `batch` takes one text. `tokens` name queries and keys, `context_tokens` the keys where they differ; both
    are lists, or words between spaces. `settings` choose a layer, a head, a mask, as the options of `attn show`.
    Raises InputError, a ValueError, for what are no weights, and for a wrong number of tokens.

    >>> show([[0.9, 0.1], [0.2, 0.8]], "she likes").weights.tolist()
    [[0.9, 0.1], [0.2, 0.8]]
    """
    settings = settings or Settings()
    check_shaping(settings)
    return trace_weights(weights_in_memory(weights, tokens, context_tokens, batch), settings)
