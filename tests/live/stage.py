"""attn live without a terminal: Textual's pilot presses its keys, and the screen is read as lines of text."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import numpy as np
from textual import events

from attn_cli.io.terminal import Terminal
from attn_cli.live.app import LiveApp
from attn_cli.live.run import begin
from attn_cli.live.sources import TextSource
from attn_cli.settings.output import View
from attn_cli.settings.settings import Settings

FOX = "The quick brown fox jumped over the lazy dog"
SIZE = (80, 24)
LIMIT = 10.0  # seconds
CHARACTERS = {
    "space": " ",
    "plus": "+",
    "minus": "-",
    "question_mark": "?",
    "enter": "\r",
    "equals_sign": "=",
}
NAMES = {character: name for name, character in CHARACTERS.items()} | {".": "full_stop", "/": "slash"}


class Stage:
    """A running attn live: its keys, its lines."""

    def __init__(self, app: LiveApp, pilot: Any) -> None:
        self.app, self.pilot, self.session = app, pilot, app.session

    @property
    def state(self):
        return self.session.state

    @property
    def trace(self):
        return self.session.trace

    async def press(self, *keys: str) -> None:
        """Press keys, each once the one before is answered."""
        for key in keys:
            self.app.post_message(events.Key(key, CHARACTERS.get(key, key if len(key) == 1 else None)))
            await self.settled()

    async def type(self, text: str) -> None:
        """Type a text letter by letter without waiting."""
        for letter in text:
            self.app.post_message(events.Key(NAMES.get(letter, letter), letter))
        await self.settled()

    async def settled(self) -> None:
        """Wait until what is shown answers what is asked."""
        end = asyncio.get_running_loop().time() + LIMIT
        calm = 0
        while calm < 4 and self.app.is_running:
            assert asyncio.get_running_loop().time() < end, "no answer came"
            await asyncio.sleep(0.001)
            nodes = (self.app, self.app.screen, self.app.board, self.app.line)
            is_calm = not self.session.is_behind and all(node.message_queue_size == 0 for node in nodes)
            calm = calm + 1 if is_calm else 0

    def lines(self) -> list[str]:
        """Return the lines below the text line, as they are shown."""
        return [self.app.board.render_line(y).text.rstrip() for y in range(self.app.board.size.height)]

    def text(self) -> str:
        return "\n".join(self.lines())

    def find(self, words: str) -> tuple[int, int]:
        """Return where words stand on the board: cell and line."""
        for y, line in enumerate(self.lines()):
            if words in line:
                return line.index(words), y
        raise AssertionError(f"{words!r} is not on the screen:\n{self.text()}")

    async def click(self, words: str, times: int = 1, by: int = 0) -> None:
        """Click on words of the board, `by` cells to the right of their beginning."""
        x, y = self.find(words)
        await self.pilot.click("#board", offset=(x + by, y), times=times)
        await self.settled()


@asynccontextmanager
async def staged(app: LiveApp, size: tuple[int, int] = SIZE):
    async with app.run_test(size=size) as pilot:
        stage = Stage(app, pilot)
        await stage.settled()
        yield stage


def made(text: str = FOX, settings: Settings | None = None, source: Any = None, **options: Any) -> LiveApp:
    """Return the program over a text, or over another source."""
    settings = settings or Settings()
    session = begin(source or TextSource(settings), text, settings)
    session.view = options.pop("view", View())
    terminal = options.pop("terminal", Terminal(None, 256))
    return LiveApp(session, session.view, terminal, **options)


def play(act: Callable[[Stage], Any], app: LiveApp | None = None, size: tuple[int, int] = SIZE) -> LiveApp:
    """Run the program, let `act` use it, and return it."""
    app = app or made()

    async def run() -> None:
        async with staged(app, size) as stage:
            await act(stage)

    asyncio.run(run())
    if app.failure is not None:
        raise app.failure
    return app


def traced(text: str = FOX, **settings: Any):
    """Return the trace that another command would make of a text."""
    from attn_cli.pipeline.sources.text import trace_text

    chosen = replace(Settings(), **settings)
    return trace_text("self", text, None, chosen)


def same(trace: Any, expected: Any) -> bool:
    """Tell whether two traces have the same weights, masks and outputs."""
    masks = (trace.mask is None) == (expected.mask is None)
    if masks and trace.mask is not None:
        masks = bool((trace.mask == expected.mask).all())
    return masks and np.allclose(trace.weights, expected.weights) and trace.shown.name == expected.shown.name


def numbers_of(lines: Sequence[str], label: str) -> list[str]:
    """Return the cells of the last line that begins with a label."""
    line = next(line for line in reversed(lines) if line.strip().startswith(label))
    return line.split()[1:]
