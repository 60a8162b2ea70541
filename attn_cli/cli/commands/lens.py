"""attn lens: what a model would say if it stopped after each of its layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from attn_cli.cli.deliver import choose, deliver
from attn_cli.cli.options import Texts, own, takes
from attn_cli.cli.read_text import text_and_context
from attn_cli.io.progress import Progress
from attn_cli.render.result import OF_BLOCKS, Result
from attn_cli.settings.declare import SHOWN, TEXT
from attn_cli.settings.output import View
from attn_cli.settings.settings import MOST_NEXT, Settings

if TYPE_CHECKING:
    from attn_cli.pipeline.lens import Lens
    from attn_cli.render.figures.sheet import Drawing

CONTEXT_HELP = "Of an encoder and a decoder: what the encoder reads; the decoder has then written TEXT."
QUERY_HELP = "Only at this token, or the token of this number.  [default: all; on a screen the last ones]"
IDS_HELP = "Give the logits of the words with these ids too, as 5,7 (in JSON and CSV)."
CAN = (*OF_BLOCKS, "bars", "rows", "drawing")
ON_SCREEN, DRAWN = 6, 24  # places
WORDS = 3, 5  # on a screen, and for programs
COUNT_HELP = f"Name the K likeliest words of each layer.  [default: {WORDS[0]}; {WORDS[1]} in JSON]"


@takes("max_text max_word model projection pair format output color palette shades width FIGURE", can=CAN)
def lens(
    texts: Texts = None,
    context: str | None = own("TEXT", CONTEXT_HELP, TEXT, "--context"),
    query: str | None = own("TOKEN", QUERY_HELP, SHOWN, "--query", "-q"),
    count: int | None = own("K", COUNT_HELP, SHOWN, "--next", min=1, max=MOST_NEXT),
    ids: str | None = own("IDS", IDS_HELP, SHOWN),
    *,
    settings: Settings,
    view: View,
) -> None:
    """The likeliest word after each layer, at every place: what a model would say if it stopped there.

    Each layer's stream goes through the model's own last norm and output (the logit lens). Beside it stand rank and
    probability of the word that the model says in the end; the last row is that answer. Without a model it is the
    bundled language model.

    Example: attn lens "The cat sat on the"
    """
    view = choose(view, CAN, "attn lens", "lens", figures=("heatmap",))
    text, second = text_and_context(texts, context, "lens", settings)
    from attn_cli.pipeline.lens import look, read_ids
    from attn_cli.pipeline.passes import open_passes
    from attn_cli.render.blocks import window
    from attn_cli.render.views.lens import screen
    from attn_cli.settings.validate import find_rows

    with open_passes([(text, second)], settings, needs_gap=False) as (read,):
        n, named = len(read.tokens), read_ids(ids, read)

        def found(most: int, words: int) -> Lens:
            places = range(n)[window(n, most, read.place)] if query is None else find_rows(query, read.tokens)
            with Progress("Reading") as progress:
                return look(read, places, count or words, named, progress)

        def drawing(view: View) -> tuple[Drawing, Sequence[str]]:
            from attn_cli.render.figures.heatmap import lens as drawn  # only for a figure

            return drawn(found(DRAWN, WORDS[0]), view), read.notes

        detailed = [read.place] if query is None else find_rows(query, read.tokens)
        result = Result(
            "lens",
            blocks=lambda view: screen(found(ON_SCREEN, WORDS[0]), detailed, view),
            record=lambda view: found(n, WORDS[1]).record(),
            rows=lambda view: found(n, WORDS[1]).rows(),
            drawing=drawing,
            remarks=read.notes,
        )
        deliver(result, view)
