"""Whatever is wrong with a model's folder: the right exit code and one line, whichever command reads it."""

import json
import os
import struct

import pytest

from tests.models.checkpoints.by_hand import GPT2, byte_pairs, gpt2, saved
from tests.shell import attn, here, refused

pytestmark = pytest.mark.usefixtures("tokenizers")
NAMES = list(gpt2())


@pytest.fixture
def folder(tmp_path):
    saved(tmp_path / "gpt2", GPT2, gpt2())
    byte_pairs(tmp_path / "gpt2", ["a", "b", "c", "d", "Ġa", "Ġb"])
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


@pytest.mark.parametrize("what", HOSTILE)
def test_what_is_wrong_with_a_folder_is_said_in_one_line(what, folder):
    files, code, word = HOSTILE[what]
    for name, content in files.items():
        if content is None:
            (folder / name).unlink()
        else:
            (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
    for command in ("self", "heads"):
        said = refused(command, "dabca", "-m", str(folder), code=code)
        assert word in said and "bug" not in said and len(said) < 1500


def test_shards_that_are_links_in_a_circle_or_no_files_are_refused_and_other_links_followed(folder, tmp_path):
    model, two, three = (folder / f"{name}.safetensors" for name in ("model", "two", "three"))
    expected = here("self", "dabca", "-m", str(folder)).out
    model.rename(tmp_path / "blob")
    model.symlink_to("../blob")  # as files of a snapshot are in the local cache
    assert here("self", "dabca", "-m", str(folder)).out == expected
    model.unlink()
    (folder / "model.safetensors.index.json").write_text(index(two.name)["model.safetensors.index.json"])
    two.symlink_to(three.name)
    three.symlink_to(two.name)
    for said in ("two.safetensors", "not a regular file"):
        assert said in refused("self", "dabca", "-m", str(folder), code=66)
        two.unlink()
        os.mkfifo(two)


def test_an_expression_that_never_ends_leaves_one_line_on_standard_error(folder):
    """The library writes of its panic past Python: seen from outside alone."""
    split = {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}
    told = dict.fromkeys(("normalizer", "post_processor", "decoder", "truncation", "padding"))
    told |= {"version": "1.0", "added_tokens": [], "pre_tokenizer": split}
    told |= {"model": {"type": "WordLevel", "vocab": {"u": 0}, "unk_token": "u"}}
    (folder / "tokenizer.json").write_text(json.dumps(told))
    ran = attn("self", "a" * 200 + "b", "-m", str(folder), timeout=60)
    assert ran.code == 65 and ran.err.count("\n") == 1, ran.err
