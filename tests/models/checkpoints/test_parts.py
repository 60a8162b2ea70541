"""What each part of a model adds to a logit, and passes with changes: models by hand, and beside PyTorch."""

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
from tests.models.checkpoints.test_parity import CASES, PAIRS, TARGETS, TEXTS, made
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


# Beside PyTorch: gradients with norms frozen and no way but the stream's

# What a family calls the matrix that joins heads, its network's last part, and what reads the stream
LLAMA = ("self_attn.o_proj",), ("mlp",), ("self_attn", "mlp")
BOTH = ("SelfAttention", "EncDecAttention")
NAMES = {
    "gpt2": (("attn.c_proj",), ("mlp",), ("attn", "mlp")),
    **dict.fromkeys(("llama", "qwen3", "gemma2", "mixtral"), LLAMA),
    "t5": (tuple(f"{name}.o" for name in BOTH), ("DenseReluDense",), (*BOTH, "DenseReluDense")),
    "bert": (("attention.output.dense",), ("output.dense",), ("attention.self", "intermediate")),
}


def detached(module, given, named):
    return tuple(map(still, given)), {name: still(one) for name, one in named.items()}


def still(one):
    return one.detach() if hasattr(one, "detach") and one.is_floating_point() else one


def freeze(model):
    """Let each norm divide by a scale that no gradient goes through, and a masked-word head activate by a ratio."""
    import torch

    for module in model.modules():
        kind = type(module).__name__
        if isinstance(module, torch.nn.LayerNorm):
            module.forward = lambda x, m=module: (
                (x - x.mean(-1, keepdim=True))
                / (x.var(-1, unbiased=False, keepdim=True) + m.eps).sqrt().detach()
                * m.weight
                + m.bias
            )
        elif kind.endswith(("RMSNorm", "T5LayerNorm")):
            eps, plus = getattr(module, "eps", getattr(module, "variance_epsilon", 0)), float("Gemma" in kind)
            module.forward = lambda x, m=module, eps=eps, plus=plus: (
                x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps).detach() * (m.weight + plus)
            )
        elif kind == "BertPredictionHeadTransform":
            module.forward = lambda x, m=module: m.LayerNorm(
                (made := m.dense(x)) * (m.transform_act_fn(made) / made).detach()
            )


def parts_of(model, names, given, place, id_):
    """Return what each head, by attention and layer, and each network adds to a logit."""
    joins, networks, readers = names
    leaves, heads = {}, 4
    freeze(model)

    def leaf(name, value):
        leaves[name] = value.detach().requires_grad_()
        return leaves[name]

    for name, module in model.named_modules():
        if name.startswith("encoder."):
            continue
        if name.endswith(readers) and not name.endswith(joins):
            module.register_forward_pre_hook(detached, with_kwargs=True)
        if name.endswith(joins):
            module.register_forward_pre_hook(lambda m, given, n=name: (leaf(n, given[0]),))
        elif name.endswith(networks):
            module.register_forward_hook(lambda m, given, out, n=name: leaf(n, out))
    model(**given).logits[0, place, id_].backward()
    found = {"head": [], "mlp": []}
    for name, one in leaves.items():
        value = (one * one.grad).detach().reshape(-1, one.shape[-1])[place]
        rows = value.reshape(heads, -1) if name.endswith(joins) else value[None]
        found["head" if name.endswith(joins) else "mlp"] += rows.sum(1).tolist()
    return found


@pytest.mark.parametrize("name", NAMES)
def test_heads_and_networks_add_what_gradients_say(name, transformers, tmp_path):
    import torch

    case, place, id_ = (CASES | PAIRS)[name], 2, 5
    model = made(transformers, case, 1, tmp_path)
    ids = [TEXTS[0], TARGETS[0]] if name in PAIRS else [TEXTS[0]]
    with Checkpoint(str(tmp_path)) as checkpoint:
        run = checkpoint.run(*(texts([one]) for one in ids))
        capped = run.model.logits.softcap
        parts = way_of(run, place).parts(id_)
    sides = ("input_ids", "decoder_input_ids")[: len(ids)]
    given = {side: torch.tensor([one]) for side, one in zip(sides, ids, strict=True)}
    model.config.final_logit_softcapping = None
    theirs = parts_of(model, NAMES[name], given, place, id_)
    scale = max(1.0, sum(abs(one.value) for one in parts))
    for part, wanted in theirs.items():
        own = [one.value for one in parts if one.part == part]
        np.testing.assert_allclose(np.array(own) / scale, np.array(wanted) / scale, atol=1e-5)
        assert len(own) >= 2
    assert (capped is not None) == (name == "gemma2")
