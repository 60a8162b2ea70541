"""attn live without a terminal: Textual's pilot holds it, its keys are pressed, its screen is read as lines of text."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from inspect import Signature, signature
from typing import Any

import numpy as np
from textual import events
from textual.keys import _character_to_key

from attn_cli.io.terminal import Terminal
from attn_cli.live.app import LiveApp
from attn_cli.live.session import begin
from attn_cli.live.sources import TextSource
from attn_cli.pipeline.sources.text import trace_text
from attn_cli.settings import Settings, View

FOX = "The quick brown fox jumped over the lazy dog"
SIZE = (80, 24)
LIMIT = 60.0  # seconds: far more than any answer takes, also on a busy machine


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
        for key in keys:
            self.send(key)
            await self.settled()

    async def goes(self, *steps: tuple[Any, ...]) -> None:
        """Press the keys of each step, and check what the screen says or (!) does not, its pane (@), its trace."""
        for keys, *wanted in steps:
            await self.press(*keys.split())
            for one in wanted:
                if not isinstance(one, str):
                    assert same(self.trace, one), keys
                elif one[0] == "@":
                    assert self.state.pane == one[1:], keys
                else:
                    assert (one.lstrip("!") in self.said()) != (one[0] == "!"), (keys, one, self.text())

    async def type(self, text: str) -> None:
        for letter in text:
            self.send(letter)
        await self.settled()

    def send(self, key: str) -> None:
        key, character = (_character_to_key(key), key) if len(key) == 1 else (key, None)
        self.app.post_message(events.Key(key, character))

    async def answer(self, text: str, *wanted: Any) -> None:
        await self.press("ctrl+u")
        await self.type(text)
        await self.goes(("enter", *wanted))

    async def settled(self) -> None:
        end = asyncio.get_running_loop().time() + LIMIT
        calm = 0
        while calm < 4 and self.app.is_running:
            assert asyncio.get_running_loop().time() < end, "no answer came"
            await asyncio.sleep(0.001)
            calm = calm + 1 if self.app.is_calm else 0

    async def replayed(self) -> None:
        while self.app.replay.is_on:
            await asyncio.sleep(0.01)
        await self.settled()

    def lines(self) -> list[str]:
        return [self.app.board.render_line(y).text.rstrip() for y in range(self.app.board.size.height)]

    def text(self) -> str:
        return "\n".join(self.lines())

    def said(self) -> str:
        """Return the screen as one line, so that a sentence is whole wherever it is wrapped."""
        return " ".join(self.text().split())

    async def click(self, words: str, times: int = 1, by: int = 0) -> None:
        y = next(y for y, line in enumerate(self.lines()) if words in line)
        await self.click_at(self.lines()[y].index(words) + by, y, times)

    async def click_at(self, x: int, y: int, times: int = 1) -> None:
        await self.pilot.click("#board", offset=(x, y), times=times)
        await self.settled()


def made(text: str = FOX, settings: Settings | None = None, source: Any = None, **options: Any) -> LiveApp:
    settings = settings or Settings()
    session = begin(source or TextSource(settings), text, settings, View())
    return LiveApp(session, Terminal(None, 256), **options)


def play(act: Callable[[Stage], Any], app: LiveApp | None = None, size: tuple[int, int] = SIZE) -> LiveApp:
    app = app or made()

    async def run() -> None:
        async with app.run_test(size=size) as pilot:
            stage = Stage(app, pilot)
            await stage.settled()
            await act(stage)

    with ThreadPoolExecutor(1) as thread:  # a browser's tests, in the same process, leave a loop in this one
        thread.submit(lambda: asyncio.run(run())).result()
    if app.failure is not None:
        raise app.failure
    return app


def staged(size: tuple[int, int] = SIZE, **options: Any) -> Callable[..., Callable[..., None]]:
    """Make a test of what is done on a stage; its other parameters are those of the test."""

    def on_stage(act: Callable[..., Any]) -> Callable[..., None]:
        def test(**given: Any) -> None:
            play(partial(act, **given), made(**options), given.get("size", size))

        test.__name__ = act.__name__
        test.__signature__ = Signature([*signature(act).parameters.values()][1:])  # type: ignore[attr-defined]
        test.__module__ = act.__module__
        return test

    return on_stage


def goes(*steps: tuple[Any, ...], app: LiveApp | None = None, size: tuple[int, int] = SIZE) -> LiveApp:
    return play(lambda stage: stage.goes(*steps), app, size)


def traced(text: str = FOX, **settings: Any):
    return trace_text("self", text, None, replace(Settings(), **settings))


def same(trace: Any, expected: Any) -> bool:
    is_alike = np.array_equal(trace.mask, expected.mask) and np.allclose(trace.weights, expected.weights)
    return is_alike and trace.shown.name == expected.shown.name


def numbers_of(lines: Sequence[str], label: str) -> list[str]:
    return next(line for line in lines if line.startswith(label + " ")).partition("│")[0].split()[1:]
