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
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import typer.main

from attn_cli import errors
from attn_cli.cli import app as cli
from attn_cli.settings import DEFAULTS
from tests import pictures
from tests.shell import attn, surroundings

AFTER = ("What a command shows when nothing is asked", "Environment variables", "Exit codes")
ROOT = Path(__file__).parent.parent
REFERENCE = ROOT / "docs" / "reference.md"
HELP_WIDTH, WIDTH = 100, 80

CODES = {name: value for name, value in vars(errors).items() if type(value) is int}
# What each exit code means; a code that errors.py adds must be added here.
MEANINGS = {
    "FINE": "Fine, also when the reader of a pipe left early.",
    "DIFFERENT": "Two things that were compared differ. Kept for commands that compare.",
    "USAGE": "Wrong usage: an unknown command, option, head, example or token, or a value out of range.",
    "INPUT": "Input refused: no tokens, a bad matrix, a bad vector file, shapes that do not fit, a line of a batch.",
    "NO_FILE": "A file is missing or unreadable.",
    "NO_EXTRA": "An optional part is not installed; the message is the line that installs it.",
    "BUG": "A bug in attn.",
    "CANNOT_CREATE": "The output file cannot be created.",
    "CANNOT_WRITE": "Writing failed: the disk is full, or standard output is closed.",
    "CONFIG": "A bad value in an `ATTN_*` variable, or a mistake in a file of settings.",
    "NO_MEMORY": "There is not enough memory, or the machines of a cluster cannot be reached or were lost.",
    "INTERRUPTED": "Interrupted with Ctrl-C; 129 at SIGHUP, 143 at SIGTERM. Nothing half done is left.",
}

INTRO = """\
# Command reference

Every command with its options, as `--help` shows them: all of them, group by group. `-h` is shorter and fits a
screen: what the command does, the eight options that people use most, an example. Both are as wide as the
terminal (at most 100 columns), or as `COLUMNS` or `--width` says.

The [tutorial](tutorial.md) shows how the options work together; [json.md](json.md) explains the JSON. A name
that attn does not know (a command, an option, a value, a head, a setting) is answered with the nearest one.
"""

VARIABLES = """\
## Environment variables

Most options can be set by a variable, for a lesson or for good. An option that is typed beats its variable,
and an empty variable counts as unset. A switch is turned on by `1` or `true` and off by `0` or `false`. A bad
value ends the command with exit code 78. [Files](scripting.md#settings-in-a-file) can hold the same settings, and a
variable beats a file. The variables are read by {readers}.
"""

TERMINAL = """\
These variables, which many programs share, are read too:

| variable | does |
|---|---|
| `COLUMNS` | The width to use, also in a pipe. `--width` beats it. |
| `NO_COLOR` | No colour if it is not empty. `--color` beats it. |
| `CLICOLOR_FORCE`, `FORCE_COLOR` | Colour even in a pipe, unless it is `0`. |
| `CLICOLOR` | No colour if it is `0`. |
| `TERM`, `COLORTERM` | How many colours there are; `TERM=dumb` has none. |
| `ATTN_PAGER`, `PAGER`, `LESS` | [The pager](terminal.md#the-pager) of long screens. |
| `COLORFGBG` | Whether the background is dark or light. |
"""

SHOWN_BY_DEFAULT = """\
## What a command shows when nothing is asked

With the bundled vectors, and without `-p`, `-m` or `--heads`. A `--head` of roles selects roles; a vector file (`-e`)
is shown with the identity projection, random vectors with a random one.
"""

EXIT_CODES = """\
## Exit codes

An error is one line on standard error; a terminal gets it broken between words. Where the output was to be
JSON, it is [a JSON object](json.md#errors).
"""


class DocsError(Exception):
    """A block that cannot be run or shown, or a page that changed while it was being written."""


# The reference


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


def reference() -> str:
    """Return docs/reference.md: every command's help, the variables and the exit codes."""
    known = commands()
    with ThreadPoolExecutor(2) as pool:
        helps = dict(zip(known, pool.map(help_of, known), strict=True))
    contents = "\n".join(f"- [{_named(words)}](#{slug(_named(words))})" for words in known)
    parts = [
        INTRO,
        f"{contents}\n" + "\n".join(f"- [{name}](#{slug(name)})" for name in AFTER) + "\n",
        *(f"## {_named(words)}\n\n```text\n{text}```\n" for words, text in helps.items()),
        shown_by_default(),
        variables(known),
        TERMINAL,
        exit_codes(),
    ]
    return "\n".join(parts)


def table(about: str, *rows: Sequence[object]) -> str:
    """Return a part of a page: what it is about, and a table, its heading first."""
    lines = [f"| {' | '.join(map(str, row))} |" for row in rows]
    return "\n".join([about, lines[0], "|---" * len(rows[0]) + "|", *lines[1:]]) + "\n"


def shown_by_default() -> str:
    """Return the table of what commands show when nothing is asked."""
    rows = [
        (f"`attn {name}`", one.projection, one.head, one.mask, one.next or "–", one.why)
        for name, one in DEFAULTS.items()
    ]
    return table(SHOWN_BY_DEFAULT, ("command", "projection", "head", "mask", "next words", "why"), *rows)


def _named(words: tuple[str, ...]) -> str:
    return " ".join(("attn", *words))


def help_of(words: tuple[str, ...]) -> str:
    """Return what `attn WORDS --help` prints."""
    shown = attn(*words, "--help", env={"COLUMNS": str(HELP_WIDTH)})
    if shown.code or shown.err:
        raise DocsError(f"{_named(words)} --help fails: {shown.err}")
    return shown.out


def variables(known: dict[tuple[str, ...], Any]) -> str:
    """Return the table of ATTN_* variables: the option that each one sets, and who reads it."""
    options: dict[str, str] = {}
    readers: dict[str, list[str]] = {}
    for words, command in known.items():
        for option in command.params:
            if option.envvar:
                options.setdefault(option.envvar, ", ".join(f"`{name}`" for name in option.opts))
                readers.setdefault(option.envvar, []).append(" ".join(words))
    groups = [tuple(by) for by in readers.values()]

    def reach(group: tuple[str, ...]) -> tuple[int, int]:
        return sum(set(by) >= set(group) for by in groups), len(group)

    usual = max(groups, key=reach)  # the others' readers are named beside them
    rows = []
    for name, by in readers.items():
        extra = f", also of {', '.join(sorted(set(by) - set(usual)))}" if set(by) > set(usual) else ""
        rows.append((f"`{name}`", f"{options[name]}{extra}"))
    listed = f"{', '.join(usual[:-1])} and {usual[-1]}"
    return table(VARIABLES.format(readers=listed), ("variable", "option"), *rows)


def exit_codes() -> str:
    """Return the table of exit codes."""
    if set(CODES) != set(MEANINGS):
        raise DocsError(f"Explain in MEANINGS: {', '.join(set(CODES) ^ set(MEANINGS))}.")
    rows = [(value, MEANINGS[name]) for name, value in sorted(CODES.items(), key=lambda c: c[1])]
    return table(EXIT_CODES, ("code", "means"), *rows)


# Blocks within a page


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
    new: list[str] = []
    done = 0
    with tempfile.TemporaryDirectory() as folder:
        for fence in fences(lines):
            new += lines[done : fence.start]
            body = lines[fence.start : fence.stop]
            done = fence.stop
            if fence.language == "console":
                limit = re.fullmatch(r"first (\d+) lines?", fence.comment)
                try:
                    body = session(body, Path(folder), int(limit[1]) if limit else None)
                except DocsError as error:
                    raise DocsError(f"line {fence.start}: {error}") from None
            elif fence.comment == "modules":
                body = modules()
            new += body
    return "".join(f"{line}\n" for line in [*new, *lines[done:]])


def session(body: list[str], folder: Path, limit: int | None = None) -> list[str]:
    """Run each `$ command` of a block (`> ` continues it) and return the block with what they print.

    An output that differs only beyond the ninth digit of a number is kept as it stands: processors differ. So
    is the output of a command that needs jq, or Matplotlib, where there is none.
    """
    starts = [n for n, line in enumerate(body) if line.startswith("$ ")]
    new = body[: starts[0] if starts else None]
    for start, stop in zip(starts, [*starts[1:], len(body)], strict=True):
        typed = [
            body[start],
            *itertools.takewhile(lambda line: line.startswith("> "), body[start + 1 : stop]),
        ]
        new += typed
        old, command = body[start + len(typed) : stop], "\n".join(line[2:] for line in typed)
        if no_jq(command) or no_matplotlib(command):
            new += old
            continue
        shown = run(command, folder)
        if limit is not None and len(shown) > limit:
            shown = [*shown[:limit], "..."]
        new += old if settled(old) == settled(shown) else shown
    return new


def run(command: str, folder: Path) -> list[str]:
    """Run a line of bash in which `attn` and `python` are those of this project; return what it prints."""
    python = shlex.quote(sys.executable)
    script = f'python() {{ {python} "$@"; }}; attn() {{ python -m attn_cli "$@"; }}; set -o pipefail\n'
    plain = {"COLUMNS": str(WIDTH), "LC_ALL": "C.UTF-8", "TERM": "dumb", "HOME": str(folder)}
    folders = {"XDG_CACHE_HOME": ".cache", "XDG_DATA_HOME": ".data", "XDG_CONFIG_HOME": ".config"}
    for name, own in (folders | {"GENSIM_DATA_DIR": ".gensim-data"}).items():
        plain[name] = f"{folder}/{own}"
    done = subprocess.run(
        ["bash", "-c", script + command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=surroundings({**plain, "PYTHONPATH": str(ROOT)}),
        cwd=folder,
        timeout=60,
        encoding="utf-8",
    )
    lines = [line.rstrip() for line in done.stdout.rstrip().splitlines()]
    if done.returncode in (126, 127, errors.BUG) or any(line.startswith("Traceback") for line in lines):
        raise DocsError(f"`{command}` breaks:\n{done.stdout}")
    if any(line.startswith(("$ ", "```")) for line in lines):
        raise DocsError(f"`{command}` prints a line that would be taken for a command or a fence.")
    return lines


def no_jq(text: str) -> bool:
    """Tell whether text runs jq, and this machine has none."""
    return re.search(r"(^[$>]?|\|) *jq ", text, re.M) is not None and shutil.which("jq") is None


def no_matplotlib(text: str) -> bool:
    """Tell whether text draws a figure, or lists figures, and this machine has no Matplotlib."""
    draws = re.search(r"--figure|\.png\b|\.pdf\b|^ls$", text) is not None
    return draws and importlib.util.find_spec("matplotlib") is None


def settled(lines: list[str]) -> list[str]:
    """Return lines with long decimals cut for comparison: to nine digits, and to six where they are of float32.

    What is left of a sum of float32 (1.2e-07) is of the processor's order of adding, and stands as such.
    """

    def cut(found: re.Match[str]) -> str:
        return f"{float(found[0]):.{9 if len(found[1]) > 9 else 6}g}"

    cuts = (re.sub(r"\d+\.(\d{7,})(e-?\d+)?", cut, line) for line in lines)
    return [re.sub(r" +\d(\.\d)?e-0[78]\b", " rounding", line) for line in cuts]


def modules() -> list[str]:
    """Return the packages, from top to bottom as imports point: each with the first line of its docstring."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    layers = next(one["layers"] for one in contracts["contracts"] if one["type"] == "layers")
    package = ROOT / "attn_cli"
    rows = []
    for name in (name.strip() for layer in layers for name in layer.split("|")):
        path = package / name
        if not path.is_dir():
            rows.append(f"{name + '.py':<18} {_about(path.with_suffix('.py'))}")
            continue
        rows.append(f"{name + '/':<18} {_about(path / '__init__.py')}")
        inner = sorted(path.glob("*/__init__.py"))
        rows += [f"  {one.parent.name + '/':<16} {_about(one)}" for one in inner]
    return rows


def _about(path: Path) -> str:
    return (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").partition("\n")[0]


# Pages and links


def pages() -> list[Path]:
    """Return the pages whose blocks are run."""
    found = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    return [page for page in found if page.exists() and page != REFERENCE]


def linked_pages() -> list[Path]:
    """Return the pages whose links are followed."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def broken_links(page: Path) -> list[str]:
    """Return the relative links of a page that lead to no file, or to no heading of one."""
    broken = []
    text = _prose(page)
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
    """Return the names by which the headings of a page can be linked to."""
    seen: Counter[str] = Counter()
    names = set()
    for heading in re.findall(r"^#+\s+(.*)$", _prose(page, code=True), re.M):
        name = slug(heading)
        names.add(f"{name}-{seen[name]}" if seen[name] else name)
        seen[name] += 1
    return names


def slug(heading: str) -> str:
    """Return the anchor that a heading gets."""
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
    old = page.read_text(encoding="utf-8") if page.exists() else ""
    name = str(page.relative_to(ROOT))
    try:
        new = reference() if page == REFERENCE else rewritten(old)
    except DocsError as error:
        raise DocsError(f"{name}, {error}") from None
    if new == old:
        return ""
    if write:
        if page.exists() and page.read_text(encoding="utf-8") != old:
            raise DocsError(f"{name} changed while it was being written: try again.")
        page.write_text(new, encoding="utf-8")
    diff = difflib.unified_diff(old.splitlines(), new.splitlines(), name, "as it should be", n=1, lineterm="")
    return "\n".join(diff)


def written_whole(write: bool) -> Iterator[str]:
    """Yield what is out of date of the pictures, the manual and the recorded lecture; with `write`, make them anew."""
    from tests import lecture, man  # the manual reads the tables of this module

    for kind in (pictures, man, lecture):
        yield from kind.stale(write)


def main(args: list[str]) -> int:
    """Check the documentation, or write it; return 1 where something is left to do."""
    known = {str(page.relative_to(ROOT)): page for page in [REFERENCE, *pages()]}
    write = "--write" in args
    chosen = [name for name in args if name != "--write"] or list(known)
    if not set(chosen) <= set(known):
        print("usage: python -m tests.docs [--write] [PAGE...]", "pages:", *known, sep="\n", file=sys.stderr)
        return 2
    said: list[str] = []
    broken: list[str] = []
    for name in chosen:
        try:
            if change := stale(known[name], write):
                said.append(
                    f"{change}\n{name} {'was written anew' if write else 'is out of date: run it with --write'}."
                )
        except DocsError as error:
            broken.append(str(error))
        if name != "docs/reference.md" and no_jq(known[name].read_text(encoding="utf-8")):
            print(f"{name}: jq is not installed, so its commands were not run.")
    if not set(args) - {"--write"}:
        said += written_whole(write)
    broken += [line for page in linked_pages() for line in broken_links(page)]
    print(*said, *broken, sep="\n", end="\n" * bool(said or broken))
    return 1 if broken or (said and not write) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
