"""A tokenizer in a separate process, with limits of time and memory: for a file whose cost cannot be foreseen.

Each process of attn has one such process at most, and that has one tokenizer at a time.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from attn_cli.errors import InputError, MachineError
from attn_cli.io.signals import cleaned_up

if TYPE_CHECKING:
    from subprocess import Popen

SECONDS = 30  # for each question
MEMORY = 4 << 30
LONGEST_ANSWER = 1 << 28


class LibraryError(Exception):
    """What the library says against a file or a text."""


class Encoding(NamedTuple):
    """What the library says of a text."""

    ids: list[int]
    tokens: list[str]
    special_tokens_mask: list[int]
    offsets: list[list[int]]
    type_ids: list[int]


class TokenizerProxy:
    """Stands for a tokenizer of the library's, as far as attn asks it, that is in the separate process."""

    def __init__(self, data: bytes, name: str, unbounded: str) -> None:
        self.data, self.name, self.unbounded = data, name, unbounded

    def encode(self, text: str, second: str | None = None) -> Encoding:
        """Return the tokens of a text."""
        return Encoding(*self._ask("encode", text=text, second=second))

    def decode(self, ids: list[int], skip_special_tokens: bool = False) -> str:
        """Return tokens as text, special ones too."""
        return str(self._ask("decode", ids=ids))

    def id_to_token(self, id_: int) -> str | None:
        """Return how the vocabulary spells a token."""
        found: str | None = self._ask("id_to_token", of=id_)
        return found

    def token_to_id(self, token: str) -> int | None:
        """Return a token's number."""
        found: int | None = self._ask("token_to_id", of=token)
        return found

    def _ask(self, do: str, **more: object) -> Any:
        return _process().ask(self, {"do": do, **more})


class _Process:
    """The separate process: it starts at the first question, and anew at the next one after its death."""

    def __init__(self) -> None:
        self.lock, self.owner = threading.Lock(), os.getpid()
        self.running: Popen[bytes] | None = None
        self.is_late = False
        self.read = b""  # the file whose tokenizer it holds

    def ask(self, tokenizer: TokenizerProxy, question: dict[str, object]) -> Any:
        """Return the answer; raise InputError if the process dies of the question, or takes too long."""
        with self.lock, cleaned_up(self.kill):
            try:
                if self.running is None or self.running.poll() is not None:
                    self._start()
                if self.read != tokenizer.data:
                    self.read = b""
                    self._exchange(tokenizer, {"do": "load", "size": len(tokenizer.data)}, tokenizer.data)
                    self.read = tokenizer.data
                return self._exchange(tokenizer, question)
            except LibraryError:
                raise
            except BaseException:  # an interrupt, too: what is asked next must not get this answer
                self.end()
                raise

    def _exchange(self, tokenizer: TokenizerProxy, question: dict[str, object], data: bytes = b"") -> Any:
        running = self.running
        assert running is not None and running.stdin is not None and running.stdout is not None
        timer = threading.Timer(SECONDS, self._end_late)
        timer.daemon = True
        timer.start()
        try:
            running.stdin.write(json.dumps(question).encode() + b"\n" + data)
            running.stdin.flush()
            line = running.stdout.readline(LONGEST_ANSWER)
        except BrokenPipeError:
            line = b""
        finally:
            timer.cancel()
        if not line.endswith(b"\n"):
            self.kill()
            raise self._death(tokenizer, running.wait())
        answer = json.loads(line)
        if "why" in answer:
            raise LibraryError(answer["why"])
        return answer["found"]

    def _start(self) -> None:
        import atexit
        import subprocess

        import tokenizers

        self.end()
        child = os.path.join(os.path.dirname(__file__), "tokenizer_child.py")
        library = os.path.dirname(os.path.dirname(tokenizers.__file__))
        alone = {"MALLOC_ARENA_MAX": "1", "RAYON_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
        try:  # -I: it imports nothing from the folder that attn runs in, or from PYTHONPATH
            self.running = subprocess.Popen(
                [sys.executable or "python", "-I", child, library, str(MEMORY), str(SECONDS)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for attn, which then kills it
                env={**os.environ, **alone},
            )
        except OSError as error:
            raise MachineError(f"The process of a tokenizer cannot be started: {error.strerror}.") from None
        atexit.unregister(self.end)
        atexit.register(self.end)

    def _end_late(self) -> None:
        self.is_late = True
        self.kill()

    def kill(self) -> None:
        """Kill the process, if there is one of ours."""
        if self.running is not None and self.owner == os.getpid():
            self.running.kill()

    def end(self) -> None:
        """Kill the process, and forget it."""
        if self.running is None or self.owner != os.getpid():
            return
        self.kill()
        self.running.wait()
        for pipe in (self.running.stdin, self.running.stdout):
            with suppress(OSError):
                assert pipe is not None
                pipe.close()
        self.running, self.is_late, self.read = None, False, b""

    def _death(self, tokenizer: TokenizerProxy, code: int) -> InputError:
        """Return the error of a process that has ended before its answer."""
        what = f"took more than {MEMORY >> 30} GB of memory, or crashed"
        if self.is_late or code == -getattr(signal, "SIGXCPU", 0):
            what = f"took more than {SECONDS} seconds"
        return InputError(
            f"The tokenizer of {tokenizer.name} {what}: attn cannot foresee the cost of {tokenizer.unbounded}.",
            "Compare its tokenizer.json with that of the model's publisher, or give a shorter text.",
        )


_processes: dict[
    int, _Process
] = {}  # by the number of attn's own process: a fork has no share in its parent's


def _process() -> _Process:
    return _processes.get(os.getpid()) or _processes.setdefault(os.getpid(), _Process())
