"""How a sound file is damaged: bytes, numbers, pieces, lines, what the headers say; and where a crash happened."""

import os
import re
import resource
import struct
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

IN_MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # a folder for files
NUMBERS = (0, 1, 2, 3, 7, 8, 16, 127, 128, 255, 256, 1 << 15, (1 << 16) - 1, 1 << 24, (1 << 31) - 1, 1 << 31,
           (1 << 32) - 1, 1 << 32, 1 << 40, 1 << 48, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)  # fmt: skip
TOKENS = (b"", b"nan", b"-nan", b"inf", b"-inf", b"infinity", b"NaN", b"1e400", b"-1e400", b"1e-400", b"1e39", b"-0",
          b"+1", b"0x10", b"1_0", b"1__0", b".", b"-", b"1.", b".5", b"1e", b"1e5", b"1,5", b"\xd9\xa1", b"\xc2\xb2",
          b"\xef\xbc\x91", b"\xa0", b"\x85", b"1\xa02", b"\x1c", b"1\x1c2", b"\x0b", b"\x0c", b"\r", b"\r\n", b"\n",
          b"\n\n", b" ", b"  ", b"\t", b"\0", b"\xff", b"\xef\xbb\xbf", b"\xe2\x80\xa8", b'"', b"'", b"#", b"cat",
          b"dog", b"the", b"1", b"2", b"0", b"-1", b"9" * 30, b"1" * 400, b"0" * 50 + b"1", b"x" * 60, b"1j", b"(1)",
          b"true", b"None", b"</s>", b"\x93NUMPY", b"PK\x03\x04", b"\x80\x04", b"\x1f\x8b")  # fmt: skip
LIES = (b"0 0", b"1 1", b"12 0", b"0 4", b"-1 4", b"12 -4", b"12 4.0", b"1e1 4", b"12", b"12 4 4", b"", b"12\t4",
        b" 12 4", b"12 4 ", b"12 4\r", b"999999999999999 4", b"12 99999", b"12 100001", b"9999999999999999 1",
        b"12 999999999999999", b"1_2 4", b"+12 4", b"012 04", b"0x0c 4", b"\xef\xbb\xbf12 4", b"a b", b"12 1",
        b"11 4", b"13 4", b"12 3", b"12 5", b"24 2", b"6 8", b"nan nan", b"\xd9\xa1 4", b"\xc2\xb2 4")  # fmt: skip

ODD = tuple(map(float, "nan inf -inf 0 -0 1e-45 3e38".split()))  # noqa: SIM905

# What a kind of damage puts where: from, to, and the bytes that come in between.
Edit = tuple[int, int, bytes]
Damage = Callable[[bytes, Random, Sequence[bytes]], Edit]


def mutated(data: bytes, rng: Random, others: Sequence[bytes] = ()) -> bytes:
    """Return the data with one to five kinds of damage; `others` are what it may be spliced with."""
    for _ in range(rng.choice((1, 1, 1, 1, 2, 2, 3, 5))):
        start, end, put = rng.choice(KINDS)(data, rng, others)
        data = data[:start] + put + data[end:]
    return data


def scratched(data: bytes, rng: Random) -> bytes:
    """Return the data with one to three places of its later part overwritten: most headers still hold."""
    for _ in range(rng.randrange(1, 4)):
        width = rng.choice((1, 1, 2, 4))
        if len(data) > 2 * width:
            at = rng.randrange(len(data) // 3, len(data) - width)
            data = data[:at] + rng.choice((_number(rng, width), rng.randbytes(width))) + data[at + width :]
    return data


def _number(rng: Random, width: int) -> bytes:
    return (rng.choice(NUMBERS) & (1 << 8 * width) - 1).to_bytes(width, rng.choice(("little", "big")))


def _at(data: bytes, rng: Random) -> int:
    """Return a place in the data, every other time near its start, where the headers are."""
    end = len(data)
    return rng.randrange(min(end, 64) + 1) if rng.random() < 0.5 else rng.randrange(end + 1)


def _over(width: int, put: Callable[[Random, bytes], bytes]) -> Damage:
    def damage(data: bytes, rng: Random, _: Sequence[bytes]) -> Edit:
        at = _at(data, rng)
        return at, at + width, put(rng, data[at : at + 1] or b"\0")

    return damage


def _piece(put: Callable[[Random, bytes], bytes], moved: bool = False) -> Damage:
    """Put something that is made of a piece in its place, or somewhere else as well."""

    def damage(data: bytes, rng: Random, _: Sequence[bytes]) -> Edit:
        start = _at(data, rng)
        end = min(len(data), start + rng.choice((1, 1, 2, 4, 8, 16, 40, 100)))
        made = put(rng, data[start:end])
        return (at := _at(data, rng), at, made) if moved else (start, end, made)

    return damage


def _between(pattern: bytes, put: Callable[[Random], bytes]) -> Damage:
    """Put something in the place of what a pattern finds at or behind a random place."""

    def damage(data: bytes, rng: Random, _: Sequence[bytes]) -> Edit:
        found = re.compile(pattern).search(data, _at(data, rng))
        return (*(found.span() if found else (len(data), len(data))), put(rng))

    return damage


def _splice(data: bytes, rng: Random, others: Sequence[bytes]) -> Edit:
    other = rng.choice(others) if others else data
    return _at(data, rng), len(data), other[_at(other, rng) :]


def _lines(data: bytes, rng: Random, _: Sequence[bytes]) -> Edit:
    lines = data.split(b"\n")
    one, other = rng.randrange(len(lines)), rng.randrange(len(lines))
    lines[one], lines[other] = lines[other], rng.choice((lines[one], lines[other]))
    return 0, len(data), b"\n".join(lines)


def _lie(data: bytes, rng: Random, _: Sequence[bytes]) -> Edit:
    is_added = rng.random() < 0.3
    return 0, 0 if is_added else len(data.partition(b"\n")[0]), rng.choice(LIES) + b"\n" * is_added


_digits = _between(rb"[0-9]+", lambda rng: str(rng.choice(NUMBERS) * rng.choice((1, 1, -1))).encode())
_token = _between(rb"(?<=[ \n])[^ \n]*", lambda rng: rng.choice(TOKENS))
_flip = _over(1, lambda rng, was: bytes([was[0] ^ 1 << rng.randrange(8)]))
KINDS: tuple[Damage, ...] = (
    *(_flip, _flip, _token, _token, _token, _digits, _splice, _lines, _lie),
    _over(1, lambda rng, _: bytes([rng.choice((0, 10, 32, 255, rng.randrange(256)))])),
    *(_over(width, lambda rng, _, width=width: _number(rng, width)) for width in (1, 2, 4, 8)),  # type: ignore[misc]
    _over(4, lambda rng, _: struct.pack("<f", rng.choice(ODD))),
    lambda data, rng, _: (_at(data, rng), len(data), b""),  # cut off
    lambda data, rng, _: (0, _at(data, rng), b""),
    _piece(lambda rng, part: b""),
    _piece(lambda rng, part: part * rng.choice((2, 2, 3, 11))),
    _piece(lambda rng, part: part, moved=True),
    _piece(lambda rng, _: rng.choice((rng.choice(TOKENS), rng.randbytes(rng.randrange(1, 12)))), moved=True),
)


def place(error: BaseException) -> str:
    """Return attn's last line on the way to an error, or what it was that does not hold."""
    frames = traceback.extract_tb(error.__traceback__)
    if type(error).__name__ == "Broken":
        return f"{frames[-1].name}: {str(error)[:40]}"
    ours = [frame for frame in frames if "attn_cli" in frame.filename] or frames
    return f"{Path(ours[-1].filename).name}:{ours[-1].lineno} {type(error).__name__}"


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
