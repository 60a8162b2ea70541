"""A folder of parts that somebody else may have filled: what is in it is checked before a word of it is believed."""

import contextlib
import copy
import json
import os
import resource
import shutil
import signal
import socket
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from attn_cli.batch import cluster, folder
from attn_cli.batch import manifest as manifests
from attn_cli.errors import CreateError, FileError, InputError
from attn_cli.io import files
from tests.batch.folders import Here, content
from tests.shell import Ran, here
from tests.thorough import some

LINES, SIZE = 130, 50  # of the input, and of a part
HONEST = ("part-00000.jsonl", "part-00001.jsonl", "part-00002.jsonl")
WRITTEN: dict[str, bytes] = {}  # the honest run, which is computed once
LIMIT = 1 << 31  # bytes of memory for what a hostile file may ask for
SECONDS = 20


@pytest.fixture(autouse=True)
def guarded(monkeypatch) -> Iterator[None]:
    """Fail, rather than wait for ever or fill the memory; have parts of few lines."""
    monkeypatch.setattr(manifests, "LINES", SIZE)
    monkeypatch.setattr(cluster, "Dask", Here)
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


def _too_long(*signalled: object) -> None:
    raise AssertionError(f"It takes more than {SECONDS} seconds.")


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
    else:
        Path("out").mkdir()
        for name, data in WRITTEN.items():
            Path("out", name).write_bytes(data)
    return dict(WRITTEN)


def tree() -> dict[str, tuple[int, int, int]]:
    """Return what lies in the folder, without opening any of it."""
    about = {path.name: path.lstat() for path in Path("out").iterdir()}
    return {name: (one.st_mode, one.st_ino, one.st_mtime_ns) for name, one in about.items()}


def is_refused(got: Ran, said: str) -> bool:
    return (
        (got.code, got.out, got.err.count("\n")) == (65, "", 1) and said in got.err and "--force" in got.err
    )


# What the manifest says

Change = Callable[[dict[str, Any]], object]


def of_part(n: int, **values: object) -> Change:
    return lambda about: about["parts"][n].update(values)


def of_top(**values: object) -> Change:
    return lambda about: about.update(values)


def parts_of(*numbers: int, **values: object) -> Change:
    """Name these parts, with counts that are those of the parts."""

    def change(about: dict[str, Any]) -> None:
        about["parts"] = [dict(about["parts"][n]) for n in numbers]
        for key in ("lines", "refused"):
            about[key] = sum(part[key] for part in about["parts"])
        about.update(values)

    return change


OTHER_RUN, NO_MANIFEST = "out/ holds another run: ", "is not an attn batch manifest"
ENTRY, ORDER = "entry {} of its parts is not of this input", "are not in order"
COUNTS = "its counts are not those"
FILE_NAMES = [
    *("", ".", "..", "/etc/passwd", "../beside", "../out/part-00001.jsonl", "./part-00001.jsonl", "a/part-00001.jsonl"),
    *("part-00001.jsonl/", "part-00001.jsonl\n", "part-00001.jsonl\0", "part-00001.jsonl\x1b[31m", "part-1.jsonl"),
    *("PART-00001.JSONL", "part-00001.parquet", "part-00001.jsonl.gz", "part-000001.jsonl", "part-٠٠٠٠١.jsonl"),
    *("part-00001.jsonl ", "manifest.json", ".run", "CON", "NUL.jsonl", "x" * 5000, "\ud800"),
]  # fmt: skip
OF_KEYS = {  # more of what may stand at a key
    "file": FILE_NAMES,
    "first": (-49, 50, 52, 101, 151),
    "lines": (49, 51, 80, LINES - 1, LINES + 1),
    "refused": (51,),
    "blake2b": ("", "00", "G" * 32, "A" * 32, "0" * 31, "0" * 33),
}
WRONG: dict[str, tuple[str, Change]] = {  # one of each kind; all others are tried in the manifest alone
    **{f"a part in {name[:30]!r}": (ENTRY.format(1), of_part(1, file=name)) for name in FILE_NAMES[:8]},
    "a part of a line less": (ENTRY.format(1), of_part(1, lines=49)),
    "another key in a part": (ENTRY.format(2), of_part(2, more=1)),
    "a last part that is full": (ENTRY.format(2), of_part(2, lines=SIZE)),
    "a part behind the last": (ENTRY.format(3), lambda about: about["parts"].append(
        dict(about["parts"][1], file="part-00003.jsonl", first=1 + 3 * SIZE))),
    "a part twice": (ORDER, parts_of(0, 1, 1, 2)),
    "the order turned round": (ORDER, parts_of(2, 1, 0)),
    "another order": (ORDER, parts_of(0, 2, 1, complete=False)),
    "complete without its last part": ("names 2 of 3 parts", parts_of(0, 1)),
    "complete without its first part": ("names 2 of 3 parts", parts_of(1, 2)),
    "complete with a gap": ("names 2 of 3 parts", parts_of(0, 2)),
    "complete with nothing": ("names 0 of 3 parts", parts_of()),
    "complete with nothing, and a count": ("names 0 of 3 parts", parts_of(lines=LINES)),
    "a line too many in all": (COUNTS, of_top(lines=LINES + 1)),
    "a line refused in all": (COUNTS, of_top(refused=1)),
    "another schema": (NO_MANIFEST, of_top(schema="attn-batch/2")),
    "another key": (NO_MANIFEST, of_top(more=1)),
    "another input": (OTHER_RUN, lambda about: about["input"].update(bytes=5)),
    "an input of a float": (OTHER_RUN, lambda about: about["input"].update(bytes=float(about["input"]["bytes"]))),
    "more of the input": (OTHER_RUN, lambda about: about["input"].update(files=1)),
    "another version": (OTHER_RUN, lambda about: about["run"].update(attn="0.0")),
    "other settings": (OTHER_RUN, lambda about: about["run"]["settings"].update(dim=3)),
    "settings that are a list": (OTHER_RUN, lambda about: about["run"].update(settings=[])),
    "files that are a list": (OTHER_RUN, lambda about: about["run"].update(files=[])),
    "a file too many": (OTHER_RUN, lambda about: about["run"]["files"].update(x="00")),
    "a thousand other settings": (OTHER_RUN, lambda about: about["run"].update({f"{n}" * 900: n for n in range(999)})),
    "settings that a terminal would obey": (OTHER_RUN, lambda about: about["run"].update({"\x1b[31mred\n": 1})),
}  # fmt: skip
TEXTS = {
    "nothing": b"",
    "no JSON": b"{",
    "not UTF-8": b'{"schema": "\xff"}',
    "UTF-16": '{"schema": "attn-batch/1"}'.encode("utf-16"),
    **{
        f"only {text}": text.encode()
        for text in ("null", "true", "0", "-1.5", '"x"', "[]", "{}", "NaN", "[{}]")
    },
    "a thousand lists": b"[" * 1000,
    "very many lists": b"[" * 900_000,
    "a number of many digits": b"9" * 9000,
    "a deep run": b'{"run": ' + b'{"a":' * 800 + b"1" + b"}" * 800 + b"}",
    "very much": b" " * (1 << 23),
}


FORCED = {*some([*WRONG, *TEXTS])}  # one way leads over all of them


@pytest.mark.parametrize("case", [*WRONG, *TEXTS])
def test_a_manifest_that_cannot_be_right_is_refused_and_nothing_is_changed(case, honest):
    said, change = WRONG.get(case, ("manifest.json", None))
    about = json.loads(honest["manifest.json"])
    if change is not None:
        change(about)
    Path("out/manifest.json").write_bytes(TEXTS.get(case, json.dumps(about).encode()))
    before = tree()
    got = batch()
    assert is_refused(got, said) and len(got.err) < 2500 and "\x1b" not in got.err
    assert tree() == before and Path("beside").read_text() == "mine\n"
    if case in FORCED:
        assert batch("--engine", "dask") == got
        assert batch("--force") == (0, "", "")
        assert content() == honest


VALUES = json.loads('[null, true, false, 0, 1, -1, 1.0, -0.5, 1e308, "", "x", [], [[]], [{}], {}, {"a": 1}]')
VALUES += [10**30]
MISSING = object()


def places(about: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every value in a manifest."""
    if path:
        yield path
    of = about.items() if isinstance(about, dict) else enumerate(about) if isinstance(about, list) else ()
    for key, value in of:
        yield from places(value, (*path, key))


def changed(about: Any, path: tuple[Any, ...], value: object) -> Any:
    made = copy.deepcopy(about)
    inner = made
    for key in path[:-1]:
        inner = inner[key]
    if value is MISSING:
        del inner[path[-1]]
    else:
        inner[path[-1]] = copy.deepcopy(value)
    return made


def read(about: Any, like: Any) -> manifests.Manifest:
    text = json.dumps(about).encode()
    return manifests.read_manifest(text, "out/", like["input"], like["run"], LINES)


def check(found: manifests.Manifest) -> None:
    """Compare what was believed with what is so: every part is the input's, and complete is complete."""
    for number, part in found.parts.items():
        assert (part.number, part.file, part.first) == (number, HONEST[number], 1 + number * SIZE)
        assert part.lines == min(SIZE, LINES - number * SIZE) and 0 <= part.refused <= part.lines
        assert type(part.bytes) is type(part.refused) is int and part.bytes >= 0
        assert len(part.blake2b) == 32 and set(part.blake2b) <= set("0123456789abcdef")
    assert list(found.parts) == sorted(found.parts)
    assert not found.complete or len(found.parts) == len(HONEST)


def test_every_value_of_every_kind_at_every_key_is_refused_or_harmless(honest):
    like = json.loads(honest["manifest.json"])
    assert read(like, like).complete
    believed = []
    for path in places(like):
        for value in (*VALUES, *OF_KEYS.get(path[-1], ()), MISSING):
            about = changed(like, path, value)
            if json.dumps(about) == json.dumps(like):
                continue
            with contextlib.suppress(InputError):
                check(read(about, like))
                believed.append((path, value))
    # What may differ: that all is there, and how long a part is, which is compared with the file itself.
    assert {path[-1] for path, _ in believed} <= {"complete", "bytes"}
    assert believed.count((("complete",), False)) == 1
    assert read(changed(like, ("complete",), False), like).lines == LINES


# What lies in the folder


def bound_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(path))


def link(to: str) -> Callable[[Path], None]:
    return lambda path: path.symlink_to(to)


def link_to_itself(path: Path) -> None:
    path.rename("kept")
    path.symlink_to("../kept")


def sparse(path: Path) -> None:
    with path.open("wb") as stream:
        stream.truncate(3 << 30)


KEPT = "a link to what was there"
KINDS: dict[str, Callable[[Path], None]] = {
    "a FIFO": os.mkfifo,
    "a socket": bound_socket,
    "a folder": Path.mkdir,
    "a link to a file": link("../beside"),
    KEPT: link_to_itself,
    "a link to nothing": link("../new"),
    "a link to itself": link("loop"),
    "a link to a folder": link(".."),
    "a link to /dev/zero": link("/dev/zero"),
    "a link to /dev/full": link("/dev/full"),
}
NAMES = ("manifest.json", ".run", "part-00001.jsonl", "part-00777.npz")
PLACES = {"here": ("out/",), "on a cluster": ("out/", "--engine", "dask"), "by a URL": ("file://{}/out/",)}


def at_place(place: str, *args: str) -> Ran:
    out, *engine = (arg.format(Path.cwd()) for arg in PLACES[place])
    return batch(*engine, *args, out=out)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_regular_file_is_refused_and_never_written_through(kind, name, place, honest):
    if place == "by a URL" and find_spec("fsspec") is None:
        pytest.skip("needs fsspec")
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
        assert forced.code in (73, 74) and forced.err.count("\n") == 1
    else:
        assert forced == (0, "", "") and content() == honest
    assert Path("beside").read_text() == "mine\n" and not Path("new").exists()
    if kind == KEPT:
        assert Path("kept").read_bytes() == honest.get(name, b"0123456789abcdef")


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", ["manifest.json", ".run", "part-00001.jsonl"])
def test_a_file_of_three_gigabytes_is_not_read(name, place, honest):
    sparse(Path("out", name))
    got = at_place(place)
    if name.startswith("part"):  # another file than was written: it is computed again
        assert got.code == 0 and "out/ already holds 80 lines in 2 parts: resuming." in got.err
    else:
        assert is_refused(got, f"{name} is not a file of attn batch: it has more than")
        assert at_place(place, "--force") == (0, "", "")
    assert content() == honest


@pytest.mark.parametrize("place", PLACES)
def test_a_file_with_another_name_elsewhere_is_only_read(place, honest):
    for name in honest:
        os.link(Path("out", name), f"kept-{name}")
    assert " is complete: " in at_place(place).err
    Path("out/.run").write_text("0123456789abcdef")
    os.link("out/.run", "kept-.run")
    Path("out/part-00001.jsonl").unlink()
    assert at_place(place).code == 0 and at_place(place, "--force").code == 0
    assert content() == honest
    for name in honest:
        assert Path(f"kept-{name}").read_bytes() == honest[name]
    assert Path("kept-.run").read_text() == "0123456789abcdef"


OTHERS = ["", "0123456789abcde", "0123456789ABCDEF", "0123456789abcdef0", "x" * 16, "mine"]


@pytest.mark.parametrize("text", OTHERS)
def test_a_file_that_is_called_run_and_is_somebody_else_s_stays(text, honest):
    Path("out/.run").write_text(text)
    assert is_refused(batch(), "out/.run is no")
    Path("mine").mkdir()
    Path("mine/.run").write_text(text)
    assert is_refused(batch(out="mine/"), "mine/.run is no")
    assert Path("out/.run").read_text() == Path("mine/.run").read_text() == text


@pytest.mark.parametrize("name", ["part-00000.jsonl", "part-00000.txt", "part-99999.parquet", "notes.txt"])
def test_files_without_a_manifest_are_somebody_else_s(name, honest):
    Path("mine").mkdir()
    Path("mine", name).write_text("mine\n")
    assert is_refused(batch(out="mine/"), "mine/ is not empty and holds no attn batch run")
    assert os.listdir("mine") == [name] and Path("mine", name).read_text() == "mine\n"
    assert batch("--force", out="mine/").code == 0
    assert Path("mine/part-00000.txt").exists() == (name == "part-00000.txt")


@pytest.mark.parametrize("args", [(), ("--force",)])
@pytest.mark.parametrize(
    "name", ["part-00000.jsonl", "manifest.json", "also/../part-00000.jsonl", "link", "*.*"]
)
def test_an_input_that_a_part_would_replace_is_refused(name, args, at):
    Path("out/also").mkdir(parents=True)
    Path("out/link").symlink_to("part-00000.jsonl")
    Path("out/manifest.json").write_text("the cat sat\n")
    Path("out/part-00000.jsonl").write_text("the cat sat\n")
    is_url = name[0] != "*" and find_spec("fsspec") is not None
    here_or_there = ["", f"file://{Path.cwd()}/"] if is_url else [""]
    for source in here_or_there:
        for out in (*here_or_there, f"{Path.cwd()}/"):
            got = here("batch", f"{source}out/{name}", "-o", f"{out}out/", *args)
            assert got.code == 2 and "it would be replaced" in got.err, (source, out, got)
    assert (
        Path("out/part-00000.jsonl").read_text() == Path("out/manifest.json").read_text() == "the cat sat\n"
    )


def test_unfinished_files_that_are_no_files_are_left_alone(honest):
    kinds = {
        ".part-00001.jsonl.deadbeef.part": link("../beside"),
        ".part-00001.jsonl.deadbeee.part": os.mkfifo,
        ".manifest.json.deadbeef.part": Path.mkdir,
        ".part-00000.jsonl.deadbeef.part": link("/dev/zero"),
    }
    for name, make in kinds.items():
        make(Path("out", name))
    Path("out/part-00001.jsonl").unlink()
    assert batch().code == 0 and batch("--engine", "dask").code == 0
    assert set(os.listdir("out")) == {*honest, *kinds} and Path("beside").read_text() == "mine\n"


# The folder itself


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
    assert (got.code, got.out, got.err.count("\n")) == (73, "", 1)
    assert Path("beside").read_text() == "mine\n" and not Path("new").exists()


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
    place = folder.LocalFolder("out")
    if kind == KEPT:
        Path("out/part-00000.jsonl").write_text("kept\n")
    KINDS[kind](Path("out/part-00000.jsonl"))
    before = tree()
    with pytest.raises(CreateError, match="not a regular file"):
        place.put("part-00000.jsonl", lambda stream: stream.write(b"ours"))
    with pytest.raises(FileError, match="not a regular file"):
        place.read("part-00000.jsonl", 100)
    assert place.size("part-00000.jsonl") is None
    assert tree() == before and Path("beside").read_text() == "mine\n"


def test_a_file_that_is_replaced_between_two_looks_is_not_waited_for(at, monkeypatch):
    os.mkfifo("a")
    Path("b").symlink_to("/dev/zero")
    monkeypatch.setattr(files, "is_regular", lambda path: True)  # it was when it was looked at
    for name in ("a", "b"):
        with pytest.raises(FileError, match=name), files.open_regular(name):
            pass


def test_a_link_that_comes_while_a_part_is_written_is_replaced_and_not_followed(at):
    Path("out").mkdir()
    Path("beside").write_text("mine\n")
    place = folder.LocalFolder("out")

    def write(stream: Any) -> None:
        stream.write(b"ours")
        Path("out/part-00000.jsonl").symlink_to("../beside")

    assert place.put("part-00000.jsonl", write)[0] == 4
    assert Path("out/part-00000.jsonl").read_text() == "ours"
    assert not Path("out/part-00000.jsonl").is_symlink()
    assert Path("beside").read_text() == "mine\n"


@pytest.mark.skipif(find_spec("fsspec") is None, reason="needs fsspec")
def test_a_link_in_the_place_of_an_unfinished_file_of_a_url_is_not_followed(honest):
    Path("beside.new").write_text("mine\n")
    for name in ("part-00000.jsonl.new", "manifest.json.new"):
        Path("out", name).symlink_to("../beside.new")
        assert is_refused(at_place("by a URL"), f"{name} is not a regular file")
        Path("out", name).unlink()
    place = folder.folder_of(f"file://{Path.cwd()}/out/")
    for name in ("part-00000.jsonl", ".run"):
        Path("out", f"{name}.new").symlink_to("../beside.new")
        place.put(name, lambda stream: stream.write(b"ours"))
        assert Path("out", name).read_text() == "ours"
    assert Path("beside.new").read_text() == "mine\n"


def test_a_manifest_that_could_not_be_read_again_is_not_written(at, monkeypatch):
    monkeypatch.setattr(manifests, "MAX_MANIFEST_BYTES", 500)
    monkeypatch.setattr(manifests, "LINES", 1)
    Path("lines.txt").write_text("the cat\n" * 5)
    got = batch()
    assert got.code == 65 and "cannot name so many parts" in got.err
