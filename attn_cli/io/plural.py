"""Numbers with their nouns."""

from __future__ import annotations


def count(n: int, one: str, many: str) -> str:
    """Return `1 key` or `3 keys`."""
    return f"{n:,} {one if n == 1 else many}"
