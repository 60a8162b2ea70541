"""A trace in a notebook: executed, exported, and opened in Chromium in both themes."""

import re
import subprocess
import sys
from html import unescape

import numpy as np
import pytest

from attn_cli import Settings, notebook_html, show, trace_cross, trace_masked, trace_self
from tests.browser import FOX, Opened
from tests.render.document.test_documents import contrast
from tests.render.page.test_record import held
from tests.shell import surroundings

HOSTILE = ["<script>document.title='ran'</script>", "</iframe></style>'\"", "<img src=x onerror=alert(1)>"]
CELLS = f"""from attn_cli import Settings, show, trace_self
trace_self({FOX!r})
trace_self({FOX!r}, Settings(head='all'))
trace_self({FOX!r}, Settings(top=1))
show([[0.5, 0.3, 0.2]] * 3, {HOSTILE!r})""".splitlines()
INK_AND_BACKGROUND = """cells => cells.map(cell => {
  let behind = cell;
  while (getComputedStyle(behind).backgroundColor === "rgba(0, 0, 0, 0)") behind = behind.parentElement;
  return [getComputedStyle(cell).color, getComputedStyle(behind).backgroundColor];
})"""


def weights(*shape):
    return np.random.default_rng(0).dirichlet([1.0] * shape[-1], shape[:-1])


def still(trace):
    """What of a notebook's output is no page."""
    return re.sub(r"(?s)<(style|noscript|iframe)\b.*?</\1>", "", notebook_html(trace))


def captions_and_rows(trace):
    """The captions, and the texts of the cells row by row, of all tables."""

    def texts(tag, part):
        found = re.findall(f"<({tag})[^>]*>(.*?)</{tag}>", part)
        return [unescape(re.sub("<[^>]*>", "", inner)) for _, inner in found]

    html = still(trace)
    return texts("caption", html), [texts("t[hd]", row) for row in re.findall("<tr[^>]*>(.*?)</tr>", html)]


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    nbformat, *_ = map(pytest.importorskip, ("nbformat", "nbconvert", "ipykernel"))
    path = tmp_path_factory.mktemp("notebook") / "given.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS]), path)
    how = "--execute --to notebook --output done"
    command = [sys.executable, "-m", "nbconvert", *how.split(), str(path)]
    ran = subprocess.run(command, env=surroundings(), capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    return nbformat.read(path.with_name("done.ipynb"), as_version=4)


def open_exported(page, notebook, theme, folder):
    """Export a notebook as HTML, and open it without what nbconvert itself takes from the network."""
    from nbconvert import HTMLExporter

    html, _ = HTMLExporter(template_name="lab", theme=theme).from_notebook_node(notebook)
    path = folder / f"{theme}.html"
    path.write_text(html, encoding="utf-8")
    page.route("https://cdnjs.cloudflare.com/**", lambda route: route.fulfill(body=""))
    page.goto(f"file://{path}", wait_until="domcontentloaded")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_each_output_of_an_exported_notebook_is_a_page_that_works(executed, theme, browser, tmp_path):
    page = browser.new_page(color_scheme={"light": "dark", "dark": "light"}[theme])  # the system's is another
    opened = Opened(page)
    open_exported(page, executed, theme, tmp_path)
    frames = page.locator("iframe.attn-live")
    assert frames.count() == 3
    for n in range(3):
        frames.nth(n).scroll_into_view_if_needed()
        inner = frames.nth(n).element_handle().content_frame()
        inner.wait_for_selector("body[data-ready]")
        assert inner.locator("#matrix td[role=gridcell]").count() == (81, 81, 9)[n]
        inner.click("#more summary")
        inner.select_option("#show", "weights")
        inner.click("#more summary")
        inner.wait_for_selector(f"html[data-scheme={theme}]")
        back = inner.evaluate("getComputedStyle(document.body).backgroundColor")
        assert back == {"light": "rgb(255, 255, 255)", "dark": "rgb(16, 20, 24)"}[theme]
        box = frames.nth(n).bounding_box()
        cell = inner.locator("#matrix table").bounding_box()
        assert cell["y"] + cell["height"] <= box["y"] + box["height"], "the matrix is seen without scrolling"
    assert page.title() != "ran"
    assert page.locator(".attn-still:visible").count() == 0
    assert page.get_by_text("Each row's strongest links").is_visible()
    assert [one for one in opened.complaints if "cdnjs" not in one] == []
    page.close()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_without_scripts_a_notebook_shows_tables_with_their_own_colours(executed, theme, browser, tmp_path):
    page = browser.new_page(java_script_enabled=False)
    open_exported(page, executed, theme, tmp_path)
    assert page.locator("iframe.attn-live:visible").count() == 0
    tables = page.locator(".attn-still table:visible")
    assert tables.count() == 1 + 11 + 1
    for pair in page.locator(".attn-still").first.locator("th, td, caption").evaluate_all(INK_AND_BACKGROUND):
        codes = [bytes(int(part) for part in re.findall(r"\d+", one)[:3]).hex() for one in pair]
        assert contrast(*codes) >= 4.5
    page.close()


def test_a_page_that_is_put_in_later_works_too_and_two_do_not_clash(browser):
    # As JupyterLab does, which sets innerHTML; and under the policy of VS Code's notebooks.
    inline = "script-src 'unsafe-inline'; style-src 'unsafe-inline'"
    policy = f"default-src 'none'; {inline}; child-src https: data:"
    page = browser.new_page()
    opened = Opened(page)
    meta = f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
    page.set_content(f"<head>{meta}</head><p></p><p></p>")
    put_in = "html => { for (const one of document.querySelectorAll('p')) one.innerHTML = html }"
    page.evaluate(put_in, notebook_html(trace_self("she likes coffee")))
    first, second = (frame.element_handle().content_frame() for frame in page.locator("iframe").all())
    for frame in (first, second):
        frame.wait_for_selector("body[data-ready]")
    first.fill("#temperature-number", "9")
    first.press("#temperature-number", "Enter")
    assert first.inner_text("#matrix") != second.inner_text("#matrix")
    page.wait_for_timeout(400)  # as long as a change of the address bar would wait
    assert opened.complaints == []
    page.close()


def test_nine_words_stay_small_and_what_is_too_large_is_a_table_that_says_what_it_leaves_out():
    assert len(notebook_html(trace_self(FOX)).encode()) < 130_000
    html = notebook_html(trace_self(FOX, Settings(head="all")))
    assert len(html.encode()) < 220_000
    outside = html.replace(re.search(r"(?s)srcdoc='.*?'", html)[0], "")
    assert " id=" not in outside and "http" not in outside
    assert 'sandbox="allow-scripts allow-downloads"' in outside and "<script" not in outside
    html = notebook_html(show(weights(400, 400)))
    assert "<iframe" not in html and len(html) < 60_000
    assert "The first 30 rows and 30 columns of 400 x 400." in html
    assert "<p>The first 2 rows and 30 columns of 2 x 31.</p>" in still(show(weights(2, 31)))
    assert "<p>The first 30 rows and 2 columns of 31 x 2.</p>" in still(show(weights(31, 2)))
    assert "<p>" not in still(show(weights(30, 30)))
    many = still(show(weights(12, 12, 9, 9)))
    assert "One of 144 heads." in many and len(many) < 20_000
    assert "One of" not in still(trace_self(FOX, Settings(head="mean")))


def framed(trace):
    """What stands around the page in its frame, and the page's record."""
    about, source = re.search(r"(?s)<iframe (.*) srcdoc='(.*?)'></iframe>", notebook_html(trace)).groups()
    return about, held(unescape(source))


def test_the_page_has_its_own_size_the_layers_and_the_tokens_and_a_table_says_how_much_of_them_it_shows():
    given = weights(2, 3, 4, 4)
    # Its height: 350, 40 for each query, 200 for several heads; 480 to 960.
    for trace, height, shown, layers in (
        (show(given, [*HOSTILE, "d"]), 710, (1, "0"), [0, 1]),
        (show(given, settings=Settings(layer=1, head="2")), 510, (0, "2"), [1]),
        (show(given, settings=Settings(layer="all", head="1")), 710, (1, "1"), [0, 1]),
        (show(weights(5, 2)), 550, (0, "0"), [0]),
        (show(weights(3, 3)), 480, (0, "0"), [0]),
        (show(weights(20, 20)), 960, (0, "0"), [0]),
    ):
        about, record = framed(trace)
        assert f'style="height: {height}px"' in about and record["queries"] == [*trace.query_tokens]
        assert (record["shown"]["layer"], record["shown"]["head"]) == shown
        assert [layer["number"] for layer in record["layers"]] == layers
        for layer in record["layers"] if trace.has_layers else ():
            for head in layer["heads"]:
                right = given[layer["number"], int(head["name"])]
                np.testing.assert_allclose(head["weights"], right, rtol=1e-6)
    for shape, is_framed in (((300, 300), True), ((301, 300), False), ((7, 300, 300), False)):
        assert ("<iframe" in notebook_html(show(weights(*shape)))) == is_framed
    for heads in (3, 4):  # of 10,000 numbers each: 30,000 are held in full
        assert framed(show(weights(heads, 100, 100)))[1]["layers"][0]["rounded"] == (heads > 3)
    for n, measure, said in ((20, "norm", ""), (21, "weight", " (the first 40 of 42)")):  # links, two of each
        trace = trace_self(" ".join("abcdefghijklmnopqrstu"[:n]), Settings(top=2, measure=measure))
        captions, (heads, (query, key, number), *rows) = captions_and_rows(trace)
        assert captions == [f"Each row's strongest links{said}"] and len(rows) == 39
        assert "<iframe" not in notebook_html(trace)
        row = (trace.weights if measure == "weight" else trace.shown.norms)[0]
        assert (heads, query, key) == (["query", "key", measure], "a", trace.key_tokens[row.argmax()])
        assert float(number) == pytest.approx(row.max(), rel=0.01)
    html = still(trace_cross("she likes", "<b> tea"))
    assert "Note: No vector for &lt;, &gt;: no known word has their letters" in html
    random = {"embedding": "random", "measure": "norm"}
    for trace, caption, size, form in (
        (show(weights(4, 4)), "The weights", 13, r"\.\d{3}"),
        (show(given), "Layer 0, head 0", 11, r"\.\d{2}"),
        (trace_self("a b", Settings(**random)), "The norms", 13, r"\d\.\d+"),
        (trace_self("a b", Settings(**random, heads=2, head="all")), "Head 0", 11, r"\d?\.\d+"),
        (trace_self("a b", Settings(**random, heads=2, head="1")), "Head 1", 13, r"\d?\.\d+"),
    ):
        captions, rows = captions_and_rows(trace)
        first, number = trace.shown_heads[0], rows[1][1]
        right = (first.weights if first.norms is None else first.norms)[0, 0]
        assert captions[0] == f"{caption}: rows are queries, columns are keys"
        assert f"font-size:{size}px" in still(trace) and re.fullmatch(form, number)
        assert float(number) == pytest.approx(right, rel=0.05)
    captions, rows = captions_and_rows(show(many := weights(31, 40)))
    assert (len(rows), len(rows[0])) == (31, 31)
    assert float(rows[1][30]) == pytest.approx(many[0, 29], abs=6e-4)
    assert "<p>The first 30 rows and 30 columns of 31 x 40.</p>" in still(show(many))


def test_each_head_and_the_strongest_links_are_tables_in_which_hostile_tokens_are_text():
    trace = trace_masked("she likes coffee")
    html, (captions, rows) = still(trace), captions_and_rows(trace)
    assert "Masked self-attention: 3 queries (rows) x 3 keys (columns)" in html and "mask causal" in html
    assert captions == ['Head "article": rows are queries, columns are keys']
    assert rows[0] == ["query\\key", "she", "likes", "coffee"]
    assert [name for name, *_ in rows[1:]] == [*trace.query_tokens]
    shown = np.array([[float(cell.replace("–", "nan")) for cell in cells] for _, *cells in rows[1:]])
    np.testing.assert_allclose(shown, np.where(np.tri(3), trace.weights, np.nan), rtol=0, atol=6e-4)
    every = trace_self("she likes coffee", Settings(head="all"))
    assert [caption.split('"')[1] for caption in captions_and_rows(every)[0]] == list(every.head_names)
    (_,), rows = captions_and_rows(mean := trace_self("she likes coffee", Settings(head="mean")))
    assert float(rows[1][1]) == pytest.approx(mean.weights[0, 0], abs=6e-4)
    given = weights(2, 3, 4, 4)
    captions, rows = captions_and_rows(show(given, "a b c d"))
    assert captions[4] == "Layer 1, head 1: rows are queries, columns are keys"
    assert float(rows[4 * 5 + 1][1]) == pytest.approx(given[1, 1, 0, 0], abs=6e-3)
    trace = trace_cross("she likes", "coffee and tea", Settings(query="likes"))
    assert [row[0] for row in captions_and_rows(trace)[1]] == ["query\\key", "likes"]
    assert trace._repr_html_() == notebook_html(trace)
    html, hostile = notebook_html(show(weights(3, 3), HOSTILE)), still(show(weights(3, 3), HOSTILE))
    assert html.count("<iframe") == html.count("</iframe>") == 1
    assert "<script" not in hostile and "<img" not in hostile
    hidden = still(show(weights(2, 2), ["a\u202eb", "שלום"]))
    assert "\u202e" not in hidden and "<bdi>שלום</bdi>" in hidden
