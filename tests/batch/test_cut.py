"""An input that is cut where it lies: the parts hold the lines that a reader from the start finds."""

import gzip
import random
from hashlib import blake2b
from pathlib import Path

import pytest

import attn_cli.batch as lines_in
from attn_cli.batch import Feed, chunks_of, cut, manifest as manifests, storage as reading
from attn_cli.batch.cut import Plan, blocks_of, scan_block
from attn_cli.batch.storage import inputs_of
from attn_cli.errors import FileError, InputError
from tests.thorough import like_cases


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(cut, "BLOCK", 64)
    monkeypatch.setattr(reading, "PIECE", 16)
    monkeypatch.setattr(cut, "PIECE", 16)
    monkeypatch.setattr(manifests, "LINES", 7)


def plan_of(*names: str) -> Plan:
    files = inputs_of(names)
    return Plan(files, [scan_block(*block) for block in blocks_of(files)])


def lines_of(plan: Plan, done: frozenset[int] = frozenset()) -> dict[int, list[bytes | None]]:
    """Return the lines of each part, read as a worker does; its chunks are numbered from its first line."""
    found = {}
    for part in plan.parts(done):
        chunks = list(part.chunks())
        found[part.number] = [line for chunk in chunks for line in chunk.lines]
        assert chunks[0].first == 1 + 7 * part.number and len(found[part.number]) == part.size
    return found


def text(draw: random.Random) -> bytes:
    """Return lines as people write them: empty ones, long ones, other ends, with and without a last end."""
    ends = draw.choice([b"\n", b"\r\n", b"\r\r\n"])
    count = draw.choice([0, 1, 2, 6, 7, 8, 30])
    lines = [b"word " * draw.choice([0, 1, 1, 2, 3, 30]) for _ in range(count)]
    start = draw.choice([b"", b"", b"\xef\xbb\xbf"])
    return start + ends.join(lines) + draw.choice([b"", ends, b"\r"])


def hash_of(data: bytes) -> str:
    return blake2b(data, digest_size=16).hexdigest()


def joined(hashes: list[str]) -> str:
    return hashes[0] if len(hashes) == 1 else hash_of("".join(hashes).encode())


@pytest.mark.parametrize("seed", range(60))
@like_cases
def test_parts_hold_the_lines_of_the_files_in_order(seed, at, monkeypatch):
    draw = random.Random(seed)
    names, wanted, longest = [], [], 15 if seed % 8 else 1000
    monkeypatch.setattr(lines_in, "LONGEST_LINE", longest)
    for n in range(draw.choice([1, 1, 2, 5])):
        name, data = f"{n}.txt", text(draw)
        *ended, last = data.removeprefix(b"\xef\xbb\xbf").split(b"\n")
        lines = [*ended, last] if last else ended
        wanted += [None if len(line) > longest else line.removesuffix(b"\r") for line in lines]
        Path(name).write_bytes(gzip.compress(data, mtime=0) if draw.random() < 0.3 else data)
        names.append(name)
    plan = plan_of(*names)
    feed = Feed(inputs_of(names))
    whole = [line for chunk in chunks_of(feed.groups()) for line in chunk.lines]
    found = lines_of(plan)
    assert [line for number in sorted(found) for line in found[number]] == whole == wanted
    assert [len(found[n]) for n in sorted(found)] == [min(7, len(whole) - n) for n in range(0, len(whole), 7)]
    assert plan.lines in (None, len(whole)) and plan.count() == len(whole)
    whole = [Path(name).read_bytes() for name in names]
    about = {"bytes": sum(map(len, whole))} | ({"files": len(whole)} if len(whole) > 1 else {})
    blocks = ([data[at : at + 64] for at in range(0, len(data), 64)] for data in whole)
    assert plan.fingerprint == about | {"blake2b": joined([joined([*map(hash_of, some)]) for some in blocks])}
    done = frozenset(n for n in found if draw.random() < 0.5)
    assert lines_of(plan, done) == {n: lines for n, lines in found.items() if n not in done}


def test_the_part_of_the_bytes_that_is_read_rises_over_all_files(at):
    for name, count in (("a.txt", 30), ("b.txt", 90)):
        Path(name).write_bytes(b"seven b\n" * count)
    feed = Feed(inputs_of(["a.txt", "b.txt"]))
    with Path("b.txt").open("ab") as growing:
        growing.write(b"more\n" * 50)
    parts = [feed.done for _ in feed.groups()]
    assert parts == sorted(parts) and parts[0] < 0.1 < parts[-1] == 1


def test_of_long_lines_a_chunk_has_fewer_so_that_their_weights_fit():
    """A letter in four is a word, and 2**22 weights are those of four lines of 1,024 words."""
    lines = [b"x" * 4096] * 5 + [b"x" * 40_000] + [b"x"] * 600
    chunks = [*chunks_of([lines[:3], lines[3:]], 7)]
    assert [len(chunk.lines) for chunk in chunks] == [4, 1, 1, 512, 88]
    assert [chunk.first for chunk in chunks] == [7, 11, 12, 13, 525]


def test_patterns_name_files_in_order_and_none_is_an_error(at):
    for name in ("b1.txt", "b10.txt", "a.txt", "c.csv"):
        Path(name).write_text("x\n")
    Path("b.txt").mkdir()
    assert [file.path for file in inputs_of(["b*.txt", "a.txt"])] == ["b1.txt", "b10.txt", "a.txt"]
    Path("b[1].txt").write_text("yy\n")
    assert [file.path for file in inputs_of(["b[1].txt"])] == ["b[1].txt"]
    for name in ("q*", "none.txt", "b.txt"):
        with pytest.raises(FileError):
            inputs_of([name])


def test_a_file_that_is_no_text_or_is_packed_with_too_much_in_a_part_is_refused(at, monkeypatch):
    Path("a.txt").write_text("x\n")
    Path("u.txt").write_bytes("one two".encode("utf-16"))
    with pytest.raises(InputError, match="UTF-16"):
        plan_of("a.txt", "u.txt")
    monkeypatch.setattr(cut, "MOST_SENT", 20)
    for count in (2, 10):
        Path("a.gz").write_bytes(gzip.compress(b"some words\n" * count))
        plan = plan_of("a.gz")
        assert count > 2 or [part.size for part in plan.parts(frozenset())] == [2]
    with pytest.raises(InputError, match="too long lines for a packed file"):
        list(plan.parts(frozenset()))


def test_an_input_that_has_become_shorter_is_told_wherever_it_is_read(at):
    path = Path("a.txt")
    path.write_text("a b\n" * 20)
    plan, (file,) = plan_of("a.txt"), inputs_of(["a.txt"])
    path.write_text("a b\n" * 9)
    with pytest.raises(FileError, match="it was truncated during the run"):
        scan_block(file, 0, file.size)
    first, second, third = plan.parts(frozenset())
    assert len(next(first.chunks()).lines) == 7
    for part, left in ((second, 5), (third, 6)):
        with pytest.raises(FileError, match=f"{left} fewer lines"):
            list(part.chunks())
