"""The worked examples, as a user runs them: each number of `worked/`, which was worked out apart from this program."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests import shell
from tests.alike import assert_alike
from tests.cli.tables import typed
from tests.shell import refused, told
from tests.thorough import like_cases

WORKED = Path(__file__).parents[1] / "worked"
NAMES = ("day1", "coffee", "coffee-notebook", "a2", "manchester", "dictionary")
CROSS = "cross: query she, context likes coffee"
OPTIONS = {  # those that give a block of expected numbers; "" is the whole record
    "": "", "unscaled (what the text runs)": "", "scaled": "--score scaled", "unscaled": "--score dot",
    "causal": "--mask causal", "unscaled, causal top-left": "--mask causal", "identity projection": "-p identity",
    "unscaled, causal bottom-right": "--mask causal-bottom-right",
}  # fmt: skip
ELSEWHERE = {"q", "k", "v", "two heads (columns 0-1 and 2-3)", "two heads, mean of weights", CROSS}
PARTS = {"scores", "scaled_scores", "weights", "output"}


def worked(name):
    return json.loads((WORKED / f"{name}.json").read_text(encoding="utf-8"))


def blocks(name):
    """The blocks of an example, but for those that a test of its own holds."""
    found = set(worked(name)["expected"])
    return [""] if found == PARTS else sorted(found - ELSEWHERE)


BLOCKS = [(name, block, OPTIONS[block]) for name in NAMES[:4] for block in blocks(name)]


def run(*args):
    return shell.record(*args, "--steps")


def held(found, wanted, what):
    np.testing.assert_allclose(np.array(found, float), wanted, rtol=0, atol=1e-9, err_msg=what)


def all_held(record, wanted):
    (head,) = record["heads"]
    for part in PARTS:
        held(head[part], wanted[part], part)
    return head


def test_examples_take_their_inputs_and_coffee_gives_its_queries_keys_and_values_both_heads_and_their_mean():
    inputs, expected = worked("a2")["inputs"], worked("a2")["expected"]["unscaled"]
    record = run("example", "a2", "-q", inputs["focus"])
    row = inputs["tokens"].index(inputs["focus"])
    held(record["weights"], [expected["weights"][row]], "weights")
    held(record["output"], [expected["output"][row]], "output")
    looked_up = run("self", " ".join(inputs["tokens"]), "-e", "random", "--score", "dot")
    assert run("example", "a2", "-e", "random")["weights"] == looked_up["weights"]
    for name in ("day1", "coffee", "coffee-notebook", "a2"):
        inputs, record = worked(name)["inputs"], run("example", name)
        (head,) = record["heads"]
        for name in {"Q", "K", "V", "W_q", "W_k", "W_v"} & set(inputs):
            assert head[name.lower() if len(name) == 1 else name] == inputs[name]
        assert "X" not in inputs or record["x_query"] == inputs["X"]
        assert "tokens" not in inputs or record["query_tokens"] == inputs["tokens"]
    examples = shell.record("example")["examples"]
    assert {one["name"] for one in examples} == {*NAMES}
    assert told("example") == "".join(f"{one['name']:<16} {one['about']}\n" for one in examples)
    expected = worked("coffee")["expected"]
    (head,) = run("example", "coffee")["heads"]
    for part in "qkv":
        held(head[part], expected[part], part)
    two = expected["two heads (columns 0-1 and 2-3)"]
    record = run("example", "coffee", "--heads", "2", "--head", "all")
    held([head["weights"] for head in record["heads"]], two, "all")
    record = run("example", "coffee", "--heads", "2", "--head", "mean")
    held(record["weights"], expected["two heads, mean of weights"], "mean")


@pytest.mark.parametrize(("name", "block", "options"), BLOCKS, ids=lambda value: value or "default")
@like_cases
def test_an_example_gives_its_numbers(name, block, options):
    expected = worked(name)["expected"]
    expected = expected[block] if block else expected
    record = run("example", name, *options.split())
    head = all_held(record, expected)
    assert (record["weights"], record["output"]) == (head["weights"], head["output"])
    shut = np.equal(expected["weights"], 0)
    assert [[cell is None for cell in row] for row in head["masked_scores"]] == shut.tolist()
    assert (record["mask"] is None) == (not shut.any())


def test_manchester_has_its_tokens_and_shapes_and_coffee_s_cross_attention_comes_from_files(file):
    inputs, expected = worked("coffee")["inputs"], worked("coffee")["expected"][CROSS]
    rows = ([word, *map(str, row)] for word, row in zip(inputs["tokens"], inputs["X"], strict=True))
    weights = json.dumps({name: inputs[name] for name in ("W_q", "W_k", "W_v")})
    files = ["-e", file("\n".join(map(" ".join, rows))), "-p", file(weights, "weights.json")]
    record = run("cross", "she", "likes coffee", *files)
    all_held(record, expected)
    assert (record["query_tokens"], record["key_tokens"]) == (["she"], ["likes", "coffee"])
    by_hand = run("self", "she likes coffee", *files)
    held(by_hand["weights"], worked("coffee")["expected"]["scaled"]["weights"], "the same from files")
    inputs, expected = worked("manchester")["inputs"], worked("manchester")["expected"]
    record = run("example", "manchester")
    (head,) = record["heads"]
    assert record["query_tokens"] == record["key_tokens"] == expected["tokens"]
    assert record["query_ids"] == record["key_ids"] == expected["ids"]
    assert (record["dropped"], record["embedding"]["dim"]) == (["."], inputs["dim"])
    assert run("example", "manchester", "--dim", "5")["embedding"]["dim"] == 5
    made = (record["x_query"], head["W_q"], head["W_k"], head["W_v"], head["scores"], record["output"])
    for name, one in zip(("X", "W", "W", "W", "scores", "output"), made, strict=True):
        assert np.shape(one) == tuple(expected[f"{name} shape"])
    same = ["self", inputs["text"], "-e", "random", "--dim", str(inputs["dim"])]
    assert_alike(run(*same)["weights"], record["weights"])


OTHERWISE = "-e word2vec | --score cosine | -t 0.1 | --score dot | -e random --dim 50 --seed 3 | -p random"


def test_dictionary_tells_its_text_s_queries_and_answers_with_every_option_or_says_why_not():
    inputs, expected = worked("dictionary")["inputs"], worked("dictionary")["expected"]
    record = run("example", "dictionary")
    exact, near, soft = record["acts"]
    for act, query in zip((exact, near), inputs["queries"], strict=True):
        assert act["query_tokens"] == [query]
        assert dict(zip(act["key_tokens"], act["values"], strict=True)) == inputs["pairs"]
    assert f"{exact['exact']} (exact)" == expected["color"]
    key = near["nearest"]
    assert f"{key['value']} (nearest key: {key['key']})" == expected["colour"]
    assert soft["query_tokens"] == [inputs["second"]["query"]]
    assert soft["key_tokens"] == soft["values"] == inputs["second"]["keys"]
    assert (record["key_tokens"], record["weights"]) == (soft["key_tokens"], soft["weights"])
    assert "Taycan" in told("example", "dictionary", "-f", "markdown")
    assert run("example", "dictionary", "--top", "2")["condensed"]
    assert run("example", "dictionary", "-q", "performance")["query_rows"] == [0]
    assert run("example", "dictionary", "--heads", "2", "--head", "mean")["head"] == "mean"
    for options in (["-p", "roles"], ["--pad", "2"], ["-q", "colour"]):
        refused("example", "dictionary", *options)
    assert "colour gets the least" in expected["performance"]
    for options in typed(OTHERWISE):
        record = run("example", "dictionary", *options)
        weights = dict(zip(record["key_tokens"], record["weights"][0], strict=True))
        least = min(weights, key=weights.get)
        (said,) = [note for note in record["notes"] if "expects" in note]
        wanted = "and it does" if least == "colour" else f"With these vectors '{least}' does"
        assert wanted in said and f"{weights['colour']:.3f}" in said
        assert said in " ".join(told("example", "dictionary", *options).split())
