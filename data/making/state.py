"""The state of a training, in a file beside its output: the same command goes on where an interrupted one was.

It has what learns, the optimizer's numbers and the moving mean's, and where random numbers are drawn. The order of the
text comes from the seed, so what was learned from is drawn again and passed over, and the same model comes of it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from attn_cli.errors import InputError, visible
from attn_cli.io.atomic import written
from data.making.layers import pytorch

if TYPE_CHECKING:
    import numpy as np

T = TypeVar("T")
EVERY = 600.0  # seconds


class State:
    """Where a training is. `learner` is what learns, `draw` its random numbers, `about` what training it is."""

    def __init__(
        self, output: str, learner: Any, draw: np.random.Generator | None, about: Mapping[str, object]
    ) -> None:
        self.path = Path(f"{output}.state")
        self.learner, self.draw, self.about = learner, draw, repr(sorted(about.items()))
        self.place: dict[str, Any] = {"steps": 0}  # numbers of the training's own, such as words read
        self.kept_at = time.monotonic()
        if self.path.exists():
            self._restore()

    def rest(self, batches: Iterator[T]) -> Iterator[T]:
        """Yield the batches that are still to be learned from, and keep the state between them."""
        for step, batch in enumerate(batches, 1):
            if step > self.place["steps"]:
                yield batch
                self.place["steps"] = step
                self.keep()

    def keep(self) -> None:
        """Write the state, all or nothing, where the last one is old enough."""
        if time.monotonic() - self.kept_at < EVERY:
            return
        torch, learner = pytorch(), self.learner
        found = {
            "about": self.about,
            "place": self.place,
            "tensors": self._tensors(),
            "averaged": learner.mean.steps if getattr(learner, "mean", None) else 0,
            "optimizer": learner.optimizer.state_dict(),
            "random": torch.get_rng_state(),
            "draw": self.draw.bit_generator.state if self.draw else None,
        }
        with written(self.path) as stream:
            torch.save(found, stream)
        self.kept_at = time.monotonic()

    def forget(self) -> None:
        """Remove the file: the training has ended."""
        self.path.unlink(missing_ok=True)

    def _restore(self) -> None:
        torch, learner, name = pytorch(), self.learner, visible(str(self.path))
        try:
            found = torch.load(self.path)
        except Exception as error:  # whatever a file that is no state makes PyTorch raise
            said = f"{name} is not the state of a training ({type(error).__name__})."
            raise InputError(said, "Delete it to begin anew.") from None
        if found["about"] != self.about:
            said = f"{name} is the state of a training with other texts or settings."
            raise InputError(said, "Delete it to begin anew, or write to another file.")
        with torch.no_grad():
            for ours, theirs in zip(self._tensors(), found["tensors"], strict=True):
                ours.copy_(theirs)
        if found["averaged"]:
            learner.mean.steps = found["averaged"]
        learner.optimizer.load_state_dict(found["optimizer"])
        torch.set_rng_state(found["random"])
        if self.draw:
            self.draw.bit_generator.state = found["draw"]
        self.place = found["place"]

    def _tensors(self) -> list[Any]:
        """Return what learns, and its moving mean where one is taken."""
        mean = getattr(self.learner, "mean", None)
        return [*(one.detach() for one in self.learner.learned), *(mean.means if mean else ())]
