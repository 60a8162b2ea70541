"""attn heads --probe beside transformers: scores from its attentions, copying from torch's eigenvalues of V x V."""

import numpy as np
import pytest

from attn_cli.models.checkpoints.run import Checkpoint
from attn_cli.pipeline.probe import of_checkpoint
from tests.cli.test_heads import record
from tests.models.checkpoints.by_hand import byte_pairs, word_pieces
from tests.models.checkpoints.test_parity import CASES, made
from tests.thorough import like_cases

LETTERS = [chr(n) for n in range(ord("a"), ord("z") + 1)] + [f"Ġ{n}" for n in "abcdefghijklmn"]


def linear(norm, rows):
    """The linear part of a norm of transformers, from a row of zeros and its derivative by gain: its scale is 1."""
    import torch

    centred = rows - rows.mean(-1, keepdim=True) if isinstance(norm, torch.nn.LayerNorm) else rows
    return centred * (1 + norm.weight if "Gemma" in type(norm).__name__ else norm.weight)


def of_gpt2(model, layer, h, d_k):
    block = model.transformer.h[layer]
    d = model.config.n_embd
    W_v = block.attn.c_attn.weight[:, 2 * d + h * d_k :][:, :d_k]
    written = (
        linear(block.ln_1, model.transformer.wte.weight) @ W_v @ block.attn.c_proj.weight[h * d_k :][:d_k]
    )
    return linear(model.transformer.ln_f, written) @ model.lm_head.weight.T


def of_llama(model, layer, h, d_k):
    block, group = (
        model.model.layers[layer],
        model.config.num_attention_heads // model.config.num_key_value_heads,
    )
    W_v = block.self_attn.v_proj.weight[(h // group) * d_k :][:d_k].T
    written = linear(block.input_layernorm, model.model.embed_tokens.weight) @ W_v
    written = written @ block.self_attn.o_proj.weight[:, h * d_k :][:, :d_k].T
    if model.config.model_type == "gemma2":
        written = linear(block.post_attention_layernorm, written)
    return linear(model.model.norm, written) @ model.lm_head.weight.T


def of_bert(model, layer, h, d_k):
    rows = linear(model.bert.embeddings.LayerNorm, model.bert.embeddings.word_embeddings.weight)
    for n, block in enumerate(model.bert.encoder.layer):
        if n == layer:
            own = block.attention
            rows = (
                rows
                @ own.self.value.weight[h * d_k :][:d_k].T
                @ own.output.dense.weight[:, h * d_k :][:, :d_k].T
            )
        rows = linear(block.output.LayerNorm, linear(block.attention.output.LayerNorm, rows))
    head = model.cls.predictions
    return linear(head.transform.LayerNorm, rows @ head.transform.dense.weight.T) @ head.decoder.weight.T


FULL = {"gpt2": of_gpt2, "llama": of_llama, "gemma2": of_llama, "bert": of_bert}


@pytest.mark.parametrize("name", FULL)
def test_scores_and_copying_are_what_transformers_and_torch_say(name, transformers, tmp_path):
    import torch

    case = CASES[name]._replace(
        settings={**CASES[name].settings, "sliding_window": 200}
    )  # all tokens see all
    model = made(transformers, case if name == "gemma2" else CASES[name], 0, tmp_path)
    (word_pieces if name == "bert" else byte_pairs)(tmp_path, *([] if name == "bert" else [LETTERS]))
    found = record("--probe", "-m", str(tmp_path))
    ids, n = torch.tensor([found["ids"]]), found["length"]
    start = found["ids"].index(found["ids"][-2 if name == "bert" else -1]) - n + 1
    with torch.no_grad():
        attentions = model(ids, output_attentions=True).attentions
        for head in found["heads"]:
            W = attentions[head["layer"]][0, int(head["head"])].double().numpy()
            again = range(start + n, start + 2 * n)
            each = range(max(start, 1), start + 2 * n)
            expected = {
                "previous": np.mean([W[i, i - 1] for i in each]),
                "first": np.mean([W[i, 0] for i in each]),
            }
            if name == "bert":
                inside = range(start, start + 2 * n)
                expected["same"] = np.mean([W[i, i + n if i < start + n else i - n] for i in inside])
                expected["next"] = np.mean([W[i, i + 1] for i in inside])
            else:
                expected["same"] = np.mean([W[i, i - n] for i in again])
                expected["induction"] = np.mean([W[i, i - n + 1] for i in again])
            for score, value in expected.items():
                assert head[score] == pytest.approx(value, abs=1e-5), (head["layer"], head["head"], score)
            d_k = getattr(
                model.config, "head_dim", model.config.hidden_size // model.config.num_attention_heads
            )
            whole = torch.linalg.eigvals(FULL[name](model, head["layer"], int(head["head"]), d_k).double())
            share = float(whole.sum().real / whole.abs().sum())
            assert head["copying"] == pytest.approx(share, abs=1e-4)


@pytest.mark.parametrize("name", CASES)
@like_cases
def test_every_family_that_makes_words_has_a_share_of_copying(name, transformers, tmp_path):
    made(transformers, CASES[name], 0, tmp_path)
    with Checkpoint(str(tmp_path)) as checkpoint:
        copying = of_checkpoint(checkpoint.model, checkpoint.weights)
        layers = [*checkpoint.model.stacks.values()][-1].layers
        found = np.array([copying(n) for n in range(len(layers))])
    assert np.abs(found).max() <= 1 + 1e-9 and len(np.unique(found)) > 1
