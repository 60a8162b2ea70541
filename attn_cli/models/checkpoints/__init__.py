"""Pretrained models from a local Hugging Face folder, computed with NumPy: every layer's attention.

Here are the terms in which a family of models is described: layers, stacks, embeddings, logits; and a plan that makes
them. A key of config.json means one thing in every family that declares it: so a plan says only what config.json does
not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import sqrt
from typing import Any, NamedTuple

from attn_cli.models.checkpoints.blocks import Clamp, Rotary
from attn_cli.models.checkpoints.config import MOST_LAYERS, Config, activation, looks_back
from attn_cli.models.checkpoints.positions import Rotaries, Windows


class Layer(NamedTuple):
    """One layer: where its tensors are, and what sets it apart from the others.

    `names` gives the tensor, after `place`, of each role (and some of no layer, if a plan's biases are off):

    - q, k, v, or qkv where one matrix makes all three; o joins the heads; cross_q ... cross_o likewise; norm_1,
      cross_norm, norm_2: of attention, cross-attention and the network after them; after_1, after_2: a second norm, of
      what is added (Gemma); q_norm, k_norm: of each query and key; q_bias, v_bias: of queries and values, where they
      stand apart from qkv; place_q, place_k: what makes queries and keys of distances;
    - up and down, with a gate beside, or gate_up where one matrix makes both, the gate first, or pairs where in turn;
      router, and expert_up ... expert_down with {} for a number ([{}] is a matrix in a stack); shared_up ...
      shared_down of the network that all words go through beside it, and shared_share, how much of it counts;
    - sinks: a score of each head that its rows have beside the keys', and no value.
    """

    place: str
    names: Mapping[str, str]
    scale: float  # of the scores
    window: int | None = None
    rotary: Rotary | None = None

    def lacking(self, *roles: str) -> Layer:
        """Return the layer without these roles."""
        return self._replace(names={role: name for role, name in self.names.items() if role not in roles})

    def tensor(self, role: str) -> str:
        """Return the name of what has this role, without the ending."""
        return self.place + self.names[role]


class Words(NamedTuple):
    """How token ids become the input of the first layer."""

    tables: tuple[str, ...]  # the first that is there
    width: int = 0
    scale: float = 1.0
    positions: str | None = None  # a table of them
    offset: int = 0  # the row of the first place
    sinusoids: str | None = None  # how they turn, where there is no table: see blocks.sinusoids
    types: str | None = None  # a table for the first text and the second
    norm: str | None = None
    project: str | None = None
    project_first: bool = False  # before places are added


class Relative(NamedTuple):
    """A number for each head and bucket of distances (Raffel et al. 2020); the first layer's table serves all."""

    table: str
    buckets: int
    farthest: int


class Slopes(NamedTuple):
    """A slope for each head, fixed, times how far a key stands behind the query (ALiBi, Press et al. 2022)."""

    scale: float | None = None  # of slopes and their products with places in bfloat16 (Falcon)


class Disentangled(NamedTuple):
    """A vector for each distance, of which each layer makes keys and queries (He et al. 2021, DeBERTa)."""

    reach: int  # distances of more count as this one: half the table's rows
    farthest: int  # where far distances share their vectors, the distance at which the last ones do
    shares: bool
    norm: str | None  # of the table's rows
    table: str = "encoder.rel_embeddings.weight"


class Experts(NamedTuple):
    """How a sparse network chooses among its networks, the experts (Shazeer et al. 2017)."""

    number: int
    chosen: int  # so many for each word, those of the largest shares
    is_normed: bool = True  # whether the shares of the chosen ones sum to one
    clamp: Clamp | None = None


class Stack(NamedTuple):
    """An encoder or a decoder: layers that are alike. A plan's has no sizes yet."""

    words: Words
    norm: str  # one of NORMS
    layers: tuple[Layer, ...] = ()
    d: int = 0
    heads: int = 0
    kv_heads: int = 0
    d_k: int = 0
    causal: bool = True
    activation: str = "gelu"
    eps: float = 1e-5
    pre_norm: bool = True  # whether norms stand before what they belong to, or after the sum
    adds_to_norm: bool = False  # whether what attention and the network make is added to their norms' output
    parallel: bool = False  # whether the network takes what attention took
    by_head: bool = False  # whether qkv holds those that share keys together, or all queries first
    qk_norm: str = "head"  # what q_norm and k_norm norm: each head, each by its own gain, or all heads as one
    has_gains: bool = True  # whether norms have weights
    added: float = 1.0  # how much counts of what attention and the network add
    experts: Experts | None = None
    in_out: bool = False  # whether matrices stand as in x W
    softcap: float | None = None
    relative: Relative | Slopes | None = None
    disentangled: Disentangled | None = None
    last_norm: str | None = None
    skips_padding_positions: bool = False  # whether padding takes no place

    def with_layers(self, **changes: Any) -> Stack:
        """Return the stack with each layer changed alike."""
        return self._replace(layers=tuple(layer._replace(**changes) for layer in self.layers))


class Logits(NamedTuple):
    """How the last layer's output becomes a score for each word of the vocabulary."""

    # The first that is there is used. A plan's table is the output's own, and its second bias holds where the output
    # shares the table of words.
    tables: tuple[str, ...]
    bias: tuple[str, ...] = ()
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


# What families call one thing: each declares one of the names
WIDTH = ("n_embed", "hidden_size", "n_embd", "dim")
COUNT = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads")
ACTIVATION = ("hidden_activation", "hidden_act", "activation_function", "activation")
EPS = ("norm_eps", "layer_norm_eps", "layer_norm_epsilon", "rms_norm_eps", "norm_epsilon")
EXPERTS = ("num_local_experts", "num_experts")
NARROW = ("embedding_size", "word_embed_proj_dim")  # of a word's vector, where the layers' is another


class Plan(NamedTuple):
    """A model of one stack, as far as its config.json does not say it."""

    stack: Stack
    names: Mapping[str, str]  # of a layer's tensors, and of others that may have a bias; see Layer
    prefixes: tuple[str, ...]
    logits: Logits
    place: str = "layers.{}."
    scale: float | None = None  # of the scores; without one, that of scaled dot products
    windows: Callable[[Config, int], Windows] | None = None  # of so many layers
    rotaries: Callable[[Config, int, Windows], Rotaries] | None = None  # of heads of this size
    # By the key that says whether they have one, roles; where the key is not read, they have none
    biases: Mapping[str, str] = {}
    change: Callable[[Config, Stack], Stack] | None = None  # by what else a config.json says
    head_activation: str | None = None  # the key of it
    scales_words: bool = False  # by the root of their width

    def named(self, lacks: str = "", **names: str) -> Plan:
        """Return the plan without these roles, and with these names of tensors."""
        kept = {role: name for role, name in self.names.items() if role not in lacks.split()}
        return self._replace(names={**kept, **names})

    def __call__(self, c: Config) -> Model:
        """Return the model of a config.json: a decoder where its attention is causal, else an encoder."""
        if c.reads("position_embedding_type") and c.word("position_embedding_type") != "absolute":
            raise c.refused("position_embedding_type", "absolute")
        stack, tied = self._sized(c), c.flag("tie_word_embeddings")
        if self.change is not None:
            stack = self.change(c, stack)
        head = self.logits
        logits = head._replace(
            tables=(*head.tables, *stack.words.tables) if tied else head.tables,
            bias=head.bias[: 1 + tied] if c.flag("decoder_bias", True) else (),
            activation=activation(c, self.head_activation) if self.head_activation else head.activation,
            project=head.project if stack.words.project else None,
            scale=(c.optional("logit_scale") or 1) / (c.optional("logits_scaling") or 1),
            softcap=c.optional("final_logit_softcapping"),
        )
        # biases that the model does not have, whatever the file has
        absent = " ".join(roles for flag, roles in self.biases.items() if not c.flag(flag, False))
        unread = tuple(f"{self.names[role]}.bias" for role in absent.split())
        encoder, decoder = (None, stack) if stack.causal else (stack, None)
        return Model(self.prefixes, encoder, decoder, logits, unread=unread)

    def _sized(self, c: Config) -> Stack:
        d, count = c.whole(c.name(WIDTH)), c.whole(c.name(COUNT), most=MOST_LAYERS)
        heads = c.whole(c.name(HEADS))
        d_k = c.whole("head_dim") if c.has("head_dim") else c.shared(c.name(HEADS), d)
        kv_heads = c.whole("num_key_value_heads") if c.has("num_key_value_heads") else heads
        if heads % kv_heads:
            raise c.refused("num_key_value_heads", f"a number that divides {heads}")
        scale = self.scale or (c.optional("query_pre_attn_scalar") or d_k) ** -0.5
        scale = c.optional("attention_multiplier") or scale
        windows: Windows = [None] * count if self.windows is None else self.windows(c, count)
        rotaries: Rotaries = [None] * count if self.rotaries is None else self.rotaries(c, d_k, windows)
        each = zip(range(count), windows, rotaries, strict=True)
        return self.stack._replace(
            words=self._words(c, d),
            layers=tuple(Layer(self.place.format(n), self.names, scale, window, turn) for n, window, turn in each),
            d=d, heads=heads, kv_heads=kv_heads, d_k=d_k, causal=looks_back(c, self.stack.causal),
            activation=activation(c, name) if (name := c.name(ACTIVATION)) else self.stack.activation,
            eps=c.number(eps) if (eps := c.name(EPS)) else self.stack.eps,
            parallel=c.flag("use_parallel_residual", self.stack.parallel),
            softcap=c.optional("attn_logit_softcapping"), added=c.optional("residual_multiplier") or 1.0,
            experts=self._experts(c),
        )  # fmt: skip

    def _experts(self, c: Config) -> Experts | None:
        if not c.has(name := next(filter(c.has, EXPERTS), "")):
            return None
        clamp = Clamp(c.number("swiglu_alpha"), c.number("swiglu_limit")) if c.has("swiglu_limit") else None
        chosen = c.whole("num_experts_per_tok", most=(count := c.whole(name)))
        return Experts(count, chosen, c.flag("norm_topk_prob", True), clamp)

    def _words(self, c: Config, d: int) -> Words:
        narrow, words = c.name(NARROW), self.stack.words
        width = c.whole(narrow) if c.has(narrow) else d
        return words._replace(
            width=width,
            scale=sqrt(d) if self.scales_words else c.optional("embedding_multiplier") or 1.0,
            offset=c.whole("pad_token_id", least=0) + 1 if c.reads("pad_token_id") else words.offset,
            project=words.project if width != d else None,
        )
