"""attn lens: what a model would say after each of its layers, by its own norm and output, and how that is shown."""

import numpy as np
import pytest

from attn_cli import Settings, trace_masked
from attn_cli.models.checkpoints.run import Checkpoint, texts
from attn_cli.pipeline import passes
from tests.models.checkpoints.by_hand import byte_pairs, gpt2, small_gpt_oss
from tests.models.checkpoints.test_parity import PAIRS, made
from tests.models.checkpoints.test_run import normed
from tests.schema import printed
from tests.shell import here, rows

CAT, EVERY = "The cat sat on the", "0,1,2,3,4,5"
TRANSLATORS = ("marian, two vocabularies", "t5, as v1.1")


def record(*args):
    found = printed("lens", *args)
    assert [layer["layer"] for layer in found["layers"]] == [*range(len(found["layers"]))]
    said = (layer["positions"] for layer in found["layers"])
    for final, *column in zip(found["final"], *said, strict=True):
        assert {said["place"] for said in column} == {final["place"]}
        last = column[-1]
        assert (last["rank"], last["words"][0]["id"]) == (1, final["id"])
        assert last["probability"] == pytest.approx(last["words"][0]["probability"])
    return found


def logits(found):
    each = [[[*said["logits"].values()] for said in layer["positions"]] for layer in found["layers"]]
    return np.array(each)


def assert_logits(found, expected, layers=slice(None), rtol=1e-5):
    np.testing.assert_allclose(logits(found)[layers], expected, rtol=rtol, atol=1e-5)


def streams(folder, ids):
    """Return each layer's input, and what the last makes, of a checkpoint's only stack."""
    with Checkpoint(folder) as checkpoint:
        run = checkpoint.run(texts([ids]))
        return [steps.x[0] for steps in run.steps()] + [run.stream()[0]]


def test_each_layer_s_stream_goes_through_the_model_s_last_norm_and_its_table(letters, monkeypatch):
    found, T = record("ab a", "-m", letters, "--ids", EVERY, "--next", "6"), gpt2(places=20)
    each = streams(letters, [0, 1, 0])
    expected = np.array([[normed(x, T, "ln_f") @ T["wte.weight"].T for x in stream] for stream in each])
    assert_logits(found, expected, rtol=1e-4)
    shares = np.exp(expected) / np.exp(expected).sum(axis=-1, keepdims=True)
    for layer, scores, row in zip(found["layers"], expected, shares, strict=True):
        for place, said in enumerate(layer["positions"]):
            final = found["final"][place]["id"]
            assert [word["id"] for word in said["words"]] == np.argsort(-scores[place]).tolist()
            assert said["rank"] == 1 + int((scores[place] > scores[place][final]).sum())
            assert said["probability"] == pytest.approx(row[place][final], rel=1e-4)
    monkeypatch.setattr(passes, "MOST_SCORES", 1)  # place by place
    assert_logits(record("ab a", "-m", letters, "--ids", EVERY), expected, rtol=1e-4)


def test_a_masked_word_head_s_dense_layer_is_part_of_the_lens_and_the_first_mask_is_told(bert):
    found = record("the [MASK] walks", "-m", bert, "--ids", "5,10")
    with Checkpoint(bert) as checkpoint:
        run = checkpoint.run(texts([[2, 5, 4, 8, 7, 3]]))
        expected = [run.scores(steps.x[:1])[0] for steps in run.steps()] + [run.logits()[0]]
    assert_logits(found, np.array(expected)[..., [5, 10]])
    assert found["fills"] is True
    shown = here("lens", "the [MASK] walks", "-m", bert).out
    assert 'In the place of "[MASK]", the model says' in shown
    assert "masked-word head, its dense layer too" in " ".join(shown.split())


def test_an_answer_is_said_to_be_likeliest_from_the_layer_after_which_it_stays_so():
    seen = set()
    for text in ("In the spring of that year", "He was at the end of it"):
        found, tokens = printed("lens", text), text.split()
        ranks = [[said["rank"] for said in layer["positions"]] for layer in found["layers"]]
        for place, column in enumerate(zip(*ranks, strict=True)):
            last = len(column) - 1
            since = max((layer + 1 for layer, rank in enumerate(column) if rank > 1), default=0)
            when = f"from layer {since} on" if since else "from the start"
            late = f"{'again' if 1 in column[:last] else 'only'} after the last layer"
            out = " ".join(here("lens", text, "-q", str(place)).out.split())
            wanted = f"That is its likeliest word {late if since == last else when}"
            assert f'After "{tokens[place]}"' in out and wanted in out, (text, column)
            seen.add(wanted)
    assert len(seen) == 5  # from the start, from layer 1 and from layer 2 on, again, only


def test_a_model_of_experts_ends_with_its_own_logits(tmp_path):
    folder = small_gpt_oss(tmp_path / "experts")
    with Checkpoint(folder) as checkpoint:
        own = checkpoint.run(texts([[0, 1, 0]])).logits()[0]
    assert_logits(record("ab a", "-m", folder, "--ids", EVERY), own, -1)


def named_of(found):
    """Return the words of what comes next that have a vector, the likeliest first."""
    return [word for word in found.words if word.id is not None]


def test_the_bundled_model_s_last_row_is_what_masked_says_comes_next():
    found = record(CAT, "--ids", "300")
    said = trace_masked(CAT, Settings(next=6, next_at="all")).next_words_at
    assert found["tokens"] == CAT.split() and len(found["layers"]) == 4
    for one, last in zip(said, found["layers"][-1]["positions"], strict=True):
        named = named_of(one)[:5]
        assert [word["id"] for word in last["words"]] == [word.id for word in named]
        for mine, theirs in zip(last["words"], named, strict=True):
            assert mine["probability"] == pytest.approx(theirs.probability, rel=1e-4)
    assert [final["word"] for final in found["final"]] == [named_of(one)[0].word for one in said]
    assert found["layers"][0]["positions"][-1]["rank"] > 100


def test_a_screen_fits_80_columns_and_csv_has_a_row_for_each_layer_and_place():
    long = here("lens", " ".join([CAT] * 9), "--width", "80").out
    assert max(map(len, long.splitlines())) <= 80
    assert "layers 39 the 40 The 41 cat 42 sat 43 on 44 the 0 " in " ".join(long.split()), "the last six"
    said = named_of(trace_masked(CAT, Settings()).next_words)[0].word
    table = rows("lens", CAT, "--ids", "5")
    assert len(table) == 4 * 5 and table[-1]["likeliest"] == said != table[4]["likeliest"]


def translator(transformers, name, folder):
    """Return a small model of transformers that translates letters, saved in a folder."""
    more = {"vocab_size": 6, "decoder_vocab_size": 6, "forced_eos_token_id": None, "eos_token_id": 5}
    case = PAIRS[name]._replace(settings=PAIRS[name].settings | more | {"decoder_start_token_id": 0})
    model = made(transformers, case, 4, folder)
    byte_pairs(folder)
    return model


@pytest.mark.parametrize("name", TRANSLATORS)
def test_a_decoder_reads_a_context_or_begins_after_the_text(name, transformers, tmp_path):
    import torch

    model = translator(transformers, name, tmp_path)
    for args, ids, target in ((("ab a",), [0, 1, 0], [0]), (("ca", "--context", "ab"), [0, 1], [0, 2, 0])):
        found = record(*args, "-m", str(tmp_path), "--ids", EVERY)
        with torch.no_grad():
            own = model(input_ids=torch.tensor([ids]), decoder_input_ids=torch.tensor([target]))
        assert_logits(found, own.logits[0], -1)
