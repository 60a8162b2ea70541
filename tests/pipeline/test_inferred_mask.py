"""A mask is read off the zeros of saved weights: above the diagonal, at padding on either side, in whole rows."""

import numpy as np
import pytest

from tests.inputs.test_saved_weights import close, record, refused, saved

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
@pytest.mark.parametrize("pad", ["<pad>", "[PAD]", "<|endoftext|>", "</s>"])
def test_padding_on_the_left_is_recognised_under_a_causal_mask(rows, pad, tmp_path):
    weights = left_padded(rows)
    found = record(file(tmp_path, weights, pad))
    assert found["mask"] == EXPECTED.tolist()
    close(np.array(found["weights"])[PADS:], weights[1, 0, PADS:])
    assert not np.array(found["weights"])[:PADS].any()
    assert any("as padding on the left does" in note for note in found["notes"])
    assert not any("sum to one" in note for note in found["notes"])


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("is_batch", [False, True])
def test_an_attention_mask_in_the_file_says_what_is_padding(rows, is_batch, tmp_path):
    stated = np.arange(N) >= PADS
    stated = stated[None] if is_batch else stated
    found = record(file(tmp_path, left_padded(rows), "the", attention_mask=stated))
    assert found["mask"] == EXPECTED.tolist()
    assert any("attention_mask says" in note for note in found["notes"])
    assert not any("Ignored" in note for note in found["notes"])


def test_a_batch_takes_its_own_attention_mask(tmp_path):
    weights = np.stack([left_padded("everything"), np.full((2, 2, N, N), 1 / N)], axis=1)
    stated = np.array([np.arange(N) >= PADS, np.ones(N, bool)]).astype(int)
    path = file(tmp_path, weights, "the", attention_mask=stated)
    assert record(path, "--batch", "0")["mask"] == EXPECTED.tolist()
    assert record(path, "--batch", "1")["mask"] is None


ONE = {"weights": left_padded("everything")[..., 1:, 1:]}  # token of padding
SAME = ("<|endoftext|>",) * 3 + ("a", "b", "c")


@pytest.mark.parametrize(
    ("weights", "tokens", "pads", "beside"),
    [
        (ONE["weights"], ("[PAD]", *WORDS), 1, {}),
        (ONE["weights"], ("[CLS]", *WORDS), 0, {}),  # a start of the text, not padding
        (ONE["weights"], ("x", *WORDS), 1, {"attention_mask": np.arange(N - 1) > 0}),
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
