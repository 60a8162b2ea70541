"""A name is found in the local Hugging Face cache, wherever the environment puts it; nothing is fetched."""

import pytest

from attn_cli.errors import FileError, InputError
from attn_cli.models.checkpoints.open_model import cache_folder, find_folder

REVISION = "0123456789abcdef" * 2 + "01234567"
VARIABLES = ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME")


@pytest.fixture(autouse=True)
def no_settings(monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def kept(hub, name="models--org--model", ref=REVISION, snapshots=(REVISION,)):
    for snapshot in snapshots:
        (hub / name / "snapshots" / snapshot).mkdir(parents=True)
    if ref is not None:
        (hub / name / "refs").mkdir(parents=True)
        (hub / name / "refs" / "main").write_text(ref)
    return str(hub / name / "snapshots" / REVISION)


def test_a_name_is_the_snapshot_of_main_where_the_environment_says_and_a_folder_is_itself(
    monkeypatch, tmp_path
):
    monkeypatch.setenv("HOME", str(tmp_path))
    for name, value, expected in (
        ("HOME", str(tmp_path), tmp_path / ".cache/huggingface/hub"),
        ("XDG_CACHE_HOME", str(tmp_path / "x"), tmp_path / "x/huggingface/hub"),
        ("HF_HOME", "~/h", tmp_path / "h/hub"),
        ("HF_HUB_CACHE", str(tmp_path / "c"), tmp_path / "c"),
    ):
        monkeypatch.setenv(name, value)
        assert cache_folder() == str(expected)
    assert find_folder(str(tmp_path)) == str(tmp_path)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    other = "f" * 40
    folder = kept(tmp_path, snapshots=(REVISION, other))
    assert find_folder("org/model") == folder
    folder = kept(tmp_path, "models--gpt2", ref=REVISION + "\n")
    assert find_folder("gpt2") == folder
    folder = kept(tmp_path, "models--one", ref=None)
    assert find_folder("one") == folder


def test_what_the_cache_does_not_have_is_refused_with_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    kept(tmp_path, "models--two", ref=None, snapshots=(REVISION, "f" * 40))
    kept(tmp_path, "models--gone", ref="e" * 40)
    kept(tmp_path, "models--out", ref="../../../etc")
    kept(tmp_path, "models--long", ref="a" * 5000, snapshots=("a" * 40, "b" * 40))
    for name in ("org/model", "two", "gone", "out", "long"):
        with pytest.raises(InputError, match="downloads no models: get it with `hf download") as found:
            find_folder(name)
        assert str(tmp_path) in found.value.message


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
