"""attn explain --swap: a word replaced, both sides computed, and what of its weight stayed with the place."""

import csv
import math
from types import SimpleNamespace

import pytest

from attn_cli import Settings
from attn_cli.teach.compare import Swap
from attn_cli.teach.swap import KeyChange, swap, swapped_keys
from tests import shell
from tests.alike import assert_alike
from tests.cli.tables import told as cases, typed
from tests.shell import here

FOX = "The quick brown fox jumped over the lazy dog"
ROCK = FOX.replace("fox", "rock")
RANDOM = ("-e", "random", "--seed", "3")


def record(*args, text=FOX):
    return shell.record("explain", text, *args)


@pytest.mark.parametrize("more", [(), ("-p", "identity"), ("-p", "roles-deep"), RANDOM, ("--head", "mean")])
def test_each_side_is_what_attn_gives_its_text(more):
    found = record("--swap", "fox=rock", *more)
    before, after = found["records"]
    assert_alike([before, after], [shell.record("self", text, *more) for text in (FOX, ROCK)])
    assert found["values"] == [FOX, ROCK]
    sides = zip(before["weights"], after["weights"], strict=True)
    assert found["difference"] == [[b - a for a, b in zip(*rows, strict=True)] for rows in sides]


def test_the_terms_of_the_row_are_those_of_the_steps_and_what_followed_is_the_weight_before():
    found = record("--swap", "fox=rock", "--steps")
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
    (row,) = record("--swap", "fox=rock")["swap"]["rows"]
    for key in row["keys"]:
        assert key["distance"][0] == pytest.approx(key["distance"][1], abs=1e-12)
        is_same = key["content"][0] == pytest.approx(key["content"][1], abs=1e-12)
        assert is_same == (key["key"] == key["key_after"])
    for new in ("rock", "table", "slowly", "of"):
        (row,) = record("--swap", f"fox={new}")["swap"]["rows"]
        key, others = row["keys"][3], row["keys"][:3] + row["keys"][4:]
        assert key["followed_place"] == min(key["weights"])
        assert key["followed_place"] + key["followed_content"] == pytest.approx(key["weights"][0])
        assert {other["followed_place"] for other in others} == {None}


def test_the_same_rows_are_shown_before_and_after_and_the_library_swaps_too():
    found = record("--swap", "fox=dog", "-q", "fox")
    shown = [(side["query_rows"], side["query_tokens"]) for side in found["records"]]
    assert shown == [([3], ["fox"]), ([3], ["dog"])]
    (row,) = found["swap"]["rows"]
    assert (row["query"], row["query_after"]) == ("fox", "dog")
    assert {key["followed_place"] for key in row["keys"]} == {None}
    assert "(after) No vector for blorf" in here("explain", FOX, "--swap", "fox=blorf").out
    ran = here("explain", FOX, "--swap", "fox=rock", "-f", "csv", "-q", "jumped")
    (row,) = record("--swap", "fox=rock", "-q", "jumped")["swap"]["rows"]
    for one, key in zip(csv.DictReader(ran.out.splitlines()), row["keys"], strict=True):
        assert_alike([float(one[f"distance_{side}"]) for side in ("before", "after")], key["distance"])
    found = swap("self", FOX, None, Settings(), [Swap("fox", "rock")])
    assert found.traces[1].query_tokens == tuple(ROCK.split())
    # Of two places of a word that of the largest weight, before or after, is the first; a masked one is the last.
    pairs = zip((0, 1, 2), (None, (0.3, 0.2), (0.1, 0.5)), strict=True)
    places = [KeyChange(key, True, both, None, None) for key, both in pairs]
    sides = (SimpleNamespace(key_tokens=[word] * 3) for word in ("fox", "rock"))
    ((swapped, ordered),) = swapped_keys(places, *sides)
    assert (swapped, [one.key for one in ordered]) == (("fox", "rock"), [2, 1, 0])


ANIMAL = "The animal didn't cross the street because it was too tired"


def test_words_are_swapped_by_name_or_place_also_in_a_context_and_a_pronoun_is_the_row():
    text = "the cat saw the dog"
    assert record("--swap", "the=a", text=text)["values"][1] == "a cat saw a dog"
    assert record("--swap", " 3 = a ", text=text)["values"][1] == "the cat saw a dog"
    found = record("--swap", "a=o", "--tokenizer", "characters", text="cat")
    assert found["values"] == ["cat", "cot"]
    found = record("--swap", "cat=dog", text="the cat.")
    assert [side["dropped"] for side in found["records"]] == [["."], ["."]]
    found = record("--swap", "0=she", "--context", "he likes coffee", text="he drinks")["records"][1]
    assert (found["query_tokens"], found["key_tokens"]) == (["she", "drinks"], ["he", "likes", "coffee"])
    assert record("--swap", "THE=a", text=text)["swap"]["words"] == [{"old": "the", "new": "a"}]
    found = record("--swap", "cat=dog", "--swap", "dog=cat", text=text)
    assert found["values"][1] == "the dog saw the cat"
    found = record("--swap", "coffee=tea", "--context", "she likes coffee", text="he drinks")
    sides = [shell.record("cross", "he drinks", f"she likes {one}") for one in ("coffee", "tea")]
    assert_alike(found["records"], sides)
    found = record("--swap", "tired=wide", text=ANIMAL)
    assert [side["head"] for side in found["records"]] == ["antecedent"] * 2
    assert [row["query"] for row in found["swap"]["rows"]] == ["it"]
    for side, text in zip(found["records"], (ANIMAL, ANIMAL.replace("tired", "wide")), strict=True):
        one = shell.record("self", text, "-p", "roles-deep", "--head", "antecedent")
        assert_alike(side["weights"], one["weights"])
    for more in (("-p", "roles"), ("-q", "cross"), ("--head", "subject")):
        assert record("--swap", "tired=wide", *more, text=ANIMAL)["records"][0]["head"] != "antecedent"
    assert record("--swap", "coffee=tea", text="she likes coffee")["swap"]["rows"][0]["query"] == "likes"


LEADS = """
tired=wide | tired=wide --mask window:9:9 | tired=wide -t 0.5 | tired=wide --score dot | quick=rock -q fox
fox=rock -q over
"""


@pytest.mark.parametrize("line", typed(LEADS), ids=" ".join)
def test_a_lead_is_the_difference_of_two_sums_and_the_ratio_of_two_weights(line):
    (row,) = record("--swap", *line, text=ANIMAL if line[0] == "tired=wide" else FOX)["swap"]["rows"]
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
    (row,) = record("--swap", "fox=rock", "-p", "identity", "-q", "dog")["swap"]["rows"]
    key = row["keys"][3]
    assert (key["distance"], key["followed_place"], key["followed_content"]) == (None, 0.0, key["weights"][0])
    assert row["lead"]["distance"] is None and row["lead"]["sum"] == row["lead"]["content"]
    (row,) = record("--swap", "dog=cat", "--mask", "causal", "-q", "fox")["swap"]["rows"]
    assert [key["weights"] is None for key in row["keys"]] == [j > 3 for j in range(9)]
    assert row["keys"][8]["followed_place"] is None
    (row,) = record("--swap", "fox=rock")["swap"]["rows"]
    assert row["lead"]["by_query"] == pytest.approx(0, abs=1e-12)
    (row,) = record("--swap", "fox=rock", "--score", "cosine")["swap"]["rows"]
    assert row["lead"]["by_query"] is None
    for more in (("--head", "mean"), ("--mask", "causal", "-q", "The")):
        assert record("--swap", "fox=rock", *more)["swap"]["rows"][0]["lead"] is None


WRONG = """
foxx=rock => Did you mean fox? | "fox=ice cream" => 'ice cream' is 2 tokens | fox=... => '...' is no token
fox=fox => by itself | fox => takes OLD=NEW | =rock => takes OLD=NEW | fox= => takes OLD=NEW
9=rock => from 0 to 8 | fox=rock --swap FOX=dog => twice | fox=rock --only scores => without --only
fox=rock --versus dog => without --versus | fox=rock --head all => One head is compared
fox=rock -f npy -o x.npy => no npy form | fox=rock -f code:numpy => no code:numpy form
fox=blorf --oov skip => --oov skip | foESC[31mx=rock => 'fo^[[31mx' | ESC[31m => '^[[31m' is not that
"""


def test_what_cannot_be_swapped_is_wrong_usage_and_a_text_without_a_token_is_refused_as_anywhere():
    for line, said in cases(WRONG.replace("ESC", "\x1b")):
        assert said in shell.refused("explain", FOX, "--swap", *line)
    swapped, alone = (here("explain", "...", *more) for more in (("--swap", "a=b"), ()))
    assert (swapped.code, swapped.err) == (alone.code, alone.err) == (65, alone.err)
