"""The two models that come with attn: what they are held to, the story that they have to tell, sixty pairs of it."""

import re
from itertools import product

import numpy as np
import pytest

from attn_cli import Settings, trace_cross, trace_masked, trace_self
from attn_cli.io.files import data_path
from attn_cli.io.terminal import Terminal
from attn_cli.learn.language_score import measure_heads
from attn_cli.models.model_file import bundled, named
from attn_cli.pipeline.sources.text import trace_text
from attn_cli.render.formats import render
from attn_cli.render.walk import Walk
from attn_cli.settings import View
from attn_cli.vectors import bundled as vectors
from tests.bench.flips import FILES, measure, pairs
from tests.shell import record
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


def looks_at(text, query, model, head="relations"):
    """The weights that a query gives to words, the strongest first."""
    trace = trace_self(text, Settings(projection=model, head=head))
    row = trace.weights[trace.query_tokens.index(query)]
    return {trace.key_tokens[j]: float(row[j]) for j in np.argsort(-row, kind="stable")}


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


ANIMAL, BARKED = (
    "The animal did not cross the street because it was too tired",
    "The dog that barked at the cat slept",
)
ANSWERS = [  # of models, a text: heads, each with a query and the word that it looks at most
    ("roles roles-deep", FOX, "subject jumped fox | relations jumped fox | oblique jumped over"),
    ("roles roles-deep", FOX, "modifier dog lazy | determiner dog the | previous dog lazy | next The quick"),
    ("roles roles-deep", "My sister drinks green tea", "object drinks tea | possessor sister My"),
    ("roles roles-deep", "He bought apples and pears", "coordination pears apples"),
    ("roles", BARKED, "subject slept cat"),  # five layers see what one layer cannot
    ("roles-deep", BARKED, "subject slept dog"),
    ("roles-deep", ANIMAL, "antecedent it animal"),
    ("roles-deep", ANIMAL.replace("tired", "wide"), "antecedent it street"),
]


@pytest.mark.parametrize(("names", "text", "answers"), ANSWERS)
def test_each_head_answers_its_own_question(names, text, answers):
    for name, (head, query, found) in product(names.split(), map(str.split, answers.split(" | "))):
        assert next(iter(looks_at(text, query, name, head))) == found, (name, head)


def test_roles_deep_tells_the_story_of_the_tutorials():
    for line in (
        "The cat sat on the mat => sat => cat on, cat mat",
        "she likes coffee => likes => coffee she",
        "Manchester United hopes to perform better. => hopes => Manchester United perform",
        "Taylor is setting new benchmarks with her Eras Tour => setting => Taylor benchmarks, benchmarks is",
    ):
        text, query, wanted = line.split(" => ")
        most = wanted.partition(",")[0].count(" ") + 1
        assert " ".join(sorted([*looks_at(text, query, "roles-deep")][:most])) in wanted.split(", ")
    links = looks_at(ANIMAL, "it", "roles-deep", "antecedent")
    assert links["animal"] > 2 * links["street"]


def test_an_output_is_near_the_words_that_were_looked_at_and_across_texts_there_is_no_position_term():
    for name in ROLES:
        trace = trace_text("self", FOX, None, Settings(projection=name, head="subject"), name_outputs=True)
        jumped = trace.query_tokens.index("jumped")
        assert "fox" in [word for word, _ in trace.output_words[jumped]], name
        trace = trace_cross("drinks", "she likes her coffee black", Settings(projection=name, head="subject"))
        assert trace.shown.position_scores is None
        assert any("position" in note for note in trace.notes)


def explained(text, **options):
    trace = trace_self(text, Settings(**options))
    return trace, " ".join(render(trace, View(steps=True), Terminal(), Walk()).split())


def test_what_a_causal_mask_would_leave_and_what_position_makes_of_the_score_are_told():
    trace, said = explained(FOX)
    shown = re.search(r'"fox" [0-9.]+/[0-9.]+ = ([0-9.]+), "jumped"', said)
    assert shown and "(--mask causal)" in said
    masked = trace_self(FOX, Settings(mask="causal")).weights[trace.focus[0]]
    assert float(shown[1]) == pytest.approx(masked[trace.key_tokens.index("fox")], abs=6e-4)
    told = re.search(r"adds ([-0-9.]+) to the score of \"jumped\" and \"fox\": together ([-0-9.]+)\.", said)
    row, fox = trace.focus[0], trace.key_tokens.index("fox")
    position, scaled = trace.shown.position_scores[row, fox], trace.shown.scaled_scores[row, fox]
    assert told and float(told[1]) == pytest.approx(position, abs=6e-4)
    assert float(told[2]) == pytest.approx(position + scaled, abs=6e-4)
    _, said = explained(FOX, projection="roles-deep")
    assert "so could every word in the layers below" in said and "rescaled to sum to one" not in said


def test_explain_says_how_often_a_head_is_right_and_what_it_lives_on_by_what_is_left_without_the_distance():
    for name, head, what in (
        ("roles", "subject", "it needs both, the words and their distance"),
        ("roles", "possessor", "it relies mainly on the words themselves"),
        ("roles-deep", "coordination", "it relies mainly on the words themselves"),
        ("roles", "previous", "it relies mainly on distance"),
    ):
        _, said = explained(FOX, projection=name, head=head)
        score = bundled(name).facts["scores"][head]
        for one in (
            f"is right for {score['accuracy']:.1%} of the words that have the relation",
            f"best fixed distance is right for {score['baseline']:.1%}",
            f"Of its strongest links to another word, {score['precision']:.1%} are right.",
            f"for the distance, it is right for {score['content']:.1%}: {what}.",
        ):
            assert one in said
        if score["hard"] is not None:
            assert f"Where that distance is wrong, it is right for {score['hard']:.1%}; without" in said
        if "both" not in what:
            assert (score["content"] >= 0.8 * score["accuracy"]) == ("words" in what)


def test_a_score_is_not_told_where_it_was_not_measured():
    for options, how in (
        *(({"mask": "causal"}, "under a mask"), ({"score": "cosine"}, "with cosine scores")),
        ({"mask": "window:1", "score": "dot"}, "under a mask and with dot scores"),
        ({"tokenizer": "characters"}, "on characters"),
    ):
        _, said = explained("The dog chased the cat", **options)
        assert f"How often it is right {how} was not measured." in said and "is right for" not in said


def test_the_mean_and_a_second_text_change_no_focus_and_one_head_s_caption_is_not_that_of_all():
    trace = trace_self(FOX, Settings(head="mean"))
    assert trace.query_tokens[trace.focus[0]] == "jumped"
    trace = trace_cross("Anna sees the boat", "a ship was there", Settings(projection="roles"))
    assert trace.query_tokens[trace.focus[0]] == "sees"

    def screen(text, **options):
        return render(trace_self(text, Settings(**options)), View(), Terminal())

    assert "was taught to look" in screen(FOX, head="subject")
    every = screen(FOX, head="all")
    assert "was taught to look" not in every and "Some may be wrong" in every
    assert "Some may be wrong" not in screen("a", head="all")


@pytest.mark.parametrize("text", [FOX, "The cat sat on the mat", "Children like warm bread"])
def test_a_mask_that_the_head_was_not_trained_with_is_said_with_what_it_does(text):
    def notes(head, mask="causal"):
        trace = trace_self(text, Settings(head=head, mask=mask))
        return trace, [note for note in trace.notes if "trained without a mask" in note]

    trace, (shuns,) = notes("relations")
    first = trace.query_tokens[0]
    assert f"so {first} gets {trace.weights[1, 0]:.2f}" in shuns
    position = trace.shown.position_scores
    assert f"with distance terms {position[1, 0]:.2f} and {position[1, 1]:.2f}" in shuns
    trace, (nothing,) = notes("object")
    assert 'attends to itself: weight on itself means "no match"' in nothing
    assert notes("previous")[1] == [] and notes("relations", "none")[1] == []
    deep = trace_self(text, Settings(projection="roles-deep"))
    assert not any("without a mask" in note for note in deep.notes)


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
    flips, means = measure(named("roles-deep"), DEV)
    assert head["count"] == 60
    assert np.isclose(means["right"], head["candidates"]) and np.isclose(means["strongest"], head["accuracy"])
    assert means["both"] <= means["right"] and np.isclose(
        means["moves"], np.mean([one["moves"] for one in flips])
    )
