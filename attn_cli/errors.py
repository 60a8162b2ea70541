"""What can go wrong, each kind with its exit code and one line of help."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

FINE, DIFFERENT, USAGE, INPUT, NO_FILE, NO_EXTRA = 0, 1, 2, 65, 66, 69
BUG, CANNOT_CREATE, CANNOT_WRITE, CONFIG, INTERRUPTED = 70, 73, 74, 78, 130


def as_record(code: int, message: str, hint: str = "", line: int | None = None) -> dict[str, object]:
    """Return an error as the JSON of schema attn/1; `line` is that of the input, where lines are read."""
    error = {"code": code, "message": message, "hint": hint.partition("\n")[0] or None, "line": line}
    return {"schema": "attn/1", "error": error}


class AttnError(Exception):
    """What could not be done, in a sentence; `hint` says what to try, `line` which line of the input failed."""

    code = BUG
    line: int | None = None

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(AttnError, ValueError):
    """Wrong usage (exit 2); `option` names the option whose value was refused, as `--heads`."""

    code = USAGE

    def __init__(self, message: str, hint: str = "", option: str = "") -> None:
        super().__init__(message, hint)
        self.option = option


ONE_TEXT = '"She likes coffee"'


class NoText(UsageError):
    """There is no text, and nobody is piping one in (exit 2): help is shown."""

    def __init__(self, command: str) -> None:
        rest = {
            "batch": "sentences.txt",
            "lookup": "colour brand=Porche color=black",
            "cross": '"she" "likes coffee"',
            "compare": '"She likes coffee" --vary score=scaled,dot',
        }
        super().__init__("There is no text.", f"Try: attn {command} {rest.get(command, ONE_TEXT)}")


class NoFile(NoText):
    """There is no file, and nobody is piping one in (exit 2): help is shown."""

    def __init__(self, command: str) -> None:
        UsageError.__init__(self, "There is no file.", f"Try: attn {command} FILE")


class InputError(AttnError, ValueError):
    """Input refused (exit 65): no tokens, a bad matrix, shapes that do not fit."""

    code = INPUT


class NotFinite(InputError):
    """A score, or a value that is attended to (then `query` is None), is NaN or infinity (exit 65).

    `queries` and `keys` are their tokens as they are to be shown, where there are any.
    """

    def __init__(
        self, query: int | None, key: int, queries: Sequence[str] = (), keys: Sequence[str] = ()
    ) -> None:
        self.query, self.key = query, key
        k = f"key {key} ({keys[key]})" if keys else f"key {key}"
        if query is None:
            super().__init__(
                f"The value vector of {k} holds NaN or infinity, and it is attended to.",
                "In float32, numbers beyond 3e38 are infinite.",
            )
            return
        q = f"query {query} ({queries[query]})" if queries else f"query {query}"
        super().__init__(
            f"The score of {q} and {k} is not a finite number.",
            "Look for NaN, infinity or numbers beyond 1e150 (in float32, 1e18) in what was given.",
        )

    def among(self, rows: Sequence[int]) -> NotFinite:
        """Return the error of a block of rows that are, in the whole, `rows`."""
        return NotFinite(None if self.query is None else rows[self.query], self.key)


class FileError(AttnError, OSError):
    """A file is missing or unreadable (exit 66)."""

    code = NO_FILE


class MissingExtra(AttnError, ImportError):
    """An optional part is not installed (exit 69); the message holds the line that installs it."""

    code = NO_EXTRA


class CreateError(AttnError, OSError):
    """An output file cannot be created (exit 73)."""

    code = CANNOT_CREATE


class WriteError(AttnError, OSError):
    """Writing failed half way: disk full, closed standard output (exit 74)."""

    code = CANNOT_WRITE


class ConfigError(AttnError, ValueError):
    """A setting from the environment or a configuration file is bad (exit 78)."""

    code = CONFIG
