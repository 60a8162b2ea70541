"""How a sound file is damaged: bytes, numbers, pieces, lines, what the headers say; and where a crash happened."""

import struct
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

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

Damage = Callable[[bytes, Random, Sequence[bytes]], bytes]


def mutated(data: bytes, rng: Random, others: Sequence[bytes] = ()) -> bytes:
    """Return the data with one to five kinds of damage; `others` are what it may be spliced with."""
    for _ in range(rng.choice((1, 1, 1, 1, 2, 2, 3, 5))):
        data = rng.choice(KINDS)(data, rng, others)
    return data


def scratched(data: bytes, rng: Random) -> bytes:
    """Return the data with one to three places of its later part overwritten: most headers still hold."""
    changed = bytearray(data)
    for _ in range(rng.randrange(1, 4)):
        width = rng.choice((1, 1, 2, 4))
        if len(changed) > 2 * width:
            at = rng.randrange(len(changed) // 3, len(changed) - width)
            value = rng.choice((rng.choice(NUMBERS) & (1 << 8 * width) - 1, rng.getrandbits(8 * width)))
            changed[at : at + width] = value.to_bytes(width, "little")
    return bytes(changed)


def _place(data: bytes, rng: Random) -> int:
    """Return a place in the data, every other time near its start, where the headers are."""
    end = len(data)
    return rng.randrange(min(end, 64) + 1) if rng.random() < 0.5 else rng.randrange(end + 1)


def _piece(data: bytes, rng: Random) -> tuple[int, int]:
    start = _place(data, rng)
    return start, min(len(data), start + rng.choice((1, 1, 2, 4, 8, 16, 40, 100)))


def flip(data: bytes, rng: Random, _: Sequence[bytes]) -> bytes:
    if not data:
        return data
    at = min(_place(data, rng), len(data) - 1)
    return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]


def set_byte(data: bytes, rng: Random, _: Sequence[bytes]) -> bytes:
    at = _place(data, rng)
    return data[:at] + bytes([rng.choice((0, 10, 32, 255, rng.randrange(256)))]) + data[at + 1 :]


def number(data: bytes, rng: Random, _: Sequence[bytes]) -> bytes:
    at, width = _place(data, rng), rng.choice((1, 2, 4, 8))
    value = rng.choice(NUMBERS) & (1 << 8 * width) - 1
    return data[:at] + value.to_bytes(width, rng.choice(("little", "big"))) + data[at + width :]


def real(data: bytes, rng: Random, _: Sequence[bytes]) -> bytes:
    at = _place(data, rng)
    value = rng.choice((float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1e-45, 3e38))
    return data[:at] + struct.pack("<f", value) + data[at + 4 :]


def digits(data: bytes, rng: Random, _: Sequence[bytes]) -> bytes:
    at = _place(data, rng)
    while at < len(data) and not 48 <= data[at] < 58:
        at += 1
    end = at
    while end < len(data) and 48 <= data[end] < 58:
        end += 1
    return data[:at] + str(rng.choice(NUMBERS) * rng.choice((1, 1, -1))).encode() + data[end:]


def truncate(data: bytes, rng: Random, _: Sequence[bytes]) -> bytes:
    return data[: _place(data, rng)]


def behead(data: bytes, rng: Random, _: Sequence[bytes]) -> bytes:
    return data[_place(data, rng) :]


def delete(data: bytes, rng: Random, _: Sequence[bytes]) -> bytes:
    start, end = _piece(data, rng)
    return data[:start] + data[end:]


def repeat(data: bytes, rng: Random, _: Sequence[bytes]) -> bytes:
    start, end = _piece(data, rng)
    return data[:end] + data[start:end] * rng.choice((1, 1, 2, 10)) + data[end:]


def move(data: bytes, rng: Random, _: Sequence[bytes]) -> bytes:
    start, end = _piece(data, rng)
    at = _place(data, rng)
    return data[:at] + data[start:end] + data[at:]


def insert(data: bytes, rng: Random, _: Sequence[bytes]) -> bytes:
    at = _place(data, rng)
    return data[:at] + rng.choice((rng.choice(TOKENS), rng.randbytes(rng.randrange(1, 12)))) + data[at:]


def splice(data: bytes, rng: Random, others: Sequence[bytes]) -> bytes:
    other = rng.choice(others) if others else data
    return data[: _place(data, rng)] + other[_place(other, rng) :]


def token(data: bytes, rng: Random, _: Sequence[bytes]) -> bytes:
    """Put something odd in the place of what stands between two spaces or newlines."""
    at = _place(data, rng)
    start = max(data.rfind(b" ", 0, at), data.rfind(b"\n", 0, at)) + 1
    ends = [end for end in (data.find(b" ", start), data.find(b"\n", start)) if end >= 0]
    return data[:start] + rng.choice(TOKENS) + data[min(ends, default=len(data)) :]


def swap_lines(data: bytes, rng: Random, _: Sequence[bytes]) -> bytes:
    lines = data.split(b"\n")
    one, other = rng.randrange(len(lines)), rng.randrange(len(lines))
    if rng.random() < 0.5:
        lines[one] = lines[other]
    else:
        lines[one], lines[other] = lines[other], lines[one]
    return b"\n".join(lines)


def lie(data: bytes, rng: Random, others: Sequence[bytes]) -> bytes:
    """Put something else in the place of the first line."""
    _, newline, rest = data.partition(b"\n")
    if rng.random() < 0.3:
        return rng.choice(LIES) + b"\n" + data
    return rng.choice(LIES) + newline + rest


KINDS: tuple[Damage, ...] = (
    flip, flip, set_byte, number, real, digits, truncate, behead, delete, repeat, move, insert, splice,
    token, token, token, swap_lines, lie,
)  # fmt: skip


def place(error: BaseException) -> str:
    """Return attn's last line on the way to an error, or what it was that does not hold."""
    frames = traceback.extract_tb(error.__traceback__)
    if type(error).__name__ == "Broken":
        return f"{frames[-1].name}: {str(error)[:40]}"
    ours = [frame for frame in frames if "attn_cli" in frame.filename] or frames
    return f"{Path(ours[-1].filename).name}:{ours[-1].lineno} {type(error).__name__}"
