"""The worksheets on what comes of the weights, norms and the parts of a logit, and their keys."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from attn_cli.io.array_types import Array
from attn_cli.render.blocks import Heading, Say
from attn_cli.render.numbers import Format, number
from attn_cli.render.views.wording import quoted
from attn_cli.render.worksheet import (
    Question,
    SheetPart,
    WorkTable,
    parts,
    products,
    questions,
    rows_of,
    to_check,
)
from attn_cli.teach.effects import GIVEN, STEPS, STREAM, EffectExercise
from attn_cli.teach.exercises import Exercise, solve

WHOLE, TENTH, MIXED = number(0), number(1), number(2)
FORMULAS = {
    "v": ("Values: what each word passes on", "v = X W_v"),
    "transformed": ("Added vectors: values joined to the stream", "f(x) = v W_o"),
    "lengths": ("Lengths: the root of the sum of squares", "length of f(x)"),
    "norms": ("Norms: what comes of each weight", "weight × length"),
    "parts": ("Parts: what each adds to the score of each word", "stream U"),
    "logits": ("Logits: the sum of the parts", "sum of each column"),
    "without": ("Without a head: the logits less its part", "logits - part"),
}
ABOUT = {
    "norm": 'A weight says where a head looks; what it adds there is `weight f(x)`. Compute how long that is, in "{}". '
    "Rows of the weights are queries, columns are keys. Nothing is to be rounded.",
    "logit": 'What comes after "{}"? The last word\'s vector is a sum: the embedding, and what three heads and a '
    "network add. `U` has a column for each word that may come. The norm that models have before `U` is left out.",
}


def sheet(exercise: Exercise | EffectExercise, key: bool = False) -> Iterator[SheetPart]:
    """Return the worksheet of any exercise, or its key."""
    return _parts(exercise, key) if isinstance(exercise, EffectExercise) else parts(exercise, key)


def asked(exercise: Exercise | EffectExercise) -> Iterator[tuple[str, str]]:
    """Return what is asked at the end of any worksheet, each question with its answer."""
    if isinstance(exercise, EffectExercise):
        return (_about_norms if exercise.topic == "norm" else _about_logits)(exercise)
    return questions(exercise, solve(exercise))


def _parts(exercise: EffectExercise, key: bool) -> Iterator[SheetPart]:
    """Yield the worksheet from top to bottom, or its key."""
    topic, given, answers = exercise.topic, exercise.given, _answers(exercise)
    name = {"norm": "What comes of the weights", "logit": "The parts of a logit"}[topic]
    yield Heading(f"{name}: exercise {exercise.seed}{', the key' if key else ''}", 1)
    yield Say(ABOUT[topic].format(" ".join(exercise.tokens)))
    yield [_table(exercise, one, given[one], one, is_given=True) for one in GIVEN[topic]]
    tables = []
    for n, step in enumerate(STEPS[topic], 1):
        title, formula = FORMULAS[step]
        tables.append(_table(exercise, step, answers[step], formula, f"{n}. {title}", blank=not key))
    left, right, first = (
        given[GIVEN[topic][0]][0],
        given[GIVEN[topic][1]][:, 0],
        answers[STEPS[topic][0]][0, 0],
    )
    tables[0].rows[0][1] = WHOLE(first)
    yield tables
    yield Say(f"Example: the first number is `{products(left.tolist(), right.tolist())} = {WHOLE(first)}`.")
    yield Heading("Questions")
    for n, (question, answer) in enumerate(asked(exercise), 1):
        yield Question(n, question, answer if key else None)
    yield Say(f"Made by `{exercise.command} --key`." if key else to_check(exercise.command), quiet=True)


def _table(
    exercise: EffectExercise, name: str, matrix: Array, formula: str, title: str = "", *, is_given: bool = False,
    blank: bool = False,
) -> WorkTable:  # fmt: skip
    """Return a matrix as a table with the names of its rows and columns."""
    by_word = {"weights", "norms", "lengths", "U", "parts", "logits", "without"}
    columns = exercise.words if name in by_word else [*map(str, range(matrix.shape[1]))]
    heads = {"stream": STREAM, "parts": STREAM, "without": [f"without {head}" for head in STREAM[1:-1]]}
    own: Sequence[str] = exercise.tokens if name in ("X", "v", "transformed", "weights", "norms") else ()
    labels = heads.get(name, own) or ([""] if len(matrix) == 1 else [*map(str, range(len(matrix)))])
    form: Format = TENTH if name in ("weights", "norms") else WHOLE
    return WorkTable(title, formula, columns, rows_of(labels, matrix, None if blank else form), is_given)


def _answers(exercise: EffectExercise) -> dict[str, Array]:
    return {name: np.array(step) for name, step in exercise.answers.items()}


def _about_norms(exercise: EffectExercise) -> Iterator[tuple[str, str]]:
    weights, (_, f, _, norms) = exercise.given["weights"], _answers(exercise).values()
    i = int((norms.argmax(axis=1) != weights.argmax(axis=1)).argmax())
    query, looked, most = (exercise.tokens[n] for n in (i, weights[i].argmax(), norms[i].argmax()))
    looked, most = (("itself" if word == query else quoted(word)) for word in (looked, most))
    yield (
        f"What does {quoted(query)} look at most, and what adds most to it?",
        f"It looks most at {looked} ({TENTH(weights[i].max())}); most is added by {most} ({TENTH(norms[i].max())}).",
    )
    yield (
        f"Is the sum of the norms in the row of {quoted(query)} the length of what the head gives it? Why?",
        f"No: the norms sum to {TENTH(norms[i].sum())}, and the sum of the vectors has a length of "
        f"{MIXED(float(np.linalg.norm(weights[i] @ f)))}. Vectors that point different ways cancel in part.",
    )
    yield (
        "A word has a weight of 0.9, and its `f(x)` is zero: what does it add, and what does its weight do?",
        "It adds nothing. Its weight is taken from the other words: the head does next to nothing here.",
    )


def _about_logits(exercise: EffectExercise) -> Iterator[tuple[str, str]]:
    added, logits, without = _answers(exercise).values()
    heads, order, winners = added[1:-1], np.argsort(-logits[0]), without.argmax(axis=1)
    best, second = (quoted(exercise.words[n]) for n in order[:2])
    most, other = int(heads[:, order[0]].argmax()), int((winners != order[0]).argmax())
    instead = exercise.words[winners[other]]
    ahead = WHOLE(logits[0, order[0]] - logits[0, order[1]])
    yield "Which word does the model say, and by how much is it ahead?", f"{best}, {ahead} ahead of {second}."
    yield (
        f"Which head adds most to {best}? What does the model say without it?",
        f"Head {most} adds {WHOLE(heads[most, order[0]])}; without it, the model still says {best}.",
    )
    told = f"{WHOLE(heads[other, order[0]])} to {best} and {WHOLE(heads[other, winners[other]])} to {quoted(instead)}"
    yield (
        "Without which head does the model say another word, and why that head?",
        f"Without head {other} it says {quoted(instead)}: that head adds {told}. The difference decides.",
    )
    yield (
        "In a deeper model, later layers read what a head adds. What does its part leave out?",
        "What they make of it. Knocked out, a head is missed there too, or others make up for it.",
    )
