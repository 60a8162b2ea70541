"""Downloads of pretrained vectors: whole or not at all, gone on with, shared with gensim, trusting nobody.

Every server here is a loopback one with the layout of gensim-data, made to misbehave where a test says so.
"""

import contextlib
import functools
import gzip
import hashlib
import http.server
import json
import os
import random
import re
import shutil
import signal
import struct
import sys
import threading
import urllib.parse
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from attn_cli.errors import AttnError, ConfigError, FileError, UsageError
from attn_cli.vectors import catalogue as gensim_data
from attn_cli.vectors.catalogue import Package, fetch_index, folder, installed, local
from attn_cli.vectors.download import download
from attn_cli.vectors.names import listing
from tests import shell
from tests.shell import attn
from tests.thorough import takes_long

NAME = "glove-tiny-5"
DATA = random.Random(5).randbytes(600_000)
HALF = len(DATA) // 2
READER = b"from pathlib import Path\nPath(__file__).with_name('RAN').touch()\n"


def md5(data):
    return hashlib.md5(data).hexdigest()


def entry(data=DATA, **changed):
    """What gensim's index says of a model."""
    made = {"num_records": 400000, "file_size": len(data), "parameters": {"dimension": 5}, "parts": 1}
    made |= {"license": "http://opendatacommons.org/licenses/pddl/", "description": "Pre-trained, uncased."}
    made |= {"file_name": f"{NAME}.gz", "checksum": md5(data)} | changed
    return {key: value for key, value in made.items() if value is not None}


def index(**models):
    text8 = {"checksum": md5(b""), "file_name": "text8.gz", "parts": 1, "file_size": 33182058}
    return {"corpora": {"text8": text8}, "models": models or {NAME: entry()}}


class Mirror(http.server.ThreadingHTTPServer):
    """A mirror of gensim-data; `acts` says how it misbehaves when a file is asked for."""

    daemon_threads = False

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files = {f"/{NAME}/{NAME}.gz": DATA, f"/{NAME}/__init__.py": READER}
        self.acts, self.paths, self.ranges, self.agents = {}, [], [], set()  # what was asked for, and by whom
        self.go_on, self.halfway = threading.Event(), threading.Event()
        self.lists(index())

    @property
    def address(self):
        return f"http://127.0.0.1:{self.server_port}"

    def lists(self, content):
        self.files["/list.json"] = content if isinstance(content, bytes) else json.dumps(content).encode()

    def handle_error(self, request, client_address):
        pass  # those who hang up are expected


class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *args):
        pass

    def do_GET(self):
        path = urllib.parse.urlsplit(self.path).path
        self.server.paths.append(path)
        self.server.ranges += [self.headers.get("Range")] * path.endswith(".gz")
        self.server.agents.add(self.headers["User-Agent"])
        usual = send if path in self.server.files else answers(404)
        self.server.acts.get(path, usual)(self, self.server.files.get(path, b""))


def head(handler, code, reason=None, **fields):
    handler.send_response(code, reason)
    for name, value in fields.items():
        handler.send_header(name.replace("_", "-"), str(value))
    handler.end_headers()


def send(handler, data, always=None):
    """Answer as a sound server does, or from one byte on whatever the range that is asked for."""
    asked = int(handler.headers.get("Range", "bytes=0-").removeprefix("bytes=").removesuffix("-"))
    start = asked and (asked if always is None else always)
    if start >= len(data) > 0:
        head(handler, 416, Content_Range=f"bytes */{len(data)}", Content_Length=0)
        return
    where = {"Content_Range": f"bytes {start}-{len(data) - 1}/{len(data)}"} if start else {}
    head(handler, 206 if start else 200, Content_Length=len(data) - start, **where)
    handler.wfile.write(data[start:])


whole, elsewhere = (functools.partial(send, always=byte) for byte in (0, 7))


def cut(handler, data):
    """Hang up half way."""
    head(handler, 200, Content_Length=len(data))
    handler.wfile.write(data[: len(data) // 2])


def pause(handler, data):
    """Stop half way until the test lets it go on."""
    cut(handler, data)
    handler.server.halfway.set()
    handler.server.go_on.wait(60)
    handler.wfile.write(data[len(data) // 2 :])


def out_of_range(handler, data):
    return (answers(416) if handler.headers.get("Range") else send)(handler, data)


def endless(handler, data):
    head(handler, 200)
    while True:
        handler.wfile.write(bytes(1 << 16))


def chunked(handler, data):
    head(handler, 200, Transfer_Encoding="chunked")
    for piece in (*(data[at : at + 50_000] for at in range(0, len(data), 50_000)), b""):
        handler.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))


def silent(handler, data):
    handler.server.go_on.wait(60)


def announces(size):
    return lambda handler, data: head(handler, 200, Content_Length=size)


mute, promising = announces(len(DATA)), announces(2 * (1 << 20))  # which is more than the index says


def garbage(handler, data):
    handler.wfile.write(b"\x1b[31mno HTTP at all\r\n\r\n")


def answers(code, reason=None):
    return lambda handler, data: head(handler, code, reason, Content_Length=0)


def redirect(handler, data, to, body=0):
    head(handler, 302, Location=to)
    handler.wfile.write(bytes(body))


@contextlib.contextmanager
def serving():
    """Run a mirror for a while."""
    with Mirror() as server, ThreadPoolExecutor(1) as pool:
        pool.submit(server.serve_forever, 0.01)
        try:
            yield server
        finally:
            server.go_on.set()
            server.shutdown()


@pytest.fixture
def mirror(tmp_path, monkeypatch):
    """A mirror that ATTN_MIRROR names, with downloads going to a folder of the test."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "ftp_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    with serving() as server:
        monkeypatch.setenv("ATTN_MIRROR", server.address)
        monkeypatch.setenv("GENSIM_DATA_DIR", str(tmp_path / "gensim-data"))
        yield server


GZ, INIT, LIST = f"/{NAME}/{NAME}.gz", f"/{NAME}/__init__.py", "/list.json"
NOBODY = "http://127.0.0.1:1"  # listens there


def refused(name=NAME):
    """The error with which a download ends: one line, safe to print."""
    with pytest.raises(AttnError) as caught:
        download(name)
    assert (caught.value.message + caught.value.hint).isprintable()
    return caught.value


def stopped(mirror):
    """Begin a download that the server ends half way."""
    mirror.acts[GZ] = cut
    assert isinstance(refused(), FileError)
    del mirror.acts[GZ]
    assert local(NAME) is None and arrived().stat().st_size == HALF


def arrived():
    return folder() / f"{NAME}~part" / f"{NAME}.gz"


def names(path):
    return sorted(child.name for child in path.iterdir())


def python(code, **env):
    """Run Python with the mirror of this test; give its exit code and its streams."""
    return shell.python(code, NAME, env={"ATTN_MIRROR": os.environ["ATTN_MIRROR"]} | env)


@pytest.mark.parametrize("reader", [READER, None])
def test_what_was_downloaded_is_byte_equal_alone_in_its_folder_and_never_run(mirror, reader, monkeypatch):
    monkeypatch.setattr(gensim_data, "INDEX_LIMIT", len(mirror.files[LIST]))  # no less than it has
    if reader is None:  # vectors without code for gensim
        del mirror.files[INIT]
    path = download(NAME)
    assert path == folder() / NAME / f"{NAME}.gz" == local(NAME) and path.read_bytes() == DATA
    beside = {one.name: one.read_bytes() for one in path.parent.iterdir() if one != path}
    assert beside == ({"__init__.py": READER} if reader else {})
    assert names(folder()) == [NAME, "information.json"] and mirror.agents == {"attn"}
    assert (folder() / "information.json").read_bytes() == mirror.files[LIST]
    mirror.paths.clear()
    seen, said = [], []
    assert download(NAME, seen.append, said.append) == path and installed() == [NAME]
    assert (mirror.paths, seen, said) == ([], [1.0], [])
    assert not [*folder().rglob("RAN"), *folder().rglob("__pycache__")]


@takes_long
def test_gensim_finds_the_same_file_without_the_network(mirror):
    pytest.importorskip("gensim")
    path = download(NAME)
    code = "import gensim.downloader as d; print(d.load(sys.argv[1], return_path=True))"
    closed = {"https_proxy": "http://127.0.0.1:9", "http_proxy": "http://127.0.0.1:9"}
    assert python(code, **closed)[:2] == (0, f"{path}\n")


@pytest.mark.parametrize(("act", "size"), [(send, None), (chunked, len(DATA)), (endless, None)])
def test_a_model_is_as_large_as_the_index_or_the_server_says_which_one_of_them_must(mirror, act, size):
    mirror.lists(index(**{NAME: entry(file_size=size)}))
    mirror.acts[GZ] = act
    seen = []
    if act is endless:
        assert "Neither the index nor" in refused().message and names(folder()) == []
        return
    assert download(NAME, seen.append).read_bytes() == DATA
    assert seen == sorted(seen) and len(seen) > 1 and 0 <= seen[0] < 1 == seen[-1]


def test_a_proxy_and_a_mirror_that_ends_in_a_slash_are_used_and_what_came_is_on_the_disk(mirror, monkeypatch):
    mirror.files |= {f"/a/b{path}": data for path, data in mirror.files.items()}
    monkeypatch.setenv("ATTN_MIRROR", f"{mirror.address}/a/b/")
    assert download(NAME).read_bytes() == DATA
    shutil.rmtree(folder())
    (folder() / "information.json").mkdir(parents=True)  # no index can be kept
    monkeypatch.setenv("http_proxy", mirror.address)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.setenv("ATTN_MIRROR", "http://gensim-data.invalid")
    sync, synced = os.fsync, set()
    monkeypatch.setattr(os, "fsync", lambda fd: synced.add(os.fstat(fd).st_ino) or sync(fd))
    path = download(NAME)
    assert path.read_bytes() == DATA and synced >= {path.stat().st_ino, folder().stat().st_ino}


@pytest.mark.parametrize("there", [None, DATA, DATA[:1000]])
def test_a_model_that_is_there_is_checked_kept_where_it_is_right_and_else_replaced_aloud(mirror, there):
    (folder() / NAME).mkdir(parents=True)
    if there is not None:
        (folder() / NAME / f"{NAME}.gz").write_bytes(there)
        (folder() / NAME / "__init__.py").write_bytes(b"# changed")
    said = []
    if there == DATA[:1000]:  # it stays until the right one has come
        mirror.acts[GZ] = cut
        assert isinstance(refused(), FileError) and local(NAME).read_bytes() == there
        del mirror.acts[GZ]
    assert download(NAME, say=said.append) == local(NAME) and local(NAME).read_bytes() == DATA
    assert len(said) == (there == DATA[:1000]) and all("anew" in line for line in said)
    assert (folder() / NAME / "__init__.py").read_bytes() == (READER if there is None else b"# changed")
    assert names(folder()) == [NAME, "information.json"] and (there != DATA or mirror.paths == [LIST])


@pytest.mark.parametrize("kept", ["as it is", None, b"<html>", b'{"models": {}}'])
def test_offline_a_right_model_is_used_or_said_to_be_unchecked_without_an_index(mirror, monkeypatch, kept):
    path = download(NAME)
    about = folder() / "information.json"
    if kept is None:
        about.unlink()
    elif kept != "as it is":
        about.write_bytes(kept)
    monkeypatch.setenv("ATTN_MIRROR", NOBODY)
    said = []
    assert download(NAME, say=said.append) == path
    if kept == "as it is":
        path.write_bytes(b"short")
        assert said == [] and isinstance(refused(), FileError)
    else:
        assert len(said) == 1 and "checksum" in said[0] and said[0].isprintable()


def test_installed_names_models_and_neither_corpora_nor_halves_nor_other_files(mirror):
    assert installed() == []
    stopped(mirror)
    download(NAME)
    (folder() / "empty").mkdir()
    for name in ("text8", "another", ".hidden", "half~part"):
        (folder() / name).mkdir()
        (folder() / name / f"{name}.gz").touch()
    assert installed() == ["another", NAME]


def test_to_look_for_a_model_asks_no_network_and_loads_nothing_for_it(mirror):
    download(NAME)
    code = (
        "import socket\n"
        "def no(*args, **kwargs): raise SystemError('the network was asked')\n"
        "socket.socket = socket.create_connection = socket.getaddrinfo = no\n"
        "from attn_cli.vectors.catalogue import local, installed\n"
        "print(local(sys.argv[1]), local('missing'), installed())\n"
        "heavy = {'urllib.request', 'http.client', 'ssl', 'numpy', 'gensim', 'hashlib', 'tempfile', 'shutil'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    status, out, err = python(code)
    assert (status, err) == (0, "")
    # NumPy comes with the package, whose tables are made of it.
    assert out.splitlines() == [f"{folder() / NAME / NAME}.gz None ['{NAME}']", "['numpy']"]


HALF_ON, WHOLE = f"bytes={HALF}-", None
ANEW = [WHOLE, HALF_ON, WHOLE]


@pytest.mark.parametrize(
    ("act", "there", "asked"),
    [
        (send, DATA[:HALF], [WHOLE, HALF_ON]),
        (whole, DATA[:HALF], [WHOLE, HALF_ON]),  # knows nothing of ranges
        (out_of_range, DATA[:HALF], ANEW),
        (elsewhere, DATA[:HALF], ANEW),
        (send, DATA, [WHOLE]),  # it was only not yet in place
        (send, b"x" * HALF, ANEW),
        (send, b"x" * len(DATA), [WHOLE, f"bytes={len(DATA)}-", WHOLE]),
        (send, b"x" * (len(DATA) + 5), [WHOLE, f"bytes={len(DATA) + 5}-", WHOLE]),
        ("changed", DATA[:HALF], ANEW),  # another file at the server
        ("no size", DATA[:HALF], [WHOLE, HALF_ON]),
    ],
)
def test_what_was_stopped_is_gone_on_with_or_begins_anew_where_that_cannot_be(mirror, act, there, asked):
    stopped(mirror)
    arrived().write_bytes(there)
    data, seen = DATA, []
    if act == "changed":
        data = mirror.files[GZ] = DATA[::-1]
        mirror.lists(index(**{NAME: entry(data)}))
    elif act == "no size":
        mirror.lists(index(**{NAME: entry(file_size=None)}))
    else:
        mirror.acts[GZ] = act
    assert download(NAME, seen.append).read_bytes() == data
    assert mirror.ranges == asked and names(folder()) == [NAME, "information.json"]
    if there == DATA[:HALF] and act != "changed":
        assert seen == sorted(seen) and (seen[0] > 0.5) == (act in (send, "no size"))


@pytest.mark.parametrize("step", ["open", "body", "sync", "replace"])
def test_killed_at_any_step_there_is_no_file_and_the_next_call_goes_on(mirror, step):
    dying = {
        "open": "module._store = die",
        "body": "report = lambda part: part > 0.5 and die()",
        "sync": f"sync = os.fsync; os.fsync = lambda fd: (die if os.fstat(fd).st_size == {len(DATA)} else sync)(fd)",
        "replace": "os.rename = die",
    }[step]
    code = (
        "import os, signal\nfrom attn_cli.vectors import download as module\n"
        "def die(*args): os.kill(os.getpid(), signal.SIGKILL)\n"
        f"report = lambda part: None\n{dying}\nmodule.download(sys.argv[1], report)"
    )
    assert python(code).code == -signal.SIGKILL
    assert local(NAME) is None and not (folder() / NAME).exists()
    size = arrived().stat().st_size if arrived().exists() else 0
    assert (step == "open") == (size == 0) and (step == "body") == (0 < size < len(DATA))
    assert download(NAME).read_bytes() == DATA
    assert mirror.ranges == [None, *[f"bytes={size}-"] * (step == "body")]
    assert names(folder()) == [NAME, "information.json"]


def test_the_second_of_two_says_once_that_it_waits_and_uses_the_file_of_the_first(mirror, monkeypatch):
    mirror.acts[GZ] = pause
    said, looks = [], threading.Semaphore(0)  # at the lock
    monkeypatch.setattr("attn_cli.io.atomic.time.sleep", lambda seconds: looks.release())
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(download, NAME)
        assert mirror.halfway.wait(60)
        second = pool.submit(download, NAME, say=said.append)
        assert looks.acquire(timeout=60) and looks.acquire(timeout=60)
        mirror.go_on.set()
        assert first.result(60) == second.result(60) == local(NAME)
    assert local(NAME).read_bytes() == DATA and mirror.ranges == [None]
    assert said == ["Another attn is downloading: waiting for it."]


def test_wrong_content_is_deleted_aloud_also_on_a_system_without_file_locks(mirror, monkeypatch):
    monkeypatch.setitem(sys.modules, "fcntl", None)
    mirror.files[GZ] = DATA[::-1]
    error = refused()
    assert error.code == 65 and f"is {md5(DATA[::-1])}, not {md5(DATA)}" in error.message
    assert "again" in error.hint and names(folder()) == []
    mirror.files[GZ] = DATA
    assert download(NAME).read_bytes() == DATA


@pytest.mark.parametrize("path", [LIST, GZ])
def test_a_redirection_to_anything_but_http_is_not_followed(mirror, monkeypatch, path):
    monkeypatch.setenv("ftp_proxy", mirror.address)
    for to in ("file:///etc/passwd", "ftp://127.0.0.1/x", "data:text/plain,x", "gopher:x", "http://[x"):
        mirror.acts[path] = functools.partial(redirect, to=to)
        assert isinstance(refused(), FileError), to
        assert mirror.paths[-1] == path and local(NAME) is None
    mirror.acts[path] = functools.partial(redirect, to="HTTPS://127.0.0.1:1/x")
    assert "redirects" not in refused().message  # it is tried


def test_a_redirection_to_http_is_followed_with_the_range_and_its_own_page_is_not_read(mirror):
    sent = []

    def talkative(handler, data):
        redirect(handler, data, "/there.gz", body=50_000_000)
        sent.append(True)

    stopped(mirror)
    mirror.files["/there.gz"] = DATA
    mirror.acts[GZ] = talkative
    mirror.ranges.clear()
    assert download(NAME).read_bytes() == DATA
    assert not sent and mirror.ranges == [f"bytes={HALF}-"] * 2


ADDRESSES = (
    "file:///etc ftp://example.org data:,x example.org http:// https:///x http://:80 http://[ http://h:99999 "
    "http://h:x http://h:0 http://h/?q http://h/#f http://h/<x http://h/x> http://h\\x http://é "
    "http://user:secret@example.org"
)
SPACED = ["http://h/a b", 'http://h/"', "http://h/\x1b[31m", "http://h\n/x"]


@pytest.mark.parametrize("address", [*ADDRESSES.split(), *SPACED])
def test_a_mirror_that_is_no_http_address_is_a_bad_setting(mirror, monkeypatch, address):
    monkeypatch.setenv("ATTN_MIRROR", address)
    error = refused()
    assert isinstance(error, ConfigError) and error.code == 78 and "secret" not in error.message


CODES = (204, 206, 304, 400, 401, 403, 404, 407, 416, 429, 500, 503)
NO_INDEX = [b"", b"<html>", b"\xff\xfe", b"[]", b"3", b'"models"', b"null", b"{}", b'{"models": []}']
NO_INDEX += [b"[" * 100_000, b"1" * 10_000, b'{"models": null}', b'{"models": {"a": ']
FAILURES = [
    *((LIST, lambda handler, _, text=text: send(handler, text), 65, "The index from") for text in NO_INDEX),
    *((path, answers(code), 66, f"{code}") for path in (LIST, GZ) for code in CODES),
    *((path, garbage, 66, "list.json" if path == LIST else ".gz") for path in (LIST, GZ)),
    *((path, act, 66, "timed out") for path, act in ((LIST, silent), (GZ, silent), (GZ, pause))),
    *((path, endless, 65, "above the limit of 1,048,576 bytes") for path in (LIST, INIT)),
    *((GZ, endless, 65, f"{len(DATA) + (1 << 20):,}"), (GZ, promising, 65, "that it may have")),
    *((GZ, mute, 66, f"{len(DATA):,} bytes"), (GZ, cut, 66, f"{HALF:,} bytes")),
    (INIT, answers(500, "Busy."), 66, "500 Busy."),
    (LIST, functools.partial(redirect, to="/list.json"), 66, "redirect"),
    # of what a server says, 300 characters on one line
    (LIST, answers(500, "\x1b[31m\u0085" + "x" * 5000), 66, f": 500 ^[[31m {'x' * 290}."),
]


@pytest.mark.parametrize(("path", "act", "code", "told"), FAILURES)
def test_a_server_that_fails_is_named_with_the_cause(mirror, monkeypatch, path, act, code, told):
    monkeypatch.setattr(gensim_data, "INDEX_LIMIT", 1 << 20)
    monkeypatch.setattr(gensim_data, "TIMEOUT", 0.2)
    mirror.acts[path] = act
    error = refused()
    assert error.code == code and told in error.message and not error.message.endswith("..")
    assert f"127.0.0.1:{mirror.server_port}" in error.message
    if act is cut:
        assert "kept" in error.hint
    elif act in (endless, silent, promising, mute) or path == INIT:
        assert not folder().exists() or names(folder()) == []


def test_a_full_disk_is_told_before_all_is_fetched_and_only_what_is_missing_needs_room(mirror, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=5000))
    error = refused()
    assert error.code == 74 and f"{len(DATA):,} bytes are needed, 5,000 are free" in error.message
    assert mirror.paths == [LIST] and names(folder()) == []
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=len(DATA)))
    stopped(mirror)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=HALF))
    assert download(NAME).read_bytes() == DATA


def test_a_disk_that_fills_up_half_way_keeps_what_has_arrived(mirror):
    limited = (
        "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))\n"
        "from attn_cli.cli.app import main; sys.exit(main(['vectors', 'download', sys.argv[1]]))"
    )
    status, out, err = python(limited)
    assert (status, out) == (74, "") and err.startswith("attn: Cannot write") and "kept" in err
    have = arrived().read_bytes()
    assert local(NAME) is None and 0 < len(have) <= 400_000 and DATA.startswith(have)
    assert download(NAME).read_bytes() == DATA and mirror.ranges == [None, f"bytes={len(have)}-"]


@pytest.mark.parametrize(("blocked", "code"), [("", 73), (f"/{NAME}~part", 73), (f"/{NAME}", 74)])
def test_a_folder_that_cannot_be_made_or_a_place_that_is_taken_is_told(mirror, tmp_path, blocked, code):
    path = tmp_path / f"gensim-data{blocked}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    assert refused().code == code


@pytest.mark.parametrize("name", ["qqqqqq", "", "../etc", "\x1b[31m", "x" * 5000, "glove-tyni-5", "text8"])
def test_a_name_that_is_not_there_is_answered_with_near_ones_or_with_some(mirror, name):
    there = (NAME, "glove-tiny-50", "word2vec-x", "fasttext", "_abc")
    mirror.lists(index(**{name: entry() for name in there}))
    error = refused(name)
    assert isinstance(error, UsageError) and error.code == 2
    assert ("corpus" in error.message) == (name == "text8") and list(fetch_index().packages) == [*there]
    near = {"glove-tyni-5": f"Did you mean {NAME} or glove-tiny-50?", "text8": "Did you mean fasttext?"}
    assert error.hint == near.get(name, f"Try fasttext, word2vec-x or {NAME}.")


def test_the_catalogue_says_what_the_index_says_safe_and_short_and_else_none_or_nothing(mirror):
    testing = {"checksum": md5(DATA).upper(), "parameters": {"dimensions": 50}, "num_records": -1}
    hostile = "a\x1b]0;owned\x07b\n\u202ec\ud800" + "d" * 100_000
    most = entry(license="e" * 2000, num_records=1 << 40, parameters={"dimension": (1 << 40) + 1})
    models = {NAME: entry(), "hostile": entry(license=hostile), "__testing": testing, "most": most}
    mirror.lists(index(**models))
    found = fetch_index().packages
    licence = found.pop("hostile").licence
    assert licence.isprintable() and licence.startswith("a^[]0;owned^Gb <U+202E>c<U+D800>d")
    assert licence.endswith("…") and len(licence) < 3000
    assert found == {
        NAME: Package(NAME, len(DATA), 400000, 5, "http://opendatacommons.org/licenses/pddl/", md5(DATA)),
        "__testing": Package("__testing", None, None, None, "", md5(DATA)),
        "most": Package("most", len(DATA), 1 << 40, None, "e" * 2000, md5(DATA)),
    }
    mirror.lists(index(a=entry(file_size=3_600_000, num_records=1), b=entry(file_size=2_000_000)))
    rows = attn("vectors", "download", env={"ATTN_MIRROR": mirror.address}).out.splitlines()
    told = [["name", "words", "dim", "MB"], ["b", "400,000", "5", "2"], ["a", "1", "5", "4"]]
    assert [row.split()[:4] for row in rows] == told
    assert not folder().exists()


NO_NAMES = ["", ".", "..", "../x", "a/b", "/etc", ".x", "a\\b", "a\0b", "a\n", "a b", "\x1b[31m", "x" * 121]
CHANGED = [
    *({"checksum": bad} for bad in (None, 5, "", "abc", "z" * 32, md5(b"") + "\n", [md5(b"")])),
    *({"file_size": bad} for bad in (-1, 0, 1.5, "5", True, 10**30, [], 1 << 60)),
    *({"parts": bad} for bad in (0, -1, 2, 10**9, 65, "2", 1.0, True, [])),
    *({"file_name": bad} for bad in ("../x.gz", "/etc/passwd", "a\\b", ".x", "", 3, "a\0", "a\n")),
    {"parts": 2, "checksum-0": md5(b"")},
    *(None, 3, [], "x", True),
]


@pytest.mark.parametrize(
    ("name", "changed"), [*((name, {}) for name in NO_NAMES), *((NAME, one) for one in CHANGED)], ids=str
)
def test_an_entry_that_cannot_be_right_is_left_out_and_told_if_asked_for(mirror, name, changed):
    bad = entry() | changed if isinstance(changed, dict) else changed
    corpora = {} if isinstance(changed, dict) else {"corpora": bad}
    sound = "s" * 120
    mirror.lists(index(**{name: bad, sound: entry()}) | corpora)
    assert list(fetch_index().packages) == [sound]
    assert refused(name).code in (2, 65) and local(name) is None


def test_without_a_mirror_the_addresses_are_those_of_gensim(monkeypatch):
    downloader = pytest.importorskip("gensim.downloader")
    theirs = downloader.DATA_LIST_URL, downloader.DOWNLOAD_BASE_URL
    assert theirs == (gensim_data.INDEX_URL, gensim_data.FILES_URL)
    monkeypatch.delenv("GENSIM_DATA_DIR", raising=False)
    assert str(folder()) == downloader._DEFAULT_BASE_DIR


ROWS = [b"she 1 0 0 0 1", b"he 1 0 0 1 0", b"tea 0 1 1 0 0"]
RECORDS = b"".join(row.split()[0] + b" " + struct.pack("<5f", *map(float, row.split()[1:])) for row in ROWS)


@pytest.mark.parametrize("data", [b"3 5\n" + b"\n".join(ROWS), b"3 5\n" + RECORDS], ids=["text", "binary"])
def test_the_command_unpacks_and_names_what_every_command_then_takes_offline(data, mirror):
    packed = gzip.compress(data)
    mirror.files[f"/{NAME}/{NAME}.gz"] = packed
    mirror.lists(index(**{NAME: entry(packed)}))
    fetch = functools.partial(attn, "vectors", "download", NAME, env={"ATTN_MIRROR": mirror.address})
    told = fetch()
    assert (told.code, told.out) == (0, "") and f"imported {NAME}: 3 words of 5 numbers" in told.err
    assert told.err.startswith("attn: downloaded: ")
    for said in (f"attn: {NAME} is there already: ", "attn: there already: "):
        assert fetch().err.startswith(said)
        attn("vectors", "remove", NAME)
    assert fetch().code == 0
    mirror.paths.clear()
    near = attn("vectors", "nearest", "she", "-e", NAME, "--top", "1")
    assert (near.code, near.out, near.err) == (0, "he  0.500\n", "")
    assert re.search(rf"{NAME} +3 +5 ", attn("vectors", "list").out) and mirror.paths == []
    assert attn("vectors", "remove", NAME).code == 0 and listing()[1][:2] == (NAME, "downloaded")
    said = f"There is no imported name '{NAME}'. It was downloaded, and lies in {folder() / NAME}."
    assert attn("vectors", "remove", NAME) == (2, "", f"attn: {said}\n")


def test_the_command_names_the_host_that_fails(mirror):
    no_tls = mirror.address.replace("http:", "https:")
    hosts = {NOBODY: "127.0.0.1:1: Connection refused. Is there a network", no_tls: no_tls[8:]}
    for address, said in hosts.items():
        told = attn("vectors", "download", NAME, env={"ATTN_MIRROR": address})
        assert told.code == 66 and said in told.err and told.err.count("\n") == 1
