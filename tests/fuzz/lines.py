"""Which lines of a reader's modules a short campaign runs: `python -m tests.fuzz.lines READER CASES SEED`.

A process of its own, because the measuring starts before attn is imported, and is slow.
"""

import json
import subprocess
import sys
from pathlib import Path

ATTN = Path(__file__).resolve().parents[2] / "attn_cli"
Covered = dict[str, tuple[int, list[int]]]  # of each module: how many lines it has, and those that never ran


def measured(reader: str, cases: int, seed: int) -> Covered | None:
    """Return what the cases of a reader cover; None where coverage.py is missing."""
    command = [sys.executable, "-m", "tests.fuzz.lines", reader, str(cases), str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ATTN.parent)
    if done.returncode:
        return None
    return {name: (count, missed) for name, (count, missed) in json.loads(done.stdout).items()}


def share(covered: Covered, modules: tuple[str, ...]) -> float:
    """Return the share of the modules' lines that ran."""
    lines = sum(covered[name][0] for name in modules)
    return 1 - sum(len(covered[name][1]) for name in modules) / lines


def _measure(reader: str, cases: int, seed: int) -> dict[str, tuple[int, list[int]]]:
    import coverage  # only who measures needs it

    measuring = coverage.Coverage(data_file=None, include=[f"{ATTN}/vectors/*", f"{ATTN}/tensors.py"])
    measuring.start()
    from tests.fuzz.campaign import campaign

    campaign(reader, cases, seed)
    measuring.stop()
    found = {}
    for name in measuring.get_data().measured_files():
        _, lines, _, missed, _ = measuring.analysis2(name)
        found[str(Path(name).relative_to(ATTN))] = (len(lines), missed)
    return found


if __name__ == "__main__":
    print(json.dumps(_measure(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))
