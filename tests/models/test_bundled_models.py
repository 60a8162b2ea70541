"""The two models that come with attn: what they are held to, and the story that they have to tell."""

import re

import numpy as np
import pytest

from attn_cli import Settings, trace_cross, trace_masked, trace_self
from attn_cli.io.files import data_path
from attn_cli.io.terminal import Terminal
from attn_cli.learn.language_score import measure_heads
from attn_cli.models.model_file import bundled
from attn_cli.render.formats import render
from attn_cli.settings.output import View
from attn_cli.trace.steps import Walk
from attn_cli.vectors.table import bundled as vectors
from tests.thorough import takes_long

ROLES = ("roles", "roles-deep")
HEADS = (
    *("relations", "head", "subject", "object", "oblique", "modifier", "determiner", "possessor"),
    *("coordination", "antecedent", "previous", "next"),
)
LEAST = {
    "roles": {"head": 0.72, "relations": 0.82},
    "roles-deep": {
        "head": 0.88, "relations": 0.93, "subject": 0.955, "object": 0.93, "determiner": 0.98, "coordination": 0.8,
        "antecedent": 0.75,
    },
}  # fmt: skip
FOX = "The quick brown fox jumped over the lazy dog"


def looks_at(text, query, model, head="relations"):
    """The words that a query looks at, strongest first, with their weights."""
    trace = trace_self(text, Settings(projection=model, head=head))
    row = trace.weights[trace.query_tokens.index(query)]
    return [(trace.key_tokens[j], float(row[j])) for j in np.argsort(-row, kind="stable")]


def words_of(trace, query):
    """The word that the last occurrence of a query looks at most."""
    row = trace.weights[len(trace.query_tokens) - 1 - trace.query_tokens[::-1].index(query)]
    return trace.key_tokens[int(np.argmax(row))]


def words(links):
    return [word for word, _ in links]


@pytest.mark.parametrize("name", ROLES)
def test_a_bundled_model_is_smaller_than_a_photograph_and_reads_the_bundled_vectors(name):
    assert data_path(f"{name}.safetensors").stat().st_size <= 2_100_000
    assert bundled(name).fingerprint == vectors().fingerprint()


def test_all_that_is_learned_fits_into_sixteen_megabytes_and_roles_has_one_layer_of_vectors_and_spelling():
    size = {
        path.stem: path.stat().st_size for path in data_path("roles.safetensors").parent.glob("*.safetensors")
    }
    assert sum(size.values()) <= 16_000_000 and size["roles"] <= 400_000
    assert size["roles-deep"] + size["language"] <= 5_000_000
    stack = bundled("roles")
    trace = trace_self("she likes coffee", Settings(head="subject"))
    assert stack.layers == 1 and stack.W_in is None
    expected = [vectors().find([word])[word] + stack.spelling.of(word) for word in ("she", "likes", "coffee")]
    np.testing.assert_allclose(trace.x_query, expected, rtol=1e-12)
    assert np.array_equal(trace.shown.W_v, np.eye(100))


@pytest.mark.parametrize("name", ROLES)
def test_a_bundled_model_has_the_named_heads_and_relations_is_the_main_one(name):
    # Only layers below can tell what a pronoun stands for.
    wanted = [head for head in HEADS if head != "antecedent" or name == "roles-deep"]
    assert [head.name for head in bundled(name).last.heads] == wanted


@pytest.mark.parametrize(("name", "head"), [(name, head) for name in LEAST for head in LEAST[name]])
def test_the_score_that_a_bundled_model_states_is_what_it_has_to_reach(name, head):
    assert bundled(name).facts["scores"][head]["accuracy"] >= LEAST[name][head]


@pytest.mark.parametrize("name", ROLES)
def test_a_head_that_is_not_itself_a_distance_beats_the_best_fixed_distance(name):
    for head, score in bundled(name).facts["scores"].items():
        if head in ("previous", "next"):
            assert score["accuracy"] == score["baseline"] == 1
        else:
            assert score["accuracy"] > score["baseline"] + 0.05, head


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
    told = trace_masked(
        "north music five paper north music five", Settings(projection="language", head="induction")
    )
    assert words_of(told, "five") == "paper"


def test_five_layers_see_what_one_layer_cannot_and_what_the_animal_did_not_cross():
    text = "The animal did not cross the street because it was too tired"
    links = dict(looks_at(text, "it", "roles-deep", "antecedent"))
    assert links["animal"] > 2 * links["street"] and max(links, key=links.__getitem__) == "animal"
    links = dict(looks_at(text.replace("tired", "wide"), "it", "roles-deep", "antecedent"))
    assert max(links, key=links.__getitem__) == "street"
    text = "The dog that barked at the cat slept"
    assert words(looks_at(text, "slept", "roles", "subject"))[0] == "cat"
    assert words(looks_at(text, "slept", "roles-deep", "subject"))[0] == "dog"


@pytest.mark.parametrize(
    ("text", "query", "wanted"),
    [
        ("The cat sat on the mat", "sat", ({"cat", "on"}, {"cat", "mat"})),
        ("she likes coffee", "likes", ({"she", "coffee"},)),
        (
            "Manchester United hopes to perform better.",
            "hopes",
            ({"perform", "United"}, {"perform", "Manchester"}),
        ),
        (
            "Taylor is setting new benchmarks with her Eras Tour",
            "setting",
            ({"Taylor", "benchmarks"}, {"is", "benchmarks"}),
        ),
    ],
)
def test_roles_deep_tells_the_story_of_the_tutorials(text, query, wanted):
    assert set(words(looks_at(text, query, "roles-deep"))[:2]) in wanted


@pytest.mark.parametrize("name", ROLES)
@pytest.mark.parametrize(
    ("text", "head", "query", "found"),
    [
        *((FOX, name, "jumped", "fox") for name in ("subject", "relations")),
        (FOX, "oblique", "jumped", "over"),
        (FOX, "modifier", "dog", "lazy"),
        (FOX, "determiner", "dog", "the"),
        (FOX, "previous", "dog", "lazy"),
        (FOX, "next", "The", "quick"),
        ("My sister drinks green tea", "object", "drinks", "tea"),
        ("My sister drinks green tea", "possessor", "sister", "My"),
        ("He bought apples and pears", "coordination", "pears", "apples"),
    ],
)
def test_each_head_answers_its_own_question(text, head, query, found, name):
    assert words(looks_at(text, query, name, head))[0] == found


def test_an_output_is_near_the_words_that_were_looked_at_and_across_texts_there_is_no_position_term():
    from attn_cli.pipeline.sources.text import trace_text

    for name in ROLES:
        trace = trace_text("self", FOX, None, Settings(projection=name, head="subject"), name_outputs=True)
        jumped = trace.query_tokens.index("jumped")
        assert "fox" in [word for word, _ in trace.output_words[jumped]], name
    for name in ROLES:
        trace = trace_cross("drinks", "she likes her coffee black", Settings(projection=name, head="subject"))
        assert trace.shown.position_scores is None
        assert any("position" in note for note in trace.notes)


def explained(text, **options):
    trace = trace_self(text, Settings(**options))
    return trace, " ".join(render(trace, View(steps=True), Terminal(), Walk()).split())


@pytest.mark.parametrize(
    ("text", "verb"),
    [
        (FOX, "jumped"),
        ("The professor explained attention to the students in the hall", "explained"),
        ("Students love long lectures about grammar", "love"),
        ("I gave my sister the old book that Mary wrote", "gave"),
        ("The cat sat on the mat.", "sat"),
    ],
)
@pytest.mark.parametrize("mask", ["none", "causal"])
def test_explain_takes_the_word_that_the_sentence_turns_on(text, verb, mask):
    trace = trace_self(text, Settings(keep_punctuation=True, mask=mask))
    assert [trace.query_tokens[i] for i in trace.focus] == [verb]


def test_what_a_causal_mask_would_leave_and_what_position_makes_of_the_score_are_told():
    trace, said = explained(FOX)
    shown = re.search(r'"fox" [0-9.]+/[0-9.]+ = ([0-9.]+), "jumped"', said)
    assert shown and "(--mask causal)" in said
    masked = trace_self(FOX, Settings(mask="causal")).weights[trace.focus[0]]
    assert float(shown[1]) == pytest.approx(masked[trace.key_tokens.index("fox")], abs=6e-4)
    _, said = explained(FOX, projection="roles-deep")
    assert "so could every word in the layers below" in said and "rescaled to sum to one" not in said
    trace, said = explained(FOX)
    told = re.search(r"adds ([-0-9.]+) to the score of \"jumped\" and \"fox\": together ([-0-9.]+)\.", said)
    row, fox = trace.focus[0], trace.key_tokens.index("fox")
    position, scaled = trace.shown.position_scores[row, fox], trace.shown.scaled_scores[row, fox]
    assert told and float(told[1]) == pytest.approx(position, abs=6e-4)
    assert float(told[2]) == pytest.approx(position + scaled, abs=6e-4)


@pytest.mark.parametrize("name", ROLES)
def test_explain_says_how_often_a_head_is_right_and_how_often_its_links_are(name):
    _, said = explained(FOX, projection=name, head="object")
    score = bundled(name).facts["scores"]["object"]
    assert f"is right for {score['accuracy']:.1%} of the words that have the relation" in said
    assert f"best fixed distance is right for {score['baseline']:.1%}" in said
    assert f"Of its strongest links to another word, {score['precision']:.1%} are right." in said


@pytest.mark.parametrize(
    ("name", "head", "what"),
    [
        ("roles", "subject", "it needs both, the words and their distance"),
        ("roles", "possessor", "it relies mainly on the words themselves"),
        ("roles-deep", "coordination", "it relies mainly on the words themselves"),
        ("roles", "previous", "it relies mainly on distance"),
    ],
)
def test_explain_says_what_a_head_lives_on_by_what_is_left_without_the_distance(name, head, what):
    _, said = explained(FOX, projection=name, head=head)
    score = bundled(name).facts["scores"][head]
    assert f"for the distance, it is right for {score['content']:.1%}: {what}." in said
    if score["hard"] is not None:
        assert f"Where that distance is wrong, it is right for {score['hard']:.1%}; without" in said
    if "both" not in what:
        assert (score["content"] >= 0.8 * score["accuracy"]) == ("words" in what)


@pytest.mark.parametrize(
    ("options", "how"),
    [
        ({"mask": "causal"}, "under a mask"),
        ({"score": "cosine"}, "with cosine scores"),
        ({"tokenizer": "characters"}, "on characters"),
        ({"mask": "window:1", "score": "dot"}, "under a mask and with dot scores"),
    ],
)
def test_a_score_is_not_told_where_it_was_not_measured(options, how):
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
    assert not any(
        "without a mask" in note for note in trace_self(text, Settings(projection="roles-deep")).notes
    )
