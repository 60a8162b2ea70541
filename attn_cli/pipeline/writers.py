"""The models that write on: a pretrained one, whose keys and values are kept, and the bundled language model."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from attn_cli.errors import InputError, UsageError
from attn_cli.inputs.record import read_record
from attn_cli.io.array_types import Array
from attn_cli.models.checkpoints.open_model import OpenModel, open_model
from attn_cli.models.checkpoints.reader import Reader
from attn_cli.models.checkpoints.run import Run, texts
from attn_cli.models.encoder import UNKNOWN, causal, matrix_of, weights_of
from attn_cli.pipeline.embed import open_shared
from attn_cli.pipeline.generate import Looked, Writer
from attn_cli.pipeline.inputs import shown_head, wanted_layer
from attn_cli.pipeline.knock_out import cut_of_model, cut_of_stack, each_once, knock_out_notes
from attn_cli.pipeline.next_words import settings_for
from attn_cli.pipeline.record import Attended
from attn_cli.pipeline.sources.checkpoint import Reading
from attn_cli.pipeline.sources.checkpoint_text import Tokens, last_word, side_of, tokens_of, unknown_words
from attn_cli.pipeline.sources.text import layers_of_text, read_inputs
from attn_cli.settings.settings import ALL, DEFAULTS, MEAN, ROLLOUT, Settings
from attn_cli.settings.validate import beside_model, settings_of
from attn_cli.vectors.table import as_text

FILES = ("generation_config.json", "config.json")
OF_TOKENS = (
    "eos_token_id", "decoder_start_token_id", "forced_bos_token_id", "bad_words_ids", "suppress_tokens",
)  # fmt: skip
ANY, MOST_UNFIT = 1 << 31, 5  # tokens; those that a note lists
JOINED = {*".,;:!?)", "n't"}  # words that no space stands before


@contextmanager
def open_writer(text: str, settings: Settings) -> Iterator[Writer]:
    """Give the model of these settings, which has read the text; raise UsageError for one that does not write."""
    if settings.layer in (ALL, MEAN) or settings.head in (ALL, ROLLOUT):
        raise UsageError("attn generate shows one head of one layer.", "Try --head mean.", "--head")
    if settings.model is not None and settings.projection is not None:
        raise beside_model("projection")
    if settings.model is None:
        projection = settings.projection or DEFAULTS["masked"].projection  # whatever head is asked for
        yield _language(text, settings_of("masked", replace(settings, projection=projection)))
    else:
        with open_model(settings.model) as model:
            yield _pretrained(model, text, settings)


def _pretrained(model: OpenModel, text: str, settings: Settings) -> Writer:
    """Return the writer of a pretrained model: of an encoder and a decoder, the encoder has read the text."""
    about, encoder, (said, notes) = model.checkpoint.model, model.encoder, _rules(model)
    has_two, source = len(about.stacks) == 2, tokens_of(encoder, text, settings)
    side, asked = side_of(about, *(("cross", "") if has_two else ("masked", None)))
    start = min(said["decoder_start_token_id"], default=about.start)
    ids = source.ids[: last_word(source) + 1]  # what closes a text that goes on is left out
    ids = (start,) if has_two else ids

    def run_over(ids: Sequence[int], keeps: bool = False) -> Run:
        both = (source.ids, ids) if has_two else (ids,)
        return model.checkpoint.run(*(texts([one]) for one in both), keeps=keeps, cut=cut)

    stack = about.stacks[side]
    cut = cut_of_model(settings, model, side, asked)
    run = run_over(ids, keeps=True)
    if not run.has_head():
        raise InputError(f"{model.name} has no language-model head in its files: it writes no words.")
    places = Reader(model.checkpoint.weights, stack).places()
    head = shown_head(settings.head, tuple(map(str, range(stack.heads))))
    layer = wanted_layer(settings, len(stack.layers), model.name)

    def look(written: Sequence[int]) -> Looked:
        nonlocal run
        if written and cut is not None and cut.with_mean:  # of those before, too
            run = run_over([*ids, *written], keeps=True)
        elif written:
            run.read_on([*ids, *written])
        row, *_ = [
            one.attended.weights[0, :, -1].astype(np.float64)
            for one in run.steps()
            if (one.side, one.kind, one.layer) == (side, asked, layer)
        ]
        keys = source.spelled if has_two else tuple(map(encoder.token, (*ids, *written)))
        logits = run.logits(-1)[0, 0].astype(np.float64)
        return logits, keys, row.mean(axis=0) if head == MEAN else row[int(head)]

    def layers(written: Sequence[int], settings: Settings) -> Iterator[Attended]:
        every = (*ids, *written)
        read = Tokens(every, tuple(map(encoder.token, every)), (False,) * len(every))
        key = source if has_two else read
        return Reading(run_over(every), side, asked, read, key, model).attended(settings)

    return Writer(
        model.name, "" if has_two else text, (asked, layer, head), look, layers, encoder.text,
        lambda written: encoder.text(*written) if written else "", said["eos_token_id"],
        said["bad_words_ids"] | said["suppress_tokens"], first=min(said["forced_bos_token_id"], default=None),
        most=None if places is None else places - len(ids) + 1,
        notes=(*about.notes, *notes, *unknown_words((source,), model.name), *knock_out_notes(settings)),
    )  # fmt: skip


def _rules(model: OpenModel) -> tuple[dict[str, frozenset[int]], list[str]]:
    """Return the tokens that each key of OF_TOKENS names in a model's files, and a note on those that it has not.

    Raises InputError where no token is left to write.
    """
    weights = model.checkpoint.weights
    table = weights.find(*model.checkpoint.model.logits.tables)  # without one the model is refused later
    words = range(ANY if table is None else weights.stored(table, None, None).entry.shape[0])
    folder, gguf = weights.folder, model.checkpoint.gguf
    name = next((name for name in FILES if os.path.exists(os.path.join(folder, name))), FILES[-1])
    ends = [gguf and gguf.metadata.get(f"tokenizer.ggml.{one}_token_id") for one in ("eos", "eot", "eom")]
    said = {"eos_token_id": ends} if gguf else read_record(os.path.join(folder, name))

    def tokens(key: str) -> frozenset[int]:  # of words that are not to be written, those of one token
        several = told if isinstance(told := said.get(key), list) else [told]
        single = (one[0] if isinstance(one, list) and len(one) == 1 else one for one in several)
        return frozenset(one for one in single if type(one) is int)

    named = {key: tokens(key) for key in OF_TOKENS}
    found = {key: frozenset(one for one in ids if one in words) for key, ids in named.items()}
    if len(found["bad_words_ids"] | found["suppress_tokens"]) == len(words):
        raise InputError(f"{model.name} has no token to write: {name} forbids all {len(words):,}.")
    unfit = sorted({one for key in OF_TOKENS for one in named[key] - found[key]})
    listed = ", ".join(map(str, unfit[:MOST_UNFIT])) + ", ..." * (len(unfit) > MOST_UNFIT)
    has = f"it has 0 to {len(words) - 1:,}"
    note = f"The files of {model.name} name tokens that it lacks, {listed} ({has}): they are passed over."
    return found, [note] if unfit else []


def _language(text: str, settings: Settings) -> Writer:
    """Return the writer of the bundled language model, or of another of its kind; it reads all anew for each word."""
    shared = open_shared(settings)
    stack = shared.stack
    if stack is None or stack.words is None:
        said = f"-p {settings.projection} writes no words."
        raise UsageError(said, "Leave out -p, or give a model with -m.", "--projection")
    settings, notes = settings_for("masked", each_once(settings, stack), stack, False)
    layer, scored = wanted_layer(settings, stack.layers, stack.name), stack.words
    shown = shown_head(settings.head, stack.head_names(layer))
    cut = cut_of_stack(settings, stack)
    heads = [one for one in stack.attention(layer).heads if shown in (one.name, MEAN)]
    inputs = read_inputs(text, None, settings, shared)
    table = inputs.table
    assert table is not None
    words = [*(as_text(word) for block in table.word_blocks() for word in block), UNKNOWN]

    def all_tokens(written: Sequence[int]) -> tuple[str, ...]:
        return (*inputs.query.tokens, *(words[n] for n in written))

    def look(written: Sequence[int]) -> Looked:
        tokens = all_tokens(written)
        X, mask = read_inputs(tokens, None, settings, shared).query.X, causal(len(tokens))
        assert X is not None
        x = stack.input(X, layer, mask, cut=cut)
        row: Array = np.mean([weights_of(head, x, mask)[-1] for head in heads], axis=0)
        logits = scored.scores(stack.last_rows(X, mask, cut=cut)[-1:], matrix_of(table))[0]
        return logits.astype(np.float64), tokens, row

    def layers(written: Sequence[int], settings: Settings) -> Iterator[Attended]:
        settings = settings_of("masked", settings)
        return layers_of_text("masked", all_tokens(written), None, settings, None, shared)

    def joined(written: Sequence[int]) -> str:
        spelled = (words[n] for n in written)
        return "".join(word if word in JOINED or word[:1] in "'’" else f" {word}" for word in spelled)

    return Writer(
        stack.name, text, ("masked", layer, shown), look, layers, words.__getitem__, joined,
        never=frozenset({len(words) - 1}), notes=(*notes, *inputs.notes, *knock_out_notes(settings)),
    )  # fmt: skip
