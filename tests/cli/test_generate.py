"""attn generate: each token as the model says it, drawn as asked, written as it comes, and kept when it ends."""

import json
import shutil
import signal
import time

import numpy as np
import pytest

from attn_cli import Settings, trace_masked
from attn_cli.pipeline.generate import Sampling, Writer, generate
from tests.alike import FLOAT32, assert_alike
from tests.cli.tables import typed
from tests.cli.test_lens import TRANSLATORS, translator
from tests.models.checkpoints.gguf_by_hand import in_both_forms
from tests.schema import complaints
from tests.shell import here, plain, refused, shell, started, terminal, told, worked

FOX = "The quick brown fox"
KING = "The king of the"


@pytest.fixture
def configured(letters, tmp_path):
    """Return a model of letters whose file says what is told of how it writes."""

    def tell(**told):
        folder = shutil.copytree(letters, tmp_path / "letters", dirs_exist_ok=True)
        (folder / "generation_config.json").write_text(json.dumps(told))
        return str(folder)

    return tell


def steps(*args):
    ran = here("generate", *args)
    assert ran.code == 0, ran.err
    found = [json.loads(line) for line in ran.out.splitlines()]
    assert [complaint for one in found for complaint in complaints(one)] == []
    assert [one["step"] for one in found] == [*range(len(found))]
    assert [one["stopped"] is None for one in found] == [True] * (len(found) - 1) + [False]
    return found


COMMA = "When the old man came home"  # the model goes on with one
WRITTEN = [(KING, {}), (COMMA, {}), ("ab a", {"model": ""}), ("ab a", {"model": "", "layer": 0, "head": "1"})]


@pytest.mark.parametrize(("begun", "place"), WRITTEN)
def test_each_word_is_the_likeliest_that_masked_names_and_its_row_the_last_one(begun, place, letters):
    place, space, text = place | ({"model": letters} if place else {}), "" if place else " ", begun
    options = [word for name in place for word in (f"--{name}", str(place[name]))]
    for one in steps(begun, *options, "--count", "5", "--runners-up", "4"):
        trace = trace_masked(text, Settings(next=6, **place))
        named = [found._asdict() for found in trace.next_words.words if found.id is not None][:5]
        said = [{key: one[key] for key in ("word", "probability", "id", "logit")}, *one["runners_up"]]
        best = sorted(said, key=lambda word: -word["probability"])
        assert [word["id"] for word in best] == [word["id"] for word in named] and best[0]["id"] == one["id"]
        for mine, theirs in zip(best, named, strict=True):
            assert mine["probability"] == pytest.approx(theirs["probability"], rel=1e-4)
        np.testing.assert_allclose(one["weights"], trace.weights[-1], rtol=0, atol=FLOAT32)
        assert (one["layer"], one["head"]) == (trace.projection.layer, trace.shown.name)
        assert tuple(one["key_tokens"]) == trace.key_tokens
        text += f"{space}{one['word']}"
    assert ("," in one["written"]) == (begun == COMMA)
    assert one["written"].replace(",", " ,") == text.removeprefix(begun)  # no space stands before a comma


def test_what_is_knocked_out_is_missing_from_what_is_written(letters):
    for text, model, part in ((KING, None, "0.mlp"), (KING, None, "1.previous"), ("ab a", letters, "0.1")):
        options = ("--knock-out", part, *(["-m", model] if model else []))
        (one,) = steps(text, "--count", "1", *options)
        found = trace_masked(text, Settings(next=9, knock_out=(part,), model=model)).next_words
        (same,) = (word for word in found.words if word.id == one["id"])
        assert one["probability"] == pytest.approx(same.probability, rel=1e-4)


def test_it_stops_where_it_is_told_or_the_model_ends_and_one_without_tokens_is_refused(letters, configured):
    whole = steps("ab a", "-m", letters, "--count", "99")
    assert whole[-1]["stopped"] == "length" and len(whole) == 18
    for count in ("2", "18"):  # also where there is no place for more
        assert steps("ab a", "-m", letters, "--count", count)[-1]["stopped"] == "count"
    drawn = ["ab a", "-m", letters, "--sample-temperature", "3", "--seed", "5"]
    written = steps(*drawn)[-1]["written"]
    found = steps(*drawn, "--stop", "zz", "--stop", written[3:5])[-1]
    assert found["stopped"] == "stop" and found["written"].endswith(written[3:5])
    model = configured(eos_token_id=[5, whole[0]["id"]], bad_words_ids=[[4], [1, 2]])
    ids = [found.id for found in trace_masked("ab a", Settings(model=model, next=6)).next_words.words]
    (one,) = map(json.loads, told("generate", "ab a", "-m", model).splitlines())
    assert (one["stopped"], one["written"]) == ("end", "")
    assert [word["id"] for word in one["runners_up"]] == [n for n in ids if n not in (one["id"], 4)][:3]
    model = configured(bad_words_ids=[[0], [1]], suppress_tokens=[2, 3, 4, 5, 6])
    said = refused("generate", "ab a", "-m", model, "--top-k", "2", code=65)
    assert "letters has no token to write: generation_config.json" in said


def test_tokens_are_drawn_with_the_probabilities_that_are_told(letters):
    def written(*more, count="17"):
        return steps("ab a", "-m", letters, "--count", count, *more)

    def ids(*more):
        return [one["id"] for one in written(*more)]

    greedy = ids()
    assert ids("--seed", "3") == greedy == ids("--top-k", "1") == ids("--top-p", "0.001")
    drawn = ids("--sample-temperature", "2", "--seed", "3")
    assert drawn == ids("--sample-temperature", "2", "--seed", "3") != greedy
    assert drawn != ids("--sample-temperature", "2", "--seed", "4")
    for one in written("--top-k", "2", "--seed", "1"):
        best = sorted([one["probability"], *(word["probability"] for word in one["runners_up"])])[-2:]
        assert one["chosen"] == "drawn"
        assert one["chance"] == pytest.approx(one["probability"] / sum(best), rel=1e-5)
    often = [written("--sample-temperature", "1", "--seed", str(n), count="1")[0] for n in range(24)]
    likeliest = max(often, key=lambda one: one["probability"])
    share = np.mean([one["id"] == likeliest["id"] for one in often])
    assert abs(share - likeliest["probability"]) < 0.3


@pytest.mark.parametrize("asked", [(0.7, None, None), (None, 5, None), (None, None, 0.6), (1.5, 9, 0.9)])
def test_chances_and_what_would_be_written_twice_are_those_of_transformers(asked, transformers):
    import torch

    logits = np.random.default_rng(7).standard_normal(40) * 2
    found = torch.tensor(logits)[None]
    for value, name in zip(asked, ("Temperature", "TopK", "TopP"), strict=True):
        if value is not None:
            found = getattr(transformers, f"{name}LogitsWarper")(value)(None, found)
    np.testing.assert_allclose(Sampling(*asked).chances(logits), found.softmax(-1)[0], rtol=0, atol=1e-12)
    for n in (2, 3, 4):
        tokens = np.random.default_rng(n).integers(0, 4, 40).tolist()
        scores = transformers.NoRepeatNGramLogitsProcessor(n)(torch.tensor([tokens]), torch.zeros(1, 6))[0]
        forbidden = torch.nonzero(torch.isinf(scores)).flatten().tolist()
        assert sorted({*Sampling(no_repeat=n).repeating(tokens)}) == forbidden != []
        penalty = transformers.RepetitionPenaltyLogitsProcessor(n / 2.5)
        less = penalty(torch.tensor([tokens]), torch.tensor(logits)[None])
        found = Sampling(repetition_penalty=n / 2.5).penalized(logits, [-1, *tokens])
        np.testing.assert_allclose(found, less[0], rtol=1e-12)


def test_of_tokens_as_likely_a_number_keeps_all_and_a_share_the_first():
    for sampling, logits, chances in (
        (Sampling(top_k=1), [0, 1], [0, 1]),
        (Sampling(top_k=1), [1, 0, 1], [0.5, 0, 0.5]),
        (Sampling(top_p=0.5), [0, 0], [1, 0]),
        (Sampling(top_p=0.5), [0] * 64, [1 / 32] * 32 + [0] * 32),
        (Sampling(top_p=0.51), [0, 0], [0.5, 0.5]),
    ):
        assert sampling.chances(np.array(logits)).tolist() == chances


@pytest.mark.parametrize("n", [2, 3])
def test_no_tokens_are_written_twice_in_one_order(n):
    def runs(tokens):
        return [tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1)]

    asked = [FOX, "--count", "24", "--no-repeat", str(n)]
    *_, last = steps(*asked)
    spelled = [*map(str.lower, last["key_tokens"]), last["word"]]
    assert len(set(runs(spelled))) == len(runs(spelled)) > len(set(runs(steps(*asked[:3])[-1]["key_tokens"])))


def test_a_penalty_makes_what_was_written_less_likely_and_where_every_token_would_come_again_all_may():
    asked = [KING, "--count", "24"]
    often, less = [steps(*asked, *more) for more in ((), ("--repetition-penalty", "1.5"))]
    assert len({one["word"] for one in less}) > len({one["word"] for one in often}) + 3
    scores = np.array([2.0, -2.0, 0.0, 1.0])
    found = Sampling(repetition_penalty=4).penalized(scores, [0, 1, 2, 0, -1, 4])
    assert found.tolist() == [0.5, -8.0, 0.0, 1.0]
    assert scores[0] == 2  # the probabilities that are told stay those of the model

    def look(written):
        return np.array([1.0, 0.5]), ("a",), np.ones(1)

    place = ("masked", 0, "0")
    writer = Writer("two", "", place, look, None, "ab".__getitem__, lambda ids: "".join(map(str, ids)))
    found = [one.told.id for one in generate(writer, Sampling(no_repeat=2), 6, (), 0)]
    assert found == [0, 0, 1, 0, 0, 0]


def test_it_is_written_as_it_comes_and_stays_when_its_reader_or_the_user_ends_it(letters, tmp_path):
    ran = shell(f"attn generate '{FOX}' --count 2000 | head -2")
    assert ran.code == 0 and ran.err == "" and len(ran.out.splitlines()) == 2
    for more in ((), ("-o", "all.jsonl")):
        arguments = ("generate", "The zxqv fox", "--count", "2000", *more)
        with started(*arguments, stdout=-1, stderr=-1, cwd=tmp_path) as run:
            said = run.stderr.readline()  # of the word without a vector: now it writes
            first = b"" if more else run.stdout.readline()
            begun = worked(run.pid)
            while more and worked(run.pid) < begun + 0.25:  # it writes some words
                time.sleep(0.01)
            run.send_signal(signal.SIGINT)
            out, err = run.communicate(timeout=60)
        assert run.returncode == 130 and b"Traceback" not in err and b"zxqv" in said
        text = (tmp_path / "all.jsonl").read_text() if more else (first + out).decode()
        found = [json.loads(line)["step"] for line in text.splitlines()]
        assert found and found == [*range(len(found))]


def test_a_gguf_file_writes_what_its_folder_does(tokenizers, tmp_path):
    whole, exact, eight = in_both_forms(tmp_path)
    first, same, near = (steps("abca", "-m", model, "--count", "5") for model in (whole, exact, eight))
    assert [one["id"] for one in first] == [one["id"] for one in same] and len(first) == 5
    assert_alike([one["weights"] for one in same], [one["weights"] for one in first], FLOAT32)
    assert near[0]["probability"] == pytest.approx(first[0]["probability"], abs=0.05)


def test_a_terminal_gets_a_line_a_token_and_then_the_text(letters):
    found = terminal("generate", "ab a", "-m", letters, "--count", "4")
    lines = plain(found.out).splitlines()
    assert (
        found.code == 0 and lines[8] == "ab a" + steps("ab a", "-m", letters, "--count", "4")[-1]["written"]
    )
    table = ("-m", letters, "--count", "4", "-f", "table")
    assert here("generate", "ab a", *table).out.splitlines() == lines
    for end in ("", "\\n", "\\r\\n"):  # which is no part of the text
        assert shell(f"printf 'ab a{end}' | attn generate - {' '.join(table)}").out.splitlines() == lines


def test_a_page_of_each_kind_of_model_is_written(letters, tmp_path):
    for model in (("--count", "4"), ("-m", letters, "--count", "99")):
        told("generate", "ab a", *model, "-f", "page", "-o", str(tmp_path / "x.html"))
        text = (tmp_path / "x.html").read_text()
        found = json.loads(text.partition('id="record">')[2].partition("</script>")[0])
        each, writing = steps("ab a", *model), found["writing"]
        for step, one in zip(writing["steps"], each, strict=True):
            assert step[0] == [one["word"], pytest.approx(one["probability"])]
        last = [one["key_tokens"][-1] for one in each]
        assert found["queries"][writing["first"] :][: len(each)] == last
        assert writing["head"] == each[0]["head"]


def test_a_screen_says_how_tokens_are_drawn_and_where_runners_up_are_left_out():
    table = ("generate", FOX, "-f", "table", "--count")
    (drawn,) = typed("--sample-temperature 0.8 --top-k 10 --no-repeat 2 --repetition-penalty 1.5 --seed 3")
    said = ["drawn: temperature 0.8, top-k 10, seed 3", "repetition penalty 1.5", "no 2 tokens twice"]
    for more, headings in ((drawn, said), (("--seed", "3"), [])):
        assert here(*table, "1", *more).out.splitlines()[1 : 2 + len(headings)] == [*headings, ""]
    for count, width, is_cut in (("2", "80", False), ("3", "80", True), ("3", "150", False)):
        assert (" …" in here(*table, "1", "--runners-up", count, "--width", width).out) == is_cut
    first = [[str(len(one["key_tokens"])), one["word"]] for one in steps(FOX, "--count", "2")]
    for width in ("20", "25", "29", "40"):
        lines = told(*table, "2", "--width", width).splitlines()
        assert [line.split()[:2] for line in lines if line[2:3].isdigit()] == first


TOLD = [  # of a model of six tokens: what its file says, which tokens are not written, which comes first, what is said
    ({"bad_words_ids": [[77], [4]], "suppress_tokens": [-1]}, {4}, None, "it lacks, -1, 77 (it has 0 to 5)"),
    ({"forced_bos_token_id": 99, "eos_token_id": [6, 7, 8, 9]}, set(), None, "6, 7, 8, 9, 99 (it has"),
    ({"forced_bos_token_id": 3, "eos_token_id": [*range(6, 12)]}, set(), 3, "6, 7, 8, 9, 10, ... (it has"),
    ({"suppress_tokens": [0, 1, 2, 3]}, {0, 1, 2, 3}, None, ""),
    ({"forced_bos_token_id": 0}, set(), 0, ""),
    ({"forced_bos_token_id": True}, set(), None, ""),
    # Of transformers' longest text: --count is where a reader stops.
    ({"forced_eos_token_id": 1}, set(), None, ""),
]


@pytest.mark.parametrize(("config", "never", "first", "said"), TOLD)
@pytest.mark.parametrize("more", [(), ("--top-k", "2")])
def test_tokens_that_a_model_names_are_those_that_it_has(config, never, first, said, more, configured):
    model = configured(**config)
    words = trace_masked("ab a", Settings(model=model, next=6)).next_words.words
    best = [found.id for found in words if found.id not in never]
    ran = here("generate", "ab a", "-m", model, "--count", "1", "--runners-up", "5", *more)
    (one,) = map(json.loads, ran.out.splitlines())
    assert ran.code == 0 and said in ran.err and bool(said) == bool(ran.err)
    assert one["chosen"] == ("first" if first is not None else "drawn" if more else "likeliest")
    assert one["id"] == first if first is not None else one["id"] in best[: 2 if more else 1]
    assert [word["id"] for word in one["runners_up"]] == [n for n in best if n != one["id"]]


@pytest.mark.parametrize("name", TRANSLATORS)
def test_a_translator_writes_its_own_text_and_looks_at_the_one_that_it_read(name, transformers, tmp_path):
    import torch

    model = translator(transformers, name, tmp_path)
    found = steps("ab a", "-m", str(tmp_path), "--count", "5")
    ids = torch.tensor([[0, 1, 0]])
    asked = {"max_new_tokens": 5, "do_sample": False, "num_beams": 1, "use_cache": False}
    asked |= {"output_attentions": True, "return_dict_in_generate": True}
    own = model.generate(ids, attention_mask=torch.ones_like(ids), **asked)
    assert [one["id"] for one in found] == own.sequences[0, 1:].tolist()
    for one, attention in zip(found, own.cross_attentions, strict=True):
        assert one["attention"] == "cross" and one["key_tokens"] == ["a", "b", "a"]
        np.testing.assert_allclose(one["weights"], attention[-1][0, 0, -1], rtol=0, atol=1e-5)
