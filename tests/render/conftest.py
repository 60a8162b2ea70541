"""One browser for all tests of pages in a process, and pages that several files open."""

import numpy as np
import pytest

from tests.browser import FOX, Opened, chromium, made


@pytest.fixture(scope="session")
def browser():
    with chromium() as started:
        yield started


@pytest.fixture
def opened(browser, tmp_path):
    """Give a page that must stay silent: no error, no warning, no request."""
    context = browser.new_context(accept_downloads=True, viewport={"width": 1280, "height": 900})
    one = Opened(context.new_page(), tmp_path)
    yield one
    context.close()
    assert not one.complaints


@pytest.fixture(scope="session")
def fox(tmp_path_factory):
    return made(tmp_path_factory.mktemp("fox"), "page", FOX, "--words", "200")


@pytest.fixture(scope="session")
def layers(tmp_path_factory):
    """The page of 6 layers of 12 heads over 12 words; head 3 of layer 2 looks at the word before."""
    folder = tmp_path_factory.mktemp("layers")
    weights = np.random.default_rng(0).dirichlet([0.3] * 12, (6, 12, 12))
    weights[2, 3] = np.eye(12)[[0, *range(11)]]
    np.savez(folder / "w.npz", attentions=weights, tokens=[f"word{n}" for n in range(12)])
    return made(folder, "show", str(folder / "w.npz"), "-f", "page")
