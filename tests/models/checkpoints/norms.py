"""The norms of a layer, from the vectors themselves: each weight times v W_o, by plain loops over heads."""

from unittest import mock

import numpy as np

from attn_cli.models import logit_parts
from attn_cli.models.checkpoints.reader import Reader


def alike(found, expected, what):
    scale = np.abs(expected).max()
    np.testing.assert_allclose(found / scale, expected / scale, rtol=0, atol=1e-5, err_msg=what)


def same_as_by_vectors(run, steps, what):
    """Check what the first text's heads of a layer add; return how many vectors there were."""
    made, what = run.joining(steps), f"{what}, {steps.side} {steps.layer}, {steps.kind}"
    found = steps.attended.weights, steps.ready.v, steps.attended.output
    weights, v, output = (M[0].astype(float) for M in found)
    parts = np.stack([made.part(own, n, len(v)) for n, own in enumerate(v)])
    vectors = np.einsum("hij,hjd->hijd", weights, parts)
    b_o = 0 if made.b_o is None else made.b_o
    alike(vectors.sum(axis=(0, 2)) + b_o, run.joined(steps)[0], what)
    lengths = weights * np.linalg.norm(parts, axis=-1)[:, None]
    alike(lengths, np.linalg.norm(vectors, axis=-1), what)
    if steps.kind != "cross":
        whole = _with_residual(run, steps, vectors.sum(axis=0), b_o, what)
        with mock.patch.object(logit_parts, "BLOCK", 2 * len(v) * whole.shape[-1]):  # two keys at a time
            alike(made.lengths_of_all(weights, v, output), np.linalg.norm(whole, axis=-1), what)
    return vectors.size


def _with_residual(run, steps, vectors, b_o, what):
    """Return the vectors of the layer as a whole, which, biases apart, sum to what its own norms make of it all."""
    stack = run.model.stacks[steps.side]
    layer, reader = stack.layers[steps.layer], Reader(run.weights, stack)
    before = run.joined(steps)[0].astype(float)
    bias = np.zeros_like(before) + b_o
    residual = (steps.projected if stack.adds_to_norm else steps.x)[0].astype(float)

    def through(role, sums, added):
        """Return the whole sum as the layer norms it, and what its shift adds; the vectors go through its scale."""
        name, d = layer.place + layer.names[role], stack.d
        normed = reader.norm(name, sums.astype(np.float32)).astype(float)
        gain = reader.weights.read(f"{name}.weight", d) + ("less one" in stack.norm) if stack.has_gains else 1
        shift = reader.weights.maybe(f"{name}.bias", d) if stack.has_gains else None
        centre = (lambda x: x - x.mean(axis=-1, keepdims=True)) if stack.norm == "layer" else (lambda x: x)
        scale = np.sqrt((centre(sums) ** 2).mean(axis=-1, keepdims=True) + stack.eps)
        vectors[:] = centre(vectors) * gain / scale[:, None]
        return normed, centre(added) * gain / scale + (0 if shift is None else shift)

    if "after_1" in layer.names:
        before, bias = through("after_1", before, bias)
    before, bias = before * stack.added + residual, bias * stack.added
    vectors *= stack.added
    vectors[np.diag_indices(len(before))] += residual
    if not stack.pre_norm:
        before, bias = through("norm_1", before, bias)
    alike(vectors.sum(axis=1) + bias, before, what)
    return vectors
