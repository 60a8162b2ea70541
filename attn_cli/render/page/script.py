"""The modules of the page as one script, and the page around it, closed by a strict Content-Security-Policy."""

from __future__ import annotations

import re
from base64 import b64encode
from functools import cache
from hashlib import sha256
from pathlib import Path

HERE = Path(__file__).parent
MAIN = "main.js"
_IMPORT = re.compile(r'^import \{ (.*?) \} from "\./(\w+)\.js";$', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|const|let|class) ([\w$]+))", re.MULTILINE)
_COMMENT = re.compile(r"^ *//[^\n]*\n|^ */\*\*.*?\*/\n", re.MULTILINE | re.DOTALL)
POLICY = (
    "default-src 'none'; script-src 'sha256-{script}'; style-src 'sha256-{style}'; img-src data: blob:; "
    "base-uri 'none'; form-action 'none'"
)


@cache
def script() -> str:
    """Return the modules as one script: each in a function of its own, after those that it imports from.

    Comments are left out. A module may import by name alone, from its neighbours, and not in a circle.
    """
    parts: dict[str, str] = {}
    _add(MAIN.removesuffix(".js"), parts, ())
    return '"use strict";\n' + "\n".join(parts.values())


def _add(name: str, parts: dict[str, str], above: tuple[str, ...]) -> None:
    """Add a module, after what it imports."""
    if name in parts:
        return
    if name in above:
        raise ValueError(f"modules of the page import in a circle: {' -> '.join((*above, name))}")
    source = _COMMENT.sub("", read(f"{name}.js"))
    for _, other in _IMPORT.findall(source):
        _add(other, parts, (*above, name))
    body = _IMPORT.sub(lambda found: f"const {{ {found[1].replace(' as ', ': ')} }} = {found[2]}_js;", source)
    names = ", ".join(_EXPORT.findall(body))
    parts[name] = (
        f"const {name}_js = (() => {{\n{_EXPORT.sub('', body).strip()}\nreturn {{ {names} }};\n}})();"
    )


@cache
def read(name: str) -> str:
    """Return the text of a file beside this one."""
    return (HERE / name).read_text(encoding="utf-8")


def policy(script: str, style: str) -> str:
    """Return the policy that lets this script and this style run, and nothing else load or leave."""
    return POLICY.format(script=_hash(script), style=_hash(style))


def _hash(text: str) -> str:
    return b64encode(sha256(text.encode()).digest()).decode()
