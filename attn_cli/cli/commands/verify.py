"""attn verify: a model on disk, computed by attn and by transformers, or checked alone where that is not installed."""

from __future__ import annotations

from attn_cli.cli.deliver import choose, deliver
from attn_cli.cli.options import argument, takes
from attn_cli.cli.read_text import read_text
from attn_cli.errors import DIFFERENT
from attn_cli.io.progress import Progress
from attn_cli.render.result import OF_BLOCKS, Result
from attn_cli.settings.output import View
from attn_cli.settings.settings import Settings


@takes("max_text max_word format output color width")
def verify(
    model: str = argument("MODEL", "The model: a folder, a GGUF file, or a name, as for --model."),
    texts: list[str] | None = argument(
        "[TEXT]...", "Texts, each in quotes; - is standard input.  [default: three sentences]", default=None
    ),
    *,
    settings: Settings,
    view: View,
) -> None:
    """Whether attn computes a model's own numbers: layer by layer beside transformers, or its file alone.

    Where torch and transformers are installed, both compute the same texts from the same files, offline. Elsewhere
    the file is checked alone, which is no proof: the shapes of its tensors, the keys of config.json, rows that sum
    to one, causal masks. Exit code 1 says that a figure is too large.

    Example: attn verify ./bert-base-uncased
    """
    view = choose(view, OF_BLOCKS, "verify", "verify")
    from attn_cli.pipeline import verify as verifying
    from attn_cli.render.views.verify import record, screen

    given = [read_text(text, "verify", settings) for text in texts or ()] or verifying.TEXTS
    with Progress("Comparing"):
        found = verifying.verify(model, given, settings)
    deliver(Result("verify", lambda view: screen(found), lambda view: record(found)), view)
    if found.exceeded is not None:
        raise SystemExit(DIFFERENT)
