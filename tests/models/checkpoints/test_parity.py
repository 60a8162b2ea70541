"""Every family beside transformers: attentions of every layer and head, and logits, of small random models."""

import contextlib
import dataclasses
import json
import re
from copy import deepcopy
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import numpy as np
import pytest

from attn_cli.errors import InputError
from attn_cli.io.array_files import read_safetensors
from attn_cli.models import logit_parts
from attn_cli.models.checkpoints.config import IDLE, INERT
from attn_cli.models.checkpoints.families import FAMILIES
from attn_cli.models.checkpoints.layers import Changes
from attn_cli.models.checkpoints.reader import Reader
from attn_cli.models.checkpoints.run import Checkpoint, texts, way_of
from attn_cli.models.logit_parts import Cut
from attn_cli.pipeline.effect import effect_of
from attn_cli.pipeline.passes import open_passes
from attn_cli.settings import Settings
from tests.models.checkpoints.by_hand import saved
from tests.small_models import trace_checkpoint
from tests.thorough import like_cases

V = 40  # words
QUERIES_AND_KEYS = re.compile(
    r"\.(query|key|[qk]_lin|[qk]_proj|query_key_value|c_attn|Wqkv|in_proj|pos_\w*proj|(query|key)_proj|attn\.[qk]|[qk]_norm|(SelfAttention|EncDecAttention)\.[qk])\."
)


class Case(NamedTuple):
    """A family's name in transformers, and the settings of a small model of it."""

    family: str
    settings: dict[str, object]

    def made(self, transformers):
        """Return a model of random weights, with the head that makes words."""
        config = transformers.AutoConfig.for_model(self.family, **deepcopy(self.settings))
        kind, is_decoder = transformers.AutoModelForCausalLM, getattr(config, "is_decoder", False)
        if config.is_encoder_decoder:
            kind = transformers.AutoModelForSeq2SeqLM
        elif type(config) in transformers.MODEL_FOR_MASKED_LM_MAPPING and not is_decoder:
            kind = transformers.AutoModelForMaskedLM
        return kind.from_config(config, attn_implementation="eager")


# Factors of queries and keys: scores of T5 are not scaled, and large already; Qwen3 multiplies by norms, too
SHARPENED = {"gpt_neo": 1.0, "t5": 0.8, "mt5": 0.8}
SHARPENED |= dict.fromkeys(("qwen3", "qwen3_moe", "olmo2", "olmo3"), 1.5)
# Transformers must be told the places, as its generate tells them.
COUNTS_REAL = ("gpt2", "gpt_neo", "gpt_neox")
PATH = Path(__file__).with_name("known.jsonl")
KNOWN = {line["name"]: line for line in map(json.loads, PATH.read_text().splitlines())}
LONG = ", 300 words"


def settings_of(name):
    """Return what the settings of a model are, which are those of another and some more."""
    line = KNOWN[name]
    return (settings_of(line["of"]) if "of" in line else {}) | line["settings"]


BOTH = {
    name: Case(re.match("[^ ,]+", name)[0].replace("gemma3", "gemma3_text"), settings_of(name))
    for name in KNOWN
    if LONG not in name
}
OF_PAIRS = ("bart", "m2m_100", "marian", "mbart", "mt5", "pegasus", "t5", "t5gemma")
PAIRS = {name: case for name, case in BOTH.items() if case.family in OF_PAIRS}
CASES = {name: case for name, case in BOTH.items() if name not in PAIRS}
TARGETS = ([0, 5, 6, 7, 8, 9], [0, 13, 12])
TEXTS = ([3, 4, 5, 6, 7, 8, 9, 3, 11], [12, 13, 14, 15])


def made(transformers, case, seed, folder, changed=None):
    """Save a random model whose heads look somewhere, and return it as transformers reads it.

    `changed` is what becomes of its config.json, where that is to be an older one.
    """
    import torch

    torch.manual_seed(seed)
    model = case.made(transformers)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter += 0.1 * torch.randn_like(parameter)
            if QUERIES_AND_KEYS.search(f".{name}"):
                parameter *= SHARPENED.get(case.family, 2.5)
    model.save_pretrained(folder)
    if changed is not None:
        path = folder / "config.json"
        path.write_text(json.dumps(changed(json.loads(path.read_text()))))
    return type(model).from_pretrained(folder, attn_implementation="eager", dtype=torch.float32).eval()


def read(folder):
    """Return a folder's config.json, and its tensors."""
    return json.loads((folder / "config.json").read_text()), read_safetensors(folder / "model.safetensors")[0]


def read_by(name, side="right"):
    """Return texts for a model, and those that its decoder reads beside them, in batches.

    Where transformers rotates by the longest of a batch and attn rotates each by its own, there is one text.
    """
    case = BOTH[name]
    pad = case.settings.get("pad_token_id", int("roberta" in case.family or "mpnet" in case.family))
    sources = texts(TEXTS[:1] if "dynamic" in name else TEXTS, pad, side)
    return [sources, texts(TARGETS, pad)] if name in PAIRS else [sources]


def long_texts(name):
    given = [texts([np.random.default_rng(n).integers(3, V, n).tolist()]) for n in (300, 200)]
    return given if name in PAIRS else given[:1]


LARGEST = {}  # the largest difference of each comparison, which differences.py writes down


def close(found, expected, what, scale=1.0):
    found, expected = (np.asarray(one) / scale for one in (found, expected))
    LARGEST[what] = float(np.abs(found - expected).max(initial=0))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5, err_msg=what)


def size_of(array):
    return max(1.0, float(abs(array).max()))


def same_attention(steps, expected, real, what):
    """Check one layer's attention of every head, at the queries that are not padding."""
    assert steps.attended.weights.shape == expected.shape, what
    for text, rows in enumerate(real):
        close(steps.attended.weights[text][:, rows], expected[text].numpy()[:, rows], what)
    looked = steps.attended.weights.max(axis=-1).mean()
    assert looked > 1.5 / expected.shape[-1], f"{what}: attention is nearly uniform"


def told_by(model, case, given):
    """Return what transformers makes of texts, and its weights of each layer by their kind."""
    import torch

    named = {}
    for side, batch in zip(("", "decoder_"), given, strict=False):
        own = {"input_ids": batch.ids, "attention_mask": batch.real.astype(int)}
        if case.family in COUNTS_REAL:
            own["position_ids"] = np.maximum(np.cumsum(batch.real, axis=1) - 1, 0)
        named |= {f"{side}{name}": torch.tensor(one) for name, one in own.items()}
    with torch.no_grad(), alibi_once(case):
        told = model(**named, output_attentions=True, output_hidden_states=True)
    if len(given) == 2:
        weights = told.encoder_attentions, told.decoder_attentions, told.cross_attentions
        return told, dict(zip(("self", "masked", "cross"), weights, strict=True))
    return told, {"": told.attentions}  # of the only kind


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", [*CASES, *PAIRS])
@like_cases
def test_every_head_attends_as_in_transformers(name, seed, side, transformers, tmp_path):
    same_as(made(transformers, BOTH[name], seed, tmp_path), BOTH[name], read_by(name, side), tmp_path, name)


def alibi_once(case):
    """Take half of Falcon's ALiBi: "eager" adds it with the mask and again with the scores, "sdpa" with the mask."""
    if not case.settings.get("alibi"):
        return contextlib.nullcontext()
    from transformers.models.falcon import modeling_falcon

    whole = modeling_falcon.build_alibi_tensor
    half = lambda *given, **more: whole(*given, **more) / 2  # noqa: E731
    return mock.patch.object(modeling_falcon, "build_alibi_tensor", half)


def same_as(model, case, given, folder, name, is_strict=True):
    """Check every layer's attention and the logits of a model, or of an encoder and a decoder."""
    told, layers = told_by(model, case, given)
    batch = given[0]
    with Checkpoint(str(folder), is_strict) as checkpoint:
        run = checkpoint.run(*given)
        found = list(run.steps())
        for kind, expected in layers.items():
            own = [steps.layer for steps in found if kind in ("", steps.kind)]
            assert own == list(range(len(expected)))
        for steps in found:
            own = batch if steps.kind == found[0].kind else given[-1]
            what = f"{name}, {steps.kind} {steps.layer}"
            same_attention(steps, layers.get(steps.kind, layers.get(""))[steps.layer], own.real, what)
            if len(given) == 1:
                taken = told.hidden_states[steps.layer].numpy()[own.real]
                close(steps.x[own.real], taken, f"{name}, what layer {steps.layer} takes", size_of(taken))
        logits = run.logits()
        identities(checkpoint, run, given, name)
    expected, rows = told.logits.numpy(), given[-1].real
    close(logits[rows], expected[rows], f"{name}, logits", size_of(expected))


def alike(found, expected, what):
    scale = np.abs(expected).max()
    np.testing.assert_allclose(found / scale, expected / scale, rtol=0, atol=1e-5, err_msg=what)


def same_as_by_vectors(run, steps, what):
    """Check what the first text's heads of a layer add; return how many vectors there were."""
    made, what = run.joining(steps), f"{what}, {steps.side} {steps.layer}, {steps.kind}"
    found = steps.attended.weights, steps.ready.v, steps.attended.output
    weights, v, output = (M[0].astype(float) for M in found)
    parts = np.stack([made.part(own, n, len(v)) for n, own in enumerate(v)])
    vectors = np.einsum("hij,hjd->hijd", weights, parts)
    b_o = 0 if made.b_o is None else made.b_o
    alike(vectors.sum(axis=(0, 2)) + b_o, run.joined(steps)[0], what)
    lengths = weights * np.linalg.norm(parts, axis=-1)[:, None]
    alike(lengths, np.linalg.norm(vectors, axis=-1), what)
    if steps.kind != "cross":
        whole = with_residual(run, steps, vectors.sum(axis=0), b_o, what)
        with mock.patch.object(logit_parts, "BLOCK", 2 * len(v) * whole.shape[-1]):  # two keys at a time
            alike(made.lengths_of_all(weights, v, output), np.linalg.norm(whole, axis=-1), what)
    return vectors.size


def with_residual(run, steps, vectors, b_o, what):
    """Return the vectors of the layer as a whole, which, biases apart, sum to what its own norms make of it all."""
    stack = run.model.stacks[steps.side]
    layer, reader = stack.layers[steps.layer], Reader(run.weights, stack)
    before = run.joined(steps)[0].astype(float)
    bias = np.zeros_like(before) + b_o
    residual = (steps.projected if stack.adds_to_norm else steps.x)[0].astype(float)

    def through(role, sums, added):
        """Return the whole sum as the layer norms it, and what its shift adds; the vectors go through its scale."""
        name, d = layer.place + layer.names[role], stack.d
        normed = reader.norm(name, sums.astype(np.float32)).astype(float)
        gain = reader.weights.read(f"{name}.weight", d) + ("less one" in stack.norm) if stack.has_gains else 1
        shift = reader.weights.maybe(f"{name}.bias", d) if stack.has_gains else None
        centre = (lambda x: x - x.mean(axis=-1, keepdims=True)) if stack.norm == "layer" else (lambda x: x)
        scale = np.sqrt((centre(sums) ** 2).mean(axis=-1, keepdims=True) + stack.eps)
        vectors[:] = centre(vectors) * gain / scale[:, None]
        return normed, centre(added) * gain / scale + (0 if shift is None else shift)

    if "after_1" in layer.names:
        before, bias = through("after_1", before, bias)
    before, bias = before * stack.added + residual, bias * stack.added
    vectors *= stack.added
    vectors[np.diag_indices(len(before))] += residual
    if not stack.pre_norm:
        before, bias = through("norm_1", before, bias)
    alike(vectors.sum(axis=1) + bias, before, what)
    return vectors


def identities(checkpoint, run, given, name):
    """Check what holds of any pass: parts sum to a logit, and what changes nothing changes nothing."""
    rows, logits = given[-1].real, run.logits()
    unembedded = run.scores(run.last_normed(run.stream()))
    uncapped = run.scores(run.output(), is_capped=False)
    close(unembedded[rows], logits[rows], f"{name}, logits of the stream", size_of(logits))
    if cap := checkpoint.model.logits.softcap:
        uncapped = cap * np.tanh(uncapped / cap)
    close(uncapped, logits, f"{name}, logits of the last row", size_of(logits))
    close(run.logits(1), logits[:, 1:2], f"{name}, logits of a token", size_of(logits))
    plain = checkpoint.run(*(texts([one.ids[0][one.real[0]].tolist()]) for one in given))
    assert all(same_as_by_vectors(plain, step, name) for step in plain.steps())
    plain = checkpoint.run(*(texts([one.ids[0][one.real[0]].tolist()]) for one in given))
    found = [one for one in plain.steps() if one.side == list(checkpoint.model.stacks)[-1]]
    logits = plain.scores(plain.output(), is_capped=False)[0]
    scale, place = size_of(logits), len(logits) - 2
    for id_, other in ((1, None), (3, 5)):
        expected = logits[place, id_] - (0 if other is None else logits[place, other])
        way = way_of(plain, place)
        parts = way.parts(id_, other)
        networks = [one.layer for one in parts if one.part == "mlp"]
        assert networks == [*range(len([*checkpoint.model.stacks.values()][-1].layers))]
        total = sum(one.value for one in parts)
        most = max(scale, sum(abs(one.value) for one in parts))
        assert abs(total - expected) < 1e-5 * most, f"{name}, parts"
        for (layer, kind), moved in way.trail.moved.items():
            own = [one for one in parts if (one.part, one.layer) == ("head", layer)]
            own = [one.value for one in own if (one.attention == "cross") == (kind == "cross")]
            close(moved.sum(axis=1), own, f"{name}, words of layer {layer}", scale)
    nothing = Changes(Cut((), found[0].kind, found[0].side))
    for changes in (nothing, *(Changes(x=one.x, begun=one) for one in found[1::2])):
        again = plain.changed(changes)
        close(again.scores(again.output(), is_capped=False)[0], logits, f"{name}, unchanged", scale)


def as_in_former_years(config):
    """Return a config.json as older versions of transformers wrote it."""
    told = config.pop("rope_parameters")
    near = told.get("sliding_attention", {}).get("rope_theta")
    told = dict(told.get("full_attention", told))
    theta, kind = told.pop("rope_theta"), config["model_type"]
    if kind == "modernbert":
        config |= {"global_rope_theta": theta, "local_rope_theta": near, "global_attn_every_n_layers": 3}
    elif kind == "gpt_neox":
        config |= {"rotary_emb_base": theta, "rotary_pct": told.pop("partial_rotary_factor")}
    elif near is not None:
        config |= {"rope_theta": theta, "rope_local_base_freq": near, "sliding_window_pattern": 6}
    else:
        config |= {"rope_theta": theta}
    config.pop("layer_types", None)
    config.pop("_sliding_window_pattern", None)
    if told["rope_type"] != "default":
        told["type"] = told["rope_type"]
        config["rope_scaling"] = told
    return config


FORMER = "gpt_neox; llama; llama 3; llama, linear; mistral; qwen2, windows; gemma2; gemma3; modernbert"


def scaled(key):
    """Return what makes a config.json of former years whose scaling adds to the rotation of a kind of layers."""
    older = {"rope_scaling": {key: "linear", "factor": 3.0}, "original_max_position_embeddings": 4}
    return lambda config: as_in_former_years(config) | older


def with_other_names(config):
    other = {"hidden_size": "n_embed", "n_layer": "num_hidden_layers", "n_head": "num_attention_heads"}
    return {other.get(key, key): value for key, value in config.items()}


def more(**told):
    return lambda config: config | told


LINEAR = {"rope_type": "linear", "factor": 3.0, "rope_theta": 50.0}
SAID = {  # a model, further settings of it, and what becomes of its config.json
    **{f"{name}, of former years": (name, {}, as_in_former_years) for name in FORMER.split("; ")},
    **{f"gemma3, {key}": ("gemma3", {}, scaled(key)) for key in ("type", "rope_type")},
    **{f"modernbert, {key}": ("modernbert", {}, scaled(key)) for key in ("type", "rope_type")},
    "sizes with other names": ("bloom", {}, with_other_names),
    "of two ways to say a rotation one holds": ("llama 3", {}, more(rope_scaling=LINEAR)),
}


@pytest.mark.parametrize("what", SAID)
def test_what_a_config_says_or_leaves_out_is_what_it_says_to_transformers(what, transformers, tmp_path):
    name, settings, changed = SAID[what]
    case = CASES[name]._replace(settings=CASES[name].settings | settings)
    same_as(made(transformers, case, 2, tmp_path, changed), case, read_by(name), tmp_path, what)


UNREAD = [
    ("llama", {"partial_rotary_factor": 0.5}),
    ("llama", {"layer_types": ["sliding_attention"] * 3, "sliding_window": 2}),
    ("llama", {"query_pre_attn_scalar": 64}),
    ("mistral", {"layer_types": ["full_attention"] * 3}),
    ("gemma3", {"attn_logit_softcapping": 0.5}),
    ("gpt_neox", {"rope_theta": 7.0}),
]


@pytest.mark.parametrize(("name", "unread"), UNREAD)
def test_keys_that_a_family_does_not_read_change_nothing(name, unread, transformers, tmp_path):
    case = CASES[name]
    model = made(transformers, case, 8, tmp_path, lambda config: config | unread)
    same_as(model, case, read_by(name), tmp_path, name, is_strict=False)
    with Checkpoint(str(tmp_path)) as checkpoint:
        notes = checkpoint.model.notes
    keys = FAMILIES[read(tmp_path)[0]["model_type"]][1]
    told = [key for key in unread if keys.get(key) is not IDLE]
    assert [key for key in unread if f" {key} = " in "".join(notes)] == told
    if told:
        with pytest.raises(InputError, match=told[0]):
            Checkpoint(str(tmp_path), is_strict=True)


@pytest.mark.parametrize("family", FAMILIES)
def test_no_other_name_of_a_key_is_taken_for_idle(family, transformers):
    aliases = transformers.CONFIG_MAPPING[family].attribute_map
    idle = {key for key, default in FAMILIES[family][1].items() if default is IDLE}
    assert not [alias for alias, of in aliases.items() if alias in idle and of not in idle]


def test_a_gemma3_of_words_and_pictures_that_looks_both_ways_is_refused(tmp_path):
    text = {"model_type": "gemma3_text", "use_bidirectional_attention": True}
    folder = saved(tmp_path, {"model_type": "gemma3", "text_config": text}, {"a": np.ones(1, np.float32)})
    with pytest.raises(InputError, match="use_bidirectional_attention is true"):
        Checkpoint(folder)


# What older files say and the configuration classes of transformers 5 turn into something else, or any of them takes
OLDER = {
    "rope_theta", "rope_local_base_freq", "rotary_emb_base", "rotary_pct", "global_rope_theta", "local_rope_theta",
    "original_max_position_embeddings", "is_causal", "position_embedding_type", "sliding_window_pattern",
    "global_attn_every_n_layers", "attention_layers", "dense_act_fn", "is_gated_act", "scale_decoder_outputs",
    "head_dim", "decoder_start_token_id", "tie_word_embeddings", "num_hidden_layers",
    "num_local_experts", "partial_rotary_factor", "position_buckets", "norm_rel_ebd", "share_att_key",
    "conv_kernel_size", "n_embed", "num_attention_heads",
}  # fmt: skip


@pytest.mark.parametrize("family", FAMILIES)
def test_the_declared_keys_are_those_of_transformers_with_its_defaults(family, transformers):
    kind, keys = transformers.CONFIG_MAPPING[family], FAMILIES[family][1]
    all_fields = {field.name: field.default for field in dataclasses.fields(kind)}
    fields = {name: default for name, default in all_fields.items() if not name.startswith("__")}
    assert not [name for name in {*fields, *kind().to_dict()} - {*keys} if not INERT.fullmatch(name)]
    reads = {name: one for name, one in keys.items() if one is not IDLE and not isinstance(one, dict)}
    assert [name for name in reads if name not in fields and name not in OLDER] == []
    assert {name: one for name, one in reads.items() if name in fields}.items() <= fields.items()
    theta = getattr(kind, "default_theta", None)
    if "rope_parameters" in keys and family != "modernbert":
        far = reads.get("rope_theta", reads.get("rotary_emb_base"))
        assert far == (theta["global"] if isinstance(theta, dict) else theta)


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("falcon, alibi")])
def test_falcon_s_words_are_those_of_transformers_where_it_adds_alibi_once(name, transformers, tmp_path):
    """They are made with "sdpa", its default; places beyond 256 are rounded."""
    import torch

    kind = type(made(transformers, CASES[name], 4, tmp_path))
    model = kind.from_pretrained(tmp_path, attn_implementation="sdpa")
    batch = texts([np.random.default_rng(1).integers(3, V, 400).tolist()])
    with torch.no_grad():
        expected = model(torch.tensor(batch.ids)).logits.numpy()
    with Checkpoint(str(tmp_path), is_strict=True) as checkpoint:
        close(checkpoint.run(batch).logits(), expected, name, size_of(expected))


# The first five are those of BERT; the rest are words of one token.
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *map("w{}".format, range(V - 5))]


FILLED = [("bert", "w1 [MASK] w7 w9", 2), ("albert", "w1 [MASK] w7 w9", 2), ("modernbert", "w1 w2 [MASK]", 3)]
WRITERS = ("gpt2", "llama", "gemma3", "t5", "bart", "marian")
FOLLOWED = [(name, "w1 w2 w30", 3 + (name in PAIRS)) for name in WRITERS]


@pytest.mark.parametrize(("name", "text", "place"), [*FILLED, *FOLLOWED])
def test_the_likeliest_words_are_as_likely_as_in_transformers(name, text, place, transformers, tmp_path):
    import torch

    case = BOTH[name]
    model = made(transformers, case, 0, tmp_path)
    (tmp_path / "vocab.txt").write_text("\n".join(VOCABULARY))
    ids = [2, *map(VOCABULARY.index, text.split()), 3]
    if name in PAIRS:
        start, context = case.settings.get("decoder_start_token_id", 0), "w3 w4"
        given = {"input_ids": [[2, 8, 9, 3]], "decoder_input_ids": [[start, *ids[:-1]]]}
        kind = "cross"
    else:
        given, context, kind = {"input_ids": [ids]}, None, "self"
    with torch.no_grad():
        logits = model(**{key: torch.tensor(value) for key, value in given.items()}).logits[0, place]
    expected = torch.topk(torch.softmax(logits.double(), -1), 10)
    trace = trace_checkpoint(kind, text, context, Settings(next=10, layer=0), str(tmp_path))
    found = trace.next_words
    assert found is not None and found.place == place and found.fills == ("[MASK]" in text)
    assert [one.word for one in found.words] == [VOCABULARY[n] for n in expected.indices.tolist()]
    close([one.probability for one in found.words], expected.values.numpy(), name)
    with open_passes([(text, context)], Settings(model=str(tmp_path))) as (read,):
        effect = effect_of(read, None, None, True, False, lambda part: None)
    likeliest = expected.indices[0]
    assert (effect.target.id, effect.place) == (likeliest, place)
    own = [effect.logit, effect.capped_sum]
    close(own, logits[likeliest], f"{name}, effect", max(1.0, sum(abs(one.value) for one in effect.parts)))
    assert len(effect.knock_outs) == len([one for one in effect.parts if one.part == "head"])
    if name in PAIRS:
        alone = trace_checkpoint("self", text, None, Settings(next=10), str(tmp_path))
        assert alone.next_words is None and "attn cross TEXT CONTEXT --next 10" in alone.notes[-1]
