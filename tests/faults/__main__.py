"""The fault campaign: `python -m tests.faults [--only NAME] [--share I/N] [--sample N --seed S]`.

Every write, fsync, rename, open, close and unlink of every command that writes fails in turn (EIO, ENOSPC, EINTR,
EDQUOT, a short count), once or from then on, and is the last thing that its process does.
"""

import argparse
import contextlib
import gzip
import os
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.faults.commands import COMMANDS, vector_lines
from tests.faults.inject import KILLS
from tests.faults.judge import baseline, faults, tried
from tests.vectors.test_download import NAME, Mirror, entry, index


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--only", default="", help="commands whose name holds this")
    parser.add_argument("--share", default="0/1", help="of the commands: 0/2 and 1/2 on two processors")
    parser.add_argument(
        "--sample", type=int, default=0, help="so many faults of each quick command, drawn by --seed"
    )
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    mine, shares = map(int, asked.share.split("/"))
    _load(bool(asked.sample))
    began = time.monotonic()
    total = wrong = kills = 0
    with tempfile.TemporaryDirectory() as folder, _mirror():
        wanted = [c for c in COMMANDS if asked.only in c.name and not (asked.sample and c.slow)]
        for command in wanted[mine::shares]:
            place = Path(folder) / "place"
            base = baseline(command, place)
            found: Counter[str] = Counter()
            count = 0
            chosen = list(faults(base))
            if asked.sample:
                draw = random.Random(f"{asked.seed} {command.name}")
                chosen = draw.sample(chosen, min(asked.sample, len(chosen)))
            for fault in chosen:
                count += 1
                kills += fault.kind in KILLS
                for complaint in tried(base, fault, place):
                    found["wrong"] += 1
                    print(f"  {command.name}: {fault}: {complaint}", flush=True)
            total += count
            wrong += found["wrong"]
            print(f"{command.name:<24}{count:>6} faults{found['wrong']:>6} wrong", flush=True)
    print(f"{total:,} faults ({kills:,} kills), {wrong:,} wrong, {time.monotonic() - began:.0f} s")
    return 1 if wrong else 0


@contextlib.contextmanager
def _mirror() -> Iterator[None]:
    """Serve a set of vectors from this machine, for the command that downloads one."""
    data = gzip.compress(vector_lines(400, 8, 0.7), mtime=0)
    with Mirror() as server:
        server.files[f"/{NAME}/{NAME}.gz"] = data
        server.lists(index(**{NAME: entry(data)}))
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        os.environ["ATTN_MIRROR"] = server.address
        try:
            yield
        finally:
            server.go_on.set()
            server.shutdown()
            thread.join()


def _load(quick: bool) -> None:
    """Load what the commands need, so that a fork has it."""
    import importlib

    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    for name in (
        "numpy",
        "typer",
        "typer.main",
        "rich.console",
        *([] if quick else ["gensim.models.word2vec"]),
    ):
        importlib.import_module(name)
    for path in sorted((Path(__file__).parents[2] / "attn_cli").rglob("*.py")):
        parts = path.relative_to(Path(__file__).parents[2]).with_suffix("").parts
        if parts[-1] not in ("__init__", "__main__"):
            importlib.import_module(".".join(parts))


if __name__ == "__main__":
    sys.exit(main())
