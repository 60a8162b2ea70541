"""Sixty pairs of sentences whose pronoun changes its noun: they are what they say, and are counted right."""

import json

import numpy as np
import pytest

from attn_cli.models.model_file import named
from attn_cli.vectors.table import bundled
from tests.bench.flips import FILES, measure, pairs
from tests.shell import here

DEV, TEST = map(pairs, FILES)
KNOWN = {word.decode() for word in bundled().block[1:-1].split(b"\n")}


@pytest.mark.parametrize("found", [DEV, TEST], ids=["dev", "test"])
def test_one_or_two_words_give_the_pronoun_its_second_noun(found):
    assert len(found) == 30
    for pair in found:
        first, second = (sentence.words for sentence in pair)
        assert len(first) == len(second)
        assert 1 <= sum(a != b for a, b in zip(first, second, strict=True)) <= 2, first
        (one,), (other,) = (sentence.antecedents for sentence in pair)
        assert one.pronoun == other.pronoun and first[one.pronoun] in ("it", "they")
        assert one.candidates == other.candidates
        answers = [tuple(range(*span)) for span in one.candidates]
        assert [one.words, other.words] == answers and one.words[-1] < other.words[0] < one.pronoun
        spans = [range(*span) for span in one.candidates]
        assert all(first[i] == second[i] for span in spans for i in span), "the nouns stay"
        unknown = [w for w in first + second if w[0].isalpha() and not {w, w.lower()} & KNOWN]
        assert not unknown


def test_what_a_model_is_chosen_by_is_not_what_it_is_judged_by():
    def nouns(pair):
        return {pair[0].words[end - 1] for _, end in pair[0].antecedents[0].candidates}

    for dev in DEV:
        for test in TEST:
            assert nouns(dev) != nouns(test) and dev[0].words != test[0].words


def test_the_shares_are_those_that_attn_learn_score_counts():
    path = str(FILES[0])
    printed = json.loads(here("learn", "score", "roles-deep", path, "-f", "json").out)
    (head,) = (one for one in printed["heads"] if one["name"] == "antecedent")
    flips, means = measure(named("roles-deep"), DEV)
    assert head["count"] == 60
    assert np.isclose(means["right"], head["candidates"]) and np.isclose(means["strongest"], head["accuracy"])
    assert means["both"] <= means["right"] and np.isclose(means["moves"], np.mean([f.move for f in flips]))
