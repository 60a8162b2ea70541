"""Parity with PyTorch: the same numbers from `scaled_dot_product_attention` and from its parts.

With ATTN_REQUIRE_TORCH=1 a missing PyTorch fails these tests; otherwise it skips them.
"""

import math
import os

import numpy as np
import pytest

from attn_cli import Settings, attend
from attn_cli.core.heads import HeadWeights, Position
from attn_cli.core.masks import named
from attn_cli.inputs.matrices import given_from
from attn_cli.models.encoder import EncoderLayer, EncoderStack, Norm
from attn_cli.models.projection import Projection
from attn_cli.pipeline.sources.matrices import trace_matrices
from attn_cli.trace.head import Projected
from attn_cli.vectors.spelling import SpellingFeatures
from tests.shell import record

if os.environ.get("ATTN_REQUIRE_TORCH") == "1":
    import torch
else:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")

sdpa = torch.nn.functional.scaled_dot_product_attention
TOLERANCE = {"float32": 1e-6, "float64": 1e-12}
DTYPES = pytest.mark.parametrize("dtype", TOLERANCE)


def made(shape, dtype, seed=0, size=1.0, groups=1):
    """Q, K, V and a bias of these shapes, normal random numbers times `size`; `groups` heads share keys and values."""
    *heads, n_q, n_k, d_k, d_v = shape
    shared = [*heads[:-1], heads[-1] // groups] if heads else []
    draw = np.random.default_rng([seed, *shape])
    shapes = [(*heads, n_q, d_k), (*shared, n_k, d_k), (*shared, n_k, d_v), (*heads, n_q, n_k)]
    Q, K, V, bias = (draw.standard_normal(s).astype(dtype) for s in shapes)
    return Q * Q.dtype.type(size), K, V, bias


def explicit(Q, K, V, allowed=None, bias=None, scale=None, cap=None):
    """PyTorch's matrix product and softmax, written out: scores, masked scores, weights and output."""
    Q, K, V = map(torch.from_numpy, (Q, K, V))
    if Q.ndim > 2 and Q.shape[-3] != K.shape[-3]:
        K, V = (M.repeat_interleave(Q.shape[-3] // M.shape[-3], -3) for M in (K, V))
    scores = Q @ K.mT * (1 / math.sqrt(Q.shape[-1]) if scale is None else scale)
    masked = scores if cap is None else cap * torch.tanh(scores / cap)
    masked = masked if bias is None else masked + torch.from_numpy(bias)
    if allowed is not None:
        masked = masked.masked_fill(~torch.from_numpy(allowed), -math.inf)
    weights = torch.softmax(masked, dim=-1).nan_to_num(0.0)  # a fully masked row is zeros
    return [M.numpy() for M in (scores, masked, weights, weights @ V)]


def fused(Q, K, V, **options):
    """The output of PyTorch's scaled_dot_product_attention, which wants a leading axis at least."""
    Q, K, V = (torch.from_numpy(M)[None] if M.ndim == 2 else torch.from_numpy(M) for M in (Q, K, V))
    output = sdpa(Q, K, V, enable_gqa=Q.ndim > 3 and Q.shape[1] != K.shape[1], **options).numpy()
    return output[0] if output.shape[0] == 1 and Q.ndim == 3 else output


def close(ours, theirs, dtype, largest=1.0):
    assert ours.dtype == theirs.dtype == dtype
    assert ours.shape == theirs.shape
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=TOLERANCE[dtype] * max(1.0, largest))


# (heads..., n_q, n_k, d_k, d_v): one head, several, several of several texts; d_v beside d_k; one word
SMALL = [(5, 5, 4, 4), (3, 6, 4, 2), (6, 3, 2, 5), (4, 7, 5, 8, 3), (2, 3, 6, 6, 4, 4), (1, 1, 1, 1)]
# Past the size from which heads are worked on by tiles: no multiple of a tile, few and many queries, long vectors
LARGE = [
    *((2, 260, 517, 64, 48), (700, 300, 16, 16), (1, 20_000, 64, 8), (300, 65, 600, 3)),
    (2, 1100, 1200, 8, 8),
]
GROUPED = {(1, 4, 5, 5, 4, 4): 2, (2, 6, 3, 7, 4, 3): 3, (2, 4, 130, 140, 16, 8): 4, (3, 2, 6, 4, 2, 5): 1}
RULES = {  # a mask's name, and what lies on and below which diagonal, on and above which
    "causal": ("causal", 0, None),
    "bottom right": ("causal-bottom-right", "last", None),
    "window": ("window:2:1", 1, -2),
}
KINDS = [
    *("plain", "sharp", "scale", *RULES, "boolean", "for all queries", "numbers", "shut"),
    *("lengths", "lengths, causal", "cap 0.5", "cap 30"),
]


@DTYPES
@pytest.mark.parametrize("shape", [*SMALL, *LARGE, *GROUPED], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_weights_and_output_are_theirs(kind, shape, dtype):
    Q, K, V, bias = made(shape, dtype, size=30.0 if kind == "sharp" else 1.0, groups=GROUPED.get(shape, 1))
    n_q, n_k = bias.shape[-2:]
    scale = 0.125 if kind == "scale" else None
    cap = float(kind.split()[1]) if "cap" in kind else None
    added = bias if kind in ("numbers", "shut") or cap else None
    allowed, ways = None, [{"bias": added}]
    if kind in RULES:
        mask, high, low = RULES[kind]
        allowed, ways = np.tri(n_q, n_k, n_k - n_q if high == "last" else high, dtype=bool), [{"mask": mask}]
        if low is not None:
            allowed &= ~np.tri(n_q, n_k, low - 1, dtype=bool)
    elif kind == "for all queries":
        allowed = bias.reshape(-1, n_k)[:1] > 0
        ways = [{"mask": allowed}]
    elif kind in ("boolean", "shut"):
        allowed = bias > -0.5
        allowed[..., ::3, :] = False  # rows with nothing allowed, here and there
        ways = [{"mask": allowed, "bias": added}]
    elif "lengths" in kind:
        lengths = np.random.default_rng(0).integers(1, n_k + 1, bias.shape[:-2][:1])
        real = np.arange(n_k) < lengths.reshape(*lengths.shape, *[1] * (bias.ndim - lengths.ndim))
        is_causal = "causal" in kind
        allowed = real & np.tri(n_q, n_k, dtype=bool) if is_causal else real
        masks = [["causal"], ["causal", real]] if is_causal else [None, real]
        ways = [{"mask": masks[0], "lengths": lengths}, {"mask": masks[1]}]
    elif cap:
        allowed, ways = np.tri(n_q, n_k, dtype=bool), [{"mask": "causal", "bias": bias, "softcap": cap}]
    float_mask = None
    if added is not None or allowed is not None:
        float_mask = np.where(True if allowed is None else allowed, 0 if added is None else bias, -np.inf)
        float_mask = torch.from_numpy(np.broadcast_to(float_mask, bias.shape).astype(dtype))
    if kind == "shut":  # -inf in a bias masks
        ways.append({"bias": float_mask.numpy()})
    scores, masked, weights, output = explicit(Q, K, V, allowed, added, scale, cap)
    largest = float(np.abs(scores).max() + np.abs(bias).max() * (added is not None))
    whole = {"scale": scale, "grouped": shape in GROUPED}
    for options in ways:
        ours = attend(Q, K, V, **options, **whole)
        close(ours[0], weights, dtype, largest)
        for one in (ours[1], attend(Q, K, V, **options, **whole, return_weights=False, threads=2)[1]):
            close(one, output, dtype, largest)
            if not cap:
                close(one, fused(Q, K, V, attn_mask=float_mask, scale=scale), dtype, largest)
    if kind == "causal":
        close(ours[1], fused(Q, K, V, is_causal=True), dtype, largest)
    if cap:
        steps = attend(Q, K, V, **options, **whole, steps=True)
        sums = torch.logsumexp(torch.from_numpy(masked), -1).numpy()
        ours = steps.scaled_scores, steps.masked_scores, steps.log_sum_exp
        for one, theirs in zip(ours, (scores, masked, sums), strict=True):
            close(one, theirs, dtype, largest)


SEEDS = pytest.mark.parametrize("seed", [0, 1, 2])
HALF = {"float16": 2.0**-10, "bfloat16": 2.0**-7}  # the distance of the numbers next to 1


@SEEDS
@pytest.mark.parametrize("shape", GROUPED, ids=str)
@pytest.mark.parametrize("mask", [None, "causal"])
@pytest.mark.parametrize("half", HALF)
def test_half_precision_is_as_near_the_exact_numbers_as_theirs(half, mask, shape, seed):
    kind = np.float16 if half == "float16" else pytest.importorskip("ml_dtypes").bfloat16
    Q, K, V, _ = (M.astype(kind) for M in made(shape, "float32", seed, groups=GROUPED[shape]))
    weights, output = attend(Q, K, V, mask, grouped=True)
    alone = attend(Q, K, V, mask, grouped=True, return_weights=False)[1]
    assert weights.dtype == output.dtype == kind
    exact = attend(*(M.astype(np.float64) for M in (Q, K, V)), mask, grouped=True)
    tensors = (torch.from_numpy(M.astype(np.float32)).to(getattr(torch, half)) for M in (Q, K, V))
    theirs = sdpa(*tensors, is_causal=mask is not None, enable_gqa=True).float().numpy()
    off = [np.abs(one.astype(np.float64) - exact[1]).max() for one in (output, alone, theirs)]
    assert max(off[:2]) <= HALF[half] / 2 * np.abs(exact[1]).max() + 1e-5, "rounded once"
    assert off[0] <= off[2] + 1e-5
    assert np.abs(weights.astype(np.float64) - exact[0]).max() <= HALF[half] / 2 + 1e-5


@SEEDS
@pytest.mark.parametrize("n", [5, 140])
@pytest.mark.parametrize("kind", ["none", "boolean", "causal"])
@pytest.mark.parametrize("padded", [False, True])
def test_their_multihead_attention_is_attend_between_two_projections(padded, kind, n, seed):
    batch, heads, d = 3, 2, 8
    torch.manual_seed(seed)
    layer = torch.nn.MultiheadAttention(d, heads, batch_first=True, dtype=torch.float64).eval()
    draw = np.random.default_rng(seed)
    X, Y = draw.standard_normal((batch, n, d)), draw.standard_normal((batch, n + 2, d))
    lengths = draw.integers(1, n + 3, batch) if padded else None
    allowed = blocked = None
    if kind == "boolean":
        allowed = draw.random((n, n + 2)) < 0.7
        allowed[:, 0] = True  # there, a row with nothing allowed is NaN
        blocked = torch.from_numpy(~allowed)  # there, True is blocked
    if kind == "causal":
        allowed, blocked = "causal", torch.ones(n, n + 2, dtype=torch.bool).triu(1)
    padding = None if lengths is None else torch.from_numpy(np.arange(n + 2) >= lengths[:, None])
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_()
        q, kv = torch.from_numpy(X), torch.from_numpy(Y)
        options = {"attn_mask": blocked, "key_padding_mask": padding, "is_causal": kind == "causal"}
        output, weights = layer(q, kv, kv, average_attn_weights=False, **options)
        mean = layer(q, kv, kv, **options)[1]
    W, b, W_o, b_o = (p.detach().numpy() for p in layer.parameters())
    made = (M @ W[i * d : (i + 1) * d].T + b[i * d : (i + 1) * d] for i, M in enumerate((X, Y, Y)))
    Q, K, V = (M.reshape(batch, -1, heads, d // heads).swapaxes(1, 2) for M in made)
    ours, each = attend(Q, K, V, allowed, lengths=lengths)
    close(ours, weights.numpy(), "float64", 100)
    close(ours.mean(axis=1), mean.numpy(), "float64", 100)
    close(each.swapaxes(1, 2).reshape(batch, n, d) @ W_o.T + b_o, output.numpy(), "float64", 1000)


def encoder(layer, heads, reach=2):
    """An encoder layer of theirs as one of ours, with a position term that adds nothing."""
    p = {name: value.detach().numpy() for name, value in layer.named_parameters()}
    d, d_k = layer.self_attn.embed_dim, layer.self_attn.embed_dim // heads
    W, b = p["self_attn.in_proj_weight"].T, p["self_attn.in_proj_bias"]
    nowhere = Position(np.zeros((2 * reach + 1, d_k)), np.zeros(2 * reach + 1))
    made = []
    for h in range(heads):
        q, k, v = (slice(m * d + h * d_k, m * d + (h + 1) * d_k) for m in range(3))
        made.append(HeadWeights(str(h), W[:, q], W[:, k], W[:, v], b[q], b[k], b[v], nowhere))
    own = Projected("learned", "theirs", "in-out", None, 0)
    joins, *network = (
        (p[f"{name}.weight"].T, p[f"{name}.bias"]) for name in ("self_attn.out_proj", "linear1", "linear2")
    )
    norms = [Norm(p[f"norm{n}.weight"], p[f"norm{n}.bias"]) for n in (1, 2)]
    return EncoderLayer(Projection(own, tuple(made), *joins), norms[0], *network[0], *network[1], norms[1])


@pytest.mark.parametrize("mask", ["none", "causal", "window:1"])
@pytest.mark.parametrize(("n", "heads", "layers"), [(1, 1, 1), (7, 2, 1), (9, 4, 3), (800, 2, 2)])
def test_a_stack_of_encoder_layers_is_theirs(n, heads, layers, mask):
    d, words = 8, 6
    torch.manual_seed(n)
    options = {"dim_feedforward": 12, "dropout": 0.0, "batch_first": True, "dtype": torch.float64}
    theirs = [torch.nn.TransformerEncoderLayer(d, heads, **options).eval() for _ in range(layers)]
    entry = torch.nn.Linear(words, d, dtype=torch.float64)
    start = torch.randn(n, words, dtype=torch.float64)
    rule = named(mask, n, n)
    blocked = None if rule is None else torch.from_numpy(~rule.rows(np.arange(n)))  # there, True is blocked
    with torch.no_grad():
        for module in (*theirs, entry):
            for parameter in module.parameters():
                parameter.normal_(std=0.5)
        passed = [entry(start)[None]]
        for layer in theirs:
            passed.append(layer(passed[-1], src_mask=blocked))
    spelling, enters = SpellingFeatures({}, np.zeros((0, words)), False), (entry.weight.T, entry.bias)
    last = Projection(Projected("learned", "theirs", "in-out", None, layers), ())
    parts = *(M.detach().numpy() for M in enters), tuple(encoder(layer, heads) for layer in theirs), last
    ours = EncoderStack("theirs", "none", "none", spelling, *parts, {})
    for layer, wanted in enumerate(passed):
        made = ours.input(start.numpy(), layer, rule)
        np.testing.assert_allclose(made, wanted[0].numpy(), rtol=0, atol=1e-10)


# Masks as `--show mask` writes them, padding, and a row without any key.

VIEWS = [
    *((), ("--mask", "window:1"), ("--pad", "2"), ("--pad", "2", "--mask", "none")),
    ("--pad", "3", "--pad-side", "left", "--mask", "none"),
]


@pytest.mark.parametrize("args", VIEWS)
def test_each_view_gives_its_framework_the_same_weights(args):
    cat = ("masked", "The cat sat on a mat", "-e", "random", "-p", "identity")
    found = record(*cat, "--show", "mask", "--steps", *args)
    views, X = found["mask_views"], torch.tensor(found["x_query"], dtype=torch.float64)
    added = [[-math.inf if cell is None else cell for cell in row] for row in views["additive"]]
    for mask in (torch.tensor(views["torch_sdpa"]), torch.tensor(added, dtype=torch.float64)):
        output = sdpa(X[None], X[None], X[None], attn_mask=mask)[0]
        np.testing.assert_allclose(found["output"], output.numpy(), rtol=0, atol=1e-12)
    masks = [{"attn_mask": torch.tensor(views["torch_mha"])}]
    if "none" in args:
        masks.append({"key_padding_mask": torch.tensor([views["key_padding"]])})
    d = X.shape[1]
    layer = torch.nn.MultiheadAttention(d, 1, bias=False, batch_first=True, dtype=torch.float64).eval()
    with torch.no_grad():
        layer.in_proj_weight.copy_(torch.eye(d, dtype=torch.float64).repeat(3, 1))
        for mask in masks:
            weights = layer(X[None], X[None], X[None], **mask)[1][0]
            np.testing.assert_allclose(found["weights"], weights.numpy(), rtol=0, atol=1e-12)


def test_what_is_said_of_torch_and_a_row_with_nothing_left_is_so():
    if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 13):
        pytest.skip("The sentences name 2.13.")
    X = torch.randn(1, 2, 4)
    shut = torch.tensor([[False, False], [True, True]])
    assert not sdpa(X, X, X, attn_mask=shut)[0, 0].any()
    layer = torch.nn.MultiheadAttention(4, 1, bias=False, batch_first=True).eval()
    with torch.no_grad():
        assert layer(X, X, X, attn_mask=~shut)[1][0, 0].isnan().all()
        assert not layer(X, X, X, attn_mask=~shut, need_weights=False)[0][0, 0].any()


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
        given = {"X": X.numpy(), "context": context.numpy(), "mask": ~mask.numpy(), "heads": 2} | state
        found = trace_matrices("compute", given_from(given, "given", item), Settings(head="all"))
        assert np.allclose([head.weights for head in found.heads], weights[item].detach(), atol=1e-12)
        assert np.allclose(found.layer_output, output[item].detach(), atol=1e-12)
