"""Whatever is wrong with a model's folder: the right exit code and one line, whichever command reads it."""

import importlib.util
import json
import os
import struct
import sys

import pytest

from attn_cli.models.checkpoints.families import FAMILIES
from tests.models.checkpoints.by_hand import GPT2, gpt2, safetensors, saved
from tests.shell import attn, here

needs_tokenizers = pytest.mark.skipif(
    importlib.util.find_spec("tokenizers") is None, reason="needs the extra models"
)
NAMES = list(gpt2())


@pytest.fixture
def folder(tmp_path):
    """A GPT-2 of six letters."""
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


ENTRY = '{"dtype": "F32", "shape": [16], "data_offsets": [0, 64]}'
# What is put into the folder, by name (None takes a file away); the exit code; what the line says.
HOSTILE = {
    "a family that is not known": (config({"model_type": "gpt3"}), 65, "It knows bert"),
    "weights that are quantised": (config({"quantization_config": {"quant_method": "gptq"}}), 65, "bfloat16"),
    "weights in int8": ({"model.safetensors": safetensors({n: a.astype("int8") for n, a in gpt2().items()})},
                        65, "quantised"),
    "a pickle": ({"model.safetensors": None, "pytorch_model.bin": b"\x80\x02."}, 66, "weights_only=True"),
    "a pickle .pt": ({"model.safetensors": None, "model.pt": b"\x80\x02."}, 66, "'model.pt'"),
    "SentencePiece": ({"vocab.json": None, "tokenizer.model": b"\x0a"}, 66, "save_pretrained"),
    "no tokenizer": ({"vocab.json": None}, 66, "no tokenizer.json"),
    "no config": ({"config.json": None}, 66, "config.json"),
    "no weights": ({"model.safetensors": None}, 66, "no model.safetensors"),
    "a billion layers": (config({"n_layer": 10**9}), 65, "n_layer is 1000000000"),
    "more layers than there are": (config({"n_layer": 9}), 65, "no tensor h.2"),
    "no heads": (config({"n_head": 0}), 65, "n_head is 0"),
    "heads that do not divide": (config({"n_head": 3}), 65, "divides 8"),
    "a string for a number": (config({"n_embd": "8"}), 65, 'n_embd is "8"'),
    "NaN": (config({"layer_norm_epsilon": float("nan")}), 65, "NaN"),
    "a deep config": ({"config.json": '{"a":' * 100_000}, 65, "not JSON"),
    "a number of 5,000 digits": ({"config.json": '{"n_embd":' + "9" * 5000 + "}"}, 65, "not JSON"),
    "a header that claims too much": ({"model.safetensors": struct.pack("<Q", 1 << 62) + b"{}"}, 65, "claims"),
    "a deep header": (header("[" * 1_000_000), 65, "not JSON"),
    "a name twice": (header(f'{{"a": {ENTRY}, "a": {ENTRY}}}'), 65, "twice"),
    "arrays that overlap": (header(f'{{"a": {ENTRY}, "b": {ENTRY}}}'), 65, "overlap"),
    "a negative shape": (header('{"a": ' + ENTRY.replace("16", "-4, -4") + "}"), 65, "malformed"),
    "a shape beyond 64 bits": (header('{"a": ' + ENTRY.replace("16", f"{1 << 33}, {1 << 33}") + "}"), 65, "fit"),
    "offsets beyond the end": (header('{"a": ' + ENTRY.replace("64", "640").replace("16", "160") + "}"),
                               65, "fit"),
    "a type that is none": (header('{"a": ' + ENTRY.replace("F32", "F33") + "}"), 65, "malformed"),
    "an index up": (index("../one.safetensors"), 65, "beside it"),
    "an index to elsewhere": (index("/etc/passwd"), 65, "beside it"),
    "an index with a shard that is not there": (index("two.safetensors"), 66, "two.safetensors"),
    "an index with NUL": (index("a\0b.safetensors"), 66, "^@"),
    "an index without its tensors": (index("two.safetensors", **{"two.safetensors": header("{}", 0)[
        "model.safetensors"]}), 65, "says it has"),
    "a vocabulary of NULs": ({"vocab.json": None, "vocab.txt": b"[UNK]\n\0\0\na\0b\n"}, 65, "not a sound"),
    "merges of nothing": ({"merges.txt": "zz yy\n"}, 65, "zz"),
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
def test_all_known_families_are_listed(folder):
    (folder / "config.json").write_text(json.dumps({"model_type": "falcon"}))
    told = here("self", "dabca", "-m", str(folder)).err
    assert all(name in told for name in FAMILIES)


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


def test_without_the_extra_the_line_that_installs_it_is_given(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    ran = here("self", "dabca", "-m", str(folder))
    assert ran.code == 69 and ran.err.count("\n") == 1 and "pip install 'attn-cli[models]'" in ran.err


def test_a_name_that_the_cache_lacks_is_never_fetched(tmp_path, monkeypatch):
    def refuse(*args, **more):
        raise AssertionError("a connection was asked for")

    monkeypatch.setattr("socket.socket.connect", refuse)
    monkeypatch.setattr("socket.getaddrinfo", refuse)
    ran = here("self", "dabca", "-m", "org/model", env={"HF_HUB_CACHE": str(tmp_path)})
    assert ran.code == 65 and ran.err.count("\n") == 1 and "downloads no models" in ran.err


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
