"""An answer graded against the answer key, step by step: the first difference, its cell and the likely mistake."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from attn_cli.errors import AttnError, FileError, InputError, as_utf8, visible
from attn_cli.io.types import Array, Bools, NamedTuple
from attn_cli.teach import replay, submission as handed
from attn_cli.teach.answer_key import AnswerKey
from attn_cli.teach.replay import CORRECT, GRADED_STEPS, SCORE_STEPS, Problem, Procedure, possible_arrays

FLOAT32_ERROR = 1e-6  # of a matrix's largest number: what float32 loses on the way
SLACK = 1.1  # of half a unit: rounding e^x on the way may turn the last digit
MOST_BY_HAND = 6  # digits that a student may round to on the way


class StepResult(NamedTuple):
    """How one step compares: right, differs, or follows: it differs, but comes from the student's own steps."""

    step: str
    status: str
    largest: float | None = None  # difference, over the cells that are numbers on both sides
    wrong: int = 0  # cells that differ
    cells: int = 0
    cell: tuple[int, ...] | None = None  # the first that differs; None where the shape does
    expected: float | None = None
    got: float | None = None
    shapes: tuple[tuple[int, ...], tuple[int, ...]] | None = None  # expected and given, where they differ
    right_if_transposed: bool = False  # whether the transposed matrix would be right
    empty: bool = False  # whether everything is masked for the cell's query
    unfilled: int = 0  # of the cells that differ, those not filled in yet

    @property
    def is_unfinished(self) -> bool:
        """Whether the only thing wrong is that cells are not filled in."""
        return self.status == "differs" and self.wrong == self.unfilled > 0


class Verdict(NamedTuple):
    """The grading of one answer; of one that could not be read, the error alone."""

    file: str
    compared: tuple[StepResult, ...] = ()
    candidates: tuple[str, ...] = ()  # the mistakes that explain it
    head: str = "mean"
    digits: Mapping[str, int] = {}
    others: tuple[str, ...] = ()  # names that were not compared
    guessed: bool = False  # whether mistakes could be looked for
    error: AttnError | None = None

    @property
    def first(self) -> StepResult | None:
        """The first step that differs; an unfinished one only where no other differs."""
        apart = [step for step in self.compared if step.status != "right"]
        return next((step for step in apart if not step.is_unfinished), apart[0] if apart else None)

    @property
    def ok(self) -> bool:
        """Whether all that was given is right."""
        return self.error is None and self.first is None

    @property
    def likely(self) -> str | None:
        """The mistake, where only one explains the answer."""
        return self.candidates[0] if len(self.candidates) == 1 else None


class Grading(NamedTuple):
    """The matrices given, the key to compare them with, and how closely."""

    key: AnswerKey
    given: Mapping[str, handed.Matrix]
    tolerance: float
    digits: int | None  # of a student who rounded on the way; None if they cannot be told


def grade(submission: handed.Submission, key: AnswerKey, tol: float, head_asked: bool = False) -> Verdict:
    """Compare an answer with the key.

    A matrix is right if each cell is right within `tol`, or within half a unit of the last digit given; also if
    it follows so from the student's own earlier steps, which were right, or from steps rounded likewise.
    """
    if not head_asked and submission.head is not None:
        key = key.of_head(submission.head)
    steps = {**submission.steps, **(submission.stacks if key.target == "all" else {})}
    given = {step: steps[step] for step in GRADED_STEPS if step in steps and step in key.problem.steps}
    digits = {step: matrix.digits for step, matrix in given.items()}
    # One matrix may show fewer digits than a student rounds to, where its last ones are all zero.
    by_hand = max((most for most in digits.values() if most <= MOST_BY_HAND), default=None)
    grading = Grading(key, given, tol, by_hand)
    others = (*submission.others, *(step for step in steps if step not in given))
    head = key.target if key.target in ("mean", "all") else key.head_names[int(key.target)]
    verdict = Verdict(submission.name, tuple(_results(grading)), (), head, digits, others)
    first = verdict.first
    if first is None or first.is_unfinished or not key.guesses:
        return verdict
    # The mistakes that explain every matrix given, each alone, and so the step that is wrong.
    found: list[str] = []
    ways = replay.mistakes(key.problem).items()
    # What fits to the digits given goes before what fits within the tolerance alone.
    for by in (grading._replace(tolerance=0.0), grading):
        found = found or [code for code, each in ways if any(_explains(by, way, first.step) for way in each)]
    # The one mistake explains all steps after the first that differs.
    apart = [one.step for one in verdict.compared if one.status == "differs" and not one.is_unfinished][1:]
    follow = apart if found else ()
    compared = (one._replace(status="follows") if one.step in follow else one for one in verdict.compared)
    return verdict._replace(candidates=tuple(found), compared=tuple(compared), guessed=True)


def _explains(grading: Grading, procedure: Procedure, wrong: str) -> bool:
    """Tell whether a procedure gives every matrix given, as far as they can be computed, and the wrong one too."""
    earlier: dict[str, list[Array]] = {}
    for step in GRADED_STEPS:
        earlier[step] = arrays = possible_arrays(grading.key.problem, procedure, step, earlier)
        if not arrays:
            continue
        if step in grading.given and _compare(grading, procedure, step, arrays).status != "right":
            return False
        earlier[step] = arrays + (_submitted(grading, step, arrays) or handed.rounded(arrays, grading.digits))
    return bool(earlier[wrong])


def _submitted(grading: Grading, step: str, arrays: list[Array]) -> list[Array]:
    """Return the student's own numbers, to compute the next step from: one array, or none."""
    if step not in grading.given:
        return []
    own = grading.given[step].values
    return handed.submitted_heads(own, step, arrays, grading.key.target, grading.digits)


def _results(grading: Grading) -> Iterator[StepResult]:
    """Compare the steps given with the correct ones, and after a difference also with what follows from it."""
    problem = grading.key.problem
    correct: dict[str, list[Array]] = {}  # from correct steps, and the student's own where they were right
    following: dict[str, list[Array]] = {}  # from the student's own steps, wrong ones too
    for step in GRADED_STEPS:
        if step not in problem.steps:
            continue
        arrays = correct[step] = possible_arrays(problem, CORRECT, step, correct)
        after = following[step] = possible_arrays(problem, CORRECT, step, following)
        submitted = _submitted(grading, step, arrays)
        own = submitted or handed.rounded(arrays, grading.digits)
        status = ""
        if step in grading.given:
            result = _compare(grading, CORRECT, step, arrays)
            if result.status == "differs" and _compare(grading, CORRECT, step, after).status == "right":
                result = result._replace(status="follows")
            status = result.status
            yield result
        if status in ("", "right"):
            correct[step] = arrays + own
        following[step] = own if status == "differs" and submitted else after + own


def _compare(grading: Grading, procedure: Procedure, step: str, arrays: list[Array]) -> StepResult:
    """Compare one matrix with what the step may be, in any layout that is accepted."""
    key, matrix = grading.key, grading.given[step]
    layouts = handed.accepted_layouts(key.problem, procedure, step, arrays, key.target, grading.digits)
    first, wanted = None, layouts[0][0].shape
    for layout in layouts:
        given = handed.fit_shape(matrix.values, layout[0].shape)
        if given is None:
            continue
        result = _compare_cells(grading, procedure, step, given, layout)
        if result.status == "right":
            return result
        first = first or result
    first = first or StepResult(step, "differs", shapes=(wanted, matrix.values.shape))
    is_matrix = matrix.values.ndim == 2 and procedure == CORRECT
    transposed = handed.fit_shape(matrix.values.T, wanted) if is_matrix else None
    if transposed is None:
        return first
    fits = _compare_cells(grading, procedure, step, transposed, layouts[0]).status == "right"
    return first._replace(right_if_transposed=fits)


def _compare_cells(
    by: Grading, procedure: Procedure, step: str, given: Array, arrays: list[Array]
) -> StepResult:
    """Compare cell by cell with each of the arrays: one of them must fit everywhere."""
    reach = max(by.tolerance, SLACK * by.given[step].half_unit + by.key.half_units.get(step, 0.0))
    may_be_blank, query_is_masked = _masked_places(by.key.problem, procedure, step, given.shape)
    unfilled = _unfilled(by.key.problem.mask, step, given)
    fits = []
    with np.errstate(all="ignore"):
        for array in arrays:
            scale = float(np.max(np.abs(array), initial=0.0, where=np.isfinite(array)))
            close = np.abs(given - array) <= reach * (1 + FLOAT32_ERROR) + FLOAT32_ERROR * scale
            close |= np.isnan(given) & np.isnan(array)
            blank = np.isneginf(array) if step == "masked_scores" else may_be_blank
            is_score = step in SCORE_STEPS
            close |= blank & (handed.masked_cells(given, step, array) if is_score else np.isnan(given))
            if procedure != CORRECT:  # an unfilled cell speaks neither for a mistake nor against it
                close |= unfilled
            fits.append(close)
            if close.all():
                break
        differences = np.abs(given - arrays[0])[~handed.masked_cells(given, step, arrays[0])]
    largest = float(np.max(differences, initial=-1.0, where=np.isfinite(differences)))
    result = StepResult(step, "right", None if largest < 0 else largest, 0, given.size)
    if fits[-1].all():
        return result
    fits_nowhere = np.logical_not(np.any(fits, axis=0))
    wrong = fits_nowhere if fits_nowhere.any() else np.logical_not(fits[0])
    cell = tuple(np.argwhere(wrong)[0].tolist())
    numbers = [float(array[cell]) for array in (arrays[0], given)]
    expected, got = (number if np.isfinite(number) else None for number in numbers)
    result = result._replace(status="differs", wrong=int(wrong.sum()), cell=cell, expected=expected, got=got)
    is_empty = bool(np.broadcast_to(query_is_masked, given.shape)[cell])
    return result._replace(empty=is_empty, unfilled=int((wrong & unfilled).sum()))


def _unfilled(mask: Bools | None, step: str, given: Array) -> Bools:
    """Return which cells are not filled in yet; under a mask only rows that are blank, of a query with keys."""
    empty: Bools = np.isnan(given)
    places = mask if step in (*SCORE_STEPS, "weights") else None
    if empty.all() or (places is not None and given.shape[-2:] != places.shape):
        return np.zeros_like(empty)
    if places is None:
        return empty
    return empty & empty.all(axis=-1, keepdims=True) & places.any(axis=-1, keepdims=True)


def _masked_places(problem: Problem, procedure: Procedure, step: str, shape: tuple[int, ...]) -> list[Bools]:
    """Return where a cell may be blank because it is masked, and where everything is masked for its query."""
    nowhere = np.zeros((1, 1), dtype=np.bool_)
    is_masked_later = procedure.mask == "after" and step not in SCORE_STEPS
    allowed = problem.mask if is_masked_later else replay.softmax_mask(problem, procedure)
    if allowed is None or step in ("q", "k", "v"):
        return [nowhere, nowhere]
    no_keys = np.logical_not(allowed.any(axis=1, keepdims=True))
    of_rows = step in ("output", "layer_output")
    fits = shape[-2] == len(no_keys) if of_rows else shape[-2:] == allowed.shape
    return [no_keys if of_rows else ~allowed, no_keys] if fits else [nowhere, nowhere]


def verdict_on(file: str, right: AnswerKey, tol: float, head_asked: bool = False) -> Verdict:
    """Read and grade the answer of a file; one that cannot be read has its error, and hides no other."""
    try:
        verdict = grade(handed.read_submission(file, right.problem.steps), right, tol, head_asked)
    except (InputError, FileError) as error:
        verdict = Verdict(file, error=error)
    return verdict._replace(file=as_utf8(file))


def refuse_contradiction(expect: str, right: AnswerKey, tol: float) -> None:
    """Raise InputError where the results in the file of the answer key are not those of its own inputs."""
    try:
        given = handed.read_submission(expect, right.problem.steps)
    except InputError:  # inputs alone
        return
    first = grade(given, right, tol).first
    is_own_json = given.head is not None  # it is computed again from earlier steps
    if first is not None and not first.is_unfinished and not is_own_json:
        said = f"{visible(expect)} contradicts itself: its inputs do not give its {first.step}."
        raise InputError(said, "Is a mask, a score or a number of heads missing in it?")
