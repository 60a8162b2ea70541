"""attn schema: the JSON Schema of everything that attn prints as JSON."""

from __future__ import annotations

from pathlib import Path

from attn_cli.io.console import put_plain


def schema() -> None:
    """Print the JSON Schema of all that attn prints as JSON.

    Example: attn schema > attn.schema.json
    """
    put_plain((Path(__file__).parents[2] / "schema.json").read_text(encoding="utf-8"))
