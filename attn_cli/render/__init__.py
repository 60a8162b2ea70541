"""Results in every format: blocks of a screen, documents, data, figures, pages, scripts.

Here is what a screen is made of: a list of blocks, and the words and numbers of their sentences. A writer turns blocks
into lines of a terminal or into a page. Blocks hold raw tokens; each writer escapes every string itself, in one place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attn_cli.errors import count_more, fixed, unsigned_zero
from attn_cli.io.types import Array, NamedTuple


class Heading(NamedTuple):
    """A heading; level 1 is the screen's, 2 a part's, 3 a step's."""

    text: str
    level: int = 2


class Say(NamedTuple):
    """A paragraph of plain words; a quiet one is an aside."""

    text: str
    quiet: bool = False


class Formula(NamedTuple):
    """Arithmetic or a formula, in characters that hold no token."""

    text: str
    before: str = ""  # words in front, which may hold tokens
    latex: str = ""  # the same as the paper writes it, for LaTeX


class ShadeRange(NamedTuple):
    """The values that shades run between, and how they were chosen."""

    least: float
    most: float
    held: tuple[float, float] | None = None  # the least and largest weight, in a range wider than they are
    is_full: bool = False  # all that a weight can be: the same in every picture


def window(n: int, most: int, around: int | None) -> slice:
    """Return at most so many places of n: around one of them, or the first.

    >>> window(9, 4, 5), window(9, 4, 8), window(9, 4, None)
    (slice(3, 7, None), slice(5, 9, None), slice(0, 4, None))
    """
    start = 0 if around is None else max(0, min(around - most // 2, n - most))
    return slice(start, min(start + most, n))


class Matrix(NamedTuple):
    """A matrix with labels; NaN is masked. `more` says what was left out."""

    rows: Sequence[str]
    columns: Sequence[str]
    values: Array
    corner: str = ""
    sums: Sequence[str] = ()
    is_weights: bool = False
    shaded: bool = False
    fits: bool = False  # show only as many columns as fit, and say how many more there are
    more: str = ""
    row_numbers: Sequence[int] | None = None  # positions in the text, where columns may be numbered
    digits: int | None = None  # a fixed number of digits; None is as many as fit
    is_difference: bool = False  # of two matrices of weights: signs are written, and zero is neutral
    marks: tuple[str, str] | None = None  # what 0 and 1 are written as, in place of numbers
    scale: ShadeRange | None = None  # None is that of the values
    around: int | None = None  # the column to centre among those that fit, if not the first ones

    def nearby(self, across: int) -> slice:
        """Return which columns to show where that many fit."""
        return window(int(self.values.shape[1]), across, self.around)

    def narrowed(self, across: int) -> Matrix:
        """Return the matrix with that many columns; `more` says how many were left out."""
        hidden = int(self.values.shape[1]) - across
        if hidden <= 0:
            return self
        few = self.nearby(across)
        more = ", ".join(filter(None, [count_more(hidden, "column"), self.more]))
        return self._replace(columns=self.columns[few], values=self.values[:, few], more=more)

    def fixed(self, precision: int | None) -> Matrix:
        """Return the matrix with its digits set by --precision, if that is given."""
        return self if precision is None else self._replace(digits=precision)


class Beside(NamedTuple):
    """Matrices, mostly of one shape, next to each other where they fit; they share one scale of shades."""

    titles: Sequence[str]
    parts: Sequence[Matrix]


class Columns(NamedTuple):
    """A small table of text: a label, then numbers already written."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]


class Links(NamedTuple):
    """The strongest keys of each query, strongest first: (query, [(key, weight as text), ...])."""

    rows: Sequence[tuple[str, Sequence[tuple[str, str]]]]
    none: str = "masked"  # written for a query without links


class Bars(NamedTuple):
    """A bar for each label; `largest` is the value of the longest bar; None is masked."""

    title: str
    items: Sequence[tuple[str, float | None]]
    largest: float
    measure: str = "weight"  # what the numbers are, where they stand in a column

    def length(self, value: float | None) -> float:
        """Return the length of a value's bar, 0 to 1."""
        return 0.0 if value is None or self.largest <= 0 else value / self.largest


class Maps(NamedTuple):
    """Small multiples: a small map of shades for each head, side by side. NaN is masked.

    Rows and columns that are blocks of queries and of keys are named by the first of each. With `bands` a screen draws
    thumbnails without labels and numbers: as many of the maps for each band, which has its name at the left.
    """

    names: Sequence[str]
    rows: Sequence[str]
    columns: Sequence[str]
    values: Sequence[Array]
    scale: ShadeRange
    row_numbers: Sequence[int]
    column_numbers: Sequence[int] | None = None  # the keys' positions, where columns are blocks of keys
    is_weights: bool = False  # and not means of many
    bands: Sequence[str] = ()
    is_norms: bool = False  # and not weights

    def matrices(self) -> Iterator[tuple[str, Matrix]]:
        """Yield each map's name, and its weights as a matrix."""
        for name, values in zip(self.names, self.values, strict=True):
            matrix = Matrix(self.rows, self.columns, values, "query\\key", shaded=True)
            yield name, matrix._replace(is_weights=not self.is_norms, row_numbers=self.row_numbers)


Block = Heading | Say | Formula | Matrix | Beside | Maps | Columns | Links | Bars

LONGEST = 24  # characters of a token in a sentence


def short(token: str) -> str:
    """Return a token for use in a sentence, its middle left out if it is very long.

    >>> short("abcdefghijklmnopqrstuvwx"), short("abcdefghijklmnopqrstuvwxyz")
    ('abcdefghijklmnopqrstuvwx', 'abcdefghijklmnop...wxyz')
    """
    return token if len(token) <= LONGEST else f"{token[:16]}...{token[-4:]}"


def quoted(token: str) -> str:
    """Return a token in quotation marks, to stand out in a sentence."""
    return f'"{short(token)}"'


def quoted_at(tokens: Sequence[str], i: int) -> str:
    """Return token i in quotation marks, followed by its place if the token occurs more than once."""
    return quoted(tokens[i]) + (f" ({i})" if tokens.count(tokens[i]) > 1 else "")


def placed(tokens: Sequence[str], i: int) -> str:
    """Return token i for a label, preceded by its place if the token occurs more than once."""
    return f"{i} {short(tokens[i])}" if tokens.count(tokens[i]) > 1 else short(tokens[i])


def joined(words: Sequence[str]) -> str:
    """Return `a`, `a and b`, or `a, b and c`."""
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def listed(words: Sequence[str], most: int = 8) -> str:
    """Join words for a sentence, at most so many of them.

    >>> listed("ab", most=2), listed("abc", most=2)
    ('a, b', 'a, b and 1 more')
    """
    more = f" and {len(words) - most} more" if len(words) > most else ""
    return ", ".join(words[:most]) + more


def share(weight: float) -> str:
    """Return a weight for a sentence or a list: three decimals, or two significant digits if it is small.

    >>> share(0.3357), share(0.01), share(0.00106), share(1.0), share(0.0)
    ('0.336', '0.010', '0.0011', '1.000', '0.000')
    """
    return fixed(weight, 3) if weight == 0 or weight >= 0.01 else f"{weight:.2g}"


def four(value: float) -> str:
    """Return a number with four decimals, or in powers of ten where these would show nothing or too much.

    >>> four(0.71464), four(0.0), four(-2.5e-7), four(0.00005), four(1e5), four(-1234567.8)
    ('0.7146', '0.0000', '-2.50e-07', '0.0001', '1.0000e+05', '-1.2346e+06')
    """
    if abs(value) >= 1e5:
        return f"{value:.4e}"
    return f"{value:.2e}" if 0 < abs(value) < 0.00005 else fixed(value, 4)


def plain(value: float, digits: int = 4) -> str:
    """Return a number for a sentence: at most `digits` decimals, without trailing zeros.

    >>> plain(12.5), plain(-12.33567), plain(0.33567137), plain(2.0), plain(-1e-9), plain(-2e6), plain(1e6)
    ('12.5', '-12.3357', '0.3357', '2', '-1e-09', '-2e+06', '1e+06')
    """
    if value and (abs(value) < 10.0**-digits or abs(value) >= 1e6):
        return f"{value:.{digits}g}"
    return unsigned_zero(f"{value:.{digits}f}".rstrip("0").rstrip("."))
