"""attn live: attention on a full screen that answers while you type."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING

import typer

from attn_cli.cli.options import argument, own, takes
from attn_cli.cli.read_text import labelled_weights, one_text, prepare_index
from attn_cli.errors import MissingExtra, UsageError, refuse
from attn_cli.io.console import is_terminal
from attn_cli.io.types import replace
from attn_cli.settings import DEFAULTS, Settings, View, declare, settings_of, with_next_words

if TYPE_CHECKING:
    from attn_cli.live.sources import LiveSource

EXAMPLE = "The quick brown fox jumped over the lazy dog"
TEXT_HELP = "The text, in quotes; without one, an example to start with."
MATRICES_HELP = "Given Q, K, V, or X, W_q, W_k, W_v, as attn compute reads them."
PACE_HELP = "With --replay: speed-up factor (2 is twice as fast).  [default: 1]"


@takes("TOKENS VECTORS model MODEL pair COMPUTED PLACED dtype by_hand precision color palette shades FIGURE")
def live(
    context: typer.Context,
    settings: Settings,
    view: View,
    texts: list[str] | None = argument("TEXT", TEXT_HELP, default=None),
    matrices: str | None = own("FILE", MATRICES_HELP, declare.INPUT),
    weights: str | None = own("FILE", "Saved weights, as attn show reads them.", declare.INPUT),
    record: str | None = own("FILE", "Write every key with its time to FILE, one a line.", declare.OUTPUT),
    replay: str | None = own("FILE", "Press the keys that --record wrote.", declare.INPUT),
    pace: float | None = own("N", PACE_HELP, declare.INPUT),
) -> None:
    """Attention on a full screen, by keys and by mouse: it answers while you type.

    Type another word, hide one, turn the mask, the head, the score and the temperature; see what changed, and
    copy the command that shows it again. ? lists the keys.

    Example: attn live "The quick brown fox jumped over the lazy dog"
    """
    _check_screen()
    is_wrong = pace is not None and (replay is None or not 0 < pace <= 1000)
    refuse(is_wrong, "--pace requires --replay and a number above 0, at most 1000.", option="--pace")
    given = {"TEXT": texts, "--matrices": matrices, "--weights": weights}
    named = [name for name, value in given.items() if value]
    if len(named) > 1:
        raise UsageError(f"{' and '.join(named)} are more than one input.", "Give one of them.", named[-1])
    said = "attn live reads the keyboard from standard input, so the text cannot come from there."
    refuse(texts == ["-"], said, "Type the text in quotes.")
    from attn_cli.live import guest, recording, session

    recorded, events = recording.read_recording(replay) if replay is not None else (None, ())
    source, settings = _source(context, matrices, weights, settings)
    text = ""
    if source.has_text:
        text = (one_text(texts, "live", settings) if texts else "") or recorded or EXAMPLE
    guest.run(session.begin(source, text, settings, view), record, recording.Replay(events, pace or 1.0))


def _check_screen() -> None:
    """Refuse where there is no keyboard or no screen, or where Textual is not installed."""
    said = "attn live reads keys, and standard input is not a terminal."
    refuse(not is_terminal(sys.stdin), said, "For a text in a pipe: attn self -")
    said = "attn live draws on the screen, and standard output is not a terminal."
    refuse(not is_terminal(sys.stdout), said, "For a file: attn self TEXT -o FILE")
    is_blind = sys.platform == "win32" or os.environ.get("TERM", "") in ("", "dumb", "unknown")
    said = "attn live needs a terminal that can be drawn on."
    refuse(is_blind, said, "attn explain TEXT shows the same in lines.")
    if find_spec("textual") is None:
        raise MissingExtra("attn live needs Textual: pip install 'attn-cli[live]'")


def _source(
    context: typer.Context, matrices: str | None, weights: str | None, settings: Settings
) -> tuple[LiveSource, Settings]:
    from attn_cli.live.sources import MatricesSource, TextSource, WeightsSource

    if matrices is not None or weights is not None:
        settings = replace(settings, model=None)  # one from a variable or attn.toml applies to texts only
    if matrices is not None:
        from attn_cli.cli.origins import prefer_given
        from attn_cli.inputs.matrices import read_given

        given = read_given(matrices)
        settings, untempered = prefer_given(context, settings, given)
        return MatricesSource(untempered, matrices, given.temperature), settings
    if weights is not None:
        return WeightsSource(labelled_weights(weights, "show"), weights), settings
    if settings.model is not None:
        return TextSource(settings), settings
    prepare_index(settings.embedding, "random, ")
    if settings.mask == DEFAULTS["masked"].mask:  # it begins as attn masked; a key changes no model
        settings = settings_of("masked", settings)
        is_guessing = settings.projection == DEFAULTS["masked"].projection
        settings = with_next_words(settings) if is_guessing else settings
    return TextSource(settings), settings
