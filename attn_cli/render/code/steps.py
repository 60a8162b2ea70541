"""The steps of a script, from queries to output, in the paper's names and a framework's words."""

from __future__ import annotations

from collections.abc import Iterator

from attn_cli.core.mask_rules import rule_named
from attn_cli.core.scores import score_named
from attn_cli.render.code.arrays import joins
from attn_cli.render.code.frameworks import Dialect
from attn_cli.render.code.literals import commented, inert
from attn_cli.render.code.plan import Recipe
from attn_cli.render.code.softmax import Step

Lines = Iterator[list[str]]


def steps(recipe: Recipe, dialect: Dialect) -> Lines:
    """Yield the steps as blocks of lines; after the last, `weights` and `output` are the trace's own."""
    step = _names(recipe, dialect)
    yield from _projected(recipe, dialect)
    yield _scores(recipe, dialect, step)
    yield _scale(recipe, dialect)
    yield from _position(recipe, dialect)
    yield from _masked(recipe, dialect, step)
    yield from dialect.attended(recipe, step)
    yield from _joined(recipe, dialect)


def _names(recipe: Recipe, dialect: Dialect) -> Step:
    trace = recipe.trace
    score = score_named(trace.score)
    queries, keys = score.lines[dialect.name].operands
    has_position = recipe.reach is not None or recipe.has("position_scores")
    changed = has_position or trace.mask is not None
    return Step(
        queries=queries,
        keys=keys,
        is_dot=score.as_dot is not None,
        factor="scale" if trace.temperature == 1 else "scale / temperature",
        scores="masked_scores" if changed else "scaled_scores",
        weights="head_weights" if recipe.several else "weights",
        output="head_outputs" if recipe.several else "output",
        has_mask=trace.mask is not None,
        has_position=has_position,
    )


def _projected(recipe: Recipe, dialect: Dialect) -> Lines:
    """Yield Q, K and V from X, and the heads' shares of them."""
    context = recipe.context
    if recipe.start == "identity":
        about = "W_q, W_k and W_v are the identity: the vectors themselves are queries, keys and values."
        share = ""
        if recipe.columns is not None:
            first, end = recipe.columns
            share = f"[:, {first}:{end}]"
            about += f" Head {inert(recipe.trace.shown.name)} takes columns {first} to {end - 1}."
        yield [*commented(about), f"Q, K, V = X{share}, {context}{share}, {context}{share}"]
    elif recipe.start == "X":
        turned = recipe.trace.projection.layout == "out-in"
        rule = "W x for each row x, which is X W^T" if turned else "x W for each row x"
        lines = commented(f"Queries, keys and values: {rule}.")
        for made, x in (("Q", "X"), ("K", context), ("V", context)):
            W, b = f"W_{made.lower()}", f"b_{made.lower()}"
            plus = f" + {b}" if recipe.has(b) else ""
            lines.append(f"{made} = {x} @ {dialect.flipped.format(W) if turned else W}{plus}")
        yield lines
    if recipe.several:
        yield _split(recipe, dialect)


def _split(recipe: Recipe, dialect: Dialect) -> list[str]:
    names = ["Q", "K"] if recipe.shared_values else ["Q", "K", "V"]
    names += ["R"] if recipe.reach is not None else []
    about = f"{len(recipe.heads)} heads: each takes its share of the columns. Q is (heads, queries, d_k) now."
    if recipe.shared_values:
        about += " All have the same values."
    listed = ", ".join(names)
    return [
        *commented(about),
        f"heads = {len(recipe.heads)}",
        f"{listed} = ({dialect.library}.stack({dialect.split}) for M in ({listed}))",
        *([f"V = {dialect.library}.stack([V] * heads)"] if recipe.shared_values else []),
        *([f"b = {dialect.flipped.format('b')}"] if recipe.reach is not None else []),
    ]


def _scores(recipe: Recipe, dialect: Dialect, step: Step) -> list[str]:
    score = score_named(recipe.trace.score)
    written = score.lines[dialect.name]
    turned = (dialect.swapped if recipe.several else dialect.flipped).format(step.keys)
    lines = commented(f"Scores: the {score.noun} of each query (row) with each key (column).")
    lines += [*written.before, f"scores = {written.scores.replace('{K_T}', turned)}"]
    if recipe.rule is not None or recipe.reach is not None:
        lines.append("n_q, n_k = scores.shape[-2:]")
    return lines


def _scale(recipe: Recipe, dialect: Dialect) -> list[str]:
    trace = recipe.trace
    is_scaled, is_tempered = score_named(trace.score).is_scaled, trace.temperature != 1
    about = "Scaled by 1 / sqrt(d_k)" if is_scaled else "Not scaled"
    about += f", {'and' if is_scaled else 'but'} divided by the temperature" if is_tempered else ""
    lines = commented(f"{about}.")
    lines += ["d_k = Q.shape[-1]", f"scale = 1 / {dialect.root}"] if is_scaled else ["scale = 1.0"]
    lines += [f"temperature = {trace.temperature!r}"] if is_tempered else []
    factor = "(scale / temperature)" if is_tempered else "scale"
    return [*lines, f"scaled_scores = scores * {factor}"]


def _position(recipe: Recipe, dialect: Dialect) -> Lines:
    """Yield what a learned head adds for the distance of query and key."""
    if recipe.reach is None:
        return
    lib, trace = dialect.library, recipe.trace
    # As in training, the term is scaled as a dot product is, also beside cosines.
    score = score_named(trace.score)
    own = score.is_position_scaled and not score.is_scaled
    scale = "position_scale" if own else "scale"
    factor = scale if trace.temperature == 1 else f"({scale} / temperature)"
    R, b = (dialect.taken(name, int(recipe.several)) for name in "Rb")
    pattern = "hid,hijd->hij" if recipe.several else "id,ijd->ij"
    yield [
        *commented(
            "Position: the distance from query to key adds q . r + b, scaled as the scores are"
            + (" (were they dot products)." if own else ".")
        ),
        f"reach = {recipe.reach}",
        f"distance = {lib}.arange(n_k) - {lib}.arange(n_q)[:, None]",
        f"place = {lib}.clip(distance, -reach, reach) + reach",
        *(["d_k = Q.shape[-1]", f"position_scale = 1 / {dialect.root}"] if own else []),
        f'position_scores = {lib}.einsum("{pattern}", Q, {R})',
        f"position_scores = (position_scores + {b}) * {factor}",
    ]


def _masked(recipe: Recipe, dialect: Dialect, step: Step) -> Lines:
    """Yield the sum of the scores where a query may look, and -inf elsewhere."""
    total = "scaled_scores + position_scores" if step.has_position else "scaled_scores"
    if not step.has_mask:
        if step.has_position:
            yield [f"masked_scores = {total}  # no mask"]
        return
    rule = recipe.rule
    if rule is None:
        lines = commented("A score that is not allowed becomes -inf.")
    else:
        found, numbers = rule_named(rule)
        lines = commented(f"{found.comment.format(*numbers)} {dialect.polarity}")
        lines.append(f"mask = {found.lines[dialect.name].format(*numbers)}")
    yield [*lines, f"masked_scores = {dialect.masked.format(total)}"]


def _joined(recipe: Recipe, dialect: Dialect) -> Lines:
    """Yield the layer's output where W_o is given, and which head is shown."""
    trace = recipe.trace
    if joins(trace):
        W_o = dialect.flipped.format("W_o") if trace.projection.layout == "out-in" else "W_o"
        outputs = dialect.join.format("head_outputs") if recipe.several else "output"
        plus = " + b_o" if recipe.has("b_o") else ""
        about = "The layer's output: the outputs of the heads side by side, times W_o."
        yield [*commented(about), f"layer_output = {outputs} @ {W_o}{plus}"]
    if not recipe.several:
        return
    if trace.shown.name == "mean":
        yield [
            "# The mean of the heads.",
            "weights = sum(head_weights) / heads",
            "output = sum(head_outputs) / heads",
        ]
        return
    at = [head.name for head in recipe.heads].index(trace.shown.name)
    about = (
        f"Head {inert(trace.shown.name)}, which attn shows{' first' if trace.settings.head == 'all' else ''}."
    )
    yield [*commented(about), f"weights, output = head_weights[{at}], head_outputs[{at}]"]
