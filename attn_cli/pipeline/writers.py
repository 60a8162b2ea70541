"""The models that write on: a pretrained one, whose keys and values are kept, and the bundled language model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import numpy as np

from attn_cli.errors import InputError, UsageError
from attn_cli.models.encoder import UNKNOWN, causal, matrix_of, weights_of
from attn_cli.pipeline.embed import open_shared
from attn_cli.pipeline.generate import Looked, Writer
from attn_cli.pipeline.inputs import shown_head, wanted_layer
from attn_cli.pipeline.next_words import settings_for
from attn_cli.pipeline.sources.text import read_inputs
from attn_cli.settings.settings import ALL, MEAN, Settings
from attn_cli.settings.validate import settings_of
from attn_cli.vectors.table import as_text

if TYPE_CHECKING:
    from attn_cli.io.array_types import Array
    from attn_cli.models.checkpoints.open_model import OpenModel
    from attn_cli.models.checkpoints.run import Run

JOINED = {*".,;:!?)", "n't"}  # words that no space stands before


@contextmanager
def open_writer(text: str, kind: str | None, settings: Settings) -> Iterator[Writer]:
    """Give the model of these settings, which has read the text.

    Raises UsageError where the model does not write, and for a layer or a head that it does not have.
    """
    if settings.layer in (ALL, MEAN) or settings.head == ALL:
        raise UsageError("attn generate shows one head of one layer.", "Try --head mean.", "--head")
    if settings.model is None:
        if kind == "cross":
            raise UsageError("--kind cross requires --model, of an encoder and a decoder.", option="--kind")
        yield _language(text, settings_of("masked", settings))
        return
    from attn_cli.models.checkpoints.open_model import open_model  # only for a model on disk

    with open_model(settings.model) as model:
        writer, run = _pretrained(model, text, kind, settings)
        with closing(run):
            yield writer


def _pretrained(model: OpenModel, text: str, kind: str | None, settings: Settings) -> tuple[Writer, Run]:
    """Return the writer of a pretrained model: of an encoder and a decoder, the encoder has read the text."""
    from attn_cli.models.checkpoints.run import texts
    from attn_cli.pipeline.sources.checkpoint_text import last_word, side_of, tokens_of, unknown_words

    about, encoder = model.checkpoint.model, model.encoder
    said, notes = model.checkpoint.writing()
    has_two, source = len(about.stacks) == 2, tokens_of(encoder, text, settings)
    side, asked = side_of(about, kind or ("cross" if has_two else "masked"), "" if has_two else None)
    ids, target = source.ids[: last_word(source) + 1], None  # what closes a text that goes on is left out
    if has_two:
        ids = (min(said["decoder_start_token_id"], default=about.start),)
        target = texts([ids])
    run = model.checkpoint.run(texts([source.ids if has_two else ids]), target, keeps=True)
    if not run.has_head():
        raise InputError(f"{model.name} has no language-model head in its files: it writes no words.")
    stack, places = about.stacks[side], run.places()
    head = shown_head(settings.head, tuple(map(str, range(stack.heads))))
    layer = wanted_layer(settings, len(stack.layers), model.name)

    def look(written: Sequence[int]) -> Looked:
        if written:
            run.read_on([*ids, *written])
        row, *_ = [
            one.attended.weights[0, :, -1].astype(np.float64)
            for one in run.steps()
            if (one.side, one.kind, one.layer) == (side, asked, layer)
        ]
        keys = source.spelled if asked == "cross" else tuple(map(encoder.token, (*ids, *written)))
        logits = run.logits(-1)[0, 0].astype(np.float64)
        return logits, keys, row.mean(axis=0) if head == MEAN else row[int(head)]

    return Writer(
        model.name, "" if has_two else text, (asked, layer, head), look, encoder.text,
        lambda written: encoder.text(*written) if written else "", said["eos_token_id"],
        said["bad_words_ids"] | said["suppress_tokens"], first=min(said["forced_bos_token_id"], default=None),
        most=None if places is None else places - len(ids) + 1,
        notes=(*about.notes, *unknown_words((source,), model.name), *notes),
    ), run  # fmt: skip


def _language(text: str, settings: Settings) -> Writer:
    """Return the writer of the bundled language model, or of another of its kind; it reads all anew for each word."""
    shared = open_shared(settings)
    stack = shared.stack
    if stack is None or stack.words is None:
        said = f"-p {settings.projection} writes no words."
        raise UsageError(said, "Leave out -p, or give a model with -m.", "--projection")
    settings, notes = settings_for("masked", settings, stack, False)
    layer, scored = wanted_layer(settings, stack.layers, stack.name), stack.words
    shown = shown_head(settings.head, stack.head_names(layer))
    heads = [one for one in stack.attention(layer).heads if shown in (one.name, MEAN)]
    inputs = read_inputs(text, None, settings, shared)
    begun, table = inputs.query.tokens, inputs.table
    assert table is not None
    words = [*(as_text(word) for block in table.word_blocks() for word in block), UNKNOWN]

    def look(written: Sequence[int]) -> Looked:
        tokens = (*begun, *(words[n] for n in written))
        X, mask = read_inputs(tokens, None, settings, shared).query.X, causal(len(tokens))
        assert X is not None
        x = stack.input(X, layer, mask)
        row: Array = np.mean([weights_of(head, x, mask)[-1] for head in heads], axis=0)
        logits = scored.scores(stack.last_rows(X, mask)[-1:], matrix_of(table))[0]
        return logits.astype(np.float64), tokens, row

    def joined(written: Sequence[int]) -> str:
        spelled = (words[n] for n in written)
        return "".join(word if word in JOINED or word[:1] in "'’" else f" {word}" for word in spelled)

    unknown = len(words) - 1
    return Writer(
        stack.name, text, ("masked", layer, shown), look, words.__getitem__, joined, never=frozenset({unknown}),
        unknown=unknown, notes=(*notes, *inputs.notes),
    )  # fmt: skip
