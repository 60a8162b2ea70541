"""Two or three settings next to each other: screen, JSON, CSV, and the sentence on what changed."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from attn_cli.errors import count, refuse
from attn_cli.render import (
    Beside,
    Block,
    Columns,
    Formula,
    Heading,
    Links,
    Matrix,
    Say,
    listed,
    placed,
    quoted,
    quoted_at,
    share,
    short,
)
from attn_cli.render.views import finding, origins, overview
from attn_cli.render.views.wording import formula, head_of_layer, size
from attn_cli.settings import View
from attn_cli.teach.compare import SAME, TEXT, Change, Comparison, Mover
from attn_cli.text.wordpieces import SPACE
from attn_cli.trace import Trace

if TYPE_CHECKING:
    from attn_cli.teach.moved import Moved

MOST_CELLS, MOVERS, NAMED = 4_000, 10, 4
RANKED = 8  # heads that are named
SMALL = 0.01  # bits: where no head moved by more, the map has a smaller unit
Record = dict[str, object]


def screen_of(comparison: Comparison, view: View) -> Iterator[Block]:
    """Yield the matrices side by side, their difference where there are two, and what changed, in a sentence."""
    traces, labels, name = comparison.traces, names_of(comparison), _name(comparison)
    first, titles, is_text = traces[0], [f"{name} {label}" for label in labels], comparison.option == TEXT
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
    before = [f"{label}:" for label in labels] if len(set(formulas)) > 1 else [""]
    yield from map(Formula, formulas, before)
    is_drawn = first.settings.top is None and not is_crowded
    if comparison.same_cells and not is_drawn:
        yield from _movers(comparison)
    elif comparison.same_cells or (is_text and not is_crowded):
        yield Beside(titles, list(map(_matrix, traces)))
    else:
        for title, trace in zip(titles, traces, strict=True):
            yield from (Heading(title), _matrix(trace))
    if comparison.same_cells and is_drawn:
        for change in comparison.changes if len(labels) == 2 else ():
            yield Heading(f"The difference: {labels[1]} minus {labels[0]}")
            yield overview.labelled_matrix(first, change.difference)._replace(is_difference=True)
            if change.only_before or change.only_after:
                text = "No difference is shown where one side is masked: masked is not a weight of zero."
                yield Say(text, quiet=True)
    yield from (Say(""), *map(Say, told), *ending(comparison, " ".join(told)))
    if view.steps:
        yield Say("Note: --steps takes effect only with -f json here; attn self shows the steps of one side.")


def _name(comparison: Comparison) -> str:
    return comparison.option.replace("_", "-")


def names_of(comparison: Comparison) -> list[str]:
    """Return the values for sentences and headings, shortened unless that would make two of them equal."""
    names = [short(label) for label in comparison.labels]
    return names if len(set(names)) == len(names) else list(comparison.labels)


def _matrix(trace: Trace) -> Matrix:
    return overview.weight_matrix(trace, trace.shown)._replace(sums=())


def _movers(comparison: Comparison) -> Iterator[Block]:
    """Yield the links that changed most, where the matrices are too large to draw or --top asks for a few."""
    first, names = comparison.traces[0], names_of(comparison)
    top, queries, keys = first.settings.top, first.query_tokens, first.key_tokens
    if top is None:
        cells = f"{len(first.listed):,} x {len(keys):,} weights"
        yield Say(f"{cells} are too many to draw side by side; --precision 2 draws them anyway.")
    for change in comparison.changes:
        if moved := change.movers[: top or MOVERS]:
            yield Say(f"What moved most from {names[comparison.reference]} to {names[change.to]}:")
            yield Links([(placed(queries, m.query), [(placed(keys, m.key), _moved(m))]) for m in moved])


def _moved(mover: Mover) -> str:
    by = mover.after - mover.before
    size = f"{by:+.3f}" if abs(by) >= 0.0005 else f"{by:+.1e}"
    return f"{share(mover.before)} to {share(mover.after)} ({size})"


def sentences(comparison: Comparison) -> list[str]:
    """Return what changed, a sentence for each value but the reference; where tokens differ, how they differ."""
    names, told = names_of(comparison), list[str]()
    if comparison.moved is not None:
        told.append(_finding(comparison.moved, names))
    if not comparison.same_tokens and comparison.option == TEXT:
        found = [f"{finding.looks_most_at(one, one.shown, one.focus[0])}." for one in comparison.traces]
        told += [f"{name.capitalize()}: {looks}" for name, looks in zip(names, found, strict=True)]
    elif not comparison.same_cells:
        pairs = zip(names, comparison.entropy, strict=True)
        parts = [f"{'none' if bits is None else f'{bits:.3f}'} with {name}" for name, bits in pairs]
        return [_other_tokens(comparison), f"The mean entropy of a row in bits is {', '.join(parts)}."]
    return [*told, *(_sentence(comparison, change) for change in comparison.changes)]


def _sentence(comparison: Comparison, change: Change) -> str:
    start, labels = comparison.reference, names_of(comparison)
    trace, before, after = comparison.traces[start], labels[start], labels[change.to]
    if not change.movers and not change.only_before and not change.only_after:
        differs = change.output is not None and change.output > SAME
        output = f"; the outputs do, by up to {change.output:.2g}" if differs else ""
        reason = _why_unchanged(comparison, change)
        return f"Nothing changed from {before} to {after}: no weight differs{output}.{reason}"
    old, new = (comparison.entropy[side] for side in (start, change.to))
    if old is None or new is None:
        entropy = f"all rows are fully masked {'before' if old is None else 'now'}, and have no entropy"
    else:
        turns = f"{'falls' if new < old else 'rises'} from {old:.3f} to {new:.3f}"
        turns = f"stays at {old:.3f}" if f"{old:.3f}" == f"{new:.3f}" else turns
        entropy = f"the mean entropy of a row {turns} bits"
    moved = "no link that is unmasked on both sides changed"
    for mover in change.movers[:1]:
        query, key = quoted_at(trace.query_tokens, mover.query), quoted_at(trace.key_tokens, mover.key)
        moved = f"the largest mover is {query} looking at {key}, from {_moved(mover)}"
    n, changed = len(trace.listed), [quoted_at(trace.query_tokens, i) for i in change.strongest_changed]
    strongest = "every query keeps its strongest key" if n > 1 else "its strongest key stays"
    if changed:
        rows = f"{len(changed)} of {count(n, 'query', 'queries')} {'has' if len(changed) == 1 else 'have'}"
        strongest = f"{rows} another strongest key ({listed(changed, NAMED)})"
    parts = [entropy, moved, strongest]
    for links, label in ((change.only_before, before), (change.only_after, after)):
        parts += [f"{count(links, 'link is', 'links are')} masked with {label} alone"] * bool(links)
    return f"With {_name(comparison)} {after} instead of {before}, {'; '.join(parts)}."


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
    sides = [(trace.query_tokens, () if trace.is_self else trace.key_tokens) for trace in comparison.traces]
    first, start = sides[comparison.reference], names_of(comparison)[comparison.reference]
    differences = list[str]()
    for side, name in zip(sides, names_of(comparison), strict=True):
        old, new = (Counter([*queries, *keys]) for queries, keys in (first, side))
        for only, where in ((old - new, start), (new - old, name)):
            differences += [f"only with {where}: {listed([*map(quoted, only)], NAMED)}"] * bool(only)
        differences += [f"{name} has them in another order"] * (old == new and first != side)
    return f"The tokens differ, so the cells cannot be compared one by one: {'; '.join(differences)}."


def ending(comparison: Comparison, summary: str) -> Iterator[Say]:
    """Yield the settings that all sides share, then those of each side, and the notes that `summary` lacks."""
    traces, labels = comparison.traces, names_of(comparison)
    parts = [origins.setting_parts(trace) for trace in traces]
    shared = [part for part in parts[0] if all(part in other for other in parts[1:])]
    everyone = "All" if len(traces) > 2 else "Both"
    own = ([part for part in side if part not in shared] for side in parts)
    for whose, said in ((everyone, shared), *zip(labels, own, strict=True)):
        if said:
            yield Say(f"{whose}: {'; '.join(said)}.", quiet=True)
    notes = [[note for note in trace.notes if note not in summary] for trace in traces]
    is_told = any("what a pronoun" in note for side in notes for note in side)
    for before, sides in (
        ("", [origins.learned(trace)[: not is_told] for trace in traces]),
        ("", [origins.dropped(trace) for trace in traces]),
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
    comparison: Comparison, steps: bool = False, swap: Record | None = None, summary: str | None = None
) -> Record:
    """Return the comparison as JSON of kind compare; `swap` is what a swap of words adds."""
    moved, first, changes = comparison.moved, comparison.traces[0], list[Record]()
    place = {i: at for at, i in enumerate(first.listed)}
    for change in comparison.changes:
        mover = None
        for i, j, old, new in change.movers[:1]:
            names = {"query": first.query_tokens[i], "key": first.key_tokens[j]}
            mover = {**names, "cell": [place[i], j], "from": old, "to": new}
        about: Record = {"value": comparison.values[change.to], "largest_mover": mover}
        about["strongest_changed"] = [place[i] for i in change.strongest_changed]
        about |= {"masked_only_before": change.only_before, "masked_only_after": change.only_after}
        changes.append(about)
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


def comparison_rows(comparison: Comparison) -> Iterator[Sequence[object]]:
    """Yield a row per link: its weight under each value, and of two their difference; empty where masked.

    Of two models, or two texts in one, it is a row per head. Raises UsageError where the tokens differ.
    """
    if comparison.moved is not None:
        yield "layer", "head", "divergence"
        yield from comparison.moved.heads
        return
    what = "The tokens differ between the sides: no row has all its cells."
    refuse(not comparison.same_tokens, what, "Use -f json, or one attn self for each.", "--format")
    first, names = comparison.traces[0], [f"{comparison.option}={label}" for label in comparison.labels]
    of_two = [change.difference for change in comparison.changes if len(names) == 2]
    sides = np.array([*(_matrix(trace).values for trace in comparison.traces), *of_two])
    yield ["query", "key", *names, *["difference"] * len(of_two)]
    for i, rows in zip(first.listed, sides.swapaxes(0, 1), strict=True):
        for key, weights in zip(first.key_tokens, rows.T.tolist(), strict=True):
            yield [first.query_tokens[i], key, *("" if math.isnan(weight) else weight for weight in weights)]


def _of_heads(moved: Moved, labels: Sequence[str]) -> Iterator[Block]:
    ordered = sorted(moved.heads, key=lambda one: (one.layer, int(one.head)))
    if most := moved.heads[0].divergence:
        unit = 10.0 ** (math.floor(math.log10(most)) + 1) if most < SMALL else 1.0
        values = np.array([one.divergence / unit for one in ordered]).reshape(ordered[-1].layer + 1, -1)
        layers, heads = ([*map(str, range(n))] for n in values.shape)
        values = np.column_stack([values, values.mean(axis=1)])
        in_units = "bits, 0 to 1" if unit == 1 else f"units of {unit:g} bits"
        yield Heading(f"How much each head differs: Jensen-Shannon divergence in {in_units}")
        yield Matrix(layers, [*heads, "mean"], values, "layer\\head", is_weights=True, shaded=True)
        some = [one for one in moved.heads[:RANKED] if one.divergence]
        yield Links([("layer.head", [(f"{one.layer}.{one.head}", share(one.divergence)) for one in some])])
        yield Say("The mean over rows; 0 is the same weights, 1 is no key in common.", quiet=True)
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
