"""The default tests as on an older processor: `python -m tests.older_processor [ARGUMENTS OF PYTEST]`.

OpenBLAS takes its kernels for Haswell, and NumPy leaves out its loops above AVX2: last bits come out as they do where
there is no AVX-512. Whether the variables take effect is seen in a process of its own before pytest starts.
"""

import json
import os
import re
import subprocess
import sys
from typing import NamedTuple

import numpy as np
import threadpoolctl

CORE, LOOPS = "OPENBLAS_CORETYPE", "NPY_DISABLE_CPU_FEATURES"
OLDER = "Haswell"  # the first with AVX2, and without AVX-512
ABOVE_AVX2 = re.compile("AVX512.*|AVX10.*|X86_V([4-9]|[1-9][0-9]).*")  # as NumPy has named them so far
REPORT = "import json; from tests.older_processor import in_use; print(json.dumps(in_use()))"


class InUse(NamedTuple):
    """What computes in a process: OpenBLAS's kernels, one for each copy of it that is loaded, and NumPy's loops."""

    kernels: list[str]
    loops: list[str]


def in_use() -> InUse:
    blas = [one for one in threadpoolctl.threadpool_info() if one["internal_api"] == "openblas"]
    loops = np.show_config(mode="dicts").get("SIMD Extensions", {}).get("found", [])
    return InUse(sorted({str(one.get("architecture")) for one in blas}), list(loops))


def in_use_with(environ: dict[str, str]) -> InUse:
    command = [sys.executable, "-W", "error", "-c", REPORT]
    return InUse(*json.loads(subprocess.run(command, env=environ, stdout=subprocess.PIPE, check=True).stdout))


def older(now: InUse) -> dict[str, str]:
    """Return the variables that make a processor look older; none where it has nothing above AVX2."""
    newer = [name for name in now.loops if ABOVE_AVX2.fullmatch(name)]
    return {CORE: OLDER, LOOPS: ",".join(newer)} if newer else {}


def main(args: list[str]) -> int:
    """Run the tests, and return pytest's exit code; 1 where a variable has no effect."""
    if not (made := older(in_use())):
        print("NumPy has no loops above AVX2 here: the tests would be the same, and are not run again.")
        return 0
    environ = os.environ | made
    then = in_use_with(environ)
    print(f"OpenBLAS computes with {then.kernels}, NumPy with its baseline and {then.loops}.", flush=True)
    if then.kernels not in ([], [OLDER]) or older(then):
        print("That is not what was asked for.")
        return 1
    return subprocess.run([sys.executable, "-m", "pytest", *args], env=environ, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
