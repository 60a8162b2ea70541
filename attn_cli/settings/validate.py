"""Settings checked in one place, and the rows that a query names."""

from __future__ import annotations

import math
from collections.abc import Sequence

from attn_cli.errors import UsageError
from attn_cli.io.escape import visible
from attn_cli.io.files import looks_like_file
from attn_cli.settings.settings import Settings

CHOICES = {
    "tokenizer": ("words", "whitespace", "characters"),
    "oov": ("model", "zero", "random", "nearest", "skip", "error"),
    "layout": ("in-out", "out-in"),
    "score": ("scaled", "dot", "cosine"),
    "mask_true": ("allowed", "blocked"),
    "pad_side": ("right", "left"),
    "positions": ("none", "sinusoidal"),
    "dtype": ("float64", "float32"),
}
LEAST_MOST = {
    "dim": (1, 100_000),
    "seed": (0, 2**63 - 1),
    "heads": (1, 100_000),
    "layer": (0, 100_000),
    "top": (1, 1_000_000),
    "pad": (1, 10_000),
    "round": (0, 4),
    "threads": (1, 1024),
}


def check(settings: Settings) -> None:
    """Raise UsageError for a value that is out of range, naming the option."""
    for name, choices in CHOICES.items():
        value = getattr(settings, name)
        if value is not None and value not in choices:
            option = "--" + name.replace("_", "-")
            raise UsageError(
                f"{option} cannot be {visible(str(value))!r}.", f"Choose {', '.join(choices)}.", option
            )
    for name, (least, most) in LEAST_MOST.items():
        value = getattr(settings, name)
        if value is not None and not least <= value <= most:
            raise UsageError(
                f"--{name} cannot be {value}.", f"Give a whole number from {least} to {most:,}.", f"--{name}"
            )
    if not (math.isfinite(settings.temperature) and settings.temperature >= 1e-6):
        raise UsageError(
            f"--temperature cannot be {settings.temperature}.",
            "Give a number above 0 (at least 1e-6): below 1 sharpens, above 1 flattens.",
            "--temperature",
        )


def unused(settings: Settings, words: bool = True, learned: bool = False, has_x: bool = True) -> list[str]:
    """Return a note for each option that was set although, with these others, it changes nothing.

    `words` says whether a text is cut and looked up; given matrices come without. `learned` says whether the
    projection is a learned model, `has_x` whether there are vectors X that Q, K and V are made of.
    """
    drawn = settings.embedding == "random"
    from_file = settings.projection not in (None, "identity", "random") and not learned
    by_default = settings.embedding in (None, "word2vec") and settings.projection is None and words
    mask_file = settings.mask is not None and looks_like_file(settings.mask)
    usual = Settings()
    idle = {
        "--dim counts only with random vectors.": settings.dim is not None and not drawn,
        "--layout counts only with weights from a file.": words and settings.layout and not from_file,
        "--pad-side counts only with --pad.": not settings.pad and settings.pad_side != usual.pad_side,
        "--mask-true counts only with a mask from a file.": settings.mask_true and not mask_file,
        "--tokenizer counts only with a text.": not words and settings.tokenizer != usual.tokenizer,
        "--heads splits the identity projection; the heads of roles, the default, are its own.": by_default
        and settings.heads is not None,
        "--layer counts only with a learned model.": settings.layer is not None and not learned,
        "--positions counts only where X is known, not with Q, K and V.": settings.positions == "sinusoidal"
        and not has_x,
        "--oov counts only with word vectors.": (drawn or not words) and settings.oov != usual.oov,
        "--keep-punctuation counts only with --tokenizer words.": settings.keep_punctuation
        and (not words or settings.tokenizer != "words"),
    }
    return [note for note, is_idle in idle.items() if is_idle]


def find_rows(query: str, tokens: Sequence[str]) -> tuple[int, ...]:
    """Return the rows that `query` names: a token as written, else case-blind, else an index."""
    rows = tuple(i for i, token in enumerate(tokens) if token == query)
    rows = rows or tuple(i for i, token in enumerate(tokens) if token.casefold() == query.casefold())
    if rows:
        return rows
    if query.isascii() and query.isdigit() and len(query) < 10 and int(query) < len(tokens):
        return (int(query),)
    import difflib  # only for help with a mistake

    shown = visible(query[:60])
    near = [] if query.isdigit() else difflib.get_close_matches(query, tokens[:2000], 1)
    meant = f"Did you mean {visible(near[0])}? " if near else ""
    raise UsageError(
        f"There is no token {shown!r} to look from.",
        f"{meant}Give a token of the text, or its number from 0 to {len(tokens) - 1}.",
        "--query",
    )
