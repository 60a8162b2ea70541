"""What must hold after a fault: old or new, never between; the right code; one line; nothing left."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tests.faults.commands import Command, State, copied, environment, laid, unfinished
from tests.faults.forked import Ended, run
from tests.faults.inject import CALLS, KILLS, SHORT, STICKY, Fault, kinds

CODES = (73, 74)
# Exit 71: a model's tokenizer needs a process of its own, which is started before anything is written.
NOT_STARTED = "A separate process cannot be started: "
# Lines about what is done, before the one about what failed.
NOTES = ("attn: downloaded:", "attn: epoch", "attn: vocabulary", "attn: bundling")
MOST_OF_A_CALL = 20  # faults of a call that a command makes many times: the first, the last, some between


class Baseline(NamedTuple):
    """A command without a fault: what was there, what is there after it, what it printed and called."""

    command: Command
    template: Path
    old: State
    new: State
    ended: Ended


def baseline(command: Command, place: Path) -> Baseline:
    template = place / "template"
    folder = laid(command, template)
    old = command.observe(copied(template, place / "before"))
    folder = copied(template, place / "run")
    ended = run(command.args, folder, environment(folder))
    assert ended.code == 0, (command.name, ended)
    new = command.observe(folder)
    assert not unfinished(folder), (command.name, unfinished(folder))
    return Baseline(command, template, old, new, ended)


def faults(base: Baseline) -> Iterator[Fault]:
    """Yield every fault of every call that the command makes; of a call made very often, some."""
    for call in CALLS:
        count = base.ended.calls.get(call, 0)
        for nth in np.linspace(1, count, min(count, MOST_OF_A_CALL)).round().astype(int).tolist():
            yield from (Fault(call, nth, kind) for kind in kinds(call))


def tried(base: Baseline, fault: Fault, place: Path) -> list[str]:
    folder = copied(base.template, place / "run")
    ended = run(base.command.args, folder, environment(folder), fault)
    state = base.command.observe(folder)
    if fault.kind in KILLS:
        # a batch writes its manifest as often as time allows, so that a run may make fewer calls than the first
        is_reached = ended.calls.get(fault.call, 0) >= fault.nth or state != base.new
        return list(_after_kill(base, ended, state, folder)) if is_reached or ended.code else []
    return list(_after_error(base, fault, ended, state, folder))


def _after_error(base: Baseline, fault: Fault, ended: Ended, state: State, folder: Path) -> Iterator[str]:
    said = ended.err.decode()
    may_mix = "does not belong together" in said
    if state not in (base.old, base.new) and not may_mix:
        yield f"neither old nor new: {_difference(base, state)}"
    if ended.code == 0:
        if state != base.new:
            yield "exit 0, and not what was asked for"
        if ended.out != base.ended.out:
            yield f"exit 0, and {len(ended.out)} of {len(base.ended.out)} bytes on standard output"
    elif ended.code not in CODES and not (ended.code == 71 and NOT_STARTED in said):
        yield f"exit code {ended.code}: {said!r}"
    else:
        is_mute = fault.call == "write" and (ended.victim == "2" or fault.kind in STICKY)
        lines = [line for line in said.splitlines() if not line.startswith(NOTES)]
        if not is_mute and len(lines) != 1:
            yield f"{len(lines)} lines: {said!r}"
        if "Nothing was changed" in said and state != base.old:
            yield "it says that nothing was changed"
        if fault.kind == SHORT:
            yield f"a short write is not an error: exit code {ended.code}"
    if any(word in said for word in ("Traceback", "bug in attn", "harness")):
        yield f"a bug: {said!r}"
    if (left := unfinished(folder)) and not (may_mix or fault.call in ("unlink", "close", "rmdir")):
        yield f"left behind: {left}"


def _after_kill(base: Baseline, ended: Ended, state: State, folder: Path) -> Iterator[str]:
    if ended.code != -9:
        yield f"not killed: {ended.code}"
    if state not in (base.old, base.new, {}):  # {}: what is there is not said to be whole
        yield f"neither old nor new: {_difference(base, state)}"
    again = run(base.command.args, folder, environment(folder))
    if again.code != 0 and state != base.new:  # it was done already: a second time it may be refused
        yield f"the next run ends with {again.code}: {again.err.decode()!r}"
    if base.command.observe(folder) != base.new:
        yield f"the next run does not make it new: {_difference(base, base.command.observe(folder))}"
    if left := unfinished(folder):
        yield f"the next run leaves {left}"


def _difference(base: Baseline, state: State) -> str:
    names = sorted({*state, *base.old, *base.new})
    return ", ".join(one for one in names if state.get(one) not in (base.old.get(one), base.new.get(one)))
