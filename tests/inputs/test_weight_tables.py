"""Weights from tables and their axes: what attn writes is read again, what people type, and whose tokens name it."""

import itertools

import numpy as np
import pytest

from attn_cli.errors import InputError
from attn_cli.inputs.weight_tables import grid_of
from tests.alike import assert_alike
from tests.inputs.test_saved_weights import close, put, record, refused, shares
from tests.schema import read
from tests.shell import attn, here, told

TEXTS = [
    ("self", "the cat saw the cat"),
    *(("masked", text, "-e", "random") for text in ("the cat saw the cat", "the the the")),
    *(("self", text, "--tokenizer", "whitespace", "-e", "random") for text in ("=1 + -cat @x", "1,5 2,5 x")),
    *(("self", text, "-e", "random") for text in ("1 2 3", "key weight")),
    ("self", "a b c d", "--mask", "window:1", "-e", "random"),
    ("cross", "the cat", "a dog a dog", "-e", "random"),
    ("self", "the cat the dog", "-e", "random", "--dim", "6", "--heads", "3", "--head", "all"),
    ("masked", "the cat the dog", "-e", "random", "--heads", "2", "--head", "all"),
]


@pytest.mark.parametrize("args", TEXTS, ids=" ".join)
@pytest.mark.parametrize("form", [("csv",), ("tsv",), ("csv", "--tidy"), ("tsv", "--tidy")], ids=" ".join)
def test_what_attn_writes_is_read_again(args, form, at):
    told = read(here(*args, "-f", "json").out)
    ran = here(*args, "-f", *form, "-o", f"w.{form[0]}")
    assert ran.code == 0, ran.err
    found = record(f"w.{form[0]}")
    for name in ("weights", "mask", "query_tokens", "key_tokens"):
        assert_alike(found[name], told[name])
    heads, wanted = ([(head["name"], head["weights"]) for head in one["heads"]] for one in (found, told))
    assert_alike(heads, wanted)
    assert found["mask_name"] == told["mask_name"] or told["mask_name"] not in ("none", "causal")


WHOLE = "query,a,b\na,0.5,0.5\nb,1,0\n"
LISTED = "query,key,weight\na,a,0.5\na,b,0.5\nb,a,1\nb,b,0\n"
FORMS = [WHOLE, WHOLE.replace("\n", "\r\n"), "\ufeff" + WHOLE, WHOLE.removeprefix("query"), LISTED]
FORMS += [form.replace(",", ";").replace(".", ",") for form in (WHOLE, LISTED)]
FORMS += [WHOLE.replace(",", "\t").replace("0.5", ".5")]


@pytest.mark.parametrize("text", FORMS)
def test_forms_of_one_matrix(text, file):
    found = record(file(text, "w.csv"))
    assert found["weights"] == [[0.5, 0.5], [1, 0]]
    assert found["query_tokens"] == found["key_tokens"] == ["a", "b"]


@pytest.mark.parametrize("name", ["w.csv", "w.tsv", "w"])
def test_a_bare_matrix_has_no_tokens_until_they_are_typed(name, at):
    weights = shares(3, 3)
    np.savetxt(name, weights, delimiter="\t" if name == "w.tsv" else ",", fmt="%.18g")
    found = record(name)
    close(found["weights"], weights)
    assert found["query_tokens"] == ["q0", "q1", "q2"]
    assert record(name, "--tokens", "a b c")["key_tokens"] == ["a", "b", "c"]


def test_an_empty_cell_is_masked_and_a_zero_is_not_and_tables_come_from_streams_and_go_to_heads(file):
    path = file("query,a,b,c\na,1,,0\nb,.5,.5,\nc,,0,1\n", "w.csv")
    found = record(path)
    assert found["mask"] == [[True, False, True], [True, True, False], [False, True, True]]
    assert found["mask_name"] == "as given"
    assert record(file("head,query,a\nmean,a,1\n", "w.csv"))["head"] == "mean"
    found = record(
        file("query,key,weight\nkey,,1\nweight,,1\n", "w.csv")
    )  # a matrix, though its words are a header's
    assert (found["query_tokens"], found["mask"]) == (["key", "weight"], [[False, True]] * 2)
    here("self", "the cat sat here", "-e", "random", "--heads", "2", "--head", "all", "-f", "csv", "-o", path)
    told("heads", "--weights", path)
    shown = attn("show", "-", input=here("self", "the cat", "-f", "tsv").out)
    assert shown.out.splitlines()[3:6] == here("self", "the cat").out.splitlines()[3:6]


NO_TABLES = [
    ("query,a,b\na,1,0\nb,0.5\n", "line 3: the row has 2 cells, the header 3"),
    ("query,a,b\na,1,x\n", "line 2, column 3: 'x' is not a number"),
    ("query,key,weight\na,b,c\n", "line 2, column 3: 'c' is not a number"),
    *(("1,0\n1\n", "line 2: the row has 1 cell"), ("query,a\n", "is not a number"), ("", "holds no numbers")),
    *(("head,query,a\n", "holds no numbers"), ("head,query,a,b\n0,x,1,\n1,x,.5,.5\n", "same empty cells")),
    ("head,query,a,b\n0,x,1,0\n1,y,.5,.5\n", "other tokens"),
    ("query,key,weight\nthe,the,.5\nthe,the,.5\nthe,the,.3\n", "repeated"),
    ("query,key,weight,query_row,key_column\na,b,1,0,0\n", "strongest links"),
    *((f"{number},0\n0,1\n", "weights lie between 0 and 1") for number in ("1e999", "-inf", "3")),
    *(("query,,b\na,1,0\n", "token 0 is empty"), ("\x1b[31m,1\n\x1b[0m,x\n", "is not a number")),
]


@pytest.mark.parametrize(("text", "told"), NO_TABLES)
def test_a_table_that_is_none_is_refused_in_a_line(text, told, file):
    message = refused(file(text, "w.csv"))
    assert told in message and "\x1b" not in message


def test_a_table_has_no_arrays_and_no_batch_and_what_is_no_table_is_not_taken_for_one(file):
    for option in ("--array", "--batch"):
        assert "is a table" in refused(file("1,0\n0,1\n", "w.csv"), option, "0", code=2)
    for data in (b"hello world\nfoo", b"\x00\x01,\x02", b"query\n"):
        assert "neither JSON nor CSV" in refused(file(data, "w.bin"))


def links(tokens, others, weights):
    there = zip(itertools.product(tokens, others), np.ravel(weights), strict=True)
    return [(*pair, weight) for pair, weight in there if not np.isnan(weight)]


@pytest.mark.parametrize("tokens", list(itertools.product("ab", repeat=4)), ids="".join)
def test_repeated_words_are_told_apart_by_order(tokens):
    causal = np.where(np.tri(4), shares(4, 4, seed=6, mask=np.tri(4)), np.nan)
    for words, weights in ((tokens, shares(4, 4, seed=5)), (tokens, causal), ("aa", causal[:2, :2])):
        made = grid_of(links(words, words, weights), "file")
        assert (made.queries, made.keys) == (list(words), list(words))
        close(made.weights, weights)


def test_of_several_readings_the_one_whose_rows_sum_to_one_is_taken_or_none():
    weights = [[0.9, 0.02, 0.08], [0.7, 0.2, 0.1]]
    assert grid_of(links("aa", "aaa", np.array(weights)), "file").weights == weights
    masked = np.where(np.abs(np.subtract.outer(range(4), range(4))) <= 1, 0.3, np.nan)
    runs = [("a", "x", 1.0), ("a", "y", 1.0), ("b", "x", 0.5), ("b", "z", 0.5)]  # of a, two rows
    for unclear in (links("abba", "abba", masked), runs):
        with pytest.raises(InputError, match="repeated"):
            grid_of(unclear, "file")
    assert grid_of([("a", "a", 1.0)], "file").weights == [[1.0]]
    apart = grid_of([("a", "a", 1.005), ("b", "b", 1.0), ("a", "a", 1.0)], "file")  # one was rounded
    assert (apart.queries, apart.keys) == (["a", "b", "a"], ["a", "b"]), "which a is looked at is not known"


SOURCE, TARGET = ["A", "cat", "sat", "</s>"], ["Eine", "Katze", "saß"]


def test_a_translator_s_arrays_have_the_tokens_that_are_typed_or_fit(at):
    arrays = {"encoder": shares(2, 2, 4, 4), "decoder": shares(2, 2, 3, 3), "cross": shares(2, 2, 3, 4)}
    path = put({f"{name}_attentions": M for name, M in arrays.items()} | {"tokens": np.array(SOURCE)})
    decoder, cross = ((path, "--array", f"{name}_attentions") for name in ("decoder", "cross"))
    typed = ("--tokens", " ".join(TARGET))
    assert record(*cross, *typed)["key_tokens"] == ["k0", "k1", "k2", "k3"]
    for of, more, keys in ((decoder, (), TARGET), (cross, ("--context-tokens", " ".join(SOURCE)), SOURCE)):
        found = record(*of, *typed, *more)
        assert (found["query_tokens"], found["key_tokens"]) == (TARGET, keys)
        close(found["weights"], arrays[of[2].partition("_")[0]][1, 0])
    assert "--tokens overrules" in refused(*cross)
    assert "--tokens holds 2 tokens" in refused(*decoder, "--tokens", "a b")


def test_typed_tokens_overrule_a_files_own_even_broken_ones_and_a_batch_chooses_its_own(at):
    held = {"weights": shares(2, 3).tolist(), "tokens": ["a", "b"], "context_tokens": ["c", "d"]}
    assert "--context-tokens overrules" in refused(held)
    assert record(held, "--context-tokens", "x y z")["key_tokens"] == ["x", "y", "z"]
    held = {"weights": [[1.0]], "tokens": [""]}
    assert "token 0 is empty" in refused(held) and record(held, "--tokens", "a")["key_tokens"] == ["a"]
    held = {"weights": shares(2, 1, 2, 2).tolist(), "tokens": [["a", "b"], ["c", "d"]]}
    for n in (0, 1):
        assert record(held, "--batch", str(n))["query_tokens"] == held["tokens"][n]


@pytest.mark.parametrize("text", [0, 1, 2])
def test_a_typed_batch_makes_the_first_of_three_or_four_axes_the_batch_also_of_each_layer(text, at):
    weights, means = shares(3, 2, 4, 4), shares(3, 4, 4)
    found = record(weights, "--batch", str(text), "--head", "all")
    close([head["weights"] for head in found["heads"]], weights[text])
    assert not any("Layer" in note for note in found["notes"])
    close(record(means, "--batch", str(text))["weights"], means[text])
    layers = {f"layer_{n}": shares(3, 2, 4, 4, seed=n) for n in range(2)}
    found = record(layers, "--batch", str(text), "--layer", "0", "--head", "1")
    close(found["weights"], layers["layer_0"][text, 1])
