"""attn masked -p language: nothing ahead leaks, what comes next, and what the other commands make of the model."""

import json
from dataclasses import replace

import numpy as np
import pytest

from attn_cli import Settings, trace_masked, trace_self
from attn_cli.io.files import data_path
from attn_cli.learn import language_score
from attn_cli.learn.language_score import perplexity
from attn_cli.models.encoder import MASK, UNKNOWN, causal, matrix_of
from attn_cli.models.model_file import bundled
from attn_cli.settings import usual
from attn_cli.vectors import bundled as vectors
from attn_cli.vectors.lookup import embed
from tests.alike import FLOAT32, assert_alike
from tests.pipeline.records import record
from tests.shell import attn, here, refused, told

LANGUAGE = Settings(projection="language")
MODEL = ("-p", "language")
TEXT = "The cat sat on the mat, and the dog"
SENTENCES = (
    "The old man sat down at the table and began to eat his bread .",
    "She went to the window and looked out into the garden .",
    "The river flows through the city and into the sea .",
    "Can you help me find a restaurant for two people tonight ?",
    "In the spring of that year the king returned to his own country .",
    "The children played in the yard until it was dark .",
    "I do n't know what you want me to do .",
    "The school was built in the early part of the century .",
)


def test_the_bundled_file_is_small_and_guesses_as_well_as_it_did_when_it_was_measured():
    assert data_path("language.safetensors").stat().st_size <= 4_000_000
    stack = bundled("language")
    assert stack.fingerprint == vectors().fingerprint()
    words, facts = 0, stack.facts
    while facts is not None:  # of what it learned last and of all that it learned before
        words, facts = words + facts["words"], facts.get("pretrained_on")
    assert stack.facts["held_back"]["perplexity"] < 122 and words >= 68_500_000
    found = perplexity(stack, vectors(), [text.split() for text in SENTENCES], lambda stage: None)
    assert found.perplexity < 15 and found.unknown == 0


def scores_after(stack, H):
    """The scores of all words and of the unknown one, by the formula, where the layers have made H."""
    E = np.vstack([matrix_of(vectors()).astype(float), stack.words.unknown.astype(float)])
    E[: len(stack.words.corrections)] += stack.words.corrections
    return (H @ stack.words.P) @ E.T + stack.words.bias


def test_the_perplexity_of_texts_is_that_of_each_word_after_those_before_it(monkeypatch):
    monkeypatch.setattr(language_score, "ROWS", 5)  # so that the words are scored in several turns
    stack, table, seen, surprise = bundled("language"), vectors(), [], []
    texts = [["Dogs", "bark"], [], ["she", "zwxing", "sleeps", "and", "eats"], ["the", "the", "cat"]]
    found = perplexity(stack, table, texts, seen.append)
    rows = {word: n for n, word in enumerate(table.words())}
    for words in filter(None, texts):
        after = stack.last_rows(embed(words, table, "model", 0, stack.spelling).X, causal(len(words)))
        scores = scores_after(stack, np.vstack([stack.words.first, after[:-1]]))
        wanted = [rows.get(word.lower(), len(rows)) for word in words]
        surprise += [np.log(np.exp(of).sum()) - of[n] for of, n in zip(scores, wanted, strict=True)]
    assert found == (pytest.approx(np.exp(np.mean(surprise)), rel=1e-4), 10, 1)
    assert [(stage.done, stage.words) for stage in seen] == [(0.7, 7), (1.0, 10)]


def test_words_that_are_ahead_change_nothing_before_them():
    words = ["the", "old", "cat", "sleeps", "in", "a", "new", "house"]
    other = trace_masked(words, Settings(projection="language", next_at="all")).next_words_at
    for place in (0, 3, 7):
        changed = [*words[:place], "zwxing", *words[place + 1 :]]
        found = trace_masked(changed, Settings(projection="language", next_at="all")).next_words_at
        said, wanted = ([(w.words, w.token) for w in side] for side in (found, other))
        assert_alike(said[:place], wanted[:place], FLOAT32)
        assert all(one[0] != before[0] for one, before in zip(said[place:], wanted[place:], strict=True))


def test_the_probabilities_are_the_softmax_over_all_words_and_the_unknown():
    stack, table = bundled("language"), vectors()
    tokens = ["once", "upon", "a"]
    H = stack.last_rows(embed(tokens, table, "model", 0, stack.spelling).X, causal(3))[-1:]
    scores = scores_after(stack, H)
    shares = np.exp(scores - scores.max())[0]
    shares /= shares.sum()
    names = [*table.words(), UNKNOWN]
    order = sorted(np.argsort(-shares, kind="stable")[:50].tolist(), key=lambda n: names[n] == UNKNOWN)
    found = trace_masked(tokens, Settings(projection="language", next=50)).next_words
    expected = [(names[n], None if names[n] == UNKNOWN else n) for n in order]
    assert [(one.word, one.id) for one in found.words] == expected
    assert found.words[-1].word == UNKNOWN  # known words come first
    np.testing.assert_allclose([one.probability for one in found.words], shares[order], rtol=1e-4)
    np.testing.assert_allclose([one.logit for one in found.words], scores[0, order], rtol=1e-4)
    assert found.unknown == pytest.approx(shares[-1], rel=1e-4)


def test_five_words_follow_the_text_and_after_every_prefix_if_asked():
    plain = record("masked", TEXT, *MODEL)
    assert len(plain["next_words"]) == 5 and plain["next_words_at"] is None
    assert plain["query_tokens"].count(",") == 1 and plain["mask_name"] == MASK
    every = record("masked", TEXT, *MODEL, "--next-at", "all", "--next", "3")
    assert [one["token"] for one in every["next_words_at"]] == every["query_tokens"]
    fourth, last = every["next_words_at"][3], every["next_words_at"][-1]
    assert last["words"] == every["next_words"] and last["came"] is None
    shorter = record("masked", "The cat sat on", *MODEL, "--next", "3")
    assert_alike(fourth["words"], shorter["next_words"], FLOAT32)
    assert 0 < fourth["came"] < 1
    padded = record("masked", TEXT, *MODEL, "--next-at", "all", "--pad", "2", "--pad-side", "left")
    places = range(2, 2 + len(plain["query_tokens"]))
    assert [one["place"] for one in padded["next_words_at"]] == [*places]


def test_other_commands_name_words_where_they_are_asked_to():
    assert trace_self(TEXT, LANGUAGE).next_words is None
    assert len(trace_self(TEXT, Settings(projection="language", next=2)).next_words.words) == 2


def test_the_mask_alone_and_lines_of_a_file_have_the_words_that_are_asked_for(tmp_path):
    shown = record("masked", TEXT, *MODEL, "--show", "mask", "--next-at", "all")
    assert len(shown["next_words_at"]) == len(shown["query_tokens"]) and "mask_views" in shown
    texts = [TEXT, "Once upon a", "Thank you very"]
    (tmp_path / "lines.txt").write_text("\n".join(texts) + "\n")
    lines = ("batch", str(tmp_path / "lines.txt"), *MODEL, "--kind", "masked", "--fields")
    assert attn(*lines, "next_words_at", "--next-at", "all", "--next", "0").code == 2
    assert "next_words" not in attn(*lines, "weights", "--next-at", "all").out
    for line, text in zip(attn(*lines, "weights,next_words").out.splitlines(), texts, strict=True):
        # As a process of its own does it: with more threads of BLAS, the last digits differ.
        alone, found = json.loads(attn("masked", text, *MODEL, "-f", "json").out), json.loads(line)
        assert found == {name: alone[name] for name in found} and "next_words" in found


WEIGHTS_ALONE = "holds for the weights, not for them."
NO_POSITIONS = "without positions added to its vectors: its heads have a position"
SEVERAL = "--mask, --temperature and --positions hold for the weights, not for them."


def test_what_changes_the_weights_changes_nothing_that_it_says_and_the_screen_tells_so():
    for options, said in (
        *((line, ()) for line in ("--pad 2", "--pad 2 --pad-side left", "--layer 0", "--layer all")),
        ("--positions sinusoidal", (f"--positions {WEIGHTS_ALONE}", NO_POSITIONS)),
        ("--positions sinusoidal --pad 2 --layer 0", (NO_POSITIONS,)),
        ("--positions sinusoidal --mask none --temperature 2", (SEVERAL,)),
        ("--without cat", (f"--without {WEIGHTS_ALONE}",)),
        ("--temperature 0.5", (f"--temperature {WEIGHTS_ALONE}",)),
        ("--score dot", (f"--score {WEIGHTS_ALONE}",)),
        ("--round 0", (f"--round {WEIGHTS_ALONE}",)),
        ("--score scaled", ()),
    ):
        command = ("masked", TEXT, *MODEL)
        plain, found = record(*command), record(*command, *options.split())
        assert_alike(found["next_words"], plain["next_words"], FLOAT32)
        is_same = "pad" in options or "layer" in options or options == "--score scaled"
        assert is_same or not np.allclose(found["weights"], plain["weights"])
        shown = " ".join(here(*command, *options.split()).out.split())
        assert all(part in shown for part in said)
        assert said or not any(part in shown for part in ("for the weights", "--positions", "position term"))


def test_every_head_is_listed_and_those_with_names_are_found_by_them():
    stack = bundled("language")
    found = record("heads", TEXT, *MODEL)
    assert [layer["layer"] for layer in found["layers"]] == list(range(stack.layers))
    for layer in found["layers"]:
        names = [head.name for head in stack.attention(layer["layer"]).heads]
        assert [head["head"] for head in layer["heads"]] == names
    for name in stack.facts["scores"]:
        trace = trace_masked(TEXT, Settings(projection="language", head=name))
        assert trace.shown.name == name and trace.projection.layer == stack.layer_of(name)
        assert trace.learned.about == stack.facts["about"][name] and not trace.learned.taught
        assert any(name in note for note in found["notes"])


def test_the_main_head_is_shown_or_the_first_of_a_layer_and_at_most_50_words():
    main, shown = bundled("language").facts["main"], trace_self(TEXT, LANGUAGE)
    default = f"[default: {usual('head')}; {main} with -p language; else"
    assert default in " ".join(here("masked", "--help").out.split())
    assert (shown.shown.name, shown.projection.layer) == (main, bundled("language").layer_of(main))
    with_layer = trace_self(TEXT, replace(LANGUAGE, layer=1))
    assert with_layer.shown.name == with_layer.head_names[0]
    assert trace_self(TEXT, replace(LANGUAGE, head="3")).projection.layer == 2
    assert trace_self(TEXT, replace(LANGUAGE, head="7", layer=0)).shown.name == "article"
    assert trace_self(TEXT, Settings(projection="roles-deep")).shown.name == "relations"
    assert refused("masked", TEXT, *MODEL, "--next", "51")


@pytest.mark.parametrize("width", ["60", "80", "200"])
def test_each_line_of_next_words_says_after_which_word_it_is(width):
    shown = here("masked", TEXT, "-p", "language", "--next-at", "all", "--width", width).out.splitlines()
    table = shown[shown.index("After each token") + 1 :]
    table = table[: next(n for n, line in enumerate(table) if line.startswith("actual:"))]
    parts = "\n".join(table).strip("\n").split("\n\n")
    assert len(parts) > 1 or width == "200"
    tokens = trace_masked(TEXT, LANGUAGE).query_tokens
    for part in parts:
        header, *rows = part.splitlines()
        assert header.split()[0] == "after"
        assert [line.split()[:2] for line in rows] == [[str(n), token] for n, token in enumerate(tokens)]
    about = next(n for n, line in enumerate(shown) if line.startswith("The whole vocabulary"))
    assert about < shown.index("After each token")  # these tokens: those of the bars above


def test_no_head_is_named_where_the_model_says_no_words_or_one_is_out():
    for command in (("explain",), ("masked", "--knock-out", "0.1"), ("masked", "--head", "subject")):
        assert "adds most" not in told(*command, "The dog ran after the cat.")
