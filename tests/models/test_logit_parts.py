"""What each part of a model adds to a logit, and passes with changes: checkpoints by hand, and the language model."""

import numpy as np
import pytest

from attn_cli.models.checkpoints.layers import Changes
from attn_cli.models.checkpoints.run import Checkpoint, texts, way_of
from attn_cli.models.encoder import causal
from attn_cli.models.logit_parts import MLP, Cut, Trail
from attn_cli.pipeline.embed import open_shared
from attn_cli.settings.settings import Settings
from attn_cli.vectors.lookup import embed
from tests.models.checkpoints.by_hand import BERT, GEMMA2, GPT2, bert, gemma2, gpt2, saved

IDS = [1, 5, 2, 2]
CAPPED = GEMMA2 | {"final_logit_softcapping": 1.5}


@pytest.mark.parametrize(("config", "T"), [(GPT2, gpt2()), (CAPPED, gemma2()), (BERT, bert())])
def test_the_parts_of_a_checkpoint_sum_to_its_logit_before_a_cap(config, T, tmp_path):
    with Checkpoint(saved(tmp_path, config, T)) as checkpoint:
        run = checkpoint.run(texts([IDS]))
        list(run.steps())
        logits = run.scores(run.output(), is_capped=False)[0]
        for place, id_, against in ((3, 2, None), (1, 4, 0)):
            way = way_of(run, place)
            parts = way.parts(id_, against)
            expected = logits[place, id_] - (0 if against is None else logits[place, against])
            np.testing.assert_allclose(sum(one.value for one in parts), expected, rtol=1e-5, atol=1e-5)
            for (layer, _), moved in way.trail.moved.items():  # the words sum to the head
                heads = [one.value for one in parts if (one.part, one.layer) == ("head", layer)]
                np.testing.assert_allclose(moved.sum(axis=1), heads, atol=1e-5)


def test_without_all_heads_and_networks_what_is_left_is_the_embeddings_own_guess(tmp_path):
    T = {name: np.zeros_like(M) if name.endswith("attn.c_proj.bias") else M for name, M in gpt2().items()}
    with Checkpoint(saved(tmp_path, GPT2, T)) as checkpoint:
        stack = checkpoint.model.decoder
        run = checkpoint.run(texts([IDS]))
        first = next(run.steps())
        every = tuple((n, h) for n in range(len(stack.layers)) for h in (*range(stack.heads), MLP))
        bare = run.changed(Changes(Cut(every, "masked", "decoder"))).logits()
        np.testing.assert_allclose(bare, run.scores(run.last_normed(first.x)), atol=1e-5)
        assert np.abs(bare - run.logits()).max() > 0.1
        nothing = run.changed(Changes(Cut((), "masked", "decoder"))).logits()
        np.testing.assert_allclose(nothing, run.logits(), atol=1e-5)


def test_a_pass_goes_on_from_an_attention_for_several_outputs_at_once(tmp_path):
    with Checkpoint(saved(tmp_path, GPT2, gpt2())) as checkpoint:
        run = checkpoint.run(texts([IDS]))
        first = next(run.steps())
        outputs = np.repeat(first.output, 3, axis=0)
        outputs[1, 0] = 0
        first.keep(outputs)
        logits = run.changed(Changes(x=first.x, begun=first)).logits()
        out = run.changed(Changes(Cut(((0, 0),), "masked", "decoder"))).logits()[0]
        plain = checkpoint.run(texts([IDS])).logits()[0]
        for found, expected in zip(logits, (plain, out, plain), strict=True):
            np.testing.assert_allclose(found, expected, atol=1e-5)
        assert np.abs(out - plain).max() > 1e-3
        mean = run.changed(Changes(Cut(((0, 0),), "masked", "decoder", with_mean=True))).logits()[0]
        assert np.abs(mean - plain).max() > 1e-3 < np.abs(mean - out).max()


def test_the_parts_of_the_language_model_sum_to_its_scores():
    shared = open_shared(Settings(projection="language"))
    stack, table = shared.stack, shared.table
    vectors = embed(("the", "cat", "sat"), table, "model", 0, stack.spelling).X
    mask, trail = causal(3), Trail(2)
    rows = stack.last_rows(vectors, mask, trail=trail)
    parts = trail.parts(stack.words.P @ np.eye(stack.dim)[7])
    np.testing.assert_allclose(sum(one.value for one in parts), (rows[2] @ stack.words.P)[7], rtol=1e-5)
    np.testing.assert_allclose(stack.last_rows(vectors, mask, cut=Cut((), "masked")), rows)
    out = stack.last_rows(vectors, mask, cut=Cut(((0, 1), (2, MLP)), "masked"))
    assert np.abs(out - rows).max() > 0.01
