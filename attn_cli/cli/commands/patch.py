"""attn patch: what comes back of a word when parts of one run are carried over into another."""

from __future__ import annotations

from attn_cli.cli.deliver import choose, deliver
from attn_cli.cli.options import argument, own, takes
from attn_cli.cli.read_text import read_text, two_texts
from attn_cli.errors import UsageError
from attn_cli.io.progress import Progress
from attn_cli.render.result import OF_BLOCKS, Result, map_drawing
from attn_cli.settings.declare import ATTENTION, TEXT
from attn_cli.settings.output import View
from attn_cli.settings.settings import Settings

TEXTS_HELP = "Texts of equal length, in tokens; - is standard input."
CONTEXT_HELP = "What an encoder reads in both runs; its decoder then has written the two texts."
CORRUPT_HELP = "What it reads in the corrupt run, if that is another text."
CAN = (*OF_BLOCKS, "rows", "drawing")


@takes("max_text max_word model projection format output precision color palette width FIGURE", can=CAN)
def patch(
    texts: list[str] | None = argument("CLEAN CORRUPT", TEXTS_HELP, default=None),
    target: str | None = own("WORD", "The word to bring back.  [default: the clean text's]", ATTENTION),
    against: str | None = own("WORD", "The word against it.  [default: the corrupt text's]", ATTENTION),
    context: str | None = own("TEXT", CONTEXT_HELP, TEXT),
    corrupt_context: str | None = own("TEXT", CORRUPT_HELP, TEXT),
    *,
    settings: Settings,
    view: View,
) -> None:
    """Which parts of a model's run bring a word back into another text: activation patching.

    The model reads a clean and a corrupt text. The vector of a token before a layer, or the output of a head, is
    carried over from the clean run, and all that follows is computed anew: which share of the difference of two words'
    logits comes back? Without a model it is the bundled language model.

    Example: attn patch "The cat sat on the" "The cat slept in the"
    """
    view = choose(view, CAN, "patch", "patch", figures=("heatmap",))
    clean, corrupt = two_texts(texts or [], settings, "patch")
    if corrupt_context is not None and context is None:
        said = "--corrupt-context requires --context."
        raise UsageError(said, "Without both, the two texts are the encoder's.", "--corrupt-context")
    first = None if context is None else read_text(context, "patch", settings)
    second = first if corrupt_context is None else read_text(corrupt_context, "patch", settings)
    if (clean, first) == (corrupt, second):
        raise UsageError("The two texts are the same.", "Change a word in one of them.")
    from attn_cli.pipeline.passes import open_passes
    from attn_cli.pipeline.patch import patch_of
    from attn_cli.render.views import patch as screen

    with open_passes([(clean, first), (corrupt, second)], settings) as read, Progress("Patching") as report:
        found = patch_of(read[0], read[1], (clean, corrupt), target, against, report)
    result = Result(
        "patch",
        lambda view: screen.patch(found, view.format),
        lambda view: found.record(),
        rows=lambda view: screen.rows(found),
        drawing=map_drawing(screen.maps(found), screen.title(found), "comes back", found.notes),
    )
    deliver(result, view)
