"""attn generate: a model writes on, and each token says where a head looked for it."""

from __future__ import annotations

from attn_cli.cli.deliver import choose, deliver, in_a_pipe, stream
from attn_cli.cli.options import Texts, own, takes
from attn_cli.cli.read_text import one_text
from attn_cli.errors import UsageError
from attn_cli.io import signals
from attn_cli.io.console import say
from attn_cli.io.escape import as_utf8, dumps
from attn_cli.render.result import Result
from attn_cli.settings.declare import ATTENTION, SHOWN
from attn_cli.settings.output import View
from attn_cli.settings.settings import MOST_NEXT, Settings

CAN = ("table", "jsonl", "page")
FORMATS_HELP = "How each token is shown.  [default: table on a terminal, else jsonl]"
TEMPERATURE = "Draw tokens, by scores divided by T: below 1 likelier ones, above 1 rarer ones."
TOP_P = "Draw among the likeliest tokens that have a probability of P together."


@takes(
    "max_text max_word model projection layer head knock_out knock_out_with seed format output color width",
    can=CAN,
    help=FORMATS_HELP,
)
def generate(
    texts: Texts = None,
    count: int = own("N", "Write at most N tokens.", SHOWN, default=20, min=1, max=100_000),
    sample_temperature: float | None = own("T", TEMPERATURE, ATTENTION, min=1e-6, max=1e6),
    top_k: int | None = own("K", "Draw among the K likeliest tokens.", ATTENTION, min=1),
    top_p: float | None = own("P", TOP_P, ATTENTION, min=1e-6, max=1),
    stop: list[str] | None = own("TEXT", "Stop when this is written. Repeatable.", SHOWN),
    runners_up: int = own("K", "Name the K likeliest other tokens.", SHOWN, default=3, min=0, max=MOST_NEXT),
    *,
    settings: Settings,
    view: View,
) -> None:
    """A model writes on: each token with its probability, the runners-up, and where the shown head looked for it.

    It takes the likeliest token each time, or draws one: with --sample-temperature, --top-k or --top-p. A model of
    an encoder and a decoder reads the text, and writes its own. Without a model it is the bundled language model.

    Example: attn generate "The cat sat on the" --count 9
    """
    if "" in (stop or ()):
        raise UsageError("--stop is empty, and so it is in any text.", "Give the text to stop at.", "--stop")
    view = choose(in_a_pipe(view, "jsonl"), CAN, "attn generate")
    text = one_text(texts, "generate", settings)
    if not texts or [*texts] == ["-"]:  # a file's last line ends, its text goes on
        text = text.removesuffix("\n").removesuffix("\r")
    from attn_cli.pipeline import generate as of_model
    from attn_cli.pipeline.for_page import page_of_writing
    from attn_cli.pipeline.writers import open_writer
    from attn_cli.render.views.writing import written

    sampling, terminal = of_model.Sampling(sample_temperature, top_k, top_p, settings.seed), view.terminal()
    with signals.raised(), open_writer(text, settings) as writer:
        for note in writer.notes:
            say(f"attn: {note}")
        steps = of_model.generate(writer, sampling, count, [*map(as_utf8, stop or ())], runners_up)
        lines = (dumps(step.record(), True, not terminal.unicode) for step in steps)
        is_done = stream({"jsonl": lines, "table": written(writer, sampling, steps, terminal)}, view)
        if not is_done and (found := list(steps)):
            result = Result(
                texts={"table": lambda terminal: "".join(written(writer, sampling, found, terminal))},
                records=[step.record() for step in found],
                page=lambda: page_of_writing(writer, found, settings),
            )
            deliver(result, view)
    if signals.received:
        raise KeyboardInterrupt
