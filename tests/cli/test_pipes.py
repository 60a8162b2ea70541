"""attn between other programs: pipes, readers that leave, odd terminals, files, signals."""

import json
import os
import re
import signal
import stat
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.cli.tables import apart, typed
from tests.shell import attn, here, shell, started, terminal, unread, wait_for
from tests.thorough import like_cases, some

FOX = "The quick brown fox jumped over the lazy dog"
LONG = " ".join(f"word{i}" for i in range(400))
WRITING = f"""
--help | self --help | --version | schema | self "$LONG" -e random -f json -o /dev/stdout
explain "{FOX}" | self "$LONG" -e random | self "$LONG" -e random --full -f json
vectors nearest the --top 40000 | self "$LONG" -e random -f csv --tidy | exercise | --show-completion zsh
"""
ASCII = ({"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"})


@pytest.mark.parametrize("command", apart(WRITING))
@like_cases
def test_a_reader_that_leaves_ends_attn_with_0_and_silence(command):
    for reader in ("head -1", "true"):
        ran = shell(f"LONG='{LONG}'; attn {command} | {reader}")
        assert (ran.code, ran.err) == (0, ""), reader
        assert ran.out.count("\n") <= 1


def test_standard_output_by_name_is_standard_output_and_a_named_pipe_is_written_to_and_stays(at):
    for name in ("-", "/dev/stdout", "/dev/fd/1"):
        assert json.loads(shell(f"attn self 'a b' -f json -o {name} | cat").out)["kind"] == "self"
    assert json.loads(shell("attn self 'a b' -f json -o /dev/fd/3 3>&1 >&2 | cat").out)["kind"] == "self"
    said = "attn: A page is for a browser. Write it to a file: -o page.html\n"
    assert terminal("self", "a b", "-f", "page") == (2, said, "") and os.listdir() == []
    for form, place in (("table", "/dev/stdout >>"), ("csv", "/dev/stderr 2>>")):
        Path("log.txt").write_text("yesterday\n")
        assert shell(f"attn self 'a b' -f {form} -o {place} log.txt").code == 0
        assert Path("log.txt").read_text() == "yesterday\n" + attn("self", "a b", "-f", form).out
    os.mkfifo("pipe")
    for form in ("json", "table"):  # in UTF-8, as any file
        line = f"cat pipe > copy & PYTHONIOENCODING=ascii attn self 'a b' -f {form} -o pipe && wait"
        assert shell(line).code == 0
        assert Path("copy").read_text() == attn("self", "a b", "-f", form).out
    assert stat.S_ISFIFO(os.stat("pipe").st_mode)


def test_what_is_piped_in_is_the_text_with_and_without_a_dash_and_one_argument_of_cross_the_context():
    alone = attn("self", FOX).out
    assert attn("self", input=FOX).out == attn("self", "-", input=FOX + "\n").out == alone
    assert attn("explain", "-", input=FOX).out == attn("explain", FOX).out
    assert attn("masked", input="\ufeff" + FOX).out == attn("masked", FOX).out
    lines = attn("self", "-f", "json", input="she\nlikes\r\n\r\ncoffee\n").out
    dashed = here("self", "-f", "json", "--", "-e random").out
    for ran, tokens in ((lines, ["she", "likes", "coffee"]), (dashed, ["e", "random"])):
        assert json.loads(ran)["query_tokens"] == tokens
    whole = attn("cross", "she sat", "likes coffee", "-f", "json").out
    assert json.loads(whole)["query_tokens"] == ["she", "sat"]
    assert attn("cross", "likes coffee", "-f", "json", input="she sat").out == whole
    assert attn("cross", "-", "likes coffee", "-f", "json", input="she sat").out == whole
    assert attn("cross", "she sat", "-", "-f", "json", input="likes coffee").out == whole

    whole = attn("explain", "she sat", "--context", "likes coffee").out
    assert attn("explain", "she sat", "--context", "-", input="likes coffee").out == whole
    assert attn("explain", "--context", "likes coffee", input="she sat").out == whole


def test_the_suffix_of_a_file_chooses_the_format_and_one_that_says_nothing_takes_any(at):
    starts = {"x.txt": "Self-attention", "x.CSV": "query,", "x.tsv": "query\t", "x.md": "# Self"}
    for name, start in starts.items():
        assert here("self", FOX, "-o", name)[:2] == (0, "") and Path(name).read_text().startswith(start)
    for words in typed("json y | csv y.dat | latex y.txt | jsonl y.json | code:torch y.py"):
        assert here("self", FOX, "-o", words[1], "-f", words[0]).code == 0
        assert Path(words[1]).read_text() == here("self", FOX, "-f", words[0]).out


@pytest.mark.parametrize("format", ["table", "bars"])
@pytest.mark.parametrize("suffix", ["svg", "html"])
def test_tables_and_bars_are_drawn_in_a_picture_and_in_a_page(format, suffix, at):
    assert attn("masked", FOX, "-o", f"x.{suffix}", "-f", format)[:2] == (0, "")
    text = Path(f"x.{suffix}").read_text()
    root = ElementTree.fromstring(text.removeprefix("<!doctype html>\n"))
    assert root.tag.endswith(suffix) and ("attending to" in text) == (format == "bars")
    assert (text == attn("masked", FOX, "-f", suffix).out) == (format == "table")


def test_the_width_flag_beats_columns_which_beat_the_terminal_and_no_number_above_0_is_no_width():
    wide = ("self", FOX, "--width", "50")
    assert here(*wide, env={"COLUMNS": "30"}).out == here(*wide).out
    shown = terminal("self", FOX, columns=120, env={"COLUMNS": "44", "NO_COLOR": "1"}).out
    assert shown == attn("self", FOX, "--width", "44").out
    # One that does not know its width has 80, and a dumb one gets no escape sequence, also not of progress.
    unknown = terminal("explain", FOX, columns=0, rows=0, env={"NO_COLOR": "1"})
    assert unknown.out == attn("explain", FOX, "--width", "80").out
    dumb = terminal("self", FOX, env={"TERM": "dumb"})
    assert (dumb.code, dumb.out) == (0, attn("self", FOX, "--width", "80").out)
    text = " ".join(f"word{i}" for i in range(1500))
    assert "\x1b" not in terminal("self", text, "-e", "random", env={"TERM": "dumb"}).out
    for columns, width in (("0", ()), ("1", ("--width", "20"))):
        assert here("self", FOX, env={"COLUMNS": columns}).out == here("self", FOX, *width).out


@pytest.mark.parametrize("env", ASCII, ids=["stream", "locale"])
def test_where_only_ascii_can_be_written_all_is_ascii_and_nothing_breaks(env, at):
    cafe = "café noir 中文 😀 naïve"
    lines = typed("""
            self CAFE | self CAFE -f bars | self CAFE -f markdown | self CAFE -f csv | explain CAFE | --help
            masked CAFE -q noir --color always | explain --help | example | vectors info | vectors nearest noir
            """)
    runs = [[cafe if word == "CAFE" else word for word in words] for words in lines]
    for args in some(runs, list(ASCII).index(env)):
        ran = attn(*args, env=env)
        assert ran.code == 0 and ran.out.isascii() and ran.err.isascii() and "Traceback" not in ran.err, args
    ran = attn("self", "café", "-q", "thé", env=env)
    assert ran.code == 2 and ran.err.count("\n") == 1 and ran.err.isascii()
    assert json.loads(attn("self", "café", "-q", "thé", "-f", "json", env=env).err)["error"]["code"] == 2
    # Options are read like the text, and a file is UTF-8, in every locale.
    assert attn("self", "café noir", "-q", "café", "-o", "x.csv", "--full", env=env).code == 0
    assert attn("vectors", "nearest", "café", env=env).code == 0
    assert Path("x.csv").read_text(encoding="utf-8").startswith("query,café,noir\n")


def test_an_ascii_text_is_shown_in_ascii_without_any_spelling_out():
    """Our own marks have stand-ins: nobody who typed plain letters is shown a backslash and a number."""
    for args in (["explain", FOX], ["masked", FOX, "-q", "fox"], ["explain", FOX, "-t", "2"], ["--help"]):
        ran = attn(*args, env=ASCII[0])
        assert ran.code == 0 and not re.findall(r"\\[ux][0-9a-f]{2,}", ran.out), args


def test_an_existing_file_keeps_its_permissions_and_a_link_is_followed_and_stays(at):
    Path("folder").mkdir()
    Path("folder/old.json").write_text("old")
    os.chmod("folder/old.json", 0o640)
    for name in ("old", "new"):
        os.symlink(f"folder/{name}.json", f"{name}.json")
    assert shell("umask 027; attn self a -o old.json && attn self a -o new.json").code == 0
    assert os.path.islink("old.json") and os.path.islink("new.json")
    assert stat.S_IMODE(os.stat("old.json").st_mode) == 0o640
    assert stat.S_IMODE(os.stat("new.json").st_mode) == 0o666 & ~0o027
    assert sorted(os.listdir("folder")) == ["new.json", "old.json"]
    assert Path("old.json").read_text() == Path("new.json").read_text() == attn("self", "a", "-f", "json").out


def test_a_failed_run_leaves_the_old_file_and_nothing_else(at):
    Path("x.json").write_text("old")
    assert attn("self", "", "-o", "x.json").code == 65
    assert attn("self", "x", "-q", "y", "-o", "x.json").code == 2
    full = shell(f"ulimit -f 4; attn self '{LONG}' -e random -o x.json")  # a disk that is full at 4 kB
    assert full.code == 74 and full.err.count("\n") == 1
    assert os.listdir() == ["x.json"] and Path("x.json").read_text() == "old"


def test_an_interrupt_while_waiting_for_text_is_130_and_silent():
    process = started("self", stdin=-1, stdout=-1, stderr=-1)
    process.stdin.write(b"the cat ")
    process.stdin.flush()
    wait_for(lambda: not unread(process.stdin))  # it has read that, and waits for more
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, b"", b"")
