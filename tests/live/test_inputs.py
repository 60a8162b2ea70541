"""attn live over given matrices, saved weights and a model on disk."""

import json
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("textual")

from attn_cli.inputs.matrices import read_given
from attn_cli.inputs.saved_weights import read_saved
from attn_cli.live.sources import MatricesSource, TextSource, WeightsSource
from attn_cli.pipeline.sources.weights import trace_weights
from attn_cli.settings import Settings
from tests.alike import FLOAT32
from tests.live.stage import made, play
from tests.models.checkpoints.by_hand import gpt2, small_bert, small_gpt2
from tests.shell import here
from tests.small_models import trace_checkpoint

RECORD = {"tokens": ["she", "likes", "coffee"], "X": [[1, 0], [0, 1], [1, 1]]}
RECORD |= {"W_q": [[1, 0], [0, 2]], "W_k": [[1, 1], [0, 1]], "W_v": [[1, 2], [3, 4]]}


def weights_of(record):
    """Attention by its formula (Vaswani et al. 2017, section 3.2.1)."""
    X, W_q, W_k = (np.array(record[name], float) for name in ("X", "W_q", "W_k"))
    scores = np.exp((X @ W_q) @ (X @ W_k).T / np.sqrt(2))
    return scores / scores.sum(axis=1, keepdims=True)


def test_numbers_of_given_matrices_are_edited_and_written_and_what_is_no_number_is_asked_for_again(at):
    async def act(stage):
        def is_of(**changes):
            assert np.allclose(stage.trace.weights, weights_of(RECORD | changes))

        is_of()
        assert (stage.app.line.value, stage.session.said) == ("given.json", "")
        await stage.goes(("e", "@matrices", "X as given", "e: the next matrix."), ("down down enter",))
        assert "X, row 2, column 0" in stage.text() and stage.app.line.value == "1"
        await stage.goes(("escape up right enter",))
        await stage.answer("-2", "-2.000")
        is_of(**(changed := {"X": [[1, 0], [0, -2], [1, 1]]}))
        await stage.press("e", "enter")
        await stage.answer("0,5")  # as half of Europe types it
        is_of(**changed, W_q=[[0.5, 0], [0, 2]])
        await stage.press("u")
        is_of(**changed)
        await stage.press("u")
        is_of()
        await stage.goes(("e e", "W_v as given", "e: the weights."), ("e", "@weights"), ("e enter",))
        refused = (("much", "'much' is not a number"), ("1e200", "cannot hold"), ("-inf", "X cannot"))
        for typed, said in refused:
            await stage.answer(typed)
            assert said in stage.text() and stage.app.line.has_focus
        await stage.goes(("escape h", "There is one head."), ("t", "There is no text here"))
        is_of()
        await stage.press("enter")
        await stage.answer("3")
        await stage.press("w")
        await stage.answer("new.json", "Written: new.json")
        await stage.goes(("c", "are not in that file"))

    (at / "given.json").write_text(json.dumps(RECORD))
    play(act, made("", source=MatricesSource(read_given("given.json"), "given.json")))
    again = json.loads(here("compute", "new.json", "-f", "json").out)
    assert np.allclose(again["weights"], weights_of(RECORD | {"X": [[3, 0], [0, 1], [1, 1]]}))


def test_saved_weights_are_shown_head_by_head(tmp_path):
    weights = np.random.default_rng(0).dirichlet([1.0] * 4, (2, 3, 4))
    path = tmp_path / "weights.npy"
    np.save(path, weights)
    saved = read_saved(path.read_bytes(), "weights.npy", None, None)

    async def act(stage):
        for key, layer, head in (("escape", 1, 0), ("h", 1, 1), ("l", 0, 0)):
            await stage.press(key)
            assert np.allclose(stage.trace.weights, weights[layer, head])
        await stage.goes(*((key, "have no scores") for key in ("s", "+", "x", "d", "enter")))
        assert np.allclose(stage.trace.weights, weights[0, 0])
        await stage.goes(("m", "Leave out --mask"))  # a mask that does not fit is said, and taken back
        assert stage.state.question.settings.mask is None
        await stage.press("c")
        assert f"attn show {path} --layer 0" in stage.text().replace("\n", "")
        await stage.goes(("escape L h h h h h", "head rollout"))  # of several layers
        assert np.allclose(stage.trace.weights, trace_weights(saved, Settings(head="rollout")).weights)
        await stage.press("h")
        assert np.allclose(stage.trace.weights, weights[1, 0])
        await stage.press("H", "H")
        assert stage.state.question.settings.head == "all"
        await stage.goes(("c", "--layer all"))

    play(act, made("", source=WeightsSource(saved, str(path))), size=(200, 24))


def test_a_model_on_disk_has_its_layers_and_heads(tokenizers, tmp_path):
    folder = small_gpt2(tmp_path / "gpt2")
    settings = Settings(model=folder)

    async def act(stage):
        for key, chosen in (("escape", {}), ("l", {"layer": 0}), ("h", {"layer": 0, "head": "1"})):
            await stage.press(key)
            expected = trace_checkpoint("self", "dabca", None, Settings(**chosen), folder).weights
            assert np.allclose(stage.trace.weights, expected, atol=FLOAT32)
        await stage.goes(("t", "mask causal"))
        await stage.type("b")
        assert stage.trace.query_tokens == tuple("dabcab")
        await stage.goes(("escape c", "-m"))

    play(act, made("dabca", settings, TextSource(settings)))


def test_keys_join_pieces_and_part_a_pair_and_a_model_without_a_next_token_writes_none(tokenizers, tmp_path):
    settings = Settings(model=small_bert(tmp_path / "bert"), layer=0)

    async def act(stage):
        await stage.goes(("g g", "it writes nothing"))
        pieces = stage.trace.query_tokens
        await stage.press("p")
        assert stage.trace.query_tokens == ("[CLS]", "the", "cats", "walking", "[SEP]")
        await stage.goes(("c", "--join-pieces"), ("escape p",))
        assert stage.trace.query_tokens == pieces

    async def of_a_pair(stage):
        whole = stage.trace.weights
        await stage.press("a", "a")
        assert stage.trace.key_tokens == ("walk", "##ing", "home", "[SEP]")
        assert np.allclose(stage.trace.weights, whole[:5, 5:], atol=FLOAT32)
        await stage.goes(("c", "--pair", "--between a-b"), ("escape a a a",))
        assert stage.trace.weights.shape == whole.shape

    play(act, made("the cats walking", settings, TextSource(settings)))
    paired = replace(settings, pair="walking home")
    play(of_a_pair, made("the cats", paired, TextSource(paired)))


def test_a_key_writes_the_likeliest_token(tokenizers, tmp_path):
    settings = Settings(model=small_gpt2(tmp_path / "gpt2", gpt2(places=20)))
    told = here("generate", "ab a", "-m", settings.model, "--count", "3").out.splitlines()

    async def act(stage):
        await stage.press("g")
        assert stage.trace.next_words.words[0].word == json.loads(told[0])["word"]
        for line in told:
            await stage.press("g")
            state = stage.app.session.state
            assert state.question.text == stage.app.line.value == "ab a" + json.loads(line)["written"]
            assert state.row == len(stage.trace.query_tokens) - 1
        await stage.press("u", "u")
        assert len(stage.trace.query_tokens) == 4

    play(act, made("ab a", settings, TextSource(settings)))
