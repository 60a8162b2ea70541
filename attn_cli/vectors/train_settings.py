"""How word vectors are trained: every setting with its default."""

from __future__ import annotations

from dataclasses import dataclass

from attn_cli.settings.declare import typed_only


@dataclass(frozen=True)
class TrainSettings:
    """How vectors are trained; the defaults are those of the bundled vectors."""

    dim: int = typed_only(100, "Numbers in a vector.")
    window: int = typed_only(5, "Words on each side that count as context.")
    negative: int = typed_only(8, "Random words for each true one.")
    epochs: int = typed_only(6, "Passes over the text.")
    sample: float = typed_only(1e-4, "Words with a larger share of the text are thinned out.")
    words: int = typed_only(40_000, "Keep at most N words.")
    min_count: int = typed_only(10, "Leave out words seen less often.")
    remove: int = typed_only(1, "Shared directions to remove from the vectors.")
    length: float = typed_only(4.0, "The length that every vector is given.", "L")
    seed: int = typed_only(0, "Seed; with one worker, the same vectors again.")
    workers: int = typed_only(1, "Threads; more than one is not repeatable.")
