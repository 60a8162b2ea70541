"""A folder of parts that somebody else may have filled: what is in it is checked before a word of it is believed."""

import contextlib
import copy
import json
import os
import resource
import shutil
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from importlib.util import find_spec
from operator import getitem
from pathlib import Path
from typing import Any

import pytest

from attn_cli.batch import folder, manifest as manifests
from attn_cli.errors import CreateError, FileError, InputError
from attn_cli.io import files
from tests.batch.folders import content
from tests.shell import Ran, here

LINES, SIZE = 130, 50  # of the input, and of a part
HONEST = ("part-00000.jsonl", "part-00001.jsonl", "part-00002.jsonl")
WRITTEN: dict[str, bytes] = {}  # the honest run, which is computed once
LIMIT = 1 << 31  # bytes of memory for what a hostile file may ask for
SECONDS = 20
of_urls = pytest.mark.skipif(find_spec("fsspec") is None, reason="needs fsspec")


def _too_long(*signalled: object) -> None:
    raise AssertionError(f"It takes more than {SECONDS} seconds.")


@pytest.fixture(autouse=True)
def guarded(dask_here, monkeypatch) -> Iterator[None]:
    """Fail, rather than wait for ever or fill the memory; have parts of few lines."""
    monkeypatch.setattr(manifests, "LINES", SIZE)
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    if (taken := Path("/proc/self/statm")).exists():
        now = int(taken.read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (now + LIMIT, hard))
    before = signal.signal(signal.SIGALRM, _too_long)
    signal.alarm(SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def batch(*args: str, out: str = "out/") -> Ran:
    usual = ("-e", "random", "--dim", "2", "--fields", "summary", "--workers", "1")
    return here("batch", "lines.txt", "-o", out, *usual, *args)


@pytest.fixture
def honest(at) -> dict[str, bytes]:
    """Write a run of three parts, and return its files; a file lies beside it that nobody may change."""
    words = ["the", "cat", "sat", "on", "a", "mat"]
    Path("lines.txt").write_text("".join(" ".join(words[: 1 + n % 6]) + "\n" for n in range(LINES)))
    Path("beside").write_text("mine\n")
    if not WRITTEN:
        assert batch() == (0, "", "")
        WRITTEN.update(content())
        assert set(WRITTEN) == {"manifest.json", *HONEST}
    Path("out").mkdir(exist_ok=True)
    for name, data in WRITTEN.items():
        Path("out", name).write_bytes(data)
    return dict(WRITTEN)


def tree() -> dict[str, tuple[int, int, int]]:
    about = {path.name: path.lstat() for path in Path("out").iterdir()}
    return {name: (one.st_mode, one.st_ino, one.st_mtime_ns) for name, one in about.items()}


def is_refused(got: Ran, said: str) -> bool:
    is_one_line = (got.code, got.out, got.err.count("\n")) == (65, "", 1)
    return is_one_line and said in got.err and "--force" in got.err


def nothing_beside_has_changed() -> bool:
    return Path("beside").read_text() == "mine\n" and not Path("new").exists()


def changed(about: Any, path: Sequence[Any], value: object) -> Any:
    """Return a manifest with this value at a path in it, or without what is there."""
    made = copy.deepcopy(about)
    inner = reduce(getitem, path[:-1], made)
    if value is MISSING:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return made


def with_parts(about: Any, numbers: Sequence[int]) -> Any:
    """Return a manifest of these parts, with counts that are theirs."""
    parts = [about["parts"][n] for n in numbers]
    return about | {"parts": parts} | {key: sum(part[key] for part in parts) for key in ("lines", "refused")}


OTHER_RUN, NO_MANIFEST = "out/ holds another run: ", "is not an attn batch manifest"
ENTRY, ORDER = "entry {} of its parts is not of this input", "are not in order"
FILE_NAMES = [
    *("", ".", "..", "/etc/passwd", "../beside", "../out/part-00001.jsonl", "./part-00001.jsonl", "a/part-00001.jsonl"),
    *("part-00001.jsonl/", "part-00001.jsonl\n", "part-00001.jsonl\0", "part-00001.jsonl\x1b[31m", "part-1.jsonl"),
    *("PART-00001.JSONL", "part-00001.parquet", "part-00001.jsonl.gz", "part-000001.jsonl", "part-٠٠٠٠١.jsonl"),
    *("part-00001.jsonl ", "manifest.json", ".run", "CON", "NUL.jsonl", "x" * 5000, "\ud800"),
]  # fmt: skip
OF_KEYS = {  # more of what may stand at a key
    "file": FILE_NAMES, "refused": (51,),
    "first": (-49, 50, 52, 101, 151), "lines": (49, 51, 80, LINES - 1, LINES + 1),
    "blake2b": ("G" * 32, "A" * 32, "0" * 31, "0" * 33),
}  # fmt: skip
VALUES = json.loads('[null, true, false, 0, 1, -1, 1.0, -0.5, 1e308, "", "x", [], [[]], [{}], {}, {"a": 1}]')
VALUES += [10**30]
MISSING = object()
# One of each kind; all others are tried in the manifest alone.
WRONG = [
    *((ENTRY.format(2), ("parts", 2, "more"), 1), (ENTRY.format(2), ("parts", 2, "lines"), SIZE)),
    *(("its counts are not those", ("lines",), LINES + 1), (NO_MANIFEST, ("more",), 1)),
    *((OTHER_RUN, ("input", "bytes"), 5), (OTHER_RUN, ("run", "files", "x"), "00")),
    (OTHER_RUN, ("run", "settings"), {f"{n}" * 900: n for n in range(999)}),
    (OTHER_RUN, ("run", "\x1b[31mred\n"), 1),
]
PARTS = [
    *((ORDER, (0, 1, 1, 2)), (ORDER, (2, 1, 0)), (ORDER, (0, 2, 1)), ("names 2 of 3 parts", (0, 1))),
    *(("names 2 of 3 parts", (1, 2)), ("names 2 of 3 parts", (0, 2)), ("names 0 of 3 parts", ())),
]
TEXTS = [
    *(b"", b"{", b'{"schema": "\xff"}', b"null", b"0", b'"x"', b"[]", b"{}", b"NaN", b"[" * 1000),
    *(b"[" * 900_000, b"9" * 9000, b" " * (1 << 23), b'{"run": ' + b'{"a":' * 800 + b"1" + b"}" * 801),
    '{"schema": "attn-batch/1"}'.encode("utf-16"),
]


def wrong_manifests(like: dict[str, Any]) -> Iterator[tuple[str, bytes]]:
    yield from (("manifest.json", text) for text in TEXTS)
    made = [(said, changed(like, path, value)) for said, path, value in WRONG]
    made += [(said, with_parts(like, numbers)) for said, numbers in PARTS]
    made += [(ORDER, with_parts(like, (0, 2, 1)) | {"complete": False})]
    made += [("names 0 of 3 parts", with_parts(like, ()) | {"lines": LINES})]
    made += [(OTHER_RUN, changed(like, ("input", "bytes"), float(like["input"]["bytes"])))]
    made += [(ENTRY.format(1), changed(like, ("parts", 1, "refused"), SIZE + 1) | {"refused": SIZE + 1})]
    behind = like["parts"][1] | {"file": "part-00003.jsonl", "first": 1 + 3 * SIZE}
    made += [(ENTRY.format(3), changed(like, ("parts",), [*like["parts"], behind]))]
    yield from ((said, json.dumps(about).encode()) for said, about in made)


def test_a_manifest_that_cannot_be_right_is_refused_and_nothing_is_changed(honest):
    for n, (said, text) in enumerate(wrong_manifests(json.loads(honest["manifest.json"]))):
        signal.alarm(SECONDS)
        Path("out/manifest.json").write_bytes(text)
        before = tree()
        got = batch()
        assert is_refused(got, said) and len(got.err) < 2500 and "\x1b" not in got.err, text[:2000]
        assert tree() == before and Path("beside").read_text() == "mine\n"
        if n % 7 == 0:
            assert batch("--engine", "dask") == got
            assert batch("--force") == (0, "", "")
            assert content() == honest


def places(about: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    of = about.items() if isinstance(about, dict) else enumerate(about) if isinstance(about, list) else ()
    for key, value in of:
        yield from places(value, (*path, key))


def read(about: Any, like: Any) -> manifests.Manifest:
    text = json.dumps(about).encode()
    return manifests.read_manifest(text, "out/", like["input"], like["run"], LINES)


def test_every_value_of_every_kind_at_every_key_is_refused_or_harmless(honest):
    like = json.loads(honest["manifest.json"])
    assert read(like, like).complete
    believed = set()
    for path in places(like):
        for value in (*VALUES, *OF_KEYS.get(path[-1], ()), MISSING):
            about = changed(like, path, value)
            if json.dumps(about) == json.dumps(like):
                continue
            with contextlib.suppress(InputError):
                read(about, like)
                believed.add(f"{path[-1]} {value}")
    # What may differ: that all is there, and how long a part is, which is compared with the file itself.
    assert believed == {"complete False", "bytes 0", "bytes 1", f"bytes {10**30}"}
    assert read(changed(like, ("complete",), False), like).lines == LINES


def bound_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(path))


def link(to: str) -> Callable[[Path], None]:
    return lambda path: path.symlink_to(to)


def link_to_itself(path: Path) -> None:
    path.rename("kept")
    path.symlink_to("../kept")


KEPT = "a link to what was there"
# The last is a link to itself.
LINKS = ("../beside", "../new", "loop", "..", "/dev/zero", "/dev/full", "part-00001.jsonl")
KINDS = {f"a link to {to}": link(to) for to in LINKS}
KINDS |= {"a FIFO": os.mkfifo, "a socket": bound_socket, "a folder": Path.mkdir, KEPT: link_to_itself}
NAMES = ("manifest.json", ".run", "part-00001.jsonl", "part-00777.npz")
PLACES = {"here": ("out/",), "on a cluster": ("out/", "--engine", "dask"), "by a URL": ("file://{}/out/",)}
of_places = pytest.mark.parametrize(
    "place", [pytest.param(one, marks=[of_urls] * ("URL" in one)) for one in PLACES]
)


def at_place(place: str, *args: str) -> Ran:
    out, *engine = (arg.format(Path.cwd()) for arg in PLACES[place])
    return batch(*engine, *args, out=out)


@of_places
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_regular_file_is_refused_and_never_written_through(kind, name, place, honest):
    path = Path("out", name)
    if kind != KEPT:
        path.unlink(missing_ok=True)
    elif name not in honest:
        path.write_text("0123456789abcdef")
    KINDS[kind](path)
    before = tree()
    got = at_place(place)
    assert is_refused(got, f"/{name} is not a regular file"), got
    assert tree() == before
    forced = at_place(place, "--force")
    if kind == "a folder":
        assert (forced.code, forced.out, tree()) == (73, "", before) and "is a folder" in forced.err
    else:
        assert forced == (0, "", "") and content() == honest
    assert nothing_beside_has_changed()
    if kind == KEPT:
        assert Path("kept").read_bytes() == honest.get(name, b"0123456789abcdef")


@of_places
@pytest.mark.parametrize("name", ["manifest.json", ".run", "part-00001.jsonl"])
def test_a_file_of_three_gigabytes_is_not_read(name, place, honest):
    with Path("out", name).open("wb") as stream:
        stream.truncate(3 << 30)
    got = at_place(place)
    if name.startswith("part"):  # another file than was written: it is computed again
        assert got.code == 0 and "out/ already holds 80 lines in 2 parts: resuming." in got.err
    else:
        assert is_refused(got, f"{name} is not a file of attn batch: it has more than")
        assert at_place(place, "--force") == (0, "", "")
    assert content() == honest


@of_places
def test_a_file_with_another_name_elsewhere_is_only_read(place, honest):
    for name in honest:
        os.link(Path("out", name), f"kept-{name}")
    assert " is complete: " in at_place(place).err
    Path("out/.run").write_text("0123456789abcdef")
    os.link("out/.run", "kept-.run")
    Path("out/part-00001.jsonl").unlink()
    assert at_place(place).code == 0 and at_place(place, "--force").code == 0
    assert content() == honest
    for name, data in {**honest, ".run": b"0123456789abcdef"}.items():
        assert Path(f"kept-{name}").read_bytes() == data


@pytest.mark.parametrize("text", ["", "0123456789abcde", "0123456789ABCDEF", "0123456789abcdef0", "x" * 16])
def test_a_file_that_is_called_run_and_is_somebody_else_s_stays(text, honest):
    Path("mine").mkdir()
    for folder_of_it in ("out/", "mine/"):
        Path(folder_of_it, ".run").write_text(text)
        assert is_refused(batch(out=folder_of_it), f"{folder_of_it}.run is no")
        assert Path(folder_of_it, ".run").read_text() == text


@pytest.mark.parametrize("name", ["part-00000.jsonl", "part-00000.txt", "part-99999.parquet", "notes.txt"])
def test_files_without_a_manifest_are_somebody_else_s(name, honest):
    Path("mine").mkdir()
    Path("mine", name).write_text("mine\n")
    assert is_refused(batch(out="mine/"), "mine/ is not empty and holds no attn batch run")
    assert os.listdir("mine") == [name] and Path("mine", name).read_text() == "mine\n"
    assert batch("--force", out="mine/").code == 0
    assert Path("mine", name).exists() == (name != "part-99999.parquet")


@pytest.mark.parametrize("args", [(), ("--force",)])
@pytest.mark.parametrize("name", [*HONEST[:1], "manifest.json", "also/../part-00000.jsonl", "link", "*.*"])
def test_an_input_that_a_part_would_replace_is_refused_and_one_with_its_name_elsewhere_is_not(name, args, at):
    Path("out/also").mkdir(parents=True)
    Path("out/link").symlink_to("part-00000.jsonl")
    for one in ("out/part-00000.jsonl", "out/manifest.json", "part-00000.jsonl"):
        Path(one).write_text("the cat sat\n")
    is_url = name[0] != "*" and find_spec("fsspec") is not None
    here_or_there = ["", f"file://{Path.cwd()}/"] if is_url else [""]
    for source in here_or_there:
        for out in (*here_or_there, f"{Path.cwd()}/"):
            got = here("batch", f"{source}out/{name}", "-o", f"{out}out/", *args)
            assert got.code == 2 and "it would be replaced" in got.err, (source, out, got)
    assert {Path("out", one).read_text() for one in HONEST[:1] + NAMES[:1]} == {"the cat sat\n"}
    assert here("batch", "part-00000.jsonl", "-o", "new/", *args).code == 0


def test_unfinished_files_that_are_no_files_are_left_alone(honest):
    kinds = [f".part-0000{n}.jsonl.deadbeef.part" for n in range(3)]
    for name, make in zip(kinds, (link("../beside"), os.mkfifo, Path.mkdir), strict=True):
        make(Path("out", name))
    Path("out/part-00001.jsonl").unlink()
    assert batch().code == 0 and batch("--engine", "dask").code == 0
    assert set(os.listdir("out")) == {*honest, *kinds} and nothing_beside_has_changed()


def test_the_folder_may_be_a_link_that_its_user_made(honest):
    Path("out").rename("there")
    Path("out").symlink_to("there")
    assert "out/ is complete: 130 lines in 3 parts" in batch().err
    Path("out/part-00001.jsonl").unlink()
    assert batch().code == 0 and batch("--force").code == 0
    assert content() == honest and Path("out").is_symlink()


@pytest.mark.parametrize("make", [os.mkfifo, bound_socket, link("beside"), link("new"), link("out")])
def test_a_folder_that_is_none_is_refused(make, honest):
    shutil.rmtree("out")
    make(Path("out"))
    got = batch()
    assert (got.code, got.out, got.err.count("\n")) == (73, "", 1) and nothing_beside_has_changed()


def test_force_removes_nothing_where_it_cannot_remove_everything(honest):
    Path("out/part-00001.jsonl").unlink()
    Path("out/part-00001.jsonl").mkdir()
    before = tree()
    got = batch("--force")
    assert got.code == 73 and "part-00001.jsonl is a folder" in got.err and "Remove it yourself" in got.err
    assert tree() == before


# A stranger who is quicker than the look before


@pytest.mark.parametrize("kind", KINDS)
def test_a_part_never_takes_the_place_of_what_is_no_file(kind, at):
    Path("out").mkdir()
    Path("beside").write_text("mine\n")
    place, path = folder.LocalFolder("out"), Path("out/part-00001.jsonl")
    if kind == KEPT:
        path.write_text("kept\n")
    KINDS[kind](path)
    before = tree()
    with pytest.raises(CreateError, match="not a regular file"):
        place.put(path.name, lambda stream: stream.write(b"ours"))
    with pytest.raises(FileError, match="not a regular file"):
        place.read(path.name, 100)
    assert place.size(path.name) is None
    assert tree() == before and nothing_beside_has_changed()


def test_a_file_that_is_replaced_between_two_looks_is_not_waited_for(at, monkeypatch):
    os.mkfifo("a")
    Path("b").symlink_to("/dev/zero")
    monkeypatch.setattr(files, "is_regular", lambda path: True)  # it was when it was looked at
    for name in ("a", "b"):
        with pytest.raises(FileError, match=name), files.open_regular(name):
            pass


def test_a_link_that_comes_while_a_part_is_written_is_replaced_and_not_followed(honest):
    path = Path("out/part-00007.jsonl")

    def write(stream: Any) -> None:
        stream.write(b"ours")
        path.symlink_to("../beside")

    assert folder.LocalFolder("out").put(path.name, write)[0] == 4
    assert path.read_text() == "ours" and not path.is_symlink() and nothing_beside_has_changed()


@of_urls
def test_a_link_in_the_place_of_an_unfinished_file_of_a_url_is_not_followed(honest):
    for name in ("part-00000.jsonl.new", "manifest.json.new"):
        Path("out", name).symlink_to("../beside")
        assert is_refused(at_place("by a URL"), f"{name} is not a regular file")
        Path("out", name).unlink()
    place = folder.folder_of(f"file://{Path.cwd()}/out/")
    for name in ("part-00000.jsonl", ".run"):
        Path("out", f"{name}.new").symlink_to("../beside")
        place.put(name, lambda stream: stream.write(b"ours"))
        assert Path("out", name).read_text() == "ours"
    assert nothing_beside_has_changed()


def test_a_manifest_that_could_not_be_read_again_is_not_written(at, monkeypatch):
    monkeypatch.setattr(manifests, "MAX_MANIFEST_BYTES", 500)
    monkeypatch.setattr(manifests, "LINES", 1)
    Path("lines.txt").write_text("the cat\n" * 5)
    got = batch()
    assert got.code == 65 and "cannot name so many parts" in got.err
