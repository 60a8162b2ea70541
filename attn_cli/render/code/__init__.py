"""A trace as a short script that recomputes it, in NumPy, PyTorch or Keras."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from attn_cli.core.scores import score_named
from attn_cli.errors import refuse
from attn_cli.render.code.literals import LINE, commented, matrix, row_label, safe_name, strings, vector
from attn_cli.render.code.plan import TITLES, ScriptPlan, joins_heads, made_by, plan_script
from attn_cli.render.code.steps import steps
from attn_cli.render.views.wording import d_k, title
from attn_cli.trace import Trace

WIDEST = 20  # cells for a token before its row


def script(trace: Trace, framework: str) -> str:
    """Return the script for `numpy`, `torch` or `keras`; raise UsageError if there can be none."""
    what = f"The score {trace.score} has no lines for {TITLES[framework]}."
    refuse(framework not in score_named(trace.score).lines, what, option="--format")
    plan = plan_script(trace, framework)
    # Of Keras, only the layer needs more than ops.
    imports = [line for line in plan.say("imports").split("\n") if line != "import keras" or plan.has_layer]
    lines, helper = score_named(trace.score).lines[framework], []
    if lines.helper:
        start, about, *rest = lines.helper
        body = [about, *(lines.careful if plan.is_extreme else ()), *rest]
        helper = [[start, *(f"    {line}" for line in body)]]
    blocks = [_docstring(plan), imports, *helper, *_data(plan), *steps(plan), *_printing(plan)]
    text, before = "", False
    for block in blocks:  # with a blank line between them, two around functions
        is_function = block[0].startswith("def ")
        text += ("" if not text else "\n\n" if is_function or before else "\n") + "\n".join(block) + "\n"
        before = is_function
    return text


def _docstring(plan: ScriptPlan) -> list[str]:
    trace = plan.trace
    summary = f"This recomputes what attn {trace.kind} shows, from the same numbers: {_formula(trace)}."
    facts = list(_facts(plan))
    wide = max(len(name) for name, _ in facts) + 2
    lines = [f'"""{title(trace)}, in {TITLES[plan.framework]}.', "", *textwrap.wrap(summary, LINE), ""]
    for name, fact in facts:
        lines += textwrap.TextWrapper(LINE, name.ljust(wide), " " * wide, break_on_hyphens=False).wrap(fact)
    return [*lines, '"""']


def _formula(trace: Trace) -> str:
    score = score_named(trace.score)
    scores = score.ascii_matrix + (f" / sqrt({d_k(trace)})" if score.is_scaled else "")
    if trace.own_scale is not None:
        scores = f"{score.ascii_matrix} x {trace.own_scale!r}"
    if trace.softcap is not None:
        scores = f"{trace.softcap!r} tanh({scores} / {trace.softcap!r})"
    scores += "" if trace.temperature == 1 else f" / {trace.temperature!r}"
    scores += " + position" * (trace.heads[0].position_scores is not None and trace.heads[0].rotated is None)
    scores += "" if trace.heads[0].sink is None else "; sink"
    formula = f"weights = softmax({scores}) and output = weights V"
    is_mean = trace.shown.name == "mean" and len(trace.head_names) > 1
    return f"in each head {formula}, and then the mean of the heads" if is_mean else formula


def _facts(plan: ScriptPlan) -> Iterator[tuple[str, str]]:
    trace = plan.trace
    about, W = trace.embedding, trace.projection
    numbers = f", {about.dim} numbers each" if about.dim is not None else ""
    seed = "" if about.seed is None else f", seed {about.seed}"
    by = "given by " if about.source == "given" and not trace.of_model else ""
    what = "model" if trace.of_model else "matrices" if by else "vectors"
    yield what, f"{by}{safe_name(about.name or '')}{numbers}{seed}"
    if trace.heads[0].W_q is None:
        yield "Q, K, V", f"as {made_by(trace)}"
    else:
        seed = "" if W.seed is None else f", seed {W.seed}"
        layer = "" if trace.learned is None else f", learned, layer {W.layer}"
        rule = "W x" if W.layout == "out-in" else "x W"
        by = {"given": "given by ", "file": "from "}.get(W.source, "")
        yield "weights", f"{by}{safe_name(W.name or W.source)}{seed}{layer}, layout {W.layout} ({rule})"
    score = score_named(trace.score)
    how = "divided by the square root of d_k" if score.is_scaled else "not scaled"
    how = how if trace.own_scale is None else f"times {trace.own_scale!r}"
    yield "score", f"{score.noun}s, {how}{'' if trace.softcap is None else f', capped at {trace.softcap!r}'}"
    if trace.temperature != 1:
        yield "temperature", repr(trace.temperature)
    yield "mask", "none" if trace.mask is None else f"{safe_name(trace.mask_name)}; True = may attend"
    if (n := len(trace.head_names)) > 1:
        shown = {"mean": f"the mean of {n}", "all": f"all {n}"}.get(trace.settings.head or "")
        yield "head", shown or f"{safe_name(trace.shown.name)}, one of {n}"
    if trace.W_o is not None and not joins_heads(trace):
        rows, columns = trace.W_o.shape
        yield "left out", f"the layer's output: W_o has {rows} x {columns} numbers"


def _data(plan: ScriptPlan) -> Iterator[list[str]]:
    trace = plan.trace
    sides = {"queries": trace.query_tokens, "keys": trace.key_tokens}
    given = {"tokens": trace.query_tokens} if plan.one_text else sides
    yield [line for name, tokens in given.items() for line in strings(name, tokens)]
    reach, block = plan.reach or 0, list[str]()
    labels = {name: [row_label(token) for token in tokens] for name, tokens in sides.items()}
    labels["distances"] = [str(away) for away in range(-reach, reach + 1)]
    for one in plan.arrays:
        if one.about and block:
            yield block
            block = []
        about = one.about + f" {plan.say('polarity')}" * (one.name == "mask")
        kind = "booleans" if one.array.dtype == bool else "numbers"
        around = plan.say("array"), plan.say(f"end of {kind}")
        rows = labels.get(one.rows) or [""] * len(one.array)
        block += commented(about, *matrix(one.name, one.array, around, rows))
    yield block


def _printing(plan: ScriptPlan) -> Iterator[list[str]]:
    trace = plan.trace
    keys = "tokens" if plan.one_text else "keys"
    if trace.asked:
        yield ["# The rows that were asked for.", *vector("rows", [f"{i}," for i in trace.listed])]
    yield from _printers(plan)
    mask = "" if trace.mask is None else ", mask"
    of_weights = "links" if trace.settings.top is not None else "show"
    lines = [f'print("keys:", {keys})']
    if trace.settings.head == "all" and plan.several:
        lines += [
            *strings("names", [head.name for head in plan.heads]),
            "for name, of_head, made in zip(names, head_weights, head_outputs):",
            f'    {of_weights}(f"weights of {{name!r}}", of_head{mask})',
            '    show(f"output of {name!r}", made)',
        ]
    else:
        lines += [f'{of_weights}("weights", weights{mask})', 'show("output", output)']
    lines += ['show("layer output", layer_output)'] if joins_heads(trace) else []
    if plan.has_layer:
        lines.append('print(f"keras.layers.Attention gives these weights to within {difference:.0e}.")')
    yield lines


def _printers(plan: ScriptPlan) -> Iterator[list[str]]:
    """Yield the functions that print: a matrix row by row, and the strongest links where --top asks for them."""
    trace, (queries, keys) = plan.trace, ("tokens", "tokens") if plan.one_text else ("queries", "keys")
    wide = min(WIDEST, max(len(repr(token)) for token in trace.query_tokens))
    label = f'f"{{{queries}[i]!r:>{wide}}}"'
    rows = "rows" if trace.asked else f"range(len({queries}))"
    row = plan.say("to list", "matrix[i]")
    is_masked, top = trace.mask is not None, trace.settings.top
    has_mask = is_masked and top is None
    yield [
        f"def show(name, matrix{', mask=None' if has_mask else ''}):",
        '    """Print a row of numbers for each query."""',
        "    print(name)",
        f"    for i in {rows}:",
        f'        cells = [f"{{number:8.4f}}" for number in {row}]',
        *["        if mask is not None:"] * has_mask,
        *['            cells = [cell if may else "  masked" for cell, may in zip(cells, mask[i])]']
        * has_mask,
        f"        print({label}, *cells)",
    ]
    seen = f"[j for j in range(len({keys})) if mask[i][j]]" if is_masked else f"range(len({keys}))"
    if top is None:
        return
    yield [
        f"def links(name, matrix{', mask' if is_masked else ''}):",
        f'    """Print the strongest keys of each query, at most {top}."""',
        "    print(name)",
        f"    for i in {rows}:",
        f"        row = {row}",
        f"        strongest = sorted({seen}, key=lambda j: -row[j])[:{top}]",
        f'        print({label}, *(f"{{{keys}[j]!r}} {{row[j]:.4f}}" for j in strongest))',
    ]
