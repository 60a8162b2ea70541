"""Every family beside what transformers computed of small models of it, where there is neither it nor PyTorch.

A line of `known.jsonl` has a model's name, which begins with its family; its settings, those of the model that it is
`of` and some more; a number each for the weights of a layer and for the logits; and, where they are others, the shapes
of its tensors, whose numbers are drawn by their names. For another model, add a line with the name and settings, and
run `python -m tests.models.checkpoints.test_known`, where PyTorch and transformers are installed: it writes the rest.
A line of `defaults.jsonl`, which it writes as well, has what a family's keys are in transformers where nothing is said.
"""

import dataclasses
import json
import math
import re
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from zlib import crc32

import numpy as np
import pytest

from attn_cli.errors import InputError
from attn_cli.models.checkpoints.config import IDLE
from attn_cli.models.checkpoints.families import FAMILIES
from attn_cli.models.checkpoints.run import Checkpoint, texts
from attn_cli.settings import Settings
from tests.models.checkpoints import test_parity as parity
from tests.models.checkpoints.by_hand import saved
from tests.models.checkpoints.test_parity import KNOWN, LONG
from tests.small_models import trace_checkpoint


def drawn(name, shape):
    """Return a tensor's numbers; those of a vector that multiplies are about one."""
    numbers = np.random.default_rng(crc32(name.encode())).standard_normal(shape) / 4
    return (numbers + (len(shape) == 1 and name.endswith("weight"))).astype(np.float32)


def shapes_of(name):
    return KNOWN[name].get("shapes") or shapes_of(KNOWN[name]["of"])


def written(name, folder, **more):
    """Write the model of this name, and return the folder's."""
    case, arrays = parity.BOTH[name.removesuffix(LONG)], {}
    for key, shape in shapes_of(name).items():
        for place in product(*(range(int(count)) for count in re.findall(r"{(\d+)}", key))):
            own = re.sub(r"{\d+}", "{}", key).format(*place)
            arrays[own] = drawn(own, shape)
    return saved(folder, {"model_type": case.family} | case.settings | more, arrays)


def read_by(name):
    return parity.long_texts(name.removesuffix(LONG)) if LONG in name else parity.read_by(name, "left")


def marked(array):
    """Return a number that each number of an array, at its place, has a part in."""
    return float(np.cos(np.arange(array.size)) @ array.ravel())


def same_as_known(name, folder):
    given, found = read_by(name), {}
    with Checkpoint(str(folder), is_strict=True) as checkpoint:
        run = checkpoint.run(*given)
        for step in run.steps():
            kind = step.kind if len(given) == 2 else ""
            real = given[0 if kind == "self" else -1].real
            found.setdefault(kind, []).append(marked(step.attended.weights.swapaxes(1, 2)[real]))
        logits = run.logits()[given[-1].real]
        looks_ahead = [said for said in ("both ways", "EmbeddingGemma") if said in name]
        assert len(checkpoint.model.notes) == len(looks_ahead)
        if LONG not in name:
            parity.identities(checkpoint, run, given, name)
    for kind, expected in KNOWN[name]["weights"].items():
        np.testing.assert_allclose(found[kind], expected, rtol=0, atol=5e-4, err_msg=kind)
    assert found.keys() == KNOWN[name]["weights"].keys()
    assert marked(logits) == pytest.approx(KNOWN[name]["logits"], rel=1e-4, abs=1e-3)


@pytest.mark.parametrize("name", KNOWN)
def test_every_head_attends_as_it_did_in_transformers(name, tmp_path):
    same_as_known(name, written(name, tmp_path))


NO_BIAS = {  # how the names of tensors end that have none
    **dict.fromkeys(("mistral", "llama", "qwen3", "gemma", "phi3", "t5gemma"), "_proj"), "t5": "[qkvo]|w[io]|norm",
    "gpt_neo": "[qkv]_proj", "gptj": r"attn\.\w+_proj", "qwen2": r"o_proj|mlp\.\w+_proj", "falcon": "value|dense.*",
    "opt, no biases": r"_proj|fc\d", "cohere, normed heads": "norm|_proj", "cohere2": "norm|_proj",
    "glm4": "[^qkv]_proj", "mixtral": "gate|_proj", "qwen2_moe": r"o_proj|mlp\.gate", "deberta": "in_proj|pos_proj",
    "qwen3_moe": r"attn\.\w_proj|mlp\.gate", "gpt_oss, kinds, tied, no biases": "_proj",
    "starcoder2, no biases, window, untied": "_proj|c_fc", "gpt_neox, no biases, tied": r"value|attention\.dense",
    "modernbert": r"norm|W\w+|head\.dense",
}  # fmt: skip


@pytest.mark.parametrize("name", NO_BIAS)
def test_a_bias_that_the_family_does_not_have_is_not_read(name, tmp_path):
    written(name, tmp_path)
    config, arrays = parity.read(tmp_path)
    ends = re.compile(rf"(.*({NO_BIAS[name]}))\.weight")
    for key in filter(ends.fullmatch, list(arrays)):
        shape = arrays[key].shape if "norm" in key else arrays[key].shape[:1]
        assert arrays.setdefault(key.replace("weight", "bias"), np.ones(shape, "f4")).all()
    same_as_known(name, saved(tmp_path / "biased", config, arrays))


@pytest.mark.parametrize("name", ["bert", "roberta", "albert"])
def test_a_file_with_the_decoder_s_bias_alone_gives_the_same_words(name, tmp_path):
    written(name, tmp_path)
    config, arrays = parity.read(tmp_path)
    own = next(key for key in arrays if key.endswith(("predictions.bias", "lm_head.bias")))
    arrays[own.removesuffix("bias") + "decoder.bias"] = arrays.pop(own)
    same_as_known(name, saved(tmp_path, config, arrays))


def test_without_heads_a_decoder_is_the_one_whose_w_o_has_nothing_for_them(tokenizers, tmp_path):
    written("t5", tmp_path)
    (tmp_path / "vocab.txt").write_text("\n".join(parity.VOCABULARY))

    def read(*out):
        told = Settings(next=parity.V, head="all", knock_out=out)
        trace = trace_checkpoint("cross", "w1 w2 w30", "w3 w4", told, tmp_path)
        logits = [one.logit for one in sorted(trace.next_words.words, key=lambda one: one.id)]
        return np.concatenate([*(head.weights.ravel() for head in trace.heads), logits])

    plain, found = read(), read("0.1", "1.3")
    config, arrays = parity.read(tmp_path)
    for layer, head in ((0, 1), (1, 3)):
        name = f"decoder.block.{layer}.layer.1.EncDecAttention.o.weight"
        arrays[name] = arrays[name].copy()
        arrays[name][:, 6 * head : 6 * head + 6] = 0
    saved(tmp_path, config, arrays)
    assert found == pytest.approx(read(), abs=1e-5)
    assert found != pytest.approx(plain, abs=1e-3)


def logits_of(folder):
    with Checkpoint(str(folder), is_strict=True) as checkpoint:
        return checkpoint.run(texts(parity.TEXTS)).logits()


E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])  # of four bits, the first of which is the sign


def test_experts_in_four_bits_are_what_their_blocks_and_scales_say(tmp_path):
    """As GPT-OSS ships them: 32 numbers a block, two in a byte, the lower half first, times a power of two."""
    written("gpt_oss", tmp_path)
    config, arrays = parity.read(tmp_path)
    said = {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}
    config |= {"intermediate_size": 64, "quantization_config": said}
    packed, draw = dict(arrays), np.random.default_rng(3)
    for n, (name, rows, groups) in product(range(3), (("gate_up", 128, 1), ("down", 32, 2))):
        place = f"model.layers.{n}.mlp.experts.{name}_proj"
        packed[f"{place}_bias"] = arrays[f"{place}_bias"] = drawn(place, (5, rows))
        blocks = packed[f"{place}_blocks"] = draw.integers(0, 256, (5, rows, groups, 16), np.uint8)
        scales = packed[f"{place}_scales"] = draw.integers(118, 126, (5, rows, groups), np.uint8)
        halves = np.stack([blocks & 15, blocks >> 4], axis=-1).reshape(5, rows, groups, 32)
        numbers = np.concatenate([E2M1, -E2M1])[halves] * 2.0 ** (scales[..., None].astype(int) - 127)
        arrays[place] = np.ascontiguousarray(numbers.reshape(5, rows, -1).swapaxes(1, 2), np.float32)
        del packed[place]
    found, expected = (logits_of(saved(tmp_path / "x", config, some)) for some in (packed, arrays))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


WITH_PICTURES = [("gemma3", prefix, {}) for prefix in ("language_model.model.", "model.language_model.")]
WITH_PICTURES += [("gemma3, its own sizes", "language_model.model.", {})]  # as gemma-3-4b-it ships it
TIED = [{"tie_word_embeddings": is_tied} for is_tied in (True, False)]
WITH_PICTURES += [("mistral", "language_model.model.", told) for told in TIED]


@pytest.mark.parametrize(("name", "prefix", "told"), WITH_PICTURES)
def test_the_words_of_a_model_of_words_and_pictures_are_read(name, prefix, told, tmp_path):
    written(name, tmp_path, **told)
    text, arrays = parity.read(tmp_path)
    if told.get("tie_word_embeddings"):
        del arrays["lm_head.weight"]
    expected = logits_of(saved(tmp_path / "words", text, arrays))
    arrays = {
        key.replace("model.", prefix, 1).replace("lm_head", "language_model.lm_head"): array
        for key, array in arrays.items()
    }
    whole = {"model_type": "gemma3", "text_config": text, "vision_config": {}, "image_token_index": 9}
    if name == "mistral":
        whole = {"model_type": "mistral3", "text_config": text, "vision_config": {}} | told
        ministral = whole | {"text_config": text | {"model_type": "ministral3"}}
        with pytest.raises(InputError, match=r'model_type is "ministral3"\. It must be mistral'):
            Checkpoint(saved(tmp_path / "other", ministral, arrays))
    np.testing.assert_array_equal(logits_of(saved(tmp_path / "pictures", whole, arrays)), expected)


DEFAULTS = Path(__file__).with_name("defaults.jsonl")


def test_what_a_config_does_not_say_is_as_transformers_has_it():
    told = {line.pop("family"): line for line in map(json.loads, DEFAULTS.read_text().splitlines())}
    assert told == {name: {key: keys[key] for key in told[name]} for name, (_, keys) in FAMILIES.items()}


def defaults(transformers):
    """Yield the lines of defaults.jsonl."""
    for family, (_, keys) in FAMILIES.items():
        fields = dataclasses.fields(transformers.CONFIG_MAPPING[family])
        reads = {key for key, one in keys.items() if one is not IDLE and not isinstance(one, dict)}
        yield {"family": family} | {one.name: one.default for one in fields if one.name in reads}


def folded(arrays):
    """Return shapes by names, with how many there are for the numbers of layers and experts that are alike."""
    shapes = {}
    for name, array in arrays.items():
        places = shapes.setdefault(re.sub(r"\.\d+(?=\.)", ".{}", name), {})
        places[tuple(map(int, re.findall(r"\.(\d+)(?=\.)", name)))] = list(array.shape)
    for name, places in shapes.items():
        counts = [1 + max(numbers) for numbers in zip(*places, strict=True)]
        if len(places) == math.prod(counts) and len({*map(tuple, places.values())}) == 1:
            places = {tuple(f"{{{count}}}" for count in counts): next(iter(places.values()))}
        yield from ((name.format(*place), shape) for place, shape in places.items())


def compute(name, transformers):
    """Write into a model's line what transformers has and computes of it."""
    import torch

    line, case, given = KNOWN[name], parity.BOTH[name.removesuffix(LONG)], read_by(name)
    with TemporaryDirectory() as folder:
        model = case.made(transformers)
        model.save_pretrained(folder)
        config, arrays = parity.read(Path(folder))
        line["shapes"] = dict(folded(arrays))
        if "of" in line and shapes_of(line["of"]) == line["shapes"]:
            del line["shapes"]
        written(name, folder)
        (Path(folder) / "config.json").write_text(json.dumps(config))
        model = type(model).from_pretrained(folder, attn_implementation="eager", dtype=torch.float32).eval()
    told, layers = parity.told_by(model, case, given)
    real = {kind: given[0 if kind == "self" else -1].real for kind in layers}
    line["weights"] = {
        kind: [round(marked(one.numpy().swapaxes(1, 2)[real[kind]]), 6) for one in own]
        for kind, own in layers.items()
    }
    line["logits"] = round(marked(told.logits.numpy()[given[-1].real]), 5)


if __name__ == "__main__":
    import transformers

    for name in sorted(KNOWN, key=lambda name: ("," in name, "of" in KNOWN[name])):
        compute(name, transformers)
    for path, lines in {parity.PATH: KNOWN.values(), DEFAULTS: defaults(transformers)}.items():
        path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
