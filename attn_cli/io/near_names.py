"""The known name that a mistyped one is most like."""

from __future__ import annotations

from collections.abc import Collection

from attn_cli.io.escape import visible


def near_name(word: str, known: Collection[str]) -> str | None:
    """Return the known name that is spelled most like `word`, if any is like it."""
    import difflib  # only for help with a mistake

    return next(iter(difflib.get_close_matches(word[:60], known, 1)), None)


def did_you_mean(word: str, known: Collection[str]) -> str:
    """Return the question that a hint begins with, or nothing where no known name is like `word`.

    >>> did_you_mean("dto", ["scaled", "dot"])
    'Did you mean dot? '
    """
    near = near_name(word, known)
    return f"Did you mean {visible(near)}? " if near else ""
