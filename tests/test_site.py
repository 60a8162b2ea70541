"""The check of the built site finds what is wrong with one; `python -m tests.site` runs it on the documentation."""

from pathlib import Path

from tests import site

GOOD = '<h1 id="a">A</h1><a href="sub/b.html#b">b</a><a href="#a">a</a><img src="one.svg#only-light">'
WRONG = {
    '<a href="c.html">c</a>': "index.html links to c.html, which does not exist.",
    '<a href="sub/b.html#c">c</a>': "index.html links to sub/b.html#c, which is not a heading there.",
    '<img src="two.svg">': "index.html links to two.svg, which does not exist.",
    '<script src="https://example.org/a.js"></script>': "index.html loads https://example.org/a.js.",
    '<link href="//example.org/a.css">': "index.html loads //example.org/a.css.",
}


def test_a_link_to_nothing_and_what_another_server_has_are_found(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "one.svg").touch()
    (tmp_path / "sub" / "b.html").write_text(
        '<h1 id="b">B</h1><a href="../index.html">up</a><a href="https://a.org">'
    )
    (tmp_path / "index.html").write_text(GOOD)
    assert list(site.complaints(tmp_path)) == []
    (tmp_path / "index.html").write_text(GOOD + "".join(WRONG))
    assert sorted(site.complaints(tmp_path)) == sorted(WRONG.values())
