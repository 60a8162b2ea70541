"""Every error and every exit code; and the known name that a mistyped one is most like."""

from __future__ import annotations

TYPE_CHECKING = False  # `attn --version` needs no typing
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# Exit code        given by
FINE = 0  # also when the reader of a pipe has left
DIFFERENT = 1  # attn check: an answer differs; attn verify: a number of a model does
USAGE = 2  # UsageError, SettingError: wrong usage, a value out of range
INPUT = 65  # InputError, NotFinite: the input was refused
NO_FILE = 66  # FileError: a file is missing or unreadable
NO_EXTRA = 69  # MissingExtra: an optional part is not installed
BUG = 70  # AttnError itself, and any exception that is not one of these
NO_MEMORY = 71  # NoMemory, MachineError: no memory, or the machines of a cluster are not there
CANNOT_CREATE = 73  # CreateError: an output file cannot be created
CANNOT_WRITE = 74  # WriteError: writing failed
CONFIG = 78  # ConfigError: a bad ATTN_* variable or configuration file
INTERRUPTED = 130  # Ctrl-C: 128 and the signal's number; 129 at SIGHUP, 143 at SIGTERM


def near_names(word: str, known: Iterable[str], most: int = 1) -> list[str]:
    """Return the known names that are spelled most like `word`, in whatever capitals, at most so many."""
    import difflib  # only for help with a mistake

    by_letters = {name.casefold(): name for name in known}
    return [by_letters[near] for near in difflib.get_close_matches(word[:120].casefold(), by_letters, most)]


def did_you_mean(word: str, known: Iterable[str], most: int = 1) -> str:
    """Return the question that a hint begins with, or nothing where no known name is like `word`.

    >>> did_you_mean("Dto", ["scaled", "dot"])
    'Did you mean dot? '
    """
    near = [name if name.isprintable() else ascii(name) for name in near_names(word, known, most)]
    listed = " or ".join(filter(None, [", ".join(near[:-1]), *near[-1:]]))
    return f"Did you mean {listed}? " if near else ""


class AttnError(Exception):
    """An error in one sentence; `hint` says what to try, `line` which line of the input failed."""

    code = BUG
    line: int | None = None

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return " ".join(filter(None, [self.message, self.hint.partition("\n")[0]]))

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle it as it is: some kinds are made of other things than their message."""
        from copyreg import __newobj__ as made_of  # type: ignore[attr-defined]

        return made_of, (type(self), *self.args), self.__dict__

    def as_record(self) -> dict[str, object]:
        """Return the error as the JSON of schema attn/1."""
        hint = self.hint.partition("\n")[0] or None
        error = {"code": self.code, "message": self.message, "hint": hint, "line": self.line}
        return {"schema": "attn/1", "error": error}


class UsageError(AttnError, ValueError):
    """Wrong usage; `option` names the option whose value was refused, as `--heads`."""

    code = USAGE

    def __init__(self, message: str, hint: str = "", option: str = "") -> None:
        super().__init__(message, hint)
        self.option = option


def refuse(is_wrong: object, message: str, hint: str = "", option: str = "") -> None:
    """Raise UsageError if something is wrong."""
    if is_wrong:
        raise UsageError(message, hint, option)


class SettingError(UsageError):
    """A setting has a value that it cannot have."""

    def __init__(self, name: str, value: str, hint: str) -> None:
        super().__init__(f"{name} cannot be {value}.", hint, "--" + name.replace("_", "-"))
        self.of_option = f"{self.option} cannot be {value}."  # the message for the command line


class InputError(AttnError, ValueError):
    """Input refused: no tokens, a bad matrix, shapes that do not fit."""

    code = INPUT


class FileError(AttnError, OSError):
    """A file is missing or unreadable."""

    code = NO_FILE


class MissingExtra(AttnError, ImportError):
    """An optional part is not installed; the message holds the line that installs it."""

    code = NO_EXTRA


class CreateError(AttnError, OSError):
    """An output file cannot be created."""

    code = CANNOT_CREATE


class WriteError(AttnError, OSError):
    """Writing failed half way: disk full, closed standard output."""

    code = CANNOT_WRITE


class NoMemory(AttnError, MemoryError):
    """The machine refused memory."""

    code = NO_MEMORY

    def __init__(self) -> None:
        hint = "Try a shorter text or fewer numbers a word (--full takes the most), or raise the limit (ulimit -v)."
        super().__init__("There is not enough memory for this.", hint)


class MachineError(AttnError):
    """Machines of a cluster are not there: a scheduler that cannot be reached or was lost, workers that died."""

    code = NO_MEMORY


class ConfigError(AttnError, ValueError):
    """A setting from the environment or a configuration file is bad."""

    code = CONFIG


class NotFinite(InputError):
    """A score, or a value that is attended to (then `query` is None), is NaN or infinite.

    `queries` and `keys` are their tokens as they are shown, where there are any.
    """

    def __init__(self, query: int | None, key: int, queries: Sequence[str] = (), keys: Sequence[str] = ()):
        self.query, self.key = query, key
        k = f"key {key} ({keys[key]})" if keys else f"key {key}"
        if query is None:
            said = f"The value vector of {k} holds NaN or infinity, and it is attended to."
            hint = "In float32, numbers beyond 3e38 are infinite."
        else:
            q = f"query {query} ({queries[query]})" if queries else f"query {query}"
            said = f"The score of {q} and {k} is not a finite number."
            hint = "Look for NaN, infinity or numbers beyond 1e150 (in float32, 1e18) in what was given."
        super().__init__(said, hint)

    def among(self, rows: Sequence[int]) -> NotFinite:
        """Return the error of a block of rows that are, in the whole, `rows`."""
        return NotFinite(None if self.query is None else rows[self.query], self.key)
