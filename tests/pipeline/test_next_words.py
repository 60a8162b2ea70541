"""--next: what a pretrained model holds likeliest, after a text or in the place of its mask."""

import json
import math
from unittest import mock

import numpy as np
import pytest

from attn_cli import Settings, trace_masked, trace_self
from attn_cli.errors import InputError
from attn_cli.models.checkpoints.run import Checkpoint, texts
from attn_cli.models.checkpoints.weights import Weights
from attn_cli.pipeline import next_words
from tests.alike import FLOAT32, assert_alike
from tests.models.checkpoints import by_hand
from tests.models.checkpoints.by_hand import GPT2, gpt2, saved, small_bert, small_gpt2
from tests.models.checkpoints.test_run import by_loops
from tests.pipeline.records import record as record_of
from tests.shell import attn, here

PIECES = (*by_hand.FRAMES, "the", "cat", "##s", "sat", "\x1b[31mred")
FRAMED = "the [MASK] sat"
pytestmark = pytest.mark.usefixtures("tokenizers")

WITHOUT = ["masked --next 0", "self", "explain", "explain --mask causal"]


def encoder(tmp_path, pieces=PIECES, **more):
    return small_bert(tmp_path / "bert", pieces, **more)


def likeliest(logits, names, count):
    exps = [math.exp(score - max(logits)) for score in logits]
    pairs = sorted(zip(names, exps, strict=True), key=lambda pair: -pair[1])[:count]
    return [name for name, _ in pairs], [one / sum(exps) for _, one in pairs]


def same(found, names, shares):
    assert [one.word for one in found.words] == names
    np.testing.assert_allclose([one.probability for one in found.words], shares, atol=1e-5)
    over = [math.log(one.probability) - one.logit for one in found.words]  # of a softmax, the same for all
    np.testing.assert_allclose(over, over[0], atol=1e-6)


def test_a_causal_model_says_what_follows_the_last_token(causal):
    logits = by_loops(gpt2(), [3, 0, 1, 2, 0])[1][-1]
    names = [word.replace("Ġ", " ") for word in by_hand.LETTERS]
    for layer in (0, 1):
        trace = trace_self("dabca", Settings(model=causal, next=3, layer=layer))
        assert trace.next_words.place == 4 and not trace.next_words.fills
        same(trace.next_words, *likeliest(logits, names, 3))
    every = trace_self("dabca", Settings(model=causal, next=50)).next_words
    same(every, *likeliest(logits, names, 6))
    assert sum(one.probability for one in every.words) == pytest.approx(1)
    for one in every.words:
        assert one.logit == pytest.approx(logits[one.id], abs=1e-5)


def test_of_words_as_likely_the_first_is_named_first():
    shares = np.array([0.1, 0.3, 0.1, 0.3, 0.2])
    for count, places in ((1, [1]), (2, [1, 3]), (4, [1, 3, 4, 0]), (9, [1, 3, 4, 0, 2])):
        assert next_words.likeliest(shares, count) == places
    assert next_words.likeliest(np.repeat([0.1, 0.3, 0.2], 40), 3) == [40, 41, 42]


def test_masked_names_five_unless_told_otherwise_and_other_commands_name_none(causal, tmp_path):
    trace = trace_masked("dab", Settings(model=causal))
    assert (len(trace.next_words.words), trace.mask_name, trace.notes) == (5, "causal", ())
    for command, count in (("masked", 5), ("masked --next 2", 2), *((one, 0) for one in WITHOUT)):
        words = record_of(*command.split(), "dab", "-m", causal)["next_words"]
        assert len(words or ()) == count and (words is None) == (count == 0)
    (tmp_path / "lines").write_text("dab\n")
    line = attn("batch", str(tmp_path / "lines"), "--kind", "masked", "-m", causal, "--fields", "all").out
    assert_alike(json.loads(line), record_of("masked", "dab", "-m", causal), FLOAT32)


def test_what_lies_above_the_layer_is_read_only_for_words(tmp_path):
    folder = small_gpt2(tmp_path)
    with mock.patch.object(Weights, "stored", autospec=True, side_effect=Weights.stored) as stored:
        for words in (None, 1):
            trace_self("dab", Settings(model=folder, layer=0, next=words))
            read = [call.args[1] for call in stored.call_args_list]
            assert any(name.startswith(("h.1", "h.0.mlp", "ln_f")) for name in read) == (words is not None)
    assert {"h.1.mlp.c_fc.weight", "ln_f.weight"} <= {*read}


def test_what_frames_a_text_at_its_end_is_not_what_words_follow(tmp_path):
    folder = saved(tmp_path / "framed", GPT2, gpt2(vocabulary=10))
    by_hand.word_pieces(folder, PIECES)
    trace = trace_self("the cats", Settings(model=folder, next=10))
    assert trace.query_tokens == ("[CLS]", "the", "cat", "##s", "[SEP]") and trace.next_words.place == 3
    same(trace.next_words, *likeliest(by_loops(gpt2(vocabulary=10), [2, 5, 6, 7])[1][-1], PIECES, 10))


def test_an_encoder_fills_the_first_mask(tmp_path):
    folder = encoder(tmp_path)
    for text, ids, place in ((FRAMED, [2, 5, 4, 8, 3], 2), ("[MASK] cats [MASK]", [2, 4, 6, 7, 4, 3], 1)):
        trace = trace_self(text, Settings(model=folder, next=4, layer=0))
        with Checkpoint(folder) as checkpoint:
            logits = checkpoint.run(texts([ids])).logits()[0, place].tolist()
        assert trace.next_words.place == place and trace.next_words.fills
        assert trace.next_words.actual is None  # the text does not say what the gap held
        same(trace.next_words, *likeliest(logits, PIECES, 4))
    every = trace_self(FRAMED, Settings(model=folder, next=2, next_at="all"))
    assert every.next_words is not None and every.next_words_at is None


def test_a_note_says_why_a_model_names_no_words(tmp_path):
    for text, pieces, head, told in (
        ("the cat", [word for word in PIECES if word != "[MASK]"], True, "no mask token"),
        (FRAMED, PIECES, False, "no language-model head"),
    ):
        record = record_of("self", text, "-m", encoder(tmp_path, pieces, head=head), "--next", "3")
        assert record["next_words"] is None and told in record["notes"][-1]
    untied = trace_masked("dab", Settings(model=small_gpt2(tmp_path, tie_word_embeddings=False)))
    assert untied.next_words is None and "no language-model head" in untied.notes[-1]


def test_a_standing_number_waits_for_a_model(causal):
    plain = ("self", "a b", "-e", "random")
    assert record_of(*plain, env={"ATTN_NEXT": "2"})["next_words"] is None
    assert len(record_of("self", "ab", "-m", causal, env={"ATTN_NEXT": "2"})["next_words"]) == 2
    assert record_of(*plain, env={"ATTN_NEXT": "2", "ATTN_MODEL": causal})["next_words"] is None


def test_screens_show_the_words_and_obey_none(causal, tmp_path):
    folder = encoder(tmp_path)
    screens = ("self", "explain", "explain --steps", "self -f bars", "self --width 60")
    formats = [f"self -f {format}" for format in ("html", "svg", "markdown", "latex")]
    for command in (*screens, *formats):
        shown = here(*command.split(), FRAMED, "-m", folder, "--next", "10").out
        assert "What the model says" in shown and "\x1b" not in shown
        if command in screens:
            assert 'Likeliest to fill "[MASK]"' in shown and "^[[31mred" in shown
        if "markdown" in command:
            assert r'Likeliest to fill "\[MASK\]"\: | probability |' in shown
    told = here("self", FRAMED, "-m", folder, "--next", "10", "-f", "csv").err
    assert 'Likeliest to fill "[MASK]": "' in told and "^[[31mred" in told and told.count("\n") == 1
    assert "What the model says" not in here("self", FRAMED, "-m", folder).out
    options = ("--next", "2", "-t", "2", "--mask", "none", "--width", "200")
    changed = here("self", "dab", "-m", causal, *options).out
    assert "--mask and --temperature hold in the layer shown, not for them." in changed
    same = [trace_self("dab", Settings(model=causal, next=2, temperature=t)).next_words for t in (1.0, 2.0)]
    assert_alike(same[0], same[1], FLOAT32)
    assert "Likeliest to come after" not in here("masked", "dab", "-m", causal, "--show", "mask").out


def test_scores_that_are_no_numbers_are_refused(tmp_path):
    tensors = by_hand.bert(vocabulary=10) | {"cls.predictions.bias": np.full(10, np.nan, np.float32)}
    encoder(tmp_path)
    folder = saved(tmp_path / "bert", by_hand.BERT, tensors)
    with pytest.raises(InputError):
        trace_self(FRAMED, Settings(model=folder, next=1))


def test_after_each_token_a_causal_model_says_what_it_says_of_the_text_up_to_there(causal):
    trace = trace_self("dabca", Settings(model=causal, next=3, next_at="all"))
    assert [one.place for one in trace.next_words_at] == list(range(5))
    assert_alike(trace.next_words_at[-1], trace.next_words, FLOAT32)
    assert trace.next_words.actual is None
    for n, one in enumerate(trace.next_words_at[:-1], 1):
        alone = trace_self("dabca"[:n], Settings(model=causal, next=6)).next_words
        same(one, [it.word for it in alone.words[:3]], [it.probability for it in alone.words[:3]])
        came = {it.word: it.probability for it in alone.words}["dabca"[n]]
        assert one.actual == pytest.approx(came, abs=1e-5)
