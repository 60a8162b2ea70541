"""attn page: one interactive page of a text's attention."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from attn_cli.cli.deliver import choose, deliver
from attn_cli.cli.options import Context, Texts, own, without
from attn_cli.cli.read_text import attention_progress, text_and_context
from attn_cli.errors import UsageError
from attn_cli.render.result import Result
from attn_cli.settings.declare import SHOWN
from attn_cli.settings.output import View
from attn_cli.settings.settings import Settings

MOST_WORDS = 100_000
OF_TEXT = ("format", "tidy", "steps", "by_hand", "fields", "precision", "color", "palette", "shades", "width")
OF_FIGURES = ("figure", "dpi", "size", "title")


@without("versus", "top", "full", "next", "next_at", "dtype", *OF_TEXT, *OF_FIGURES)
def page(
    texts: Texts = None,
    context: Context = None,
    words: Annotated[
        int, own("N", "Carry the N commonest words, so that another sentence can be typed.", group=SHOWN)
    ] = 3000,
    exact: Annotated[
        str | None,
        own(
            "HEADS",
            "In a large page, store these heads at full precision: a head of every layer (3, subject) or LAYER/HEAD "
            "(5/11).",
            group=SHOWN,
        ),
    ] = None,
    *,
    settings: Settings,
    view: View,
) -> None:
    """Interactive page: the matrix, each cell's arithmetic, links, the steps, and controls that recompute everything.

    The page is one file: it opens with a double click, loads nothing and sends nothing.

    Example: attn page "The quick brown fox jumped over the lazy dog" -o fox.html
    """
    view = choose(replace(view, format="page"), {"page"})
    if not 0 <= words <= MOST_WORDS:
        raise UsageError(f"--words cannot be {words}.", f"Give a number from 0 to {MOST_WORDS:,}.", "--words")
    text, second = text_and_context(texts, context, "page", settings)
    kind = "cross" if second is not None else "masked" if (settings.mask or "none") != "none" else "self"
    from attn_cli.pipeline.for_page import page_of

    with attention_progress(settings.embedding) as progress:
        found = page_of(kind, text, second, settings, words, progress)
    heads = () if exact is None else tuple(name.strip() for name in exact.split(","))
    deliver(Result(page=lambda: found._replace(exact=heads)), view)
