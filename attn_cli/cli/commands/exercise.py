"""attn exercise: a worksheet with blanks, its key, and the files that attn check reads."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Literal

from attn_cli.cli.deliver import deliver
from attn_cli.cli.options import own, takes
from attn_cli.errors import CreateError, UsageError
from attn_cli.io.escape import visible
from attn_cli.render.result import Result
from attn_cli.settings.declare import ATTENTION, OUTPUT, TEXT, VECTORS
from attn_cli.settings.output import View

if TYPE_CHECKING:
    from attn_cli.io.terminal import Terminal
    from attn_cli.teach.exercises import Exercise

ENDINGS = (".md", ".markdown", ".tex", ".json", ".jsonl", ".txt", ".pdf", ".html")
FORMS = {"md": "markdown", "tex": "latex", "html": "html"}  # of sheet and key, by the suffix of their files
WHOLE = "exercise.json"  # written last: the checksums of the others, which belong together where it is


# These options are narrower than those of the same names elsewhere. No ATTN_* variable reaches them: whoever types the
# command that stands on a sheet gets that sheet.
@takes("format", can=(*FORMS.values(), "record"), help="What to print.  [default: markdown]")
def exercise(
    seed: int = own("N", "Which exercise: another one for every seed.", TEXT, default=0),
    dim: int = own("D", "Numbers in a word, a query, a key and a value: 2, 3 or 4.", VECTORS, default=2),
    words: int = own("N", "Words in the sentence: 2, 3 or 4.", TEXT, default=3),
    mask: Literal["none", "causal"] = own("", "Whether words look back only.", ATTENTION, default="none"),
    score: Literal["scaled", "dot"] = own(
        "", "scaled is q.k / sqrt(d), dot is q.k.", ATTENTION, default="scaled"
    ),
    key: bool = own(
        "", "Print the key in place of the worksheet (json holds both).", OUTPUT, "--key", default=False
    ),
    force: bool = own("", "Replace files in DIR.", OUTPUT, "--force", default=False),
    *,
    view: View,
    output: str | None = own(
        "DIR", "Write the sheet, its key and their data into DIR.", OUTPUT, "--output", "-o"
    ),
) -> None:
    """A worksheet to do by hand, and its key.

    Small whole numbers, another exercise for every seed. A seed gives the same numbers whatever --mask and --score
    are. With -o, DIR gets exercise and key as .md, .tex and .html, inputs.json (what is given) and answer.json (to
    fill in).

    Example: attn exercise --seed 7 -o sheet7
    """
    from attn_cli.teach.exercises import make

    folder = None if View(output=output).to_standard_output else output
    _check(folder, key, force, view.format)
    made = make(seed, dim, words, mask, score)
    if folder is not None:
        _write(made, folder, force)
        return
    texts = {name: partial(_sheet, made, name, key) for name in FORMS.values()}
    result = Result("exercise", record=lambda view: _record(made), texts=texts)
    deliver(result, replace(view, format=view.format or "markdown"))


def _check(folder: str | None, key: bool, force: bool, format: str | None) -> None:
    if folder is None:
        if force:
            raise UsageError("--force requires -o DIR.", option="--force")
        return
    if key or format:
        given = "--key" if key else "-f"
        said = f"{given} is for printing: -o writes sheet and key in every form."
        raise UsageError(said, "Leave one out.", given)
    if folder.lower().endswith(ENDINGS) and not os.path.isdir(folder):
        said = f"-o takes a folder here, and {visible(folder)!r} looks like a file."
        raise UsageError(
            said, "To print one form into a file: attn exercise -f html > sheet.html", "--output"
        )


def _sheet(made: Exercise, format: str, key: bool, terminal: Terminal | None = None) -> str:
    """Return the worksheet or its key; without a terminal, for a file."""
    from attn_cli.render.formats import portable
    from attn_cli.render.worksheet import parts, writers

    if format == "html":
        page = writers.worksheet_html(parts(made, key))
        return page if terminal is None else portable(page, terminal)
    if format == "latex":
        return writers.worksheet_latex(parts(made, key))
    return writers.worksheet_markdown(parts(made, key), terminal is None or terminal.unicode)


def _record(made: Exercise) -> dict[str, object]:
    """Return the exercise as JSON: what is given, every answer in full precision, the questions with theirs."""
    from attn_cli.render.worksheet import questions
    from attn_cli.teach.exercises import answers, inputs, solve

    trace = solve(made)
    asked = [
        {"question": question.replace("`", ""), "answer": answer.replace("`", "")}
        for question, answer in questions(made, trace)
    ]
    about = {name: getattr(made, name) for name in ("seed", "dim", "mask", "score")}
    results = {"inputs": inputs(made), "answers": answers(trace), "questions": asked}
    return {"schema": "attn/1", "kind": "exercise", **about, "tokens": list(made.tokens), **results}


def _write(made: Exercise, folder: str, force: bool) -> None:
    """Write all files of an exercise into a folder, or none where one would replace something else."""
    from hashlib import sha256

    from attn_cli.io.atomic import write_together
    from attn_cli.io.console import say
    from attn_cli.io.escape import dumps
    from attn_cli.io.files import system_errors
    from attn_cli.teach.exercises import inputs, unanswered

    contents = {
        **{f"exercise.{suffix}": _sheet(made, format, key=False) for suffix, format in FORMS.items()},
        **{f"key.{suffix}": _sheet(made, format, key=True) for suffix, format in FORMS.items()},
        "inputs.json": dumps(inputs(made)),
        "answer.json": dumps(unanswered(made)),
    }
    checksums = {file: sha256(text.encode()).hexdigest() for file, text in contents.items()}
    contents[WHOLE] = dumps({"files": checksums})
    name = visible(folder) or "''"
    if os.path.exists(folder) and not os.path.isdir(folder):
        raise CreateError(f"Cannot write into {name}: it is not a folder.", "Choose another place.")
    with system_errors(CreateError, f"Cannot create the folder {name}", "Choose another place."):
        os.makedirs(folder, exist_ok=True)
        os.listdir(folder)

    def check() -> None:
        there = set(os.listdir(folder))
        taken = [file for file in contents if file in there and not _holds(folder, file, contents[file])]
        if taken and not force:
            hint = "Choose another folder, or replace what is there with --force."
            raise CreateError(f"{name} holds another {taken[0]}, and nothing was written.", hint)

    write_together(folder, {file: text.encode() for file, text in contents.items()}, WHOLE, check)
    say(f"attn: wrote {', '.join(contents)} to {name}.")


def _holds(folder: str, file: str, text: str) -> bool:
    """Tell whether a file holds just this text already; then writing it replaces nothing."""
    try:
        with open(os.path.join(folder, file), "rb") as stream:
            return stream.read(len(text.encode()) + 1) == text.encode()
    except OSError:
        return False
