"""Computing beside the keys: a thread that answers the latest question and drops those that are stale."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from attn_cli.errors import AttnError
from attn_cli.live.state import Question

if TYPE_CHECKING:
    from attn_cli.trace.trace import Trace

Compute = Callable[[Question], "Trace"]


class Answer(NamedTuple):
    """What became of a question: a trace, an error that a user can mend, or a bug."""

    number: int
    question: Question
    trace: Trace | None
    error: BaseException | None = None

    @property
    def is_bug(self) -> bool:
        """Whether the error is none that a user can mend."""
        return self.error is not None and not isinstance(self.error, AttnError | MemoryError | RecursionError)


class Worker:
    """A thread that computes; `tell` is called in it, with each answer that is still wanted."""

    def __init__(self, compute: Compute, tell: Callable[[Answer], object]) -> None:
        self._compute = compute
        self._tell = tell
        self._wake = threading.Condition()
        self._asked: tuple[int, Question] | None = None
        self._number = 0
        self._is_over = False
        self._thread = threading.Thread(target=self._run, name="attn-live", daemon=True)

    def start(self) -> None:
        """Start to answer."""
        self._thread.start()

    def ask(self, question: Question) -> int:
        """Ask a question in place of whatever waits, and return its number."""
        with self._wake:
            self._number += 1
            self._asked = (self._number, question)
            self._wake.notify()
            return self._number

    def stop(self) -> None:
        """Answer nothing more; what is being computed is left to end by itself."""
        with self._wake:
            self._is_over = True
            self._wake.notify()

    def _run(self) -> None:
        while True:
            with self._wake:
                while self._asked is None and not self._is_over:
                    self._wake.wait()
                if self._is_over or self._asked is None:
                    return
                number, question = self._asked
                self._asked = None
            try:
                answer = Answer(number, question, self._compute(question))
            except BaseException as error:  # a bug ends the program with a report, in the thread that draws
                answer = Answer(number, question, None, error)
            with self._wake:
                is_wanted = answer.is_bug or (self._asked is None and not self._is_over)
            if is_wanted:
                self._tell(answer)
