"""The interactive page of a trace, in a frame of its own, where nothing of the notebook reaches it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from html import escape
from typing import TYPE_CHECKING

from attn_cli.io.escape import visible
from attn_cli.render.page import page
from attn_cli.render.page.script import read
from attn_cli.render.views.wording import title

if TYPE_CHECKING:
    from attn_cli.trace.trace import Trace

MOST_EXACT = 30_000  # numbers of heads that are held in full: 240 KB
MOST_NUMBERS = 600_000  # of all heads, as 8-bit weights: 800 KB
MOST_SHOWN = 90_000  # of the shown head, which is held in full: 720 KB
ROW, AROUND, PICTURES, LOWEST, HIGHEST = 40, 350, 200, 480, 960  # pixels
# In a frame of some hundred pixels the heads and the matrix come first. What belongs to a file of its own is left out.
LOOK = """
body { padding: .2rem; }
h1 { font-size: 1.1rem; }
#text, #copy-link { display: none; }
#controls, #type-part { order: 1; }
#heads-part { order: -1; }
#grid { max-height: 11rem; }
#story { order: 1; }
#save-part, #notes { order: 2; }
"""
# What the frame tells its page once that is there: the scheme that the style of the output gave to the frame.
TELL = "this.contentWindow.postMessage({attnScheme: getComputedStyle(this).colorScheme}, '*')"


def _look() -> str:
    """Return the style of a page in a notebook: `LOOK`, and the page's own colours for the scheme that it is told."""
    colours = re.findall(r"--back:[^\n}]*", read("page.css"))  # light, dark, and those for paper
    schemes = zip(("light", "dark"), colours[:2], strict=True)
    return LOOK + "".join(
        f':root[data-scheme="{name}"] {{ color-scheme: {name}; {line} }}\n' for name, line in schemes
    )


def live(trace: Trace) -> str:
    """Return the frame with the page; nothing where the trace has no whole matrix, or one too large for a notebook."""
    size = trace.weights.size
    if not trace.whole or size > MOST_SHOWN or size * len(trace.heads) > MOST_NUMBERS:
        return ""
    # Only for those who look at a page.
    from attn_cli.pipeline.for_page import Page

    layers = [*_layers(trace)]
    shown = next(n for n, layer in enumerate(layers) if layer.projection.layer == _shown_layer(trace))
    found = page(Page(layers, len(layers), shown, most_exact=MOST_EXACT), _look())
    fitting = AROUND + ROW * len(trace.query_tokens) + (PICTURES if len(trace.heads) > 1 else 0)
    height = min(HIGHEST, max(LOWEST, fitting))
    # A srcdoc in single quotes: the page has hardly any, and a thousand double ones.
    source = found.replace("&", "&amp;").replace("'", "&#39;")
    return (
        '<iframe class="attn-live" sandbox="allow-scripts allow-downloads" allow="clipboard-write" '
        f'onload="{TELL}" title="{escape(visible(title(trace)))}" style="height: {height}px" '
        f"srcdoc='{source}'></iframe>"
    )


def _shown_layer(trace: Trace) -> int | None:
    return trace.shown.layer if trace.has_layers else trace.projection.layer


def _layers(trace: Trace) -> Iterator[Trace]:
    """Yield the trace of each layer, where there are several; else the trace itself."""
    if not trace.has_layers:
        yield trace
        return
    for number in dict.fromkeys(head.layer for head in trace.heads):
        heads = tuple(replace(head, layer=None) for head in trace.heads if head.layer == number)
        shown = next((head for head in heads if head.name == trace.shown.name), heads[0])
        mask = trace.mask_of(heads[0])
        about = trace.projection._replace(layer=number)
        yield replace(trace, heads=heads, shown=shown, mask=mask, projection=about)
