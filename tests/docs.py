"""The parts of the documentation that a machine writes.

`python -m tests.docs` says what is out of date and exits with 1; with `--write` it writes it anew. Pages can
be named; otherwise all are meant. A machine writes docs/reference.md, what follows each `$ command` in a
block marked `console`, the list of modules, the pictures (tests/pictures.py), the manual (tests/man.py) and
the recorded lecture (tests/lecture.py).
"""

import ast
import difflib
import importlib.util
import itertools
import math
import re
import shlex
import shutil
import sys
import tempfile
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import typer.main

from attn_cli import errors
from attn_cli.cli import app as cli
from attn_cli.settings import DEFAULTS
from tests import FOLDERS, pictures
from tests.shell import shell, told

ROOT = Path(__file__).parent.parent
REFERENCE = ROOT / "docs" / "reference.md"
HELP_WIDTH, WIDTH = 100, 80
LONG_NUMBER = re.compile(r"-?\d+\.\d{4,}(?:e-?\d+)?")


class DocsError(Exception):
    """A block that cannot be run or shown."""


def commands() -> dict[tuple[str, ...], Any]:
    """Return every command and subcommand of attn by its words, in the order of `attn --help`."""
    app: Any = typer.main.get_command(cli._app())
    found: dict[tuple[str, ...], Any] = {(): app}
    for name in cli.COMMANDS:
        command = app.get_command(None, name)
        found[(name,)] = command
        for verb in getattr(command, "commands", {}):
            found[(name, verb)] = command.get_command(None, verb)
    return found


def reference(old: str) -> str:
    """Return docs/reference.md with its contents, every command's help, and two of its tables written anew."""
    known = commands()
    start, after = old.partition("\n- [")[0], old[old.index("\n## What a command shows") :]
    headings = [*map(named, known), *re.findall("^## (.*)", after, re.M)]
    contents = "".join(f"\n- [{name}](#{slug(name)})" for name in headings)
    helps = ((words, told(*words, "--help", env={"COLUMNS": str(HELP_WIDTH)})) for words in known)
    each = "".join(f"\n## {named(words)}\n\n```text\n{text}```\n" for words, text in helps)
    readers, options = variables(known)
    after = re.sub(r"(?<=The variables are read by ).*(?=\.\n)", readers, after)
    defaults = (
        (f"`attn {name}`", *one[:2], one.mask, one.next or "–", one.why) for name, one in DEFAULTS.items()
    )
    after = filled(after, "| command | projection | head | mask | next words | why |", defaults)
    return f"{start}{contents}\n{each}{filled(after, '| variable | option |', options)}"


def filled(text: str, heading: str, rows: Iterable[Sequence[object]]) -> str:
    """Return text with the rows of the table that has this heading."""
    lines = "".join(f"| {' | '.join(map(str, row))} |\n" for row in rows)
    return re.sub(rf"(?<={re.escape(heading)}\n)(\|-.*\n)(\|.*\n)*", lambda found: found[1] + lines, text)


def explained(heading: str) -> list[tuple[str, str]]:
    """Return the rows of the reference's table of two columns that has this heading."""
    table = REFERENCE.read_text(encoding="utf-8").partition(f"\n{heading}\n")[2].partition("\n\n")[0]
    return re.findall(r"^\| (.*?) \| (.*) \|$", table, re.M)


def named(words: tuple[str, ...]) -> str:
    return " ".join(("attn", *words))


def variables(known: dict[tuple[str, ...], Any]) -> tuple[str, list[tuple[str, str]]]:
    """Return who reads most ATTN_* variables, and for each one the option that it sets, and who else reads it."""
    options, readers = {}, defaultdict(list)
    for words, command in known.items():
        for option in command.params:
            if option.envvar:
                options.setdefault(option.envvar, ", ".join(f"`{name}`" for name in option.opts))
                readers[option.envvar].append(" ".join(words))
    groups = readers.values()
    usual = max(groups, key=lambda group: (sum({*by} >= {*group} for by in groups), len(group)))
    rows = []
    for name, by in readers.items():  # beside an option stands who reads it and is not among the usual
        extra = f", also of {', '.join(sorted({*by} - {*usual}))}" if {*by} > {*usual} else ""
        rows.append((f"`{name}`", f"{options[name]}{extra}"))
    return f"{', '.join(usual[:-1])} and {usual[-1]}", rows


class Fence(NamedTuple):
    """A fenced block: where its first and its last inner line stand, its language, the comment before it."""

    start: int
    stop: int
    language: str
    comment: str


def fences(lines: list[str]) -> Iterator[Fence]:
    """Yield the fenced blocks of a page; a fence within a longer one is text."""
    opened, language, start = "", "", 0
    for n, line in enumerate(lines):
        mark = re.match(r"(`{3,}|~{3,})\s*(\S*)", line)
        if not opened and mark:
            opened, language, start = mark[1], mark[2], n + 1
        elif opened and re.fullmatch(rf"{opened[0]}{{{len(opened)},}}\s*", line):
            before = [text for text in lines[max(0, start - 3) : start - 1] if text.strip()]
            comment = re.fullmatch(r"<!--\s*(.*?)\s*-->", before[-1].strip()) if before else None
            yield Fence(start, n, language, comment[1] if comment else "")
            opened = ""
    if opened:
        raise DocsError(f"line {start}: this block has no end.")


def rewritten(text: str) -> str:
    """Return a page with every machine-written block as it should be; its commands share one folder."""
    if re.search(r"^ +`{3,} *console", text, re.M):
        raise DocsError("a block marked console is indented, so nobody would run it.")
    lines = text.splitlines()
    new, done = [], 0
    with tempfile.TemporaryDirectory() as folder:
        for fence in fences(lines):
            new += lines[done : fence.start]
            body = lines[fence.start : fence.stop]
            done = fence.stop
            if fence.language == "console":
                limit = re.fullmatch(r"first (\d+) lines?", fence.comment)
                digits = 5 if fence.comment == "of float32" else 9
                try:
                    body = session(body, Path(folder), int(limit[1]) if limit else None, digits)
                except DocsError as error:
                    raise DocsError(f"line {fence.start}: {error}") from None
            elif fence.comment == "modules":
                body = modules()
            new += body
    return "".join(f"{line}\n" for line in [*new, *lines[done:]])


def session(body: list[str], folder: Path, limit: int | None = None, digits: int = 9) -> list[str]:
    """Run each `$ command` of a block and return the block with what they print, but for other roundings."""
    starts = [n for n, line in enumerate(body) if line.startswith("$ ")]
    new = body[: starts[0] if starts else None]
    for start, stop in zip(starts, [*starts[1:], len(body)], strict=True):
        more = itertools.takewhile(lambda line: line.startswith("> "), body[start + 1 : stop])
        new += (typed := [body[start], *more])
        old, command = body[start + len(typed) : stop], "\n".join(line[2:] for line in typed)
        if no_jq(command) or no_matplotlib(command):
            new += old
            continue
        shown = run(command, folder)
        if limit is not None and len(shown) > limit:
            shown = [*shown[:limit], "..."]
        new += old if alike(old, shown, digits) else shown
    return new


def run(command: str, folder: Path) -> list[str]:
    """Run a line of bash in which `attn` and `python` are those of this project; return what it prints."""
    plain = {"COLUMNS": str(WIDTH), "TERM": "dumb", "HOME": str(folder)}
    plain |= {name: f"{folder}/.{own}" for name, own in FOLDERS.items()}
    python = f'exec </dev/null 2>&1; python() {{ {shlex.quote(sys.executable)} "$@"; }}'
    ran = shell(f"{python}\n{command}", env=plain, cwd=folder)
    lines = [line.rstrip() for line in ran.out.rstrip().splitlines()]
    if ran.code in (126, 127, errors.BUG) or any(line.startswith("Traceback") for line in lines):
        raise DocsError(f"`{command}` breaks:\n{ran.out}")
    if any(line.startswith(("$ ", "```")) for line in lines):
        raise DocsError(f"`{command}` prints a line that would be taken for a command or a fence.")
    return lines


def no_jq(text: str) -> bool:
    return re.search(r"(^[$>]?|\|) *jq ", text, re.M) is not None and shutil.which("jq") is None


def no_matplotlib(text: str) -> bool:
    draws = re.search(r"--figure|\.png\b|\.pdf\b|^ls$", text) is not None
    return draws and importlib.util.find_spec("matplotlib") is None


def alike(old: list[str], shown: list[str], digits: int = 9) -> bool:
    """Tell whether lines are the same but for what processors round otherwise.

    That is what lies beyond so many digits of numbers with ten decimals or more, beyond five where they have seven
    (float32), and one in the last place of the others. What is left of a sum of float32 (1.2e-07) is of the
    processor's order of adding, and stands as such.
    """
    texts = [re.sub(r" +\d(\.\d)?e-0[78]\b", " rounding", "\n".join(lines)) for lines in (old, shown)]
    if LONG_NUMBER.sub("0", texts[0]) != LONG_NUMBER.sub("0", texts[1]):
        return False
    pairs = zip(*(LONG_NUMBER.findall(text) for text in texts), strict=True)
    return all(near(one, other, digits) for one, other in pairs)


def near(one: str, other: str, digits: int) -> bool:
    """Tell whether two numbers with four decimals or more are the same but for rounding."""
    places = max(len(number.partition("e")[0].partition(".")[2]) for number in (one, other))
    if places < 7 and "e" not in one + other:
        return abs(float(one) - float(other)) < 1.5 * 10.0**-places
    least = min(places, digits if places > 9 else 5)
    return math.isclose(float(one), float(other), rel_tol=5 * 10.0**-least)


def modules() -> list[str]:
    """Return the packages, from top to bottom as imports point: each with the first line of its docstring."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    layers = next(one["layers"] for one in contracts["contracts"] if one["type"] == "layers")
    files = {}
    for name in re.findall(r"\w+", " ".join(layers)):
        path = ROOT / "attn_cli" / name
        if path.is_dir():
            files[f"{name}/"] = path / "__init__.py"
            files |= {f"  {one.parent.name}/": one for one in sorted(path.glob("*/__init__.py"))}
        else:
            files[f"{name}.py"] = path.with_suffix(".py")
    told = {name: ast.get_docstring(ast.parse(path.read_text("utf-8"))) or "" for name, path in files.items()}
    return [f"{name:<18} {text.partition(chr(10))[0]}" for name, text in told.items()]


def pages() -> dict[str, Path]:
    """Return the pages whose commands are run, and the reference, by their names."""
    return {name: page for name, page in linked_pages().items() if page.parent in (ROOT, ROOT / "docs")}


def linked_pages() -> dict[str, Path]:
    found = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return {str(page.relative_to(ROOT)): page for page in found}


def broken_links(page: Path) -> list[str]:
    """Return the relative links of a page that lead to no file, or to no heading of one."""
    broken, text = [], _prose(page)
    links = re.findall(r"\]\(\s*<?([^)\s>]+)", text) + re.findall(r"^\[[^\]]+\]:\s*(\S+)", text, re.M)
    for link in links + re.findall(r'\bsrc(?:set)?="([^"]*)"', text):
        if re.match(r"[a-z][a-z0-9+.-]*:", link, re.I):
            continue
        name, _, anchor = unquote(link).partition("#")
        target = (page.parent / name).resolve() if name else page
        if not target.exists() or not target.is_relative_to(ROOT):
            broken.append(f"{page.relative_to(ROOT)} links to {link}, which does not exist.")
        elif anchor and target.suffix == ".md" and anchor not in anchors(target):
            broken.append(f"{page.relative_to(ROOT)} links to {link}, which is not a heading there.")
    return broken


def anchors(page: Path) -> set[str]:
    """Return the names by which the headings of a page can be linked to; of equal headings, the first."""
    return {slug(heading) for heading in re.findall(r"^#+\s+(.*)$", _prose(page, code=True), re.M)}


def slug(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def _prose(page: Path, code: bool = False) -> str:
    """Return a page without its blocks, and without code within lines unless `code`."""
    lines = page.read_text(encoding="utf-8").splitlines()
    for fence in fences(lines):
        lines[fence.start : fence.stop] = [""] * (fence.stop - fence.start)
    text = "\n".join(lines)
    return text if code else re.sub(r"`[^`\n]*`", "", text)


def stale(page: Path, write: bool = False) -> str:
    """Return what would change in a page, as a diff; with `write`, change it."""
    old, name = page.read_text(encoding="utf-8"), str(page.relative_to(ROOT))
    try:
        new = reference(old) if page == REFERENCE else rewritten(old)
    except DocsError as error:
        raise DocsError(f"{name}, {error}") from None
    if new == old:
        return ""
    if write:
        page.write_text(new, encoding="utf-8")
    diff = difflib.unified_diff(old.splitlines(), new.splitlines(), name, "as it should be", n=1, lineterm="")
    return "\n".join(diff)


def written_whole(changed: Iterable[tuple[Path, bytes | None]], write: bool) -> Iterator[str]:
    """Yield a sentence of each file that should be other than it is; with `write`, make it so."""
    for path, new in changed:
        if write and new is not None:
            path.write_bytes(new)
        elif write:
            path.unlink()
        yield f"docs/{path.parent.name}/{path.name} {'was made anew' if write else 'is out of date'}."


def main(args: list[str]) -> int:
    known, write = pages(), "--write" in args
    chosen = [name for name in args if name != "--write"] or list(known)
    if not set(chosen) <= set(known):
        print("usage: python -m tests.docs [--write] [PAGE...]", "pages:", *known, sep="\n", file=sys.stderr)
        return 2
    said, broken = [], []
    for name in chosen:
        try:
            if change := stale(known[name], write):
                done = "was written anew" if write else "is out of date: run it with --write"
                said.append(f"{change}\n{name} {done}.")
        except DocsError as error:
            broken.append(str(error))
        if name != "docs/reference.md" and no_jq(known[name].read_text(encoding="utf-8")):
            print(f"{name}: jq is not installed, so its commands were not run.")
    if not set(args) - {"--write"}:
        from tests import lecture, man  # the manual reads the tables of this module

        said += [line for kind in (pictures, man, lecture) for line in written_whole(kind.changed(), write)]
    broken += [line for page in linked_pages().values() for line in broken_links(page)]
    print(*said, *broken, sep="\n", end="\n" * bool(said or broken))
    return 1 if broken or (said and not write) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
