"""--model: a pretrained model's folder takes the place of vectors, projection and tokenizer, in every command."""

import json
import re

import numpy as np
import pytest

from attn_cli import Settings, trace_self
from attn_cli.errors import InputError, UsageError
from attn_cli.settings.settings import CONFLICTS_WITH_MODEL, REPLACED_BY_MODEL
from tests.alike import FLOAT32
from tests.cli.tables import apart
from tests.models.checkpoints.by_hand import small_bert, small_gpt2
from tests.shell import here
from tests.small_models import trace_checkpoint

pytestmark = pytest.mark.usefixtures("tokenizers")
TEXT = "dabca"


@pytest.fixture
def folder(tmp_path):
    """A GPT-2 of six letters."""
    return small_gpt2(tmp_path / "gpt2")


def weights(*args, **more):
    ran = here(*args, "-f", "json", **more)
    assert ran.code == 0, ran.err
    return np.array(json.loads(ran.out)["weights"])


@pytest.mark.parametrize("command", ["self", "masked", "explain"])
def test_the_commands_show_what_the_model_computes(command, folder):
    for layer in (0, 1):
        expected = trace_checkpoint("masked", TEXT, None, Settings(layer=layer, head="1"), folder).weights
        found = weights(command, TEXT, "-m", folder, "--layer", str(layer), "--head", "1")
        np.testing.assert_allclose(found, expected, atol=FLOAT32)


def test_a_variable_names_it_too_and_the_library_takes_it(folder):
    expected = weights("self", TEXT, "-m", folder)
    np.testing.assert_allclose(weights("self", TEXT, env={"ATTN_MODEL": folder}), expected, atol=FLOAT32)
    np.testing.assert_allclose(trace_self(TEXT, Settings(model=folder)).weights, expected, atol=FLOAT32)


BESIDE = dict(
    one.split("=")
    for one in apart(
        "embedding=random | projection=identity | tokenizer=characters | keep_punctuation=yes | dim=8 | seed=3"
        " | oov=zero | heads=2 | layout=out-in | positions=sinusoidal | round=1 | pad=2 | pad_side=left"
    )
)


@pytest.mark.parametrize("name", CONFLICTS_WITH_MODEL)
def test_what_it_takes_the_place_of_or_makes_void_is_wrong_usage_beside_it(name, folder):
    option = "--" + name.replace("_", "-")
    typed = [option] if name == "keep_punctuation" else [option, BESIDE[name]]
    for command in ("self", "explain", "batch", "page", "live"):
        ran = here(command, TEXT, "-m", folder, *typed)
        assert ran.code == 2 and ran.err.count("\n") == 1, (command, ran)
        assert re.search(f"--model takes the place of {option}|{option} changes nothing in a model", ran.err)
    assert (name in REPLACED_BY_MODEL) == ("takes the place" in ran.err)


@pytest.mark.parametrize("name", CONFLICTS_WITH_MODEL)
def test_it_is_not_compared_in_a_model_that_has_its_own(name, folder):
    value = BESIDE[name]
    ran = here("compare", TEXT, "-m", folder, "--vary", f"{name.replace('_', '-')}=default,{value}")
    assert ran.code == 2 and ran.err.count("\n") == 1 and name.replace("_", "-") in ran.err


def test_what_is_typed_beats_what_stands_in_the_environment(folder):
    expected = weights("self", TEXT, "-m", folder)
    standing = {"ATTN_" + name.upper(): value for name, value in BESIDE.items()}
    np.testing.assert_allclose(weights("self", TEXT, "-m", folder, env=standing), expected, atol=FLOAT32)
    record = json.loads(here("self", "a b", "-e", "random", "-f", "json", env={"ATTN_MODEL": folder}).out)
    assert record["embedding"]["source"] == "random"


def test_the_library_refuses_both(folder):
    with pytest.raises(UsageError, match="takes the place of --embedding"):
        trace_self(TEXT, Settings(model=folder, embedding="random"))
    with pytest.raises(InputError, match="cuts its text itself"):
        trace_self(["a", "b"], Settings(model=folder))


def test_settings_are_compared_and_lines_of_a_file_computed(folder, at):
    compared = json.loads(here("compare", TEXT, "-m", folder, "--vary", "head=0,1", "-f", "json").out)
    for record, head in zip(compared["records"], "01", strict=True):
        alone = weights("self", TEXT, "-m", folder, "--head", head)
        np.testing.assert_allclose(record["weights"], alone, atol=FLOAT32)
    (at / "lines.txt").write_text("dab\nabca\n")
    ran = here("batch", str(at / "lines.txt"), "-m", folder)
    assert ran.code == 0, ran.err
    for line, text in zip(ran.out.splitlines(), ("dab", "abca"), strict=True):
        alone = weights("self", text, "-m", folder)
        np.testing.assert_allclose(json.loads(line)["weights"], alone, atol=FLOAT32)


def test_the_story_says_that_places_are_part_of_content_and_goes_on_with_what_the_model_has(folder):
    said = " ".join(here("explain", TEXT, "-m", folder, "--width", "80").out.split())
    assert "its place included (content)" in said and "The tokens are those of" in said
    assert "content alone decides" not in said
    assert "attn heads TEXT -m DIR (all layers and heads)." in said and "attn cross" not in said


def test_an_encoder_s_mask_is_tried_in_every_command(tokenizers, tmp_path):
    bert = small_bert(tmp_path / "bert")
    expected = weights("self", "the cat", "-m", bert, "--mask", "causal")
    explained = weights("explain", "the cat", "-m", bert, "--mask", "causal")
    np.testing.assert_allclose(explained, expected, atol=FLOAT32)
    ran = here("compare", "the cat", "-m", bert, "--vary", "mask=none,causal", "-f", "json")
    compared = np.array(json.loads(ran.out)["records"][1]["weights"], float)
    np.testing.assert_allclose(compared, expected, atol=FLOAT32)


def test_the_walk_says_that_a_large_w_o_is_left_out(folder, monkeypatch):
    from attn_cli.models.checkpoints import run as head_weights

    left_out = "W_o, which joins the outputs of all heads, is too large to be kept"
    assert left_out not in " ".join(here("explain", TEXT, "-m", folder, "--steps").out.split())
    monkeypatch.setattr(head_weights, "MOST_JOINING", 63)  # it is 8 x 8
    assert left_out in " ".join(here("explain", TEXT, "-m", folder, "--steps").out.split())


@pytest.mark.parametrize(
    ("args", "code", "word"),
    [
        (("self", TEXT, "-m", "no-such-folder"), 65, "no-such-folder"),
        (("explain", TEXT, "--swap", "a=b"), 2, "--model"),
        (("self", TEXT, "--layer", "7"), 2, "layer 7"),
        (("self", TEXT, "--head", "x"), 2, "head"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(args, code, word, folder):
    args = args if "-m" in args else (*args, "-m", folder)
    ran = here(*args)
    assert ran.code == code and word in ran.err and ran.err.count("\n") == 1


def test_the_story_and_the_walk_say_which_layer_and_head_they_show(folder):
    shown = "Layer 0 of 0 to 1, head 1 of 0 to 1, of"
    for more in ((), ("--steps",), ("-q", "b")):
        told = " ".join(here("explain", TEXT, "-m", folder, "--layer", "0", "--head", "1", *more).out.split())
        assert shown in told[:400]
    assert "layer 0 of 0 to 1; head 0 (one of 2)" in here("self", TEXT, "-m", folder, "--layer", "0").out


def test_the_first_layer_s_x_is_made_of_what_the_model_adds_up(folder, tmp_path):
    told = " ".join(here("explain", TEXT, "-m", folder, "--layer", "0").out.split())
    assert "it is made of its token and its place" in told
    bert = small_bert(tmp_path / "bert")
    told = " ".join(here("explain", "the cat", "-m", bert, "--layer", "0").out.split())
    assert "it is made of its token, its place and its segment" in told


def test_a_word_that_the_vocabulary_lacks_is_named(tmp_path):
    bert = small_bert(tmp_path / "bert")
    said = " ".join(here("self", "the wombat", "-m", bert).out.split())
    assert f'"wombat" is not in the vocabulary of {bert}: [UNK].' in said
    assert "vocabulary" not in here("self", "the cat", "-m", bert).out


def test_a_word_of_several_pieces_is_not_found_alone_and_the_error_says_how(tmp_path):
    bert = small_bert(tmp_path / "bert")
    ran = here("self", "the cats", "-m", bert, "-q", "cats")
    assert ran.code == 2 and "cats is the pieces cat, ##s: --join-pieces joins them." in ran.err
    assert here("self", "the cats", "-m", bert, "-q", "cats", "--join-pieces").code == 0
    ran = here("self", "the cat", "-m", bert, "-q", "x")
    assert ran.code == 2 and "The tokens are [CLS], the, cat, [SEP]" in ran.err


def test_a_file_in_a_model_s_folder_is_refused_with_the_folder(folder):
    ran = here("self", TEXT, "-m", f"{folder}/model.safetensors")
    assert ran.code == 66 and f"Give its folder: {folder}." in ran.err and ran.err.count("\n") == 1


def test_hints_lead_somewhere(folder, tmp_path):
    assert "attn heads TEXT -m DIR" in here("heads", TEXT, "-m", folder, "--context", "ab").err
    assert "Heads are 0, 1, mean, all and rollout." in here("self", TEXT, "-m", folder, "--head", "x").err


def test_other_commands_do_not_offer_it(folder):
    for command in (("lookup", "a", "b=c"), ("compute", "x.json"), ("example", "coffee")):
        assert here(*command, "-m", folder).code == 2
        assert here("example", "coffee", env={"ATTN_MODEL": folder}).code == 0
