"""A long screen goes through the user's pager; nothing else does, and whatever the pager does harms nothing."""

import json
import os
import shutil
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.cli.tables import typed
from tests.shell import attn, here, record
from tests.stage import Stage

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads a terminal's modes from its other end")

needs_less = pytest.mark.skipif(shutil.which("less") is None, reason="needs less")
LONG = ("example", "day1", "--steps")
RECORD = "cat > paged.txt; echo $LESS,$LV,$LESSCHARSET > env.txt; echo paged"


@pytest.fixture
def pager(at):
    """Return the command of a pager that writes down what it gets."""
    (at / "pager.sh").write_text(RECORD)
    return "sh pager.sh"


def on_stage(*args, rows=24, **env):
    """Return the exit code of attn on a terminal, and what it showed there, which is set as before."""
    with Stage(*args, rows=rows, env={"PAGER": None, "LESS": None, "LV": None} | env) as stage:
        code = stage.code()
        assert stage.modes() == stage.before
        shown = stage.shown.decode().replace("\r\n", "\n")
        assert "Traceback" not in shown
        return code, shown


@pytest.mark.parametrize("variable", ["ATTN_PAGER", "PAGER"])
def test_a_long_screen_goes_through_the_pager_that_a_variable_names(pager, variable):
    assert on_stage(*LONG, **{variable: pager}) == (0, "paged\n")
    ran = attn(*LONG, "--color", "always", "--width", "80", env={"TERM": "xterm-256color"})
    assert Path("paged.txt").read_text() == ran.out and "\x1b[" in ran.out
    if variable == "ATTN_PAGER":  # it beats that of all programs
        assert on_stage(*LONG, ATTN_PAGER=pager, PAGER="false") == (0, "paged\n")
        assert "paged" not in on_stage(*LONG, ATTN_PAGER="", PAGER=pager)[1]
        assert "ATTN_PAGER" not in here("config", env={"ATTN_PAGER": "less"}).out  # it is known


def test_a_screen_that_fits_above_the_prompt_is_printed_and_lines_that_are_broken_count_as_often(pager):
    whole = attn("example", "day1", "--width", "80").out
    lines = whole.count("\n")
    assert on_stage("example", "day1", rows=lines + 1, ATTN_PAGER=pager, NO_COLOR="1") == (0, whole)
    assert on_stage("example", "day1", rows=lines, ATTN_PAGER=pager) == (0, "paged\n")
    assert on_stage("example", "day1", rows=0, ATTN_PAGER=pager)[1].startswith("\x1b[1mAttention")
    wide = ("self", "she likes coffee " * 9, "--width", "400")
    assert on_stage(*wide, rows=30, ATTN_PAGER=pager) == (0, "paged\n")


@pytest.mark.parametrize("args", ["--help", "self --help", "vectors -h", "config", "explain she -f bars"])
def test_help_lists_and_bars_are_screens(pager, args):
    assert on_stage(*args.split(), rows=3, ATTN_PAGER=pager) == (0, "paged\n")
    assert Path("paged.txt").read_text().strip()


NO_SCREENS = """
--no-pager example day1 --steps | example day1 --steps --no-pager | schema | exercise --seed 1
--no-pager self --help | self --help --no-pager | vectors --no-pager --help | example day1 --steps -o walk.txt
example day1 --steps -o - | example day1 --steps -f json | example day1 --steps -f markdown
"""
UNWANTED = [{"TERM": "dumb"}, {"TERM": None}, {"ATTN_PAGER": ""}, {"ATTN_PAGER": "cat"}]
UNPAGED = [*((args, {}) for args in typed(NO_SCREENS)), *((LONG, env) for env in UNWANTED)]


@pytest.mark.parametrize(("args", "env"), UNPAGED)
def test_what_is_no_screen_for_a_person_is_not_paged_nor_where_nobody_wants_it(pager, args, env):
    code, shown = on_stage(*args, rows=3, **{"ATTN_PAGER": pager} | env)
    assert code == 0 and "paged" not in shown.split() and not Path("paged.txt").exists()


def test_a_pipe_and_a_pause_get_no_pager(pager):
    for args, start in ((LONG, "Attention"), (("self", "--help"), "Usage")):
        assert attn(*args, env={"ATTN_PAGER": pager}).out.startswith(start)
    assert not Path("paged.txt").exists()
    with Stage("example", "dictionary", "--pause", rows=8, env={"ATTN_PAGER": pager}) as stage:
        stage.count()
        stage.press("G", "q")
        assert stage.code() == 0 and b"paged" not in stage.shown


def test_less_is_told_to_show_colours_and_the_encoding_and_else_obeys_its_user(pager):
    for env, seen in (
        ({}, "FIRX,-c,utf-8"),
        ({"LESS": "-i", "LV": "-x"}, "-R -i,-x,utf-8"),
        ({"LESS": "", "LESSCHARSET": "dos"}, "-R,-c,dos"),
        ({"LESS": "-i", "NO_COLOR": "1"}, "-i,-c,utf-8"),
        ({"PYTHONIOENCODING": "latin-1"}, "FIRX,-c,"),  # which less has from the locale
    ):
        on_stage(*LONG, ATTN_PAGER=pager, **env)
        assert Path("env.txt").read_text().strip().replace(" ,", ",") == seen


@needs_less
def test_less_is_the_pager_of_those_who_name_none():
    with Stage(*LONG, env={"PAGER": None, "LESS": None}) as stage:
        stage.wait_for(":")
        assert b"\x1b[1mAttention" in stage.shown  # in colour
        stage.press("\x03")
        end = time.monotonic() + 20
        while b"Softmax" not in stage.shown and time.monotonic() < end:
            stage.press(" ")  # again, because the terminal drops keys that come with an interrupt
            stage.read(0.3)
        assert b"Softmax" in stage.shown
        stage.press("q")
        assert stage.code() == 0 and stage.modes() == stage.before


def test_without_less_nothing_is_amiss_and_a_pager_that_cannot_be_run_costs_a_line(at):
    (at / "bin").mkdir()
    (at / "pager.txt").write_text("no program")
    whole = attn(*LONG, "--width", "80").out
    assert on_stage(*LONG, PATH=str(at / "bin"), NO_COLOR="1") == (0, whole)
    for command in (f"./no-such-pager -{'x' * 60}", "no-such-pager '-x'", "/", "./pager.txt", '"'):
        code, shown = on_stage(*LONG, PAGER=command, NO_COLOR="1")
        said = f"attn: Cannot run the pager {command[:60]!r}, so there is none. Change PAGER."
        assert code == 0 and " ".join(shown.partition(whole)[2].split()) == said


def test_a_pager_may_have_options_and_may_be_a_line_of_the_shell(at):
    starts = {"head -n 1": "Attention:", "tr A-Z a-z | head -n 1": "attention:"}
    for command, start in (starts | {"A=some; echo $A \"'$HOME'\"": "some '/here'\n"}).items():
        assert on_stage(*LONG, PAGER=command, NO_COLOR="1", HOME="/here")[1].startswith(start)


def test_what_is_shown_is_never_run_and_no_file_of_settings_names_a_pager_and_messages_still_come(pager):
    text = "$(touch run) `touch run` ;touch run"
    for command in ("cat -", "cat | cat"):
        code, shown = on_stage("self", text, "--tokenizer", "whitespace", rows=3, PAGER=command)
        assert code == 0 and "$(touch" in shown and not Path("run").exists()
    Path("attn.toml").write_text('pager = "touch run"\n')
    assert on_stage(*LONG)[0] == 78 and not Path("run").exists()
    Path("attn.toml").write_text("precision = 2\n")
    code, shown = on_stage(*LONG, ATTN_PAGER=pager)
    assert code == 0 and "paged\n" in shown and "settings from attn.toml: precision." in shown


def test_who_has_seen_enough_quits_and_nothing_breaks():
    for command in ("true", "false", "head -n 1", "sh -c 'exit 3'", "grep"):  # which ends with 2
        code, shown = on_stage("vectors", "nearest", "the", "--top", "4000", ATTN_PAGER=command)
        assert code == 0 and "so there is none" not in shown


def test_the_exit_code_is_that_of_attn(pager):
    weights = record("example", "day1")["weights"]
    Path("right.json").write_text(json.dumps({"weights": weights}))
    Path("wrong.json").write_text(json.dumps({"weights": [row[::-1] for row in weights]}))
    check = ("check", "wrong.json", "--expect", "right.json")
    assert on_stage(*check, rows=3, ATTN_PAGER=pager) == (attn(*check).code, "paged\n")
    assert attn(*check).code == 1


def test_ctrl_c_is_the_pagers_business(at):
    traps = "trap 'echo interrupted' INT; cat > /dev/null; echo ready; read x < /dev/tty; sleep .1; echo over"
    (at / "pager.sh").write_text(traps)
    with Stage(*LONG, env={"ATTN_PAGER": "sh pager.sh"}) as stage:
        stage.wait_for(lambda s: b"ready" in s.shown)
        stage.press("\x03")
        stage.wait_for(lambda s: b"interrupted" in s.shown)
        stage.press("\r")
        assert stage.code() == 0 and b"over" in stage.shown


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("name", ["sh pager.sh", pytest.param("less", marks=needs_less)])
def test_a_signal_ends_the_pager_too_and_the_terminal_is_as_before(at, number, name):
    (at / "pager.sh").write_text("echo $$ > pid.txt; cat > /dev/null; echo ready; exec sleep 60")
    with Stage(*LONG, env={"PAGER": name}) as stage:
        stage.wait_for(":" if name == "less" else lambda s: b"ready" in s.shown)
        time.sleep(0.1)
        assert (stage.modes() != stage.before) == (name == "less")
        os.kill(stage.run.pid, number)
        assert stage.code() == 128 + number and stage.modes() == stage.before
    if name != "less":
        with pytest.raises(ProcessLookupError):
            os.kill(int(Path("pid.txt").read_text()), 0)
