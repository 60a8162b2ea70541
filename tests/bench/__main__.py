"""The speed of this machine: `python -m tests.bench [table] [PART...]`; docs/bench.md says what it shows.

`table` is every figure that speed is judged by, in ten minutes, each part in processes of its own, and what computes
twice: as the machine is, and with NumPy, OpenBLAS, MKL and PyTorch all kept to AVX2, as on most laptops. What a part
needs and is not installed leaves its rows out.
"""

import argparse
import json
import os
import subprocess
import sys
from importlib import import_module
from itertools import chain
from pathlib import Path

from tests.bench.row import HEAD, ONE_BLAS_THREAD

# A module, and its function that yields rows.
PARTS = {
    "startup": "startup.rows", "core": "attention.judged", "models": "models.passes", "page": "page.rows",
    "live": "live.rows", "batch": "batch.rows", "models_on_disk": "models.on_disk",
    "vectors": "vectors.rows", "browser": "page.opened", "batch_ways": "batch.ways",
    "live_keys": "live.every_case",
}  # fmt: skip
# What the table has of them, and whether it computes enough to be measured with AVX2 alone too.
TABLE = {"core": True, "startup": False, "models": True, "page": False, "live": False, "batch": False}
QUIET = {"TRANSFORMERS_VERBOSITY": "error", "HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_HUB_OFFLINE": "1"}


def main() -> None:
    os.environ.update(ONE_BLAS_THREAD | QUIET)  # before NumPy is loaded: its threads would wait for others
    from tests.bench import attention

    names = ("table", "attention", *attention.GROUPS, *PARTS)
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(names))
    parser.add_argument("--all", action="store_true", help="attention over long texts, too")
    parser.add_argument("--pairs", type=int, help="how often each is measured, at least")
    parser.add_argument("--threads", type=int, default=1, help="of attn and PyTorch, in attention")
    parser.add_argument("--tokens", type=int, help="of attention")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure")
    asked = parser.parse_args()
    parts = asked.parts or ["startup", "attention"]
    if unknown := set(parts) - {*names}:
        parser.error(f"no such part: {', '.join(unknown)}; parts are {', '.join(names)}")
    if "table" in parts:
        table()
        return
    pairs = {"pairs": asked.pairs} if asked.pairs else {}
    places = [PARTS[name].split(".") for name in parts if name in PARTS]
    measured = [getattr(import_module(f"tests.bench.{module}"), rows)(**pairs) for module, rows in places]
    groups = [name for name in parts if name in attention.GROUPS]
    if groups or "attention" in parts:
        cases = attention.chosen(groups, asked.all, asked.tokens, asked.threads)
        measured.append(attention.rows(cases, **pairs, threads=asked.threads))
    found = []
    print("A ratio is what attn takes over what the other does, a median of pairs: below 1, attn takes less.")
    print(f"{attention.machine()}\n{HEAD}")
    for row in chain(*measured):
        found.append(row)
        print(row, flush=True)
    judged = [row.reached for row in found if row.reached is not None]
    print(f"Reached: {sum(judged)} of {len(judged)}.")
    if asked.json is not None:
        asked.json.write_text(json.dumps([row.to_dict() for row in found], indent=1), encoding="utf-8")


def table() -> None:
    from tests.older_processor import in_use, older

    narrow = older(in_use())
    others = {"ATEN_CPU_CAPABILITY": "avx2", "MKL_ENABLE_INSTRUCTIONS": "AVX2", "ONEDNN_MAX_CPU_ISA": "AVX2"}
    for part, computes in TABLE.items():
        kinds = {"": {}} | ({", kept to AVX2": narrow | others} if computes and narrow else {})
        for kind, variables in kinds.items():
            print(f"\n{part}{kind}:", flush=True)
            done = subprocess.run([sys.executable, "-m", "tests.bench", part], env=os.environ | variables)
            if done.returncode:
                print(f"{part}: not measured to its end (exit code {done.returncode})", file=sys.stderr)


if __name__ == "__main__":
    main()
