"""The row that `attn explain` tells: a pronoun whose antecedent is clear enough, else the main verb; choices win."""

import itertools
import shlex

import numpy as np
import pytest

from attn_cli import trace_self
from attn_cli.core.heads import strongest
from attn_cli.models import model_file
from attn_cli.models.model_file import bundled
from attn_cli.pipeline import Inputs, Side
from attn_cli.pipeline.record import root_shares, row_of_strongest_link
from attn_cli.settings import Settings
from attn_cli.text.tokenize import PRONOUNS
from attn_cli.trace import Embedding
from tests.shell import record, told

ANIMAL = "The animal didn't cross the street because it was too tired"
DEEP = Settings(projection="roles-deep", head="antecedent")


def explained(*args):
    found = record("explain", *args, "--fields", "head,because,projection,mask_name,notes,learned")
    return found["projection"]["name"], found["head"], found["because"][0]["query"], found


def test_what_a_pronoun_stands_for_is_the_story_with_how_often_such_a_lead_was_right():
    model, head, query, found = explained(ANIMAL)
    assert (model, head, query) == ("roles-deep", "antecedent", "it")
    assert found["because"][0]["winner"] == "animal"
    lead, forms, n, right = bundled("roles-deep").clear_lead("antecedent", "it")
    row = np.sort(trace_self(ANIMAL, DEEP).weights[8])[::-1]
    assert row[0] - row[1] >= lead
    note = f"right in {right} of {n} such cases ({forms}; a lead in weight of {lead:.3f} or more, "
    note += f"here {row[0] - row[1]:.3f})"
    assert note in found["notes"][0]
    screen = told("explain", ANIMAL)
    assert f'"it" looks most at "animal" ({row[0]:.3f})' in screen and note in " ".join(screen.split())


def test_the_models_file_holds_the_leads_with_which_it_was_right_in_four_of_five():
    stack = bundled("roles-deep")
    known = [found for word in PRONOUNS if (found := stack.clear_lead("antecedent", word))]
    forms = "he him his himself she her hers herself it its itself they them their theirs themselves"
    assert {*PRONOUNS} == {*forms.split()} and len(known) > 10 and all(0 <= lead <= 1 for lead, *_ in known)
    assert all(n >= 5 and 0.8 * n <= right <= n for _, _, n, right in known)
    assert bundled("roles").clear_lead("antecedent", "it") is None
    assert stack.clear_lead("subject", "it") is None


def test_otherwise_the_main_verb_is():
    for text, verb in (
        ("The dog chased the cat because it was hungry", "chased"),  # no lead that is clear enough
        ("she likes coffee", "likes"),  # nothing is named before
        ("The quick brown fox jumped over the lazy dog", "jumped"),  # no pronoun
        ("The animal didn't cross the street because the street was wide", "cross"),  # not the last verb
    ):
        assert explained(text)[:3] == ("roles", "relations", verb)


def test_a_mask_or_a_temperature_changes_neither_the_model_nor_the_row():
    as_measured = "--pad 2 --pad-side left|--mask none|--score scaled"
    others = f"--mask causal|-t 0.5|--without 0|--score dot|{as_measured}"
    for options in map(str.split, others.split("|")):
        *story, found = explained(ANIMAL, *options)
        assert tuple(story) == explained(ANIMAL)[:3]
        # How often it is right was measured without a mask and a temperature; padding changes nothing.
        assert ("right in" in str(found["notes"])) == (" ".join(options) in as_measured)
    assert explained(ANIMAL, "--mask", "causal")[3]["mask_name"] == "causal"


CHOICES = "-p roles|-p identity|--head subject|-p roles-deep --head antecedent -q was|-q cross|-e random"
CHOICES += "|--oov zero|--round 2|--layer 0"


@pytest.mark.parametrize("options", [*CHOICES.split("|"), "--context 'the hens'"])
def test_what_is_chosen_wins(options):
    model, head, query, found = explained(ANIMAL, *shlex.split(options))
    asked = dict(zip(shlex.split(options)[::2], shlex.split(options)[1::2], strict=True))
    default = "random" if "-e" in asked else "likeness" if "--context" in asked else "roles"
    assert model == asked.get("-p", default)
    usual = {"likeness": "likeness", "identity": "0", "random": "0"}.get(model, "relations")
    assert head == asked.get("--head", usual)
    assert query == asked.get("-q", query) and not any("unseen novels" in note for note in found["notes"])


def test_a_text_without_a_pronoun_opens_no_deep_model(monkeypatch):
    opened, models = [], model_file.bundled
    monkeypatch.setattr(model_file, "bundled", lambda name: (opened.append(name), models(name))[1])
    for text, is_opened in (("The animal crossed the street", False), (ANIMAL, True)):
        assert "One row by hand" in told("explain", text)
        assert ("roles-deep" in opened) == is_opened and "roles" in opened


LINKS = [  # tokens, weights in tenths, words without a vector, padding, and the row with the strongest link
    ("a b", [[4, 6], [7, 3]], (), 0, 1),
    ("a b", [[4, 6], [6, 4]], (), 0, 0),  # of two as strong the first
    ("A a b", [[0, 9, 1], [1, 1, 8], [5, 3, 2]], (), 0, 1),  # nothing of a word to itself, also in capitals
    ("x b c", [[0, 9, 1], [8, 1, 1], [3, 5, 2]], ("x",), 0, 2),  # from no word without a vector, and to none
    ("<pad> a b", [[0, 9, 1], [0, 4, 6], [0, 5, 5]], (), 1, 1),
    ("a A", [[5, 5], [1, 9]], (), 0, 0),  # no link to another word
]


@pytest.mark.parametrize(("text", "tenths", "unknown", "padding", "row"), LINKS)
def test_the_row_of_the_strongest_link_between_words_that_differ(text, tenths, unknown, padding, row):
    side = Side(tuple(text.split()), padding=range(padding))
    inputs = Inputs(side, side, True, Embedding("random", "random"), unknown)
    assert row_of_strongest_link(strongest(np.array(tenths) / 10, 5), inputs) == row


def test_a_words_share_as_the_root_is_that_of_all_trees_summed_one_by_one():
    weights = np.random.default_rng(3).dirichlet(np.ones(4), size=4)
    found = np.zeros(4)
    for above in itertools.product(range(4), repeat=4):
        roots = [i for i, j in enumerate(above) if i == j]
        if len(roots) == 1 and np.linalg.matrix_power(np.eye(4)[[*above]], 4)[:, roots[0]].all():
            found[roots[0]] += np.prod([weights[i, j] for i, j in enumerate(above)])
    np.testing.assert_allclose(root_shares(weights), found / found.sum(), atol=1e-9)
