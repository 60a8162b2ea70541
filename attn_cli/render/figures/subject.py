"""What figures can be of, and what their titles say of a head."""

from __future__ import annotations

from attn_cli.errors import UsageError
from attn_cli.render.views.wording import head_named
from attn_cli.trace.head import Head
from attn_cli.trace.trace import Trace

MOST = 200  # tokens of figures that have a line for each


def head_title(trace: Trace, head: Head) -> str:
    """Return the end of a title: which head is shown; "" where there is one."""
    if len(trace.head_names) == 1:
        return ""
    if head.name in ("mean", "rollout"):
        return f", {head.name} of the heads" if head.name == "mean" else ", attention rollout"
    layer = "" if head.layer is None else f", layer {head.layer}"
    return f"{layer}, {head_named(head.name)}"


def refuse_top(trace: Trace, kind: str) -> None:
    """Raise UsageError where --top asks for links alone."""
    if trace.settings.top is not None:
        hint = "--figure links and --figure bars show the strongest links alone."
        raise UsageError(f"--figure {kind} draws all weights, without --top.", hint, "--top")


def refuse_long(kind: str, *tokens: int) -> None:
    """Raise UsageError for more tokens than a figure has lines for."""
    most = max(tokens, default=0)
    if most > MOST:
        hint = "--top K shows the strongest." if kind == "bars" else "--figure heatmap takes more."
        raise UsageError(f"--figure {kind} draws up to {MOST} tokens; here are {most:,}.", hint, "--figure")
