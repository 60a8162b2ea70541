"""From given scores to a Trace: softmax, and output where there are values."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from attn_cli.core.masks import Mask
from attn_cli.core.scores import GIVEN
from attn_cli.errors import InputError, UsageError
from attn_cli.models.projection import Projection, shared, split, to_digits
from attn_cli.pipeline.inputs import Inputs, Side
from attn_cli.pipeline.mask import wanted_masks
from attn_cli.pipeline.project import Layer, given_biases, labels, shown_head, with_masks
from attn_cli.pipeline.record import Attended
from attn_cli.settings.validate import unused
from attn_cli.trace.computation import Embedding
from attn_cli.trace.head import Head, Projected
from attn_cli.trace.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attn_cli.inputs.foreign_arrays import GivenScores
    from attn_cli.inputs.matrices import Given
    from attn_cli.io.array_types import Array
    from attn_cli.io.progress import OnPart
    from attn_cli.settings.settings import Settings

UNKNOWN = 'The scores are used unscaled, because d_k is unknown. Add "scale" to the file to scale them.'


def attend_scores(
    kind: str, given: Given, scores: GivenScores, settings: Settings, report: OnPart | None
) -> Attended:
    """Return what given scores come to: heads without queries and keys, with values only where they were given."""
    _refuse_settings(given, scores, settings)
    values = scores.values if settings.round is None else to_digits(scores.values, settings.round)
    heads, n_q, n_k = values.shape
    names = tuple(map(str, range(heads)))
    own = given.context_tokens or (given.tokens if n_q == n_k else None)
    inputs = Inputs(
        Side(labels(given.tokens, n_q, "q", given.name)),
        Side(labels(own, n_k, "k", given.name)),
        given.tokens is not None,
        Embedding("given", given.name, None, None, None),
        notes=(*unused(settings, words=False, has_x=False), *_notes(given, scores, settings)),
        has_second_input=given.context_tokens is not None and given.context_tokens != given.tokens,
    )
    biases = given_biases(given, settings, values.shape)
    masks = _with_blanks(wanted_masks(settings, given.mask, inputs, given.name, heads), values, given.name)
    V = _values(given, settings, heads, n_k)
    no_keys = np.zeros((n_k, 1))  # the scores stand where queries do: see core.scores.GIVEN
    made = tuple(
        Head(
            name, q=values[h], k=no_keys, v=V[h], bias=biases[h],
            scale=given.scale if scores.is_raw and given.scale != 1 else None, softcap=given.softcap,
        )
        for h, name in enumerate(names)
    )  # fmt: skip
    joining = Projection(Projected("given", given.name, None, None, None), ())
    layer = Layer(names, shown_head(settings.head, names), made, joining, score=GIVEN)
    layer, mask, notes = with_masks(layer, masks)
    inputs = inputs._replace(notes=(*inputs.notes, *notes))
    finish = partial(_bare, has_values=given.get("V") is not None)
    return Attended(kind, inputs, layer, settings, mask, report=report, finish=finish)


def _refuse_settings(given: Given, scores: GivenScores, settings: Settings) -> None:
    """Raise an error for what cannot be where the scores are given."""
    heads = len(scores.values)
    if settings.pad:
        raise UsageError(
            f"{given.name} gives scores: there are no vectors to add padding to.",
            "Leave out --pad.",
            "--pad",
        )
    if settings.score is not None:
        raise UsageError(
            f"{given.name} gives the scores: --score {settings.score} would need Q and K.",
            "Leave out --score.",
            "--score",
        )
    if given.score is not None:
        raise InputError(
            f"{given.name} gives the scores: score {given.score} would need Q and K.", "Leave it out."
        )
    said = given.heads if given.heads != given.stacked else None  # those of V may be shared
    wanted = settings.heads or said or heads
    if wanted != heads:
        raise InputError(
            f"{given.name}: {scores.name} has shape {scores.values.shape}, for {heads} heads, and heads is {wanted}.",
            "Scores of several heads are (heads, n_q, n_k).",
        )
    if given.get("W_o") is not None:
        raise InputError(f"{given.name} gives scores and W_o: heads are joined only where Q and K are known.")


def _notes(given: Given, scores: GivenScores, settings: Settings) -> list[str]:
    notes = given.note_of_ignored()
    if scores.is_raw and given.scale is None:
        notes.append(UNKNOWN)
    if not scores.is_raw and given.scale is not None:
        notes.append(f"{scores.name} are scaled already: the scale {given.scale:.12g} was not applied again.")
    if given.get("V") is None:
        notes.append(f"{given.name} holds no V: there is no output.")
    return notes


def _values(given: Given, settings: Settings, heads: int, n_k: int) -> list[Array]:
    """Return each head's values: their own, shared ones, or rows without numbers where none were given."""
    V = given.get("V")
    if V is None:
        return [np.zeros((n_k, 0))] * heads
    if len(V) != n_k:
        raise InputError(f"V has shape {V.shape}, but the scores have {n_k} keys: each key needs one value.")
    apart = given.stacked or 1
    if heads % apart:
        raise InputError(f"{given.name}: V is given for {apart} heads, and the scores for {heads}.")
    if settings.round is not None:
        V = to_digits(V, settings.round)
    return shared(split(V, apart, 1), heads)


def _with_blanks(masks: Sequence[Mask | None], scores: Array, name: str) -> list[Mask | None]:
    """Return the masks with what is -inf in the scores masked too, one for all heads where one will do."""
    blank = np.isneginf(scores)
    if not blank.any():
        return list(masks)
    n_q, n_k = scores.shape[1:]
    alike = len(masks) == 1 and bool((blank == blank[0]).all())
    found: list[Mask | None] = []
    for h in range(1 if alike else len(scores)):
        mask = masks[h if len(masks) > 1 else 0]
        stated = np.ones((n_q, n_k), np.bool_) if mask is None else mask.rows(range(n_q))
        allowed = stated & ~blank[h]
        is_told = mask is not None and np.array_equal(allowed, stated)
        found.append(mask if is_told else Mask(name, n_q, n_k, allowed))
    return found


def _bare(trace: Trace, has_values: bool) -> Trace:
    """Return the trace without what stood in for queries, keys and values."""

    def bare(head: Head) -> Head:
        head = replace(head, q=None, k=None)
        return head if has_values else replace(head, v=None, output=None)

    heads = tuple(map(bare, trace.heads))
    shown = next((head for head in heads if head.name == trace.shown.name), None)
    return replace(trace, heads=heads, shown=shown or bare(trace.shown))
