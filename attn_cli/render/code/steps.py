"""The steps of a script, from queries to output, with the paper's names."""

from __future__ import annotations

from collections.abc import Iterator

from attn_cli.core.masks import rule_named
from attn_cli.core.scores import score_named
from attn_cli.render.code.frameworks import Framework, Names
from attn_cli.render.code.literals import comment_lines, safe_name
from attn_cli.render.code.plan import ScriptPlan, joins_heads

Lines = Iterator[list[str]]


def steps(plan: ScriptPlan, framework: Framework) -> Lines:
    """Yield the steps as blocks of lines; after the last, `weights` and `output` are the trace's own."""
    names, trace = _names(plan, framework), plan.trace
    yield from _projected(plan, framework)
    yield _scores(plan, framework, names)
    yield _scale(plan, framework)
    if trace.softcap is not None:
        yield _cap(plan, framework)
    yield from _position(plan, framework)
    yield from _masked(plan, framework)
    if trace.heads[0].sink is None:
        yield from framework.attend(plan, names)
    else:
        yield _with_sink(plan, framework, names)
        yield from framework.attend(plan, names)
        yield ["# The sink's own weights are dropped.", f"{names.weights} = {names.weights}[:, :-1]"]
    yield from _joined(plan, framework)


def _names(plan: ScriptPlan, framework: Framework) -> Names:
    trace = plan.trace
    queries, keys = score_named(trace.score).lines[framework.name].operands
    return Names(
        queries=queries,
        keys=keys,
        factor="scale" if trace.temperature == 1 else "scale / temperature",
        scores="masked_scores" if plan.has_position or trace.mask is not None else _unmasked(plan),
        weights="head_weights" if plan.several else "weights",
        output="head_outputs" if plan.several else "output",
    )


def _projected(plan: ScriptPlan, framework: Framework) -> Lines:
    """Yield Q, K and V from X, and the heads' shares of them."""
    trace, context = plan.trace, "context" if plan.has("context") else "X"
    if plan.start == "identity":
        about = "W_q, W_k and W_v are the identity: the vectors themselves are queries, keys and values."
        share = ""
        if len(trace.head_names) > 1 and not plan.several and trace.shown.q is not None:
            width = trace.shown.q.shape[1]
            first = trace.head_names.index(trace.shown.name) * width
            share = f"[:, {first}:{first + width}]"
            about += f" Head {safe_name(trace.shown.name)} takes columns {first} to {first + width - 1}."
        yield [*comment_lines(about), f"Q, K, V = X{share}, {context}{share}, {context}{share}"]
    elif plan.start == "X":
        transposed = trace.projection.layout == "out-in"
        rule = "W x for each row x, which is X W^T" if transposed else "x W for each row x"
        lines = comment_lines(f"Queries, keys and values: {rule}.")
        for made, x in (("Q", "X"), ("K", context), ("V", context)):
            W, b = f"W_{made.lower()}", f"b_{made.lower()}"
            plus = f" + {b}" if plan.has(b) else ""
            lines.append(f"{made} = {x} @ {framework.transpose.format(W) if transposed else W}{plus}")
        yield lines
    if plan.several:
        yield _split(plan, framework)


def _split(plan: ScriptPlan, framework: Framework) -> list[str]:
    listed = ("Q, K" if plan.shared_values else "Q, K, V") + (", R" if plan.reach is not None else "")
    shape = "(heads, queries, d_k)"
    about = f"{len(plan.heads)} heads: each takes its share of the columns, so Q is now {shape}."
    about += " All heads have the same values." if plan.shared_values else ""
    return [
        *comment_lines(about),
        f"heads = {len(plan.heads)}",
        f"{listed} = ({framework.library}.stack({framework.split}) for M in ({listed}))",
        *([f"V = {framework.library}.stack([V] * heads)"] if plan.shared_values else []),
        *([f"b = {framework.transpose.format('b')}"] if plan.reach is not None else []),
    ]


def _scores(plan: ScriptPlan, framework: Framework, names: Names) -> list[str]:
    score = score_named(plan.trace.score)
    written = score.lines[framework.name]
    transposed = (framework.swap_last if plan.several else framework.transpose).format(names.keys)
    lines = comment_lines(f"Scores: the {score.noun} of each query (row) with each key (column).")
    lines += [*written.before, f"scores = {written.scores.replace('{K_T}', transposed)}"]
    if plan.rule is not None or plan.reach is not None:
        lines.append("n_q, n_k = scores.shape[-2:]")
    return lines


def _scale(plan: ScriptPlan, framework: Framework) -> list[str]:
    trace = plan.trace
    is_scaled, is_tempered = score_named(trace.score).is_scaled, trace.temperature != 1
    about = "Scaled by 1 / sqrt(d_k)" if is_scaled else "Not scaled"
    if trace.own_scale is not None:
        whose = "the model's own factor" if trace.of_model else "the factor that was given"
        about, is_scaled = f"Scaled by {whose}", True
    about += f", {'and' if is_scaled else 'but'} divided by the temperature" if is_tempered else ""
    lines = comment_lines(f"{about}.")
    if trace.own_scale is not None or not is_scaled:
        lines.append(f"scale = {trace.scale!r}")
    else:
        lines += ["d_k = Q.shape[-1]", f"scale = 1 / {framework.root}"]
    lines += [f"temperature = {trace.temperature!r}"] if is_tempered else []
    factor = "(scale / temperature)" if is_tempered else "scale"
    return [*lines, f"scaled_scores = scores * {factor}"]


def _unmasked(plan: ScriptPlan) -> str:
    return "scaled_scores" if plan.trace.softcap is None else "capped_scores"


def _cap(plan: ScriptPlan, framework: Framework) -> list[str]:
    """Return the soft cap; the temperature divides what it leaves."""
    cap = "softcap" if plan.trace.temperature == 1 else "(softcap / temperature)"
    return [
        *comment_lines("Soft cap: tanh bends large scores, so that none exceeds the cap."),
        f"softcap = {plan.trace.softcap!r}",
        f"capped_scores = {cap} * {framework.library}.tanh(scaled_scores / {cap})",
    ]


def _position(plan: ScriptPlan, framework: Framework) -> Lines:
    """Yield what a learned head adds for the distance between query and key."""
    if plan.reach is None:
        return
    lib, trace = framework.library, plan.trace
    # As in training, the term is scaled as a dot product is, also beside cosines.
    score = score_named(trace.score)
    own = score.is_position_scaled and not score.is_scaled
    scale = "position_scale" if own else "scale"
    factor = scale if trace.temperature == 1 else f"({scale} / temperature)"
    R, b = (framework.take(name, int(plan.several)) for name in "Rb")
    pattern = "hid,hijd->hij" if plan.several else "id,ijd->ij"
    yield [
        *comment_lines(
            "Position: the distance from query to key adds q . r + b, scaled as "
            + ("dot products would be." if own else "the scores are.")
        ),
        f"reach = {plan.reach}",
        f"distance = {lib}.arange(n_k) - {lib}.arange(n_q)[:, None]",
        f"place = {lib}.clip(distance, -reach, reach) + reach",
        *(["d_k = Q.shape[-1]", f"position_scale = 1 / {framework.root}"] if own else []),
        f'position_scores = {lib}.einsum("{pattern}", Q, {R})',
        f"position_scores = (position_scores + {b}) * {factor}",
    ]


def _masked(plan: ScriptPlan, framework: Framework) -> Lines:
    """Yield the sum of the scores where a query may look, and -inf elsewhere."""
    total = f"{_unmasked(plan)} + position_scores" if plan.has_position else _unmasked(plan)
    if plan.trace.mask is None:
        if plan.has_position:
            yield [f"masked_scores = {total}  # no mask"]
        return
    rule = plan.rule
    if rule is None:
        lines = comment_lines("Where the mask does not allow a pair, its score becomes -inf.")
    else:
        found, numbers = rule_named(rule)
        lines = comment_lines(f"{found.comment.format(*numbers)} {framework.polarity}")
        lines.append(f"mask = {found.lines[framework.name].format(*numbers)}")
    yield [*lines, f"masked_scores = {framework.mask.format(total)}"]


def _with_sink(plan: ScriptPlan, framework: Framework, names: Names) -> list[str]:
    """Return what makes the sink one more key, whose value is zeros."""
    about = "The sink: every row has this score beside its keys'. It takes a part of the row, and its value is zeros."
    score = (plan.heads[0].sink or 0.0) / plan.trace.temperature
    column, row = (one.format(names.scores, score) for one in framework.pads)
    return [*comment_lines(about), f"{names.scores} = {column}", f"V = {row}"]


def _joined(plan: ScriptPlan, framework: Framework) -> Lines:
    """Yield the layer's output where W_o is written out, and which head is shown."""
    trace = plan.trace
    if joins_heads(trace):
        W_o = framework.transpose.format("W_o") if trace.projection.layout == "out-in" else "W_o"
        outputs = framework.join.format("head_outputs") if plan.several else "output"
        plus = " + b_o" if plan.has("b_o") else ""
        about = "The layer's output: the heads' outputs side by side, times W_o."
        yield [*comment_lines(about), f"layer_output = {outputs} @ {W_o}{plus}"]
    if not plan.several:
        return
    if trace.shown.name == "mean":
        made = ["weights = sum(head_weights) / heads", "output = sum(head_outputs) / heads"]
        yield ["# The mean of the heads.", *made]
        return
    at = [head.name for head in plan.heads].index(trace.shown.name)
    order = " first" if trace.settings.head == "all" else ""
    about = f"Head {safe_name(trace.shown.name)}, the one that attn shows{order}."
    yield [*comment_lines(about), f"weights, output = head_weights[{at}], head_outputs[{at}]"]
