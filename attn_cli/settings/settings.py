"""What to compute: every setting with its default."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """What to compute; these defaults are the program's. None leaves it to the command or the file."""

    tokenizer: str = "words"
    keep_punctuation: bool = False
    embedding: str | None = None  # word2vec
    dim: int | None = None  # 4
    seed: int = 0
    oov: str | None = None  # the model's own vector, else zero
    projection: str | None = None  # roles with word2vec, random with random vectors, else identity
    heads: int | None = None  # 1
    layer: int | None = None  # the last
    head: str | None = None  # the model's main head, the first
    layout: str | None = None  # in-out
    score: str | None = None  # scaled
    temperature: float = 1.0
    mask: str | None = None  # causal in masked, else none
    mask_true: str | None = None
    pad: int | None = None
    pad_side: str = "right"
    positions: str | None = None  # none
    round: int | None = None
    query: str | None = None
    top: int | None = None
    full: bool = False
    dtype: str = "float64"
    threads: int | None = None  # one a processor, where the work is large
