"""The default tests on each Python that is here, and on the oldest with the lowest versions of what attn needs.

`nox -f tests/noxfile.py` (pip install nox uv) runs all of them, `-s tests-3.13` or `-s lowest` one; what follows `--`
goes to pytest. A Python that is not found is named at the end, and is no failure; none is downloaded.
"""

import os
from pathlib import Path

import nox

ROOT = Path(__file__).parent.parent
OLDEST, *_ = PYTHONS = "3.11", "3.12", "3.13", "3.14"
PYENV = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser() / "versions"

os.environ.setdefault("PYENV_VERSION", ":".join(one.name for v in PYTHONS for one in PYENV.glob(f"{v}.*")))
nox.options.default_venv_backend = "uv"
nox.options.download_python = "never"
nox.options.error_on_missing_interpreters = False
nox.options.envdir = str(ROOT / ".nox")


@nox.session(python=PYTHONS)
def tests(session: nox.Session) -> None:
    """Run the default tests with the newest of everything."""
    run(session)


@nox.session(python=OLDEST)
def lowest(session: nox.Session) -> None:
    """Run them with the lowest versions that pyproject.toml allows."""
    run(session, "--resolution", "lowest-direct")


def run(session: nox.Session, *how: str) -> None:
    session.chdir(ROOT)
    session.install(*how, "-e", ".[test]")
    session.run("python", "-m", "pytest", *session.posargs)
