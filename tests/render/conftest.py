"""One browser for all tests of pages in a process."""

import pytest

from tests.browser import Opened, chromium


@pytest.fixture(scope="session")
def browser():
    with chromium() as started:
        yield started


@pytest.fixture
def opened(browser):
    """Give a page that must stay silent: no error, no warning, no request."""
    context = browser.new_context(accept_downloads=True, viewport={"width": 1280, "height": 900})
    one = Opened(context.new_page())
    yield one
    context.close()
    assert not one.complaints
