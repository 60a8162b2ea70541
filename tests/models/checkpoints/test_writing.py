"""A model that keeps keys and values writes what it would write if each text were computed as a whole."""

import numpy as np
import pytest

from attn_cli.models.checkpoints.run import Checkpoint, texts
from tests.models.checkpoints.test_known import written
from tests.models.checkpoints.test_parity import BOTH, PAIRS, TEXTS, alibi_once, made, size_of
from tests.thorough import like_cases

COUNT = 16
# Shared heads, windows, rotation, experts, distances by buckets or slopes, encoders
NAMES = [
    "gpt2", "gpt_neo", "llama 3", "gemma3", "mixtral, window, tied", "cohere2", "gpt_neox", "opt, as 350m",
    "t5, as v1.1", "marian, two vocabularies", "m2m_100, other padding", "t5gemma, kinds of layers, untied",
    "bloom, six heads, untied", "falcon, groups, one norm, untied", "falcon, alibi, six heads, untied",
]  # fmt: skip
BY_LENGTH = ["phi3, longrope", "llama, dynamic"]  # whose keys stay as a shorter text rotates them
ANEW = (BY_LENGTH[0], 17)  # beyond sixteen tokens it rotates all otherwise


def start_of(name):
    return BOTH[name].settings.get("decoder_start_token_id", 7) if name in PAIRS else None


def steps_of(checkpoint, name):
    """Yield the ids so far and the run that has read them, while it writes the likeliest tokens."""
    start = start_of(name)
    ids = TEXTS[0] if start is None else [start]
    run = checkpoint.run(*map(texts, [[TEXTS[0]]] if start is None else [[TEXTS[0]], [ids]]), keeps=True)
    for _ in range(COUNT):
        yield ids, run
        ids = [*ids, int(run.logits()[0, -1].argmax())]
        run.read_on(ids)


@pytest.mark.parametrize("name", [*NAMES, ANEW[0]])
def test_each_step_is_that_of_the_whole_text_and_computes_one_row(name, tmp_path):
    with Checkpoint(written(name, tmp_path)) as checkpoint:
        for n, (ids, run) in enumerate(steps_of(checkpoint, name)):
            whole = checkpoint.run(*map(texts, [[TEXTS[0]], [ids]] if name in PAIRS else [[ids]]))
            expected = [one for one in whole.steps() if not n or one.side == [*run.model.stacks][-1]]
            for step, other in zip(run.steps(), expected, strict=True):
                row, wanted = (one.attended.weights[0, :, -1] for one in (step, other))
                np.testing.assert_allclose(row, wanted, rtol=0, atol=1e-5)
                assert n == 0 or step.ready.q.shape[2] == (17 if (name, len(ids)) == ANEW else 1)
            found, wanted = (one.logits()[0, -1] for one in (run, whole))
            np.testing.assert_allclose(found, wanted, rtol=0, atol=2e-5 * size_of(wanted))


@pytest.mark.parametrize("name", [*NAMES, *BY_LENGTH])
@like_cases
def test_the_likeliest_tokens_are_those_that_transformers_generates(name, transformers, tmp_path):
    import torch

    is_pair, case, start = name in PAIRS, BOTH[name], start_of(name)
    if case.family == "t5":  # else it writes what it read last
        case = case._replace(settings=case.settings | {"initializer_factor": 1.5})
    for seed in range(9):  # until it writes more than one word again and again
        model = made(transformers, case, seed, tmp_path)
        with Checkpoint(str(tmp_path)) as checkpoint:
            logits = [run.logits()[0, -1] for _, run in steps_of(checkpoint, name)]
        found = [int(one.argmax()) for one in logits]
        if len({*found}) > 2:
            break
    model.generation_config = transformers.GenerationConfig(
        max_new_tokens=COUNT, do_sample=False, pad_token_id=0, decoder_start_token_id=start, output_logits=True,
        return_dict_in_generate=True, use_cache=case.family != "t5",  # whose cache has as many layers as the encoder
    )  # fmt: skip
    with alibi_once(case):
        expected = model.generate(torch.tensor([TEXTS[0]]), attention_mask=torch.ones(1, len(TEXTS[0])))
    assert found == expected.sequences[0, 1 if is_pair else len(TEXTS[0]) :].tolist()
    assert len({*found}) > 2
    for mine, theirs in zip(logits, expected.logits, strict=True):
        np.testing.assert_allclose(mine, theirs[0], rtol=0, atol=2e-5 * size_of(mine))
