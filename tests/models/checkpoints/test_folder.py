"""A model's folder: its config.json in bounded memory, each value checked; and found by name in the local cache."""

import json

import pytest

from attn_cli.errors import AttnError, FileError, InputError
from attn_cli.models.checkpoints.config import Config, read_config
from attn_cli.models.checkpoints.families import describe
from attn_cli.models.checkpoints.open_model import cache_folder, find_folder, open_model
from tests.models.checkpoints.by_hand import small_gpt2


def written(tmp_path, text):
    (tmp_path / "config.json").write_text(text)
    return str(tmp_path)


@pytest.mark.parametrize("text", ["", "[]", "3", "{", "[" * 100_000, '{"a": 1', "\x00"])
def test_what_is_not_an_object_is_refused_and_so_is_what_is_missing_or_a_giant(text, tmp_path):
    with pytest.raises(FileError):
        read_config(str(tmp_path))
    kind = "a JSON object" if text in ("[]", "3") else "JSON"
    with pytest.raises(InputError, match=rf"config\.json is not {kind}\."):
        read_config(written(tmp_path, text))
    with pytest.raises(FileError, match="above the limit"):
        read_config(written(tmp_path, text.ljust(1 << 23)))


def test_quantized_weights_are_refused_by_their_method_s_name(tmp_path):
    for given, named in (
        ({"quant_method": "gptq\x1b[31m" + "x" * 99, "bits": 4}, r"gptq\^\[\[31mx{50}\)"),
        ({"load_in_8bit": True}, "bitsandbytes"),
        ({"load_in_4bit": True}, "bitsandbytes"),
        ({"quant_method": "awq", "version": "gemm"}, "awq"),
    ):
        text = json.dumps({"model_type": "llama", "quantization_config": given})
        with pytest.raises(InputError, match=rf"quantised \({named}") as found:
            read_config(written(tmp_path, text))
        assert "bfloat16, or a GGUF file" in found.value.hint


READS = {"n": 1, "x": 1.0, "none": 5, "absent": 6} | dict.fromkeys(("yes", "s", "list", "other"))
SAID = {
    "n": 8, "x": 0.5, "yes": True, "s": "a", "list": [1, 2], "part": {"n": 3}, "none": None, "sliding_window": None,
    "stray": 1,
}  # fmt: skip
VALUES = Config("c", SAID, READS | {"part": {"n": None}, "gone": {"n": 9}})


def test_a_value_is_what_it_says_its_default_where_absent_and_unknown_where_not_declared():
    assert VALUES.whole("n", most=8) == 8 and VALUES.number("x") == 0.5 and VALUES.number("n") == 8
    assert VALUES.flag("yes") is True and VALUES.word("s") == "a" and VALUES.each("list", 2) == [1, 2]
    assert VALUES.part("part").whole("n") == 3 and VALUES.shared("n", 24) == 3
    assert VALUES.whole("absent") == 6 and VALUES.has("absent") and VALUES.part("gone").whole("n") == 9
    assert not VALUES.has("other") and not VALUES.has("sliding_window") and VALUES.flag("other", True)
    for ask in (VALUES.has, VALUES.whole):
        with pytest.raises(InputError, match=r"none is null\. It must be left out, or a value such as 5"):
            ask("none")
    assert not VALUES.has("stray")
    with pytest.raises(KeyError):
        VALUES.whole("stray")
    told = "config.json says stray = 1, which attn does not know for bert: the numbers may differ."
    assert VALUES.unknown("bert") == told


def test_unknown_keys_are_named_shortly_and_inertly():
    hostile = Config("c", {f"\x1b[31m{n}": "x" * 999 for n in range(9000)}, {})
    told = hostile.unknown("bert")
    assert "\x1b" not in told and "and 8,995 more keys" in told and len(told) < 800
    assert " and 1 more key, " in Config("c", dict.fromkeys("abcdef", 1), {}).unknown("bert")
    assert Config("c", {"dropout" * 30_000 + "\n": 1}, {}).unknown("bert")  # at once
    deep = json.loads("[" * 900 + "]" * 900)
    assert "which attn does not know" in Config("c", {"a": [deep]}, {}).unknown("bert")
    nested = {"part": {"n": 3, "m": 4}, "empty": [], "nothing": {}, "none": None, "hidden_dropout": 1}
    assert "says part.m = 4, which" in Config("c", nested, VALUES.keys).unknown("bert")
    long = {"a" * 58: "b" * 58, "c" * 61: "d" * 59} | dict.fromkeys("xyz", 1)  # quotes are shown as well
    shown = f'{"a" * 58} = "{"b" * 58}", {"c" * 60} = "{"d" * 59}..., x = 1, y = 1, z = 1'
    ahead = "config.json says is_causal = false: no word is hidden from another."
    given = {"model_type": "gpt2", "n_embd": 8, "n_layer": 1, "n_head": 1, "is_causal": False}
    unknown = f"config.json says {shown}, which attn does not know for gpt2: the numbers may differ."
    assert describe(Config("c", given | long)).notes == (unknown, ahead)


def test_a_value_of_another_kind_is_refused():
    for asked, told in (
        *(("whole x", "x is 0.5"), ("whole yes", "yes is true"), ("whole n 1 7", "n is 8")),
        *(("number s", 's is "a"'), ("number yes", "yes is true"), ("whole other", "has no other")),
        *(("flag n", "n is 8"), ("word n", "n is 8"), ("part n", "an object")),
        *(("each list 3", "each of 3 layers"), ("each list 1", "each of 1"), ("shared n 10", "divides 10")),
    ):
        kind, key, *limits = asked.split()
        with pytest.raises(InputError) as found:
            getattr(VALUES, kind)(key, *map(int, limits))
        assert told in str(found.value)


@pytest.mark.parametrize("text", ["1e400", "-1", "0", "NaN", "Infinity", "-Infinity", "1" + "0" * 400])
def test_a_number_that_is_none_is_refused(text, tmp_path):
    config = read_config(written(tmp_path, f'{{"x": {text}}}'))._replace(keys=VALUES.keys)
    with pytest.raises(InputError) as found:
        config.number("x")
    assert len(str(found.value)) < 200 + len(str(tmp_path))


REVISION = "0123456789abcdef" * 2 + "01234567"
VARIABLES = ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME")


@pytest.fixture(autouse=True)
def no_settings(monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def kept(hub, name, ref=REVISION, snapshots=(REVISION,)):
    """Keep snapshots of a model, and return the folder of the first."""
    folders = [hub / f"models--{name}" / "snapshots" / snapshot for snapshot in snapshots]
    for folder in folders:
        folder.mkdir(parents=True)
    if ref is not None:
        (hub / f"models--{name}" / "refs").mkdir()
        (hub / f"models--{name}" / "refs" / "main").write_text(ref)
    return str(folders[0])


def test_a_name_is_the_snapshot_of_main_where_the_environment_says_and_a_folder_itself(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    for name, value, expected in (
        ("HOME", str(tmp_path), tmp_path / ".cache/huggingface/hub"),
        ("XDG_CACHE_HOME", str(tmp_path / "x"), tmp_path / "x/huggingface/hub"),
        ("HF_HOME", "~/h", tmp_path / "h/hub"),
        ("HUGGINGFACE_HUB_CACHE", str(tmp_path / "b"), tmp_path / "b"),
        ("HF_HUB_CACHE", str(tmp_path / "c"), tmp_path / "c"),
    ):
        monkeypatch.setenv(name, value)
        assert cache_folder() == str(expected)
    assert find_folder(str(tmp_path)) == str(tmp_path)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    assert kept(tmp_path, "org--model", snapshots=(REVISION, "f" * 40)) == find_folder("org/model")
    assert kept(tmp_path, "gpt2", ref=REVISION + "\n") == find_folder("gpt2")
    assert kept(tmp_path, "one", ref=None) == find_folder("one")


def test_what_the_cache_does_not_have_is_refused_with_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    kept(tmp_path, "two", ref=None, snapshots=(REVISION, "f" * 40))
    kept(tmp_path, "gone", ref="e" * 40)
    kept(tmp_path, "out", ref="../../../etc")
    kept(tmp_path, "long", ref="a" * 5000, snapshots=("a" * 40, "b" * 40))
    for name in ("org/model", "two", "gone", "out", "long", "n" * 96):
        with pytest.raises(InputError) as found:
            find_folder(name)
        way = f"get it with `hf download {name}`, or give a folder."
        assert found.value.hint == f"attn downloads no models: {way}"
        said = f"{name} is not a folder, and not in the local Hugging Face cache ({tmp_path})."
        assert found.value.message == said


@pytest.mark.usefixtures("tokenizers")
def test_a_model_has_the_name_of_the_hub_or_of_its_folder_and_no_file_is_one(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    folder = small_gpt2(kept(tmp_path, "org--model"))
    for name, called in (("org/model", "org/model"), (f"{folder}/", REVISION)):
        with open_model(name) as found:
            assert found.name == called
    (tmp_path / "a b").mkdir()
    (tmp_path / "org").touch()
    for name, said, hint in (
        (f"{folder}/model.safetensors", "is a file of a model.", f"Give its folder: {folder}."),
        (written(tmp_path / "a b", "") + "/config.json", "is a file of a model.", f": '{tmp_path}/a b'."),
        (f"{folder}/none", "is neither a folder nor the name of a model.", "a name such as google-bert/"),
        (f"{tmp_path}/org", "is a file, and no GGUF file.", "the folder of a checkpoint, or a GGUF file."),
    ):
        with pytest.raises(AttnError) as refused:
            find_folder(name)
        assert refused.value.message == f"{name!r} {said}" and hint in refused.value.hint


@pytest.mark.parametrize(
    "name",
    ["", ".", "../x", "a/b/c", "/etc/none", "a b", "a--b", "x/..", "-r", "a\x1b", "n" * 97, "https://a.b/c"],
)
def test_what_is_no_name_is_refused(name, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    if name == ".":
        assert find_folder(name) == "."
        return
    with pytest.raises(FileError, match="neither a folder nor the name of a model") as found:
        find_folder(name)
    assert "\x1b" not in str(found.value)
