"""The steps of a script, from queries to output, with the paper's names; and each framework's own last ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from attn_cli.core.masks import rule_named
from attn_cli.core.scores import score_named
from attn_cli.render.code.literals import call_lines, commented, safe_name
from attn_cli.render.code.plan import ScriptPlan, joins_heads

Lines = Iterator[list[str]]


class Names(NamedTuple):
    """The names that the script has given to its arrays so far."""

    queries: str
    keys: str
    factor: str
    scores: str  # what the softmax is taken of
    weights: str
    output: str


def steps(plan: ScriptPlan) -> Lines:
    """Yield the steps as blocks of lines; after the last, `weights` and `output` are the trace's own."""
    trace, several = plan.trace, plan.several
    factor = "scale" if trace.temperature == 1 else "scale / temperature"
    scores = "masked_scores" if plan.has_position or trace.mask is not None else _unmasked(plan)
    made = ("head_weights", "head_outputs") if several else ("weights", "output")
    names = Names(*score_named(trace.score).lines[plan.framework].operands, factor, scores, *made)
    yield from _projected(plan)
    yield _scores(plan, names)
    yield _scale(plan)
    if trace.softcap is not None:
        cap = "softcap" if trace.temperature == 1 else "(softcap / temperature)"
        yield commented(
            "Soft cap: tanh bends large scores, so that none exceeds the cap.",
            f"softcap = {trace.softcap!r}",
            f"capped_scores = {cap} * {plan.say('library')}.tanh(scaled_scores / {cap})",
        )
    yield from _position(plan)
    yield from _masked(plan)
    sink = plan.heads[0].sink  # several heads with sinks are refused
    if sink is not None:
        column = plan.say("pad column", names.scores, sink / trace.temperature)
        yield commented(
            "The sink: every row has this score beside its keys'. It takes a part of the row, and its value is zeros.",
            f"{names.scores} = {column}",
            f"V = {plan.say('pad row')}",
        )
    yield from {"numpy": _in_numpy, "torch": _in_torch, "keras": _in_keras}[plan.framework](plan, names)
    if sink is not None:
        yield ["# The sink's own weights are dropped.", f"{names.weights} = {names.weights}[:, :-1]"]
    yield from _joined(plan)


def _projected(plan: ScriptPlan) -> Lines:
    trace, context = plan.trace, "context" if plan.has("context") else "X"
    if plan.start == "identity":
        about = "W_q, W_k and W_v are the identity: the vectors themselves are queries, keys and values."
        share = ""
        if len(trace.head_names) > 1 and not plan.several and trace.shown.q is not None:
            width = trace.shown.q.shape[1]
            first = trace.head_names.index(trace.shown.name) * width
            share = f"[:, {first}:{first + width}]"
            about += f" Head {safe_name(trace.shown.name)} takes columns {first} to {first + width - 1}."
        yield commented(about, f"Q, K, V = X{share}, {context}{share}, {context}{share}")
    elif plan.start == "X":
        transposed = trace.projection.layout == "out-in"
        rule = "W x for each row x, which is X W^T" if transposed else "x W for each row x"
        lines = commented(f"Queries, keys and values: {rule}.")
        for made, x in (("Q", "X"), ("K", context), ("V", context)):
            W, b = f"W_{made.lower()}", f"b_{made.lower()}"
            plus = f" + {b}" if plan.has(b) else ""
            lines.append(f"{made} = {x} @ {plan.say('transpose', W) if transposed else W}{plus}")
        yield lines
    if plan.several:
        has_reach = plan.reach is not None
        listed = ("Q, K" if plan.shared_values else "Q, K, V") + ", R" * has_reach
        about = f"{len(plan.heads)} heads: each takes its share of the columns, so Q is now (heads, queries, d_k)."
        stack = f"{plan.say('library')}.stack"
        yield commented(
            about + " All heads have the same values." * plan.shared_values,
            f"heads = {len(plan.heads)}",
            f"{listed} = ({stack}({plan.say('split')}) for M in ({listed}))",
            *[f"V = {stack}([V] * heads)"] * plan.shared_values,
            *[f"b = {plan.say('transpose', 'b')}"] * has_reach,
        )


def _scores(plan: ScriptPlan, names: Names) -> list[str]:
    score = score_named(plan.trace.score)
    written = score.lines[plan.framework]
    transposed = plan.say("swap last" if plan.several else "transpose", names.keys)
    return commented(
        f"Scores: the {score.noun} of each query (row) with each key (column).",
        *written.before,
        f"scores = {written.scores.replace('{K_T}', transposed)}",
        *["n_q, n_k = scores.shape[-2:]"] * (plan.rule is not None or plan.reach is not None),
    )


def _scale(plan: ScriptPlan) -> list[str]:
    trace = plan.trace
    is_scaled, is_tempered = score_named(trace.score).is_scaled, trace.temperature != 1
    about = "Scaled by 1 / sqrt(d_k)" if is_scaled else "Not scaled"
    lines = [f"scale = {trace.scale!r}"]
    if trace.own_scale is not None:
        whose = "the model's own factor" if trace.of_model else "the factor that was given"
        about, is_scaled = f"Scaled by {whose}", True
    elif is_scaled:
        lines = ["d_k = Q.shape[-1]", f"scale = 1 / {plan.say('root')}"]
    if is_tempered:
        about += f", {'and' if is_scaled else 'but'} divided by the temperature"
        lines.append(f"temperature = {trace.temperature!r}")
    factor = "(scale / temperature)" if is_tempered else "scale"
    return commented(f"{about}.", *lines, f"scaled_scores = scores * {factor}")


def _unmasked(plan: ScriptPlan) -> str:
    return "scaled_scores" if plan.trace.softcap is None else "capped_scores"


def _position(plan: ScriptPlan) -> Lines:
    """Yield what a learned head adds for the distance between query and key."""
    if plan.reach is None:
        return
    lib, score, axis = plan.say("library"), score_named(plan.trace.score), int(plan.several)
    # As in training, the term is scaled as a dot product is, also beside cosines.
    own = score.is_position_scaled and not score.is_scaled
    scale = "position_scale" if own else "scale"
    factor = scale if plan.trace.temperature == 1 else f"({scale} / temperature)"
    R, b = (plan.say("take", name, axis, ":, " * axis) for name in "Rb")
    pattern = "hid,hijd->hij" if plan.several else "id,ijd->ij"
    yield commented(
        "Position: the distance from query to key adds q . r + b, scaled as "
        + ("dot products would be." if own else "the scores are."),
        f"reach = {plan.reach}",
        f"distance = {lib}.arange(n_k) - {lib}.arange(n_q)[:, None]",
        f"place = {lib}.clip(distance, -reach, reach) + reach",
        *["d_k = Q.shape[-1]", f"position_scale = 1 / {plan.say('root')}"] * own,
        f'position_scores = {lib}.einsum("{pattern}", Q, {R})',
        f"position_scores = (position_scores + {b}) * {factor}",
    )


def _masked(plan: ScriptPlan) -> Lines:
    total = _unmasked(plan) + " + position_scores" * plan.has_position
    about, made = "Where the mask does not allow a pair, its score becomes -inf.", []
    if plan.rule is not None:
        found, numbers = rule_named(plan.rule)
        about = f"{found.comment.format(*numbers)} {plan.say('polarity')}"
        made = [f"mask = {found.lines[plan.framework].format(*numbers)}"]
    if plan.trace.mask is not None:
        where = f"{plan.say('library')}.where(mask, {total}, {plan.say('minus infinity')})"
        yield commented(about, *made, f"masked_scores = {where}")
    elif plan.has_position:
        yield [f"masked_scores = {total}  # no mask"]


def _joined(plan: ScriptPlan) -> Lines:
    """Yield the layer's output where W_o is written out, and which head is shown."""
    trace = plan.trace
    if joins_heads(trace):
        W_o = plan.say("transpose", "W_o") if trace.projection.layout == "out-in" else "W_o"
        outputs = plan.say("join", "head_outputs") if plan.several else "output"
        about = "The layer's output: the heads' outputs side by side, times W_o."
        yield commented(about, f"layer_output = {outputs} @ {W_o}{' + b_o' * plan.has('b_o')}")
    if plan.several and trace.shown.name == "mean":
        made = ["weights = sum(head_weights) / heads", "output = sum(head_outputs) / heads"]
        yield ["# The mean of the heads.", *made]
    elif plan.several:
        at = [head.name for head in plan.heads].index(trace.shown.name)
        order = " first" if trace.settings.head == "all" else ""
        about = f"Head {safe_name(trace.shown.name)}, the one that attn shows{order}."
        yield commented(about, f"weights, output = head_weights[{at}], head_outputs[{at}]")


ROWS = "Softmax over the keys: each row sums to one."
NAN = " A query that may attend to nothing would get NaN; its weights are set to zero here."


def _mixed(names: Names) -> list[str]:
    return commented("Output: the values, mixed by the weights.", f"{names.output} = {names.weights} @ V")


def _in_numpy(plan: ScriptPlan, names: Names) -> Lines:
    s = names.scores
    why = " The largest score of a row is subtracted first: it cancels out, and exp cannot overflow."
    if plan.has_empty_row:
        yield commented(
            f"Softmax over the keys.{why} A query that may attend to nothing gets zeros.",
            f"largest = {s}.max(axis=-1, keepdims=True)",
            f"exps = np.exp({s} - np.where(np.isneginf(largest), 0.0, largest))",
            "total = exps.sum(axis=-1, keepdims=True)",
            f"{names.weights} = exps / np.where(total == 0.0, 1.0, total)",
        )
    else:
        yield commented(
            ROWS + why,
            f"exps = np.exp({s} - {s}.max(axis=-1, keepdims=True))",
            f"{names.weights} = exps / exps.sum(axis=-1, keepdims=True)",
        )
    yield _mixed(names)


def _in_torch(plan: ScriptPlan, names: Names) -> Lines:
    weights = f"{names.weights} = torch.softmax({names.scores}, dim=-1)"
    if plan.has_empty_row:
        empty = f"empty = torch.isneginf({names.scores}).all(dim=-1, keepdim=True)"
        yield commented(ROWS + NAN, empty, f"{weights}.masked_fill(empty, 0.0)")
    else:
        yield commented(ROWS, weights)
    if score_named(plan.trace.score).as_dot is None or plan.knows_more:
        yield _mixed(names)
        return
    about = (
        "Output: the values, mixed by the weights, from the same Q, K and V in one call. The function takes query, "
        "key, value, scales by 1 / sqrt(d_k) unless scale is given, and returns no weights."
    )
    lines, arguments = list[str](), [f"scale={names.factor}"]
    if plan.has_position:
        about += " An attn_mask of numbers is added to the scaled scores; -inf masks a key."
        lines += ["bias = position_scores.masked_fill(~mask, -torch.inf)"] * (plan.trace.mask is not None)
        arguments.insert(0, f"attn_mask={'bias' if lines else 'position_scores'}")
    elif plan.trace.mask is not None:
        about += " (In torch.nn.MultiheadAttention, True in attn_mask means may not attend.)"
        arguments.insert(0, "attn_mask=mask")
    about += " Older versions of PyTorch give NaN, not zeros, where nothing is allowed." * plan.has_empty_row
    on, off = ("", "") if plan.several else ("[None]", "[0]")
    about += " [None] adds an axis for heads, and [0] removes it." * (not plan.several)
    arguments = [*(name + on for name in (names.queries, names.keys, "V")), *arguments]
    lines += call_lines(f"{names.output} = F.scaled_dot_product_attention", arguments, off)
    yield commented(
        about, *lines, *[f"{names.output} = {names.output}.masked_fill(empty, 0.0)"] * plan.has_empty_row
    )


def _in_keras(plan: ScriptPlan, names: Names) -> Lines:
    about, s = ROWS, names.scores
    lines = [f"{names.weights} = ops.softmax({s}, axis=-1)"]
    if len(plan.trace.key_tokens) == 1:
        about = (
            "Softmax over a single key: 1 whatever its score, 0 where it is masked. (ops.softmax would warn.)"
        )
        lines = [f'{names.weights} = ops.cast(ops.isfinite({s}), "float64")']
    elif plan.has_empty_row:
        about += f"{NAN} (Whether Keras' own layers give zeros for such a row depends on the layer and the version.)"
        lines = [
            f"empty = ops.all(ops.isinf({s}), axis=-1, keepdims=True)",
            f"{names.weights} = ops.where(empty, ops.zeros_like({s}), ops.softmax({s}, axis=-1))",
        ]
    yield commented(about, *lines)
    yield _mixed(names)
    if plan.has_layer:
        yield _keras_layer(plan, names)


def _keras_layer(plan: ScriptPlan, names: Names) -> list[str]:
    about = (
        "The same from Keras' own layer. Its inputs are query, VALUE, key. It does not scale (use_scale=True would "
        "learn a factor), so the queries are scaled beforehand. It may compute in float32, whatever it is given."
    )
    axis, first = ("", "") if plan.several else ("[None]", "[0]")
    factor = f"({names.factor})" if "/" in names.factor else names.factor
    arguments = [f"[{names.queries}{axis} * {factor}, V{axis}, {names.keys}{axis}]"]
    if plan.rule is not None:
        about += " Its causal mask starts from the top left corner, as this one does."
        arguments.append(rule_named(plan.rule)[0].keras_argument)
    return commented(
        about + (" The heads are on its batch axis." if plan.several else " [None] adds a batch axis."),
        'attention = keras.layers.Attention(use_scale=False, score_mode="dot", dtype="float64")',
        *call_lines("its_output, its_weights = attention", [*arguments, "return_attention_scores=True"]),
        f"difference = float(ops.max(ops.abs(its_weights{first} - {names.weights})))",
    )
