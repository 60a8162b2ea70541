"""The screens of attn check: how an answer compares step by step, and a table where there are several."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attn_cli.errors import count, visible
from attn_cli.render import Block, Columns, Heading, Say, listed, numbers, plain, quoted, short
from attn_cli.teach.answer_key import AnswerKey
from attn_cli.teach.grade import StepResult, Verdict
from attn_cli.teach.replay import OF_EFFECTS

MEANINGS = {
    "no-scaling": "the scores went to the softmax undivided",
    "scaled-by-d": "the scores were divided by d_k, not by its square root",
    "softmax-axis": "the softmax was not taken along the keys of each query",
    "transposed-w": "one or more of the weight matrices W were transposed",
    "mask-inverted": "what is masked was allowed, and what is allowed was masked",
    "causal-corner": "the causal mask starts from the wrong corner",
    "k-v-swapped": "K and V were swapped",
    "mask-after-softmax": "the mask was applied after the softmax, so the rows no longer sum to one",
    "heads-not-averaged": "the mean of the heads was asked for, and they were given separately, summed, or one alone",
    "w-o-left-out": "the norms are those of the values alone: W_o was left out",
}
SCORES = ("scores", "scaled_scores", "masked_scores", "weights")  # a row a query, a column a key
OPTIONAL = ("masked_scores", "layer_output")  # not reported as missing
FEWEST, USUAL, FINEST = 3, 6, 12  # digits in a sentence
LARGE = 1e6
SHORTEST, LONGEST = 12, 32  # cells of a file's name


def one(verdict: Verdict, right: AnswerKey) -> Iterator[Block]:
    """Yield the screen of one answer: every step, the first difference, and the likely mistake."""
    yield Heading(f"{verdict.file}: {'right' if verdict.ok else 'not right'}", 1)
    rows = []
    for step in verdict.compared:
        largest = "-" if step.largest is None else plain(step.largest)
        wrong = "all: the shape" if step.shapes else f"{step.wrong} of {step.cells}"
        rows.append([step.step, step.status, largest, wrong])
    yield Columns(["step", "", "off by up to", "cells that differ"], rows)
    yield from map(Say, sentences(verdict, right))
    given = {*OPTIONAL, *(step.step for step in verdict.compared)}
    missing = listed([step for step in right.problem.steps if step not in given])
    said = [f"Not given: {missing}."] * bool(missing) + [f"Note: {note}" for note in right.notes]
    yield from (Say(text, quiet=True) for text in said)


def several(verdicts: Sequence[Verdict], right: AnswerKey, width: int | None = None) -> Iterator[Block]:
    """Yield the table of several answers, and what the mistakes in it mean."""
    good, most = sum(verdict.ok for verdict in verdicts), max(SHORTEST, min(LONGEST, (width or LONGEST) - 8))
    yield Heading(f"Right: {good} of {count(len(verdicts), 'answer', 'answers')}", 1)
    rows, details = [], []
    for n, verdict in enumerate(verdicts, 1):
        first, name = verdict.first, verdict.file
        name = name if len(name) <= most else f"{name[: most // 2 - 2]}...{name[1 - most // 2 :]}"
        status = "unfinished" if first is not None and first.is_unfinished else "differs"
        status = "unreadable" if verdict.error else "right" if verdict.ok else status
        where = "-" if first is None else first.step + ("" if first.cell is None else f" {list(first.cell)}")
        guess = verdict.likely or ("?" if status == "differs" else "-")
        told, are_several = _others(verdict), len(verdict.candidates) > 1
        told[:0] = [f"{' or '.join(verdict.candidates)}; these numbers do not tell which."] * are_several
        rows.append([str(n), visible(name), status, where, "several" if are_several else guess])
        details += [f"{n}: {text}" for text in (*_message(verdict), *told)]
    yield Columns(["", "file", "verdict", "first difference", "likely"], rows)
    codes = dict.fromkeys(code for verdict in verdicts for code in verdict.candidates)
    said = [f"{code}: {MEANINGS[code]}." for code in codes]
    if any(not verdict.ok and verdict.guessed and not verdict.candidates for verdict in verdicts):
        said.append("?: no usual mistake alone explains it.")
    yield from (Say(text, quiet=True) for text in said)
    yield from map(Say, details)
    yield from (Say(f"Note: {note}", quiet=True) for note in right.notes)


def _message(verdict: Verdict) -> list[str]:
    return [f"{verdict.error.message} {verdict.error.hint}".strip()] if verdict.error else []


def _others(verdict: Verdict) -> list[str]:
    return [f"Not compared: {listed(list(verdict.others))}."] if verdict.others else []


def sentences(verdict: Verdict, right: AnswerKey) -> list[str]:
    """Return the verdict on one answer in sentences."""
    first, others, compared = verdict.first, _others(verdict), verdict.compared
    if verdict.error is not None:
        return _message(verdict)
    if first is None:
        return [f"Right: {listed([step.step for step in compared], 9)}.", *others]
    found = []
    for step in filter(lambda step: step.is_unfinished, compared):
        cells = count(step.unfilled, "cell is", "cells are")
        found.append(f"Of {step.cells} cells in {step.step}, {cells} not filled in.")
    if first.is_unfinished:
        return [*found, "What is filled in is right.", *others]
    found.append(f"The first difference is in {_difference(first, verdict, right)}")
    found += ["Transposed, it would be right."] * first.right_if_transposed
    if first.empty:
        found.append("This query may look at nothing, so its weights and its output are zeros.")
    if follows := listed([step.step for step in compared if step.status == "follows"]):
        is_only = all(step.status != "differs" for step in compared if step is not first)
        partly = f"{follows}: this follows correctly from the steps given before."
        found.append(f"The steps after it follow correctly: {follows}." if is_only else partly)
    if verdict.likely is not None:
        found.append(f"It looks like {verdict.likely}: {MEANINGS[verdict.likely]}.")
    elif verdict.candidates:
        each = "; ".join(f"{code} ({MEANINGS[code]})" for code in verdict.candidates)
        found.append(f"Several mistakes explain it, and these numbers do not tell them apart: {each}.")
    elif verdict.guessed and first.shapes is None:
        found.append("No usual mistake alone explains all of it.")
    return [*found, *others]


def _difference(first: StepResult, verdict: Verdict, right: AnswerKey) -> str:
    if first.shapes is not None:
        return f"{first.step}: its shape is {first.shapes[1]}, and {first.shapes[0]} is right."
    least = max(FEWEST, min(verdict.digits.get(first.step, FEWEST), USUAL))
    for n in range(least, FINEST + 1):  # as given, or more if that tells them apart
        wanted = "masked" if first.expected is None else _fixed(first.expected, n)
        given = "no number" if first.got is None else _fixed(first.got, n)
        if wanted != given:
            break
    assert first.cell is not None
    *head, i, j = first.cell
    of_key = f"{quoted(right.key_tokens[j])} (column {j})" if j < len(right.key_tokens) else ""
    if first.step in OF_EFFECTS[1:]:  # its rows may be no tokens
        place = f"row {i}, {of_key or f'column {j}'}"
    else:
        is_key = first.step in ("k", "v", "transformed")
        row = f"key {quoted(right.key_tokens[i])}" if is_key else f"query {quoted(right.query_tokens[i])}"
        column = f"key {of_key}" if first.step in SCORES and of_key else f"column {j}"
        of_head = f"head {short(right.head_names[head[0]])}, " if head else ""
        place = f"{of_head}{row} (row {i}), {column}"
    return f"{first.step}, at {place}: {wanted} is right, {given} was given."


def _fixed(value: float, digits: int) -> str:
    return (numbers.number if abs(value) < LARGE else numbers.scientific)(digits)(value)


def record(verdict: Verdict, right: AnswerKey, tolerance: float) -> dict[str, object]:
    """Return the JSON of one verdict."""
    first, error = verdict.first, verdict.error
    found = {} if first is None else first._asdict()
    shapes = found.get("shapes") or (None, None)
    compared = [step._asdict() | ({"wrong": None} if step.shapes else {}) for step in verdict.compared]
    keys = ("step", "status", "largest", "wrong", "unfilled")
    return {
        "schema": "attn/1",
        "kind": "check",
        "file": verdict.file,
        "ok": verdict.ok,
        **{key: found.get(key) for key in ("step", "cell", "expected", "got")},
        "expected_shape": shapes[0],
        "got_shape": shapes[1],
        "likely": verdict.likely,
        "candidates": verdict.candidates,
        "message": " ".join(sentences(verdict, right)),
        "compared": [{key: step[key] for key in keys} for step in compared],
        "not_compared": verdict.others,
        "head": None if error else verdict.head,
        "tolerance": tolerance,
        "notes": right.notes,
        "error": None if error is None else error.as_record()["error"],
    }
