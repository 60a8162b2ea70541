"""Paths with a protocol: files of this machine by file://, whose parts are put beside their place and renamed."""

import json
import sys
from pathlib import Path

import pytest

from attn_cli.batch.storage import one_line
from tests.batch.folders import content, ended, manifest, write
from tests.shell import here, refused

pytest.importorskip("fsspec")


def test_parts_of_a_url_are_those_of_a_folder_and_a_run_goes_on(at, small):
    write(1300)
    where = f"file://{Path.cwd()}"
    Path("lib.txt").mkdir()  # which a pattern leaves out
    assert here("batch", "lines.txt", "-o", "one/").code == 0
    assert here("batch", f"{where}/li*.txt", "-o", f"{where}/many/").code == 0
    assert content("one") == content("many")
    about = ended(manifest("many"), 1)
    Path("many/manifest.json").unlink()
    Path("many/manifest.json.new").write_text(json.dumps(about))  # ended between two renamings
    got = here("batch", "lines.txt", "-o", f"{where}/many/")
    assert got.code == 0 and "already holds 788 lines in 2 parts: resuming." in got.err
    assert content("one") == content("many")


NEEDS = "needs a package that is not installed. "


@pytest.mark.parametrize(
    ("code", "args", "said"),
    [
        (69, ("gs://texts/a.txt",), f"gs:// {NEEDS}Please install gcsfs"),
        (69, ("lines.txt", "-o", "az://texts/out/"), f"az:// {NEEDS}Install adlfs"),
        (2, ("memory://a.txt",), "memory of one process"),
        (2, ("bogus://a.txt",), "bogus://a.txt cannot be used"),
        (2, ("lines.txt", "-o", "file:///tmp/x.jsonl"), "Give a folder: a URL that ends in /"),
        (66, ("file:///nowhere/a.txt",), "there is no such file"),
        (69, ("s3://texts/a.txt",), "pip install 'attn-cli[dask]'"),  # without fsspec itself
    ],
)
def test_what_cannot_be_used_says_what_to_do(code, args, said, at, monkeypatch):
    write(3)
    for package in ("gcsfs", "adlfs", *["fsspec"] * (args[0][:2] == "s3")):
        monkeypatch.setitem(sys.modules, package, None)
    error = json.loads(refused("batch", *args, "-f", "jsonl", code=code))["error"]
    assert said in f"{error['message']} {error['hint']}"
    errors = OSError(" of\n a  host. "), OSError(), OSError("x" * 400)
    assert [*map(one_line, errors)] == ["of a host", "OSError", "x" * 300]
