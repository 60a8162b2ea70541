"""attn verify: a model beside transformers, or its file alone."""

import json
import sys

import numpy as np
import pytest

from attn_cli.core.masks import Mask
from attn_cli.models.checkpoints import blocks
from tests.models.checkpoints import by_hand, test_parity
from tests.models.checkpoints.gguf_by_hand import OF_FORTY, converted
from tests.schema import complaints, printed
from tests.shell import here, refused


@pytest.fixture
def alone(tokenizers, monkeypatch):
    """A machine without PyTorch."""
    monkeypatch.setitem(sys.modules, "torch", None)


def verified(*args):
    ran = here("verify", *args, "-f", "json")
    found = json.loads(ran.out)
    assert complaints(found) == []
    assert ran.code == (0 if found["ok"] else 1)
    assert found["ok"] == all(one["largest"] <= one["tolerance"] for one in found["figures"])
    return found


def too_large(found):
    return [(one["name"], one["layer"]) for one in found["figures"] if one["largest"] > one["tolerance"]]


@pytest.mark.parametrize("kind", ["bert", "gpt2", "gpt_oss"])
def test_a_file_alone_is_held_against_what_must_hold_of_it(kind, tmp_path, alone):
    folder = getattr(by_hand, f"small_{kind}")(tmp_path / "m")
    found = verified(folder, "a b a", "b")
    assert found["ok"] and found["against"] is None and found["texts"] == 2
    named = {one["name"] for one in found["figures"]}
    assert named == {"keys", "sums"} | ({"ahead", "prefix"} if kind != "bert" else set())
    assert {one["layer"] for one in found["figures"]} == {None, 0, 1}
    shown = here("verify", folder, "a b a")
    assert shown.code == 0 and "This is no proof" in shown.out and "with what its own file" in shown.out


def test_without_a_text_sentences_of_its_own_are_read(tmp_path, alone):
    found = verified(by_hand.small_gpt2(tmp_path / "m", by_hand.gpt2(places=60)))
    assert found["texts"] == 3 and found["tokens"] > 20


def test_of_several_texts_each_figure_is_the_largest_whichever_text_it_is_of(tmp_path, alone):
    folder, several = by_hand.small_gpt2(tmp_path / "m"), ("a b", "b a", "a b a", "b b a b", "a a a a a")
    each = [[one["largest"] for one in verified(folder, text)["figures"]] for text in several]
    found = [one["largest"] for one in verified(folder, *several)["figures"]]
    assert found == [*map(max, zip(*each, strict=True))] != each[-1]


def test_a_mask_that_lets_words_look_ahead_and_a_sink_without_a_share_are_found(tmp_path, alone, monkeypatch):
    softmax, folder = blocks.softmax, by_hand.small_gpt2(tmp_path / "m")
    one_ahead = blocks.Seen(Mask("window:9:1", 4, 4), 0)
    with monkeypatch.context() as patch:
        patch.setattr(blocks, "mask_of", lambda real, n_q, n_k, *_: one_ahead if n_k == 4 else None)
        assert ("ahead", 0) in too_large(verified(folder, "a b a b"))
        patch.setattr(blocks, "mask_of", lambda *_: None)
        assert {("ahead", 0), ("prefix", 0), ("ahead", 1)} <= set(too_large(verified(folder, "a b a b")))
        shown = here("verify", folder, "a b a b")
    assert shown.code == 1 and "DISAGREES" in shown.out and "Too large: ahead of decoder 0." in shown.out
    for n in (1, 0.1):  # too much, as there are sinks, and too little
        monkeypatch.setattr(blocks, "softmax", lambda s, *_, n=n: np.multiply(softmax(s), n, out=s))
        assert ("sums", 0) in too_large(verified(by_hand.small_gpt_oss(tmp_path / "n"), "a b a"))


def test_a_key_that_attn_does_not_know_is_named_and_no_shape_may_be_another_nor_a_number_nan(tmp_path, alone):
    found = verified(by_hand.small_gpt2(tmp_path / "m", attention_twist=0.5), "a b")
    assert too_large(found) == [("keys", None)] and "attention_twist" in found["notes"][0]
    nothing = np.full((32, 8), np.nan, np.float32)
    for name, array, said in (
        ("attn.c_proj", np.ones((8, 7), np.float32), "h.1.attn.c_proj.weight has shape (8, 7)"),
        ("mlp.c_proj", nothing, "finite"),
    ):
        tensors = by_hand.gpt2() | {f"h.1.{name}.weight": array}
        line = refused("verify", by_hand.small_gpt2(tmp_path / "n", tensors), "a b a", code=65)
        assert "n: " in line and said in line


def test_a_screen_a_record_and_a_page_carry_the_verdict(tmp_path, alone):
    folder = by_hand.small_gpt2(tmp_path / "m")
    told = "Verified against the model's own file alone, which is no proof: it holds (largest: keys 0, sums "
    for command in ("masked", "explain"):
        assert printed(command, "a b a", "-m", folder, "--verified")["notes"][-1].startswith(told)
    assert told not in here("masked", "a b a", "-m", folder, "-f", "json").out
    page = tmp_path / "p.html"
    assert here("page", "a b a", "-m", folder, "--verified", "-o", str(page)).code == 0
    assert "Verified against the model" in page.read_text()
    assert refused("self", "a b a", "--verified")
    assert refused("self", "a", "--pair", "b", "-m", folder, "--verified")


# Beside transformers


def saved(name, transformers, folder):
    """Save a random model with a tokenizer that transformers and attn both read."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    test_parity.made(transformers, (test_parity.CASES | test_parity.PAIRS)[name], 0, folder)
    words = {word: n for n, word in enumerate(test_parity.VOCABULARY)}
    made = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    framed = [("[CLS]", 2), ("[SEP]", 3)]
    made.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=framed)
    made.save(str(folder / "tokenizer.json"))
    told = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "[UNK]"}
    (folder / "tokenizer_config.json").write_text(json.dumps(told))
    return str(folder)


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama", "gpt_oss", "llama, dynamic", "t5"])
def test_a_model_is_as_transformers_computes_it(name, transformers, tmp_path):
    found = verified(saved(name, transformers, tmp_path), "w1 w2 w30 w1 w4", "w9")
    assert found["ok"] and found["against"] == f"transformers {transformers.__version__}"
    places = {(one["side"], one["attention"]) for one in found["figures"] if one["name"] == "weights"}
    single = ("encoder", "self") if name == "bert" else ("decoder", "masked")
    both = {("encoder", "self"), ("decoder", "masked"), ("decoder", "cross")}
    assert places == (both if name == "t5" else {single})
    assert {one["name"] for one in found["figures"]} == {"ids", "weights", "inputs", "logits"}
    assert max(one["largest"] for one in found["figures"]) > 0
    two = ("cross", "w1 w2", "w9") if name == "t5" else (single[1], "w1 w2")
    notes = printed(*two, "-m", str(tmp_path), "--verified")["notes"]
    agrees = f"the model's own numbers agree with {found['against']} (largest differences: ids 0,"
    assert notes[-1].startswith("Verified on th") and agrees in notes[-1]


def test_a_model_without_a_head_is_compared_by_its_last_layer(transformers, tmp_path):
    folder = saved("bert", transformers, tmp_path)
    transformers.AutoModel.from_pretrained(folder).save_pretrained(folder)
    found = verified(folder, "w1 w2")
    assert found["ok"] and found["figures"][-1]["name"] == "output"
    too_long = here("verify", folder, "w1 " * 600)
    assert too_long.code == 65 and "602 tokens" in too_long.err


def test_a_norm_that_is_computed_otherwise_is_found_in_its_layer(transformers, tmp_path, monkeypatch):
    folder = saved("llama", transformers, tmp_path)
    right, calls = blocks.NORMS["rms"], []

    def wrong(x, gain, shift, eps):
        calls.append(eps)
        return right(x, gain, shift, 0.3 if len(calls) > 2 else eps)  # two norms a layer

    monkeypatch.setitem(blocks.NORMS, "rms", wrong)
    found = verified(folder, "w1 w2 w30")
    assert too_large(found)[0] == ("weights", 1) and ("weights", 0) not in too_large(found)
    calls.clear()
    assert "Too large: weights of decoder 1." in here("verify", folder, "w1 w2 w30").out


def test_ids_of_another_tokenizer_are_counted(transformers, tmp_path):
    folder = saved("gpt2", transformers, tmp_path)
    told = {"tokenizer_class": "BertTokenizer", "do_lower_case": True}  # to transformers alone
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(told))
    found = verified(folder, "W1 w2")
    assert too_large(found) == [("ids", None)] and found["figures"][0]["largest"] == 1


def test_a_gguf_file_is_compared_where_transformers_reads_it_and_else_checked_alone(transformers, tmp_path):
    from tests.models.checkpoints.test_gguf import wider

    for name in ("llama", "qwen2", "bert"):
        test_parity.made(transformers, wider(test_parity.CASES[name]), 4, tmp_path / name)
        found = verified(converted(tmp_path / name, tmp_path / f"{name}.gguf", **OF_FORTY), "a b cab")
        assert found["ok"] and (found["against"] is None) == (name == "bert")
        assert any("transformers does not read" in note for note in found["notes"]) == (name == "bert")
