"""Which axis of saved weights is which, and whose tokens name them: the file's, or those that were typed."""

import numpy as np
import pytest

from tests.inputs.test_saved_weights import close, record, refused, saved, shares

SOURCE, TARGET = ["A", "cat", "sat", "</s>"], ["Eine", "Katze", "saß"]


def test_a_translator_s_arrays_have_the_tokens_that_are_typed_or_fit(tmp_path):
    arrays = {"encoder_attentions": shares(2, 2, 4, 4), "decoder_attentions": shares(2, 2, 3, 3, seed=1)}
    arrays |= {"cross_attentions": shares(2, 2, 3, 4, seed=2)}
    path = saved(tmp_path / "t5.npz", arrays | {"tokens": np.array(SOURCE)})
    decoder, cross = ((path, "--array", f"{name}_attentions") for name in ("decoder", "cross"))
    typed = ("--tokens", " ".join(TARGET))
    assert record(*cross, *typed)["key_tokens"] == ["k0", "k1", "k2", "k3"]
    asked = [(decoder, (), TARGET, "decoder_attentions")]
    asked += [(cross, ("--context-tokens", " ".join(SOURCE)), SOURCE, "cross_attentions")]
    for of, more, keys, name in asked:
        found = record(*of, *typed, *more)
        assert (found["query_tokens"], found["key_tokens"]) == (TARGET, keys)
        close(found["weights"], arrays[name][1, 0])
    assert "--tokens overrules" in refused(*cross)
    assert "--tokens holds 2 tokens" in refused(*decoder, "--tokens", "a b")


def test_typed_tokens_overrule_a_files_own_even_broken_ones_and_a_batch_chooses_its_own(tmp_path):
    held = {"weights": shares(2, 3).tolist(), "tokens": ["a", "b"], "context_tokens": ["c", "d"]}
    path = saved(tmp_path / "a.json", held)
    assert "--context-tokens overrules" in refused(path)
    assert record(path, "--context-tokens", "x y z")["key_tokens"] == ["x", "y", "z"]
    path = saved(tmp_path / "a.json", {"weights": [[1.0]], "tokens": [""]})
    assert "token 0 is empty" in refused(path)
    assert record(path, "--tokens", "a")["key_tokens"] == ["a"]
    tokens = [["a", "b"], ["c", "d"]]
    path = saved(tmp_path / "a.json", {"weights": shares(2, 1, 2, 2).tolist(), "tokens": tokens})
    for n in (0, 1):
        assert record(path, "--batch", str(n))["query_tokens"] == tokens[n]


@pytest.mark.parametrize("text", [0, 1, 2])
def test_a_typed_batch_makes_the_first_of_three_or_four_axes_the_batch_also_of_each_layer(text, tmp_path):
    weights, means = shares(3, 2, 4, 4), shares(3, 4, 4)
    path = saved(tmp_path / "a.npy", weights)
    found = record(path, "--batch", str(text), "--head", "all")
    close([head["weights"] for head in found["heads"]], weights[text])
    assert not any("Layer" in note for note in found["notes"])
    close(record(saved(tmp_path / "b.npy", means), "--batch", str(text))["weights"], means[text])
    layers = {f"layer_{n}": shares(3, 2, 4, 4, seed=n) for n in range(2)}
    found = record(saved(tmp_path / "a.npz", layers), "--batch", str(text), "--layer", "0", "--head", "1")
    close(found["weights"], layers["layer_0"][text, 1])


@pytest.mark.parametrize(
    ("shape", "batch", "said"),
    [((3, 2, 4, 4), "-1", "has 0 to 2"), ((3, 2, 4, 4), "3", "has 0 to 2"), ((4, 4), "0", "has no batch")],
)
def test_a_text_that_the_batch_lacks_is_refused(shape, batch, said, tmp_path):
    assert said in refused(saved(tmp_path / "a.npy", shares(*shape)), "--batch", batch, code=2)
