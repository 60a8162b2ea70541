"""The documentation as a site, built strictly by MkDocs: `python -m tests.site [FOLDER]` (the extra `site`).

The exit code is 1 where a link leads nowhere, or a page would load anything from another server.
"""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).parent.parent
CONFIG = ROOT / "docs" / "site" / "mkdocs.yml"
LINK = re.compile(r'<a\b[^>]*?\shref="([^"]*)"')
LOADED = re.compile(r'<(?:(?:img|script|iframe)[^>]*?\ssrc|link[^>]*?\shref|source[^>]*?\ssrcset)="([^"]*)"')
NAME = re.compile(r'\s(?:id|name)="([^"]*)"(?=[^<>]*>)')


def build(folder: Path) -> list[str]:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(CONFIG), "-d", str(folder)]
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    said = [line for line in (done.stdout + done.stderr).splitlines() if line and not line.startswith("INFO")]
    return said if done.returncode == 0 else [*said, f"mkdocs ends with {done.returncode}."]


def complaints(folder: Path) -> Iterator[str]:
    """Yield every link of a built site that leads nowhere, and all that its pages load from elsewhere."""
    pages = {path: path.read_text(encoding="utf-8") for path in folder.rglob("*.html")}
    names = {path: {"", *map(unescape, NAME.findall(page))} for path, page in pages.items()}
    for path, page in pages.items():
        name, links, loads = path.relative_to(folder), LINK.findall(page), LOADED.findall(page)
        for link in map(unescape, links + loads):
            to = urlsplit(link)
            if to.scheme or to.netloc:
                if link in loads:
                    yield f"{name} loads {link}."
                continue
            target = path if not to.path else (path.parent / unquote(to.path)).resolve()
            if name.name == "404.html" and to.path.startswith("/"):  # it is shown at any depth
                target = folder / unquote(to.path).lstrip("/")
            if not target.is_file():
                yield f"{name} links to {link}, which does not exist."
            elif target in pages and link in links and unquote(to.fragment) not in names[target]:
                yield f"{name} links to {link}, which is not a heading there."


def main(args: list[str]) -> int:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(args[0] if args else temporary).resolve()
        found = build(folder) or list(complaints(folder))
    print(*found, sep="\n", end="\n" * bool(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
