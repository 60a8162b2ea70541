"""What attn is measured against, each at its best: same data, same colours, one BLAS thread on both sides."""

import io
import sys

import numpy as np
from rich.console import Console
from rich.style import Style
from rich.table import Table
from rich.text import Text

NOTHING = [sys.executable, "-c", "pass"]
NUMPY = [sys.executable, "-c", "import numpy"]
_LOAD = (
    "import sys; from gensim.models import KeyedVectors; KeyedVectors.load_word2vec_format(sys.argv[1], {})"
)
GENSIM_TEXT = [sys.executable, "-c", _LOAD.format("no_header=True")]
GENSIM_BINARY = [sys.executable, "-c", _LOAD.format("binary=True")]


def rich_table(tokens: list[str], weights: np.ndarray, styles: list[Style], width: int) -> str:
    """Draw a shaded weight matrix with rich.table.Table of Text cells: no box, no padding, styles cached."""
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, color_system="truecolor", width=width)
    table = Table(box=None, padding=0, show_header=True, pad_edge=False)
    table.add_column("", width=12)
    for token in tokens:
        table.add_column(Text(token), width=5, no_wrap=True)
    low, high = weights.min(), weights.max()
    shades = np.rint((weights - low) / (high - low) * (len(styles) - 1)).astype(int).tolist()
    for token, row, places in zip(tokens, weights.tolist(), shades, strict=True):
        cells = [Text(f" {value:.3f}"[:5], styles[place]) for value, place in zip(row, places, strict=True)]
        table.add_row(Text(token), *cells)
    console.print(table)
    return out.getvalue()
