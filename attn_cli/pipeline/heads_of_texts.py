"""What every head does over many texts: means and spreads of each measure, in memory that no further text adds to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np

from attn_cli.errors import AttnError, InputError, UsageError, refuse_input
from attn_cli.io.types import Array, NamedTuple
from attn_cli.pipeline.every_head import LayerWeights, open_layers, shaped, up_to
from attn_cli.settings import Settings
from attn_cli.trace.head_roles import BAG, PATTERNS, find_patterns, is_mark, measure

SHARES = (*PATTERNS, BAG)
MEASURES = ("entropy", "distance", "sink", *SHARES, "punctuation")
MOST_NOTES = 5  # on single lines


class Spread(NamedTuple):
    """A measure over texts: its mean, its standard deviation among texts, and in how many texts it has a value."""

    mean: float | None  # None where no text has one
    spread: float | None
    texts: int


class HeadOverTexts(NamedTuple):
    """One head over texts: a Spread of each of MEASURES, and how many texts give it each name."""

    layer: int
    name: str
    measures: dict[str, Spread]
    roles: Counter[str]

    @property
    def role(self) -> str:
        """The name that most texts give it."""
        return self.roles.most_common(1)[0][0]


class HeadsOverTexts(NamedTuple):
    """Every head of a model over texts."""

    source: str
    kind: str  # self or masked
    texts: int
    tokens: int
    heads: tuple[HeadOverTexts, ...]
    notes: tuple[str, ...]

    def record(self) -> dict[str, object]:
        """Return it as JSON has it."""
        heads = [
            {"layer": head.layer, "head": head.name, "name": head.role, "names": dict(head.roles)}
            | {name: head.measures[name]._asdict() for name in MEASURES}
            for head in self.heads
        ]
        about = {"source": self.source, "attention": self.kind, "texts": self.texts, "tokens": self.tokens}
        return {"schema": "attn/1", "kind": "heads_of_texts", **about, "heads": heads, "notes": [*self.notes]}


class _Tally:
    """Sums of one head, added to text by text (Welford 1962): no text is kept."""

    def __init__(self) -> None:
        self.counts, self.means, self.squares = (np.zeros(len(MEASURES)) for _ in range(3))
        self.roles: Counter[str] = Counter()

    def add(self, values: Array, role: str) -> None:
        """Add a text's measures, NaN for one that it does not have."""
        has = ~np.isnan(values)
        self.counts += has
        before = np.where(has, values - self.means, 0.0)
        self.means += before / np.maximum(self.counts, 1)
        self.squares += before * np.where(has, values - self.means, 0.0)
        self.roles[role] += 1

    def measures(self) -> dict[str, Spread]:
        """Return each measure's mean and spread."""
        deviations = np.sqrt(self.squares / np.maximum(self.counts, 1))
        found = zip(self.means.tolist(), deviations.tolist(), map(int, self.counts), strict=True)
        each = (Spread(*of_name) if of_name[-1] else Spread(None, None, 0) for of_name in found)
        return dict(zip(MEASURES, each, strict=True))


def measure_texts(
    texts: Iterable[tuple[int, str]], kind: str, settings: Settings, layer: int | None = None
) -> HeadsOverTexts:
    """Return what each head does over texts, each with the number of its line; empty ones are left out.

    Entropy is in bits; distance is the mean number of tokens from a query to what it looks at; sink is the largest
    mean weight that one key gets from the other queries (an attention sink: Xiao et al. 2023). The rest are the shares
    of `attn heads`, and that of punctuation. InputError has the number of a line that cannot be read.
    """
    tallies: dict[tuple[int, str], _Tally] = {}
    count = tokens = 0
    shared: dict[str, None] | None = None  # the notes that each text has had
    of_lines: list[tuple[int, str]] = []
    source = kind_found = ""
    with open_layers(settings) as layers_of:
        for number, text in texts:
            if not text.strip():
                continue
            notes = dict[str, None]()
            try:
                for one in up_to(layer, layers_of(kind, text, None)):
                    one = shaped(one, settings, True)
                    if layer in (None, one.number):
                        _add(one, tallies)
                    source, kind_found, n = one.source.name, one.source.kind, len(one.source.query_tokens)
                    notes |= dict.fromkeys(one.notes)
            except AttnError as error:
                if isinstance(error, UsageError):
                    raise
                raise InputError(f"Line {number}: {error.message}", error.hint) from None
            count, tokens = count + 1, tokens + n
            shared = {note: None for note in (notes if shared is None else shared) if note in notes}
            if len(of_lines) < MOST_NOTES:
                of_lines += [(number, note) for note in notes if note not in shared or count == 1]
    refuse_input(not count, "There is no text in the file.", "Give a text a line.")
    heads = tuple(HeadOverTexts(*name, one.measures(), one.roles) for name, one in tallies.items())
    always = shared or {}
    alone = [f"Line {number}: {note}" for number, note in of_lines if note not in always][:MOST_NOTES]
    return HeadsOverTexts(source, kind_found, count, tokens, heads, (*always, *alone))


def _add(one: LayerWeights, tallies: dict[tuple[int, str], _Tally]) -> None:
    """Add what each head of a layer does on one text; NaN is a measure that the text does not have."""
    patterns = find_patterns(one.source.text, one.mask)
    for name, weights, (distance, sink, to_marks) in zip(one.heads, one.weights, _apart(one).T, strict=True):
        role = measure(weights, one.mask, patterns)
        shares = (role.entropy, *(role.shares[share] for share in SHARES))
        bits, *others = (np.nan if value is None else value for value in shares)
        values = np.array([bits, distance, sink, *others, to_marks])
        tallies.setdefault((one.number, name), _Tally()).add(values, role.name)


def _apart(one: LayerWeights) -> Array:
    """Return each head's distance, sink and share of punctuation on one text, (3, h)."""
    heads, n, _ = one.weights.shape
    places, marks = np.arange(n), np.array([is_mark(token) for token in one.source.key_tokens])
    is_other = places[:, np.newaxis] != places
    others, found = one.weights * is_other, np.full((3, heads), np.nan)
    seeing = one.weights.any(axis=2).sum(axis=1)
    far = (others * np.abs(places[:, np.newaxis] - places)).sum(axis=(1, 2))
    np.divide(far, seeing, out=found[0], where=seeing > 0)
    if n > 1:
        found[1] = others.sum(axis=1).max(axis=1) / (n - 1)
    rows = (one.mask & is_other)[:, marks].any(axis=1)
    if rows.any():
        found[2] = others[:, rows][:, :, marks].sum(axis=2).mean(axis=1)
    return found
