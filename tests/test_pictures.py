"""The pictures of the documentation are what their commands draw, and each stands where a reader sees it."""

import re

import pytest

from tests import docs, pictures
from tests.thorough import like_cases

COMMANDS = pictures.commands()
PAGES = {page: page.read_text(encoding="utf-8") for page in docs.linked_pages().values()}
USED = [name for text in PAGES.values() for name in re.findall(r"pictures/([\w-]+\.svg)", text)]


@pytest.mark.parametrize("name", COMMANDS)
@like_cases
def test_a_picture_is_what_its_command_draws(name, tmp_path):
    new = pictures.draw(COMMANDS[name], tmp_path)
    if new is None:
        pytest.skip("this machine cannot draw it")
    kept = (pictures.FOLDER / name).read_bytes()
    assert pictures.are_alike(new, kept), "Run: python -m tests.docs --write"
    assert len(pictures.seen(kept)[1]) > 5 and len(kept) < 60_000


def test_every_picture_is_shown_none_is_left_over_and_a_command_that_a_page_shows_drew_its_picture():
    files = {path.name for path in pictures.FOLDER.iterdir()} - {pictures.COMMANDS.name}
    assert files == set(COMMANDS) == set(USED)
    text = PAGES[docs.ROOT / "docs" / "figures.md"]
    for name in ("heatmap.svg", "links.svg", "steps.svg"):
        assert f"\n$ {COMMANDS[name]}\n" in text


def test_a_dark_picture_stands_beside_a_light_one_with_the_same_texts():
    both = re.compile(r'dark\)" srcset="([^"]+)">\s*<img\s[^>]*src="([^"]+)"')
    found = [pair for text in PAGES.values() for pair in both.findall(text)]
    for pair in found:
        one, other = ((pictures.FOLDER / path.rpartition("/")[2]).read_bytes() for path in pair)
        assert pictures.are_alike(one, other) and one != other
    assert len(found) == sum("-dark" in name for name in COMMANDS)


def test_a_picture_that_is_out_of_date_is_said_and_then_drawn(tmp_path, monkeypatch):
    monkeypatch.setattr(pictures, "FOLDER", tmp_path)
    monkeypatch.setattr(pictures, "commands", lambda: {"one.svg": "attn self 'a b' -o one.svg"})
    for write, said in ((False, "is out of date"), (True, "was made anew")):
        told = docs.written_whole(pictures.changed(), write)
        assert [*told] == [f"docs/{tmp_path.name}/one.svg {said}."]
    assert [*pictures.changed()] == []
    svg = (tmp_path / "one.svg").read_bytes()
    text = re.search(rb'<text x="(\d+)"', svg)
    for other in (svg.replace(b">b<", b">c<"), svg.replace(text[0], b'<text x="%d"' % (int(text[1]) + 3), 1)):
        assert not pictures.are_alike(svg, other)
