"""The manual pages, docs/man/: one for attn and one for each command, written from the same declarations as --help.

`python -m tests.docs` checks them, and with `--write` writes them anew. The wheel puts them into share/man/man1.
"""

import re
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import attn_cli
from attn_cli.cli import help as helps
from tests import docs

DOCS = Path(__file__).parent.parent / "docs"
FOLDER, CHANGES = DOCS / "man", DOCS / "changelog.md"
ESCAPES = {"\\": r"\e", "-": r"\-", "'": r"\(aq", "`": r"\(ga", "^": r"\(ha", "~": r"\(ti"}
FILES = {
    "attn.toml": "In the current folder: values of options, for every command or below [COMMAND] for one.",
    "~/.config/attn/config.toml": "The same for all folders; attn.toml beats it.",
    "~/.local/share/attn/": "Word vectors that were imported.",
    "~/.cache/attn/": "Where each word stands in large files of vectors. It may be deleted.",
}
ELSEWHERE = (
    "XDG_CONFIG_HOME, XDG_DATA_HOME and XDG_CACHE_HOME move these on Linux; other systems have their own."
)
DEFAULTS = "`attn.toml` and `~/.config/attn/config.toml` hold defaults; see `attn`(1)."


def pages() -> dict[str, str]:
    known = docs.commands()
    return {f"{dashed(words)}.1": page(words, command, known) for words, command in known.items()}


def dashed(words: tuple[str, ...]) -> str:
    return "-".join(("attn", *words))


def page(words: tuple[str, ...], command: Any, known: dict[tuple[str, ...], Any]) -> str:
    name = dashed(words)
    ctx = command.context_class(command, info_name=" ".join(("attn", *words)))
    about, *rest = helps.paragraphs(command)
    examples = [text.partition(": ")[2].strip() for text in rest if text.startswith(helps.EXAMPLES)]
    told = [text for text in rest if not text.startswith(helps.EXAMPLES)]
    usage = " ".join(piece.strip("{}") for piece in command.collect_usage_pieces(ctx))
    version, changes = attn_cli.__version__, CHANGES.read_text(encoding="utf-8")
    date = re.search(rf"^## {re.escape(version)} \((\d[\d-]+)\)$", changes, re.M)
    lines = [f'.TH {code(name.upper())} 1 "{date[1] if date else ""}" "attn {version}" "attn manual"']
    lines += [".nh", ".ad l", ".SH NAME", rf"{code(name)} \- {code(about.rstrip('.'))}"]
    lines += [".SH SYNOPSIS", rf"\fB{code(ctx.command_path)}\fR {code(usage)}"]
    lines += [".SH DESCRIPTION", *paragraphs([about, *told])]
    lines += [".SH OPTIONS"]
    for heading, rows in helps.sections(ctx).items():
        lines += [f".SS {heading}"]
        lines += [line for row in rows for line in entry(typed(row.typed, name, heading), row.text)]
    codes = docs.explained("| code | means |")[: 3 if words else None]  # all of them on the page of attn
    lines += [".SH EXIT STATUS", *(line for one, text in codes for line in entry(rf"\fB{one}\fR", text))]
    kept = [line for one, text in FILES.items() for line in entry(rf"\fI{code(one)}\fR", text)]
    lines += filled("`attn`(1) has the others.") if words else []
    lines += [".SH FILES", *(filled(DEFAULTS) if words else [*kept, *filled(ELSEWHERE)])]
    lines += [".SH ENVIRONMENT", *environment(words, command)]
    lines += [".SH EXAMPLES", *(line for text in examples for line in (".EX", f"$ {code(text)}", ".EE"))]
    return "\n".join([*lines, ".SH SEE ALSO", *see_also(words, known)]) + "\n"


def code(text: str) -> str:
    """Return text as roff prints it letter by letter: no hyphen or quote is made prettier."""
    return "".join(ESCAPES.get(c, c if c.isascii() else rf"\[u{ord(c):04X}]") for c in text)


def marked(text: str) -> str:
    """Return text with what Markdown quotes as code in bold, and links as their words."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return "".join(rf"\fB{code(part)}\fR" if n % 2 else code(part) for n, part in enumerate(plain.split("`")))


def filled(text: str) -> list[str]:
    """Return marked text in lines, none of which roff takes for a request."""
    lines = textwrap.wrap(marked(text), 78, break_long_words=False, break_on_hyphens=False)
    return [rf"\&{line}" if line.startswith(".") else line for line in lines]


def paragraphs(texts: Iterable[str]) -> Iterator[str]:
    """Yield texts as paragraphs, the first below a heading."""
    for n, text in enumerate(texts):
        yield from ([".PP"] if n else [])
        yield from filled(text)


def entry(tag: str, text: str) -> list[str]:
    return [".TP", tag, *(filled(text) or [r"\&"])]


def typed(text: str, name: str, heading: str) -> str:
    """Return what is typed: options and commands in bold, what they take in italics."""
    if heading == "Commands":
        return rf"\fB{code(name)}\-{code(text)}\fR(1)"
    fonts = lambda one: rf"\f{'B' if one[1] else 'I'}{code(one[1] + one[2])}\fR"  # noqa: E731
    return re.sub(r"(?<!\S)(-*)([\w\[<][^\s,]*)", fonts, text)


def environment(words: tuple[str, ...], command: Any) -> Iterator[str]:
    """Yield the variables that set a command's options, or those that every command reads."""
    names = [rf"`{one.envvar}` (`{max(one.opts, key=len)}`)" for one in command.params if one.envvar]
    if names:
        yield from paragraphs([f"Defaults of options: {', '.join(names)}.", "The others are in `attn`(1)."])
    elif words:
        yield from paragraphs(["What every command reads is in `attn`(1)."])
    else:
        yield from paragraphs(["Most options have a variable of their own; each command's page lists them."])
        for name, text in docs.explained("| variable | does |"):
            yield from entry(marked(name), text)


def see_also(words: tuple[str, ...], known: dict[tuple[str, ...], Any]) -> Iterator[str]:
    """Yield the pages of the command above, of those below, and beside a verb; beside others, what people use most."""
    above = [words[:-1]] if words else []
    below = [one for one in known if one and one[:-1] == words]
    usual = [(name,) for name in helps.USUAL["attn"].split()]
    beside = [one for one in known if one[:-1] == words[:-1]] if words[1:] else usual
    names = [dashed(one) for one in [*above, *(below or beside)] if one != words]
    for name in names:
        yield rf".BR \%{code(name)} (1){',' * (name != names[-1])}"


def changed() -> Iterator[tuple[Path, bytes | None]]:
    new = {FOLDER / name: text.encode() for name, text in pages().items()}
    old = {path: path.read_bytes() for path in FOLDER.glob("*")}
    yield from ((path, new.get(path)) for path in sorted(old | new) if old.get(path) != new.get(path))
