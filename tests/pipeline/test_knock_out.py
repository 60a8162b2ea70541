"""--knock-out: a head without its rows of W_o gives nothing, and neither does one that is knocked out."""

import json
import shlex

import numpy as np
import pytest

from attn_cli import Settings
from attn_cli.pipeline.embed import open_shared
from attn_cli.pipeline.sources.text import trace_text
from tests.alike import FLOAT32, assert_alike
from tests.models.checkpoints.by_hand import gpt2, small_gpt2
from tests.pipeline.records import record
from tests.shell import attn, here, told as printed_by

TEXT, WITH_MEAN = "The cat sat on the", ("--knock-out-with", "mean")


@pytest.fixture(scope="module")
def models(tokenizers, tmp_path_factory):
    """Two folders of one name: a GPT-2, and the same without what its head 0.1 writes."""
    less = gpt2()
    less["h.0.attn.c_proj.weight"][4:] = 0
    made = ("whole", gpt2()), ("less", less)
    return [small_gpt2(tmp_path_factory.mktemp(name) / "gpt2", tensors) for name, tensors in made]


def printed(command, model, *more):
    words = (*shlex.split(command), "-m", model, *more)
    ran = attn(*words, input="dabca\n") if words[0] == "batch" else here(*words)
    assert ran.code == 0, ran.err
    out = ran.out.replace(model, "MODEL")
    return [plain(json.loads(text)) for text in ([out] if "json" in command else out.splitlines())]


def plain(found):
    """Return a record without what says that something was knocked out."""
    if isinstance(found, dict):
        return {name: plain(one) for name, one in found.items() if name not in ("notes", "knock_out")}
    return [plain(one) for one in found] if isinstance(found, list) else found


AS_IF = """self dabca --layer all --head all --next 3 -f json
self dabca --layer 0 --head all --steps -f json
self dabca --layer 0 --head all --steps -t 2 -f json
explain dabca --without 1 --next-at all -f json
heads dabca -f json
generate dabca --count 3 --layer 1
batch --layer 1 --next 2
compare dabca --vary temperature=1,2 -f json"""


@pytest.mark.parametrize("command", AS_IF.splitlines())  # with -t 2, all heads attend anew
def test_it_is_as_if_a_head_s_rows_that_join_it_were_zero(command, models):
    whole, less = models
    out, expected = printed(command, whole, "--knock-out", "0.1"), printed(command, less)
    for one in (*out, *expected):  # W_o itself is shown as it is
        one.pop("W_o", None)
    assert_alike(out, expected, FLOAT32)


def test_layers_above_are_new_and_the_others_are_what_they_were():
    told = Settings(projection="language", layer="all", head="all", knock_out=("1.previous",), next=5)
    shared, plain = open_shared(told), Settings(projection="language", layer="all", head="all", next=5)
    before, out = (trace_text("self", TEXT, None, one, shared=shared) for one in (plain, told))
    for old, new in zip(before.heads, out.heads, strict=True):
        assert np.allclose(old.weights, new.weights) == (old.layer < 2), (old.layer, old.name)
    of_layer = shared.stack.encoders[1]
    W_o = of_layer.attention.W_o.copy()
    at = shared.stack.head_names(1).index("previous") * len(W_o) // 8
    W_o[at : at + len(W_o) // 8] = 0
    less = of_layer._replace(attention=of_layer.attention._replace(W_o=W_o))
    stack = shared.stack._replace(encoders=(shared.stack.encoders[0], less, *shared.stack.encoders[2:]))
    expected = trace_text("self", TEXT, None, plain, shared=shared._replace(stack=stack))
    for one, other in zip(out.heads, expected.heads, strict=True):
        np.testing.assert_allclose(one.weights, other.weights, atol=1e-9)
    assert_alike([*map(list, out.next_words.words)], [*map(list, expected.next_words.words)], 1e-6)
    assert abs(out.next_words.words[0].probability - before.next_words.words[0].probability) > 0.001
    number = trace_text("self", TEXT, None, Settings(**vars(told) | {"knock_out": ("1.1",)}), shared=shared)
    assert_alike([*map(list, number.next_words.words)], [*map(list, out.next_words.words)])


def test_the_layer_that_is_shown_joins_its_heads_without_it():
    told = ("masked", TEXT, "-p", "language", "--layer", "0", "--head", "all", "--steps")
    before, out = record(*told), record(*told, "--knock-out", "0.3", "--knock-out-with", "mean")
    assert out["knock_out"] == {"parts": ["0.3"], "with": "mean"} and before["knock_out"] is None
    outputs = [np.array(head["output"]) for head in out["heads"]]
    assert_alike([one.tolist() for one in outputs], [head["output"] for head in before["heads"]])
    outputs[3] = np.broadcast_to(outputs[3].mean(axis=0), outputs[3].shape)
    joined = np.hstack(outputs) @ np.array(out["W_o"]) + np.array(out["b_o"])
    np.testing.assert_allclose(out["layer_output"], joined, atol=1e-9)
    assert "layer_output =" not in printed_by(*told[:-1], "--knock-out", "0.3", "-f", "code:numpy")


def test_a_head_that_is_named_twice_is_out_once_and_the_next_commands_leave_it_out_too():
    heads = [word for one in ("2.3", "2.3", "2.induction-4", "0.mlp") for word in ("--knock-out", one)]
    for command in ("masked", "heads"):
        out = printed_by(command, TEXT, "-p", "language", *heads, *WITH_MEAN, "--width", "2000")
        assert "Head 2.3 and the network of layer 0 are knocked out" in out
        hints = out.rpartition("Next: ")[2]
        assert "--knock-out 2.3 --knock-out 0.mlp --knock-out-with mean" in hints
        assert hints.count("2.3") == hints.count("0.mlp")
    assert record("masked", TEXT, *heads)["knock_out"]["parts"] == ["2.3", "0.mlp"]


def test_a_comparison_says_where_the_weights_shown_come_before_all_that_is_out():
    compared = ("compare", TEXT, "-p", "language", "--vary", "knock-out=2.3,2.4", "--width", "2000")
    said = "no weight differs. --knock-out leaves the weights of layer 0, shown here, as they are"
    assert said in printed_by(*compared)


def test_a_mean_is_of_all_the_tokens_that_are_written(models):
    more = ("--knock-out", "0.1", *WITH_MEAN)
    first, second = printed("generate dabca --count 2", models[0], *more)
    [again] = printed(f"self dabca{first['word']} --next 1 -f json", models[0], *more)
    assert_alike(again["next_words"][0]["logit"], second["logit"], FLOAT32)


def test_without_its_network_a_layer_adds_what_its_heads_gave(models):
    [out] = printed("self dabca --layer 1 --steps -f json", models[0], "--knock-out", "0.mlp")
    [below] = printed("self dabca --layer 0 --steps -f json", models[0])
    made = gpt2()
    x = made["wte.weight"][[3, 0, 1, 2, 0]] + made["wpe.weight"][:5] + np.array(below["layer_output"])
    x = (x - x.mean(axis=1, keepdims=True)) / np.sqrt(x.var(axis=1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(out["x_query"], x * made["h.1.ln_1.weight"] + made["h.1.ln_1.bias"], atol=1e-4)
