"""Everybody can read a page: axe-core finds nothing, at every width, in the dark and in the light."""

import numpy as np
import pytest

from tests.browser import made
from tests.thorough import like_cases


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    layers = tmp_path_factory.mktemp("layers")
    np.save(layers / "w.npy", np.random.default_rng(0).dirichlet([1.0] * 6, (3, 4, 6)))
    texts = {
        "layers": ("show", str(layers / "w.npy"), "-f", "page"),
        "text": ("page", "The quick brown fox jumped over the lazy dog", "--words", "50", "--mask", "causal"),
        "matrices": ("example", "coffee", "-f", "page"),
        "long": ("page", " ".join(f"word{n}" for n in range(30)), "-e", "random", "--heads", "2"),
    }
    return {name: made(tmp_path_factory.mktemp(name), *args) for name, args in texts.items()}


@pytest.mark.parametrize("name", ["text", "matrices", "long", "layers"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@like_cases
def test_axe_finds_no_violation(browser, pages, name, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    for width, height in ((360, 800), (390, 844), (1280, 800), (1920, 1080)):
        looks = {"color_scheme": scheme, "bypass_csp": True, "reduced_motion": "reduce"}
        context = browser.new_context(viewport={"width": width, "height": height}, **looks)
        page = context.new_page()
        page.goto(f"file://{pages[name]}")
        page.wait_for_selector("body[data-ready]")
        if page.locator("#next").is_visible():  # in the overview of layers it is not
            page.click("#next")
        page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
        found = axe.Axe().run(page).response["violations"]
        wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        context.close()
        assert not [(one["id"], [node["html"] for node in one["nodes"]]) for one in found]
        assert wide <= 0  # nothing makes the page itself scroll sideways
