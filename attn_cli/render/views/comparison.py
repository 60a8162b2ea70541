"""Two or three settings next to each other: screen, JSON, CSV, and the sentence on what changed."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from attn_cli.errors import UsageError
from attn_cli.io.escape import count
from attn_cli.render.blocks import Beside, Block, Columns, Formula, Heading, Links, Matrix, Say
from attn_cli.render.numbers import share
from attn_cli.render.screen.text import listed
from attn_cli.render.views.finding import looks_most_at
from attn_cli.render.views.origins import dropped, learned, setting_parts
from attn_cli.render.views.overview import labelled_matrix, weight_matrix
from attn_cli.render.views.wording import formula, head_of_layer, placed, quoted, quoted_at, short, size
from attn_cli.settings.output import View
from attn_cli.teach.compare import SAME, TEXT, Change, Comparison, Mover
from attn_cli.text.wordpieces import SPACE
from attn_cli.trace.trace import Trace

if TYPE_CHECKING:
    from attn_cli.teach.moved import Moved

MOST_CELLS, MOVERS, NAMED = 4_000, 10, 4


def screen_of(comparison: Comparison, view: View) -> Iterator[Block]:
    """Yield the matrices side by side, their difference where there are two, and what changed, in a sentence."""
    traces, labels, name = comparison.traces, names_of(comparison), _name(comparison)
    first, titles = traces[0], [f"{name} {label}" for label in labels]
    cells = max(len(trace.listed) * len(trace.key_tokens) for trace in traces)
    is_crowded = view.width is not None and view.precision is None and cells > MOST_CELLS
    common_size = f"; {size(first)}" if comparison.same_cells else ""
    yield Heading(f"Compare {name}: {', '.join(labels[:-1])} and {labels[-1]}{common_size}", 1)
    told = sentences(comparison)
    if comparison.moved is not None:
        yield Say(told.pop(0))
        yield from _of_heads(comparison.moved, labels)
        yield Heading(f"{head_of_layer(first.shown).capitalize()} of layer {first.projection.layer}")
    formulas = [formula(trace) for trace in traces]
    if len(set(formulas)) == 1:
        yield Formula(formulas[0])
    else:
        yield from (Formula(text, f"{label}:") for label, text in zip(labels, formulas, strict=True))
    if not comparison.same_cells and comparison.option == TEXT and not is_crowded:
        yield Beside(titles, list(map(_matrix, traces)))
    elif not comparison.same_cells:
        for title, trace in zip(titles, traces, strict=True):
            yield from (Heading(title), _matrix(trace))
    elif first.settings.top is not None or is_crowded:
        yield from _movers(comparison)
    else:
        yield Beside(titles, list(map(_matrix, traces)))
        for change in comparison.changes if len(labels) == 2 else ():
            yield Heading(f"The difference: {labels[1]} minus {labels[0]}")
            yield labelled_matrix(first, change.difference)._replace(is_difference=True)
            if change.only_before or change.only_after:
                text = "No difference is shown where one side is masked: masked is not a weight of zero."
                yield Say(text, quiet=True)
    yield Say("")
    yield from map(Say, told)
    yield from ending(comparison, " ".join(told))
    if view.steps:
        yield Say("Note: --steps takes effect only with -f json here; attn self shows the steps of one side.")


def _name(comparison: Comparison) -> str:
    return comparison.option.replace("_", "-")


def names_of(comparison: Comparison) -> list[str]:
    """Return the values for sentences and headings, shortened unless that would make two of them equal."""
    names = [short(label) for label in comparison.labels]
    return names if len(set(names)) == len(names) else list(comparison.labels)


def _matrix(trace: Trace) -> Matrix:
    return weight_matrix(trace, trace.shown)._replace(sums=())


def _movers(comparison: Comparison) -> Iterator[Block]:
    """Yield the links that changed most, where the matrices are too large to draw or --top asks for a few."""
    first, names = comparison.traces[0], names_of(comparison)
    top, queries, keys = first.settings.top, first.query_tokens, first.key_tokens
    if top is None:
        cells = f"{len(first.listed):,} x {len(keys):,} weights"
        yield Say(f"{cells} are too many to draw side by side; --precision 2 draws them anyway.")
    for change in comparison.changes:
        moved = change.movers[: top or MOVERS]
        if moved:
            yield Say(f"What moved most from {names[comparison.reference]} to {names[change.to]}:")
            yield Links([(placed(queries, m.query), [(placed(keys, m.key), _moved(m))]) for m in moved])


def _moved(mover: Mover) -> str:
    """Return a change of weight: `0.412 to 0.803 (+0.391)`."""
    by = mover.after - mover.before
    size = f"{by:+.3f}" if abs(by) >= 0.0005 else f"{by:+.1e}"
    return f"{share(mover.before)} to {share(mover.after)} ({size})"


def sentences(comparison: Comparison) -> list[str]:
    """Return what changed, a sentence for each value but the reference; where tokens differ, how they differ."""
    moved = comparison.moved
    first = [] if moved is None else [_finding(moved, names_of(comparison))]
    if not comparison.same_tokens and comparison.option == TEXT:
        found = zip(names_of(comparison), comparison.traces, strict=True)
        told = [f"{name.capitalize()}: {looks_most_at(one, one.shown, one.focus[0])}." for name, one in found]
        return [*first, *told, *(_sentence(comparison, change) for change in comparison.changes)]
    if not comparison.same_cells:
        pairs = zip(names_of(comparison), comparison.entropy, strict=True)
        parts = [f"{'none' if bits is None else f'{bits:.3f}'} with {label}" for label, bits in pairs]
        return [_other_tokens(comparison), f"The mean entropy of a row in bits is {', '.join(parts)}."]
    return [*first, *(_sentence(comparison, change) for change in comparison.changes)]


def _sentence(comparison: Comparison, change: Change) -> str:
    start, labels = comparison.reference, names_of(comparison)
    trace, before, after = comparison.traces[start], labels[start], labels[change.to]
    if not change.movers and not change.only_before and not change.only_after:
        differs = change.output is not None and change.output > SAME
        output = f"; the outputs do, by up to {change.output:.2g}" if differs else ""
        reason = _why_unchanged(comparison, change)
        return f"Nothing changed from {before} to {after}: no weight differs{output}.{reason}"
    moved = "no link that is unmasked on both sides changed"
    for mover in change.movers[:1]:
        query, key = quoted_at(trace.query_tokens, mover.query), quoted_at(trace.key_tokens, mover.key)
        moved = f"the largest mover is {query} looking at {key}, from {_moved(mover)}"
    entropy = _entropy(comparison.entropy[start], comparison.entropy[change.to])
    parts = [entropy, moved, _strongest_changed(trace, change)]
    for n, label in ((change.only_before, before), (change.only_after, after)):
        parts += [f"{count(n, 'link is', 'links are')} masked with {label} alone"] * bool(n)
    return f"With {_name(comparison)} {after} instead of {before}, {'; '.join(parts)}."


def _entropy(before: float | None, after: float | None) -> str:
    if before is None or after is None:
        return f"all rows are fully masked {'before' if before is None else 'now'}, and have no entropy"
    old, new = f"{before:.3f}", f"{after:.3f}"
    if old == new:
        return f"the mean entropy of a row stays at {old} bits"
    return f"the mean entropy of a row {'falls' if after < before else 'rises'} from {old} to {new} bits"


def _strongest_changed(trace: Trace, change: Change) -> str:
    n, changed = len(trace.listed), change.strongest_changed
    if not changed:
        return "every query keeps its strongest key" if n > 1 else "its strongest key stays"
    named = listed([quoted_at(trace.query_tokens, i) for i in changed], NAMED)
    has = "has" if len(changed) == 1 else "have"
    return f"{len(changed)} of {count(n, 'query', 'queries')} {has} another strongest key ({named})"


def _why_unchanged(comparison: Comparison, change: Change) -> str:
    sides = (comparison.traces[comparison.reference], comparison.traces[change.to])
    for note in (note for trace in sides for note in trace.notes):
        if note.startswith(f"--{_name(comparison)} "):
            return f" {note}"
    drawn = any(trace.embedding.seed is not None or trace.projection.seed is not None for trace in sides)
    if comparison.option == "seed" and not drawn:
        return " Nothing here is drawn at random: -e random or -p random is."
    if comparison.option == "oov" and not any(trace.unknown or trace.replaced for trace in sides):
        return " Every word has a vector of its own."
    return " There is one key, and it gets all the weight." if len(sides[0].key_tokens) == 1 else ""


def _other_tokens(comparison: Comparison) -> str:
    start, names = comparison.reference, names_of(comparison)
    first, differences = comparison.traces[start], []
    for n, trace in enumerate(comparison.traces):
        old, new = (Counter((*t.query_tokens, *(() if t.is_self else t.key_tokens))) for t in (first, trace))
        for only, where in ((old - new, names[start]), (new - old, names[n])):
            if only:
                differences.append(f"only with {where}: {listed([quoted(token) for token in only], NAMED)}")
        if old == new and (first.query_tokens, first.key_tokens) != (trace.query_tokens, trace.key_tokens):
            differences.append(f"{names[n]} has them in another order")
    return f"The tokens differ, so the cells cannot be compared one by one: {'; '.join(differences)}."


def ending(comparison: Comparison, summary: str) -> Iterator[Say]:
    """Yield the settings that all sides share, then those of each side, and the notes that `summary` lacks."""
    traces, labels = comparison.traces, names_of(comparison)
    parts = [setting_parts(trace) for trace in traces]
    shared = [part for part in parts[0] if all(part in other for other in parts[1:])]
    everyone = "All" if len(traces) > 2 else "Both"
    own = ([part for part in side if part not in shared] for side in parts)
    for whose, said in ((everyone, shared), *zip(labels, own, strict=True)):
        if said:
            yield Say(f"{whose}: {'; '.join(said)}.", quiet=True)
    notes = [[note for note in trace.notes if note not in summary] for trace in traces]
    is_told = any("what a pronoun" in note for side in notes for note in side)
    for before, sides in (
        ("", [learned(trace)[: not is_told] for trace in traces]),
        ("", [dropped(trace) for trace in traces]),
        ("Note: ", notes),
    ):
        # Each is said once, with whose it is unless all have it.
        for text in dict.fromkeys(text for side in sides for text in side):
            whose = ", ".join(label for label, side in zip(labels, sides, strict=True) if text in side)
            yield Say(before + (f"({whose}) " if any(text not in side for side in sides) else "") + text)


def talk_of(comparison: Comparison, summary: str | None = None) -> list[str]:
    """Return what is printed on standard error where the output has no room for sentences."""
    said = sentences(comparison) if summary is None else [summary]
    return [*said, *(say.text for say in ending(comparison, " ".join(said)) if not say.quiet)]


def record(
    comparison: Comparison,
    steps: bool = False,
    swap: dict[str, object] | None = None,
    summary: str | None = None,
) -> dict[str, object]:
    """Return the comparison as JSON of kind compare; `swap` is what a swap of words adds."""
    changes, moved = [_change_record(comparison, change) for change in comparison.changes], comparison.moved
    is_pair = len(changes) == 1
    rows = comparison.changes[0].difference.tolist() if is_pair else []
    return {
        "schema": "attn/1",
        "kind": "compare",
        "option": comparison.option,
        "values": list(comparison.values),
        "reference": comparison.reference,
        "records": [trace.to_dict(steps) for trace in comparison.traces],
        "difference": [[None if math.isnan(x) else x for x in row] for row in rows] if is_pair else None,
        "entropy": list(comparison.entropy),
        "largest_mover": changes[0]["largest_mover"] if is_pair else None,
        "changes": changes,
        "swap": swap,
        "heads": moved and [one._asdict() for one in moved.heads],
        "aligned": moved and {"queries": moved.queries, "keys": moved.keys},
        "next_words": (moved and [one._asdict() for one in moved.words]) or None,
        "summary": " ".join(sentences(comparison)) if summary is None else summary,
    }


def _change_record(comparison: Comparison, change: Change) -> dict[str, object]:
    trace = comparison.traces[0]
    rows, mover = {i: place for place, i in enumerate(trace.listed)}, None
    for i, j, old, new in change.movers[:1]:
        names = {"query": trace.query_tokens[i], "key": trace.key_tokens[j]}
        mover = {**names, "cell": [rows[i], j], "from": old, "to": new}
    return {
        "value": comparison.values[change.to],
        "largest_mover": mover,
        "strongest_changed": [rows[i] for i in change.strongest_changed],
        "masked_only_before": change.only_before,
        "masked_only_after": change.only_after,
    }


def comparison_rows(comparison: Comparison) -> Iterator[Sequence[object]]:
    """Yield a row per link: its weight under each value, and of two their difference; empty where masked.

    Of two models, or two texts in one, it is a row per head. Raises UsageError where the tokens differ.
    """
    if comparison.moved is not None:
        yield "layer", "head", "divergence"
        yield from comparison.moved.heads
        return
    if not comparison.same_tokens:
        what = "The tokens differ between the sides: no row has all its cells."
        raise UsageError(what, "Use -f json, or one attn self for each.", "--format")
    first = comparison.traces[0]
    names = [f"{comparison.option}={label}" for label in comparison.labels]
    of_two = [change.difference for change in comparison.changes if len(names) == 2]
    sides = [*(_matrix(trace).values for trace in comparison.traces), *of_two]
    yield ["query", "key", *names, *["difference"] * len(of_two)]
    for at, i in enumerate(first.listed):
        for j, key in enumerate(first.key_tokens):
            weights = [float(side[at, j]) for side in sides]
            yield [first.query_tokens[i], key, *("" if math.isnan(weight) else weight for weight in weights)]


RANKED = 8  # heads that are named
SMALL = 0.01  # bits: where no head moved by more, the map has a smaller unit


def _of_heads(moved: Moved, labels: Sequence[str]) -> Iterator[Block]:
    """Yield the map of all heads, those that moved most, and the next words."""
    if moved.heads[0].divergence:
        yield from _map(moved)
    if moved.words:
        yield Heading(f"Next words that moved most, {moved.where}")
        seen = [(word.replace(" ", SPACE), *both) for word, _, both in moved.words]
        rows = [(word, share(a), share(b), f"{b - a:+.2g}") for word, a, b in seen]
        yield Columns(("", *labels, "change"), rows)
    yield from (Say(f"Note: {note}") for note in moved.notes)


def _finding(moved: Moved, labels: Sequence[str]) -> str:
    """Return which head moved most, and how much all did, in a sentence."""
    between, first = f"between {labels[0]} and {labels[1]}", moved.heads[0]
    over = f"over {len(moved.queries):,} queries x {len(moved.keys):,} keys that both have"
    if len(moved.keys) < 2 or not moved.queries:
        return f"Fewer than two tokens are the same {between}: no head can be measured."
    heads, by = count(len(moved.heads), "head", "heads"), share(first.divergence)
    if not first.divergence:
        return f"None of {heads} differs {between}, {over}."
    mean = share(sum(one.divergence for one in moved.heads) / len(moved.heads))
    most = f"Head {first.head} of layer {first.layer} differs most {between}: {by} of at most 1 bit"
    return f"{most}, {over}; the mean of {heads} is {mean}."


def _map(moved: Moved) -> Iterator[Block]:
    ordered = sorted(moved.heads, key=lambda one: (one.layer, int(one.head)))
    layers, most = ordered[-1].layer + 1, moved.heads[0].divergence
    unit = 10.0 ** (math.floor(math.log10(most)) + 1) if most < SMALL else 1.0
    values = np.array([one.divergence / unit for one in ordered]).reshape(layers, -1)
    names = [*map(str, range(values.shape[1])), "mean"]
    values = np.column_stack([values, values.mean(axis=1)])
    in_units = "bits, 0 to 1" if unit == 1 else f"units of {unit:g} bits"
    yield Heading(f"How much each head differs: Jensen-Shannon divergence in {in_units}")
    yield Matrix([*map(str, range(layers))], names, values, "layer\\head", is_weights=True, shaded=True)
    some = [one for one in moved.heads[:RANKED] if one.divergence]
    yield Links([("layer.head", [(f"{one.layer}.{one.head}", share(one.divergence)) for one in some])])
    yield Say("The mean over rows; 0 is the same weights, 1 is no key in common.", quiet=True)
