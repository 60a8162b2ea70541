"""The manual has a page for every command, with all of its options, that man shows without a complaint."""

import os
import re
import shutil
import subprocess

import pytest

from tests import docs, man
from tests.thorough import like_cases

COMMANDS = docs.commands()


SECTIONS = re.findall(
    "[A-Z ]+", "NAME,SYNOPSIS,DESCRIPTION,OPTIONS,EXIT STATUS,FILES,ENVIRONMENT,EXAMPLES,SEE ALSO"
)


def shown(*names: str) -> str:
    """Return what man shows of pages; its complaints are an error."""
    version = ["man", "--version"]
    if not shutil.which("man") or not subprocess.run(version, capture_output=True).stdout.startswith(
        b"man 2"
    ):
        pytest.skip("man-db is not installed: the man of macOS has other options.")
    command = ["man", "--warnings", "-E", "UTF-8", "-l", *(str(man.FOLDER / f"{name}.1") for name in names)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "MANWIDTH": "100"})
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_the_pages_say_what_the_help_says_today() -> None:
    kept = {path.name: path.read_text(encoding="utf-8") for path in man.FOLDER.iterdir()}
    assert kept == man.pages(), "Run: python -m tests.docs --write"


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: " ".join(words) or "attn")
@like_cases
def test_a_page_has_every_section_and_every_option_as_it_is_typed(words: tuple[str, ...]) -> None:
    text = shown("-".join(("attn", *words)))
    assert [line for line in text.splitlines() if line in SECTIONS] == SECTIONS
    options = text.partition("\nOPTIONS\n")[2].partition("\nEXIT STATUS\n")[0]
    for one in COMMANDS[words].params:
        for name in (*one.opts, *one.secondary_opts) if one.param_type_name == "option" else ():
            assert re.search(rf"^ +(\S.*[ ,])?{re.escape(name)}\b", options, re.M), f"{name} is missing"
        if one.envvar:
            assert one.envvar in text.partition("\nENVIRONMENT\n")[2]


def test_no_letter_is_taken_for_an_order_or_made_prettier() -> None:
    assert man.filled(".PP -q 'it' `a\\b` ~^ √2 – \"x\"") == [
        r"\&.PP \-q \(aqit\(aq \fBa\eb\fR \(ti\(ha \[u221A]2 \[u2013] " + '"x"'
    ]
    assert man.code("'") == r"\(aq"
