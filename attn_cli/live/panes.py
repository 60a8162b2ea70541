"""The panes that are read: the steps, the command line, the keys."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import dropwhile

from attn_cli.live.actions import Seen
from attn_cli.live.paper import Pane, Paper
from attn_cli.live.state import State
from attn_cli.render.blocks import Block, Formula, Heading, Say
from attn_cli.render.views.steps import walk
from attn_cli.trace.trace import Trace

STEPS = (
    *(("tokens",), ("x_query",), ("encodings_query",), ("q", "k", "v"), ("scores",), ("scaled_scores",)),
    *(("position_scores",), ("masked_scores",), ("weights",), ("output",)),
)


def steps_of(trace: Trace) -> tuple[tuple[str, ...], ...]:
    """Return the steps that a trace has, Q, K and V as one."""
    head = trace.stepped_head
    there = {
        "tokens": trace.query_ids is not None,
        "x_query": trace.x_query is not None,
        "encodings_query": trace.placed is not None,
        "masked_scores": trace.mask is not None,
    }
    return tuple(names for names in STEPS if there.get(names[0], getattr(head, names[0], None) is not None))


def steps_pane(state: State, seen: Seen, paper: Paper) -> Pane:
    """Return one step with its numbers, and which of how many it is."""
    steps = steps_of(seen.trace)
    names = steps[min(state.step, len(steps) - 1)]
    focused = replace(seen.trace, focus=(state.row,)) if not seen.trace.condensed else seen.trace
    place = f"Step {state.step + 1} of {len(steps)}; d: the next, D: the one before, h: another head."
    numbers = dropwhile(lambda block: not isinstance(block, Heading), walk(focused, names))
    return Pane(paper.draw([Say(place, quiet=True), *numbers]))


def command_pane(line: str, more: str, copied: str, paper: Paper) -> Pane:
    """Return the command line that makes the view again."""
    blocks: list[Block] = [Heading("The command of this view"), Formula(line)]
    blocks += [Say(text) for text in (more, copied) if text]
    return Pane(paper.draw(blocks))


def help_pane(rows: Iterable[tuple[str, str]], paper: Paper) -> Pane:
    """Return what each key does."""
    blocks: list[Block] = [Heading("Keys", 1)]
    blocks += [Formula(f"{typed:<9}{text}") for typed, text in rows]
    blocks.append(
        Say("The mouse: a click chooses a cell, a second one opens its arithmetic; names below are keys.")
    )
    return Pane(paper.draw(blocks))
