"""Lines of text that fit: cell widths, labels, wrapping, aligned columns, and panes beside each other."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from rich.segment import Segment
from rich.style import Style

from attn_cli.errors import visible
from attn_cli.io.terminal import Line, Terminal

UNLIMITED = 1 << 30  # cells, where a width is needed and there is none
LEAST_ROOM = 20  # characters of the last column of aligned rows

# Letters that are written from right to left (Unicode's blocks of R and AL); beside them numbers change places.
LEFTWARD = "\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefe\U00010800-\U00010fff\U0001e800-\U0001efff"


def masked_mark(terminal: Terminal) -> str:
    """Return what is written for a masked cell."""
    return "–" if terminal.unicode else "-"


def cells(text: str) -> int:
    """Return how many terminal cells `text` takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len  # only text beyond ASCII needs the width tables

    return cell_len(text)


def line_width(line: Line) -> int:
    """Return how many terminal cells a line takes."""
    return sum(cells(segment.text) for segment in line)


def cut(text: str, width: int, mark: str = "~") -> str:
    """Shorten a label (never a number) to `width` cells, with a mark for what is left out.

    The last letters are kept where there is room: they tell inflected words apart.

    >>> cut("jumped over", 7), cut("jumped over", 8)
    ('jumped~', 'jump~ver')
    """
    if cells(text) <= width:
        return text
    tail = text[-3:] if width >= 8 and cells(text[-3:]) <= 4 else ""
    room = width - 1 - cells(tail)
    head = text[: max(0, room)]
    while head and cells(head) > room:
        head = head[:-1]
    return head + mark + tail


def padded(text: str, width: int) -> str:
    """Pad to `width` cells with spaces on the right."""
    return text + " " * (width - cells(text))


def padded_left(text: str, width: int) -> str:
    """Pad to `width` cells with spaces on the left."""
    return " " * (width - cells(text)) + text


def labels(tokens: Sequence[str], terminal: Terminal, width: int) -> list[str]:
    """Return the tokens as inert labels of at most `width` cells."""
    mark = "…" if terminal.unicode else "~"
    ends = 2 * width  # of a very long token, whose middle is never shown
    short = [token if len(token) <= 2 * ends else token[:ends] + token[-ends:] for token in tokens]
    return [cut(terminal.text(token), width, mark) for token in short]


def wrapped(
    text: str, width: int | None, indent: str = "", style: Style | None = None, hanging: int = 0
) -> list[Line]:
    """Break a paragraph into lines of at most `width` cells, after the first indented by `hanging` cells more.

    A word longer than a line is broken too, after an operator or a bracket if there is one.
    """
    room = UNLIMITED if width is None else max(1, width - len(indent))
    hanging = hanging if room > 4 * hanging else 0
    lines, line = list[str](), ""
    for word in text.split(" ") if width is not None else [text]:
        joined = f"{line} {word}" if line else word
        if cells(joined) <= room:
            line = joined
            continue
        lines += [line] * bool(line)
        line = " " * hanging + word
        while cells(line) > room:
            head = line[:room]
            while cells(head) > room:
                head = head[:-1]
            place = max(max(head.rfind(mark) for mark in "×=/)[") + 1, head.rfind("("))
            head = head[:place] if place > 0 and head[:place].strip() else head
            lines.append(head)
            line = line[len(head) :]
    return [[Segment(indent + line, style)] for line in (*lines, line)]


def aligned(rows: Iterable[Sequence[str]], right: Collection[int] = (), width: int | None = None) -> str:
    """Return rows as lines of columns, two spaces apart; those numbered in `right` are right-aligned.

    Where the lines would be wider than `width`, the last column shows the ends of its texts, as of paths.

    >>> print(aligned([("a", "/home/me/vectors/words.txt")], width=24), end="")
    a  …me/vectors/words.txt
    >>> print(aligned([("word", "n"), ("cat", "12")], right=(1,)), end="")
    word   n
    cat   12
    """
    table = [[visible(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    room = max([0, *widths[-1:]])
    if width is not None:
        room = max(LEAST_ROOM, width - sum(widths[:-1]) - 2 * len(widths[:-1]))
    lines = []
    for *texts, last in table:
        texts.append(last if len(last) <= room else f"…{last[1 - room :]}")
        sized = enumerate(zip(texts, widths, strict=True))
        columns = [text.rjust(size) if n in right else text.ljust(size) for n, (text, size) in sized]
        lines.append("  ".join(columns).rstrip() + "\n")
    return "".join(lines)


LOOKS = {"plain": None, "bold": Style(bold=True), "reverse": Style(reverse=True), "dim": Style(dim=True)}
RULE, ASCII_RULE = "│", "|"


def words(parts: Sequence[tuple[str, str]], terminal: Terminal) -> Line:
    """Return a line of texts, each with its look, a name of LOOKS."""
    return [Segment(terminal.text(text), LOOKS[look]) for text, look in parts]


def fitted(line: Line, width: int) -> Line:
    """Return a line cut, or padded with spaces, to exactly `width` cells."""
    kept: Line = []
    room = width
    for segment in line:
        wide = cells(segment.text)
        if wide > room:
            segment = Segment(cut(segment.text, room, "") if room else "", segment.style if room else None)
            kept.append(segment)
            room -= cells(segment.text)
            break
        kept.append(segment)
        room -= wide
    return [*kept, Segment(" " * room)] if room else kept


def filled(lines: Sequence[Line], width: int, height: int) -> list[Line]:
    """Return exactly `height` lines of `width` cells."""
    kept = [fitted(line, width) for line in lines[:height]]
    return kept + [fitted([], width)] * (height - len(kept))


def abreast(left: Sequence[Line], right: Sequence[Line], terminal: Terminal) -> list[Line]:
    """Return the lines of two panes of one height beside each other, with a rule between them."""
    rule = Segment(f" {RULE if terminal.unicode else ASCII_RULE} ", LOOKS["dim"])
    return [[*one, rule, *other] for one, other in zip(left, right, strict=True)]
