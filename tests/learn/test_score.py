"""How often a head is right, counted by hand, beside the best fixed distance; and what heads of language do."""

import json
from functools import partial
from itertools import product

import numpy as np
import pytest

from attn_cli import Settings, trace_self
from attn_cli.learn import language_score
from attn_cli.learn.language_score import HeadMeasures, Measure, names_of, right_places
from attn_cli.learn.relations import RELATIONS
from attn_cli.learn.score import ENOUGH, Score, Tally, clear_leads, score
from attn_cli.learn.treebank import Antecedents, Sentence
from attn_cli.models.model_file import bundled, read_model
from attn_cli.vectors import bundled as vectors
from tests import small_models as models
from tests.cli.tables import told as cases
from tests.parsed import conllu, parsed
from tests.schema import complaints
from tests.shell import refused, told

BANK = (
    "The/DET/3/det big/ADJ/3/amod cat/NOUN/4/nsubj sees/VERB/0/root a/DET/6/det dog/NOUN/4/obj ./PUNCT/4/punct",
    "Dog/NOUN/2/nsubj sees/VERB/0/root zebras/NOUN/2/obj running/VERB/2/xcomp",
    "Sees/VERB/0/root",
    "Big/ADJ/3/amod big/ADJ/3/amod cat/NOUN/0/root and/CCONJ/5/cc dog/NOUN/3/conj",
)
SENTENCES = [parsed(text) for text in BANK]
NAMES = ["relations", "subject", "modifier"]


def silent(stage):
    pass


def model(tmp_path, names=NAMES, layers=1, change=lambda name, value: value, seed=0):
    made = {n: change(n, value) for n, value in models.arrays(len(names), layers, seed=seed).items()}
    return read_model(models.write(tmp_path / "model.safetensors", made, models.table(), names)), made


def zeros(name, value):
    return value if name.startswith("start") else np.zeros_like(value)


def looking(towards, name, value):
    """Let every head look so many places away."""
    made = zeros(name, value)
    if name == "0.b":
        made[:, 2 + towards] = 9.0
    return made


@pytest.mark.parametrize("seed", range(3))
def test_every_share_is_that_counted_by_hand(seed, tmp_path):
    stack, made = model(tmp_path, seed=seed)
    flat = {name: value * 0 if name in ("0.R", "0.b") else value for name, value in made.items()}
    scores = score(stack, models.table(), SENTENCES, silent)
    assert [one.name for one in scores] == NAMES
    for h, one in enumerate(scores):
        rows, drawn = [], 0
        for sentence in SENTENCES:
            full, bare = (models.weights_by_hand(M, h, sentence.words).argmax(axis=1) for M in (made, flat))
            drawn += sum(key != query for query, key in enumerate(full))
            for query, keys in RELATIONS[one.name].links(sentence).items():
                rows.append((sentence.tags, query, keys, full[query] in keys, bare[query] in keys))
        count, right = len(rows), sum(is_right for *_, is_right, _ in rows)
        by_distance = {d: sum(query + d in keys for _, query, keys, *_ in rows) for d in range(-9, 10)}
        # Of distances that are equally often right, the nearest, and then the right one, is the best.
        best = max(by_distance, key=lambda d: (by_distance[d], -abs(d), d))
        hard = [is_right for _, query, keys, is_right, _ in rows if query + best not in keys]
        rules = []
        for tag, step in product({tag for sentence in SENTENCES for tag in sentence.tags}, (-1, 1)):
            found = 0
            for tags, query, keys, *_ in rows:
                place = query + step
                while 0 <= place < len(tags) and tags[place] != tag:
                    place += step
                found += place in keys
            rules.append(found / count)
        assert (one.count, one.accuracy, one.baseline) == (count, right / count, by_distance[best] / count)
        assert one.precision == right / drawn and drawn > count / 2
        assert one.hard == (sum(hard) / len(hard) if hard else None)
        assert one.content == sum(by_content for *_, by_content in rows) / count
        assert one.nearest == max(rules)


PASSAGE = Sentence(
    ("Anna", "told", "him", "that", "she", "sees", "Bo"), (-1,) * 7, ("",) * 7, ("PROPN", *"XXXXX", "PROPN"),
    (Antecedents(4, (0,), ((0, 1), (6, 7))),),
)  # fmt: skip


def test_of_passages_only_what_pronouns_stand_for_is_scored_and_the_right_one_of_two_names(tmp_path):
    for towards, right in ((-2, 1.0), (2, 0.0)):  # two steps or more to that side
        stack, _ = model(tmp_path, ["subject", "antecedent"], change=partial(looking, towards))
        (one,) = score(stack, models.table(), [PASSAGE], silent)
        assert (one.name, one.count, one.accuracy, one.candidates) == ("antecedent", 1, right, right)
        assert one.baseline == one.nearest == 1 and one.hard is None


def test_of_distances_that_are_right_as_often_the_nearest_is_the_best_and_then_the_one_ahead():
    tally = Tally("subject")
    for rival, best in ((-2, 1), (2, 1), (-1, 1), (0, 0)):
        rows = [(best != 1, frozenset({1})), (best == 1, frozenset({rival}))]
        for tally.rows in (rows, rows[::-1]):
            assert (tally.score().baseline, tally.score().hard) == (0.5, 1.0)


@pytest.mark.parametrize("layers", [1, 3])
def test_where_all_weights_are_equal_the_first_word_is_the_strongest(layers, tmp_path):
    stack, _ = model(tmp_path, ["subject", "modifier"], layers, zeros)
    # Subjects: cat (2) and Dog (0); modifiers: of cat big (1), of the other cat Big and big (0, 1).
    for one in score(stack, models.table(), SENTENCES, silent):
        assert (one.accuracy, one.count) == (1 / 2, 2)


def test_a_head_that_looks_at_itself_has_no_precision_and_one_without_links_no_accuracy(tmp_path):
    stack, _ = model(tmp_path, change=partial(looking, 0))
    for one in score(stack, models.table(), SENTENCES, silent):
        assert (one.accuracy, one.precision) == (0, None)
    stack, _ = model(tmp_path, ["possessor", "subject", "oblique"])
    found = score(stack, models.table(), SENTENCES[:1], silent)
    assert [one[1:4] for one in (found[0], found[2])] == [(None, None, 0)] * 2 and found[1].count == 1
    stack, _ = model(tmp_path, ["mine", "object", "Subject"])
    assert [one.name for one in score(stack, models.table(), SENTENCES, silent)] == ["object"]
    seen = []
    score(stack, models.table(), SENTENCES * 40, seen.append)
    assert [stage.done for stage in seen] == sorted({stage.done for stage in seen})
    assert seen[-1].done == 1 and seen[-1].words == 40 * sum(len(s.words) for s in SENTENCES)


@pytest.fixture
def files(at):
    model(at, ["relations", "possessor", "subject"])
    (at / "v.txt").write_text(models.typed(models.table()))
    (at / "bank.conllu").write_text(conllu(*BANK))
    return at


SCORE = ["learn", "score", "model.safetensors", "bank.conllu", "-e", "v.txt"]


def test_the_json_and_the_table_have_every_head_and_a_model_without_a_relations_name_is_65(files):
    assert told(*SCORE, "-f", "jsonl").count("\n") == 1 and told(*SCORE, "-o", "out.json") == ""
    record = json.loads((files / "out.json").read_text())
    assert complaints(record) == []
    assert (record["model"], record["treebank"]) == ("model.safetensors", "bank.conllu")
    assert record["sentences"] == len(BANK)
    wanted = score(read_model("model.safetensors"), models.table(), SENTENCES, silent)
    assert [[*head.items()] for head in record["heads"]] == [[*one._asdict().items()] for one in wanted]
    assert wanted[1]._asdict() == dict.fromkeys(Score._fields) | {
        "name": "possessor",
        "count": 0,
        "precision": 0,
    }
    rows = [line.split() for line in told(*SCORE).splitlines()[1:4]]
    for row, one in zip(rows, wanted, strict=True):
        shares = (one.accuracy, one.baseline, one.nearest, one.precision, one.hard, one.content)
        shown = ["–" if share is None else f"{share:.3f}" for share in shares]
        assert row == [one.name, *shown, str(one.count)]
    assert rows[1] == ["possessor", "–", "–", "–", "0.000", "–", "–", "0"]
    model(files, ["one", "two"])
    assert refused(*SCORE, code=65)


WRONG = """
missing.safetensors bank.conllu => 66 missing.safetensors | v.txt bank.conllu => 65 v.txt
model.safetensors v.txt => 65 v.txt | model.safetensors bank.conllu -o nowhere/out.json => 73 nowhere
roles bank.conllu => 65 word2vec | model.safetensors bank.conllu -e word2vec => 65 table
"""


def test_what_cannot_be_scored_is_refused(files):
    for args, end in cases(WRONG):
        code, said = end.split()
        assert said in refused("learn", "score", "-e", "v.txt", *args, code=int(code))


def test_a_clear_lead_is_the_smallest_from_which_on_four_of_five_are_right_of_links_to_earlier_words():
    his = [("his", lead / 10, lead not in (1, 2, 7)) for lead in (*range(3, 10), 2, 1)]
    it = [("it", 0.9, True), ("it", 0.5, True), ("it", 0.4, False)]
    its = [("its", 0.8, True), ("its", 0.7, False), ("its", 0.6, True), ("its", 0.3, False)]
    found = clear_leads(his + it + its + [("them", 0.9, True)] * (ENOUGH - 1))
    assert found["his"] == {"lead": 0.3, "forms": ("his",), "count": 7, "right": 6}
    assert found["it"] == {"lead": 0.5, "forms": ("it", "its", "itself"), "count": 5, "right": 4}
    assert found["its"] == found["itself"] == found["it"] and "them" not in found and "she" not in found
    tally, weights = Tally("antecedent"), np.array([[0.1, 0.2, 0.7], [0.6, 0.1, 0.3], [0.3, 0.6, 0.1]])
    marked = tuple(Antecedents(i, (0,)) for i in range(3))
    passage = Sentence(("he", "saw", "him"), (-1,) * 3, ("",) * 3, ("X",) * 3, marked)
    tally.add(passage, weights, weights)
    assert [(word, right) for word, _, right in tally.leads] == [("saw", True), ("him", False)]
    assert [lead for _, lead, _ in tally.leads] == pytest.approx([0.3, 0.3])


def test_a_pattern_finds_the_right_places():
    found = right_places(["The", "cat", "saw", "the", "cat", "run"], ["DET", "NOUN", "VERB"] * 2)
    for name, right in (
        *(("previous", {1: 0, 2: 1, 3: 2, 4: 3, 5: 4}), ("itself", {0: 0, 1: 1, 2: 2, 3: 3, 4: 4, 5: 5})),
        *(("first", {1: 0, 2: 0, 3: 0, 4: 0, 5: 0}), ("same", {3: 0, 4: 1}), ("induction", {3: 1, 4: 2})),
        *(("noun", {2: 1, 3: 1, 4: 1, 5: 4}), ("verb", {3: 2, 4: 2, 5: 2}), ("article", {1: 0, 4: 3})),
        ("two-back", {2: 0, 3: 1, 4: 2, 5: 3}),
    ):
        assert found[name] == right
    tagged = "Her/PRON very/ADV big/ADJ dog/NOUN barked/VERB cats/NOUN at/ADP those/DET Ann/PROPN boys/NOUN ran/VERB"
    found = right_places(*zip(*(word.split("/") for word in tagged.split()), strict=True))
    assert found["article"] == {3: 0, 9: 7}, "cats have none, and Ann is no noun"
    assert found["noun"] == {4: 3, 5: 3, 6: 5, 7: 5, 8: 5, 9: 8, 10: 9}
    assert right_places(["no", "no", "no"], ["X"] * 3)["induction"] == {}  # what followed is the word itself


def test_a_head_is_named_for_what_takes_it_furthest_and_the_clearest_comes_first():
    measured, best = [], {"previous": 1.0, "noun": 0.4, "induction": 1.0}
    for n, shares in enumerate(((0.5, 0.4, 0.0), (0.9, 0.4, 0.0), (0.2, 0.8, 0.0), (0.2, 0.45, 0.1))):
        made = {name: Measure(share, best[name], 9, "dev") for name, share in zip(best, shares, strict=True)}
        measured.append(HeadMeasures(*divmod(n, 2), made))
    assert list(names_of(measured).values()) == ["previous-2", "previous", "noun", "1"]
    assert measured[3].pattern is None


def test_heads_of_a_language_model_are_measured_by_their_strongest_links(monkeypatch):
    monkeypatch.setattr(language_score, "REPEATS", 2)
    bank, seen = SENTENCES[:2], []
    measured = language_score.measure_heads(bundled("language"), vectors(), bank, "bank", 7, seen.append)
    settings = Settings(projection="language", head="all", layer="all", next=0)
    traces = [trace_self(list(one.words), settings).heads for one in bank]
    for n, one in enumerate(measured):
        assert (one.layer, one.number, traces[0][n].layer) == (*divmod(n, 8), one.layer)
        same, induction = (one.measures.pop(name) for name in ("same", "induction"))
        # Two texts of 10 to 30 words that are said twice: of the longer one, all have one distance.
        assert same[1:] == induction[1:] and same.on == "random words said twice" and 20 <= same.count <= 60
        assert 10 <= round(same.count * (1 - same.baseline)) <= round(same.count * same.baseline) <= 30
        for name, found in (("same", same), ("induction", induction)):  # a head's name says what it does
            assert (found.accuracy > 0.9) == (name in traces[0][n].name) and not 0.2 < found.accuracy < 0.9
        for name, found in one.measures.items():
            wanted = [right_places(text.words, text.tags)[name] for text in bank]
            pairs = [(s, i, j) for s, right in enumerate(wanted) for i, j in right.items()]
            hits = sum(traces[s][n].weights[i].argmax() == j for s, i, j in pairs)
            distances = [i - j for _, i, j in pairs]
            best = max(map(distances.count, distances))
            assert found == (hits / len(pairs), best / len(pairs), len(pairs), "bank")
        assert one.measures.keys() == language_score.PATTERNS.keys() - {"same", "induction"}
    assert (seen[0].done, seen[0].words) == (1, 11)
