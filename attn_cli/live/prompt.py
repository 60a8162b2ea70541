"""What the line at the top can ask for besides the text: the name of a file, or a number of a given matrix."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from attn_cli.io.escape import visible
from attn_cli.live.save import free_name, save
from attn_cli.live.state import MATRICES

if TYPE_CHECKING:
    from attn_cli.live.session import Session


class Prompt(NamedTuple):
    """A question in the line: what it says, how the answer begins, and what is done with the answer.

    `take` gets the answer, and whether a replay gave it; it returns why the answer is to be given again, or None.
    """

    hint: str
    start: str
    take: Callable[[str, bool], str | None]


def prompt_for(action: str, session: Session) -> Prompt | None:
    """Return what an action asks for in the line, if it asks for anything."""
    if action == "write":
        return _writing(session)
    if action == "open" and session.state.pane == MATRICES:
        return _numbering(session)
    return None


def _writing(session: Session) -> Prompt:
    from attn_cli.settings.output import View

    confirmed: list[str] = []

    def take(path: str, is_replayed: bool) -> str | None:
        if os.path.lexists(path) and path not in confirmed:
            if is_replayed:
                return f"{visible(path)} exists, and a replay overwrites nothing."
            confirmed.append(path)
            return f"{visible(path)} exists. Enter again overwrites it; Esc does not."
        session.say(save(session.trace, session.view or View(), path))
        return None

    return Prompt(
        "Write the view to this file: .svg, .html, .json and others. Esc: do not.", free_name(), take
    )


def _numbering(session: Session) -> Prompt:
    state = session.state
    given = session.source.matrices(state.question)
    name = list(given)[state.matrix % len(given)]
    matrix = given[name]
    now = matrix[state.column] if matrix.ndim == 1 else matrix[state.row, state.column]

    def take(typed: str, is_replayed: bool) -> str | None:
        session.remark = session.remark._replace(text="")
        session.type_number(typed)
        return session.remark.text or None

    return Prompt(
        f"{name}, row {state.row}, column {state.column}: type a number. Esc: leave it.", f"{now:.6g}", take
    )
