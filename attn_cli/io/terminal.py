"""The terminal as a value: width, colours, characters."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeAlias

from attn_cli.errors import visible
from attn_cli.io.console import stream_width
from attn_cli.io.types import NamedTuple

if TYPE_CHECKING:
    from rich.segment import Segment

TRUECOLOR = 1 << 24
Line: TypeAlias = "list[Segment]"


class Terminal(NamedTuple):
    """Where output goes: `width` in cells (None is unlimited), `colors` (0, 16, 256 or 2^24)."""

    width: int | None = None
    colors: int = 0
    encoding: str = "utf-8"
    dark: bool | None = True  # the background; None where nobody knows
    is_picture: bool = False  # a shade fills its whole cell

    @property
    def unicode(self) -> bool:
        """Whether block and box characters can be written."""
        return _encodes(self.encoding, "▁█–…×√→")

    @property
    def has_halves(self) -> bool:
        """Whether the upper and the lower half of a cell can have a colour each."""
        return self.colors > 0 and self.unicode and not self.is_picture

    def text(self, text: str) -> str:
        """Return `text` inert and encodable: what cannot be written is spelled out."""
        shown = visible(text)
        if shown.isascii() or _encodes(self.encoding, shown):
            return shown
        return shown.replace("␣", "_").encode(self.encoding, "backslashreplace").decode(self.encoding)

    def paint(self, lines: Iterable[Line]) -> str:
        """Return lines of segments as text, with this terminal's colours."""
        if not self.colors:
            return "".join("".join([segment.text for segment in line]) + "\n" for line in lines)
        from rich.color import ColorSystem  # what is not drawn, as JSON, does without Rich

        systems = {16: ColorSystem.STANDARD, 256: ColorSystem.EIGHT_BIT}
        system = systems.get(self.colors, ColorSystem.TRUECOLOR)
        painted: list[str] = []
        for line in lines:
            painted += (style.render(text, color_system=system) if style else text for text, style, _ in line)
            painted.append("\n")
        return "".join(painted)


def _encodes(encoding: str, text: str) -> bool:
    try:
        text.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def terminal_of(is_file: bool, color: str = "auto", width: int | None = None) -> Terminal:
    """Return the terminal that standard output is, or what stands for one in a file; a flag beats the environment."""
    stream = None if is_file else sys.stdout
    background = os.environ.get("COLORFGBG", "").rpartition(";")[2]
    return Terminal(
        width=width or stream_width(stream),
        colors=_color_count() if _wants_color(stream is not None and stream.isatty(), color) else 0,
        encoding=getattr(stream, "encoding", None) or "utf-8",
        dark=background not in ("7", "15") if background else None,
    )


def _wants_color(is_tty: bool, color: str) -> bool:
    """Decide on colour: the flag, NO_COLOR, CLICOLOR_FORCE, FORCE_COLOR, CLICOLOR, TERM, the terminal."""
    said = os.environ.get
    if color != "auto":
        return color == "always"
    if said("NO_COLOR"):
        return False
    if said("CLICOLOR_FORCE", "0") not in ("", "0"):
        return True
    if forced := said("FORCE_COLOR"):
        return forced != "0"
    return said("CLICOLOR") != "0" and said("TERM") != "dumb" and is_tty and _obeys_escapes()


def _obeys_escapes() -> bool:
    """Tell whether the terminal obeys escape sequences; a console of Windows does where it is told to, and can."""
    if sys.platform != "win32":
        return True
    import ctypes
    import msvcrt

    # https://learn.microsoft.com/windows/console/setconsolemode (ENABLE_VIRTUAL_TERMINAL_PROCESSING)
    kernel, mode = ctypes.windll.kernel32, ctypes.c_ulong()
    console = ctypes.c_void_p(msvcrt.get_osfhandle(sys.stdout.fileno()))
    is_console = kernel.GetConsoleMode(console, ctypes.byref(mode))
    return bool(is_console and kernel.SetConsoleMode(console, mode.value | 4))


def _color_count() -> int:
    term = os.environ.get("TERM", "")
    if os.environ.get("COLORTERM", "").lower() in ("truecolor", "24bit") or term.endswith("-direct"):
        return TRUECOLOR
    return 256 if "256" in term else 16
