"""Run a command of data/making as one runs it in a copy of the repository."""

import subprocess
import sys

from tests.shell import ROOT, Ran, surroundings

COMMAND = [sys.executable, "-m", "data.making"]


def making(*args, cwd=None, env=None, timeout=120):
    """Run `python -m data.making ARGS`, and return how it ended."""
    done = subprocess.run(
        [*COMMAND, *args], capture_output=True, cwd=cwd, env=paths(env), timeout=timeout, check=False,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())


def paths(env=None):
    """Return an environment in which both attn and data.making are found."""
    made = surroundings(env)
    return made | {"PYTHONPATH": ":".join(filter(None, [(env or {}).get("PYTHONPATH"), ROOT]))}
