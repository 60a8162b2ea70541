"""Saved weights: the mask that their zeros imply, all layers at once or their mean; and `show`, for Python."""

import sys

import numpy as np
import pytest

from attn_cli import AttnError, Settings, show
from tests.inputs.test_saved_weights import close, record, refused, saved, shares
from tests.shell import here, told

N, PADS = 6, 2
WORDS = ["she", "likes", "hot", "coffee"]


def left_padded(rows):
    """Weights (layers, heads, n, n) of a causal model over a text padded on the left; `rows` says what padding sees."""
    exps = np.exp(np.random.default_rng(3).normal(0, 1, (2, 2, N, N)))
    weights = exps * np.tri(N)
    weights[..., :PADS] = 0
    seen = {"everything": np.ones(N), "all but padding": np.arange(N) >= PADS, "nothing": np.zeros(N)}
    weights[..., :PADS, :] = np.tri(PADS, N) if rows == "padding" else seen[rows]
    sums = weights.sum(axis=-1, keepdims=True)
    return weights / np.where(sums == 0, 1, sums)


EXPECTED = np.tri(N, dtype=bool) & (np.arange(N) >= PADS)


def file(path, weights, tokens=("<pad>",) * PADS, **beside):
    """Weights of so many tokens: these, and then WORDS."""
    tokens = np.array([*tokens, *WORDS][: weights.shape[-1]])
    return saved(path / "a.npz", {"attentions": weights, "tokens": tokens, **beside})


@pytest.mark.parametrize("rows", ["everything", "padding", "all but padding", "nothing"])
@pytest.mark.parametrize(
    ("pad", "beside", "said"),
    [
        *((pad, {}, "as padding on the left does") for pad in ("<pad>", "[PAD]", "<|endoftext|>", "</s>")),
        ("the", {"attention_mask": np.arange(N) >= PADS}, "attention_mask says"),
        ("the", {"attention_mask": np.arange(N)[None] >= PADS}, "attention_mask says"),  # a batch of one
    ],
)
def test_padding_on_the_left_is_recognised_or_said_by_the_file(rows, pad, beside, said, tmp_path):
    weights = left_padded(rows)
    found = record(file(tmp_path, weights, [pad] * PADS, **beside))
    assert found["mask"] == EXPECTED.tolist()
    close(np.array(found["weights"])[PADS:], weights[1, 0, PADS:])
    assert not np.array(found["weights"])[:PADS].any()
    assert any(said in note for note in found["notes"])
    assert not any("sum to one" in note or "Ignored" in note for note in found["notes"])


def test_a_batch_takes_its_own_attention_mask(tmp_path):
    weights = np.stack([left_padded("everything"), np.full((2, 2, N, N), 1 / N)], axis=1)
    stated = np.array([np.arange(N) >= PADS, np.ones(N, bool)]).astype(int)
    path = file(tmp_path, weights, ["the"] * PADS, attention_mask=stated)
    assert record(path, "--batch", "0")["mask"] == EXPECTED.tolist()
    other = record(path, "--batch", "1")
    assert other["mask"] is None and not any("attention_mask" in note for note in other["notes"])


ONE = left_padded("everything")[..., 1:, 1:]  # token of padding


def test_tokens_of_padding_are_told_from_the_start_of_a_text(tmp_path):
    for weights, tokens, pads, beside in (
        (ONE, ["[PAD]"], 1, {}),
        (ONE, ["[CLS]"], 0, {}),  # a start of the text, not padding
        (ONE, ["x"], 1, {"attention_mask": np.arange(N - 1) > 0}),
        (left_padded("padding"), ["<|endoftext|>"] * 3, PADS, {}),  # the text starts with the same token
    ):
        weights = weights.copy()
        weights[..., :1, :] = 1 / (N - 1) if pads == 1 else weights[..., :1, :]
        found = record(file(tmp_path, weights, tokens, **beside))["mask"]
        assert (0 if found is None else (~np.any(found, axis=0)).sum()) == pads


def test_a_stated_causal_mask_excuses_the_rows_of_padding_and_no_others(tmp_path):
    path = file(tmp_path, left_padded("everything"))
    assert record(path, "--mask", "causal")["mask"] == EXPECTED.tolist()
    shown = record(path, "--mask", "none")
    assert shown["mask"] is None
    close(shown["weights"], left_padded("everything")[1, 0])
    weights = left_padded("nothing")
    weights[..., 3, :] = 1 / N
    assert "shuts query 3" in refused(file(tmp_path, weights), "--mask", "causal")


def test_an_attention_mask_that_does_not_fit_the_weights_is_said_not_to_be_used(tmp_path):
    misfits = np.ones(3, int), np.zeros(N, int), np.full(N, 2), np.ones((2, N), int)
    for stated in (np.arange(N) >= PADS, *misfits):  # weights that look at what the first hides win
        said = "is not used" if stated.dtype == bool else "Ignored"
        found = record(file(tmp_path, np.full((1, 1, N, N), 1 / N), ["the"] * PADS, attention_mask=stated))
        assert found["mask"] is None
        assert any(said in note and "attention_mask" in note for note in found["notes"])


WEIGHTS = shares(3, 2, 4, 4)


@pytest.fixture
def path(tmp_path):
    return file(tmp_path, WEIGHTS, "abcd")


def test_heads_of_layers_say_which_they_are_of(path):
    for layer, head, labels, weights in (
        ("all", "1", [(0, "1"), (1, "1"), (2, "1")], WEIGHTS[:, 1]),
        ("all", "all", [(layer, head) for layer in range(3) for head in "01"], WEIGHTS.reshape(6, 4, 4)),
        ("1", "all", [(1, "0"), (1, "1")], WEIGHTS[1]),
    ):
        found = record(path, "--layer", layer, "--head", head)
        assert [(one["layer"], one["name"]) for one in found["heads"]] == labels
        close([one["weights"] for one in found["heads"]], weights)
        shown = here("show", path, "--layer", layer, "--head", head).out
        assert layer != head or all(f"{one}.{name}" in shown for one, name in labels)


@pytest.mark.parametrize(("head", "expected"), [("1", WEIGHTS[:, 1].mean(0)), ("mean", WEIGHTS.mean((0, 1)))])
def test_the_mean_of_the_layers_which_is_causal_where_they_are(path, head, expected, tmp_path):
    found = record(path, "--layer", "mean", "--head", head)
    close(found["weights"], expected)
    assert found["projection"]["layer"] is None
    assert "mean of layers 0 to 2" in here("show", path, "--layer", "mean", "--head", head).out
    causal = np.tril(WEIGHTS) / np.tril(WEIGHTS).sum(axis=-1, keepdims=True)
    found = record(saved(tmp_path / "causal.npy", causal), "--layer", "mean", "--head", head)
    assert found["mask_name"] == "causal"
    close(found["weights"], causal[:, 1].mean(0) if head == "1" else causal.mean((0, 1)))


@pytest.mark.parametrize("head", ["0", "all", "mean"])
@pytest.mark.parametrize("form", ["json", "csv", "tsv"])
def test_what_shows_layers_is_read_again_with_its_layers(path, head, form, tmp_path):
    first = record(path, "--layer", "all", "--head", head)
    again = str(tmp_path / f"again.{form}")
    assert here("show", path, "--layer", "all", "--head", head, "-f", form, "-o", again).code == 0
    found = record(again, "--layer", "all")
    assert [one["weights"] for one in found["heads"]] == [one["weights"] for one in first["heads"]]
    of_layer_1 = first["heads"][len(first["heads"]) // 3]
    close(record(again, "--layer", "1")["weights"], np.array(of_layer_1["weights"]))


def test_a_learned_models_layers_are_read_again(tmp_path):
    path = str(tmp_path / "a.json")
    told("self", "she likes coffee", "-p", "roles-deep", "--layer", "all", "-f", "json", "-o", path)
    found = record(path)
    assert len({head["layer"] for head in found["heads"]}) > 1
    assert not any("do not lead" in note for note in found["notes"])


# `attn_cli.show`: weights from Python, by the path of `attn show`

SENTENCE = "the cat sat down"


def drawn(*shape):
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
    given = drawn(*shape)
    np.save("weights.npy", given)
    trace = show(given, SENTENCE)
    layers = [] if len(shape) < 4 else ["--layer", "all"]
    heads = [] if len(shape) < 3 else ["--head", "all"]
    csv = told("show", "weights.npy", "--tokens", SENTENCE, *layers, *heads, "-f", "csv", "--tidy")
    found = [float(line.rsplit(",", 1)[1]) for line in csv.splitlines()[1:]]
    np.testing.assert_array_equal(np.ravel(found), given.ravel())
    np.testing.assert_array_equal([head.weights for head in trace.shown_heads], given.reshape(-1, 4, 4))
    assert trace.query_tokens == trace.key_tokens == tuple(SENTENCE.split())


@pytest.mark.parametrize("kind", ["torch.float32", "torch.bfloat16"])
def test_a_tensor_that_needs_its_gradient_is_read_without_importing_torch(kind, monkeypatch):
    given = drawn(3, 4, 4).astype(np.float32)
    monkeypatch.setitem(sys.modules, "torch", None)  # an import of it would fail
    trace = show(Tensor(given, kind), SENTENCE)
    np.testing.assert_array_equal([head.weights for head in trace.heads], given)
    several = show((Tensor(given[np.newaxis], kind), Tensor(given[np.newaxis], kind)), SENTENCE)
    assert [(head.layer, head.name) for head in several.shown_heads][-1] == (1, "2")


def test_a_tuple_of_layers_with_a_batch_is_a_models_attentions_and_settings_choose_as_the_options_do():
    layers = tuple(drawn(2, 2, 3, 4, 4))  # (batch, heads, n_q, n_k) each
    trace = show(layers, SENTENCE, batch=1)
    expected = np.stack([layer[1] for layer in layers]).reshape(-1, 4, 4)
    np.testing.assert_array_equal([head.weights for head in trace.heads], expected)
    given = drawn(2, 3, 4, 4)
    chosen = show(given, SENTENCE, None, Settings(layer=0, head="2"))
    np.testing.assert_array_equal(chosen.weights, given[0, 2])
    mean = show(given, SENTENCE, settings=Settings(layer="mean", head="mean"))
    np.testing.assert_allclose(mean.weights, given.mean(axis=(0, 1)))
    assert show(np.tril(np.full((4, 4), 0.25)), SENTENCE).mask_name == "causal"


def test_lists_are_read_as_arrays_are_and_two_token_lists_name_queries_and_keys():
    trace = show(drawn(2, 3), ["she", "likes"], ("a", "cup", "of coffee"))
    assert trace.query_tokens == ("she", "likes") and trace.key_tokens == ("a", "cup", "of coffee")
    assert show(drawn(2, 3)).key_tokens == ("k0", "k1", "k2")
    given = drawn(2, 4, 4)
    np.testing.assert_array_equal(show(given.tolist(), SENTENCE).weights, show(given, SENTENCE).weights)
    np.testing.assert_array_equal(show(list(given[0]), SENTENCE).weights, given[0])


def test_a_weight_of_16_bits_may_be_a_little_above_one_and_is_one():
    found = show([[1.0009, -0.0], [0.2, 0.8]]).weights
    assert found.tolist() == [[1.0, 0.0], [0.2, 0.8]] and not np.signbit(found).any()
    with pytest.raises(ValueError, match=r"query 0, key 0 is 1\.002; weights lie between 0 and 1"):
        show([[1.002, 0.0], [0.2, 0.8]])


def test_what_are_no_weights_is_refused_in_one_line():
    for given, tokens, context, says in (
        (drawn(4, 4), "the cat", None, "tokens holds 2 tokens; the array has 4 queries (rows)."),
        (drawn(4, 4), "a b c d e", None, "tokens holds 5 tokens; the array has 4 queries (rows)."),
        (drawn(2, 3), "a b", "c", "context_tokens holds 1 token; the array has 3 keys (columns)."),
        (drawn(2, 2), [1, 2], None, "tokens: token 0 is not a string."),
        (drawn(2, 2), "", None, "tokens holds no token."),
        ([0.5, 0.5], None, None, "the array: weights has shape (2,)."),
        ([[0.5, 0.5], [1.0]], None, None, "[0] has 2 numbers, [1] has 1 number."),
        ([[3.0, -2.0]], None, None, "query 0, key 0 is 3; weights lie between 0 and 1."),
        (drawn(1, 2, 2, 2, 2), None, None, "2 texts."),
        ((drawn(2, 2), drawn(3, 3)), None, None, "layer 0 has shape (2, 2), layer 1 (3, 3)."),
        ("she likes", None, None, "is not a matrix of numbers"),
        (None, None, None, "is not a matrix of numbers"),
    ):
        with pytest.raises(ValueError) as caught:
            show(given, tokens, context)
        assert isinstance(caught.value, AttnError) and caught.value.code == 65
        assert says in str(caught.value) and "\n" not in str(caught.value)
