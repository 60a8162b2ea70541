"""What a notebook shows of a trace: the interactive page, and a table for where no script may run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attn_cli.render.notebook.live import live
from attn_cli.render.notebook.still import still

if TYPE_CHECKING:
    from attn_cli.trace.trace import Trace

# Rules of classes alone: any number of outputs may stand in one notebook. What the notebook removes (a frame, a
# style) leaves the table. The frame follows the notebook's theme, and not that of the system.
STYLE = """
.attn-live { display: block; width: 100%; min-width: 0; border: 0; resize: vertical; color-scheme: light dark; }
[data-jp-theme-light="true"] .attn-live, .vscode-light .attn-live, [theme="light"] .attn-live { color-scheme: light; }
[data-jp-theme-light="false"] .attn-live, .vscode-dark .attn-live, [theme="dark"] .attn-live { color-scheme: dark; }
.attn-live + .attn-still { display: none; }
@media print { .attn-live { display: none; } .attn-live + .attn-still { display: block; } }
"""
NO_SCRIPT = ".attn-live { display: none; } .attn-live + .attn-still { display: block; }"


def notebook_html(trace: Trace) -> str:
    """Return a trace as HTML for a notebook: the interactive page in a frame, and the same weights as a table.

    The table is seen where scripts or frames are taken out, and on paper. Nothing is loaded from elsewhere. Weights
    that are too many for a page, and each row's strongest links alone, are a table in any case.
    """
    page = live(trace)
    if not page:
        return still(trace)
    return (
        f"<style>{STYLE}</style><noscript><style>{NO_SCRIPT}</style></noscript>\n{page}\n"
        f'<div class="attn-still">{still(trace)}</div>'
    )
