"""Weights that were made of others and have no scores: those between words, and the rollout through layers."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from attn_cli.core.masks import Mask
from attn_cli.errors import UsageError, fixed
from attn_cli.inputs.saved_weights import Saved
from attn_cli.io.types import Array, Bools, NamedTuple
from attn_cli.pipeline import ready_weights as ready
from attn_cli.pipeline.inputs import Inputs, Side, wanted_layer
from attn_cli.pipeline.record import EACH_ROLLED, Attended
from attn_cli.settings.settings import ALL, ROLLOUT, WEIGHT, Settings
from attn_cli.trace.head_roles import rolled_out
from attn_cli.trace.trace import Trace

FEW = 4  # layers that a formula names one by one


class Rolled(NamedTuple):
    """Attention rollout through the layers so far: weights (n, n), and which keys they can reach (n, n)."""

    weights: Array | None = None
    reached: Bools | None = None  # None: no layer yet

    def through(self, weights: Array, allowed: Bools | None) -> Rolled:
        """Return the rollout after one more layer: the weights of its heads (h, n, n), and its mask (n, n)."""
        n = weights.shape[-1]
        own = np.ones((n, n), np.bool_) if allowed is None else allowed | np.eye(n, dtype=np.bool_)
        reached = own if self.reached is None else own.astype(np.float64) @ self.reached > 0
        return Rolled(rolled_out(self.weights, weights), reached)

    def instead_of(self, found: ready.SelectedWeights, settings: Settings) -> ready.SelectedWeights:
        """Return the rollout in the place of its last layer's heads, its pieces joined as `settings` ask."""
        assert self.weights is not None and self.reached is not None
        n, reaches_all = len(self.reached), self.reached.all()
        is_causal = np.array_equal(self.reached, np.tri(n, dtype=np.bool_))
        name = "none" if reaches_all else "causal" if is_causal else "what the layers reach"
        allowed, weights = None if reaches_all else self.reached, np.minimum(self.weights, 1.0)[np.newaxis]
        found = found._replace(head=ROLLOUT, kept=(ROLLOUT,), weights=weights)
        found = found._replace(allowed=allowed, mask_name=name)
        return ready.pieces_joined_or_hidden(found, settings) if ready.joins_or_hides(settings) else found


def check_rollout(settings: Settings) -> None:
    """Raise UsageError for what does not apply to a rollout, which is made of the model's own weights."""
    for option, given in (("--without", settings.without), ("--knock-out", settings.knock_out)):
        if settings.head == ROLLOUT and given:
            said = f"{option} does not apply to a rollout, which follows the weights as they are."
            raise UsageError(said, "Leave one of them out.", option)


def rollout_formula(layer: int) -> str:
    """Return what the rollout up to a layer is.

    >>> rollout_formula(1)
    'weights = A1 A0, each A = (mean of the heads + I) / 2, rows divided by their sums'
    """
    product = [f"A{n}" for n in range(layer, -1, -1)] if layer < FEW else [f"A{layer}", "...", "A1", "A0"]
    return f"weights = {' '.join(product)}, {EACH_ROLLED}"


def rolled_weights(
    saved: Saved, settings: Settings, mask: Mask | None, is_stated: bool
) -> ready.SelectedWeights:
    """Return the rollout through a file's layers up to the one asked for, checked and masked as each of them is."""
    last = wanted_layer(settings, len(saved.weights), saved.name)
    if len(saved.weights) < 2:
        raise UsageError(f"--head rollout goes through layers, and {saved.name} has one.", option="--head")
    check_one_text(is_one_text(saved), saved.name)
    rolled, notes = Rolled(), dict[str, None]()
    for layer in range(last + 1):
        asked = replace(settings, layer=layer, head=ALL, join_pieces=False, hide_special=False)
        found = ready.select_weights(saved, asked, mask, is_stated)
        check_one_text(found.weights.shape[1] == found.weights.shape[2], saved.name)
        rolled = rolled.through(found.weights, found.allowed)
        notes.update(dict.fromkeys(note for note in found.notes if not note.endswith(ready.AS_THEY_ARE)))
    return rolled.instead_of(found._replace(notes=tuple(notes)), settings)


def is_one_text(saved: Saved) -> bool:
    """Tell whether the queries of saved weights are their keys, as far as the file says."""
    return saved.query_tokens == saved.key_tokens and (saved.record or {}).get("kind") != "cross"


def check_one_text(is_one: bool, name: str, option: str = "--head") -> None:
    """Raise UsageError where queries and keys are two texts: no layer hands its keys to the next one's queries."""
    if not is_one:
        asked = "--head rollout" if option == "--head" else option
        said = f"{asked} needs self-attention; in {name} queries and keys are two texts."
        raise UsageError(said, option=option)


def without_selection(settings: Settings) -> Settings:
    """Return settings for the complete trace (all rows, full matrix) from which the requested one is derived."""
    return replace(settings, query=None, versus=None, top=None, full=True)


def between_words(trace: Trace, settings: Settings, second: int | None = None) -> Attended:
    """Return a whole trace's weights between words, or without special tokens, or of a part of a pair, as asked.

    What it becomes has no scores: a score belongs to two pieces, not to two words. `second`: where a pair's b begins.
    """
    start, _, stop = settings.between.partition("-")
    between = f"from text {start} to text {stop}" if stop else ""
    shaped = "joined to words" * settings.join_pieces or "without special tokens" * settings.hide_special
    found = ready.pieces_joined_or_hidden(selected(trace, second), settings)
    of = "the model's weights" if settings.measure == WEIGHT else trace.derived
    return made_of(trace, found, settings, ", ".join(filter(None, (of, between, shaped))))


def selected(trace: Trace, second: int | None = None) -> ready.SelectedWeights:
    """Return a trace's weights, apart from what made them; `second` is where a pair's second text begins."""
    sides, heads = (trace.query_tokens, trace.key_tokens), (trace.head_names, trace.shown.name)
    kept, weights = tuple(head.name for head in trace.heads), np.array([head.weights for head in trace.heads])
    mask, most = (trace.mask, trace.mask_name), 1.0 if trace.settings.measure == WEIGHT else np.inf
    about = trace.projection.layer, trace.notes
    return ready.SelectedWeights(*sides, *heads, kept, weights, *mask, *about, second=second, most=most)


def made_of(trace: Trace, found: ready.SelectedWeights, settings: Settings, derived: str) -> Attended:
    """Return other weights than those of `trace`, made of them; `derived` says how, as a formula would."""
    layer, layers = found.layer_of(trace.projection), trace.stack_layers
    is_two = trace.has_second_input or settings.between in ("a-b", "b-a")
    sides, notes = (Side(found.query_tokens), Side(found.key_tokens)), (*found.notes, *_sunk(trace, settings))
    inputs = Inputs(*sides, True, trace.embedding, notes=notes, has_second_input=is_two)
    finish = partial(replace, derived=derived, stack_layers=layers)
    return Attended(trace.kind, inputs, layer, settings, found.mask, layers or 1, finish=finish)


def _sunk(trace: Trace, settings: Settings) -> list[str]:
    """Return a note on what sinks take of the weights that others are made of, if there are sinks."""
    heads = trace.heads if settings.head == ALL else (trace.shown,)
    shares = [share for head in heads if (share := trace.sink_shares(head)) is not None]
    if not shares:
        return []
    span = " to ".join(dict.fromkeys(fixed(float(end(shares)), 1, "%") for end in (np.min, np.max)))
    taken = "a part of each layer's rows" if settings.head == ROLLOUT else f"{span} of a token's row"
    return [f"Sinks take {taken}; these weights leave that out."]
