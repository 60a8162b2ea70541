"""A worker of a cluster uses memory again that it has freed, also where Dask has told the C library not to."""

import platform
import subprocess
import sys

import pytest

from tests.shell import surroundings

SCRIPT = """
import resource
import numpy as np
from attn_cli.batch.part_task import _keep_memory
if {keeps}:
    _keep_memory()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(200):
    np.ones(1 << 17)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(keeps):
    """Return how many pages the system had to give for two hundred arrays of a megabyte."""
    env = surroundings({"MALLOC_TRIM_THRESHOLD_": "65536"})  # as Dask's nanny sets it
    command = [sys.executable, "-c", SCRIPT.format(keeps=keeps)]
    return int(subprocess.run(command, env=env, capture_output=True, check=True).stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library has no such thresholds")
def test_memory_that_was_freed_is_used_again():
    assert faults(False) > 10_000, "without it, every array is new memory"
    assert faults(True) < 2_000
