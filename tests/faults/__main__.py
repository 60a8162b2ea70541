"""The fault campaign: `python -m tests.faults [--only NAME] [--sample N --seed S]`.

Every write, fsync, rename, open, close and unlink of every command that writes fails in turn (EIO, ENOSPC, EINTR,
EDQUOT, EACCES, a short count), once or from then on, and is the last thing that its process does.
"""

import importlib
import os
import random
import sys
import tempfile
from pathlib import Path

import typer

from tests.faults.commands import COMMANDS, INPUTS
from tests.faults.judge import baseline, faults, tried
from tests.vectors.test_download import NAME, entry, index, serving


def main(only: str = "", sample: int = 0, seed: int = 0) -> None:
    """Try commands whose name holds a word, all faults or a sample of those of each quick one."""
    for module in ("tests.loaded", *([] if sample else ["gensim.models.word2vec"])):
        importlib.import_module(module)
    total, wrong, data = 0, 0, INPUTS["new.txt.gz"]
    with tempfile.TemporaryDirectory() as folder, serving() as mirror:  # for the command that downloads
        mirror.files[f"/{NAME}/{NAME}.gz"] = data
        mirror.lists(index(**{NAME: entry(data)}))
        os.environ["ATTN_MIRROR"] = mirror.address
        place = Path(folder) / "place"
        for command in [c for c in COMMANDS if only in c.name and not (sample and c.slow)]:
            base = baseline(command, place)
            chosen = list(faults(base))
            if sample:
                chosen = random.Random(f"{seed} {command.name}").sample(chosen, min(sample, len(chosen)))
            found = [f"{fault}: {complaint}" for fault in chosen for complaint in tried(base, fault, place)]
            print(*(f"  {command.name}: {complaint}\n" for complaint in found), sep="", end="")
            print(f"{command.name:<24}{len(chosen):>6} faults{len(found):>6} wrong", flush=True)
            total += len(chosen)
            wrong += len(found)
    print(f"{total:,} faults, {wrong:,} wrong")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    typer.run(main)
