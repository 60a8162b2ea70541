"""Rows of text as aligned columns, without a heading of their own."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from attn_cli.io.escape import visible

LEAST_ROOM = 20  # characters of the last column


def aligned(rows: Iterable[Sequence[str]], right: Collection[int] = (), width: int | None = None) -> str:
    """Return rows as lines of columns, two spaces apart; those numbered in `right` are right-aligned.

    Where the lines would be wider than `width`, the last column shows the ends of its texts, as of paths.

    >>> print(aligned([("word", "n"), ("cat", "12")], right=(1,)), end="")
    word   n
    cat   12
    """
    table = [[visible(cell) for cell in row] for row in rows]
    if not table:
        return ""
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    room = widths[-1]
    if width is not None:
        room = max(LEAST_ROOM, width - sum(widths[:-1]) - 2 * len(widths[:-1]))
    lines = []
    for *cells, last in table:
        if len(last) > room:
            last = f"…{last[1 - room :]}"
        cells.append(last)
        padded = [
            cell.rjust(size) if n in right else cell.ljust(size)
            for n, (cell, size) in enumerate(zip(cells, widths, strict=True))
        ]
        lines.append("  ".join(padded).rstrip() + "\n")
    return "".join(lines)
