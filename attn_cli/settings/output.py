"""How a result is to be shown: the output options, with their defaults."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class View:
    """Output options; None means that attn chooses."""

    format: str | None = None
    output: str | None = None
    tidy: bool = False
    steps: bool = False
    precision: int | None = None
    color: str = "auto"
    palette: str | None = None
    width: int | None = None


def is_json(format: str | None, output: str | None, command: str = "") -> bool:
    """Tell whether a command's result is JSON: then an error is one object too."""
    if command == "batch":
        return True
    return format in ("json", "jsonl") or (
        not format and (output or "").lower().endswith((".json", ".jsonl"))
    )
