"""Whatever is wrong with a model's folder: the right exit code and one line, whichever command reads it."""

import importlib.util
import json
import os
import struct

import pytest

from tests.models.checkpoints.by_hand import GPT2, gpt2, saved
from tests.shell import attn, here

needs_tokenizers = pytest.mark.skipif(
    importlib.util.find_spec("tokenizers") is None, reason="needs the extra models"
)
NAMES = list(gpt2())


@pytest.fixture
def folder(tmp_path):
    saved(tmp_path / "gpt2", GPT2, gpt2())
    words = ["a", "b", "c", "d", "Ġa", "Ġb"]
    (tmp_path / "gpt2" / "vocab.json").write_text(json.dumps({word: n for n, word in enumerate(words)}))
    (tmp_path / "gpt2" / "merges.txt").write_text("#version: 0.2\n")
    return tmp_path / "gpt2"


def config(change):
    return {"config.json": json.dumps(GPT2 | change)}


def header(text, data=64):
    return {"model.safetensors": struct.pack("<Q", len(text)) + text.encode() + b"\0" * data}


def index(file, **files):
    text = json.dumps({"weight_map": dict.fromkeys(NAMES, file)})
    return {"model.safetensors": None, "model.safetensors.index.json": text} | files


# What is put into the folder, by name (None takes a file away); the exit code; what the line says.
HOSTILE = {
    "a family that is not known": (config({"model_type": "gpt3"}), 65, "It knows bert"),
    "weights that are quantised": (config({"quantization_config": {"quant_method": "gptq"}}), 65, "bfloat16"),
    "a pickle": ({"model.safetensors": None, "pytorch_model.bin": b"\x80\x02."}, 66, "weights_only=True"),
    "SentencePiece": ({"vocab.json": None, "tokenizer.model": b"\x0a"}, 66, "save_pretrained"),
    "no tokenizer": ({"vocab.json": None}, 66, "no tokenizer.json"),
    "no config": ({"config.json": None}, 66, "config.json"),
    "no weights": ({"model.safetensors": None}, 66, "no model.safetensors"),
    "a billion layers": (config({"n_layer": 10**9}), 65, "n_layer is 1000000000"),
    "a deep config": ({"config.json": '{"a":' * 100_000}, 65, "not JSON"),
    "a header that claims too much": ({"model.safetensors": struct.pack("<Q", 1 << 62) + b"{}"}, 65, "claims"),
    "a deep header": (header("[" * 1_000_000), 65, "not JSON"),
    "an index to elsewhere": (index("/etc/passwd"), 65, "beside it"),
    "an index with a shard that is not there": (index("two.safetensors"), 66, "two.safetensors"),
    "a vocabulary of NULs": ({"vocab.json": None, "vocab.txt": b"[UNK]\n\0\0\na\0b\n"}, 65, "not a sound"),
    "ids beyond the table": ({"vocab.json": json.dumps({one: 2**32 - 1 - n for n, one in enumerate("abcd")})},
                             65, "There is no token 42949672"),
}  # fmt: skip


@needs_tokenizers
@pytest.mark.parametrize("what", HOSTILE)
def test_what_is_wrong_with_a_folder_is_said_in_one_line(what, folder):
    files, code, word = HOSTILE[what]
    for name, content in files.items():
        if content is None:
            (folder / name).unlink()
        else:
            (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
    for command in (("self", "dabca"), ("heads", "dabca")):
        ran = here(*command, "-m", str(folder))
        assert ran.code == code and ran.err.count("\n") == 1 and not ran.out, (command, ran)
        assert word in ran.err and "bug" not in ran.err and len(ran.err) < 1500


@needs_tokenizers
def test_shards_that_are_links_in_a_circle_or_no_files_are_refused(folder):
    (folder / "model.safetensors").unlink()
    text = json.dumps({"weight_map": dict.fromkeys(NAMES, "two.safetensors")})
    (folder / "model.safetensors.index.json").write_text(text)
    (folder / "two.safetensors").symlink_to("three.safetensors")
    (folder / "three.safetensors").symlink_to("two.safetensors")
    ran = here("self", "dabca", "-m", str(folder))
    assert ran.code == 66 and ran.err.count("\n") == 1 and "two.safetensors" in ran.err
    (folder / "two.safetensors").unlink()
    os.mkfifo(folder / "two.safetensors")
    ran = here("self", "dabca", "-m", str(folder))
    assert ran.code == 66 and ran.err.count("\n") == 1 and "not a regular file" in ran.err


@needs_tokenizers
def test_links_of_the_local_cache_are_followed(folder, tmp_path):
    """There, a snapshot's files are links to ../../blobs."""
    expected = here("self", "dabca", "-m", str(folder)).out
    (tmp_path / "blob").write_bytes((folder / "model.safetensors").read_bytes())
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors").symlink_to("../blob")
    assert here("self", "dabca", "-m", str(folder)).out == expected


@needs_tokenizers
def test_an_expression_that_never_ends_leaves_one_line_on_standard_error(folder):
    """The library writes of its panic past Python: seen from outside alone."""
    (folder / "tokenizer.json").write_text(
        json.dumps(
            {
                "version": "1.0", "added_tokens": [], "normalizer": None, "post_processor": None, "decoder": None,
                "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated",
                                  "invert": False},
                "truncation": None, "padding": None,
                "model": {"type": "WordLevel", "vocab": {"u": 0}, "unk_token": "u"},
            }
        )
    )  # fmt: skip
    ran = attn("self", "a" * 200 + "b", "-m", str(folder), timeout=60)
    assert ran.code == 65 and ran.err.count("\n") == 1, ran.err


@needs_tokenizers
def test_a_text_longer_than_the_model_s_places_says_how_many_it_reads(folder):
    assert here("self", "dabca" * 2, "-m", str(folder)).code == 0  # its table has ten rows
    ran = here("self", "dabca" * 2 + "d", "-m", str(folder))
    assert ran.code == 65 and ran.err.count("\n") == 1
    assert f"The text has 11 tokens; {folder} reads at most 10. Give a part of it." in ran.err
