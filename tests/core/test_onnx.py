"""ONNX's own tests of its operator Attention, opsets 23 and up, solved by `attend`: the numbers are theirs.

With ATTN_REQUIRE_TORCH=1, as in CI, a missing onnx fails these tests; otherwise it skips them.
"""

import importlib
import os
import re
from pathlib import Path

import numpy as np
import pytest

from attn_cli import attend
from tests.problems import tiled

if os.environ.get("ATTN_REQUIRE_TORCH") == "1":
    import onnx
else:  # before 1.23, cases of grouped heads and of modes of qk_matmul_output contradict the specification
    onnx = pytest.importorskip(
        "onnx", minversion="1.23", reason="onnx 1.23 is not installed: pip install onnx"
    )

INPUTS = ("Q", "K", "V", "attn_mask", "past_key", "past_value", "nonpad_kv_seqlen")
OUTPUTS = ("Y", "present_key", "present_value", "qk_matmul_output")
LOOSE = {"bfloat16": 2**-6, "float16": 2**-9}  # two of the last bits: theirs are computed in half precision


def collected():
    """The cases of the operator itself; the others are the same as graphs of simpler operators."""
    nodes = importlib.import_module("onnx.backend.test.case.node")
    importlib.import_module("onnx.backend.test.case.node.attention")  # it enters them
    found = {case.name: case for case in nodes._NodeTestCases if "_expanded" not in case.name}
    return {name: case for name, case in found.items() if case.model.graph.node[0].op_type == "Attention"}


CASES = collected()


def in_heads(M, heads):
    """(batch, n, heads x d) as (batch, heads, n, d)."""
    return M if heads is None else M.reshape(*M.shape[:2], heads, -1).swapaxes(1, 2)


def in_our_words(given, attributes):
    """Return the arguments of `attend` for the inputs and attributes of a node."""
    heads = [attributes.get(name) for name in ("q_num_heads", "kv_num_heads", "kv_num_heads")]
    Q, K, V = (in_heads(given[name], n) for name, n in zip("QKV", heads, strict=True))
    past, lengths = 0, given.get("nonpad_kv_seqlen")
    if "past_key" in given:
        past = given["past_key"].shape[2]
        K, V = np.concatenate([given["past_key"], K], 2), np.concatenate([given["past_value"], V], 2)
    masks, bias = masks_on_the_page(attributes, Q.shape[2], K.shape[2], past, lengths), None
    mask = given.get("attn_mask")
    if mask is not None:
        shut = False if mask.dtype == bool else -np.inf  # a shorter mask hides the rest
        before = [(0, 0)] * (mask.ndim - 1)
        mask = np.pad(mask, [*before, (0, K.shape[2] - mask.shape[-1])], constant_values=shut)
        if mask.dtype == bool:
            masks.append(np.atleast_2d(mask))
        else:
            bias = mask
    words = {"Q": Q, "K": K, "V": V, "mask": masks, "bias": bias, "lengths": lengths, "grouped": True}
    return words | {"scale": attributes.get("scale"), "softcap": attributes.get("softcap") or None}


PAGE = (Path(__file__).parents[2] / "docs/attend.md").read_text(encoding="utf-8")


def masks_on_the_page(attributes, n_q, n_k, past, lengths):
    """Return causal and window masks as the table for ONNX in docs/attend.md has them."""
    L, R = (attributes.get(f"{side}_window_size", -1) for side in ("left", "right"))
    L, R = (n_q + n_k if side < 0 else side for side in (L, R))
    first = past if lengths is None else (lengths - n_q)[:, None, None, None]
    (distance,) = re.findall(r"^> away = (.*)$", PAGE, re.MULTILINE)
    known = {"np": np, "n_q": n_q, "n_k": n_k, "past": first, "L": L, "R": R}
    known["away"] = eval(distance, known)
    masks = ["none"]
    for name in ("is_causal=1", "left_window_size"):
        if attributes.get(name.partition("=")[0], -1) in (0, -1):
            continue
        (cell,) = re.findall(rf"^\| `{name}`.*? \| (.*) \|$", PAGE, re.MULTILINE)
        usual, *others = cell.split("; ")
        sign = "`nonpad_kv_seqlen`" if lengths is not None else "past"
        is_other = lengths is not None or past
        clause = next(one for one in others if sign in one) if is_other else usual
        said = next(code for code in re.findall("`(.*?)`", clause) if code != "nonpad_kv_seqlen")
        masks.append(eval(said.replace(":L:R", f":{L}:{R}"), known))
    return masks


def solved(case):
    """Yield each output that a case's node has: its name, what `attend` and its arguments give, what onnx says."""
    (node,) = case.model.graph.node
    ((inputs, outputs),) = case.data_sets
    named = [place for name, place in zip(node.input, INPUTS, strict=False) if name]
    given = dict(zip(named, inputs, strict=True))
    attributes = {one.name: onnx.helper.get_attribute_value(one) for one in node.attribute}
    words = in_our_words(given, attributes)
    steps = attend(**words, steps=True)
    products = (steps.scaled_scores, steps.capped_scores, steps.masked_scores, steps.weights)
    ours = {
        "present_key": words["K"],
        "present_value": words["V"],
        "qk_matmul_output": products[attributes.get("qk_matmul_output_mode", 0)],
    }
    asked = [place for name, place in zip(node.output, OUTPUTS, strict=False) if name]
    wanted = dict(zip(asked, outputs, strict=True))
    yield from ((place, ours[place], theirs) for place, theirs in wanted.items() if place != "Y")
    with tiled(2, 3):
        by_tiles = attend(**words)[1], attend(**words, return_weights=False)[1]
    for Y in (steps.output, *attend(**words)[1:], *by_tiles):
        if given["Q"].ndim == 3:
            Y = Y.swapaxes(1, 2).reshape(*given["Q"].shape[:2], -1)
        yield "Y", Y, wanted["Y"]


def test_the_cases_are_there_and_each_opset_has_some():
    assert len(CASES) >= 93  # in onnx 1.23
    assert {case.model.opset_import[0].version for case in CASES.values()} >= {23, 24, 25}


@pytest.mark.parametrize("name", CASES)  # all: there is none that cannot be said
def test_a_case_of_onnx_comes_out_as_it_says_with_masks_as_the_page_has_them(name):
    case = CASES[name]
    for place, ours, theirs in solved(case):
        assert ours.shape == theirs.shape, place
        rtol = max(case.rtol, LOOSE.get(theirs.dtype.name, 0))
        ours, theirs = (M.astype(np.float64) for M in (ours.astype(theirs.dtype), theirs))
        np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=max(case.atol, 1e-7), err_msg=place)
