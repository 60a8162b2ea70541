"""How often a head is right: counted by hand, beside the best fixed distance; and the bundled model is better."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from jsonschema import Draft202012Validator

from attn_cli.learn.relations import RELATIONS
from attn_cli.learn.score import ENOUGH, Score, Tally, clear_leads, score
from attn_cli.learn.treebank import Antecedents, Sentence
from attn_cli.models.model_file import bundled, read_model
from attn_cli.vectors.spelling import features
from attn_cli.vectors.table import bundled as bundled_vectors
from tests import small_models as models
from tests.parsed import conllu, parsed
from tests.shell import attn

ROOT = Path(__file__).parents[2]
SCHEMA = Draft202012Validator(json.loads((ROOT / "attn_cli" / "schema.json").read_text(encoding="utf-8")))
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


def model(tmp_path, names=NAMES, layers=1, change=None, always=False, seed=0):
    made = models.arrays(len(names), layers, seed=seed)
    if change:
        made = {name: change(name, value) for name, value in made.items()}
    return read_model(
        models.write(tmp_path / "model.safetensors", made, models.table(), names, always=always)
    ), made


def zeros(name, value):
    return value if name.startswith("start") else np.zeros_like(value)


def weights_by_hand(made, h, words):
    """One head's weights by the formula of the one-layer model, number by number."""
    found = models.table().find({word.lower() for word in words})
    vectors = dict(zip(models.FEATURES, made["start.vectors"], strict=True))
    X = [
        found[word.lower()]
        if word.lower() in found
        else sum(vectors[name] for name in features(word) if name in vectors)
        for word in words
    ]
    q, k = ([x @ made[f"0.W_{m}"][h] + made[f"0.b_{m}"][h] for x in X] for m in "qk")
    rows = []
    for i in range(len(words)):
        scores = []
        for j in range(len(words)):
            away = max(-2, min(2, j - i)) + 2
            position = q[i] @ made["0.R"][h][away] + made["0.b"][h][away]
            scores.append((q[i] @ k[j] + position) / math.sqrt(2))
        exps = [math.exp(s - max(scores)) for s in scores]
        rows.append([e / sum(exps) for e in exps])
    return rows


@pytest.mark.parametrize("seed", range(3))
def test_accuracy_baseline_count_and_precision_are_those_counted_by_hand(seed, tmp_path):
    stack, made = model(tmp_path, seed=seed)
    scores = score(stack, models.table(), SENTENCES, silent)
    assert [one.name for one in scores] == NAMES
    for h, one in enumerate(scores):
        right = count = drawn = 0
        by_distance = dict.fromkeys(range(-9, 10), 0)
        for sentence in SENTENCES:
            weights = weights_by_hand(made, h, sentence.words)
            drawn += sum(row.index(max(row)) != i for i, row in enumerate(weights))
            for query, keys in RELATIONS[one.name].links(sentence).items():
                count += 1
                right += weights[query].index(max(weights[query])) in keys
                for distance in by_distance:
                    by_distance[distance] += query + distance in keys
        assert one.count == count > 0
        assert one.accuracy == right / count
        assert one.baseline == max(by_distance.values()) / count
        assert one.precision == right / drawn and drawn > count / 2


@pytest.mark.parametrize("seed", range(3))
def test_hard_content_and_the_nearest_of_a_kind_are_those_counted_by_hand(seed, tmp_path):
    stack, made = model(tmp_path, seed=seed)
    flat = {name: value * 0 if name in ("0.R", "0.b") else value for name, value in made.items()}
    for h, one in enumerate(score(stack, models.table(), SENTENCES, silent)):
        rows = []
        for sentence in SENTENCES:
            full, bare = (weights_by_hand(arrays, h, sentence.words) for arrays in (made, flat))
            for query, keys in RELATIONS[one.name].links(sentence).items():
                rows.append((sentence, query, keys, full[query], bare[query]))
        by_distance = {d: sum(query + d in keys for _, query, keys, *_ in rows) for d in range(-9, 10)}
        # Of distances that are equally often right, the nearest, and then the right one, is the best.
        best = max(by_distance, key=lambda d: (by_distance[d], -abs(d), d))
        hard = [full.index(max(full)) in keys for _, query, keys, full, _ in rows if query + best not in keys]
        assert one.hard == (sum(hard) / len(hard) if hard else None)
        assert one.content == sum(bare.index(max(bare)) in keys for *_, keys, _, bare in rows) / len(rows)
        rules = []
        for tag in {tag for sentence in SENTENCES for tag in sentence.tags}:
            for step in (-1, 1):
                right = 0
                for sentence, query, keys, *_ in rows:
                    place = query + step
                    while 0 <= place < len(sentence.tags) and sentence.tags[place] != tag:
                        place += step
                    right += place in keys
                rules.append(right)
        assert one.nearest == max(rules) / len(rows)


PASSAGE = Sentence(
    ("Anna", "told", "him", "that", "she", "sees", "Bo"), (-1,) * 7, ("",) * 7, ("PROPN", *"XXXXX", "PROPN"),
    (Antecedents(4, (0,), ((0, 1), (6, 7))),),
)  # fmt: skip


def test_of_passages_only_what_pronouns_stand_for_is_scored_and_the_right_one_of_two_names(tmp_path):
    for towards, right in ((-1, True), (1, False)):

        def there(name, value, towards=towards):
            made = zeros(name, value)
            if name == "0.b":
                made[:, 2 + 2 * towards] = 9.0  # two steps or more to that side
            return made

        stack, _ = model(tmp_path, ["subject", "antecedent"], change=there)
        (one,) = score(stack, models.table(), [PASSAGE], silent)
        assert one.name == "antecedent" and one.count == 1
        assert one.accuracy == float(right) and one.candidates == float(right)
        assert one.baseline == one.nearest == 1 and one.hard is None


@pytest.mark.parametrize(("rival", "best"), [(-2, 1), (2, 1), (-1, 1), (0, 0)])
def test_of_distances_that_are_right_as_often_the_nearest_is_the_best_and_then_the_one_ahead(rival, best):
    tally = Tally("subject")
    tally.rows = [(best != 1, frozenset({1})), (best == 1, frozenset({rival}))]
    assert (tally.score().baseline, tally.score().hard) == (0.5, 1.0)


@pytest.mark.parametrize("layers", [1, 3])
def test_where_all_weights_are_equal_the_first_word_is_the_strongest(layers, tmp_path):
    names = ["subject", "determiner", "object", "modifier"]
    stack, _ = model(tmp_path, names, layers, zeros)
    by_name = {one.name: one for one in score(stack, models.table(), SENTENCES, silent)}
    # subjects: cat (2) and Dog (0); determiners: The (0) and a (4); objects: dog (5), zebras (2);
    # modifiers: of cat big (1), of the other cat Big and big (0, 1).
    wanted = {"subject": 1 / 2, "determiner": 1 / 2, "object": 0, "modifier": 1 / 2}
    assert {name: one.accuracy for name, one in by_name.items()} == wanted
    assert {name: one.count for name, one in by_name.items()} == dict.fromkeys(names, 2)


def test_where_weights_are_zeros_the_first_word_is_strongest_and_progress_goes_up(tmp_path):
    stack, _ = model(tmp_path)
    seen = []
    score(stack, models.table(), SENTENCES * 40, seen.append)
    assert [stage.done for stage in seen] == sorted({stage.done for stage in seen})
    assert seen[-1].done == 1 and seen[-1].words == 40 * sum(len(s.words) for s in SENTENCES)

    def itself(name, value):
        made = zeros(name, value)
        if name == "0.b":
            made[:, value.shape[1] // 2] = 9.0
        return made

    stack, _ = model(tmp_path, change=itself)
    for one in score(stack, models.table(), SENTENCES, silent):
        assert (one.accuracy, one.precision) == (0, None)
    stack, _ = model(tmp_path, ["possessor", "subject", "oblique"])
    found = score(stack, models.table(), SENTENCES[:1], silent)
    assert [tuple(one)[:4] for one in (found[0], found[2])] == [
        ("possessor", None, None, 0),
        ("oblique", None, None, 0),
    ]
    assert found[1].count == 1
    stack, _ = model(tmp_path, ["mine", "object", "Subject"])
    assert [one.name for one in score(stack, models.table(), SENTENCES, silent)] == ["object"]


@pytest.fixture
def files(tmp_path):
    """A folder with a model, its vectors and a treebank."""
    names = ["relations", "possessor", "subject"]
    models.write(tmp_path / "model.safetensors", models.arrays(3), models.table(), names)
    (tmp_path / "v.txt").write_text(models.typed(models.table()))
    (tmp_path / "bank.conllu").write_text(conllu(*BANK))
    return tmp_path


SCORE = ["learn", "score", "model.safetensors", "bank.conllu", "-e", "v.txt"]


@pytest.mark.parametrize("how", [["-f", "json"], ["-f", "jsonl"], ["-o", "out.json"], ["-o", "out.jsonl"]])
def test_the_json_has_the_shape_that_the_design_states(how, files):
    ran = attn(*SCORE, *how, cwd=files)
    assert ran.code == 0, ran.err
    text = ran.out if how[0] == "-f" else (files / how[1]).read_text()
    if "jsonl" in how[1]:
        assert text.count("\n") == 1
    record = json.loads(text)
    assert list(record.items())[:2] == [("schema", "attn/1"), ("kind", "score")]
    assert [error.message[:200] for error in SCHEMA.iter_errors(record)] == []
    assert (record["model"], record["treebank"]) == ("model.safetensors", "bank.conllu")
    assert record["sentences"] == len(BANK)
    assert [list(head) for head in record["heads"]] == [
        [
            *("name", "accuracy", "baseline", "count", "precision", "nearest", "hard", "content"),
            *("candidates", "leads"),
        ]
    ] * 3
    stack = read_model(str(files / "model.safetensors"))
    wanted = score(stack, models.table(), SENTENCES, silent)
    assert [tuple(head.values()) for head in record["heads"]] == [tuple(one) for one in wanted]
    none = record["heads"][1]
    assert none == dict.fromkeys(Score._fields) | {"name": "possessor", "count": 0, "precision": 0}


def test_the_table_shows_every_head_and_a_model_without_a_relations_name_is_65(files):
    ran = attn(*SCORE, cwd=files)
    assert ran.code == 0 and ran.err == ""
    lines = ran.out.splitlines()
    by_name = {line.split()[0]: line.split()[1:] for line in lines[1:4]}
    assert list(by_name) == ["relations", "possessor", "subject"]
    assert by_name["possessor"] == ["–", "–", "–", "0.000", "–", "–", "0"]
    wanted = {
        one.name: one
        for one in score(read_model(str(files / "model.safetensors")), models.table(), SENTENCES, silent)
    }
    one = wanted["subject"]
    shares = (one.accuracy, one.baseline, one.nearest, one.precision, one.hard, one.content)
    shown = ["–" if share is None else f"{share:.3f}" for share in shares]
    assert by_name["subject"] == [*shown, str(one.count)]
    models.write(files / "model.safetensors", models.arrays(2), models.table(), ["one", "two"])
    ran = attn(*SCORE, cwd=files)
    assert (ran.code, ran.out) == (65, "") and ran.err.count("\n") == 1


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (["nobody", "bank.conllu"], 2, "nobody"),
        (["missing.safetensors", "bank.conllu"], 66, "missing.safetensors"),
        (["model.safetensors", "missing.conllu"], 66, "missing.conllu"),
        (["v.txt", "bank.conllu"], 65, "v.txt"),
        (["model.safetensors", "v.txt"], 65, "v.txt"),
        (["roles", "bank.conllu"], 65, "word2vec"),
        (["model.safetensors", "bank.conllu", "-f", "csv"], 2, "csv"),
        (["model.safetensors", "bank.conllu", "-o", "out.csv"], 2, "csv"),
        (["model.safetensors", "bank.conllu", "-o", "nowhere/out.json"], 73, "nowhere"),
        (["model.safetensors", "bank.conllu", "-e", "word2vec"], 65, "table"),
        (["model.safetensors"], 2, "TREEBANK"),
    ],
)
def test_what_cannot_be_scored_is_refused(args, code, said, files):
    ran = attn("learn", "score", "-e", "v.txt", *args, cwd=files)
    assert (ran.code, ran.out) == (code, ""), ran.err
    assert said in ran.err and ran.err.count("\n") == 1 and "Traceback" not in ran.err


SIMPLE = (
    "The/DET/3/det old/ADJ/3/amod man/NOUN/4/nsubj gave/VERB/0/root his/PRON/6/nmod:poss daughter/NOUN/4/iobj "
    "a/DET/10/det small/ADJ/10/amod red/ADJ/10/amod book/NOUN/4/obj ./PUNCT/4/punct",
    "My/PRON/2/nmod:poss sister/NOUN/6/nsubj and/CCONJ/5/cc her/PRON/5/nmod:poss friends/NOUN/2/conj "
    "walked/VERB/0/root slowly/ADV/6/advmod to/ADP/12/case the/DET/12/det old/ADJ/12/amod "
    "train/NOUN/12/compound station/NOUN/6/obl ./PUNCT/6/punct",
    "The/DET/2/det children/NOUN/3/nsubj played/VERB/0/root in/ADP/6/case the/DET/6/det garden/NOUN/3/obl "
    "and/CCONJ/8/cc sang/VERB/3/conj a/DET/10/det song/NOUN/8/obj ./PUNCT/3/punct",
    "Their/PRON/2/nmod:poss neighbours/NOUN/4/nsubj have/AUX/4/aux bought/VERB/0/root a/DET/9/det "
    "very/ADV/7/advmod expensive/ADJ/9/amod sports/NOUN/9/compound car/NOUN/4/obj ./PUNCT/4/punct",
    "The/DET/2/det dog/NOUN/7/nsubj under/ADP/5/case the/DET/5/det table/NOUN/2/nmod never/ADV/7/advmod "
    "barks/VERB/0/root at/ADP/9/case strangers/NOUN/7/obl ./PUNCT/7/punct",
    "Anna/PROPN/2/nsubj put/VERB/0/root the/DET/5/det heavy/ADJ/5/amod boxes/NOUN/2/obj on/ADP/8/case "
    "the/DET/8/det floor/NOUN/2/obl of/ADP/11/case the/DET/11/det kitchen/NOUN/8/nmod ./PUNCT/2/punct",
    "The/DET/2/det teacher/NOUN/7/nsubj with/ADP/6/case the/DET/6/det long/ADJ/6/amod beard/NOUN/2/nmod "
    "explained/VERB/0/root the/DET/9/det lesson/NOUN/7/obj patiently/ADV/7/advmod ./PUNCT/7/punct",
    "Our/PRON/3/nmod:poss old/ADJ/3/amod cat/NOUN/5/nsubj often/ADV/5/advmod sleeps/VERB/0/root on/ADP/9/case "
    "my/PRON/9/nmod:poss warm/ADJ/9/amod bed/NOUN/5/obl ./PUNCT/5/punct",
    "Did/AUX/4/aux your/PRON/3/nmod:poss brother/NOUN/4/nsubj finish/VERB/0/root his/PRON/8/nmod:poss "
    "new/ADJ/8/amod crime/NOUN/8/compound novel/NOUN/4/obj in/ADP/11/case the/DET/11/det spring/NOUN/4/obl "
    "?/PUNCT/4/punct",
    "She/PRON/2/nsubj bought/VERB/0/root bread/NOUN/2/obj ,/PUNCT/5/punct cheese/NOUN/3/conj and/CCONJ/7/cc "
    "apples/NOUN/3/conj at/ADP/10/case the/DET/10/det market/NOUN/2/obl ./PUNCT/2/punct",
    "The/DET/3/det little/ADJ/3/amod boy/NOUN/8/nsubj and/CCONJ/7/cc the/DET/7/det tall/ADJ/7/amod "
    "girl/NOUN/3/conj built/VERB/0/root a/DET/10/det house/NOUN/8/obj from/ADP/13/case wet/ADJ/13/amod "
    "sand/NOUN/8/obl ./PUNCT/8/punct",
    "The/DET/2/det soup/NOUN/7/nsubj that/PRON/6/obj my/PRON/5/nmod:poss grandmother/NOUN/6/nsubj "
    "cooked/VERB/2/acl:relcl tasted/VERB/0/root wonderful/ADJ/7/xcomp ./PUNCT/7/punct",
    "Birds/NOUN/2/nsubj fly/VERB/0/root over/ADP/5/case the/DET/5/det city/NOUN/2/obl and/CCONJ/8/cc "
    "fish/NOUN/8/nsubj swim/VERB/2/conj in/ADP/11/case the/DET/11/det river/NOUN/8/obl ./PUNCT/2/punct",
    "The/DET/2/det students/NOUN/4/nsubj will/AUX/4/aux send/VERB/0/root their/PRON/7/nmod:poss "
    "first/ADJ/7/amod letters/NOUN/4/obj to/ADP/10/case the/DET/10/det president/NOUN/4/obl soon/ADV/4/advmod "
    "./PUNCT/4/punct",
    "We/PRON/2/nsubj found/VERB/0/root a/DET/5/det broken/ADJ/5/amod clock/NOUN/2/obj and/CCONJ/9/cc "
    "two/NUM/9/nummod old/ADJ/9/amod coins/NOUN/5/conj in/ADP/12/case the/DET/12/det cellar/NOUN/2/obl "
    "./PUNCT/2/punct",
    "His/PRON/2/nmod:poss sister/NOUN/5/nmod:poss 's/PART/2/case small/ADJ/5/amod dog/NOUN/6/nsubj "
    "chased/VERB/0/root the/DET/8/det ball/NOUN/6/obj across/ADP/11/case the/DET/11/det street/NOUN/6/obl "
    "./PUNCT/6/punct",
    "A/DET/3/det young/ADJ/3/amod woman/NOUN/4/nsubj opened/VERB/0/root the/DET/6/det door/NOUN/4/obj "
    "and/CCONJ/9/cc quickly/ADV/9/advmod closed/VERB/4/conj the/DET/11/det window/NOUN/9/obj ./PUNCT/4/punct",
)


@pytest.mark.parametrize("name", ["roles", "roles-deep"])
def test_a_bundled_model_beats_the_best_fixed_distance_on_simple_sentences(name):
    found = score(bundled(name), bundled_vectors(), [parsed(text) for text in SIMPLE], silent)
    simple = {one.name: one for one in found if one.name != "antecedent"}
    assert simple.keys() == RELATIONS.keys() - {"antecedent"}
    for head, one in simple.items():
        if head in ("previous", "next"):
            assert one.accuracy == one.baseline == 1
        else:
            assert one.count >= 7 and one.accuracy > one.baseline, one


def test_a_clear_lead_is_the_smallest_from_which_on_four_of_five_are_right_with_five_cases_or_those_of_all_forms():
    his = [("his", lead / 10, lead != 7) for lead in range(3, 10)] + [
        ("his", 0.2, False),
        ("his", 0.1, False),
    ]
    it = [("it", 0.9, True), ("it", 0.5, True), ("it", 0.4, False)]
    its = [("its", 0.8, True), ("its", 0.7, False), ("its", 0.6, True), ("its", 0.3, False)]
    found = clear_leads(his + it + its + [("them", 0.9, True)] * (ENOUGH - 1))
    assert found["his"] == {"lead": 0.3, "forms": ("his",), "count": 7, "right": 6}
    assert found["it"] == {"lead": 0.5, "forms": ("it", "its", "itself"), "count": 5, "right": 4}
    assert found["its"] == found["itself"] == found["it"] and "them" not in found and "she" not in found


def test_only_links_to_earlier_words_have_a_lead():
    tally = Tally("antecedent")
    weights = np.array([[0.1, 0.2, 0.7], [0.6, 0.1, 0.3], [0.3, 0.6, 0.1]])
    marked = tuple(Antecedents(i, (0,)) for i in range(3))
    words = ("he", "saw", "him")
    tally.add(Sentence(words, (-1,) * 3, ("",) * 3, ("X",) * 3, marked), weights, weights)
    assert [(word, right) for word, _, right in tally.leads] == [("saw", True), ("him", False)]
    assert [lead for _, lead, _ in tally.leads] == pytest.approx([0.3, 0.3])
