"""One computation: everything that happened, in the order it happened, immutable.

Shapes are written here, once: n_q queries, n_k keys, d numbers per word, d_k per query, d_v per value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property

import numpy as np

from attn_cli.core.heads import rounding_of
from attn_cli.core.scores import dot, score_named
from attn_cli.errors import visible
from attn_cli.io.types import Array, Bools, Ints, NamedTuple, dataclass
from attn_cli.settings import NORM, WEIGHT, Settings, find_rows
from attn_cli.trace.head import Embedding, Frozen, Head, Learned, Projected
from attn_cli.trace.row import Because, Diagnosis, Row, diagnose

FIRST_TOKENS = 6


class LongView(NamedTuple):
    """What is kept of the shown head's weights where they are too many to hold.

    The map cuts queries and keys into blocks of (nearly) equal size: block i of the rows holds the queries from
    `query_edges[i]` up to `query_edges[i + 1]`. A mean is that of a block's allowed links, NaN where none is.
    """

    entropy: Array  # (n_q,) bits; 0 where nothing may be looked at
    allowed: Array  # (n_q,) how many keys each query may look at
    means: Array  # (rows of the map, columns)
    counts: Array  # (rows of the map, columns), how many links of each block are allowed
    query_edges: tuple[int, ...]
    key_edges: tuple[int, ...]


class Placed(NamedTuple):
    """What X is the sum of: word vectors, and an encoding of each token's place."""

    words_query: Array  # (n_q, d)
    words_key: Array  # (n_k, d)
    encodings_query: Array  # (n_q, d)
    encodings_key: Array  # (n_k, d)


class NextWord(NamedTuple):
    """A token that a model predicts; id is its place in the vocabulary, None for all unknown words as one."""

    word: str
    probability: float
    id: int | None
    logit: float  # its score before the softmax over the whole vocabulary


class NextWords(NamedTuple):
    """What a model predicts: the likeliest tokens, likeliest first, with their probabilities."""

    words: tuple[NextWord, ...]
    place: int  # of the query that they come after, or of the mask that they fill
    fills: bool  # whether they fill a mask
    token: str  # that token, as the vocabulary spells it
    actual: float | None = None  # the probability of the token that does come next, where one does
    unknown: float | None = None  # that of all words without a vector, as one, where the model has such


class Lean(NamedTuple):
    """The head that adds most to a guess, and what becomes of the guess where that head gives nothing."""

    word: str
    layer: int
    head: int
    probabilities: tuple[float, float]  # of the word, with the head and without
    instead: str  # the guess without it


@dataclass(frozen=True, eq=False, repr=False)
class Computation(Frozen):
    """All of one computation, from tokens to output."""

    kind: str  # self, masked, cross, example, show, ...
    settings: Settings
    query_tokens: tuple[str, ...]
    key_tokens: tuple[str, ...]
    query_ids: tuple[int, ...] | None
    key_ids: tuple[int, ...] | None
    unknown: tuple[str, ...]
    replaced: dict[str, str]
    dropped: tuple[str, ...]
    embedding: Embedding
    x_query: Array | None  # (n_q, d)
    x_key: Array | None  # (n_k, d)
    positions: str  # none or sinusoidal
    placed: Placed | None  # what x_query and x_key are the sums of
    projection: Projected
    score: str  # given, and a scale of 1, where the weights came ready
    scale: float
    temperature: float
    mask_name: str
    mask: Bools | None  # (rows, n_k), True = may attend
    rows: Ints  # the queries whose n_k numbers are held: all, unless the trace is condensed
    focus: tuple[int, ...]  # the queries asked for, else the one most worth a look
    head_names: tuple[str, ...]  # of all heads in the layer
    heads: tuple[Head, ...]  # those computed: all where all are asked for or joined, else the shown one
    shown: Head
    learned: Learned | None  # facts about the shown head
    W_o: Array | None  # (heads x d_v, d_model)
    b_o: Array | None  # (d_model,)
    layer_output: Array | None  # (n_q, d_model), the heads' outputs side by side, times W_o
    condensed: bool
    notes: tuple[str, ...]
    output_words: tuple[tuple[tuple[str, float], ...], ...] | None = None  # near each output, with cosines
    vocabulary: dict[str, int] | None = None  # the rows of its tokens in the table of word vectors
    has_second_input: bool = False  # whether keys come from a second text or a second X
    pad_queries: range = range(0)  # the queries that are padding
    pad_keys: range = range(0)
    long_view: LongView | None = None  # of the shown head, where the trace is condensed
    next_words: NextWords | None = None  # what a model says
    next_words_at: tuple[NextWords, ...] | None = None  # the same after each prefix, where that is asked for
    leaned: Callable[[], Lean | None] | None = None  # of a language model, computed where a screen shows it
    query_input_ids: tuple[int, ...] | None = None  # of a pretrained model's tokens, in its vocabulary
    key_input_ids: tuple[int, ...] | None = None
    query_segments: tuple[int, ...] | None = None  # of a pair's tokens in a pretrained model, from 0
    key_segments: tuple[int, ...] | None = None
    stack_layers: int | None = None  # of a pretrained model: how many layers the shown one is among
    x_parts: tuple[str, ...] = ()  # of a pretrained model: what X of its first layer is made of
    derived: str = "weights as given"  # what the weights are, where no scores made them
    # Gives a head's weights that are too many to hold, (rows, n_k) of each block of rows.
    source: Callable[[str], Iterator[Array]] | None = None

    @cached_property
    def lean(self) -> Lean | None:
        """The head that the guess of the next word leans on; None without such a guess."""
        return None if self.leaned is None else self.leaned()

    @property
    def weights(self) -> Array:
        """The shown head's weights, (rows, n_k)."""
        return self.shown.weights

    @property
    def output(self) -> Array | None:
        """The shown head's output, (n_q, d_v); None for a mean of heads that differ in d_v."""
        return self.shown.output

    @property
    def is_self(self) -> bool:
        """Whether the words look at themselves: query i and key i are the same word."""
        return not self.has_second_input and self.query_tokens == self.key_tokens

    @property
    def stepped_head(self) -> Head:
        """The head whose steps are shown: the shown one, or the first of those that a mean is taken of."""
        return self.heads[0] if self.shown.scores is None else self.shown

    @property
    def named_rivals(self) -> tuple[int, ...]:
        """The keys that --versus names."""
        name = self.settings.versus
        return () if name is None else find_rows(name, self.key_tokens, "--versus")

    @property
    def of_model(self) -> bool:
        """Whether a pretrained model made it, which encodes positions itself."""
        return self.settings.model is not None

    @property
    def own_scale(self) -> float | None:
        """What scores are multiplied by, where it is not the usual scale (1/sqrt(d_k) for `scaled`, else 1)."""
        return self.heads[0].scale

    @property
    def softcap(self) -> float | None:
        """The largest size of a score before the temperature, where the heads cap their scores."""
        return self.heads[0].softcap

    @property
    def temperature_scales_distance(self) -> bool:
        """Whether the temperature divides what is added for distances: not what was given, but what is learned."""
        head = self.heads[0]
        is_learned = head.position_vectors is not None or head.rotated is not None
        return is_learned or (self.of_model and head.position_scores is not None)

    @property
    def is_scored(self) -> bool:
        """Whether scores made the weights; weights that were given ready have none."""
        return self.heads[0].scores is not None

    @property
    def drawn(self) -> str:
        """What stands in the place of weights where the trace is drawn: weight, or norm."""
        return WEIGHT if self.is_scored or self.settings.measure == WEIGHT else NORM

    @property
    def asked(self) -> bool:
        """Whether certain queries were asked for."""
        return self.settings.query is not None

    @property
    def listed(self) -> tuple[int, ...]:
        """The queries to show: those asked for, else all."""
        return self.focus if self.asked else tuple(range(len(self.query_tokens)))

    @property
    def shown_heads(self) -> tuple[Head, ...]:
        """The heads to show one by one: all where all, their mean or all layers were asked for, else the shown one."""
        are_several = self.settings.head in ("all", "mean") or self.has_layers
        return self.heads if are_several else (self.shown,)

    @property
    def has_layers(self) -> bool:
        """Whether the heads are those of several layers."""
        return self.shown.layer is not None

    @property
    def whole(self) -> bool:
        """Whether the weights are to be shown as a matrix, and not as each row's strongest links."""
        return not self.condensed and self.settings.top is None

    def mask_of(self, head: Head) -> Bools | None:
        """Return who may attend to whom in a head, (rows, n_k): its own mask, else that of all."""
        return self.mask if head.mask is None else head.mask.rows(self.rows)

    def visible_weights(self, head: Head, rows: Sequence[int] | None = None) -> Array:
        """Return a head's weights of the listed queries, or of `rows`, (rows, n_k), NaN where masked."""
        held = [self.row_in_arrays(i) for i in (self.listed if rows is None else rows)]
        mask = self.mask_of(head)
        return head.weights[held] if mask is None else np.where(mask[held], head.weights[held], np.nan)

    def place(self, i: int) -> int:
        """Return where query i stands among the text's own tokens; padding before them does not count."""
        return i - (len(self.pad_queries) if self.pad_queries.start == 0 else 0)

    def row_in_arrays(self, row: int) -> int:
        """Return where query `row` stands in the n_q x n_k arrays."""
        return self.rows.tolist().index(row) if self.condensed else row

    def row(self, i: int, head: Head | None = None) -> Row | None:
        """Return query i's arithmetic, for a head that has steps; None for the mean of heads."""
        of = i, head or self.shown
        if of not in self._rows:
            self._rows[of] = self._row(*of)
        return self._rows[of]

    @cached_property
    def _rows(self) -> dict[tuple[int, Head], Row | None]:
        return {}

    def _row(self, i: int, head: Head) -> Row | None:
        if head.scores is None or head.scaled_scores is None or head.masked_scores is None:
            return None
        at = self.row_in_arrays(i)
        masked = head.masked_scores[at].tolist()
        sees_nothing = max(masked) == -math.inf
        sink = -math.inf if head.sink is None or sees_nothing else head.sink / self.temperature
        largest = max(*masked, sink)
        shift = largest if abs(largest) > 30 and math.isfinite(largest) else 0.0
        exps = [math.exp(score - shift) for score in masked]
        sunk = math.exp(sink - shift)
        return Row(
            query=i,
            query_token=self.query_tokens[i],
            key_tokens=self.key_tokens,
            rivals=self.named_rivals,
            scores=head.scores[at].tolist(),
            scaled=head.scaled_scores[at].tolist(),
            terms=None if head.position_terms is None else head.position_terms[:, i].tolist(),
            position=None if head.position_scores is None else head.position_scores[at].tolist(),
            capped=None if head.capped_scores is None else head.capped_scores[at].tolist(),
            is_rotated=head.rotated is not None,
            masked=masked,
            shift=shift,
            exps=exps,
            total=sum(exps) + sunk,
            sunk=sunk,
            weights=head.weights[at].tolist(),
            rounding=rounding_of(head.masked_scores.dtype),
        )

    def sink_shares(self, head: Head) -> Array | None:
        """Return what a sink takes of each held row of a head, or of the mean of heads, (rows,)."""
        return None if self.heads[0].sink is None else 1 - head.sums

    def because(self, i: int, head: Head | None = None) -> list[Because]:
        """Return why query i of a head looks at its strongest key and not at the runner-up, nor at that of --versus.

        Empty where there is no rival, or where the weights have no scores of their own.
        """
        row = self.row(i, head)
        return [] if row is None else row.because()

    def diagnoses(self, rows: Sequence[int] | None = None, with_temperature: bool = True) -> list[Diagnosis]:
        """Return the diagnostics of each listed row (or each of `rows`), for the shown head.

        Without `with_temperature`, temperature_95 is not computed: it is most of the work.
        """
        head = self.shown
        held = [self.row_in_arrays(i) for i in (self.listed if rows is None else rows)]
        allowed = None if self.mask is None else self.mask[held]
        masked = None if head.masked_scores is None else head.masked_scores[held]
        has_distance = head.position_scores is not None
        if not with_temperature or (has_distance and not self.temperature_scales_distance):
            masked = None  # the sum does not scale with the temperature
        if head.sink is not None:
            masked = None  # the strongest key need not be what is left when all grow sharp
        plain = head.k is not None and score_named(self.score).of is dot and not has_distance  # long keys win
        dots = head.scores[held] if plain and head.scores is not None else None
        return diagnose(head.weights[held], allowed, masked, self.temperature, dots, head.k)

    def links(self, head: Head | None = None) -> list[tuple[int, int, float]]:
        """Return (query, key, weight) of each listed row's strongest links, --top of them (5 if not said)."""
        head = head or self.shown
        k = self.settings.top or 5
        return [
            (i, int(j), float(w))
            for i in self.listed
            for j, w in zip(head.links.keys[i, :k], head.links.weights[i, :k], strict=True)
            if j >= 0
        ]

    def __repr__(self) -> str:
        n_q, n_k, heads = len(self.query_tokens), len(self.key_tokens), len(self.head_names)
        first = " ".join(map(visible, self.query_tokens[:FIRST_TOKENS])) + " ..." * (n_q > FIRST_TOKENS)
        head = f"head {self.shown.name}" + (f" (one of {heads})" if heads > 1 else "")
        return f"<Trace {self.kind}: {n_q:,} queries x {n_k:,} keys, {head}; {first}>"
