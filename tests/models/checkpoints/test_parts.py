"""What each part of a model adds to a logit, and passes with changes: models by hand."""

import numpy as np
import pytest

from attn_cli.models.checkpoints.layers import Changes, Texts
from attn_cli.models.checkpoints.run import Checkpoint, texts, way_of
from attn_cli.models.encoder import causal
from attn_cli.models.logit_parts import MLP, Cut, Trail
from attn_cli.pipeline.embed import open_shared
from attn_cli.settings import Settings
from attn_cli.vectors.lookup import embed
from tests.models.checkpoints.by_hand import GPT2, gpt2, saved
from tests.models.checkpoints.test_run import IDS, MODELS

ORDER = {  # of a model's parts: before its layers, in each layer, and after them
    "gpt2": ("embedding, position", "head, head, attention bias, mlp", "final norm bias"),
    "gemma2": ("embedding", "head, head, mlp", ""),
    "bert": (
        "embedding, position, segment, norm bias", "head, head, attention bias, norm bias, mlp, norm bias",
        "output layer bias, final norm bias, output bias",
    ),
    "language": ("embedding, embedding bias", "head, " * 8 + "attention bias, norm bias, mlp, norm bias", ""),
}  # fmt: skip


def in_order(parts, name, layers):
    """Tell whether parts are those of a model with so many layers, in its order, each in its layer."""
    first, each, last = ([*filter(None, some.split(", "))] for some in ORDER[name])
    expected = [(part, None) for part in first]
    expected += [(part, n) for n in range(layers) for part in each] + [(part, None) for part in last]
    heads = [one.head for one in parts if one.head is not None]
    assert heads == [*range(each.count("head"))] * layers
    return [(one.part, one.layer) for one in parts] == expected


@pytest.mark.parametrize(("config", "T"), MODELS)
def test_the_parts_of_a_checkpoint_are_in_its_order(config, T, tmp_path):
    """What they sum to, and the words of heads, is checked with every model that transformers computed."""
    with Checkpoint(saved(tmp_path, config, T)) as checkpoint:
        for place, id_, against in ((3, 2, None), (1, 4, 0)):
            parts = way_of(checkpoint.run(texts([IDS])), place).parts(id_, against)
            assert in_order(parts, config["model_type"], config.get("num_hidden_layers", 2))


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
        found = run.changed(Changes(Cut(((1, MLP),), "masked", "decoder"))).logits()
    T = {name: M * (not name.startswith("h.1.mlp.c_proj")) for name, M in T.items()}
    with Checkpoint(saved(tmp_path, GPT2, T)) as checkpoint:
        np.testing.assert_allclose(found, checkpoint.run(texts([IDS])).logits(), atol=1e-5)


def test_a_pass_goes_on_from_an_attention_for_several_outputs_at_once(tmp_path):
    with Checkpoint(saved(tmp_path, GPT2, gpt2())) as checkpoint:
        run = checkpoint.run(texts([IDS]))
        first = next(run.steps())
        outputs = np.repeat(first.output, 3, axis=0)
        outputs[1, 0] = 0
        outputs[2, 0] = outputs[2, 0].mean(axis=0)  # over the tokens
        first.keep(outputs)
        logits = run.changed(Changes(x=first.x, begun=first)).logits()
        cuts = [Cut(((0, 0),), "masked", "decoder", with_mean) for with_mean in (False, True)]
        plain, out, mean = (
            run.changed(Changes(cut)).logits()[0] for cut in (Cut((), "masked", "decoder"), *cuts)
        )
        np.testing.assert_allclose(logits, [plain, out, mean], atol=1e-5)
        assert np.abs(out - plain).max() > 1e-3 < np.abs(mean - plain).max()
        assert np.abs(mean - out).max() > 1e-3
        for other in (Cut(((0, 0), (1, MLP)), "masked", "encoder"), Cut(((0, 0),), "self", "decoder")):
            np.testing.assert_array_equal(run.changed(Changes(other)).logits()[0], plain)
        read = [checkpoint.run(Texts(np.array([ids])), cut=cuts[0]) for ids in ([0, 1], [2, 0])]
        both = read[0].beside(read[1:]).logits()
        np.testing.assert_allclose(both, [one.logits()[0] for one in read], atol=1e-5)


def test_the_parts_of_the_language_model_sum_to_its_scores():
    shared = open_shared(Settings(projection="language"))
    stack, table = shared.stack, shared.table
    vectors = embed(("the", "cat", "sat"), table, "model", 0, stack.spelling).X
    mask, trail = causal(3), Trail(2)
    rows = stack.last_rows(vectors, mask, trail=trail)
    parts = trail.parts(stack.words.P @ np.eye(stack.dim)[7])
    assert in_order(parts, "language", 3)
    np.testing.assert_allclose(sum(one.value for one in parts), (rows[2] @ stack.words.P)[7], rtol=1e-5)
    np.testing.assert_allclose(stack.last_rows(vectors, mask, cut=Cut((), "masked")), rows)
    out = stack.last_rows(vectors, mask, cut=Cut(((0, 1), (2, MLP)), "masked"))
    assert np.abs(out - rows).max() > 0.01
