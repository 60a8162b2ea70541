"""attn self, masked, cross, explain, page: attention of a text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Literal

from attn_cli.cli.deliver import choose, deliver, settings_for
from attn_cli.cli.options import Context, Pause, Texts, argument, own, takes
from attn_cli.cli.read_text import attention_progress, one_text, text_and_context, two_texts
from attn_cli.errors import as_utf8, did_you_mean, refuse, visible
from attn_cli.io.types import replace
from attn_cli.render.result import OF_BLOCKS, OF_TRACE, Record, Result, keys_in, needs_weights, trace_result
from attn_cli.render.walk import chosen_steps
from attn_cli.settings import ALL, WEIGHT, Settings, View, declare

if TYPE_CHECKING:
    from attn_cli.trace import Trace

MOST_WORDS = 100_000  # that a page carries
Part = Literal["mask"] | None
MASK_HELP = "Show the mask itself: in words, as frameworks write it, and what it does."
SHOW = own("", MASK_HELP, declare.SHOWN, "--show")
CROSS_HELP = "Queries come from TEXT, keys and values from CONTEXT; - is standard input."
TwoTexts = Annotated[list[str] | None, argument("[TEXT] CONTEXT", CROSS_HELP)]
WORDS_HELP = "Carry the N commonest words, so that another sentence can be typed."
EXACT_HELP = (
    "Store these heads of a large page at full precision: of every layer (3, subject), or LAYER/HEAD (5/11)."
)
SWAP_HELP = "What changes when a word is replaced, side by side; may be given again."


def self_(settings: Settings, view: View, texts: Texts = None, part: Part = SHOW) -> None:
    """Self-attention: every word of a text looks at every word.

    Queries, keys and values all come from the same text.

    Example: attn self "The cat sat on the mat"
    """
    _attend("self", texts, part, settings, view)


def masked(settings: Settings, view: View, texts: Texts = None, part: Part = SHOW) -> None:
    """Masked self-attention: each word attends only to itself and to earlier words.

    With --show mask, the mask in words, as each framework writes it, and what it does to the numbers.

    Example: attn masked "The cat sat on the mat"
    """
    _attend("masked", texts, part, settings, view)


def cross(settings: Settings, view: View, texts: TwoTexts = None, part: Part = SHOW) -> None:
    """Cross-attention: the words of one text attend to the words of another.

    Queries come from TEXT, keys and values from CONTEXT. With one argument, it is CONTEXT and TEXT is standard input.

    Example: attn cross "she" "likes coffee"
    """
    _attend("cross", texts, part, settings, view)


def explain(
    settings: Settings,
    view: View,
    texts: Texts = None,
    context: Context = None,
    only: str | None = own("STEPS", "Only these steps, such as scores,weights.", declare.SHOWN),
    start: str | None = own("STEP", "From this step on, such as softmax.", declare.SHOWN, "--from"),
    swap: list[str] | None = own("OLD=NEW", SWAP_HELP, declare.SHOWN),
    pause: Pause = False,
) -> None:
    """One row worked by hand, why it came out that way, and what each step is for.

    The row is that of a pronoun where it is clear what it stands for, else of the main verb, if there is one;
    -q takes any. --versus asks why the row does not look at another word. --steps (or --only, --from) walks
    through every matrix.

    Example: attn explain "The quick brown fox jumped over the lazy dog" -q jumped
    """
    _refuse_norms(settings, "attn explain")
    if swap:
        _swap(texts, context, swap, {"--only": only, "--from": start, "--pause": pause}, settings, view)
        return
    parts = chosen_steps(only, start)
    alone = "--only" if only is not None else "--from" if parts.only else ""
    can = OF_BLOCKS if alone else {*OF_TRACE} - {"drawing"} if pause else OF_TRACE
    view = choose(view, can, "--pause" if pause else alone or "explain")
    settings = settings_for(settings, view)
    text, second = text_and_context(texts, context, "explain", settings)
    import numpy  # noqa: F401 - see _attend

    from attn_cli.pipeline.story import trace_explained

    kind = "cross" if second is not None else settings.kind_of_text
    keys = keys_in(view, kind)
    # Nothing else takes as long.
    name_outputs = view.figure is None and (keys is None or "output_words" in keys)
    with attention_progress(settings.embedding) as progress:
        trace = trace_explained(kind, text, second, settings, progress, name_outputs)
    read = [text] if second is None else [text, second]
    [trace] = _verified([trace], read, settings, view)
    deliver(trace_result(trace, view, parts, read), view, pause)


def _swap(
    texts: Texts, context: Context, written: list[str], others: Record, settings: Settings, view: View
) -> None:
    view = choose(view, {"blocks", "bars", "record", "rows"}, "--swap", "compare")
    for option, value in (others | {"--versus": settings.versus}).items():
        refuse(value, f"--swap has a screen of its own, without {option}.", f"Leave out {option}.", option)
    text, second = text_and_context(texts, context, "explain", settings)
    import numpy  # noqa: F401 - see _attend

    from attn_cli.render.views import comparison, swap as views
    from attn_cli.teach.swap import parse_swaps, swap

    swaps = parse_swaps([as_utf8(one) for one in written])
    with attention_progress(settings.embedding) as progress:
        kind = "cross" if second is not None else settings.kind_of_text
        found = swap(kind, text, second, settings, swaps, progress)
    result = Result(
        "compare",
        lambda view: views.swap_screen(found, view),
        lambda view: views.swap_record(found, view.steps),
        rows=lambda view: views.swap_rows(found),
        remarks=lambda: comparison.talk_of(found, views.summary_of(found)),
    )
    deliver(result, view)


def _attend(kind: str, texts: list[str] | None, part: str | None, settings: Settings, view: View) -> None:
    if part is None:
        view = choose(view, OF_TRACE)
    else:
        view = choose(view, {*OF_BLOCKS, "bars"}, f"--show {part}")
        _refuse_norms(settings, f"--show {part}")
        if settings.next is None and settings.next_at != ALL:
            settings = replace(settings, next=0)  # the mask alone is shown
    settings = settings_for(settings, view)
    read = two_texts(texts or [], settings) if kind == "cross" else [one_text(texts, kind, settings)]
    # Deep in other imports, a call may need a new chunk of Python's stack, and return it, thousands of times: 10 ms.
    import numpy  # noqa: F401

    from attn_cli.pipeline.sources import text as of_text

    with attention_progress(settings.embedding) as progress:
        compute = getattr(of_text, f"trace_{kind}")
        trace = compute(*read, settings, progress, keep_weights=needs_weights(view, kind))
    [trace] = _verified([trace], read, settings, view)
    if part is None:
        deliver(trace_result(trace, view, texts=read), view)
        return
    from attn_cli.render.views.mask import mask_lab, mask_views

    def record(view: View) -> Record:
        return trace.to_dict(view.steps) | {"mask_views": mask_views(trace)}

    deliver(Result(trace.kind, lambda view: mask_lab(trace, view), record), view)


def _refuse_norms(settings: Settings, what: str) -> None:
    said = f"{what} is about weights, not --measure {settings.measure}."
    hint = f"Try attn self TEXT --measure {settings.measure}."
    refuse(settings.measure != WEIGHT, said, hint, "--measure")


def _verified(
    traces: Iterable[Trace], read: Sequence[str], settings: Settings, view: View
) -> Iterable[Trace]:
    """Return the traces, with a note on what --verified found of the model on these texts; without it, as they are."""
    if not view.verified:
        return traces
    refuse(settings.model is None, "--verified requires --model.", option="--verified")
    hint = "attn verify reads single texts."
    refuse(settings.pair is not None, "--verified does not apply to --pair.", hint, "--verified")
    from attn_cli.pipeline.verify import verify
    from attn_cli.render.views.verify import sentence

    said = sentence(verify(str(settings.model), read, replace(settings, knock_out=())))
    return (replace(trace, notes=(*trace.notes, said)) for trace in traces)


@takes("TOKENS VECTORS model MODEL pair COMPUTED PLACED query measure output verified")
def page(
    settings: Settings,
    view: View,
    texts: Texts = None,
    context: Context = None,
    words: int = own("N", WORDS_HELP, declare.SHOWN, default=3000),
    exact: str | None = own("HEADS", EXACT_HELP, declare.SHOWN),
) -> None:
    """Interactive page: the matrix, each cell's arithmetic, links, the steps, and controls that recompute everything.

    The page is one file: it opens with a double click, loads nothing and sends nothing.

    Example: attn page "The quick brown fox jumped over the lazy dog" -o fox.html
    """
    view = choose(replace(view, format="page"), {"page"})
    hint = f"Give a number from 0 to {MOST_WORDS:,}."
    refuse(not 0 <= words <= MOST_WORDS, f"--words cannot be {words}.", hint, "--words")
    text, second = text_and_context(texts, context, "page", settings)
    kind = "cross" if second is not None else settings.kind_of_text
    from attn_cli.pipeline.for_page import page_of

    with attention_progress(settings.embedding) as progress:
        found = page_of(kind, text, second, settings, words, progress)
    layers = _verified(found.layers, [text] if second is None else [text, second], settings, view)
    if exact is not None:
        heads = tuple(name.strip() for name in exact.split(","))
        layers, found = _with_heads(layers, heads), found._replace(exact=heads)
    deliver(Result(page=lambda: found._replace(layers=layers)), view)


def _with_heads(traces: Iterable[Trace], wanted: Sequence[str]) -> Iterator[Trace]:
    """Yield the traces; UsageError after the last for a wanted head, NAME or LAYER/NAME, that none of them has."""
    met = set[str]()
    for trace in traces:
        layer = trace.projection.layer or 0
        met.update(name for head in trace.heads for name in (head.name, f"{layer}/{head.name}"))
        yield trace
    for name in wanted:
        hint = f"{did_you_mean(name, sorted(met))}Name a head, or LAYER/HEAD."
        refuse(name not in met, f"There is no head {visible(name[:60])!r}.", hint, "--exact")
