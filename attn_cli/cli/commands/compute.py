"""attn compute, show, example, lookup: attention of matrices, ready weights, worked examples, a dictionary."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import typer

from attn_cli.cli import origins, read_text
from attn_cli.cli.deliver import choose, deliver, settings_for
from attn_cli.cli.options import Pause, argument, own, takes
from attn_cli.errors import FileError, InputError, UsageError, as_utf8, did_you_mean, refuse, visible
from attn_cli.io.progress import Progress
from attn_cli.io.types import replace
from attn_cli.render.result import OF_RECORD, OF_TRACE, Result, record_result, trace_result
from attn_cli.settings import Settings, View, check_shaping, declare
from attn_cli.teach.examples import EXAMPLES, Example, load

if TYPE_CHECKING:
    from attn_cli.inputs.matrices import Given
    from attn_cli.io.terminal import Terminal
    from attn_cli.pipeline.for_page import Page
    from attn_cli.render import Block
    from attn_cli.teach.soft_dictionary import DictionaryExample, Lookup
    from attn_cli.trace import Trace

LABELS = ("tokens", "context_tokens")
MATRICES_HELP = (
    "JSON, .npz or .safetensors with Q, K, V, or X, W_q, W_k, W_v; or one CSV a matrix, named after it "
    "(Q.csv K.csv V.csv). - is JSON on standard input."
)


@takes("seed projection COMPUTED PLACED measure ROWS SCREEN tidy FIGURE")
def compute(
    context: typer.Context,
    settings: Settings,
    view: View,
    files: list[str] | None = argument("FILE...", MATRICES_HELP, default=None),
    batch: int | None = own("N", "Which item of a batch, from 0.", declare.INPUT),
) -> None:
    """Attention from given matrices.

    A file holds Q, K and V, or X with W_q, W_k and W_v; and optionally b_q, b_k, b_v, W_o, b_o, context
    (for cross-attention), mask, heads, kv_heads, layout, score, tokens and context_tokens. Q, K and V may be
    (heads, n, d) or (batch, heads, n, d), X (batch, n, d). in_proj_weight and the like are read as in PyTorch.

    Example: attn compute matrices.json --score dot
    """
    view = choose(view, OF_TRACE)
    is_piped = sys.stdin is not None and not sys.stdin.isatty()
    given = _given(files or (["-"] if is_piped else []), batch)
    settings, given = origins.prefer_given(context, settings, given)
    settings = settings_for(settings, view)
    from attn_cli.pipeline.sources.matrices import trace_matrices  # loads NumPy

    with Progress("Attending") as progress:
        trace = trace_matrices("compute", given, settings, progress)
    deliver(trace_result(trace, view), view)


def _given(files: list[str], batch: int | None) -> Given:
    refuse(not files, "There is no file.", "Try: attn compute matrices.json", "FILE")
    from attn_cli.inputs.matrices import given_from
    from attn_cli.inputs.record import json_of, read_record

    together: dict[str, object] = {}
    for file in files:
        if file == "-" and sys.stdin is None:
            raise FileError("Standard input is closed.", "Give a file.")
        record = json_of(read_text.piped_in(), "standard input") if file == "-" else read_record(file)
        if not isinstance(record, dict):
            raise InputError("Standard input is not a JSON object of named matrices.")
        for key in sorted(together.keys() & record.keys()):
            if key in LABELS and together[key] == record[key]:
                continue  # K and V may bear the same labels
            conflict = "is not what was given before" if key in LABELS else "was given before"
            raise InputError(f"{visible(file)}: {visible(key)} {conflict}.", "Give it once.")
        together |= record
    name = "standard input" if files == ["-"] else ", ".join(map(visible, files))
    return given_from(together, name, batch)


FILE_HELP = "JSON or CSV (also attn's own), .npy, .npz or .safetensors; - is standard input."
TOKENS_HELP = "The tokens, between spaces, as a JSON list, or in a file (a JSON list, or one a line)."
KEYS_HELP = "Those of the keys, where they differ from the queries'."


# The weights are given: no setting of how they are computed.
@takes("join_pieces hide_special renormalize layer head mask mask_true ROWS threads SCREEN tidy FIGURE")
def show_(
    settings: Settings,
    view: View,
    file: str | None = argument("FILE", FILE_HELP, default=None),
    tokens: str | None = own("TOKENS|FILE", TOKENS_HELP, declare.TEXT),
    context_tokens: str | None = own("TOKENS|FILE", KEYS_HELP, declare.TEXT),
    array: str | None = own("NAME", "Which array, where a file holds several.", declare.INPUT),
    batch: int | None = own("N", "Which text of a batch, from 0.", declare.INPUT),
) -> None:
    """Weights from elsewhere: a model's attention, or an earlier attn JSON.

    An array is (n_q, n_k), (heads, n_q, n_k) or (layers, heads, n_q, n_k), as transformers' output_attentions
    stacked; with five axes the second is the batch; with --batch, four axes are (batch, heads, n_q, n_k). Nothing
    is computed again. If neither --mask nor the file gives the mask, it is inferred from exact zeros: everything
    above the diagonal, or padding.

    Example: attn self "The cat sat" -f json --steps | attn show -
    """
    view = choose(view, OF_TRACE)
    check_shaping(settings)
    settings = settings_for(settings, view)
    saved = read_text.labelled_weights(file, "show", array, batch, tokens, context_tokens)
    from attn_cli.pipeline.sources.weights import trace_weights

    def page() -> Page:
        from attn_cli.pipeline.for_page import page_of_weights  # only for a page

        return page_of_weights(saved, settings)

    deliver(replace(trace_result(trace_weights(saved, settings), view), page=page), view)


@takes("TOKENS VECTORS projection layer COMPUTED PLACED ROWS SCREEN tidy FIGURE")
def example(
    context: typer.Context,
    settings: Settings,
    view: View,
    name: str | None = argument("[NAME]", "Which one; without it, they are listed.", *EXAMPLES, default=None),
    pause: Pause = False,
) -> None:
    """A worked example from a tutorial.

    NAME is day1, coffee, coffee-notebook, manchester, a2 or dictionary. Any option of attn self recomputes the
    same inputs with that setting.

    Example: attn example coffee --mask causal
    """
    if name is None:
        _list(view, pause)
        return
    if name not in EXAMPLES:
        hint = f"{did_you_mean(name, EXAMPLES)}Examples are {', '.join(EXAMPLES)}."
        raise UsageError(f"There is no example {visible(name)!r}.", hint, "NAME")
    chosen = load(name)
    figures = {"drawing"} if chosen.acts is None and not pause else set()
    what = "--pause" if pause else f"The example {name}"
    view = choose(view, {*OF_TRACE} - {"drawing"} | figures, what, "example")
    if chosen.acts is not None:
        read_text.prepare_index(settings.embedding, "random, ")
        from attn_cli.render.views.soft_dictionary import story
        from attn_cli.teach.soft_dictionary import dictionary_example

        acts = chosen.acts
        one = dictionary_example(acts, settings_for(settings, view))
        deliver(_result(one, view, lambda view: story(one, acts, view)), view, pause)
        return
    if chosen.given is not None:
        settings, given = origins.prefer_given(context, settings, chosen.given)
        chosen = replace(chosen, given=given)
    deliver(trace_result(_trace(chosen, settings_for(settings, view)), view), view, pause)


def _trace(chosen: Example, settings: Settings) -> Trace:
    from attn_cli.pipeline.sources import matrices, text

    given = chosen.given
    if given is None:
        return text.trace_text("example", chosen.text, None, chosen.with_defaults(settings))
    if settings.embedding is None:
        has_both = settings.projection is not None and given.get("Q") is not None
        refuse(has_both, f"{given.name} gives Q, K and V themselves.", "Leave out -p.", "--projection")
        return matrices.trace_matrices("example", given, settings)
    refuse(given.tokens is None, f"{given.name} has no words to look up.", "Leave out -e.", "--embedding")
    settings = replace(settings, tokenizer="whitespace", score=settings.score or given.score)
    return text.trace_text("example", " ".join(given.tokens or ()), None, settings)


def _list(view: View, pause: bool) -> None:
    view = choose(view, OF_RECORD, "The list of examples", "examples")
    refuse(pause, "--pause goes with one example.", f"Name one: {', '.join(EXAMPLES)}.", "--pause")
    examples = [{"name": name, "about": load(name).about} for name in EXAMPLES]

    def table(terminal: Terminal) -> str:
        from attn_cli.render.screen.text import wrapped

        texts = (f"{one['name']:<16} {one['about']}" for one in examples)
        return terminal.paint(line for text in texts for line in wrapped(text, terminal.width, hanging=17))

    deliver(record_result("examples", {"examples": examples}, table), view)


WORDS_HELP = "What to look for, and the dictionary; - as QUERY is standard input."
OWN_HELP = "W_q and W_k: identity, random, or a file.  [default: identity]"
OWN_VALUES = ("identity", "random")
OWN_PROJECTION = own("NAME|FILE", OWN_HELP, declare.ATTENTION, "--projection", "-p", values=OWN_VALUES)


# A dictionary's keys have no order, and there is one query.
@takes("TOKENS VECTORS COMPUTED versus top dtype SCREEN tidy")
def lookup(
    settings: Settings,
    view: View,
    words: list[str] | None = argument("[QUERY] KEY=VALUE...", WORDS_HELP, default=None),
    source: str | None = own(
        "FILE", "More pairs, from a JSON object of keys and values.", declare.INPUT, "--from"
    ),
    own_projection: str | None = OWN_PROJECTION,
) -> None:
    """Look up a query in three ways: exact match, nearest key, and attention (a soft lookup).

    The value of the key as written; the value of the nearest key; a share of every value, which is attention.
    A key of several words is the mean of their vectors. Where all values are numbers, they are weighted.

    Example: attn lookup colour brand=Porche model=Taycan color=black
    """
    view = choose(view, {*OF_TRACE} - {"drawing"}, "lookup", "lookup")
    words = [as_utf8(word) for word in words or []]
    if not words and source is None:
        raise read_text.NoText("lookup")
    from attn_cli.inputs.record import dictionary, pairs_from, pairs_in, read_record  # loads NumPy

    is_named = bool(words) and "=" not in words[0]
    query, arguments = (words[0], words[1:]) if is_named else (None, words)
    pairs = pairs_from(arguments)
    if source is not None:
        pairs = [*pairs_in(read_record(source), visible(source)), *pairs]
    whole = dictionary(pairs)
    text = read_text.read_text(query, "lookup", settings).strip()
    if not text:
        raise read_text.NoText("lookup")
    from attn_cli.teach.soft_dictionary import look_up  # loaded once there is something to compute

    settings = settings_for(replace(settings, projection=own_projection), view)
    with read_text.attention_progress(settings.embedding, "Looking") as progress:
        found = look_up(text, whole, settings, progress)
    from attn_cli.render.views.soft_dictionary import lookup as screen

    deliver(_result(found, view, lambda view: screen(found, view)), view)


def _result(
    found: Lookup | DictionaryExample, view: View, blocks: Callable[[View], Iterable[Block]]
) -> Result:
    of_trace = trace_result(found.trace, view)
    return replace(of_trace, blocks=blocks, record=lambda view: found.to_dict(view.steps))
