"""A real browser for the tests of pages: headless Chromium, and what it says while a page is open."""

import importlib.util
import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.shell import attn

FOX = "The quick brown fox jumped over the lazy dog"
NAMES = ("chromium", "chromium-browser", "google-chrome")
ITS_OWN = re.compile("file:|blob:|data:")


class Opened:
    """A page that is open: the page itself, and all that must not have happened since."""

    def __init__(self, page, folder: Path | None = None) -> None:
        self.page, self.folder = page, folder
        self.complaints = []  # errors, warnings of the console, requests that left the page
        page.on("console", lambda said: self.complaints.append(f"{said.type}: {said.text}"))
        page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        page.on("dialog", lambda dialog: self.complaints.append(f"dialog: {dialog.message}"))
        page.on(
            "request", lambda one: ITS_OWN.match(one.url) or self.complaints.append(f"request: {one.url}")
        )

    def go(self, path: object, link: str = "") -> None:
        """Open a file, and wait until it has drawn itself."""
        self.page.goto(f"file://{path}{link}")
        self.page.wait_for_selector("body[data-ready]")

    def make(self, *args: str, link: str = "", input: str | None = None) -> None:
        assert self.folder
        self.go(made(self.folder, *args, input=input), link)

    def text(self, selector: str) -> str:
        return self.page.inner_text(selector)

    def unfold(self, *drawers: str) -> None:
        """Open what is folded up: the drawer of controls, unless another is named."""
        for drawer in drawers or ("more",):
            self.page.evaluate("id => { document.getElementById(id).open = true }", drawer)

    def edit(self) -> None:
        """Put the field to type a sentence in into the place of the words."""
        if self.page.locator("#sentence").is_hidden():
            self.page.click("#type")

    def enter(self, field: str, text: str) -> None:
        if field == "#sentence":
            self.edit()
        self.page.fill(field, text)
        self.page.press(field, "Enter")

    def follow(self, link: str) -> None:
        self.page.evaluate("link => { location.hash = link }", link)
        self.page.wait_for_timeout(0)

    def saved(self, button: str) -> str:
        with self.page.expect_download() as waiting:
            self.page.click(f"#{button}")
        with open(waiting.value.path(), encoding="utf-8") as file:
            return file.read()

    def record(self) -> dict:
        return json.loads(self.saved("save-json"))


_started: list[object] = []  # Playwright starts once in a process: whoever comes second gets the same browser


@contextmanager
def chromium() -> Iterator[object]:
    """Start headless Chromium; the test is skipped where there is none, unless ATTN_REQUIRE_CHROMIUM is set."""
    if _started:
        yield _started[0]
        return
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None or not importlib.util.find_spec("playwright"):
        how = pytest.fail if os.environ.get("ATTN_REQUIRE_CHROMIUM") else pytest.skip
        how("The tests of pages need playwright and Chromium.")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        _started.append(browser)
        try:
            yield browser
        finally:
            _started.clear()
            browser.close()


def made(folder: Path, *args: str, input: str | None = None) -> Path:
    path = folder / "page.html"
    ran = attn(args[0], "-o", str(path), *args[1:], input=input)
    assert (ran.code, ran.out) == (0, ""), ran.err
    return path
