"""How word vectors are trained: every setting with its default."""

from __future__ import annotations

from dataclasses import dataclass

from attn_cli.settings.declare import typed_only

FROM_0, FROM_1 = (0, 2**31 - 1), (1, 2**31 - 1)


@dataclass(frozen=True)
class TrainSettings:
    """How vectors are trained; the defaults are those of the bundled vectors."""

    dim: int = typed_only(100, "Numbers in a vector.", FROM_1)
    window: int = typed_only(5, "Words on each side that count as context.", FROM_1)
    negative: int = typed_only(8, "Random words for each true one.", FROM_1)
    epochs: int = typed_only(6, "Passes over the text.", FROM_1)
    sample: float = typed_only(1e-4, "Words with a larger share of the text are thinned out.")
    words: int = typed_only(40_000, "Keep at most N words.", FROM_1)
    min_count: int = typed_only(10, "Leave out words seen less often.", FROM_1)
    remove: int = typed_only(1, "Shared directions to remove from the vectors.", FROM_0)
    length: float = typed_only(4.0, "The length that every vector is given.", metavar="L")
    seed: int = typed_only(0, "Seed; with one worker, the same vectors again.", FROM_0)
    workers: int = typed_only(1, "Threads; more than one is not repeatable.", FROM_1)
