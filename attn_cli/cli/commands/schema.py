"""attn schema: the JSON Schema of everything that attn prints as JSON."""

from __future__ import annotations

from attn_cli.io.console import put_plain
from attn_cli.settings.output import schema_text


def schema() -> None:
    """Print the JSON Schema of all that attn prints as JSON.

    Example: attn schema > attn.schema.json
    """
    put_plain(schema_text())
