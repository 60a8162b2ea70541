"""The interactive page: a record of numbers, and the modules that compute with them in the browser, in one file."""

from __future__ import annotations

import json
from html import escape
from typing import Any

from attn_cli.io.escape import visible
from attn_cli.pipeline.for_page import Page
from attn_cli.render.page.record import record
from attn_cli.render.page.script import Numbers, policy, read, script, style
from attn_cli.render.views.origins import learned_briefly, setting_parts
from attn_cli.render.views.wording import title

# In a script element nothing ends it but its end tag, and nothing starts another but these signs.
UNSAFE = str.maketrans(
    {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
)


def page(of: Page, look: str = "") -> str:
    """Return the page as HTML: one file, which loads nothing and sends nothing; `look` is CSS of its surroundings."""
    numbers = Numbers()
    trace, made = record(of, numbers)
    data = json.dumps(made, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    data = data.translate(UNSAFE)  # no sign of HTML is left
    sheet, code, head = style() + look, script(), escape(visible(title(trace)))
    about = f"{'; '.join(setting_parts(trace)[: 2 if trace.is_scored else 1])}."  # the others are chosen in the page
    notes = "".join(f"<li>{escape(visible(note))}</li>" for note in [*trace.notes, *_about_bytes(made)])
    body = read("page.html").replace("@title@", head).replace("@about@", escape(visible(about)))
    body = body.replace("@learned@", escape(visible(" ".join(learned_briefly(trace)))))
    body = body.replace("@notes@", f"<ul>{notes}</ul>" if notes else "")
    parts = [
        "<!doctype html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy(code, sheet)}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{head}</title>",
        f"<style>{sheet}</style>",
        "</head>",
        f"<body>\n{body}",
        *numbers.elements,
        f'<script type="application/json" id="record">{data}</script>',
        f'<script type="module">{code}</script>',
        "</body>\n</html>\n",
    ]
    return "\n".join(parts)


def _about_bytes(made: dict[str, Any]) -> list[str]:
    """Return the note on heads that are held as rounded weights, if some are."""
    heads = [(layer["number"], head) for layer in made["layers"] for head in layer["heads"]]
    full = [f"{number}/{head['name']}" for number, head in heads if "tops" not in head]
    if len(full) == len(heads):
        return []
    step = min(head["levels"] for _, head in heads if "levels" in head)
    held = f"in full: {', '.join(full)}" if full else "none is held in full"
    return [
        f"{len(heads) - len(full)} of {len(heads)} heads are held as rounded weights, right to {0.5 / step:.3f} of "
        f"the largest in their row; {held} (--exact)."
    ]
