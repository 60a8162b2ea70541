"""Where traces come from: a text, a model, given matrices, saved weights; all by the pipeline, beside the keys."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from abc import ABC, abstractmethod

from attn_cli.errors import refuse
from attn_cli.inputs.matrices import Given
from attn_cli.inputs.saved_weights import Saved
from attn_cli.io.types import Array, NamedTuple, replace
from attn_cli.pipeline.embed import Shared, open_shared
from attn_cli.pipeline.sources.matrices import trace_matrices
from attn_cli.pipeline.sources.text import trace_text
from attn_cli.pipeline.sources.weights import trace_weights
from attn_cli.settings import Settings
from attn_cli.trace import Trace

EDITABLE = ("X", "context", "W_q", "W_k", "W_v", "b_q", "b_k", "b_v", "Q", "K", "V", "W_o", "b_o")
MOST_EDITED = 400  # numbers of a matrix that can be edited cell by cell


class Edit(NamedTuple):
    """One number of a given matrix that was typed anew."""

    matrix: str
    row: int
    column: int
    value: float


class Question(NamedTuple):
    """All that a trace depends on."""

    text: str
    settings: Settings
    edits: tuple[Edit, ...] = ()


class LiveSource(ABC):
    """What answers questions. Most sources have a text, one layer, and no matrices that can be edited."""

    has_text = True  # whether the text can be typed
    start: tuple[str, ...] = ()  # how a command over the same input begins, the text excepted
    temperature: float | None = None  # where a file states it: settings begin with it

    @abstractmethod
    def compute(self, question: Question) -> Trace:
        """Return the trace of a question."""

    def layers(self, trace: Trace) -> int:
        """Return how many layers there are to choose from."""
        return 1

    def has_rollout(self, trace: Trace) -> bool:
        """Tell whether there is a rollout through the layers."""
        return False

    def matrices(self, question: Question) -> dict[str, Array]:
        """Return the given matrices that can be edited, as they are now."""
        return {}


class TextSource(LiveSource):
    """Attention of a text, with the vectors and the projection of the settings, or in a model whose files stay open."""

    def __init__(self, settings: Settings) -> None:
        self.opened = contextlib.ExitStack()
        if settings.model is None:
            self.shared = open_shared(settings)
        else:
            from attn_cli.models.checkpoints.open_model import open_model  # most texts need no model on disk

            self.shared = Shared(model=self.opened.enter_context(open_model(settings.model)))

    def compute(self, question: Question) -> Trace:
        return trace_text("self", question.text, None, question.settings, shared=self.shared)

    def layers(self, trace: Trace) -> int:
        if self.shared.model is None:
            return trace.learned.layers if trace.learned is not None else 1
        stacks = self.shared.model.checkpoint.model.stacks
        return len(stacks["encoder" if "encoder" in stacks else "decoder"].layers)

    def has_rollout(self, trace: Trace) -> bool:
        return self.shared.model is not None and self.layers(trace) > 1


class MatricesSource(LiveSource):
    """Attention from given matrices, which can be edited where they are small."""

    has_text = False

    def __init__(self, given: Given, path: str, temperature: float | None = None) -> None:
        self.given, self.temperature = given, temperature
        self.start = ("compute", path)

    def compute(self, question: Question) -> Trace:
        given = self.given._replace(arrays=self.given.arrays | self.matrices(question))
        return trace_matrices("compute", given, question.settings)

    def matrices(self, question: Question) -> dict[str, Array]:
        """Return the small matrices, in the order of the computation, with the numbers that were typed."""
        arrays = self.given.arrays
        small = [name for name, one in arrays.items() if one.ndim <= 2 and one.size <= MOST_EDITED]
        found = {name: arrays[name].copy() for name in EDITABLE if name in small}
        for edit in question.edits:
            matrix = found[edit.matrix]
            rows = matrix.reshape(1, -1) if matrix.ndim == 1 else matrix
            rows[edit.row, edit.column] = edit.value
        return found


class WeightsSource(LiveSource):
    """Weights that came ready: nothing is computed but what is shown of them."""

    has_text = False

    def __init__(self, saved: Saved, path: str) -> None:
        self.saved = saved
        self.start = ("show", path)

    def compute(self, question: Question) -> Trace:
        plain = replace(question.settings, score=None, temperature=1.0, without=(), knock_out=())
        said = "These weights came ready: only mask, layer and head can be chosen."
        refuse(plain != question.settings, said)
        return trace_weights(self.saved, question.settings)

    def layers(self, trace: Trace) -> int:
        return int(self.saved.weights.shape[0])

    def has_rollout(self, trace: Trace) -> bool:
        return self.layers(trace) > 1 and len(trace.query_tokens) == len(trace.key_tokens)


async def computed(source: LiveSource, question: Question) -> Trace | BaseException:
    """Return a question's answer, or the error that it ends with, from a thread that nobody waits for at the end."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Trace | BaseException] = loop.create_future()

    def compute() -> None:
        try:
            found: Trace | BaseException = source.compute(question)
        except BaseException as error:  # told to the loop, which ends the program where it is a bug
            found = error
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(answer.set_result, found)

    threading.Thread(target=compute, name="attn-live", daemon=True).start()
    return await answer
