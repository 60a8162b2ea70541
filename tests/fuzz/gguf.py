"""Damaged GGUF files: `python -m tests.fuzz.gguf [--cases N] [--seed S]`. Each is read, or refused in one sentence.

Headers, counts, offsets, types, metadata and strings are spoilt: bytes at random, numbers made huge or small, parts cut
out or repeated. The time of the slowest case and the growth of memory are printed; the exit code is 1 after a crash.
"""

import argparse
import resource
import struct
import sys
import tempfile
import time
import traceback
from pathlib import Path
from random import Random

from attn_cli.errors import AttnError
from attn_cli.models.checkpoints.gguf_tokenizer import gguf_tokenizer
from attn_cli.models.checkpoints.run import Checkpoint, texts
from tests.models.checkpoints import by_hand
from tests.models.checkpoints.gguf_by_hand import converted, eight_bits
from tests.models.checkpoints.test_gguf import BYTE_PAIRS, LLAMA, llama

EXTREMES = (0, 1, 2, 7, 8, 255, 1 << 16, 1 << 31, (1 << 32) - 1, 1 << 40, 1 << 63, (1 << 64) - 1)


def spoilt(data: bytes, header: int, rng: Random) -> bytes:
    """Return a file with one to four damages, nearly all of them in its header."""
    changed = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        if len(changed) < 100:
            break
        room = max(1, len(changed) - 8)
        at = rng.randrange(min(header, room) if rng.random() < 0.97 else room)
        match rng.randrange(6):
            case 0:
                changed[at] = rng.randrange(256)
            case 1:
                changed[at : at + 8] = struct.pack("<Q", rng.choice(EXTREMES))
            case 2:
                changed[at : at + 4] = struct.pack("<I", rng.choice(EXTREMES) & 0xFFFFFFFF)
            case 3:
                del changed[at : at + rng.choice((1, 4, 8, 50))]
            case 4:
                changed[at:at] = changed[at : at + rng.choice((1, 8, 40))]
            case 5:
                del changed[at : at + 1 if rng.random() < 0.8 else None]
    return bytes(changed)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.gguf", description=__doc__)
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    opened = crashes = 0
    slowest, began, rng = 0.0, time.perf_counter(), Random(asked.seed)
    with tempfile.TemporaryDirectory() as folder:
        model = by_hand.saved(Path(folder) / "model", LLAMA, llama())
        path = Path(converted(model, Path(folder) / "x.gguf", eight_bits, **BYTE_PAIRS))
        data = path.read_bytes()
        header = data.index(b"output.weight") + 60
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for _ in range(asked.cases):
            path.write_bytes(spoilt(data, header, rng))
            start = time.perf_counter()
            try:
                with Checkpoint(str(path)) as checkpoint:
                    gguf_tokenizer(checkpoint.gguf)
                    next(checkpoint.run(texts([[1, 2, 3]])).steps())
                    opened += 1
            except AttnError as error:
                crashes += "\n" in str(error)
            except Exception:
                crashes += 1
                traceback.print_exc()
            slowest = max(slowest, time.perf_counter() - start)
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory
    print(
        f"{asked.cases:,} cases in {time.perf_counter() - began:.0f} s: {opened:,} opened, {crashes:,} crashes; "
        f"slowest {1e3 * slowest:.0f} ms; memory grew by {grown / 1024:.0f} MB; seed {asked.seed}"
    )
    return 1 if crashes else 0


if __name__ == "__main__":
    sys.exit(main())
