"""Saved weights: the mask that their zeros imply, and all layers at once, or their mean."""

import numpy as np
import pytest

from tests.inputs.test_saved_weights import close, record, refused, saved, shares
from tests.shell import here

N, PADS = 6, 2
WORDS = ["she", "likes", "hot", "coffee"]


def left_padded(rows):
    """Weights (layers, heads, n, n) of a causal model over a text padded on the left; `rows` says what padding sees."""
    exps = np.exp(np.random.default_rng(3).normal(0, 1, (2, 2, N, N)))
    weights = exps * np.tri(N)
    weights[..., :PADS] = 0
    weights[..., :PADS, :] = {
        "everything": np.ones((PADS, N)),
        "padding": np.tri(PADS, N),
        "all but padding": np.arange(N) >= PADS,
        "nothing": np.zeros((PADS, N)),
    }[rows]
    sums = weights.sum(axis=-1, keepdims=True)
    return weights / np.where(sums == 0, 1, sums)


ROWS = ["everything", "padding", "all but padding", "nothing"]
EXPECTED = np.tri(N, dtype=bool) & (np.arange(N) >= PADS)


def file(path, weights, pad="<pad>", **beside):
    tokens = np.array([*[pad] * PADS, *WORDS])
    return saved(path / "a.npz", {"attentions": weights, "tokens": tokens, **beside})


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize(
    ("pad", "beside", "said"),
    [
        *((pad, {}, "as padding on the left does") for pad in ("<pad>", "[PAD]", "<|endoftext|>", "</s>")),
        ("the", {"attention_mask": np.arange(N) >= PADS}, "attention_mask says"),
        ("the", {"attention_mask": np.arange(N)[None] >= PADS}, "attention_mask says"),  # a batch of one
    ],
)
def test_padding_on_the_left_is_recognised_under_a_causal_mask_or_said_by_the_file(
    rows, pad, beside, said, tmp_path
):
    weights = left_padded(rows)
    found = record(file(tmp_path, weights, pad, **beside))
    assert found["mask"] == EXPECTED.tolist()
    close(np.array(found["weights"])[PADS:], weights[1, 0, PADS:])
    assert not np.array(found["weights"])[:PADS].any()
    assert any(said in note for note in found["notes"])
    assert not any("sum to one" in note or "Ignored" in note for note in found["notes"])


def test_a_batch_takes_its_own_attention_mask(tmp_path):
    weights = np.stack([left_padded("everything"), np.full((2, 2, N, N), 1 / N)], axis=1)
    stated = np.array([np.arange(N) >= PADS, np.ones(N, bool)]).astype(int)
    path = file(tmp_path, weights, "the", attention_mask=stated)
    assert record(path, "--batch", "0")["mask"] == EXPECTED.tolist()
    assert record(path, "--batch", "1")["mask"] is None


ONE = left_padded("everything")[..., 1:, 1:]  # token of padding
SAME = ("<|endoftext|>",) * 3 + ("a", "b", "c")


@pytest.mark.parametrize(
    ("weights", "tokens", "pads", "beside"),
    [
        (ONE, ("[PAD]", *WORDS), 1, {}),
        (ONE, ("[CLS]", *WORDS), 0, {}),  # a start of the text, not padding
        (ONE, ("x", *WORDS), 1, {"attention_mask": np.arange(N - 1) > 0}),
        (left_padded("padding"), SAME, PADS, {}),  # the text starts with the same token
    ],
)
def test_tokens_of_padding_are_told_from_the_start_of_a_text(weights, tokens, pads, beside, tmp_path):
    n = len(tokens)
    weights = weights.copy()
    weights[..., :1, :] = 1 / n if pads == 1 else weights[..., :1, :]
    found = record(saved(tmp_path / "a.npz", {"attentions": weights, "tokens": np.array(tokens), **beside}))
    shown = np.ones((n, n), bool) if found["mask"] is None else np.array(found["mask"])
    assert (~shown.any(axis=0)).sum() == pads


def test_a_stated_causal_mask_excuses_the_rows_of_padding_and_no_others(tmp_path):
    path = file(tmp_path, left_padded("everything"))
    assert record(path, "--mask", "causal")["mask"] == EXPECTED.tolist()
    shown = record(path, "--mask", "none")
    assert shown["mask"] is None
    close(shown["weights"], left_padded("everything")[1, 0])
    weights = left_padded("nothing")
    weights[..., 3, :] = 1 / N
    assert "shuts query 3" in refused(file(tmp_path, weights), "--mask", "causal")


@pytest.mark.parametrize(
    ("stated", "said"),
    [
        (np.arange(N) >= PADS, "is not used"),  # weights that look at what it hides win
        (np.ones(3, int), "Ignored"),
        (np.zeros(N, int), "Ignored"),
        (np.full(N, 2), "Ignored"),
        (np.ones((2, N), int), "Ignored"),
    ],
)
def test_an_attention_mask_that_does_not_fit_the_weights_is_said_not_to_be_used(stated, said, tmp_path):
    found = record(file(tmp_path, np.full((1, 1, N, N), 1 / N), "the", attention_mask=stated))
    assert found["mask"] is None
    assert any(said in note and "attention_mask" in note for note in found["notes"])


@pytest.mark.parametrize(
    ("weights", "tokens", "mask"),
    [
        (np.eye(3), ["[CLS]", "a", "[SEP]"], None),  # each token at itself is no padding
        (np.tri(4) * [1, 1, 0, 0], ["a", "b", "<pad>", "<pad>"], np.tri(4) * [1, 1, 0, 0]),
    ],
)
def test_zeros_elsewhere_are_masked_as_they_are(weights, tokens, mask, tmp_path):
    weights = weights / weights.sum(axis=-1, keepdims=True)
    found = record(saved(tmp_path / "a.npz", {"weights": weights, "tokens": np.array(tokens)}))
    assert found["mask"] == (mask if mask is None else mask.astype(bool).tolist())
    close(found["weights"], weights)


WEIGHTS = shares(3, 2, 4, 4)
TOKENS = ["a", "b", "c", "d"]


@pytest.fixture
def path(tmp_path):
    return saved(tmp_path / "a.npz", {"attentions": WEIGHTS, "tokens": np.array(TOKENS)})


@pytest.mark.parametrize(
    ("layer", "head", "labels", "weights"),
    [
        ("all", "1", [(0, "1"), (1, "1"), (2, "1")], WEIGHTS[:, 1]),
        ("all", "all", [(layer, head) for layer in range(3) for head in "01"], WEIGHTS.reshape(6, 4, 4)),
        ("1", "all", [(1, "0"), (1, "1")], WEIGHTS[1]),
    ],
)
def test_heads_of_layers_say_which_they_are_of(path, layer, head, labels, weights):
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
    told = record(path, "--layer", "all", "--head", head)
    again = str(tmp_path / f"again.{form}")
    assert here("show", path, "--layer", "all", "--head", head, "-f", form, "-o", again).code == 0
    found = record(again, "--layer", "all")
    assert [one["weights"] for one in found["heads"]] == [one["weights"] for one in told["heads"]]
    first = told["heads"][len(told["heads"]) // 3]  # of layer 1
    close(record(again, "--layer", "1")["weights"], np.array(first["weights"]))


def test_a_learned_models_layers_are_read_again(tmp_path):
    path = str(tmp_path / "a.json")
    args = ("self", "she likes coffee", "-p", "roles-deep", "--layer", "all", "-f", "json", "-o", path)
    assert here(*args).code == 0
    found = record(path)
    assert len({head["layer"] for head in found["heads"]}) > 1
    assert not any("do not lead" in note for note in found["notes"])


def test_layers_with_other_heads_are_refused(tmp_path):
    text = "layer,head,query,a,b\n0,0,a,1,0\n0,0,b,0,1\n1,0,a,1,0\n1,0,b,0,1\n1,1,a,1,0\n1,1,b,0,1\n"
    (tmp_path / "w.csv").write_text(text)
    assert "do not have the same heads" in refused(str(tmp_path / "w.csv"))
