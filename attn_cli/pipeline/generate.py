"""A model writes on: token after token, each with its probability, the runners-up, and where a head looked for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

import numpy as np

from attn_cli.core.attention import softmax
from attn_cli.io.array_types import Array
from attn_cli.models.checkpoints.reader import check_finite
from attn_cli.pipeline.next_words import likeliest
from attn_cli.pipeline.record import Attended
from attn_cli.settings.settings import Settings
from attn_cli.trace.computation import NextWord

# Each word's score (V,), and the last row of the shown head: its keys and weights
Looked = tuple[Array, tuple[str, ...], Array]
ENDS = ("end", "stop", "count", "length")  # why a token is the last one


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
    first: int | None = None  # the token that is written first, where the model's files say it
    most: int | None = None  # how many tokens it can write, where it has places for so many only
    notes: tuple[str, ...] = ()


class Sampling(NamedTuple):
    """How a token is drawn; where all but the seed are None, it is the likeliest."""

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    seed: int = 0

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
        chances: Array = shares / shares.sum()
        return chances

    def said(self) -> str:
        """Return a line on how tokens are drawn; nothing where the likeliest is taken."""
        named = zip(("temperature", "top-k", "top-p"), self, strict=False)
        told = [f"{name} {value}" for name, value in named if value is not None]
        return f"drawn: {', '.join(told)}, seed {self.seed}\n" * bool(told)

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
            shares, allowed = softmax(logits), logits.copy()
            allowed[list(writer.never)] = -np.inf
            id_, chosen, chance = sampling.choose(allowed, random)
            if number == 0 and writer.first is not None:
                id_, chosen, chance = writer.first, "first", None
            written.append(id_)
            best = likeliest(softmax(allowed), runners_up + 1)
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
