"""A few faults of every command that writes; `python -m tests.faults` injects all of them."""

import os
import subprocess
import sys

import pytest

from tests.shell import ROOT, surroundings
from tests.thorough import often, takes_long

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs fork and signals")


@takes_long
def test_after_a_fault_there_is_the_old_or_the_new_and_the_right_exit_code():
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults", "--sample", str(often(4)), "--seed", "14"],
        cwd=ROOT, env=surroundings(), capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 0 wrong" in done.stdout.splitlines()[-1]
