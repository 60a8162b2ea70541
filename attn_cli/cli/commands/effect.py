"""attn effect: what each head, each network and the embeddings add to the word that a model says."""

from __future__ import annotations

from typing import Literal

from attn_cli.cli.deliver import choose, deliver
from attn_cli.cli.options import Context, Texts, own, takes
from attn_cli.cli.read_text import text_and_context
from attn_cli.errors import UsageError
from attn_cli.io.progress import Progress
from attn_cli.render.result import OF_BLOCKS, Result, map_drawing
from attn_cli.settings.declare import ATTENTION, SHOWN
from attn_cli.settings.output import View
from attn_cli.settings.settings import Settings

MEASURE_HELP = "What parts add themselves, or, too, what becomes of the word without each head."
WITH_HELP = "A head that is knocked out gives nothing, or its mean over the text.  [default: zero]"


CAN = (*OF_BLOCKS, "rows", "drawing")


@takes("max_text max_word model projection format output precision color palette width FIGURE", can=CAN)
def effect(
    texts: Texts = None,
    context: Context = None,
    target: str | None = own(
        "WORD", "The word whose logit is taken apart.  [default: the likeliest]", ATTENTION
    ),
    against: str | None = own("WORD", "Take apart the difference from this word's logit.", ATTENTION),
    measure: Literal["direct", "knock-out"] = own("", MEASURE_HELP, ATTENTION, default="direct"),
    knock_out_with: Literal["zero", "mean"] | None = own("", WITH_HELP, ATTENTION),
    strongest: int = own("N", "List the N strongest heads and networks.", SHOWN, default=10, min=1, max=1000),
    *,
    settings: Settings,
    view: View,
) -> None:
    """What a model's heads, networks and embeddings add to the word that it says: direct logit attribution.

    All parts sum to the word's logit. A causal model says the word after the text, another the one at the text's
    mask. Without a model it is the bundled language model.

    Example: attn effect "The cat sat on the" --against dog
    """
    if knock_out_with is not None and measure == "direct":
        raise UsageError("--knock-out-with is for --measure knock-out.", "Add that.", "--knock-out-with")
    view = choose(view, CAN, "effect", "effect", figures=("heatmap",))
    text, other = text_and_context(texts, context, "effect", settings)
    from attn_cli.pipeline.effect import effect_of
    from attn_cli.pipeline.passes import open_passes
    from attn_cli.render.views import effect as screen

    with open_passes([(text, other)], settings) as (read,), Progress("Computing") as report:
        is_mean = knock_out_with == "mean"
        found = effect_of(read, target, against, measure == "knock-out", is_mean, report)
    result = Result(
        "effect",
        lambda view: screen.effect(found, strongest),
        lambda view: found.record(),
        rows=lambda view: screen.rows(found),
        drawing=map_drawing(screen.maps(found), screen.title(found), "logit", found.notes),
    )
    deliver(result, view)
