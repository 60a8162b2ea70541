"""The two models that come with attn: what they are held to, the story that they have to tell, sixty pairs of it."""

from itertools import product

import numpy as np
import pytest

from attn_cli import Settings, trace_masked, trace_self
from attn_cli.io.files import data_path
from attn_cli.learn.language_score import measure_heads
from attn_cli.models.model_file import bundled, named
from attn_cli.vectors import bundled as vectors
from tests.bench.flips import FILES, measure, pairs
from tests.shell import record, told
from tests.thorough import takes_long

ROLES = ("roles", "roles-deep")
HEADS = (
    *("relations", "head", "subject", "object", "oblique", "modifier", "determiner", "possessor"),
    *("coordination", "antecedent", "previous", "next"),
)
LEAST = {
    "roles": {"head": 0.72, "relations": 0.82},
    "roles-deep": {
        "head": 0.9, "relations": 0.945, "subject": 0.96, "object": 0.95, "determiner": 0.98, "coordination": 0.84,
        "antecedent": 0.75,
    },
}  # fmt: skip
FOX = "The quick brown fox jumped over the lazy dog"


@pytest.mark.parametrize("name", ROLES)
def test_a_bundled_model_has_named_heads_that_score_what_they_have_to_and_more_than_any_fixed_distance(name):
    model = bundled(name)
    assert model.fingerprint == vectors().fingerprint()
    # Only layers below can tell what a pronoun stands for.
    wanted = [head for head in HEADS if head != "antecedent" or name == "roles-deep"]
    assert [head.name for head in model.last.heads] == wanted
    for head, score in model.facts["scores"].items():
        assert score["accuracy"] >= LEAST[name].get(head, 0), head
        if head in ("previous", "next"):
            assert score["accuracy"] == score["baseline"] == 1
        else:
            assert score["accuracy"] > score["baseline"] + 0.05, head
    assert {*LEAST[name]} <= {*model.facts["scores"]}


def test_all_that_is_learned_fits_into_17_5_megabytes_and_roles_has_one_layer_of_vectors_and_spelling():
    files = data_path("roles.safetensors").parent.glob("*.safetensors")
    size = {path.stem: path.stat().st_size for path in files}
    assert sum(size.values()) <= 17_500_000 and size["roles"] <= 400_000
    assert size["roles-deep"] <= 4_000_000 and size["language"] <= 4_000_000
    stack = bundled("roles")
    trace = trace_self("she likes coffee", Settings(head="subject"))
    assert stack.layers == 1 and stack.W_in is None
    expected = [vectors().find([word])[word] + stack.spelling.of(word) for word in ("she", "likes", "coffee")]
    np.testing.assert_allclose(trace.x_query, expected, rtol=1e-12)
    assert np.array_equal(trace.shown.W_v, np.eye(100))


@takes_long
def test_the_language_model_has_a_head_that_finds_what_followed_and_no_distance_does():
    # Other random words than those by which the file's own names were found.
    measured = measure_heads(bundled("language"), vectors(), [], "none", 7, lambda stage: None)
    best = max(measured, key=lambda one: one.measures["induction"].accuracy)
    assert best.layer == 2 and best.measures["induction"].accuracy > 0.9
    assert best.measures["induction"].baseline < 0.2, "no fixed distance does it"


def test_the_language_model_copies_by_a_head_for_the_word_before_and_one_for_what_followed():
    model = bundled("language")
    assert all(model.facts["scores"][name]["accuracy"] > 0.9 for name in ("previous", "induction"))
    assert model.facts["main"] == "article" and model.layer_of("previous") < model.layer_of("induction") == 2
    asked = Settings(projection="language", head="induction")
    told = trace_masked("north music five paper north music five", asked)
    assert told.key_tokens[told.weights[-1].argmax()] == "paper"


ANIMAL = "The animal did not cross the street because it was too tired"
BARKED, TAYLOR = "The dog that barked at the cat slept", "Taylor is setting new benchmarks with her Eras Tour"
ANSWERS = [  # of models, a text: heads, each with a query and the word that it looks at most
    ("roles roles-deep", FOX, "subject jumped fox | relations jumped fox | oblique jumped over"),
    ("roles roles-deep", FOX, "modifier dog lazy | determiner dog the | previous dog lazy | next The quick"),
    ("roles roles-deep", "My sister drinks green tea", "object drinks tea | possessor sister My"),
    ("roles roles-deep", "He bought apples and pears", "coordination pears apples"),
    ("roles", BARKED, "subject slept cat"),  # five layers see what one layer cannot
    ("roles-deep", BARKED, "subject slept dog"),
    ("roles-deep", ANIMAL, "antecedent it animal"),
    ("roles-deep", ANIMAL.replace("tired", "wide"), "antecedent it street"),
    # The story of the tutorials
    ("roles-deep", "The cat sat on the mat", "relations sat cat mat"),
    ("roles-deep", "she likes coffee", "relations likes coffee she"),
    ("roles-deep", "Manchester United hopes to perform better.", "relations hopes Manchester United perform"),
    ("roles-deep", TAYLOR, "relations setting Taylor benchmarks"),
]


@pytest.mark.parametrize(("names", "text", "answers"), ANSWERS)
def test_each_head_answers_its_own_question(names, text, answers):
    for name, (head, query, *found) in product(names.split(), map(str.split, answers.split(" | "))):
        trace = trace_self(text, Settings(projection=name, head=head))
        row = trace.weights[trace.query_tokens.index(query)]
        most = np.argsort(-row, kind="stable")[: len(found)]
        assert {trace.key_tokens[j] for j in most} == {*found}, (name, head)


def test_that_strong_links_may_be_wrong_is_told_where_there_are_any_and_one_head_has_its_caption():
    every = told("self", FOX, "--head", "all")
    assert "was taught to look" in told("self", FOX, "--head", "subject")
    assert "was taught to look" not in every and "Some may be wrong" in every
    assert "Some may be wrong" not in told("self", "a", "--head", "all")


DEV, TEST = map(pairs, FILES)
KNOWN = {word.decode() for word in vectors().block[1:-1].split(b"\n")}


@pytest.mark.parametrize("found", [DEV, TEST], ids=["dev", "test"])
def test_one_or_two_words_give_the_pronoun_its_second_noun(found):
    assert len(found) == 30
    for pair in found:
        first, second = (sentence.words for sentence in pair)
        assert 1 <= sum(a != b for a, b in zip(first, second, strict=True)) <= 2, first
        (one,), (other,) = (sentence.antecedents for sentence in pair)
        assert one.pronoun == other.pronoun and first[one.pronoun] in ("it", "they")
        assert one.candidates == other.candidates
        spans = [tuple(range(*span)) for span in one.candidates]
        assert [one.words, other.words] == spans and one.words[-1] < other.words[0] < one.pronoun
        assert all(first[i] == second[i] for span in spans for i in span), "the nouns stay"
        assert not [w for w in first + second if w[0].isalpha() and not {w, w.lower()} & KNOWN]


def test_what_a_model_is_chosen_by_is_not_what_it_is_judged_by():
    def nouns(pair):
        return {pair[0].words[end - 1] for _, end in pair[0].antecedents[0].candidates}

    for dev in DEV:
        for test in TEST:
            assert nouns(dev) != nouns(test) and dev[0].words != test[0].words


def test_the_shares_are_those_that_attn_learn_score_counts():
    path = str(FILES[0])
    printed = record("learn", "score", "roles-deep", path)
    (head,) = (one for one in printed["heads"] if one["name"] == "antecedent")
    _, means = measure(named("roles-deep"), DEV)
    assert head["count"] == 60
    assert np.isclose(means["right"], head["candidates"]) and np.isclose(means["strongest"], head["accuracy"])
