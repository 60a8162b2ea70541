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
