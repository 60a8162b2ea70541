"""A model writes on: token after token, each with its probability, the runners-up, and where a head looked for it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

import numpy as np

from attn_cli.core.attention import softmax
from attn_cli.errors import InputError, UsageError
from attn_cli.inputs.record import read_record
from attn_cli.io.types import Array, NamedTuple, replace
from attn_cli.models.checkpoints.open_model import Encoded, OpenModel, open_model
from attn_cli.models.checkpoints.reader import Reader, check_finite
from attn_cli.models.checkpoints.run import Run, texts
from attn_cli.models.encoder import causal, weights_of
from attn_cli.pipeline import (
    cut_of_model,
    cut_of_stack,
    each_once,
    embed,
    knock_out_notes,
    next_words,
    passes,
    shown_head,
    wanted_layer,
)
from attn_cli.pipeline.record import Attended
from attn_cli.pipeline.sources import checkpoint, checkpoint_text
from attn_cli.pipeline.sources.text import layers_of_text, read_inputs
from attn_cli.settings import ALL, DEFAULTS, MEAN, ROLLOUT, Settings, beside_model, settings_of
from attn_cli.text.written import cased, in_writing
from attn_cli.trace import NextWord

# Each word's score (V,), and the last row of the shown head: its keys and weights
Looked = tuple[Array, tuple[str, ...], Array]
ENDS = ("end", "stop", "count", "length")  # why a token is the last one
FILES = ("generation_config.json", "config.json")
KEYS = ("eos_token_id", "decoder_start_token_id", "forced_bos_token_id", "bad_words_ids", "suppress_tokens")
ANY, MOST_UNFIT = 1 << 31, 5  # tokens; those that a note lists


class Writer(NamedTuple):
    """A model that has read a text and writes on."""

    name: str
    begun: str  # the text that it goes on with; nothing where it begins a text of its own
    shown: tuple[str, int, str]  # masked or cross, layer, head
    look: Callable[[Sequence[int]], Looked]  # once it has read these, which were written so far
    layers: Callable[[Sequence[int], Settings], Iterator[Attended]]  # of the text with these tokens
    word: Callable[[int], str]  # a token as text
    text: Callable[[Sequence[int]], str]  # what tokens add to the text
    ends: frozenset[int] = frozenset()  # tokens that end a text
    never: frozenset[int] = frozenset()  # tokens that are not written
    read: tuple[int, ...] = ()  # the tokens that it goes on from, -1 for a word that it cannot write
    first: int | None = None  # the token that is written first, where the model's files say it
    most: int | None = None  # how many tokens it can write, where it has places for so many only
    notes: tuple[str, ...] = ()


class Sampling(NamedTuple):
    """How a token is drawn; where all but the seed are None, it is the likeliest."""

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    seed: int = 0
    no_repeat: int | None = None
    repetition_penalty: float | None = None

    def chances(self, logits: Array) -> Array:
        """Return the probabilities (V,) that tokens are drawn with: by temperature, then top_k, then top_p.

        top_p keeps the likeliest tokens that have this probability together (Holtzman et al. 2020, section 3.1).

        >>> Sampling(top_k=3, top_p=0.7).chances(np.log([0.5, 0.3, 0.1, 0.1])).round(3).tolist()
        [0.625, 0.375, 0.0, 0.0]
        """
        scores = logits / (self.temperature or 1.0)
        if self.top_k is not None and self.top_k < len(scores):
            scores = np.where(scores < np.partition(scores, -self.top_k)[-self.top_k], -np.inf, scores)
        shares = softmax(scores)
        if self.top_p is not None:
            order = np.argsort(-shares, kind="stable")
            shares[order[int(np.searchsorted(np.cumsum(shares[order]), self.top_p)) + 1 :]] = 0
        return np.asarray(shares / shares.sum())

    def said(self) -> str:
        """Return a line on how tokens are drawn; nothing where the likeliest is taken."""
        named = zip(("temperature", "top-k", "top-p"), self, strict=False)
        told = [f"{name} {value}" for name, value in named if value is not None]
        once = f"no {self.no_repeat} tokens twice\n" * bool(self.no_repeat)
        less = f"repetition penalty {self.repetition_penalty}\n" * bool(self.repetition_penalty)
        return f"drawn: {', '.join(told)}, seed {self.seed}\n" * bool(told) + less + once

    def penalized(self, scores: Array, tokens: Sequence[int]) -> Array:
        """Return the scores (V,), those of `tokens` divided by the penalty; a score below 0 is multiplied by it.

        (Keskar et al. 2019, "CTRL", section 4.1, as transformers has it.)

        >>> Sampling(repetition_penalty=2).penalized(np.array([4.0, -1.0, 3.0]), [0, 1, 0]).tolist()
        [2.0, -2.0, 3.0]
        """
        penalty, found = self.repetition_penalty, scores.copy()
        if penalty is not None:
            written = [token for token in {*tokens} if 0 <= token < len(scores)]
            found[written] *= np.where(found[written] > 0, 1 / penalty, penalty)
        return found

    def repeating(self, tokens: Sequence[int]) -> list[int]:
        """Return the tokens that would end a run of no_repeat tokens which `tokens` have already.

        >>> Sampling(no_repeat=3).repeating([5, 6, 7, 5, 6, 8, 5, 6])
        [7, 8]
        """
        n = self.no_repeat
        if n is None:
            return []
        end = tokens[1 - n :]
        return [tokens[i + n - 1] for i in range(len(tokens) - n + 1) if tokens[i : i + n - 1] == end]

    def choose(self, logits: Array, random: np.random.Generator) -> tuple[int, str, float | None]:
        """Return a token, how it was chosen, and with which probability where it was drawn."""
        if self[:3] == (None, None, None):
            return int(logits.argmax()), "likeliest", None
        chances = self.chances(logits)
        id_ = int(random.choice(len(chances), p=chances))
        return id_, "drawn", float(chances[id_])


class Step(NamedTuple):
    """A token that a model wrote."""

    step: int
    told: NextWord  # with the model's own probability
    chosen: str  # likeliest, drawn, or first
    chance: float | None  # that it was drawn with
    runners_up: tuple[NextWord, ...]
    shown: tuple[str, int, str]  # masked or cross, layer, head
    key_tokens: tuple[str, ...]
    weights: Array  # (keys,)
    written: str  # so far
    stopped: str | None  # why it is the last one: end, stop, count or length

    def record(self) -> dict[str, object]:
        """Return the step as JSON has it."""
        step, told, chosen, chance, others, shown, keys, weights, written, stopped = self
        return {
            "schema": "attn/1", "kind": "generate", "step": step, **told._asdict(), "chosen": chosen, "chance": chance,
            "runners_up": [one._asdict() for one in others], "attention": shown[0], "layer": shown[1], "head": shown[2],
            "key_tokens": keys, "weights": weights.tolist(), "written": written, "stopped": stopped,
        }  # fmt: skip


def generate(
    writer: Writer, sampling: Sampling, count: int, stops: Sequence[str], runners_up: int
) -> Iterator[Step]:
    """Yield what the model writes until it ends its text, has written one of `stops`, or `count` tokens; or Ctrl-C."""
    random, written = np.random.default_rng(sampling.seed), list[int]()
    with suppress(KeyboardInterrupt):
        for number in range(count):
            logits, keys, weights = writer.look(written)
            check_finite(writer.name, logits)
            so_far = [*writer.read, *written]
            shares, allowed = softmax(logits), sampling.penalized(logits, so_far)
            allowed[list(writer.never)] = -np.inf
            again = sampling.repeating(so_far)
            if again and np.isfinite(np.delete(allowed, again)).any():
                allowed[again] = -np.inf
            id_, chosen, chance = sampling.choose(allowed, random)
            if number == 0 and writer.first is not None:
                id_, chosen, chance = writer.first, "first", None
            written.append(id_)
            best = next_words.likeliest(softmax(allowed), runners_up + 1)
            best = [n for n in best if n != id_ and n not in writer.never][:runners_up]
            named = id_, *best
            word, *others = (NextWord(writer.word(n), float(shares[n]), n, float(logits[n])) for n in named)
            text = writer.text([n for n in written if n not in writer.ends])
            is_stopped, done = any(stop in text for stop in stops), number + 1
            ends = id_ in writer.ends, is_stopped, done == count, done == writer.most
            stopped = next((name for name, is_true in zip(ENDS, ends, strict=True) if is_true), None)
            looked = writer.shown, keys, weights
            yield Step(number, word, chosen, chance, tuple(others), *looked, text, stopped)
            if stopped:
                return


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
    has_two, source = len(about.stacks) == 2, checkpoint_text.tokens_of(encoder, text, settings)
    side, asked = checkpoint_text.side_of(about, *(("cross", "") if has_two else ("masked", None)))
    start = min(said["decoder_start_token_id"], default=about.start)
    ids = source.ids[: checkpoint_text.last_word(source) + 1]  # what closes a text that goes on is left out
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
        asked_for = (one for one in run.steps() if (one.side, one.kind, one.layer) == (side, asked, layer))
        row, *_ = [one.attended.weights[0, :, -1].astype(np.float64) for one in asked_for]
        keys = source.tokens if has_two else tuple(map(encoder.token, (*ids, *written)))
        logits = run.logits(-1)[0, 0].astype(np.float64)
        return logits, keys, row.mean(axis=0) if head == MEAN else row[int(head)]

    def layers(written: Sequence[int], settings: Settings) -> Iterator[Attended]:
        every = (*ids, *written)
        read = Encoded(every, tuple(map(encoder.token, every)), (False,) * len(every), ())
        key = source if has_two else read
        return checkpoint.Reading(run_over(every), side, asked, read, key, model).attended(settings)

    unknown = checkpoint_text.unknown_words((source,), model.name)
    return Writer(
        model.name, "" if has_two else text, (asked, layer, head), look, layers, encoder.text,
        lambda written: encoder.text(*written) if written else "", said["eos_token_id"],
        said["bad_words_ids"] | said["suppress_tokens"], first=min(said["forced_bos_token_id"], default=None),
        most=None if places is None else places - len(ids) + 1,
        read=(*ids,), notes=(*about.notes, *notes, *unknown, *knock_out_notes(settings)),
    )  # fmt: skip


def _rules(model: OpenModel) -> tuple[dict[str, frozenset[int]], list[str]]:
    """Return the tokens that each key of KEYS names in a model's files, and a note on those that it has not."""
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

    named = {key: tokens(key) for key in KEYS}
    found = {key: frozenset(one for one in ids if one in words) for key, ids in named.items()}
    if len(found["bad_words_ids"] | found["suppress_tokens"]) == len(words):
        raise InputError(f"{model.name} has no token to write: {name} forbids all {len(words):,}.")
    unfit = sorted({one for key in KEYS for one in named[key] - found[key]})
    listed = ", ".join(map(str, unfit[:MOST_UNFIT])) + ", ..." * (len(unfit) > MOST_UNFIT)
    has = f"it has 0 to {len(words) - 1:,}"
    note = f"The files of {model.name} name tokens that it lacks, {listed} ({has}): they are passed over."
    return found, [note] if unfit else []


def _language(text: str, settings: Settings) -> Writer:
    """Return the writer of the bundled language model, or of another of its kind; it reads all anew for each word."""
    shared = embed.open_shared(settings)
    stack = shared.stack
    if stack is None or stack.words is None:
        said = f"-p {settings.projection} writes no words."
        raise UsageError(said, "Leave out -p, or give a model with -m.", "--projection")
    settings, _ = next_words.settings_for("masked", each_once(settings, stack), stack, False)
    layer = wanted_layer(settings, stack.layers, stack.name)
    shown = shown_head(settings.head, stack.head_names(layer))
    it = passes.LanguagePass(text, settings, shared)  # after what is wrong with the options
    words = [*map(it.word, range(it.vocabulary + 1))]
    cut = cut_of_stack(settings, stack)
    heads = [one for one in stack.attention(layer).heads if shown in (one.name, MEAN)]
    places = {word: n for n, word in enumerate(words)}
    read = tuple(places.get(word.lower(), -1) for word in it.tokens)

    def spelled(written: Sequence[int]) -> tuple[tuple[str, ...], str]:
        return in_writing(it.tokens, [cased(words[n], it.scored.case(n)) for n in written])

    def all_tokens(written: Sequence[int]) -> tuple[str, ...]:  # with the capitals that it learned from
        return (*it.tokens, *spelled(written)[0])

    def look(written: Sequence[int]) -> Looked:
        tokens = all_tokens(written)
        X, mask = read_inputs(tokens, None, settings, shared).query.X, causal(len(tokens))
        assert X is not None
        x = stack.input(X, layer, mask, cut=cut)
        row: Array = np.mean([weights_of(head, x, mask)[-1] for head in heads], axis=0)
        logits = it.scored.scores(stack.last_rows(X, mask, cut=cut)[-1:], it.vectors)[0]
        return logits.astype(np.float64), tokens, row

    def layers(written: Sequence[int], settings: Settings) -> Iterator[Attended]:
        settings = settings_of("masked", settings)
        return layers_of_text("masked", all_tokens(written), None, settings, None, shared)

    return Writer(
        stack.name, text, ("masked", layer, shown), look, layers, words.__getitem__,
        lambda written: spelled(written)[1], never=frozenset({len(words) - 1}), read=read,
        notes=(*it.notes, *knock_out_notes(settings)),
    )  # fmt: skip
