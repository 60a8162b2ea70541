"""The default tests as on an older processor: `python -m tests.older_processor [ARGUMENTS OF PYTEST]`.

OpenBLAS takes its kernels for Haswell, and NumPy leaves out its loops above AVX2, so that last bits come out as they do
where there is no AVX-512. Both read the environment when they are loaded, and what the tests start inherits it. Whether
it takes effect is seen in a process of its own before pytest starts. What cannot be changed here is said.
"""

import json
import os
import platform
import re
import subprocess
import sys
from typing import NamedTuple

import numpy as np
import threadpoolctl

CORE, LOOPS = "OPENBLAS_CORETYPE", "NPY_DISABLE_CPU_FEATURES"
OLDER = "Haswell"  # the first with AVX2, and without AVX-512
ABOVE_AVX2 = re.compile("AVX512.*|AVX10.*|X86_V([4-9]|[1-9][0-9]).*")  # as NumPy has named them so far
X86 = ("x86_64", "amd64")
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


def older(environ: dict[str, str], now: InUse, machine: str) -> tuple[dict[str, str], list[str]]:
    """Return the variables that make a processor look older, and what is said of them."""
    made, said = {}, []
    has_avx2 = any(name.startswith(("AVX2", "AVX512", "X86_V3", "X86_V4")) for name in now.loops)
    if environ.get(CORE):
        said.append(f"{CORE} is {environ[CORE]}, and is left as it is.")
    elif not now.kernels or machine.lower() not in X86:
        said.append(f"No OpenBLAS for x86 here ({machine}): {CORE} is not set.")
    elif not has_avx2:
        said.append(f"This processor is older than {OLDER}: {CORE} is not set.")
    else:
        made[CORE] = OLDER
    if newer := [name for name in now.loops if ABOVE_AVX2.fullmatch(name)]:
        made[LOOPS] = ",".join(filter(None, [environ.get(LOOPS), *newer]))
    else:
        said.append("NumPy has no loops above AVX2 here.")
    return made, said


def main(args: list[str]) -> int:
    """Run the tests, and return pytest's exit code; 1 where a variable has no effect."""
    made, said = older(os.environ, in_use(), platform.machine())
    print(*said, *(f"{name}={value}" for name, value in made.items()), sep="\n")
    if not made:
        print("The tests would be the same: not run again.")
        return 0
    environ = {**os.environ, **made}
    then = in_use_with(environ)
    print(f"OpenBLAS computes with {then.kernels}, NumPy with its baseline and {then.loops}.", flush=True)
    if (CORE in made and then.kernels != [OLDER]) or any(map(ABOVE_AVX2.fullmatch, then.loops)):
        print("That is not what was asked for.")
        return 1
    return subprocess.run([sys.executable, "-m", "pytest", *args], env=environ, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
