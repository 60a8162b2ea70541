"""The one path: a text, matrices, phrases or ready weights become a Trace.

Here is what attends: tokens and their vectors on both sides, and a layer's heads; which are asked for, or knocked out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from attn_cli.core.heads import HeadWeights
from attn_cli.core.masks import Mask
from attn_cli.errors import UsageError, count, did_you_mean, refuse, shell_quote, visible
from attn_cli.io.types import Array, NamedTuple, replace
from attn_cli.models.encoder import MASK, EncoderStack
from attn_cli.models.logit_parts import MLP, Cut
from attn_cli.models.projection import Projection, to_digits
from attn_cli.settings import ALL, MEAN, ROLLOUT, Settings, as_typed, check_layered
from attn_cli.trace import Embedding, Head, Learned
from attn_cli.vectors import Vectors

if TYPE_CHECKING:
    from attn_cli.models.checkpoints.open_model import OpenModel

BASE = 10_000.0  # of the wavelengths of position encodings
PAD = "<pad>"
MOST_HEADS = 12  # named in a hint
LISTED = 4  # heads by number; more are shown as a range
KNOCK_OUT, NETWORK = "--knock-out", "mlp"
HeadNames = Sequence[Sequence[str]]  # of each layer


class Side(NamedTuple):
    """One side of attention before projection: its tokens, and a row of X (n, d) for each."""

    tokens: tuple[str, ...]
    X: Array | None = None  # None where Q, K and V, or weights, are given
    words: Array | None = None  # where positions were added: X = words + encodings
    encodings: Array | None = None
    padding: range = range(0)

    @property
    def own(self) -> range:
        """The places that are not padding."""
        n = len(self.padding)
        return range(n, len(self.tokens)) if self.padding.start == 0 else range(self.padding.start)

    def padded(self, n: int, side: str) -> Side:
        """Return it with n padding tokens, of zero vectors, after the others (`right`) or before them (`left`)."""
        start = len(self.tokens) if side == "right" else 0
        tokens = (*self.tokens[:start], *(PAD,) * n, *self.tokens[start:])
        own = self.X, self.words, self.encodings
        X, words, P = (None if M is None else np.insert(M, [start] * n, 0.0, axis=0) for M in own)
        return Side(tokens, X, words, P, range(start, start + n))

    def placed(self) -> Side:
        """Return it with the sinusoids of each token's place, counted from 0, added to its vector."""
        assert self.X is not None
        P = sinusoidal(*self.X.shape)
        return self._replace(X=self.X + P, words=self.X, encodings=P)

    def rounded(self, digits: int) -> Side:
        """Return it with vectors, and what was added to them, rounded to this many digits after the point."""
        assert self.X is not None
        if self.words is None or self.encodings is None:
            return self._replace(X=to_digits(self.X, digits))
        words, P = to_digits(self.words, digits), to_digits(self.encodings, digits)
        # The sum of rounded numbers is rounded once more: this takes away what floats add at the end.
        return self._replace(X=to_digits(words + P, digits), words=words, encodings=P)


class Inputs(NamedTuple):
    """Both sides before projection, and where they came from; they are one object where a text attends to itself."""

    query: Side
    key: Side
    has_text: bool
    embedding: Embedding
    unknown: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    table: Vectors | None = None
    replaced: Mapping[str, str] = MappingProxyType({})
    has_second_input: bool = False  # whether keys come from a second text or a second X

    @property
    def is_self(self) -> bool:
        """Whether queries and keys are the same vectors."""
        return self.query is self.key

    def both(self, change: Callable[[Side], Side]) -> Inputs:
        """Return the inputs with both sides changed, one object still where they were."""
        key = change(self.key)
        return self._replace(key=key, query=key if self.is_self else change(self.query))


def sinusoidal(n: int, d: int) -> Array:
    """Return the encodings P (n, d) of the places 0 to n - 1.

    P[pos, 2i] = sin(pos / 10000^(2i/d)), P[pos, 2i + 1] = cos of the same angle (Vaswani et al. 2017,
    "Attention Is All You Need", section 3.5). An odd d leaves out the last cosine.

    >>> sinusoidal(2, 4).round(3).tolist()
    [[0.0, 1.0, 0.0, 1.0], [0.841, 0.54, 0.01, 1.0]]
    """
    angles = np.arange(n)[:, np.newaxis] / BASE ** (np.arange(0, d, 2) / d)
    P = np.empty((n, d))
    P[:, 0::2] = np.sin(angles)
    P[:, 1::2] = np.cos(angles[:, : d // 2])
    return P


def prepare_inputs(inputs: Inputs, settings: Settings, is_last: bool = True) -> Inputs:
    """Add positions and padding, and round, where that is asked for.

    Places are those of the text's own tokens: padding has none. It matters as what is looked at, so of two texts
    only the context gets it. A stack rounds its last layer's input itself.
    """
    if settings.positions == "sinusoidal":
        inputs = inputs.both(Side.placed)
    if settings.pad:
        where = "after" if settings.pad_side == "right" else "before"
        stand = count(settings.pad, "padding token stands", "padding tokens stand")
        whose = "text" if inputs.is_self else "context"
        note = f"{stand} {where} the {whose}: zero vectors, hidden from every query."
        key = inputs.key.padded(settings.pad, settings.pad_side)
        query = key if inputs.is_self else inputs.query
        inputs = inputs._replace(query=query, key=key, notes=(*inputs.notes, note))
    return round_inputs(inputs, settings) if is_last else inputs


def round_inputs(inputs: Inputs, settings: Settings) -> Inputs:
    """Round the vectors, and what was added to them for their places, where that is asked for."""
    digits = settings.round
    return inputs if digits is None else inputs.both(lambda side: side.rounded(digits))


class Layer(NamedTuple):
    """The heads to attend with, and the projection that says where they came from and joins them."""

    names: tuple[str, ...]
    shown: str
    heads: tuple[Head, ...]
    projection: Projection
    learned: Learned | None = None
    root_head: HeadWeights | None = None  # tells the word that the sentence turns on, if that is wanted
    score: str | None = None  # where it is not the settings'
    notes: tuple[str, ...] = ()  # on how it was made
    # The same in the other layout, where W fits in both and nobody said which it is in.
    other_layout: Callable[[], Layer] | None = None
    cut: Cut | None = None  # what is knocked out

    def joined(self, outputs: list[Array]) -> Array | None:
        """Return what a W_o makes of the heads' outputs, but for those that are knocked out; None without a W_o."""
        if self.cut is not None and outputs:
            outputs = [*self.cut.of(self.projection.about.layer or 0, np.stack(outputs))]
        return self.projection.joined(outputs)


def wanted_layer(settings: Settings, layers: int, name: str) -> int:
    """Return the number of the layer that is asked for: the last one if not said."""
    check_layered(settings)
    last = layers - 1
    if isinstance(settings.layer, int) and settings.layer > last:
        hint = f"Its layers are 0 to {last}." if last else "It has one layer, 0."
        raise UsageError(f"There is no layer {settings.layer} in {name}.", hint, option="--layer")
    return settings.layer if isinstance(settings.layer, int) else last


def shown_head(head: str | None, names: tuple[str, ...], has_layers: bool = False) -> str:
    """Return the name of the head to show, given by name, number, or as mean; `has_layers` offers a rollout."""
    if head in (None, ALL):
        return names[0]
    if head == MEAN or head in names:
        return str(head)
    if head is not None and head.isascii() and head.isdigit() and len(head) < 7 and int(head) < len(names):
        return names[int(head)]
    if head == ROLLOUT:
        said = "--head rollout goes through the layers of a pretrained model."
        raise UsageError(said, "Give one with --model, or a file of several layers to attn show.", "--head")
    others = f"{MEAN}, {ALL} and {ROLLOUT}" if has_layers else f"{MEAN} and {ALL}"
    are_numbers = len(names) > LISTED and names == tuple(map(str, range(len(names))))
    listed = f"0 to {len(names) - 1}" if are_numbers else listed_heads(names)
    near = did_you_mean(str(head), [*map(visible, names), MEAN, ALL, *[ROLLOUT] * has_layers])
    hint = f"{near}Heads are {listed}, {others}."
    raise UsageError(f"There is no head {visible(str(head))!r}.", hint, "--head")


def listed_heads(heads: Sequence[str]) -> str:
    """Return the names of heads as a hint has them: all, or the first."""
    return ", ".join([*map(visible, heads[:MOST_HEADS]), *(["..."] if len(heads) > MOST_HEADS else [])])


def with_masks(layer: Layer, masks: Sequence[Mask | None]) -> tuple[Layer, Mask | None]:
    """Return the layer with a mask for each head, and the mask of what is shown; one mask is for all heads.

    Where the mean is shown, its mask allows what some head may look at.
    """
    if len(masks) == 1:
        return layer, masks[0]
    own = dict(zip(layer.names, masks, strict=True))
    layer = layer._replace(heads=tuple(replace(head, mask=own[head.name]) for head in layer.heads))
    of_shown, said = own.get(layer.shown), f"what is said of the mask is true of head {layer.shown}."
    if layer.shown == MEAN:
        first, *rest = (mask for mask in masks if mask is not None)
        either = np.logical_or.reduce([mask.rows(range(first.n_q)) for mask in (first, *rest)])
        of_shown = Mask(first.name, first.n_q, first.n_k, either)
        said = "their mean may look at what any of them may look at."
    return layer._replace(notes=(*layer.notes, f"Each head has a mask of its own; {said}")), of_shown


def cut_of_model(settings: Settings, model: OpenModel, side: str, kind: str) -> Cut | None:
    """Return what is knocked out of this attention of a pretrained model; UsageError for what it does not have."""
    stack = model.checkpoint.model.stacks[side]
    return _cut(settings, model.name, [tuple(map(str, range(stack.heads)))] * len(stack.layers), kind, side)


def cut_of_stack(settings: Settings, stack: EncoderStack) -> Cut | None:
    """Return what is knocked out of a learned model; UsageError also where nothing is computed from it."""
    cut = _cut(settings, stack.name, [stack.head_names(n) for n in range(stack.layers)], MASK)
    last = stack.layers - 1
    if cut is not None and stack.words is None and any(layer == last for layer, _ in cut.heads):
        check_no_knock_out(settings, f"layer {last} of {stack.name}")
    if cut is not None and cut.with_mean and settings.pad:
        said = "--knock-out-with mean is the mean over the text, and padding is none of it."
        raise UsageError(said, "Leave out --pad.", "--pad")
    return cut


def _cut(settings: Settings, name: str, layers: HeadNames, kind: str, side: str = "") -> Cut | None:
    found = tuple(_place(one, name, layers) for one in settings.knock_out)
    return Cut(found, kind, side, settings.knock_out_with == MEAN) if found else None


def each_once(settings: Settings, stack: EncoderStack) -> Settings:
    """Return the settings with each part that is knocked out named once, as it was named first."""
    layers = [stack.head_names(n) for n in range(stack.layers)]
    named = {_place(one, stack.name, layers): one for one in reversed(settings.knock_out)}
    return replace(settings, knock_out=tuple(reversed(named.values())))


def as_options(settings: Settings) -> str:
    """Return what a command is given to knock out the same again."""
    own = Settings(knock_out=settings.knock_out, knock_out_with=settings.knock_out_with)
    return "".join(f" {shell_quote(part)}" for part in as_typed(own))


def _place(typed: str, name: str, layers: HeadNames) -> tuple[int, int]:
    found = re.fullmatch(r"(\d{1,6})\.(.+)", typed, re.ASCII)
    if found is None:
        hint = "Give its layer and the head, such as 0.3; 0.mlp is the layer's network."
        raise UsageError(f"{KNOCK_OUT} {visible(typed[:60])!r} names no head.", hint, KNOCK_OUT)
    layer, head, last = int(found[1]), found[2], len(layers) - 1
    refuse(layer > last, f"There is no layer {layer} in {name}.", f"Its layers are 0 to {last}.", KNOCK_OUT)
    names = [*layers[layer]]
    places = {str(n): n for n in range(len(names))} | {one: n for n, one in enumerate(names)} | {NETWORK: MLP}
    if head not in places:
        near = did_you_mean(head, names)
        hint = f"{near}Heads are {listed_heads(names)}; {NETWORK} is the layer's network."
        raise UsageError(
            f"There is no head {visible(head[:60])!r} in layer {layer} of {name}.", hint, KNOCK_OUT
        )
    return layer, places[head]


def check_no_knock_out(settings: Settings, whose: str) -> None:
    """Raise UsageError if heads are to be knocked out from which nothing is computed."""
    said = f"{KNOCK_OUT} would change nothing: nothing is computed from what the heads of {whose} give."
    hint = "Try -p language or roles-deep, or a model (-m), and a head below its last layer."
    refuse(settings.knock_out, said, hint, KNOCK_OUT)


def knock_out_notes(settings: Settings) -> list[str]:
    """Return the note on what is knocked out, and what that changes."""
    is_mean = settings.knock_out_with == MEAN
    if not settings.knock_out:
        return ["--knock-out-with has an effect only with --knock-out."] * is_mean
    parts = [one.partition(".") for one in settings.knock_out]
    named = [
        f"the network of layer {layer}" if head == NETWORK else f"head {layer}.{visible(head)}"
        for layer, _, head in parts
    ]
    forms = ("is", "it gives", "its", "it"), ("are", "they give", "their", "them")
    be, give, its, them = forms[len(named) > 1]
    networks = [head == NETWORK for *_, head in parts]
    instead = f"{its} mean over the text" if is_mean and not all(networks) else "zero"
    instead += " (of a network, zero)" * (is_mean and any(networks) and not all(networks))
    listed = " and ".join(filter(None, [", ".join(named[:-1]), named[-1]]))
    new = f"all that is computed from {them} is new"
    said = f"{listed} {be} knocked out: what {give} is {instead}, and {new}."
    return [said[0].upper() + said[1:]]
