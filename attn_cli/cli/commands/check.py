"""attn check and attn exercise: answers graded with the mistake that explains each, and worksheets made for them."""

from __future__ import annotations

import math
import os
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Literal

from attn_cli.cli.deliver import choose, deliver
from attn_cli.cli.options import argument, own, takes
from attn_cli.errors import DIFFERENT, CreateError, FileError, InputError, refuse, visible
from attn_cli.io.files import system_errors
from attn_cli.io.types import replace
from attn_cli.render.result import OF_BLOCKS, Result, record_result
from attn_cli.settings import Settings, View, declare

if TYPE_CHECKING:
    from attn_cli.teach.answer_key import AnswerKey
    from attn_cli.teach.effects import EffectExercise
    from attn_cli.teach.exercises import Exercise
    from attn_cli.teach.grade import Verdict

MOST_NAMED = 5
FILES_HELP = "Answers: JSON, .npz, .safetensors, or a .csv named after its matrix."
EXPECT_HELP = "The answer key: inputs to compute the answer from, or the correct results."


# A verdict must not depend on who runs the check.
@takes("COMPUTED max_text max_word versus dtype format output by_hand color width", typed=True)
def check(
    settings: Settings,
    view: View,
    files: list[str] = argument("FILE...", FILES_HELP),
    expect: str = own("FILE", EXPECT_HELP, declare.COMPARED, default=..., show_default=False),
    tol: float = own("F", "Largest difference that still counts as equal.", declare.COMPARED, default=0.001),
) -> None:
    """Check answers: the first step that differs, the cell, and the likely mistake.

    An answer holds any of q, k, v, scores, scaled_scores, masked_scores, weights, output, or what a worksheet asks
    for. Rounded numbers are checked to the digits given. With several heads, the mean over heads is expected
    unless --head asks for one head, or all. Exit code 1 says that an answer differs.

    Example: attn check one.json two.json --expect exercise.json
    """
    refuse(not 0 <= tol < math.inf, f"--tol cannot be {tol}.", "Give a number from 0 up.", "--tol")
    view = choose(view, OF_BLOCKS, "check")
    from attn_cli.teach import answer_key, grade

    right = answer_key.read_answer_key(expect, settings)
    if settings == Settings():  # with --mask and the like, the file's own results are other ones
        grade.refuse_contradiction(expect, right, tol)
    verdicts = [grade.verdict_on(file, right, tol, settings.head is not None) for file in files]
    unread = [verdict for verdict in verdicts if verdict.error is not None]
    if len(verdicts) == 1 and (error := verdicts[0].error) is not None:
        raise error
    deliver(_result(verdicts, right, tol), view)
    if unread:
        names = ", ".join(visible(verdict.file) for verdict in unread[:MOST_NAMED])
        more = f" and {len(unread) - MOST_NAMED} more" if len(unread) > MOST_NAMED else ""
        kind = FileError if isinstance(unread[0].error, FileError) else InputError
        message = f"{len(unread)} of {len(verdicts)} answers could not be read: {names}{more}."
        raise kind(message, "The verdicts on the others stand.")
    if not all(verdict.ok for verdict in verdicts):
        raise SystemExit(DIFFERENT)


def _result(verdicts: list[Verdict], right: AnswerKey, tol: float) -> Result:
    from attn_cli.render.views.grading import one, record, several

    records = [record(verdict, right, tol) for verdict in verdicts]
    if len(verdicts) == 1:
        return Result("check", lambda view: one(verdicts[0], right), lambda view: records[0])
    good = sum(verdict.ok for verdict in verdicts)
    summary = {"ok": good == len(records), "checked": len(records), "right": good, "checks": records}
    of_all = record_result("checks", summary)
    return replace(of_all, blocks=lambda view: several(verdicts, right, view.width), records=records)


ENDINGS = (".md", ".markdown", ".tex", ".json", ".jsonl", ".txt", ".pdf", ".html")
FORMS = {"md": "markdown", "tex": "latex", "html": "html"}  # of sheet and key, by the suffix of their files
TOPIC_HELP = (
    "The weights; norm, the length of what each word adds; or logit, what each part adds to a word's score."
)
SCORE_HELP = "scaled is q.k / sqrt(d), dot is q.k."
KEY_HELP = "Print the key in place of the worksheet (json holds both)."
INTO_HELP = "Write the sheet, its key and their data into DIR."
WHOLE = "exercise.json"  # written last: the checksums of the others, which belong together where it is


# These options are narrower than those of the same names elsewhere. No ATTN_* variable reaches them: whoever types the
# command that stands on a sheet gets that sheet.
@takes("format", can=(*FORMS.values(), "record"), help="What to print.  [default: markdown]")
def exercise(
    seed: int = own("N", "Which exercise: another one for every seed.", declare.TEXT, default=0),
    dim: int = own(
        "D", "Numbers in a word, a query, a key and a value: 2, 3 or 4.", declare.VECTORS, default=2
    ),
    words: int = own("N", "Words in the sentence: 2, 3 or 4.", declare.TEXT, default=3),
    mask: Literal["none", "causal"] = own(
        "", "Whether words look back only.", declare.ATTENTION, default="none"
    ),
    score: Literal["scaled", "dot"] = own("", SCORE_HELP, declare.ATTENTION, default="scaled"),
    topic: Literal["attention", "norm", "logit"] = own(
        "", TOPIC_HELP, declare.ATTENTION, default="attention"
    ),
    key: bool = own("", KEY_HELP, declare.OUTPUT, "--key", default=False),
    force: bool = own("", "Replace files in DIR.", declare.OUTPUT, "--force", default=False),
    *,
    view: View,  # in the help -f comes before -o
    output: str | None = own("DIR", INTO_HELP, declare.OUTPUT, "--output", "-o"),
) -> None:
    """A worksheet to do by hand, and its key.

    Small whole numbers, another exercise for every seed. A seed gives the same numbers whatever --mask and --score
    are. With -o, DIR gets exercise and key as .md, .tex and .html, inputs.json (what is given) and answer.json (to
    fill in).

    Example: attn exercise --seed 7 -o sheet7
    """
    folder = None if View(output=output).to_standard_output else str(output)
    refuse(force and folder is None, "--force requires -o DIR.", option="--force")
    if folder is not None:
        given = "--key" if key else "-f"
        said = f"{given} is for printing: -o writes sheet and key in every form."
        refuse(key or view.format, said, "Leave one out.", given)
        is_file = folder.lower().endswith(ENDINGS) and not os.path.isdir(folder)
        said = f"-o takes a folder here, and {visible(folder)!r} looks like a file."
        hint = "To print one form into a file: attn exercise -f html > sheet.html"
        refuse(is_file, said, hint, "--output")
    from attn_cli.teach import effects, exercises

    if topic == "attention":
        made: Exercise | EffectExercise = exercises.make(seed, dim, words, mask, score)
    else:
        said = f"--topic {topic} takes none of --dim, --words, --mask and --score."
        refuse((dim, words, mask, score) != (2, 3, "none", "scaled"), said, "Leave them out.", "--topic")
        made = effects.make(topic, seed)
    if folder is not None:
        _write(made, folder, force)
        return
    from attn_cli.render.worksheet import writers

    texts = {name: partial(writers.sheet, made, name, key) for name in FORMS.values()}
    result = record_result("exercise", _record(made))
    deliver(replace(result, texts=texts), replace(view, format=view.format or "markdown"))


def _record(made: Exercise | EffectExercise) -> dict[str, object]:
    """Return the exercise as JSON: what is given, every answer in full precision, the questions with theirs."""
    from attn_cli.render.worksheet import writers

    plain = ([text.replace("`", "") for text in pair] for pair in writers.module_of(made).questions(made))
    asked = [{"question": question, "answer": answer} for question, answer in plain]
    given = {"tokens": list(made.tokens), "inputs": made.inputs}
    return {**made.about, **given, "answers": made.answers, "questions": asked}


def _write(made: Exercise | EffectExercise, folder: str, force: bool) -> None:
    """Write all files of an exercise into a folder, or none where one would replace something else."""
    from hashlib import sha256

    from attn_cli.io import atomic, console, json_text
    from attn_cli.render.worksheet import writers

    blank = {name: [[None] * len(row) for row in made.answers[name]] for name in made.asked}
    contents = {
        f"exercise.{suffix}": writers.sheet(made, format, key=False) for suffix, format in FORMS.items()
    }
    contents |= {f"key.{suffix}": writers.sheet(made, format, key=True) for suffix, format in FORMS.items()}
    contents |= {"inputs.json": json_text.dumps(made.inputs), "answer.json": json_text.dumps(blank)}
    checksums = {file: sha256(text.encode()).hexdigest() for file, text in contents.items()}
    contents[WHOLE] = json_text.dumps({"files": checksums})
    name = visible(folder) or "''"
    if os.path.exists(folder) and not os.path.isdir(folder):
        raise CreateError(f"Cannot write into {name}: it is not a folder.", "Choose another place.")
    with system_errors(CreateError, f"Cannot create the folder {name}", "Choose another place."):
        os.makedirs(folder, exist_ok=True)
        os.listdir(folder)

    def holds(file: str) -> bool:  # just this text already: then writing it replaces nothing
        with suppress(OSError), open(os.path.join(folder, file), "rb") as stream:
            return stream.read(len(contents[file].encode()) + 1) == contents[file].encode()
        return False

    def check() -> None:
        there = set(os.listdir(folder))
        taken = [file for file in contents if file in there and not holds(file)]
        if taken and not force:
            hint = "Choose another folder, or replace what is there with --force."
            raise CreateError(f"{name} holds another {taken[0]}, and nothing was written.", hint)

    atomic.write_together(folder, {file: text.encode() for file, text in contents.items()}, WHOLE, check)
    console.say(f"attn: wrote {', '.join(contents)} to {name}.")
