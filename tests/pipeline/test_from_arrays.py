"""`attn_cli.show`: weights from Python, by the path of `attn show`."""

import sys

import numpy as np
import pytest

from attn_cli import AttnError, Settings, show
from tests.shell import attn

WORDS = "the cat sat down"


def weights(*shape):
    found = np.exp(np.random.default_rng(1).normal(size=shape))
    return found / found.sum(axis=-1, keepdims=True)


class Tensor:
    """What a tensor of PyTorch does that needs its gradient: NumPy may only have it once it is detached."""

    def __init__(self, numbers, dtype="torch.float32", free=False):
        self.numbers, self.dtype, self.free = numbers, dtype, free

    requires_grad = True

    def detach(self):
        return Tensor(self.numbers, self.dtype, True)

    def cpu(self):
        return self

    def float(self):
        return Tensor(self.numbers, "torch.float32", self.free)

    def numpy(self):
        if not self.free:
            raise RuntimeError("Can't call numpy() on Tensor that requires grad.")
        if self.dtype == "torch.bfloat16":
            raise TypeError("Got unsupported ScalarType BFloat16")
        return self.numbers

    __array__ = numpy


@pytest.mark.parametrize("shape", [(4, 4), (3, 4, 4), (2, 3, 4, 4), (2, 1, 3, 4, 4)])
def test_every_shape_is_the_trace_that_attn_show_makes_of_the_saved_array(shape, at):
    given = weights(*shape)
    np.save("weights.npy", given)
    trace = show(given, WORDS)
    layers = [] if len(shape) < 4 else ["--layer", "all"]
    heads = [] if len(shape) < 3 else ["--head", "all"]
    ran = attn("show", "weights.npy", "--tokens", WORDS, *layers, *heads, "-f", "csv", "--tidy")
    assert ran.code == 0
    found = [float(line.rsplit(",", 1)[1]) for line in ran.out.splitlines()[1:]]
    np.testing.assert_array_equal(np.ravel(found), given.ravel())
    np.testing.assert_array_equal([head.weights for head in trace.shown_heads], given.reshape(-1, 4, 4))
    assert trace.query_tokens == trace.key_tokens == tuple(WORDS.split())


def test_two_token_lists_name_queries_and_keys():
    trace = show(weights(2, 3), ["she", "likes"], ("a", "cup", "of coffee"))
    assert trace.query_tokens == ("she", "likes") and trace.key_tokens == ("a", "cup", "of coffee")
    assert show(weights(2, 3)).key_tokens == ("k0", "k1", "k2")


@pytest.mark.parametrize("kind", ["torch.float32", "torch.bfloat16"])
def test_a_tensor_that_needs_its_gradient_is_read_without_importing_torch(kind, monkeypatch):
    given = weights(3, 4, 4).astype(np.float32)
    monkeypatch.setitem(sys.modules, "torch", None)  # an import of it would fail
    trace = show(Tensor(given, kind), WORDS)
    np.testing.assert_array_equal([head.weights for head in trace.heads], given)
    several = show((Tensor(given[np.newaxis], kind), Tensor(given[np.newaxis], kind)), WORDS)
    assert [(head.layer, head.name) for head in several.shown_heads][-1] == (1, "2")


def test_a_tuple_of_layers_with_a_batch_is_a_models_attentions():
    layers = tuple(weights(2, 2, 3, 4, 4))  # (batch, heads, n_q, n_k) each
    trace = show(layers, WORDS, batch=1)
    expected = np.stack([layer[1] for layer in layers]).reshape(-1, 4, 4)
    np.testing.assert_array_equal([head.weights for head in trace.heads], expected)


def test_lists_are_read_as_arrays_are():
    given = weights(2, 4, 4)
    np.testing.assert_array_equal(show(given.tolist(), WORDS).weights, show(given, WORDS).weights)
    np.testing.assert_array_equal(show(list(given[0]), WORDS).weights, given[0])


def test_a_weight_of_16_bits_may_be_a_little_above_one_and_is_one():
    assert show([[1.0009, 0.0], [0.2, 0.8]]).weights.tolist() == [[1.0, 0.0], [0.2, 0.8]]
    with pytest.raises(ValueError, match=r"query 0, key 0 is 1\.002; weights lie between 0 and 1"):
        show([[1.002, 0.0], [0.2, 0.8]])


def test_settings_choose_as_the_options_do():
    given = weights(2, 3, 4, 4)
    np.testing.assert_array_equal(show(given, WORDS, None, Settings(layer=0, head="2")).weights, given[0, 2])
    mean = show(given, WORDS, settings=Settings(layer="mean", head="mean"))
    np.testing.assert_allclose(mean.weights, given.mean(axis=(0, 1)))
    assert show(np.tril(np.full((4, 4), 0.25)), WORDS).mask_name == "causal"


@pytest.mark.parametrize(
    ("given", "tokens", "context", "says"),
    [
        (weights(4, 4), "the cat", None, "tokens holds 2 tokens; the array has 4 queries (rows)."),
        (weights(4, 4), "a b c d e", None, "tokens holds 5 tokens; the array has 4 queries (rows)."),
        (weights(2, 3), "a b", "c", "context_tokens holds 1 token; the array has 3 keys (columns)."),
        (weights(2, 2), [1, 2], None, "tokens: token 0 is not a string."),
        (weights(2, 2), "", None, "tokens holds no token."),
        ([0.5, 0.5], None, None, "the array: weights has shape (2,)."),
        ([[0.5, 0.5], [1.0]], None, None, "[0] has 2 numbers, [1] has 1 number."),
        ([[3.0, -2.0]], None, None, "query 0, key 0 is 3; weights lie between 0 and 1."),
        (weights(1, 2, 2, 2, 2), None, None, "2 texts."),
        ((weights(2, 2), weights(3, 3)), None, None, "layer 0 has shape (2, 2), layer 1 (3, 3)."),
        ("she likes", None, None, "is not a matrix of numbers"),
        (None, None, None, "is not a matrix of numbers"),
    ],
)
def test_what_are_no_weights_is_refused_in_one_line(given, tokens, context, says):
    with pytest.raises(ValueError) as caught:
        show(given, tokens, context)
    assert isinstance(caught.value, AttnError) and caught.value.code == 65
    assert says in str(caught.value) and "\n" not in str(caught.value)
