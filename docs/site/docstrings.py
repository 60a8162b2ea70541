"""What the site reads of the package beyond docstrings: examples (>>>) as blocks of code, and each setting's help."""

import re
from html import escape
from typing import Any

import griffe

from attn_cli.settings import Settings, declared

EXAMPLE = re.compile(r"^>>> .*(?:\n.+)*", re.M)
SETTINGS = declared(Settings)


class Examples(griffe.Extension):
    """Fences the examples of every docstring, and gives each setting its help and its default."""

    def on_object(self, *, obj: Any, **_: Any) -> None:
        """Fence the examples of one."""
        if obj.docstring:
            obj.docstring.value = EXAMPLE.sub(r"```pycon\n\g<0>\n```", obj.docstring.value)

    def on_attribute(self, *, attr: Any, **_: Any) -> None:
        """Take what --help says of a setting."""
        if attr.parent.path == "attn_cli.settings.Settings" and attr.name in SETTINGS:
            one = SETTINGS[attr.name]
            attr.docstring = griffe.Docstring(escape(one.help_text()), parent=attr)  # <s> is a token
            attr.value = repr(one.default)
