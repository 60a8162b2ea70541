"""The worksheets on what comes of the weights, norms and the parts of a logit, and their keys."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from attn_cli.io.types import Array
from attn_cli.render import Heading, Say, numbers, quoted
from attn_cli.render.worksheet import SheetPart, WorkTable, ending, products, rows_of
from attn_cli.teach.effects import GIVEN, STEPS, STREAM, EffectExercise

WHOLE, TENTH, MIXED = numbers.number(0), numbers.number(1), numbers.number(2)
FORMULAS = {
    "v": ("Values: what each word passes on", "v = X W_v"),
    "transformed": ("Added vectors: values joined to the stream", "f(x) = v W_o"),
    "lengths": ("Lengths: the root of the sum of squares", "length of f(x)"),
    "norms": ("Norms: what comes of each weight", "weight × length"),
    "parts": ("Parts: what each adds to the score of each word", "stream U"),
    "logits": ("Logits: the sum of the parts", "sum of each column"),
    "without": ("Without a head: the logits less its part", "logits - part"),
}
SHEETS = {
    "norm": (
        "What comes of the weights",
        'A weight says where a head looks; what it adds there is `weight f(x)`. Compute how long that is, in "{}". '
        "Rows of the weights are queries, columns are keys. Only "
        "a root that is no whole number is to be rounded, to two decimals.",
    ),
    "logit": (
        "The parts of a logit",
        'What comes after "{}"? The last word\'s vector is a sum: the embedding, and what three heads and a network '
        "add. `U` has a column for each word that may come. The norm that models have before `U` is left out.",
    ),
}
BY_WORD = ("weights", "norms", "lengths", "U", "parts", "logits", "without")  # a column a word


def parts(exercise: EffectExercise, key: bool = False) -> Iterator[SheetPart]:
    """Yield the worksheet from top to bottom, or its key."""
    title, about = SHEETS[exercise.topic]
    yield Heading(f"{title}: exercise {exercise.seed}{', the key' if key else ''}", 1)
    yield Say(about.format(" ".join(exercise.tokens)))
    given, steps = GIVEN[exercise.topic], STEPS[exercise.topic]
    yield [_table(exercise, name, "", name, True) for name in given]
    numbered = [(name, f"{n}. {FORMULAS[name][0]}", FORMULAS[name][1]) for n, name in enumerate(steps, 1)]
    tables = [_table(exercise, *step, key) for step in numbered]
    left, right = exercise.given[given[0]][0], exercise.given[given[1]][:, 0]
    tables[0].rows[0][1] = first = WHOLE(float(left @ right))
    yield tables
    yield Say(f"Example: the first number is `{products(left.tolist(), right.tolist())} = {first}`.")
    yield from ending(questions(exercise), exercise.command, key)


def _table(exercise: EffectExercise, name: str, title: str, formula: str, filled: bool) -> WorkTable:
    matrix = np.asarray(exercise.given[name] if name in exercise.given else exercise.answers[name])
    heads = {"stream": STREAM, "parts": STREAM, "without": [f"without {head}" for head in STREAM[1:-1]]}
    words = exercise.tokens if len(matrix) == len(exercise.tokens) else [*map(str, range(len(matrix)))]
    labels = heads.get(name, words if len(matrix) > 1 else [""])
    columns = exercise.words if name in BY_WORD else [*map(str, range(matrix.shape[1]))]
    form = TENTH if name in ("weights", "norms") else WHOLE
    rows = rows_of(labels, matrix, form if filled else None)
    return WorkTable(title, formula, columns, rows, name in exercise.given)


def questions(exercise: EffectExercise) -> Iterator[tuple[str, str]]:
    """Yield what is asked at the end, each question with its answer."""
    answers = [np.array(step) for step in exercise.answers.values()]
    if exercise.topic == "norm":
        return _about_norms(exercise.words, exercise.given["weights"], answers[1], answers[3])
    return _about_logits(exercise.words, *answers)


def _about_norms(words: Sequence[str], weights: Array, f: Array, norms: Array) -> Iterator[tuple[str, str]]:
    i = int((norms.argmax(axis=1) != weights.argmax(axis=1)).argmax())
    looked, most = (quoted(words[int(row.argmax())]) for row in (weights[i], norms[i]))
    yield (
        f"What does {quoted(words[i])} look at most, and what adds most to it?",
        f"It looks most at {looked} ({TENTH(weights[i].max())}); most is added by {most} ({TENTH(norms[i].max())}).",
    )
    yield (
        f"Is the sum of the norms in the row of {quoted(words[i])} the length of what the head gives it? Why?",
        f"No: the norms sum to {TENTH(norms[i].sum())}, and the sum of the vectors has a length of "
        f"{MIXED(float(np.linalg.norm(weights[i] @ f)))}. Vectors that point different ways cancel in part.",
    )
    yield (
        "A word has a weight of 0.9, and its `f(x)` is zero: what does it add, and what does its weight do?",
        "It adds nothing. Its weight is taken from the other words: the head does next to nothing here.",
    )


def _about_logits(
    words: Sequence[str], added: Array, logits: Array, without: Array
) -> Iterator[tuple[str, str]]:
    best, winners, heads = int(logits.argmax()), without.argmax(axis=1), added[1:-1]
    most, other = int(heads[:, best].argmax()), int((winners != best).argmax())
    said, instead = quoted(words[best]), quoted(words[winners[other]])
    yield (
        "Which word does the model say, and which head adds most to it? What is said without that head?",
        f"{said}; head {most} adds {WHOLE(heads[most, best])}; without it, the model still says {said}.",
    )
    yield (
        "Without which head does the model say another word, and why that head?",
        f"Without head {other} it says {instead}: that head adds {WHOLE(heads[other, best])} to {said} and "
        f"{WHOLE(heads[other, winners[other]])} to {instead}. The difference decides.",
    )
    yield (
        "In a deeper model, later layers read what a head adds. What does its part leave out?",
        "What they make of it. Knocked out, a head is missed there too, or others make up for it.",
    )
