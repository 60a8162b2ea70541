"""A lookup: exactly, by the nearest key, softly. The formula in plain loops, and the laws of attention."""

import json
import math
import re
from functools import partial

import numpy as np
import pytest

from attn_cli import Settings
from attn_cli.errors import InputError, UsageError
from attn_cli.inputs.record import dictionary, pairs_from, pairs_in
from attn_cli.teach.soft_dictionary import TEMPERATURES, look_up
from attn_cli.vectors.lookup import look_up_all, open_table
from tests import shell
from tests.alike import assert_alike
from tests.cli.tables import told as cases
from tests.shell import attn, terminal
from tests.teach.grading.test_grade import softmax

CAR = ("brand=Porche", "model=Taycan", "color=black")
PARTS = ("battery=95", "top speed=250", "horse power=560", "colour=3")
record, told, refused = (partial(one, "lookup") for one in (shell.record, shell.told, shell.refused))


def vector(phrase):
    found = look_up_all(phrase.split(), open_table("word2vec"))
    return np.mean([found[word][1] for word in phrase.split()], axis=0, dtype=float)


def cosine(a, b):
    return float(a @ b / np.sqrt((a @ a) * (b @ b)))


def expected(query, keys, score="scaled", T=1.0):
    """The weights of a query, from the vectors alone."""
    q, rows = vector(query), [vector(key) for key in keys]
    by = {"scaled": lambda k: q @ k / math.sqrt(len(q)), "dot": lambda k: q @ k}
    return softmax(np.array([by.get(score, lambda k: cosine(q, k))(k) / T for k in rows]))


def test_exactly_it_is_a_python_dictionary_and_by_meaning_the_key_with_the_largest_cosine(file):
    python = dict(pair.split("=") for pair in CAR)
    for query in ("color", "colour", "Color", "brand", "bran"):
        assert record(query, *CAR)["exact"] == python.get(query)
    found = record("colour", *CAR)
    near = found["nearest"]
    assert (near["key"], near["value"], found["exact"], found["notes"]) == ("color", "black", None, [])
    assert near["cosine"] == pytest.approx(cosine(vector("colour"), vector("color")))
    asked = ((), ("zzxq=1",), ("--score", "cosine"), ("-p", "random"))  # of zzxq the length is not known
    notes = [record("performance", *PARTS, *more)["notes"] for more in asked]
    told = [[note for note in some if "differ in length" in note] for some in notes]
    assert told[0] == told[1] and [len(some) for some in told] == [1, 1, 0, 0] and notes[2] == []
    found = record("performance", *PARTS)
    wanted = {key: cosine(vector("performance"), vector(key)) for key in found["key_tokens"]}
    assert found["cosines"] == pytest.approx([*wanted.values()])
    assert found["nearest"]["key"] == max(wanted, key=wanted.get)
    # Of those with one cosine the one that equals the query, else the first.
    for query, key in (("shade", "hue"), ("Hue", "Hue")):
        assert record(query, "hue=3", "Hue=2")["nearest"]["key"] == key
    found = record("q", "near=1", "long=2", "-e", file("q 1 0\nnear 1 0.1\nlong 9 9\n"))
    assert found["nearest"]["key"] == "near" and found["summary"][0]["key"] == "long"
    said = "The largest weight is that of long, the largest cosine that of near: a score counts the lengths of vectors"
    assert any(note.startswith(said) for note in found["notes"])
    for length, is_told in ((0.96, False), (0.94, True)):
        notes = record("q", "one=1", "other=2", "-e", file(f"q 1 0\none 1 0\nother 0 {length}\n"))["notes"]
        assert any("differ in length" in note for note in notes) == is_told


@pytest.mark.parametrize("score", ["scaled", "dot", "cosine"])
@pytest.mark.parametrize("T", [0.25, 1.0, 3.0])
def test_numbers_are_weighted_as_the_formula_says(score, T):
    found = record("performance", *PARTS, "--score", score, "-t", str(T))
    weights = expected("performance", found["key_tokens"], score, T)
    assert found["weights"][0] == pytest.approx(weights) and found["values"] == [95, 250, 560, 3]
    assert found["answer"] == pytest.approx(np.dot(weights, found["values"])) == found["output"][0][0]


def test_equal_values_add_up_extreme_ones_too_and_huge_vectors_are_refused_only_where_they_do_not_fit(file):
    found = record("colour", "color=black", "hue=red", "shade=black", "brand=Porche")
    assert found["answer"] == "black" and found["shares"][0]["keys"] == ["color", "shade"]
    assert found["output"][0] == pytest.approx([one["weight"] for one in found["shares"]])
    found = record("colour", "color=1", "hue=1.0", "shade=2")
    assert [one["value"] for one in found["shares"]] == [1, 2]
    weights = expected("colour", ["hue", "color"])
    for values in (("1e308", "1e308"), ("-1e308", "1e308"), ("1e-320", "0"), ("0", "-0")):
        pairs = [f"{key}={value}" for key, value in zip(("hue", "color"), values, strict=True)]
        assert record("colour", *pairs)["answer"] == pytest.approx(np.dot(weights, list(map(float, values))))
        assert told("colour", *pairs)
    for size, score, code in (("1e200", "cosine", 0), ("1e200", "dot", 65), ("1e308", "cosine", 0)):
        vectors = file(f"a {size} 1\nb 1 {size}\nc 1 2\n")
        ran = attn("lookup", "a", "b=1", "a=2", "a c=3", "-e", vectors, "--score", score)
        assert ran.code == code and "Warning" not in ran.err


VALUES = "95 250 560 3|-0.5 2.25 0 1|1000000.0 -30 7 12345.5|1e-05 2e-05 0 0|5000000.0 123456789 1 0"


@pytest.mark.parametrize("values", VALUES.split("|"))
def test_the_arithmetic_on_the_screen_gives_the_answer_on_the_screen(values):
    pairs = [f"{part.partition('=')[0]}={v}" for part, v in zip(PARTS, values.split(), strict=True)]
    line = told("performance", *pairs).partition("times its weight:\n")[2].partition("\n")[0]
    left, _, said = (part.strip() for part in line.replace("×", "*").partition(" = "))
    digits = len(said.partition(".")[2])
    worked = sum(float(w) * float(v.strip("()")) for w, v in (t.split("*") for t in left.split(" + ")))
    assert float(said) == pytest.approx(worked, abs=1.01 * 10.0**-digits if "e" not in said else 1e-9)
    assert float(said) == pytest.approx(record("performance", *pairs)["answer"], abs=10.0**-digits)


def test_the_ladder_holds_the_weights_of_each_temperature_down_to_the_largest_score_alone():
    found = record("performance", *PARTS, "-t", "0.7")
    rungs = found["temperatures"]
    assert [rung["temperature"] for rung in rungs] == sorted({*TEMPERATURES, 0.7}, reverse=True)
    for rung in rungs[:-1]:
        weights = expected("performance", found["key_tokens"], T=rung["temperature"])
        assert rung["weights"] == pytest.approx(weights)
        assert rung["answer"] == pytest.approx(np.dot(weights, found["values"]))
    weights = found["weights"][0]
    hard = [float(weight == max(weights)) for weight in weights]
    assert rungs[-1] == {"temperature": 0, "weights": hard, "answer": np.dot(hard, found["values"])}
    assert "0.7*" in told("performance", *PARTS, "-t", "0.7")
    assert record("performance", *PARTS, "-t", "0.0001")["weights"][0] == pytest.approx(hard)
    assert record("performance", *PARTS, "-t", "1e9")["weights"][0] == pytest.approx([0.25] * 4)
    usual = {rung["temperature"]: rung["weights"] for rung in record("colour", *CAR)["temperatures"]}
    for rung in (one for t in ("1e-6", "1e300") for one in record("colour", *CAR, "-t", t)["temperatures"]):
        assert rung["weights"] == pytest.approx(usual.get(rung["temperature"], rung["weights"]))
        assert sum(rung["weights"]) == pytest.approx(1)
    pairs = ("top speed=1", "speed top=2", "zzxq=3")  # where scores tie, the limit is shared
    assert record("speed", *pairs)["temperatures"][-1]["weights"] == [0.5, 0.5, 0]
    assert 'shared by "top speed", "speed top"' in " ".join(told("speed", *pairs).split())


def test_pairs_are_cut_at_their_first_equals_sign_and_come_from_a_file_or_standard_input(file):
    assert pairs_from(["a=b=c", " top speed = 250 "]) == [("a", "b=c"), ("top speed", "250")]
    found = record("color", "color=black", "brand=Porche", "color=red")
    assert (found["exact"], found["key_tokens"]) == ("red", ["color", "brand"])  # as in a Python dictionary
    assert any("color" in note for note in found["notes"])
    found = record("colour", "color=3", "hue=3 cm")
    assert found["values"] == ["3", "3 cm"] and isinstance(found["answer"], str)
    assert any("is not a number" in note for note in found["notes"])
    for odd in ("nan", "inf", "1_000", "0x10", "٣", "1,5"):
        assert record("colour", f"color={odd}", "hue=1")["values"] == [odd, "1"]
    for args in (CAR, ("-", *CAR)):
        ran = attn("lookup", *args, "-f", "json", input="colour\n")
        assert_alike(json.loads(ran.out), record("colour", *CAR))
    for args in ([], CAR):
        ran = terminal("lookup", *args)
        assert ran.code == 2 and "Usage: attn lookup" in ran.out and "Example" in ran.out
    assert record("colour", "--from", file('{"color": 0.5, "hue": -2e3}'))["values"] == [0.5, -2000]
    pairs = [("a", "0.1"), ("b", f"{10**20}"), ("c", "x")]
    assert pairs_in({" a ": 0.1, "b": 10**20, "c": " x"}, "f") == pairs
    found = record("hue", "hue=red", "--from", file('{"hue": "blue"}'))
    assert found["exact"] == "red", "what is typed counts"


NO_PAIRS = ('{"a": [1]}', '{"a": true}', '{"a": null}', '{"a": ""}', '{" ": 1}', '{"a": NaN}', "[1]", "{", "")
REFUSED = """
colour brand=Porche black => 2 attn lookup colour color=black | colour a=1 =black => 2 attn lookup colour color=black
colour a=1 color= => 2 attn lookup colour color=black | colour a=1 " = " => 2 attn lookup colour color=black
colour a=1 = => 2 attn lookup colour color=black | colour => 2 no pair | colour color=1e999 => 65
zzxq hue=3 --oov error => 65 | a hue=3 --oov model => 2 | ... hue=3 => 65 | colour --from none.json => 66
"""


def test_what_cannot_be_looked_up_is_refused(file):
    for line, end in cases(REFUSED):
        code, _, said = end.partition(" ")
        assert said in refused(*line, code=int(code))
    for content in (*NO_PAIRS, "{}"):
        refused("colour", "--from", file(content), code=2 if content == "{}" else 65)
    with pytest.raises(InputError, match="2,000"):
        dictionary((f"k{i}", "1") for i in range(2001))
    most = dictionary((f"k{i}", f"v{i}") for i in range(2000))
    assert sum(look_up("abc", most, Settings(embedding="random", dim=6)).weights) == pytest.approx(1)
    for odd in (Settings(pad=2), Settings(positions="sinusoidal")):
        with pytest.raises(UsageError, match="dictionary"):
            look_up("colour", dictionary(pairs_from(CAR)), odd)


def test_a_key_without_a_vector_is_found_as_written_and_oov_and_projections_count_as_in_a_text(file):
    found = record("zzxq", "zzxq=1", "color=2")
    assert found["exact"] == 1 and found["nearest"] is None and found["cosines"] == [None, None]
    found = record("zzxq", *CAR)
    assert found["weights"][0] == pytest.approx([1 / 3] * 3) == found["temperatures"][-1]["weights"]
    assert any("says nothing" in note for note in found["notes"])
    assert not any("length" in note for note in record("colour", "zzxq=1", "hue=2")["notes"])
    look = look_up("hue", dictionary(pairs_from(["zzxq=1", "colour=2", "hue=3"])), Settings())
    assert [j for j, _ in look.nearness] == [2, 1, 0], "what has no cosine comes last"
    assert "no key is near" in told("zzxq", *CAR)
    zero = record("colour", "zzxq color=1", "hue=2", "--steps")
    assert zero["x_key"][0] == pytest.approx([x / 2 for x in vector("color")])
    skip = record("colour", "zzxq color=1", "zzxq=2", "hue=3", "--oov", "skip", "--steps")
    assert skip["key_tokens"] == ["zzxq color", "hue"] and skip["values"] == [1, 3]
    assert skip["x_key"][0] == pytest.approx(vector("color"))
    assert record("zzxq", "zzxq=2", "hue=3", "--oov", "random")["nearest"]["key"] == "zzxq"
    assert record("colour", "colr=1", "hue=3", "--oov", "nearest")["replaced"]
    W = np.eye(100)[:, :2].tolist()
    found = record("colour", *CAR, "-p", file(json.dumps({"W_q": W, "W_k": W, "W_v": W}), "w.json"))
    q, keys = vector("colour")[:2], np.array([vector(key)[:2] for key in found["key_tokens"]])
    assert found["weights"][0] == pytest.approx(softmax(keys @ q / math.sqrt(2)))
    for head in ("0", "1", "mean"):  # the ladder is of the head that is shown
        found = record("colour", *CAR, "-p", "random", "--heads", "2", "--head", head)
        of_one = next(rung["weights"] for rung in found["temperatures"] if rung["temperature"] == 1)
        assert found["head"] == head and found["weights"][0] == pytest.approx(of_one)
    shown = told("--help")
    assert "identity, random, or a file" in " ".join(shown.split())
    assert not re.search("--(query|layer|full|pad|positions)", shown)


def test_a_mask_hides_keys(at):
    (at / "mask.txt").write_text("1 1 0\n")
    masked = ("--mask", "mask.txt", "--mask-true", "allowed")
    found = record("colour", *CAR, *masked)
    assert found["weights"][0][:2] == pytest.approx(expected("colour", ["brand", "model"]))
    assert found["weights"][0][2] == 0 and found["temperatures"][-1]["weights"] == [1, 0, 0]
    assert any("mask hides the nearest" in note for note in found["notes"])
    shown = told("colour", *CAR, *masked)
    assert "masked" in shown and 'of "black"' not in shown
    (at / "mask.txt").write_text("0 0 0\n")
    for pairs in (CAR, ("a=1", "the=2", "color=3")):
        found = record("colour", *pairs, *masked)
        assert found["answer"] is None and found["nearest"]["key"] == "color"
        assert {rung["answer"] for rung in found["temperatures"]} == {None}
        shown = told("colour", *pairs, *masked)
        assert "may look at no key" in shown and "From soft to hard" not in shown


def test_screens_are_ascii_where_they_must_be_show_every_product_and_count_the_keys_that_they_leave_out():
    ran = attn("lookup", "naïve", "größe=1", "color=2", env={"PYTHONIOENCODING": "ascii"})
    assert ran.code == 0 and ran.out.isascii() and "sqrt(100)" in ran.out
    shown = told("colour", *CAR, "--steps")
    assert 'One row by hand: what does "colour" look at?' in shown and "output = [" in shown
    pairs = [f"{word}={n}" for n, word in enumerate("abcdefghijklmno")]
    shown = told("the", *pairs)
    assert "3 others" in shown and "3 more keys" in shown and "(7 more:" in shown
    assert "others" not in told("the", *pairs, "--top", "15")
