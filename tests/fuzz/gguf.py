"""Damaged GGUF files: `python -m tests.fuzz.gguf [KIND] [--cases N] [--seed S]`. Each is read, or refused in one line.

A small file of each architecture, with a tokenizer of its kind, is spoilt: headers, counts, offsets, types, metadata
and strings; bytes at random, numbers made huge or small, parts cut out or repeated. Or it is written anew with other
values and tensors. The time of the slowest case and
the growth of memory are printed; the exit code is 1 after a crash.
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
from attn_cli.models.checkpoints.gguf_models import ARCHITECTURES
from attn_cli.models.checkpoints.gguf_tokenizer import gguf_tokenizer
from attn_cli.models.checkpoints.run import Checkpoint, texts
from tests.models.checkpoints.gguf_by_hand import BYTE_PAIRS, SENTENCE_PIECES, WORD_PIECES, gguf, small

TOKENIZERS = dict.fromkeys(("llama", "gemma", "gemma2", "gemma3", "phi3"), SENTENCE_PIECES) | {
    "bert": WORD_PIECES
}
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


def changed(
    metadata: dict[str, object], tensors: dict[str, tuple[int, tuple[int, ...], bytes]], rng: Random
) -> bytes:
    """Return a sound file of a model that is not: with one to three keys or tensors taken out or changed."""
    metadata, tensors = dict(metadata), dict(tensors)
    for _ in range(rng.randint(1, 3)):
        key, name = rng.choice([*metadata]), rng.choice([*tensors])
        kind, shape, data = tensors[name]
        match rng.randrange(6):
            case 0:
                del metadata[key]
            case 1 | 2:
                metadata[key] = other(metadata[key], rng)
            case 3:
                del tensors[name]
                tensors[rng.choice((name[:-1], rng.choice([*tensors])))] = kind, shape, data
            case 4:
                tensors[name] = (
                    rng.choice((kind, 0, 1, 2)),
                    rng.choice((shape[::-1], (*shape, 1), (1, 32))),
                    data,
                )
            case 5:
                tensors[name] = tensors[rng.choice([*tensors])]
    return gguf(metadata, tensors)


def other(value: object, rng: Random) -> object:
    """Return something else in the place of a value of the metadata."""
    if isinstance(value, list) and rng.random() < 0.8:
        some = value[: rng.randrange(len(value) + 1)]
        return rng.choice(
            (some, value + value, [some[0]] * len(value) if some else [], rng.sample(value, len(value)))
        )
    if isinstance(value, (int, float)) and rng.random() < 0.8:
        numbers = (0, 1, 2, 3, 7, 64, 1 << 31, (1 << 32) - 1)
        floats = (0.0, -1.0, 1e-30, 1e30, float("nan"), float("inf"), 1.0)
        return rng.choice(numbers if isinstance(value, int) else floats)
    return rng.choice(("", "a", "llama", "\x00\x1b[31m", 3, 1.5, True, [1, 2], ["a"], [], -1.0))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.gguf", description=__doc__)
    parser.add_argument("kinds", nargs="*", metavar="KIND", default=[*ARCHITECTURES])
    parser.add_argument("--cases", type=int, default=10_000, help="of each kind")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    return 1 if sum([campaign(kind, asked.cases, asked.seed) for kind in asked.kinds]) else 0


def campaign(kind: str, cases: int, seed: int) -> int:
    """Open spoilt files of an architecture, print what came of it, and return how many crashed."""
    opened = crashes = 0
    slowest, began, rng = 0.0, time.perf_counter(), Random(seed)
    made = small(kind, **TOKENIZERS.get(kind, BYTE_PAIRS))
    data = gguf(*made)
    header = data.rindex(b"blk.1") + 60
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.gguf"
        path.write_bytes(data)
        use(path)  # the sound file opens
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for _ in range(cases):
            path.write_bytes(changed(*made, rng) if rng.random() < 0.5 else spoilt(data, header, rng))
            start = time.perf_counter()
            try:
                use(path)
                opened += 1
            except AttnError as error:
                crashes += "\n" in str(error)
            except Exception:
                crashes += 1
                traceback.print_exc()
            slowest = max(slowest, time.perf_counter() - start)
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory
    print(
        f"{kind}: {cases:,} cases in {time.perf_counter() - began:.0f} s: {opened:,} opened, {crashes:,} crashes; "
        f"slowest {1e3 * slowest:.0f} ms; memory grew by {grown / 1024:.0f} MB; seed {seed}",
        flush=True,
    )
    return crashes


def use(path: Path) -> None:
    """Rebuild a file's tokenizer, and compute its layers and next words."""
    with Checkpoint(str(path)) as checkpoint:
        gguf_tokenizer(checkpoint.gguf)
        run = checkpoint.run(texts([[1, 2, 3]]))
        for step in run.steps():
            assert step.attended.weights.shape[2:] == (3, 3)
        if run.has_head():
            run.logits(2)


if __name__ == "__main__":
    sys.exit(main())
