"""The panes, drawn from the same blocks as every other screen: matrices, a row, the steps, the keys, the command."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import dropwhile, islice
from typing import NamedTuple

import numpy as np

from attn_cli.errors import InputError
from attn_cli.io.terminal import Line, Terminal
from attn_cli.io.types import replace
from attn_cli.live.keys import BEFORE, COMMAND, DIFFERENCE, HELP, KEYS, ROW, STEPS, Seen, State
from attn_cli.live.session import command_line, copied, unsaid
from attn_cli.render import Block, Columns, Formula, Heading, Maps, Matrix, Say, quoted_at, ramps
from attn_cli.render.screen.draw import draw
from attn_cli.render.screen.matrix_pane import MatrixPart, large_blocks, matrix_part
from attn_cli.render.views import long_text, origins, overview, whys, wording
from attn_cli.render.views.one_row import one_row, row_table
from attn_cli.render.views.steps import walk
from attn_cli.settings import View
from attn_cli.trace import Trace, head_roles

FAR = 400  # lines of a pane that can be scrolled through
MOST_KEYS, FEW_KEYS = 12, 4
LINES_OF_KEY = 3  # at most: its bar, and its line in a table or in both parts of a wide one


class Pane(NamedTuple):
    """The lines of a pane, and the matrix among them whose cells can be chosen."""

    lines: list[Line]
    part: MatrixPart | None = None
    above: int = 0  # lines above the matrix


class Paper(NamedTuple):
    """What a pane is drawn on: its size, its terminal, how results are shown."""

    width: int
    height: int
    terminal: Terminal
    view: View

    def sized(self, width: int, height: int) -> Paper:
        view = replace(self.view, width=max(20, width))
        return Paper(width, height, self.terminal._replace(width=width), view)

    def draw(self, blocks: Iterable[Block], most: int = FAR) -> list[Line]:
        """Return the first lines of blocks."""
        return list(islice(draw(blocks, self.view, self.terminal), most))


def weights_pane(state: State, seen: Seen, paper: Paper) -> Pane:
    """Return the matrix of weights, or what stands for it: all heads, a long text's map, what changed."""
    trace = seen.trace
    notes = origins.talk(trace)[:1] if trace.next_words is not None else []
    if seen.before is not None and state.compared == BEFORE:
        trace = seen.before
        notes.append("The view before; v: back to now.")
    elif seen.before is not None and state.compared == DIFFERENCE:
        return _difference(state, seen.before, trace, paper)
    if trace.settings.head == "all" and len(trace.heads) > 1:
        return Pane(paper.draw(_all_heads(trace, paper), paper.height))
    if wording.is_large(trace):
        return Pane(paper.draw(long_text.long_view(trace, trace.shown, paper.view)))
    return _matrix_pane(state, overview.weight_matrix(trace, trace.shown), notes, paper)


def _matrix_pane(state: State, block: Matrix, notes: list[str], paper: Paper) -> Pane:
    above = paper.draw(map(Say, notes))
    cell = (min(state.row, len(block.rows) - 1), min(state.column, len(block.columns) - 1))
    palette = paper.view.palette
    part = None
    if state.is_large:
        part = large_blocks(block, paper.terminal, palette, cell, paper.height - len(above))
        above += [] if part else paper.draw([Say("Too many words for large blocks here; b: back.")])
    room = paper.height - len(above)
    part = part or matrix_part(block, paper.terminal, palette, cell, room)
    spare = room - len(part.lines)
    legend = part.legend[:1] if spare < len(part.legend) + 1 else part.legend
    return Pane([*above, *part.lines, *legend[: max(0, spare)]], part, len(above))


def _difference(state: State, before: Trace, after: Trace, paper: Paper) -> Pane:
    from attn_cli.render.views.comparison import sentences
    from attn_cli.teach.compare import between

    try:
        comparison = between("view", ("before", "now"), (before, after))
    except InputError as error:
        return Pane(paper.draw([Say(str(error))]))
    said = sentences(comparison)
    if not comparison.changes:
        return Pane(paper.draw(map(Say, [*said, "v: the view before."])))
    block = overview.labelled_matrix(after, comparison.changes[0].difference)._replace(is_difference=True)
    has_room = len(block.rows) + len(paper.draw(map(Say, said))) + 3 <= paper.height
    return _matrix_pane(state, block, ["Now minus before; v: the view before.", *said * has_room], paper)


def _all_heads(trace: Trace, paper: Paper) -> Iterator[Block]:
    """Yield every head as a small map, as many as fit side by side; of a longer text, means of blocks."""
    weights = np.stack([head.weights for head in trace.heads])
    allowed = np.ones(weights.shape[1:], np.bool_) if trace.mask is None else trace.mask
    n_q, n_k = weights.shape[1:]
    rows, columns = _map_size(len(weights), n_q, n_k, paper)
    values = list(head_roles.block_means(weights, allowed, rows, columns))
    scale = ramps.shade_range(Matrix((), (), np.array(values), is_weights=True))
    empty, numbers = ([""] * rows, [""] * columns), (list(range(rows)), list(range(columns)))
    yield Maps([head.name for head in trace.heads], *empty, values, scale, *numbers, bands=[""])
    if (rows, columns) != (n_q, n_k):
        yield Say(f"Each map has {rows} x {columns} means of {n_q:,} x {n_k:,} weights. h: one head, whole.")


def _map_size(heads: int, n_q: int, n_k: int, paper: Paper) -> tuple[int, int]:
    best = (1, 1)
    for across in range(1, heads + 1):
        down = -(-heads // across)
        rows = min(n_q, max(1, ((paper.height - 2) // down - 2) * (1 + paper.terminal.has_halves)))
        columns = min(n_k, max(1, (paper.width - 1) // across - 1))
        if rows * columns > best[0] * best[1]:
            best = rows, columns
    return best


def given_pane(state: State, seen: Seen, paper: Paper) -> Pane:
    """Return a given matrix, whose numbers can be chosen and typed anew."""
    given = seen.source.matrices(state.question)
    name, values = seen.matrix(state)
    values = np.atleast_2d(values)
    rows, columns = ([str(n) for n in range(size)] for size in values.shape)
    tokens = seen.trace.query_tokens if name in ("Q", "X") else seen.trace.key_tokens
    is_tokens = name in ("Q", "K", "V", "X", "context") and len(tokens) == len(values)
    block = Matrix(list(tokens) if is_tokens else rows, columns, values, name, shaded=True)
    after = "the next matrix" if state.matrix + 1 < len(given) else "the weights"
    note = f"{name} as given. Arrows choose a number, Enter types another one, e: {after}."
    return _matrix_pane(replace(state, is_large=False), block, [note], paper)


def row_pane(state: State, seen: Seen, paper: Paper) -> Pane:
    """Return the bars of the chosen row and below them its arithmetic with the because: as much as fits."""
    trace, state = _looked_at(state, seen)
    if trace.condensed and state.row not in trace.focus:
        return Pane(paper.draw([Say("A long text: only the row in focus has its arithmetic.")]))
    blocks = _row_blocks(trace, state)
    lines: list[Line] = []
    for is_brief in (False, True):
        fixed = 4 if is_brief else 8  # lines that are not keys': title, heads, sums, reasons
        most = max(1, min(MOST_KEYS, (paper.height - fixed) // 2 + 1))
        while most > 0:
            lines = paper.draw(blocks(most, is_brief))
            if len(lines) <= paper.height:
                return Pane(lines)
            if not is_brief and most < FEW_KEYS:
                break
            most -= max(1, (len(lines) - paper.height) // LINES_OF_KEY)
    return Pane(lines)


def _looked_at(state: State, seen: Seen) -> tuple[Trace, State]:
    trace = seen.trace if seen.before is None or state.compared != BEFORE else seen.before
    return trace, state.at(state.row, state.column, (len(trace.query_tokens), len(trace.key_tokens)))


def _row_blocks(trace: Trace, state: State) -> Callable[[int, bool], Iterator[Block]]:
    i, column, trace = state.row, state.column, _versus(trace, state.column)
    query, key = quoted_at(trace.query_tokens, i), quoted_at(trace.key_tokens, column)
    at = trace.row_in_arrays(i)
    title = f"{query} looks at {key}: {float(trace.weights[at, column]):.4f}"
    if trace.mask is not None and not trace.mask[at, column]:
        title = f"{query} may not look at {key}"
    bars = overview.row_bars(trace, trace.shown, i, overview.largest_weight(trace, [i]))._replace(title=title)
    order = np.argsort(-trace.shown.weights[at], kind="stable").tolist()
    row = trace.row(i, trace.stepped_head)
    why = [] if row is None or row.total == 0 else list(whys.reasons(trace, row, row.because()))

    def blocks(count: int, is_brief: bool) -> Iterator[Block]:
        """Yield the bars, the table and the reasons, of so many keys; a brief one leaves out the sums."""
        keys = sorted({*order[:count], column})
        is_whole = len(bars.items) == len(order)
        yield bars._replace(items=[bars.items[key] for key in keys]) if is_whole else bars
        if row is None:
            yield Say("These weights have no scores, so there is no arithmetic to show.", quiet=True)
        elif row.total == 0:
            yield Say(f"{query} may look at nothing: its weights are zeros.")
        else:
            table = row_table(trace, row, keys)
            yield Columns(table.header, table.rows[: len(keys)]) if is_brief else table
            yield from map(Say, why[:1] if is_brief else why)

    return blocks


def _versus(trace: Trace, j: int) -> Trace:
    """Return the trace asking why a row does not look at key j, named by its number where it is not a word."""
    named = str(j) if str(j) not in trace.key_tokens else None
    return replace(trace, settings=replace(trace.settings, versus=named))


def _by_hand_pane(state: State, seen: Seen, paper: Paper) -> Pane:
    if not seen.trace.is_scored or (seen.trace.condensed and state.row not in seen.trace.focus):
        return row_pane(state, seen, paper)
    trace, state = _looked_at(state, seen)
    bars = overview.row_bars(trace, trace.shown, state.row, overview.largest_weight(trace, [state.row]))
    by_hand = one_row(_versus(trace, state.column), state.row, paper.view.by_hand == "all")
    return Pane(paper.draw([bars, *by_hand]))


def _steps_pane(state: State, seen: Seen, paper: Paper) -> Pane:
    steps = seen.steps
    names = steps[min(state.step, len(steps) - 1)]
    focused = replace(seen.trace, focus=(state.row,)) if not seen.trace.condensed else seen.trace
    place = f"Step {state.step + 1} of {len(steps)}; d: the next, D: the one before, h: another head."
    numbers = dropwhile(lambda block: not isinstance(block, Heading), walk(focused, names))
    return Pane(paper.draw([Say(place, quiet=True), *numbers]))


def _command_pane(state: State, seen: Seen, paper: Paper) -> Pane:
    line = command_line(state, seen)
    said = [unsaid(line, state.question, seen.source.layers(seen.trace)), copied() * (line in seen.copied)]
    shown: list[Block] = [Heading("The command of this view"), Formula(line)]
    return Pane(paper.draw([*shown, *map(Say, filter(None, said))]))


def _help_pane(state: State, seen: Seen, paper: Paper) -> Pane:
    said = "The mouse: a click chooses a cell, a second one opens its arithmetic; names below are keys."
    rows = [Formula(f"{key.key_display:<9}{key.tooltip}") for key in KEYS if key.tooltip]
    return Pane(paper.draw([Heading("Keys", 1), *rows, Say(said)]))


# Each on a whole screen.
LONG_PANES = {HELP: _help_pane, COMMAND: _command_pane, STEPS: _steps_pane, ROW: _by_hand_pane}
