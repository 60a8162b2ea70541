"""PyTorch and Keras as scripts use them, made of NumPy: so scripts run where neither of the two is installed."""

from types import ModuleType, SimpleNamespace

import numpy as np

# NumPy's names of what PyTorch names so.
NUMPYS = {"dim": "axis", "keepdim": "keepdims", "cat": "concatenate", "amax": "max"}


class Library(ModuleType):
    """A module whose functions are NumPy's, unless it has its own; what they make is a `Tensor`."""

    def __getattr__(self, name):
        found = getattr(np, NUMPYS.get(name, name))
        if isinstance(found, type) or not callable(found):
            return found

        def call(*given, **named):
            plain = [one.view(np.ndarray) if isinstance(one, Tensor) else one for one in given]
            made = found(*plain, **{NUMPYS.get(one, one): value for one, value in named.items()})
            return np.asarray(made).view(Tensor)

        return call


class Tensor(np.ndarray):
    """An array with PyTorch's methods."""

    mT = property(lambda self: self.swapaxes(-1, -2))  # noqa: N815

    def chunk(self, parts, dim):
        return np.split(self, parts, axis=dim)

    def masked_fill(self, where, value):
        return np.where(where, value, self).view(Tensor)

    def all(self, dim, keepdim):
        return super().all(axis=dim, keepdims=keepdim)

    def amax(self, dim, keepdim):
        return self.max(axis=dim, keepdims=keepdim)

    def abs(self):
        return np.abs(self)

    def tril(self, k=0):
        return np.tril(self, k).view(Tensor)

    def triu(self, k=0):
        return np.triu(self, k).view(Tensor)


def softmax(x, axis):
    """Return e^x over its sum along an axis; where all is -inf, NaN."""
    with np.errstate(invalid="ignore"):
        exps = np.exp(np.asarray(x) - np.max(x, axis=axis, keepdims=True))
        return (exps / exps.sum(axis=axis, keepdims=True)).view(Tensor)


def attend(query, key, value, attn_mask=None, *, scale=None):
    """Return what torch.nn.functional.scaled_dot_product_attention does, as its documentation has it."""
    scores = query @ key.mT * (query.shape[-1] ** -0.5 if scale is None else scale)
    if attn_mask is not None:
        scores = scores + (np.where(attn_mask, 0, -np.inf) if attn_mask.dtype == bool else attn_mask)
    return softmax(scores, -1) @ value


def pad(x, widths, value=0.0):
    """Pad the last axis by the first two widths, the one before it by the next two."""
    sides = [*zip(widths[::2], widths[1::2], strict=True)][::-1]
    return np.pad(x, [(0, 0)] * (x.ndim - len(sides)) + sides, constant_values=value).view(Tensor)


def layer(use_scale, score_mode, dtype):
    """Return what keras.layers.Attention is, whose inputs are query, value, key."""
    assert (use_scale, score_mode, dtype) == (False, "dot", "float64")

    def call(inputs, return_attention_scores, use_causal_mask=False):
        query, value, key = inputs
        scores = query @ key.mT
        weights = softmax(np.where(np.tri(*scores.shape[-2:]) >= use_causal_mask, scores, -np.inf), -1)
        return weights @ value, weights

    return call


def libraries():
    """Return the modules by their names."""
    torch, nn, functional = Library("torch"), ModuleType("torch.nn"), ModuleType("torch.nn.functional")
    keras, ops = ModuleType("keras"), Library("keras.ops")
    torch.nn, nn.functional, torch.tensor = nn, functional, torch.array
    torch.set_default_dtype = np.dtype
    torch.ones = lambda *shape, dtype: np.ones(shape, dtype).view(Tensor)
    torch.softmax = lambda x, dim: softmax(x, dim)
    torch.linalg = SimpleNamespace(
        vector_norm=lambda M, dim, keepdim: np.linalg.norm(M, axis=dim, keepdims=keepdim).view(Tensor)
    )
    functional.pad, functional.scaled_dot_product_attention = pad, attend
    keras.ops, keras.layers, ops.softmax = ops, SimpleNamespace(Attention=layer), softmax
    ops.cast, ops.convert_to_numpy = (lambda x, dtype: x.astype(dtype)), np.asarray
    return {one.__name__: one for one in (torch, nn, functional, keras, ops)}
