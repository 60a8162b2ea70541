"""How a model is trained: every setting with its default."""

from __future__ import annotations

from dataclasses import dataclass, replace

from attn_cli.learn.relations import RELATIONS


@dataclass(frozen=True)
class TrainSettings:
    """How a model is trained. None means the default for one layer, or for several; `with_defaults` fills it in."""

    layers: int = 1
    heads: int = 8
    relations: str | None = None
    epochs: int | None = None  # 12, or 18 with several layers
    rate: float | None = None  # 0.003, or 0.0015
    seed: int = 0
    dim: int = 32
    reach: int = 12
    width: int = 128
    wide: int = 320
    dropout: float = 0.2
    endings: int = 600
    itself: int | None = None  # none, or 1000
    blend: float = 0.5
    balance: float | None = None  # 1, or 2
    batch: int = 1500
    punctuation: float = 0.5
    pairs: float = 0.1
    threads: int = 1

    def with_defaults(self) -> TrainSettings:
        """Return the settings with every None filled in."""
        several = self.layers > 1
        return replace(
            self,
            relations=",".join(RELATIONS) if self.relations is None else self.relations,
            epochs=(18 if several else 12) if self.epochs is None else self.epochs,
            rate=(0.0015 if several else 0.003) if self.rate is None else self.rate,
            balance=(2.0 if several else 1.0) if self.balance is None else self.balance,
            itself=(1000 if several else 0) if self.itself is None else self.itself,
        )
