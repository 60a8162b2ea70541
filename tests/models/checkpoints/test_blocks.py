"""Norms, activations, places and attention, beside plain loops and the papers' own laws."""

import math
from itertools import product

import numpy as np
import pytest

from attn_cli.models.checkpoints import blocks
from attn_cli.models.checkpoints.blocks import ACTIVATIONS, NORMS, Ready, Rotary, attend, mask_of

DRAW = np.random.default_rng(0)


def some(*shape):
    return DRAW.standard_normal(shape).astype(np.float32)


def close(found, expected, within=1e-6):
    np.testing.assert_allclose(found, expected, rtol=0, atol=within)


def test_norms_and_activations_are_those_of_their_formulas():
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
    x, gain, shift = some(3, 8), some(8), some(8)
    for row, found in zip(x.astype(float), NORMS["layer"](x, gain, shift, 1e-5), strict=True):
        close(found, (row - row.mean()) / math.sqrt(row.var() + 1e-5) * gain + shift, 1e-5)
    for less, kind in enumerate(("rms", "rms, gain less one")):
        for row, found in zip(x.astype(float), NORMS[kind](x, gain - less, None, 1e-5), strict=True):
            close(found, row / math.sqrt((row * row).mean() + 1e-5) * gain, 1e-5)


def test_rotary_scores_depend_on_the_distance_alone_and_llama3_slows_the_slow_turns():
    rotary = Rotary(1e4, 6)
    q, k = some(1, 1, 1, 8), some(1, 1, 1, 8)

    def score(i, j):
        turned = [rotary.rotate(M, np.array([[at]])) for M, at in ((q, i), (k, j))]
        return (turned[0] * turned[1]).sum()

    close(score(9, 4), score(25, 20), 1e-5)
    assert abs(score(9, 4) - score(9, 5)) > 1e-3
    np.testing.assert_array_equal(rotary.rotate(q, np.array([[7]]))[..., 6:], q[..., 6:])
    close(rotary.rotate(q, np.array([[0]])), q)
    plain = Rotary(1e4, 64).frequencies()
    slowed = Rotary(1e4, 64, llama3=(8.0, 1.0, 4.0, 1000.0)).frequencies()
    seen = 1000 * plain / (2 * math.pi)
    close(slowed[seen > 4], plain[seen > 4], 0)
    close(slowed[seen < 1] * 8, plain[seen < 1], 1e-9)
    between = (seen > 1) & (seen < 4)
    slower = plain[between] / slowed[between]
    assert between.any() and (slower > 1).all() and (slower < 8).all()
    close(Rotary(1e4, 64, factor=4.0).frequencies() * 4, plain)
    found = blocks.sinusoids(20, 12)
    close(found[:, :6] ** 2 + found[:, 6:] ** 2, 1)
    close(found[3, 0], math.sin(3))
    both = blocks.relative_position_buckets(300, 300, 32, 128, True)
    assert both[0, 0] == 0 and both[10, 3] == 7 and both[3, 10] == 16 + 7
    assert both[200, 0] == both[299, 0] == 15 and both[0, 299] == 31
    assert (np.diff(both[:, 0]) >= 0).all()
    back = blocks.relative_position_buckets(300, 300, 32, 128, False)
    assert back[15, 0] == 15 and back[0, 15] == 0 and back[299, 0] == 31


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


def test_slopes_and_buckets_are_those_of_their_papers():
    close(blocks.slopes(8), 0.5 ** np.arange(1, 9), 0)
    close(blocks.slopes(6), [1 / 4, 1 / 16, 1 / 64, 1 / 256, 1 / 2, 1 / 8], 0)  # of eight, every other one
    behind = np.arange(4) - np.arange(2, 4)[:, None]
    for scale in (None, 0.25):  # whose products are those of bfloat16
        found = blocks.by_slopes(blocks.slopes(2), 2, 4, scale)
        close(found[0], np.array([1 / 16, 1 / 256])[:, None, None] * behind * (scale or 1), 0)
    assert blocks.as_bfloat16(np.float32([257, 258, 259, -1.5])).tolist() == [256, 258, 260, -1.5]
    away = np.arange(-40, 41)
    wide = [4 + math.ceil(3 * math.log(max(abs(n), 4) / 4) / math.log(32 / 4)) for n in away]
    expected = [n if abs(n) <= 4 else int(math.copysign(far, n)) for n, far in zip(away, wide, strict=True)]
    assert blocks.log_buckets(away, 8, 33).tolist() == expected


def whole(mask, n_q):
    """Who may attend to whom, as an array that stands for (b, 1, n_q, n_k)."""
    allowed = mask.rule.rows(range(mask.first, mask.first + n_q))[None, None]
    return allowed if mask.real is None else allowed & mask.real[:, None, None]


def test_masks_are_those_of_loops():
    real = np.array([[True, True, False, True, True], [True] * 5])
    for causal, window in product((False, True), (None, 1, 2, 4, 9)):
        mask = whole(mask_of(real, 5, 5, causal, window), 5)
        for b, i, j in np.ndindex(2, 5, 5):
            near = window is None or (i - j < window if causal else abs(i - j) <= window)
            assert mask[b, 0, i, j] == (real[b, j] and near and (j <= i or not causal))
    assert mask_of(None, 4, 6, False, None) is None
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
