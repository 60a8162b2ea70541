"""The screens of `attn explain`: what they say, that their numbers are the trace's, and that they fit."""

import json
import math
import re
import shlex
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from attn_cli import Settings, trace_self
from attn_cli.io.types import replace
from attn_cli.models.model_file import named
from attn_cli.render import four
from attn_cli.render.views import origins
from attn_cli.render.views.swap import _decided
from attn_cli.render.walk import NAMES, STEPS, chosen_steps
from attn_cli.teach.compare import Swap
from attn_cli.teach.swap import LeadChange, swap
from tests.cli.tables import told as cases
from tests.shell import here

FOX = "The quick brown fox jumped over the lazy dog"
SHE = "she likes coffee"
NUMBER = r"(-?\d+\.?\d*(?:e[+-]\d+)?)"


@cache
def screen(*args, command="explain"):
    ran = here(command, *args, *(() if "--width" in args or "-f" in args else ("--width", "80")))
    assert ran.code == 0, ran.err
    return ran.out


def said(*args, command="explain"):
    return " ".join(screen(*args, command=command).split())


def record(*args, command="explain"):
    return json.loads(screen(*args, "-f", "json", command=command))


TEXTS = """
The animal didn't cross the street because it was too tired
The quick brown fox jumped over the lazy dog
My brother said that he would visit the museum in Paris tomorrow
The trophy did not fit into the suitcase because it was big
"""


def test_its_row_and_because_stand_in_the_first_24_lines_and_it_stays_within_sixty_of_eighty_cells():
    for text in TEXTS.strip().splitlines():
        lines = screen(text).splitlines()
        assert len(lines) <= 60 and max(map(len, lines)) <= 80
    sizes = [("a b c d e f", "16"), ("a b c d e f", "200"), (" ".join(f"word{i}" for i in range(30)), "4")]
    narrow, wide, more = (screen(text, "-e", "random", "--dim", dim).count("\n") for text, dim in sizes)
    assert abs(wide - narrow) <= 2 and more < wide + 3 * 24  # it grows with the words, not with the vectors
    lines = screen(FOX).splitlines()
    first = "\n".join(lines[:24])
    assert FOX in first and 'Why "fox" and not "over"' in first and "By content alone" in first
    for word in FOX.split():
        assert re.search(rf"^{word} +{NUMBER} +{NUMBER}", first, re.MULTILINE)


# A command's arguments, and sentences that stand on its screen, or (!) do not.
SAID = (Path(__file__).parent / "said.txt").read_text(encoding="utf-8").replace("ESC", "\x1b")


@pytest.mark.parametrize("line", SAID.strip().splitlines(), ids=lambda line: line[:60])
def test_it_says_so(line):
    args, _, sentences = line.partition(" => ")
    shown = said(*({"FOX": FOX, "SHE": SHE}.get(word, word) for word in shlex.split(args)))
    for sentence in sentences.split(" ; "):
        assert sentence in shown if sentence[0] != "!" else sentence[2:] not in shown, sentence


WITHOUT = "ithout what it adds for the distance, it is right for 40.0%: it relies mainly on"
# What is known of a head, where it differs from FACTS, and what is said of it, or (!) not.
FACTS = {"accuracy": 0.5, "baseline": 0.3, "precision": 0.6, "hard": 0.25, "content": 0.4}
TOLD = [
    ({}, "right for 50.0% of the words that have the relation; the best fixed distance is right for 30.0%."),
    ({}, f"Where that distance is wrong, it is right for 25.0%; w{WITHOUT} the words themselves."),
    ({"content": 0.39}, "right for 39.0%: it needs both, the words and their distance."),
    ({"hard": 0.24}, f"right for 24.0%; w{WITHOUT} distance."),
    ({"hard": None}, f"Of its strongest links to another word, 60.0% are right. W{WITHOUT} distance."),
    ({"precision": None}, "!Of its strongest links"),
    ({"accuracy": None}, "and is not a large language model. How often it is right was not measured."),
    ({"model": "m", "trained_on": ("a.conllu", "b.jsonl")}, "m was trained with attn learn train on a tree"),
    ({"trained_on": ("a.x", "b.JSONL")}, "on a treebank (a) and passages with marked pronouns (b), and"),
    ({"about": "at its like kind", "layers": 2}, "look at its like kind (noun or verb, one or many: what U"),
    (
        {"about": None, "taught": False},
        "given no relation to find: it learned what helps the layers above it.",
    ),
    ({"model": "m", "taught": False}, "m was trained with attn learn language to guess the next word"),
]


@pytest.mark.parametrize(("change", "sentence"), TOLD, ids=str)
def test_what_a_learned_head_relies_on_follows_from_its_scores(change, sentence):
    facts = (trace := trace_self(SHE)).learned._replace(**FACTS | change)
    shown = " ".join(origins.learned(replace(trace, learned=facts)))
    assert sentence in shown if sentence[0] != "!" else sentence[1:] not in shown


def test_other_rows_worth_a_look_are_those_that_look_beyond_a_neighbour_the_firmest_first():
    shown, weights = said(FOX), trace_self(FOX).weights
    named = re.findall(r'"(\w+)" \(at (\w+), ([\d.]+)\)', shown.partition("Other rows worth a look: ")[2])
    links = [(i, int(row.argmax())) for i, row in enumerate(weights) if i != 4]
    links.sort(key=lambda at: (abs(at[0] - at[1]) < 2, -weights[at]))
    words = FOX.split()
    assert named == [(words[i], words[j], f"{weights[i, j]:.3f}") for i, j in links[:3]]
    assert f"Next: attn explain TEXT -q {links[0][0]}, " in shown


SIGNS = {"ahead": 1, "behind": -1}
AHEAD = f"{NUMBER} ({'|'.join(SIGNS)})"
BOTH = rf"Its sum is {NUMBER} higher: content puts it {AHEAD}, distance {AHEAD}"
HEADS = {FOX: "relations", "The cat sat on the mat": "subject", "Children like warm bread": "previous"}


@pytest.mark.parametrize(("text", "head"), HEADS.items())
def test_the_sentence_and_the_numbers_of_any_row_are_one(text, head):
    trace = trace_self(text, Settings(head=head))
    for i, token in enumerate(text.split()):
        shown, one = said(text, "--head", head, "-q", str(i)), trace.because(i)[0]
        if one.content == 0:
            assert f"content is the same, distance puts it {four(one.distance)} ahead" in shown
            continue
        lead, content, way, distance, along = re.search(BOTH, shown).groups()
        told = float(lead), float(content) * SIGNS[way], float(distance) * SIGNS[along]
        assert told == pytest.approx((one.lead, one.content, one.distance), abs=5.1e-5)
        assert f", {one.decided} decides." in shown, token


def test_every_step_has_names_and_a_small_input_shows_every_matrix_as_long_as_it_fits(at):
    assert list(NAMES) == [step.name for step in STEPS]
    names = [name for those in NAMES.values() for name in those]
    assert len(names) == len(set(names))
    for step, those in NAMES.items():
        assert {chosen_steps(name, None).only for name in (*those, step, step.upper())} == {(step,)}
    assert chosen_steps(" weights , scores ", None) == (("scores", "weights"), False, False)
    assert chosen_steps(None, " softmax ") == (("weights", "output"), False, True)
    (at / "tiny.txt").write_text("she 0.2 0.9\nlikes 0.5 0.1\ncoffee 0.9 0.3\n")
    lines = screen(SHE, "-e", str(at / "tiny.txt")).splitlines()
    assert "Every matrix" in lines and len(lines) <= 60
    assert any(line.startswith("X ") and " V" in line for line in lines)


def test_every_key_has_its_products_by_hand_where_they_are_asked_for():
    out = here("self", FOX, "-q", "jumped", "--by-hand", "all").out
    assert re.findall(r"^  (\w+): q·k", out, re.MULTILINE) == FOX.split()
    products, total = re.search(r"^  fox: q·k = (.*) = (.*)", out, re.MULTILINE).groups()
    factors = re.findall(rf"{NUMBER}\)?×\(?{NUMBER}", products)
    assert len(factors) == 32 and "more:" not in out
    assert sum(float(a) * float(b) for a, b in factors) == pytest.approx(float(total), abs=0.01)


def test_the_largest_numbers_and_temperatures_leave_no_infinity_and_no_endless_digits(at):
    warmed = trace_self("The quick brown fox", Settings(projection="random", temperature=2.0))
    exps = np.exp(warmed.shown.scores[warmed.focus[0]] / 2)
    shown = said("The quick brown fox", "-p", "random", "-t", "2")
    assert f'Undivided, "quick" would get {exps.max() / exps.sum():.3f}.' in shown
    scores = trace_self("the fox sat", Settings(query="sat", temperature=0.05)).shown.scores
    assert f"divided by {scores.std() / math.sqrt(32):.2f}." in said("the fox sat", "-q", "sat", "-t", "0.05")
    trace = trace_self("the fox sat on the rock", Settings(query="sat", temperature=1e-4))
    row = trace.row(2)
    order = sorted(range(6), key=lambda j: -row.masked[j])
    assert row.weights[order[1]] == 0 and trace.because(2)[0].rival_index == order[1]
    (at / "c.json").write_text('{"Q":[[1]],"K":[[1],[0]],"V":[[1],[2]],"position_scores":[[1e308,-1e308]]}')
    (at / "big.txt").write_text("fox 1.2e154 0\nrock 0 1.1e154\nhen -1e154 0\n")
    vectors = ("explain", "fox rock hen", "-e", "big.txt", "-t", "0.7", "-q", "fox")
    for line, format in product((("compute", "c.json", "-q", "0"), vectors), ("table", "json", "svg")):
        ran = here(*line, "--width", "80", "-f", format)
        assert ran.code == 0 and not re.search(r"\b(inf|nan|Infinity|NaN)\b", ran.out + ran.err)
        assert format != "table" or max(map(len, ran.out.splitlines())) <= 80


def test_some_steps_keep_their_own_numbers_json_holds_every_step_and_a_rival_has_its_line():
    out = screen(" ".join(f"word{i}" for i in range(60)), "-e", "random", "-q", "5", "--versus", "word50")
    assert re.search(rf"^word50 +{NUMBER}", out, re.MULTILINE)
    assert len(re.findall(r"^\d+\. ", screen(SHE, "-q", "likes", "--only", "scores"), re.MULTILINE)) == 1
    assert record(SHE, "--only", "scores")["heads"][0]["q"]


REFUSED = """
--only scores,nonsense => softmax | --from [red] => queries | --only= => softmax
--only scores --from scores => exclude each other | --only scores -f bars => --only has no
--only scores -f csv => --only has no | --only scores -f code:numpy => --only has no
-q she --versus cow -f csv => cow | -q she --versus cow -f bars => cow | -q she --versus cow -f json => cow
"""


def test_the_mean_of_heads_has_its_formula_and_a_step_or_a_rival_that_there_is_not_is_refused():
    args = ("a b c", "-e", "random", "-p", "random", "--heads", "2", "--head")
    more = {"compare": ["--vary", "temperature=1,2"], "explain": ["--steps"], "self": []}
    formula = "weights = the mean of the heads' softmax(q·k / √2"
    for command, rest in more.items():
        assert formula in said(*args, "mean", *rest, command=command)
        assert "mean of the heads" not in screen(*args, "1", *rest, command=command)
    for options, error in cases(REFUSED):
        ran = here("explain", SHE, *options)
        assert ran.code == 2 and error in ran.err + ran.out


def swapped(*args):
    """The screen as one line, and the keys of the first row of the same command's record."""
    rows = record(FOX, "--swap", *args)["swap"]["rows"]
    return said(FOX, "--swap", *args), rows[0]["keys"]


ANIMAL = "The animal did not cross the street because it was too tired"


def test_a_key_has_its_terms_and_weights_in_a_line_and_a_swap_takes_a_screen_of_24_lines():
    swaps = [(FOX, swap) for swap in ("fox=rock", "dog=rock", "jumped=slept", "fox=of")]
    screens = [screen(text, "--swap", swap).splitlines() for text, swap in (*swaps, (ANIMAL, "tired=wide"))]
    assert max(map(len, screens)) <= 24 and max(len(line) for lines in screens for line in lines) <= 80
    shown, keys = swapped("fox=rock", "--top", "9")
    for one in keys:
        now = "rock " if one["key"] == "fox" else ""
        before, after = one["weights"]
        change = f"{after - before:+.3f}" if abs(after - before) >= 0.0005 else "0.000"
        terms = f"{one['content'][0]:.3f} {one['content'][1]:.3f} {one['distance'][0]:.3f}"
        assert f"{one['key']} {now}{terms} {before:.3f} {after:.3f} {change}" in shown


@pytest.mark.parametrize("swap", ["tired=wide", "animal=truck", "street=bed", "it=they"])
def test_where_layers_mix_words_the_screen_tells_what_moved_and_what_made_it(swap):
    whole = record(ANIMAL, "--swap", swap)
    (row,) = whole["swap"]["rows"]
    keys, lead, shown = row["keys"], row["lead"], said(ANIMAL, "--swap", swap)
    strongest = [max(range(12), key=lambda j: keys[j]["weights"][side]) for side in (0, 1)]
    one, other = lead["key_index"], lead["rival_index"]
    assert one == strongest[0] and (other == strongest[1] or one == strongest[1])
    (had, has), by = keys[one]["weights"], [key["weights"][1] - key["weights"][0] for key in keys]
    if one == strongest[1]:
        assert f"before and after ({had:.3f}, {has:.3f})" in shown
        gained = sum(x for x in by if x > 0)
        moves = f"{gained:.3f} of its weight, {max(by):.3f} of it to" if gained >= 5e-4 else "less than 0.001"
        to_one = f"moves {gained:.3f} of its weight to"  # where all of it goes to one key
        assert f"moves {moves}" in shown or (to_one in shown and f"{gained:.3f}" == f"{max(by):.3f}")
    else:
        assert f"before ({had:.3f}), and at " in shown and "turns it." in shown
    content, distance = lead["content"][1] - lead["content"][0], lead["distance"][1] - lead["distance"][0]
    decided = lead["decided"]
    assert decided == ("content" if abs(content) > abs(distance) else "distance") or content * distance < 0
    if min(abs(lead["by_query"]), abs(lead["by_keys"])) >= 5e-4:
        assert f"the query {lead['by_query']:+.3f}, the keys {lead['by_keys']:+.3f}" in shown
    first = re.search(r"(?:ecides|ostly \w+|cancel): (?:[a-z]+ )?(\S+?)[ ;.]*(?=[ ;])", shown)
    assert first and first[1] == f"{content if decided == 'content' else distance:+.3f}"
    words = row["query"], row["query_after"]
    for side, (word, one) in enumerate(zip(words, whole["records"], strict=True)):
        best, second = sorted((key["weights"][side] for key in keys), reverse=True)[:2]
        least = named("roles-deep").clear_lead("antecedent", word)[0]
        assert any("such cases" in note for note in one["notes"]) == (best - second >= least)


def test_where_nothing_stays_with_the_place_the_screen_does_not_say_so():
    assert record(FOX, "--swap", "dog=mine")["summary"] in said(FOX, "--swap", "dog=mine")
    shown, keys = swapped("fox=rock", "-p", "roles-deep")
    before, after = keys[3]["distance"]
    assert f"{before:.3f} {after:.3f} {keys[3]['weights'][0]:.3f}" in shown
    assert "stays with the place" not in shown, "the query is another one"
    shown, keys = swapped("jumped=slept")
    old, new = (max(one["weights"][side] for one in keys) for side in (0, 1))
    for part in ('"jumped" (now "slept") looks most at', f"{old:.3f}", f"{new:.3f}", "!stays with the place"):
        assert (part.lstrip("!") in shown) is (part[0] != "!")


def test_terms_that_change_and_leave_the_lead_as_it_was_are_said_to_cancel():
    both = swap("self", FOX, None, Settings(), [Swap("fox", "rock")])
    lead = LeadChange(3, 5, (2.0, 2.0), (1.0, 1.25), (1.0, 0.75), "content", None, None)
    same = 'In the sum, "fox" (now "rock") leads "over" by 2.000 before and 2.000 after.'
    assert _decided(both, lead) == f"{same} The changes cancel: content +0.250; distance -0.250."
    assert _decided(both, lead._replace(content=(1.0, 1.0), distance=(1.0, 1.0))) == same


def test_a_long_row_shows_those_swapped():
    text = " ".join(["the quick brown fox jumped over the lazy dog and ran away"] * 3)
    shown = screen(text, "--swap", "lazy=tall", "-q", "3")
    table = shown[shown.index('"fox"') :]
    assert table.count(" tall ") == 3 and "31 others" in shown
    (row,) = record(text, "--swap", "the=a", "-q", "3")["swap"]["rows"]
    best = max(row["keys"], key=lambda key: key["weights"][0])
    assert f"{best['weights'][0]:.3f}" in screen(text, "--swap", "the=a", "-q", "3"), "of many swapped, too"
    assert "34 others" in screen(text, "--swap", "2=tall", "-q", "3", "--top", "2")


def test_the_last_distance_that_a_head_knows_stands_for_all_beyond_it():
    text = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen runs"
    told = " ".join(screen(text, "-q", "runs", "--head", "subject", "--by-hand", "all").split())
    assert told.count(", 12 or more words back:") == 5 and told.count(", 11 words back:") == 1
