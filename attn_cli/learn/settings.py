"""How a model is trained: every setting with its default."""

from __future__ import annotations

from dataclasses import dataclass, replace

from attn_cli.settings.declare import typed_only


@dataclass(frozen=True)
class TrainSettings:
    """How a model is trained. None means the default for one layer, or for several; `with_defaults` fills it in."""

    relations: str | None = typed_only(
        None, "The heads to learn, between commas.", metavar="NAMES", unset="all"
    )
    layers: int = typed_only(1, "Layers; more than one needs PyTorch (attn-cli[learn]).", (1, 50))
    heads: int = typed_only(8, "Heads in each layer below the last.", (1, 64))
    epochs: int | None = typed_only(
        None, "Passes over the sentences.", (1, 10_000), unset="12, with several layers 18"
    )
    rate: float | None = typed_only(None, "Step size.", unset="0.003, with several layers 0.0015")
    dim: int = typed_only(32, "Numbers in a query of the last layer, d_k.", (1, 1024))
    reach: int = typed_only(12, "Longer distances count as this one.", (1, 1000))
    width: int = typed_only(128, "Numbers per word between several layers.", (1, 4096))
    wide: int = typed_only(320, "Hidden units of each word's own network, with several layers.", (1, 16384))
    seed: int = typed_only(0, "Seed; the same gives the same model.", (0, 2**31 - 1))
    threads: int = typed_only(1, "Threads for several layers; the last digits depend on it.", (1, 256))
    # These have no option.
    dropout: float = 0.2
    endings: int = 600
    itself: int | None = None  # none, or 1000
    blend: float = 0.5
    balance: float | None = None  # 1, or 2
    batch: int = 1500
    punctuation: float = 0.5
    pairs: float = 0.1

    def with_defaults(self) -> TrainSettings:
        """Return the settings with every None filled in."""
        from attn_cli.learn.relations import RELATIONS  # help does without

        several = self.layers > 1
        return replace(
            self,
            relations=",".join(RELATIONS) if self.relations is None else self.relations,
            epochs=(18 if several else 12) if self.epochs is None else self.epochs,
            rate=(0.0015 if several else 0.003) if self.rate is None else self.rate,
            balance=(2.0 if several else 1.0) if self.balance is None else self.balance,
            itself=(1000 if several else 0) if self.itself is None else self.itself,
        )
