"""attn heads --probe beside transformers: scores from its attentions, copying from torch's eigenvalues of V x V."""

import numpy as np
import pytest

from attn_cli.models.checkpoints.run import Checkpoint
from attn_cli.pipeline.probe import of_checkpoint
from tests.cli.test_heads import record
from tests.models.checkpoints.by_hand import byte_pairs, word_pieces
from tests.models.checkpoints.test_known import written
from tests.models.checkpoints.test_parity import CASES, made

LETTERS = [chr(n) for n in range(ord("a"), ord("z") + 1)] + [f"Ġ{n}" for n in "abcdefghijklmn"]


def linear(norm, rows):
    """The linear part of a norm of transformers, from a row of zeros and its derivative by gain: its scale is 1."""
    import torch

    centred = rows - rows.mean(-1, keepdim=True) if isinstance(norm, torch.nn.LayerNorm) else rows
    return centred * (1 + norm.weight if "Gemma" in type(norm).__name__ else norm.weight)


def of_gpt2(model, layer, h, d_k):
    block, d = model.transformer.h[layer], model.config.n_embd
    W_v = block.attn.c_attn.weight[:, 2 * d + h * d_k :][:, :d_k]
    W_o = block.attn.c_proj.weight[h * d_k :][:d_k]
    written = linear(block.ln_1, model.transformer.wte.weight) @ W_v @ W_o
    return linear(model.transformer.ln_f, written) @ model.lm_head.weight.T


def of_llama(model, layer, h, d_k):
    block, config = model.model.layers[layer], model.config
    group = config.num_attention_heads // config.num_key_value_heads
    W_v = block.self_attn.v_proj.weight[(h // group) * d_k :][:d_k].T
    W_o = block.self_attn.o_proj.weight[:, h * d_k :][:, :d_k].T
    written = linear(block.input_layernorm, model.model.embed_tokens.weight) @ W_v @ W_o
    if config.model_type == "gemma2":
        written = linear(block.post_attention_layernorm, written)
    return linear(model.model.norm, written) @ model.lm_head.weight.T


def of_bert(model, layer, h, d_k):
    rows = linear(model.bert.embeddings.LayerNorm, model.bert.embeddings.word_embeddings.weight)
    for n, block in enumerate(model.bert.encoder.layer):
        own = block.attention
        if n == layer:
            rows = rows @ own.self.value.weight[h * d_k :][:d_k].T
            rows = rows @ own.output.dense.weight[:, h * d_k :][:, :d_k].T
        rows = linear(block.output.LayerNorm, linear(own.output.LayerNorm, rows))
    head = model.cls.predictions
    return linear(head.transform.LayerNorm, rows @ head.transform.dense.weight.T) @ head.decoder.weight.T


FULL = {"gpt2": of_gpt2, "llama": of_llama, "gemma2": of_llama, "bert": of_bert}


@pytest.mark.parametrize("name", FULL)
def test_scores_and_copying_are_what_transformers_and_torch_say(name, transformers, tmp_path):
    import torch

    case = CASES[name]
    if name == "gemma2":  # all tokens see all
        case = case._replace(settings=case.settings | {"sliding_window": 200})
    model = made(transformers, case, 0, tmp_path)
    word_pieces(tmp_path) if name == "bert" else byte_pairs(tmp_path, LETTERS)
    found = record("--probe", "-m", str(tmp_path))
    ids, n = torch.tensor([found["ids"]]), found["length"]
    start = len(found["ids"]) - 2 * n - (name == "bert")
    again, each = range(start + n, start + 2 * n), range(max(start, 1), start + 2 * n)
    targets = {"previous": (each, lambda i: i - 1), "first": (each, lambda i: 0)}
    if name == "bert":
        inside = range(start, start + 2 * n)
        targets["same"] = (inside, lambda i: i + n if i < start + n else i - n)
        targets["next"] = (inside, lambda i: i + 1)
    else:
        targets |= {"same": (again, lambda i: i - n), "induction": (again, lambda i: i - n + 1)}
    with torch.no_grad():
        attentions = model(ids, output_attentions=True).attentions
        for head in found["heads"]:
            layer, h = head["layer"], int(head["head"])
            W = attentions[layer][0, h].double().numpy()
            for score, (rows, key) in targets.items():
                expected = np.mean([W[i, key(i)] for i in rows])
                assert head[score] == pytest.approx(expected, abs=1e-5), (layer, h, score)
            d_k = case.settings.get("head_dim", 8)
            whole = torch.linalg.eigvals(FULL[name](model, layer, h, d_k).double())
            share = float(whole.sum().real / whole.abs().sum())
            assert head["copying"] == pytest.approx(share, abs=1e-4)


@pytest.mark.parametrize("name", CASES)
def test_every_family_that_makes_words_has_a_share_of_copying(name, tmp_path):
    with Checkpoint(written(name, tmp_path)) as checkpoint:
        copying = of_checkpoint(checkpoint.model, checkpoint.weights)
        layers = [*checkpoint.model.stacks.values()][-1].layers
        found = np.array([copying(n) for n in range(len(layers))])
    assert np.abs(found).max() <= 1 + 1e-9 and len(np.unique(found)) > 1
