"""One attention head, from its weights to its links: the one record of it, whatever stage it has reached.

And the record of where vectors and weights come from.
"""

from __future__ import annotations

from typing import Any

from attn_cli.core import attention, masks
from attn_cli.core.heads import QK, HeadWeights, Links, Position
from attn_cli.io.types import Array, NamedTuple, dataclass

MATRICES = ("W_q", "W_k", "W_v")
QK_NORM = ("q_gain", "k_gain")
ROTATED = ("q_turned", "k_turned")
WEIGHTS = (*MATRICES, "b_q", "b_k", "b_v", "position_vectors", "position_biases")
SCORES = ("scores", "scaled_scores", "position_scores", "capped_scores", "masked_scores")
# Where each of these is kept: a field of the head, and a field in it.
PARTS = {name: ("W", name) for name in WEIGHTS} | {name: ("steps", name) for name in SCORES}
PARTS |= {"position_vectors": ("position", "R"), "position_biases": ("position", "b")}
PARTS |= {"position_scores": ("steps", "bias")}
PARTS |= {name: ("qk_norm", name[0]) for name in QK_NORM} | {name: ("rotated", name[0]) for name in ROTATED}


class Frozen:
    """A dataclass that owns its arrays, and those of the named tuples in it: nobody can write to them."""

    def __post_init__(self) -> None:
        fields = vars(self)  # in the place of setattr, which refuses
        for name, value in fields.items():
            if value is not None:
                fields[name] = _owned(value)


def _owned(value: Any) -> Any:
    if hasattr(value, "setflags"):
        array = value.copy() if value.flags.writeable or value.base is not None else value
        array.setflags(write=False)
        return array
    if hasattr(value, "_fields") and any(hasattr(part, "setflags") for part in value):
        return type(value)(*map(_owned, value))
    return value


@dataclass(frozen=True, eq=False, repr=False)
class Head(Frozen):
    """One attention head: what it projects with, its queries, keys and values, and what attention made of them.

    The head named "mean" is the mean of the others' weights and has no steps of its own. The arrays of `steps` and
    `ready` hold the rows that the trace holds (`Trace.rows`).

    What a head has is also there by the names of the JSON, as `head.W_q`, `head.b_v`, `head.position_vectors` or
    `head.scaled_scores`: None where it has none. W_q, W_k and W_v are given back in the layout they came in.
    """

    name: str
    W: HeadWeights | None = None  # x W, whatever the layout was; None where q, k and v were given
    q: Array | None = None  # (n_q, d_k)
    k: Array | None = None  # (n_k, d_k)
    v: Array | None = None  # (n_k, d_v)
    bias: Array | None = None  # (n_q, n_k), added to the scaled scores, where it was given
    position: Position | None = None  # what a learned head adds for the distance
    layout: str = "in-out"  # in which W came
    scale: float | None = None  # of the scores, where it is not that of their name
    softcap: float | None = None  # c, where c tanh(s / c) of each scaled score s goes on to the mask
    sink: float | None = None  # a score that each row has beside its keys', which no value belongs to
    slope: float | None = None  # of ALiBi, whose bias is as many times -slope as the key is places back
    position_terms: Array | None = None  # (2, n_q, n_k), whose sum bias is: of each query, and of each key
    qk_norm: QK | None = None  # where q and k are x W normalized, times these
    rotated: QK | None = None  # q and k rotated by position, which attend instead of them
    steps: attention.Steps | None = None  # None before attention is computed, and where weights came ready
    ready: Array | None = None  # (rows, n_k), weights that came ready, or the mean of the heads'
    output: Array | None = None  # (n_q, d_v), weights @ v
    lengths: Array | None = None  # (n_k,), of what each value becomes behind W_o, where norms are measured
    norms: Array | None = None  # (rows, n_k), of what comes of each weight, which is as many times that
    top: Links | None = None  # each query's strongest keys
    layer: int | None = None  # where a trace has heads of several layers
    mask: masks.Mask | None = None  # its own, where the heads differ in it; else the trace's is

    @property
    def label(self) -> str:
        """Its name; of several layers' heads, the layer and the name: 3.7."""
        return self.name if self.layer is None else f"{self.layer}.{self.name}"

    @property
    def weights(self) -> Array:
        """The attention weights, (rows, n_k): the softmax of the masked scores."""
        found = self.ready if self.steps is None else self.steps.weights
        assert found is not None  # every head of a trace has weights
        return found

    @property
    def links(self) -> Links:
        """Each query's strongest keys, strongest first."""
        assert self.top is not None  # every head of a trace has links
        return self.top

    @property
    def sums(self) -> Array:
        """The sum of each held row's weights, (rows,): one, less by what a sink takes; zero where all is masked."""
        total: Array = self.weights.sum(axis=-1)
        return total

    def __getattr__(self, name: str) -> Array | None:
        """Return a part by the name that it has in the JSON."""
        if name not in PARTS:
            raise AttributeError(f"a head has no {name!r}")
        owner, field = PARTS[name]
        part = getattr(self, owner)
        if part is None or (name == "capped_scores" and self.softcap is None):
            return None
        found: Array | None = getattr(part, field)
        return found.T if found is not None and name in MATRICES and self.layout == "out-in" else found


class Embedding(NamedTuple):
    """Where the word vectors came from; source is word2vec, random, file or given."""

    source: str
    name: str | None
    dim: int | None = None
    oov: str | None = None
    seed: int | None = None
    length: float | None = None  # where all vectors have one


class Projected(NamedTuple):
    """Where W_q, W_k and W_v came from; source is learned, identity, random, file or given."""

    source: str
    name: str | None
    layout: str | None = None
    seed: int | None = None
    layer: int | None = None
    x_is_normed: bool | None = None  # of a pretrained model, whether X went through the layer's norm
    kv_heads: int | None = None  # of a pretrained model whose heads share keys and values: how many there are


class Learned(NamedTuple):
    """What is known of a learned head; a score is the share of words whose strongest link is right.

    A head of a language model was taught nothing: `about` is then what it was found to do.
    """

    model: str
    layers: int
    trained_on: tuple[str, ...]  # treebanks
    scored_on: str | None  # a treebank that it was not trained on
    about: str | None  # what the head was trained, or found, to look at; None if nothing in particular
    accuracy: float | None
    baseline: float | None  # what the best fixed distance gets
    precision: float | None  # of its strongest links to another word, the share that are right
    hard: float | None  # its accuracy over the words for which the best fixed distance is wrong
    content: float | None  # its accuracy where its term for the distance is left out
    values: str  # words: W_v leaves, or puts back, word vectors; learned: the layer's own numbers
    taught: bool = True  # whether the head was taught what it is named for; else it was found to do it
    spelled: bool = (
        False  # whether the spelling of every word adds to its vector, not only of one that has none
    )
