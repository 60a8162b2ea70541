"""What heads and networks add to a logit, beside PyTorch: gradients with norms frozen and no way but the stream's."""

import numpy as np
import pytest

from attn_cli.models.checkpoints.run import Checkpoint, texts, way_of
from tests.models.checkpoints.test_parity import CASES, PAIRS, TARGETS, TEXTS, made

# What a family calls the matrix that joins heads, its network's last part, and what reads the stream
LLAMA = ("self_attn.o_proj",), ("mlp",), ("self_attn", "mlp")
NAMES = {
    "gpt2": (("attn.c_proj",), ("mlp",), ("attn", "mlp")),
    "llama": LLAMA,
    "qwen3": LLAMA,
    "gemma2": LLAMA,
    "mixtral": LLAMA,
    "t5": (
        ("SelfAttention.o", "EncDecAttention.o"),
        ("DenseReluDense",),
        ("SelfAttention", "EncDecAttention", "DenseReluDense"),
    ),
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


def parts_of(model, case, names, given, place, id_):
    """Return what each head, by attention and layer, and each network adds to a logit."""
    joins, networks, readers = names
    leaves, sizes = {}, case.settings
    heads = sizes.get("num_attention_heads") or sizes.get("n_head") or sizes["num_heads"]
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
    found = {"heads": [], "mlp": []}
    for name, one in leaves.items():
        value = (one * one.grad).detach().reshape(-1, one.shape[-1])[place]
        if name.endswith(joins):
            found["heads"].append(value.reshape(heads, -1).sum(1).numpy())
        else:
            found["mlp"].append(float(value.sum()))
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
    given = {
        f"{side}input_ids": torch.tensor([one]) for side, one in zip(("", "decoder_"), ids, strict=False)
    }
    model.config.final_logit_softcapping = None
    theirs = parts_of(model, case, NAMES[name], given, place, id_)
    own = [one.value for one in parts if one.part == "head"]
    scale = max(1.0, sum(abs(one.value) for one in parts))
    np.testing.assert_allclose(np.array(own) / scale, np.concatenate(theirs["heads"]) / scale, atol=1e-5)
    own = [one.value for one in parts if one.part == "mlp"]
    np.testing.assert_allclose(np.array(own) / scale, np.array(theirs["mlp"]) / scale, atol=1e-5)
    assert len(theirs["heads"]) >= 2 <= len(own) and (capped is not None) == (name == "gemma2")
