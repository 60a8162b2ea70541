"""Paths with a protocol: files of this machine by file://, and an S3 server, read and written by both engines."""

import gzip
import importlib.util
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from attn_cli.batch.storage import one_line
from tests.batch.folders import content, ended, manifest, write
from tests.cli.tables import told as cases
from tests.shell import here, refused, told

LocalFileSystem = pytest.importorskip("fsspec.implementations.local").LocalFileSystem


def test_parts_of_a_url_are_those_of_a_folder_and_a_run_goes_on(at, small, monkeypatch):
    write(1300)
    local, ls = LocalFileSystem, LocalFileSystem.ls  # as where a store lists a folder's own marker
    monkeypatch.setattr(local, "ls", lambda on, at, **how: [on.info(at), *ls(on, at, **how)])
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


NO_PLACE = """
gs://texts/a.txt => 69 gs:// needs a package that is not installed. Please install gcsfs
lines.txt -o az://texts/out/ => 69 az:// needs a package that is not installed. Install adlfs
memory://a.txt => 2 memory of one process | bogus://a.txt => 2 bogus://a.txt cannot be used
lines.txt -o file:///tmp/x.jsonl => 2 Give a folder: a URL that ends in /
file:///nowhere/a.txt => 66 there is no such file | s3://texts/a.txt => 69 pip install 'attn-cli[dask]'
"""


def test_what_cannot_be_used_says_what_to_do(at, monkeypatch):
    write(3)
    for args, end in cases(NO_PLACE):
        code, said = end.split(" ", 1)
        for package in ("gcsfs", "adlfs", *["fsspec"] * (args[0][:2] == "s3")):
            monkeypatch.setitem(sys.modules, package, None)
        error = json.loads(refused("batch", *args, "-f", "jsonl", code=int(code)))["error"]
        assert said in f"{error['message']} {error['hint']}"
    errors = OSError(" of\n a  host. "), OSError(), OSError("x" * 400)
    assert [*map(one_line, errors)] == ["of a host", "OSError", "x" * 300]


@pytest.fixture
def store(at, small, monkeypatch) -> Iterator[Any]:
    """Start an S3 server with a bucket; yield what reads and writes it."""
    needed = ("moto", "s3fs", "distributed")
    if not all(map(importlib.util.find_spec, needed)) and not os.environ.get("ATTN_REQUIRE_DASK"):
        pytest.skip("needs moto[server], s3fs and the extra dask")
    import s3fs
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", 0)
    server.start()
    _, port = server.get_host_and_port()
    env = dict.fromkeys(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), "testing")
    env |= {"AWS_DEFAULT_REGION": "us-east-1", "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}"}
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    s3fs.S3FileSystem.clear_instance_cache()
    system = s3fs.S3FileSystem()
    system.mkdir("texts")
    yield system
    system.rm("texts", recursive=True)
    s3fs.S3FileSystem.clear_instance_cache()
    server.stop()


def fetched(system: Any, folder: str) -> dict[str, bytes]:
    system.invalidate_cache()
    return {path.rpartition("/")[2]: system.cat_file(path) for path in system.ls(folder, detail=False)}


@pytest.mark.filterwarnings("ignore")
def test_a_store_is_read_and_written_by_both_engines_with_the_same_bytes(store):
    write(1300, "a.txt")
    Path("b.txt.gz").write_bytes(gzip.compress(b"she likes coffee\n" * 400))
    for name in ("a.txt", "b.txt.gz"):
        store.pipe_file(f"texts/in/{name}", Path(name).read_bytes())
    assert here("batch", "a.txt", "b.txt.gz", "-o", "one/").code == 0
    for n, options in enumerate((("--workers", "1"), ("--engine", "dask", "--workers", "1"))):
        usual = ("batch", "s3://texts/in/*", "-o", f"s3://texts/out{n}/", *options)
        assert told(*usual) == "" and fetched(store, f"texts/out{n}") == content("one")
        assert "is complete: 1,700 lines in 4 parts" in here(*usual).err
    assert here("batch", "s3://texts/in/a.txt") == here("batch", "a.txt")


@pytest.mark.filterwarnings("ignore")
def test_what_no_manifest_names_does_not_count_and_what_cannot_be_reached_is_one_line(store):
    write(1300)
    assert here("batch", "lines.txt", "-o", "s3://texts/out/").code == 0
    whole = fetched(store, "texts/out")
    about = ended(json.loads(whole["manifest.json"]), 0, 2)
    store.pipe_file("texts/out/manifest.json", json.dumps(about).encode())
    store.pipe_file("texts/out/part-00001.jsonl", b"cut off")
    store.pipe_file("texts/out/part-00002.jsonl", b"half")
    usual = ("batch", "lines.txt", "-o", "s3://texts/out/")
    assert here(*usual) == (0, "", "attn: s3://texts/out/ already holds 512 lines in 1 part: resuming.\n")
    assert fetched(store, "texts/out") == whole
    assert "temperature" in refused(*usual, "-t", "2", code=65)
    assert here(*usual, "-t", "2", "--force").code == 0
    store.pipe_file("texts/mine/notes.txt", b"keep me")
    assert refused("batch", "lines.txt", "-o", "s3://texts/mine/", code=65)
    assert fetched(store, "texts/mine") == {"notes.txt": b"keep me"}

    for code, args in (
        *((66, ("s3://texts/none.txt",)), (66, ("s3://texts/q*",)), (66, ("s3://nowhere/a.txt",))),
        *((74, ("lines.txt", "-o", "s3://nowhere/out/")), (2, ("lines.txt", "-o", "s3://texts/out.jsonl"))),
    ):
        refused("batch", *args, code=code)
