"""Activations, rotations, masks and attention, beside plain loops and the papers' own laws."""

import math
from itertools import product

import numpy as np
import pytest

from attn_cli.models.checkpoints import blocks
from attn_cli.models.checkpoints.blocks import ACTIVATIONS, Ready, Rotary, attend, mask_of

DRAW = np.random.default_rng(0)


def some(*shape):
    return DRAW.standard_normal(shape).astype(np.float32)


def close(found, expected, within=1e-6):
    np.testing.assert_allclose(found, expected, rtol=0, atol=within)


def test_activations_are_those_of_their_formulas():
    x = np.linspace(-12, 12, 4801).astype(np.float32)
    logistic = [1 / (1 + math.exp(-n)) for n in x]
    expected = np.array([n * 0.5 * math.erfc(-n / math.sqrt(2)) for n in x])
    assert (np.abs(ACTIVATIONS["gelu"](x) - expected) < 2e-7 * np.maximum(1, np.abs(x))).all()
    near = [math.tanh(math.sqrt(2 / math.pi) * (n + 0.044715 * n**3)) for n in x.astype(float)]
    close(ACTIVATIONS["gelu_new"](x), x / 2 * (1 + np.array(near)), 2e-6)
    close(ACTIVATIONS["silu"](x), x * logistic, 2e-6)
    close(ACTIVATIONS["quick_gelu"](x), [n / (1 + math.exp(-1.702 * n)) for n in x.astype(float)], 2e-6)
    close(ACTIVATIONS["relu"](x), [max(n, 0) for n in x])
    assert ACTIVATIONS["gelu"](np.float32([-1e4, -1e18, 1e20])).tolist() == [0, 0, np.float32(1e20)]
    many = np.resize(x, (3, 1 << 16))
    np.testing.assert_array_equal(ACTIVATIONS["gelu"](many).ravel()[: len(x)], ACTIVATIONS["gelu"](x))
    np.testing.assert_array_equal(ACTIVATIONS["gelu"](many[:, ::2]), ACTIVATIONS["gelu"](many)[:, ::2])
    for made in ACTIVATIONS.values():
        assert made(x).dtype == np.float32


def test_a_text_is_rotated_by_its_own_length_whatever_stands_beside_it():
    rotary = Rotary(100.0, 5, length=4, growth=2.0, divisors=(1, 2, 3), long_divisors=(2, 4, 8), gain=1.5)
    x, places = some(2, 1, 6, 8), np.array([range(6), [0, 1, 2, -1, -1, -1]])
    together = rotary.rotate(x, places)
    for text in (0, 1):
        close(together[text : text + 1], rotary.rotate(x[text : text + 1], places[text : text + 1]), 0)
    assert rotary.turned == 6 and (together[..., 6:] == x[..., 6:]).all()
    close(together[:, :, 0, :6], 1.5 * x[:, :, 0, :6])
    assert (rotary.frequencies(5) < rotary.frequencies(4)).all()
    pairs = Rotary(100.0, 6, neighbours=True).rotate(x, places)
    close(pairs[0, 0, 2, 0], x[0, 0, 2, 0] * math.cos(2) - x[0, 0, 2, 1] * math.sin(2))


def test_llama3_slows_the_slow_turns_alone():
    plain = Rotary(1e4, 64).frequencies()
    slowed = Rotary(1e4, 64, llama3=(8.0, 1.0, 4.0, 1000.0)).frequencies()
    seen = 1000 * plain / (2 * math.pi)
    close(slowed[seen > 4], plain[seen > 4], 0)
    close(slowed[seen < 1] * 8, plain[seen < 1], 1e-9)


def whole(mask, n_q):
    """Who may attend to whom, as an array that stands for (b, 1, n_q, n_k)."""
    allowed = mask.rule.rows(range(mask.first, mask.first + n_q))[None, None]
    return allowed if mask.real is None else allowed & mask.real[:, None, None]


def test_masks_are_those_of_loops():
    for causal, window in product((False, True), (None, 1, 2, 4, 9)):
        mask = mask_of(None, 5, 5, causal, window)
        for i, j in np.ndindex(5, 5):
            near = window is None or (i - j < window if causal else abs(i - j) <= window)
            assert (mask is None or whole(mask, 5)[0, 0, i, j]) == (near and (j <= i or not causal))
    assert mask_of(np.ones((2, 6), bool), 4, 6, False, None) is None


@pytest.mark.parametrize(("several", "block"), [(1, 1), (3, 60), (100, 1 << 20)])  # rows, and scores, at once
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [None, 3])
def test_rows_some_at_a_time_attend_as_all_do(causal, window, several, block, monkeypatch):
    for name, number in {"BLOCK": block, "ROWS": several, "RULED_ROWS": several}.items():
        monkeypatch.setattr(blocks, name, number)
    q, k, v, position = some(2, 3, 7, 8), some(2, 3, 9, 8), some(2, 3, 9, 6), some(1, 3, 7, 9)
    real = np.array([[True] * 9, [False, False, *[True] * 7]])
    plain, sinks = 0.3 * q @ k.swapaxes(2, 3), some(3)
    capped = 1.5 * np.tanh((plain + position) / 1.5)
    for mask, modest in product((mask_of(one, 7, 9, causal, window) for one in (real, None)), (False, True)):
        more = {} if modest else {"position": position, "softcap": 1.5, "sinks": sinks}
        ready = Ready(q, k, v, 0.3, **{"position": None, "softcap": None, "mask": mask} | more)
        assert ready.is_modest() == modest and not ready._replace(position=None, sinks=sinks).is_modest()
        exps = np.exp(plain if modest else capped) * (1 if mask is None else whole(mask, 7))
        total = exps.sum(-1, keepdims=True) + (0 if modest else np.exp(sinks)[:, None, None])
        weights = exps / np.where(total == 0, 1, total)
        close(attend(ready).weights, weights)
        close(blocks.output_of(ready), weights @ v, 1e-5)
