"""attn check: answers compared with the right one, step by step, and the mistake that explains each."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from attn_cli.cli.deliver import choose, deliver
from attn_cli.cli.options import argument, own, takes
from attn_cli.errors import DIFFERENT, FileError, InputError, UsageError
from attn_cli.io.escape import as_utf8, visible
from attn_cli.render.result import OF_BLOCKS, Result
from attn_cli.settings.declare import COMPARED
from attn_cli.settings.output import View
from attn_cli.settings.settings import Settings

if TYPE_CHECKING:
    from attn_cli.teach.answer_key import AnswerKey
    from attn_cli.teach.grade import Verdict

MOST_NAMED = 5


# A verdict must not depend on who runs the check.
@takes("COMPUTED max_text max_word versus dtype format output by_hand color width", typed=True)
def check(
    files: list[str] = argument(
        "FILE...", "Answers: JSON, .npz, .safetensors, or a .csv named after its matrix."
    ),
    expect: str = own(
        "FILE",
        "The answer key: inputs to compute the answer from, or the correct results.",
        COMPARED,
        default=...,
        show_default=False,
    ),
    tol: float = own("F", "Largest difference that still counts as equal.", COMPARED, default=0.001),
    *,
    settings: Settings,
    view: View,
) -> None:
    """Check answers: the first step that differs, the cell, and the likely mistake.

    An answer holds any of q, k, v, scores, scaled_scores, masked_scores, weights, output. Rounded numbers are
    checked to the digits given. With several heads, the mean over heads is expected unless --head asks for one
    head, or all. Exit code 1 says that an answer differs.

    Example: attn check one.json two.json --expect exercise.json
    """
    if not (math.isfinite(tol) and tol >= 0):
        raise UsageError(f"--tol cannot be {tol}.", "Give a number from 0 up.", "--tol")
    view = choose(view, OF_BLOCKS, "check")
    from attn_cli.teach.answer_key import read_answer_key

    right = read_answer_key(expect, settings)
    if settings == Settings():  # with --mask and the like, the file's own results are other ones
        _refuse_contradiction(expect, right, tol)
    verdicts = [_verdict(file, right, tol, settings.head is not None) for file in files]
    if len(verdicts) == 1 and verdicts[0].error is not None:
        raise verdicts[0].error
    deliver(_result(verdicts, right, tol), view)
    if unread := [verdict for verdict in verdicts if verdict.error is not None]:
        names = ", ".join(visible(verdict.file) for verdict in unread[:MOST_NAMED])
        more = f" and {len(unread) - MOST_NAMED} more" if len(unread) > MOST_NAMED else ""
        kind = FileError if isinstance(unread[0].error, FileError) else InputError
        message = f"{len(unread)} of {len(verdicts)} answers could not be read: {names}{more}."
        raise kind(message, "The verdicts on the others stand.")
    if not all(verdict.ok for verdict in verdicts):
        raise SystemExit(DIFFERENT)


def _refuse_contradiction(expect: str, right: AnswerKey, tol: float) -> None:
    """Refuse a key whose own results are not what its inputs give: a mask or a score may be missing in it."""
    from attn_cli.teach.grade import grade
    from attn_cli.teach.submission import read_submission

    try:
        handed = read_submission(expect)
    except InputError:  # inputs alone
        return
    first = grade(handed, right, tol).first
    is_own_json = handed.head is not None  # it is computed again from earlier steps
    if first is not None and not first.is_unfinished and not is_own_json:
        said = f"{visible(expect)} contradicts itself: its inputs do not give its {first.step}."
        raise InputError(said, "Is a mask, a score or a number of heads missing in it?")


def _verdict(file: str, right: AnswerKey, tol: float, head_asked: bool) -> Verdict:
    """Read and grade one answer; one that cannot be read must not hide the others."""
    from attn_cli.teach.grade import Verdict, grade
    from attn_cli.teach.submission import read_submission

    try:
        verdict = grade(read_submission(file), right, tol, head_asked)
    except (InputError, FileError) as error:
        verdict = Verdict(file, error=error)
    return verdict._replace(file=as_utf8(file))


def _result(verdicts: list[Verdict], right: AnswerKey, tol: float) -> Result:
    from attn_cli.render.views.grading import one, record, several

    records = [record(verdict, right, tol) for verdict in verdicts]
    if len(verdicts) == 1:
        return Result("check", lambda view: one(verdicts[0], right), lambda view: records[0])
    good = sum(verdict.ok for verdict in verdicts)
    summary = {"ok": good == len(records), "checked": len(records), "right": good, "checks": records}
    return Result(
        "checks",
        blocks=lambda view: several(verdicts, right, view.width),
        record=lambda view: {"schema": "attn/1", "kind": "checks", **summary},
        records=records,
    )
