"""A checkpoint written by hand is run: the arithmetic in plain loops, what is read, and what is refused."""

import json
import math
from itertools import product

import numpy as np
import pytest

from attn_cli.errors import AttnError, InputError, UsageError
from attn_cli.io.progress import Progress
from attn_cli.models.checkpoints import run
from attn_cli.models.checkpoints.config import Config
from attn_cli.models.checkpoints.families import FAMILIES, describe
from attn_cli.models.checkpoints.layers import Changes, Texts
from attn_cli.models.checkpoints.positions import ROPE_KINDS
from attn_cli.models.checkpoints.run import Checkpoint, texts
from attn_cli.pipeline.sources.text import trace_self
from attn_cli.settings import Settings
from tests.models.checkpoints import by_hand
from tests.models.checkpoints.by_hand import BERT, GEMMA2, GPT2, bert, gemma2, gpt2, saved, small_gpt2
from tests.models.checkpoints.test_known import written
from tests.shell import here
from tests.thorough import some

IDS = [1, 5, 2, 2]


def normed(row, T, name):
    return (row - row.mean()) / math.sqrt(row.var() + 1e-5) * T[f"{name}.weight"] + T[f"{name}.bias"]


def by_loops(T, ids, heads=2):
    """Return the weights of each layer and the logits of a GPT-2 (with relu), as its paper's code has them."""
    T = {name: array.astype(float) for name, array in T.items()}
    X = [T["wte.weight"][word] + T["wpe.weight"][place] for place, word in enumerate(ids)]
    d = len(X[0])
    d_k, layers = d // heads, []
    for n in range(2):
        h = f"h.{n}."
        rows = [normed(x, T, h + "ln_1") @ T[h + "attn.c_attn.weight"] + T[h + "attn.c_attn.bias"] for x in X]
        found = np.zeros((heads, len(X), len(X)))
        outputs = np.zeros((len(X), d))
        for head in range(heads):
            own = slice(head * d_k, (head + 1) * d_k)
            for i, row in enumerate(rows):
                q = row[:d][own]
                exps = [math.exp(q @ rows[j][d : 2 * d][own] / math.sqrt(d_k)) for j in range(i + 1)]
                found[head, i, : i + 1] = np.array(exps) / sum(exps)
                outputs[i, own] = sum(found[head, i, j] * rows[j][2 * d :][own] for j in range(i + 1))
        layers.append(found)
        for i in range(len(X)):
            x = X[i] + outputs[i] @ T[h + "attn.c_proj.weight"] + T[h + "attn.c_proj.bias"]
            wide = normed(x, T, h + "ln_2") @ T[h + "mlp.c_fc.weight"] + T[h + "mlp.c_fc.bias"]
            X[i] = x + np.maximum(wide, 0) @ T[h + "mlp.c_proj.weight"] + T[h + "mlp.c_proj.bias"]
    return layers, np.array([normed(x, T, "ln_f") @ T["wte.weight"].T for x in X])


def close(found, expected, within=1e-5):
    np.testing.assert_allclose(found, expected, rtol=0, atol=within)


def test_a_checkpoint_in_shards_is_as_plain_loops_compute_it(tmp_path):
    T = gpt2()
    saved(tmp_path, GPT2, T)
    (tmp_path / "model.safetensors").unlink()
    files = {name: f"model-{n % 3}.safetensors" for n, name in enumerate(sorted(T))}
    for file in set(files.values()):
        part = {name: T[name] for name in T if files[name] == file}
        (tmp_path / file).write_bytes(by_hand.safetensors(part))
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": files}))
    with Checkpoint(str(tmp_path)) as checkpoint:
        close(checkpoint.run(texts([IDS])).logits()[0], by_loops(T, IDS)[1], 1e-4)


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_changes_nothing_for_the_other_words(side, tmp_path):
    with Checkpoint(saved(tmp_path, GPT2, gpt2())) as checkpoint:
        alone = checkpoint.run(texts([IDS])).layer(1)
        batch = texts([IDS, [3, 3, 4, 5, 1, 0]], pad=4, side=side)
        padded = checkpoint.run(batch).layer(1)
    rows, found = np.flatnonzero(batch.real[0]), padded.attended.weights[0]
    close(found[:, rows[:, None], rows], alone.attended.weights[0])
    close(found[:, rows].sum(-1), 1)
    assert (found[:, :, ~batch.real[0]] == 0).all()


def test_what_is_done_of_the_layers_that_are_asked_for_is_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "SHORT", -1)
    folder = small_gpt2(tmp_path / "model", gpt2(layers=3), n_layer=3)
    for more, parts in (
        ({}, [0, 1 / 3, 2 / 3]),
        ({"layer": 1}, [0, 1 / 2]),
        ({"layer": 0, "next": 2}, [0, 1 / 3, 2 / 3]),  # next words need all
    ):
        told = []
        trace_self("a b", Settings(model=folder, **more), told.append)
        assert told == pytest.approx(parts)
    monkeypatch.setattr(Progress, "__call__", lambda self, done: told.append(done))
    for what in (["a b"], ["--probe"]):
        told.clear()
        assert here("heads", *what, "-m", str(folder), "--layer", "1").code == 0
        assert told == pytest.approx([0, 1 / 2])
    with Checkpoint(written("t5", tmp_path / "t5")) as checkpoint:
        read = checkpoint.run(texts([[1, 2, 3]]), texts([[0, 4]]))
        read.report_to(told.append, None)
        assert len([*read.steps()]) == 8  # two layers, and three with two attentions each
        assert told[-8:] == pytest.approx([0, 1 / 5, 2 / 5, 2 / 5, 3 / 5, 3 / 5, 4 / 5, 4 / 5])
        monkeypatch.setattr(run, "COSTLY", 0)
        monkeypatch.setattr(Progress, "tell", lambda self, said: told.append(said))
        read.report_to(Progress("Attending"), None)
    assert told[-1] == "3 tokens make 0 million weights in 5 layers. --layer N stops at N."


def test_roberta_has_one_segment_also_for_a_second_text_and_two_places_fewer_than_its_table(tmp_path):
    for name, is_one in (("roberta", True), ("bert", False)):
        with Checkpoint(written(name, tmp_path)) as checkpoint:
            given = (Texts(np.array([[3, 4]]), None, np.array([types])) for types in ([0, 0], [0, 1]))
            first, second = map(checkpoint.run, given)
            one, other = both = first.beside([second]).logits()
            close(both, np.concatenate([first.logits(), second.logits()]))
            assert np.allclose(one, other, atol=1e-5) == is_one
            most = 510 if is_one else 512  # places, of which RoBERTa begins with the third
            assert checkpoint.run(texts([[3] * most])).layer(0).x.shape == (1, most, 32)
            with pytest.raises(InputError, match=f"{most + 1} tokens; .* reads at most {most}"):
                checkpoint.run(texts([[3] * (most + 1)])).layer(0)


UNFIT = [-1, 0, 1, 1e-20, 1e29, 1e40, "x" * 1000, [], [[]], {}]
UNFIT += [{"a": 1}, True, 3, [1, 2], [None, None], [{}, {}]]


def rotation(kind):
    return {
        "rope_type": kind, "rope_theta": 10.0, "factor": 2.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8, "partial_rotary_factor": 1.0, "short_factor": [1.0, 2.0],
        "long_factor": [2.0, 3.0], "mscale": 1.0, "mscale_all_dim": 2.0, "beta_fast": 32, "beta_slow": 1,
        "truncate": True,
    }  # fmt: skip


@pytest.mark.parametrize("kind", ROPE_KINDS)
def test_no_kind_of_rotation_takes_values_of_another_kind(kind):
    whole = {"model_type": "glm4", "hidden_size": 8, "num_attention_heads": 2, "head_dim": 4}
    for name, bad in product(rotation(kind), UNFIT):
        config = Config("c", whole | {"rope_parameters": rotation(kind) | {name: bad}})
        try:
            rotary = describe(config).decoder.layers[0].rotary
        except AttnError as error:
            assert len(str(error)) < 600
        else:
            x = np.ones((1, 1, 9, 4), np.float32)
            with np.errstate(all="ignore"):
                assert rotary.rotate(x, np.arange(9)[None]).shape == x.shape
    with pytest.raises(InputError, match="one of default, linear, llama3, dynamic, yarn, longrope"):
        describe(Config("c", whole | {"rope_parameters": {"rope_type": "spiral"}}))


@pytest.mark.parametrize("family", FAMILIES)
def test_no_family_takes_values_of_another_kind(family):
    """Every value that a family reads is made unfit in turn: the answer is an error of ours."""
    whole = {
        "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "dim": 8, "n_layers": 2, "n_heads": 2,
        "hidden_act": "relu", "activation": "relu", "n_embd": 8, "n_layer": 2, "n_head": 2, "num_layers": 2,
        "num_heads": 2, "attention_layers": ["global", "local"], "head_dim": 4, "d_model": 8, "d_kv": 4,
        "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2, "decoder_attention_heads": 2,
        "rope_theta": 10.0, "rope_scaling": rotation("longrope" if family == "phi3" else "linear"), "sliding_window": 2,
        "layer_types": ["sliding_attention", "full_attention"], "vocab_size": 6, "tie_word_embeddings": True,
        "num_key_value_heads": 1, "no_rope_layers": [1, 0], "query_pre_attn_scalar": 4, "embedding_size": 4,
        "num_hidden_groups": 1, "local_attention": 4, "scale_embedding": True, "feed_forward_proj": "relu",
        "use_sliding_window": True, "num_experts_per_tok": 1, "decoder_start_token_id": 0, "rotary_dim": 4,
    }  # fmt: skip
    text = "mistral" if family == "mistral3" else "gemma3_text"
    parts = {"text_config": dict(whole, model_type=text), "encoder": dict(whole), "decoder": dict(whole)}
    whole |= {**parts, "model_type": family}
    assert describe(Config("c", whole)).family in (family, "gemma3_text")
    refused, turn = 0, [*FAMILIES].index(family)
    for n, name in enumerate(whole):
        for bad in some(UNFIT, turn + n):
            try:
                describe(Config("c", whole | {name: bad}))
            except AttnError as error:
                refused += 1
                assert len(str(error)) < 600
    assert refused > 6


CAPPED = GEMMA2 | {"final_logit_softcapping": 1.5}
MODELS = [(GPT2, gpt2()), (CAPPED, gemma2()), (BERT, bert())]


def test_yarn_rounds_the_range_of_slow_turns_outwards():
    """From 8 log(64 / 8 pi) / (2 log 100), .81, to 8 log(64 / 2 pi) / (2 log 100), 2.02 (Peng et al. 2023)."""
    rope = rotation("yarn") | {"rope_theta": 100.0, "factor": 4.0, "original_max_position_embeddings": 64}
    config = {"model_type": "glm4", "hidden_size": 16, "num_attention_heads": 2, "head_dim": 8}
    config["rope_parameters"] = rope | {"beta_fast": 4}
    assert describe(Config("c", config)).decoder.layers[0].rotary.divisors == pytest.approx([1, 4 / 3, 2, 4])


def test_heads_that_share_keys_have_those_of_their_neighbours_and_the_norm_s_own_part(tmp_path):
    with Checkpoint(written("olmo2", tmp_path)) as checkpoint:
        run, place = checkpoint.run(texts([IDS])), "model.layers.0.self_attn."
        found = run.weights_of(next(run.steps()), [0, 1, 2, 3])
        W_k = checkpoint.weights.read(f"{place}k_proj.weight", 16, 32)
        gain = checkpoint.weights.read(f"{place}k_norm.weight", 16)
        for h in range(4):
            own = slice(8 * (h // 2), 8 * (h // 2) + 8)
            np.testing.assert_array_equal(found.heads[h].W_k, W_k[own].T)
            np.testing.assert_array_equal(found.qk_norms[h].k, gain[own])


def test_each_attention_of_an_encoder_and_a_decoder_is_found_and_what_is_encoded_is_kept(tmp_path):
    with Checkpoint(written("t5", tmp_path)) as checkpoint:
        run = checkpoint.run(texts([[1, 2, 3]]), texts([[0, 4]]))
        for kind in (None, "masked", "cross", "self"):
            side = "encoder" if kind == "self" else "decoder"
            found = checkpoint.run(texts([[1, 2, 3]]), texts([[0, 4]])).layer(1, kind, side)
            assert (found.layer, found.kind, found.side) == (1, kind or "masked", side)
        sides = [{one.side for one in run.changed(Changes()).steps()} for _ in range(2)]
        with pytest.raises(UsageError, match="There are 2 texts for 1 targets"):
            checkpoint.run(texts([[1], [2]]), texts([[0]]))
        with pytest.raises(UsageError, match="to predict words, give a target text for its decoder"):
            checkpoint.run(texts([[1]])).logits()
        for given, said in ([texts([[1]])], "2 encoder"), ([texts([[1]])] * 2, "2 encoder, 3 decoder"):
            with pytest.raises(UsageError, match="no cross attention in a layer 4 of") as found:
                checkpoint.run(*given).layer(4, "cross")
            assert found.value.hint == f"It has {said} layers, from 0."
    assert sides == [{"encoder", "decoder"}, {"decoder"}]  # computed anew, it is the decoder alone


NULLS = """gpt2.is_causal llama.is_causal gemma2.query_pre_attn_scalar llama.rms_norm_eps gemma3.hidden_activation
qwen3.head_dim t5.scale_decoder_outputs"""
NEW, FIRST = "new_decoder_architecture", "original_max_position_embeddings"
UNUSABLE = [
    *(("bert", "position_embedding_type", "relative_key"), ("t5", "relative_attention_max_distance", 32)),
    *(("llama", "num_key_value_heads", 3), ("gptj", "rotary_dim", 3), ("mixtral", "num_experts_per_tok", 6)),
    *(("albert", "num_hidden_groups", 4), ("albert", "inner_group_num", 334)),  # thrice that is too many
    *(("gpt2", "n_head", n) for n in (0, 3)),
    *(("gpt2", "n_embd", n) for n in ("8", 1 << 40)),
    *(("gpt2", "layer_norm_epsilon", -1), ("gpt2", "activation_function", "softmax")),
    ("gpt2", "model_type", 3),
    *(("deberta", "pos_att_type", "c2p|p2c|c2p"), ("deberta-v2", "conv_kernel_size", 3)),
    ("gemma3", "layer_types", ["full_attention"] * 6 + ["chunked_attention"]),
]
REFUSED = [  # what transformers does not run: a model, what its config.json says, and what is named
    ("falcon", {NEW: True, "parallel_attn": False}, f"{NEW}|parallel_attn"),
    ("falcon", {"num_kv_heads": 3, NEW: True}, f"num_kv_heads|{NEW}"),
    ("falcon", {"num_ln_in_parallel_attn": 2}, "num_ln_in_parallel_attn"),
    *((name, {"use_bidirectional_attention": True}, "attention is true") for name in ("gemma", "gemma2")),
    *((name, {key: None}, f"{key} is null") for name, key in (null.split(".") for null in NULLS.split())),
    ("bert", {"is_causal": None, "is_decoder": True}, "is_causal is null"),
    ("t5", {"tie_word_embeddings": None}, "tie_word_embeddings is null"),
    ("qwen2", {"layer_types": ["sliding_attention"] * 3}, "use_sliding_window is false"),
    ("llama", {"rope_parameters": rotation("dynamic"), "head_dim": 2}, "fewer than three"),
    *(("deberta-v2", {"max_relative_positions": 4, "position_buckets": n}, f"{n}.*less") for n in (1, 6)),
    *(
        ("llama", {"rope_parameters": rotation(kind) | {name: 1}}, f"{name} is 1")
        for kind, name in (("llama3", "high_freq_factor"), ("longrope", FIRST), ("yarn", "rope_theta"))
    ),
    *((name, {key: value}, f"{key} is ") for name, key, value in UNUSABLE),
]


@pytest.mark.parametrize(("name", "told", "said"), REFUSED)
def test_a_config_that_transformers_does_not_run_is_refused(name, told, said, tmp_path):
    with pytest.raises(InputError, match=said):
        Checkpoint(written(name, tmp_path, **told))


LINEAR, PLACES = {"rope_type": "linear", "factor": 3.0}, {"relative_attention": True}
YARN, OF_LONG = {"rope_type": "yarn", "factor": 4.0, FIRST: 8}, rotation("longrope")
TWO = {"n_layer": 2, "n_head": 2}
SAME = [  # a family, what a config.json says, and what says the same
    ("deberta", PLACES | {"pos_att_type": "C2P | p2c"}, PLACES | {"pos_att_type": ["c2p", "p2c"]}),
    ("deberta-v2", PLACES | {"norm_rel_ebd": "x | Layer_Norm"}, PLACES | {"norm_rel_ebd": "layer_norm"}),
    ("bloom", TWO | {"n_embed": None, "hidden_size": 32}, TWO | {"n_embed": 32}),
    ("smollm3", {"num_hidden_layers": 4, "no_rope_layers": [1, 1, 1, 0, 1]}, {"num_hidden_layers": 4}),
    ("gpt_neo", {"attention_layers": ["global", "local"] * 12}, {"attention_types": None}),
    ("t5", {"is_gated_act": True, "dense_act_fn": "gelu_new"}, {"feed_forward_proj": "gated-gelu"}),
    ("gemma", {"hidden_act": "gelu"}, {}),
    ("gemma3_text", {"rope_scaling": {"type": "linear", "factor": 3.0}}, {}),  # beside a kind that is said
    ("gemma3_text", {"rope_scaling": LINEAR}, {"rope_parameters": {"full_attention": LINEAR}}),
    ("olmo3", {"rope_scaling": YARN}, {"rope_parameters": {"full_attention": YARN}}),
    ("olmo3", {"rope_scaling": YARN | {"truncate": False}}, {"rope_scaling": YARN}),  # nor do kinds of layers
    ("phi3", *({"head_dim": 4, "rope_scaling": OF_LONG | {"factor": factor}} for factor in (0.5, 1.0))),
]


@pytest.mark.parametrize(("family", "told", "other"), SAME)
def test_a_config_says_the_same_in_another_way(family, told, other):
    one, same = (describe(Config("c", {"model_type": family} | said)) for said in (told, other))
    assert one == same


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e38])
def test_numbers_beyond_float32_are_refused_by_their_layer(bad, tmp_path):
    T = gpt2()
    T["h.1.attn.c_attn.weight"][0, [0, 8]] = bad
    with Checkpoint(saved(tmp_path, GPT2, T)) as checkpoint:
        with pytest.raises(InputError, match="decoder layer 1"):
            list(checkpoint.run(texts([IDS])).steps())
        with pytest.raises(InputError, match="decoder layer 1"):
            _ = checkpoint.run(texts([IDS])).layer(1).attended
    T = by_hand.gpt_oss()
    T["layers.1.mlp.router.weight"][:] = np.nan
    with Checkpoint(saved(tmp_path, by_hand.GPT_OSS, T)) as checkpoint:  # noqa: SIM117
        with pytest.raises(InputError, match=r"layers\.1\."):
            checkpoint.run(texts([IDS])).output()


def test_what_cannot_be_run_is_refused_as_what_has_no_head_or_family(tmp_path):
    with Checkpoint(saved(tmp_path, GPT2, gpt2())) as checkpoint:
        with pytest.raises(InputError, match=r"There is no token 6: .* has 6 rows\. A token is 0 to 5\."):
            checkpoint.run(texts([[6]])).layer(0)
        with pytest.raises(InputError, match=r"The text has 11 tokens; .* at most 10"):
            checkpoint.run(texts([[1] * 11])).layer(0)
        assert checkpoint.run(texts([[1] * 10])).layer(0).attended.weights.shape == (1, 2, 10, 10)
        with pytest.raises(UsageError, match="no attention in a layer 2"):
            checkpoint.run(texts([IDS])).layer(2)
        with pytest.raises(UsageError, match=r"\(gpt2\) takes one text\."):
            checkpoint.run(texts([IDS]), texts([IDS]))
    with Checkpoint(saved(tmp_path, GPT2, gpt2(places=9000))) as checkpoint:
        long = checkpoint.run(texts([[1] * 9000])).layer(0)
        said = r"9,000 tokens make 162,000,000 scores a layer, more than 134,217,728\. Give at most 8,192 tokens\."
        with pytest.raises(InputError, match=said):
            _ = long.attended
    with Checkpoint(saved(tmp_path, GPT2 | {"n_embd": 16}, gpt2())) as checkpoint:  # noqa: SIM117
        with pytest.raises(InputError, match=r"shape \(6, 8\)"):
            checkpoint.run(texts([IDS])).layer(0)
    for none in ([], [[]], [[1], []]):
        with pytest.raises(InputError, match=r"There are no tokens to attend to\. Give at least one token\."):
            texts(none)
    with Checkpoint(saved(tmp_path, GPT2 | {"tie_word_embeddings": False}, gpt2())) as checkpoint:
        run = checkpoint.run(texts([IDS]))
        assert len(list(run.steps())) == 2
        said = r"no language-model head: the checkpoint holds only its layers\. Ask"
        with pytest.raises(InputError, match=said):
            run.logits()
    with pytest.raises(InputError) as found:
        Checkpoint(saved(tmp_path, {"model_type": "gpt22\x1b"}, gpt2()))
    assert "gpt22^[" in str(found.value) and all(name in found.value.hint for name in FAMILIES)
    assert "Did you mean gpt2?" in found.value.hint
