"""Every error, every exit code, and the words of messages: names made safe to print, counts, the nearest known name."""

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


# Cc are C0, DEL and C1; Cf are the bidi controls, zero-width characters and tags; Zl and Zp break
# lines; Cs are lone surrogates, which no encoding accepts; Co and Cn have no agreed picture; Zs are spaces.
HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"})
_ZWJ = "\u200d"

# Drawn as nothing although Unicode calls them letters or marks: fillers, the grapheme joiner, selectors.
_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u2800\u3164\uffa0")
# What isprintable() lets through: these, and the selectors.
_UNSEEN = _BLANK.union(map(chr, (*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))))
_SPECIAL = frozenset('"$`\\!')  # that mean something between double quotes
_ENDING = frozenset("\\'!")  # that end $'...', or that the history of a shell might take


def visible(text: str) -> str:
    """Return `text` with each character that a terminal or a page would obey or hide spelled out.

    C0 and DEL become caret notation, everything else `<U+XXXX>`. A zero-width joiner between two
    symbols (a family emoji) and a variation selector after a visible character stay. Spaces other
    than U+0020 are spelled out too: a token that holds one must not look like two.

    >>> visible(chr(27) + "[31m"), visible(chr(0x202E))
    ('^[[31m', '<U+202E>')
    """
    if text.isprintable() and (text.isascii() or _UNSEEN.isdisjoint(text)):
        return text
    return "".join(_spell(text, i) for i in range(len(text)))


def shell_quote(word: str, double: bool = False) -> str:
    r"""Return a word as one types it in bash or zsh; what a terminal would obey or hide is written as its bytes.

    `double` prefers double quotes, where no character of the word means anything between them. What no argument can
    hold, NUL and a lone surrogate that stands for no byte, becomes U+FFFD.

    >>> print(shell_quote("the fox's"), shell_quote("a" + chr(27) + "[31m"), shell_quote("it " + chr(0x202E) + "is!"))
    'the fox'"'"'s' $'a\x1b[31m' $'it \xe2\x80\xaeis\x21'
    """
    import shlex  # only commands need it

    if visible(word) != word:
        return f"$'{''.join(map(_as_bytes, word))}'"
    if double and not _SPECIAL.intersection(word):
        return f'"{word}"'
    return f"'{word}'" if word.startswith("=") and shlex.quote(word) == word else shlex.quote(word)


def _as_bytes(char: str) -> str:
    if visible(char) == char and char not in _ENDING:
        return char
    if char == "\0" or ("\ud800" <= char <= "\udfff" and not "\udc80" <= char <= "\udcff"):
        char = "\ufffd"
    return "".join(f"\\x{byte:02x}" for byte in char.encode("utf-8", "surrogateescape"))


def shortened(text: str, longest: int = 24) -> str:
    """Return a text for a sentence: visible, and cut off where it is longer than one can hold."""
    return visible(text if len(text) <= longest else f"{text[:longest]}...")


def listed(names: Sequence[str], most: int = 8, longest: int = 60) -> str:
    """Return at most so many names for a sentence, as `shortened` has them: `longest` characters of each."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return (", ".join(shortened(name, longest) for name in names[:most]) + more) or "nothing"


def _spell(text: str, i: int) -> str:
    import unicodedata  # plain text, the usual case, does without

    char = text[i]
    code = ord(char)
    if code < 0x20 or code == 0x7F:
        return "^" + chr(code ^ 0x40)
    if char == " ":
        return char
    if char == _ZWJ and _joins_emoji(text, i):
        return char
    if 0xFE00 <= code <= 0xFE0F:
        return char if i and unicodedata.category(text[i - 1])[0] in "LNPS" else f"<U+{code:04X}>"
    is_hidden = 0xE0100 <= code <= 0xE01EF or char in _BLANK or unicodedata.category(char) in HIDDEN
    return f"<U+{code:04X}>" if is_hidden else char


def _joins_emoji(text: str, i: int) -> bool:
    """Tell whether the joiner at i stands between two pictures, a selector after the first allowed."""
    from unicodedata import category

    before = i - 2 if i >= 2 and text[i - 1] == "\ufe0f" else i - 1
    sides = (text[before : before + 1] if before >= 0 else "", text[i + 1 : i + 2])
    return all(one and (category(one) == "So" or "\U0001f3fb" <= one <= "\U0001f3ff") for one in sides)


def as_utf8(argument: str) -> str:
    """Return a command-line argument read as UTF-8 in any locale; bytes that are not UTF-8 become U+FFFD."""
    return argument.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def count(n: int, one: str, many: str) -> str:
    """Return `1 key` or `3 keys`."""
    return f"{n:,} {one if n == 1 else many}"


def count_more(n: int, noun: str) -> str:
    """Return `1 more row` or `3 more rows`."""
    return count(n, f"more {noun}", f"more {noun}s")


def fixed(value: float, digits: int, kind: str = "f") -> str:
    """Return a number with that many decimals, or with `kind` "%" in percent; what rounds to zero has no sign.

    >>> fixed(-0.0004, 3), fixed(-1e-17, 1, "%"), fixed(-0.5, 2)
    ('0.000', '0.0%', '-0.50')
    """
    return unsigned_zero(f"{value:.{digits}{kind}}")


def unsigned_zero(text: str) -> str:
    """Return a number's text, without its sign if all of its figures are zeros.

    >>> unsigned_zero("-0.00"), unsigned_zero("-0.01"), unsigned_zero("+0")
    ('0.00', '-0.01', '0')
    """
    return text[1:] if text[:1] in ("+", "-") and not text.strip("+-0.e%") else text


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
    names = " or ".join(filter(None, [", ".join(near[:-1]), *near[-1:]]))
    return f"Did you mean {names}? " if near else ""


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


def refuse_input(is_wrong: object, message: str, hint: str = "") -> None:
    """Raise InputError if something is wrong with what was given."""
    if is_wrong:
        raise InputError(message, hint)


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
