"""Matplotlib (the extra `figures`): loaded where a figure is drawn, quiet, and with settings of our own."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterator

from attn_cli.errors import ConfigError, MissingExtra
from attn_cli.io.escape import visible

INSTALL = "Install it: pip install 'attn-cli[figures]'"
LEAST = (3, 11)  # the first that shapes Arabic and joins Indic letters, and embeds any font in PDF
SETTINGS = {
    "text.parse_math": False,  # a token may hold $ and \
    "pdf.fonttype": 42,  # whole letters, which can be searched and copied
    "svg.fonttype": "none",  # text stays text
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial"],  # what a reader of SVG may have
    "svg.hashsalt": "attn",  # the same figure is the same file
    "hatch.linewidth": 0.6,
    "path.simplify": False,
}


def not_installed() -> MissingExtra:
    """Return the error of a figure without Matplotlib."""
    return MissingExtra("Figures need Matplotlib, which is not installed.", INSTALL)


@contextlib.contextmanager
def drawing() -> Iterator[None]:
    """Let Matplotlib draw without a word, and as it is by default: no matplotlibrc changes a figure.

    Raises MissingExtra where it is not installed, or too old.
    """
    talk = logging.getLogger("matplotlib")
    level = talk.level
    talk.setLevel(logging.CRITICAL)  # of a folder that it cannot write to, of fonts that it looks for
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _check_version()
            import matplotlib

            with matplotlib.rc_context():
                matplotlib.rcdefaults()
                matplotlib.rcParams.update(SETTINGS)
                yield
    finally:
        talk.setLevel(level)


def _check_version() -> None:
    try:
        import matplotlib
    except ImportError as error:
        if error.name != "matplotlib":
            raise
        raise not_installed() from None
    except Exception as error:  # whatever its own settings make it stumble over
        why = visible(" ".join(str(error).split())[:200])
        hint = "Look at MPLBACKEND, and at a file matplotlibrc here or in ~/.config/matplotlib."
        raise ConfigError(f"Matplotlib does not start: {why.rstrip('.')}.", hint) from None
    found = matplotlib.__version_info__
    if (found.major, found.minor) < LEAST:
        raise MissingExtra(
            f"Figures need Matplotlib {LEAST[0]}.{LEAST[1]}; {matplotlib.__version__} is installed.", INSTALL
        )
