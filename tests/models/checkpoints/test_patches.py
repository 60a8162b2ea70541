"""A run with a part of another carried over, beside transformers' models with hooks."""

import contextlib
from types import SimpleNamespace

import numpy as np
import pytest

from attn_cli.models.checkpoints.run import Checkpoint, texts
from attn_cli.pipeline.effect import patch_of
from attn_cli.pipeline.passes import CheckpointPass
from tests.models.checkpoints.by_hand import byte_pairs
from tests.models.checkpoints.test_parity import CASES, PAIRS, TARGETS, TEXTS, made
from tests.schema import printed
from tests.shell import here

# Where a family has its layers, and in a layer what joins its heads
NAMES = {
    "gpt2": ("transformer.h", ["attn.c_proj"]),
    "llama": ("model.layers", ["self_attn.o_proj"]),
    "gpt_neox": ("gpt_neox.layers", ["attention.dense"]),
    "bert": ("bert.encoder.layer", ["attention.output.dense"]),
    "t5": ("decoder.block", ["layer.0.SelfAttention.o", "layer.1.EncDecAttention.o"]),
}
OTHERS = ([3, 4, 9, 6, 7, 10, 9, 3, 11], [0, 5, 12, 7, 8, 9])


class Numbered(CheckpointPass):
    """A model without a tokenizer, whose words are numbers."""

    def find(self, word, option):
        return int(word)


def read(checkpoint, ids):
    run = checkpoint.run(*(texts([one]) for one in ids))
    side, stack = list(run.model.stacks.items())[-1]
    model = SimpleNamespace(encoder=SimpleNamespace(text=str), name="random")
    tokens = SimpleNamespace(tokens=tuple(map(str, ids[-1])))
    passed = SimpleNamespace(run=run, model=model, side=side, stack=stack, query=tokens, notes=())
    return Numbered(passed, len(ids[-1]) - 1, False)


class Hooked:
    """A model of transformers, which is given what its parts take, or tells it."""

    def __init__(self, model, side, clean, corrupt):
        import torch

        self.model = model
        self.clean, self.corrupt = (
            dict(zip(side, (torch.tensor([one]) for one in ids), strict=True)) for ids in (clean, corrupt)
        )

    def run(self, given, module=None, take=lambda x: x):
        """Return the difference of two logits at the last place, with a module's input changed."""
        import torch

        with contextlib.ExitStack() as hooks, torch.no_grad():
            if module is not None:
                hook = module.register_forward_pre_hook(lambda _, args: (take(args[0]), *args[1:]))
                hooks.callback(hook.remove)
            last = self.model(**given).logits[0, -1]
        return float(last[5] - last[8])

    def with_each(self, module, cuts):
        """Return the corrupt run's difference with each of these cuts of a module's input as in the clean run."""
        kept = []
        self.run(self.clean, module, lambda x: kept.append(x.clone()) or x)

        def carried(cut):
            def take(x):
                x = x.clone()
                x[cut] = kept[0][cut]
                return x

            return take

        return [self.run(self.corrupt, module, carried(cut)) for cut in cuts]


@pytest.mark.parametrize("name", NAMES)
def test_every_patch_is_that_of_hooks(name, transformers, tmp_path):
    case, (layers, joins) = (CASES | PAIRS)[name], NAMES[name]
    model = made(transformers, case, 1, tmp_path)
    clean, corrupt, side = [TEXTS[0]], [OTHERS[0]], ["input_ids"]
    if name in PAIRS:  # another text for the encoder, too
        clean, corrupt, side = [*clean, TARGETS[0]], [*corrupt, OTHERS[1]], [*side, "decoder_input_ids"]
    with Checkpoint(str(tmp_path)) as checkpoint:
        both = read(checkpoint, clean), read(checkpoint, corrupt)
        found = patch_of(*both, ("", ""), "5", "8", lambda done: None)
    hooked = Hooked(model, side, clean, corrupt)
    n, expected = len(clean[-1]), {"residual": [], "heads": [], "cross_heads": []}
    for layer in model.get_submodule(layers):
        expected["residual"].append(hooked.with_each(layer, [np.s_[:, place] for place in range(n)]))
        for kind, join in zip(("heads", "cross_heads"), joins, strict=False):
            module, h = layer.get_submodule(join), len(found.maps["heads"][0])
            wide = (module.weight.shape[0] if name == "gpt2" else module.in_features) // h
            cuts = [np.s_[..., head * wide : (head + 1) * wide] for head in range(h)]
            expected[kind].append(hooked.with_each(module, cuts))
    ends = hooked.run(hooked.clean), hooked.run(hooked.corrupt)
    scale = max(1.0, *np.abs(ends))
    np.testing.assert_allclose((found.clean, found.corrupt), ends, atol=1e-5 * scale)
    for part, rows in expected.items():
        assert len(rows) == len(found.maps.get(part, []))
        if rows:
            np.testing.assert_allclose(found.maps[part], rows, atol=1e-5 * scale, err_msg=part)
            assert np.abs(np.array(rows) - ends[1]).max() > 1e-3 * scale


def test_an_encoder_may_read_texts_of_any_length(transformers, tmp_path):
    import torch

    more = {"vocab_size": 6, "eos_token_id": 5, "decoder_start_token_id": 0}
    case = PAIRS["t5"]._replace(settings=PAIRS["t5"].settings | more)
    model = made(transformers, case, 4, tmp_path)
    byte_pairs(tmp_path)
    contexts, ids = ("--context", "ab", "--corrupt-context", "bab"), ([0, 1], [1, 0, 1])
    for args, written in ((("ab", "bab"), [0]), (("ca", "ca", *contexts), [0, 2, 0])):
        words = ("--target", "b", "--against", "d")
        found = printed("patch", *args, *words, "-m", str(tmp_path))
        for read, difference in zip(ids, ("clean_difference", "corrupt_difference"), strict=True):
            ends = {"input_ids": torch.tensor([read]), "decoder_input_ids": torch.tensor([written])}
            last = model(**ends).logits[0, -1].detach()
            assert found[difference] == pytest.approx(float(last[1] - last[3]), abs=1e-5)
        first = found["recovered"]["residual"][0]  # what the decoder begins with is the same
        assert first == pytest.approx([0.0] * len(written), abs=1e-6)
        assert np.abs(found["recovered"]["cross_heads"]).max() > 1e-3
        shown = here("patch", *args, *words, "-m", str(tmp_path)).out
        assert "of cross-attention at all tokens, carried over" in shown and "and cross " in shown
