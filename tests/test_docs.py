"""The documentation is up to date, complete and true; `python -m tests.docs --write` brings it there."""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET

import pytest

from attn_cli import __version__, errors
from attn_cli.cli import app as cli
from tests import docs, lecture, man, site
from tests.thorough import like_cases

PAGES, LINKED = docs.pages(), docs.linked_pages()
COMMANDS = docs.commands()
WIDEST = 100  # columns of a line of prose that is not a whole sentence


# Other pages use tools as Linux has them.
ANYWHERE = {"README.md", "docs/reference.md", "docs/contributing.md", "docs/check.md"}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_shows_what_the_commands_print_today(name):
    if sys.platform != "linux" and name not in ANYWHERE:
        pytest.skip("CI runs the commands of this page on Linux.")
    if name == "docs/models.md" and importlib.util.find_spec("transformers"):
        pytest.skip("With transformers, `attn check` says more than the page shows.")
    assert docs.stale(PAGES[name]) == "", "Run: python -m tests.docs --write"
    if name != "docs/reference.md" and docs.no_jq(PAGES[name].read_text(encoding="utf-8")):
        pytest.skip("jq is not installed: commands that pipe to it were not run.")


@pytest.mark.parametrize("name", LINKED)
def test_every_link_leads_somewhere(name):
    assert docs.broken_links(LINKED[name]) == []
    contents = (docs.ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    is_page = re.fullmatch(r"docs/([\w-]+\.md)", name)
    assert not is_page or is_page[1] == "README.md" or f"({is_page[1]})" in contents


def test_the_reference_has_every_command_with_every_option_and_explains_every_exit_code():
    _, *parts = re.split(r"^## (.*)\n", docs.REFERENCE.read_text(encoding="utf-8"), flags=re.M)
    sections = dict(zip(parts[::2], parts[1::2], strict=True))
    assert {words[0] for words in COMMANDS if words} == set(cli.COMMANDS)
    for words, command in COMMANDS.items():
        shown = {*re.findall(r"(?<![\w-])-[\w-]+", sections[docs.named(words)])}
        for option in command.params:
            assert {name for name in option.opts if name.startswith("-")} <= shown, words
            assert not option.envvar or f"`{option.envvar}`" in sections["Environment variables"]
    codes = {value for value in vars(errors).values() if type(value) is int}
    assert [int(code) for code, _ in docs.explained("| code | means |")] == sorted(codes)


def test_the_json_page_explains_every_key_of_the_schema():
    page = (docs.ROOT / "docs" / "json.md").read_text(encoding="utf-8")
    defs = json.loads((docs.ROOT / "attn_cli" / "schema.json").read_text(encoding="utf-8"))["$defs"]
    names = "trace head embedding projection learned summary neighbour examples vectors nearest score lookup check"
    parts = {name: defs[name] for name in (*names.split(), "checks", "diagnosis")}
    parts |= {"a score": defs["score"]["properties"]["heads"]["items"]}
    parts |= {"an error": defs["error"]["properties"]["error"]}
    for part, known in parts.items():
        for key in known["properties"]:
            assert f"`{key}`" in page, f"{key} of {part} is not explained"


# Tables, headings, comments and links alone are no prose.
NO_PROSE = re.compile(r"\||#|<!--|([-*] )?\[[^\]]*\]\([^)]*\)[.,;:]?$")
ONE_SENTENCE = re.compile(r"""(?!.*[.!?]["')*`]* +["`*\[A-Z]).*[.!?:]["')*`]*$""")


def long_lines(text: str) -> list[str]:
    """Return the lines of prose past WIDEST columns that are not one whole sentence each."""
    lines = text.splitlines()
    bare = [line.strip() for line in lines]  # blocks of code stand in lists, too
    code = {n for fence in docs.fences(bare) for n in range(fence.start, fence.stop)}
    wide = [bare[n] for n, line in enumerate(lines) if len(line) > WIDEST and n not in code]
    return [line for line in wide if not (NO_PROSE.match(line) or ONE_SENTENCE.match(line))]


@pytest.mark.parametrize("name", sorted({*LINKED, "data/README.md"} - {"docs/reference.md"}))
def test_prose_is_wrapped_or_has_one_sentence_a_line(name):
    assert long_lines((docs.ROOT / name).read_text(encoding="utf-8")) == []


LISTED = "```console\n$ seq 3\n1\n2\n3\n```\n"
SHARED = "```console\n$ printf 'a\\nb\\n' \\\n>   > file\n```\n\n```console\n$ cat file | head -1\na\n```\n"
LIMITED = "<!-- first 2 lines -->\n```console\n$ seq 9\n{}```\n\n"
VERSION = "# A\n\n```console\n$ attn --version\n{}$ echo two\n{}```\nEnd.\n"
ATTN = f"attn {__version__}\n"
OTHERS = f"```bash\n$ seq 3\n```\n````text\n{LISTED[:20]}```\n````\n"  # and a block within a block


def test_an_output_replaces_what_stood_there_all_or_its_first_lines_and_all_else_stays():
    for old, new in (
        (VERSION.format("old\nold\n", ""), VERSION.format(ATTN, "two\n")),
        (LIMITED.format("") + LISTED, LIMITED.format("1\n2\n...\n") + LISTED),
        *((same, same) for same in (LISTED, OTHERS, SHARED)),
    ):
        assert docs.rewritten(old) == new == docs.rewritten(new)


def test_another_last_digit_is_no_change():
    def kept(printed: str, shown: str) -> bool:
        page = f"```console\n$ echo {printed}\n{shown}\n```\n"
        new = docs.rewritten(page)
        assert new in (page, page.replace(f"\n{shown}\n", f"\n{printed}\n"))
        return new == page

    right, of_float32 = "0.12345678901234567 of 3", "[1.2369468e-06,0.8277437,0.17225502]"
    assert kept(right, "0.12345678901234444 of 3")
    assert not kept(right, "0.12345699901234567 of 3") and not kept(right, "0.12345678901234567 of 4")
    assert kept("[4.0141373e-08,0.054840352]", "[4.014108e-08,0.05483995]")
    assert kept("b -12.9862", "b -12.9861") and not kept("b -12.9862", "b -12.9872")
    assert kept("1.2346e-05", "1.2345e-05") and not kept("1.2346e-05", "1.2446e-05")
    assert not kept(".985", ".984")
    assert kept(of_float32, "[1.2369471e-06,0.8277436,0.172255]")
    assert kept(of_float32, "[1.2369468e-06,0.8277437,0.17225502]")


def test_a_command_that_breaks_or_that_nobody_would_run_is_not_written_down():
    broken = [
        f"\n\n```console\n$ {one}\n```\n" for one in ("no-such", "attn self x | no-such", "python -c 'x'")
    ]
    for page in (*broken, "```console\n$ seq 3\n", "- A list:\n\n  ```console\n  $ seq 3\n  ```\n"):
        with pytest.raises(docs.DocsError, match="line 3" if page in broken else "block"):
            docs.rewritten(page)


def test_without_jq_its_commands_stay_as_they_are_and_an_error_is_shown(monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name: None)
    page = "```console\n$ attn schema | jq .title\nx\n$ attn schema |\n>   jq .title\ny\n$ seq 1\n1\n```\n"
    assert docs.rewritten(page) == page
    assert docs.no_jq(page)
    assert "attn: There is no token" in docs.rewritten("```console\n$ attn self '...'\n```\n")


def test_a_link_to_nothing_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(docs, "ROOT", tmp_path)
    page = tmp_path / "page.md"
    (tmp_path / "there.md").write_text("# A heading, here\n\n```text\n# none\n```\n")
    page.write_text(
        "[a](there.md) [b](there.md#a-heading-here) [c](https://example.org) `[d](e)` [f](#own)\n\n# Own\n"
        "[g](gone.md) [h](there.md#none) [i](../outside.md)\n"
    )
    broken = [line.split()[3].strip(",") for line in docs.broken_links(page)]
    assert broken == ["gone.md", "there.md#none", "../outside.md"]


def test_a_stale_page_is_reported_and_then_written(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(docs, "ROOT", tmp_path)
    monkeypatch.setattr(docs, "REFERENCE", tmp_path / "docs" / "reference.md")
    page = tmp_path / "README.md"
    page.write_text("```console\n$ echo new\nold\n```\n")
    assert docs.main(["README.md"]) == 1
    assert "-old" in capsys.readouterr().out and "old" in page.read_text()
    assert docs.main(["--write", "README.md"]) == 0
    assert page.read_text() == "```console\n$ echo new\nnew\n```\n"
    assert docs.main(["README.md"]) == 0
    assert docs.main(["docs/none.md"]) == 2
    assert "usage:" in capsys.readouterr().err


SECTIONS = "NAME|SYNOPSIS|DESCRIPTION|OPTIONS|EXIT STATUS|FILES|ENVIRONMENT|EXAMPLES|SEE ALSO"
MAN = shutil.which("man")


def test_the_pages_say_what_the_help_says_today():
    assert [*man.changed()] == [], "Run: python -m tests.docs --write"


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: " ".join(words) or "attn")
@like_cases
def test_man_shows_every_section_and_every_option_as_it_is_typed_and_complains_of_nothing(words):
    if b"man 2" not in (subprocess.run(["man", "--version"], capture_output=True).stdout if MAN else b""):
        pytest.skip("man-db is not installed: the man of macOS has other options.")
    command = [MAN, "--warnings", "-E", "UTF-8", "-l", str(man.FOLDER / f"{'-'.join(('attn', *words))}.1")]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "MANWIDTH": "100"})
    assert (done.returncode, done.stderr) == (0, "")
    text = done.stdout
    assert "|".join(line for line in text.splitlines() if line in SECTIONS.split("|")) == SECTIONS
    options = text.partition("\nOPTIONS\n")[2].partition("\nEXIT STATUS\n")[0]
    for one in COMMANDS[words].params:
        for name in (*one.opts, *one.secondary_opts) if one.param_type_name == "option" else ():
            assert re.search(rf"^ +(\S.*[ ,])?{re.escape(name)}\b", options, re.M), f"{name} is missing"
        if one.envvar:
            assert one.envvar in text.partition("\nENVIRONMENT\n")[2]


CAST = lecture.CAST.read_text(encoding="utf-8")
PICTURE = lecture.PICTURE.read_text(encoding="utf-8")


def test_the_recording_types_the_commands_of_the_script_and_the_picture_is_drawn_from_it():
    seen = lecture.screens(lecture.events_of(CAST))
    first_lines = ["".join(run.text for run in rows[0]) for _, rows in seen]
    for command in re.findall(r"^\$ (.*)$", lecture.SCRIPT.read_text(encoding="utf-8"), re.M):
        assert f"${command}"[: lecture.COLUMNS - 1] in first_lines
    assert lecture.drawn(CAST) == PICTURE, "Run: python -m tests.docs --write"


def test_the_picture_is_small_loads_nothing_and_stands_still_where_motion_is_unwelcome():
    assert len(PICTURE) < 300_000
    assert not re.search(r"<script|href|url\(|@import|\son\w+=", PICTURE)
    style, _, moving = PICTURE.partition("@media (prefers-reduced-motion:no-preference){")
    assert "animation" not in style and "@keyframes" in moving
    shown = [one for one in ET.fromstring(PICTURE).iter() if one.get("class", "").endswith(" s")]
    assert "looks most at" in "".join(text for one in shown for text in one.itertext())


GOOD = '<h1 id="a">A</h1><a href="sub/b.html#b">b</a><a href="#a">a</a><img src="one.svg#only-light">'
WRONG = {
    '<a href="c.html">c</a>': "index.html links to c.html, which does not exist.",
    '<a href="sub/b.html#c">c</a>': "index.html links to sub/b.html#c, which is not a heading there.",
    '<img src="two.svg">': "index.html links to two.svg, which does not exist.",
    '<script src="https://example.org/a.js"></script>': "index.html loads https://example.org/a.js.",
    '<link href="//example.org/a.css">': "index.html loads //example.org/a.css.",
}


def test_a_link_to_nothing_and_what_another_server_has_are_found(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "one.svg").touch()
    back = '<h1 id="b">B</h1><a href="../index.html">up</a><a href="https://a.org">'
    (tmp_path / "sub" / "b.html").write_text(back)
    (tmp_path / "index.html").write_text(GOOD)
    assert list(site.complaints(tmp_path)) == []
    (tmp_path / "index.html").write_text(GOOD + "".join(WRONG))
    assert sorted(site.complaints(tmp_path)) == sorted(WRONG.values())
