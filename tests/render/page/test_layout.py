"""Attention comes first, at the sizes of a laptop, a phone and a projector; and everybody can read a page."""

import pytest

from tests.browser import FOX, made
from tests.thorough import like_cases

SIZES = {"laptop": (1280, 800), "phone": (390, 844), "projector": (1920, 1080)}
MATRIX = "#matrix :is([role=grid], canvas)"


@pytest.fixture(scope="module")
def pages(tmp_path_factory, layers):
    texts = {
        "text": ("page", FOX, "--words", "50", "--mask", "causal"),
        "matrices": ("example", "coffee", "-f", "page"),
        "long": ("page", " ".join(f"word{n}" for n in range(30)), "-e", "random", "--heads", "2"),
    }
    written = {name: made(tmp_path_factory.mktemp(name), *args) for name, args in texts.items()}
    return written | {"layers": layers}


@pytest.mark.parametrize("name", ["text", "matrices", "long", "layers"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@like_cases
def test_axe_finds_no_violation(browser, pages, name, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    for width, height in ((360, 800), *SIZES.values()):
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


def sized(opened, path, size: str) -> tuple[int, int]:
    """Open a page at a size, and return it."""
    width, height = SIZES[size]
    opened.page.set_viewport_size({"width": width, "height": height})
    opened.page.emulate_media(reduced_motion="reduce")
    opened.go(path)
    return width, height


def box(opened, selector: str) -> tuple[float, float, float, float]:
    found = opened.page.locator(selector).first.bounding_box()
    assert found, selector
    return found["x"], found["y"], found["x"] + found["width"], found["y"] + found["height"]


def points_at_a_word(opened, by_touch: bool) -> None:
    """A word that is pointed at lights up its row, here and in the matrix."""
    word, pressed = opened.page.locator("#words button").nth(7), "#words [aria-pressed=true]"
    word.click() if by_touch else word.hover()
    assert opened.text("#matrix tr.here th") == opened.text(pressed) == "lazy"
    assert opened.text("#row-says").startswith("lazy looks most at dog (")
    colours = [opened.page.locator(one).evaluate("one => getComputedStyle(one).backgroundColor")
               for one in ("#words button:nth-child(9)", "[data-at='7,8']")]  # fmt: skip
    assert colours[0] == colours[1]  # one scale
    opened.page.locator("#matrix tbody th").nth(3).hover()
    assert opened.page.locator(pressed).all_inner_texts() == ["fox"]
    opened.page.focus("#words button[tabindex='0']")
    opened.page.keyboard.press("ArrowRight")
    assert opened.text("#matrix tr.here th") == "jumped"


@pytest.mark.parametrize("size", SIZES)
def test_the_first_view_and_every_step_of_the_walk_have_the_sentence_and_the_whole_matrix(opened, fox, size):
    width, height = sized(opened, fox, size)
    shown = "section, button, select, summary, h2, #row-says, footer"
    seen = "all => all.filter((one) => one.checkVisibility()).map((one) => one.getBoundingClientRect().top)"
    tops = opened.page.locator(f"main :is({shown})").evaluate_all(seen)
    sentence, last = box(opened, "#words [role=toolbar]"), box(opened, "[data-at='8,8']")
    assert sentence[1] < 20 and sentence[3] <= min(tops)
    assert last[3] <= height and last[2] <= width
    arcs = opened.page.locator("#arcs path")
    weights = opened.page.locator("#matrix tr.here td").all_inner_texts()
    assert arcs.count() == sum(float(weight) >= 0.02 for weight in weights) > 3
    ends = arcs.evaluate_all("all => all.map((one) => one.getBoundingClientRect().bottom)")
    assert max(ends) <= box(opened, "#matrix")[1]
    row, cell = box(opened, "#row-says"), box(opened, "#matrix tbody")
    if size == "phone":
        assert row[1] >= cell[3]  # below
    else:
        assert row[0] >= cell[2] and box(opened, "#share")[3] <= height  # beside, to the last line
        lines = [box(opened, f"#{one}") for one in ("head-choice", "mask-choice", "temperature", "more")]
        assert max(y for _, y, _, _ in lines) < min(bottom for *_, bottom in lines)  # in one line
        assert max(bottom for *_, bottom in lines) <= height
    assert opened.page.locator("#score-choice").is_hidden()  # the drawer is closed
    last = opened.page.locator("body > footer").bounding_box()
    assert last["y"] >= opened.page.locator("main").bounding_box()["height"]
    points_at_a_word(opened, by_touch=size == "phone")
    for _ in range(12):
        opened.page.click("#next")
        for part in (MATRIX, "#walk", "#back"):
            left, top, _, bottom = box(opened, part)
            assert top >= 0 and left >= 0 and bottom <= height, (part, opened.text("#walk h3"))
        if size == "phone":  # the walk lies over the lower end of the page, and not over the matrix
            assert box(opened, MATRIX)[3] <= box(opened, "#story")[1]
    assert opened.page.locator("#next").is_disabled()


@pytest.mark.parametrize("size", ["laptop", "projector"])
def test_a_page_of_layers_opens_with_all_their_heads_and_a_click_opens_one(opened, layers, size):
    width, height = sized(opened, layers, size)
    tiles = opened.page.locator("#grid button")
    assert tiles.count() == 72 and opened.page.locator("#matrix-part").is_hidden()
    measured = "[one.getBoundingClientRect(), one.firstChild.clientWidth]"
    boxes = tiles.evaluate_all(f"all => all.map((one) => {measured}).map(([b, w]) => [b.right, b.bottom, w])")
    assert max(right for right, _, _ in boxes) <= width and max(bottom for _, bottom, _ in boxes) <= height
    assert min(side for *_, side in boxes) >= 40  # a map, and not a dot
    assert tiles.nth(2 * 12 + 3).inner_text() == "3 previous" and tiles.nth(0).inner_text() == "0"
    tiles.nth(2 * 12 + 3).click()
    assert opened.page.input_value("#layer-choice") == "2" and opened.page.input_value("#head-choice") == "3"
    assert box(opened, "#matrix [role=grid]")[3] <= height
    opened.page.wait_for_function("() => location.hash.includes('layer=2')")
    address = opened.page.url
    opened.page.click("#to-heads")
    assert opened.page.locator("#matrix-part").is_hidden()
    focused = opened.page.evaluate("document.activeElement.getAttribute('aria-label')")
    assert focused == "layer 2, head 3: previous"
    opened.page.click("#together")  # the links of all of its layer
    assert opened.page.locator("#arcs-heads span.patch").count() == 12
    opened.page.goto("about:blank")
    opened.page.goto(address)
    assert opened.page.locator("#matrix-part").is_visible()
    assert opened.page.input_value("#layer-choice") == "2"


def test_digits_never_run_into_each_other_and_a_page_that_cannot_be_typed_into_says_why(opened, tmp_path):
    text = "The old man who lived by the sea told the boys that the boat that his father had built was lost"
    path = made(tmp_path, "page", text, "--words", "0")
    spills = "all => all.filter((one) => one.scrollWidth > one.clientWidth + 1).length"
    for width in (360, 500, 700, 800, 1000, 1280):
        opened.page.set_viewport_size({"width": width, "height": 800})
        opened.go(path)
        cells = opened.page.locator("#matrix td[role=gridcell]")
        assert cells.count() == 441 and cells.evaluate_all(spills) == 0, width
    (tmp_path / "secret").mkdir()
    vectors = tmp_path / "secret" / "ours.txt"
    vectors.write_text("fox 0.2 0.9\njumped 0.7 0.1\n")
    for args, why in (
        (("page", "fox", "--context", "jumped"), "keys come from a second text"),
        (("page", FOX, "-p", "roles-deep"), "has the numbers of a model's layers for this text"),
        (("self", "fox jumped", "-e", str(vectors), "-f", "page"), "carries no words to type with"),
    ):
        opened.make(*args)
        assert why in opened.text("#type-says") and opened.page.locator("#type").is_hidden()
    assert "Vectors: ours.txt, 2 numbers each" in opened.text("#settings")
    named = opened.page.text_content("#command").count("secret")
    assert opened.page.content().count(str(tmp_path)) == named + 1
