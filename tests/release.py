"""What is published: `python -m tests.release FOLDER` builds wheel and sdist into it, and checks them.

They are built twice, in other folders, at other times and under another umask, and must be the same bytes.
SOURCE_DATE_EPOCH is the environment's, else midnight of the release's day. It needs build and hatchling.
"""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).parent.parent
LARGEST = 20_000_000  # bytes of a wheel
LEFT_OUT = {".git", ".hypothesis", ".nox", ".venv", "build", "dist", "__pycache__"}


def epoch() -> str:
    """Return the second that everything in the archives is dated."""
    day = re.search(r"^date-released: (\S+)", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.M)[1]
    midnight = datetime.fromisoformat(day).replace(tzinfo=UTC)
    return os.environ.get("SOURCE_DATE_EPOCH") or str(int(midnight.timestamp()))


def files(root: Path) -> set[str]:
    """Return the project's files below a folder, without what building and testing leaves."""
    every = (path.relative_to(root) for path in root.rglob("*") if path.is_file())
    return {str(path) for path in every if not LEFT_OUT & {*path.parts} and "_cache/" not in str(path)}


def build(folder: Path, umask: int, age: int) -> list[Path]:
    """Build a copy of the project whose files are that many seconds old; return the wheel and the sdist."""
    copy, into = folder / "copy", folder / "built"
    for name in sorted(files(ROOT), reverse=umask != 0):  # a file system may list them as they were made
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, copy / name)
        then = datetime.now(UTC).timestamp() - age
        os.utime(copy / name, (then, then))
        os.chmod(copy / name, (ROOT / name).stat().st_mode & ~umask)
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(into), str(copy)]
    environ = {**os.environ, "SOURCE_DATE_EPOCH": epoch()}
    subprocess.run(command, check=True, env=environ, umask=umask, stdout=subprocess.DEVNULL)
    return [*into.glob("*.whl"), *into.glob("*.tar.gz")]


def problems(wheel: Path, sdist: Path) -> list[str]:
    said = []
    if wheel.stat().st_size >= LARGEST:
        said.append(f"{wheel.name} has {wheel.stat().st_size:,} bytes: {LARGEST:,} are too many.")
    with zipfile.ZipFile(wheel) as archive:
        if extra := [name for name in archive.namelist() if "making/" in name or name.startswith("tests/")]:
            said.append(f"{wheel.name} holds {extra[0]}, which no user needs.")
    with tarfile.open(sdist) as archive:
        held = {one.name.partition("/")[2] for one in archive.getmembers() if one.isfile()}
    if missing := files(ROOT) - held:
        said.append(f"{sdist.name} lacks {', '.join(sorted(missing)[:5])}.")
    return said


def main(into: Path) -> int:
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory(prefix="another-") as two:
        built, again = build(Path(one), 0o022, 0), build(Path(two), 0o077, 1 << 27)
        said = problems(*built)
        for first, second in zip(built, again, strict=True):
            if (first.name, first.read_bytes()) != (second.name, second.read_bytes()):
                said.append(f"{first.name} has other bytes when it is built again.")
            into.mkdir(parents=True, exist_ok=True)
            print(f"{shutil.copy(first, into)}: {first.stat().st_size:,} bytes")
    print(*said or ["Built twice: the same bytes."], sep="\n")
    return bool(said)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
