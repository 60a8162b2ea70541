"""The screens of `attn explain`, and the first sentence of others: what they say, and that they fit."""

import re
import shlex
from itertools import product
from pathlib import Path

import pytest

from attn_cli import Settings, trace_self
from attn_cli.io.types import replace
from attn_cli.render.views import origins
from attn_cli.render.views.swap import _decided
from attn_cli.render.walk import NAMES, STEPS, chosen_steps
from attn_cli.teach.compare import Swap
from attn_cli.teach.swap import LeadChange, swap
from tests.cli.tables import told as cases
from tests.shell import here

FOX = "The quick brown fox jumped over the lazy dog"
SHE = "she likes coffee"


def screen(*args):
    command = () if args[0] in ("self", "cross", "masked") else ("explain",)
    ran = here(*command, *args, "--width", "80")
    assert ran.code == 0, ran.err
    return ran.out


WORDS = {  # that stand for texts in said.txt
    "FOX": FOX,
    "SHE": SHE,
    "ANIMAL": "The animal did not cross the street because it was too tired",
    "THRICE": " ".join(["the quick brown fox jumped over the lazy dog and ran away"] * 3),
    "SIXTY": " ".join(f"word{i}" for i in range(60)),
    "ROW": "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen runs",
}


def test_it_stays_within_sixty_lines_of_eighty_cells():
    for text in (FOX, WORDS["ANIMAL"]):
        lines = screen(text).splitlines()
        assert len(lines) <= 60 and max(map(len, lines)) <= 80
    sizes = [("a b c d e f", "16"), ("a b c d e f", "200"), (" ".join(f"word{i}" for i in range(30)), "4")]
    narrow, wide, more = (screen(text, "-e", "random", "--dim", dim).count("\n") for text, dim in sizes)
    assert abs(wide - narrow) <= 2 and more < wide + 3 * 24  # it grows with the words, not with the vectors


# A command's arguments, and sentences that stand on its screen, or (!) do not.
SAID = (Path(__file__).parent / "said.txt").read_text(encoding="utf-8").replace("ESC", "\x1b")


@pytest.mark.parametrize("line", SAID.strip().splitlines(), ids=lambda line: line[:60])
def test_it_says_so(line):
    args, _, sentences = line.partition(" => ")
    shown = " ".join(screen(*(WORDS.get(word, word) for word in shlex.split(args))).split())
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
    ({"about": None, "taught": False}, "no relation to find: it learned what helps the layers above it."),
    ({"model": "m", "taught": False}, "m was trained with attn learn language to guess the next word"),
]


@pytest.mark.parametrize(("change", "sentence"), TOLD, ids=str)
def test_what_a_learned_head_relies_on_follows_from_its_scores(change, sentence):
    facts = (trace := trace_self(SHE)).learned._replace(**FACTS | change)
    shown = " ".join(origins.learned(replace(trace, learned=facts)))
    assert sentence in shown if sentence[0] != "!" else sentence[1:] not in shown


def test_every_step_has_names():
    assert list(NAMES) == [step.name for step in STEPS]
    names = [name for those in NAMES.values() for name in those]
    assert len(names) == len(set(names))
    for step, those in NAMES.items():
        assert {chosen_steps(name, None).only for name in (*those, step, step.upper())} == {(step,)}
    assert chosen_steps(" weights , scores ", None) == (("scores", "weights"), False, False)
    assert chosen_steps(None, " softmax ") == (("weights", "output"), False, True)


def test_the_largest_numbers_and_temperatures_leave_no_infinity_and_no_endless_digits(at):
    (at / "c.json").write_text('{"Q":[[1]],"K":[[1],[0]],"V":[[1],[2]],"position_scores":[[1e308,-1e308]]}')
    (at / "big.txt").write_text("fox 1.2e154 0\nrock 0 1.1e154\nhen -1e154 0\n")
    vectors = ("explain", "fox rock hen", "-e", "big.txt", "-t", "0.7", "-q", "fox")
    for line, format in product((("compute", "c.json", "-q", "0"), vectors), ("table", "json", "svg")):
        ran = here(*line, "--width", "80", "-f", format)
        assert ran.code == 0 and not re.search(r"\b(inf|nan|Infinity|NaN)\b", ran.out + ran.err)
        assert format != "table" or max(map(len, ran.out.splitlines())) <= 80


REFUSED = """
--only scores,nonsense => softmax | --from [red] => queries | --only= => softmax
--only scores --from scores => exclude each other | --only scores -f bars => --only has no
--only scores -f csv => --only has no | --only scores -f code:numpy => --only has no
-q she --versus cow -f csv => cow | -q she --versus cow -f bars => cow | -q she --versus cow -f json => cow
"""


@pytest.mark.parametrize(("options", "error"), cases(REFUSED))
def test_a_step_or_a_rival_that_there_is_not_is_refused(options, error):
    ran = here("explain", SHE, *options)
    assert ran.code == 2 and error in ran.err + ran.out


def test_terms_that_change_and_leave_the_lead_as_it_was_are_said_to_cancel():
    both = swap("self", FOX, None, Settings(), [Swap("fox", "rock")])
    lead = LeadChange(3, 5, (2.0, 2.0), (1.0, 1.25), (1.0, 0.75), "content", None, None)
    same = 'In the sum, "fox" (now "rock") leads "over" by 2.000 before and 2.000 after.'
    assert _decided(both, lead) == f"{same} The changes cancel: content +0.250; distance -0.250."
    assert _decided(both, lead._replace(content=(1.0, 1.0), distance=(1.0, 1.0))) == same
