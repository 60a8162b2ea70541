"""Inputs and parts in an object store: an S3 server of this machine, read and written by both engines."""

import gzip
import importlib.util
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.batch.folders import content, ended, write
from tests.shell import here, refused, told

NEEDED = ("moto", "s3fs", "distributed")
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def store(at, small, monkeypatch) -> Iterator[dict[str, str]]:
    """Start an S3 server with a bucket; yield the environment of those who use it."""
    if not all(map(importlib.util.find_spec, NEEDED)) and not os.environ.get("ATTN_REQUIRE_DASK"):
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
    yield env
    system.rm("texts", recursive=True)
    s3fs.S3FileSystem.clear_instance_cache()
    server.stop()


def fetched(folder: str) -> dict[str, bytes]:
    """Return what lies in a folder of the store."""
    import s3fs

    system = s3fs.S3FileSystem()
    system.invalidate_cache()
    return {path.rpartition("/")[2]: system.cat_file(path) for path in system.ls(folder, detail=False)}


def put(name: str, data: bytes) -> None:
    import s3fs

    s3fs.S3FileSystem().pipe_file(name, data)


def test_a_store_is_read_and_written_by_both_engines_with_the_same_bytes(store):
    write(1300, "a.txt")
    Path("b.txt.gz").write_bytes(gzip.compress(b"she likes coffee\n" * 400))
    for name in ("a.txt", "b.txt.gz"):
        put(f"texts/in/{name}", Path(name).read_bytes())
    assert here("batch", "a.txt", "b.txt.gz", "-o", "one/").code == 0
    for n, options in enumerate((("--workers", "1"), ("--engine", "dask", "--workers", "1"))):
        usual = ("batch", "s3://texts/in/*", "-o", f"s3://texts/out{n}/", *options)
        assert told(*usual, env=store) == "" and fetched(f"texts/out{n}") == content("one")
        again = here(*usual, env=store)
        assert again.code == 0 and "is complete: 1,700 lines in 4 parts" in again.err
    here("batch", "s3://texts/in/a.txt", "-o", "a.jsonl", env=store)
    assert Path("a.jsonl").read_text() == here("batch", "a.txt").out


def test_what_no_manifest_names_does_not_count(store):
    write(1300)
    assert here("batch", "lines.txt", "-o", "s3://texts/out/", env=store).code == 0
    whole = fetched("texts/out")
    about = ended(json.loads(whole["manifest.json"]), 0, 2)
    put("texts/out/manifest.json", json.dumps(about).encode())
    put("texts/out/part-00001.jsonl", b"cut off")
    put("texts/out/part-00002.jsonl", b"half")
    usual = ("batch", "lines.txt", "-o", "s3://texts/out/")
    got = here(*usual, env=store)
    assert got == (0, "", "attn: s3://texts/out/ already holds 512 lines in 1 part: resuming.\n")
    assert fetched("texts/out") == whole
    assert "temperature" in refused(*usual, "-t", "2", code=65, env=store)
    assert here(*usual, "-t", "2", "--force", env=store).code == 0
    put("texts/mine/notes.txt", b"keep me")
    assert refused("batch", "lines.txt", "-o", "s3://texts/mine/", code=65, env=store)
    assert fetched("texts/mine") == {"notes.txt": b"keep me"}


def test_what_cannot_be_reached_is_one_line(store):
    write(3)
    for code, args in (
        *((66, ("s3://texts/none.txt",)), (66, ("s3://texts/q*",)), (66, ("s3://nowhere/a.txt",))),
        *((74, ("lines.txt", "-o", "s3://nowhere/out/")), (2, ("lines.txt", "-o", "s3://texts/out.jsonl"))),
    ):
        refused("batch", *args, code=code, env=store)
