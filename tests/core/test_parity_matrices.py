"""Parity with PyTorch of given matrices: MultiheadAttention's own weights, and grouped heads.

With ATTN_REQUIRE_TORCH=1 a missing PyTorch fails these tests; otherwise it skips them.
"""

import os

import numpy as np
import pytest

from attn_cli import Settings
from attn_cli.inputs.matrices import given_from
from attn_cli.pipeline.sources.matrices import trace_matrices

if os.environ.get("ATTN_REQUIRE_TORCH") == "1":
    import torch
else:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")

sdpa = torch.nn.functional.scaled_dot_product_attention
DRAW = np.random.default_rng(17)


def traced(batch=None, **record):
    return trace_matrices("compute", given_from(record, "given", batch), Settings(head="all"))


@pytest.mark.parametrize("bias", [True, False])
def test_a_state_dict_of_multihead_attention_gives_its_weights_and_its_output(bias):
    torch.manual_seed(0)
    layer = torch.nn.MultiheadAttention(8, 2, bias=bias, batch_first=True, dtype=torch.float64)
    X, context = torch.randn(3, 4, 8).double(), torch.randn(3, 5, 8).double()
    mask = torch.rand(2, 4, 5) < 0.3
    mask[..., 0] = False  # torch's True is blocked
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter)  # biases too, which begin as zeros
    output, weights = layer(X, context, context, attn_mask=mask.repeat(3, 1, 1), average_attn_weights=False)
    state = {name: value.numpy() for name, value in layer.state_dict().items()}
    for item in range(3):
        found = traced(item, X=X.numpy(), context=context.numpy(), mask=~mask.numpy(), heads=2, **state)
        assert np.allclose([head.weights for head in found.heads], weights[item].detach(), atol=1e-12)
        assert np.allclose(found.layer_output, output[item].detach(), atol=1e-12)


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_grouped_heads_a_bias_and_a_mask_are_those_of_scaled_dot_product_attention(kv_heads):
    Q = DRAW.standard_normal((2, 4, 3, 6))
    K, V = (DRAW.standard_normal((2, kv_heads, 5, n)) for n in (6, 2))
    mask, bias = DRAW.random((2, 1, 1, 5)) < 0.7, DRAW.standard_normal((1, 4, 3, 5))
    mask[..., 0] = True
    added = torch.from_numpy(np.where(mask, bias, -np.inf))
    right = sdpa(*map(torch.from_numpy, (Q, K, V)), attn_mask=added, enable_gqa=True)
    for item in range(2):
        found = traced(item, Q=Q, K=K, V=V, mask=mask, bias=bias)
        assert np.allclose([head.output for head in found.heads], right[item], atol=1e-12)


@pytest.mark.parametrize("scale", [1.0, 0.125, 1 / np.sqrt(6), 3.7])
def test_a_given_scale_takes_the_place_of_the_root(scale):
    Q, K, V = (DRAW.standard_normal((4, n, d)) for n, d in ((3, 6), (5, 6), (5, 2)))
    right = sdpa(*map(torch.from_numpy, (Q, K[:2], V[:2])), enable_gqa=True, scale=scale)
    found = traced(Q=Q, K=K[:2], V=V[:2], scale=scale)
    assert np.allclose([head.output for head in found.heads], right, atol=1e-12)
    assert found.scale == pytest.approx(scale)


def test_a_soft_cap_comes_after_the_scale_and_before_the_mask_and_the_bias():
    Q, K, V, bias = (4 * DRAW.standard_normal(shape) for shape in ((3, 6), (5, 6), (5, 2), (3, 5)))
    scores = 2 * torch.tanh(torch.from_numpy(Q @ K.T * 0.4) / 2) + torch.from_numpy(bias)
    scores = scores.masked_fill(~torch.ones(3, 5).bool().tril(), -torch.inf)
    found = traced(Q=Q, K=K, V=V, scale=0.4, softcap=2, bias=bias, mask="causal")
    assert np.allclose(found.weights, torch.softmax(scores, -1), atol=1e-12)
