"""A pretrained encoder as a teacher: it computes as transformers does, learns heads, and is learned from."""

import os
from types import SimpleNamespace

import numpy as np
import pytest

from attn_cli.learn.treebank import Sentence
from attn_cli.models.model_file import read_model
from attn_cli.vectors.lookup import open_table
from data.making.encoder import Encoder, is_encoder, read_encoder, read_folder
from data.making.tests.running import making
from data.making.tests.test_imitation import LEARN, NOUNS, WORDS, folder, objects  # noqa: F401

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, "s", "##s", "##t"]


@pytest.fixture
def bert(folder):
    """A folder with a small BERT, as transformers writes it."""
    missing = "PyTorch and transformers are not installed: pip install torch transformers"
    for name in ("torch", "transformers", "tokenizers"):
        if os.environ.get("ATTN_REQUIRE_TORCH") != "1":
            pytest.importorskip(name, reason=missing)
    import torch
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    model = BertModel(BertConfig(vocab_size=len(PIECES), max_position_embeddings=32, **sizes))
    model.save_pretrained(folder / "bert")
    vocabulary = {piece: n for n, piece in enumerate(PIECES)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.save(str(folder / "bert" / "tokenizer.json"))
    return model.eval()


def batch(*texts):
    """Texts as `Encoder.hidden` asks for them: padded, without features of spelling."""
    longest = max(map(len, texts))
    sentences = [SimpleNamespace(sentences=(Sentence(text, (), (), (), ()),)) for text in texts]
    features = np.full((len(texts), longest, 1), 3)
    return SimpleNamespace(words=np.zeros((len(texts), longest), int), texts=sentences, features=features)


def test_the_rows_of_words_are_means_of_the_rows_that_transformers_gives_their_pieces(folder, bert):
    import torch

    encoder = Encoder(read_folder(folder / "bert"), np.zeros((1, 4), np.float32), 3)
    found = encoder.hidden(batch(("Cats", "sees", "hen"), ("dog",)))
    pieces = ["[CLS]", "cat", "##s", "sees", "hen", "[SEP]"]
    with torch.no_grad():
        ids = torch.tensor([[PIECES.index(piece) for piece in pieces]])
        states = torch.stack(bert(ids, output_hidden_states=True).hidden_states).mean(0)[0]
        alone = torch.tensor([[PIECES.index(piece) for piece in ("[CLS]", "dog", "[SEP]")]])
        other = torch.stack(bert(alone, output_hidden_states=True).hidden_states).mean(0)[0]
    wanted = torch.stack([states[1:3].mean(0), states[3], states[4]])
    np.testing.assert_allclose(found[0].numpy(), wanted.numpy(), atol=1e-5)
    np.testing.assert_allclose(found[1, 0].numpy(), other[1].numpy(), atol=1e-5)
    assert encoder.pieces("zebra") == [PIECES.index("[UNK]")] == encoder.pieces("")


def test_a_student_learns_from_an_encoder_that_learned(folder, bert):
    learn = ["encoder", "bert", "whole.conllu", "--relations", "subject,object", "-e", "v.txt"]
    ran = making(*learn, "--epochs", "60", "--rate", "0.02", "-o", "teacher.safetensors", cwd=folder)
    assert ran.code == 0, ran.err
    assert "wrote teacher.safetensors: 60 passes" in ran.err
    assert is_encoder(str(folder / "teacher.safetensors")) and not is_encoder(str(folder / "whole.conllu"))
    read = read_encoder(str(folder / "teacher.safetensors"), open_table(str(folder / "v.txt")))
    assert read.heads == ("subject", "object") and read.facts["trained_on"] == ["whole.conllu"]
    taught = ["--teacher", "teacher.safetensors", "--text", "text.txt", "--epochs", "2"]
    ran = making(*LEARN, "none.conllu", *taught, "-o", "student.safetensors", cwd=folder)
    assert ran.code == 0, ran.err
    facts = read_model(str(folder / "student.safetensors")).facts
    assert facts["teachers"]["teacher.safetensors"]["pretrained"] == "bert"
    label = ["label", "teacher.safetensors", "text.txt", "--words", "200", "-e", "v.txt"]
    ran = making(*label, "-o", "labels.safetensors", cwd=folder)
    assert ran.code == 65 and "at least 4 words" in ran.err, "the lines have three"
    (folder / "long.txt").write_text((folder / "text.txt").read_text().replace("\n", " here\n"))
    label[2] = "long.txt"
    ran = making(*label, "-o", "labels.safetensors", cwd=folder)
    assert ran.code == 0 and "200 words in 50 lines" in ran.err, ran.err
    taught = ["--labelled", "labels.safetensors", "--epochs", "200", "-o", "again.safetensors"]
    ran = making(*LEARN, "none.conllu", *taught, cwd=folder)
    assert ran.code == 0, ran.err
    assert objects(folder, "again.safetensors") == [2, 2], "its treebank has no object"
    facts = read_model(str(folder / "again.safetensors")).facts
    assert facts["teachers"]["teacher.safetensors"]["pretrained"] == "bert"
    assert facts["imitated_on"]["texts"] == ["long.txt"]


def test_some_sentences_of_a_treebank_will_do(folder, bert):
    learn = ["encoder", "bert", "whole.conllu", "none.conllu", "-e", "v.txt", "--epochs", "1"]
    for name, some in (("all", []), ("some", ["--some", "whole.conllu"])):
        ran = making(*learn, *some, "-o", f"{name}.safetensors", cwd=folder)
        assert ran.code == 0, ran.err
    assert (folder / "all.safetensors").read_bytes() != (folder / "some.safetensors").read_bytes()


@pytest.mark.parametrize("missing", ["config.json", "tokenizer.json"])
def test_a_folder_without_an_encoder_is_refused(missing, folder):
    (folder / "bert").mkdir()
    for name in {"config.json", "tokenizer.json"} - {missing}:
        (folder / "bert" / name).write_text("{}")
    wrong = making("encoder", "bert", "whole.conllu", "-e", "v.txt", "-o", "t.safetensors", cwd=folder)
    assert wrong.code in (65, 69), wrong.err  # without PyTorch, that is said first
    assert wrong.err.count("\n") == 1 and not (folder / "t.safetensors").exists()
