"""The panes of the chosen row: its bars, its arithmetic, and why its winner won."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from attn_cli.io.terminal import Line
from attn_cli.live.actions import Seen
from attn_cli.live.paper import Pane, Paper
from attn_cli.live.state import BEFORE, State
from attn_cli.render.blocks import Bars, Block, Columns, Say
from attn_cli.render.views.one_row import one_row, row_table
from attn_cli.render.views.overview import largest_weight, row_bars
from attn_cli.render.views.whys import reasons
from attn_cli.render.views.wording import quoted_at
from attn_cli.trace.row import Row
from attn_cli.trace.trace import Trace

MOST_KEYS, FEW_KEYS = 12, 4
LINES_OF_KEY = 3  # at most: its bar, and its line in a table or in both parts of a wide one


def row_pane(state: State, seen: Seen, paper: Paper) -> Pane:
    """Return the bars of the chosen row and below them its arithmetic with the because: as much as fits."""
    trace, state = _looked_at(state, seen)
    if trace.condensed and state.row not in trace.focus:
        return Pane(paper.draw([Say("A long text: only the row in focus has its arithmetic.")]))
    row = _Row.of(trace, state)
    lines: list[Line] = []
    for is_brief in (False, True):
        fixed = 4 if is_brief else 8  # lines that are no keys': title, heads, sums, reasons
        most = max(1, min(MOST_KEYS, (paper.height - fixed) // 2 + 1))
        while most > 0:
            lines = paper.draw(row.blocks(most, is_brief))
            if len(lines) <= paper.height:
                return Pane(lines)
            if not is_brief and most < FEW_KEYS:
                break
            most -= max(1, (len(lines) - paper.height) // LINES_OF_KEY)
    return Pane(lines)


def _looked_at(state: State, seen: Seen) -> tuple[Trace, State]:
    """Return the trace whose matrix is shown, now's or the view before's, and the state with its cell inside it."""
    trace = seen.trace if seen.before is None or state.compared != BEFORE else seen.before
    return trace, state.within(len(trace.query_tokens), len(trace.key_tokens))


class _Row(NamedTuple):
    """The chosen row: its arithmetic, why its winner won, and its bars."""

    trace: Trace
    row: Row | None
    order: list[int]  # its keys, the heaviest first
    column: int
    bars: Bars
    reasons: list[str]

    @classmethod
    def of(cls, trace: Trace, state: State) -> _Row:
        """Return the row of a state's cell."""
        i, j = state.row, state.column
        asked = versus(trace, j)
        row = asked.row(i, trace.stepped_head)
        order = np.argsort(-trace.shown.weights[trace.held(i)], kind="stable").tolist()
        bars = row_bars(trace, trace.shown, i, largest_weight(trace, [i]))._replace(
            title=_title(trace, state)
        )
        found = [] if row is None or row.total == 0 else list(reasons(asked, row, row.because()))
        return cls(asked, row, order, j, bars, found)

    def blocks(self, count: int, is_brief: bool) -> Iterator[Block]:
        """Yield the bars, the table and the reasons, of so many keys; a brief one leaves out the sums."""
        keys = sorted({*self.order[:count], self.column})
        is_whole = len(self.bars.items) == len(self.order)
        yield self.bars._replace(items=[self.bars.items[key] for key in keys]) if is_whole else self.bars
        if self.row is None:
            yield Say("These weights came ready: there is no arithmetic to show.", quiet=True)
            return
        if self.row.total == 0:
            query = quoted_at(self.trace.query_tokens, self.row.query)
            yield Say(f"{query} may look at nothing: its weights are zeros.")
            return
        table = row_table(self.trace, self.row, keys)
        yield Columns(table.header, table.rows[: len(keys)]) if is_brief else table
        yield from map(Say, self.reasons[:1] if is_brief else self.reasons)


def versus(trace: Trace, j: int) -> Trace:
    """Return the trace asking why a row does not look at key j, which is named by its number where that is no word."""
    named = str(j) if str(j) not in trace.key_tokens else None
    return replace(trace, settings=replace(trace.settings, versus=named))


def _title(trace: Trace, state: State) -> str:
    """Return which cell is chosen, and its weight in full."""
    query, key = quoted_at(trace.query_tokens, state.row), quoted_at(trace.key_tokens, state.column)
    at = trace.held(state.row)
    if trace.mask is not None and not trace.mask[at, state.column]:
        return f"{query} may not look at {key}"
    return f"{query} looks at {key}: {float(trace.weights[at, state.column]):.4f}"


def by_hand_pane(state: State, seen: Seen, paper: Paper) -> Pane:
    """Return the whole arithmetic of the chosen row."""
    if not seen.trace.is_scored or (seen.trace.condensed and state.row not in seen.trace.focus):
        return row_pane(state, seen, paper)
    trace, state = _looked_at(state, seen)
    asked, i = versus(trace, state.column), state.row
    blocks: list[Block] = [row_bars(trace, trace.shown, i, largest_weight(trace, [i]))]
    return Pane(paper.draw([*blocks, *one_row(asked, i, paper.view.by_hand == "all")]))
