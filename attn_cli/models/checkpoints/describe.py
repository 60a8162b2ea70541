"""The terms in which a family of models is described: layers, stacks, embeddings, logits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from attn_cli.models.checkpoints.blocks import Rotary


class Layer(NamedTuple):
    """One layer: where its tensors are, and what sets it apart from the others.

    `names` gives the tensor, after `place`, of each role:

    - q, k, v, or qkv where one matrix makes all three; o joins the heads; cross_q ... cross_o likewise;
    - norm_1, cross_norm, norm_2: of attention, cross-attention and the network after them;
    - after_1, after_2: a second norm, of what is added (Gemma); q_norm, k_norm: of each query and key;
    - up and down, with a gate beside, or gate_up where one matrix makes both, the gate first.
    """

    place: str
    names: Mapping[str, str]
    scale: float  # of the scores
    window: int | None = None
    rotary: Rotary | None = None


class Words(NamedTuple):
    """How token ids become the input of the first layer."""

    tables: tuple[str, ...]  # the first that is there
    width: int
    scale: float = 1.0
    positions: str | None = None  # a table of them
    offset: int = 0  # the row of the first place
    sinusoids: bool = False
    types: str | None = None  # a table for the first text and the second
    norm: str | None = None
    project: str | None = None
    project_first: bool = False  # before places are added


class Relative(NamedTuple):
    """A number for each head and bucket of distances (Raffel et al. 2020); the first layer's table serves all."""

    table: str
    buckets: int
    farthest: int


class Stack(NamedTuple):
    """An encoder or a decoder: layers that are alike."""

    words: Words
    layers: tuple[Layer, ...]
    d: int
    heads: int
    kv_heads: int
    d_k: int
    causal: bool
    activation: str
    norm: str  # one of NORMS
    eps: float
    pre_norm: bool = True  # whether norms stand before what they belong to, or after the sum
    parallel: bool = False  # whether the network takes what attention took
    by_head: bool = False  # whether qkv holds each head's three in turn, or all queries first
    in_out: bool = False  # whether matrices stand as in x W
    softcap: float | None = None
    relative: Relative | None = None
    last_norm: str | None = None
    skips_padding_positions: bool = False  # whether padding takes no place


class Logits(NamedTuple):
    """How the last layer's output becomes a score for each word of the vocabulary."""

    tables: tuple[str, ...]
    bias: tuple[str, ...] = ()  # the first that is there
    dense: str | None = None  # a layer before the table: dense, activation, norm
    norm: str | None = None
    activation: str = "gelu"
    project: str | None = None
    scale: float = 1.0
    softcap: float | None = None
    bias_lead: tuple[int, ...] = ()  # axes of the bias before the vocabulary's


class Model(NamedTuple):
    """What a config.json says: an encoder, a decoder, or both; and the logits of the last."""

    prefixes: tuple[str, ...]  # what may stand before the name of a tensor
    encoder: Stack | None
    decoder: Stack | None
    logits: Logits
    start: int = 0  # the token with which a decoder below an encoder begins
    unread: tuple[str, ...] = ()  # how the names of tensors end that config.json says the model does not have
    family: str = ""  # as config.json names it
    notes: tuple[str, ...] = ()  # on what config.json says and attn does not know

    @property
    def stacks(self) -> dict[str, Stack]:
        """The encoder and the decoder, as far as there are any, in the order in which they run."""
        both = {"encoder": self.encoder, "decoder": self.decoder}
        return {side: stack for side, stack in both.items() if stack is not None}


def one_stack(prefixes: tuple[str, ...], stack: Stack, logits: Logits, unread: tuple[str, ...] = ()) -> Model:
    """Return a model of one stack: a decoder where its attention is causal, else an encoder."""
    encoder, decoder = (None, stack) if stack.causal else (stack, None)
    return Model(prefixes, encoder, decoder, logits, unread=unread)
