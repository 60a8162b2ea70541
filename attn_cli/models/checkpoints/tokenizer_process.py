"""A tokenizer in a separate process, with limits of time and memory: for a file whose cost cannot be foreseen.

Each process of attn has one such process at most, and that has one tokenizer at a time.
"""

from __future__ import annotations

import os
import threading
from typing import Any, NamedTuple

from attn_cli.errors import InputError
from attn_cli.io.signals import DiedError, SeparateProcess

SECONDS = 30  # for each question
MEMORY = 4 << 30


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
        holder = _holders.get(os.getpid()) or _holders.setdefault(os.getpid(), _Holder())
        try:
            answer = holder.ask(self.data, {"do": do, **more})
        except DiedError as error:
            what = f"took more than {MEMORY >> 30} GB of memory, or crashed"
            what = f"took more than {SECONDS} seconds" if error.is_late else what
            raise InputError(
                f"The tokenizer of {self.name} {what}: attn cannot foresee the cost of {self.unbounded}.",
                "Compare its tokenizer.json with that of the model's publisher, or give a shorter text.",
            ) from None
        if "why" in answer:
            raise LibraryError(answer["why"])
        return answer["found"]


class _Holder:
    """The separate process, which starts with the first question, and anew after its death."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.process: SeparateProcess | None = None
        self.data = b""  # the file that it has read

    def ask(self, data: bytes, question: dict[str, Any]) -> Any:
        """Return the answer of the tokenizer that a file makes, to a thread at a time."""
        with self.lock:
            if self.process is None or not self.process.is_running():
                self.end()
                child = os.path.join(os.path.dirname(__file__), "tokenizer_child.py")
                self.process = SeparateProcess(child, [_library(), str(MEMORY), str(SECONDS)], SECONDS)
            if self.data != data:
                self.data = b""
                answer = self.process.ask({"do": "load", "size": len(data)}, data)
                if "why" in answer:
                    return answer
                self.data = data
            return self.process.ask(question)

    def end(self) -> None:
        """End the process, if there is one."""
        if self.process is not None:
            self.process.end()
        self.process, self.data = None, b""


_holders: dict[int, _Holder] = {}  # by the number of attn's own process: a fork has no share in its parent's


def _library() -> str:
    """Return the folder of the tokenizers package: the separate process imports it from there."""
    from importlib.util import find_spec

    found = find_spec("tokenizers")
    assert found is not None and found.origin is not None  # attn has imported it
    return os.path.dirname(os.path.dirname(found.origin))
