"""A text and a pretrained model's folder become a trace: its tokens, its mask, its heads."""

import json
import re
from functools import partial
from unittest import mock

import numpy as np
import pytest

from attn_cli import trace_self
from attn_cli.errors import AttnError, InputError, UsageError
from attn_cli.inputs.matrices import given_from
from attn_cli.inputs.saved_weights import read_saved
from attn_cli.io.progress import Progress
from attn_cli.models.checkpoints import blocks, run
from attn_cli.pipeline.sources.weights import trace_weights
from attn_cli.render.code import script
from attn_cli.settings import Settings
from tests.alike import FLOAT32
from tests.models.checkpoints import by_hand
from tests.models.checkpoints.by_hand import BERT, GEMMA2, GPT2, PIECES, gemma2, gpt2, saved, small_gpt2
from tests.models.checkpoints.test_parity import CASES, PAIRS
from tests.models.checkpoints.test_run import close
from tests.pipeline.records import IDS, TEXT, attentions, model_of, record
from tests.schema import checked
from tests.shell import refused, told
from tests.small_models import trace_checkpoint
from tests.thorough import some

pytestmark = pytest.mark.usefixtures("tokenizers")


def trace_of(kind, folder, context=None, keep_weights=False, text=TEXT, **settings):
    return trace_checkpoint(kind, text, context, Settings(**settings), str(folder), keep_weights=keep_weights)


dabca = partial(trace_of, "self", text="dabca")  # what the GPT-2 of six letters makes of five


def test_ids_are_those_of_the_model_s_vocabulary(causal):
    trace = dabca(causal, query="a", model=causal)
    assert trace.query_input_ids == trace.key_input_ids == (3, 0, 1, 2, 0)
    record = trace.to_dict()
    assert record["query_input_ids"] == [0, 0] and record["key_input_ids"] == [3, 0, 1, 2, 0]
    assert record["query_ids"] == [1, 1]  # by first appearance, as everywhere
    walked = told("explain", "dabca", "-m", causal, "--only", "tokens")
    assert re.findall(r"^([abcd]) +(\d)$", walked, re.M) == [*zip("dabca", "30120", strict=True)]
    assert "ids are those of the model's vocabulary" in walked
    assert "Tokens and ids: d 3, a 0, b 1, c 2." in told("explain", "dabca", "-m", causal)
    assert dabca(causal, hide_special=True).query_input_ids is None


def test_a_special_token_that_is_typed_makes_no_segment_where_a_model_has_none(transformers, tmp_path):
    model_of(CASES["distilbert"], transformers, tmp_path)
    (found,) = trace_self("the cat [SEP] walking home", Settings(model=str(tmp_path))).notes
    assert "[SEP] in the text is read as a special token" in found and "one segment" not in found


@pytest.mark.parametrize("name", ["t5", "llama", "gemma2", "gemma2 uncapped"])
def test_a_temperature_takes_the_root_of_weights_and_divides_what_a_cap_leaves(name, transformers, tmp_path):
    case = (CASES | PAIRS)[name.split()[0]]
    if "uncapped" in name:
        case = case._replace(settings=case.settings | {"attn_logit_softcapping": None})
    model_of(case, transformers, tmp_path)

    def at(temperature):
        return trace_of("self", tmp_path, layer=1, head="2", temperature=temperature)

    plain, warm = at(1.0), at(2.0)
    roots = np.sqrt(plain.weights)
    close(warm.weights, roots / roots.sum(axis=1, keepdims=True), 1e-6)
    hot = [found.temperature_95 for found in warm.diagnoses()]
    row = next(i for i, one in enumerate(hot) if one is not None)
    assert at(hot[row]).weights[row].max() == pytest.approx(0.95, abs=1e-6)
    if "gemma2" in name:
        cap = None if "uncapped" in name else 2.0
        assert (plain.scale, plain.own_scale, plain.softcap) == (1 / 3, 1 / 3, cap)
    assert (warm.shown.capped_scores is None) == (name != "gemma2")
    if name == "gemma2":
        summed = warm.shown.scaled_scores + warm.shown.position_scores
        close(warm.shown.capped_scores, np.tanh(summed))
        close(warm.shown.masked_scores[warm.mask], np.tanh(summed)[warm.mask])


def test_an_encoder_and_a_decoder_have_three_kinds_of_attention(transformers, tmp_path):
    import torch

    model = model_of(PAIRS["t5"], transformers, tmp_path)
    source, target = [2, 11, 12, 13, 3], [0, *IDS[:-1]]
    with torch.no_grad():
        ids = {"input_ids": torch.tensor([source]), "decoder_input_ids": torch.tensor([target])}
        expected = model(**ids, output_attentions=True)
        alone = model.encoder(input_ids=torch.tensor([IDS]), output_attentions=True).attentions
    trace = trace_of("cross", tmp_path, "a b c", layer=2, head="1")
    assert trace.key_tokens == ("[CLS]", "a", "b", "c", "[SEP]") and trace.has_second_input
    assert trace.query_tokens[:3] == ("[PAD]", "[CLS]", "the") and trace.query_tokens[-1] == "home"
    close(trace.weights, expected.cross_attentions[2][0, 1].numpy())
    trace = trace_of("masked", tmp_path, "a b c", layer=1, head="1")
    close(trace.weights, expected.decoder_attentions[1][0, 1].numpy())
    assert trace.score == "dot" and trace.shown.position_scores is not None
    trace = trace_of("self", tmp_path, layer=1, head="1")
    close(trace.weights, alone[1][0, 1].numpy())
    assert trace.kind == "self" and trace.query_tokens[0] == "[CLS]"
    for kind in ("cross", "masked"):
        with pytest.raises(UsageError, match="a second text"):
            trace_of(kind, tmp_path)
    with pytest.raises(UsageError, match="takes one text"):
        trace_of("self", tmp_path, "a b c")
    model_of(PAIRS["bart"], transformers, tmp_path / "bart")
    for kind, context, keys in (("self", None, 8), ("masked", "a b c", 8), ("cross", "a b c", 5)):
        trace = trace_of(kind, tmp_path / "bart", context, keep_weights=True, layer=1, head="3")
        check_projections(trace, trace.shown, 2e-5)
        assert len(trace.x_key) == keys


ROTATED = ["llama", "llama 3", "mistral", "qwen2", "qwen3", "gpt_neox", "modernbert", "gemma2", "gemma3"]
SHOWN = {  # the kind and the mask of layer 1
    "bert": ("self", "none"),
    "modernbert": ("self", "window:2"),
    "mistral": ("masked", "causal, the last 3 keys"),
    "gpt_neo": ("masked", "causal, the last 3 keys"),
    "llama": ("masked", "causal"),
}


def projected(X, W, b):
    return X @ W if b is None else X @ W + b


def check_projections(trace, head, within=FLOAT32):
    """Check that X W + b makes queries, keys and values, which a head's norm may divide by their size."""
    for letter, X in (("q", trace.x_query), ("k", trace.x_key), ("v", trace.x_key)):
        found = projected(X, getattr(head, f"W_{letter}"), getattr(head, f"b_{letter}"))
        gain = None if letter == "v" else getattr(head, f"{letter}_gain")
        if gain is not None:
            found = found / np.sqrt((found * found).mean(axis=1, keepdims=True) + 1e-6) * gain
        close(found, getattr(head, letter), within)


def check_steps(trace, is_rotated):
    """Check that each step of each head follows from the one before, and the layer's output from the heads'."""
    for head in trace.heads:
        check_projections(trace, head)
        close(head.scores, head.q @ head.k.T, 1e-9)  # as if the words had no places
        close(head.scaled_scores, head.scores * trace.scale, 1e-9)
        final = head.scaled_scores
        if is_rotated:
            final = final + head.position_scores
            close(head.q_turned @ head.k_turned.T * trace.scale, final, 1e-9)
            assert not head.position_scores.diagonal().any()  # a word is at no distance from itself
            assert np.abs(head.position_scores).max() > 0.01
        final = final if trace.softcap is None else trace.softcap * np.tanh(final / trace.softcap)
        exps = np.exp(final) * (1 if trace.mask is None else trace.mask)
        close(head.weights, exps / exps.sum(axis=1, keepdims=True))
        close(head.output, head.weights @ head.v)
    joined = projected(np.concatenate([head.output for head in trace.heads], axis=1), trace.W_o, trace.b_o)
    close(trace.layer_output, joined, FLOAT32)


@pytest.mark.parametrize("layer", [0, 1])
@pytest.mark.parametrize("kind", ["gpt2", "bert", "gemma2"])
def test_every_step_of_a_model_by_hand_follows_from_the_one_before(kind, layer, tmp_path):
    if kind == "gemma2":
        by_hand.byte_pairs(folder := saved(tmp_path / kind, GEMMA2, gemma2()))
    else:
        folder = (small_gpt2 if kind == "gpt2" else by_hand.small_bert)(tmp_path / kind)
    text, layer = TEXT if kind == "bert" else "dabca", 0 if kind == "gemma2" else layer
    trace = trace_of("self", folder, keep_weights=True, text=text, layer=layer, head="all")
    check_steps(trace, kind == "gemma2")
    assert trace.projection.x_is_normed == (kind != "bert")


@pytest.mark.parametrize("name", [*ROTATED, "bert", "albert", "gpt2", "opt", "gpt_neo"])
def test_every_step_follows_from_the_one_before_to_the_weights_of_transformers(name, transformers, tmp_path):
    expected = attentions(model_of(CASES[name], transformers, tmp_path))
    for layer, attention in enumerate(expected[:2]):
        trace = trace_of("self", tmp_path, keep_weights=True, layer=layer, head="all")
        checked(json.loads(json.dumps(trace.to_dict(steps=True))))
        assert trace.query_tokens == ("[CLS]", "the", "cat", "##s", "walk", "##ing", "home", "[SEP]")
        check_steps(trace, name in ROTATED)
        has_norm = name in ("qwen3", "gemma3")
        assert all((head.q_gain is not None) == (head.k_gain is not None) == has_norm for head in trace.heads)
        close([head.weights for head in trace.heads], attention)
    assert trace.projection.x_is_normed == (name not in ("bert", "albert"))
    assert (trace.kind, trace.mask_name) == SHOWN.get(name, (trace.kind, trace.mask_name))
    every = trace_of("self", tmp_path, layer=1, head="all", dtype="float32")
    close([head.weights for head in every.heads], expected[1])
    alone = trace_of("self", tmp_path, keep_weights=True, layer=1, head="1")
    close(alone.layer_output, trace.layer_output, FLOAT32)
    close(alone.shown.W_q, trace.heads[1].W_q, 0)
    options = {"layer": 1, "head": "all", "temperature": 2.0, "mask": "none"}
    warmer = trace_of("self", tmp_path, keep_weights=True, **options)
    joined = np.concatenate([head.output for head in warmer.heads], axis=1)
    close(warmer.layer_output, projected(joined, warmer.W_o, warmer.b_o), FLOAT32)
    assert np.abs(warmer.layer_output - trace.layer_output).max() > 1e-3


@pytest.mark.parametrize("framework", ["numpy", "torch"])
@pytest.mark.parametrize("settings", [{}, {"temperature": 0.5, "head": "mean"}])
@pytest.mark.parametrize("name", ["llama", "gemma2", "modernbert"])
def test_a_script_recomputes_a_models_head(name, settings, framework, transformers, tmp_path, capsys):
    model_of(CASES[name], transformers, tmp_path)
    trace = trace_of("self", tmp_path, layer=1, **settings)
    names = {}
    exec(script(trace, framework), names)
    close(np.asarray(names["weights"]), trace.weights, 1e-9)
    close(np.asarray(names["output"]), trace.output, 1e-6)


def test_neighbouring_heads_share_the_w_that_makes_their_k_and_v(tmp_path):
    tensors = gemma2(heads=4, pairs=2)
    config = GEMMA2 | {"num_attention_heads": 4, "num_key_value_heads": 2}
    by_hand.byte_pairs(saved(tmp_path / "model", config, tensors))
    found = record("self", "dabc", "-m", str(tmp_path / "model"), "--head", "all", "--steps")
    for h, head in enumerate(found["heads"]):
        for letter, place in (("q", h), ("k", h // 2), ("v", h // 2)):
            W = tensors[f"layers.0.self_attn.{letter}_proj.weight"][2 * place : 2 * place + 2].T
            close(np.array(head[f"W_{letter}"]), W, 0)
            close(found["x_query"] @ W, np.array(head[letter]))


def test_a_norm_that_is_stored_less_one_is_shown_as_it_counts(tmp_path):
    stored = {"q": np.float32([0.5, -0.25]), "k": np.float32([1, 2])}
    norms = {f"layers.0.self_attn.{name}_norm.weight": gain for name, gain in stored.items()}
    config = {**GEMMA2, "model_type": "gemma3_text", "attn_logit_softcapping": None}
    by_hand.byte_pairs(saved(tmp_path / "model", config, gemma2() | norms))
    found = record("self", "dab", "-m", str(tmp_path / "model"), "--head", "1", "--steps")
    (head,) = found["heads"]
    for name, gain in stored.items():
        close(np.array(head[f"{name}_gain"]), 1 + gain)
        x = np.array(found["x_query"]) @ head[f"W_{name}"]
        close(np.array(head[name]), x / np.sqrt((x * x).mean(axis=1, keepdims=True)) * (1 + gain))


def test_without_steps_a_trace_of_a_model_holds_no_weights(causal):
    trace = dabca(causal)
    assert trace.shown.W is trace.x_query is trace.W_o is trace.layer_output is None
    kept = dabca(causal, keep_weights=True)
    tensors, x = gpt2(), kept.x_query
    W, b = tensors["h.1.attn.c_attn.weight"], tensors["h.1.attn.c_attn.bias"]
    close(kept.shown.W_q, W[:, :4], 0)
    close(kept.shown.b_v, b[16:20], 0)
    close(kept.shown.q, x @ W[:, :4] + b[:4])
    assert kept.projection.kv_heads is None


@pytest.mark.parametrize("name", ["llama", "qwen3", "gemma2", "gpt2"])
def test_a_models_json_with_steps_is_read_again(name, transformers, tmp_path):
    model_of(CASES[name], transformers, tmp_path)
    temperature = 0.5 if name == "gemma2" else 1.0
    trace = trace_of("self", tmp_path, keep_weights=True, layer=1, temperature=temperature)
    made = checked(json.loads(json.dumps(trace.to_dict(steps=True))))

    def again(**changed):
        return trace_weights(read_saved(json.dumps(made | changed).encode(), "made.json"), Settings())

    assert not [note for note in again().notes if "left out" in note]
    repeated = again().to_dict(steps=True)
    for key in ("x_query", "W_o", "layer_output", "scale", "softcap"):
        assert repeated[key] == made[key]
    assert repeated["projection"] == made["projection"] | {"name": "made.json", "kv_heads": None}
    for key in ("q", "q_turned", "q_gain", "W_q", "capped_scores"):
        assert repeated["heads"][0][key] == made["heads"][0][key]
    given, head = given_from(made, "made.json"), trace.shown
    assert given.get("W_o") is None  # it joins all heads, and one is here
    close(given.arrays["Q"], head.q if head.rotated is None else head.q_turned, 1e-12)
    close(given.arrays["K"], head.k if head.rotated is None else head.k_turned, 1e-12)
    if name == "gemma2":  # steps that do not lead to the weights are left out
        odd = again(softcap=3.0)
        assert odd.shown.steps is None and [note for note in odd.notes if "left out" in note]


def test_a_decoder_says_how_it_reads_its_text_and_keeps_a_last_word_that_no_sign_closes(
    transformers, tmp_path
):
    model_of(PAIRS["t5"], transformers, tmp_path)
    trace = trace_of("cross", tmp_path, "a b", text="the cat", next=1)
    assert trace.notes and "shifted right by one" in trace.notes[0]
    closed = trace.query_tokens[1:]
    assert closed[-1] not in ("[SEP]", "</s>") and "cat" in closed
    assert trace.next_words.token == "cat"
    said = " ".join(told("cross", "the cat", "a b", "-m", str(tmp_path), "--next", "1").split())
    assert 'Likeliest to come after "cat"' in said
    assert "--kind masked" in refused("masked", "the cat", "-m", str(tmp_path))


def test_a_layer_that_is_shown_attends_once(causal, monkeypatch):
    made = mock.Mock(side_effect=blocks.output_of)  # by which the model itself lets a layer's heads attend
    monkeypatch.setattr(blocks, "output_of", made)
    dabca(causal, layer=0)
    every = dabca(causal, layer="all", head="all")
    rolled = dabca(causal, layer="all", head="rollout")
    assert not made.called
    dabca(causal)
    assert [call.args[0].q.shape[1] for call in made.call_args_list] == [2], "the layer below"
    with monkeypatch.context() as slow:
        slow.setattr("attn_cli.models.checkpoints.layers.LayerSteps.keep", lambda steps, output: None)
        again = dabca(causal, layer="all", head="all")
    close([head.weights for head in every.heads], [head.weights for head in again.heads])
    alone = dabca(causal, head="rollout")
    close(rolled.shown.weights, alone.weights)


def test_a_layer_that_is_tried_otherwise_is_not_what_the_layers_above_read(causal):
    own = dabca(causal, layer="all", head="all")
    for other in ({"mask": "none"}, {"temperature": 9}, {"score": "dot"}, {"without": ("b",)}):
        tried = dabca(causal, **other, layer="all", head="all")
        close(tried.heads[-1].q, own.heads[-1].q)
        assert np.abs(tried.heads[0].weights - own.heads[0].weights).max() > 0.01


def test_what_a_config_says_and_attn_does_not_know_is_noted_everywhere(tmp_path):
    folder = small_gpt2(tmp_path / "odd", attn_temperature=2, resid_pdrop=0.3)
    said = "config.json says attn_temperature = 2, which attn does not know for gpt2: the numbers may differ."
    for command in ("self", "explain", "heads"):
        assert said in " ".join(told(command, "dab", "-m", folder).split())
        assert said in record(command, "dab", "-m", folder)["notes"]


def test_a_model_that_its_config_makes_look_both_ways_is_no_longer_masked(tmp_path):
    folder = small_gpt2(tmp_path / "both", is_causal=False)
    trace = dabca(folder, next=3)
    assert (trace.kind, trace.mask) == ("self", None) and (trace.weights > 0).all()
    assert "config.json says is_causal = false: no word is hidden from another." in trace.notes
    with pytest.raises(UsageError, match="not causal"):
        trace_of("masked", folder, text="dabca")
    assert told("heads", "dabca", "-m", folder)
    decoder = saved(tmp_path / "decoder", BERT | {"is_decoder": True}, by_hand.bert(vocabulary=len(PIECES)))
    by_hand.word_pieces(decoder)
    masked = trace_of("self", decoder)
    assert (masked.kind, masked.mask_name) == ("masked", "causal")


@pytest.mark.parametrize(("turn", "bad"), [*enumerate([np.nan, np.inf, -np.inf, 3.4e38])])
def test_weights_that_are_no_numbers_end_in_one_line_without_warnings(turn, bad, tmp_path):
    """Warnings are errors here; every tensor is spoilt in turn, and every number of the answer is one."""
    ways = {"next": 2}, {"layer": "all", "head": "all"}, {"head": "rollout"}, {"layer": 1}
    for tensors, config, write, text in (
        (gpt2(), GPT2, by_hand.byte_pairs, "dab"),
        (by_hand.bert(vocabulary=len(PIECES)), BERT, by_hand.word_pieces, "the [MASK] walking"),
    ):
        write(saved(tmp_path / "model", config, tensors))
        for n, name in enumerate(some(tensors, turn)):
            spoilt = tensors | {name: np.full_like(tensors[name], bad)}
            folder = saved(tmp_path / "model", config, spoilt)
            for settings in some(ways, n):
                try:
                    trace = trace_of("self", folder, None, settings.get("layer") == 1, text, **settings)
                except AttnError as error:
                    assert len(str(error)) < 500
                else:
                    assert all(np.isfinite(head.weights).all() for head in trace.heads), name
                    json.dumps(trace.to_dict(), allow_nan=False)


def test_a_base_of_rotary_positions_that_float32_lacks_is_one_line(tmp_path):
    tensors, one_head = gemma2(), {"num_attention_heads": 1, "head_dim": 4, "rope_theta": 1e-300}
    for role in "kv":
        tensors[f"layers.0.self_attn.{role}_proj.weight"] = tensors["layers.0.self_attn.q_proj.weight"]
    folder = saved(tmp_path / "model", GEMMA2 | one_head, tensors)
    by_hand.byte_pairs(folder)
    with pytest.raises(InputError, match="not a finite number"):
        trace_of("self", folder, keep_weights=True, text="dab")


def test_long_work_says_first_how_much_it_is(tmp_path, monkeypatch, capsys):
    """How many weights the layers that are computed make, of all heads: on a terminal only."""
    monkeypatch.setattr(run, "COSTLY", 10**6)
    folder = small_gpt2(tmp_path / "gpt2", gpt2(places=1000), n_positions=1000, n_head=8)
    every = "16 million weights in 2 layers. --layer N stops at N."
    for layer, said in ((None, every), (0, "8 million weights in 1 layer.")):
        for watched in (True, False):
            progress = Progress("Attending")
            progress.watched = watched
            trace_self("a" * 1000, Settings(model=folder, layer=layer), progress)
            err = capsys.readouterr().err
            assert err.startswith(f"attn: 1,000 tokens make {said}\n") if watched else not err
