"""An input that is cut where it lies: the parts hold the lines that a reader from the start finds."""

import gzip
import random
from pathlib import Path

import pytest

from attn_cli.batch import cut, inputs
from attn_cli.batch import manifest as manifests
from attn_cli.batch.cut import Place, Plan, scan_block
from attn_cli.batch.inputs import blocks_of, fingerprint, inputs_of
from attn_cli.batch.lines import Chunks, Feed, open_feed, open_lines
from attn_cli.errors import FileError, InputError


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(inputs, "BLOCK", 64)
    monkeypatch.setattr(inputs, "PIECE", 16)
    monkeypatch.setattr(cut, "STRIDE", 3)
    monkeypatch.setattr(manifests, "LINES", 7)


def plan_of(*names: str) -> Plan:
    files = inputs_of(names)
    return Plan(files, [[scan_block(file, block) for block in blocks_of(file)] for file in files])


def lines_of(plan: Plan, done: frozenset[int] = frozenset()) -> dict[int, list[bytes | None]]:
    """Return the lines of each part, read as a worker does."""
    found = {}
    for part in plan.parts(done):
        start = part.pieces[0]
        skip = start.skip if isinstance(start, Place) else 0
        chunks = Chunks(Feed(sources(part.pieces), 1))
        chunks.skip(skip)
        lines = []
        while len(lines) < part.lines:
            lines += next(chunks).lines
        found[part.number] = lines[: part.lines]
    return found


def sources(pieces):
    for piece in pieces:
        if isinstance(piece, Place):
            with open_lines(piece.file, piece.start) as source:
                yield source
        else:
            yield piece


def text(draw: random.Random) -> bytes:
    """Return lines as people write them: empty ones, long ones, other ends, with and without a last end."""
    ends = draw.choice([b"\n", b"\r\n"])
    count = draw.choice([0, 1, 2, 6, 7, 8, 30])
    lines = [b"word " * draw.choice([0, 1, 1, 2, 3, 30]) for _ in range(count)]
    start = draw.choice([b"", b"", b"\xef\xbb\xbf"])
    return start + ends.join(lines) + draw.choice([b"", ends])


@pytest.mark.parametrize("seed", range(60))
def test_parts_hold_the_lines_of_the_files_in_order(seed, at):
    draw = random.Random(seed)
    names = []
    for n in range(draw.choice([1, 1, 2, 5])):
        name, data = f"{n}.txt", text(draw)
        Path(name).write_bytes(gzip.compress(data, mtime=0) if draw.random() < 0.3 else data)
        names.append(name)
    plan = plan_of(*names)
    with open_feed(inputs_of(names)) as feed:
        whole = [line for chunk in Chunks(feed) for line in chunk.lines]
    found = lines_of(plan)
    assert [line for number in sorted(found) for line in found[number]] == whole
    assert [len(found[n]) for n in sorted(found)] == [7] * (len(whole) // 7) + [len(whole) % 7] * bool(
        len(whole) % 7
    )
    assert plan.lines in (None, len(whole))
    assert plan.fingerprint == fingerprint(inputs_of(names))
    done = frozenset(n for n in found if draw.random() < 0.5)
    assert lines_of(plan, done) == {n: lines for n, lines in found.items() if n not in done}


def test_chunks_end_with_their_part_and_leave_out_parts_that_are_done(at):
    Path("a.txt").write_text("".join(f"{n}\n" for n in range(1, 21)))
    with open_feed(inputs_of(["a.txt"])) as feed:
        chunks = list(Chunks(feed, part=7, done=frozenset([0, 2])))
    assert [(chunk.first, len(chunk.lines), chunk.lines[0]) for chunk in chunks] == [(8, 7, b"8")]


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


def test_a_file_that_is_no_text_is_refused_wherever_it_is(at):
    Path("a.txt").write_text("x\n")
    Path("u.txt").write_bytes("one two".encode("utf-16"))
    with pytest.raises(InputError, match="UTF-16"):
        plan_of("a.txt", "u.txt")


def test_a_packed_file_with_too_much_in_a_part_says_so(at, monkeypatch):
    monkeypatch.setattr(cut, "MOST_SENT", 20)
    Path("a.gz").write_bytes(gzip.compress(b"some words\n" * 10))
    with pytest.raises(InputError, match="too long lines for a packed file"):
        list(plan_of("a.gz").parts(frozenset()))
