"""Comparing settings, and a text with one of its words swapped: what differs, and every way to ask for too much."""

import csv
import math
import re
from types import SimpleNamespace

import numpy as np
import pytest

from attn_cli import Settings, trace_self
from attn_cli.errors import InputError, UsageError
from attn_cli.inputs.matrices import given_from
from attn_cli.pipeline.sources.matrices import trace_matrices
from attn_cli.render.numbers import PERCENT, signed, weight
from attn_cli.render.ramps import shades
from attn_cli.render.screen.text import cells
from attn_cli.render.views.comparison import names_of
from attn_cli.settings import SHOWN_ONLY
from attn_cli.teach.compare import VARIED, Swap, between, compare, written
from attn_cli.teach.swap import KeyChange, swap, swapped_keys
from tests import shell
from tests.alike import assert_alike
from tests.cli.tables import told as cases, typed
from tests.shell import here, plain, told
from tests.thorough import like_cases

CAT = "The cat sat on the mat"
FOX = "The quick brown fox jumped over the lazy dog"
ROCK = FOX.replace("fox", "rock")
RANDOM = ("-e", "random")


def record(*args, text=CAT):
    return shell.record("compare", text, *args)


def screen(*args, text=CAT, width="80"):
    return told("compare", text, *args, "--width", width)


def refused(*args, text=CAT, env=None):
    return shell.refused("compare", text, *args, env=env)


def entropy(weights):
    """The mean entropy in bits of the rows that are not all zeros, in plain loops."""
    rows = [row for row in weights if sum(row)]
    return sum(-sum(w * math.log2(w) for w in row if w) for row in rows) / len(rows)


PAIRS = """
score=scaled,dot => --score | t=0.5,2 => -t | head=subject,object => --head | layer=0,4 -p roles-deep => --layer
p=identity,roles => -p | embedding=word2vec,random => -e | --score=default,cosine => --score
"""


@pytest.mark.parametrize(("line", "option"), cases(PAIRS))
@like_cases
def test_each_side_is_what_attn_self_gives_and_the_difference_is_second_minus_first(line, option):
    vary, *more = line
    found = record("--vary", vary, *more)
    before, after = found["records"]
    sides = [[option, value] * (value != "default") for value in vary.rpartition("=")[2].split(",")]
    assert_alike([before, after], [shell.record("self", CAT, *side, *more) for side in sides])
    rows = zip(before["weights"], after["weights"], strict=True)
    assert found["difference"] == [[b - a for a, b in zip(*pair, strict=True)] for pair in rows]
    assert found["entropy"] == pytest.approx([entropy(before["weights"]), entropy(after["weights"])])
    mover = found["largest_mover"]
    i, j = mover["cell"]
    assert (mover["query"], mover["key"]) == (before["query_tokens"][i], before["key_tokens"][j])
    assert (mover["from"], mover["to"]) == (before["weights"][i][j], after["weights"][i][j])
    assert abs(mover["to"] - mover["from"]) == max(abs(d) for row in found["difference"] for d in row)


def test_a_cell_that_one_side_masks_has_no_difference_and_rows_of_zeros_have_no_entropy():
    found = record("--vary", "mask=none,causal")
    (change,) = found["changes"]
    assert [one["kind"] for one in found["records"]] == ["self", "masked"]
    assert [[d is None for d in row] for row in found["difference"]] == (np.tri(6) == 0).tolist()
    assert (change["masked_only_before"], change["masked_only_after"]) == (0, 15)
    found = record("--vary", "t=1,0.5,2")
    assert found["values"] == [1, 0.5, 2]
    assert found["difference"] is None and found["largest_mover"] is None
    for change, value in zip(found["changes"], ("0.5", "2"), strict=True):
        pair = record("--vary", f"t=1,{value}")
        assert_alike(change["largest_mover"], pair["largest_mover"])
        assert pair["summary"] in found["summary"]
    settings = Settings(embedding="random", pad=2, pad_side="left")
    found = compare("a b c", None, settings, "mask", ("none", "causal"))
    assert found.entropy[1] == pytest.approx(entropy(found.traces[1].weights.tolist()))
    before, after = (trace.output for trace in found.traces)
    back = compare("a b c", None, settings, "mask", ("causal", "none"))
    assert found.changes[0].output == back.changes[0].output == np.abs(before - after).max()
    shut = compare("a", "x y", Settings(embedding="random"), "mask", ("none", "causal-bottom-right"))
    assert shut.entropy == (pytest.approx(entropy(shut.traces[0].weights.tolist())),) * 2


def test_queries_with_another_strongest_key_are_named_and_a_query_narrows_both_sides():
    found = record("--vary", "head=subject,next", text=FOX)
    before, after = (shell.record("self", FOX, "--head", head)["summary"] for head in ("subject", "next"))
    wanted = [i for i in range(9) if before[i]["key"] != after[i]["key"]]
    assert found["changes"][0]["strongest_changed"] == wanted
    assert 3 in wanted and f"{len(wanted)} of 9 queries have another strongest key" in found["summary"]
    row = record("--vary", "head=subject,next", "-q", "fox", text=FOX)  # counted among the rows shown
    assert row["changes"][0]["strongest_changed"] == [0] and '"fox"' in row["summary"]
    found, whole = (record("--vary", "score=scaled,dot", *more) for more in (("-q", "the"), ()))
    assert [one["query_tokens"] for one in found["records"]] == [["the"], ["the"]]
    assert found["largest_mover"]["cell"][0] == 0
    (row,) = found["records"][0]["query_rows"]
    assert_alike(found["difference"], [whole["difference"][row]])
    found = record("--vary", "score=scaled,dot", "--context", "likes coffee", text="she")
    assert all((one["kind"], one["key_tokens"]) == ("cross", ["likes", "coffee"]) for one in found["records"])


NOTHING = """
oov=zero,random => Every word has a vector of its own. | score=scaled,default => no weight differs.
layout=in-out,out-in => --layout has an effect only with weights from a file.
"""
OTHER_TOKENS = """
keep-punctuation=no,yes "the, cat" => only with yes: ","
tokenizer=words,characters ab => only with words: "ab"; only with characters: "a", "b"
pad_side=left,right "a b" --pad 1 => right has them in another order
pad=default,1 "a b" => only with 1: "<pad>"
"""
WRONG = """
score=dot => has 1 | score=scaled,dot,cosine,dot => has 4 | score => has none | score=scaled, => has an empty one
score=scaled,foo => 'foo' is not one of 'scaled', 'dot', 'cosine'
t=1,x => 'x' is not a valid float | seed=1,1.5 => '1.5' is not a valid int | t=1,1.0 => the same value twice
t=1,0 => --temperature cannot be 0 | mask=none,casual => There is no mask 'casual'
head=subject,nobody => There is no head 'nobody' | heads=1,7 -p identity => equally among 7 heads
embedding=word2vec,nope => There are no vectors 'nope' | head=all,mean => One head is compared at a time
keep-punctuation=yes,maybe => 'maybe' is not a valid boolean. Give yes or no.
scor=scaled,dot => is not an option. Did you mean score? | query=cat,sat => changes what is shown
format=json,csv => changes what is shown | palette=blues,greys => changes what is shown
threads=1,2 => changes how long it takes | ESC[31m=1,2 => '^[[31m'
t=1,default => the same value twice | text=a,b => attn explain TEXT --swap OLD=NEW varies a word of the text.
t=1,2 --vary seed=1,2 => which of them changed a number | t=1,2 --head all => One head
score=scaled,dot --score dot => both set and varied | t=1,2 -f code:numpy => no code:numpy form
"""


def test_what_changes_nothing_is_told_and_why_and_where_tokens_differ_it_says_which():
    for line, why in cases(NOTHING):
        found = record("--vary", *line)
        assert found["summary"].startswith("Nothing changed from ") and why in found["summary"]
        assert found["largest_mover"] is None
    for (vary, text, *more), which in cases(OTHER_TOKENS):
        args = ("--vary", vary, *more)
        found = record(*args, text=text)
        assert found["difference"] is None and found["changes"] == []
        assert f"cannot be compared one by one: {which}" in found["summary"]
        assert which in " ".join(screen(*args, text=text).split())


def test_what_cannot_be_varied_is_wrong_usage_the_value_is_named_and_a_variable_is_not_blamed():
    for line, why in cases(WRONG.replace("ESC", "\x1b")):
        err = refused("--vary", *line)
        assert why in err and "\x1b" not in err
    assert "--vary OPTION=A,B" in refused()
    assert here("compare", CAT, "--vary", "score=scaled,dot", env={"ATTN_SCORE": "cosine"}).code == 0
    others = {"ATTN_MASK": "causal", "ATTN_TEMPERATURE": "2", "ATTN_SCORE": "dot"}
    for vary in ("mask=none,casual", "t=1,0", "score=foo,dot"):
        refused("--vary", vary, env=others)
    assert set(VARIED) == set(Settings.__dataclass_fields__) - set(SHOWN_ONLY)
    with pytest.raises(UsageError, match="cannot vary 'top'"):
        compare("a", None, Settings(), "top", (1, 2))


# In the last two the default is not among the values, and two are compared in their order.
REFERENCES = """
t=0.5,1,4 => 1 | t=4,0.5,default => 2 | score=dot,cosine,scaled => 2 | mask=causal,none,window:1 => 1
head=subject,object,relations => 2 | layer=0,4,2 -p roles-deep => 1 | layer=2,1,0 -p language => 2
head=2,3,article -p language => 2 | p=identity,random,roles => 2 | dim=8,4,2 -e random => 1
oov=nearest,random,zero -p identity --context "kign cat" => 2 | p=identity,random,roles -e word2vec => 2
oov=nearest,zero,model --context "kign cat" => 2 | seed=2,1,0 -e random => 2 | t=2,3,4 => 0 | t=4,1 => 0
"""


@pytest.mark.parametrize(("line", "place"), cases(REFERENCES))
def test_of_three_values_the_default_is_what_the_others_are_compared_with(line, place):
    found, reference = record("--vary", *line), int(place)
    values = line[0].partition("=")[2].split(",")
    assert found["reference"] == reference
    others = [n for n in range(len(values)) if n != reference]
    assert [change["value"] for change in found["changes"]] == [found["values"][n] for n in others]
    told = re.findall(r"With \S+ (\S+) instead of ([^,]+),", found["summary"])
    assert told == [(values[n], values[reference]) for n in others]
    start = found["records"][reference]["weights"]
    for n, change in zip(others, found["changes"], strict=True):
        mover = change["largest_mover"]
        i, j = mover["cell"]
        assert mover["from"] == start[i][j] and mover["to"] == found["records"][n]["weights"][i][j]


def test_a_long_text_lists_what_moved_and_the_reference_is_named():
    with pytest.raises(InputError, match="too many to lay side by side"):
        compare("w " * 1001, None, Settings(embedding="random"), "score", ("scaled", "dot"))
    text = " ".join(f"w{i}" for i in range(70))
    for top, most in ((None, 100), (150, 150)):
        moved = compare(text, None, Settings(embedding="random", top=top), "score", ("scaled", "dot"))
        assert len(moved.changes[0].movers) == most
    out = screen("--vary", "score=scaled,dot", *RANDOM, text=text)
    assert "too many to draw side by side" in out and "What moved most from scaled to dot" in out
    assert "The difference" not in out
    found = record("--vary", "score=scaled,dot", *RANDOM, text=text)["largest_mover"]
    first = out.split("What moved most")[1].splitlines()[1].split()
    assert first[:2] == [found["query"], found["key"]]
    lines = screen("--vary", "t=0.5,1,4", "--top", "2").splitlines()
    assert [lines[n] for n in (4, 7, 10)] == [*(f"What moved most from 1 to {t}:" for t in ("0.5", "4")), ""]
    which = 'only with words: "b"; only with whitespace: "b,"'
    assert which in screen("--vary", "tokenizer=characters,words,whitespace", text="a b, c", width="400")
    summary = record("--vary", "seed=1,2", *RANDOM, text="one")["summary"]
    assert "no weight differs; the outputs do, by up to" in summary


def test_small_matrices_stand_side_by_side_as_all_bars_or_all_numbers(file):
    more = (*RANDOM, "-f", "csv", "--tokenizer", "whitespace")
    assert "\n'=a,'=a," in here("compare", "=a b", "--vary", "mask=none,causal", *more).out
    for width in range(20, 100, 4):
        out = screen("--vary", "score=scaled,dot", width=str(width)).split("shades")[0]
        assert len({bool(re.search("[▂▃▄▅▆▇]", part)) for part in out.split("score ")[-2:]}) == 1, width
    out = screen("--vary", "t=1,1.00001", *RANDOM)
    assert re.search(r"[+-]\d\.\d+e-0[5-9]", out.split("The difference")[1])
    paths = [file(f"a 1 {n}\nb 0 1\n", f"{'long-' * 8}{name}.txt") for n, name in enumerate(("one", "two"))]
    out = screen("--vary", f"e={','.join(paths)}", text="a b", width="400")
    assert "one.txt" in out and "two.txt" in out


HOSTILE = "[red] \x1b[31mESC </td> \u202eRTL 🦊🦊 \\input{x} " + "long" * 1200


@pytest.mark.parametrize("width", ["20", "40", "80", "132"])
@pytest.mark.parametrize("text", [CAT, HOSTILE, "one", "w " * 40], ids=["cat", "hostile", "one", "forty"])
@pytest.mark.parametrize("vary", ["score=scaled,dot", "mask=none,causal", "t=1,2,3"])
def test_no_line_is_wider_than_the_terminal_and_no_token_is_obeyed(width, text, vary):
    for color in ("never", "always"):
        args = (*RANDOM, "--tokenizer", "whitespace", "--vary", vary, "--color", color)
        out = plain(screen(*args, text=text, width=width))
        assert max(cells(line) for line in out.splitlines()) <= int(width)
        assert "\x1b" not in out and "\u202e" not in out and "nan" not in out


def test_long_names_ties_signs_and_values_are_told_as_they_are():
    sides, like = (trace_self("a b", Settings(embedding="random")),) * 2, f"{'a' * 30}b{'a' * 30}"
    shown = ["aaaaaaaaaaaaaaaa...aaaa", "bbbbbbbbbbbbbbbb...bbbb"]
    assert names_of(between("projection", ("a" * 60, "b" * 60), sides)) == shown
    assert names_of(between("projection", ("a" * 60, like), sides)) == ["a" * 60, like]

    def under(*scores):
        given = given_from({"scores": [scores, (0.0, 0.0)], "V": [[1.0], [2.0]]}, "given")
        return trace_matrices("compute", given, Settings())

    sides = under(0.0, 1e-14), under(1e-14, 0.0), under(1e-9, 0.0)
    assert sides[0].weights[0, 0] < sides[0].weights[0, 1] and sides[1].weights[0, 0] > sides[1].weights[0, 1]
    found = between("view", ("before", "alike", "moved"), sides)
    assert [change.strongest_changed for change in found.changes] == [(), ()]
    found = between("view", ("one", "other"), (under(0.0, 1e-9), under(1e-9, 0.0)))
    assert found.changes[0].strongest_changed == (0,)
    shown = signed(weight(3)).row([0.5, -0.25, 0.0, -1e-9, 1.0, -1.0])
    assert shown == ["+.500", "-.250", ".000", ".000", "+1.00", "-1.00"]
    assert signed(PERCENT).row([0.5, -0.25, 0.001]) == ["+50", "-25", "0"]
    shown = [written(value) for value in ("dot", 3, 0.5, 2.0, True, False, None)]
    assert shown == ["dot", "3", "0.5", "2", "yes", "no", "default"]


@pytest.mark.parametrize("palette", ["viridis", "blues"])
@pytest.mark.parametrize("colors", [16, 256, 1 << 24])
def test_zero_is_neutral_and_the_two_directions_are_told_apart_by_hue_and_not_by_lightness(palette, colors):
    styles = [style.bgcolor.get_truecolor() for style in shades(palette, colors, is_difference=True)]
    assert len(styles) == 64
    assert max(max(color) - min(color) for color in styles[31:33]) < 24, "grey, black or white"
    low, high = styles[0], styles[-1]
    assert low != high
    if colors > 16:  # blue against orange: every kind of colour vision sees one of them as bluer
        assert low.blue - low.red > 25 > -25 > high.blue - high.red


def test_each_of_two_texts_is_what_attn_self_gives_and_those_of_as_many_words_have_a_difference():
    found = record("--with", dog := "A dog slept on it", text="The cat sat")
    assert (found["option"], found["values"], found["difference"]) == ("text", ["The cat sat", dog], None)
    assert_alike(found["records"], [shell.record("self", text) for text in ("The cat sat", dog)])
    # Two texts of as many words have a difference, and may read one context.
    found = record("--with", "A dog slept", "--context", "she ran", text="The cat sat")
    first, second = (side["weights"] for side in found["records"])
    assert_alike(found["difference"], [[b - a for a, b in zip(*rows)] for rows in zip(first, second)])  # noqa: B905
    assert "each vary one thing" in refused("--with", "A dog", "--vary", "t=1,2")
    assert "--with TEXT" in refused()


# With a word swapped: both sides are computed, and what of its weight stayed with the place


def swapped(*args, text=FOX):
    return shell.record("explain", text, *args)


@pytest.mark.parametrize(
    "more",
    [(), ("-p", "identity"), ("-p", "roles-deep"), ("-e", "random", "--seed", "3"), ("--head", "mean")],
)
def test_each_side_is_what_attn_gives_its_text(more):
    found = swapped("--swap", "fox=rock", *more)
    assert_alike(found["records"], [shell.record("self", text, *more) for text in (FOX, ROCK)])
    assert found["values"] == [FOX, ROCK]


def test_the_terms_of_the_row_are_those_of_the_steps_and_what_followed_is_the_weight_before():
    found = swapped("--swap", "fox=rock", "--steps")
    (row,) = found["swap"]["rows"]
    heads = [side["heads"][0] for side in found["records"]]
    i = row["query_index"]
    assert row["query"] == row["query_after"] == FOX.split()[i]
    for j, key in enumerate(row["keys"]):
        assert (key["key"], key["key_after"], key["key_index"]) == (FOX.split()[j], ROCK.split()[j], j)
        assert key["weights"] == [head["weights"][i][j] for head in heads]
        assert key["content"] == [head["scaled_scores"][i][j] for head in heads]
        assert key["distance"] == [head["position_scores"][i][j] for head in heads]
    for side in (0, 1):  # weights are the softmax of content + distance
        exps = [math.exp(key["content"][side] + key["distance"][side]) for key in row["keys"]]
        assert [key["weights"][side] for key in row["keys"]] == pytest.approx([e / sum(exps) for e in exps])
    (row,) = swapped("--swap", "fox=rock")["swap"]["rows"]
    for key in row["keys"]:
        assert key["distance"][0] == pytest.approx(key["distance"][1], abs=1e-12)
        is_same = key["content"][0] == pytest.approx(key["content"][1], abs=1e-12)
        assert is_same == (key["key"] == key["key_after"])
    for new in ("rock", "table", "slowly", "of"):
        (row,) = swapped("--swap", f"fox={new}")["swap"]["rows"]
        key, others = row["keys"][3], row["keys"][:3] + row["keys"][4:]
        assert key["followed_place"] == min(key["weights"])
        assert key["followed_place"] + key["followed_content"] == pytest.approx(key["weights"][0])
        assert {other["followed_place"] for other in others} == {None}


def test_the_same_rows_are_shown_before_and_after_and_the_library_swaps_too():
    found = swapped("--swap", "fox=dog", "-q", "fox")
    shown = [(side["query_rows"], side["query_tokens"]) for side in found["records"]]
    assert shown == [([3], ["fox"]), ([3], ["dog"])]
    (row,) = found["swap"]["rows"]
    assert (row["query"], row["query_after"]) == ("fox", "dog")
    assert {key["followed_place"] for key in row["keys"]} == {None}
    assert "(after) No vector for blorf" in here("explain", FOX, "--swap", "fox=blorf").out
    ran = here("explain", FOX, "--swap", "fox=rock", "-f", "csv", "-q", "jumped")
    (row,) = swapped("--swap", "fox=rock", "-q", "jumped")["swap"]["rows"]
    for one, key in zip(csv.DictReader(ran.out.splitlines()), row["keys"], strict=True):
        assert_alike([float(one[f"distance_{side}"]) for side in ("before", "after")], key["distance"])
    found = swap("self", FOX, None, Settings(), [Swap("fox", "rock")])
    assert found.traces[1].query_tokens == tuple(ROCK.split())
    # Of two places of a word that of the largest weight, before or after, is the first; a masked one is the last.
    pairs = zip((0, 1, 2), (None, (0.3, 0.2), (0.1, 0.5)), strict=True)
    places = [KeyChange(key, True, both, None, None) for key, both in pairs]
    sides = (SimpleNamespace(key_tokens=[word] * 3) for word in ("fox", "rock"))
    ((pair, ordered),) = swapped_keys(places, *sides)
    assert (pair, [one.key for one in ordered]) == (("fox", "rock"), [2, 1, 0])


ANIMAL = "The animal didn't cross the street because it was too tired"


def test_words_are_swapped_by_name_or_place_also_in_a_context_and_a_pronoun_is_the_row():
    text = "the cat saw the dog"
    assert swapped("--swap", "the=a", text=text)["values"][1] == "a cat saw a dog"
    assert swapped("--swap", " 3 = a ", text=text)["values"][1] == "the cat saw a dog"
    found = swapped("--swap", "a=o", "--tokenizer", "characters", text="cat")
    assert found["values"] == ["cat", "cot"]
    found = swapped("--swap", "cat=dog", text="the cat.")
    assert [side["dropped"] for side in found["records"]] == [["."], ["."]]
    found = swapped("--swap", "0=she", "--context", "he likes coffee", text="he drinks")["records"][1]
    assert (found["query_tokens"], found["key_tokens"]) == (["she", "drinks"], ["he", "likes", "coffee"])
    assert swapped("--swap", "THE=a", text=text)["swap"]["words"] == [{"old": "the", "new": "a"}]
    found = swapped("--swap", "cat=dog", "--swap", "dog=cat", text=text)
    assert found["values"][1] == "the dog saw the cat"
    found = swapped("--swap", "coffee=tea", "--context", "she likes coffee", text="he drinks")
    sides = [shell.record("cross", "he drinks", f"she likes {one}") for one in ("coffee", "tea")]
    assert_alike(found["records"], sides)
    found = swapped("--swap", "tired=wide", text=ANIMAL)
    assert [side["head"] for side in found["records"]] == ["antecedent"] * 2
    assert [row["query"] for row in found["swap"]["rows"]] == ["it"]
    for side, text in zip(found["records"], (ANIMAL, ANIMAL.replace("tired", "wide")), strict=True):
        one = shell.record("self", text, "-p", "roles-deep", "--head", "antecedent")
        assert_alike(side["weights"], one["weights"])
    for more in (("-p", "roles"), ("-q", "cross"), ("--head", "subject")):
        assert swapped("--swap", "tired=wide", *more, text=ANIMAL)["records"][0]["head"] != "antecedent"
    assert swapped("--swap", "coffee=tea", text="she likes coffee")["swap"]["rows"][0]["query"] == "likes"


LEADS = """
tired=wide | tired=wide --mask window:9:9 | tired=wide -t 0.5 | tired=wide --score dot | quick=rock -q fox
fox=rock -q over
"""


@pytest.mark.parametrize("line", typed(LEADS), ids=" ".join)
def test_a_lead_is_the_difference_of_two_sums_and_the_ratio_of_two_weights(line):
    (row,) = swapped("--swap", *line, text=ANIMAL if line[0] == "tired=wide" else FOX)["swap"]["rows"]
    lead, keys = row["lead"], row["keys"]
    before, after = (max(keys, key=lambda one: one["weights"][side])["key_index"] for side in (0, 1))
    others = [max(one["weights"]) * (one["key_index"] != before) for one in keys]
    rival = others.index(max(others)) if before == after else after
    assert (lead["key_index"], lead["rival_index"]) == (before, rival)
    one, other = keys[lead["key_index"]], keys[lead["rival_index"]]
    for side in (0, 1):
        for term in ("content", "distance"):
            assert lead[term][side] == pytest.approx(one[term][side] - other[term][side])
        assert lead["sum"][side] == pytest.approx(lead["content"][side] + lead["distance"][side])
        assert math.exp(lead["sum"][side]) == pytest.approx(one["weights"][side] / other["weights"][side])
    assert lead["by_query"] + lead["by_keys"] == pytest.approx(lead["content"][1] - lead["content"][0])
    by = {term: lead[term][1] - lead[term][0] for term in ("content", "distance")}
    whole = sum(by.values())
    wanted = max(by, key=lambda term: by[term] * whole) if abs(whole) > 1e-12 else None
    assert lead["decided"] == wanted and (wanted is None) == (line[0] == "fox=rock")


def test_without_a_distance_a_score_or_layers_nothing_follows_the_place_and_there_is_no_lead():
    (row,) = swapped("--swap", "fox=rock", "-p", "identity", "-q", "dog")["swap"]["rows"]
    key = row["keys"][3]
    assert (key["distance"], key["followed_place"], key["followed_content"]) == (None, 0.0, key["weights"][0])
    assert row["lead"]["distance"] is None and row["lead"]["sum"] == row["lead"]["content"]
    (row,) = swapped("--swap", "dog=cat", "--mask", "causal", "-q", "fox")["swap"]["rows"]
    assert [key["weights"] is None for key in row["keys"]] == [j > 3 for j in range(9)]
    assert row["keys"][8]["followed_place"] is None
    (row,) = swapped("--swap", "fox=rock")["swap"]["rows"]
    assert row["lead"]["by_query"] == pytest.approx(0, abs=1e-12)
    (row,) = swapped("--swap", "fox=rock", "--score", "cosine")["swap"]["rows"]
    assert row["lead"]["by_query"] is None
    for more in (("--head", "mean"), ("--mask", "causal", "-q", "The")):
        assert swapped("--swap", "fox=rock", *more)["swap"]["rows"][0]["lead"] is None


NO_SWAP = """
foxx=rock => Did you mean fox? | "fox=ice cream" => 'ice cream' is 2 tokens | fox=... => '...' is no token
fox=fox => by itself | fox => takes OLD=NEW | =rock => takes OLD=NEW | fox= => takes OLD=NEW
9=rock => from 0 to 8 | fox=rock --swap FOX=dog => twice | fox=rock --only scores => without --only
fox=rock --versus dog => without --versus | fox=rock --head all => One head is compared
fox=rock -f npy -o x.npy => no npy form | fox=rock -f code:numpy => no code:numpy form
fox=blorf --oov skip => --oov skip | foESC[31mx=rock => 'fo^[[31mx' | ESC[31m => '^[[31m' is not that
"""


def test_what_cannot_be_swapped_is_wrong_usage_and_a_text_without_a_token_is_refused_as_anywhere():
    for line, said in cases(NO_SWAP.replace("ESC", "\x1b")):
        assert said in shell.refused("explain", FOX, "--swap", *line)
    swapped, alone = (here("explain", "...", *more) for more in (("--swap", "a=b"), ()))
    assert (swapped.code, swapped.err) == (alone.code, alone.err) == (65, alone.err)
