"""Tales: the grammar is whole, nobody is he before it is said who, and what is told agrees."""

import re

import numpy as np
import pytest

from data.making.tales import FORMS, LEAST, MOST, PRONOUNS, Grammar, Tale, tales

GRAMMAR = Grammar()
TELLINGS = [(place, one) for place, some in GRAMMAR.told.items() for one in some]
SLOTS = {
    "hero",
    "pet",
    "beast",
    "they",
    "new",
    "new0",
    "kin",
    *FORMS,
    *(f"other.{form}" for form in FORMS),
}


@pytest.fixture(scope="module")
def told():
    return tales(3000, 0)


def test_every_slot_is_known_and_every_place_leads_somewhere():
    for place, one in TELLINGS:
        slots = {slot.lower() for slot in re.findall("<(.*?)>", one.text)}
        classes = {slot.partition(":")[0] for slot in slots if ":" in slot} - {"the"}
        assert {slot for slot in slots if ":" not in slot} <= SLOTS and classes <= {*GRAMMAR.words}, one.text
        assert one.text.count("[") == one.text.count("]") and re.search(r"[.\]] *$", one.text), one.text
        assert (one.then or place) in GRAMMAR.told, one
        comes = re.search("<([Nn]ew|[Kk]in)>", one.text) is not None
        assert comes == ("other" in one.gains) and (
            comes or "other" in one.needs or "<other" not in one.text.lower()
        ), one
    assert {one.then for _, one in TELLINGS} - {""} <= {*GRAMMAR.told} - {"begin", "begin-animal"}


def test_no_tale_has_a_slot_left_or_is_longer_than_a_story_may_be_and_none_is_told_twice(told):
    assert len({*told}) == 3000
    assert not [tale for tale in told if re.search(r"[][<>|_]|  | [.,]|\b[Aa] [aeiou]", tale)]
    assert max(len(re.findall(r"[\w']+|[.,]", tale)) for tale in told) <= MOST
    assert all(re.fullmatch("[A-Z].*[.]", tale) for tale in told)
    assert min(len(tale.split()) for tale in told) >= LEAST
    sentences = [sentence for tale in told for sentence in tale.rstrip(".").split(". ")]
    assert len({*sentences}) > 0.5 * len(sentences)


def test_nobody_is_he_or_she_before_it_is_said_who(told):
    women = {*GRAMMAR.words["she"], *GRAMMAR.words["women"], "woman", "girl"}
    men = {*GRAMMAR.words["he"], *GRAMMAR.words["kin-she"], "man", "boy", "uncle", "grandfather"}
    for tale in told:
        words = re.findall("[a-z]+", tale.lower())
        for some, forms in ((men, PRONOUNS["he"]), (women, PRONOUNS["she"])):
            first = next((i for i, word in enumerate(words) if word in forms.split()[:4]), None)
            assert first is None or some & {*words[:first]}, tale


def test_what_is_told_of_the_time_agrees_until_it_changes():
    tale = Tale(GRAMMAR, np.random.default_rng(0))
    assert tale._agrees("It was night.", ("night",)) and not tale._agrees("It was noon.", ("noon",))
    assert not tale._agrees("The sun was in the moon.", ("sun", "moon"))
    assert tale._agrees("The sun rose.", ("sun",)) and tale._agrees("It was noon.", ("noon",))
    tale.words = {"bread", "knife"}
    assert tale._agrees("He cut the bread.", ("bread",))
    assert not tale._agrees("He cut bread with a knife.", ("bread", "knife"))


def test_the_same_seed_tells_the_same_tales():
    assert tales(5, 3) == tales(5, 3) != tales(5, 4)
