"""--model: a pretrained model's folder takes the place of vectors, projection and tokenizer, in every command."""

import json
import re
import shlex
import shutil

import numpy as np
import pytest

from attn_cli import Settings, trace_self
from attn_cli.errors import InputError, UsageError
from attn_cli.settings import CONFLICTS_WITH_MODEL, REPLACED_BY_MODEL
from tests import shell
from tests.alike import FLOAT32, assert_alike
from tests.cli.tables import pairs, told, typed
from tests.models.checkpoints.by_hand import GPT2, byte_pairs, small_gpt2
from tests.pipeline.records import record
from tests.shell import here, refused
from tests.small_models import trace_checkpoint

pytestmark = pytest.mark.usefixtures("tokenizers")
TEXT = "dabca"


@pytest.fixture
def folder(models):
    return str(models / "gpt2")


def weights(*args, **more):
    return np.array(record(*args, **more)["weights"])


@pytest.mark.parametrize("command", ["self", "masked", "explain"])
def test_the_commands_show_what_the_model_computes_and_its_name_but_not_where_it_lies(command, folder):
    for layer in (0, 1):
        expected = trace_checkpoint("masked", TEXT, None, Settings(layer=layer, head="1"), folder).weights
        found = weights(command, TEXT, "-m", folder, "--layer", str(layer), "--head", "1")
        np.testing.assert_allclose(found, expected, atol=FLOAT32)
    for form in ("json", "table", "html"):
        ran = here(command, TEXT, "-m", folder, "-f", form)
        assert ran.code == 0 and "gpt2" in ran.out and folder not in ran.out


def test_byte_level_tokens_are_text_on_screens_and_as_the_vocabulary_has_them_in_the_json(tmp_path):
    folder = small_gpt2(tmp_path / "gpt2")
    byte_pairs(folder, ("a", "b", "c", "d", "Ġ", "Ġa"), ["Ġ a"])
    shown = typed("masked | explain -f html | heads --rollout | compare --vary score=dot,scaled")
    for command, *args in shown:
        out = shell.told(command, "db ac", "-m", folder, *args)
        assert "␣a" in out and "Ġ" not in out
    raw = record("masked", "db ac", "-m", folder)
    assert raw["query_tokens"] == ["d", "b", "Ġa", "c"]
    said = "ac is the pieces Ġa, c: --join-pieces joins them."
    assert said in here("masked", "db ac", "-m", folder, "-q", "ac").err
    assert " " in {one["word"] for one in raw["next_words"]}


def test_a_variable_names_it_too_the_library_takes_it_and_a_standing_renormalize_waits_for_it(folder, bert):
    expected = weights("self", TEXT, "-m", folder)
    standing = {"ATTN_" + name.upper(): value for name, value in BESIDE.items()}
    # What is typed beats the others.
    for args, env in (((), {"ATTN_MODEL": folder}), (("-m", folder), standing)):
        np.testing.assert_allclose(weights("self", TEXT, *args, env=env), expected, atol=FLOAT32)
    np.testing.assert_allclose(trace_self(TEXT, Settings(model=folder)).weights, expected, atol=FLOAT32)
    found = record("self", "a b", "-e", "random", env={"ATTN_MODEL": folder})
    assert found["embedding"]["source"] == "random"
    with pytest.raises(UsageError, match="takes the place of --embedding"):
        trace_self(TEXT, Settings(model=folder, embedding="random"))
    with pytest.raises(InputError, match="cuts its text itself"):
        trace_self(["a", "b"], Settings(model=folder))
    for command in (("lookup", "a", "b=c"), ("compute", "x.json"), ("example", "coffee")):
        assert here(*command, "-m", folder).code == 2
    assert here("example", "coffee", env={"ATTN_MODEL": folder}).code == 0
    sums = [
        weights("self", "the cats", "-m", bert, *options, env={"ATTN_RENORMALIZE": value}).sum(axis=1)
        for options, value in (([], "yes"), (["--hide-special"], "yes"), (["--hide-special"], "no"))
    ]
    assert np.allclose(sums[0], 1) and np.allclose(sums[1], 1) and (sums[2] < 0.99).all()


BESIDE = pairs("""
embedding => random | projection => identity | tokenizer => characters | keep_punctuation => yes | dim => 8 | seed => 3
oov => zero | heads => 2 | layout => out-in | positions => sinusoidal | round => 1 | pad => 2 | pad_side => left
""")


@pytest.mark.parametrize("name", CONFLICTS_WITH_MODEL)
def test_what_it_takes_the_place_of_or_makes_void_is_wrong_usage_beside_it(name, folder):
    option = "--" + name.replace("_", "-")
    typed = [option] if name == "keep_punctuation" else [option, BESIDE[name]]
    for command in ("self", "explain", "batch", "page", "live"):
        said = refused(command, TEXT, "-m", folder, *typed)
        assert re.search(f"--model takes the place of {option}|{option} changes nothing in a model", said)
    assert (name in REPLACED_BY_MODEL) == ("takes the place" in said)
    varied = f"{option[2:]}=default,{BESIDE[name]}"
    assert option[2:] in refused("compare", TEXT, "-m", folder, "--vary", varied)


BOTH = told("""
dabca -m gpt2 --vary head=0,1 => dabca --head 0; dabca --head 1
"the cat" --with "the cats" -m bert --layer 1 --head 0 => "the cat" HERE; "the cats" HERE
"the cat" -m bert --vary mask=none,causal => "the cat"; "the cat" --mask causal
""")


@pytest.mark.parametrize(("args", "each"), BOTH)
def test_each_side_is_what_it_is_alone(args, each, models, tmp_path, monkeypatch):
    monkeypatch.chdir(models)
    model, lines = args[args.index("-m") + 1], str(tmp_path / "lines.txt")
    compared = shell.record("compare", *args)
    for one, line in zip(compared["records"], each.split(";"), strict=True):
        alone = shlex.split(line.replace("HERE", "--layer 1 --head 0"))
        for command in ("self", "explain"):
            expected = weights(command, *alone, "-m", model)
            np.testing.assert_allclose(np.array(one["weights"], float), expected, atol=FLOAT32)
    (tmp_path / "lines.txt").write_text("the\ncat\n" if model == "bert" else "dab\nabca\n")
    for line in map(json.loads, shell.told("batch", lines, "-m", model).splitlines()):
        text = line["query_tokens"][1] if model == "bert" else "".join(line["query_tokens"])
        np.testing.assert_allclose(line["weights"], weights("self", text, "-m", model), atol=FLOAT32)


@pytest.mark.parametrize(("swaps", "other"), [(["CAT=the"], "the the"), (["the=cat", "cat=the"], "cat the")])
def test_words_are_swapped_as_in_a_text_that_has_the_others(swaps, other, bert):
    options = ["-m", bert, "--head", "1"]
    given = [part for one in swaps for part in ("--swap", one)]
    found = shell.record("explain", "the cat", *options, *given)
    for one, text in zip(found["records"], ("the cat", other), strict=True):
        np.testing.assert_allclose(one["weights"], weights("self", text, *options), atol=FLOAT32)
    swapped = [f"{one['old']}={one['new']}" for one in found["swap"]["words"]]
    assert sorted(swapped) == sorted(one.lower() for one in swaps)
    lead = found["swap"]["rows"][0]["lead"]
    np.testing.assert_allclose(lead["by_query"] + lead["by_keys"], np.diff(lead["content"])[0], atol=1e-6)
    assert here("explain", "the cat", *options, *given).code == 0


def test_the_walk_says_that_a_large_w_o_is_left_out(folder, monkeypatch):
    from attn_cli.models.checkpoints import reader

    left_out = "W_o, which joins the outputs of all heads, is too large to be kept"
    assert left_out not in " ".join(here("explain", TEXT, "-m", folder, "--steps").out.split())
    monkeypatch.setattr(reader, "MOST_JOINING", 63)  # it is 8 x 8
    assert left_out in " ".join(here("explain", TEXT, "-m", folder, "--steps").out.split())


SAID = """
    explain dabca -m gpt2 => its place included (content); The tokens are those of; !content alone decides
    explain dabca -m gpt2 => Next: attn explain TEXT -m DIR -q 2; !attn cross
    explain dabca -m gpt2 --layer 0 --head 1 => Layer 0 of 0 to 1, head 1 of 0 to 1, of
    explain dabca -m gpt2 --layer 0 --head 1 --steps => Layer 0 of 0 to 1, head 1 of 0 to 1, of
    self dabca -m gpt2 --layer 0 => layer 0 of 0 to 1; head 0 (one of 2)
    explain dabca -m gpt2 --layer 0 => it is made of its token and its place
    explain "the cat" -m bert --layer 0 => it is made of its token, its place and its segment
    self "the [UNK]" -m bert => !vocabulary
    self "the cats" -m bert -q cats --join-pieces => cats
    self dabcadabca -m gpt2 => Masked self-attention: 10 queries
    self dabca -m no-such-folder => 65 no-such-folder
    explain dabca -m gpt2 --layer all --head 0 => This is head 0 of layer 1.
    explain dabca -m gpt2 --layer all --head all => This is head 0 of layer 1.
    explain dabca -m gpt2 --layer all --head all --steps => those of head 0 of layer 1; --head 1 or --layer N shows
    explain dabca -m gpt2 --layer all --head 0 --steps => to whom: head 0 of layer 0; to whom: head 0 of layer 1
    explain dabca -m gpt2 --layer all --head mean --steps => Who attends to whom: mean of 2 heads of layer 0
    explain dabca -m gpt2 --head all => This is head 0.; !of layer
    self dabca -m gpt2 --layer all -f code:numpy => 2 one layer
    self dabca -m gpt2 --head rollout => weights = A1 A0; rollout, from the mean of 2 heads
    explain dabca -m gpt2 --head rollout => weights = A1 A0; rollout, from the mean of 2 heads
    explain dabca -m gpt2 --head rollout -q b => weights = A1 A0; rollout, from the mean of 2 heads
    explain dabca -m gpt2 --head rollout --steps => weights = A1 A0; rollout, from the mean of 2 heads
    self dabca -m gpt2 --head rollout --layer all => weights up to layer n = An ... A1 A0
    explain dabca -m gpt2 --head rollout --join-pieces => Leave out --join-pieces and --head rollout.
    self dabca -m gpt2 --head rollout -f bars => d | self dabca -m gpt2 --head rollout -f csv => query
    explain "the cats" -m bert --join-pieces => have no scores of their own; Leave out --join-pieces.; !softmax; cats
    explain "the cats" -m bert --join-pieces --steps => no scores of their own; Leave out --join-pieces.; !softmax
    explain "the cats" -m bert --join-pieces -q cats => no scores of their own; Leave out --join-pieces.; !softmax
    self "the cats" -m bert --join-pieces --show mask => !Before the softmax
    self "the cats" -m bert --join-pieces -f code:numpy => 2 needs queries, keys and values
    effect ab -m untied => 65 no language-model head | lens "ab a" -m bare => 65 no language-model head
    batch lines.tsv --kind pair => 2 --pair needs a model
    batch lines.tsv --kind pair -m bert => 65 No tab in this line
    page "the cat" -m bert --mask causal => "kind":"self"
    self "the cat" --pair "\udcff cat" -m bert => text a is tokens 0 to 3, b 4 to 5.
    heads --weights cross.npy -f csv => 2 heads has no csv form | heads --weights cross.npy => Cross-attention
"""


@pytest.fixture(scope="module")
def beside(models):
    """Put a file of texts and one of weights beside the models."""
    (models / "lines.tsv").write_text("the cats\n")
    np.save(models / "cross.npy", np.full((1, 1, 2, 4), 0.25))
    return models


@pytest.mark.parametrize(("args", "said"), told(SAID))
def test_what_is_said_of_a_model_and_of_weights(args, said, beside, monkeypatch):
    monkeypatch.chdir(beside)
    code, _, rest = said.partition(" ") if said[:1].isdigit() else ("0", "", said)
    ran = here(*args)
    assert ran.code == int(code) and ran.err.count("\n") == (code != "0") == (ran.out == "")
    text = " ".join((ran.err if code != "0" else ran.out).split())
    for part in rest.split("; "):
        assert (part.lstrip("!") in text) != part.startswith("!"), (part, text)


# A pair of texts in one sequence of an encoder: what every command and format shows of it


A, B = "the cats", "walking home"
TOKENS_A, TOKENS_B = ["[CLS]", "the", "cat", "##s", "[SEP]"], ["walk", "##ing", "home", "[SEP]"]


def pair(bert, *options, text=A, second=B, command="self"):
    return record(command, text, "--pair", second, "-m", bert, *options)


def test_both_texts_are_one_sequence_with_their_segments(bert):
    found = pair(bert)
    assert found["query_tokens"] == found["key_tokens"] == TOKENS_A + TOKENS_B
    assert found["query_segments"] == found["key_segments"] == [0] * 5 + [1] * 4
    typed = record("self", "the cats [SEP] walking home", "-m", bert)
    assert typed["query_tokens"] == found["query_tokens"] and typed["query_segments"] is None
    assert np.abs(np.subtract(typed["weights"], found["weights"])).max() > 0.01  # the second segment counts
    assert pair(bert, "-q", "home")["query_segments"] == [1]


@pytest.mark.parametrize("between", ["a-a", "a-b", "b-a", "b-b"])
def test_a_part_is_a_block_of_the_whole_in_every_command(between, bert, at):
    whole = np.array(pair(bert)["weights"])
    parts = {"a": (slice(0, 5), TOKENS_A), "b": (slice(5, 9), TOKENS_B)}
    (rows, queries), (columns, keys) = (parts[side] for side in between.split("-"))
    found = pair(bert, "--between", between)
    assert (found["query_tokens"], found["key_tokens"], found["score"]) == (queries, keys, None)
    assert_alike(found["weights"], whole[rows, columns].tolist(), FLOAT32)
    again = pair(bert, "--between", between, "--renormalize")
    np.testing.assert_allclose(np.sum(again["weights"], axis=1), 1)
    heads = pair(bert, "--between", between, command="heads")
    assert (heads["query_tokens"], heads["key_tokens"]) == (queries, keys)
    first = heads["layers"][1]["heads"][0]["shares"]["first"]
    rows_of_first = found["weights"][1:] if between in ("a-a", "b-b") else found["weights"]
    assert first == pytest.approx(np.mean([row[0] for row in rows_of_first]), abs=FLOAT32)
    (at / "lines.tsv").write_text(f"{A}\t{B}\nthe\t{B} home\ncats\thome\n")  # two of nine tokens
    ran = here("batch", "lines.tsv", "--kind", "pair", "-m", bert, "--between", between)
    lines = [json.loads(line) for line in ran.out.splitlines()]
    assert_alike(lines[0]["weights"], found["weights"], FLOAT32)
    other = pair(bert, "--between", between, text="the", second=f"{B} home")["weights"]
    assert_alike(lines[1]["weights"], other, FLOAT32)
    for name, options in (("page.html", ()), ("links.svg", ("--figure", "links"))):
        ran = here("self", A, "--pair", B, "-m", bert, "--between", between, *options, "-o", name)
        assert ran.code == 0 and (at / name).stat().st_size > 1000


def test_words_special_tokens_and_gaps_of_a_part_and_words_that_are_lacking_in_both(bert):
    joined = pair(bert, "--between", "b-a", "--join-pieces", "--hide-special")
    assert (joined["query_tokens"], joined["key_tokens"]) == (["walking", "home"], ["the", "cats"])
    whole = np.array(pair(bert)["weights"])[5:8, 1:4]
    summed = np.stack([whole[:, 0], whole[:, 1:].sum(axis=1)], axis=1)
    assert_alike(joined["weights"], [summed[:2].mean(axis=0).tolist(), summed[2].tolist()], FLOAT32)
    screen = here("self", A, "--pair", A, "-m", bert, "--between", "a-b").out
    assert "itself" not in screen and "from text a to text b" in screen  # the same words, twice
    assert "attn self TEXT --head all -m DIR --pair TEXT --between a-b" in " ".join(screen.split())
    alone = record("self", "the [MASK]", "-m", bert, "--next", "3")["next_words"]
    beside = pair(bert, "--next", "3", text="the [MASK]")["next_words"]
    assert len(beside) == 3 and beside[0]["probability"] != pytest.approx(alone[0]["probability"])
    notes = pair(bert, text="the zebra", second="a lion home")["notes"]
    assert any('"zebra", "lion" are not in the vocabulary' in note for note in notes)


# A folder that is not as it should be; what each file may hold is tested where it is read


VAST = json.dumps({letter: 2**32 - 1 - n for n, letter in enumerate("abcd")})
WRONG = [  # a file, what it holds, and what is said
    ("config.json", json.dumps(GPT2 | {"model_type": "gpt3"}), "It knows bert"),
    ("config.json", json.dumps(GPT2 | {"n_layer": 10**9}), "n_layer is 1000000000"),
    ("vocab.json", VAST, "There is no token 42949672"),
    ("vocab.txt", "[UNK]\n\0\0\na\0b\n", "not a sound"),
]


@pytest.mark.parametrize(("name", "content", "said"), WRONG)
def test_what_is_wrong_with_a_folder_is_said_in_one_line(name, content, said, models, tmp_path):
    folder = shutil.copytree(models / "gpt2", tmp_path / "gpt2")
    if name == "vocab.txt":
        (folder / "vocab.json").unlink()
    (folder / name).write_text(content)
    for command in ("self", "heads"):
        assert said in refused(command, TEXT, "-m", str(folder), code=65)


def test_a_link_is_followed_and_one_in_a_circle_refused(models, tmp_path):
    folder = shutil.copytree(models / "gpt2", tmp_path / "gpt2")
    expected, file = here("self", TEXT, "-m", str(folder)).out, folder / "model.safetensors"
    file.rename(tmp_path / "blob")
    file.symlink_to("../blob")  # as files of a snapshot are in the local cache
    assert here("self", TEXT, "-m", str(folder)).out == expected
    file.unlink()
    file.symlink_to(file.name)
    assert file.name in refused("self", TEXT, "-m", str(folder), code=66)
