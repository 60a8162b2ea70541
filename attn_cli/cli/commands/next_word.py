"""attn effect, patch, lens, generate: why a model says its next word, what it says layer by layer, how it goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from attn_cli.cli.deliver import choose, deliver, in_a_pipe, stream
from attn_cli.cli.options import Context, Texts, argument, own, takes
from attn_cli.cli.read_text import one_text, read_text, text_and_context, two_texts
from attn_cli.errors import as_utf8, refuse
from attn_cli.io import console, json_text, signals
from attn_cli.io.progress import Progress
from attn_cli.render.result import OF_BLOCKS, Result, figure_of, result_of
from attn_cli.settings import MOST_NEXT, Settings, View, declare, find_rows

if TYPE_CHECKING:
    from attn_cli.pipeline.passes import Lens

CAN = (*OF_BLOCKS, "rows", "drawing")
READ = "max_text max_word model projection format output color width "
TAKES = f"{READ} palette FIGURE "
TARGET_HELP = "The word whose logit is taken apart.  [default: the likeliest]"
MEASURE_HELP = "What parts add themselves, or, too, what becomes of the word without each head."
WITH_HELP = "A head that is knocked out gives nothing, or its mean over the text.  [default: zero]"


@takes(TAKES + "precision", can=CAN)
def effect(
    settings: Settings,
    view: View,
    texts: Texts = None,
    context: Context = None,
    target: str | None = own("WORD", TARGET_HELP, declare.ATTENTION),
    against: str | None = own("WORD", "Take apart the difference from this word's logit.", declare.ATTENTION),
    measure: Literal["direct", "knock-out"] = own("", MEASURE_HELP, declare.ATTENTION, default="direct"),
    knock_out_with: Literal["zero", "mean"] | None = own("", WITH_HELP, declare.ATTENTION),
    strongest: int = own(
        "N", "List the N strongest heads and networks.", declare.SHOWN, default=10, min=1, max=1000
    ),
) -> None:
    """What a model's heads, networks and embeddings add to the word that it says: direct logit attribution.

    All parts sum to the word's logit. A causal model says the word after the text, another the one at the text's
    mask. Without a model it is the bundled language model.

    Example: attn effect "The cat sat on the" --against dog
    """
    is_idle = knock_out_with is not None and measure == "direct"
    refuse(is_idle, "--knock-out-with is for --measure knock-out.", "Add that.", "--knock-out-with")
    view = choose(view, CAN, "effect", "effect", figures=("heatmap",))
    text, other = text_and_context(texts, context, "effect", settings)
    from attn_cli.pipeline import effect as effects, passes
    from attn_cli.render.views import effect as views

    with passes.open_passes([(text, other)], settings) as (read,), Progress("Computing") as report:
        is_mean = knock_out_with == "mean"
        found = effects.effect_of(read, target, against, measure == "knock-out", is_mean, report)
    drawn = views.maps(found), views.title(found), "logit"
    drawing = figure_of("heatmap.layer_maps", *drawn, notes=found.notes)
    deliver(result_of("effect", found, views, strongest, drawing=drawing), view)


TEXTS_HELP = "Texts of equal length, in tokens; - is standard input."
RUNS_HELP = "What an encoder reads in both runs; its decoder then has written the two texts."
CORRUPT_HELP = "What it reads in the corrupt run, if that is another text."


@takes(TAKES + "precision", can=CAN)
def patch(
    settings: Settings,
    view: View,
    texts: list[str] | None = argument("CLEAN CORRUPT", TEXTS_HELP, default=None),
    target: str | None = own(
        "WORD", "The word to bring back.  [default: the clean text's]", declare.ATTENTION
    ),
    against: str | None = own(
        "WORD", "The word against it.  [default: the corrupt text's]", declare.ATTENTION
    ),
    context: str | None = own("TEXT", RUNS_HELP, declare.TEXT),
    corrupt_context: str | None = own("TEXT", CORRUPT_HELP, declare.TEXT),
) -> None:
    """Which parts of a model's run bring a word back into another text: activation patching.

    The model reads a clean and a corrupt text. The vector of a token before a layer, or the output of a head, is
    carried over from the clean run, and all that follows is computed anew: which share of the difference of two words'
    logits comes back? Without a model it is the bundled language model.

    Example: attn patch "The cat sat on the" "The cat slept in the"
    """
    view = choose(view, CAN, "patch", "patch", figures=("heatmap",))
    clean, corrupt = two_texts(texts or [], settings, "patch")
    is_alone, said = corrupt_context is not None and context is None, "--corrupt-context requires --context."
    refuse(is_alone, said, "Without both, the two texts are the encoder's.", "--corrupt-context")
    first = None if context is None else read_text(context, "patch", settings)
    second = first if corrupt_context is None else read_text(corrupt_context, "patch", settings)
    is_same = (clean, first) == (corrupt, second)
    refuse(is_same, "The two texts are the same.", "Change a word in one of them.")
    from attn_cli.pipeline import effect as effects, passes
    from attn_cli.render.views import patch as views

    with (
        passes.open_passes([(clean, first), (corrupt, second)], settings) as read,
        Progress("Patching") as report,
    ):
        found = effects.patch_of(read[0], read[1], (clean, corrupt), target, against, report)
    drawn = views.maps(found), views.title(found), "comes back"
    drawing = figure_of("heatmap.layer_maps", *drawn, notes=found.notes)
    deliver(result_of("patch", found, views, drawing=drawing), view)


READ_HELP = "Of an encoder and a decoder: what the encoder reads; the decoder has then written TEXT."
QUERY_HELP = "Only at this token, or the token of this number.  [default: all; on a screen the last ones]"
IDS_HELP = "Give the logits of the words with these ids too, as 5,7 (in JSON and CSV)."
ON_SCREEN, DRAWN = 6, 24  # places
WORDS = 3, 5  # on a screen, and for programs
COUNT_HELP = f"Name the K likeliest words of each layer.  [default: {WORDS[0]}; {WORDS[1]} in JSON]"


@takes(TAKES + "pair shades", can=(*CAN, "bars"))
def lens(
    settings: Settings,
    view: View,
    texts: Texts = None,
    context: str | None = own("TEXT", READ_HELP, declare.TEXT, "--context"),
    query: str | None = own("TOKEN", QUERY_HELP, declare.SHOWN, "--query", "-q"),
    count: int | None = own("K", COUNT_HELP, declare.SHOWN, "--next", min=1, max=MOST_NEXT),
    ids: str | None = own("IDS", IDS_HELP, declare.SHOWN),
) -> None:
    """The likeliest word after each layer, at every place: what a model would say if it stopped there.

    Each layer's stream goes through the model's own last norm and output (the logit lens). Beside it stand rank and
    probability of the word that the model says in the end; the last row is that answer. Without a model it is the
    bundled language model.

    Example: attn lens "The cat sat on the"
    """
    view = choose(view, (*CAN, "bars"), "attn lens", "lens", figures=("heatmap",))
    text, second = text_and_context(texts, context, "lens", settings)
    from attn_cli.pipeline.passes import look, open_passes, read_ids
    from attn_cli.render import window
    from attn_cli.render.views.lens import screen

    with open_passes([(text, second)], settings, needs_gap=False) as (read,):
        n, named = len(read.tokens), read_ids(ids, read)

        def found(most: int, words: int) -> Lens:
            places = range(n)[window(n, most, read.place)] if query is None else find_rows(query, read.tokens)
            with Progress("Reading") as progress:
                return look(read, places, count or words, named, progress)

        detailed = [read.place] if query is None else find_rows(query, read.tokens)
        result = Result(
            "lens",
            blocks=lambda view: screen(found(ON_SCREEN, WORDS[0]), detailed, view),
            record=lambda view: found(n, WORDS[1]).record(),
            rows=lambda view: found(n, WORDS[1]).rows(),
            drawing=lambda view: figure_of("heatmap.lens", found(DRAWN, WORDS[0]), notes=read.notes)(view),
            remarks=lambda: read.notes,
        )
        deliver(result, view)


FORMS = ("table", "jsonl", "page")
FORMATS_HELP = "How each token is shown.  [default: table on a terminal, else jsonl]"
TEMPERATURE = "Draw tokens, by scores divided by T: below 1 likelier ones, above 1 rarer ones."
TOP_P = "Draw among the likeliest tokens that have a probability of P together."
PENALTY = "Make tokens that stand in the text already less likely, with R above 1."
NO_REPEAT = "Write no N tokens that stand in the text already, in this order."


@takes(f"{READ} layer head knock_out knock_out_with seed", can=FORMS, help=FORMATS_HELP)
def generate(
    settings: Settings,
    view: View,
    texts: Texts = None,
    count: int = own("N", "Write at most N tokens.", declare.SHOWN, default=20, min=1, max=100_000),
    sample_temperature: float | None = own("T", TEMPERATURE, declare.ATTENTION, min=1e-6, max=1e6),
    top_k: int | None = own("K", "Draw among the K likeliest tokens.", declare.ATTENTION, min=1),
    top_p: float | None = own("P", TOP_P, declare.ATTENTION, min=1e-6, max=1),
    no_repeat: int | None = own("N", NO_REPEAT, declare.ATTENTION, min=2),
    repetition_penalty: float | None = own("R", PENALTY, declare.ATTENTION, min=1e-3, max=1e3),
    stop: list[str] | None = own("TEXT", "Stop when this is written. Repeatable.", declare.SHOWN),
    runners_up: int = own(
        "K", "Name the K likeliest other tokens.", declare.SHOWN, default=3, min=0, max=MOST_NEXT
    ),
) -> None:
    """A model writes on: each token with its probability, the runners-up, and where the shown head looked for it.

    It takes the likeliest token each time, or draws one: with --sample-temperature, --top-k or --top-p. A model of
    an encoder and a decoder reads the text, and writes its own. Without a model it is the bundled language model.

    Example: attn generate "The cat sat on the" --count 9
    """
    said = "--stop is empty, and so it is in any text."
    refuse("" in (stop or ()), said, "Give the text to stop at.", "--stop")
    view = choose(in_a_pipe(view, "jsonl"), FORMS, "attn generate")
    text = one_text(texts, "generate", settings)
    if not texts or [*texts] == ["-"]:  # a file's last line ends, its text goes on
        text = text.removesuffix("\n").removesuffix("\r")
    from attn_cli.pipeline import for_page, generate as of_model
    from attn_cli.render.views.lens import written

    sampling = of_model.Sampling(
        sample_temperature, top_k, top_p, settings.seed, no_repeat, repetition_penalty
    )
    terminal = view.terminal()
    with signals.raised(), of_model.open_writer(text, settings) as writer:
        for note in writer.notes:
            console.say(f"attn: {note}")
        steps = of_model.generate(writer, sampling, count, [*map(as_utf8, stop or ())], runners_up)
        lines = (json_text.dumps(step.record(), True, not terminal.unicode) for step in steps)
        is_done = stream({"jsonl": lines, "table": written(writer, sampling, steps, terminal)}, view)
        if not is_done and (found := list(steps)):
            result = Result(
                texts={"table": lambda terminal: "".join(written(writer, sampling, found, terminal))},
                records=[step.record() for step in found],
                page=lambda: for_page.page_of_writing(writer, found, settings),
            )
            deliver(result, view)
    if signals.received:
        raise KeyboardInterrupt
