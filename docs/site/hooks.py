"""What MkDocs is told of the documentation beyond docs/: pages from outside it, its order, the Python names.

The pages are written for a reader of the repository. Here their links are changed to where the site has each page;
a link to a file that the site has not becomes text.
"""

import os
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

import attn_cli

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
MOVED = {"README.md": "index.md", "docs/README.md": "pages.md", "data/README.md": "data.md"}
PYTHON, AFTER_WHICH = "python.md", "attend.md"
ABOUT_PYTHON = """\
# The Python names

`from attn_cli import attend` and the like: what is listed here is there to be used, and stays. [Attention in
Python](attend.md) shows `attend` at work, [In a notebook](notebooks.md) the rest.
"""
LINK = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
PICTURE = re.compile(
    r'<picture>\s*<source media="[^"]*" srcset="(.*?)">\s*<img alt="(.*?)" src="(.*?)"(.*?)>\s*</picture>'
)


def on_config(config: Any) -> Any:
    """Take the navigation from the list of all pages: a paragraph that ends with a colon begins a section."""
    config.nav = [{"Home": "index.md"}, *listed("docs/README.md")]
    return config


def listed(source: str) -> list[Any]:
    """Return the pages that a list of pages links to, by its sections; a folder has a list of its own."""
    nav: list[Any] = []
    section = nav
    for line in (ROOT / source).read_text(encoding="utf-8").splitlines():
        if line.endswith(":") and not line.startswith((" ", "-")):
            section = []
            nav.append({line.removesuffix(":"): section})
        elif line.startswith("- ") and (found := LINK.search(line)):
            page = moved(found[2], source, "index.md")
            is_folder = found[2].endswith("/")
            section.append(
                {found[1].replace("*", ""): [page, *listed(f"docs/{page}")] if is_folder else page}
            )
            if page == AFTER_WHICH:
                section.append({"The Python names": PYTHON})
    return nav


def on_files(files: Any, config: Any) -> Any:
    """Add the pages from outside docs/, and the page of the Python names."""
    files.remove(files.get_file_from_path("README.md"))
    for source, name in MOVED.items():
        before = "---\nhide: [navigation]\n---\n" if name == "index.md" else ""
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, name, content=before + text))
    names = "".join(f"\n::: attn_cli.{name}\n" for name in attn_cli.__all__)
    files.append(File.generated(config, PYTHON, content=ABOUT_PYTHON + names))
    for name in ("site.css", "iframe-worker.js"):
        files.append(File.generated(config, name, content=(HERE / name).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Change links and pictures from the repository's to the site's; blocks of code are left as they are."""
    here = page.file.src_uri
    if here == "reference.md":
        page.meta["hide"] = ["toc"]  # help is 100 columns wide, and has a list of the commands above
    source = next((old for old, new in MOVED.items() if new == here), f"docs/{here}")

    def link(found: re.Match[str]) -> str:
        target = moved(found[2], source, here)
        return found[1] if target is None else f"[{found[1]}]({target})"

    def picture(found: re.Match[str]) -> str:  # the site's own switch chooses, not the system's
        dark, alt, light, more = found.groups()
        both = {"light": moved(light, source, here), "dark": moved(dark, source, here)}
        return "".join(f'<img alt="{alt}" src="{src}#only-{mode}"{more}>' for mode, src in both.items())

    parts = re.split(r"(^(?:```|~~~).*?^(?:```|~~~)$)", markdown, flags=re.M | re.S)
    parts[::2] = [PICTURE.sub(picture, LINK.sub(link, part)) for part in parts[::2]]
    return "".join(parts)


def moved(target: str, source: str, here: str) -> str | None:
    """Return a link of a page of the repository as its page on the site has it; None to what the site has not."""
    name, hash, anchor = target.partition("#")
    path = os.path.normpath(os.path.join(os.path.dirname(source), name))
    if not name or ":" in name or not (ROOT / path).exists():
        return target
    if (ROOT / path).is_dir():
        path += "/README.md"
    if path not in MOVED and not path.startswith("docs/"):
        return None
    page = MOVED.get(path, path.removeprefix("docs/"))
    return os.path.relpath(page, os.path.dirname(here) or ".") + hash + anchor
