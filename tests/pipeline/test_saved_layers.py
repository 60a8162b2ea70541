"""All layers of saved weights at once, or their mean: the heads of one, each named by its layer."""

import numpy as np
import pytest

from tests.inputs.test_saved_weights import close, record, refused, saved, shares
from tests.shell import here

WEIGHTS = shares(3, 2, 4, 4)
TOKENS = ["a", "b", "c", "d"]


@pytest.fixture
def path(tmp_path):
    return saved(tmp_path / "a.npz", {"attentions": WEIGHTS, "tokens": np.array(TOKENS)})


def labelled(found):
    return [(head["layer"], head["name"]) for head in found["heads"]]


def test_the_shown_head_of_each_layer(path):
    found = record(path, "--layer", "all", "--head", "1")
    assert labelled(found) == [(0, "1"), (1, "1"), (2, "1")]
    close([head["weights"] for head in found["heads"]], WEIGHTS[:, 1])


def test_all_heads_of_all_layers(path):
    found = record(path, "--layer", "all", "--head", "all")
    assert labelled(found) == [(layer, head) for layer in range(3) for head in "01"]
    close([head["weights"] for head in found["heads"]], WEIGHTS.reshape(6, 4, 4))
    out = here("show", path, "--layer", "all", "--head", "all").out
    assert all(f"{layer}.{head}" in out for layer in range(3) for head in range(2))


@pytest.mark.parametrize(("head", "expected"), [("1", WEIGHTS[:, 1].mean(0)), ("mean", WEIGHTS.mean((0, 1)))])
def test_the_mean_of_the_layers(path, head, expected):
    found = record(path, "--layer", "mean", "--head", head)
    close(found["weights"], expected)
    assert found["projection"]["layer"] is None
    assert "mean of layers 0 to 2" in here("show", path, "--layer", "mean", "--head", head).out


def test_the_mean_of_causal_layers_is_causal(tmp_path):
    weights = shares(3, 2, 4, 4, mask=np.tri(4))
    found = record(saved(tmp_path / "a.npy", weights), "--layer", "mean")
    assert found["mask_name"] == "causal"
    close(found["weights"], weights[:, 0].mean(0))


def test_a_head_of_one_layer_says_which(path):
    found = record(path, "--layer", "1", "--head", "all")
    assert labelled(found) == [(1, "0"), (1, "1")]


@pytest.mark.parametrize("head", ["0", "all", "mean"])
@pytest.mark.parametrize("form", ["json", "csv", "tsv"])
def test_what_shows_layers_is_read_again_with_its_layers(path, head, form, tmp_path):
    told = record(path, "--layer", "all", "--head", head)
    again = str(tmp_path / f"again.{form}")
    assert here("show", path, "--layer", "all", "--head", head, "-f", form, "-o", again).code == 0
    found = record(again, "--layer", "all")
    assert [one["weights"] for one in found["heads"]] == [one["weights"] for one in told["heads"]]
    close(
        record(again, "--layer", "1")["weights"], np.array(told["heads"][len(told["heads"]) // 3]["weights"])
    )


def test_a_learned_models_layers_are_read_again(tmp_path):
    path = str(tmp_path / "a.json")
    assert (
        here("self", "she likes coffee", "-p", "roles-deep", "--layer", "all", "-f", "json", "-o", path).code
        == 0
    )
    found = record(path)
    assert len({head["layer"] for head in found["heads"]}) > 1
    assert not any("do not lead" in note for note in found["notes"])


def test_layers_with_other_heads_are_refused(tmp_path):
    text = "layer,head,query,a,b\n0,0,a,1,0\n0,0,b,0,1\n1,0,a,1,0\n1,0,b,0,1\n1,1,a,1,0\n1,1,b,0,1\n"
    (tmp_path / "w.csv").write_text(text)
    assert "do not have the same heads" in refused(str(tmp_path / "w.csv"))
