"""The readers at a scale at which a file of some hundred bytes is a large one.

All their sizes shrink together, so that blocks, windows and pages end in the middle of everything, and a
file goes the way of one of a gigabyte.
"""

import contextlib
import re
import sys
from collections.abc import Iterator
from types import ModuleType

from attn_cli.vectors import detect as formats
from attn_cli.vectors import gensim_pickle as pickled

LONGEST_WORD = 40
_WORD = rb"\n?([^ \n]{1,%d}+) " % LONGEST_WORD
_SIZES = ("PIECE", "LONGEST_LINE", "INDEXED_FROM")  # as large as a block of the file


def _values(piece: int) -> dict[str, object]:
    values = {
        "FEW": 3,
        "ENOUGH": piece // 2,
        "FIRST_ROWS": 8,
        "PAGE": 4,
        "BLOCK": 4,
        "LONGEST_WORD": LONGEST_WORD,
    }
    return {**dict.fromkeys(_SIZES, piece), **values, "WORD": _WORD, "_WORD": re.compile(_WORD)}


def _found() -> list[tuple[ModuleType, str, object]]:
    """Return every size that a module of the readers has, its own or another's, with its real value."""
    assert formats.INDEXED_FROM and pickled.BLOCK  # all readers are loaded
    modules = [
        module
        for name, module in sys.modules.items()
        if name.startswith(("attn_cli.vectors.", "attn_cli.io.files"))
    ]
    found = [(one, name, getattr(one, name)) for one in modules for name in _values(0) if hasattr(one, name)]
    missing = _values(0).keys() - {name for _, name, _ in found}
    assert not missing, f"the readers have no {missing} any more"
    return [(one, name, value) for one, name, value in found if isinstance(value, int | bytes | re.Pattern)]


_REAL = _found()


def scale(piece: int | None) -> None:
    """Shrink the readers to blocks of `piece` bytes, or give them back their real sizes."""
    small = {} if piece is None else _values(piece)
    for module, name, value in _REAL:
        setattr(module, name, small.get(name, value))


@contextlib.contextmanager
def scaled(piece: int) -> Iterator[None]:
    """Shrink the readers for a while."""
    scale(piece)
    try:
        yield
    finally:
        scale(None)
