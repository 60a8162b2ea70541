"""A model that keeps keys and values writes what it would write if each text were computed as a whole."""

import numpy as np
import pytest

from attn_cli.models.checkpoints.run import Checkpoint, texts
from tests.models.checkpoints.by_hand import GPT2, gpt2, saved
from tests.models.checkpoints.test_parity import CASES, PAIRS, TEXTS, alibi_once, made
from tests.thorough import like_cases

COUNT = 16
# Rotation, windows, shared heads, experts, distances by buckets or slopes, encoders; rotations that depend on length
NAMES = [
    "gpt2", "gpt_neo", "llama 3", "gemma3", "mixtral, window, tied", "cohere2", "gpt_neox", "opt, as 350m",
    "phi3, longrope", "llama, dynamic", "t5, as v1.1", "marian, two vocabularies", "m2m_100, other padding",
    "t5gemma, kinds of layers, untied", "bloom, six heads, untied",
    "falcon, groups, one norm, untied", "falcon, alibi, six heads, untied",
]  # fmt: skip


def written(checkpoint, source, count, start=None):
    """Return the likeliest tokens, one after the other, each step's last rows of attention, and its logits."""
    target = None if start is None else texts([[start]])
    run = checkpoint.run(texts([source]), target, keeps=True)
    first = ids = list(source) if start is None else [start]
    rows, logits = [], []
    for _ in range(count):
        steps = [one for one in run.steps() if one.side == list(run.model.stacks)[-1]]
        rows.append([one.attended.weights[0, :, -1] for one in steps])
        logits.append(run.logits()[0, -1])
        ids = [*ids, int(logits[-1].argmax())]
        run.read_on(ids)
    return ids[len(first) :], rows, logits


@pytest.mark.parametrize("name", NAMES)
@like_cases
def test_the_likeliest_tokens_are_those_that_transformers_generates(name, transformers, tmp_path):
    import torch

    is_pair, case = name in PAIRS, (CASES | PAIRS)[name]
    if case.family == "t5":  # else it writes what it read last
        case = case._replace(settings=case.settings | {"initializer_factor": 1.5})
    start = case.settings.get("decoder_start_token_id", 7) if is_pair else None
    for seed in range(9):  # until it writes more than one word again and again
        model = made(transformers, case, seed, tmp_path)
        with Checkpoint(str(tmp_path)) as checkpoint:
            found, rows, logits = written(checkpoint, TEXTS[0], COUNT, start)
        if len({*found}) > 2:
            break
    model.generation_config = transformers.GenerationConfig(
        max_new_tokens=COUNT, do_sample=False, pad_token_id=0, decoder_start_token_id=start,
        output_attentions=True, output_logits=True, return_dict_in_generate=True,
        use_cache=case.family != "t5",  # whose cache has as many layers as the encoder
    )  # fmt: skip
    with alibi_once(case):
        expected = model.generate(torch.tensor([TEXTS[0]]), attention_mask=torch.ones(1, len(TEXTS[0])))
    assert found == expected.sequences[0, 1 if is_pair else len(TEXTS[0]) :].tolist()
    assert len({*found}) > 2
    for mine, theirs in zip(logits, expected.logits, strict=True):
        np.testing.assert_allclose(mine, theirs[0], rtol=0, atol=2e-5 * max(1, abs(mine).max()))
    own = expected.decoder_attentions if is_pair else expected.attentions
    for n, step in enumerate(rows):
        kinds = [own[n], expected.cross_attentions[n]] if is_pair else [own[n]]
        layers = [layer[kind] for layer in zip(*kinds, strict=True) for kind in range(len(kinds))]
        for row, theirs in zip(step, layers, strict=True):
            theirs = theirs[0, :, -1].numpy()
            # transformers keeps no keys beyond a window
            np.testing.assert_allclose(row[:, -theirs.shape[-1] :], theirs, rtol=0, atol=2e-5)


def test_each_step_is_that_of_the_whole_text_and_computes_one_row(tmp_path):
    with Checkpoint(saved(tmp_path, GPT2, gpt2(places=40))) as checkpoint:
        ids, rows, logits = written(checkpoint, [1, 5, 2], 12)
        ids = [1, 5, 2, *ids]
        run = checkpoint.run(texts([ids[:-1]]))
        whole = [one.attended.weights[0] for one in run.steps()]
        np.testing.assert_allclose(logits, run.logits()[0, 2:], rtol=0, atol=1e-4)
        for n, step in enumerate(rows):
            for row, layer in zip(step, whole, strict=True):
                np.testing.assert_allclose(row, layer[:, n + 2, : n + 3], rtol=0, atol=1e-6)
        run = checkpoint.run(texts([ids]), keeps=True)
        run.logits()
        run.read_on([*ids, 4])
        assert [one.ready.q.shape[2] for one in run.steps()] == [1, 1]
