"""An answer compared with the right one, step by step: the first step that differs, the cell, the likely mistake."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from attn_cli.teach.grading.answer_layouts import blank, forms, own, rounded, shaped
from attn_cli.teach.grading.mistakes import MISTAKES, plans
from attn_cli.teach.grading.replay import RIGHT, SCORES, STEPS, Plan, Problem, allowed, values

if TYPE_CHECKING:
    from attn_cli.errors import AttnError
    from attn_cli.io.array_types import Array, Bools
    from attn_cli.teach.grading.answer_key import Right
    from attn_cli.teach.grading.submission import Handed, Matrix

HAIR = 1e-6  # of a matrix's largest number: what float32 loses on the way
SLACK = 1.1  # of half a unit: who rounded e^x on the way may round the last digit the other way
MOST_BY_HAND = 6  # digits that somebody may round to on the way


class Compared(NamedTuple):
    """How one step compares: right, differs, or follows: it differs, but comes from the student's own steps."""

    step: str
    status: str
    largest: float | None = None  # difference, of the cells that are numbers on both sides
    wrong: int = 0  # cells that differ
    cells: int = 0
    cell: tuple[int, ...] | None = None  # the first that differs; None where the shape does
    expected: float | None = None
    got: float | None = None
    shapes: tuple[tuple[int, ...], tuple[int, ...]] | None = None  # expected and given, where they differ
    turned: bool = False  # whether the transposed matrix would be right
    empty: bool = False  # whether the cell's query may look at nothing
    unfilled: int = 0  # of the cells that differ, those that hold nothing yet

    @property
    def is_unfinished(self) -> bool:
        """Whether nothing is wrong with it but that cells are not filled in."""
        return self.status == "differs" and self.wrong == self.unfilled > 0


class Verdict(NamedTuple):
    """What is to be said of one answer. Where it could not be read, there is an error and nothing else."""

    file: str
    compared: tuple[Compared, ...] = ()
    candidates: tuple[str, ...] = ()
    head: str = "mean"
    digits: Mapping[str, int] = {}
    others: tuple[str, ...] = ()
    guessed: bool = False  # whether mistakes could be looked for
    error: AttnError | None = None

    @property
    def first(self) -> Compared | None:
        """The first step that differs; one that is only not filled in where none does."""
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


class Work(NamedTuple):
    """What is compared with what, and how closely."""

    right: Right
    given: Mapping[str, Matrix]
    tol: float
    digits: int | None  # to which somebody rounded who rounded on the way; None if that cannot be told


def grade(handed: Handed, right: Right, tol: float, head_asked: bool = False) -> Verdict:
    """Compare an answer with the right one.

    A matrix is right if each cell is right within `tol`, or within half a unit of the last digit given; also if
    it comes so from the student's own steps before, which were right, or from steps rounded likewise.
    """
    if not head_asked and handed.head is not None:
        right = right.of_head(handed.head)
    steps = dict(handed.steps)
    if right.target == "all":
        steps |= handed.stacks
    given = {step: steps[step] for step in STEPS if step in steps and step in right.problem.right}
    others = (*handed.others, *(step for step in steps if step not in given))
    # Which digits somebody rounds to on the way: a matrix may show fewer, where its last ones all are zero.
    by_hand = [matrix.digits for matrix in given.values() if matrix.digits <= MOST_BY_HAND]
    work = Work(right, given, tol, max(by_hand, default=None))
    head = right.target if right.target in ("mean", "all") else right.head_names[int(right.target)]
    digits = {step: matrix.digits for step, matrix in given.items()}
    compared = tuple(_walk(work))
    verdict = Verdict(handed.name, compared, (), head, digits, others)
    apart = [step for step in compared if step.status != "right" and not step.is_unfinished]
    if not apart or not right.guesses:
        return verdict
    # What fits to the digits given goes before what fits within the tolerance alone.
    wrong = apart[0].step
    found = _explanations(work._replace(tol=0.0), wrong) or _explanations(work, wrong)
    return verdict._replace(
        candidates=found, guessed=True, compared=_all_following(compared) if found else compared
    )


def _all_following(compared: tuple[Compared, ...]) -> tuple[Compared, ...]:
    """Say of all steps after the first that differs that they follow: the one mistake explains them too."""
    differs = [step.step for step in compared if step.status == "differs" and not step.is_unfinished]
    return tuple(one._replace(status="follows") if one.step in differs[1:] else one for one in compared)


def _explanations(work: Work, wrong: str) -> tuple[str, ...]:
    """Return the mistakes that explain every matrix given, each alone, and so the step that is wrong."""
    problem = work.right.problem
    return tuple(code for code in MISTAKES if any(_fits(work, plan, wrong) for plan in plans(problem, code)))


def _fits(work: Work, plan: Plan, wrong: str) -> bool:
    """Tell whether all that was given is as the plan has it, as far as it can be computed from results alone."""
    known: dict[str, list[Array]] = {}
    for step in STEPS:
        known[step] = values(work.right.problem, plan, step, known)
        if not known[step]:
            continue
        if step in work.given and _compare(work, plan, step, known).status != "right":
            return False
        known[step] = known[step] + _theirs(work, step, known[step])
    return bool(known[wrong])


def _theirs(work: Work, step: str, arrays: list[Array]) -> list[Array]:
    """Return what the student may have gone on from, besides what was computed: one array, or none."""
    return _own(work, step, arrays) or rounded(arrays, work.digits)


def _own(work: Work, step: str, arrays: list[Array]) -> list[Array]:
    if step not in work.given:
        return []
    return own(work.given[step].values, step, arrays, work.right.target, work.digits)


def _walk(work: Work) -> Iterator[Compared]:
    """Compare the steps given with the right ones, and after a difference also with what follows from it."""
    problem = work.right.problem
    known: dict[str, list[Array]] = {}
    after: dict[str, list[Array]] = {}  # what follows from the student's steps, wrong ones too
    for step in STEPS:
        if step not in problem.right:
            continue
        known[step] = values(problem, RIGHT, step, known)
        after[step] = values(problem, RIGHT, step, after)
        status = ""
        if step in work.given:
            found = _compare(work, RIGHT, step, known)
            if found.status == "differs" and _compare(work, RIGHT, step, after).status == "right":
                found = found._replace(status="follows")
            status = found.status
            yield found
        theirs = _theirs(work, step, known[step])
        if status in ("", "right"):
            known[step] = known[step] + theirs
        is_lost = status == "differs" and _own(work, step, known[step])
        after[step] = theirs if is_lost else after[step] + theirs


def _compare(work: Work, plan: Plan, step: str, known: Mapping[str, list[Array]]) -> Compared:
    """Compare one matrix with what the step may be, in any form that is right under the plan."""
    problem, target, matrix = work.right.problem, work.right.target, work.given[step]
    usual, *others = forms(problem, plan, step, known, target, work.digits)
    reach = max(work.tol, SLACK * matrix.half_unit + work.right.half_units.get(step, 0.0))
    first = None
    for form in (usual, *others):
        given = shaped(matrix.values, form.arrays[0].shape)
        if given is None:
            continue
        found = _cells(problem, plan, step, given, form.arrays, reach)
        if found.status == "right":
            return found
        first = first or found
    wanted = usual.arrays[0].shape
    first = first or Compared(step, "differs", shapes=(wanted, matrix.values.shape))
    turned = shaped(matrix.values.T, wanted) if matrix.values.ndim == 2 and plan == RIGHT else None
    if turned is None or matrix.values.shape == (1, 1):
        return first
    fits = _cells(problem, plan, step, turned, usual.arrays, reach).status == "right"
    return first._replace(turned=fits)


def _cells(
    problem: Problem, plan: Plan, step: str, given: Array, arrays: list[Array], reach: float
) -> Compared:
    """Compare cell by cell with each of the arrays: one of them must fit everywhere."""
    shut, nothing = _shut(problem, plan, step, given.shape)
    unfilled = _unfilled(problem, step, given)
    fits = []
    with np.errstate(all="ignore"):
        for array in arrays:
            largest = float(np.max(np.abs(array), initial=0.0, where=np.isfinite(array)))
            close = np.abs(given - array) <= reach * (1 + HAIR) + HAIR * largest
            close |= np.isnan(given) & np.isnan(array)
            if step in SCORES:
                close |= blank(given, step, array) & (np.isneginf(array) if step == "masked_scores" else shut)
            else:
                close |= np.isnan(given) & shut
            if plan != RIGHT:  # what is not filled in speaks for no mistake, and against none
                close |= unfilled
            fits.append(close)
            if close.all():
                break
        apart = np.abs(given - arrays[0])[~blank(given, step, arrays[0])]
    finite = apart[np.isfinite(apart)]
    largest_apart = float(finite.max()) if finite.size else None
    if fits[-1].all():
        return Compared(step, "right", largest_apart, 0, given.size)
    nowhere = np.logical_not(np.any(fits, axis=0))
    bad = nowhere if nowhere.any() else np.logical_not(fits[0])
    cell = tuple(int(n) for n in np.argwhere(bad)[0])
    expected, got = float(arrays[0][cell]), float(given[cell])
    return Compared(
        step,
        "differs",
        largest_apart,
        int(bad.sum()),
        given.size,
        cell,
        expected if np.isfinite(expected) else None,
        got if np.isfinite(got) else None,
        empty=bool(np.broadcast_to(nothing, given.shape)[cell]),
        unfilled=int((bad & unfilled).sum()),
    )


def _unfilled(problem: Problem, step: str, given: Array) -> Bools:
    """Return which cells hold nothing yet, in a matrix that holds something.

    Under a mask, nothing may mean masked: there it takes a whole row of nothing, of a query that may look at something.
    """
    empty: Bools = np.isnan(given)
    if empty.all():
        return np.zeros_like(empty)
    if problem.mask is None or step not in (*SCORES, "weights"):
        return empty
    if given.shape[-2:] != problem.mask.shape:
        return np.zeros_like(empty)
    return empty & empty.all(axis=-1, keepdims=True) & problem.mask.any(axis=-1, keepdims=True)


def _shut(problem: Problem, plan: Plan, step: str, shape: tuple[int, ...]) -> tuple[Bools, Bools]:
    """Return where a cell may hold no number, because it is masked, and where its query may look at nothing."""
    no = np.zeros((1, 1), dtype=np.bool_)
    may = problem.mask if plan.mask == "after" and step not in SCORES else allowed(problem, plan)
    if may is None or step not in (*SCORES, "weights", "output", "layer_output"):
        return no, no
    nothing = np.logical_not(may.any(axis=1, keepdims=True))
    if step in ("output", "layer_output"):
        return (nothing, nothing) if shape[-2] == len(nothing) else (no, no)
    return (~may, nothing) if shape[-2:] == may.shape else (no, no)
