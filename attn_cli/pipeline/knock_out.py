"""What --knock-out takes out of a model's pass: heads, and the networks of layers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from attn_cli.errors import UsageError, did_you_mean, shell_quote, visible
from attn_cli.models.encoder import MASK, EncoderStack
from attn_cli.models.logit_parts import MLP, Cut
from attn_cli.pipeline.inputs import listed_heads
from attn_cli.settings.declare import as_typed
from attn_cli.settings.settings import MEAN, Settings

if TYPE_CHECKING:
    from attn_cli.models.checkpoints.open_model import OpenModel

OPTION, NETWORK = "--knock-out", "mlp"
Layers = Sequence[Sequence[str]]  # the names of each layer's heads


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


def _cut(settings: Settings, name: str, layers: Layers, kind: str, side: str = "") -> Cut | None:
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


def _place(typed: str, name: str, layers: Layers) -> tuple[int, int]:
    found = re.fullmatch(r"(\d{1,6})\.(.+)", typed, re.ASCII)
    if found is None:
        hint = "Give its layer and the head, such as 0.3; 0.mlp is the layer's network."
        raise UsageError(f"{OPTION} {visible(typed[:60])!r} names no head.", hint, OPTION)
    layer, head, last = int(found[1]), found[2], len(layers) - 1
    if layer > last:
        raise UsageError(f"There is no layer {layer} in {name}.", f"Its layers are 0 to {last}.", OPTION)
    names = [*layers[layer]]
    places = {str(n): n for n in range(len(names))} | {one: n for n, one in enumerate(names)} | {NETWORK: MLP}
    if head not in places:
        near = did_you_mean(head, names)
        hint = f"{near}Heads are {listed_heads(names)}; {NETWORK} is the layer's network."
        raise UsageError(f"There is no head {visible(head[:60])!r} in layer {layer} of {name}.", hint, OPTION)
    return layer, places[head]


def check_no_knock_out(settings: Settings, whose: str) -> None:
    """Raise UsageError if heads are to be knocked out from which nothing is computed."""
    if settings.knock_out:
        said = f"{OPTION} would change nothing: nothing is computed from what the heads of {whose} give."
        hint = "Try -p language or roles-deep, or a model (-m), and a head below its last layer."
        raise UsageError(said, hint, OPTION)


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
    instead = f"{its} mean over the text" if is_mean else "zero"
    instead += " (of a network, zero)" * (is_mean and any(head == NETWORK for *_, head in parts))
    listed = " and ".join(filter(None, [", ".join(named[:-1]), named[-1]]))
    new = f"all that is computed from {them} is new"
    said = f"{listed} {be} knocked out: what {give} is {instead}, and {new}."
    return [said[0].upper() + said[1:]]
