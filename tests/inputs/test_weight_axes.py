"""Which axis of saved weights is which, and whose tokens name them: the file's, or those that were typed."""

import numpy as np
import pytest

from tests.inputs.test_saved_weights import close, record, refused, saved, shares

SOURCE = ["A", "cat", "sat", "</s>"]


@pytest.fixture
def translator(tmp_path):
    """A file of an encoder and a decoder: three arrays, and the tokens of the source alone."""
    arrays = {
        "encoder_attentions": shares(2, 2, 4, 4),
        "decoder_attentions": shares(2, 2, 3, 3, seed=1),
        "cross_attentions": shares(2, 2, 3, 4, seed=2),
    }
    return saved(tmp_path / "t5.npz", arrays | {"tokens": np.array(SOURCE)}), arrays


def test_typed_tokens_overrule_tokens_of_another_count(translator):
    path, arrays = translator
    of = ("--array", "decoder_attentions", "--tokens", "Eine Katze saß")
    found = record(path, *of)
    assert found["query_tokens"] == found["key_tokens"] == ["Eine", "Katze", "saß"]
    close(found["weights"], arrays["decoder_attentions"][1, 0])


def test_typed_tokens_name_both_sides_of_cross_attention(translator):
    path, arrays = translator
    of = ("--array", "cross_attentions", "--tokens", "Eine Katze saß")
    assert record(path, *of)["key_tokens"] == ["k0", "k1", "k2", "k3"]
    found = record(path, *of, "--context-tokens", " ".join(SOURCE))
    assert (found["query_tokens"], found["key_tokens"]) == (["Eine", "Katze", "saß"], SOURCE)
    close(found["weights"], arrays["cross_attentions"][1, 0])


def test_tokens_that_do_not_fit_say_which_option_overrules_them(translator):
    path, _ = translator
    assert "--tokens overrules" in refused(path, "--array", "cross_attentions")
    assert "--tokens holds 2 tokens" in refused(path, "--array", "decoder_attentions", "--tokens", "a b")


def test_typed_keys_overrule_the_files_own(tmp_path):
    held = {"weights": shares(2, 3).tolist(), "tokens": ["a", "b"], "context_tokens": ["c", "d"]}
    path = saved(tmp_path / "a.json", held)
    assert "--context-tokens overrules" in refused(path)
    assert record(path, "--context-tokens", "x y z")["key_tokens"] == ["x", "y", "z"]


def test_typed_tokens_overrule_broken_ones(tmp_path):
    path = saved(tmp_path / "a.json", {"weights": [[1.0]], "tokens": [""]})
    assert "token 0 is empty" in refused(path)
    assert record(path, "--tokens", "a")["key_tokens"] == ["a"]


@pytest.mark.parametrize("text", [0, 1, 2])
def test_a_typed_batch_makes_the_first_of_four_axes_the_batch(text, tmp_path):
    weights = shares(3, 2, 4, 4)
    path = saved(tmp_path / "a.npy", weights)
    found = record(path, "--batch", str(text), "--head", "all")
    close([head["weights"] for head in found["heads"]], weights[text])
    assert not any("Layer" in note for note in found["notes"])


def test_a_typed_batch_makes_the_first_of_three_axes_the_batch_of_averaged_heads(tmp_path):
    weights = shares(3, 4, 4)
    found = record(saved(tmp_path / "a.npy", weights), "--batch", "0")
    close(found["weights"], weights[0])


def test_a_batch_chooses_its_tokens_too(tmp_path):
    held = {"weights": shares(2, 1, 2, 2).tolist(), "tokens": [["a", "b"], ["c", "d"]]}
    path = saved(tmp_path / "a.json", held)
    assert record(path, "--batch", "0")["query_tokens"] == ["a", "b"]
    assert record(path, "--batch", "1")["query_tokens"] == ["c", "d"]


def test_layers_in_arrays_of_their_own_may_each_hold_a_batch(tmp_path):
    layers = {f"layer_{n}": shares(3, 2, 4, 4, seed=n) for n in range(2)}
    path = saved(tmp_path / "a.npz", layers)
    found = record(path, "--batch", "2", "--layer", "0", "--head", "1")
    close(found["weights"], layers["layer_0"][2, 1])


@pytest.mark.parametrize("batch", ["-1", "3"])
def test_a_text_that_the_batch_lacks_is_refused(batch, tmp_path):
    path = saved(tmp_path / "a.npy", shares(3, 2, 4, 4))
    assert "has 0 to 2" in refused(path, "--batch", batch, code=2)


@pytest.mark.parametrize("batch", ["0", "1"])
def test_a_matrix_has_no_batch(batch, tmp_path):
    assert "has no batch" in refused(saved(tmp_path / "a.npy", shares(4, 4)), "--batch", batch, code=2)
