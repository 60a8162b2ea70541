"""Words that nobody may look at: the trace under its mask, and without their columns."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from attn_cli.core import masks
from attn_cli.errors import UsageError
from attn_cli.pipeline.attend_heads import Work, mean_head

if TYPE_CHECKING:
    from attn_cli.trace.trace import Trace

LINKS = 5


def switched_off(trace: Trace, words: tuple[str, ...]) -> Trace:
    """Return the trace with every occurrence of these words masked as a key; itself where there are none."""
    off = [j for j, token in enumerate(trace.key_tokens) if token in words]
    if not off:
        return trace
    if trace.condensed or not isinstance(trace.source, Work):
        raise UsageError("Words can be switched off in a text of at most a thousand words.")
    allowed = np.ones((len(trace.query_tokens), len(trace.key_tokens)), np.bool_)
    if trace.mask is not None:
        allowed = trace.mask.copy()
    allowed[:, off] = False
    base = "" if trace.mask_name == "none" else f"{trace.mask_name}, "
    name = f"{base}without {', '.join(dict.fromkeys(trace.key_tokens[j] for j in off))}"
    mask = masks.Mask(name, *allowed.shape, allowed)
    work = trace.source._replace(mask=mask)
    heads = work.attended(trace.rows, allowed, max(LINKS, trace.settings.top or 0), {})
    mean = mean_head(heads, allowed, LINKS, None) if trace.shown.name == "mean" else None
    shown = mean or next(head for head in heads if head.name == trace.shown.name)
    return replace(
        trace,
        heads=tuple(heads),
        shown=shown,
        mask=allowed,
        mask_name=name,
        layer_output=None,
        output_words=None,
        notes=trace.notes,
        source=work,
    )
