"""attn live without a terminal: Textual's pilot holds it, its keys are pressed, its screen is read as lines of text."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from textual import events
from textual.keys import _character_to_key

from attn_cli.io.terminal import Terminal
from attn_cli.live.app import LiveApp
from attn_cli.live.session import begin
from attn_cli.live.sources import TextSource
from attn_cli.pipeline.sources.text import trace_text
from attn_cli.settings.output import View
from attn_cli.settings.settings import Settings

FOX = "The quick brown fox jumped over the lazy dog"
SIZE = (80, 24)
LIMIT = 10.0  # seconds


class Stage:
    """A running attn live: its keys, its lines. Keys of one character are written as that character."""

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
            self.send(key)
            await self.settled()

    async def goes(self, *steps: tuple[str, ...]) -> None:
        """Press the keys of each step, and look for what the screen says then; ! stands before what it does not."""
        for keys, *said in steps:
            await self.press(*keys.split())
            for text in said:
                assert (text.lstrip("!") in self.said()) != text.startswith("!"), (keys, text, self.text())

    async def type(self, text: str) -> None:
        """Type a text letter by letter without waiting."""
        for letter in text:
            self.send(letter)
        await self.settled()

    def send(self, key: str) -> None:
        is_character = len(key) == 1
        self.app.post_message(
            events.Key(_character_to_key(key), key) if is_character else events.Key(key, None)
        )

    async def answer(self, text: str) -> None:
        """Type an answer in place of the one in the line."""
        await self.press("ctrl+u")
        await self.type(text)
        await self.press("enter")

    async def settled(self) -> None:
        """Wait until what is shown answers what is asked."""
        end = asyncio.get_running_loop().time() + LIMIT
        calm = 0
        while calm < 4 and self.app.is_running:
            assert asyncio.get_running_loop().time() < end, "no answer came"
            await asyncio.sleep(0.001)
            calm = calm + 1 if self.app.is_calm else 0

    async def replayed(self) -> None:
        """Wait until a replay is over."""
        while self.app.replay.is_on:
            await asyncio.sleep(0.01)
        await self.settled()

    def lines(self) -> list[str]:
        """Return the lines below the text line, as they are shown."""
        return [self.app.board.render_line(y).text.rstrip() for y in range(self.app.board.size.height)]

    def text(self) -> str:
        return "\n".join(self.lines())

    def said(self) -> str:
        """Return the screen as one line, so that a sentence is whole wherever it is wrapped."""
        return " ".join(self.text().split())

    async def click(self, words: str, times: int = 1, by: int = 0) -> None:
        """Click on words of the board, `by` cells to the right of their beginning."""
        y = next(y for y, line in enumerate(self.lines()) if words in line)
        await self.click_at(self.lines()[y].index(words) + by, y, times)

    async def click_at(self, x: int, y: int, times: int = 1) -> None:
        await self.pilot.click("#board", offset=(x, y), times=times)
        await self.settled()


def made(text: str = FOX, settings: Settings | None = None, source: Any = None, **options: Any) -> LiveApp:
    """Return the program over a text, or over another source."""
    settings = settings or Settings()
    session = begin(source or TextSource(settings), text, settings, View())
    return LiveApp(session, Terminal(None, 256), **options)


def play(act: Callable[[Stage], Any], app: LiveApp | None = None, size: tuple[int, int] = SIZE) -> LiveApp:
    """Run the program, let `act` use it, and return it."""
    app = app or made()

    async def run() -> None:
        async with app.run_test(size=size) as pilot:
            stage = Stage(app, pilot)
            await stage.settled()
            await act(stage)

    asyncio.run(run())
    if app.failure is not None:
        raise app.failure
    return app


def goes(*steps: tuple[str, ...], app: LiveApp | None = None, size: tuple[int, int] = SIZE) -> LiveApp:
    """Run the program through steps: keys, and what the screen says then."""
    return play(lambda stage: stage.goes(*steps), app, size)


def traced(text: str = FOX, **settings: Any):
    """Return the trace that another command would make of a text."""
    return trace_text("self", text, None, replace(Settings(), **settings))


def same(trace: Any, expected: Any) -> bool:
    """Tell whether two traces have the same weights, masks and heads."""
    masks = (trace.mask is None) == (expected.mask is None)
    if masks and trace.mask is not None:
        masks = bool((trace.mask == expected.mask).all())
    return masks and np.allclose(trace.weights, expected.weights) and trace.shown.name == expected.shown.name


def numbers_of(lines: Sequence[str], label: str) -> list[str]:
    """Return the cells of the first line that begins with a label."""
    return next(line for line in lines if line.startswith(label + " ")).partition("│")[0].split()[1:]
